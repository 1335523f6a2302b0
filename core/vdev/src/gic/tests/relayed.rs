//! Relayed lines: a physical interrupt that is passed from owner to owner.

use super::{GicArchitecture, Rig};
use crate::gic::{V2, V3};
use weir_units::IntId;

const LINE: u32 = 39;

/// Returns one vCPU with the line relayed, not linked; the board's `run` delivers it as if it were
/// linked.
fn rig<V: GicArchitecture>() -> Rig<V> {
    let mut rig = Rig::<V>::new(1, 4, &[]);
    rig.gic.relay(IntId(LINE), IntId(LINE));
    rig.links = vec![(LINE, LINE)];
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x80 + 4, 4, 0xffff_ffff);
    let line = rig.board.line(0, LINE);
    (line.enabled, line.high) = (true, true);
    rig
}

fn enable<V: GicArchitecture>(rig: &mut Rig<V>) {
    rig.write(0, 0x100 + 4, 4, 1 << (LINE - 32));
}

fn is_active<V: GicArchitecture>(rig: &mut Rig<V>) -> bool {
    rig.board.line(0, LINE).active
}

fn comes_once_for_each_end<V: GicArchitecture>(edge: bool) {
    let mut rig = rig::<V>();
    if edge {
        // The guest's configuration of the line does not change how its interrupt ends.
        rig.write(0, 0xc00 + 8, 4, 2 << (2 * (LINE - 32)));
    }
    rig.run();
    assert!(is_active(&mut rig) && rig.acknowledge(0).is_none(), "not enabled");
    enable(&mut rig);
    rig.run();
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(LINE));
    assert!(is_active(&mut rig));
    // The device is quiet when its interrupt ends; the second time it is not.
    rig.board.line(0, LINE).high = false;
    assert_eq!(rig.end(0), Some(LINE));
    assert!(!is_active(&mut rig) && rig.acknowledge(0).is_none());
    rig.board.line(0, LINE).high = true;
    rig.run();
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(LINE));
    assert_eq!(rig.end(0), Some(LINE));
    assert!(is_active(&mut rig), "again, as the device still asks for it");
    assert!(rig.acknowledge(0).is_some());
}

#[test]
fn a_relayed_line_is_the_guests_to_its_end() {
    comes_once_for_each_end::<V2>(false);
    comes_once_for_each_end::<V3>(false);
    comes_once_for_each_end::<V2>(true);
    comes_once_for_each_end::<V3>(true);
}

#[test]
fn only_interrupts_not_yet_taken_can_be_withdrawn() {
    let mut rig = rig::<V3>();
    assert!(rig.gic.withdraw(IntId(LINE)), "quiet");
    rig.run();
    assert!(rig.gic.withdraw(IntId(LINE)), "not enabled, so it waits in the model");
    rig.board.line(0, LINE).high = false;
    enable(&mut rig);
    rig.run();
    assert!(rig.acknowledge(0).is_none(), "it is another's now");
    rig.board.line(0, LINE).active = false;
    rig.board.line(0, LINE).high = true;
    rig.run();
    assert!(!rig.gic.withdraw(IntId(LINE)), "in a list register");
    assert!(rig.acknowledge(0).is_some());
    assert!(!rig.gic.withdraw(IntId(LINE)), "being handled");
    // The interrupt is still being handled while the vCPU is off the core.
    let _ = rig.on(0, |gic, _, hw| gic.save(0, hw));
    assert!(!rig.gic.withdraw(IntId(LINE)));
    rig.board.line(0, LINE).high = false;
    let _ = rig.on(0, |gic, _, hw| gic.restore(0, hw));
    assert_eq!(rig.end(0), Some(LINE));
    assert!(rig.gic.withdraw(IntId(LINE)) && !is_active(&mut rig));
}

/// A guest's change of its own view of a line does not end the interrupt of the line's owner.
#[test]
fn a_guest_ends_only_what_came_to_it() {
    let mut rig = rig::<V3>();
    rig.links.clear();
    rig.board.line(0, LINE).active = true;
    enable(&mut rig);
    rig.write(0, 0x200 + 4, 4, 1 << (LINE - 32));
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(LINE));
    assert_eq!(rig.end(0), Some(LINE));
    assert!(is_active(&mut rig));
    rig.leave_all();
    rig.reset(|_| ());
    assert!(is_active(&mut rig));
}

#[test]
fn a_boot_that_ends_lets_go_of_the_line() {
    let mut rig = rig::<V3>();
    enable(&mut rig);
    rig.run();
    assert!(rig.acknowledge(0).is_some() && is_active(&mut rig));
    rig.leave_all();
    rig.reset(|_| ());
    assert!(!is_active(&mut rig) && rig.gic.withdraw(IntId(LINE)));
    enable(&mut rig);
}
