//! The plug-in in a real QEMU: a hand-made "hypervisor" of a few instructions and a guest, with
//! counts that are known to the instruction.

use crate::machine::{
    ERET, HVC, ISB, NOP, SMC, Section, directory, library, load, movk, movz, qemu,
};
use std::fs;
use weir_qemu_plugin::opcode::marker;
use weir_qemu_plugin::report::{Longest, VcpuInstructions};
use weir_qemu_plugin::{CountReport, path};

const EL2: u64 = 0x4020_0000;
const SECONDARY: u64 = EL2 + 0x200;
const VECTORS: u64 = EL2 + 0x800;
const HANDLER: u64 = EL2 + 0x1000;
const HYP: &str = "0x40200000-0x40202000";
const GUEST: u64 = 0x4021_0000;

/// From reset at EL2 to the guest: 17 instructions, the ERET included. Starts vCPU 1 on the way.
fn start() -> Section {
    let code = vec![
        movz(0, VECTORS as u32 & 0xFFFF, 0),
        movk(0, (VECTORS >> 16) as u32, 1),
        0xD51C_C000, // msr vbar_el2, x0
        movz(0, 0x8000, 1),
        0xD51C_1100, // msr hcr_el2, x0: RW, EL1 is AArch64
        movz(0, 3, 0),
        movk(0, 0xC400, 1), // CPU_ON
        movz(1, 1, 0),
        movz(2, SECONDARY as u32 & 0xFFFF, 0),
        movk(2, (SECONDARY >> 16) as u32, 1),
        SMC,
        movz(0, 0x3C5, 0),
        0xD51C_4000, // msr spsr_el2, x0: EL1h, all masked
        movz(0, (GUEST >> 16) as u32, 1),
        0xD51C_4020, // msr elr_el2, x0
        ISB,
        ERET,
    ];
    Section(EL2, code)
}

/// vCPU 1: four instructions, then off.
fn secondary() -> Section {
    Section(SECONDARY, vec![NOP, movz(0, 2, 0), movk(0, 0x8400, 1), SMC])
}

/// The vector for synchronous exceptions of a lower level in AArch64: one instruction.
fn vector() -> Section {
    let vector = VECTORS + 0x400;
    let offset = (HANDLER - vector) as u32 / 4;
    Section(vector, vec![0x1400_0000 | offset])
}

/// What an exception does, by the guest's X0: 0 returns (3 instructions with the vector's), 1
/// touches devices (11), 2 waits after X1 iterations (6 + 2 * X1), 4 ends QEMU (7).
fn handler() -> Section {
    let code = vec![
        0xB400_01C0, // 00: cbz x0, 38
        0x3700_00A0, // 04: tbnz w0, #0, 18
        0x3708_01A0, // 08: tbnz w0, #1, 3c
        movz(0, 8, 0),
        movk(0, 0x8400, 1), // SYSTEM_OFF
        SMC,
        movz(3, 0x0900, 1), // 18: PL011
        0xD503_3F9F,        // dsb sy
        0xB940_1862,        // ldr w2, [x3, #0x18]: flags, in the middle of a block
        ISB,
        0xD53C_CB04, // mrs x4, ich_hcr_el2
        0xD508_871F, // tlbi vmalle1
        0xB900_4462, // str w2, [x3, #0x44]: clears interrupts
        ERET,        // 34: not a branch target
        ERET,        // 38
        0xF100_0421, // 3c: subs x1, x1, #1
        0x54FF_FFE1, // b.ne 3c
        0xD503_205F, // wfe: the event register is set below
        ERET,
    ];
    Section(HANDLER, code)
}

fn guest() -> Section {
    let mut code = vec![marker(path::BOOT)];
    for _ in 0..5 {
        code.extend([marker(5), movz(0, 0, 0), HVC]);
    }
    code.extend([marker(15), movz(0, 1, 0), HVC, HVC]);
    for turns in [10, 30, 20, 40] {
        code.extend([marker(17), movz(0, 2, 0), movz(1, turns, 0), 0xD503_209F, HVC]); // sev
    }
    code.extend([movz(0, 4, 0), HVC]);
    Section(GUEST, code)
}

/// Runs the program with the plug-in's further `arguments`.
fn observe(name: &str, arguments: &str) -> CountReport {
    let directory = directory(name);
    let mut command = qemu();
    load(&mut command, &directory, &[start(), secondary(), vector(), handler(), guest()]);
    let out = directory.join("count.json");
    let _ = fs::remove_file(&out);
    command.arg("-plugin").arg(format!(
        "{},out={},hyp={HYP}{arguments}",
        library().display(),
        out.display()
    ));
    let result = command.output().unwrap();
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    let left = fs::read_dir(&directory)
        .unwrap()
        .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"));
    assert_eq!(left.count(), 0);
    CountReport::read(&out).unwrap()
}

fn check(report: &CountReport) {
    let hypercall = &report.paths["hypercall"];
    assert_eq!((hypercall.marks, hypercall.n), (5, 5));
    assert_eq!((hypercall.instructions.min, hypercall.instructions.max), (3, 3));
    assert_eq!((hypercall.barriers, hypercall.device_accesses), (0, 0));

    // Vector, two tests, eight with the ERET: twice, once marked and once not.
    for path in ["uart_write", "other"] {
        let device = &report.paths[path];
        assert_eq!((device.n, device.instructions.median), (1, 11), "{path}");
        assert_eq!((device.barriers, device.maintenance), (2, 1), "{path}");
        assert_eq!((device.device_accesses, device.gic_sysregs), (2, 1), "{path}");
    }

    let wait = &report.paths["wfi"];
    let summary = wait.instructions;
    assert_eq!((wait.n, summary.min, summary.median, summary.max), (4, 26, 46, 86));
    assert!((summary.mean - 56.0).abs() < 1e-9);
    // All but the ERET after the WFE.
    assert_eq!(
        report.longest_masked,
        Some(Longest { instructions: 85, path: "wfi".into(), vcpu: 0 })
    );

    // vCPU 1 never enters a guest; the last stretch of vCPU 0 never ends.
    assert_eq!(report.paths["boot"].n, 1);
    assert_eq!(report.paths["boot"].instructions.max, 17);
    let stretches = 5 * 3 + 2 * 11 + 4 * 56;
    assert_eq!(report.vcpus[0].el2_instructions, 17 + stretches + 7);
    assert_eq!(report.vcpus[0].guest_instructions, guest().1.len() as u64);
    assert_eq!(report.vcpus[0].boot_instructions, 17);
    let off = report.vcpus[1].boot_instructions;
    assert_eq!(
        report.vcpus[1],
        VcpuInstructions { el2_instructions: 4, guest_instructions: 0, boot_instructions: off }
    );
    assert_eq!(report.boot_instructions, Some(17 + off));
}

#[test]
fn counts_are_exact() {
    check(&observe("range", ""));
}

#[test]
fn counts_are_exact_with_known_vectors() {
    check(&observe("vectors", ",vectors=0x40200800"));
}

#[test]
fn two_runs_write_the_same_report() {
    assert_eq!(observe("first", ""), observe("second", ""));
}

#[test]
fn a_wrong_argument_stops_qemu_with_its_name() {
    let plugin = format!("{},out=a,hyp=0x0-0x10,colour=red", library().display());
    let result = qemu().arg("-plugin").arg(plugin).output().unwrap();
    assert!(!result.status.success());
    let error = String::from_utf8_lossy(&result.stderr);
    assert!(error.contains("weir-qemu-plugin: `colour=red`"), "{error}");
}
