use super::*;
use crate::arch::machine::{reads, recorded, set, value};
use weir_vdev::registers::{Fate, REGISTERS};

/// Returns the names of the registers in a list of recorded writes.
fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect()
}

#[test]
fn what_is_saved_is_what_is_loaded() {
    let mut context = GuestContext::reset(0, 0);
    context.load();
    let lines = recorded();
    let written = names(&lines);
    // Discards the reads of registers that describe which registers exist.
    reads();
    context.save(&Frame::new(0));
    let read = reads();
    assert!(recorded().is_empty(), "to save it changes nothing");
    // EL2 sets `sre_el1` at each load; no guest has a value of its own there.
    let loaded: Vec<&str> = written.into_iter().filter(|name| *name != "sre_el1").collect();
    for name in &loaded {
        assert!(read.iter().any(|it| it == name), "{name} is loaded, and not saved");
    }
    for name in read.iter().filter(|name| !["ich_vtr", "gich+0x4"].contains(&name.as_str())) {
        assert!(loaded.contains(&name.as_str()), "{name} is saved, and not loaded");
    }
}

/// DISR_EL1, which exists with RAS, and TPIDR2_EL0, which exists with SME and is cleared unless it
/// traps.
#[test]
fn what_does_not_trap_is_cleared_where_it_is() {
    let cleared = || {
        GuestContext::reset(0, 0).load();
        let lines = recorded();
        ["vdisr_el2 = 0x0", "tpidr2_el0 = 0x0"].map(|its| lines.iter().any(|line| line == its))
    };
    assert_eq!(cleared(), [false; 2], "UNDEFINED");
    set("id_aa64pfr0_el1", 1 << 28);
    set("id_aa64pfr1_el1", 1 << 24);
    assert_eq!(cleared(), [true; 2]);
    set("id_7_0", 1 << 56);
    assert_eq!(cleared(), [true, false]);
}

/// Every register that the list in `sysreg` describes as saved is saved, except for registers of
/// PSTATE, of the GIC's interface or of EL2 itself.
#[test]
fn what_is_listed_as_saved_is_saved() {
    GuestContext::reset(0, 0).save(&Frame::new(0));
    let read = reads();
    let listed: Vec<String> = REGISTERS
        .iter()
        .filter(|registers| matches!(registers.fate, Fate::Saved))
        .flat_map(|registers| registers.name.split(", "))
        .map(str::to_lowercase)
        .collect();
    let pstate =
        ["spsel", "currentel", "pan", "uao", "allint", "pm", "nzcv", "daif", "dit", "ssbs", "tco"];
    let timers = ["cntp_ctl_el0", "cntp_cval_el0", "cntv_ctl_el0", "cntv_cval_el0"];
    for name in &listed {
        let is_elsewhere = pstate.contains(&name.as_str()) || name.starts_with("icc_");
        let is_saved = match name.as_str() {
            "cntp_*_el0" | "cntv_*_el0" => {
                timers.iter().all(|timer| read.iter().any(|it| it == timer))
            }
            name => read.iter().any(|it| it == name),
        };
        assert!(is_elsewhere || is_saved, "{name} is listed as saved, and is not");
    }
    let is_own = |name: &str| {
        name.ends_with("_el2") || name.starts_with("ich") || name.starts_with("gich")
            // These are only used on processors without such a trap.
            || ["sp_el1", "actlr_el1"].contains(&name)
    };
    for name in read.iter().filter(|name| !is_own(name)) {
        let is_timer = timers.contains(&name.as_str());
        assert!(is_timer || listed.contains(name), "{name} is saved, and not listed");
    }
}

#[test]
fn each_register_comes_back_with_its_own_value() {
    let mut first = GuestContext::reset(0, 0);
    first.load();
    let lines = recorded();
    let registers: Vec<&str> =
        names(&lines).into_iter().filter(|name| *name != "sre_el1").collect();
    for (n, name) in registers.iter().enumerate() {
        set(name, 0x1000 + n as u64);
    }
    first.save(&Frame::new(7));
    assert_eq!(first.frame.get(0), 7);
    GuestContext::reset(0x4000_0000, 0).load();
    assert_eq!(value("elr_el2"), 0x4000_0000);
    assert_eq!(value("spsr_el2"), PSTATE_RESET);
    first.load();
    for (n, name) in registers.iter().enumerate() {
        assert_eq!(value(name), 0x1000 + n as u64, "{name}");
    }
}

#[test]
fn stage_1_opens_when_all_else_is_loaded() {
    GuestContext::reset(0, 0).load();
    let lines = recorded();
    let last = ["isb", "sctlr_el1 = 0x30d00800", "isb", "tcr_el1 = 0x0", "isb"];
    assert!(lines.ends_with(&last.map(str::to_owned)), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "isb").count(), 3, "no other");
    assert_eq!(lines.iter().filter(|line| *line == "vectors").count(), 1);
}

#[test]
fn a_vcpu_that_comes_on_starts_as_a_core_does() {
    set("sctlr_el1", 0x30d0_1805);
    set("cntv_ctl_el0", 1);
    GuestContext::reset(0x4000_0000, 5).load();
    assert_eq!(value("sctlr_el1"), 0x30d0_0800, "MMU and caches off");
    assert_eq!(value("cntv_ctl_el0"), 0, "no timer of the one before");
    assert_eq!(value("cntp_ctl_el0"), 0);
    assert_eq!(value("vbar_el1"), 0);
    stop_timers();
    assert!(
        recorded()
            .ends_with(&["cntv_ctl_el0 = 0x0", "cntp_ctl_el0 = 0x0", "isb"].map(str::to_owned))
    );
}

#[test]
fn a_powered_down_vcpu_keeps_its_timers_alone() {
    for (name, value) in [("cntv_cval_el0", 70), ("cntv_ctl_el0", 1), ("vbar_el1", 0x800)] {
        set(name, value);
    }
    let mut before = GuestContext::reset(0, 0);
    before.save(&Frame::new(0));
    let after = GuestContext::reset(0x10, 1).with_timers_of(&before);
    assert_eq!(after.deadline(|_| true), Some(70));
    after.load();
    assert_eq!(value("vbar_el1"), 0);
    assert_eq!(value("cntv_cval_el0"), 70);
    assert_eq!(value("cntv_ctl_el0"), 1);
}

#[test]
fn a_timer_of_the_past_is_due_now_if_ticks_are_lost() {
    let mut context = GuestContext::reset(0, 0);
    context.el1.cntv_ctl_el0 = ENABLE;
    context.el1.cntv_cval_el0 = 5;
    context.el1.cntp_cval_el0 = 5;
    context.lose_ticks(9);
    assert_eq!(context.el1.cntv_cval_el0, 9);
    assert_eq!(context.el1.cntp_cval_el0, 5, "it is disabled");
    context.lose_ticks(8);
    assert_eq!(context.el1.cntv_cval_el0, 9);
}
