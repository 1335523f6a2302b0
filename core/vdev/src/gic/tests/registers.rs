//! One test for each group of registers, named by the manual's section.

use super::super::lr::{Backing, Entry, ListRegisterState};
use super::super::{
    GicAccess, GicArchitecture, Maintenance, Sgi, SgiBoard, SgiRegister, SgiWords, Signaling, V2,
    V3, VcpuMask, decode_sgi_register, decode_sgir, sgi_target,
};
use super::Rig;
use core::sync::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::time::{Duration, Instant};
use weir_units::IntId;

const PENDING: ListRegisterState = ListRegisterState { pending: true, active: false };

/// Returns a VM with its groups enabled and SPI 1 (INTID 33) enabled at `priority`.
fn with_33<V: GicArchitecture>(vcpus: usize, priority: u64) -> Rig<V> {
    let mut rig = Rig::<V>::new(vcpus, 4, &[(27, 27), (40, 140)]);
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x104, 4, 1 << 1);
    rig.write(0, 0x421, 1, priority);
    if !V::V3 {
        rig.write(0, 0x821, 1, 1);
    }
    rig
}

/// IHI0069H 12.4.4, `ICH_LR<n>_EL2`.
#[test]
fn list_register_of_gicv3() {
    let hardware = Entry {
        intid: IntId(27),
        state: PENDING,
        priority: 0xa8,
        group1: true,
        backing: Backing::Hardware { pintid: IntId(27) },
    };
    assert_eq!(V3::encode(&hardware), 0x70a8_001b_0000_001b);
    let software = Entry {
        intid: IntId(33),
        state: ListRegisterState { pending: true, active: true },
        priority: 0x10,
        group1: false,
        backing: Backing::Software { eoi: true, source: 0 },
    };
    assert_eq!(V3::encode(&software), 0xc010_0200_0000_0021);
    assert!(V3::reports_end(V3::encode(&software)) && !V3::reports_end(V3::encode(&hardware)));
}

/// IHI0048B 5.3.9, `GICH_LRn`.
#[test]
fn list_register_of_gicv2() {
    let hardware = Entry {
        intid: IntId(27),
        state: PENDING,
        priority: 0xa8,
        group1: true,
        backing: Backing::Hardware { pintid: IntId(27) },
    };
    assert_eq!(V2::encode(&hardware), 0xda80_6c1b);
    let sgi = Entry {
        intid: IntId(3),
        state: ListRegisterState { pending: false, active: true },
        priority: 0xf8,
        group1: false,
        backing: Backing::Software { eoi: true, source: 5 },
    };
    assert_eq!(V2::encode(&sgi), 0x2f88_1403);
}

proptest! {
    #[test]
    fn list_registers_decode_to_what_was_encoded(
        intid in 0u32..1020, pending: bool, active: bool, priority: u8, group1: bool,
        linked: bool, pintid in 16u32..1020, eoi: bool, source in 0u32..8,
    ) {
        let backing = if linked {
            Backing::Hardware { pintid: IntId(pintid) }
        } else {
            Backing::Software { eoi, source: if intid < 16 { source } else { 0 } }
        };
        let state = ListRegisterState { pending, active };
        let entry =
            Entry { intid: IntId(intid), state, priority: priority & 0xf8, group1, backing };
        prop_assert_eq!(V2::decode(V2::encode(&entry)), entry);
        let backing = match backing {
            Backing::Software { eoi, .. } => Backing::Software { eoi, source: 0 },
            linked @ Backing::Hardware { .. } => linked,
        };
        let entry = Entry { backing, ..entry };
        prop_assert_eq!(V3::decode(V3::encode(&entry)), entry);
    }
}

/// IHI0069H 12.9: GICD_CTLR, GICD_TYPER, GICD_IIDR, GICD_PIDR2; 12.1.3: access sizes.
#[test]
fn identification_of_gicv3() {
    let mut rig = Rig::<V3>::new(3, 4, &[]);
    assert_eq!(rig.read(0, 0, 4), 0x50, "ARE, DS");
    rig.write(1, 0, 4, 0xffff_ffff);
    assert_eq!(rig.read(2, 0, 4), 0x53);
    assert_eq!(rig.read(0, 4, 4), 0x0148_0007);
    assert_eq!(rig.read(0, 8, 4) & 0xfff, 0x43b);
    assert_eq!(rig.read(0, 0xc, 4), 0, "TYPER2");
    assert_eq!(rig.read(0, 0xffe8, 4) >> 4 & 15, 3);
    for (offset, size) in [(4, 1), (4, 2), (0, 8), (5, 4), (6, 2), (4, 3), (4, 0)] {
        assert_eq!(rig.read(0, offset, size), 0, "{offset:#x}/{size}");
    }
    for offset in [0x80, 0x100, 0x200, 0x300, 0x400, 0x800, 0xc00, 0xd04, 0xe04, 0xf00, 0x6000] {
        rig.write(0, offset, 4, !0);
        assert_eq!(rig.read(0, offset, 4), 0, "{offset:#x} is not the distributor's");
    }
    for offset in [0x120, 0x220, 0x320, 0x500, 0xc40, 0x6800, 0x7ff8] {
        rig.write(0, offset, 4, !0);
        assert_eq!(rig.read(0, offset, 4), 0, "{offset:#x} is above INTID 255");
    }
}

/// IHI0048B 4.3.1, 4.3.2, 4.3.18.
#[test]
fn identification_of_gicv2() {
    let mut rig = Rig::<V2>::new(3, 4, &[]);
    rig.write(0, 0, 4, !0);
    assert_eq!(rig.read(0, 0, 4), 3);
    assert_eq!(rig.read(0, 4, 4), 2 << 5 | 7);
    assert_eq!(rig.read(0, 0xfe8, 4) >> 4 & 15, 2);
    assert_eq!(rig.read(0, 0xffe8, 4), 0);
}

/// IHI0069H 12.11: GICR_TYPER, GICR_WAKER, GICR_PIDR2.
#[test]
fn redistributor_identification() {
    let mut rig = Rig::<V3>::new(3, 4, &[]);
    for target in 0..3u64 {
        let last = u64::from(target == 2) << 4;
        let t = target as usize;
        assert_eq!(rig.redist_read(0, t, 8, 8), target << 32 | target << 8 | last);
        assert_eq!(rig.redist_read(0, t, 8, 4), target << 8 | last);
        assert_eq!(rig.redist_read(0, t, 0xc, 4), target);
    }
    assert_eq!(rig.redist_read(0, 3, 8, 8), 0, "no such vCPU");
    assert_eq!(rig.redist_read(0, 0, 4, 4) & 0xfff, 0x43b);
    assert_eq!(rig.redist_read(0, 0, 0xffe8, 4) >> 4 & 15, 3);
    assert_eq!(rig.redist_read(0, 1, 0x14, 4), 6);
    rig.redist_write(0, 1, 0x14, 4, 0);
    assert_eq!(rig.redist_read(0, 1, 0x14, 4), 0);
    assert_eq!(rig.redist_read(0, 2, 0x14, 4), 6);
    assert_eq!(rig.redist_read(0, 2, 0x1_0d00, 4), 0, "IGRPMODR0");
}

/// Bitmap registers, IPRIORITYR and ICFGR hold what was written, per vCPU below INTID 32.
#[test]
fn configuration_registers() {
    configuration::<V3>(0);
    configuration::<V2>(0xffff);
}

fn configuration<V: GicArchitecture>(fixed: u32) {
    let mut rig = Rig::<V>::new(2, 4, &[]);
    rig.bank_write(0, 0, 0x80, 4, 0x1234_5678);
    rig.write(1, 0x9c, 4, 0x8000_0001);
    assert_eq!(rig.bank_read(0, 0, 0x80, 4), 0x1234_5678);
    assert_eq!(rig.bank_read(1, 1, 0x80, 4), 0);
    assert_eq!(rig.read(0, 0x9c, 4), 0x8000_0001);

    rig.bank_write(0, 0, 0x100, 4, 0x0f0f_00ff);
    rig.bank_write(0, 0, 0x180, 4, 0x0001_000f);
    let enabled = u64::from(0x0f0e_00f0 | fixed);
    assert_eq!(rig.bank_read(0, 0, 0x100, 4), enabled);
    assert_eq!(rig.bank_read(0, 0, 0x180, 4), enabled);
    assert_eq!(rig.bank_read(1, 1, 0x100, 4), u64::from(fixed));
    rig.bank_write(0, 0, 0x100, 1, 0xff);
    assert_eq!(rig.bank_read(0, 0, 0x100, 1), 0, "no byte access");

    rig.write(0, 0x440, 4, 0x0102_03ff);
    assert_eq!(rig.read(1, 0x440, 4), 0x0000_00f8);
    rig.write(0, 0x4ff, 1, 0xa7);
    assert_eq!(rig.read(0, 0x4fc, 4), 0xa000_0000);
    assert_eq!(rig.read(0, 0x4ff, 1), 0xa0);
    rig.write(0, 0x440, 8, !0);
    rig.write(0, 0x440, 2, !0);
    assert_eq!(rig.read(1, 0x440, 4), 0x0000_00f8);

    assert_eq!(rig.bank_read(0, 0, 0xc00, 4), 0xaaaa_aaaa);
    rig.bank_write(0, 0, 0xc00, 4, 0);
    assert_eq!(rig.bank_read(0, 0, 0xc00, 4), 0xaaaa_aaaa, "SGIs are edges");
    rig.bank_write(0, 0, 0xc04, 4, 0xffff_0008);
    assert_eq!(rig.bank_read(0, 0, 0xc04, 4), 0, "PPIs are levels");
    rig.write(0, 0xc3c, 4, 0x8000_0002);
    assert_eq!(rig.read(0, 0xc3c, 4), 0x8000_0002);
}

/// IHI0069H 12.9.22, GICD_IROUTER.
#[test]
fn routes_of_gicv3() {
    let mut rig = with_33::<V3>(3, 0x80);
    let offset = 0x6000 + 8 * 33;
    rig.write(0, offset, 8, 0xaa_80ff_0102 | 0x7f00_0000);
    assert_eq!(rig.read(0, offset, 8), 0xaa_80ff_0102);
    assert_eq!(rig.read(0, offset, 4), 0x80ff_0102);
    assert_eq!(rig.read(0, offset + 4, 4), 0xaa);
    // Any vCPU may take it: vCPU 0 does.
    assert_eq!(rig.gic.set_level(IntId(33), true), VcpuMask::only(0));
    assert_eq!(rig.gic.set_level(IntId(33), false), VcpuMask::NONE);
    rig.write(0, offset, 4, 2);
    assert_eq!(rig.gic.set_level(IntId(33), true), VcpuMask::NONE, "no vCPU is 0xaa.0.0.2");
    rig.gic.set_level(IntId(33), false).iter().for_each(drop);
    rig.write(0, offset + 4, 4, 0);
    let kick = rig.gic.set_level(IntId(33), true);
    assert_eq!(kick, VcpuMask::only(2));
    rig.kick(kick);
    assert_eq!(rig.cores[2].highest().unwrap().1.intid.0, 33);
    // The interrupt moves when its route changes.
    rig.write(0, offset, 8, 1);
    assert!(rig.cores[2].highest().is_none());
    assert_eq!(rig.cores[1].highest().unwrap().1.intid.0, 33);
}

/// IHI0048B 4.3.12, GICD_ITARGETSR.
#[test]
fn targets_of_gicv2() {
    let mut rig = with_33::<V2>(3, 0x80);
    assert_eq!(rig.read(2, 0x800, 4), 0x0404_0404);
    assert_eq!(rig.read(1, 0x81f, 1), 2);
    rig.write(0, 0x820, 4, 0x00ff_0600);
    assert_eq!(rig.read(0, 0x820, 4), 0x0007_0600);
    assert_eq!(rig.gic.set_level(IntId(33), true), VcpuMask::only(1), "the lowest of 1 and 2");
    let mut alone = Rig::<V2>::new(1, 4, &[]);
    alone.write(0, 0x820, 4, !0);
    assert_eq!(alone.read(0, 0x820, 4), 0, "RAZ/WI with one vCPU");
    assert_eq!(alone.read(0, 0x800, 4), 0);
}

/// IHI0069H 12.2.18 and its neighbors.
#[test]
fn an_sgi_to_a_core_names_its_affinity() {
    // Aff3 4, Aff2 3, Aff1 2, Aff0 0x15: target 5 of range 1.
    assert_eq!(sgi_target(0x0004_8003_0215), 0x0004_1003_0002_0020);
    assert_eq!(sgi_target(0x0000_8000_0003), 1 << 3);
}

#[test]
fn sgi_system_registers() {
    let decode =
        |value, sender| decode_sgi_register(SgiRegister::Sgi1, value, sender, VcpuMask::first(4));
    assert_eq!(
        decode(5 << 24 | 0xfff3, 0),
        Sgi { intid: IntId(5), group1: true, targets: VcpuMask::from_bits(3) }
    );
    assert_eq!(decode(1 << 40 | 15 << 24, 2).targets.bits(), 0b1011);
    for elsewhere in [1 << 16, 1 << 32, 1 << 44, 1 << 48] {
        assert!(decode(elsewhere | 0xf, 0).targets.is_empty());
    }
    assert!(!decode_sgi_register(SgiRegister::Sgi0, 1, 0, VcpuMask::first(4)).group1);
    assert!(!decode_sgi_register(SgiRegister::Asgi1, 1, 0, VcpuMask::first(4)).group1);
}

/// IHI0048B 4.3.15, 4.3.16, 4.3.17: GICD_SGIR, GICD_CPENDSGIR, GICD_SPENDSGIR.
#[test]
fn sgi_registers_of_gicv2() {
    assert_eq!(decode_sgir(0x00ff_8003, 1, VcpuMask::first(3)).targets.bits(), 0b111);
    assert_eq!(decode_sgir(0x0100_0003, 1, VcpuMask::first(3)).targets.bits(), 0b101);
    assert_eq!(decode_sgir(0x0200_0003, 1, VcpuMask::first(3)).targets.bits(), 0b010);
    assert!(decode_sgir(0x03ff_0003, 1, VcpuMask::first(3)).targets.is_empty());

    let mut rig = with_33::<V2>(3, 0);
    rig.write(1, 0xf00, 4, 0x0001_0003);
    rig.write(2, 0xf00, 4, 0x0001_0003);
    rig.write(2, 0xf00, 4, 0x0001_0003);
    assert_eq!(rig.read(0, 0xf20, 4), 0x0600_0000);
    assert_eq!(rig.read(0, 0xf13, 1), 6);
    assert_eq!(rig.read(1, 0xf20, 4), 0, "banked");
    rig.write(0, 0xf22, 1, 1);
    rig.write(0, 0xf10, 4, 0x0200_0000);
    assert_eq!(rig.read(0, 0xf20, 4), 0x0401_0000);
    assert_eq!(rig.bank_read(0, 0, 0x200, 4), 0b1100);
    // The SGI of each sender comes once, with the sender's number.
    let mut seen = Vec::new();
    while let Some(entry) = rig.acknowledge(0) {
        seen.push((entry.intid.0, entry.backing));
        rig.end(0);
    }
    let from = |source| Backing::Software { eoi: false, source };
    assert_eq!(seen, [(2, from(0)), (3, from(2))]);
    rig.write(0, 0x200, 4, 0xffff);
    assert_eq!(rig.read(0, 0x200, 4), 0, "ISPENDR does not set SGIs");
}

/// A store to GICD_SGIR sends an SGI like a system register does: with one list register write at a
/// receiver that can take the SGI, and without a refresh.
#[test]
fn gicd_sgir_is_posted() {
    let mut rig = with_33::<V2>(3, 0);
    let writes: Vec<_> = rig.cores.iter().map(|core| core.writes).collect();
    rig.prompt = false;
    rig.write(1, 0xf00, 4, 0x0100_8005);
    for vcpu in [0, 2] {
        assert!(!rig.sgis.is_empty(vcpu) && !rig.gic.is_wanted(vcpu), "no refresh is asked for");
    }
    rig.settle();
    for (vcpu, before) in writes.into_iter().enumerate() {
        let entry = rig.cores[vcpu].highest().map(|(_, entry)| (entry.intid.0, entry.backing));
        let from_1 = Backing::Software { eoi: false, source: 1 };
        assert_eq!(entry, (vcpu != 1).then_some((5, from_1)), "all but the sender");
        assert_eq!(rig.cores[vcpu].writes - before, usize::from(vcpu != 1));
    }
    // An SGI to the sender itself comes at once.
    rig.write(1, 0xf00, 4, 0x0200_0006);
    assert_eq!(rig.cores[1].highest().map(|(_, entry)| entry.intid.0), Some(6));
    // This applies only to a store of 32 bits, and only on GICv2.
    let at = |offset, size| GicAccess { vcpu: 1, redistributor: None, offset, size };
    for (offset, size) in [(0xf00, 1), (0xf00, 2), (0xf00, 8), (0xf04, 4), (0xf01, 4)] {
        assert!(!at(offset, size).is_sgir::<V2>(), "{offset:#x}/{size}");
        rig.write(1, offset, size, 0x0200_0007);
    }
    assert!(!at(0xf00, 4).is_sgir::<V3>());
    assert_eq!(rig.read(1, 0xf00, 4), 0, "write-only");
    assert_eq!(rig.bank_read(1, 1, 0x200, 4), 1 << 6);
}

/// IHI0048B 4.3.15: an SGI that can't be taken stays pending, with all of its senders.
#[test]
fn gicd_sgir_while_the_distributor_is_off() {
    let mut rig = Rig::<V2>::new(3, 4, &[]);
    for sender in 0..3 {
        rig.write(sender, 0xf00, 4, 0x0001_8009);
    }
    assert_eq!(rig.acknowledge(0), None);
    assert_eq!(rig.read(0, 0xf28, 4), 0b111 << 8);
    assert_eq!(rig.bank_read(0, 0, 0x200, 4), 1 << 9);
    rig.write(0, 0xf18, 4, 0b100 << 8);
    rig.write(0, 0, 4, 1);
    let mut senders = Vec::new();
    while let Some(Entry { backing: Backing::Software { source, .. }, .. }) = rig.acknowledge(0) {
        senders.push(source);
        rig.end(0);
    }
    assert_eq!(senders, [0, 1]);
}

#[test]
fn one_sgi_from_three_senders() {
    let mut rig = with_33::<V2>(4, 0);
    for sender in 1..4 {
        let notify = rig.sgis.post(sender, decode_sgir(0x0001_0007, sender, VcpuMask::first(4)));
        assert_eq!(notify.is_empty(), sender > 1, "one kick is enough");
        rig.kicks = rig.kicks | notify;
    }
    rig.settle();
    let mut senders = Vec::new();
    while let Some(Entry { backing: Backing::Software { source, .. }, .. }) = rig.acknowledge(0) {
        senders.push(source);
        rig.end(0);
    }
    assert_eq!(senders, [1, 2, 3]);
}

#[test]
fn an_sgi_needs_its_group() {
    let mut rig = with_33::<V3>(2, 0);
    for (group1, register, comes) in [
        (false, SgiRegister::Sgi1, false),
        (false, SgiRegister::Sgi0, true),
        (false, SgiRegister::Asgi1, true),
        (true, SgiRegister::Sgi1, true),
        (true, SgiRegister::Sgi0, false),
        (true, SgiRegister::Asgi1, false),
    ] {
        rig.redist_write(1, 1, 0x1_0080, 4, if group1 { !0 } else { 0 });
        rig.redist_write(1, 1, 0x1_0100, 4, 1 << 4);
        let notify =
            rig.sgis.post(0, decode_sgi_register(register, 4 << 24 | 2, 0, VcpuMask::first(2)));
        rig.kick(notify);
        assert_eq!(rig.acknowledge(1).is_some(), comes, "{group1} {register:?}");
        rig.end(1);
    }
}

#[test]
fn an_sgi_to_oneself_needs_no_kick() {
    let mut rig = with_33::<V3>(2, 0);
    rig.redist_write(0, 0, 0x1_0100, 4, 1);
    let notify = rig.sgis.post(0, decode_sgi_register(SgiRegister::Sgi0, 1, 0, VcpuMask::first(2)));
    assert_eq!(notify, VcpuMask::only(0));
    assert!(rig.on(0, |gic, sgis, hw| gic.drain(0, sgis, hw)).is_empty());
    assert_eq!(rig.cores[0].highest().unwrap().1.intid.0, 0);
    assert_eq!(rig.cores[0].writes, 1, "one list register write");
}

#[test]
fn sgi_words_keep_senders_apart() {
    let sgis = SgiBoard::<V2>::new();
    for sender in (0..8).rev() {
        let targets = VcpuMask::only(5);
        let sgi = Sgi { intid: IntId(2 * sender as u32), group1: false, targets };
        assert_eq!(sgis.post(sender, sgi).is_empty(), sender < 7, "one kick is enough");
    }
    assert!(!sgis.is_empty(5) && sgis.is_empty(4));
    let bits = sgis.take(5);
    assert_eq!(<V2 as GicArchitecture>::SgiWords::intids(&bits, 0), 0x5555);
    for sender in 0..8 {
        assert_eq!(
            <V2 as GicArchitecture>::SgiWords::senders(&bits, IntId(2 * sender)),
            1 << sender
        );
    }
    assert_eq!(sgis.take(5), [0, 0]);
    assert!(sgis.is_empty(5));
}

/// A receiver that takes its SGIs when it is notified gets the SGIs of all senders.
#[test]
fn sgis_of_concurrent_senders_are_complete() {
    const ROUNDS: usize = 2_000;
    let begun = Instant::now();
    let wait = || {
        assert!(begun.elapsed() < Duration::from_secs(60), "an SGI waits for its notification");
        std::thread::yield_now();
    };
    let sgis = SgiBoard::<V2>::new();
    let (notified, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let post = |sender: usize| {
        for round in 1..=ROUNDS {
            let sgi = Sgi { intid: IntId(9), group1: false, targets: VcpuMask::only(3) };
            notified.fetch_add(sgis.post(sender, sgi).iter().count(), Ordering::SeqCst);
            // The next SGI is sent after the receiver has taken this one.
            while taken.load(Ordering::SeqCst) >> (16 * (sender / 4)) & 0xffff < round {
                wait();
            }
        }
    };
    std::thread::scope(|scope| {
        for sender in [0, 4] {
            let post = &post;
            scope.spawn(move || post(sender));
        }
        let mut answered = 0;
        while taken.load(Ordering::SeqCst) != ROUNDS << 16 | ROUNDS {
            if notified.load(Ordering::SeqCst) == answered {
                wait();
                continue;
            }
            answered += 1;
            let senders = <V2 as GicArchitecture>::SgiWords::senders(&sgis.take(3), IntId(9));
            let each = usize::from(senders & 1) | usize::from(senders >> 4 & 1) << 16;
            taken.fetch_add(each, Ordering::SeqCst);
        }
    });
}

/// A linked PPI: enables go to its own core only, one list register write delivers it, and its end
/// is signaled back.
#[test]
fn timer_interrupt() {
    let mut rig = with_33::<V3>(2, 0);
    rig.board.here = Some(1);
    rig.redist_write(0, 1, 0x1_0100, 4, 1 << 27);
    assert!(rig.board.line(1, 27).enabled && !rig.board.line(0, 27).enabled);
    rig.board.line(1, 27).high = true;
    rig.cores[1].writes = 0;
    rig.run();
    assert_eq!(rig.cores[1].writes, 1, "one list register write");
    assert_eq!(rig.acknowledge(1).unwrap().backing, Backing::Hardware { pintid: IntId(27) });
    assert_eq!(rig.redist_read(0, 1, 0x1_0300, 4), 1 << 27);
    rig.board.line(1, 27).high = false;
    rig.end(1);
    assert!(!rig.board.line(1, 27).active);
    assert_eq!(rig.redist_read(0, 1, 0x1_0300, 4), 0);
}

/// A line that is still high at the interrupt's end comes again; a line that is low does not.
#[test]
fn level_line_is_raised_again() {
    let mut rig = with_33::<V3>(1, 0);
    rig.set_level(33, true);
    assert!(rig.acknowledge(0).is_some());
    rig.end(0);
    assert!(rig.acknowledge(0).is_some());
    rig.set_level(33, false);
    rig.end(0);
    assert!(rig.acknowledge(0).is_none());
}

/// ICPENDR and ICACTIVER of an interrupt in another core's list register wait for its refresh.
#[test]
fn intentions_for_another_core() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0xc08, 4, 2 << 2);
    rig.pulse(33);
    rig.prompt = false;
    let at = |vcpu, offset| GicAccess { vcpu, redistributor: None, offset, size: 4 };
    assert_eq!(rig.gic.remote(&at(1, 0x204), false), VcpuMask::only(0));
    assert!(rig.gic.remote(&at(1, 0x204), true).is_empty());
    assert!(rig.gic.remote(&at(1, 0x284), true).is_empty());
    assert!(rig.gic.remote(&at(1, 0x208), false).is_empty());
    assert!(rig.gic.remote(&at(0, 0x204), false).is_empty());
    rig.write(1, 0x284, 4, 2);
    assert_eq!(rig.read(1, 0x204, 4), 0, "reads know of the intention");
    assert!(rig.cores[0].highest().is_some());
    assert_eq!(rig.kicks, VcpuMask::only(0));
    rig.settle();
    assert!(rig.cores[0].highest().is_none());

    rig.pulse(33);
    rig.settle();
    rig.acknowledge(0);
    assert_eq!(rig.gic.remote(&at(1, 0x384), true), VcpuMask::only(0));
    assert_eq!(rig.read(1, 0x304, 4), 2);
    rig.write(1, 0x384, 4, 2);
    assert_eq!(rig.read(1, 0x304, 4), 0);
    rig.settle();
    assert!(rig.cores[0].entries().all(|e| e.state.is_invalid()));
    rig.write(1, 0x304, 4, 2);
    assert_eq!(rig.read(1, 0x304, 4), 2);
    rig.settle();
    assert!(rig.cores[0].entries().any(|e| e.state.active && e.intid.0 == 33));
}

/// Setting an edge pending costs one list register write if nothing prevents the interrupt.
#[test]
fn set_pending_at_oneself() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0xc08, 4, 2 << 2);
    for _ in 0..3 {
        rig.cores[0].writes = 0;
        rig.write(0, 0x204, 4, 2);
        assert_eq!(rig.cores[0].writes, 1);
        rig.write(0, 0x204, 4, 2);
        assert_eq!(rig.acknowledge(0).unwrap().intid.0, 33);
        rig.end(0);
        assert!(rig.acknowledge(0).is_none());
    }
}

/// An edge that comes after its line was routed to another vCPU waits for the interrupt's end on
/// the old vCPU, then goes to the new one.
#[test]
fn moved_while_active() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0xc08, 4, 2 << 2);
    rig.pulse(33);
    rig.acknowledge(0);
    rig.write(0, 0x6000 + 8 * 33, 8, 1);
    let kick = rig.gic.set_level(IntId(33), true);
    assert_eq!(kick, VcpuMask::only(1));
    rig.kick(kick);
    assert!(rig.cores[1].highest().is_none());
    rig.end(0);
    assert_eq!(rig.acknowledge(1).unwrap().intid.0, 33);
}

/// More interrupts wait than there are list registers: the most urgent ones get them, and NPIE asks
/// for the rest.
#[test]
fn more_interrupts_than_list_registers() {
    let mut rig = with_33::<V3>(1, 0);
    rig.write(0, 0x104, 4, !0);
    rig.write(0, 0xc08, 4, !0);
    for (i, intid) in (32..40u32).enumerate() {
        rig.write(0, 0x400 + u64::from(intid), 1, 0xf8 - 8 * i as u64);
        rig.pulse(intid);
    }
    let mut held: Vec<u32> = rig.cores[0].entries().map(|e| e.intid.0).collect();
    held.sort_unstable();
    assert_eq!(held, [36, 37, 38, 39]);
    assert_eq!(rig.cores[0].maintenance, Maintenance::NO_PENDING);
    for intid in (32..40u32).rev() {
        assert_eq!(rig.acknowledge(0).unwrap().intid.0, intid);
        rig.end(0);
    }
    assert_eq!(rig.cores[0].maintenance, Maintenance::NONE);
}

/// A linked interrupt does not take the free list register that a more urgent one waits for.
#[test]
fn a_free_list_register_goes_to_the_most_urgent() {
    let mut rig = with_33::<V3>(1, 0);
    rig.write(0, 0x104, 4, !0);
    rig.write(0, 0xc08, 4, !0);
    rig.write(0, 0x428, 1, 0xf8);
    for intid in 32..38u32 {
        rig.pulse(intid);
    }
    assert_eq!(rig.acknowledge(0).unwrap().intid.0, 32);
    rig.end(0);
    rig.board.line(0, 140).latch = true;
    rig.run();
    let mut held: Vec<u32> = rig.cores[0].entries().map(|e| e.intid.0).collect();
    held.sort_unstable();
    assert_eq!(held, [33, 34, 35, 36]);
    assert!(rig.board.line(0, 140).active, "it waits");
}

/// After a restart no state is left, neither in the model nor in the physical distributor.
#[test]
fn reset() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0x104, 4, !0);
    rig.redist_write(0, 0, 0x1_0100, 4, 1 << 27);
    rig.board.line(0, 140).high = true;
    rig.board.line(0, 27).high = true;
    rig.run();
    rig.acknowledge(0);
    rig.leave_all();
    rig.reset(|_| ());
    rig.sgis.clear();
    for pintid in [27, 140] {
        let line = rig.board.line(0, pintid);
        assert!(!line.enabled && !line.active && !line.latch);
    }
    assert!(rig.cores[0].lrs.iter().all(|&raw| raw == 0));
    assert_eq!(rig.read(0, 0x104, 4), 0);
    assert_eq!(rig.read(0, 0, 4), 0x50);
    assert!(!rig.gic.has_pending(0, Signaling::ALL));
    assert!(rig.on(0, |gic, _, hw| gic.restore(0, hw)).is_empty());
    // The links stay.
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x104, 4, 1 << 8);
    assert_eq!(rig.acknowledge(0).unwrap().intid.0, 40);
}

/// Interrupts that come while a vCPU is on no core (taken off, or powered down) wait for its
/// return.
#[test]
fn interrupts_for_a_switched_out_vcpu() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0x104, 4, 1 << 8);
    rig.redist_write(0, 0, 0x1_0100, 4, 1 << 27 | 1);
    assert!(rig.on(0, |gic, _, hw| gic.save(0, hw)).is_empty());
    assert!(!rig.gic.has_pending(0, Signaling::ALL));
    rig.board.line(0, 27).high = true;
    rig.board.line(0, 140).latch = true;
    let notify = rig.sgis.post(1, decode_sgi_register(SgiRegister::Sgi0, 1, 1, VcpuMask::first(2)));
    rig.kick(notify);
    assert!(rig.board.line(0, 140).active);
    assert!(!rig.board.line(0, 27).enabled && !rig.board.line(0, 27).active);
    assert_eq!(rig.cores[0].lrs, [0; 4]);
    assert!(rig.gic.has_pending(0, Signaling::ALL));
    let kick = rig.on(0, |gic, _, hw| gic.restore(0, hw));
    rig.kick(kick);
    for intid in [0, 27] {
        assert_eq!(rig.acknowledge(0).unwrap().intid.0, intid);
        rig.board.line(0, 27).high = false;
        rig.end(0);
    }
    assert_eq!(rig.acknowledge(0).unwrap().intid.0, 40);
    rig.end(0);
    assert!(!rig.board.line(0, 140).active);
}

/// A linked level line is pending while the line is high or its latch in ISPENDR is set; the
/// acknowledge clears the latch, and so does ICPENDR (IHI0069H 4.1.2, IHI0048B 4.3.7 and figure
/// 4-10).
#[test]
fn latch_of_a_linked_level_line() {
    for intid in [27, 40] {
        latch::<V3>(intid);
        latch::<V2>(intid);
    }
}

fn latch<V: GicArchitecture>(intid: u32) {
    const ISENABLER: u64 = 0x100;
    const ICENABLER: u64 = 0x180;
    const ISPENDR: u64 = 0x200;
    const ICPENDR: u64 = 0x280;
    const ISACTIVER: u64 = 0x300;
    const ICACTIVER: u64 = 0x380;
    let mut rig = with_33::<V>(2, 0);
    let pintid = if intid == 27 { 27 } else { 140 };
    let (w, bit) = (intid as usize / 32, 1 << (intid & 31));
    if !V::V3 {
        rig.write(0, 0x828, 1, 1);
    }
    rig.word_write(0, ISENABLER, w, bit);
    let comes = |rig: &mut Rig<V>| rig.acknowledge(0).map(|entry| entry.intid.0) == Some(intid);

    // The latch alone is set and acknowledged; then the line, which sets no latch when it is made
    // active.
    rig.word_write(0, ISPENDR, w, bit);
    assert!(comes(&mut rig));
    assert_eq!(rig.word_read(0, ISPENDR, w), 0);
    rig.board.line(0, pintid).high = true;
    rig.end(0);
    assert_eq!(rig.word_read(0, ISPENDR, w), bit);
    rig.word_write(0, ISACTIVER, w, bit);
    rig.board.line(0, pintid).high = false;
    assert_eq!(rig.word_read(0, ISPENDR, w), 0);
    rig.word_write(0, ICACTIVER, w, bit);
    assert!(!comes(&mut rig));

    // A latch that waits survives disabling, and comes once.
    rig.word_write(0, ISPENDR, w, bit);
    for _ in 0..2 {
        rig.word_write(0, ICENABLER, w, bit);
        assert!(!comes(&mut rig));
        assert_eq!(rig.word_read(0, ISPENDR, w), bit);
        rig.word_write(0, ISENABLER, w, bit);
    }
    assert!(comes(&mut rig));
    rig.end(0);
    assert!(!comes(&mut rig));

    // The latch is set while the line is high: one acknowledge takes both.
    rig.board.line(0, pintid).high = true;
    rig.run();
    rig.word_write(0, ISPENDR, w, bit);
    assert!(comes(&mut rig));
    rig.board.line(0, pintid).high = false;
    assert_eq!(rig.word_read(0, ISPENDR, w), 0);
    rig.end(0);
    // The latch is still set after the line has fallen.
    rig.board.line(0, pintid).high = true;
    rig.run();
    rig.word_write(0, ISPENDR, w, bit);
    rig.word_write(0, ICENABLER, w, bit);
    rig.board.line(0, pintid).high = false;
    assert_eq!(rig.word_read(0, ISPENDR, w), bit);
    rig.word_write(0, ISENABLER, w, bit);
    assert!(comes(&mut rig));
    // The latch is set while the interrupt is active: the interrupt comes again.
    rig.word_write(0, ISPENDR, w, bit);
    rig.end(0);
    assert!(comes(&mut rig));
    rig.end(0);
    assert!(!comes(&mut rig));

    // ICPENDR clears the latch but not the line.
    rig.word_write(0, ISPENDR, w, bit);
    rig.word_write(0, ICPENDR, w, bit);
    assert!(!comes(&mut rig));
    rig.board.line(0, pintid).high = true;
    rig.run();
    rig.word_write(0, ICPENDR, w, bit);
    assert!(comes(&mut rig));
    rig.board.line(0, pintid).high = false;
    rig.end(0);

    // All of these are over: the short path is used again.
    rig.cores[0].writes = 0;
    rig.board.line(0, pintid).high = true;
    rig.run();
    assert_eq!(rig.cores[0].writes, 1, "one list register write");
}

/// An edge that comes again while its interrupt is active waits in the model, because its list
/// register must not give it precedence over a more urgent one that has no list register.
#[test]
fn a_repeated_edge_queues_behind_more_urgent_ones() {
    let mut rig = Rig::<V3>::new(1, 2, &[]);
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x104, 4, 0b111);
    rig.write(0, 0xc08, 4, !0);
    rig.write(0, 0x420, 4, 0x0010_1080);
    rig.pulse(32);
    assert_eq!(rig.acknowledge(0).unwrap().intid.0, 32);
    for intid in [32, 33, 34] {
        rig.pulse(intid);
    }
    // The guest masks interrupts until it has ended the first one.
    rig.end(0);
    for intid in [33, 34, 32] {
        assert_eq!(rig.acknowledge(0).unwrap().intid.0, intid);
        rig.end(0);
    }
    assert!(rig.acknowledge(0).is_none());
}

/// Nested interrupts without a list register end in the order in which they were acknowledged,
/// whatever priority they were given meanwhile (IHI0069H 4.8.5: the running priority is that of the
/// acknowledge).
#[test]
fn nested_interrupts_end_in_their_order() {
    let mut rig = Rig::<V3>::new(1, 1, &[]);
    rig.write(0, 0, 4, 3);
    rig.write(0, 0x104, 4, 0b111);
    rig.write(0, 0xc08, 4, !0);
    rig.write(0, 0x420, 4, 0x0000_4080);
    for intid in [32, 33] {
        rig.pulse(intid);
        assert_eq!(rig.acknowledge(0).unwrap().intid.0, intid);
    }
    rig.write(0, 0x420, 4, 0x0000_c080);
    rig.pulse(34);
    for left in [0b11, 0b01, 0] {
        assert_eq!(rig.read(0, 0x304, 4) & 0b11, left & 0b11);
        rig.end(0);
    }
    assert_eq!(rig.read(0, 0x304, 4), 0);
}

/// A line that moves to another vCPU while it is active comes there after its end, even if the old
/// vCPU reads its list registers for another reason before it is asked.
#[test]
fn an_end_that_was_seen_early_is_not_forgotten() {
    let mut rig = with_33::<V3>(2, 0);
    rig.write(0, 0x104, 4, 1 << 8);
    rig.board.line(0, 140).high = true;
    rig.run();
    assert_eq!(rig.acknowledge(0).unwrap().intid.0, 40);
    for intid in [33, 40] {
        rig.write(0, 0x6000 + 8 * intid, 8, 1);
    }
    rig.prompt = false;
    // With a kick outstanding vCPU 1 takes the careful path, which asks vCPU 0.
    rig.set_level(33, true);
    rig.end(0);
    rig.arrive(1);
    assert_eq!(rig.cores[1].highest().unwrap().1.intid.0, 33);
    assert_eq!(rig.read(0, 0x304, 4), 0);
    rig.settle();
    assert!(rig.cores[1].entries().any(|e| e.intid.0 == 40 && e.state == PENDING));
    for intid in [33, 40] {
        assert_eq!(rig.acknowledge(1).unwrap().intid.0, intid);
        rig.set_level(33, false);
        rig.end(1);
    }
}

/// An emulated PPI: each vCPU has its own line.
fn private_level<V: GicArchitecture>() {
    let mut rig = Rig::<V>::new(2, 4, &[]);
    let intid = 23;
    for vcpu in 0..2 {
        rig.bank_write(vcpu, vcpu, 0x80, 4, 1 << intid);
        rig.bank_write(vcpu, vcpu, 0x100, 4, 1 << intid);
    }
    rig.write(0, 0, 4, 3);
    assert_eq!(rig.gic.set_private_level(0, IntId(15), true), VcpuMask::NONE, "an SGI has no line");
    assert_eq!(
        rig.gic.set_private_level(0, IntId(32), true),
        VcpuMask::NONE,
        "nor is an SPI private"
    );
    let kick = rig.gic.set_private_level(1, IntId(intid), true);
    rig.kick(kick);
    assert!(rig.cores[0].highest().is_none());
    assert_eq!(rig.cores[1].highest().map(|(_, its)| its.intid.0), Some(intid));
    assert_eq!(
        rig.gic.set_private_level(1, IntId(intid), true),
        VcpuMask::NONE,
        "it is high already"
    );
    let kick = rig.gic.set_private_level(1, IntId(intid), false);
    rig.kick(kick);
    assert!(rig.cores[1].highest().is_none());
}

#[test]
fn a_private_line_of_gicv3() {
    private_level::<V3>();
}

#[test]
fn a_private_line_of_gicv2() {
    private_level::<V2>();
}
