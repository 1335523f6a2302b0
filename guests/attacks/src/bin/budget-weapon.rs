//! Turns memory budgets against other VMs. The last vCPU attacks; with more than one, the first
//! reads lines of `size=` bytes (1 MiB) for ever, so that it is suspended for its budget.
//!
//! | `do=` | attack |
//! | --- | --- |
//! | `suspend` | CPU_SUSPEND again and again, each time until its timer fires after `every_ns=` (3000): the vCPU returns what it has left |
//! | `pending` | the same with an interrupt that is pending already |
//! | `set` | sets the budget of VM `vm=` to `reads=` and `reads=` + 1 in turn |
//! | `restart` | SYSTEM_RESET at once: EL2 zeroes `memory` of the VM and copies its image |
//!
//! | `cycle` | the last vCPU reads until `every_ns=` are over, turns itself off, and the first turns it on again, which reads nothing |
//!
//! It goes on for ever, or until `for_us=` have passed, then prints `budget-weapon: N rounds` and
//! turns its VM off; `restart` after `boots=` boots.

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, println, psci, time,
};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;
const LINE: u64 = 64;

fn main(board: &'static Board) -> ! {
    let args = board.args;
    if args.get("do") == Some("restart") {
        let boot = hypercall::restarts();
        if boot < args.number("boots", u64::MAX) {
            psci::system_reset();
        }
        println!("budget-weapon: {boot} rounds");
        psci::system_off();
    }
    gic::init(|_: Interrupt| time::disarm());
    let last = board.cores().len() - 1;
    if args.get("do") == Some("cycle") {
        cycle(last);
    }
    if last == 0 {
        attack(0);
    }
    // SAFETY: a core that is not the first is off when the machine starts.
    let started = unsafe { psci::start_core(last, attack) };
    assert!(started.is_ok(), "CPU_ON of core {last}: {started:?}");
    let (start, size) = (board.ram.base + IMAGE, args.number("size", 1 << 20));
    assert!(size <= board.ram.size.saturating_sub(IMAGE), "size={size}: too large");
    let mut at = 0;
    loop {
        // SAFETY: a load from RAM that nothing else uses; checked above.
        unsafe { asm!("ldr xzr, [{}]", in(reg) start + at, options(nostack, preserves_flags)) };
        at = (at + LINE) % size;
    }
}

/// Turns core `last` on whenever it is off, which reads for a while and turns itself off.
fn cycle(last: usize) -> ! {
    let mut rounds = 0_u64;
    loop {
        let state = psci::affinity_info(board().cores()[last]);
        if state == Ok(psci::AffinityState::Off) {
            // SAFETY: the core is off, and this core alone starts it.
            let started = unsafe { psci::start_core(last, read_a_while) };
            assert!(started.is_ok(), "CPU_ON of core {last}: {started:?}");
            rounds += 1;
            if rounds.is_multiple_of(20) {
                println!("budget-weapon: {rounds} rounds");
            }
        }
        cpu::relax();
    }
}

fn read_a_while(_: usize) {
    static AT: AtomicU64 = AtomicU64::new(0);
    let (board, args) = (board(), board().args);
    let (start, size) = (board.ram.base + IMAGE, args.number("size", 1 << 20));
    assert!(size <= board.ram.size.saturating_sub(IMAGE), "size={size}: too large");
    let end = time::now_ns() + args.number("every_ns", 3000);
    let mut at = AT.load(Ordering::Relaxed);
    while time::now_ns() < end {
        // SAFETY: a load from RAM that nothing else uses; checked above.
        unsafe { asm!("ldr xzr, [{}]", in(reg) start + at, options(nostack, preserves_flags)) };
        at = (at + LINE) % size;
    }
    AT.store(at, Ordering::Relaxed);
}

fn attack(_: usize) {
    let board = board();
    let args = board.args;
    let every = time::ns_to_ticks(args.number("every_ns", 3000), time::frequency());
    let end = time::now_ns().saturating_add(args.number("for_us", u64::MAX / 2000) * 1000);
    let action = args.get("do").unwrap_or("suspend");
    let (vm, reads) = (args.number("vm", 0), args.number("reads", 1000));
    cpu::mask_interrupts();
    gic::enable(board.virtual_timer);
    let mut rounds = 0_u64;
    while time::now_ns() < end {
        match action {
            "suspend" => {
                time::arm(time::now() + every);
                let _ = psci::suspend_standby();
                cpu::unmask_interrupts();
                cpu::mask_interrupts();
            }
            "pending" => {
                time::arm(0);
                let _ = psci::suspend_standby();
            }
            "set" => {
                let _ = hypercall::set_budget(vm, reads + rounds % 2, 0);
            }
            other => panic!("do={other}: suspend, pending, set or restart"),
        }
        rounds += 1;
    }
    println!("budget-weapon: {rounds} rounds");
    psci::system_off()
}
