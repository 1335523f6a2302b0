//! Memory of which every word is known.

use weir_guest::{Board, cpu, gic, println, time};

const PAUSE_NS: u64 = 100_000_000;
/// What of the RAM the image takes at most (guest.ld).
const IMAGE: u64 = 2 << 20;

/// What is at `address`.
fn pattern(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ address
}

/// Fills the memory behind the image and checks it for ever.
pub fn watch(board: &'static Board) -> ! {
    gic::init(|_| {});
    gic::enable(board.virtual_timer);
    let words = || (board.ram.base + IMAGE..board.ram.end()).step_by(8);
    for address in words() {
        // SAFETY: RAM behind all that the image has, by the linker script.
        unsafe { (address as *mut u64).write_volatile(pattern(address)) }
    }
    for round in 1_u64.. {
        // SAFETY: as above.
        let changed =
            |&address: &u64| unsafe { (address as *const u64).read_volatile() != pattern(address) };
        let (count, all) = (words().filter(changed).count(), words().count());
        println!("dma: round {round}: {count} of {all} words changed");
        let next = time::now() + time::ns_to_ticks(PAUSE_NS, time::frequency());
        while time::now() < next {
            time::arm(next);
            cpu::wait_for_interrupt();
            // The line falls, then the interrupt is taken: one that stayed pending would end each
            // later wait at once.
            time::disarm();
            cpu::unmask_interrupts();
            cpu::mask_interrupts();
        }
    }
    unreachable!("rounds are never counted out")
}
