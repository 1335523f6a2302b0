//! What the linked programs contain: barriers behind each ERET of the hypervisor, and no pattern of
//! the errata of Cortex-A53 r0p0 to r0p4 that the build works around.

use crate::support::qemu::{build_programs, root};
use std::fs;

/// Loads, stores and prefetches: the class of DDI0487, C4.1 with bits 27 and 25 = 1 and 0.
const fn is_memory_access(word: u32) -> bool {
    word & 0x0a00_0000 == 0x0800_0000
}

/// 64-bit multiply-accumulate: MADD, MSUB, SMADDL, SMSUBL, UMADDL and UMSUBL that add to a
/// register.
const fn is_multiply_accumulate(word: u32) -> bool {
    let is_64_bit = word & 0xff00_0000 == 0x9b00_0000;
    is_64_bit && matches!(word >> 21 & 7, 0 | 1 | 5) && word >> 10 & 31 != 31
}

/// Offsets at which erratum 835769 can strike: a multiply-accumulate directly behind an access to
/// memory.
fn multiply_after_access(words: &[u32]) -> Vec<usize> {
    let pairs = words.windows(2).enumerate();
    pairs
        .filter(|(_, pair)| is_memory_access(pair[0]) && is_multiply_accumulate(pair[1]))
        .map(|(at, _)| at * 4)
        .collect()
}

const ERET: u32 = 0xd69f_03e0;

/// Offsets of ERETs that are not followed by DSB NSH and ISB, which stop speculation behind them.
fn open_erets(words: &[u32]) -> Vec<usize> {
    const BARRIERS: [u32; 2] = [0xd503_379f, 0xd503_3fdf];
    let erets = words.iter().enumerate().filter(|(_, word)| **word == ERET);
    erets.filter(|(at, _)| !words[at + 1..].starts_with(&BARRIERS)).map(|(at, _)| at * 4).collect()
}

/// Whether a word is a branch (DDI 0487, C4.1.65): to an immediate, by a comparison or a bit, by a
/// condition, or to a register.
fn is_branch(word: u32) -> bool {
    let classes = [
        (0x7c00_0000, 0x1400_0000),
        (0x7c00_0000, 0x3400_0000),
        (0xfe00_0000, 0x5400_0000),
        (0xfe00_0000, 0xd600_0000),
    ];
    classes.into_iter().any(|(mask, value)| word & mask == value)
}

/// Whether a load writes to `register`, of those with one target: exclusive or ordered, from a
/// literal, of a single register (DDI 0487, C4.1.88).
const fn loads_to(word: u32, register: u32) -> bool {
    // Not of a pair, and no compare and swap.
    let is_ordered_load = word & 0x3f60_0000 == 0x0840_0000;
    // Size 3 is a prefetch, as is size 3 with opc 2 below.
    let is_literal = word & 0x3f00_0000 == 0x1800_0000 && word >> 30 != 3;
    // opc is 0 in stores.
    let is_single = word & 0x3e00_0000 == 0x3800_0000;
    let is_single_load = is_single && word & 0x00c0_0000 != 0 && word & 0xc0c0_0000 != 0xc080_0000;
    word & 31 == register && (is_ordered_load || is_literal || is_single_load)
}

/// Offsets at which erratum 843419 can strike: ADRP in one of the last two words of a page, an
/// access to memory other than a load of a pair or of the register that ADRP wrote, up to one
/// other instruction that is no branch, and a load or store with an unsigned offset from the
/// register that ADRP wrote (ARM-EPM-048406). `first` is the address of the first word.
fn adrp_at_page_end(words: &[u32], first: u64) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, sequence) in words.windows(3).enumerate() {
        let offset = first.wrapping_add(at as u64 * 4) & 0xfff;
        if !matches!(offset, 0xff8 | 0xffc) || sequence[0] & 0x9f00_0000 != 0x9000_0000 {
            continue;
        }
        let base = sequence[0] & 31;
        let uses = |word: &u32| word & 0x3b00_0000 == 0x3900_0000 && word >> 5 & 31 == base;
        // The linker puts a branch in the place of the first use; another use can follow that.
        let last = if is_branch(sequence[2]) { 0 } else { 2 };
        let last = words.get(at + 2..).unwrap_or(&[]).iter().take(last);
        let loads_pair = sequence[1] & 0x3a40_0000 == 0x2840_0000;
        let second = is_memory_access(sequence[1]) && !loads_pair && !loads_to(sequence[1], base);
        if second && last.into_iter().any(uses) {
            found.push(at * 4);
        }
    }
    found
}

/// The executable sections of a 64-bit little-endian ELF: address and words of each.
fn code(elf: &[u8]) -> Vec<(u64, Vec<u32>)> {
    let number = |at: usize, len: usize| {
        elf[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    assert_eq!(&elf[..5], b"\x7fELF\x02");
    let (table, count) = (number(40, 8) as usize, number(60, 2) as usize);
    let sections = (0..count).map(|section| table + section * 64);
    // SHT_PROGBITS with SHF_EXECINSTR.
    sections
        .filter(|at| number(at + 4, 4) == 1 && number(at + 8, 8) & 4 != 0)
        .map(|at| {
            let (offset, len) = (number(at + 24, 8) as usize, number(at + 32, 8) as usize);
            let words = elf[offset..offset + len].chunks_exact(4);
            let words = words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
            (number(at + 16, 8), words.collect())
        })
        .collect()
}

#[test]
fn the_patterns_are_recognized() {
    let (load, madd) = (0xf940_0008, 0x9b01_2040);
    assert_eq!(multiply_after_access(&[0xd503_201f, load, madd]), [4], "ldr x8, [x0]; madd");
    assert_eq!(multiply_after_access(&[0xf800_0008, madd]), [0], "stur x8, [x0]; madd");
    assert_eq!(multiply_after_access(&[0xa9bf_7bfd, 0x9b20_0c41]), [0], "stp; smaddl");
    assert!(multiply_after_access(&[load, 0xd503_201f, madd]).is_empty(), "a NOP between");
    assert!(multiply_after_access(&[load, 0x9b01_7c40]).is_empty(), "mul, which adds nothing");
    assert!(multiply_after_access(&[load, 0x1b01_2040]).is_empty(), "32 bits");
    // adrp x8; str x0, [x1]; ldr x8, [x8, #8]
    let sequence = [0x9000_0008, 0xf900_0020, 0xf940_0508];
    assert_eq!(adrp_at_page_end(&sequence, 0x20_0ff8), [0]);
    assert_eq!(adrp_at_page_end(&sequence, 0x20_0ffc), [0]);
    assert!(adrp_at_page_end(&sequence, 0x20_0ff4).is_empty(), "not at the end of a page");
    let pair = |second| adrp_at_page_end(&[sequence[0], second, sequence[2]], 0xff8);
    assert_eq!((pair(0xa900_0c22), pair(0xa940_0c22)), (vec![0], vec![]), "stp, ldp x2, x3, [x1]");
    // ldr x8, [x8, #208]; ldrb w8, [x8], #1; ldar x8, [x8]; ldr x8, #8; str x8, [x1].
    for load in [0xf940_6908, 0x3840_1508, 0xc8df_fd08, 0x5800_0048] {
        assert!(pair(load).is_empty(), "{load:x}: the address is another one");
    }
    // str x8, [x1]; ldr d8, [x1]; prfm #8, [x1]; prfm #8, #8; casa x0, x8, [x1].
    for other in [0xf900_0028, 0xfd40_0028, 0xf980_0028, 0xd800_0048, 0xc8e0_7c28] {
        assert_eq!(pair(other), [0], "{other:x}");
    }
    let apart = [sequence[0], sequence[1], 0xd503_201f, sequence[2]];
    assert_eq!(adrp_at_page_end(&apart, 0x20_0ff8), [0]);
    // b, b.ne, cbz, tbnz, br, and then a use.
    for branch in [0x1400_0aa0, 0x5400_05e1, 0x3400_0041, 0x3700_0041, 0xd61f_0100] {
        let replaced = [sequence[0], sequence[1], branch, sequence[2]];
        assert!(adrp_at_page_end(&replaced, 0x20_0ff8).is_empty(), "{branch:x}");
    }
}

/// Nothing that follows an ERET of EL2 or EL3 can be executed speculatively.
#[test]
fn barriers_follow_each_eret_of_the_hypervisor() {
    let open = |words| open_erets(words).len();
    assert_eq!(open(&[ERET, 0xd503_379f, 0xd503_3fdf]), 0);
    assert_eq!(open(&[ERET, 0xd503_379f, ERET]), 2);
    build_programs();
    for name in ["qemu-virt", "qemu-virt-gicv2", "qemu-virt-minimal", "zcu102", "rpi4", "gem5"] {
        let program = root().join("build/programs").join(format!("weir-hypervisor-{name}"));
        let code = code(&fs::read(&program).expect("a program"));
        let erets = code.iter().flat_map(|(_, words)| words).filter(|word| **word == ERET);
        assert!(erets.count() > 5, "{name}");
        for (address, words) in code {
            let open = open_erets(&words);
            assert!(open.is_empty(), "{name}: {open:x?} behind {address:#x}");
        }
    }
}

/// The hypervisor with all that is linked into it, the toolchain's own library included, and
/// bare-metal guests.
#[test]
fn no_program_has_patterns_of_cortex_a53_errata() {
    build_programs();
    let programs = fs::read_dir(root().join("build/programs")).expect("the programs");
    let programs =
        programs.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_file()));
    let programs: Vec<_> = programs
        .map(|entry| entry.path())
        .filter(|path| {
            // EM_AARCH64: what QEMU loads is there too.
            let bytes = fs::read(path).unwrap_or_default();
            bytes.starts_with(b"\x7fELF") && bytes.get(18..20) == Some(&[183, 0])
        })
        .collect();
    for name in ["weir-hypervisor-qemu-virt", "weir-hypervisor-zcu102", "echo", "control"] {
        let has = programs.iter().any(|path| path.ends_with(name));
        assert!(has, "no {name} in {programs:?}");
    }
    for program in programs {
        let name = program.file_name().expect("a name").to_string_lossy().into_owned();
        let code = code(&fs::read(&program).expect("a program"));
        let instructions: usize = code.iter().map(|(_, words)| words.len()).sum();
        assert!(instructions > 1000, "{program:?}: {instructions} instructions");
        for (address, words) in code {
            // The compiler separates the pair within a block, and misses a multiplication that
            // begins one: `malicious-driver` has one, the hypervisor none.
            if name.starts_with("weir-hypervisor") {
                let multiply = multiply_after_access(&words);
                assert!(multiply.is_empty(), "835769 in {name}: {multiply:x?} behind {address:#x}");
            }
            let adrp = adrp_at_page_end(&words, address);
            assert!(adrp.is_empty(), "843419 in {program:?}: {adrp:x?} behind {address:#x}");
        }
    }
}
