//! Caches and DRAM banks of a whole chip, without time: hits per level, and evicted lines and
//! closed rows per pair of owners.
//!
//! The lines of private caches are kept coherent by MOESI, as the snoop control unit of a
//! Cortex-A53 does it: a miss that another core's private cache can serve is served from there,
//! dirty lines are shared without being written back, and a store takes the line away from all
//! others. Instruction caches take no part in it.
//!
//! ```
//! use weir_memory::{
//!     Access, AddressFields, AddressMap, Bytes, CacheConfig, Hierarchy, HierarchyConfig, L2Config,
//!     L2Sharing, Owner, Pa, Replacement, Served,
//! };
//!
//! let cache = |size, ways| CacheConfig {
//!     size: Bytes(size),
//!     ways,
//!     line: Bytes(64),
//!     replacement: Replacement::Lru,
//! };
//! let mut chip = Hierarchy::new(HierarchyConfig {
//!     cores: 2,
//!     owners: 3,
//!     l1d: cache(32 << 10, 4),
//!     l1i: None,
//!     l2: Some(L2Config {
//!         cache: cache(1 << 20, 16),
//!         sharing: L2Sharing::Shared,
//!         inclusive: false,
//!     }),
//!     // Two bank bits, each an XOR; rows of 8 KiB in 2 GiB.
//!     dram: Some(AddressMap::new(AddressFields::from_banks(vec![0x9_0000, 0x12_0000], 13, 31))?),
//! })?;
//! let (core, vm) = (0, Owner(1));
//! assert_eq!(chip.access(core, vm, Access::Write, Pa(0x4000_0000), 8), Served::Memory);
//! assert_eq!(chip.access(core, vm, Access::Read, Pa(0x4000_0008), 8), Served::L1);
//! let l2 = chip.l2().next().unwrap();
//! assert_eq!((l2.accesses[1], l2.evictions.between_owners()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use crate::{
    cache::{Cache, CacheConfig, CacheError, CacheStats, LineState, Victim},
    dram::{AddressMap, BankStats, Banks},
    units::{Owner, Pa},
};

/// The users of a second-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Sharing {
    /// All cores use one.
    Shared,
    /// Each core has its own.
    Private,
}

/// A second-level cache and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Config {
    /// Its shape, of each one if they are private.
    pub cache: CacheConfig,
    /// Its users.
    pub sharing: L2Sharing,
    /// Whether every line in an L1 data cache must be here as well: then a line that leaves the L2
    /// leaves the L1s, too (Cortex-A72; a Cortex-A53 has no such rule).
    pub inclusive: bool,
}

/// The caches and the DRAM of a chip.
#[derive(Clone, Debug)]
pub struct HierarchyConfig {
    /// Cores, 1 to 64.
    pub cores: usize,
    /// Owners 0 to `owners` - 1 will be counted.
    pub owners: usize,
    /// Each core's L1 data cache.
    pub l1d: CacheConfig,
    /// Each core's L1 instruction cache; without one, fetches go to the next level.
    pub l1i: Option<CacheConfig>,
    /// The second level, if there is one.
    pub l2: Option<L2Config>,
    /// The DRAM's address functions, if rows are to be counted.
    pub dram: Option<AddressMap>,
}

/// Why a hierarchy can't be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HierarchyError {
    /// One of the caches.
    Cache {
        /// Which.
        level: &'static str,
        /// The fault in it.
        error: CacheError,
    },
    /// A level with another line size than the L1 data cache.
    LineSizes {
        /// Which level.
        level: &'static str,
        /// Its line in bytes.
        line: u64,
        /// The L1 data cache's line in bytes.
        l1d: u64,
    },
    /// Cores outside of 1 to 64.
    Cores(usize),
}

impl fmt::Display for HierarchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache { level, error } => write!(f, "{level}: {error}"),
            Self::LineSizes { level, line, l1d } => write!(
                f,
                "{level} has lines of {line} B, l1d has lines of {l1d} B: the model needs one size \
                 for all levels"
            ),
            Self::Cores(n) => write!(f, "{n} cores: give 1 to 64"),
        }
    }
}

impl core::error::Error for HierarchyError {}

/// The kinds of memory access of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or DC ZVA.
    Write,
    /// An instruction fetch.
    Fetch,
}

/// Where an access found its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// The core's own first level.
    L1,
    /// The second level.
    L2,
    /// A private cache of another core.
    Peer,
    /// DRAM.
    Memory,
}

/// The traffic of a core across the border below the L2 (below the L1s where there is no L2): the
/// events `L2D_CACHE_REFILL` and `L2D_CACHE_WB` of the Armv8 PMU, as far as they can be attributed
/// to a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTraffic {
    /// Lines brought in.
    pub refills: u64,
    /// Dirty lines that its accesses evicted, of any owner.
    pub write_backs: u64,
}

/// A line that went to DRAM or came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedLine {
    /// The line's number.
    pub line: u64,
    /// Its owner.
    pub owner: Owner,
    /// Written, not read.
    pub write: bool,
}

/// The model. See the [module](self).
#[derive(Clone, Debug)]
pub struct Hierarchy {
    line_shift: u32,
    l1d: Box<[Cache]>,
    l1i: Option<Box<[Cache]>>,
    /// None, one, or one a core.
    l2: Box<[Cache]>,
    l2_private: bool,
    inclusive: bool,
    banks: Option<Banks>,
    traffic: Box<[CoreTraffic]>,
    /// The traffic since it was last taken; `None` if the recording is off.
    moved: Option<Vec<MovedLine>>,
}

impl Hierarchy {
    /// Empty caches, closed rows.
    ///
    /// # Errors
    /// [`HierarchyError`] names the level and what does not fit.
    pub fn new(config: HierarchyConfig) -> Result<Self, HierarchyError> {
        let HierarchyConfig { cores, owners, l1d, l1i, l2, dram } = config;
        if !(1..=64).contains(&cores) {
            return Err(HierarchyError::Cores(cores));
        }
        let build = |level: &'static str, cache: CacheConfig, count: usize| {
            if cache.line != l1d.line {
                let (line, l1d) = (cache.line.0, l1d.line.0);
                return Err(HierarchyError::LineSizes { level, line, l1d });
            }
            let one = Cache::new(cache, owners)
                .map_err(|error| HierarchyError::Cache { level, error })?;
            Ok(vec![one; count].into_boxed_slice())
        };
        let l2_private = l2.is_some_and(|l2| l2.sharing == L2Sharing::Private);
        let l2_count = if l2_private { cores } else { 1 };
        Ok(Self {
            line_shift: l1d.line.0.trailing_zeros(),
            l1d: build("l1d", l1d, cores)?,
            l1i: l1i.map(|cache| build("l1i", cache, cores)).transpose()?,
            l2: l2.map(|l2| build("l2", l2.cache, l2_count)).transpose()?.unwrap_or_default(),
            l2_private,
            inclusive: l2.is_some_and(|l2| l2.inclusive),
            banks: dram.map(|map| Banks::new(map, owners)),
            traffic: vec![CoreTraffic::default(); cores].into_boxed_slice(),
            moved: None,
        })
    }

    /// From now on keeps a list of the lines that move, for [`Hierarchy::take_moved`].
    pub fn keep_moved(&mut self) {
        self.moved.get_or_insert_default();
    }

    /// The lines that went to DRAM or came from it since the last call, in order.
    pub fn take_moved(&mut self) -> impl Iterator<Item = MovedLine> {
        self.moved.iter_mut().flat_map(|moved| moved.drain(..))
    }

    /// Whether a core's first level has a line, without using it.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn first_level_has(&self, core: usize, access: Access, line: u64) -> bool {
        match (&self.l1i, access) {
            (Some(l1i), Access::Fetch) => l1i[core].contains(line),
            (None, Access::Fetch) => false,
            _ => self.l1d[core].contains(line),
        }
    }

    /// A coherent device reads or writes a whole line, and the shared second level allocates it: a
    /// read brings it in unless a cache has it, and a write leaves it dirty there and takes it from
    /// all first levels.
    ///
    /// # Panics
    /// If there is no shared second level, or the owner is not among those of the configuration.
    pub fn device_allocate(&mut self, owner: Owner, write: bool, line: u64) -> Served {
        let state = LineState { dirty: write, shared: false };
        if write {
            for cache in &mut self.l1d {
                cache.invalidate(line);
            }
            if !self.l2[0].write_back(line, owner) {
                let victim = self.l2[0].fill(line, owner, state);
                self.leave_l2(None, victim);
            }
            return Served::L2;
        }
        // The second level counts the lookup, also if a first level has the line.
        if self.l2[0].lookup(line, owner, false).is_some() {
            return Served::L2;
        }
        if self.l1d.iter().any(|cache| cache.contains(line)) {
            return Served::Peer;
        }
        self.dram(owner, line, false);
        let victim = self.l2[0].fill(line, owner, state);
        self.leave_l2(None, victim);
        Served::Memory
    }

    /// A coherent device reads or writes a whole line. A read is served by a cache that has the
    /// line, and brings it into none; a write goes to DRAM and takes the line from all caches.
    pub fn device_access(&mut self, owner: Owner, write: bool, line: u64) -> Served {
        let mut holds = false;
        for cache in self.l1d.iter_mut().chain(&mut self.l2) {
            let held = if write { cache.invalidate(line).is_some() } else { cache.contains(line) };
            holds |= held;
        }
        if write || !holds {
            self.dram(owner, line, write);
            return Served::Memory;
        }
        Served::L2
    }

    /// One access of `bytes` bytes (at least 1). One that lies in several lines touches each; the
    /// result is the slowest of them.
    ///
    /// # Panics
    /// If the core or the owner is not among those of the configuration.
    #[inline]
    pub fn access(
        &mut self,
        core: usize,
        owner: Owner,
        access: Access,
        pa: Pa,
        bytes: u64,
    ) -> Served {
        let first = pa.0 >> self.line_shift;
        let last = pa.0.saturating_add(bytes.max(1) - 1) >> self.line_shift;
        let mut served = self.access_line(core, owner, access, first);
        for line in first + 1..=last {
            served = served.max(self.access_line(core, owner, access, line));
        }
        served
    }

    /// One access within one line, given by its number (address divided by the line's bytes).
    ///
    /// # Panics
    /// If the core or the owner is not among those of the configuration.
    #[inline]
    pub fn access_line(&mut self, core: usize, owner: Owner, access: Access, line: u64) -> Served {
        if access == Access::Fetch {
            return self.fetch(core, owner, line);
        }
        let write = access == Access::Write;
        if let Some(before) = self.l1d[core].lookup(line, owner, write) {
            if write && before.shared {
                self.take_exclusive(core, line);
            }
            return Served::L1;
        }
        self.miss(core, owner, write, line)
    }

    /// Counts of a core's L1 data cache.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn l1d(&self, core: usize) -> &CacheStats {
        self.l1d[core].stats()
    }

    /// Counts of a core's L1 instruction cache, if there is one.
    #[must_use]
    pub fn l1i(&self, core: usize) -> Option<&CacheStats> {
        self.l1i.as_ref()?.get(core).map(Cache::stats)
    }

    /// Counts of the second level: one entry if it is shared, one a core if it is private, none
    /// without one.
    pub fn l2(&self) -> impl ExactSizeIterator<Item = &CacheStats> {
        self.l2.iter().map(Cache::stats)
    }

    /// Returns how many lines the second level can hold; 0 without one.
    #[must_use]
    pub fn l2_capacity(&self) -> u64 {
        self.l2.iter().map(|cache| cache.config().size.0 / cache.config().line.0).sum()
    }

    /// Returns how many lines of each owner the second level holds, for owners below `owners`.
    #[must_use]
    pub fn l2_lines(&self, owners: usize) -> Vec<u64> {
        let mut lines = vec![0; owners];
        for line in self.l2.iter().flat_map(Cache::lines) {
            if let Some(lines) = lines.get_mut(usize::from(line.owner.0)) {
                *lines += 1;
            }
        }
        lines
    }

    /// Counts of the DRAM's banks, if there are address functions. A line that is written back
    /// counts for its own owner, not for the one that evicted it: it goes to a row of that owner's
    /// memory.
    #[must_use]
    pub fn banks(&self) -> Option<&BankStats> {
        self.banks.as_ref().map(Banks::stats)
    }

    /// The traffic of each core across the border below the L2.
    #[must_use]
    pub fn traffic(&self) -> &[CoreTraffic] {
        &self.traffic
    }

    /// Takes all lines of an owner from the data caches and the second level, as if it had other
    /// memory from now on: nothing is written back.
    pub fn discard(&mut self, owner: Owner) {
        self.l1d.iter_mut().chain(&mut self.l2).for_each(|cache| cache.discard(owner));
    }

    /// Forgets all counts, keeps lines and open rows.
    pub fn clear_stats(&mut self) {
        let caches = self.l1d.iter_mut().chain(&mut self.l2);
        caches.chain(self.l1i.iter_mut().flatten()).for_each(Cache::clear_stats);
        if let Some(banks) = &mut self.banks {
            banks.clear_stats();
        }
        self.traffic.fill(CoreTraffic::default());
    }

    /// A load or store that missed its L1.
    fn miss(&mut self, core: usize, owner: Owner, write: bool, line: u64) -> Served {
        let mut state = LineState { dirty: write, shared: false };
        let served = if self.l2_private
            && let Some(before) = self.l2[core].lookup(line, owner, false)
        {
            if write {
                if before.shared {
                    self.take_exclusive(core, line);
                    self.l2[core].set_shared(line, false);
                }
            } else {
                state.shared = before.shared;
            }
            Served::L2
        } else if let Some(peer) = self.snoop(core, line, write) {
            state = LineState { dirty: write || peer.dirty, shared: !write };
            self.fill_private_l2(core, owner, line, state.shared);
            Served::Peer
        } else {
            let served = self.fetch_shared(core, owner, line);
            self.fill_private_l2(core, owner, line, false);
            served
        };
        if let Some(victim) = self.l1d[core].fill(line, owner, state)
            && victim.dirty
        {
            self.write_back_l1(core, victim);
        }
        served
    }

    fn fetch(&mut self, core: usize, owner: Owner, line: u64) -> Served {
        if let Some(l1i) = &mut self.l1i
            && l1i[core].lookup(line, owner, false).is_some()
        {
            return Served::L1;
        }
        let served = if self.l2_private && self.l2[core].lookup(line, owner, false).is_some() {
            Served::L2
        } else if self.l1d[core].contains(line) {
            // The core's own data cache may hold the only copy of code that was just written; on
            // hardware software has cleaned it by now, which the model does not see.
            Served::L1
        } else if self.snoop(core, line, false).is_some() {
            Served::Peer
        } else {
            let served = self.fetch_shared(core, owner, line);
            self.fill_private_l2(core, owner, line, false);
            served
        };
        if let Some(l1i) = &mut self.l1i {
            l1i[core].fill(line, owner, LineState::default());
        }
        served
    }

    /// Searches the private caches of all other cores. A store takes the line from them; the state
    /// is whether one of them was dirty, and then the new holder must write it back some day. A
    /// load leaves it with them, and its dirtiness, too.
    fn snoop(&mut self, core: usize, line: u64, write: bool) -> Option<LineState> {
        let mut found = None;
        for peer in (0..self.l1d.len()).filter(|&peer| peer != core) {
            let l2 = if self.l2_private { self.l2.get_mut(peer) } else { None };
            for cache in core::iter::once(&mut self.l1d[peer]).chain(l2) {
                let Some(state) = cache.peek(line) else { continue };
                let dirty = found.is_some_and(|before: LineState| before.dirty);
                if write {
                    cache.invalidate(line);
                    found = Some(LineState { dirty: dirty || state.dirty, shared: false });
                } else {
                    cache.set_shared(line, true);
                    found = Some(LineState { dirty: false, shared: true });
                }
            }
        }
        found
    }

    /// A store to a line that others may have: it is taken from them.
    fn take_exclusive(&mut self, core: usize, line: u64) {
        // The line is dirty in this core's L1 by the store itself, so the others' dirtiness is not
        // lost.
        self.snoop(core, line, true);
        self.l1d[core].set_shared(line, false);
    }

    /// Brings a line from a shared L2 or DRAM, and into a shared L2 on its way.
    fn fetch_shared(&mut self, core: usize, owner: Owner, line: u64) -> Served {
        let shared_l2 = !self.l2_private && !self.l2.is_empty();
        if shared_l2 && self.l2[0].lookup(line, owner, false).is_some() {
            return Served::L2;
        }
        self.traffic[core].refills += 1;
        self.dram(owner, line, false);
        if shared_l2 {
            let victim = self.l2[0].fill(line, owner, LineState::default());
            self.leave_l2(Some(core), victim);
        }
        Served::Memory
    }

    fn fill_private_l2(&mut self, core: usize, owner: Owner, line: u64, shared: bool) {
        if self.l2_private {
            let victim = self.l2[core].fill(line, owner, LineState { dirty: false, shared });
            self.leave_l2(Some(core), victim);
        }
    }

    /// A dirty line leaves an L1 data cache.
    fn write_back_l1(&mut self, core: usize, victim: Victim) {
        let at = if self.l2_private { core } else { 0 };
        let Some(l2) = self.l2.get_mut(at) else {
            self.traffic[core].write_backs += 1;
            return self.dram(victim.owner, victim.line, true);
        };
        if !l2.write_back(victim.line, victim.owner) {
            let state = LineState { dirty: true, shared: self.l2_private };
            let next = l2.fill(victim.line, victim.owner, state);
            self.leave_l2(Some(core), next);
        }
    }

    /// A line leaves an L2, by an access of `core` or else of a device.
    fn leave_l2(&mut self, core: Option<usize>, victim: Option<Victim>) {
        let Some(mut victim) = victim else { return };
        if self.inclusive {
            let above = match core.filter(|_| self.l2_private) {
                Some(core) => core..core + 1,
                None => 0..self.l1d.len(),
            };
            for cache in &mut self.l1d[above] {
                if let Some(copy) = cache.invalidate(victim.line) {
                    victim.dirty |= copy.dirty;
                }
            }
        }
        if victim.dirty {
            if let Some(core) = core {
                self.traffic[core].write_backs += 1;
            }
            self.dram(victim.owner, victim.line, true);
        }
    }

    fn dram(&mut self, owner: Owner, line: u64, write: bool) {
        if let Some(moved) = &mut self.moved {
            moved.push(MovedLine { line, owner, write });
        }
        if let Some(banks) = &mut self.banks {
            banks.access(Pa(line << self.line_shift), owner);
        }
    }
}
