//! Exceptions that EL2 makes the guest's EL1 take, as if the processor itself had taken them to
//! EL1.
//!
//! Source: Arm ARM (DDI0487), AArch64.TakeException (J1.1), D1.3.1 "Exception entry" with the
//! vector offsets, D24.2 ESR_EL1. A VM's EL1 is always AArch64, its EL0 may be AArch32.

use crate::id::IdRegisters;

/// The exception that the guest's EL1 takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedException {
    /// The instruction is UNDEFINED (exception class 0).
    Undefined,
    /// The data access ended in a synchronous external abort.
    DataAbort {
        /// Virtual address, `FAR_EL2`.
        far: u64,
        /// Whether the access was a store; otherwise it was a load.
        write: bool,
        /// The level (0 to 3) at which the guest's own table walk failed, if it did.
        walk: Option<u8>,
    },
    /// The instruction fetch ended in a synchronous external abort.
    InstructionAbort {
        /// Virtual address, `FAR_EL2`.
        far: u64,
        /// The level (0 to 3) at which the guest's own table walk failed, if it did.
        walk: Option<u8>,
    },
}

/// The state of the guest at the exception that EL2 has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// `SPSR_EL2`.
    pub spsr: u64,
    /// `ELR_EL2`, the address of the instruction at fault.
    pub elr: u64,
    /// `VBAR_EL1`.
    pub vbar: u64,
    /// `SCTLR_EL1`.
    pub sctlr: u64,
}

/// The values to write before returning to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The vector, for `ELR_EL2`.
    pub pc: u64,
    /// The processor state at the vector, for `SPSR_EL2`.
    pub pstate: u64,
    /// The value for `ESR_EL1`.
    pub esr: u64,
    /// The value for `ELR_EL1`.
    pub elr: u64,
    /// The value for `SPSR_EL1`.
    pub spsr: u64,
    /// The value for `FAR_EL1`, if the exception has an address.
    pub far: Option<u64>,
}

const SPSR_AARCH32: u64 = 1 << 4;
/// N, Z, C and V, DIT and PAN: entry to EL1 does not change them, and they have the same positions
/// in an AArch32 SPSR.
const SPSR_KEPT: u64 = 0xf << 28 | 1 << 24 | SPSR_PAN;
const SPSR_PAN: u64 = 1 << 22;
const SPSR_SSBS: u64 = 1 << 12;
/// D, A, I and F masked, EL1 with its own stack pointer.
const EL1H_MASKED: u64 = 0x3c5;
const SCTLR_SPAN: u64 = 1 << 23;
const SCTLR_DSSBS: u64 = 1 << 44;
/// ESR_EL1.IL: set for class 0, for aborts without a described access and for instruction aborts
/// (D24.2).
const ESR_IL: u64 = 1 << 25;

impl Injection {
    /// Returns whether the guest would take the exception at the same instruction that caused it.
    /// Its vector cannot be fetched then, so it would take the exception again and again.
    #[must_use]
    pub const fn is_endless(&self) -> bool {
        self.pc == self.elr
    }
}

/// Returns the state in which the guest's EL1 has taken the exception `kind`.
#[must_use]
pub fn inject(kind: InjectedException, guest: &Interrupted, ids: &IdRegisters) -> Injection {
    let from_el0 = guest.spsr & 0xc == 0;
    let offset = if guest.spsr & SPSR_AARCH32 != 0 {
        0x600
    } else if from_el0 {
        0x400
    } else if guest.spsr & 1 != 0 {
        0x200
    } else {
        0
    };

    let mut pstate = guest.spsr & SPSR_KEPT | EL1H_MASKED;
    if ids.has_pan() && guest.sctlr & SCTLR_SPAN == 0 {
        pstate |= SPSR_PAN;
    }
    if ids.has_ssbs() && guest.sctlr & SCTLR_DSSBS != 0 {
        pstate |= SPSR_SSBS;
    }

    // The class of an abort from the same level is one more than that of one from EL0.
    let same_level = u64::from(offset < 0x400);
    let status = |walk: Option<u8>| walk.map_or(0x10, |level| 0x14 | u64::from(level & 3));
    let (class, iss, far) = match kind {
        InjectedException::Undefined => (0, 0, None),
        InjectedException::DataAbort { far, write, walk } => {
            (0x24 + same_level, u64::from(write) << 6 | status(walk), Some(far))
        }
        InjectedException::InstructionAbort { far, walk } => {
            (0x20 + same_level, status(walk), Some(far))
        }
    };

    Injection {
        pc: (guest.vbar & !0x7ff).wrapping_add(offset),
        pstate,
        esr: class << 26 | ESR_IL | iss,
        elr: guest.elr,
        spsr: guest.spsr,
        far,
    }
}
