//! Spends a memory budget on its last core while its first one does something else.
//!
//! The last core reads lines of `size=` bytes (1 MiB) one after the other, for ever; with one core
//! no core does. After `after_us=` (1000) the first core does what `then=` says: `off`
//! (SYSTEM_OFF), `reset` (SYSTEM_RESET, in each of the first `boots=` (3) boots; then off), `fault`
//! (the same by a load from where there is nothing), `storm` (`count=` (1000) SGIs to the last
//! core, then off), or `set` (sets the budget of VM `vm=` to `reads=`, waits as long again, then
//! off).
//!
//! ```text
//! spender: boot 0
//! spender: 1000 SGIs sent, 1 taken
//! spender: set: granted
//! spender: off
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    hypercall, mmio, println, psci, time,
};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;
const LINE: u64 = 64;
const SGI: u32 = 3;
/// Where a VM has nothing unless its file says so.
const NOTHING: u64 = 0x1000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

fn handle(interrupt: Interrupt) {
    if interrupt.intid == SGI {
        TAKEN.fetch_add(1, SeqCst);
    }
}

fn spend(_: usize) {
    cpu::unmask_interrupts();
    let board = board();
    let start = board.ram.base + IMAGE;
    let end = start + board.args.number("size", 1 << 20);
    loop {
        let mut at = start;
        while at < end {
            // SAFETY: a load from RAM that nothing else uses; `main` has checked that it is there.
            unsafe { asm!("ldr xzr, [{}]", in(reg) at, options(nostack, preserves_flags)) };
            at += LINE;
        }
    }
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let size = args.number("size", 1 << 20);
    let room = board.ram.size.saturating_sub(IMAGE);
    assert!(size <= room, "{size} bytes: this VM has room for {room}");
    let boot = hypercall::restarts();
    println!("spender: boot {boot}");
    gic::init(handle);
    let last = board.cores().len() - 1;
    if last > 0 {
        // SAFETY: a core that is not the first is off when the machine starts.
        let started = unsafe { psci::start_core(last, spend) };
        assert!(started.is_ok(), "CPU_ON of core {last}: {started:?}");
    }
    let pause = || time::spin_for_ns(args.number("after_us", 1000) * 1000);
    pause();
    match args.get("then").unwrap_or("off") {
        "reset" if boot < args.number("boots", 3) => psci::system_reset(),
        "fault" if boot < args.number("boots", 3) => {
            // SAFETY: faults, which is the point.
            let value = unsafe { mmio::read32(NOTHING) };
            println!("spender: read {value} from nowhere");
        }
        "storm" => {
            let count = args.number("count", 1000);
            for _ in 0..count {
                gic::send(SGI, SgiTarget::Core(last));
                cpu::relax();
            }
            println!("spender: {count} SGIs sent, {} taken", TAKEN.load(SeqCst));
        }
        "set" => {
            let granted = hypercall::set_budget(args.number("vm", 0), args.number("reads", 1), 0);
            println!("spender: set: {}", if granted { "granted" } else { "denied" });
            pause();
        }
        "off" | "reset" | "fault" => {}
        other => panic!("then={other}: off, reset, fault, storm or set"),
    }
    println!("spender: off");
    psci::system_off()
}
