//! The reset between two boots, in steps.

use super::super::{Gic, GicArchitecture, ResetStep, Signaling, V2, V3, VcpuMask};
use super::Rig;
use super::properties::{Access, accesses, hostile};
use core::fmt::Debug;
use proptest::prelude::*;
use weir_units::IntId;

const ISENABLER: u64 = 0x100;

/// Linked interrupts: a PPI, and more SPIs in two words than a step handles.
const LINKS: [(u32, u32); 12] = [
    (27, 27),
    (33, 140),
    (34, 141),
    (35, 142),
    (40, 143),
    (41, 144),
    (42, 145),
    (63, 146),
    (64, 147),
    (70, 148),
    (71, 149),
    (255, 150),
];
/// A relayed line.
const RELAYED: u32 = 39;

/// Returns a GIC that was never used, with the links and the relayed line.
fn fresh<V: GicArchitecture>(vcpus: usize) -> Gic<V> {
    let mut gic = Gic::new(vcpus, 4);
    for (intid, pintid) in LINKS {
        gic.link(IntId(intid), IntId(pintid));
    }
    gic.relay(IntId(RELAYED), IntId(RELAYED));
    gic
}

fn rig<V: GicArchitecture>(vcpus: usize) -> Rig<V> {
    let mut rig = Rig::new(vcpus, 4, &LINKS);
    rig.gic.relay(IntId(RELAYED), IntId(RELAYED));
    rig.links.push((RELAYED, RELAYED));
    rig.board.line(0, RELAYED).enabled = true;
    rig
}

/// Sets the inputs of all physical lines, including the relayed one, and lets interrupts come.
fn set_lines<V: GicArchitecture>(rig: &mut Rig<V>, value: u32) {
    for (n, (_, pintid)) in rig.links.clone().into_iter().enumerate().skip(1) {
        let line = rig.board.line(0, pintid);
        line.high = value >> n & 1 != 0;
        line.latch |= line.edge && value >> (n + 16) & 1 != 0;
    }
    rig.run();
}

/// Enables all lines of four vCPUs, and uses them according to `uses`: accesses, then the inputs of
/// the physical lines. Then ends the boot and resets the GIC; `between` are the inputs after each
/// step.
fn reset<V: GicArchitecture + Debug>(uses: &[(Vec<Access>, u32)], between: &[u32]) {
    let mut rig = rig::<V>(4);
    rig.write(0, 0, 4, 3);
    for w in 0..8 {
        rig.word_write(0, ISENABLER, w, !0);
    }
    for (accesses, lines) in uses {
        set_lines(&mut rig, *lines);
        // No device of the VM itself raises the relayed line.
        let own = |access: &&Access| access.3 as u32 != RELAYED && access.5 as u32 != RELAYED;
        hostile(&mut rig, &accesses.iter().filter(own).copied().collect::<Vec<_>>());
    }
    rig.leave_all();
    rig.sgis.clear();
    // The vCPUs that were kicked are already off their cores.
    (rig.prompt, rig.kicks) = (false, VcpuMask::NONE);
    let mut between = between.iter().cycle();
    rig.reset(|rig| {
        // The reset does not disable the relayed line, so it stays low here.
        set_lines(rig, between.next().unwrap() & !(1 << LINKS.len()));
    });
    assert_eq!(format!("{:?}", rig.gic), format!("{:?}", fresh::<V>(4)));
    for (_, pintid) in rig.links.clone().into_iter().skip(1) {
        let line = *rig.board.line(0, pintid);
        assert!(!line.active, "{pintid} is active");
        if pintid != RELAYED {
            assert!(!line.enabled && !line.latch && !line.edge && line.target == 0, "{pintid}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// After the last step no state of the previous boot is left, whatever its guest did and
    /// whichever interrupts come between two steps.
    #[test]
    fn a_reset_gic_is_as_a_new_one(
        uses in prop::collection::vec((accesses(), any::<u32>()), 1..4),
        between in prop::collection::vec(any::<u32>(), 1..8),
    ) {
        reset::<V3>(&uses, &between);
        reset::<V2>(&uses, &between);
    }
}

/// Each step makes a bounded number of accesses, with every SPI linked.
fn accesses_per_step<V: GicArchitecture>() {
    let links: Vec<(u32, u32)> = (32..256).map(|intid| (intid, intid)).collect();
    let mut rig = Rig::<V>::new(8, 4, &links);
    rig.leave_all();
    let (mut steps, mut last) = (0, rig.board.accesses);
    rig.reset(|rig| {
        let made = rig.board.accesses - last;
        assert!(made <= 40, "{made} accesses in step {steps}");
        (steps, last) = (steps + 1, rig.board.accesses);
    });
    assert_eq!(steps, 224 / 8 + 1 + 8);
}

#[test]
fn a_step_of_a_reset_has_a_bound() {
    accesses_per_step::<V3>();
    accesses_per_step::<V2>();
}

/// An interrupt that a core has acknowledged, and delivers after the reset step of its line, stays
/// until the next boot, which can take the line's later interrupts.
fn delivered_late<V: GicArchitecture>(intid: u32, pintid: u32, after: usize) {
    let mut rig = rig::<V>(2);
    rig.leave_all();
    let mut step = 0;
    rig.reset(|rig| {
        if step == after {
            rig.board.line(0, pintid).active = true;
            let _ = rig.on(0, |gic, _, hw| gic.deliver_hw(0, IntId(intid), hw));
        }
        step += 1;
    });
    assert!(after < step);
    rig.kicks = VcpuMask::NONE;
    for vcpu in 0..2 {
        let _ = rig.on(vcpu, |gic, _, hw| gic.restore(vcpu, hw));
    }
    if intid == RELAYED {
        assert!(rig.gic.is_high(IntId(intid)));
    } else {
        // The interrupt was deactivated.
        assert!(!rig.board.line(0, pintid).active);
    }
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x800 + u64::from(intid), 1, 1);
    rig.word_write(0, ISENABLER, intid as usize >> 5, 1 << (intid & 31));
    for _ in 0..2 {
        rig.board.line(0, pintid).high = true;
        rig.run();
        assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(intid));
        rig.board.line(0, pintid).high = false;
        rig.end(0);
        assert!(!rig.board.line(0, pintid).active && rig.acknowledge(0).is_none());
    }
}

#[test]
fn an_interrupt_on_its_way_outlasts_a_reset() {
    // Two steps for the lines, one for the common state, two for the vCPUs.
    for after in 1..5 {
        for (intid, pintid) in [(33, 140), (255, 150), (RELAYED, RELAYED)] {
            delivered_late::<V3>(intid, pintid, after);
            delivered_late::<V2>(intid, pintid, after);
        }
    }
}

/// After the end of a boot and before the reset, a relayed line can be given to another VM, even
/// one that the guest had taken. From then on the reset does not touch it.
#[test]
fn a_boot_that_ends_can_give_up_a_line() {
    let mut rig = rig::<V3>(2);
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 1, 1 << (RELAYED - 32));
    rig.board.line(0, RELAYED).active = true;
    rig.on(0, |gic, _, hw| gic.release_relayed(IntId(RELAYED), hw));
    assert!(rig.board.line(0, RELAYED).active, "it came to another");
    rig.board.line(0, RELAYED).active = false;
    rig.board.line(0, RELAYED).high = true;
    rig.run();
    assert_eq!(rig.acknowledge(0).map(|entry| entry.intid.0), Some(RELAYED));
    rig.leave_all();
    assert!(!rig.gic.withdraw(IntId(RELAYED)));
    rig.board.line(0, RELAYED).high = false;
    rig.on(0, |gic, _, hw| gic.release_relayed(IntId(RELAYED), hw));
    assert!(!rig.board.line(0, RELAYED).active && rig.gic.withdraw(IntId(RELAYED)));
    // The line comes once more, and can be withdrawn.
    rig.board.line(0, RELAYED).high = true;
    rig.run();
    assert!(rig.gic.is_high(IntId(RELAYED)));
    rig.on(0, |gic, _, hw| gic.release_relayed(IntId(RELAYED), hw));
    assert!(rig.gic.withdraw(IntId(RELAYED)));
    rig.board.line(0, RELAYED).active = true;
    rig.reset(|_| ());
    assert!(rig.board.line(0, RELAYED).active, "it came to another");
}

/// An interrupt that comes before the reset step of its line disables the line, and is dropped by
/// that step.
#[test]
fn no_step_of_a_reset_forwards_interrupts() {
    let mut rig = rig::<V3>(1);
    rig.write(0, 0, 4, 3);
    rig.word_write(0, ISENABLER, 7, !0);
    rig.leave_all();
    let next = rig.on(0, |gic, _, hw| gic.reset(ResetStep::default(), hw));
    assert!(next.is_some() && rig.board.line(0, 150).enabled, "INTID 255 has a later step");
    rig.board.line(0, 150).high = true;
    rig.run();
    assert!(rig.board.line(0, 150).active && !rig.board.line(0, 150).enabled);
    assert!(!rig.gic.is_forwarded(IntId(255)));
    rig.reset(|_| ());
    assert!(!rig.board.line(0, 150).active && !rig.gic.has_pending(0, Signaling::ALL));
}
