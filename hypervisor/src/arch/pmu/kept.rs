//! The event counters that EL2 keeps, for memory budgets.

use super::{ENABLE, counters};
use crate::arch::{
    isb,
    sysreg::{
        pmceid0_el0, pmceid1_el0, pmcntenclr_el0, pmcntenset_el0, pmcr_el0, pmevcntr0_el0,
        pmevcntr1_el0, pmevtyper0_el0, pmevtyper1_el0, pmintenclr_el1, pmintenset_el1,
        pmovsclr_el0,
    },
};
use weir_budget::Counts;
use weir_vdev::pmu::may_count;

/// Mask of counters 0 and 1.
const BOTH: u64 = 3;
/// Distance by which counter 1 overflows later than counter 0 if both count the same events. QEMU
/// (7.2 to 10) schedules its poll of an overflow one event early, finds none, and schedules no
/// other poll unless another counter overflows later.
const LATER: u32 = 2;
/// Largest distance to an overflow, so that a counter cannot overflow twice without being noticed.
const FARTHEST: u64 = 1 << 31;

/// The two counters of a core, extended to 64 bits, for its budget. A counter has 32 bits (PMUv3
/// before p5).
#[derive(Clone, Copy)]
pub struct Pmu {
    /// The counts up to the moment at which the counters had the values `from`.
    counts: Counts,
    /// The values of the counters when `counts` was last updated.
    from: [u32; 2],
    /// Whether counter 1 counts another event than counter 0.
    two: bool,
    /// The events that the two counters count.
    events: [u64; 2],
}

impl Pmu {
    /// Returns the first of these events that the PMU of this core does not count; event 0 means
    /// none.
    #[must_use]
    pub fn missing(events: [u16; 2]) -> Option<u16> {
        if counters() < 2 {
            return Some(events[0]);
        }
        let there = [pmceid0_el0::read(), pmceid1_el0::read()];
        events.into_iter().find(|&event| event != 0 && !may_count(there, event))
    }

    /// Starts the counters of this core: counter 0 counts PMU event `reads`, counter 1 counts
    /// `writes`, at EL1 and EL0. If `writes` is 0, both count `reads`.
    #[must_use]
    pub fn start([reads, writes]: [u16; 2]) -> Self {
        let two = writes != 0;
        let events = [reads, if two { writes } else { reads }].map(u64::from);
        let mut pmu = Self { counts: Counts::ZERO, from: [0; 2], two, events };
        // PMCR_EL0 is written only here: its LC bit belongs to the guest if the guest was granted
        // the cycle counter.
        pmcr_el0::write(ENABLE);
        pmu.resume();
        pmu
    }

    /// Resumes counting on this core after its counters had another owner or were unused.
    pub fn resume(&mut self) {
        // P, U, NSK, NSU, NSH zero: EL1 and EL0 count, EL2 and EL3 don't.
        pmevtyper0_el0::write(self.events[0]);
        pmevtyper1_el0::write(self.events[1]);
        pmevcntr0_el0::write(0);
        pmevcntr1_el0::write(0);
        pmovsclr_el0::act(BOTH);
        pmcntenset_el0::act(BOTH);
        pmintenset_el1::act(BOTH);
        isb();
        self.from = [0; 2];
    }

    /// Stops this core's counters. The caller has read their values with [`Pmu::counts`]; the next
    /// call is [`Pmu::resume`].
    pub fn suspend() {
        pmcntenclr_el0::act(BOTH);
        pmintenclr_el1::act(BOTH);
        pmovsclr_el0::act(BOTH);
        isb();
    }

    /// Returns the counts since [`Pmu::start`].
    #[inline(always)]
    pub fn counts(&mut self) -> Counts {
        let now = [pmevcntr0_el0::read() as u32, pmevcntr1_el0::read() as u32];
        let passed = |n: usize| u64::from(now[n].wrapping_sub(self.from[n]));
        self.counts.reads += passed(0);
        self.counts.writes += if self.two { passed(1) } else { 0 };
        self.from = now;
        self.counts
    }

    /// Adds the memory accesses of EL2 on behalf of the guest, which the counters leave out.
    pub fn charge(&mut self, accesses: Counts) {
        self.counts.reads += accesses.reads;
        self.counts.writes += if self.two { accesses.writes } else { 0 };
    }

    /// Requests the interrupt for when one of the counts reaches `limit`, or earlier, and clears a
    /// pending interrupt. Called directly after [`Pmu::counts`].
    #[inline(always)]
    pub fn interrupt_at(&mut self, limit: Counts) {
        // A limit that is already reached is treated as 1 access away, because the vCPU is
        // suspended then.
        let distance = |limit: u64, count: u64| limit.saturating_sub(count).clamp(1, FARTHEST);
        let from = |limit, count| 0u32.wrapping_sub(distance(limit, count) as u32);
        let reads = from(limit.reads, self.counts.reads);
        let writes = from(limit.writes, self.counts.writes);
        self.from = [reads, if self.two { writes } else { reads.wrapping_sub(LATER) }];
        pmevcntr0_el0::write(self.from[0].into());
        pmevcntr1_el0::write(self.from[1].into());
        Self::forget();
    }

    /// Returns the read count, for when both counters count the same; otherwise like
    /// [`Pmu::counts`].
    #[inline(always)]
    pub fn reads(&mut self) -> u64 {
        let now = pmevcntr0_el0::read() as u32;
        self.counts.reads += u64::from(now.wrapping_sub(self.from[0]));
        self.from[0] = now;
        self.counts.reads
    }

    /// Requests the interrupt for after `distance` further reads, or earlier, for when both
    /// counters count the same. Called directly after [`Pmu::reads`]. Takes effect at the next ISB.
    #[inline(always)]
    pub fn interrupt_in_reads(&mut self, distance: u64) {
        let from = 0u32.wrapping_sub(distance.min(FARTHEST) as u32);
        self.from = [from, from.wrapping_sub(LATER)];
        pmevcntr0_el0::write(self.from[0].into());
        pmevcntr1_el0::write(self.from[1].into());
        pmovsclr_el0::act(BOTH);
    }

    /// Clears a recorded overflow.
    #[inline(always)]
    pub fn forget() {
        pmovsclr_el0::act(BOTH);
        // The interrupt line must be low before the interrupt is deactivated.
        isb();
    }
}

#[cfg(test)]
mod tests;
