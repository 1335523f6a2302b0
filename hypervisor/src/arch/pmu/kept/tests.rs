use super::*;
use crate::arch::machine::{recorded, set};

/// Returns the recorded lines by which the counters of a core start to count these events.
fn started(events: [u64; 2]) -> Vec<String> {
    let mut lines = vec![
        "pmcr_el0 = 0x1".to_owned(),
        format!("pmevtyper0_el0 = {:#x}", events[0]),
        format!("pmevtyper1_el0 = {:#x}", events[1]),
    ];
    lines.extend(
        [
            "pmevcntr0_el0 = 0x0",
            "pmevcntr1_el0 = 0x0",
            "pmovsclr_el0 acts 0x3",
            "pmcntenset_el0 acts 0x3",
            "pmintenset_el1 acts 0x3",
            "isb",
        ]
        .map(str::to_owned),
    );
    lines
}

#[test]
fn both_counters_start_from_zero() {
    let _ = Pmu::start([0x17, 0x18]);
    assert_eq!(recorded(), started([0x17, 0x18]));
    // Without an event of its own, the second counter overflows in case the overflow of the first
    // was missed.
    let _ = Pmu::start([0x17, 0]);
    assert_eq!(recorded(), started([0x17, 0x17]));
}

/// PMCR_EL0.LC belongs to the guest, which may have been granted the cycle counter.
#[test]
fn counters_that_go_on_leave_the_control_register() {
    let mut pmu = Pmu::start([0x17, 0x18]);
    recorded();
    pmu.resume();
    assert_eq!(recorded(), started([0x17, 0x18])[1..]);
}

#[test]
fn suspended_counters_interrupt_no_more() {
    Pmu::suspend();
    let lines =
        ["pmcntenclr_el0 acts 0x3", "pmintenclr_el1 acts 0x3", "pmovsclr_el0 acts 0x3", "isb"];
    assert_eq!(recorded(), lines);
}

#[test]
fn counts_go_on_where_a_counter_wraps() {
    let mut pmu = Pmu::start([0x17, 0x18]);
    set("pmevcntr0_el0", 0xffff_fff0);
    set("pmevcntr1_el0", 7);
    assert_eq!(pmu.counts(), Counts { reads: 0xffff_fff0, writes: 7 });
    set("pmevcntr0_el0", 4);
    assert_eq!(pmu.counts(), Counts { reads: 0x1_0000_0004, writes: 7 });
    pmu.charge(Counts { reads: 1, writes: 2 });
    assert_eq!(pmu.counts(), Counts { reads: 0x1_0000_0005, writes: 9 });
}

#[test]
fn a_limit_is_as_far_as_its_counter_overflows() {
    let mut pmu = Pmu::start([0x17, 0x18]);
    set("pmevcntr0_el0", 100);
    pmu.counts();
    recorded();
    pmu.interrupt_at(Counts { reads: 150, writes: u64::MAX });
    let lines = [
        format!("pmevcntr0_el0 = {:#x}", 0u32.wrapping_sub(50)),
        // The distance is never so large that two overflows could pass unnoticed.
        "pmevcntr1_el0 = 0x80000000".to_owned(),
        "pmovsclr_el0 acts 0x3".to_owned(),
        "isb".to_owned(),
    ];
    assert_eq!(recorded(), lines);
    // A limit that is already reached interrupts at the next event, and not after 2^32 events.
    pmu.interrupt_at(Counts { reads: 10, writes: 10 });
    assert_eq!(recorded()[0], "pmevcntr0_el0 = 0xffffffff");
}

#[test]
fn one_event_overflows_twice_in_a_row() {
    let mut pmu = Pmu::start([0x17, 0]);
    recorded();
    pmu.interrupt_at(Counts { reads: 50, writes: 0 });
    let at = |distance: u32| 0u32.wrapping_sub(distance);
    assert_eq!(
        recorded()[..2],
        [format!("pmevcntr0_el0 = {:#x}", at(50)), format!("pmevcntr1_el0 = {:#x}", at(52))]
    );
}

#[test]
fn an_event_that_the_core_does_not_count_is_missing() {
    // PMUv3 with six counters; of the two events it counts only L2D_CACHE_REFILL.
    set("id_5_0", 1 << 8);
    set("pmcr_el0", 6 << 11);
    set("pmceid0_el0", 1 << 0x17);
    assert_eq!(Pmu::missing([0x17, 0]), None);
    assert_eq!(Pmu::missing([0x17, 0x18]), Some(0x18));
    assert_eq!(Pmu::missing([0x13, 0x17]), Some(0x13));
    set("pmcr_el0", 1 << 11);
    assert_eq!(Pmu::missing([0x17, 0]), Some(0x17), "too few counters");
    set("id_5_0", 0);
    assert_eq!(Pmu::missing([0x17, 0]), Some(0x17), "no PMU");
}
