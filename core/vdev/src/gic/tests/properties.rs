//! Random guests compared with one small state machine for each interrupt.

use super::super::{
    Backing, GicArchitecture, SgiRegister, V2, V3, VcpuMask, decode_sgi_register, decode_sgir,
};
use super::Rig;
use proptest::prelude::*;

const ISENABLER: u64 = 0x100;
const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
const ICPENDR: u64 = 0x280;
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;

/// The interrupts that the guests use: two SGIs, a linked PPI and one without a device, then SPIs.
const USED: [u32; 11] = [0, 5, 27, 23, 33, 34, 40, 41, 64, 70, 255];
/// Linked interrupts: the timer PPI (level), a level SPI, an edge SPI.
const LINKS: [(u32, u32); 3] = [(27, 27), (40, 140), (41, 141)];
/// Interrupts that are edge-triggered in addition to the SGIs.
const EDGES: [u32; 3] = [34, 41, 64];

/// State of an interrupt as the architecture defines it, for one vCPU if it is private.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one a register bit")]
struct One {
    enabled: bool,
    group1: bool,
    priority: u8,
    edge: bool,
    latch: bool,
    /// GICv2 SGIs: the vCPUs from which they are pending.
    sources: u8,
    line: bool,
    active: bool,
    target: Option<usize>,
    /// Whether a set event came while the vCPU did not listen: the interrupt may be taken once
    /// more.
    again: bool,
}

impl One {
    fn pending(&self) -> bool {
        self.latch || self.sources != 0 || self.line && !self.edge
    }
}

struct Reference {
    v3: bool,
    vcpus: usize,
    groups: u8,
    /// States by vCPU, then by position in `USED`; SPIs are in row 0 only.
    ones: Vec<[One; USED.len()]>,
}

impl Reference {
    fn new(v3: bool, vcpus: usize) -> Self {
        let mut row = [One::default(); USED.len()];
        for (one, &intid) in row.iter_mut().zip(&USED) {
            one.edge = intid < 16 || EDGES.contains(&intid);
            one.enabled = !v3 && intid < 16;
        }
        let mut ones = vec![row; vcpus];
        for (vcpu, row) in ones.iter_mut().enumerate() {
            for (one, &intid) in row.iter_mut().zip(&USED) {
                one.target = if intid < 32 {
                    Some(vcpu)
                } else if v3 || vcpus == 1 {
                    Some(0)
                } else {
                    None
                };
            }
        }
        Self { v3, vcpus, groups: 0, ones }
    }

    fn one(&mut self, vcpu: usize, at: usize) -> &mut One {
        let row = if USED[at] < 32 { vcpu } else { 0 };
        &mut self.ones[row][at]
    }

    fn get(&self, vcpu: usize, at: usize) -> One {
        self.ones[if USED[at] < 32 { vcpu } else { 0 }][at]
    }

    /// Whether vCPU `vcpu` could take the interrupt, ignoring the running priority.
    fn takable(&self, vcpu: usize, at: usize) -> bool {
        let one = self.get(vcpu, at);
        let group = if one.group1 { 2 } else { 1 };
        one.pending()
            && !one.active
            && one.enabled
            && self.groups & group != 0
            && one.target == Some(vcpu)
    }

    fn best(&self, vcpu: usize, below: u16) -> Option<u8> {
        (0..USED.len())
            .filter(|&at| self.takable(vcpu, at))
            .map(|at| self.get(vcpu, at).priority)
            .filter(|&p| u16::from(p) < below)
            .min()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Groups(u8),
    Enable(usize, u16, bool),
    Pend(usize, u16, bool),
    Activate(usize, u16, bool),
    Group(usize, usize, bool),
    Priority(usize, usize, u8),
    Route(usize, usize, usize),
    Line(usize, bool),
    Pulse(usize),
    Sgi(usize, usize, u8, bool),
    Acknowledge(usize),
    End(usize),
    Arrive(usize),
    Switch(usize),
}

fn op(vcpus: usize, activate: bool) -> impl Strategy<Value = Op> {
    let v = 0..vcpus;
    let at = 0..USED.len();
    prop_oneof![
        1 => (0u8..4).prop_map(Op::Groups),
        4 => (v.clone(), any::<u16>(), prop::bool::weighted(0.7))
            .prop_map(|(v, m, on)| Op::Enable(v, m, on)),
        3 => (v.clone(), any::<u16>(), prop::bool::weighted(0.6))
            .prop_map(|(v, m, on)| Op::Pend(v, m & m.rotate_left(3), on)),
        2 => (v.clone(), any::<u16>(), any::<bool>()).prop_map(move |(v, m, on)| {
            if activate { Op::Activate(v, m & m.rotate_left(5), on) } else { Op::End(v) }
        }),
        1 => (v.clone(), at.clone(), prop::bool::weighted(0.7))
            .prop_map(|(v, a, g)| Op::Group(v, a, g)),
        3 => (v.clone(), at.clone(), any::<u8>()).prop_map(|(v, a, p)| Op::Priority(v, a, p)),
        2 => (v.clone(), at.clone(), 0..=vcpus).prop_map(|(v, a, t)| Op::Route(v, a, t)),
        5 => (at.clone(), any::<bool>()).prop_map(|(a, high)| Op::Line(a, high)),
        4 => at.clone().prop_map(Op::Pulse),
        5 => (v.clone(), 0..2usize, any::<u8>(), prop::bool::weighted(0.8))
            .prop_map(|(v, a, t, g)| Op::Sgi(v, a, t, g)),
        9 => v.clone().prop_map(Op::Acknowledge),
        8 => v.clone().prop_map(Op::End),
        4 => v.clone().prop_map(Op::Arrive),
        1 => v.prop_map(Op::Switch),
    ]
}

/// Returns the lines of `mask` (by position in `USED`) in word `w` as register bits.
fn word_of(mask: u16, w: usize) -> u32 {
    let mut word = 0;
    for (at, &intid) in USED.iter().enumerate() {
        if mask >> at & 1 != 0 && intid as usize >> 5 == w {
            word |= 1 << (intid & 31);
        }
    }
    word
}

struct Play<V: GicArchitecture> {
    rig: Rig<V>,
    reference: Reference,
    /// Whether an interrupt could be taken at some time since the vCPU last listened.
    lately: Vec<[bool; USED.len()]>,
}

impl<V: GicArchitecture> Play<V> {
    fn new(vcpus: usize, list_registers: usize, prompt: bool) -> Self {
        let mut rig = Rig::<V>::new(vcpus, list_registers, &LINKS);
        rig.prompt = prompt;
        // Edges: 34 and 41 in word 1, 64 in word 2 (ICFGR2 and ICFGR4).
        rig.write(0, 0xc08, 4, 2 << 4 | 2 << 18);
        rig.write(0, 0xc10, 4, 2);
        let reference = Reference::new(V::V3, vcpus);
        let lately = vec![[false; USED.len()]; vcpus];
        Self { rig, reference, lately }
    }

    fn is_linked(at: usize) -> bool {
        LINKS.iter().any(|l| l.0 == USED[at])
    }

    #[expect(clippy::too_many_lines, reason = "one arm an action")]
    fn apply(&mut self, op: &Op) {
        let words = [0, 1, 2, 7];
        let prompt = self.rig.prompt;
        match *op {
            Op::Groups(groups) => {
                self.rig.write(0, 0, 4, u64::from(groups));
                self.reference.groups = groups;
            }
            Op::Enable(vcpu, mask, on) => {
                for w in words {
                    let base = if on { ISENABLER } else { ICENABLER };
                    // The reference changes first, because the machine may proceed within the
                    // write.
                    for at in Self::chosen(mask, w) {
                        if self.reference.v3 || USED[at] >= 16 {
                            self.reference.one(vcpu, at).enabled = on;
                        }
                    }
                    self.note();
                    self.rig.word_write(vcpu, base, w, word_of(mask, w));
                }
            }
            Op::Pend(vcpu, mask, on) => {
                for w in words {
                    for at in Self::chosen(mask, w) {
                        if self.reference.v3 || USED[at] >= 16 {
                            let one = self.reference.one(vcpu, at);
                            one.latch = on;
                            one.again |= on && !prompt;
                        }
                    }
                    self.note();
                    let base = if on { ISPENDR } else { ICPENDR };
                    self.rig.word_write(vcpu, base, w, word_of(mask, w));
                }
            }
            Op::Activate(vcpu, mut mask, on) => {
                // The guest does not deactivate an interrupt by register while it handles it: the
                // later end of the interrupt would have no list register.
                for core in &self.rig.cores {
                    for &(intid, _, _) in &core.running {
                        if let Some(at) = USED.iter().position(|&u| u == intid) {
                            mask &= !(1 << at);
                        }
                    }
                }
                for w in words {
                    for at in Self::chosen(mask, w) {
                        self.reference.one(vcpu, at).active = on;
                    }
                    self.note();
                    let base = if on { ISACTIVER } else { ICACTIVER };
                    self.rig.word_write(vcpu, base, w, word_of(mask, w));
                }
            }
            Op::Group(vcpu, at, group1) => {
                let w = USED[at] as usize >> 5;
                let bit = 1 << (USED[at] & 31);
                self.reference.one(vcpu, at).group1 = group1;
                self.note();
                let old = self.rig.word_read(vcpu, 0x80, w);
                let new = if group1 { old | bit } else { old & !bit };
                self.rig.word_write(vcpu, 0x80, w, new);
            }
            Op::Priority(vcpu, at, priority) => {
                let offset = 0x400 + u64::from(USED[at]);
                self.reference.one(vcpu, at).priority = priority & 0xf8;
                if USED[at] < 32 {
                    self.rig.bank_write(vcpu, vcpu, offset, 1, u64::from(priority));
                } else {
                    self.rig.write(vcpu, offset, 1, u64::from(priority));
                }
            }
            Op::Route(vcpu, at, to) => self.route(vcpu, at, to),
            Op::Line(at, high) => self.line(at, high),
            Op::Pulse(at) => {
                let intid = USED[at];
                let one = self.reference.get(0, at);
                if intid < 32 || !one.edge || (Self::is_linked(at) && one.pending()) {
                    return;
                }
                let one = self.reference.one(0, at);
                one.latch = true;
                one.again |= !prompt;
                self.note();
                if let Some(link) = LINKS.iter().find(|l| l.0 == intid) {
                    self.rig.board.line(0, link.1).latch = true;
                    self.rig.run();
                } else {
                    self.rig.pulse(intid);
                }
            }
            Op::Sgi(vcpu, at, targets, group1) => self.sgi(vcpu, at, targets, group1),
            Op::Acknowledge(vcpu) => self.acknowledge(vcpu),
            Op::End(vcpu) => {
                if let Some(&(intid, _, _)) = self.rig.cores[vcpu].running.last() {
                    let at = USED.iter().position(|&u| u == intid).unwrap();
                    self.reference.one(vcpu, at).active = false;
                    self.note();
                    self.rig.end(vcpu);
                }
            }
            Op::Arrive(vcpu) => {
                self.rig.arrive(vcpu);
                self.listened(vcpu);
                self.rig.run();
            }
            Op::Switch(vcpu) => {
                self.rig.board.here = Some(vcpu);
                let mut kick = self.rig.on(vcpu, |gic, _, hw| gic.save(vcpu, hw));
                assert!(self.rig.cores[vcpu].lrs.iter().all(|&raw| raw == V::EMPTY));
                let timer = *self.rig.board.line(vcpu, 27);
                assert!(!timer.active && !timer.enabled && !timer.latch);
                kick = kick | self.rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw));
                self.rig.board.here = None;
                self.rig.kick(kick);
            }
        }
        self.note();
    }

    fn chosen(mask: u16, w: usize) -> impl Iterator<Item = usize> {
        (0..USED.len()).filter(move |&at| mask >> at & 1 != 0 && USED[at] as usize >> 5 == w)
    }

    fn route(&mut self, vcpu: usize, at: usize, to: usize) {
        let intid = USED[at];
        let vcpus = self.reference.vcpus;
        if intid < 32 || (!self.reference.v3 && vcpus == 1) {
            return;
        }
        self.reference.one(0, at).target = (to < vcpus).then_some(to);
        self.note();
        if self.reference.v3 {
            self.rig.write(vcpu, 0x6000 + 8 * u64::from(intid), 8, to as u64);
        } else {
            let list = if to < vcpus { 1 << to } else { 0 };
            self.rig.write(vcpu, 0x800 + u64::from(intid), 1, list);
        }
    }

    fn line(&mut self, at: usize, high: bool) {
        let intid = USED[at];
        let link = LINKS.iter().find(|l| l.0 == intid);
        if self.reference.get(0, at).edge || intid < 32 && link.is_none() {
            return;
        }
        let vcpu = 0;
        // The driver makes a linked device quiet only in its handler: see the module's notes on
        // lines that fall while they wait.
        if link.is_some() && !high && !self.reference.get(vcpu, at).active {
            return;
        }
        self.reference.one(vcpu, at).line = high;
        self.note();
        if let Some(link) = link {
            self.rig.board.line(vcpu, link.1).high = high;
            self.rig.run();
        } else {
            self.rig.set_level(intid, high);
        }
    }

    fn sgi(&mut self, vcpu: usize, at: usize, targets: u8, group1: bool) {
        let vcpus = self.reference.vcpus;
        let list = targets & VcpuMask::first(vcpus).bits();
        let sgi = if self.reference.v3 {
            let register = if group1 { SgiRegister::Sgi1 } else { SgiRegister::Sgi0 };
            let value = u64::from(USED[at]) << 24 | u64::from(list);
            decode_sgi_register(register, value, vcpu, VcpuMask::first(vcpus))
        } else {
            decode_sgir(u32::from(list) << 16 | USED[at], vcpu, VcpuMask::first(vcpus))
        };
        assert_eq!(sgi.targets.bits(), list);
        for target in sgi.targets.iter() {
            let v3 = self.reference.v3;
            let late = !self.rig.prompt;
            let one = self.reference.one(target, at);
            if !v3 {
                one.sources |= 1 << vcpu;
                one.again |= late;
            } else if one.group1 == group1 {
                one.latch = true;
                one.again |= late;
            } else if late {
                // Its group may have changed by the time it arrives.
                one.again = true;
            }
        }
        self.note();
        let mut notify = self.rig.sgis.post(vcpu, sgi);
        if notify.contains(vcpu) {
            self.rig.kicks = self.rig.kicks | VcpuMask::only(vcpu);
            self.rig.arrive(vcpu);
            self.listened(vcpu);
            notify = notify.without(vcpu);
        }
        self.rig.kick(notify);
    }

    fn acknowledge(&mut self, vcpu: usize) {
        let below = self.rig.cores[vcpu].running_priority();
        let Some(entry) = self.rig.cores[vcpu].acknowledge() else {
            return;
        };
        let at = USED.iter().position(|&u| u == entry.intid.0).expect("never raised");
        let quiet = self.rig.kicks.is_empty();
        let again = (0..USED.len()).any(|at| self.reference.get(vcpu, at).again);
        if quiet && self.rig.prompt && !again {
            assert!(self.reference.takable(vcpu, at), "{entry:?} cannot be taken");
            assert_eq!(Some(entry.priority), self.reference.best(vcpu, below));
        }
        assert!(self.lately[vcpu][at] || again, "{entry:?} could not be taken lately");
        let one = self.reference.one(vcpu, at);
        match entry.backing {
            Backing::Software { source, .. } if !V::V3 && entry.intid.0 < 16 => {
                assert!(one.sources >> source & 1 != 0 || one.again || !quiet);
                one.sources &= !(1 << source);
            }
            _ => {}
        }
        one.latch = false;
        one.active = true;
        one.again &= !self.rig.prompt;
        self.note();
        self.rig.run();
    }

    /// Notes the interrupts that can be taken now.
    fn note(&mut self) {
        for vcpu in 0..self.reference.vcpus {
            for at in 0..USED.len() {
                self.lately[vcpu][at] |= self.reference.takable(vcpu, at);
            }
        }
    }

    fn listened(&mut self, vcpu: usize) {
        for at in 0..USED.len() {
            let again = self.reference.get(vcpu, at).again;
            self.lately[vcpu][at] = self.reference.takable(vcpu, at) || again;
        }
    }

    /// Checks that, after all kicks have arrived, registers and highest pending interrupts equal
    /// the reference's.
    fn compare(&mut self) {
        let late = !self.rig.prompt;
        self.rig.settle();
        for vcpu in 0..self.reference.vcpus {
            for w in [0, 1, 2, 7] {
                let reader = (vcpu + w) % self.reference.vcpus;
                let reader = if w == 0 && !V::V3 { vcpu } else { reader };
                let enabled = self.read(reader, vcpu, ISENABLER, w);
                let pending = self.read(reader, vcpu, ISPENDR, w);
                let active = self.read(reader, vcpu, ICACTIVER, w);
                for at in Self::chosen(!0, w) {
                    let bit = USED[at] & 31;
                    let intid = USED[at];
                    let one = self.reference.one(vcpu, at);
                    let is = |word: u32| word >> bit & 1 != 0;
                    // A set event that met a list register in flight may count once more; on a line
                    // that is high this shows only when the line falls.
                    if one.again && is(pending) && !one.pending() {
                        one.latch = intid >= 16 || V::V3;
                    }
                    one.again &= late || is(pending);
                    let one = *one;
                    assert_eq!(is(enabled), one.enabled, "enabled {intid} at {vcpu}");
                    if !(late && intid < 16) {
                        assert_eq!(is(pending), one.pending(), "pending {intid} at {vcpu}");
                    }
                    assert_eq!(is(active), one.active, "active {intid} at {vcpu}");
                    if let Some(link) = LINKS.iter().find(|l| l.0 == intid) {
                        let line = *self.rig.board.line(vcpu, link.1);
                        if one.active {
                            assert!(line.active, "{intid} is not active physically");
                        } else if line.active {
                            assert!(one.pending(), "{intid} is blocked");
                        }
                    }
                }
            }
            if late {
                self.adopt_sgis(vcpu);
            }
        }
        for vcpu in 0..self.reference.vcpus {
            let below = self.rig.cores[vcpu].running_priority();
            let top = self.rig.cores[vcpu].highest().map(|(_, e)| e.priority);
            assert_eq!(top, self.reference.best(vcpu, below), "highest at {vcpu}");
            self.listened(vcpu);
        }
    }

    /// Adopts the SGIs' state: those sent while their receiver did not listen may have merged or
    /// not.
    fn adopt_sgis(&mut self, vcpu: usize) {
        let pending = self.read(vcpu, vcpu, ISPENDR, 0);
        for (at, intid) in USED.into_iter().enumerate().take(2) {
            let is = pending >> intid & 1 != 0;
            let one = self.reference.one(vcpu, at);
            assert!(is || !one.pending() || one.again, "SGI {intid} lost at {vcpu}");
            if V::V3 {
                assert!(!is || one.pending() || one.again);
                one.latch = is;
            } else {
                let sources = self.rig.read(vcpu, 0xf20 + u64::from(intid), 1) as u8;
                let one = self.reference.one(vcpu, at);
                assert_eq!(one.sources & !sources, 0, "SGI {intid} lost at {vcpu}");
                one.sources = sources;
                assert_eq!(is, sources != 0);
            }
            self.reference.one(vcpu, at).again = false;
        }
    }

    fn read(&mut self, reader: usize, vcpu: usize, base: u64, w: usize) -> u32 {
        if w == 0 {
            self.rig.bank_read(reader, vcpu, base, 4) as u32
        } else {
            self.rig.word_read(reader, base, w)
        }
    }

    /// Lets the guest enable everything and handle all interrupts: none may be left.
    fn finish(&mut self) {
        self.rig.settle();
        for vcpu in 0..self.reference.vcpus {
            self.listened(vcpu);
        }
        self.compare();
        self.rig.prompt = true;
        self.compare();
        self.apply(&Op::Groups(3));
        for vcpu in 0..self.reference.vcpus {
            self.apply(&Op::Enable(vcpu, !0, true));
        }
        for at in 0..USED.len() {
            if self.reference.get(0, at).target.is_none() {
                self.apply(&Op::Route(0, at, 0));
            }
        }
        for _ in 0..400 {
            for vcpu in 0..self.reference.vcpus {
                self.apply(&Op::Acknowledge(vcpu));
                for at in 0..USED.len() {
                    if self.reference.get(vcpu, at).active {
                        self.apply(&Op::Line(at, false));
                    }
                }
                self.apply(&Op::End(vcpu));
            }
        }
        self.compare();
        for vcpu in 0..self.reference.vcpus {
            assert!(self.rig.cores[vcpu].running.is_empty());
            for (at, intid) in USED.into_iter().enumerate() {
                let one = self.reference.get(vcpu, at);
                assert!(!one.pending() || one.active, "{intid} left: {one:?}");
            }
        }
    }
}

fn play<V: GicArchitecture>(vcpus: usize, list_registers: usize, prompt: bool, ops: &[Op]) {
    let mut play = Play::<V>::new(vcpus, list_registers, prompt);
    for (i, op) in ops.iter().enumerate() {
        play.apply(op);
        if prompt || i % 16 == 15 {
            play.compare();
        }
    }
    play.finish();
}

fn ops(vcpus: usize, activate: bool) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(vcpus, activate), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gicv3_is_the_architecture_s(
        (vcpus, lrs, ops) in (1usize..=4, 1usize..=6)
            .prop_flat_map(|(v, l)| (Just(v), Just(l), ops(v, false)))
    ) {
        play::<V3>(vcpus, lrs, true, &ops);
    }

    #[test]
    fn gicv2_is_the_architecture_s(
        (vcpus, lrs, ops) in (1usize..=4, 1usize..=6)
            .prop_flat_map(|(v, l)| (Just(v), Just(l), ops(v, false)))
    ) {
        play::<V2>(vcpus, lrs, true, &ops);
    }

    /// Also writes active bits, with a list register for every interrupt.
    #[test]
    fn active_registers_are_the_architecture_s(
        (vcpus, ops) in (1usize..=4).prop_flat_map(|v| (Just(v), ops(v, true)))
    ) {
        play::<V3>(vcpus, 16, true, &ops);
        play::<V2>(vcpus, 16, true, &ops);
    }

    /// Kicks arrive at random times.
    #[test]
    fn late_kicks_lose_nothing(
        (vcpus, lrs, ops) in (2usize..=4, 1usize..=6)
            .prop_flat_map(|(v, l)| (Just(v), Just(l), ops(v, false)))
    ) {
        play::<V3>(vcpus, lrs, false, &ops);
        play::<V2>(vcpus, lrs, false, &ops);
    }

    /// The values for the short paths and the enabled physical lines follow each change.
    #[test]
    fn the_short_paths_follow_each_change(accesses in accesses()) {
        follow::<V3>(&accesses);
        follow::<V2>(&accesses);
    }

    /// No access of any address, size and value panics or prevents the rig from coming to rest.
    #[test]
    fn hostile_accesses_are_harmless(accesses in accesses()) {
        hostile(&mut Rig::<V3>::new(4, 4, &LINKS), &accesses);
        hostile(&mut Rig::<V2>::new(4, 4, &LINKS), &accesses);
    }
}

pub type Access = (usize, usize, bool, u64, u32, u64, bool);

/// Returns accesses of four vCPUs to registers and to offsets without a register.
pub fn accesses() -> impl Strategy<Value = Vec<Access>> {
    prop::collection::vec(
        (
            0usize..4,
            0usize..10,
            any::<bool>(),
            prop_oneof![0u64..0x1000, 0u64..0x2_0000, 0x1_0000u64..0x1_1000, any::<u64>()],
            prop_oneof![Just(1u32), Just(2), Just(4), Just(8), any::<u32>()],
            any::<u64>(),
            any::<bool>(),
        ),
        0..200,
    )
}

/// Makes the accesses, and lets the vCPUs take and end the interrupts that come.
pub fn hostile<V: GicArchitecture>(rig: &mut Rig<V>, accesses: &[Access]) {
    for &(vcpu, target, redistributor, offset, size, value, write) in accesses {
        match (redistributor, write) {
            (false, false) => {
                rig.read(vcpu, offset, size);
            }
            (false, true) => rig.write(vcpu, offset, size, value),
            (true, false) => {
                rig.redist_read(vcpu, target, offset, size);
            }
            (true, true) => rig.redist_write(vcpu, target, offset, size, value),
        }
        rig.set_level(value as u32, value >> 32 & 1 != 0);
        rig.pulse(offset as u32);
        for vcpu in 0..4 {
            rig.acknowledge(vcpu);
            if value >> vcpu & 1 != 0 {
                rig.end(vcpu);
            }
        }
    }
}

/// Returns the values for the short paths, and which physical SPIs are enabled.
fn derived<V: GicArchitecture>(rig: &mut Rig<V>) -> (Vec<V::Raw>, Vec<bool>) {
    let private = rig.gic.vcpu.iter().flat_map(|vcpu| vcpu.ready);
    let values = private.chain(rig.gic.ready).collect();
    (values, LINKS[1..].iter().map(|link| rig.board.line(0, link.1).enabled).collect())
}

/// Makes the accesses, and writes the group enables and switches vCPUs in between. Checks after
/// each that deriving everything again changes nothing.
fn follow<V: GicArchitecture>(accesses: &[Access]) {
    let mut rig = Rig::<V>::new(4, 4, &LINKS);
    for w in 0..8 {
        rig.word_write(0, ISENABLER, w, 0xaaaa_aaaa);
        rig.word_write(0, 0x80, w, 0xcccc_cccc);
    }
    for access in accesses {
        let &(vcpu, .., value, _) = access;
        hostile(&mut rig, &[*access]);
        rig.board.line(0, 140).high = value >> 40 & 1 != 0;
        rig.board.line(0, 141).latch |= value >> 41 & 1 != 0;
        rig.run();
        match value >> 48 & 7 {
            0..3 => rig.write(vcpu, 0, 4, value >> 52),
            3 => {
                let _ = rig.on(vcpu, |gic, _, hw| gic.save(vcpu, hw));
                rig.run();
                let kick = rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw));
                rig.kick(kick);
            }
            _ => {}
        }
        let before = derived(&mut rig);
        rig.on(0, |gic, _, hw| {
            (0..4).for_each(|vcpu| gic.prepare(vcpu, 0, !0, false, hw));
            (1..8).for_each(|w| gic.prepare(0, w, !0, true, hw));
        });
        assert_eq!(derived(&mut rig), before, "after {access:x?}");
    }
}
