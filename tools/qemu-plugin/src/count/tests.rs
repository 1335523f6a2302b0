//! Tests of the accounting with programs that a model of a machine executes.

use proptest::prelude::*;

use super::{Accounting, InstructionStep};
use crate::ledger::PhaseCounts;
use crate::opcode::{InstructionClass, marker};
use crate::report::{Longest, PathReport, VcpuInstructions};
use crate::{PluginOptions, path};

const HYP: u64 = 0x40_0000_0000;
const VECTORS: u64 = HYP + 0x800;
const GUEST: u64 = 0x4000_0000;
const NOP: u32 = 0xD503_201F;
const ERET: u32 = 0xD69F_03E0;
const DSB: u32 = 0xD503_3F9F;
const WFI: u32 = 0xD503_207F;
const TLBI: u32 = 0xD508_871F;
const LDR: u32 = 0xB940_1862;
const MRS_HCR: u32 = 0xD53C_CB04;

/// The program counters of a machine, and the accounting that observes them.
struct Machine {
    options: PluginOptions,
    books: Accounting,
}

impl Machine {
    fn new(vcpus: usize, vectors: Option<u64>) -> Self {
        let options = PluginOptions {
            out: "unused".into(),
            hyp: HYP..HYP + 0x1_0000,
            vectors,
            caches: None,
            until: None,
            counter_page: None,
            ledger: None,
        };
        let books = Accounting::new(vcpus, &options);
        Self { options, books }
    }

    /// Executes `opcodes` at consecutive addresses.
    fn run(&self, vcpu: usize, mut pc: u64, opcodes: &[u32]) {
        for &opcode in opcodes {
            self.books.step(vcpu, InstructionStep::new(pc, opcode, &self.options));
            pc += 4;
        }
    }

    /// Executes the 3 instructions of a vCPU before its guest's first instruction.
    fn boot(&self, vcpu: usize) {
        self.run(vcpu, 0x8_0000, &[NOP]);
        self.run(vcpu, HYP, &[NOP, ERET]);
    }

    /// Executes a stretch from a vector: `body` and the ERET.
    fn trap(&self, vcpu: usize, body: &[u32]) {
        let mut opcodes = body.to_vec();
        opcodes.push(ERET);
        self.run(vcpu, VECTORS + 0x400, &opcodes);
    }

    fn path(&self, name: &str) -> PathReport {
        self.books.report().paths.get(name).unwrap_or_else(|| panic!("no {name}")).clone()
    }
}

#[test]
fn a_stretch_is_named_by_its_marker() {
    for vectors in [None, Some(VECTORS)] {
        let machine = Machine::new(1, vectors);
        machine.boot(0);
        machine.run(0, GUEST, &[marker(0), NOP, marker(5), NOP]);
        machine.trap(0, &[NOP, DSB, TLBI, MRS_HCR, MRS_HCR]);
        machine.run(0, GUEST + 0x10, &[NOP]);
        let report = machine.books.report();
        assert_eq!(report.boot_instructions, Some(3));
        assert_eq!(report.paths["boot"].instructions.max, 3);
        let hypercall = &report.paths["hypercall"];
        assert_eq!((hypercall.n, hypercall.instructions.min), (1, 6));
        assert_eq!((hypercall.barriers, hypercall.maintenance), (1, 1));
        assert_eq!((hypercall.gic_sysregs, hypercall.device_accesses), (2, 0));
        assert_eq!(
            report.vcpus,
            [VcpuInstructions { el2_instructions: 9, guest_instructions: 5, boot_instructions: 3 }]
        );
    }
}

#[test]
fn a_marker_names_only_the_next_stretch() {
    let machine = Machine::new(1, None);
    machine.boot(0);
    for _ in 0..3 {
        machine.run(0, GUEST, &[marker(1)]);
        machine.trap(0, &[NOP]);
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[NOP, NOP]);
    }
    machine.run(0, GUEST, &[marker(63)]);
    machine.trap(0, &[NOP, NOP]);
    machine.run(0, GUEST, &[NOP]);
    assert_eq!((machine.path("timer_irq").n, machine.path("timer_irq").instructions.max), (3, 2));
    assert_eq!((machine.path("other").n, machine.path("other").instructions.min), (4, 3));
}

#[test]
fn a_path_without_el2_has_no_stretch() {
    let machine = Machine::new(2, None);
    machine.boot(0);
    machine.boot(1);
    machine.run(0, GUEST, &[marker(0), marker(16), NOP, marker(16), NOP, marker(63)]);
    machine.run(1, GUEST, &[marker(16), NOP, marker(63)]);
    machine.trap(0, &[NOP]);
    machine.run(0, GUEST, &[NOP]);
    let eoi = machine.path("eoi");
    assert_eq!((eoi.marks, eoi.n, eoi.instructions.max), (3, 0, 0));
    assert_eq!((machine.path("other").marks, machine.path("other").n), (0, 1));
}

#[test]
fn an_exception_at_the_eret_is_a_separate_stretch() {
    for (vectors, n, max) in [(None, 1, 5), (Some(VECTORS), 1, 2)] {
        let machine = Machine::new(1, vectors);
        machine.boot(0);
        machine.run(0, GUEST, &[marker(5)]);
        machine.trap(0, &[NOP]);
        machine.trap(0, &[NOP, NOP]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(machine.path("hypercall").n, n);
        assert_eq!(machine.path("hypercall").instructions.max, max);
        assert_eq!(machine.books.report().paths.contains_key("other"), vectors.is_some());
    }
}

#[test]
fn an_eret_in_the_hypervisor_does_not_end_the_boot() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.run(0, HYP, &[NOP, ERET]);
    machine.run(0, HYP + 0x2000, &[NOP, ERET]);
    machine.run(0, GUEST, &[NOP]);
    assert_eq!(machine.path("boot").instructions.max, 4);
}

#[test]
fn known_vectors_separate_guest_and_hypervisor_code() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    machine.run(0, GUEST, &[NOP]);
    machine.run(0, HYP + 0x4000, &[NOP, ERET, NOP]);
    machine.trap(0, &[NOP]);
    machine.run(0, HYP + 0x4000, &[NOP, ERET, NOP]);
    let report = machine.books.report();
    assert_eq!(report.vcpus[0].guest_instructions, 7);
    assert_eq!(report.paths["other"].instructions.max, 2);
}

#[test]
fn a_restarted_device_access_counts_once() {
    let machine = Machine::new(1, None);
    machine.boot(0);
    machine.run(0, GUEST, &[marker(15)]);
    let load = InstructionStep::new(VECTORS + 0x400, LDR, &machine.options);
    assert!(load.wants_accesses());
    machine.books.step(0, load);
    machine.books.step(0, load);
    machine.books.access(0, true);
    machine.books.access(0, true);
    machine.run(0, VECTORS + 0x404, &[LDR]);
    machine.books.access(0, false);
    machine.run(0, VECTORS + 0x408, &[LDR]);
    machine.books.access(0, true);
    machine.run(0, VECTORS + 0x40C, &[ERET]);
    machine.run(0, GUEST, &[NOP]);
    let path = machine.path("uart_write");
    assert_eq!((path.instructions.max, path.device_accesses), (4, 2));
}

#[test]
fn only_loads_and_stores_are_restarted() {
    let machine = Machine::new(1, None);
    machine.boot(0);
    for _ in 0..10 {
        machine.run(0, GUEST, &[0x1400_0000]);
    }
    assert_eq!(machine.books.report().vcpus[0].guest_instructions, 10);
}

#[test]
fn waiting_ends_a_masked_piece_and_boot_is_left_out() {
    let machine = Machine::new(2, None);
    machine.run(0, HYP, &[NOP; 100]);
    machine.boot(0);
    assert_eq!(machine.books.report().longest_masked, None);
    machine.run(0, GUEST, &[marker(17)]);
    machine.trap(0, &[NOP, NOP, NOP, WFI, NOP, NOP]);
    machine.run(0, GUEST, &[NOP]);
    assert_eq!(
        machine.books.report().longest_masked,
        Some(Longest { instructions: 4, path: "wfi".into(), vcpu: 0 })
    );
    machine.boot(1);
    machine.run(1, GUEST, &[NOP]);
    machine.trap(1, &[NOP; 4]);
    machine.run(1, GUEST, &[NOP]);
    assert_eq!(
        machine.books.report().longest_masked,
        Some(Longest { instructions: 5, path: "other".into(), vcpu: 1 })
    );
    assert_eq!(machine.path("wfi").instructions.max, 7);
}

#[test]
fn taking_an_interrupt_ends_a_masked_section() {
    const ACKNOWLEDGE: u32 = 0xD538_CC00;
    let machine = Machine::new(1, None);
    machine.boot(0);
    machine.run(0, GUEST, &[NOP]);
    machine.trap(0, &[NOP, NOP, ACKNOWLEDGE, NOP, NOP, NOP, NOP]);
    machine.run(0, GUEST, &[NOP]);
    let longest = machine.books.report().longest_masked.expect("a section");
    assert_eq!(longest.instructions, 5);
    assert_eq!(machine.path("other").gic_sysregs, 1);
}

#[test]
fn what_follows_the_last_guest_delays_no_vm() {
    let machine = Machine::new(2, None);
    machine.boot(0);
    machine.boot(1);
    machine.run(0, GUEST, &[NOP]);
    machine.run(1, GUEST, &[NOP]);
    let longest = || machine.books.report().longest_masked.map(|longest| longest.instructions);
    // Core 0 works on; nothing but the guest of core 1 shows that VMs still run.
    machine.run(0, VECTORS + 0x400, &[NOP, NOP, NOP, WFI]);
    assert_eq!(longest(), None);
    machine.trap(1, &[NOP]);
    machine.run(1, GUEST, &[NOP]);
    assert_eq!(longest(), Some(4));
    machine.run(0, VECTORS + 0x400, &[NOP; 20]);
    machine.run(0, VECTORS + 0x400, &[WFI]);
    assert_eq!(longest(), Some(4));
}

#[test]
fn the_stretches_of_an_event_are_one() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    for _ in 0..2 {
        machine.run(0, GUEST, &[marker(30)]);
        machine.trap(0, &[NOP, DSB]);
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[NOP, DSB, DSB]);
        machine.run(0, GUEST, &[NOP, marker(63)]);
        machine.trap(0, &[NOP]);
    }
    // An event without EL2.
    machine.run(0, GUEST, &[marker(30), NOP, marker(63)]);
    let event = machine.path("sgi_self");
    assert_eq!((event.marks, event.n), (3, 2));
    assert_eq!((event.instructions.min, event.instructions.max), (7, 7));
    assert_eq!(event.barriers, 3);
    assert_eq!(machine.path("other").instructions.max, 2);
}

#[test]
fn boot_is_what_all_vcpus_execute_before_marker_0() {
    let machine = Machine::new(2, None);
    machine.boot(1);
    machine.boot(0);
    assert_eq!(machine.books.report().boot_instructions, None);
    machine.run(1, GUEST, &[NOP]);
    machine.run(0, GUEST, &[marker(0)]);
    machine.run(1, GUEST, &[NOP]);
    machine.run(1, GUEST, &[marker(0)]);
    assert_eq!(machine.books.report().boot_instructions, Some(7));
}

#[test]
fn clearing_ram_is_no_part_of_the_boot() {
    let machine = Machine::new(1, None);
    machine.run(0, HYP, &[NOP, marker(40), NOP, marker(40), NOP, marker(41), NOP, ERET]);
    machine.run(0, GUEST, &[marker(0)]);
    machine.trap(0, &[marker(40), NOP]);
    machine.run(0, GUEST, &[NOP]);
    let report = machine.books.report();
    // Each begins with its marker.
    assert_eq!((report.boot_instructions, report.clearing_instructions), (Some(4), Some(4)));
}

#[test]
fn a_guest_ends_the_clearing_of_ram() {
    let machine = Machine::new(1, None);
    machine.run(0, HYP, &[marker(40), NOP, ERET]);
    machine.run(0, GUEST, &[NOP, marker(0)]);
    let report = machine.books.report();
    assert_eq!((report.boot_instructions, report.clearing_instructions), (Some(1), Some(3)));
}

#[test]
fn markers_at_el2_and_unknown_vcpus_are_ignored() {
    let machine = Machine::new(1, None);
    machine.run(0, HYP, &[marker(0), marker(1), ERET]);
    machine.run(0, GUEST, &[NOP]);
    machine.run(7, GUEST, &[marker(0)]);
    machine.trap(0, &[]);
    machine.run(0, GUEST, &[NOP]);
    assert_eq!(machine.books.report().boot_instructions, None);
    assert_eq!(machine.path("other").n, 1);
}

proptest! {
    #[test]
    fn a_step_survives_its_way_through_qemu(pc: u64, opcode: u32) {
        let options = Machine::new(1, Some(VECTORS)).options;
        let step = InstructionStep::new(pc & !3, opcode, &options);
        prop_assert_eq!(InstructionStep::from_bits(step.to_bits()), step);
        prop_assert_eq!(
            step.marker().is_some(),
            matches!(InstructionClass::of(opcode), InstructionClass::Marker(_))
        );
    }

    /// The totals are the executed instructions, and the stretches of all paths with the open ones
    /// are the EL2 total.
    #[test]
    fn totals_are_what_ran(
        program in prop::collection::vec((0..2_usize, 0..4_u8, 0..20_u8, 1..30_usize), 0..200)
    ) {
        let machine = Machine::new(2, None);
        machine.boot(0);
        machine.boot(1);
        machine.run(0, GUEST, &[NOP]);
        machine.run(1, GUEST, &[NOP]);
        let (mut el2, mut guest) = ([3, 3], [1, 1]);
        for (vcpu, what, mark, length) in program {
            if what == 0 {
                machine.run(vcpu, GUEST, &[marker(mark)]);
                guest[vcpu] += 1;
            } else if what == 1 {
                machine.run(vcpu, GUEST, &vec![NOP; length]);
                guest[vcpu] += length as u64;
            } else {
                machine.trap(vcpu, &vec![DSB; length]);
                el2[vcpu] += length as u64 + 1;
            }
        }
        machine.run(0, GUEST, &[NOP]);
        machine.run(1, GUEST, &[NOP]);
        let report = machine.books.report();
        for vcpu in 0..2 {
            prop_assert_eq!(report.vcpus[vcpu].el2_instructions, el2[vcpu]);
            prop_assert_eq!(report.vcpus[vcpu].guest_instructions, guest[vcpu] + 1);
        }
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let sum: f64 =
            report.paths.values().map(|path| path.n as f64 * path.instructions.mean).sum();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let total = (el2[0] + el2[1]) as f64;
        prop_assert!((sum - total).abs() < 1e-6, "{sum} against {total}");
    }
}

const REPLENISH: u32 = marker(path::REPLENISH);
const OVERFLOW: u32 = marker(path::OVERFLOW);
const POLL: u32 = marker(path::POLL);

#[test]
fn budget_stretches_are_named_and_exclude_the_wait() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    machine.run(0, GUEST, &[NOP, NOP]);
    machine.trap(0, &[NOP, REPLENISH, NOP]);
    machine.run(0, GUEST, &[NOP]);
    machine.trap(0, &[NOP, NOP, POLL]);
    machine.run(0, GUEST, &[NOP]);
    // The budget is spent. The vCPU is woken twice, the second time for a period that its debt
    // uses up, and continues in the next period.
    machine.trap(
        0,
        &[OVERFLOW, NOP, WFI, NOP, NOP, WFI, REPLENISH, NOP, WFI, NOP, REPLENISH, POLL, NOP, NOP],
    );
    machine.run(0, GUEST, &[NOP]);
    machine.trap(0, &[NOP]);
    machine.run(0, GUEST, &[NOP]);
    let of = |name: &str| {
        let path = machine.path(name);
        (path.n, path.instructions.min, path.instructions.max)
    };
    assert_eq!(of("replenish"), (1, 4, 4));
    assert_eq!(of("poll"), (1, 4, 4));
    assert_eq!(of("overflow"), (1, 3, 3));
    assert_eq!(of("held"), (2, 3, 3));
    assert_eq!(of("release"), (1, 6, 6));
    assert_eq!(of("overflow_period"), (1, 3 + 3 + 3 + 6, 15));
    assert_eq!(of("other"), (1, 2, 2));
    let ledger = machine.books.ledger();
    assert_eq!(ledger.cores[0].paths["overflow"], machine.path("overflow"));
    assert!(!ledger.cores[0].paths.contains_key("other"));
}

#[test]
fn a_wait_that_no_budget_led_to_stays_in_its_stretch() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    machine.run(0, GUEST, &[marker(5)]);
    machine.trap(0, &[NOP, WFI, NOP]);
    machine.run(0, GUEST, &[NOP]);
    assert_eq!(machine.path("hypercall").instructions.max, 4);
}

#[test]
fn a_guest_has_no_say_in_the_ledger() {
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    for _ in 0..3 {
        machine.run(0, GUEST, &[REPLENISH, OVERFLOW, marker(40), NOP]);
        machine.trap(0, &[NOP]);
    }
    machine.run(0, GUEST, &[NOP]);
    assert_eq!(machine.books.ledger().cores[0], crate::ledger::CoreLedger::default());
    assert_eq!(machine.path("other").n, 3);
}

#[test]
fn a_switch_without_a_wait_is_a_path_of_its_own() {
    const SWITCH: u32 = marker(path::SWITCH);
    let machine = Machine::new(1, Some(VECTORS));
    machine.boot(0);
    machine.run(0, GUEST, &[NOP]);
    machine.trap(0, &[NOP, SWITCH, NOP, NOP]);
    machine.run(0, GUEST, &[NOP, SWITCH]);
    machine.trap(0, &[NOP, WFI, NOP, SWITCH, NOP]);
    machine.run(0, GUEST, &[NOP]);
    let path = machine.path("vcpu_switch");
    assert_eq!((path.n, path.instructions.min, path.instructions.max), (1, 5, 5));
    machine.trap(0, &[NOP, marker(path::NOTIFY), NOP]);
    machine.run(0, GUEST, &[NOP]);
    let path = machine.path("notify");
    assert_eq!((path.n, path.instructions.min, path.instructions.max), (1, 4, 4));
}

#[test]
fn the_ledger_counts_instructions_per_replenishment() {
    let machine = Machine::new(2, Some(VECTORS));
    machine.boot(0);
    machine.boot(1);
    machine.run(0, GUEST, &[NOP]);
    machine.trap(0, &[REPLENISH]);
    machine.run(0, GUEST, &[NOP, NOP, LDR]);
    // The load takes its time, although it was trapped.
    machine.trap(0, &[NOP]);
    machine.run(0, GUEST, &[NOP, LDR]);
    machine.run(0, VECTORS + 0x480, &[OVERFLOW, ERET]);
    machine.run(0, GUEST + 8, &[marker(19)]);
    machine.trap(0, &[REPLENISH]);
    machine.run(0, GUEST, &[NOP]);
    let ledger = machine.books.ledger();
    let [period] = ledger.cores[0].periods[..] else { panic!("{ledger:?}") };
    assert_eq!((period.counts.instructions, period.polls, period.throttled), (6, 2, true));
    assert_eq!(ledger.cores[0].phases, [PhaseCounts { guest: 6, el2: 3 + 2 + 2 + 2 }]);
    assert!(ledger.cores[1].periods.is_empty());
}
