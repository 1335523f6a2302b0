//! The TLB of an SMMU's translation buffer unit, and the walks that its misses cost.
//!
//! A TBU's TLB is indexed by the *input* address (a device's IOVA) and shared by all devices behind
//! it: one that touches many pages throws out the others' entries (bao-throttling 5.4, where the
//! LPD DMA does it to the network interface).

use crate::{
    cache::{Cache, CacheConfig, CacheError, CacheStats, Replacement},
    units::{Bytes, Owner, Pa},
};

/// A device behind an SMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u16);

/// Shape of a TBU's TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbConfig {
    /// Entries: a power of two of sets times the ways.
    pub entries: u64,
    /// Entries of a set, 1 to 64.
    pub ways: u32,
    /// Bytes that an entry maps: a power of two, 4 KiB at least.
    pub page: Bytes,
    /// Which entry makes room.
    pub replacement: Replacement,
}

/// Where the translation tables lie that a walk goes through. The tables of each level are taken to
/// be one piece of memory of 8 MiB, which is enough for 4 GiB in pages of 4 KiB; the levels lie one
/// behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkTables {
    /// Where the tables of the device's domain start.
    pub base: Pa,
    /// Levels that are read for a page, 1 to 4.
    pub levels: u32,
}

const LEVEL: Bytes = Bytes(8 << 20);

/// The needs of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// Nothing: the TLB has it.
    Hit,
    /// These reads, one after the other.
    Walk(Walk),
}

/// The reads of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    reads: [Pa; 4],
    len: usize,
}

impl Walk {
    /// The descriptors' addresses, in the order in which they are read.
    #[must_use]
    pub fn reads(&self) -> &[Pa] {
        &self.reads[..self.len]
    }
}

/// The TLB of a translation buffer unit.
#[derive(Clone, Debug)]
pub struct Tbu {
    tlb: Cache,
    page_shift: u32,
}

impl Tbu {
    /// An empty TLB that counts for owners 0 to `owners` - 1.
    ///
    /// # Errors
    /// [`CacheError`], in which a line is a page and the size is what all entries map.
    pub fn new(config: TlbConfig, owners: usize) -> Result<Self, CacheError> {
        let TlbConfig { entries, ways, page, replacement } = config;
        if page.0 < 4096 {
            return Err(CacheError::Line(page));
        }
        let size = Bytes(entries.saturating_mul(page.0));
        let tlb = Cache::new(CacheConfig { size, ways, line: page, replacement }, owners)?;
        Ok(Self { tlb, page_shift: page.0.trailing_zeros() })
    }

    /// Translates an access of `owner`'s device. After a miss the entry is there: the walk's end is
    /// the caller's to wait for.
    ///
    /// # Panics
    /// If the owner is not among those of [`Tbu::new`].
    pub fn translate(
        &mut self,
        stream: StreamId,
        owner: Owner,
        iova: u64,
        tables: WalkTables,
    ) -> Translation {
        // 48 bits of IOVA leave 36 of page number and 12 for the stream.
        let page = (iova & 0xffff_ffff_ffff) >> self.page_shift;
        let key = u64::from(stream.0 & 0xfff) << 36 | page;
        if self.tlb.lookup(key, owner, false).is_some() {
            return Translation::Hit;
        }
        self.tlb.fill(key, owner, crate::cache::LineState::default());
        let len = tables.levels.clamp(1, 4) as usize;
        let mut reads = [Pa(0); 4];
        for (level, read) in reads[..len].iter_mut().enumerate() {
            let below = (len - 1 - level) as u32;
            // Each level resolves 9 bits, by descriptors of 8 bytes.
            let descriptor = (page >> (9 * below)) * 8;
            *read = Pa(tables.base.0 + LEVEL.0 * level as u64 + descriptor % LEVEL.0);
        }
        Translation::Walk(Walk { reads, len })
    }

    /// Lookups, misses, and evictions by pairs of owners.
    #[must_use]
    pub fn stats(&self) -> &CacheStats {
        self.tlb.stats()
    }
}
