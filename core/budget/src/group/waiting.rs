use crate::word::{AtomicU64, Word, update};

/// The vCPUs that are suspended because of their budget and want to be woken when budget is
/// returned: one bit each, in one word with the number (modulo 2^32) of the period.
///
/// Taking a bit clears it, so each [`Waiting::ask`] leads to at most one wake-up.
#[derive(Debug)]
pub(in super::super) struct Waiting<W>(W);

impl Waiting<AtomicU64> {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Returns the bits of `word` that belong to `period`; none if the word's period is a later one.
#[inline]
fn bits(word: u64, period: u64) -> Option<u32> {
    match (period << 32).wrapping_sub(word & !0xffff_ffff) >> 32 {
        0 => Some(word as u32),
        ahead if ahead < 1 << 31 => Some(0),
        _ => None,
    }
}

impl<W: Word> Waiting<W> {
    #[cfg(test)]
    pub(super) const fn on(word: W) -> Self {
        Self(word)
    }

    /// Adds the vCPU `member`.
    pub(in super::super) fn ask(&self, period: u64, member: u32) {
        update(&self.0, |word| Some((period << 32 | u64::from(bits(word, period)? | member), ())));
    }

    /// Removes the vCPUs in `members` and returns those that were present.
    pub(in super::super) fn take(&self, period: u64, members: u32) -> u32 {
        update(&self.0, |word| {
            let there = bits(word, period)?;
            // No exchange is made if there is nothing to remove.
            (there & members != 0)
                .then_some((period << 32 | u64::from(there & !members), there & members))
        })
        .unwrap_or(0)
    }
}

/// A vCPU's own view of [`Waiting`]; the vCPU asks at most once in each period.
#[derive(Clone, Debug)]
pub(in super::super) struct Waiter {
    /// The vCPU's bit.
    pub(in super::super) member: u32,
    /// The period in which the vCPU asked last.
    asked: u64,
    /// Whether the vCPU's bit may still be set.
    waits: bool,
}

impl Waiter {
    pub(in super::super) const fn new(member: u32) -> Self {
        Self { member, asked: 0, waits: false }
    }

    /// Asks for a wake-up. Returns false if the vCPU has asked in this period already.
    pub(in super::super) fn ask<W: Word>(&mut self, waiting: &Waiting<W>, period: u64) -> bool {
        let first = self.asked != period;
        if first {
            self.asked = period;
            self.waits = true;
            waiting.ask(period, self.member);
        }
        first
    }

    /// Withdraws the request, because the vCPU runs again or goes off.
    #[inline]
    pub(in super::super) fn withdraw<W: Word>(&mut self, waiting: &Waiting<W>, period: u64) {
        if core::mem::take(&mut self.waits) {
            waiting.take(period, self.member);
        }
    }
}
