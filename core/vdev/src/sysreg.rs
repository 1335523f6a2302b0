//! The policy for system register accesses that the hypervisor traps.
//!
//! The traps that this policy expects: `HCR_EL2.{TID3, TACR, TIDCP, TSW, TSC, TLOR, TERR, IMO,
//! FMO}` set, `TWE, TVM, TRVM` clear; `MDCR_EL2.{TPM, TPMCR, TDA, TDOSA, TDRA}` set;
//! `CPTR_EL2.{TTA, TAM}` set; `HSTR_EL2` zero; `CNTHCTL_EL2` gives EL1 and EL0 access to both
//! timers. `PMUSERENR_EL0` is zero in the hardware while a VM without a PMU runs.
//! [`crate::debug::Debug`] handles a VM's breakpoints, watchpoints and `MDSCR_EL1`; the caller asks
//! it first.
//!
//! | group | a guest gets | counted |
//! | --- | --- | --- |
//! | feature ID registers | the VM's values ([`crate::id`]) | no |
//! | `ICC_SGI1R_EL1` and its two siblings | the SGI is sent | no |
//! | `ICC_DIR_EL1` | the interrupt is deactivated, on any core | no |
//! | PMU, activity monitors | UNDEFINED: the ID registers say that there is none | always |
//! | debug, no more than every OS does when it starts | see below | no |
//! | debug communications channel, external debug | reads zero, write ignored | yes |
//! | debug, registers that are not there | UNDEFINED | yes |
//! | trace, profiling, branch records | UNDEFINED: the ID registers say that there is none | always |
//! | `ACTLR_EL1` | reads zero, write ignored | nonzero writes |
//! | implementation defined (CRn 11 and 15) | UNDEFINED, as on another implementation | always |
//! | set/way cache maintenance | no effect | always |
//! | anything else | UNDEFINED | always |
//!
//! **Debug.** The debug architecture is not optional, so ID_AA64DFR0_EL1 must offer it.
//! Breakpoints, watchpoints and single step work ([`crate::debug`]). The OS lock is open and stays
//! open; there is no external debugger. A write to the debug communications channel or to a
//! register of an external debugger has no effect and is counted.
//!
//! **Set/way.** These instructions act on one core's caches by position. They have no reliable
//! meaning for a VM: lines move between caches by themselves, and lines of other VMs lie at the
//! same positions, so carrying the instructions out would let one VM flush another's working set.
//! Therefore they have no effect. That is sound for a VM that reads its memory in the same way as
//! it wrote it: stage 2 is Normal write-back, the cores are coherent, and no device without an SMMU
//! bypasses the caches. On a machine with caches it is not sufficient for software that writes with
//! its caches on, turns them off and then reads, as U-Boot does before it starts an OS. There the
//! caller answers the first [`SysRegOutcome::SetWay`] of a sequence with a clean and invalidate of
//! the VM's memory by address, or sets `HCR_EL2.FWB` if the processor has FEAT_S2FWB.
//!
//! Source: Arm ARM (DDI0487), D18.3 for the encodings, D24.2 HCR_EL2, MDCR_EL2, CPTR_EL2 for what
//! is trapped, D2 for self-hosted debug; D7.5.9 for set/way.

use crate::esr::{CoprocessorAccess, SysRegAccess};
use crate::gic::SgiRegister;
use crate::id::{GicVersion, IdRegisters};

/// The kind of register or instruction that a guest was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Denied {
    /// Performance or activity monitors.
    Pmu,
    /// Self-hosted or external debug.
    Debug,
    /// Trace, statistical profiling, branch records.
    Trace,
    /// A register that only this processor model has.
    ImplementationDefined,
    /// Cache maintenance by set and way.
    SetWay,
    /// Any other register.
    Other,
}

/// The action that the hypervisor must take. Except after [`SysRegOutcome::Undefined`], the guest
/// continues behind the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysRegOutcome {
    /// The destination register gets this value.
    Read(u64),
    /// The write has no effect.
    WriteIgnored,
    /// Send the interrupt that `value` describes.
    SendSgi {
        /// The register written.
        register: SgiRegister,
        /// The value written.
        value: u64,
    },
    /// Deactivate the interrupt that this value of `ICC_DIR_EL1` names.
    Deactivate(u32),
    /// Set/way cache maintenance: no effect, but counted.
    SetWay,
    /// A read returns zero, and a write has no effect; counted.
    Masked(Denied),
    /// Inject UNDEFINED ([`crate::inject`]); counted.
    Undefined(Denied),
}

impl SysRegOutcome {
    /// Returns the kind of denial to count, if any.
    #[must_use]
    pub const fn denied(self) -> Option<Denied> {
        match self {
            Self::Read(_) | Self::WriteIgnored | Self::SendSgi { .. } | Self::Deactivate(_) => None,
            Self::SetWay => Some(Denied::SetWay),
            Self::Masked(denied) | Self::Undefined(denied) => Some(denied),
        }
    }
}

/// Decides a trapped access. `value` is the value that a write would store.
#[must_use]
pub fn access(access: SysRegAccess, value: u64, ids: &IdRegisters) -> SysRegOutcome {
    let (crn, crm) = (access.crn(), access.crm());
    match access.op0() {
        1 if crn == 7 && access.op1() == 0 && access.op2() == 2 && matches!(crm, 6 | 10 | 14) => {
            SysRegOutcome::SetWay
        }
        1 | 3 if crn == 11 || crn == 15 => SysRegOutcome::Undefined(Denied::ImplementationDefined),
        2 => debug(access, value),
        3 => register(access, value, ids),
        _ => SysRegOutcome::Undefined(Denied::Other),
    }
}

/// Decides an access with op0 = 3, except to implementation defined registers.
fn register(access: SysRegAccess, value: u64, ids: &IdRegisters) -> SysRegOutcome {
    let op2 = access.op2();
    let write = access.is_write();
    match (access.op1(), access.crn(), access.crm()) {
        (0, 0, crm @ 1..=7) if !write => SysRegOutcome::Read(ids.get(crm, op2)),
        // REVIDR_EL1, SMIDR_EL1 and AIDR_EL1, if TID1 is set.
        (0, 0, 0) if op2 == 6 && !write => SysRegOutcome::Read(0),
        (1, 0, 0) if op2 >= 6 && !write => SysRegOutcome::Read(0),
        // ACTLR_EL1.
        (0, 1, 0) if op2 == 1 => stored(write, value != 0, Denied::ImplementationDefined),
        // TRFCR_EL1.
        (0, 1, 2) if op2 == 1 => SysRegOutcome::Undefined(Denied::Trace),
        // Statistical profiling (CRm 9, 10) and trace buffer (11).
        (0, 9, 9..=11) => SysRegOutcome::Undefined(Denied::Trace),
        // PMINTENSET_EL1 and so on; PMCR_EL0 and so on; PMEVCNTR<n>_EL0, PMEVTYPER<n>_EL0,
        // PMCCFILTR_EL0; PMEVCNTSVR<n>_EL1; activity monitors.
        (0 | 3, 9, 12..=14) | (0 | 3, 14, 8..=15) | (3, 13, 2..=15) => {
            SysRegOutcome::Undefined(Denied::Pmu)
        }
        (0, 12, 11) if op2 >= 5 && write => {
            let register = match op2 {
                5 => SgiRegister::Sgi1,
                6 => SgiRegister::Asgi1,
                _ => SgiRegister::Sgi0,
            };
            SysRegOutcome::SendSgi { register, value }
        }
        // ICC_DIR_EL1, if ICH_HCR_EL2.TDIR is set.
        (0, 12, 11) if op2 == 1 && write && ids.gic() == GicVersion::V3 => {
            SysRegOutcome::Deactivate(value as u32)
        }
        // ICC_SRE_EL1, if ICC_SRE_EL2.Enable is clear: system registers only, no bypass.
        (0, 12, 12) if op2 == 5 && ids.gic() == GicVersion::V3 => {
            if write {
                SysRegOutcome::WriteIgnored
            } else {
                SysRegOutcome::Read(7)
            }
        }
        _ => SysRegOutcome::Undefined(Denied::Other),
    }
}

/// Decides an access to a register that reads as zero; a write that requests more than zero allows
/// (`too_much`) is counted.
fn stored(write: bool, too_much: bool, denied: Denied) -> SysRegOutcome {
    match (write, too_much) {
        (false, _) => SysRegOutcome::Read(0),
        (true, false) => SysRegOutcome::WriteIgnored,
        (true, true) => SysRegOutcome::Masked(denied),
    }
}

/// Decides an access with op0 = 2: debug and trace registers.
fn debug(access: SysRegAccess, value: u64) -> SysRegOutcome {
    /// `OSLSR_EL1`: the OS lock is implemented (OSLM = 0b10) and open.
    const OS_LOCK_OPEN: u64 = 1 << 3;

    let write = access.is_write();
    let op2 = access.op2();
    let crm = access.crm();
    let arming = |too_much: bool| stored(write, too_much, Denied::Debug);
    match (access.op1(), access.crn(), crm, op2) {
        // MDCCINT_EL1, OSECCR_EL1, DBGPRCR_EL1; DBGCLAIMSET_EL1 and DBGCLAIMCLR_EL1, which have no
        // bits here.
        (0, 0, 2, 0) | (0, 0, 6, 2) | (0, 1, 4, 4) | (0, 7, 8 | 9, 6) => arming(value != 0),
        // OSDTRRX_EL1, OSDTRTX_EL1; DBGDTR_EL0, DBGDTRRX_EL0 and DBGDTRTX_EL0: words to and from a
        // debugger.
        (0, 0, 0 | 3, 2) | (3, 0, 4 | 5, 0) => arming(true),
        // MDRAR_EL1, DBGAUTHSTATUS_EL1, MDCCSR_EL0.
        (0, 1, 0, 0) | (0, 7, 14, 6) | (3, 0, 1, 0) if !write => SysRegOutcome::Read(0),
        (0, 1, 0, 4) if write => SysRegOutcome::WriteIgnored,
        (0, 1, 1, 4) if !write => SysRegOutcome::Read(OS_LOCK_OPEN),
        // OSDLR_EL1.
        (0, 1, 3, 4) => arming(false),
        // The trace unit, and branch records.
        (1, ..) => SysRegOutcome::Undefined(Denied::Trace),
        _ => SysRegOutcome::Undefined(Denied::Debug),
    }
}

/// Returns the kind of denial for a trapped coprocessor access of AArch32 code at EL0. No access is
/// granted: inject UNDEFINED if the instruction's condition passed
/// ([`crate::esr::Syndrome::condition_passed`]), otherwise skip the instruction.
#[must_use]
pub fn coprocessor(access: CoprocessorAccess) -> Denied {
    match (access.coprocessor(), access.is_double()) {
        // PMCR to PMOVSSET have c9 and c12 to c14; PMEVCNTR<n> to PMCCFILTR have c14 and c8 to c15;
        // the 64-bit PMCCNTR has c9.
        (15, false) => match (access.crn(), access.crm()) {
            (9, 12..=14) | (14, 8..=15) => Denied::Pmu,
            (9 | 10 | 11 | 15, _) => Denied::ImplementationDefined,
            _ => Denied::Other,
        },
        (15, true) if access.crm() == 9 => Denied::Pmu,
        // The 64-bit counters of the activity monitors have opc1 0 to 3 and c0 to c5.
        (15, true) if matches!(access.crm(), 0..=5) => Denied::Pmu,
        (14, _) => match access.opc1() {
            0 => Denied::Debug,
            1 => Denied::Trace,
            _ => Denied::Other,
        },
        _ => Denied::Other,
    }
}
