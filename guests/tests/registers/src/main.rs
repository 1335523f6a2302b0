//! Writes every system register that it can reach, or watches whether one changes: two of them on
//! one core show whether a register is a channel. Every encoding of MRS and MSR is tried, of all
//! versions of the architecture.
//!
//! `do=write` writes patterns for ever, but to the registers that rule its own execution. `do=watch` reads all for `for_us=`. A register that changes, or that can be read
//! and is not one of `weir_vdev::registers` as saved or constant, is reported. Registers that change
//! by themselves, as counters do, are known from the same list.
//!
//! ```text
//! registers: S3_0_C12_C1_1 changes from 0x0 to 0x80000000
//! registers: S3_0_C1_C2_1 can be read; listed: TRFCR_EL1
//! registers: 94 read, 1 changed, 1 not as listed
//! registers: 62 written from 101034 us on
//! ```

#![no_std]
#![no_main]

use core::{
    arch::{asm, global_asm},
    sync::atomic::{AtomicBool, Ordering},
};
use weir_guest::{
    Board, cpu, entry,
    exceptions::{self, Sync},
    println, psci, time,
};
use weir_vdev::registers::{Fate, find};

entry!(main);

// Two instructions for each encoding: the access, with x0, and RET.
global_asm!(
    r#"
    .section .text.registers, "ax"
    .balign 8
registers_read:
    .set    encoding, 0
    .rept   32768
    .inst   0xd5300000 | encoding << 5
    ret
    .set    encoding, encoding + 1
    .endr
registers_write:
    .set    encoding, 0
    .rept   32768
    .inst   0xd5100000 | encoding << 5
    ret
    .set    encoding, encoding + 1
    .endr
"#
);

unsafe extern "C" {
    static registers_read: u64;
    static registers_write: u64;
}

/// op0 2 and 3, op1, CRn, CRm, op2.
const ENCODINGS: usize = 1 << 15;
/// Most registers that can be read.
const MOST: usize = 1024;

/// The last access was UNDEFINED.
static FAILED: AtomicBool = AtomicBool::new(false);

/// op0, op1, CRn, CRm, op2 of encoding `n`.
const fn fields(n: usize) -> [u8; 5] {
    let n = n as u32;
    [
        (2 + (n >> 14)) as u8,
        (n >> 11 & 7) as u8,
        (n >> 7 & 15) as u8,
        (n >> 3 & 15) as u8,
        (n & 7) as u8,
    ]
}

/// Calls the instruction for encoding `n` of those at `table` with `value` in x0; returns x0, or
/// none if it is UNDEFINED.
fn call(table: *const u64, n: usize, value: u64) -> Option<u64> {
    FAILED.store(false, Ordering::Relaxed);
    let mut x0 = value;
    // SAFETY: the instruction changes a register that rules nothing of this guest's, or x0, and the
    // next one returns; an exception goes on at that.
    unsafe {
        asm!("blr {to}", to = in(reg) table.wrapping_add(n), inout("x0") x0, out("x30") _,
            options(nostack));
    }
    (!FAILED.load(Ordering::Relaxed)).then_some(x0)
}

fn read(n: usize) -> Option<u64> {
    call(&raw const registers_read, n, 0)
}

fn write(n: usize, value: u64) -> bool {
    call(&raw const registers_write, n, value).is_some()
}

/// Those that a guest can't write as it likes: they rule its translation, stack, vectors, traps,
/// masks and timers' interrupts, or send interrupts.
const fn rules_execution(fields: [u8; 5]) -> bool {
    matches!(
        fields,
        // SCTLR, CPACR, TTBR0, TTBR1, TCR, MAIR, VBAR.
        [3, 0, 1, 0, 0 | 2] | [3, 0, 2, 0, 0..=2] | [3, 0, 10, 2, 0] | [3, 0, 12, 0, 0]
        // SPSR, ELR, SP_EL0, ALLINT; SPSel, PAN; DAIF.
        | [3, 0, 4, 0..=1 | 3, _] | [3, 0, 4, 2, 0 | 3] | [3, 3, 4, 2, 1]
        // SGIs; MDSCR; CNTP_CTL, CNTV_CTL.
        | [3, 0, 12, 11, 5..=7] | [2, 0, 0, 2, 2] | [3, 3, 14, 2..=3, 1]
    )
}

/// Those that change without a write.
const fn changes_by_itself(fields: [u8; 5]) -> bool {
    // Random numbers, flags; counters, and what is left of timers.
    matches!(fields, [3, 3, 2, 4, _] | [3, 3, 4, 2, 0] | [3, 3, 14, 0, _] | [3, 3, 14, 2..=3, 0])
}

fn main(board: &'static Board) -> ! {
    cpu::mask_interrupts();
    exceptions::on_sync(|exception: Sync| {
        FAILED.store(true, Ordering::Relaxed);
        exception.elr + 4
    });
    match board.args.get("do") {
        Some("write") => write_all(),
        Some("watch") => watch_all(board),
        other => panic!("do={other:?}"),
    }
    psci::system_off()
}

fn write_all() {
    let mut some = [0_u16; MOST];
    let mut len = 0;
    for n in (0..ENCODINGS).filter(|n| !rules_execution(fields(*n))) {
        if write(n, 0xa5a5_a5a5_a5a5_a5a5) && len < MOST {
            some[len] = n as u16;
            len += 1;
        }
    }
    println!("registers: {len} written from {} us on", time::now_ns() / 1000);
    for turn in 0_u64.. {
        let value = if turn % 2 == 0 { u64::MAX } else { 0x5a5a_5a5a_5a5a_5a5a };
        for n in &some[..len] {
            write((*n).into(), value ^ turn);
        }
    }
}

fn watch_all(board: &Board) {
    let end = time::now_ns() + board.args.number("for_us", 0) * 1000;
    let mut some = [(0_u16, 0_u64); MOST];
    let (mut len, mut odd, mut changed) = (0, 0, 0);
    for n in 0..ENCODINGS {
        let Some(value) = read(n) else { continue };
        let [op0, op1, crn, crm, op2] = fields(n);
        let row = find(fields(n));
        // A trap may give a value of the VM's own, as those of the ID registers are.
        let listed = match row.map(|row| row.fate) {
            Some(Fate::Saved | Fate::Constant(_)) => true,
            Some(Fate::Trapped(_)) => TRAPPED_WITH_VALUE.iter().any(|has| has(fields(n))),
            None => false,
        };
        if !listed {
            odd += 1;
            let name = row.map_or("nothing", |row| row.name);
            println!("registers: S{op0}_{op1}_C{crn}_C{crm}_{op2} can be read; listed: {name}");
        }
        if !changes_by_itself(fields(n)) && len < MOST {
            some[len] = (n as u16, value);
            len += 1;
        }
    }
    // The exceptions of the first round have changed some.
    for (n, value) in &mut some[..len] {
        *value = read((*n).into()).unwrap_or(0);
    }
    println!("registers: {len} watched");
    while time::now_ns() < end {
        for (n, value) in &mut some[..len] {
            let now = read((*n).into()).unwrap_or(0);
            if now != *value {
                let [op0, op1, crn, crm, op2] = fields((*n).into());
                println!(
                    "registers: S{op0}_{op1}_C{crn}_C{crm}_{op2} changes from {value:#x} to {now:#x}"
                );
                changed += 1;
                *value = now;
            }
        }
    }
    println!("registers: {len} read, {changed} changed, {odd} not as listed");
}

/// Trapped registers that EL2 answers by a value: feature identification, ACTLR_EL1, ICC_SRE_EL1,
/// and those of debug that every processor has. QEMU 7.2 traps neither those of a processor
/// model alone nor SMPRI_EL1; there they are constants.
const TRAPPED_WITH_VALUE: [fn([u8; 5]) -> bool; 6] = [
    |fields| matches!(fields, [3, 0, 1, 2, 4]),
    |fields| matches!(fields, [3, _, 11 | 15, _, _]),
    |fields| matches!(fields, [3, 0, 0, 1..=7, _]),
    |fields| matches!(fields, [3, 0, 1, 0, 1]),
    |fields| matches!(fields, [3, 0, 12, 12, 5]),
    |fields| matches!(fields, [2, 0 | 3, 0 | 1 | 7, _, _]),
];
