//! Syndromes (DDI0487 D24.2).

use proptest::prelude::*;
use weir_vdev::esr::{self, AbortFault, Exception, MmioAccess, Syndrome, SysRegAccess};

const fn esr(class: u64, iss: u64) -> Syndrome {
    Syndrome(class << 26 | 1 << 25 | iss)
}

#[test]
fn classes() {
    assert_eq!(esr(0x16, 0x1234).decode(), Exception::Hvc { imm: 0x1234 });
    assert_eq!(esr(0x17, 7).decode(), Exception::Smc { imm: 7 });
    assert_eq!(esr(0x12, 7).decode(), Exception::Hvc32 { imm: 7 });
    assert_eq!(esr(0x13, 0).decode(), Exception::Smc32);
    assert_eq!(esr(0x01, 1).decode(), Exception::Wfx(1));
    assert_eq!(esr(0x01, 1 << 24).decode(), Exception::Wfx(0));
    assert_eq!(esr(0x00, 0).decode(), Exception::Unknown(0));
    assert_eq!(esr(0x2f, 5).decode(), Exception::SError(5));
    for trapped_vector in [0x07, 0x19, 0x1d] {
        assert_eq!(esr(trapped_vector, 0).decode(), Exception::FpTrap);
    }
    for debug in [0x30, 0x32, 0x34, 0x38, 0x3c] {
        assert_eq!(esr(debug, 0).decode(), Exception::Debug(debug as u8));
    }
    // Aborts and PC faults of EL2 itself are not a guest's.
    assert_eq!(esr(0x25, 0).decode(), Exception::Unknown(0x25));
    assert_eq!(esr(0x21, 0).decode(), Exception::Unknown(0x21));
}

#[test]
fn an_instruction_has_two_or_four_bytes() {
    assert_eq!(esr(0x24, 0).instruction_len(), 4);
    // T32: IL is clear.
    assert_eq!(Syndrome(0x24 << 26).instruction_len(), 2);
    assert_eq!(Syndrome(0x01 << 26).instruction_len(), 2);
}

/// AArch32 user mode in T32 state with this ITSTATE.
const fn t32(it: u64) -> u64 {
    0x30 | it >> 2 << 10 | (it & 3) << 25
}

#[test]
fn the_state_behind_an_instruction_is_the_next_ones() {
    // ITTEE EQ: EQ, EQ, NE, NE, and none (DDI0487, F5.1.77 and `AArch32.ITAdvance`).
    let mut spsr = t32(0b0000_0111);
    for next in [0b0000_1110, 0b0001_1100, 0b0001_1000, 0] {
        spsr = Syndrome::behind(spsr);
        assert_eq!(spsr, t32(next), "{next:#b}");
    }
    // IT GT: one instruction, then none.
    assert_eq!(Syndrome::behind(t32(0b1100_1000)), t32(0));
    assert_eq!(Syndrome::behind(t32(0)), t32(0));
    // The flags and the other bits stay; single step is done with it.
    let other = 0xf000_0000 | 1 << 21;
    assert_eq!(Syndrome::behind(other | t32(0b1100_1000)), 0xf000_0000 | t32(0));
    // A32 and AArch64 have no IT state; the bits are others' there.
    for spsr in [0x10 | 0x3f << 10, 0x3c5 | 3 << 10] {
        assert_eq!(Syndrome::behind(spsr | 1 << 21), spsr);
    }
}

#[test]
fn system_register_fields() {
    // MRS X5, ICC_IAR1_EL1 is S3_0_C12_C12_0; the syndrome was put together by hand from the figure
    // in D24.2.
    let Exception::SysReg(access) = esr(0x18, 0b11_0000_0011_0000_1011_1001).decode() else {
        panic!("not a system register access");
    };
    assert_eq!(
        (access.op0(), access.op1(), access.crn(), access.crm(), access.op2(), access.rt()),
        (3, 0, 12, 12, 0, 5)
    );
    assert!(!access.is_write());
}

#[test]
fn coprocessor_fields() {
    // MRC p15, 0, r2, c9, c13, 0 (PMCCNTR), condition AL.
    let iss = 1 << 24 | 0xe << 20 | 9 << 10 | 2 << 5 | 13 << 1 | 1;
    let Exception::Coprocessor(access) = esr(0x03, iss).decode() else {
        panic!("not a coprocessor access");
    };
    assert_eq!((access.coprocessor(), access.opc1(), access.crn(), access.crm()), (15, 0, 9, 13));
    assert!(!access.is_double());
    // MCRR p14, 1: opc1 is bits 19:16.
    let Exception::Coprocessor(access) = esr(0x0c, 1 << 16).decode() else {
        panic!("not a coprocessor access");
    };
    assert_eq!((access.coprocessor(), access.opc1()), (14, 1));
    assert!(access.is_double());
}

#[test]
fn conditions() {
    let eq = |flags: u64| esr(0x03, 1 << 24).condition_passed(flags << 28 | 0x10);
    assert!(eq(0b0100) && !eq(0b1011));
    let ne = |flags: u64| esr(0x03, 1 << 24 | 1 << 20).condition_passed(flags << 28 | 0x10);
    assert!(!ne(0b0100) && ne(0b1011));
    let gt = |flags: u64| esr(0x05, 1 << 24 | 12 << 20).condition_passed(flags << 28 | 0x10);
    assert!(gt(0b0000) && gt(0b1001) && !gt(0b1000) && !gt(0b0100));
    for always in [14, 15] {
        assert!(esr(0x03, 1 << 24 | always << 20).condition_passed(0x10));
    }
    // T32 without a recorded condition: IT = 0b0000_1000 means EQ in its last instruction.
    let it_eq = 0b10 << 10 | 0x30;
    assert!(!esr(0x03, 0).condition_passed(it_eq));
    assert!(esr(0x03, 0).condition_passed(it_eq | 1 << 30));
    assert!(esr(0x03, 0).condition_passed(0x30));
    // WFI: condition NE, with Z set and clear; and in an IT block.
    let wfi = esr(0x01, 1 << 24 | 1 << 20);
    assert!(!wfi.condition_passed(0x10 | 1 << 30) && wfi.condition_passed(0x10));
    assert!(!esr(0x01, 0).condition_passed(t32(0b0001_1000) | 1 << 30));
    // AArch64 has no conditions.
    assert!(esr(0x18, 0).condition_passed(0x3c5));
    // SMC32 that is known to have passed.
    assert!(esr(0x13, 1 << 24).condition_passed(0x10));
    assert!(!esr(0x13, 1 << 24 | 1 << 19).condition_passed(0x10));
}

fn abort(iss: u64) -> esr::DataAbort {
    match esr(0x24, iss).decode() {
        Exception::DataAbort(abort) => abort,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fault_status() {
    assert_eq!(abort(0x07).fault(), AbortFault::Translation(3));
    assert_eq!(abort(0x04).fault(), AbortFault::Translation(0));
    assert_eq!(abort(0x0f).fault(), AbortFault::Permission(3));
    assert_eq!(abort(0x09).fault(), AbortFault::AccessFlag(1));
    assert_eq!(abort(0x00).fault(), AbortFault::AddressSize(0));
    assert_eq!(abort(0x10).fault(), AbortFault::External);
    assert_eq!(abort(0x16).fault(), AbortFault::ExternalOnWalk(2));
    assert_eq!(abort(0x2b).fault(), AbortFault::Translation(-1));
    assert_eq!(abort(0x21).fault(), AbortFault::Alignment);
    assert_eq!(abort(0x35).fault(), AbortFault::UnsupportedAtomic);
    assert_eq!(abort(0x3f).fault(), AbortFault::Other(0x3f));
}

/// ISV, translation fault at level 3.
const DESCRIBED: u64 = 1 << 24 | 7;

#[test]
fn mmio() {
    // LDRSH W3, [..] at IPA 0x0900_0018.
    let access = abort(DESCRIBED | 1 << 22 | 1 << 21 | 3 << 16)
        .mmio(0x0900_0000 >> 8, 0xffff_8000_1234_5018)
        .expect("described");
    assert_eq!(
        access,
        MmioAccess {
            ipa: 0x0900_0018,
            size: 2,
            write: false,
            reg: 3,
            sign_extend: true,
            sixty_four: false
        }
    );
    assert_eq!(access.extend(0x1234_8001), 0xffff_8001);
    // STR X30, [..].
    let access = abort(DESCRIBED | 3 << 22 | 30 << 16 | 1 << 15 | 1 << 6).mmio(0x80_0000, 8);
    let access = access.expect("described");
    assert_eq!((access.ipa, access.size, access.write), (0x8000_0008, 8, true));
    assert_eq!(access.truncate(u64::MAX), u64::MAX);
    // Not described, a table walk, cache maintenance, HPFAR_EL2 unknown.
    assert_eq!(abort(7).mmio(0x9_0000, 0), None);
    assert_eq!(abort(DESCRIBED | 1 << 7).mmio(0x9_0000, 0), None);
    assert_eq!(abort(DESCRIBED | 1 << 8).mmio(0x9_0000, 0), None);
    assert_eq!(abort(1 << 24 | 0x0f).mmio(0x9_0000, 0), None);
}

#[test]
fn ipa_is_known_where_the_architecture_writes_it() {
    // A permission fault leaves HPFAR_EL2 unknown, one on a stage 1 walk does not; the offset of a
    // descriptor is unknown.
    assert_eq!(abort(0x0f).ipa(0x1230, 0x678), None);
    assert_eq!(abort(0x0f | 1 << 7).ipa(0x1230, 0x678), Some(0x12_3000));
    assert_eq!(abort(0x06).ipa(0x1230, 0x678), Some(0x12_3678));
    assert_eq!(abort(0x10).ipa(0x1230, 0x678), None);
    // NS is not part of the address.
    assert_eq!(abort(0x06).ipa(1 << 63 | 0x1230, 0), Some(0x12_3000));
    let Exception::InstructionAbort(fetch) = esr(0x20, 0x06).decode() else {
        panic!("not an instruction abort");
    };
    assert_eq!(fetch.ipa(0x1230, 0xffc), Some(0x12_3ffc));
}

proptest! {
    /// The read-result rule against the words of the manual, done bit by bit.
    #[test]
    fn extension(value: u64, log: u8, sign_extend: bool, sixty_four: bool) {
        let size = 1 << (log % 4);
        let access = MmioAccess { ipa: 0, size, write: false, reg: 0, sign_extend, sixty_four };
        let bits = u32::from(size) * 8;
        let sign = value >> (bits - 1) & 1 == 1;
        let mut expected = 0;
        for bit in 0..64 {
            let set = if bit < bits { value >> bit & 1 == 1 } else { sign && sign_extend };
            if set && (sixty_four || bit < 32) {
                expected |= 1 << bit;
            }
        }
        prop_assert_eq!(access.extend(value), expected);
        prop_assert_eq!(access.truncate(value), (u128::from(value) % (1u128 << bits)) as u64);
    }

    #[test]
    fn register_fields_come_back(fields: [u8; 5], rt in 0u8..32, write: bool) {
        let [op0, op1, crn, crm, op2] = fields;
        let access = SysRegAccess::new(fields, rt, write);
        prop_assert_eq!(
            [access.op0(), access.op1(), access.crn(), access.crm(), access.op2()],
            [op0 & 3, op1 & 7, crn & 15, crm & 15, op2 & 7]
        );
        prop_assert_eq!((access.rt(), access.is_write()), (rt, write));
    }

    /// No syndrome, address or field value panics, and an IPA never exceeds 56 bits.
    #[test]
    fn anything_decodes(raw: u64, spsr: u64, hpfar: u64, far: u64, size: u8) {
        let syndrome = Syndrome(raw);
        let _ = (syndrome.instruction_len(), syndrome.condition_passed(spsr), Syndrome::behind(spsr));
        let access =
            MmioAccess { ipa: 0, size, write: false, reg: 0, sign_extend: true, sixty_four: true };
        let _ = (access.extend(raw), access.truncate(raw));
        match syndrome.decode() {
            Exception::DataAbort(abort) => {
                prop_assert!(abort.ipa(hpfar, far).is_none_or(|ipa| ipa >> 56 == 0));
                if let Some(access) = abort.mmio(hpfar, far) {
                    prop_assert!(access.reg < 32 && [1, 2, 4, 8].contains(&access.size));
                    prop_assert_eq!(Some(access.ipa), abort.ipa(hpfar, far));
                }
            }
            Exception::InstructionAbort(abort) => {
                prop_assert!(abort.ipa(hpfar, far).is_none_or(|ipa| ipa >> 56 == 0));
            }
            _ => {}
        }
    }
}

#[test]
fn only_an_serror_ends_the_vm_that_leaves_a_core() {
    // ISR_EL1: A is bit 8; I and F, bits 7 and 6, are interrupts, which wait for their VMs.
    assert!(esr::is_serror_pending(0x100) && esr::is_serror_pending(0x1c0));
    assert!(!esr::is_serror_pending(0) && !esr::is_serror_pending(0xc0));
}
