//! The PMU (PMUv3, DDI0487 D11). Event counters 0 and 1 of each core are EL2's own: they count what
//! its guest does, and nothing of EL2's. From 2 on they are the guest's, if its VM was granted
//! some, and the cycle counter with them. All accesses of guests trap (MDCR_EL2.TPM and TPMCR);
//! what becomes of them is decided in `vboard::pmu`.

use super::{
    isb,
    sysreg::{
        id_register, pmccfiltr_el0, pmccntr_el0, pmceid0_el0, pmceid1_el0, pmcntenclr_el0,
        pmcntenset_el0, pmcr_el0, pmevcntr0_el0, pmevcntr1_el0, pmevtyper0_el0, pmevtyper1_el0,
        pmintenclr_el1, pmintenset_el1, pmovsclr_el0, pmovsset_el0, pmselr_el0, pmuserenr_el0,
        pmxevcntr_el0, pmxevtyper_el0,
    },
};
use weir_abi::KEPT_COUNTERS;
use weir_budget::Counts;
use weir_vdev::pmu::{CYCLES, Counters};

/// Counters 0 and 1.
const BOTH: u64 = 3;
/// PMCR_EL0.E: those count that are enabled. LC: the cycle counter has 64 bits.
const ENABLE: u64 = 1 | 1 << 6;
/// How much later than counter 0 counter 1 overflows where both count the same. QEMU (7.2 to 10)
/// plans its look at an overflow one event early, finds none, and plans no other unless a counter
/// overflows later still.
const LATER: u32 = 2;
/// A counter is never set to overflow later than this, so that more than one overflow cannot pass
/// unseen.
const FARTHEST: u64 = 1 << 31;

/// The two counters of a core as 64-bit ones, for its meter. A counter has 32 bits (PMUv3 before
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
    /// Starts the counters of this core: number 0 counts PMU event `reads`, 1 `writes`, at EL1 and
    /// EL0; without the latter (0) both the former.
    #[must_use]
    pub fn start([reads, writes]: [u16; 2]) -> Self {
        let two = writes != 0;
        let events = [reads, if two { writes } else { reads }].map(u64::from);
        let mut pmu = Self { counts: Counts::ZERO, from: [0; 2], two, events };
        pmu.resume();
        pmu
    }

    /// Goes on counting on this core, whose counters were another's or nobody's meanwhile.
    pub fn resume(&mut self) {
        // P, U, NSK, NSU, NSH zero: EL1 and EL0 count, EL2 and EL3 don't.
        pmevtyper0_el0::write(self.events[0]);
        pmevtyper1_el0::write(self.events[1]);
        pmevcntr0_el0::write(0);
        pmevcntr1_el0::write(0);
        pmovsclr_el0::write(BOTH);
        pmcntenset_el0::write(BOTH);
        pmintenset_el1::write(BOTH);
        pmcr_el0::write(ENABLE);
        isb();
        self.from = [0; 2];
    }

    /// Stops this core's counters. What they counted was asked for; the next thing is
    /// [`Pmu::resume`].
    pub fn suspend() {
        pmcntenclr_el0::write(BOTH);
        pmintenclr_el1::write(BOTH);
        pmovsclr_el0::write(BOTH);
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

    /// Has the interrupt come when one of the counts reaches `limit`, or before; whatever was
    /// pending is forgotten. Right after [`Pmu::counts`].
    #[inline(always)]
    pub fn interrupt_at(&mut self, limit: Counts) {
        // A limit that is reached already is one for which nobody asks: the vCPU is suspended.
        let distance = |limit: u64, count: u64| limit.saturating_sub(count).clamp(1, FARTHEST);
        let from = |limit, count| 0u32.wrapping_sub(distance(limit, count) as u32);
        let reads = from(limit.reads, self.counts.reads);
        let writes = from(limit.writes, self.counts.writes);
        self.from = [reads, if self.two { writes } else { reads.wrapping_sub(LATER) }];
        pmevcntr0_el0::write(self.from[0].into());
        pmevcntr1_el0::write(self.from[1].into());
        Self::forget();
    }

    /// Forgets an overflow.
    #[inline(always)]
    pub fn forget() {
        pmovsclr_el0::write(BOTH);
        // The level must have fallen before the interrupt is deactivated.
        isb();
    }
}

/// How many event counters this core has; 0 without a PMU.
#[must_use]
pub fn counters() -> u64 {
    // ID_AA64DFR0_EL1.PMUVer: 0 without a PMU, 15 with one of another architecture.
    match id_register(5, 0) >> 8 & 0xf {
        0 | 15 => 0,
        _ => pmcr_el0::read() >> 11 & 0x1f,
    }
}

/// The event counters of this core from number [`KEPT_COUNTERS`] on, and its cycle counter, of a VM
/// that was granted so many.
pub struct Granted(pub u8);

impl Granted {
    /// Starts to count what the guest enables.
    pub fn start() {
        pmcr_el0::write(ENABLE);
    }

    /// The guest's mask as the hardware's.
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

impl Counters for Granted {
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

    fn set_enabled(&mut self, mask: u32) {
        pmcntenclr_el0::write(self.all() & !self.mask(mask));
        pmcntenset_el0::write(self.mask(mask));
    }

    fn set_interrupts(&mut self, mask: u32) {
        pmintenclr_el1::write(self.all() & !self.mask(mask));
        pmintenset_el1::write(self.mask(mask));
        // The level must have fallen before the interrupt is deactivated.
        isb();
    }

    fn overflowed(&mut self) -> u32 {
        let mask = pmovsset_el0::read() & self.all();
        (mask as u32 & !CYCLES) >> KEPT_COUNTERS | mask as u32 & CYCLES
    }

    fn clear_overflowed(&mut self, mask: u32) {
        pmovsclr_el0::write(self.mask(mask));
    }

    fn set_overflowed(&mut self, mask: u32) {
        pmovsset_el0::write(self.mask(mask));
    }

    fn events(&mut self, register: u8) -> u64 {
        if register == 0 { pmceid0_el0::read() } else { pmceid1_el0::read() }
    }

    fn set_user(&mut self, user: u32) {
        pmuserenr_el0::write(user.into());
    }
}
