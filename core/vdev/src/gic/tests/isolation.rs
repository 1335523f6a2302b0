//! Tests of what a VM can do to a core that it shares while another VM has the core, and of the
//! state that a vCPU leaves there.

use super::super::{Signaling, V2, V3, VcpuMask, lr};
use super::{Core, GicAccess, GicArchitecture, Rig, route};
use proptest::prelude::*;
use weir_units::IntId;

/// The timer's PPI, and a level-sensitive and an edge-triggered SPI, linked to physical lines.
const LINKS: [(u32, u32); 3] = [(27, 27), (40, 140), (41, 141)];
const LINES: [u32; 2] = [40, 41];
const TIMER: u32 = 1 << 27;

const ISENABLER: u64 = 0x100;
const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
const ICPENDR: u64 = 0x280;
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;

/// Returns two vCPUs with everything enabled and both lines routed to vCPU 0, which is off its
/// core.
fn away<V: GicArchitecture>() -> Rig<V> {
    let mut rig = Rig::<V>::new(2, 4, &LINKS);
    rig.write(0, 0xc08, 4, 2 << 18);
    rig.write(0, 0, 4, 3);
    for vcpu in 0..2 {
        rig.word_write(vcpu, ISENABLER, 0, TIMER | 0xffff);
    }
    rig.word_write(0, ISENABLER, 1, 0b11 << 8);
    for intid in LINES {
        route(&mut rig, 0, intid, 0);
    }
    leave(&mut rig, 0);
    rig.prompt = false;
    (rig.taken, rig.notified) = (vec![0; 2], vec![0; 2]);
    rig
}

fn leave<V: GicArchitecture>(rig: &mut Rig<V>, vcpu: usize) {
    rig.board.here = Some(vcpu);
    let kick = rig.on(vcpu, |gic, _, hw| gic.save(vcpu, hw));
    rig.board.here = None;
    rig.kick(kick);
}

fn enter<V: GicArchitecture>(rig: &mut Rig<V>, vcpu: usize) {
    rig.board.here = Some(vcpu);
    let kick = rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw));
    rig.board.here = None;
    rig.kick(kick);
}

/// One round of a loop in vCPU 1, while line 40 stays high where `high` says so.
fn rounds<V: GicArchitecture>(attack: impl Fn(&mut Rig<V>)) -> usize {
    let mut rig = away::<V>();
    for _ in 0..20 {
        attack(&mut rig);
        rig.settle_but(0);
    }
    assert!(rig.notified[0] <= 1, "notified {} times", rig.notified[0]);
    rig.taken[0]
}

impl<V: GicArchitecture> Rig<V> {
    /// Delivers all kicks except those of `vcpu`, which is off its core.
    fn settle_but(&mut self, vcpu: usize) {
        for other in (0..self.cores.len()).filter(|other| *other != vcpu) {
            self.arrive(other);
        }
        self.run();
    }

    /// Lets vCPU `vcpu` take and end its interrupts, up to eight.
    fn handle_all(&mut self, vcpu: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        while seen.len() < 8
            && let Some(entry) = self.acknowledge(vcpu)
        {
            seen.push(entry.intid.0);
            self.end(vcpu);
            self.settle_but(0);
        }
        seen
    }
}

fn loops<V: GicArchitecture>() {
    const BIT: u32 = 1 << 8;
    let set = |rig: &mut Rig<V>, base: u64| rig.word_write(1, base, 1, BIT);
    let count = |name: &str, attack: &dyn Fn(&mut Rig<V>)| {
        let taken = rounds::<V>(attack);
        assert_eq!(taken, 1, "{name}: the line interrupted the core {taken} times");
    };
    count("pending", &|rig| {
        set(rig, ISPENDR);
        set(rig, ICPENDR);
    });
    count("enable", &|rig| {
        set(rig, ISPENDR);
        set(rig, ICENABLER);
        set(rig, ISENABLER);
    });
    count("active", &|rig| {
        set(rig, ISPENDR);
        set(rig, ISACTIVER);
        set(rig, ICACTIVER);
        set(rig, ICPENDR);
    });
    count("group", &|rig| {
        set(rig, ISPENDR);
        rig.word_write(1, 0x80, 1, BIT);
        rig.word_write(1, 0x80, 1, 0);
    });
    count("distributor", &|rig| {
        set(rig, ISPENDR);
        rig.write(1, 0, 4, 0);
        rig.write(1, 0, 4, 3);
        set(rig, ICPENDR);
    });
    count("trigger", &|rig| {
        set(rig, ISPENDR);
        rig.write(1, 0xc08, 4, 2 << 18 | 2 << 16);
        rig.write(1, 0xc08, 4, 2 << 18);
        set(rig, ICPENDR);
    });
    count("route", &|rig| {
        set(rig, ISPENDR);
        route(rig, 1, 40, 1);
        rig.settle_but(0);
        assert_eq!(rig.handle_all(1), [40]);
        route(rig, 1, 40, 0);
    });
    count("device", &|rig| {
        rig.board.line(0, 140).high = true;
        rig.run();
        route(rig, 1, 40, 1);
        rig.settle_but(0);
        assert_eq!(rig.acknowledge(1).map(|entry| entry.intid.0), Some(40));
        rig.board.line(0, 140).high = false;
        rig.end(1);
        route(rig, 1, 40, 0);
    });
}

#[test]
fn a_descheduled_vcpus_line_comes_once_until_it_runs() {
    loops::<V3>();
    loops::<V2>();
}

/// A line that waits for a vCPU off its core, and is made active and inactive meanwhile, is never
/// in two list registers.
fn waits_while_active<V: GicArchitecture>() {
    let mut rig = away::<V>();
    for base in [ISPENDR, ISACTIVER, ICACTIVER] {
        rig.word_write(1, base, 1, 1 << 8);
    }
    route(&mut rig, 1, 40, 1);
    rig.word_write(1, ISPENDR, 1, 1 << 8);
    rig.settle_but(0);
    assert_eq!(rig.cores[1].entries().filter(|entry| entry.intid.0 == 40).count(), 1);
    assert_eq!(rig.handle_all(1)[0], 40);
}

#[test]
fn a_deactivated_pending_line_has_one_list_register() {
    waits_while_active::<V3>();
    waits_while_active::<V2>();
}

/// A line that was masked after it had come comes again when its vCPU is back, and the vCPU gets
/// the core for it.
fn comes_again<V: GicArchitecture>() {
    let mut rig = away::<V>();
    rig.word_write(1, ISPENDR, 1, 1 << 8);
    assert!(rig.board.line(0, 140).active && !rig.board.line(0, 140).enabled);
    rig.word_write(1, ICPENDR, 1, 1 << 8);
    rig.board.line(0, 140).high = true;
    rig.run();
    assert_eq!(rig.taken[0], 1);
    assert!(rig.gic.has_pending(0, Signaling::ALL), "its vCPU must be given the core to find it");
    rig.prompt = true;
    enter(&mut rig, 0);
    assert_eq!(rig.taken[0], 2);
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(40));
    rig.board.line(0, 140).high = false;
    rig.end(0);
    assert!(rig.board.line(0, 140).enabled && rig.acknowledge(0).is_none());
}

#[test]
fn a_masked_line_is_not_lost() {
    comes_again::<V3>();
    comes_again::<V2>();
}

/// A relayed line that another vCPU ends stays active until the vCPU that it came to is back.
fn relayed<V: GicArchitecture>() {
    let mut rig = Rig::<V>::new(2, 4, &[]);
    rig.gic.relay(IntId(39), IntId(39));
    rig.links = vec![(39, 39)];
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 1, 1 << 7);
    route(&mut rig, 0, 39, 0);
    let line = rig.board.line(0, 39);
    (line.enabled, line.high) = (true, true);
    leave(&mut rig, 0);
    for _ in 0..20 {
        rig.run();
        route(&mut rig, 1, 39, 1);
        rig.handle_all(1);
        route(&mut rig, 1, 39, 0);
    }
    assert_eq!(rig.taken[0], 1);
    assert!(rig.board.line(0, 39).active && rig.gic.has_pending(0, Signaling::ALL));
    enter(&mut rig, 0);
    assert_eq!(rig.taken[0], 2);
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(39));
    rig.board.line(0, 39).high = false;
    rig.end(0);
    assert!(!rig.board.line(0, 39).active);
    // The VM releases the line if its boot ends meanwhile.
    leave(&mut rig, 0);
    rig.board.line(0, 39).high = true;
    rig.run();
    route(&mut rig, 1, 39, 1);
    rig.board.line(0, 39).high = false;
    rig.handle_all(1);
    leave(&mut rig, 1);
    assert!(rig.board.line(0, 39).active);
    rig.reset(|_| ());
    assert!(!rig.board.line(0, 39).active);
}

#[test]
fn a_relayed_line_comes_once_until_its_vcpu_is_back() {
    relayed::<V3>();
    relayed::<V2>();
}

type Write = (u64, u32, u32, bool);

/// Makes random writes of vCPU 1 to the registers of both lines, while both devices act at random.
fn hostile<V: GicArchitecture>(writes: &[Write]) {
    let mut rig = away::<V>();
    for &(register, value, extra, own) in writes {
        match register {
            0..7 => {
                let base = [0x80, ISENABLER, ICENABLER, ISPENDR, ICPENDR, ISACTIVER, ICACTIVER]
                    [register as usize];
                rig.word_write(1, base, 1, value & 0b11 << 8);
            }
            7 => route(&mut rig, 1, LINES[value as usize & 1], u64::from(extra & 1)),
            8 => rig.write(1, 0xc08, 4, u64::from(value)),
            9 => rig.write(1, 0, 4, u64::from(value & 3 | extra & 3)),
            10 => rig.board.line(0, 140 + (value & 1)).high = extra & 1 != 0,
            11 => rig.board.line(0, 141).latch = true,
            12 => rig.write(1, 0x428 + u64::from(value & 1), 1, u64::from(extra & 0xff)),
            13 if V::V3 => rig.redist_write(
                1,
                0,
                0x1_0000 + ISPENDR + u64::from(extra & 1) * 0x80,
                4,
                u64::from(value & TIMER),
            ),
            13 => rig.write(1, 0xf00, 4, 1 << 16 | u64::from(extra & 15)),
            14 => drop(rig.handle_all(1)),
            _ if own => drop(rig.acknowledge(1)),
            _ => drop(rig.end(1)),
        }
        rig.settle_but(0);
    }
    assert!(rig.taken[0] <= LINES.len(), "{} interrupts", rig.taken[0]);
    // On a GICv2 there may be one more notification, for an SGI.
    let most = if V::V3 { 1 } else { 2 };
    assert!(rig.notified[0] <= most, "notified {} times", rig.notified[0]);
    // When the vCPU is back, it gets all interrupts that are due.
    rig.kicks = rig.kicks.without(0);
    rig.prompt = true;
    enter(&mut rig, 0);
    rig.settle();
    while rig.end(1).is_some() {}
    rig.word_write(0, ICENABLER, 1, 0b11 << 8);
    rig.word_write(0, ICACTIVER, 1, 0b11 << 8);
    rig.write(0, 0x428, 4, 0);
    rig.write(0, 0xc08, 4, 2 << 18);
    rig.write(0, 0, 4, 3);
    for (n, intid) in LINES.into_iter().enumerate() {
        rig.word_write(0, ISPENDR, 1, 0b1 << (8 + n));
        route(&mut rig, 0, intid, 0);
    }
    rig.word_write(0, ISENABLER, 1, 0b11 << 8);
    rig.settle();
    for intid in LINES {
        rig.board.line(0, intid + 100).high = false;
    }
    let mut seen = Vec::new();
    while let Some(entry) = rig.acknowledge(0) {
        seen.push(entry.intid.0);
        rig.end(0);
        assert!(seen.len() < 40, "without end: {seen:?}");
    }
    assert!(LINES.iter().all(|intid| seen.contains(intid)), "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_write_raises_a_descheduled_vcpus_line_twice(
        writes in
            prop::collection::vec((0u64..17, any::<u32>(), any::<u32>(), any::<bool>()), 0..150),
    ) {
        hostile::<V3>(&writes);
        hostile::<V2>(&writes);
    }
}

/// No state of a vCPU's private lines is left in the core's registers for the next vCPU.
fn leaves_nothing<V: GicArchitecture>() {
    let mut rig = Rig::<V>::new(2, 4, &LINKS);
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 0, TIMER);
    // An edge-triggered timer would latch: its trigger is fixed, as on a GIC with a
    // read-only ICFGR1.
    rig.bank_write(0, 0, 0xc04, 4, 2 << 22);
    assert_eq!(rig.bank_read(0, 0, 0xc04, 4), 0);
    assert!(!rig.board.line(0, 27).edge);
    rig.word_write(0, ICENABLER, 0, TIMER);
    rig.word_write(0, ISPENDR, 0, TIMER);
    rig.board.line(0, 27).high = true;
    rig.run();
    leave(&mut rig, 0);
    rig.board.line(0, 27).high = false;
    let line = *rig.board.line(0, 27);
    assert!(!line.is_pending() && !line.active && !line.enabled, "{line:?}");
    // The vCPU has its own pending state again when it is back.
    enter(&mut rig, 0);
    assert_eq!(rig.word_read(0, ISPENDR, 0) & TIMER, TIMER);
    rig.word_write(0, ISENABLER, 0, TIMER);
    assert_eq!(rig.handle_all(0), [27]);
}

#[test]
fn a_private_line_leaves_no_latch_on_the_core() {
    leaves_nothing::<V3>();
    leaves_nothing::<V2>();
}

/// A guest ends a timer's interrupt before it makes the timer quiet: the line falls while the
/// interrupt waits in a list register.
fn falls<V: GicArchitecture>() {
    let mut rig = Rig::<V>::new(1, 4, &LINKS);
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 0, TIMER);
    rig.board.line(0, 27).high = true;
    rig.run();
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(27));
    rig.end(0);
    rig.board.line(0, 27).high = false;
    // The pending state reads as the line's level, and from then on nothing is left of the
    // interrupt.
    assert_eq!(rig.word_read(0, ISPENDR, 0) & TIMER, 0);
    assert!(rig.acknowledge(0).is_none(), "a spurious interrupt");
    assert!(!rig.board.line(0, 27).active);
    // The same happens if EL2 checks for another reason, and if the vCPU leaves its core.
    for again in [false, true] {
        rig.board.line(0, 27).high = true;
        rig.run();
        rig.board.line(0, 27).high = false;
        if again {
            leave(&mut rig, 0);
            assert!(!rig.gic.has_pending(0, Signaling::ALL));
            enter(&mut rig, 0);
        } else {
            let more = rig.on(0, |gic, _, hw| gic.refresh(0, hw));
            rig.kick(more);
        }
        assert!(rig.acknowledge(0).is_none(), "a spurious interrupt");
        assert!(!rig.board.line(0, 27).active);
    }
    rig.board.line(0, 27).high = true;
    rig.run();
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(27));
}

#[test]
fn a_timer_that_has_fallen_is_not_pending_any_more() {
    falls::<V3>();
    falls::<V2>();
}

/// Tests as many interrupts as fit into all list registers of the core, of which the model uses
/// `used`.
fn many<V: GicArchitecture>(implemented: usize) {
    let used = lr::used(implemented, 4);
    assert_eq!(used, implemented.min(4));
    let mut rig = Rig::<V>::new(1, used, &LINKS);
    let mut core = Core::<V>::new(implemented);
    core.used = used;
    rig.cores = vec![core];
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 0, TIMER | 0xffff);
    rig.write(0, 0xc08, 4, 2 << 18);
    rig.word_write(0, ISENABLER, 1, 0b11 << 8);
    for intid in LINES {
        route(&mut rig, 0, intid, 0);
    }
    // Uses the fast paths: more lines and SGIs than there are list registers in use.
    for pintid in [27, 140] {
        rig.board.line(0, pintid).high = true;
    }
    rig.board.line(0, 141).latch = true;
    rig.run();
    for sgi in 0..16 {
        let sgi =
            super::super::Sgi { intid: IntId(sgi), group1: false, targets: VcpuMask::only(0) };
        let _ = rig.sgis.post(0, sgi);
        let kick = rig.on(0, |gic, sgis, hw| gic.drain(0, sgis, hw));
        rig.kick(kick);
    }
    let mut seen = Vec::new();
    while let Some(entry) = rig.acknowledge(0) {
        for pintid in [27, 140] {
            rig.board.line(0, pintid).high &=
                entry.intid.0 != pintid && entry.intid.0 + 100 != pintid;
        }
        seen.push(entry.intid.0);
        rig.end(0);
    }
    seen.sort_unstable();
    let all: Vec<u32> = (0..16).chain([27, 40, 41]).collect();
    assert_eq!(seen, all, "{implemented} list registers");
}

#[test]
fn no_number_of_list_registers_loses_an_interrupt() {
    for implemented in [1, 4, 16] {
        many::<V3>(implemented);
        many::<V2>(implemented);
    }
    assert_eq!(lr::free_of(0xffff, 4), 0xf);
    assert_eq!(lr::free_of(0xffff_ffff, 16), 0xffff);
    assert_eq!(lr::free_of(0b1010, 1), 0);
}

#[test]
fn a_trigger_change_cannot_reach_another_vcpu() {
    let mut rig = Rig::<V3>::new(2, 4, &LINKS);
    rig.store(GicAccess { vcpu: 1, redistributor: Some(0), offset: 0x1_0c04, size: 4 }, !0);
    assert!(!rig.board.line(0, 27).edge);
}
