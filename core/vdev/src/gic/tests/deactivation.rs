//! `EOImode` 1: the guest drops priorities in the order of its interrupts and deactivates the
//! interrupts in any order, on any vCPU, by `ICC_DIR_EL1` or `GICV_DIR` (IHI0069H 4.3.2, IHI0048B
//! 3.2.1).

use super::super::{Sgi, V2, V3, VcpuMask};
use super::{GicArchitecture, Rig};
use proptest::prelude::*;
use weir_units::IntId;

/// SGIs, a linked and an emulated PPI, then SPIs: emulated ones, level-sensitive and
/// edge-triggered, a relayed one, a level-sensitive and an edge-triggered linked one.
const USED: [u32; 21] =
    [0, 1, 2, 3, 4, 5, 6, 7, 15, 27, 23, 33, 36, 255, 34, 35, 64, 65, 39, 40, 41];
const LINKS: [(u32, u32); 3] = [(27, 27), (40, 140), (41, 141)];
const RELAYED: u32 = 39;
/// Interrupts that are edge-triggered in addition to the SGIs.
const EDGES: [u32; 5] = [34, 35, 64, 65, 41];

const ISENABLER: u64 = 0x100;
const ISACTIVER: u64 = 0x300;

/// A step: its kind, the vCPU that does it, an interrupt or a number, and a destination.
type Step = (u8, usize, usize, usize);

/// State of an interrupt, for one vCPU if it is private, otherwise for all.
#[derive(Clone, Copy, Default)]
struct One {
    pending: bool,
    active: bool,
}

struct Guest<V: GicArchitecture> {
    rig: Rig<V>,
    /// Whether another VM has the core of a vCPU.
    away: Vec<bool>,
    ones: Vec<[One; USED.len()]>,
    /// Interrupts with dropped priority that are not deactivated: position in `USED`, and the vCPU
    /// that took it.
    dropped: Vec<(usize, usize)>,
}

impl<V: GicArchitecture> Guest<V> {
    fn new(vcpus: usize, list_registers: usize, priorities: &[u8]) -> Self {
        let mut rig = Rig::<V>::new(vcpus, list_registers, &LINKS);
        rig.gic.relay(IntId(RELAYED), IntId(RELAYED));
        rig.links.push((RELAYED, RELAYED));
        rig.board.line(0, RELAYED).enabled = true;
        // Edges: 34, 35 and 41, and in the third word 64 and 65.
        rig.write(0, 0xc08, 4, 2 << 4 | 2 << 6 | 2 << 18);
        rig.write(0, 0xc10, 4, 2 | 2 << 2);
        rig.write(0, 0, 4, 3);
        for (at, &intid) in USED.iter().enumerate() {
            let offset = 0x400 + u64::from(intid);
            let priority = u64::from(priorities[at % priorities.len()]);
            if intid < 32 {
                (0..vcpus).for_each(|vcpu| rig.bank_write(vcpu, vcpu, offset, 1, priority));
            } else {
                rig.write(0, offset, 1, priority);
            }
        }
        for vcpu in 0..vcpus {
            rig.word_write(vcpu, ISENABLER, 0, !0);
        }
        for w in 1..8 {
            rig.word_write(0, ISENABLER, w, !0);
        }
        let mut guest = Self {
            rig,
            away: vec![false; vcpus],
            ones: vec![[One::default(); USED.len()]; vcpus],
            dropped: Vec::new(),
        };
        for at in 0..USED.len() {
            guest.route(0, at, 0);
        }
        guest
    }

    fn one(&mut self, vcpu: usize, at: usize) -> &mut One {
        &mut self.ones[if USED[at] < 32 { vcpu } else { 0 }][at]
    }

    fn route(&mut self, vcpu: usize, at: usize, to: usize) {
        let intid = u64::from(USED[at]);
        if intid < 32 {
            return;
        }
        if V::V3 {
            self.rig.write(vcpu, 0x6000 + 8 * intid, 8, to as u64);
        } else {
            self.rig.write(vcpu, 0x800 + intid, 1, 1 << to);
        }
        // EL2 routes a relayed line, here to the first vCPU's core.
    }

    /// Makes an interrupt pending by its source.
    fn raise(&mut self, vcpu: usize, at: usize) {
        let intid = USED[at];
        if self.one(vcpu, at).pending {
            return;
        }
        self.one(vcpu, at).pending = true;
        let (is_edge, link) = (EDGES.contains(&intid), LINKS.iter().find(|link| link.0 == intid));
        if intid < 16 {
            let targets = VcpuMask::only(vcpu);
            self.rig.send(vcpu, Sgi { intid: IntId(intid), group1: false, targets });
        } else if let Some(&(_, pintid)) = link {
            let physical = self.rig.board.line(vcpu, pintid);
            *if is_edge { &mut physical.latch } else { &mut physical.high } = true;
        } else if intid == RELAYED {
            self.rig.board.line(0, RELAYED).high = true;
        } else if intid < 32 {
            let kick = self.rig.gic.set_private_level(vcpu, IntId(intid), true);
            self.refresh(vcpu, kick);
        } else if is_edge {
            self.rig.pulse(intid);
        } else {
            self.rig.set_level(intid, true);
        }
        self.rig.run();
    }

    /// Refreshes a vCPU as EL2 does after a change of a line of its own core's vCPU.
    fn refresh(&mut self, vcpu: usize, kick: VcpuMask) {
        let more = self.rig.on(vcpu, |gic, _, hw| gic.refresh(vcpu, hw));
        self.rig.kick(kick.without(vcpu) | more);
    }

    /// Makes the interrupt's device quiet, as its handler does.
    fn quiet(&mut self, vcpu: usize, intid: u32) {
        if let Some(&(_, pintid)) = LINKS.iter().find(|link| link.0 == intid) {
            self.rig.board.line(vcpu, pintid).high = false;
        } else if intid == RELAYED {
            self.rig.board.line(0, RELAYED).high = false;
        } else if intid >= 32 {
            self.rig.set_level(intid, false);
        } else if intid >= 16 {
            let kick = self.rig.gic.set_private_level(vcpu, IntId(intid), false);
            self.refresh(vcpu, kick);
        }
    }

    fn acknowledge(&mut self, vcpu: usize) {
        let Some(entry) = self.rig.acknowledge(vcpu) else { return };
        let at = USED.iter().position(|&intid| intid == entry.intid.0).expect("never raised");
        let one = self.one(vcpu, at);
        assert!(one.pending && !one.active, "{entry:?} came to {vcpu}");
        *one = One { pending: false, active: true };
        self.quiet(vcpu, entry.intid.0);
        self.rig.run();
    }

    fn drop_priority(&mut self, vcpu: usize) {
        if let Some((intid, ..)) = self.rig.cores[vcpu].running.pop() {
            let at = USED.iter().position(|&used| used == intid).expect("never raised");
            self.dropped.push((at, vcpu));
        }
    }

    /// Deactivates one of the interrupts with dropped priority; an SPI on vCPU `by`.
    fn deactivate(&mut self, which: usize, by: usize) {
        if self.dropped.is_empty() {
            return;
        }
        let which = which % self.dropped.len();
        let (at, taker) = self.dropped[which];
        let by = if USED[at] < 32 { taker } else { by };
        if self.away[by] {
            return;
        }
        self.dropped.remove(which);
        self.one(taker, at).active = false;
        self.rig.deactivate(by, USED[at]);
    }

    fn leave_or_enter(&mut self, vcpu: usize) {
        let is_away = self.away[vcpu];
        self.rig.board.here = Some(vcpu);
        let kick = if is_away {
            self.rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw))
        } else {
            self.rig.on(vcpu, |gic, _, hw| gic.save(vcpu, hw))
        };
        self.rig.board.here = None;
        let timer = *self.rig.board.line(vcpu, 27);
        assert!(is_away || !timer.active && !timer.enabled && !timer.latch);
        self.away[vcpu] = !is_away;
        self.rig.kick(kick);
    }

    fn step(&mut self, step: Step) {
        let (kind, vcpu, which, other) = step;
        let vcpus = self.away.len();
        let (vcpu, other) = (vcpu % vcpus, other % vcpus);
        match kind {
            0 => self.leave_or_enter(vcpu),
            _ if self.away[vcpu] => {}
            1..9 => self.raise(vcpu, which % USED.len()),
            9..16 => self.acknowledge(vcpu),
            16..22 => self.drop_priority(vcpu),
            22..26 => self.deactivate(which, vcpu),
            26 => self.route(vcpu, which % USED.len(), other),
            _ => {
                // Deactivates an interrupt that is not active anywhere.
                let at = which % USED.len();
                if !self.one(vcpu, at).active {
                    self.rig.deactivate(vcpu, USED[at]);
                }
            }
        }
        self.compare();
    }

    /// Checks that the active interrupts are those that the guest has acknowledged and not
    /// deactivated.
    fn compare(&mut self) {
        self.rig.settle();
        for vcpu in (0..self.away.len()).filter(|&vcpu| !self.away[vcpu]).collect::<Vec<_>>() {
            for (at, intid) in USED.into_iter().enumerate() {
                let word = self.rig.word_read(vcpu, ISACTIVER, intid as usize >> 5);
                let is_active = self.one(vcpu, at).active;
                assert_eq!(word >> (intid & 31) & 1 != 0, is_active, "active {intid} at {vcpu}");
                let link = LINKS.iter().find(|link| link.0 == intid);
                if let Some(&(_, pintid)) = link {
                    let pending = self.one(vcpu, at).pending;
                    let is_taken = self.rig.board.line(vcpu, pintid).active;
                    assert!(is_taken || !is_active, "{intid} can come while it is active");
                    assert!(!is_taken || is_active || pending, "{intid} is blocked");
                }
            }
        }
    }

    /// Handles all pending interrupts, in the order given by `steps`.
    fn finish(&mut self, steps: &[Step]) {
        let vcpus = self.away.len();
        for vcpu in 0..vcpus {
            if self.away[vcpu] {
                self.leave_or_enter(vcpu);
            }
        }
        for round in 0..3 * USED.len() * vcpus {
            for vcpu in 0..vcpus {
                self.acknowledge(vcpu);
                self.drop_priority(vcpu);
            }
            let &(_, by, which, _) = steps.get(round).unwrap_or(&(0, round, 7 * round, 0));
            self.deactivate(which, by % vcpus);
        }
        while !self.dropped.is_empty() {
            self.deactivate(0, 0);
        }
        self.compare();
        for vcpu in 0..vcpus {
            for (at, intid) in USED.into_iter().enumerate() {
                let One { pending, active } = *self.one(vcpu, at);
                assert!(!pending && !active, "{intid} was lost at {vcpu}");
            }
        }
    }
}

fn play<V: GicArchitecture>(vcpus: usize, lists: usize, priorities: &[u8], steps: &[Step]) {
    let mut guest = Guest::<V>::new(vcpus, lists, priorities);
    for &step in steps {
        guest.step(step);
    }
    guest.finish(steps);
    // Nothing is left of the interrupts: each can come again, once.
    for (at, intid) in USED.into_iter().enumerate() {
        for vcpu in 0..if intid < 32 { vcpus } else { 1 } {
            guest.raise(vcpu, at);
            guest.finish(&[]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn interrupts_are_deactivated_in_any_order(
        vcpus in 1usize..=3,
        lists in 1usize..=16,
        priorities in prop_oneof![
            Just(vec![0xa0]), prop::collection::vec(any::<u8>().prop_map(|p| p & 0xf0), 5),
        ],
        steps in prop::collection::vec((0u8..28, 0usize..3, any::<usize>(), 0usize..3), 0..150),
    ) {
        play::<V3>(vcpus, lists, &priorities, &steps);
        play::<V2>(vcpus, lists, &priorities, &steps);
    }
}

/// An SPI whose priority one core has dropped and which another core deactivates comes again,
/// whether it is in a list register, in the model, or at a vCPU that is off its core.
fn on_another_core<V: GicArchitecture>() {
    for intid in [33, 34, RELAYED, 40, 41] {
        for (active, leaves) in [(1, false), (6, false), (1, true), (6, true)] {
            let mut guest = Guest::<V>::new(2, 4, &[0xa0]);
            let at = USED.iter().position(|&used| used == intid).expect("a used one");
            guest.raise(0, at);
            guest.acknowledge(0);
            guest.drop_priority(0);
            for sgi in 1..active {
                guest.raise(0, sgi);
                guest.acknowledge(0);
                guest.drop_priority(0);
            }
            if leaves {
                guest.leave_or_enter(0);
            }
            guest.deactivate(0, 1);
            guest.compare();
            if leaves {
                guest.leave_or_enter(0);
            }
            guest.raise(0, at);
            assert_eq!(guest.rig.acknowledge(0).map(|entry| entry.intid.0), Some(intid));
        }
    }
}

#[test]
fn an_spi_is_deactivated_on_another_core() {
    on_another_core::<V3>();
    on_another_core::<V2>();
}

/// With up to sixteen active SGIs, any order of deactivation deactivates the right ones.
fn in_each_order<V: GicArchitecture>() {
    for count in 1..=9 {
        let orders: [&dyn Fn(usize) -> usize; 4] =
            [&|n| n, &|n| count - 1 - n, &|n| n * 5 % count, &|n| n ^ 1];
        for order in orders {
            let mut guest = Guest::<V>::new(1, 4, &[0xa0]);
            for at in 0..count {
                guest.raise(0, at);
                guest.acknowledge(0);
                guest.drop_priority(0);
            }
            for n in 0..count {
                let sgi = order(n);
                let which = guest.dropped.iter().position(|&(at, _)| at == sgi);
                let Some(which) = which else { continue };
                guest.deactivate(which, 0);
                guest.compare();
            }
        }
    }
}

#[test]
fn many_active_sgis_are_deactivated_in_any_order() {
    in_each_order::<V3>();
    in_each_order::<V2>();
}
