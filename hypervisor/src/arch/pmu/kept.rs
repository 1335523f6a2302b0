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

/// Counters 0 and 1.
const BOTH: u64 = 3;
/// How much later than counter 0 counter 1 overflows where both count the same. QEMU (7.2 to 10)
/// plans its poll of an overflow one event early, finds none, and plans no other unless a counter
/// overflows later still.
const LATER: u32 = 2;
/// A counter is never set to overflow later than this, so that more than one overflow cannot pass
/// unseen.
const FARTHEST: u64 = 1 << 31;

/// The two counters of a core as 64-bit ones, for its budget. A counter has 32 bits (PMUv3 before
/// p5).
#[derive(Clone, Copy)]
pub struct Pmu {
    /// What was counted up to `from`.
    counts: Counts,
    /// The counters' values then.
    from: [u32; 2],
    /// Whether counter 1 counts something of its own.
    two: bool,
    /// What the two count.
    events: [u64; 2],
}

impl Pmu {
    /// Returns the first of these events that the PMU of this core does not count. 0 is none.
    #[must_use]
    pub fn missing(events: [u16; 2]) -> Option<u16> {
        if counters() < 2 {
            return Some(events[0]);
        }
        let there = [pmceid0_el0::read(), pmceid1_el0::read()];
        events.into_iter().find(|&event| event != 0 && !may_count(there, event))
    }

    /// Starts the counters of this core: number 0 counts PMU event `reads`, 1 `writes`, at EL1 and
    /// EL0; without the latter (0) both the former.
    #[must_use]
    pub fn start([reads, writes]: [u16; 2]) -> Self {
        let two = writes != 0;
        let events = [reads, if two { writes } else { reads }].map(u64::from);
        let mut pmu = Self { counts: Counts::ZERO, from: [0; 2], two, events };
        // Only here: the register's LC becomes the guest's, if it was granted the cycle counter.
        pmcr_el0::write(ENABLE);
        pmu.resume();
        pmu
    }

    /// Goes on counting on this core; its counters were another owner's or unused meanwhile.
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

    /// Stops this core's counters. What they counted was asked for; the next thing is
    /// [`Pmu::resume`].
    pub fn suspend() {
        pmcntenclr_el0::act(BOTH);
        pmintenclr_el1::act(BOTH);
        pmovsclr_el0::act(BOTH);
        isb();
    }

    /// What was counted since [`Pmu::start`].
    #[inline(always)]
    pub fn counts(&mut self) -> Counts {
        let now = [pmevcntr0_el0::read() as u32, pmevcntr1_el0::read() as u32];
        let passed = |n: usize| u64::from(now[n].wrapping_sub(self.from[n]));
        self.counts.reads += passed(0);
        self.counts.writes += if self.two { passed(1) } else { 0 };
        self.from = now;
        self.counts
    }

    /// Adds what EL2 did for the guest, which the counters leave out.
    pub fn charge(&mut self, accesses: Counts) {
        self.counts.reads += accesses.reads;
        self.counts.writes += if self.two { accesses.writes } else { 0 };
    }

    /// Has the interrupt come when one of the counts reaches `limit`, or before; a pending
    /// interrupt is forgotten. Right after [`Pmu::counts`].
    #[inline(always)]
    pub fn interrupt_at(&mut self, limit: Counts) {
        // A limit that is reached already is not asked for: the vCPU is suspended.
        let distance = |limit: u64, count: u64| limit.saturating_sub(count).clamp(1, FARTHEST);
        let from = |limit, count| 0u32.wrapping_sub(distance(limit, count) as u32);
        let reads = from(limit.reads, self.counts.reads);
        let writes = from(limit.writes, self.counts.writes);
        self.from = [reads, if self.two { writes } else { reads.wrapping_sub(LATER) }];
        pmevcntr0_el0::write(self.from[0].into());
        pmevcntr1_el0::write(self.from[1].into());
        Self::forget();
    }

    /// The same as [`Pmu::counts`] where both counters count the same.
    #[inline(always)]
    pub fn reads(&mut self) -> u64 {
        let now = pmevcntr0_el0::read() as u32;
        self.counts.reads += u64::from(now.wrapping_sub(self.from[0]));
        self.from[0] = now;
        self.counts.reads
    }

    /// Has the interrupt come after so many further reads, or before, where both counters count the
    /// same; right after [`Pmu::reads`]. Takes effect at the next ISB.
    #[inline(always)]
    pub fn interrupt_in_reads(&mut self, distance: u64) {
        let from = 0u32.wrapping_sub(distance.min(FARTHEST) as u32);
        self.from = [from, from.wrapping_sub(LATER)];
        pmevcntr0_el0::write(self.from[0].into());
        pmevcntr1_el0::write(self.from[1].into());
        pmovsclr_el0::act(BOTH);
    }

    /// Forgets an overflow.
    #[inline(always)]
    pub fn forget() {
        pmovsclr_el0::act(BOTH);
        // The level must have fallen before the interrupt is deactivated.
        isb();
    }
}

#[cfg(test)]
mod tests;
