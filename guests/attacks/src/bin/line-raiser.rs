//! Raises a line of one of its devices at its first vCPU, which shares a core, again and again from
//! its second vCPU, which has a core of its own: so the line interrupts the shared core while
//! another VM has it.
//!
//! Arguments: `line=` (34), of a device of the VM; `by=` the register that gives the line back
//! before it is raised again:
//!
//! | `by=` | |
//! | --- | --- |
//! | `pending` | GICD_ICPENDR |
//! | `enable` | GICD_ICENABLER |
//! | `active` | GICD_ISACTIVER, GICD_ICACTIVER |
//! | `route` | GICD_IROUTER or GICD_ITARGETSR: the second vCPU takes the interrupt |
//! | `nothing` | it only reads registers |
//!
//! ```text
//! line-raiser: 1000 rounds
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    println, psci,
};

entry!(main);

/// Interrupts that the second vCPU took.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn main(board: &'static Board) -> ! {
    gic::init(count);
    gic::enable(board.args.number("line", 34) as u32);
    // SAFETY: the core is off, and this is the only start.
    let _ = unsafe { psci::start_core(1, raise) };
    cpu::unmask_interrupts();
    loop {
        cpu::relax();
    }
}

fn count(_: Interrupt) {
    if cpu::index() == 1 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

fn raise(_: usize) {
    let line = board().args.number("line", 34) as u32;
    let by = board().args.get("by").unwrap_or("pending");
    cpu::unmask_interrupts();
    let mut rounds = 0_u64;
    loop {
        match by {
            "pending" => {
                gic::set_pending(line);
                gic::clear_pending(line);
            }
            "enable" => {
                gic::set_pending(line);
                gic::disable(line);
                gic::enable(line);
            }
            "active" => {
                gic::set_pending(line);
                gic::set_active(line);
                gic::clear_active(line);
                gic::clear_pending(line);
            }
            "route" => {
                gic::set_pending(line);
                let before = TAKEN.load(Ordering::Relaxed);
                gic::route(line, 1);
                for _ in 0..100 {
                    if TAKEN.load(Ordering::Relaxed) != before {
                        break;
                    }
                    cpu::relax();
                }
                gic::route(line, 0);
            }
            _ => {
                let _ = (gic::is_enabled(line), gic::priority(line));
            }
        }
        rounds += 1;
        if rounds.is_multiple_of(1000) {
            println!("line-raiser: {rounds} rounds");
        }
    }
}
