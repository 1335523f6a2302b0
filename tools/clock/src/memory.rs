//! A board's memory, whose time is charged to the cores.
//!
//! Every load and store to RAM is looked up in its core's first-level cache, when it is executed. A
//! miss waits until its core is the first in the order, so that requests reach the model in the
//! order of time, whatever the quantum. The model is that of `weir simulate`: second level,
//! interconnect, DRAM with its controller. It goes from event to event between the cores' turns.

#![forbid(unsafe_code)]

use crate::order::{NEVER, Order};
use weir_memory::{
    Pa,
    stalls::{Requested, Stalls, Woken},
};
use weir_simulator::MemoryModel;

/// The memory of the machine.
pub struct Memory {
    stalls: Stalls,
    woken: Vec<Woken>,
}

impl Memory {
    /// Returns the memory of a board for so many cores, with these masks of DRAM bank bits.
    ///
    /// # Errors
    ///
    /// A sentence about an unknown name, or a memory that does not fit.
    pub fn new(board: &str, cores: usize, banks: &[u64]) -> Result<Self, String> {
        let model = MemoryModel::find(board).map_err(|error| error.to_string())?;
        Ok(Self { stalls: model.stalls(cores, banks)?, woken: Vec::new() })
    }

    /// Lets the memory go on to the first turn in the order, and ends the waits of cores that it
    /// answers: such a core may have the first turn then.
    pub fn advance(&mut self, order: &mut Order, now: u64) {
        while self.stalls.advance(order.first(now), &mut self.woken) {
            for Woken { core, at } in self.woken.drain(..) {
                order.answer(core, at);
            }
        }
    }

    /// Returns the limit on a core's turn: a core that waits continues after the next event at the
    /// earliest.
    pub fn limit(&self, order: &Order) -> u64 {
        self.stalls.next().map_or(NEVER, |next| next.saturating_add(order.quantum()))
    }

    /// Looks a line up in the first-level cache of `core`, and returns whether it is there.
    pub fn hit(&mut self, core: usize, write: bool, pa: Pa) -> bool {
        self.stalls.hit(core, write, pa)
    }

    /// Asks for a line that `core` misses.
    pub fn request(&mut self, core: usize, write: bool, pa: Pa, now: u64) -> Requested {
        self.stalls.request(core, write, pa, now)
    }
}
