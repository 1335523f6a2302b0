//! The words in which software-generated interrupts wait for one vCPU, for each GIC version.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir_units::IntId;

/// The SGIs posted to one receiver and not yet taken. Only [`super::SgiBoard`] and the model use
/// this trait.
pub trait SgiWords {
    /// No SGI is posted.
    const EMPTY: Self;
    /// The SGIs that [`SgiWords::take`] returns.
    type Bits: Copy;
    /// Posts an SGI; returns true if nothing was waiting before.
    fn post(&self, sender: usize, intid: IntId, group1: bool) -> bool;
    /// Takes all SGIs.
    fn take(&self) -> Self::Bits;
    /// Returns whether no SGI waits.
    fn is_empty(&self) -> bool;
    /// Returns the SGIs among `bits` that the receiver accepts, given its set of INTIDs in group 1,
    /// one bit per INTID.
    fn intids(bits: &Self::Bits, group1: u32) -> u32;
    /// Returns the senders of an SGI, one bit per vCPU (0 on GICv3, which does not record them).
    fn senders(bits: &Self::Bits, intid: IntId) -> u8;
}

/// GICv3: bits 0 to 15 are posted as group 1, bits 16 to 31 as group 0.
#[derive(Debug)]
pub struct SgiWordsV3(AtomicU32);

impl SgiWords for SgiWordsV3 {
    const EMPTY: Self = Self(AtomicU32::new(0));
    type Bits = u32;

    #[inline]
    fn post(&self, _sender: usize, intid: IntId, group1: bool) -> bool {
        let bit = if group1 { 1 } else { 1 << 16 } << (intid.0 & 15);
        // Release: orders the sender's stores before its SGI (the guest's, and EL2's on its behalf)
        // before this one. It pairs with the Acquire in `take`.
        self.0.fetch_or(bit, Ordering::Release) == 0
    }

    #[inline]
    fn take(&self) -> u32 {
        // Acquire: orders this load before the receiver's loads in its handler, so that they see
        // what the sender stored before `post`.
        self.0.swap(0, Ordering::Acquire)
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn intids(bits: &u32, group1: u32) -> u32 {
        (bits & group1 | bits >> 16 & !group1) & 0xffff
    }

    #[inline]
    fn senders(_bits: &u32, _intid: IntId) -> u8 {
        0
    }
}

/// GICv2: 16 bits per sender, four senders per word.
#[derive(Debug)]
pub struct SgiWordsV2 {
    words: [AtomicU64; 2],
    /// The words to which SGIs were posted, one bit each: a receiver is notified only once, no
    /// matter how many vCPUs post to it.
    posted: AtomicU32,
}

impl SgiWords for SgiWordsV2 {
    const EMPTY: Self =
        Self { words: [AtomicU64::new(0), AtomicU64::new(0)], posted: AtomicU32::new(0) };
    type Bits = [u64; 2];

    #[inline]
    fn post(&self, sender: usize, intid: IntId, _group1: bool) -> bool {
        let word = sender >> 2 & 1;
        let bit = 1 << ((sender & 3) * 16) << (intid.0 & 15);
        // Release: orders the sender's stores before its SGI (the guest's, and EL2's on its behalf)
        // before this one. It pairs with the Acquire in `take`.
        self.words[word].fetch_or(bit, Ordering::Release);
        // Release: the core that takes this bit, or a bit that is set after it, finds the SGI
        // above, unless an earlier `take` has already found it. In that case this notification has
        // no effect.
        self.posted.fetch_or(1 << word, Ordering::Release) == 0
    }

    #[inline]
    fn take(&self) -> [u64; 2] {
        // Acquire: orders the following loads of the words after this one.
        let posted = self.posted.swap(0, Ordering::Acquire);
        // Acquire: orders these loads before the receiver's loads in its handler, so that they see
        // what the sender stored before `post`.
        let take = |word: usize| {
            if posted >> word & 1 == 0 { 0 } else { self.words[word].swap(0, Ordering::Acquire) }
        };
        [take(0), take(1)]
    }

    fn is_empty(&self) -> bool {
        self.posted.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn intids(bits: &[u64; 2], _group1: u32) -> u32 {
        let both = bits[0] | bits[1];
        let half = both | both >> 32;
        (half | half >> 16) as u32 & 0xffff
    }

    #[inline]
    fn senders(bits: &[u64; 2], intid: IntId) -> u8 {
        let spread = |word: u64| {
            let b = word >> (intid.0 & 15) & 0x0001_0001_0001_0001;
            (b | b >> 15 | b >> 30 | b >> 45) as u8 & 15
        };
        spread(bits[0]) | spread(bits[1]) << 4
    }
}
