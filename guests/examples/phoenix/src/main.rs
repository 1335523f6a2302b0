//! Hashes all of its memory before it writes to it, and restarts: every boot must start from the
//! same, pristine memory.
//!
//! `phoenix: boot N hash XXXXXXXX` in each boot, N from 1 (restarts + 1), then SYSTEM_RESET; in
//! boot `boots=` (default 1000) the last line is `phoenix: N boots, hash XXXXXXXX`, then
//! SYSTEM_OFF. A boot remembers nothing of the one before: the reader compares the lines. With
//! `quiet=1` only every 100th boot, the first and the last print. `word=` is any text and changes
//! the hash.
//!
//! **The VM must have 2 MiB of memory, on a boundary of 2 MiB** (`memory = "2MiB"`): what is hashed
//! is the 2 MiB around the program counter, which is all that the first instructions know without a
//! stack. Stack and `.bss` lie in it.
//!
//! The hash is CRC-32C (Castagnoli; polynomial 0x1EDC6F41, reflected 0x82F63B78, initial value and
//! final XOR 0xFFFFFFFF; the CRC of the nine bytes `123456789` is E3069283) over the 2 MiB in order
//! of address, as eight hexadecimal digits. The pristine memory, for a computation from outside,
//! is zero except for the device tree at the start and the ELF file's segments.
//!
//! On QEMU without weir restarts are not counted (each boot is the first), and the machine's device
//! tree holds random numbers unless it is started with `-M virt,dtb-randomness=off`.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use weir_guest::{Board, entry, hypercall, println, psci};

entry!(main);

// The hash waits in TPIDR_EL0, which the runtime leaves alone: a store here would be past the
// caches, and another value could be in them.
global_asm!(
    r#"
    .arch_extension crc
    .section .init.entry, "ax"
    .global phoenix_entry
    phoenix_entry:
        adr     x2, phoenix_entry
        and     x2, x2, #~0x1fffff
        add     x3, x2, #0x200, lsl #12
        mov     w1, #-1
    1:  ldr     x4, [x2], #8
        crc32cx w1, w1, x4
        cmp     x2, x3
        b.ne    1b
        mvn     w1, w1
        msr     tpidr_el0, x1
        b       entry
    "#
);

/// Boots that print in quiet mode: one in so many.
const QUIET: u64 = 100;

fn main(board: &'static Board) -> ! {
    assert!(board.ram.size >= 2 << 20, "phoenix needs 2 MiB of memory");
    let hash: u64;
    // SAFETY: reads what `phoenix_entry` has written.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) hash, options(nomem, nostack)) };
    // Any text: it makes the pristine memory of two systems differ.
    let _ = board.args.get("word");
    let boots = board.args.number("boots", 1000);
    let boot = hypercall::restarts() + 1;
    let quiet = board.args.number("quiet", 0) == 1;
    if !quiet || boot == 1 || boot.is_multiple_of(QUIET) || boot >= boots {
        println!("phoenix: boot {boot} hash {hash:08X}");
    }
    if boot < boots {
        psci::system_reset();
    }
    println!("phoenix: {boot} boots, hash {hash:08X}");
    psci::system_off()
}
