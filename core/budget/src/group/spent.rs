use crate::word::{AtomicU64, Word, update};

/// Largest number of vCPUs that share one domain.
pub(in super::super) const MAX_MEMBERS: u8 = 32;

/// The vCPUs of a domain that have spent their budget, one bit each, in one word with the number
/// (modulo 2^32) of the period.
#[derive(Debug)]
pub(in super::super) struct Spent<W>(W);

/// Result of a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Mark {
    /// Whether all members have spent their budgets.
    pub(in super::super) all: bool,
    /// Whether this mark was the last missing one.
    pub(in super::super) news: bool,
}

impl Spent<AtomicU64> {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl<W: Word> Spent<W> {
    #[cfg(test)]
    pub(super) const fn on(word: W) -> Self {
        Self(word)
    }

    /// Records that the vCPUs in `member` have spent their budgets in `period`.
    pub(in super::super) fn mark(&self, period: u64, member: u32, members: u32) -> Mark {
        let tag = period << 32;
        update(&self.0, |word| {
            let before = match tag.wrapping_sub(word & !0xffff_ffff) >> 32 {
                0 => word as u32,
                ahead if ahead < 1 << 31 => 0,
                _ => return None,
            };
            let after = before | member;
            let all = after & members == members;
            let mark = Mark { all, news: all && before & members != members };
            Some((tag | u64::from(after), mark))
        })
        .unwrap_or_default()
    }
}
