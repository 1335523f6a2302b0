//! The shape of a channel's memory.

/// How many ranks, groups and banks a channel has, as bits of the bank number: the bank within its
/// group in the lowest bits, then the group, then the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// log2 of the ranks.
    pub rank_bits: u32,
    /// log2 of the bank groups of a rank.
    pub group_bits: u32,
    /// log2 of the banks of a group.
    pub bank_bits: u32,
}

impl Shape {
    /// Banks on the channel.
    #[must_use]
    pub fn banks(self) -> usize {
        1 << (self.rank_bits + self.group_bits + self.bank_bits)
    }

    /// Ranks on the channel.
    #[must_use]
    pub fn ranks(self) -> usize {
        1 << self.rank_bits
    }

    /// Banks of a rank.
    #[must_use]
    pub fn banks_per_rank(self) -> usize {
        1 << (self.group_bits + self.bank_bits)
    }

    #[inline]
    pub(crate) fn group_of(self, bank: usize) -> usize {
        bank >> self.bank_bits
    }

    #[inline]
    pub(crate) fn rank_of(self, bank: usize) -> usize {
        bank >> (self.bank_bits + self.group_bits)
    }
}
