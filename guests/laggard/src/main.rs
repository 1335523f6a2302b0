//! Stands in the flows' broker's place for tests: it takes 3 ms for each copy, so that whoever restarts does so in the midst of one, and
//! never ends one of [`STUCK`] bytes.

#![no_std]
#![no_main]

use core::ptr;
use weir_broker::{
    broker::{Broker, Mover, Step},
    shared::{self, Partition},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmu, time,
};

entry!(main);

/// Bytes of a payload that are never copied to their end.
const STUCK: u64 = 999;
/// How long a copy takes, in ns.
const LAG: u64 = 3_000_000;

fn main(board: &'static Board) -> ! {
    // SAFETY: the hypervisor maps the partition and the windows there, as memory, and nothing else; nobody has used them yet.
    unsafe {
        mmu::add_memory(shared::WINDOWS);
        mmu::add_memory(shared::ADDRESS..shared::ADDRESS + 1);
    }
    // SAFETY: the partition is there for good, all of it atomics, which the hypervisor accesses as such, too.
    let partition: &'static Partition = unsafe { &*(shared::ADDRESS as *const Partition) };
    let start = partition.settings().start;
    let hertz = time::frequency();
    gic::init(|_: Interrupt| time::disarm());
    gic::enable(shared::SGI);
    gic::enable(board.virtual_timer);
    let mut broker = Broker::new(partition);
    loop {
        let now = time::ticks_to_ns(time::now().wrapping_sub(start), hertz);
        match broker.step(now, &mut Laggard) {
            Step::Again => {}
            Step::Tell => {
                let called = time::now();
                let inside = hypercall::complete();
                broker.told(called, time::now(), inside);
            }
            Step::Wait(until) => {
                if let Some(until) = until {
                    time::arm(start.wrapping_add(time::ns_to_ticks(until, hertz)));
                }
                // An interrupt that came since the last look is pending, and ends the wait at once.
                cpu::wait_for_interrupt();
                cpu::unmask_interrupts();
                cpu::mask_interrupts();
            }
        }
    }
}

struct Laggard;

impl Mover for Laggard {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let (first, rest) = (len / 2, len - len / 2);
        copy(from, to, first);
        let due = time::now() + time::ns_to_ticks(LAG, time::frequency());
        while len == STUCK || time::now() < due {
            cpu::relax();
        }
        copy(from + first, to + first, rest);
    }

    fn write(&mut self, to: u64, bytes: &[u8]) {
        copy(bytes.as_ptr() as u64, to, bytes.len() as u64);
    }

    fn ticks(&mut self) -> u64 {
        time::now()
    }
}

fn copy(from: u64, to: u64, len: u64) {
    // SAFETY: the hypervisor checked both ranges against the VMs' RAM, and stage 2 lets nothing else be reached. Both VMs may write
    // what is moved meanwhile; it is moved all the same.
    unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) }
}
