//! The A64 instructions that the count distinguishes (encodings: Arm ARM DDI0487, C4.1 and C5).

/// The properties of an instruction for the accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionClass {
    /// Anything else.
    Plain,
    /// ERET: leaves EL2, when it stands in the hypervisor.
    Eret,
    /// DSB, DMB, ISB or SB.
    Barrier,
    /// TLBI, DC or IC.
    Maintenance,
    /// MRS or MSR of a GIC CPU interface register (`ICC_*`, `ICH_*`), except of the next kind.
    GicSysreg,
    /// MRS of `ICC_IAR1_EL1`, which takes a pending interrupt.
    Acknowledge,
    /// WFI or WFE.
    Wait,
    /// A load, a store or an atomic: all that can touch a device.
    LoadStore,
    /// `HINT #(64 + N)`: the marker of path N, 0 to 63.
    Marker(u8),
}

impl InstructionClass {
    /// The class of an A64 `opcode`.
    ///
    /// ```
    /// use weir_qemu_plugin::opcode::InstructionClass;
    /// assert_eq!(InstructionClass::of(0xD69F_03E0), InstructionClass::Eret);
    /// assert_eq!(InstructionClass::of(0xD503_281F), InstructionClass::Marker(0));
    /// ```
    #[must_use]
    pub fn of(opcode: u32) -> Self {
        const HINT: u32 = 0xD503_201F;
        const HINT_MASK: u32 = 0xFFFF_F01F;
        const BARRIER: u32 = 0xD503_301F;
        const SYS: u32 = 0xD508_0000;
        const SYSTEM_REGISTER: u32 = 0xD510_0000;

        if opcode == 0xD69F_03E0 {
            Self::Eret
        } else if opcode & !0x1F == 0xD538_CC00 {
            Self::Acknowledge
        } else if is_load_store(opcode) {
            Self::LoadStore
        } else if opcode & HINT_MASK == HINT {
            match opcode >> 5 & 0x7F {
                2 | 3 => Self::Wait,
                number @ 64.. => Self::Marker((number - 64) as u8),
                _ => Self::Plain,
            }
        } else if opcode & HINT_MASK == BARRIER {
            // op2: 1 DSB nXS, 2 CLREX, 4 DSB, 5 DMB, 6 ISB, 7 SB.
            match opcode >> 5 & 7 {
                1 | 4..=7 => Self::Barrier,
                _ => Self::Plain,
            }
        } else if opcode & 0xFFF8_0000 == SYS && is_maintenance(opcode) {
            Self::Maintenance
        } else if opcode & 0xFFD0_0000 == SYSTEM_REGISTER && is_gic(opcode) {
            Self::GicSysreg
        } else {
            Self::Plain
        }
    }
}

/// The opcode of the marker of path `number` (its low six bits).
#[must_use]
pub const fn marker(number: u8) -> u32 {
    0xD503_201F | (64 + (number as u32 & 63)) << 5
}

/// The group "loads and stores": bit 27 set, bit 25 clear.
const fn is_load_store(opcode: u32) -> bool {
    opcode & 0x0A00_0000 == 0x0800_0000
}

/// TLBI is CRn 8, and 9 with the nXS qualifier. DC and IC are CRn 7, where CRm 8 and 9 are address
/// translation and CRm 2 and 3 other hints.
const fn is_maintenance(opcode: u32) -> bool {
    matches!((opcode >> 12 & 0xF, opcode >> 8 & 0xF), (8 | 9, _) | (7, 1 | 4..=6 | 10..=15))
}

/// The GIC's registers are op0 3, CRn 12, CRm 8 and up, for op1 0 (EL1), 4 (EL2) and 6 (EL3), and
/// `ICC_PMR_EL1` at S3_0_C4_C6_0 (IHI0069, 12.2 to 12.4).
const fn is_gic(opcode: u32) -> bool {
    let op0 = 2 + (opcode >> 19 & 1);
    let op1 = opcode >> 16 & 7;
    let crn = opcode >> 12 & 0xF;
    let crm = opcode >> 8 & 0xF;
    let op2 = opcode >> 5 & 7;
    op0 == 3
        && ((crn == 12 && crm >= 8 && matches!(op1, 0 | 4 | 6))
            || (op1 == 0 && crn == 4 && crm == 6 && op2 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opcodes as GNU as 2.40 encodes them.
    const KNOWN: &[(u32, InstructionClass, &str)] = &[
        (0xD69F_03E0, InstructionClass::Eret, "eret"),
        (0xD65F_03C0, InstructionClass::Plain, "ret"),
        (0xD503_201F, InstructionClass::Plain, "nop"),
        (0xD503_203F, InstructionClass::Plain, "yield"),
        (0xD503_20BF, InstructionClass::Plain, "sevl"),
        (0xD503_205F, InstructionClass::Wait, "wfe"),
        (0xD503_207F, InstructionClass::Wait, "wfi"),
        (0xD503_281F, InstructionClass::Marker(0), "hint #64"),
        (0xD503_2FFF, InstructionClass::Marker(63), "hint #127"),
        (0xD503_3F9F, InstructionClass::Barrier, "dsb sy"),
        (0xD503_3BBF, InstructionClass::Barrier, "dmb ish"),
        (0xD503_3FDF, InstructionClass::Barrier, "isb"),
        (0xD503_30FF, InstructionClass::Barrier, "sb"),
        (0xD503_3F5F, InstructionClass::Plain, "clrex"),
        (0xD508_871F, InstructionClass::Maintenance, "tlbi vmalle1"),
        (0xD508_831F, InstructionClass::Maintenance, "tlbi vmalle1is"),
        (0xD50B_7A20, InstructionClass::Maintenance, "dc cvac, x0"),
        (0xD50B_7420, InstructionClass::Maintenance, "dc zva, x0"),
        (0xD508_751F, InstructionClass::Maintenance, "ic iallu"),
        (0xD50B_7520, InstructionClass::Maintenance, "ic ivau, x0"),
        (0xD508_7800, InstructionClass::Plain, "at s1e1r, x0"),
        (0xD538_CC00, InstructionClass::Acknowledge, "mrs x0, icc_iar1_el1"),
        (0xD53C_CB04, InstructionClass::GicSysreg, "mrs x4, ich_hcr_el2"),
        (0xD51C_CC00, InstructionClass::GicSysreg, "msr ich_lr0_el2, x0"),
        (0xD53C_C9A0, InstructionClass::GicSysreg, "mrs x0, icc_sre_el2"),
        (0xD518_CBA0, InstructionClass::GicSysreg, "msr icc_sgi1r_el1, x0"),
        (0xD538_4600, InstructionClass::GicSysreg, "mrs x0, icc_pmr_el1"),
        (0xD538_C000, InstructionClass::Plain, "mrs x0, vbar_el1"),
        (0xD538_C100, InstructionClass::Plain, "mrs x0, isr_el1"),
        (0xD51C_C000, InstructionClass::Plain, "msr vbar_el2, x0"),
        (0xD538_00A0, InstructionClass::Plain, "mrs x0, mpidr_el1"),
        (0xB940_1862, InstructionClass::LoadStore, "ldr w2, [x3, #24]"),
        (0xB900_4062, InstructionClass::LoadStore, "str w2, [x3, #64]"),
        (0xA940_1865, InstructionClass::LoadStore, "ldp x5, x6, [x3]"),
        (0xC8A0_7C61, InstructionClass::LoadStore, "cas x0, x1, [x3]"),
        (0x10FF_FD03, InstructionClass::Plain, "adr x3, ."),
        (0xF100_0421, InstructionClass::Plain, "subs x1, x1, #1"),
        (0x54FF_FFE1, InstructionClass::Plain, "b.ne ."),
        (0xD400_0002, InstructionClass::Plain, "hvc #0"),
    ];

    #[test]
    fn instructions_have_their_class() {
        for &(opcode, class, text) in KNOWN {
            assert_eq!(InstructionClass::of(opcode), class, "{text}");
        }
    }

    #[test]
    fn every_marker_decodes_to_its_number() {
        for number in 0..64 {
            assert_eq!(InstructionClass::of(marker(number)), InstructionClass::Marker(number));
        }
    }
}
