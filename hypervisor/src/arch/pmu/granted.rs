//! The event counters that a VM was granted.

pub use weir_vdev::pmu::VirtualPmu;

use super::ENABLE;
use crate::arch::{
    isb,
    sysreg::{
        pmccfiltr_el0, pmccntr_el0, pmceid0_el0, pmceid1_el0, pmcntenclr_el0, pmcntenset_el0,
        pmcr_el0, pmintenclr_el1, pmintenset_el1, pmovsclr_el0, pmovsset_el0, pmselr_el0,
        pmuserenr_el0, pmxevcntr_el0, pmxevtyper_el0,
    },
};
use weir_abi::KEPT_COUNTERS;
use weir_vdev::pmu::{CYCLES, GrantedCounters};

/// PMCR_EL0.LC: the cycle counter overflows after 64 bits.
const LONG_CYCLES: u64 = 1 << 6;

/// The cycle counter of this core and its event counters from number [`KEPT_COUNTERS`] on, which a
/// VM was granted; the value is the number of these event counters.
pub struct Granted(pub u8);

impl Granted {
    /// Converts a mask of the guest's counters to the hardware's numbering.
    fn mask(&self, mask: u32) -> u64 {
        let events = mask & ((1 << self.0) - 1);
        u64::from(events << KEPT_COUNTERS | mask & CYCLES)
    }

    fn all(&self) -> u64 {
        self.mask(u32::MAX)
    }

    fn select(n: usize) {
        pmselr_el0::write((n + usize::from(KEPT_COUNTERS)) as u64 & 0x1f);
        isb();
    }
}

impl GrantedCounters for Granted {
    fn read(&mut self, n: usize) -> u32 {
        Self::select(n);
        pmxevcntr_el0::read() as u32
    }

    fn write(&mut self, n: usize, value: u32) {
        Self::select(n);
        pmxevcntr_el0::write(value.into());
    }

    fn read_cycles(&mut self) -> u64 {
        pmccntr_el0::read()
    }

    fn write_cycles(&mut self, value: u64) {
        pmccntr_el0::write(value);
    }

    fn set_type(&mut self, n: usize, kind: u32) {
        Self::select(n);
        pmxevtyper_el0::write(kind.into());
    }

    fn set_filter(&mut self, filter: u32) {
        pmccfiltr_el0::write(filter.into());
    }

    fn set_long_cycles(&mut self, long: bool) {
        pmcr_el0::write(ENABLE | if long { LONG_CYCLES } else { 0 });
    }

    fn has_long_cycles(&mut self) -> bool {
        pmcr_el0::read() & LONG_CYCLES != 0
    }

    fn set_enabled(&mut self, mask: u32) {
        pmcntenclr_el0::act(self.all() & !self.mask(mask));
        pmcntenset_el0::act(self.mask(mask));
    }

    fn set_interrupts(&mut self, mask: u32) {
        pmintenclr_el1::act(self.all() & !self.mask(mask));
        pmintenset_el1::act(self.mask(mask));
        // The interrupt line must be low before the interrupt is deactivated.
        isb();
    }

    fn overflowed(&mut self) -> u32 {
        let mask = pmovsset_el0::read() & self.all();
        (mask as u32 & !CYCLES) >> KEPT_COUNTERS | mask as u32 & CYCLES
    }

    fn clear_overflowed(&mut self, mask: u32) {
        pmovsclr_el0::act(self.mask(mask));
    }

    fn set_overflowed(&mut self, mask: u32) {
        pmovsset_el0::act(self.mask(mask));
    }

    fn events(&mut self, register: u8) -> u64 {
        if register == 0 { pmceid0_el0::read() } else { pmceid1_el0::read() }
    }

    fn set_user(&mut self, user: u32) {
        pmuserenr_el0::write(user.into());
    }
}

#[cfg(test)]
mod tests;
