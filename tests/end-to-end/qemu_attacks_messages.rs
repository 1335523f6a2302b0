//! Isolation attacks by packets, next to a flow that keeps the rules and has the same receiver.

use crate::support::{
    loss::Attack,
    qemu::{Options, Outcome, run_system},
};

/// A VM on a core; `keys` are more lines of its table.
fn vm(name: &str, core: u32, memory: &str, image: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"{memory}\"\n\
         image = {{ {image} }}\n{keys}\n"
    )
}

/// Who receives, and when `good` sends what to it.
struct Receiver<'a> {
    image: &'a str,
    /// The port that `good` sends to. The attackers' is 5001.
    port: u32,
    good: &'a str,
}

/// Takes in what has come every 2 ms, as a task with that period does.
const TASK: Receiver<'_> = Receiver {
    image: "elf = \"receiver\", args = \"bytes=5324800 ports=2 every_us=2000\"",
    port: 5000,
    good: "messages=1300 start_us=20000",
};

/// Returns buffers once more than half of them are used, and answers stray packets and credit
/// requests.
const LINUX: Receiver<'_> = Receiver {
    image: "linux = \"debian-rt\", initrd = \"debian-vsock\", \
            cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet \
            weir.run=receive weir.receive=port=5001,streams=999,each=1\"",
    port: 5001,
    good: "messages=1300 connect_us=6000000",
};

/// `good` sends messages of 4 KiB to a receiver. `malicious` has a flow to it, too, over whose
/// connection it sends packets, and `stray` has one, which sends packets of no connection;
/// `arguments` are both attackers', and `transport` is a line of the system file.
fn system(receiver: &Receiver<'_>, arguments: &str, transport: &str) -> String {
    let Receiver { image, port, good } = receiver;
    let flow = |name: &str, port: u32, keys: &str| {
        format!(
            "\n[[flow]]\nname = \"{name}\"\nfrom = \"{name}\"\nto = \"receiver\"\nport = {port}\n\
             size = \"4KiB\"\n{keys}\n"
        )
    };
    let good = format!("to=4 port={port} size=4096 period_us=1000 {good}");
    let good = format!("elf = \"sender\", args = \"{good}\"");
    let malicious = |cid: u32, stray: u32| {
        let arguments = format!("controls=16 from={cid} to=4 {arguments} stray={stray}");
        format!("elf = \"malicious-driver\", args = \"{arguments}\"")
    };
    [
        "platform = \"qemu-virt\"\n".to_owned(),
        vm("good", 0, "4MiB", &good, ""),
        vm("receiver", 1, "128MiB", image, transport),
        vm("malicious", 2, "4MiB", &malicious(5, 0), transport),
        vm("stray", 5, "4MiB", &malicious(6, 1), transport),
        flow("good", *port, "period = \"1ms\"\ndeadline = \"500us\""),
        flow("malicious", 5001, "period = \"100us\"\ndeadline = \"100us\""),
        flow("stray", 5001, "period = \"100us\"\ndeadline = \"100us\""),
        "\n[dma]\npath = \"broker\"\n[broker]\ncpus = [3]\n[hypervisor]\nconsole_core = 4\n"
            .to_owned(),
    ]
    .concat()
}

/// Runs a system for so long. The attacker misses its own deadline, so the run's status is no
/// measure.
fn run(text: &str, time: &str) -> Outcome {
    let arguments = &["--for", time, "--keep-running"];
    run_system(text, &Options { arguments, ..Options::default() })
}

/// Returns how many of 1300 messages of the first flow, which is `good`, are late or lost. All must
/// have been sent, next to attacks that have come to their end.
fn missed(outcome: &Outcome) -> u64 {
    assert_eq!(outcome.vm("good")["state"], "off");
    for name in ["malicious", "stray"] {
        let console = &outcome.consoles[name];
        // Of seven kinds, 450 rounds of 16.
        let sent = console
            .split("malicious-driver: ")
            .nth(1)
            .and_then(|line| line.split_once(" control packets over ")?.0.parse::<u32>().ok());
        assert!(sent.is_some_and(|sent| sent >= 7 * 450 * 16), "{name}: {console}");
    }
    let flow = &outcome.report["flows"][0];
    assert_eq!((&flow["name"], &flow["packets"]), (&"good".into(), &1300.into()));
    assert_ne!(flow["verdict"], "does-not-hold", "{flow}");
    ["late", "lost"].map(|key| flow[key].as_u64().expect("a count")).iter().sum()
}

/// Eighty packets of each kind in a millisecond, of a connection and as many of none, over both
/// transports: they fill no receive buffer that the good flow needs. Data of the connection come at
/// the period of their flow.
fn starve(receiver: &Receiver<'_>, start_us: u32, time: &str, what: &str) {
    let mut all = 0;
    for transport in ["", "vsock = \"pci\""] {
        let attack = format!("start_us={start_us} rounds=450 every_us=200 op=all");
        let outcome = run(&system(receiver, &attack, transport), time);
        all += missed(&outcome);
        let console = &outcome.consoles["receiver"];
        let good = format!("port {}: 5324800 bytes in order", receiver.port);
        assert!(console.contains(&good), "{console}");
    }
    let guest = format!("malicious-driver controls=16, seven kinds, {what}");
    let attack = Attack { guest: &guest, core: "another" };
    attack.assert_loss("messages of 2,600 beyond their deadline or lost", all, 0);
}

#[test]
fn no_packets_starve_another_flow_to_the_receiver() {
    starve(&TASK, 0, "1500ms", "a task receives");
}

#[test]
fn no_packets_starve_another_flow_to_linux() {
    starve(&LINUX, 6_010_000, "8s", "Linux receives");
}

/// A device whose ring makes no sense says that it needs a reset, with an interrupt for a change of
/// configuration (virtio 1.2, section 2.1.2), and the other end of its connection is reset while
/// the driver still runs: what it has got is not all.
#[test]
fn a_broken_ring_is_an_error_at_both_ends() {
    for transport in ["", "vsock = \"pci\""] {
        let attack = "rounds=2 every_us=30000 op=data breaks=1";
        let outcome = run(&system(&TASK, attack, transport), "1500ms");
        says_that_it_is_broken(&outcome);
        let receiver = &outcome.consoles["receiver"];
        assert!(receiver.contains("receiver: port 5001: reset after "), "{receiver}");
        assert!(receiver.contains("receiver: port 5000: 5324800 bytes in order"), "{receiver}");
    }
}

/// So does a network device.
#[test]
fn a_broken_network_ring_is_an_error() {
    let port = |name: &str, core: u32, image: &str| {
        let net = format!("net = {{ mac = \"52:54:00:00:00:0{core}\" }}");
        vm(name, core, "4MiB", image, &net)
    };
    let text = [
        "platform = \"qemu-virt\"\n".to_owned(),
        port("malicious", 1, "elf = \"malicious-driver\", args = \"breaks=net\""),
        port("other", 2, "elf = \"station\", args = \"expect=1\""),
    ];
    says_that_it_is_broken(&run(&text.concat(), "50ms"));
}

/// The attacker, which has broken a ring in the end, has seen it, and runs.
fn says_that_it_is_broken(outcome: &Outcome) {
    let console = &outcome.consoles["malicious"];
    let line = "a device needs a reset, interrupt reason 2, pending: true";
    assert!(console.contains(line), "{console}");
    assert_eq!(outcome.vm("malicious")["state"], "running");
}
