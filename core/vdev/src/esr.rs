//! Exception syndromes: the meaning of `ESR_EL2`, `FAR_EL2` and `HPFAR_EL2` for an exception that a
//! guest caused.
//!
//! Every view is the raw syndrome with methods, so decoding costs a shift and a mask where a field
//! is used, and nothing elsewhere. No method panics, for any value that a guest can produce.
//!
//! Source: Arm ARM (DDI0487), D24.2 "ESR_EL2", "HPFAR_EL2", "FAR_EL2"; D1.3 for the preferred
//! return address.

/// Exception class of an HVC executed in AArch64 state.
pub const EC_HVC64: u8 = 0x16;
/// Exception class of an SMC executed in AArch64 state.
pub const EC_SMC64: u8 = 0x17;
/// Exception class of a trapped MSR, MRS or system instruction in AArch64 state.
pub const EC_SYSREG: u8 = 0x18;
/// Exception class of a data abort from a lower exception level.
pub const EC_DATA_ABORT: u8 = 0x24;

/// The value of `ESR_EL2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Syndrome(pub u64);

/// An exception taken to EL2, by class (DDI0487 D24.2, ESR_EL2.EC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// A WFI (0), WFE (1), WFIT (2) or WFET (3); the value is ISS.TI.
    Wfx(u8),
    /// HVC. `ELR_EL2` already points behind it.
    Hvc {
        /// The 16-bit immediate; 0 for SMCCC calls.
        imm: u16,
    },
    /// SMC trapped by `HCR_EL2.TSC`. `ELR_EL2` points to the instruction.
    Smc {
        /// The 16-bit immediate; 0 for SMCCC calls.
        imm: u16,
    },
    /// HVC in AArch32 state.
    Hvc32 {
        /// The 16-bit immediate.
        imm: u16,
    },
    /// SMC in AArch32 state. Its condition may have failed: see [`Syndrome::condition_passed`].
    Smc32,
    /// A trapped MSR, MRS or system instruction.
    SysReg(SysRegAccess),
    /// A trapped coprocessor access of AArch32 code (at EL0 of a 64-bit guest).
    Coprocessor(CoprocessorAccess),
    /// A data abort from EL1 or EL0.
    DataAbort(DataAbort),
    /// An instruction abort from EL1 or EL0.
    InstructionAbort(InstructionAbort),
    /// FP, SIMD, SVE or SME access trapped by `CPTR_EL2`.
    FpTrap,
    /// Misaligned PC.
    PcAlignment,
    /// Misaligned stack pointer.
    SpAlignment,
    /// Execution with `PSTATE.IL` set.
    IllegalState,
    /// SError; the value is ISS.
    SError(u32),
    /// Breakpoint, watchpoint, single step, BKPT or BRK routed to EL2 by `MDCR_EL2.TDE`; the value
    /// is the class.
    Debug(u8),
    /// Any other exception; the value is the class. 0 is "unknown reason".
    Unknown(u8),
}

/// `SPSR_EL2.SS`: the instruction to be stepped has not been executed yet.
const SPSR_SS: u64 = 1 << 21;
/// `SPSR_EL2`: AArch32, T32.
const SPSR_T32: u64 = 1 << 4 | 1 << 5;

/// ITSTATE: its upper bits are `SPSR_EL2[15:10]`, the lower two `SPSR_EL2[26:25]`.
const fn it_state(spsr: u64) -> u64 {
    (spsr >> 10 & 0x3f) << 2 | spsr >> 25 & 3
}

#[cold]
#[inline(never)]
const fn advance_it(spsr: u64) -> u64 {
    let it = it_state(spsr);
    // The instruction was the last of an IT block, or in none.
    let next = if it & 7 == 0 { 0 } else { it & 0xe0 | it << 1 & 0x1f };
    spsr & !(0x3f << 10 | 3 << 25) | next >> 2 << 10 | (next & 3) << 25
}

impl Syndrome {
    /// Exception class, ESR_EL2.EC.
    #[inline]
    #[must_use]
    pub const fn class(self) -> u8 {
        (self.0 >> 26) as u8 & 0x3f
    }

    /// Instruction specific syndrome, ESR_EL2.ISS.
    #[inline]
    #[must_use]
    pub const fn iss(self) -> u32 {
        self.0 as u32 & 0x01ff_ffff
    }

    /// Returns the length in bytes of the instruction at the preferred return address (ESR_EL2.IL).
    /// Not valid for an HVC, because its preferred return address is behind it.
    #[inline]
    #[must_use]
    pub const fn instruction_len(self) -> u64 {
        2 + ((self.0 >> 25) & 1) * 2
    }

    /// Returns the guest's state after the instruction, which was carried out for the guest or
    /// failed its condition; `spsr` is the state before it. Single step ends with the instruction,
    /// and the IT state of T32 code advances to that of the next instruction (`AArch32.ITAdvance`).
    #[inline]
    #[must_use]
    pub const fn behind(spsr: u64) -> u64 {
        let spsr = spsr & !SPSR_SS;
        if spsr & SPSR_T32 == SPSR_T32 { advance_it(spsr) } else { spsr }
    }

    /// Returns whether the trapped instruction would have executed. AArch64 instructions always do.
    /// An AArch32 instruction may trap although its condition fails; it must then be skipped
    /// without effect (D24.2, ISS.CV and COND).
    #[must_use]
    pub const fn condition_passed(self, spsr: u64) -> bool {
        let iss = self.iss();
        let conditional = matches!(self.class(), 0x01 | 0x03..=0x06 | 0x08 | 0x0c)
            // For SMC32, CCKNOWNPASS states whether COND is valid.
            || (self.class() == 0x13 && iss & 1 << 19 != 0);
        if !conditional || spsr & 1 << 4 == 0 {
            return true;
        }
        let condition = if iss & 1 << 24 != 0 {
            (iss >> 20 & 0xf) as u64
        } else {
            // T32 code without a recorded condition: the condition is in the IT state, unless the
            // instruction is outside of an IT block.
            let it = it_state(spsr);
            if spsr & 1 << 5 == 0 || it.trailing_zeros() >= 4 {
                return true;
            }
            it >> 4
        };
        let (n, z) = (spsr >> 31 & 1, spsr >> 30 & 1);
        let (c, v) = (spsr >> 29 & 1, spsr >> 28 & 1);
        let holds = match condition >> 1 {
            0 => z == 1,
            1 => c == 1,
            2 => n == 1,
            3 => v == 1,
            4 => c == 1 && z == 0,
            5 => n == v,
            6 => n == v && z == 0,
            _ => return true,
        };
        holds != (condition & 1 == 1)
    }

    /// Decodes the exception by its class. The three classes that a well-behaved guest causes
    /// frequently cost one comparison each. The rest is out of line, so that the compiler does not
    /// build a jump table of all classes.
    #[must_use]
    pub const fn decode(self) -> Exception {
        match self.class() {
            EC_HVC64 => Exception::Hvc { imm: self.iss() as u16 },
            EC_DATA_ABORT => Exception::DataAbort(DataAbort(self.iss())),
            EC_SYSREG => Exception::SysReg(SysRegAccess(self.iss())),
            _ => self.decode_rare(),
        }
    }

    #[cold]
    #[inline(never)]
    const fn decode_rare(self) -> Exception {
        let iss = self.iss();
        let class = self.class();
        match class {
            0x01 => Exception::Wfx(iss as u8 & 3),
            0x03..=0x06 | 0x08 | 0x0c => Exception::Coprocessor(CoprocessorAccess(self.0 as u32)),
            0x07 | 0x19 | 0x1d => Exception::FpTrap,
            0x0e => Exception::IllegalState,
            0x12 => Exception::Hvc32 { imm: iss as u16 },
            0x13 => Exception::Smc32,
            EC_SMC64 => Exception::Smc { imm: iss as u16 },
            0x20 => Exception::InstructionAbort(InstructionAbort(iss)),
            0x22 => Exception::PcAlignment,
            0x26 => Exception::SpAlignment,
            0x2f => Exception::SError(iss),
            0x30..=0x35 | 0x38 | 0x3a | 0x3c => Exception::Debug(class),
            _ => Exception::Unknown(class),
        }
    }
}

/// ISS of a trapped MSR, MRS or system instruction (D24.2, "ISS encoding for an exception from MSR,
/// MRS, or System instruction execution in AArch64 state").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysRegAccess(pub u32);

impl SysRegAccess {
    /// Returns the access that `MSR|MRS S<op0>_<op1>_C<crn>_C<crm>_<op2>, X<rt>` makes. Fields are
    /// truncated to their width.
    #[must_use]
    pub const fn new([op0, op1, crn, crm, op2]: [u8; 5], rt: u8, write: bool) -> Self {
        Self(
            (op0 as u32 & 3) << 20
                | (op2 as u32 & 7) << 17
                | (op1 as u32 & 7) << 14
                | (crn as u32 & 15) << 10
                | (rt as u32 & 0x1f) << 5
                | (crm as u32 & 15) << 1
                | !write as u32,
        )
    }

    /// Returns op0: 1 for system instructions, 2 for debug and trace registers, 3 for other
    /// registers.
    #[must_use]
    pub const fn op0(self) -> u8 {
        (self.0 >> 20 & 3) as u8
    }

    /// op1.
    #[must_use]
    pub const fn op1(self) -> u8 {
        (self.0 >> 14 & 7) as u8
    }

    /// CRn.
    #[must_use]
    pub const fn crn(self) -> u8 {
        (self.0 >> 10 & 15) as u8
    }

    /// CRm.
    #[must_use]
    pub const fn crm(self) -> u8 {
        (self.0 >> 1 & 15) as u8
    }

    /// op2.
    #[must_use]
    pub const fn op2(self) -> u8 {
        (self.0 >> 17 & 7) as u8
    }

    /// Returns the general register; 31 is XZR.
    #[must_use]
    pub const fn rt(self) -> u8 {
        (self.0 >> 5 & 0x1f) as u8
    }

    /// Returns whether the register is written (MSR).
    #[must_use]
    pub const fn is_write(self) -> bool {
        self.0 & 1 == 0
    }
}

/// A trapped coprocessor access of AArch32 code (exception classes 3 to 6, 8 and 0xC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoprocessorAccess(u32);

impl CoprocessorAccess {
    const fn class(self) -> u8 {
        (self.0 >> 26) as u8
    }

    /// Returns the coprocessor: 15 or 14, or 10 for VMRS.
    #[must_use]
    pub const fn coprocessor(self) -> u8 {
        match self.class() {
            0x03 | 0x04 => 15,
            0x08 => 10,
            _ => 14,
        }
    }

    /// Returns whether two registers move at once (MCRR, MRRC); such an access has no CRn and no
    /// opc2.
    #[must_use]
    pub const fn is_double(self) -> bool {
        matches!(self.class(), 0x04 | 0x0c)
    }

    /// opc1.
    #[must_use]
    pub const fn opc1(self) -> u8 {
        if self.is_double() { (self.0 >> 16 & 15) as u8 } else { (self.0 >> 14 & 7) as u8 }
    }

    /// Returns CRn of MCR and MRC.
    #[must_use]
    pub const fn crn(self) -> u8 {
        (self.0 >> 10 & 15) as u8
    }

    /// CRm.
    #[must_use]
    pub const fn crm(self) -> u8 {
        (self.0 >> 1 & 15) as u8
    }
}

/// The fault status code of an abort (D24.2, DFSC and IFSC). Levels are those of the translation
/// table walk, from -2 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortFault {
    /// Address size fault at a level.
    AddressSize(i8),
    /// Translation fault at a level: nothing is mapped there.
    Translation(i8),
    /// Access flag fault at a level.
    AccessFlag(i8),
    /// Permission fault at a level.
    Permission(i8),
    /// Synchronous external abort, not on a table walk.
    External,
    /// Synchronous external abort on a table walk at a level.
    ExternalOnWalk(i8),
    /// Synchronous tag check fault.
    TagCheck,
    /// Parity or ECC error on memory access or walk.
    Parity,
    /// Alignment fault.
    Alignment,
    /// TLB conflict.
    TlbConflict,
    /// Exclusive or atomic access that the memory type does not support.
    UnsupportedAtomic,
    /// Any other code.
    Other(u8),
}

impl AbortFault {
    /// Returns the fault of a six-bit status code.
    #[must_use]
    pub const fn from_status(status: u32) -> Self {
        let code = (status & 0x3f) as u8;
        let level = (code & 3).cast_signed();
        match code {
            0x00..=0x03 => Self::AddressSize(level),
            0x04..=0x07 => Self::Translation(level),
            0x08..=0x0b => Self::AccessFlag(level),
            0x0c..=0x0f => Self::Permission(level),
            0x10 => Self::External,
            0x11 => Self::TagCheck,
            0x12 => Self::ExternalOnWalk(-2),
            0x13 => Self::ExternalOnWalk(-1),
            0x14..=0x17 => Self::ExternalOnWalk(level),
            0x18 | 0x1b..=0x1f => Self::Parity,
            0x21 => Self::Alignment,
            0x29 => Self::AddressSize(-1),
            0x2a => Self::Translation(-2),
            0x2b => Self::Translation(-1),
            0x2c => Self::AddressSize(-2),
            0x30 => Self::TlbConflict,
            0x35 => Self::UnsupportedAtomic,
            _ => Self::Other(code),
        }
    }

    const fn writes_hpfar(self) -> bool {
        matches!(self, Self::AddressSize(_) | Self::Translation(_) | Self::AccessFlag(_))
    }
}

/// Returns whether an abort is a translation fault, at any level (DFSC or IFSC 0b0001LL).
#[inline]
const fn is_translation(iss: u32) -> bool {
    iss & 0x3c == 0x04
}

/// Returns the intermediate physical address of an abort, for data and instruction aborts (D24.2,
/// HPFAR_EL2 and the bits FnV, S1PTW and xFSC, which have the same positions in both).
#[inline]
const fn abort_ipa(iss: u32, hpfar: u64, far: u64) -> Option<u64> {
    let on_walk = iss & 1 << 7 != 0;
    // A translation fault at levels 0 to 3 is tested first, because most traps to a device are such
    // faults and the other codes need a table.
    if !on_walk && !is_translation(iss) && !AbortFault::from_status(iss).writes_hpfar() {
        return None;
    }
    // FIPA holds address bits 55:12 from bit 4 up; NS (bit 63) is used only in Secure state.
    let page = (hpfar & 0x0000_ffff_ffff_fff0) << 8;
    // For a fault on a walk, FAR is the address that was being translated, and not the address of
    // the descriptor.
    let offset = if on_walk || iss & 1 << 10 != 0 { 0 } else { far & 0xfff };
    Some(page | offset)
}

/// ISS of a data abort (D24.2, "ISS encoding for an exception from a Data Abort").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAbort(pub u32);

impl DataAbort {
    /// Returns whether the access was a write or a cache maintenance instruction (WnR).
    #[inline]
    #[must_use]
    pub const fn is_write(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// Returns whether the stage 2 fault was on the guest's own table walk (S1PTW).
    #[inline]
    #[must_use]
    pub const fn is_on_walk(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Returns whether a cache maintenance or address translation instruction faulted (CM).
    #[inline]
    #[must_use]
    pub const fn is_cache_maintenance(self) -> bool {
        self.0 & 1 << 8 != 0
    }

    /// Returns the reason (DFSC).
    #[inline]
    #[must_use]
    pub const fn fault(self) -> AbortFault {
        AbortFault::from_status(self.0)
    }

    /// Returns the intermediate physical address in bytes, from `HPFAR_EL2` and `FAR_EL2`. Returns
    /// `None` if HPFAR_EL2 is UNKNOWN: the architecture writes it for translation, access flag and
    /// address size faults and for any fault on a stage 1 walk. For a fault on a walk only the page
    /// is known.
    #[inline]
    #[must_use]
    pub const fn ipa(self, hpfar: u64, far: u64) -> Option<u64> {
        abort_ipa(self.0, hpfar, far)
    }

    /// Returns whether the abort is a translation fault: nothing is mapped there (DFSC 0b0001LL).
    #[inline]
    #[must_use]
    pub const fn is_translation(self) -> bool {
        is_translation(self.0)
    }

    /// Returns the access as a device must handle it, or `None` if the syndrome does not describe
    /// one: ISV is 0, or the abort was caused by a table walk or a cache maintenance instruction,
    /// or HPFAR_EL2 does not give the address.
    #[inline]
    #[must_use]
    pub const fn mmio(self, hpfar: u64, far: u64) -> Option<MmioAccess> {
        const BARS: u32 = 1 << 24 | 1 << 8 | 1 << 7;
        if self.0 & BARS != 1 << 24 {
            return None;
        }
        match self.ipa(hpfar, far) {
            Some(ipa) => Some(MmioAccess {
                ipa,
                size: 1 << (self.0 >> 22 & 3),
                write: self.is_write(),
                reg: (self.0 >> 16 & 0x1f) as u8,
                sign_extend: self.0 & 1 << 21 != 0,
                sixty_four: self.0 & 1 << 15 != 0,
            }),
            None => None,
        }
    }
}

/// ISS of an instruction abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionAbort(pub u32);

impl InstructionAbort {
    /// Returns whether the stage 2 fault was on the guest's own table walk (S1PTW).
    #[must_use]
    pub const fn is_on_walk(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Returns the reason (IFSC).
    #[must_use]
    pub const fn fault(self) -> AbortFault {
        AbortFault::from_status(self.0)
    }

    /// Returns the intermediate physical address in bytes; see [`DataAbort::ipa`].
    #[must_use]
    pub const fn ipa(self, hpfar: u64, far: u64) -> Option<u64> {
        abort_ipa(self.0, hpfar, far)
    }
}

/// A load from or store to an emulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmioAccess {
    /// Intermediate physical address in bytes.
    pub ipa: u64,
    /// Width in bytes: 1, 2, 4 or 8 (SAS).
    pub size: u8,
    /// Whether the access is a store; otherwise it is a load.
    pub write: bool,
    /// General register (SRT); 31 is XZR, which reads as zero and ignores results.
    pub reg: u8,
    /// Whether a load sign-extends its value (SSE).
    pub sign_extend: bool,
    /// Whether the register is 64 bits wide, otherwise 32 (SF).
    pub sixty_four: bool,
}

impl MmioAccess {
    #[inline]
    const fn unused_bits(&self) -> u32 {
        // A size is 1, 2, 4 or 8, but the fields are public: a size above 8 counts as 8, and 0
        // counts as 1.
        let size = if self.size > 8 { 8 } else { self.size as u32 };
        if size == 0 { 56 } else { 64 - size * 8 }
    }

    /// Returns the value that a load writes to the register: the device's value truncated to the
    /// access width, then zero- or sign-extended to the register's width. A load into a 32-bit
    /// register clears the upper half of the 64-bit register.
    #[inline]
    #[must_use]
    pub const fn extend(&self, value: u64) -> u64 {
        let shift = self.unused_bits();
        let wide = if self.sign_extend {
            ((value << shift).cast_signed() >> shift).cast_unsigned()
        } else {
            value << shift >> shift
        };
        if self.sixty_four { wide } else { wide & 0xffff_ffff }
    }

    /// Returns the value that a store passes to the device: the register's value truncated to the
    /// access width.
    #[inline]
    #[must_use]
    pub const fn truncate(&self, value: u64) -> u64 {
        let shift = self.unused_bits();
        value << shift >> shift
    }
}

/// Returns whether this value of ISR_EL1 reports a pending SError.
#[must_use]
pub const fn is_serror_pending(isr_el1: u64) -> bool {
    isr_el1 >> 8 & 1 != 0
}
