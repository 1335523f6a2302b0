//! All system registers that EL1 or EL0 in AArch64 can name, with the reason why each is not a
//! channel between the vCPUs of a core. A register that is in no row is UNDEFINED below EL2, or
//! belongs to an architecture that this list does not know: `guests/tests/registers` reads every
//! encoding, and reports each one that it can read and that is not listed.
//!
//! Source: Arm ARM (DDI0487), D19.2 (registers by encoding) and D24.2 to D24.8 for each register;
//! IHI0069, chapter 12, for the GIC's.

/// The way in which EL2 prevents a register from passing information between vCPUs of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The register is in a vCPU's context: it is saved and loaded when another vCPU gets the core.
    Saved,
    /// Each access traps, because of this control of EL2; [`crate::sysreg`] and the models of the
    /// devices answer. On a processor without the register the access is UNDEFINED.
    Trapped(&'static str),
    /// No vCPU can change the value that another vCPU reads, for this reason.
    Constant(&'static str),
}

/// A row of [`REGISTERS`]: registers with consecutive encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRow {
    /// The names of the registers.
    pub name: &'static str,
    /// The version of the architecture that introduced the registers.
    pub since: &'static str,
    /// op0, op1, CRn; the first and the last CRm; the first and the last op2.
    at: ([u8; 3], [u8; 2], [u8; 2]),
    /// The way in which EL2 keeps the registers from being a channel.
    pub fate: Fate,
}

impl RegisterRow {
    /// Returns whether the register of this encoding (op0, op1, CRn, CRm, op2) belongs to the row.
    #[must_use]
    pub const fn has(&self, [op0, op1, crn, crm, op2]: [u8; 5]) -> bool {
        let ([its_op0, its_op1, its_crn], [first_crm, last_crm], [first, last]) = self.at;
        op0 == its_op0
            && op1 == its_op1
            && crn == its_crn
            && first_crm <= crm
            && crm <= last_crm
            && first <= op2
            && op2 <= last
    }
}

/// Returns the row of the register of this encoding (op0, op1, CRn, CRm, op2): the first one, if
/// there are several.
#[must_use]
pub fn find(encoding: [u8; 5]) -> Option<&'static RegisterRow> {
    REGISTERS.iter().find(|row| row.has(encoding))
}

const SAVED: Fate = Fate::Saved;
const IDENTIFICATION: Fate = Fate::Constant("it identifies the processor");
const TIME: Fate = Fate::Constant("it is the time");

const fn one(
    name: &'static str,
    since: &'static str,
    [op0, op1, crn, crm, op2]: [u8; 5],
    fate: Fate,
) -> RegisterRow {
    RegisterRow { name, since, at: ([op0, op1, crn], [crm, crm], [op2, op2]), fate }
}

const fn some(
    name: &'static str,
    since: &'static str,
    at: ([u8; 3], [u8; 2], [u8; 2]),
    fate: Fate,
) -> RegisterRow {
    RegisterRow { name, since, at, fate }
}

const fn trapped(control: &'static str) -> Fate {
    Fate::Trapped(control)
}

/// The registers.
pub const REGISTERS: &[RegisterRow] = &[
    // Armv8.0: identification.
    one("MIDR_EL1", "8.0", [3, 0, 0, 0, 0], IDENTIFICATION),
    one("MPIDR_EL1", "8.0", [3, 0, 0, 0, 5], Fate::Constant("VMPIDR_EL2 is set for each vCPU")),
    one("REVIDR_EL1", "8.0", [3, 0, 0, 0, 6], IDENTIFICATION),
    some("ID_*", "8.0", ([3, 0, 0], [1, 7], [0, 7]), trapped("HCR_EL2.TID3")),
    one(
        "CCSIDR_EL1",
        "8.0",
        [3, 1, 0, 0, 0],
        Fate::Constant("CSSELR_EL1, which is saved, selects"),
    ),
    one("CLIDR_EL1", "8.0", [3, 1, 0, 0, 1], IDENTIFICATION),
    one("CCSIDR2_EL1", "8.3", [3, 1, 0, 0, 2], Fate::Constant("as CCSIDR_EL1")),
    one("GMID_EL1", "8.5", [3, 1, 0, 0, 4], IDENTIFICATION),
    one("SMIDR_EL1", "9.2", [3, 1, 0, 0, 6], IDENTIFICATION),
    one("AIDR_EL1", "8.0", [3, 1, 0, 0, 7], IDENTIFICATION),
    one("CSSELR_EL1", "8.0", [3, 2, 0, 0, 0], SAVED),
    one("CTR_EL0", "8.0", [3, 3, 0, 0, 1], IDENTIFICATION),
    one("DCZID_EL0", "8.0", [3, 3, 0, 0, 7], IDENTIFICATION),
    // Control and translation.
    one("SCTLR_EL1", "8.0", [3, 0, 1, 0, 0], SAVED),
    one("ACTLR_EL1", "8.0", [3, 0, 1, 0, 1], trapped("HCR_EL2.TACR")),
    one("CPACR_EL1", "8.0", [3, 0, 1, 0, 2], SAVED),
    one("SCTLR2_EL1", "8.9", [3, 0, 1, 0, 3], trapped("HCRX_EL2.SCTLR2En")),
    some("RGSR_EL1, GCR_EL1", "8.5", ([3, 0, 1], [0, 0], [5, 6]), trapped("HCR_EL2.ATA")),
    one("ZCR_EL1", "8.2", [3, 0, 1, 2, 0], trapped("CPTR_EL2.TZ")),
    one("TRFCR_EL1", "8.4", [3, 0, 1, 2, 1], trapped("MDCR_EL2.TTRF")),
    one("TRCITECR_EL1", "9.4", [3, 0, 1, 2, 3], trapped("HDFGRTR2_EL2.nTRCITECR_EL1")),
    one("SMPRI_EL1", "9.2", [3, 0, 1, 2, 4], trapped("HFGRTR_EL2.nSMPRI_EL1")),
    one("SMCR_EL1", "9.2", [3, 0, 1, 2, 6], trapped("CPTR_EL2.TSM")),
    some("TTBR0_EL1, TTBR1_EL1, TCR_EL1", "8.0", ([3, 0, 2], [0, 0], [0, 2]), SAVED),
    one("TCR2_EL1", "8.9", [3, 0, 2, 0, 3], trapped("HCRX_EL2.TCR2En")),
    some("AP*Key*_EL1", "8.3", ([3, 0, 2], [1, 3], [0, 3]), trapped("HCR_EL2.APK")),
    some(
        "GCSCR*_EL1, GCSPR_EL1",
        "9.4",
        ([3, 0, 2], [5, 5], [0, 2]),
        trapped("HFGRTR_EL2.nGCS_EL1"),
    ),
    one("GCSPR_EL0", "9.4", [3, 3, 2, 5, 1], trapped("HFGRTR_EL2.nGCS_EL0")),
    some("MAIR_EL1", "8.0", ([3, 0, 10], [2, 2], [0, 0]), SAVED),
    one("MAIR2_EL1", "8.9", [3, 0, 10, 2, 1], trapped("HFGRTR_EL2.nMAIR2_EL1")),
    some("PIRE0_EL1, PIR_EL1", "8.9", ([3, 0, 10], [2, 2], [2, 3]), trapped("HFGRTR_EL2.nPIR_EL1")),
    some("POR_EL1, S2POR_EL1", "8.9", ([3, 0, 10], [2, 2], [4, 5]), trapped("HFGRTR_EL2.nPOR_EL1")),
    one("POR_EL0", "8.9", [3, 3, 10, 2, 4], trapped("HFGRTR_EL2.nPOR_EL0")),
    one("AMAIR_EL1", "8.0", [3, 0, 10, 3, 0], SAVED),
    one("AMAIR2_EL1", "8.9", [3, 0, 10, 3, 1], trapped("HFGRTR_EL2.nAMAIR2_EL1")),
    one("MPAMIDR_EL1", "8.4", [3, 0, 10, 4, 4], trapped("MPAM2_EL2.TIDR")),
    some("LOR*_EL1", "8.1", ([3, 0, 10], [4, 4], [0, 7]), trapped("HCR_EL2.TLOR")),
    some(
        "MPAM*_EL1",
        "8.4",
        ([3, 0, 10], [5, 5], [0, 3]),
        trapped("MPAM2_EL2.TRAPMPAM0EL1, TRAPMPAM1EL1"),
    ),
    // Exceptions and processor state.
    some("SPSR_EL1, ELR_EL1", "8.0", ([3, 0, 4], [0, 0], [0, 1]), SAVED),
    one("SP_EL0", "8.0", [3, 0, 4, 1, 0], SAVED),
    // PSTATE is saved in SPSR_EL2.
    one("SPSel", "8.0", [3, 0, 4, 2, 0], SAVED),
    one("CurrentEL", "8.0", [3, 0, 4, 2, 2], SAVED),
    some("PAN, UAO", "8.1", ([3, 0, 4], [2, 2], [3, 4]), SAVED),
    one("ALLINT", "8.8", [3, 0, 4, 3, 0], SAVED),
    one("PM", "8.9", [3, 0, 4, 3, 1], SAVED),
    some("NZCV, DAIF", "8.0", ([3, 3, 4], [2, 2], [0, 1]), SAVED),
    one("SVCR", "9.2", [3, 3, 4, 2, 2], trapped("CPTR_EL2.TSM")),
    some("DIT, SSBS, TCO", "8.4", ([3, 3, 4], [2, 2], [5, 7]), SAVED),
    some("FPCR, FPSR", "8.0", ([3, 3, 4], [4, 4], [0, 1]), SAVED),
    one("FPMR", "9.5", [3, 3, 4, 4, 2], trapped("HCRX_EL2.EnFPM")),
    some("AFSR0_EL1, AFSR1_EL1", "8.0", ([3, 0, 5], [1, 1], [0, 1]), SAVED),
    one("ESR_EL1", "8.0", [3, 0, 5, 2, 0], SAVED),
    some("ERR*_EL1, ERX*_EL1", "8.2", ([3, 0, 5], [3, 5], [0, 7]), trapped("HCR_EL2.TERR, FIEN")),
    some("TFSR_EL1, TFSRE0_EL1", "8.5", ([3, 0, 5], [6, 6], [0, 1]), trapped("HCR_EL2.ATA")),
    one("FAR_EL1", "8.0", [3, 0, 6, 0, 0], SAVED),
    one("PFAR_EL1", "8.9", [3, 0, 6, 0, 5], trapped("HFGRTR2_EL2.nPFAR_EL1")),
    one("PAR_EL1", "8.0", [3, 0, 7, 4, 0], SAVED),
    one("VBAR_EL1", "8.0", [3, 0, 12, 0, 0], SAVED),
    one("ISR_EL1", "8.0", [3, 0, 12, 1, 0], Fate::Constant("what is pending for the vCPU")),
    one(
        "DISR_EL1",
        "8.2",
        [3, 0, 12, 1, 1],
        Fate::Constant("VDISR_EL2 is zero when a vCPU gets the core"),
    ),
    one("CONTEXTIDR_EL1", "8.0", [3, 0, 13, 0, 1], SAVED),
    one("RCWSMASK_EL1", "8.9", [3, 0, 13, 0, 3], trapped("HFGRTR_EL2.nRCWMASK_EL1")),
    one("TPIDR_EL1", "8.0", [3, 0, 13, 0, 4], SAVED),
    one("ACCDATA_EL1", "8.7", [3, 0, 13, 0, 5], trapped("HFGRTR_EL2.nACCDATA_EL1")),
    one("RCWMASK_EL1", "8.9", [3, 0, 13, 0, 6], trapped("HFGRTR_EL2.nRCWMASK_EL1")),
    one("SCXTNUM_EL1", "8.5", [3, 0, 13, 0, 7], trapped("HCR_EL2.EnSCXT")),
    some("TPIDR_EL0, TPIDRRO_EL0", "8.0", ([3, 3, 13], [0, 0], [2, 3]), SAVED),
    one(
        "TPIDR2_EL0",
        "9.2",
        [3, 3, 13, 0, 5],
        Fate::Constant("HFGRTR_EL2.nTPIDR2_EL0 traps it, or it is zero when a vCPU gets the core"),
    ),
    one("SCXTNUM_EL0", "8.5", [3, 3, 13, 0, 7], trapped("HCR_EL2.EnSCXT")),
    // Random numbers, time.
    some("RNDR, RNDRRS", "8.5", ([3, 3, 2], [4, 4], [0, 1]), Fate::Constant("it is random")),
    one("CNTKCTL_EL1", "8.0", [3, 0, 14, 1, 0], SAVED),
    one("CNTFRQ_EL0", "8.0", [3, 3, 14, 0, 0], IDENTIFICATION),
    some("CNTPCT_EL0, CNTVCT_EL0", "8.0", ([3, 3, 14], [0, 0], [1, 2]), TIME),
    some("CNTPCTSS_EL0, CNTVCTSS_EL0", "8.6", ([3, 3, 14], [0, 0], [5, 6]), TIME),
    some("CNTP_*_EL0, CNTV_*_EL0", "8.0", ([3, 3, 14], [2, 3], [0, 2]), SAVED),
    // Guests access the virtual CPU interface of the GIC.
    one("ICC_PMR_EL1", "8.0", [3, 0, 4, 6, 0], SAVED),
    some("ICC_*", "8.0", ([3, 0, 12], [8, 9], [0, 7]), SAVED),
    one("ICC_DIR_EL1", "8.0", [3, 0, 12, 11, 1], trapped("ICH_HCR_EL2.TDIR")),
    one("ICC_RPR_EL1", "8.0", [3, 0, 12, 11, 3], SAVED),
    some("ICC_SGI1R_EL1, ..", "8.0", ([3, 0, 12], [11, 11], [5, 7]), trapped("HCR_EL2.IMO, FMO")),
    one("ICC_SRE_EL1", "8.0", [3, 0, 12, 12, 5], trapped("ICC_SRE_EL2.Enable")),
    some("ICC_*", "8.0", ([3, 0, 12], [12, 12], [0, 7]), SAVED),
    // Registers of individual processor models.
    some("implementation defined", "8.0", ([3, 0, 11], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 0, 15], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 1, 11], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 1, 15], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 2, 11], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 2, 15], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 3, 11], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 3, 15], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 7, 11], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    some("implementation defined", "8.0", ([3, 7, 15], [0, 15], [0, 7]), trapped("HCR_EL2.TIDCP")),
    // Monitors, trace, profiling.
    some("PMS*_EL1, PMB*_EL1", "8.2", ([3, 0, 9], [9, 10], [0, 7]), trapped("MDCR_EL2.TPMS, E2PB")),
    some("TRB*_EL1", "9.0", ([3, 0, 9], [11, 11], [0, 7]), trapped("MDCR_EL2.E2TB")),
    some("PM*_EL1", "8.0", ([3, 0, 9], [12, 15], [0, 7]), trapped("MDCR_EL2.TPM")),
    some("PM*_EL0", "8.0", ([3, 3, 9], [12, 15], [0, 7]), trapped("MDCR_EL2.TPM, TPMCR")),
    some("PMEVCNTR*, PMEVTYPER*", "8.0", ([3, 3, 14], [8, 15], [0, 7]), trapped("MDCR_EL2.TPM")),
    some("PMEVCNTSVR*_EL1", "8.9", ([3, 0, 14], [8, 15], [0, 7]), trapped("MDCR_EL2.TPM")),
    some("AM*_EL0", "8.4", ([3, 3, 13], [2, 15], [0, 7]), trapped("CPTR_EL2.TAM")),
    // Debug and trace, op0 2.
    some("DBG*, MDSCR_EL1, ..", "8.0", ([2, 0, 0], [0, 15], [0, 7]), trapped("MDCR_EL2.TDA")),
    some(
        "OS*, MDRAR_EL1, ..",
        "8.0",
        ([2, 0, 1], [0, 15], [0, 7]),
        trapped("MDCR_EL2.TDOSA, TDRA"),
    ),
    some("DBGCLAIM*, ..", "8.0", ([2, 0, 7], [8, 15], [6, 6]), trapped("MDCR_EL2.TDA")),
    some("MDCCSR_EL0, DBGDTR*", "8.0", ([2, 3, 0], [1, 5], [0, 0]), trapped("MDCR_EL2.TDA")),
    some("SPM*, PMU's snapshots", "8.9", ([2, 0, 9], [0, 15], [0, 7]), trapped("MDCR_EL2.EnSPM")),
];

#[cfg(test)]
mod tests {
    use super::{Fate, REGISTERS, find};
    use crate::{
        esr::SysRegAccess,
        id::{GicVersion, IdRegisters},
        sysreg::{SysRegOutcome, access},
    };

    #[test]
    fn each_row_is_found_and_ranges_are_in_order() {
        for row in REGISTERS {
            let ([op0, op1, crn], crm, op2) = row.at;
            assert!(crm[0] <= crm[1] && op2[0] <= op2[1] && op2[1] < 8, "{row:?}");
            let first = find([op0, op1, crn, crm[0], op2[0]]).expect("a row");
            let last = find([op0, op1, crn, crm[1], op2[1]]).expect("a row");
            assert!([first, last].contains(&row), "{row:?} is hidden");
        }
        assert_eq!(find([3, 4, 1, 1, 0]), None, "HCR_EL2");
    }

    /// The value that EL2 returns for a trapped register does not depend on writes of another vCPU:
    /// it is a value of the VM, zero, or UNDEFINED. Models of a vCPU's own registers answer first.
    #[test]
    fn a_trapped_register_has_no_value_of_another_vcpu() {
        let ids = IdRegisters::from_hardware(GicVersion::V3, |_| u64::MAX);
        for row in REGISTERS {
            let (Fate::Trapped(_), ([op0, op1, crn], crms, op2s)) = (row.fate, row.at) else {
                continue;
            };
            for (crm, op2) in
                (crms[0]..=crms[1]).flat_map(|crm| (op2s[0]..=op2s[1]).map(move |op2| (crm, op2)))
            {
                let of = |write| SysRegAccess::new([op0, op1, crn, crm, op2], 0, write);
                let before = access(of(false), 0, &ids);
                let written = access(of(true), u64::MAX, &ids);
                assert!(!matches!(written, SysRegOutcome::Read(_)), "{row:?}");
                assert_eq!(access(of(false), 0, &ids), before, "{row:?}");
                let sends = matches!(written, SysRegOutcome::SendSgi { .. });
                assert_eq!(sends, (crn, crm) == (12, 11) && op2 >= 5, "{row:?}");
            }
        }
    }
}
