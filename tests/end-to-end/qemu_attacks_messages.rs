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

/// `good` sends 80 messages to `receiver`, which takes in what has come every 2 ms, as a task with
/// that period does. `malicious` has a flow to it, too, over whose connection it sends packets, and
/// `stray` has one, which sends packets of no connection.
fn system(arguments: &str, transport: &str) -> String {
    let flow = |name: &str, port: u32, keys: &str| {
        format!(
            "\n[[flow]]\nname = \"{name}\"\nfrom = \"{name}\"\nto = \"receiver\"\nport = {port}\n\
             size = \"4KiB\"\n{keys}\n"
        )
    };
    let good = "elf = \"sender\", args = \"to=4 messages=80 size=4096 period_us=1000 \
                start_us=20000\"";
    let receiver = "elf = \"receiver\", args = \"bytes=327680 ports=2 every_us=2000\"";
    let malicious = |cid: u32, stray: u32| {
        let arguments = format!("controls=16 from={cid} to=4 {arguments} stray={stray}");
        format!("elf = \"malicious-driver\", args = \"{arguments}\"")
    };
    [
        "platform = \"qemu-virt\"\n".to_owned(),
        vm("good", 0, "4MiB", good, ""),
        vm("receiver", 1, "4MiB", receiver, transport),
        vm("malicious", 2, "4MiB", &malicious(5, 0), transport),
        vm("stray", 5, "4MiB", &malicious(6, 1), transport),
        flow("good", 5000, "period = \"1ms\"\ndeadline = \"500us\""),
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

/// Returns how many of 80 messages of the first flow, which is `good`, are late or lost. All must
/// have been sent, next to an attack that has come to its end.
fn missed(outcome: &Outcome, attack: &str) -> u64 {
    assert_eq!(outcome.vm("good")["state"], "off", "{attack}");
    let vms = outcome.report["vms"].as_array().expect("VMs");
    let names = vms.iter().filter_map(|vm| vm["name"].as_str());
    // All others attack.
    for name in names.filter(|name| !["good", "receiver", "broker"].contains(name)) {
        let console = &outcome.consoles[name];
        assert!(console.contains(" control packets over "), "{attack}: {name}: {console}");
    }
    let flow = &outcome.report["flows"][0];
    assert_eq!((&flow["name"], &flow["packets"]), (&"good".into(), &80.into()), "{attack}");
    assert_ne!(flow["verdict"], "does-not-hold", "{attack}: {flow}");
    ["late", "lost"].map(|key| flow[key].as_u64().expect("a count")).iter().sum()
}

/// Eighty packets of each kind in a millisecond, of a connection and of none, over both transports:
/// they fill no receive buffer that the good flow needs. The receiver answers most of them.
#[test]
fn no_packets_starve_another_flow_to_the_receiver() {
    let operations =
        ["request", "response", "reset", "shutdown", "data", "credit-update", "credit-request"];
    let mut all = 0;
    for transport in ["", "vsock = \"pci\""] {
        for operation in operations {
            let attack = format!("rounds=500 every_us=200 op={operation}");
            all += missed(&run(&system(&attack, transport), "200ms"), &attack);
        }
    }
    let attack = Attack { guest: "malicious-driver controls=16, seven kinds", core: "another" };
    attack.assert_loss("messages of 1,120 beyond their deadline or lost", all, 0);
}

/// The same next to a Linux that receives: its driver returns buffers once more than half of them
/// are used, and answers stray packets and credit requests.
#[test]
fn no_packets_starve_another_flow_to_linux() {
    let good = "elf = \"sender\", args = \"to=4 port=5001 messages=80 size=4096 period_us=1000 \
                connect_us=6000000\"";
    let linux = "linux = \"debian-rt\", initrd = \"debian-vsock\", \
                 cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet \
                 weir.run=receive,poweroff weir.receive=port=5001,streams=1\"";
    let flow = |from: &str, period: &str, deadline: &str| {
        format!(
            "\n[[flow]]\nname = \"{from}\"\nfrom = \"{from}\"\nto = \"receiver\"\nport = 5001\n\
             size = \"4KiB\"\nperiod = \"{period}\"\ndeadline = \"{deadline}\"\n"
        )
    };
    let mut all = 0;
    for kind in ["credit-update stray=1", "credit-request stray=0"] {
        let attack = format!("start_us=6000000 rounds=600 every_us=200 op={kind}");
        let malicious =
            format!("elf = \"malicious-driver\", args = \"controls=16 from=5 to=4 {attack}\"");
        let text = [
            "platform = \"qemu-virt\"\n".to_owned(),
            vm("good", 0, "4MiB", good, ""),
            vm("receiver", 1, "128MiB", linux, ""),
            vm("malicious", 2, "4MiB", &malicious, ""),
            flow("good", "1ms", "500us"),
            flow("malicious", "100us", "100us"),
            "\n[dma]\npath = \"broker\"\n[broker]\ncpus = [3]\n[hypervisor]\nconsole_core = 4\n"
                .to_owned(),
        ];
        let outcome = run(&text.concat(), "8s");
        all += missed(&outcome, &attack);
        let receiver = &outcome.consoles["receiver"];
        assert!(receiver.contains("linux: port 5001: 327680 bytes in order"), "{receiver}");
    }
    let attack = Attack { guest: "malicious-driver controls=16, Linux receives", core: "another" };
    attack.assert_loss("messages of 160 beyond their deadline or lost", all, 0);
}

/// A device whose ring makes no sense says that it needs a reset, with an interrupt for a change of
/// configuration (virtio 1.2, section 2.1.2), and the other end of its connection is reset while
/// the driver still runs: what it has got is not all.
#[test]
fn a_broken_ring_is_an_error_at_both_ends() {
    for transport in ["", "vsock = \"pci\""] {
        let attack = "rounds=2 every_us=30000 op=data breaks=1";
        let outcome = run(&system(attack, transport), "200ms");
        says_that_it_is_broken(&outcome);
        let receiver = &outcome.consoles["receiver"];
        assert!(receiver.contains("receiver: port 5001: reset after "), "{receiver}");
        assert!(receiver.contains("receiver: port 5000: 327680 bytes in order"), "{receiver}");
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
