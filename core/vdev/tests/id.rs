//! Identification registers: what a processor has that a VM may not use never shows.

use proptest::prelude::*;
use weir_vdev::id::{GicVersion, IdRegisters};

/// A Cortex-A53 (r0p4) by its TRM (DDI0500), with EL2, EL3, GIC registers, PMU and AArch32.
fn cortex_a53(crm: u8, op2: u8) -> u64 {
    match (crm, op2) {
        (1, 0) => 0x131,
        (1, 1) => 0x1001_1011,
        (1, 2) => 0x0301_0066,
        (1, 4) => 0x1010_1105,
        (1, 5) => 0x4000_0000,
        (1, 6) => 0x0126_0000,
        (1, 7) => 0x0210_2211,
        (2, 0) => 0x0210_1110,
        (2, 1) => 0x1311_2111,
        (2, 2) => 0x2123_2042,
        (2, 3) => 0x0111_2131,
        (2, 4) => 0x0001_1142,
        (2, 5) => 0x0001_1121,
        (3, 0) => 0x1011_0222,
        (3, 1) => 0x1211_1111,
        (3, 2) => 0x43,
        (4, 0) => 0x0100_2222,
        (5, 0) => 0x1030_5106,
        (6, 0) => 0x1_1120,
        (7, 0) => 0x1122,
        _ => 0,
    }
}

#[test]
fn a_known_processor() {
    let ids = IdRegisters::from_hardware(GicVersion::V3, |r| cortex_a53(r.crm(), r.op2()));
    // 64-bit EL1, both at EL0, FP and SIMD, GIC registers; no EL2, no EL3.
    assert_eq!(ids.get(4, 0), 0x0100_0012);
    // Six breakpoints, two of them with context comparators, and four watchpoints, without a PMU.
    assert_eq!(ids.get(5, 0), 0x1030_5006);
    assert_eq!(ids.comparators(), (6, 4));
    assert_eq!(ids.get(6, 0), 0x1_1120);
    assert_eq!(ids.get(7, 0), 0x1122);
    assert_eq!(ids.get(1, 0), 0x131);
    // Generic timer and GIC registers are left, security and virtualization are not.
    assert_eq!(ids.get(1, 1), 0x1001_0000);
    assert_eq!(ids.get(1, 2), 0x6);
    assert_eq!(ids.get(2, 4), 0x0001_0142);
    assert_eq!(ids.get(3, 0), 0x1011_0222);
    assert!(!ids.has_pan() && !ids.has_ssbs());

    let ids = IdRegisters::from_hardware(GicVersion::V2, |r| cortex_a53(r.crm(), r.op2()));
    assert_eq!(ids.get(4, 0), 0x12);
    assert_eq!(ids.get(1, 1), 0x1_0000);
    assert_eq!(ids.gic(), GicVersion::V2);
}

#[test]
fn without_aarch32_its_registers_are_zero() {
    let ids = IdRegisters::from_hardware(GicVersion::V3, |r| match (r.crm(), r.op2()) {
        (4, 0) => 0x1111,
        _ => u64::MAX,
    });
    for crm in 1..=3 {
        for op2 in 0..8 {
            assert_eq!(ids.get(crm, op2), 0, "CRm {crm}, op2 {op2}");
        }
    }
}

#[test]
fn absence_of_signed_features_is_kept() {
    // FP and AdvSIMD, TGran4 and TGran64 say "absent" by 0xF (D23.1.3).
    let ids = IdRegisters::from_hardware(GicVersion::V3, |r| match (r.crm(), r.op2()) {
        (4, 0) => 0x00ff_0011,
        (7, 0) => 0xff00_0000,
        _ => 0,
    });
    assert_eq!(ids.get(4, 0), 0x01ff_0011);
    assert_eq!(ids.get(7, 0), 0xff00_0000);
}

fn field(value: u64, low: u32) -> u64 {
    value >> low & 15
}

/// (CRm, op2, lowest bit) of every field that has to be zero on any hardware (D24.2).
const HIDDEN: &[(u8, u8, u32, &str)] = &[
    (4, 0, 8, "EL2"),
    (4, 0, 12, "EL3"),
    (4, 0, 28, "RAS"),
    (4, 0, 32, "SVE"),
    (4, 0, 36, "SEL2"),
    (4, 0, 40, "MPAM"),
    (4, 0, 44, "AMU"),
    (4, 0, 52, "RME"),
    (4, 1, 8, "MTE"),
    (4, 1, 12, "RAS_frac"),
    (4, 1, 16, "MPAM_frac"),
    (4, 1, 24, "SME"),
    (4, 1, 32, "CSV2_frac"),
    (4, 1, 36, "NMI"),
    (4, 1, 44, "GCS"),
    (5, 0, 4, "TraceVer"),
    (5, 0, 8, "PMUVer"),
    (5, 0, 32, "PMSVer"),
    (5, 0, 40, "TraceFilt"),
    (5, 0, 44, "TraceBuffer"),
    (5, 0, 48, "MTPMU"),
    (5, 0, 52, "BRBE"),
    (6, 0, 24, "TME"),
    (6, 1, 60, "LS64"),
    (6, 2, 16, "MOPS"),
    (7, 0, 32, "TGran16_2"),
    (7, 0, 36, "TGran64_2"),
    (7, 0, 40, "TGran4_2"),
    (7, 0, 56, "FGT"),
    (7, 0, 60, "ECV"),
    (7, 1, 4, "VMIDBits"),
    (7, 1, 8, "VH"),
    (7, 1, 16, "LO"),
    (7, 1, 28, "XNX"),
    (7, 1, 32, "TWED"),
    (7, 1, 40, "HCX"),
    (7, 2, 12, "IESB"),
    (7, 2, 24, "NV"),
    (7, 2, 40, "FWB"),
    (7, 2, 56, "EVT"),
    (1, 0, 20, "AMU, AArch32"),
    (1, 0, 28, "RAS, AArch32"),
    (1, 1, 4, "Security"),
    (1, 1, 12, "Virtualization"),
    (1, 1, 20, "Sec_frac"),
    (1, 1, 24, "Virt_frac"),
    (1, 2, 24, "PerfMon"),
    (1, 2, 16, "MMapTrc"),
    (1, 2, 12, "CopTrc"),
    (2, 4, 12, "SMC"),
    (2, 6, 28, "EVT, AArch32"),
    (2, 6, 8, "XNX, AArch32"),
];

/// Registers that are zero as a whole.
const EMPTY: &[(u8, u8)] = &[
    (1, 3), // ID_AFR0
    (3, 3),
    (3, 5), // ID_DFR1
    (3, 7),
    (4, 2), // ID_AA64PFR2
    (4, 3),
    (4, 4), // ID_AA64ZFR0
    (4, 5), // ID_AA64SMFR0
    (4, 6),
    (4, 7), // ID_AA64FPFR0
    (5, 1), // ID_AA64DFR1
    (5, 2),
    (5, 3),
    (5, 4), // ID_AA64AFR0
    (5, 5), // ID_AA64AFR1
    (5, 6),
    (5, 7),
    (6, 3), // ID_AA64ISAR3
    (6, 4),
    (6, 5),
    (6, 6),
    (6, 7),
    (7, 3), // ID_AA64MMFR3
    (7, 4), // ID_AA64MMFR4
    (7, 5),
    (7, 6),
    (7, 7),
];

proptest! {
    #[test]
    fn nothing_forbidden_survives(hardware: [u64; 32], more: [u64; 32], v3: bool) {
        let gic = if v3 { GicVersion::V3 } else { GicVersion::V2 };
        let read = |crm: u8, op2: u8| {
            let index = usize::from(crm - 1) * 8 + usize::from(op2);
            hardware.iter().chain(&more).nth(index).copied().unwrap_or(0)
        };
        let ids = IdRegisters::from_hardware(gic, |r| read(r.crm(), r.op2()));
        for &(crm, op2, low, name) in HIDDEN {
            prop_assert_eq!(field(ids.get(crm, op2), low), 0, "{}", name);
        }
        for &(crm, op2) in EMPTY {
            prop_assert_eq!(ids.get(crm, op2), 0, "CRm {}, op2 {}", crm, op2);
        }
        // Up to 6 breakpoints and 4 watchpoints; each field is one less.
        let debug = ids.get(5, 0);
        prop_assert_eq!(debug & !0xf0f0_f000, 6);
        prop_assert!(field(debug, 12) <= 5 && field(debug, 20) <= 3);
        prop_assert_eq!(field(ids.get(4, 0), 24), u64::from(v3));
        prop_assert_eq!(ids.gic(), gic);
        // No context registers for speculation, no 52-bit addresses.
        prop_assert!(field(ids.get(4, 0), 56) <= 1);
        prop_assert!(field(ids.get(7, 0), 0) <= 5);
        prop_assert!(field(ids.get(7, 0), 20) <= 1);
        prop_assert!(matches!(field(ids.get(7, 0), 28), 0 | 8..=15));

        // What is shown is never more than the hardware has: the unsigned fields of the registers
        // that are not constant.
        for (crm, op2) in [(4, 1), (6, 0), (6, 1), (6, 2), (7, 1), (7, 2), (1, 0), (2, 5), (3, 1)] {
            for low in (0..64).step_by(4) {
                prop_assert!(field(ids.get(crm, op2), low) <= field(read(crm, op2), low));
            }
        }
        // AArch32 values are 32 bits wide, and there if and only if EL0 can use them.
        let aarch32 = field(ids.get(4, 0), 0) == 2;
        for crm in 1..=3 {
            for op2 in 0..8 {
                prop_assert_eq!(ids.get(crm, op2) >> 32, 0);
                prop_assert!(aarch32 || ids.get(crm, op2) == 0);
            }
        }
    }

    #[test]
    fn everything_outside_is_zero(crm: u8, op2: u8) {
        let ids = IdRegisters::from_hardware(GicVersion::V3, |_| u64::MAX);
        if !(1..=7).contains(&crm) {
            prop_assert_eq!(ids.get(crm, op2), 0);
        }
    }

    /// Presenting what is already presented changes nothing: a VM may be described by another VM's
    /// view.
    #[test]
    fn idempotent(hardware: [u64; 32], more: [u64; 32]) {
        let read = |crm: u8, op2: u8| {
            hardware
                .iter()
                .chain(&more)
                .nth(usize::from(crm - 1) * 8 + usize::from(op2))
                .copied()
                .unwrap_or(0)
        };
        let once = IdRegisters::from_hardware(GicVersion::V3, |r| read(r.crm(), r.op2()));
        let twice = IdRegisters::from_hardware(GicVersion::V3, |r| once.get(r.crm(), r.op2()));
        prop_assert_eq!(once, twice);
    }
}

#[test]
fn the_timeout_of_wfit_is_not_offered() {
    let read = |r: weir_vdev::id::IdRegister| if (r.crm(), r.op2()) == (6, 2) { 2 } else { 0 };
    let ids = IdRegisters::from_hardware(GicVersion::V3, read);
    assert_eq!(ids.get(6, 2), 0, "FEAT_WFxT, FEAT_RPRES");
}

#[test]
fn id_registers_tell_what_firmware_may_leave_set() {
    use weir_vdev::id::Controls;
    // A Cortex-A53 has none.
    let none = Controls {
        hcrx: false,
        fine_traps: false,
        monitor_traps: false,
        more_fine_traps: false,
        partitioning: false,
        trace_filter: false,
    };
    assert_eq!(Controls::of([0x1122, 0], [0x2222, 0], 0x1030_5106), none);
    // FEAT_FGT with and without activity monitors, FEAT_FGT2, FEAT_HCX.
    assert_eq!(Controls::of([1 << 56, 0], [0, 0], 0), Controls { fine_traps: true, ..none });
    let monitored = Controls { fine_traps: true, monitor_traps: true, ..none };
    assert_eq!(Controls::of([1 << 56, 0], [1 << 44, 0], 0), monitored);
    let more = Controls { fine_traps: true, more_fine_traps: true, ..none };
    assert_eq!(Controls::of([2 << 56, 0], [0, 0], 0), more);
    assert_eq!(Controls::of([0, 1 << 40], [1 << 44, 0], 0), Controls { hcrx: true, ..none });
    // FEAT_MPAM from version 1.0 and of version 0.1, FEAT_TRF.
    let partitioned = Controls { partitioning: true, ..none };
    assert_eq!(Controls::of([0, 0], [1 << 40, 0], 0), partitioned);
    assert_eq!(Controls::of([0, 0], [0, 1 << 16], 0), partitioned);
    assert_eq!(Controls::of([0, 0], [0, 0], 1 << 40), Controls { trace_filter: true, ..none });
}
