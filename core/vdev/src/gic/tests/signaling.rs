//! The interrupts that end a vCPU's wait in WFI.

use super::super::{Signaling, V2, V3};
use super::{GicArchitecture, Rig};
use weir_units::IntId;

const ISENABLER: u64 = 0x100;
const ICENABLER: u64 = 0x180;
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;
const TIMER: u32 = 1 << 27;

/// Returns an interface with both groups enabled, this priority mask, and binary points with which
/// each priority is a group of its own.
const fn interface(mask: u32) -> Signaling {
    Signaling::new(mask << 24 | 2 << 21 | 3 << 18 | 0b11, 0)
}

#[test]
fn mask_groups_and_running_priority_hold_back() {
    assert!(Signaling::ALL.passes(0xf8, false) && Signaling::ALL.passes(0xf8, true));
    let passes = |interface: Signaling| {
        [false, true]
            .map(|group1| (0..=0xf8_u8).step_by(8).filter(|&n| interface.passes(n, group1)).count())
    };
    assert_eq!(passes(interface(0xf8)), [31; 2]);
    assert_eq!(passes(interface(0x80)), [16; 2], "the mask itself does not pass");
    assert_eq!(passes(interface(0)), [0; 2]);
    assert_eq!(passes(Signaling::new(0xf8 << 24 | 2 << 21 | 3 << 18 | 0b01, 0)), [31, 0]);
    assert_eq!(passes(Signaling::new(0xf8 << 24 | 2 << 21 | 3 << 18 | 0b10, 0)), [0, 31]);
    // 0x50 is active, and so is the less urgent 0xa0.
    let active = 1 << (0x50 >> 3) | 1 << (0xa0 >> 3);
    assert_eq!(passes(Signaling::new(0xf8 << 24 | 2 << 21 | 3 << 18 | 0b11, active)), [10; 2]);
    // Binary points of 5: a difference in bits 7 and 6 preempts, in group 1 one in bits 7 to 5.
    let points = Signaling::new(0xf8 << 24 | 5 << 21 | 5 << 18 | 0b11, active);
    assert_eq!(passes(points), [8, 8]);
    let points = Signaling::new(0xf8 << 24 | 6 << 21 | 5 << 18 | 0b11, active);
    assert_eq!(passes(points), [0, 8]);
    // CBPR: the binary point of group 0 applies to both groups.
    let common = Signaling::new(0xf8 << 24 | 6 << 21 | 5 << 18 | 1 << 4 | 0b11, active);
    assert_eq!(passes(common), [0, 0]);
}

/// An interrupt in a list register or in the model ends a wait only if the interface signals it.
fn waits<V: GicArchitecture>() {
    for lists in [1, 4] {
        let mut rig = Rig::<V>::new(1, lists, &[(27, 27)]);
        rig.write(0, 0, 4, 3);
        rig.word_write(0, ISENABLER, 0, TIMER);
        rig.word_write(0, ISENABLER, 1, 0b110);
        for (intid, priority) in [(27, 0xa0), (33, 0x80), (34, 0xc0)] {
            rig.write(0, 0x400 + intid, 1, priority);
        }
        if V::V3 {
            rig.redist_write(0, 0, 0x1_0400 + 27, 1, 0xa0);
        }
        rig.board.line(0, 27).high = true;
        rig.run();
        rig.set_level(34, true);
        rig.run();
        let check = |rig: &Rig<V>| {
            assert!(!rig.gic.has_pending(0, interface(0x80)), "{lists}");
            assert!(!rig.gic.has_pending(0, interface(0xa0)), "{lists}");
            assert!(rig.gic.has_pending(0, interface(0xa8)), "{lists}");
            assert!(!rig.gic.has_pending(0, interface(0x88)), "{lists}");
            let running = Signaling::new(0xf8 << 24 | 2 << 21 | 3 << 18 | 0b11, 1 << (0x88 >> 3));
            assert!(!rig.gic.has_pending(0, running), "{lists}");
            let off = Signaling::new(0xf8 << 24 | 2 << 21 | 3 << 18, 0);
            assert!(!rig.gic.has_pending(0, off) && rig.gic.has_pending(0, Signaling::ALL));
        };
        check(&rig);
        let _ = rig.on(0, |gic, _, hw| gic.save(0, hw));
        check(&rig);
        let _ = rig.on(0, |gic, _, hw| gic.restore(0, hw));
        rig.set_level(33, true);
        rig.run();
        rig.gic.fold(0, &rig.cores[0]);
        // The interrupt is more urgent than the mask.
        assert!(rig.gic.has_pending(0, interface(0x88)));
        assert!(!rig.gic.has_pending(0, interface(0x80)));
    }
}

#[test]
fn a_wait_ends_by_what_the_interface_signals() {
    waits::<V3>();
    waits::<V2>();
}

/// A vCPU off its core waits for a timer only while the timer's interrupt could be signaled, and is
/// notified if that changes.
fn timers<V: GicArchitecture>() {
    let mut rig = Rig::<V>::new(2, 4, &[(27, 27)]);
    rig.write(0, 0, 4, 3);
    let set = |rig: &mut Rig<V>, base, value| rig.word_write(0, base, 0, value);
    let may = |rig: &Rig<V>, mask| rig.gic.may_signal(0, IntId(27), interface(mask));
    assert!(!may(&rig, 0xf8), "it is disabled");
    set(&mut rig, ISENABLER, TIMER);
    rig.bank_write(0, 0, 0x400 + 27, 1, 0xa0);
    assert!(may(&rig, 0xa8) && !may(&rig, 0xa0));
    set(&mut rig, ISACTIVER, TIMER);
    let _ = rig.on(0, |gic, _, hw| gic.save(0, hw));
    assert!(!may(&rig, 0xf8), "its last interrupt is active");
    let _ = rig.on(0, |gic, _, hw| gic.restore(0, hw));
    set(&mut rig, ICACTIVER, TIMER);
    assert!(may(&rig, 0xf8) && !rig.gic.may_signal(0, IntId(59), interface(0xf8)));
    rig.write(0, 0, 4, 0);
    assert!(!may(&rig, 0xf8), "the distributor is off");
    rig.write(0, 0, 4, 3);
    set(&mut rig, ICENABLER, TIMER);
    if !V::V3 {
        return;
    }
    // Another vCPU writes to the redistributor.
    for (offset, size, value) in [(ISENABLER, 4, TIMER), (0x400 + 27, 1, 0x40), (0x80, 4, TIMER)] {
        let _ = rig.on(0, |gic, _, hw| gic.save(0, hw));
        assert!(!rig.gic.is_wanted(0));
        rig.redist_write(1, 0, 0x1_0000 + offset, size, u64::from(value));
        assert!(rig.gic.is_wanted(0), "{offset:#x}");
        let _ = rig.on(0, |gic, _, hw| gic.restore(0, hw));
    }
}

#[test]
fn a_wait_counts_timers_that_can_be_signaled() {
    timers::<V3>();
    timers::<V2>();
}
