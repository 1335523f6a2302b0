//! Exception entry to EL1 (DDI0487, AArch64.TakeException; D1.3.1).

use proptest::prelude::*;
use weir_vdev::id::{GicVersion, IdRegisters};
use weir_vdev::inject::{InjectedException, Interrupted, inject};

const SPAN: u64 = 1 << 23;
const DSSBS: u64 = 1 << 44;

fn processor(pan: u64, ssbs: u64) -> IdRegisters {
    IdRegisters::from_hardware(GicVersion::V3, |r| match (r.crm(), r.op2()) {
        (4, 0) => 0x12,
        (4, 1) => ssbs << 4,
        (7, 1) => pan << 20,
        _ => 0,
    })
}

fn guest(spsr: u64) -> Interrupted {
    Interrupted { spsr, elr: 0x4000_1000, vbar: 0x4008_0800, sctlr: SPAN }
}

#[test]
fn vectors_by_origin() {
    let ids = processor(0, 0);
    for (spsr, offset) in [(0x4, 0x000), (0x5, 0x200), (0x0, 0x400), (0x10, 0x600), (0x30, 0x600)] {
        let taken = inject(InjectedException::Undefined, &guest(spsr), &ids);
        assert_eq!(taken.pc, 0x4008_0800 + offset, "from {spsr:#x}");
        assert_eq!(taken.pstate, 0x3c5);
        assert_eq!((taken.esr, taken.elr, taken.spsr), (1 << 25, 0x4000_1000, spsr));
        assert_eq!(taken.far, None);
    }
}

#[test]
fn external_aborts() {
    let ids = processor(0, 0);
    let data = |write, walk| InjectedException::DataAbort { far: 0x1234, write, walk };
    let at = |kind, spsr| inject(kind, &guest(spsr), &ids);
    assert_eq!(at(data(false, None), 0x5).esr, 0x25 << 26 | 1 << 25 | 0x10);
    assert_eq!(at(data(true, None), 0x0).esr, 0x24 << 26 | 1 << 25 | 1 << 6 | 0x10);
    assert_eq!(at(data(false, Some(2)), 0x10).esr, 0x24 << 26 | 1 << 25 | 0x16);
    let fetch = InjectedException::InstructionAbort { far: 0x5678, walk: None };
    assert_eq!(at(fetch, 0x4).esr, 0x21 << 26 | 1 << 25 | 0x10);
    assert_eq!(at(fetch, 0x0).esr, 0x20 << 26 | 1 << 25 | 0x10);
    assert_eq!(at(fetch, 0x0).far, Some(0x5678));
}

#[test]
fn pan_and_ssbs_follow_sctlr() {
    let pan = |ids: &IdRegisters, sctlr, spsr| {
        inject(InjectedException::Undefined, &Interrupted { sctlr, ..guest(spsr) }, ids).pstate
            >> 22
            & 1
    };
    assert_eq!(pan(&processor(1, 0), 0, 5), 1);
    assert_eq!(pan(&processor(1, 0), SPAN, 5), 0);
    assert_eq!(pan(&processor(1, 0), SPAN, 1 << 22 | 5), 1);
    assert_eq!(pan(&processor(0, 0), 0, 5), 0);
    let ssbs = |ids: &IdRegisters, sctlr, spsr| {
        inject(InjectedException::Undefined, &Interrupted { sctlr, ..guest(spsr) }, ids).pstate
            >> 12
            & 1
    };
    assert_eq!(ssbs(&processor(0, 2), DSSBS | SPAN, 5), 1);
    assert_eq!(ssbs(&processor(0, 2), SPAN, 1 << 12 | 5), 0);
    assert_eq!(ssbs(&processor(0, 0), DSSBS | SPAN, 5), 0);
}

proptest! {
    #[test]
    fn the_handler_runs_masked_at_el1(
        spsr: u64, elr: u64, vbar: u64, sctlr: u64, far: u64, level: u8,
    ) {
        let guest = Interrupted { spsr, elr, vbar, sctlr };
        for kind in [
            InjectedException::Undefined,
            InjectedException::DataAbort { far, write: true, walk: Some(level) },
            InjectedException::InstructionAbort { far, walk: None },
        ] {
            let taken = inject(kind, &guest, &processor(3, 2));
            prop_assert_eq!(taken.pstate & 0x3df, 0x3c5);
            // IL, SS, UAO, BTYPE and what AArch32 has there are clear; condition flags and DIT
            // stay.
            prop_assert_eq!(taken.pstate & (1 << 20 | 1 << 21 | 1 << 23 | 3 << 10), 0);
            prop_assert_eq!(taken.pstate & (0xf << 28 | 1 << 24), spsr & (0xf << 28 | 1 << 24));
            prop_assert_eq!(taken.pstate & 0x0e0f_0000, 0);
            prop_assert_eq!(taken.pstate >> 32, 0);
            prop_assert!(taken.pc & 0x7ff <= 0x600 && taken.pc.is_multiple_of(0x200));
            prop_assert_eq!(taken.pc & !0x7ff, vbar & !0x7ff);
            prop_assert_eq!((taken.elr, taken.spsr), (elr, spsr));
            prop_assert_eq!(taken.esr >> 32, 0);
        }
    }
}

#[test]
fn an_abort_at_its_own_vector_is_endless() {
    let ids = IdRegisters::from_hardware(GicVersion::V3, |_| 0);
    let guest = Interrupted { spsr: 0x3c5, elr: 0x0bad_0200, vbar: 0x0bad_0000, sctlr: 0 };
    let kind = InjectedException::InstructionAbort { far: 0x0bad_0200, walk: None };
    assert!(inject(kind, &guest, &ids).is_endless());
    let first = Interrupted { elr: 0x4000_0000, ..guest };
    assert!(!inject(kind, &first, &ids).is_endless());
}
