use super::*;
use crate::arch::machine::{recorded, set};
use weir_vdev::smccc::{ARCH_WORKAROUND_1, ARCH_WORKAROUND_3};

/// Returns the recorded lines of a core with these values of HCR_EL2 and MDCR_EL2, followed by the
/// `further` lines. The stage 2 tables are set before stage 2 is turned on.
fn prepared(hcr: u64, mdcr: &[&str], further: &[&str]) -> Vec<String> {
    memory::switch_stage2(STAGE2.0, STAGE2.1);
    let mut lines = recorded();
    lines.extend([format!("hcr_el2 = {hcr:#x}"), "cptr_el2 = 0x401033ff".to_owned()]);
    let rest = ["hstr_el2 = 0x0", "cnthctl_el2 = 0x3", "cntvoff_el2 = 0x0", "mdscr_el1 = 0x0"];
    let last = ["vpidr_el2 = 0x410fd034", "cntv_ctl_el0 = 0x0", "cntp_ctl_el0 = 0x0", "isb"];
    let all = mdcr.iter().chain(&rest).chain(further).chain(&last);
    lines.extend(all.map(|&line| line.to_owned()));
    lines
}

fn prepare(shared: bool, observed: bool) -> Vec<String> {
    set("midr_el1", 0x410f_d034);
    // Closing stage 1 changes these registers.
    set("tcr_el1", 0);
    set("sctlr_el1", 0);
    prepare_core(Purpose { shared, observed, stage2: Some(STAGE2) });
    let lines = recorded();
    set("tcr_el1", 0);
    set("sctlr_el1", 0);
    lines
}

const STAGE2: (Pa, VmId) = (Pa(0x4810_0000), VmId(2));

/// VM, SWIO, PTW, FMO, IMO, AMO, FB, BSU, TID3, TSC, TIDCP, TACR, TSW, RW, TLOR, TERR.
const TRAPS: u64 = 0x18_807c_063f;

#[test]
fn a_core_that_boots_traps_what_guests_may_not_do() {
    let lines = prepared(TRAPS, &["mdcr_el2 = 0x4e60"], &[]);
    assert_eq!(prepare(false, false), lines, "without a PMU");
}

#[test]
fn a_shared_or_observed_core_traps_more() {
    let mdcr = ["mdcr_el2 = 0x4e60"];
    assert_eq!(prepare(true, false), prepared(TRAPS | 1 << 13, &mdcr, &[]), "WFI");
    assert_eq!(prepare(false, true), prepared(TRAPS | 1 << 28, &mdcr, &[]), "DC ZVA");
}

#[test]
fn all_counters_of_the_pmu_are_el1s() {
    // PMUv3, six counters.
    set("id_5_0", 1 << 8);
    set("pmcr_el0", 6 << 11);
    let mdcr = ["mdcr_el2 = 0x4e66", "pmuserenr_el0 = 0x0"];
    assert_eq!(prepare(false, false), prepared(TRAPS, &mdcr, &[]));
}

#[test]
fn controls_of_newer_cores_are_cleared_if_there() {
    // ID_AA64MMFR1_EL1.HCX, ID_AA64MMFR0_EL1.FGT, ID_AA64PFR0_EL1.AMU.
    set("id_7_1", 1 << 40);
    set("id_7_0", 1 << 56);
    let further = [
        "hcrx = 0x0",
        "hfgrtr = 0x0",
        "hfgwtr = 0x0",
        "hfgitr = 0x0",
        "hdfgrtr = 0x0",
        "hdfgwtr = 0x0",
    ];
    assert_eq!(prepare(false, false), prepared(TRAPS, &["mdcr_el2 = 0x4e60"], &further));
}

#[test]
fn trace_and_partitions_trap_where_they_are() {
    // ID_AA64PFR0_EL1.MPAM, ID_AA64DFR0_EL1.TraceFilt.
    set("id_4_0", 1 << 40);
    set("id_5_0", 1 << 40);
    let mdcr = ["mdcr_el2 = 0x84e60"];
    let partitions = ["mpam2 = 0x403000000000000"];
    assert_eq!(prepare(false, false), prepared(TRAPS, &mdcr, &partitions));
    // MPAMIDR_EL1.HAS_HCR.
    set("mpamidr", 1 << 17);
    let partitions = [partitions[0], "mpamhcr = 0x0"];
    assert_eq!(prepare(false, false), prepared(TRAPS, &mdcr, &partitions));
}

#[test]
fn the_predictor_forgets_a_vcpu_if_the_firmware_can() {
    let calls = |answers: [i32; 2]| {
        let [first, third] = answers;
        keep_branches_apart(Mitigations::from_firmware(|id| match id {
            ARCH_WORKAROUND_1 => first,
            ARCH_WORKAROUND_3 => third,
            _ => -1,
        }));
        recorded()
    };
    assert_eq!(calls([0, -1]), ["smc 0x80008000"]);
    assert_eq!(calls([0, 0]), ["smc 0x80003fff"]);
    // The workarounds are not needed, or the firmware does not have them.
    for answers in [[1, 1], [1, -1], [-1, -1]] {
        assert!(calls(answers).is_empty(), "{answers:?}");
    }
}
