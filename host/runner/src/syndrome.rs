//! Exception syndromes in words.

use weir_vdev::esr::{AbortFault, DataAbort, Exception, InstructionAbort, Syndrome};

/// The meaning of a syndrome register, as text. `esr` is `ESR_EL2` of an exception that a guest
/// took to the hypervisor, or `ESR_EL1` of one that it took itself. Source: Arm ARM (DDI0487)
/// D24.2, "ESR_EL1" and "ESR_EL2".
pub fn words(esr: u64) -> String {
    let syndrome = Syndrome(esr);
    match syndrome.class() {
        // Aborts without a change of level, which only ESR_EL1 can contain.
        0x21 => return instruction_abort(InstructionAbort(syndrome.iss())),
        0x25 => return data_abort(DataAbort(syndrome.iss())),
        0x15 => return format!("SVC {:#x}", syndrome.iss() & 0xffff),
        0x3c => return format!("BRK {:#x}", syndrome.iss() & 0xffff),
        _ => {}
    }
    match syndrome.decode() {
        Exception::Wfx(_) => "WFI or WFE".into(),
        Exception::Hvc { imm } | Exception::Hvc32 { imm } => format!("HVC {imm:#x}"),
        Exception::Smc { imm } => format!("SMC {imm:#x}"),
        Exception::Smc32 => "SMC".into(),
        Exception::SysReg(access) => format!(
            "{} S{}_{}_C{}_C{}_{}",
            if access.is_write() { "MSR" } else { "MRS" },
            access.op0(),
            access.op1(),
            access.crn(),
            access.crm(),
            access.op2()
        ),
        Exception::Coprocessor(access) => format!("coprocessor {} access", access.coprocessor()),
        Exception::DataAbort(abort) => data_abort(abort),
        Exception::InstructionAbort(abort) => instruction_abort(abort),
        Exception::FpTrap => "FP or SIMD trap".into(),
        Exception::PcAlignment => "misaligned PC".into(),
        Exception::SpAlignment => "misaligned SP".into(),
        Exception::IllegalState => "illegal execution state".into(),
        Exception::SError(iss) => format!("SError, syndrome {iss:#x}"),
        Exception::Debug(class) => format!("debug exception of class {class:#04x}"),
        Exception::Unknown(0) if syndrome.iss() == 0 => "undefined instruction".into(),
        Exception::Unknown(class) => format!("exception of class {class:#04x}"),
    }
}

fn data_abort(abort: DataAbort) -> String {
    let access = match (abort.is_cache_maintenance(), abort.is_write()) {
        (true, _) => "cache maintenance",
        (false, true) => "store",
        (false, false) => "load",
    };
    let walk = if abort.is_on_walk() { ", on a table walk" } else { "" };
    format!("data abort: {access}, {}{walk}", fault(abort.fault()))
}

fn instruction_abort(abort: InstructionAbort) -> String {
    let walk = if abort.is_on_walk() { ", on a table walk" } else { "" };
    format!("instruction abort: {}{walk}", fault(abort.fault()))
}

fn fault(fault: AbortFault) -> String {
    match fault {
        AbortFault::AddressSize(level) => format!("address size fault at level {level}"),
        AbortFault::Translation(level) => format!("translation fault at level {level}"),
        AbortFault::AccessFlag(level) => format!("access flag fault at level {level}"),
        AbortFault::Permission(level) => format!("permission fault at level {level}"),
        AbortFault::External => "external abort".into(),
        AbortFault::ExternalOnWalk(level) => format!("external abort on a walk at level {level}"),
        AbortFault::TagCheck => "tag check fault".into(),
        AbortFault::Parity => "parity or ECC error".into(),
        AbortFault::Alignment => "alignment fault".into(),
        AbortFault::TlbConflict => "TLB conflict".into(),
        AbortFault::UnsupportedAtomic => "unsupported atomic or exclusive access".into(),
        AbortFault::Other(code) => format!("fault status {code:#04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn known_syndromes_read_as_in_the_manual() {
        assert_eq!(words(0x9200_0046), "data abort: store, translation fault at level 2");
        assert_eq!(words(0x9600_0006), "data abort: load, translation fault at level 2");
        assert_eq!(words(0x8600_000f), "instruction abort: permission fault at level 3");
        assert_eq!(words(0x0200_0000), "undefined instruction");
        assert_eq!(words(0x5600_0003), "SVC 0x3");
        assert_eq!(words(0x5a00_0001), "HVC 0x1");
        // MRS X0, PMCR_EL0 (S3_3_C9_C12_0).
        assert_eq!(words(0x6230_e419), "MRS S3_3_C9_C12_0");
    }

    #[test]
    fn no_syndrome_panics() {
        for class in 0..64u64 {
            for iss in [0, 1, 0x3f, 0x1ff_ffff, 0x155_5555] {
                assert!(!words(class << 26 | iss).is_empty());
            }
        }
    }
}
