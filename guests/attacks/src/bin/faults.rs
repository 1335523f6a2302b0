//! Floods the report: faults in each of its first `faults=` boots (20), at once, and powers off in
//! the next. Before each fault it tries all that is refused and reported. Run it with
//! `on_fault = "restart"`.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{Board, entry, exceptions, exceptions::Sync, hypercall, mmio, println, psci};

entry!(main);

fn main(board: &'static Board) -> ! {
    exceptions::on_sync(|exception: Sync| exception.elr + 4);
    let faults = board.args.number("faults", 20);
    if hypercall::restarts() >= faults {
        println!("faults: {faults} faults");
        psci::system_off()
    }
    let _ = hypercall::call(0xc600_ffff, [0; 3]);
    // SAFETY: registers that a VM has no use for; what is UNDEFINED is skipped.
    unsafe {
        asm!("msr pmcr_el0, xzr");
        asm!("msr dbgprcr_el1, {}", in(reg) 1_u64);
        asm!("dc csw, xzr");
        asm!("mrs {}, S3_0_C15_C0_0", inout(reg) 0_u64 => _);
    }
    mmio::crash();
    psci::system_reset()
}
