use crate::word::{AtomicU64, Ordering, Word};
use crate::{Counts, MAX_VCPUS};

/// The accesses that each vCPU of a VM used in its last two periods, for other regulators to read.
///
/// Only the regulator of a vCPU writes to the vCPU's slots. Periods are numbered from 1.
#[derive(Debug)]
pub(in super::super) struct Usage<W>([[Slot<W, W>; 2]; MAX_VCPUS]);

/// The use in one period. `period` is 0 while the slot is being written.
#[derive(Debug)]
pub(super) struct Slot<P, D> {
    pub(super) period: P,
    pub(super) reads: D,
    pub(super) writes: D,
}

impl Usage<AtomicU64> {
    pub(super) const fn new() -> Self {
        Self([const { [const { Slot::new() }; 2] }; MAX_VCPUS])
    }
}

impl Slot<AtomicU64, AtomicU64> {
    const fn new() -> Self {
        Self { period: AtomicU64::new(0), reads: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }
}

impl<P: Word, D: Word> Slot<P, D> {
    pub(super) fn write(&self, period: u64, used: Counts) {
        self.period.store(0, Ordering::Relaxed);
        // Release: a core that loads a new count finds that the old period is gone.
        self.reads.store(used.reads, Ordering::Release);
        self.writes.store(used.writes, Ordering::Release);
        // Release: a core that loads the new period finds the new counts.
        self.period.store(period, Ordering::Release);
    }

    /// Returns the use in `period`; none if the slot does not contain that period (any more).
    pub(super) fn read(&self, period: u64) -> Option<Counts> {
        // Acquire: the loads of the counts come after this load.
        if self.period.load(Ordering::Acquire) != period {
            return None;
        }
        // Acquire: the second load of the period comes after these, and finds it gone if a count is
        // newer.
        let used = Counts {
            reads: self.reads.load(Ordering::Acquire),
            writes: self.writes.load(Ordering::Acquire),
        };
        (self.period.load(Ordering::Relaxed) == period).then_some(used)
    }
}

impl<W: Word> Usage<W> {
    #[cfg(test)]
    pub(super) fn on(word: impl Fn() -> W) -> Self {
        let slot = || Slot { period: word(), reads: word(), writes: word() };
        Self(core::array::from_fn(|_| [slot(), slot()]))
    }

    /// Publishes the use of `vcpu` in `period`, in place of its use two periods before.
    pub(in super::super) fn publish(&self, vcpu: u8, period: u64, used: Counts) {
        if let Some(slots) = self.0.get(usize::from(vcpu)) {
            slots[(period & 1) as usize].write(period, used);
        }
    }

    /// Returns the total use of the first `vcpus` vCPUs in `period`; none if not all of them have
    /// published it, or if one has published two later periods.
    pub(in super::super) fn total(&self, vcpus: u8, period: u64) -> Option<Counts> {
        let slots = self.0.get(..usize::from(vcpus))?;
        slots.iter().try_fold(Counts::ZERO, |sum, slots| {
            Some(sum.plus(slots[(period & 1) as usize].read(period)?))
        })
    }
}
