//! Random hypercalls, SMCs and accesses of all sizes to all addresses that it can name, outside of
//! its memory and to virtual devices. `rounds=` of them (10000), chosen by `seed=` (1).
//!
//! It does not ask for its own end: SYSTEM_OFF, SYSTEM_RESET, CPU_OFF and CPU_SUSPEND are left out,
//! and it does not write to its UART, on which it reports. Run it with `on_outside = "abort"`;
//! without, its first access outside ends it.
//!
//! ```text
//! fuzzer: 10000 rounds: 3301 calls, 6699 accesses, 4012 aborts, 930 other exceptions
//! ```

#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, cpu, entry,
    exceptions::{self, Sync},
    println, psci,
    random::Random,
};

entry!(main);

/// External aborts that it took, and other exceptions.
static ABORTS: AtomicU64 = AtomicU64::new(0);
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// Where functions are: architecture, CPU service, SiP, PSCI, vendor's hypervisor, paravirtualized
/// time, Trusted OS; each in 32 and in 64 bits by bit 30.
const RANGES: [u32; 7] =
    [0x8000_0000, 0x8100_0000, 0x8200_0000, 0x8400_0000, 0x8600_0000, 0x8500_0020, 0xb200_0000];
/// CPU_SUSPEND, CPU_OFF, SYSTEM_OFF, SYSTEM_RESET, CPU_DEFAULT_SUSPEND, SYSTEM_SUSPEND,
/// SYSTEM_RESET2: what ends or stops the caller.
const ENDS: [u32; 7] = [1, 2, 8, 9, 12, 14, 18];
const PSCI: u32 = 0x8400_0000;
const SMC64: u32 = 1 << 30;

fn main(board: &'static Board) -> ! {
    exceptions::on_sync(go_on);
    cpu::mask_interrupts();
    let rounds = board.args.number("rounds", 10_000);
    let random = Random::new(board.args.number("seed", 1));
    let (mut calls, mut accesses) = (0_u64, 0_u64);
    for _ in 0..rounds {
        if random.below(3) == 0 {
            call(&random);
            calls += 1;
        } else {
            access(board, &random);
            accesses += 1;
        }
    }
    println!(
        "fuzzer: {rounds} rounds: {calls} calls, {accesses} accesses, {} aborts, {} other \
         exceptions",
        ABORTS.load(Ordering::Relaxed),
        OTHERS.load(Ordering::Relaxed)
    );
    psci::system_off()
}

fn call(random: &Random) {
    let range = RANGES[random.below(RANGES.len() as u64) as usize];
    let number = if random.below(4) == 0 { random.below(0x1_0000) } else { random.below(0x20) };
    let number = number as u32;
    if range == PSCI && ENDS.contains(&number) {
        return;
    }
    let function = u64::from(range | number | if random.below(2) == 0 { SMC64 } else { 0 });
    let arguments = [random.next(), random.next() << 24, random.next()];
    // SAFETY: calls that end this VM are left out, and the convention lets the others change x0 to
    // x17.
    unsafe {
        if random.below(2) == 0 {
            asm!("hvc #0", inout("x0") function => _, in("x1") arguments[0], in("x2") arguments[1],
                in("x3") arguments[2], clobber_abi("C"));
        } else {
            asm!("smc #0", inout("x0") function => _, in("x1") arguments[0], in("x2") arguments[1],
                in("x3") arguments[2], clobber_abi("C"));
        }
    }
}

fn access(board: &Board, random: &Random) {
    let (base, length) = match random.below(4) {
        0 => (board.gic.gicd(), 0x1_0000),
        // Redistributors or the CPU interface, the UART, and what is around them.
        1 => (board.gic.gicd(), 0x200_0000),
        2 => (0, board.ram.base),
        _ => (board.ram.end(), (1 << 39) - board.ram.end()),
    };
    let address = (base + random.below(length)) & !(random.below(8) & 7);
    let uart = board.uart.base..board.uart.base + 0x1000;
    let write = random.below(2) == 0 && !uart.contains(&(address & !0xfff));
    let value = random.next() << 16 | random.below(1 << 16);
    // SAFETY: none of these addresses is memory of this VM, and an exception goes on behind the
    // access.
    unsafe {
        match (write, random.below(6)) {
            (false, 0) => asm!("ldrb w9, [{0}]", in(reg) address, out("x9") _),
            (false, 1) => asm!("ldrh w9, [{0}]", in(reg) address, out("x9") _),
            (false, 2) => asm!("ldrsw x9, [{0}]", in(reg) address, out("x9") _),
            (false, 3) => asm!("ldr x9, [{0}]", in(reg) address, out("x9") _),
            (false, 4) => asm!("ldr wzr, [{0}]", in(reg) address),
            (false, _) => asm!("ldrsb x9, [{0}]", in(reg) address, out("x9") _),
            (true, 0) => asm!("strb {1:w}, [{0}]", in(reg) address, in(reg) value),
            (true, 1) => asm!("strh {1:w}, [{0}]", in(reg) address, in(reg) value),
            (true, 2) => asm!("str {1:w}, [{0}]", in(reg) address, in(reg) value),
            (true, 3) => asm!("str {1}, [{0}]", in(reg) address, in(reg) value),
            (true, 4) => asm!("str wzr, [{0}]", in(reg) address),
            (true, _) => asm!("str xzr, [{0}]", in(reg) address),
        }
    }
}

/// Goes on behind the access.
fn go_on(exception: Sync) -> u64 {
    // A data abort from EL1 with the status of a synchronous external abort.
    let external = exception.class() == 0x25 && exception.esr & 0x3f == 0x10;
    let counter = if external { &ABORTS } else { &OTHERS };
    counter.fetch_add(1, Ordering::Relaxed);
    exception.elr + 4
}
