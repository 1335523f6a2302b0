//! Flows with ends on cores that VMs share, in real runs: each packet keeps its bound, which
//! contains the receiver's absence, and a VM in a flow takes nothing from its neighbors.

use crate::support::{
    board::{not_applicable_if, sharing},
    qemu::{Options, Outcome, run_system, system, with},
};
use serde_json::Value;
use weir_model::platform::Platform;

/// Packets of each flow, one each 2 ms.
const PACKETS: u64 = 200;
const SENDS: &str = "messages=200 size=4096 period_us=2000 start_us=30000";
const RECEIVES: &str = "bytes=819200 streams=1";
const DONE: &str = "expect = [\"receiver: port 5000: 819200 bytes in order\"]";

/// A VM on core `core`.
fn vm(name: &str, core: u8, guest: &str, args: &str, keys: &str) -> String {
    let memory = if guest == "context" { 4 } else { 2 };
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"{memory}MiB\"\n\
         image = {{ elf = \"{guest}\", args = \"{args}\" }}\n{keys}\n"
    )
}

/// A VM that computes without pause and checks its registers.
fn neighbor(name: &str, core: u8) -> String {
    let expect = "expect = [\"context: 8000 rounds, 0 damaged\"]";
    vm(name, core, "context", "rounds=8000 spin=2000", expect)
}

fn schedule(core: u8, schedule: &str) -> String {
    format!("\n[[core]]\nid = {core}\nschedule = {{ {schedule} }}\n")
}

const ROUND: &str = "kind = \"round-robin\", quantum = \"500us\"";

/// A table in which VM `first` has the first 400 us of each millisecond, and `then` the rest.
fn table(first: &str, then: &str) -> String {
    format!(
        "kind = \"table\", major_frame = \"1ms\", slots = [\
         {{ vm = \"{first}\", start = \"0us\", length = \"400us\" }}, \
         {{ vm = \"{then}\", start = \"400us\", length = \"600us\" }} ]"
    )
}

/// Budgets, of which that of VM `first` is the most urgent.
fn servers(first: &str, then: &str) -> String {
    format!(
        "kind = \"fixed-priority\", servers = [\
         {{ vm = \"{first}\", budget = \"200us\", period = \"1ms\" }}, \
         {{ vm = \"{then}\", budget = \"500us\", period = \"1ms\" }} ]"
    )
}

/// The flow from `sender` to `receiver`, with the broker on core `broker`.
fn flow(broker: u8) -> String {
    format!(
        "\n[broker]\ncpus = [{broker}]\n\n[[flow]]\nname = \"messages\"\nfrom = \"sender\"\n\
         to = \"receiver\"\nport = 5000\nsize = \"4KiB\"\nperiod = \"2ms\"\ndeadline = \"2ms\"\n"
    )
}

fn run(text: &str, platform: &str, arguments: &[&str]) -> Outcome {
    let text = format!("platform = \"{platform}\"\n{text}");
    run_system(&text, &Options { arguments, ..Options::default() })
}

/// The flow's `latency_ns.max` and `bound_ns`.
fn latency(outcome: &Outcome) -> [u64; 2] {
    let flow = &outcome.report["flows"][0];
    [&flow["latency_ns"]["max"], &flow["bound_ns"]].map(|of| of.as_u64().expect("ns"))
}

/// Fails unless the flow kept its bound, by the run's verdict.
fn holds(outcome: &Outcome, packets: u64) {
    outcome.keeps_its_bound(packets);
    assert_eq!(outcome.report["flows"][0]["verdict"], "holds", "{}", outcome.report["flows"]);
}

/// Sender and receiver each share a core with a VM that never sleeps.
fn apart(schedules: [String; 2]) -> String {
    let [first, second] = schedules;
    [
        vm("sender", 0, "sender", &format!("to=4 {SENDS}"), ""),
        vm("receiver", 1, "receiver", RECEIVES, DONE),
        neighbor("one", 0),
        neighbor("two", 1),
        schedule(0, &first),
        schedule(1, &second),
        flow(2),
    ]
    .concat()
}

/// By each kind of schedule, and with both ends on one core. The packets come when the receiver has
/// just left its core, so that each waits for it: the latencies contain that, as the bounds do.
#[test]
fn ends_on_shared_cores_keep_the_bound() {
    let both = [
        vm("sender", 0, "sender", &format!("to=4 {SENDS}"), ""),
        vm("receiver", 0, "receiver", RECEIVES, DONE),
        neighbor("one", 0),
    ];
    let one_core = |kind: &str| [both.concat(), schedule(0, kind), flow(1)].concat();
    let late = apart([table("sender", "one"), table("two", "receiver")]);
    for (text, waits) in [
        (apart([ROUND.to_owned(), ROUND.to_owned()]), true),
        (late, true),
        (apart([servers("sender", "one"), servers("receiver", "two")]), false),
        (one_core(ROUND), true),
    ] {
        for platform in ["qemu-virt", "qemu-virt-gicv2"] {
            let outcome = run(&text, platform, &["--for", "1s"]).good();
            holds(&outcome, PACKETS);
            let [max, bound] = latency(&outcome);
            println!("{platform}: {max} of {bound} ns");
            // An urgent server has the core at once, unless its budget is spent.
            assert_eq!(max * 4 > bound, waits, "{max} of {bound} ns");
        }
    }
}

/// A broker that shares its core with an end of its flow.
#[test]
fn an_end_shares_the_brokers_core() {
    let is_unmeasured = |board: &Platform| board.overheads.steps.is_empty();
    not_applicable_if(is_unmeasured, "the board has no [overheads], so that no flow has a bound");
    let kind = "kind = \"fixed-priority\", servers = [\
                { vm = \"broker\", budget = \"200us\", period = \"500us\" }, \
                { vm = \"END\", budget = \"500us\", period = \"2ms\" } ]";
    for (end, cores) in [("sender", [0, 1]), ("receiver", [1, 0])] {
        for kind in [kind.replace("END", end), table("broker", end), table(end, "broker")] {
            let text = [
                vm("sender", cores[0], "sender", &format!("to=4 {SENDS}"), ""),
                vm("receiver", cores[1], "receiver", RECEIVES, DONE),
                schedule(0, &kind),
                flow(0),
            ];
            let outcome = run(&text.concat(), "qemu-virt", &["--for", "1s"]).good();
            holds(&outcome, PACKETS);
            println!("{end}: {:?}", latency(&outcome));
        }
    }
}

/// A hostile neighbor of each end traps without end, or restarts without end.
#[test]
fn an_attack_next_to_an_end_keeps_the_bound() {
    let sends = "to=4 messages=30 size=4096 period_us=2000 start_us=30000";
    let done = "expect = [\"receiver: port 5000: 122880 bytes in order\"]";
    let round = || [ROUND.to_owned(), ROUND.to_owned()];
    let urgent = || [servers("sender", "one"), servers("receiver", "two")];
    for (guest, args, [first, second]) in [
        ("storms", "kind=sgi", urgent()),
        ("storms", "kind=mmio", round()),
        ("storms", "kind=pending", urgent()),
        ("storms", "kind=hypercall", round()),
        ("phoenix", "boots=1000 quiet=1", round()),
        ("phoenix", "boots=1000 quiet=1", urgent()),
    ] {
        let text = [
            vm("sender", 0, "sender", sends, ""),
            vm("receiver", 1, "receiver", "bytes=122880 streams=1", done),
            vm("one", 0, guest, args, ""),
            vm("two", 1, guest, args, ""),
            schedule(0, &first),
            schedule(1, &second),
            flow(2),
        ];
        let outcome = run(&text.concat(), "qemu-virt", &["--for", "150ms"]).good();
        holds(&outcome, 30);
        println!("{guest} {args}: {:?}", latency(&outcome));
        if guest == "phoenix" {
            let restarts = outcome.vm("two")["restarts"].as_u64();
            assert!(restarts > Some(10), "{restarts:?}");
        }
    }
}

/// The longest latency of `control`, whose activations are in the midst of its slots, in ns.
fn longest(outcome: &Outcome) -> u64 {
    let lines = outcome.lines("control");
    assert!(lines.iter().any(|line| line.contains(" activations, 0 misses")), "{lines:?}");
    let max = lines.iter().find_map(|line| line.split_once(" max ")?.1.split(' ').next());
    let latency = lines.iter().rfind(|line| line.contains("latency min")).copied();
    let latency = latency.and_then(|line| line.split_once(" max ")?.1.split(' ').next()).or(max);
    latency.and_then(|max| max.parse().ok()).expect("a number")
}

/// Each end of a flow restarts in its own slots: its neighbor, which begins an activation with each
/// slot, is a section of EL2 later at most, and another flow keeps its bound.
#[test]
fn an_end_restarts_in_its_own_slots() {
    let control = vm("control", 0, "control", "activations=300 report=300 phase_us=0", "");
    let kind = |end: &str| table("control", end);
    let quiet = [&control, &vm("end", 0, "storms", "kind=nothing", ""), &schedule(0, &kind("end"))];
    let quiet = quiet.map(String::as_str).concat();
    let quiet = longest(&run(&quiet, "qemu-virt", &["--for", "400ms", "--keep-running"]));
    let other = [
        vm("left", 3, "sender", "to=7 port=5001 messages=150 size=700 period_us=2000", ""),
        vm("right", 4, "receiver", "port=5001 bytes=105000", ""),
    ];
    let other_flow = "\n[[flow]]\nname = \"other\"\nfrom = \"left\"\nto = \"right\"\nport = 5001\n\
                      size = \"4KiB\"\nperiod = \"2ms\"\ndeadline = \"2ms\"\n";
    let restart = "on_fault = \"restart\"";
    for (end, cores, crash) in
        [("sender", [0, 1], ["crash=50", "streams=2"]), ("receiver", [1, 0], ["", "crash=100000"])]
    {
        let sends = format!("to=4 messages=150 size=4096 period_us=2000 {}", crash[0]);
        let receives = format!("bytes=614400 {}", crash[1]);
        let text = [
            vm("sender", cores[0], "sender", &sends, restart),
            vm("receiver", cores[1], "receiver", &receives, restart),
            control.clone(),
            other.concat(),
            schedule(0, &kind(end)),
            flow(2),
            other_flow.to_owned(),
        ];
        let outcome = run(&text.concat(), "qemu-virt", &["--for", "800ms", "--keep-running"]);
        assert_eq!(outcome.vm(end)["restarts"], 1, "{end}");
        let [sent, come] = ["sender", "receiver"].map(|name| {
            let lines = outcome.lines(name);
            let sum = lines.iter().rfind(|line| line.contains(", sum ")).copied();
            sum.and_then(|line| Some(line.split_once(", sum ")?.1.to_owned())).expect("a sum")
        });
        assert_eq!(sent, come, "{end}");
        let other = &outcome.report["flows"][1];
        assert_eq!((&other["verdict"], &other["packets"]), (&"holds".into(), &150.into()));
        let max = longest(&outcome);
        println!("{end}: {max} ns, {quiet} ns next to a VM that computes");
        assert!(max <= quiet + sharing().switch.0, "{end}: {max} of {quiet}");
    }
}

/// Linux sends setpoints to an RTOS that shares its core with a logger, and the RTOS has its core
/// for each of them in time. The bound says how long it can be away.
#[test]
fn setpoints_reach_an_rtos_in_time() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let text = with(&system("setpoints"), "\"qemu-virt\"", &format!("{platform:?}"));
        let outcome = run_system(&text, &Options::default()).good();
        holds(&outcome, 100);
        let flow = &outcome.report["flows"][0];
        assert!(flow["bound_ns"].as_u64() < flow["deadline_ns"].as_u64(), "{flow}");
        assert_eq!(outcome.report["verdict"], Value::from("holds"));
        println!("{platform}: {:?}", latency(&outcome));
    }
}

/// A bare-metal VM sends to a Linux that shares its core, in turn with a VM that never sleeps.
#[test]
fn linux_receives_on_a_shared_core() {
    let sends = "to=3 port=5001 messages=50 size=1024 period_us=10000 connect_us=2000000";
    let linux = "\n[[vm]]\nname = \"linux\"\ncpus = [0]\nmemory = \"128MiB\"\n\
                 image = { linux = \"debian-rt\", initrd = \"debian-vsock\", \
                 cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet \
                 weir.run=receive,poweroff weir.receive=port=5001\" }\n\
                 expect = [\"linux: port 5001: 51200 bytes in order\", \"linux: done\"]\n";
    let text = [
        linux.to_owned(),
        vm("rtos", 1, "sender", sends, ""),
        vm("logger", 0, "storms", "kind=nothing", ""),
        schedule(0, ROUND),
        "\n[[flow]]\nname = \"states\"\nfrom = \"rtos\"\nto = \"linux\"\nport = 5001\n\
         size = \"1KiB\"\nperiod = \"10ms\"\ndeadline = \"4ms\"\n"
            .to_owned(),
    ];
    let outcome = run(&text.concat(), "qemu-virt", &["--for", "6s"]).good();
    holds(&outcome, 50);
    println!("{:?}", latency(&outcome));
}
