//! Debian's PREEMPT_RT Linux in QEMU: alone, next to a real-time guest and a hostile one, and on a
//! board that is not where it usually is.

use crate::support::board::not_applicable_if;
use crate::support::qemu::{Load, Options, Outcome, random_word, run_system, system, with};
use std::path::Path;

const GICV2: &[&str] = &["--platform", "qemu-virt-gicv2"];

/// Runs a system for at most 60 s of virtual time until all of its expected lines were seen.
fn run(text: &str, arguments: &[&str]) -> Outcome {
    let all = [&["--for", "60s"], arguments].concat();
    run_system(text, &Options { arguments: &all, ..Options::default() }).good()
}

/// One VM with Linux, 256 MiB and these cores.
fn linux(cores: &str, scenarios: &str, more: &str) -> String {
    format!(
        r#"
platform = "qemu-virt"

[[vm]]
name = "linux"
cpus = [{cores}]
memory = "256MiB"
image = {{ linux = "debian-rt", initrd = "busybox", cmdline = "console=ttyAMA0 kpti=off cryptomgr.notests weir.run={scenarios}" }}
{more}
"#
    )
}

/// Fails unless Linux came to user space with `cpus` and the 256 MiB from `ram` on, all of it and
/// no more.
fn linux_has(outcome: &Outcome, cpus: u32, ram: u64) {
    let lines = outcome.lines("linux");
    let all = |start: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(start)).collect()
    };
    let space = all("linux: user space on ");
    let space = space.first().unwrap_or_else(|| panic!("no user space: {lines:#?}"));
    let (found, memory) = space.split_once(" cpus, ").expect("cpus and memory");
    assert_eq!(found, cpus.to_string());
    let memory: u64 = memory.trim_end_matches(" kB").parse().expect("a number");
    // What is left of it after the kernel took its own.
    assert!((200 << 10..256 << 10).contains(&memory), "{memory} kB");
    assert_eq!(all("linux: ram ")[0], format!("{ram:#x}-{:#x}", ram + (256 << 20) - 1));
    let kernel = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(kernel("K/262144K available"), "the kernel's own count of its memory");
    assert!(kernel(&format!(" to nr_cpu_ids={cpus}.")), "the kernel's own count of its cores");
    assert!(kernel("All CPU(s) started at EL1"));
    assert_eq!(outcome.vm("linux")["faults"], serde_json::json!([]));
}

fn is_off(outcome: &Outcome) {
    let vm = outcome.vm("linux");
    assert_eq!((&vm["state"], &vm["boots"]), (&"off".into(), &1.into()));
    assert_eq!(outcome.report["ended_by"], "system-stop", "the last VM's end is the system's");
}

#[test]
fn one_vcpu_fills_its_memory_and_powers_off() {
    let word = random_word();
    let scenarios = format!("memtest,poweroff weir.memory=64 weir.echo={word}");
    let expect = format!("expect = [\"linux: echo {word}\", \"blocks of 257\", \"linux: done\"]");
    let outcome = run(&linux("0", &scenarios, &expect), &["--keep-running"]);
    linux_has(&outcome, 1, 0x4000_0000);
    let line = "linux: memtest 63 of 63 blocks of 257 pages hold their pattern";
    assert!(outcome.lines("linux").contains(&line));
    is_off(&outcome);
}

/// Every page of its page classes is there, and each boot begins with the image as it was built.
#[test]
fn colored_linux_fills_its_memory_after_each_restart() {
    let line = "linux: memtest 63 of 63 blocks of 257 pages hold their pattern";
    let keys = format!("colors = \"0-11\"\nexpect = {:?}", [line; 2]);
    let text = linux("0", "memtest,reboot weir.memory=64", &keys);
    let outcome = run(&format!("{text}\n[hypervisor]\ncolors = \"12-15\"\n"), &[]);
    let lines = outcome.lines("linux");
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count(line), 2);
    assert_eq!(count("Booting Linux on physical CPU 0x0000000000"), 2);
    let vm = outcome.vm("linux");
    assert_eq!((&vm["boots"], &vm["faults"]), (&2.into(), &serde_json::json!([])));
    let printed = outcome.report["hypervisor"].to_string();
    assert!(printed.contains("each in its owner's page classes"), "{printed}");
}

#[test]
fn cross_vcpu_interrupts_repeat_exactly() {
    let expect = "expect = [\"linux: user space on 2 cpus\", \"linux: done\"]";
    let text = linux("0, 1", "sgi,poweroff weir.loops=100", expect);
    let arguments = &["--keep-running", "--for", "60s"];
    let options = Options { arguments, ..Options::default() };
    let here = run_system(&text, &options).good();
    linux_has(&here, 2, 0x4000_0000);
    is_off(&here);
    let lines = here.lines("linux");
    let trips = "linux: sgi 100 round trips between cpu 0 and cpu 1, ";
    assert!(lines.iter().any(|line| line.starts_with(trips)), "{lines:#?}");
    for vcpu in here.vm("linux")["vcpus"].as_array().expect("vCPUs") {
        assert!(vcpu["injected"].as_u64() > Some(100), "{vcpu}");
    }
    let load = Load::begin();
    let elsewhere = run_system(&text, &Options { from: Some(Path::new("/")), ..options }).good();
    drop(load);
    assert!(here.files.keys().eq(elsewhere.files.keys()));
    for name in ["report.json", "linux.log", "hypervisor.log", "wire.bin"] {
        assert!(here.files.contains_key(name), "{name} is not compared");
    }
    for (name, bytes) in &here.files {
        assert!(bytes == &elsewhere.files[name], "{name} differs");
    }
}

#[test]
fn linux_reboots_three_times_in_one_run() {
    let user_space = "\"linux: user space on 2 cpus\"";
    let expect = with(&system("linux-reboot"), user_space, &[user_space; 4].join(", "));
    let outcome = run(&expect, &[]);
    linux_has(&outcome, 2, 0x4000_0000);
    let lines = outcome.lines("linux");
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("linux: user space on 2 cpus"), 4);
    assert_eq!(count("Booting Linux on physical CPU 0x0000000000"), 4);
    let ram: Vec<_> = lines.iter().filter(|line| line.starts_with("linux: ram ")).collect();
    assert!(ram.iter().all(|line| **line == "linux: ram 0x40000000-0x4fffffff"), "{ram:?}");
    let vm = outcome.vm("linux");
    for (key, count) in [("boots", 4), ("restarts", 3), ("resets", 3)] {
        assert_eq!(vm[key], count, "{key}");
    }
    assert_eq!(vm["faults"], serde_json::json!([]));
}

/// Nothing of the board is where QEMU's `virt` machine has it.
fn boots_on_a_moved_board(gic: &str, node: &str, arguments: &[&str]) {
    let board = format!(
        "board = {{ ram = 0x8000_0000, distributor = 0x1000_0000, {gic}, uart = 0x2345_6000, \
         uart_intid = 77 }}\nexpect = [\"linux: user space on 2 cpus\", \"linux: done\"]"
    );
    let text = linux("2, 1", "devices,poweroff", &board);
    let outcome = run(&text, &[arguments, &["--keep-running"]].concat());
    linux_has(&outcome, 2, 0x8000_0000);
    let lines = outcome.lines("linux");
    let printed = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(printed("device /pl011@23456000 arm,pl011"), "{lines:#?}");
    assert!(printed(&format!("device /intc@10000000 {node}")), "{lines:#?}");
    assert!(printed("77 Level     uart-pl011"), "{lines:#?}");
    assert!(printed("ttyAMA0 at MMIO 0x23456000"), "{lines:#?}");
    is_off(&outcome);
}

#[test]
fn linux_boots_on_a_moved_board_with_gicv3() {
    boots_on_a_moved_board("redistributors = 0x1100_0000", "arm,gic-v3", &[]);
}

#[test]
fn linux_boots_on_a_moved_board_with_gicv2() {
    boots_on_a_moved_board("cpu_interface = 0x1100_0000", "arm,cortex-a15-gic", GICV2);
}

#[test]
fn linux_has_the_clock_that_was_passed_through() {
    let outcome = run(&system("passthrough"), &[]);
    let lines = outcome.lines("linux");
    let printed = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(printed("linux: device /pl031@9010000 arm,pl031 arm,primecell"), "{lines:#?}");
    // The board's own interrupt, and a date that only the device knows.
    assert!(printed("34 Level     rtc-pl031"), "{lines:#?}");
    assert!(printed("setting system clock to 2026-01-01T00:00:0"), "{lines:#?}");
    assert!(!printed("pl061"), "it was not given the other devices");
    assert_eq!(outcome.vm("linux")["faults"], serde_json::json!([]));
}

#[test]
fn linux_has_the_rest_of_the_devices() {
    not_applicable_if(|board| board.device_tree.is_empty(), "the board file has no device tree");
    let outcome = run(&system("rest"), &[]);
    let lines = outcome.lines("linux");
    let printed = |text: &str| lines.iter().any(|line| line.contains(text));
    for device in ["/pl031@9010000", "/pl061@9030000", "/gpio-keys"] {
        assert!(printed(&format!("linux: device {device} ")), "{device}: {lines:#?}");
    }
    assert!(printed("PL061 GPIO chip registered") && printed("registered as rtc0"), "{lines:#?}");
    // On QEMU virt these can write any physical address, or share their page.
    assert!(!printed("fw-cfg") && !printed("virtio"), "{lines:#?}");
    assert_eq!(outcome.vm("linux")["faults"], serde_json::json!([]));
}

/// How the report must name an attack.
enum Named {
    /// The fault that ended the boot.
    Fault(&'static str),
    /// What was refused.
    Refused(&'static str),
    /// Neither: it reached nothing but the VM itself.
    Nothing,
}
use Named::{Fault, Nothing, Refused};

const READ: Named = Fault("read outside its memory");
const WRITE: Named = Fault("write outside its memory");
const JUMP: Named = Fault("jump outside its memory");

/// The attacks of `guests/tests/attacker`, in their order.
const ATTACKS: &[(&str, Named)] = &[
    ("read below its memory", READ),
    ("write below its memory", WRITE),
    ("read above its memory", READ),
    ("write above its memory", WRITE),
    ("read another VM's memory", READ),
    ("write another VM's memory", WRITE),
    ("read the hypervisor's memory", READ),
    ("write the hypervisor's memory", WRITE),
    ("page tables in another VM's memory", Fault("page tables outside its memory")),
    ("wild SMC numbers", Refused("unknown or denied hypercall or SMC")),
    ("wild HVC numbers", Refused("unknown or denied hypercall or SMC")),
    ("SMC and HVC with wild immediates", Refused("unknown or denied hypercall or SMC")),
    ("read a device that is not there", READ),
    ("write a device that is not there", WRITE),
    ("read a clock that was not granted", READ),
    ("write a clock that was not granted", WRITE),
    ("another core's interrupt controller", WRITE),
    ("the interrupt translation service", WRITE),
    ("performance monitor registers", Refused("PMU register")),
    // They are its own; QEMU has none of those that are refused.
    ("debug registers", Nothing),
    ("cache operations by set and way", Refused("set/way cache maintenance")),
    ("implementation defined registers", Refused("implementation-defined register")),
    ("registers of EL2 and EL3", Nothing),
    ("undefined instruction, vectors in nowhere", JUMP),
    ("jump to a high address", JUMP),
    ("jump to address 0", JUMP),
    ("jump to a device that is not there", JUMP),
    ("execute device memory", JUMP),
    ("load exclusive from nowhere", READ),
    ("load pair from nowhere", READ),
    ("store pair to nowhere", WRITE),
    ("load pair from the distributor", Fault("unsupported access to a device")),
    ("store with writeback to the distributor", Fault("unsupported access to a device")),
    ("DC ZVA on nowhere", WRITE),
    ("DC CIVAC on nowhere", Nothing),
    ("stack overflow, vectors in nowhere", WRITE),
    ("SGIs to every affinity", Nothing),
    ("all of the distributor with ones", Nothing),
    ("all of the distributor, wrong sizes", Nothing),
    ("all of the core's own interface with ones", Nothing),
    ("CPU_ON with wild arguments", Refused("PSCI call outside the VM")),
];

/// Checks that the VM `attacker` made all of its attacks, and what the report says of each.
pub fn assert_attacks_are_named(outcome: &Outcome) {
    let attacker = outcome.vm("attacker");
    // The run may end with its last words, before the counters that contain its last call.
    assert!(
        ["off", "running"].map(Into::into).contains(&attacker["state"]),
        "{}",
        attacker["state"]
    );
    assert_eq!((&attacker["boots"], &attacker["restarts"]), (&42.into(), &41.into()));
    let faults = attacker["faults"].as_array().expect("faults");
    let hypervisor = String::from_utf8_lossy(&outcome.files["hypervisor.log"]).into_owned();
    let lines = outcome.lines("attacker");
    for (boot, (name, named)) in ATTACKS.iter().enumerate() {
        let announced = format!("attacker: attack {}: {name}", boot + 1);
        assert!(lines.contains(&announced.as_str()), "{announced}: {lines:#?}");
        let fault = faults.iter().find(|fault| fault["boot"] == boot);
        let kind = fault.map(|fault| fault["kind"].as_str().expect("a kind"));
        match named {
            Fault(expected) => assert_eq!(kind, Some(*expected), "{announced}"),
            Refused(what) => {
                assert_eq!(kind, None, "{announced}");
                assert!(attacker["denials"][what].as_u64() > Some(0), "{announced}: {what}");
                assert!(hypervisor.contains(&format!("attacker: refused on vCPU 0: {what}")));
            }
            Nothing => assert_eq!(kind, None, "{announced}"),
        }
    }
    assert_eq!(lines.last(), Some(&"attacker: all 41 attacks executed"));
}

fn attacks_are_contained_and_named(arguments: &[&str]) {
    let outcome = run(&system("demo"), arguments);
    assert_eq!(outcome.report["verdict"], "holds");
    assert_attacks_are_named(&outcome);
    let control = outcome.lines("control");
    let reports: Vec<_> = control.iter().filter(|line| line.contains(" activations, ")).collect();
    assert!(!reports.is_empty(), "{control:?}");
    assert!(reports.iter().all(|line| line.ends_with(", 0 misses")), "{control:?}");
    linux_has(&outcome, 2, 0x4000_0000);
    let linux = outcome.lines("linux");
    let threads = linux.iter().filter(|line| line.starts_with("linux: cyclictest T:"));
    assert_eq!(threads.count(), 2, "one thread of cyclictest for each vCPU: {linux:#?}");
    for name in ["control", "linux"] {
        let vm = outcome.vm(name);
        assert_eq!((&vm["state"], &vm["restarts"]), (&"running".into(), &0.into()), "{name}");
        assert_eq!(vm["denials"], serde_json::json!({}), "{name}");
        assert_eq!(vm["faults"], serde_json::json!([]), "{name}");
    }
}

#[test]
fn attacks_are_contained_and_named_on_gicv3() {
    attacks_are_contained_and_named(&[]);
}

#[test]
fn attacks_are_contained_and_named_on_gicv2() {
    attacks_are_contained_and_named(GICV2);
}

#[test]
fn attacks_are_contained_and_named_on_zcu102() {
    attacks_are_contained_and_named(&["--platform", "zcu102"]);
}

/// In the shell the modules are loaded, modprobe finds them and what they need, and `poweroff` ends
/// the VM.
#[test]
fn the_shell_has_modules_and_powers_off() {
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "linux"
cpus = [0]
memory = "192MiB"
image = { linux = "debian-rt", initrd = "debian-socat", cmdline = "console=ttyAMA0 kpti=off cryptomgr.notests quiet weir.run=shell" }
expect = ["the device is vsock", "reloaded 42"]
"#;
    let reload = "rmmod vmw_vsock_virtio_transport vmw_vsock_virtio_transport_common vsock && \
                  modprobe vmw_vsock_virtio_transport && echo reloaded $((40 + 2))\rpoweroff\r";
    let outcome = run_system(
        text,
        &Options {
            arguments: &["--keep-running", "--for", "240s"],
            typed: Some(("linux", " # ", "echo the device is $(ls /dev | grep vsock)\r")),
            then: Some(("linux", "the device is vsock", reload)),
            ..Options::default()
        },
    )
    .good();
    assert_eq!(outcome.report["ended_by"], "system-stop", "{:#?}", outcome.lines("linux"));
    assert_eq!(outcome.vm("linux")["state"], "off");
}
