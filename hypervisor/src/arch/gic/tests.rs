use super::*;
use crate::arch::machine::{recorded, set};

/// Returns the recorded lines for the reset of SPIs 32 to 63.
fn spi_block(group: u32) -> Vec<String> {
    let mut lines = vec![
        "gicd+0x184 acts 0xffffffff".to_owned(),
        "gicd+0x284 acts 0xffffffff".to_owned(),
        "gicd+0x384 acts 0xffffffff".to_owned(),
        format!("gicd+0x84 = {group:#x}"),
    ];
    lines.extend((0x420..0x440).step_by(4).map(|at| format!("gicd+{at:#x} = 0xc0c0c0c0")));
    lines
}

/// Returns the recorded lines for the reset of a core's private interrupts, whose registers start
/// at `base`.
fn private_block(base: &str, start: u64, group: u32) -> Vec<String> {
    let at = |offset: u64| format!("{base}+{:#x}", start + offset);
    let mut lines: Vec<String> =
        [0x180, 0x280, 0x380].map(|bank| format!("{} acts 0xffffffff", at(bank))).into();
    lines.push(format!("{} = {group:#x}", at(0x80)));
    lines.push(format!("{} = 0x0", at(0xc04)));
    lines.extend((0..32).map(|intid| {
        // The SGI for messages, the timer of EL2, and the maintenance interrupt have EL2's
        // priority.
        let priority = if [0, 25, 26].contains(&intid) { 0x40 } else { 0xc0 };
        format!("{} = {priority:#x} (8 bits)", at(0x400 + intid))
    }));
    // The SGI that stands for the SGIs of guests is also enabled.
    lines.push(format!("{} acts {:#x}", at(0x100), 1 << 0 | 1 << 1 | 1 << 25 | 1 << 26));
    lines
}

#[test]
fn spis_are_reset_while_the_gic_is_off() {
    set("gicd+0x4", 1);
    init();
    let mut lines = vec![format!("gicd+0x0 = {OFF:#x}")];
    lines.extend(spi_block(ALL_GROUPS));
    lines.push(format!("gicd+0x0 = {ON:#x}"));
    assert_eq!(recorded(), lines);
}

#[test]
fn each_spi_is_reset_once() {
    for (typer, words) in [(0, 0), (1, 1), (30, 30), (31, 31)] {
        set("gicd+0x4", typer);
        init();
        let lines = recorded();
        let acts = |bank: &str| lines.iter().filter(|line| line.starts_with(bank)).count();
        assert_eq!(acts("gicd+0x18"), words.min(3), "{typer}");
        assert_eq!(lines.iter().filter(|line| line.contains("acts")).count(), 3 * words);
        // The private interrupts, which belong to each core, are not changed.
        assert_eq!(acts("gicd+0x180 "), 0);
    }
}

#[test]
fn a_line_acts_on_its_own_bit_alone() {
    let line = PhysicalLine::new(IntId(77), CoreId(0));
    line.set_enabled(true);
    line.set_enabled(false);
    line.set_pending(true);
    line.set_pending(false);
    line.set_active(true);
    line.set_active(false);
    let bit = 1 << (77 - 64);
    let lines: Vec<String> = [0x108, 0x188, 0x208, 0x288, 0x308, 0x388]
        .map(|at| format!("gicd+{at:#x} acts {bit:#x}"))
        .into();
    assert_eq!(recorded(), lines);
}

#[test]
fn an_edge_keeps_the_neighbors_of_its_word() {
    set("gicd+0xc10", 0x0000_0002);
    let line = PhysicalLine::new(IntId(66), CoreId(0));
    assert!(!line.is_edge());
    line.set_edge(true);
    assert!(line.is_edge());
    line.set_edge(true);
    line.set_edge(false);
    assert_eq!(recorded(), ["gicd+0xc10 = 0x22", "gicd+0xc10 = 0x2"]);
}

#[test]
fn numbers_that_are_none_stay_in_the_registers() {
    PhysicalLine::new(IntId(u32::MAX), CoreId(u8::MAX)).set_enabled(true);
    assert_eq!(recorded(), [format!("gicd+0x17c acts {:#x}", 1 << (1019 % 32))]);
}

#[cfg(feature = "gicv3")]
mod v3 {
    use super::*;
    use crate::{
        arch::{
            machine::{on_write, reads, set_next, value},
            sysreg::icc,
        },
        board::CORES,
    };

    /// Sets up two redistributors in the board's order; the second one belongs to core 1.
    fn board() {
        for (at, mpidr) in [(0, CORES[0]), (0x2_0000, CORES[1])] {
            let affinity = mpidr >> 8 & 0xff00_0000 | mpidr & 0x00ff_ffff;
            set(&format!("gicr+{:#x}", at + 8), affinity << 32);
        }
        set("gicr+0x20014", 6);
        on_write("gicr+0x20014", |waker| set("gicr+0x20014", waker & !4));
    }

    #[test]
    fn a_core_wakes_its_redistributor_then_resets_it() {
        board();
        assert_eq!(init_core(CoreId(1)), Ok(()));
        let mut lines = vec!["gicr+0x20014 = 0x4".to_owned()];
        lines.extend(private_block("gicr", 0x3_0000, u32::MAX));
        lines.extend(
            [
                "sre_el2 = 0x7",
                "isb",
                "sre_el1 = 0x7",
                "ctlr = 0x2",
                "pmr = 0xff",
                "igrpen1 = 0x1",
                "ich_hcr = 0x4000",
                "ich_lr0 = 0x0",
                "isb",
            ]
            .map(str::to_owned),
        );
        assert_eq!(recorded(), lines);
    }

    #[test]
    fn lpis_of_the_firmware_are_off_before_the_wake() {
        board();
        set("gicr+0x20000", 1);
        assert_eq!(init_core(CoreId(1)), Ok(()));
        assert_eq!(recorded()[..2], ["gicr+0x20000 = 0x0", "gicr+0x20014 = 0x4"]);
        set("gicr+0x20000", 1);
        on_write("gicr+0x20000", |_| set("gicr+0x20000", 1));
        assert!(init_core(CoreId(1)).is_err(), "they stay on");
        assert_eq!(recorded(), ["gicr+0x20000 = 0x0"], "and nothing else is touched");
    }

    #[test]
    fn a_core_without_a_redistributor_is_refused() {
        board();
        set("gicr+0x8", 1 << 4);
        assert!(init_core(CoreId(1)).is_err(), "the first is the last");
        assert!(recorded().is_empty());
    }

    #[test]
    fn guests_cannot_turn_the_system_registers_off() {
        start_interface();
        let lines = recorded();
        // Enable, bit 3, is clear: a guest's access to ICC_SRE_EL1 traps. The ISB makes the
        // system registers of the next lines accessible.
        assert_eq!(lines[..3], ["sre_el2 = 0x7", "isb", "sre_el1 = 0x7"]);
        // A GIC may fix Enable to 1: the next vCPU must not find the value that the previous vCPU
        // wrote.
        set("sre_el1", 0);
        Interface::RESET.load();
        assert_eq!(recorded()[0], "sre_el1 = 0x7");
        assert_eq!(value("sre_el1"), 7);
    }

    #[test]
    fn spis_go_to_the_affinity_of_a_core() {
        PhysicalLine::new(IntId(33), CoreId(0)).route(CoreId(1));
        PhysicalLine::new(IntId(20), CoreId(0)).route(CoreId(1));
        PhysicalLine::new(IntId(33), CoreId(0)).route(CoreId(CORES.len() as u8));
        assert_eq!(recorded(), [format!("gicd+0x6108 = {:#x} (64 bits)", CORES[1])]);
    }

    #[test]
    fn an_sgi_comes_after_the_stores_before_it() {
        send([CoreId(1)], SGI_MESSAGE);
        assert_eq!(recorded(), ["dsb ishst", "sgi1r = 0x2"]);
        send([CoreId(3), CoreId(0)], SGI_GUEST);
        assert_eq!(recorded(), ["dsb ishst", "sgi1r = 0x1000009"], "one write for a cluster");
        send([CoreId(CORES.len() as u8)], SGI_MESSAGE);
        assert_eq!(recorded(), ["dsb ishst"], "no such core");
    }

    #[test]
    fn a_withheld_line_waits_for_its_distributor() {
        set_next("gicd+0x0", &[1 << 31, 1 << 31, 0]);
        assert!(PhysicalLine::new(IntId(40), CoreId(0)).withhold());
        assert_eq!(recorded(), ["gicd+0x184 acts 0x100"]);
        assert_eq!(reads(), ["gicd+0x0"; 3], "until GICD_CTLR.RWP has fallen");
    }

    #[test]
    fn a_distributor_that_never_answers_is_given_up() {
        set("gicd+0x0", 1 << 31);
        assert!(!PhysicalLine::new(IntId(40), CoreId(0)).withhold());
        assert_eq!(recorded(), ["gicd+0x184 acts 0x100"]);
    }

    #[test]
    fn a_redistributor_that_never_wakes_is_refused() {
        board();
        on_write("gicr+0x20014", |_| set("gicr+0x20014", 4));
        assert_eq!(init_core(CoreId(1)), Err("its redistributor does not wake"));
        assert_eq!(recorded(), ["gicr+0x20014 = 0x4"], "and nothing else is touched");
    }

    #[test]
    fn as_many_list_registers_are_used_as_there_are() {
        for (have, used) in [(1, 1), (4, 4), (16, 4)] {
            set("ich_vtr", have - 1);
            assert_eq!(list_registers(), used, "{have}");
            // Values that the firmware left in the list registers must not become interrupts of a
            // guest.
            start_interface();
            let mut lists = recorded();
            lists.retain(|line| line.starts_with("ich_lr"));
            let lines: Vec<String> = (0..used).map(|n| format!("ich_lr{n} = 0x0")).collect();
            assert_eq!(lists, lines, "{have}");
        }
    }

    #[test]
    fn an_interface_is_loaded_with_what_was_saved() {
        for (name, value) in [("ich_vmcr", 0x4c01), ("ich_ap0r0", 1), ("ich_ap1r0", 0x10)] {
            set(name, value);
        }
        let saved = Interface::save();
        assert!(recorded().is_empty(), "to save it changes nothing");
        Interface::RESET.load();
        recorded();
        saved.load();
        let lines = ["sre_el1 = 0x7", "ich_vmcr = 0x4c01", "ich_ap0r0 = 0x1", "ich_ap1r0 = 0x10"];
        assert_eq!(recorded(), lines);
    }

    #[test]
    fn a_guest_has_one_of_two_ways_to_end_interrupts() {
        set("ich_vmcr", !(1 << 9));
        assert!(!ends_in_two_steps());
        set("ich_vmcr", 1 << 9);
        assert!(ends_in_two_steps());
    }

    #[test]
    fn both_groups_active_priorities_hold_back() {
        set("ich_vmcr", 0xf8 << 24 | 2 << 21 | 3 << 18 | 0b11);
        let passes = |priority| Interface::save().signaling().passes(priority, true);
        assert!(passes(0xa0));
        for name in ["ich_ap0r0", "ich_ap1r0"] {
            set(name, 1 << (0x80 >> 3));
            assert!(!passes(0xa0) && passes(0x40), "{name}");
            set(name, 0);
        }
    }

    #[test]
    fn a_guest_is_held_back_by_the_mask_and_the_interface() {
        set("ich_hcr", 0x8000_0001);
        hold_guests(true);
        assert_eq!(recorded(), ["ich_hcr = 0x80000000", "pmr = 0xb0", "isb"]);
        hold_guests(false);
        assert_eq!(recorded(), ["ich_hcr = 0x80000001", "pmr = 0xff", "isb"]);
        hold_all();
        assert_eq!(recorded(), ["ich_hcr = 0x80000000", "pmr = 0x0", "isb"]);
        hold_guests(false);
        assert_eq!(recorded(), ["ich_hcr = 0x80000001", "pmr = 0xff", "isb"]);
        enable_virtual(false);
        assert_eq!(recorded(), ["ich_hcr = 0x80000000", "isb"]);
    }

    #[test]
    fn an_interrupt_drops_its_priority_then_ends() {
        set("iar1", 27);
        let iar = acknowledge();
        assert_eq!(intid(iar), PPI_VIRTUAL_TIMER);
        drop_priority(iar);
        assert_eq!(recorded(), ["eoir1 = 0x1b"]);
        end(iar);
        assert_eq!(recorded(), ["eoir1 = 0x1b", "dir = 0x1b"]);
        icc::write_lr(16, 1);
        assert!(recorded().is_empty(), "there is no such list register");
    }
}

#[cfg(feature = "gicv2")]
mod v2 {
    use super::*;

    #[test]
    fn a_core_resets_its_banked_registers_and_interface() {
        assert_eq!(init_core(CoreId(1)), Ok(()));
        let mut lines = private_block("gicd", 0, 0);
        lines.extend(
            ["gicc+0x4 = 0xff", "gicc+0x0 = 0x201", "gich+0x0 = 0x0", "gich+0x100 = 0x0", "dsb sy"]
                .map(str::to_owned),
        );
        assert_eq!(recorded(), lines);
    }

    #[test]
    fn spis_go_to_a_core_by_a_byte() {
        PhysicalLine::new(IntId(33), CoreId(0)).route(CoreId(1));
        PhysicalLine::new(IntId(20), CoreId(0)).route(CoreId(1));
        assert_eq!(recorded(), ["gicd+0x821 = 0x2 (8 bits)"]);
    }

    #[test]
    fn an_sgi_comes_after_the_stores_before_it() {
        send([CoreId(1), CoreId(2)], SGI_GUEST);
        assert_eq!(recorded(), ["dsb ishst", "gicd+0xf00 = 0x60001"]);
    }

    #[test]
    fn as_many_list_registers_are_used_as_there_are() {
        for (have, used) in [(1, 1), (4, 4), (16, 4)] {
            set("gich+0x4", have - 1);
            assert_eq!(list_registers(), used, "{have}");
            start_interface();
            let mut lists = recorded();
            lists.retain(|line| line.starts_with("gich+0x1"));
            let lines: Vec<String> =
                (0..used).map(|n| format!("gich+{:#x} = 0x0", 0x100 + 4 * n)).collect();
            assert_eq!(lists, lines, "{have}");
        }
    }

    #[test]
    fn a_guest_has_one_of_two_ways_to_end_interrupts() {
        set("gich+0x8", !(1 << 9));
        assert!(!ends_in_two_steps());
        set("gich+0x8", 1 << 9);
        assert!(ends_in_two_steps());
    }

    #[test]
    fn a_guest_is_held_back_by_the_mask_and_the_interface() {
        set("gich+0x0", 0x8000_0001);
        hold_guests(true);
        assert_eq!(recorded(), ["gich+0x0 = 0x80000000", "gicc+0x4 = 0xb0", "dsb sy"]);
        hold_guests(false);
        assert_eq!(recorded(), ["gich+0x0 = 0x80000001", "gicc+0x4 = 0xff", "dsb sy"]);
        hold_all();
        assert_eq!(recorded(), ["gich+0x0 = 0x80000000", "gicc+0x4 = 0x0", "dsb sy"]);
    }

    #[test]
    fn an_sgi_ends_with_its_sender() {
        set("gicc+0xc", 2 << 10 | 1);
        let iar = acknowledge();
        assert_eq!(intid(iar), SGI_GUEST);
        end(iar);
        assert_eq!(recorded(), ["gicc+0x10 = 0x801", "gicc+0x1000 = 0x801"]);
    }

    #[test]
    fn empty_list_registers_are_those_in_use() {
        set("gich+0x30", 0xffff_fff5);
        assert_eq!(empty_list_registers(), 0b0101);
    }
}
