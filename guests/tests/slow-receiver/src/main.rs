//! Stands in the flows' broker's place for tests: it takes 3 ms for each copy, so that a VM
//! that restarts does so during one, and never ends one of [`STUCK`] bytes.

#![no_std]
#![no_main]

use core::ptr;
use weir_broker::broker::Mover;
use weir_guest::{Board, cpu, entry, time};

entry!(main);

/// Bytes of a payload that are never copied to their end.
const STUCK: u64 = 999;
/// How long a copy takes, in ns.
const LAG: u64 = 3_000_000;

fn main(board: &'static Board) -> ! {
    broker_vm::serve(board, SlowReceiver)
}

struct SlowReceiver;

impl Mover for SlowReceiver {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let (first, rest) = (len / 2, len - len / 2);
        copy(from, to, first);
        let due = time::now() + time::ns_to_ticks(LAG, time::frequency());
        while len == STUCK || time::now() < due {
            cpu::relax();
        }
        copy(from + first, to + first, rest);
    }

    fn ticks(&mut self) -> u64 {
        time::now()
    }
}

fn copy(from: u64, to: u64, len: u64) {
    // SAFETY: both ranges were checked against the VMs' RAM, and stage 2 lets nothing else be
    // reached. Both VMs may write what is moved meanwhile; it is moved all the same.
    unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) }
}
