//! Does, on its second core and as fast as that can, all that could take time on its first core,
//! which the VM shares with others: SGIs, CPU_ON, a line that is routed there and back while it is
//! pending, reads of what is pending there, enables and priorities of its interrupts.
//!
//! The first core is off, or on its way there: each CPU_ON lets it run for some microseconds. Every
//! `report=` (1000) rounds it says how many calls turned it on:
//!
//! ```text
//! flood: 1000 rounds, 12 starts
//! ```
//!
//! A third core, if there is one, is turned on once a round and goes off at once.
//!
//! With `resets=1` its second core is the one that the VM shares. Then its first turns that on and
//! sends it an SGI in each of its boots, which it ends at once:
//!
//! ```text
//! flood: boot 10
//! ```
//!
//! Arguments: `line=` (34), of a device of the VM's.

#![no_std]
#![no_main]

use core::arch::global_asm;
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, SgiTarget},
    hypercall, println, psci,
};

entry!(main);

const CPU_OFF: u32 = 0x8400_0002;
const CPU_ON: u32 = 0xC400_0003;

// Some microseconds, then CPU_OFF: without a stack, so that it can be begun anew at any time.
global_asm!(
    ".global flood_first",
    "flood_first:",
    "mov x1, #20000",
    "2: subs x1, x1, #1",
    "b.ne 2b",
    "movz w0, #0x2",
    "movk w0, #0x8400, lsl #16",
    "hvc #0",
    "b flood_first",
    ".global flood_off",
    "flood_off:",
    "movz w0, #0x2",
    "movk w0, #0x8400, lsl #16",
    "hvc #0",
    "b flood_off",
);

unsafe extern "C" {
    safe static flood_first: u8;
    safe static flood_off: u8;
}

/// Turns core `core` on at `entry`; whether it was off.
fn turn_on(core: u64, entry: &'static u8) -> bool {
    hypercall::call(CPU_ON, [core, core::ptr::from_ref(entry).addr() as u64, 0]) == 0
}

fn main(board: &'static Board) -> ! {
    gic::init(|_| ());
    if board.args.number("resets", 0) != 0 {
        reset(board)
    }
    // SAFETY: the core is off, and this is the only start.
    let _ = unsafe { psci::start_core(1, flood) };
    let _ = hypercall::call(CPU_OFF, [0; 3]);
    println!("flood: FAILED: did not go off");
    loop {
        cpu::wait_for_interrupt();
    }
}

fn reset(board: &'static Board) -> ! {
    let boot = hypercall::restarts();
    if boot.is_multiple_of(10) {
        println!("flood: boot {boot}");
    }
    turn_on(board.cores()[1], &flood_first);
    gic::send(1, SgiTarget::Core(1));
    psci::system_reset()
}

fn flood(_: usize) {
    let (line, report) =
        (board().args.number("line", 34) as u32, board().args.number("report", 1000));
    let cores = board().cores();
    let (mut rounds, mut starts) = (0_u64, 0_u64);
    gic::enable(line);
    loop {
        gic::send((rounds % 8) as u32, SgiTarget::Core(0));
        starts += u64::from(turn_on(cores[0], &flood_first));
        if let Some(third) = cores.get(2) {
            turn_on(*third, &flood_off);
        }
        gic::route(line, (rounds % 2) as usize);
        gic::set_pending(line);
        gic::set_priority(line, (rounds % 16) as u8 * 8);
        let _ = (gic::is_pending(line), gic::is_active(line));
        if rounds % 4 == 0 {
            gic::disable(line);
            gic::enable(line);
        }
        cpu::relax();
        rounds += 1;
        if rounds % report.max(1) == 0 {
            println!("flood: {rounds} rounds, {starts} starts");
        }
    }
}
