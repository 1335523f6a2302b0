//! The time of the running core's loads and stores, which is charged to it.

#![forbid(unsafe_code)]

use crate::{
    memory::Memory,
    order::{Cause, NEVER},
    process,
};
use weir_memory::{
    Pa,
    stalls::{Requested, Stalls},
};

/// The running core has loaded or stored: charges the time to it.
pub fn access(core: usize, write: bool, pa: u64, bytes: u64) {
    for pa in Stalls::lines(pa, bytes) {
        let hits = process::with(|process| {
            process.memory.as_mut().is_none_or(|memory| memory.hit(core, write, pa))
        });
        if !hits {
            miss(core, write, pa);
        }
    }
}

#[inline(never)]
fn miss(core: usize, write: bool, pa: Pa) {
    loop {
        process::schedule();
        let now = process::now();
        let requested = process::with(|process| {
            let request = |memory: &mut Memory| memory.request(core, write, pa, now);
            process.memory.as_mut().map_or(Requested::Continue, request)
        });
        if requested == Requested::Continue {
            return;
        }
        process::wait(Cause::Memory, core, NEVER, false);
        if requested == Requested::Wait {
            return;
        }
    }
}
