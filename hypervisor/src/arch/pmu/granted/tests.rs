use super::*;
use crate::arch::machine::{recorded, set};

/// Three granted counters of six: counters 0 and 1 belong to EL2, counters 2 to 4 to the guest.
const GRANTED: Granted = Granted(3);

#[test]
fn a_guest_reaches_its_own_counters_alone() {
    let mut counters = GRANTED;
    counters.set_enabled(0xffff_ffff);
    assert_eq!(recorded(), ["pmcntenclr_el0 acts 0x0", "pmcntenset_el0 acts 0x8000001c"]);
    counters.set_enabled(0b101);
    assert_eq!(recorded(), ["pmcntenclr_el0 acts 0x80000008", "pmcntenset_el0 acts 0x14"]);
    counters.clear_overflowed(0xffff_ffff);
    counters.set_overflowed(0b1);
    assert_eq!(recorded(), ["pmovsclr_el0 acts 0x8000001c", "pmovsset_el0 acts 0x4"]);
}

#[test]
fn interrupts_are_masked_before_a_line_is_looked_at() {
    let mut counters = GRANTED;
    counters.set_interrupts(0b1);
    assert_eq!(
        recorded(),
        ["pmintenclr_el1 acts 0x80000018", "pmintenset_el1 acts 0x4", "isb"],
        "the level falls before the interrupt is deactivated"
    );
    // Counter 0 of EL2 has overflowed, too.
    set("pmovsset_el0", 1 << 31 | 1 << 3 | 1);
    assert_eq!(counters.overflowed(), 1 << 31 | 1 << 1);
}

#[test]
fn a_counter_is_selected_before_it_is_accessed() {
    let mut counters = GRANTED;
    counters.write(1, 9);
    assert_eq!(recorded(), ["pmselr_el0 = 0x3", "isb", "pmxevcntr_el0 = 0x9"]);
    assert_eq!(counters.read(1), 9);
    assert_eq!(recorded(), ["pmselr_el0 = 0x3", "isb"]);
    counters.set_type(0, 8);
    assert_eq!(recorded(), ["pmselr_el0 = 0x2", "isb", "pmxevtyper_el0 = 0x8"]);
}

#[test]
fn the_cycle_counters_length_is_the_guests() {
    let mut counters = GRANTED;
    counters.set_long_cycles(false);
    assert_eq!(
        (recorded(), counters.has_long_cycles()),
        (vec!["pmcr_el0 = 0x1".to_owned()], false)
    );
    counters.set_long_cycles(true);
    assert_eq!(
        (recorded(), counters.has_long_cycles()),
        (vec!["pmcr_el0 = 0x41".to_owned()], true)
    );
}
