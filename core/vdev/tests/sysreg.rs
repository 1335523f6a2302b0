//! The policy for trapped system registers.

use proptest::prelude::*;
use weir_vdev::debug::{Debug, DebugAccess::Written};
use weir_vdev::esr::{Exception, Syndrome, SysRegAccess};
use weir_vdev::gic::SgiRegister;
use weir_vdev::id::{GicVersion, IdRegisters};
use weir_vdev::sysreg::{Denied, SysRegOutcome, access, coprocessor};

fn ids() -> IdRegisters {
    IdRegisters::from_hardware(GicVersion::V3, |_| 0x2222_2222_2222_2222)
}

fn read(register: [u8; 5]) -> SysRegOutcome {
    access(SysRegAccess::new(register, 7, false), 0xdead, &ids())
}

fn write(register: [u8; 5], value: u64) -> SysRegOutcome {
    access(SysRegAccess::new(register, 7, true), value, &ids())
}

#[test]
fn what_linux_does_to_debug_when_it_starts() {
    // Unlock: OSDLR_EL1 and OSLAR_EL1.
    assert_eq!(write([2, 0, 1, 3, 4], 0), SysRegOutcome::WriteIgnored);
    assert_eq!(write([2, 0, 1, 0, 4], 0), SysRegOutcome::WriteIgnored);
    assert_eq!(read([2, 0, 1, 1, 4]), SysRegOutcome::Read(8));
    // As many breakpoints and watchpoints as ID_AA64DFR0_EL1 offers are there.
    let mut debug = Debug::RESET;
    let (breakpoints, watchpoints) = ids().comparators();
    let mut write = |crm, op2, value| {
        let access = SysRegAccess::new([2, 0, 0, crm, op2], 7, true);
        debug.access(access, value, ids().comparators())
    };
    for n in 0..breakpoints {
        assert_eq!((write(n, 4, 0), write(n, 5, 0)), (Some(Written), Some(Written)));
    }
    for n in 0..watchpoints {
        assert_eq!((write(n, 6, 0), write(n, 7, 0)), (Some(Written), Some(Written)));
    }
    assert_eq!((write(breakpoints, 5, 0), write(watchpoints, 7, 0)), (None, None));
}

#[test]
fn an_external_debugger_is_counted_without_effect() {
    let masked = SysRegOutcome::Masked(Denied::Debug);
    assert_eq!(write([2, 3, 0, 4, 0], 0), masked);
    assert_eq!(write([2, 3, 0, 5, 0], 0), masked);
    assert_eq!(write([2, 0, 0, 2, 0], 1 << 30), masked);
    assert_eq!(write([2, 0, 1, 4, 4], 1), masked);
    // `Debug` has answered for those that ID_AA64DFR0_EL1 offers.
    for op2 in 4..8 {
        assert_eq!(read([2, 0, 0, 2, op2]), SysRegOutcome::Undefined(Denied::Debug));
    }
    assert_eq!(write([2, 0, 0, 15, 5], 0), SysRegOutcome::Undefined(Denied::Debug));
    // Read-only and write-only registers.
    assert_eq!(write([2, 0, 1, 1, 4], 0), SysRegOutcome::Undefined(Denied::Debug));
    assert_eq!(read([2, 0, 1, 0, 4]), SysRegOutcome::Undefined(Denied::Debug));
}

#[test]
fn counters_and_trace_are_not_there() {
    for pmu in [
        [3, 3, 9, 12, 0],  // PMCR_EL0
        [3, 3, 9, 13, 0],  // PMCCNTR_EL0
        [3, 3, 9, 14, 0],  // PMUSERENR_EL0
        [3, 0, 9, 14, 1],  // PMINTENSET_EL1
        [3, 3, 14, 8, 0],  // PMEVCNTR0_EL0
        [3, 3, 14, 12, 5], // PMEVTYPER5_EL0
        [3, 3, 14, 15, 7], // PMCCFILTR_EL0
        [3, 3, 13, 2, 0],  // AMCR_EL0
    ] {
        assert_eq!(read(pmu), SysRegOutcome::Undefined(Denied::Pmu), "{pmu:?}");
        assert_eq!(write(pmu, 1), SysRegOutcome::Undefined(Denied::Pmu), "{pmu:?}");
    }
    for trace in [
        [2, 1, 0, 1, 0],  // TRCPRGCTLR
        [2, 1, 9, 0, 0],  // BRBCR_EL1
        [3, 0, 9, 9, 0],  // PMSCR_EL1
        [3, 0, 9, 10, 0], // PMBLIMITR_EL1
        [3, 0, 9, 11, 0], // TRBLIMITR_EL1
        [3, 0, 1, 2, 1],  // TRFCR_EL1
    ] {
        assert_eq!(read(trace), SysRegOutcome::Undefined(Denied::Trace), "{trace:?}");
    }
}

#[test]
fn implementation_defined() {
    for register in [
        [3, 1, 15, 2, 0], // CPUACTLR_EL1
        [3, 1, 15, 2, 1], // CPUECTLR_EL1
        [3, 1, 11, 0, 2], // L2CTLR_EL1
        [3, 0, 15, 0, 0],
        [1, 0, 15, 0, 0],
        [1, 6, 11, 0, 0],
    ] {
        let denied = SysRegOutcome::Undefined(Denied::ImplementationDefined);
        assert_eq!(read(register), denied);
        assert_eq!(write(register, 0), denied);
    }
    // ACTLR_EL1.
    assert_eq!(read([3, 0, 1, 0, 1]), SysRegOutcome::Read(0));
    assert_eq!(write([3, 0, 1, 0, 1], 0), SysRegOutcome::WriteIgnored);
    assert_eq!(write([3, 0, 1, 0, 1], 2), SysRegOutcome::Masked(Denied::ImplementationDefined));
}

#[test]
fn set_way() {
    // DC ISW, CSW, CISW.
    for crm in [6, 10, 14] {
        assert_eq!(write([1, 0, 7, crm, 2], 0), SysRegOutcome::SetWay);
        assert_eq!(write([1, 0, 7, crm, 2], 0).denied(), Some(Denied::SetWay));
    }
    assert_eq!(write([1, 0, 7, 6, 4], 0), SysRegOutcome::Undefined(Denied::Other));
}

#[test]
fn interrupts_between_vcpus() {
    let sent = |op2, register| {
        assert_eq!(write([3, 0, 12, 11, op2], 5), SysRegOutcome::SendSgi { register, value: 5 });
        assert_eq!(read([3, 0, 12, 11, op2]), SysRegOutcome::Undefined(Denied::Other));
    };
    sent(5, SgiRegister::Sgi1);
    sent(6, SgiRegister::Asgi1);
    sent(7, SgiRegister::Sgi0);
}

#[test]
fn id_registers_are_the_vms() {
    let ids = ids();
    for crm in 1..=7 {
        for op2 in 0..8 {
            assert_eq!(read([3, 0, 0, crm, op2]), SysRegOutcome::Read(ids.get(crm, op2)));
            assert_eq!(write([3, 0, 0, crm, op2], 0), SysRegOutcome::Undefined(Denied::Other));
        }
    }
    // REVIDR_EL1, AIDR_EL1.
    assert_eq!(read([3, 0, 0, 0, 6]), SysRegOutcome::Read(0));
    assert_eq!(read([3, 1, 0, 0, 7]), SysRegOutcome::Read(0));
}

#[test]
fn system_register_interface_of_the_gic() {
    // ICC_SRE_EL1 of a GICv3 is fixed to system registers; a GICv2 has none.
    let sre = SysRegAccess::new([3, 0, 12, 12, 5], 0, false);
    assert_eq!(access(sre, 0, &ids()), SysRegOutcome::Read(7));
    // ICC_DIR_EL1 can only be written.
    let dir = |write| SysRegAccess::new([3, 0, 12, 11, 1], 0, write);
    assert_eq!(access(dir(true), 1 << 32 | 0x28, &ids()), SysRegOutcome::Deactivate(40));
    assert_eq!(access(dir(false), 0, &ids()), SysRegOutcome::Undefined(Denied::Other));
    let v2 = IdRegisters::from_hardware(GicVersion::V2, |_| 0);
    assert_eq!(access(dir(true), 40, &v2), SysRegOutcome::Undefined(Denied::Other));
    assert_eq!(access(sre, 0, &v2), SysRegOutcome::Undefined(Denied::Other));
}

#[test]
fn aarch32() {
    let denied = |class: u64, iss: u64| match Syndrome(class << 26 | iss).decode() {
        Exception::Coprocessor(access) => coprocessor(access),
        other => panic!("{other:?}"),
    };
    let mrc = |opc1: u64, crn: u64, crm: u64| opc1 << 14 | crn << 10 | crm << 1 | 1;
    assert_eq!(denied(0x03, mrc(0, 9, 13)), Denied::Pmu);
    assert_eq!(denied(0x03, mrc(0, 14, 8)), Denied::Pmu);
    assert_eq!(denied(0x03, mrc(0, 15, 0)), Denied::ImplementationDefined);
    assert_eq!(denied(0x03, mrc(0, 9, 0)), Denied::ImplementationDefined);
    assert_eq!(denied(0x03, mrc(0, 13, 0)), Denied::Other);
    assert_eq!(denied(0x04, mrc(0, 0, 9)), Denied::Pmu);
    assert_eq!(denied(0x05, mrc(0, 0, 1)), Denied::Debug);
    assert_eq!(denied(0x05, mrc(1, 0, 1)), Denied::Trace);
    assert_eq!(denied(0x06, 0), Denied::Debug);
    assert_eq!(denied(0x08, 0), Denied::Other);
}

proptest! {
    /// Whatever a guest executes: no panic; nothing of the hardware's comes through but what the ID
    /// registers show, and the other constants are those above.
    #[test]
    fn reads_reveal_nothing(iss in 0u32..1 << 25, value: u64) {
        let ids = ids();
        let trapped = SysRegAccess(iss);
        let outcome = access(trapped, value, &ids);
        match outcome {
            SysRegOutcome::Read(got) => {
                prop_assert!(!trapped.is_write());
                let feature = trapped.op0() == 3
                    && (trapped.op1(), trapped.crn()) == (0, 0)
                    && (1..=7).contains(&trapped.crm());
                prop_assert!(feature || got == 0 || got == 8 || got == 7);
                prop_assert!(!feature || got == ids.get(trapped.crm(), trapped.op2()));
            }
            SysRegOutcome::SendSgi { value: sent, .. } => {
                prop_assert!(trapped.is_write());
                prop_assert_eq!(sent, value);
            }
            SysRegOutcome::Deactivate(named) => {
                prop_assert!(trapped.is_write());
                prop_assert_eq!(named, value as u32);
            }
            SysRegOutcome::WriteIgnored => prop_assert!(trapped.is_write()),
            SysRegOutcome::SetWay | SysRegOutcome::Masked(_) | SysRegOutcome::Undefined(_) => {
                prop_assert!(outcome.denied().is_some());
            }
        }
        // The general register has no say.
        prop_assert_eq!(access(SysRegAccess(iss ^ 0x1f << 5), value, &ids), outcome);
    }
}
