//! A network device that VMs share, in QEMU: the switch, the VM that drives the board's device, and
//! stations that flood, lie and die; and one that a VM has for itself, as a load of the core that
//! it shares.

use crate::support::{
    capture,
    qemu::{Options, Outcome, run_system, system, with},
};
use serde_json::Value;
use std::{fs, process::Command};

/// A VM on a core with a port and an address that ends in `number`.
fn station(name: &str, core: u8, number: u8, limits: &str, args: &str, more: &str) -> String {
    format!(
        r#"
[[vm]]
name = "{name}"
cpus = [{core}]
memory = "2MiB"
image = {{ elf = "station", args = "{args}" }}
net = {{ mac = "52:54:00:00:00:{number:02x}"{limits} }}
{more}
"#
    )
}

/// Stations alone, with counts that are fresh.
fn stations(vms: &[String]) -> String {
    let vms = vms.concat();
    format!("platform = \"qemu-virt\"\n\n[hypervisor]\nheartbeat = \"20ms\"\n{vms}")
}

fn frames(outcome: &Outcome, vm: &str, what: &str) -> u64 {
    outcome.vm(vm)["frames"][what].as_u64().expect("a number of frames")
}

/// Runs a system with QEMU's device, with a network of the host's behind it that offers files
/// of `directory`.
fn run_outside(text: &str, directory: Option<&str>) -> Outcome {
    let offer = directory.map_or(String::new(), |directory| format!(",tftp={directory}"));
    let network = format!("--qemu-arg=user,id=outside{offer}");
    let device = "--qemu-arg=virtio-net-pci,netdev=outside,addr=2,disable-legacy=on,iommu_platform=on,romfile=";
    let arguments = ["--qemu-arg=-netdev", &network, "--qemu-arg=-device", device];
    // What comes from outside comes at a time of the host.
    let arguments = [&["--input", "--for", "120s"], &arguments[..]].concat();
    run_system(text, &Options { arguments: &arguments, ..Options::default() })
}

#[test]
fn two_on_one_core_share_a_device_in_host_time() {
    run_outside(&system("switch"), None).good();
}

#[test]
fn two_linuxes_share_a_device_in_host_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines: Vec<_> = (1_000_000..1_100_000).map(|number: u32| number.to_string()).collect();
    let lines = lines.join("\n") + "\n";
    fs::write(directory.path().join("lines"), lines).expect("a file");
    let text = system("shared-net").replace("weir.address=", "weir.file=lines weir.address=");
    let outcome = run_outside(&text, directory.path().to_str()).good();
    for vm in ["north", "south"] {
        let came = "linux: outside gave 800000 bytes, 6e686363f17e2ccabbb49b350f63f542";
        let lines = outcome.lines(vm);
        assert!(lines.iter().any(|line| line.contains(came)), "{vm}: {lines:#?}");
        let slept =
            |line: &&str| line.starts_with("linux: cyclictest T: 0") && line.contains("C:   1000 ");
        assert!(lines.iter().any(slept), "{vm}: {lines:#?}");
        // 20 echoes from outside and 100 from the other, and answers to the other's 100.
        let count = |what| frames(&outcome, vm, what);
        let (sent, received) = (count("sent"), count("received"));
        assert!(sent >= 220 && received >= 220, "{vm}: {sent} sent, {received} received");
        assert_eq!([count("over_rate"), count("refused")], [0, 0], "{vm}");
    }
    // The VM with the driver that begins last misses the other's broadcasts until then, which
    // depends on the host's load. The other one misses next to nothing.
    let missed = ["north", "south"].map(|vm| frames(&outcome, vm, "missed"));
    assert!(missed[0].min(missed[1]) <= 8, "{missed:?} missed");
}

#[test]
fn a_service_vm_restart_spares_others_in_host_time() {
    let text =
        with(&system("switch"), r#"{ elf = "switch" }"#, r#"{ elf = "switch", args = "crash=8" }"#);
    // What is on its way when it dies is lost; what is asked for later is answered.
    let text = text.replace(r#", "20 of 20 echoes of 1000 bytes from outside""#, "");
    let echoes = r#"0 damaged", "of 20 echoes"]"#;
    let outcome = run_outside(&text.replace(r#"0 damaged"]"#, echoes), None).good();
    assert_eq!(outcome.vm("switch")["restarts"], 1);
    for vm in ["north", "south"] {
        let lines = outcome.lines(vm);
        let line = lines.iter().find(|line| line.contains("echoes")).expect("a count");
        let good: u64 = line.split(' ').find_map(|word| word.parse().ok()).expect("a number");
        // Each of the two had at most two frames at the one that died, and asks for some more until
        // it is back.
        assert!((10..=20).contains(&good), "{vm}: {line}");
    }
}

#[test]
fn a_flood_stops_no_vm_and_is_limited() {
    let expect = r#"expect = ["500 frames from 52:54:00:00:00:01, 0 lost, 0 damaged"]"#;
    let flood = "to=52:54:00:00:00:02 frames=1000000 interval_us=0";
    let text = stations(&[
        station("quiet", 0, 1, "", "to=52:54:00:00:00:02 frames=500", ""),
        station("both", 1, 2, "", "expect=500 from=52:54:00:00:00:01", expect),
        station("loud", 2, 3, ", rate = 2000, burst = 16", flood, ""),
    ]);
    let outcome = run_system(&text, &Options::default()).good();
    let time_ns = outcome.report["time_ns"].as_u64().expect("a time");
    let sent = frames(&outcome, "loud", "sent");
    assert!(sent > 100, "{sent} sent");
    assert!(sent <= 16 + time_ns / 500_000 + 1, "{sent} frames in {time_ns} ns");
    assert!(frames(&outcome, "loud", "over_rate") > 1000, "{:?}", outcome.vm("loud")["frames"]);
    assert_eq!(frames(&outcome, "quiet", "over_rate"), 0);
}

#[test]
fn frames_in_chains_of_any_length_arrive() {
    let cut = "to=52:54:00:00:00:02 frames=256 cut=1";
    let expect = r#"expect = ["256 frames from 52:54:00:00:00:01, 0 lost, 0 damaged"]"#;
    let text = stations(&[
        station("cuts", 0, 1, "", cut, ""),
        station("other", 1, 2, "", "expect=256", expect),
    ]);
    let outcome = run_system(&text, &Options::default()).good();
    assert!(frames(&outcome, "cuts", "sent") >= 256);
}

#[test]
fn bytes_are_limited_too() {
    let flood = "to=52:54:00:00:00:02 frames=1000000 interval_us=0";
    let text = stations(&[
        station("loud", 0, 1, r#", bandwidth = "1MB/s", burst = 4"#, flood, ""),
        station("other", 1, 2, "", "expect=200", r#"expect = ["200 frames from"]"#),
    ]);
    let outcome = run_system(&text, &Options::default()).good();
    let time_ns = outcome.report["time_ns"].as_u64().expect("a time");
    // 200 frames of 1514 bytes came at 1 byte in a microsecond, after a burst of four. (Those by
    // which the sender asks whether the other runs are short, and as many as it needs.)
    assert!(time_ns >= (200 - 4) * 1_514_000, "200 frames in {time_ns} ns");
    assert!(frames(&outcome, "loud", "over_rate") > 1000);
}

#[test]
fn no_vm_sends_in_the_name_of_another() {
    let lies = "to=52:54:00:00:00:02 frames=50 as=52:54:00:00:00:01";
    let expect = r#"expect = ["100 frames from 52:54:00:00:00:01, 0 lost, 0 damaged"]"#;
    let text = stations(&[
        station("true", 0, 1, "", "to=52:54:00:00:00:02 frames=100", ""),
        station("both", 1, 2, "", "expect=100", expect),
        station("false", 2, 3, "", lies, r#"expect = ["50 frames sent"]"#),
    ]);
    let outcome = run_system(&text, &Options::default()).good();
    let refused = frames(&outcome, "false", "refused");
    assert!((40..=50).contains(&refused), "{refused} refused");
    let denials = &outcome.vm("false")["denials"]["malformed or disallowed packet"];
    assert!(denials.as_u64().is_some_and(|count| count >= 40), "{denials}");
    assert_eq!(outcome.vm("true")["denials"], Value::Object(serde_json::Map::default()));
}

#[test]
fn a_dead_station_restarts_and_the_other_goes_on() {
    // Frames come more often than the restart takes: it zeroes 2 MiB, in more than 100 us.
    let dies = "to=52:54:00:00:00:02 frames=300 interval_us=100 crash=100";
    // What is in its ring when it dies is lost: a frame or two of the first 100.
    let expect = r#"expect = [" frames from 52:54:00:00:00:01, 0 lost, 0 damaged"]"#;
    let sends = "to=52:54:00:00:00:01 frames=600 interval_us=50 expect=390";
    let text = stations(&[
        station("dies", 0, 1, "", dies, "on_fault = \"restart\""),
        station("lives", 1, 2, "", sends, expect),
    ]);
    let outcome = run_system(&text, &Options::default()).good();
    assert_eq!(outcome.vm("dies")["restarts"], 1);
    assert_eq!(outcome.vm("lives")["restarts"], 0);
    // Between two boots the VM takes no frames.
    assert!(frames(&outcome, "dies", "missed") > 0, "{:?}", outcome.vm("dies")["frames"]);
}

/// Runs `examples/hub/hub.toml`, where frames come so often to a VM with this rule of its line: the
/// mean of its neighbor's sleeps, the longest, and how often the line came.
fn packets(interval_us: u32, rule: &str) -> (u64, u64, usize) {
    let text = with(&system("hub"), "interval_us=2000", &format!("interval_us={interval_us}"));
    let limited = text.lines().find(|line| line.starts_with("rate = ")).expect("a rate");
    let text = with(&text, &format!("preempt = true\n{limited}"), rule);
    let mut arguments = vec!["--for".to_owned(), "60s".to_owned()];
    for (name, slot) in [("a", 2), ("b", 3)] {
        let hub = format!("hubport,id={name},hubid=0");
        let device = format!(
            "virtio-net-pci,netdev={name},addr={slot},mac=52:54:00:00:00:0{slot},disable-legacy=on,iommu_platform=on,romfile="
        );
        for argument in ["-netdev", &hub, "-device", &device] {
            arguments.push(format!("--qemu-arg={argument}"));
        }
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let options = Options { arguments: &arguments, ..Options::default() };
    let outcome = run_system(&text, &options).good();
    let lines = outcome.lines("rtos");
    let printed = lines.iter().find(|line| line.starts_with("sleeper: ")).expect("a report");
    let numbers: Vec<u64> =
        printed.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("trace").arg(&outcome.run).args(["--format", "csv", "--kind", "interrupt"]);
    let came = capture(&mut command)
        .out
        .lines()
        .filter(|line| line.contains(",gpos,0,interrupt,37,"))
        .count();
    (numbers[1], numbers[2], came)
}

#[test]
fn packets_delay_a_sharer_only_if_they_may_preempt() {
    let (free, _, many) = packets(500, "preempt = true");
    let (waiting, longest, _) = packets(500, "");
    let (seldom, longest_of_few, few) = packets(20_000, "");
    let (limited, longest_limited, _) = packets(500, "preempt = true\nrate = 5\nburst = 1");
    assert!(free > waiting + 2_000, "{free} us with preemption, {waiting} us without");
    assert!(many > 10 * few, "{many} interrupts, {few} at a fortieth of the rate");
    for (avg, most) in [(waiting, longest), (seldom, longest_of_few), (limited, longest_limited)] {
        // Two ticks and a time slice of the other; the same at every load.
        assert!(most < 41_000 && avg.abs_diff(waiting) < 1_000, "{avg}, {most} us");
    }
}
