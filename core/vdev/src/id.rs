//! The identification registers that a VM sees.
//!
//! A field shows the lesser of what the processor has and what a VM may use. So a VM never sees a
//! feature whose registers or instructions the hypervisor traps, nor a feature that the processor
//! lacks. Fields and registers that this table does not name read as zero, which means "not
//! implemented" in the ID scheme. A feature of a later architecture is therefore hidden until its
//! field is added here.
//!
//! Hidden: EL2 and EL3, PMU, trace, profiling, branch records, activity monitors, SVE, SME, MTE,
//! RAS, MPAM, nesting, LORegions, NMI, pointer authentication (its keys are not part of a vCPU's
//! context), and features that need a bit of `HCRX_EL2` (MOPS, LS64, TCR2, SCTLR2, indirect
//! permissions). Shown, because they need no support in EL2: BTI, SSBS, DIT, PAN, UAO, LSE, crypto.
//!
//! Source: Arm ARM (DDI0487), D23.1 "Principles of the ID scheme for fields in ID registers" and
//! D24.2 for each register; op0 = 3, op1 = 0, CRn = 0, CRm = 1 to 7 is the feature ID space. Its
//! unallocated registers read as zero (D18.3.1, trapped by HCR_EL2.TID3).

use crate::debug::{MAX_BREAKPOINTS, MAX_WATCHPOINTS};

/// The GIC of the virtual board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GicVersion {
    /// GICv2: CPU interface in memory.
    V2,
    /// GICv3: CPU interface in system registers.
    V3,
}

/// One register of the feature ID space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRegister(u8);

impl IdRegister {
    const fn at(crm: u8, op2: u8) -> Self {
        Self((crm - 1) * 8 + op2)
    }

    /// Returns CRm of the register's encoding, 1 to 7.
    #[must_use]
    pub const fn crm(self) -> u8 {
        (self.0 >> 3) + 1
    }

    /// Returns op2 of the register's encoding, 0 to 7.
    #[must_use]
    pub const fn op2(self) -> u8 {
        self.0 & 7
    }
}

/// The part of a register that a VM may see: `most` has the highest value of each four-bit field.
struct Rule {
    register: IdRegister,
    most: u64,
    /// Set of the fields, one bit each, in which a negative value means that the feature is absent;
    /// that value is always shown (D23.1.3).
    signed: u16,
}

const fn rule(crm: u8, op2: u8, most: u64) -> Rule {
    Rule { register: IdRegister::at(crm, op2), most, signed: 0 }
}

/// Registers whose fields come from the hardware. The list in [`IdRegisters::from_hardware`] names
/// them.
const RULES: [Rule; 26] = [
    // ID_AA64PFR0: EL1 is 64-bit (HCR_EL2.RW), EL0 either. CSV2 above 1 would offer SCXTNUM_ELx.
    // Fields from bit 60: CSV3 CSV2 RME DIT, AMU MPAM SEL2 SVE, RAS GIC AdvSIMD FP, EL3 EL2 EL1
    // EL0.
    Rule { register: IdRegister::at(4, 0), most: 0x1101_0000_0011_0012, signed: 1 << 4 | 1 << 5 },
    // ID_AA64PFR1: SSBS, BT.
    rule(4, 1, 0x0000_0000_0000_0021),
    // ID_AA64ISAR0: RNDR TLB TS FHM, DP SM4 SM3 SHA3, RDM (TME) Atomic CRC32, SHA2 SHA1 AES.
    rule(6, 0, 0x1221_1111_1021_2120),
    // ID_AA64ISAR1: (LS64) XS I8MM DGH, BF16 SPECRES SB FRINTTS, GPI GPA LRCPC FCMA, JSCVT API APA
    // DPB.
    rule(6, 1, 0x0111_1111_0031_1002),
    // ID_AA64ISAR2: CSSC RPRFM, CLRBHB PAC_frac BC (MOPS), APA3 GPA3 RPRES (WFxT). The timeout of a
    // WFIT that traps would be lost.
    rule(6, 2, 0x0011_0000_1010_0010),
    // ID_AA64MMFR0: ExS; TGran4 without LPA2, TGran64, TGran16; BigEndEL0 SNSMem BigEnd ASIDBits;
    // PARange up to 48 bits.
    Rule { register: IdRegister::at(7, 0), most: 0x0000_1000_0011_1125, signed: 1 << 6 | 1 << 7 },
    // ID_AA64MMFR1: ECBHB, nTLBPA AFP (HCX) ETS, SpecSEI PAN, HPDS HAFDBS.
    rule(7, 1, 0x1001_1020_0130_2002),
    // ID_AA64MMFR2: E0PD (EVT) BBM TTL, (FWB) IDS AT, ST (NV) CCIDX VARange, (IESB) LSM UAO CnP.
    rule(7, 2, 0x1021_0011_1011_0111),
    // AArch32 at EL0. ID_PFR0: DIT, CSV2, State2 to State0 (the instruction sets).
    rule(1, 0, 0x0101_0131),
    // ID_PFR1: generic timer. No EL3, no EL2, and no programmers' model, because EL1 cannot use
    // AArch32.
    rule(1, 1, 0x0001_0000),
    // ID_MMFR0 to 3.
    rule(1, 4, 0xffff_ffff),
    rule(1, 5, 0xffff_ffff),
    rule(1, 6, 0xffff_ffff),
    rule(1, 7, 0xffff_ffff),
    // ID_ISAR0 to 3.
    rule(2, 0, 0x0fff_ffff),
    rule(2, 1, 0xffff_ffff),
    rule(2, 2, 0xffff_ffff),
    rule(2, 3, 0xffff_ffff),
    // ID_ISAR4 without SMC, as required if EL1 cannot use AArch32; ID_ISAR5; ID_MMFR4 without XNX
    // and EVT; ID_ISAR6.
    rule(2, 4, 0xffff_0fff),
    rule(2, 5, 0x1101_1121),
    rule(2, 6, 0x0112_1001),
    rule(2, 7, 0x1111_1111),
    // MVFR0 to 2.
    rule(3, 0, 0xffff_ffff),
    rule(3, 1, 0xffff_ffff),
    rule(3, 2, 0xffff_ffff),
    // ID_PFR2: SSBS, CSV3.
    rule(3, 4, 0x0000_0011),
];

const AA64PFR0: usize = IdRegister::at(4, 0).0 as usize;
const AA64PFR1: usize = IdRegister::at(4, 1).0 as usize;
const AA64DFR0: usize = IdRegister::at(5, 0).0 as usize;
const AA64MMFR1: usize = IdRegister::at(7, 1).0 as usize;
const PFR1: usize = IdRegister::at(1, 1).0 as usize;
const DFR0: usize = IdRegister::at(1, 2).0 as usize;

/// ID_AA64DFR0: the Armv8.0 debug architecture. All other features, in particular PMU and trace,
/// are absent.
const DEBUG_V8: u64 = 0x6;
/// ID_DFR0: CopDbg has the value of Armv8.0.
const DFR0_VALUE: u64 = 0x6;

/// Returns `ID_AA64DFR0_EL1`: as many of the hardware's breakpoints and watchpoints as a vCPU's
/// context holds. The last breakpoints of the hardware are those that compare contexts. If a VM
/// does not see all breakpoints, its register shows one of these, the number that the architecture
/// requires.
fn debug_features(hardware: u64) -> u64 {
    let (breakpoints, watchpoints) = (hardware >> 12 & 15, hardware >> 20 & 15);
    let most_breakpoints = MAX_BREAKPOINTS as u64 - 1;
    let contexts = if breakpoints > most_breakpoints { 0 } else { hardware >> 28 & 15 };
    DEBUG_V8
        | breakpoints.min(most_breakpoints) << 12
        | watchpoints.min(MAX_WATCHPOINTS as u64 - 1) << 20
        | contexts.min(breakpoints) << 28
}

/// The EL2 registers that the processor has, that are unknown after a reset, and that change what
/// EL1 can do. The hypervisor writes zero to each on every core, except for the last two, to which
/// it writes trap bits. So no feature is enabled that the ID registers hide, and no access traps
/// that is not named in [`crate::sysreg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a group of registers")]
pub struct Controls {
    /// `HCRX_EL2`.
    pub hcrx: bool,
    /// `HFGRTR_EL2`, `HFGWTR_EL2`, `HFGITR_EL2`, `HDFGRTR_EL2`, `HDFGWTR_EL2`.
    pub fine_traps: bool,
    /// `HAFGRTR_EL2`.
    pub monitor_traps: bool,
    /// The second register of each of these (FEAT_FGT2).
    pub more_fine_traps: bool,
    /// `MPAM2_EL2`, which is set to trap EL1's registers of memory partitioning (FEAT_MPAM).
    pub partitioning: bool,
    /// `MDCR_EL2.TTRF`, which is set to trap EL1's control of trace (FEAT_TRF).
    pub trace_filter: bool,
}

impl Controls {
    /// Returns which of these registers a processor with the given values of `ID_AA64MMFR0_EL1` and
    /// `ID_AA64MMFR1_EL1`, of `ID_AA64PFR0_EL1` and `ID_AA64PFR1_EL1`, and of `ID_AA64DFR0_EL1`
    /// has.
    #[must_use]
    pub const fn of([mmfr0, mmfr1]: [u64; 2], [pfr0, pfr1]: [u64; 2], dfr0: u64) -> Self {
        let fine_traps = mmfr0 >> 56 & 0xf;
        Self {
            hcrx: mmfr1 >> 40 & 0xf != 0,
            fine_traps: fine_traps != 0,
            monitor_traps: fine_traps != 0 && pfr0 >> 44 & 0xf != 0,
            more_fine_traps: fine_traps >= 2,
            // MPAM, MPAM_frac.
            partitioning: pfr0 >> 40 & 0xf != 0 || pfr1 >> 16 & 0xf != 0,
            trace_filter: dfr0 >> 40 & 0xf != 0,
        }
    }
}

/// Returns the lesser of two register values in each four-bit field; see [`Rule`].
fn lesser(hardware: u64, rule: &Rule) -> u64 {
    let (mut result, mut field) = (0, 0);
    // The loop ends at the last nonzero field: zero fields stay zero, and the upper fields of most
    // registers are zero.
    while field < 16 && hardware >> (field * 4) != 0 {
        let shift = field * 4;
        let (have, most) = (hardware >> shift & 15, rule.most >> shift & 15);
        let absent = rule.signed >> field & 1 != 0 && have & 8 != 0;
        result |= if absent || have < most { have } else { most } << shift;
        field += 1;
    }
    result
}

/// The feature ID space of a VM: 7 rows (CRm 1 to 7) of 8 registers (op2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRegisters([u64; 56]);

impl IdRegisters {
    /// Returns the registers of a VM on this processor. `read` returns the hardware's value of a
    /// register. It is called once for each register that is not constant: CRm 1, op2 0, 1, 4 to 7;
    /// CRm 2, op2 0 to 7; CRm 3, op2 0, 1, 2, 4; CRm 4, op2 0, 1; CRm 5, op2 0; CRm 6, op2 0, 1, 2;
    /// CRm 7, op2 0, 1, 2. All cores of a VM must be alike.
    #[must_use]
    pub fn from_hardware(gic: GicVersion, mut read: impl FnMut(IdRegister) -> u64) -> Self {
        let mut values = [0; 56];
        for rule in &RULES {
            if let Some(value) = values.get_mut(usize::from(rule.register.0)) {
                *value = lesser(read(rule.register), rule);
            }
        }
        values[AA64DFR0] = debug_features(read(IdRegister::at(5, 0)));
        values[DFR0] = DFR0_VALUE;
        if values[AA64PFR0] & 0xf == 2 {
            values[PFR1] |= u64::from(gic == GicVersion::V3) << 28;
        } else {
            // Without AArch32 at EL0 these rows are UNKNOWN.
            for value in &mut values[..24] {
                *value = 0;
            }
        }
        values[AA64PFR0] |= u64::from(gic == GicVersion::V3) << 24;
        Self(values)
    }

    /// Returns the register S3_0_C0_C`crm`_`op2`; zero for any outside the feature ID space.
    #[must_use]
    pub fn get(&self, crm: u8, op2: u8) -> u64 {
        let index = usize::from(crm).wrapping_sub(1).wrapping_mul(8) | usize::from(op2 & 7);
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Returns how many breakpoints and watchpoints the VM has.
    #[must_use]
    pub const fn comparators(&self) -> (u8, u8) {
        let features = self.0[AA64DFR0];
        ((features >> 12 & 15) as u8 + 1, (features >> 20 & 15) as u8 + 1)
    }

    /// Returns the GIC version that the VM has.
    #[must_use]
    pub const fn gic(&self) -> GicVersion {
        match self.0[AA64PFR0] >> 24 & 0xf {
            0 => GicVersion::V2,
            _ => GicVersion::V3,
        }
    }

    /// Returns whether the processor has `PSTATE.PAN`.
    #[must_use]
    pub const fn has_pan(&self) -> bool {
        self.0[AA64MMFR1] >> 20 & 0xf != 0
    }

    /// Returns whether the processor has `PSTATE.SSBS`.
    #[must_use]
    pub const fn has_ssbs(&self) -> bool {
        self.0[AA64PFR1] >> 4 & 0xf != 0
    }
}
