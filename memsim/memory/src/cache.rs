//! A set-associative cache with physical index and physical tag, write-back and write-allocate. It
//! holds no data: it records which lines are present, their owners, and evictions per pair of
//! owners.
//!
//! A line belongs to the owner that used it last: a buffer that the hypervisor filled and a VM then
//! works on is the VM's, and an owner that evicts it delays the VM.

use core::fmt;

use crate::{
    matrix::Matrix,
    units::{Bytes, Owner, Pa},
};

/// Which line of a full set makes room. A way that is empty is always taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The line that was used least recently.
    Lru,
    /// A binary tree of bits over the ways, each pointing to the half that was used less recently.
    /// Needs a power of two of ways.
    TreePlru,
    /// A way drawn from a generator (xorshift64*); the same seed draws the same ways.
    Random {
        /// Start of the generator.
        seed: u64,
    },
}

/// A cache's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Capacity: a power of two of sets times `ways` times `line`.
    pub size: Bytes,
    /// Lines in a set, 1 to 64.
    pub ways: u32,
    /// Bytes of a line: a power of two, 16 or more.
    pub line: Bytes,
    /// The owner that makes room.
    pub replacement: Replacement,
}

/// Why a cache can't be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheError {
    /// Ways outside of 1 to 64.
    Ways(u32),
    /// Ways that are no power of two, with [`Replacement::TreePlru`].
    TreeWays(u32),
    /// A line that is no power of two or smaller than 16 bytes.
    Line(Bytes),
    /// The size is not a power of two of sets.
    Sets {
        /// The size asked for.
        size: Bytes,
        /// Bytes of one way of one set times the ways.
        set: Bytes,
    },
    /// Owners outside of 1 to 256.
    Owners(usize),
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ways(n) => write!(f, "a cache of {n} ways: give 1 to 64"),
            Self::TreeWays(n) => {
                write!(f, "tree-PLRU over {n} ways: give a power of two of ways, or LRU")
            }
            Self::Line(line) => {
                write!(f, "a cache line of {line}: give a power of two of bytes, 16 or more")
            }
            Self::Sets { size, set } => write!(
                f,
                "a cache of {size} in sets of {set}: the size must be a power of two times {set}"
            ),
            Self::Owners(n) => write!(f, "{n} owners: give 1 to 256"),
        }
    }
}

impl core::error::Error for CacheError {}

/// A line that left a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The line's number: its address divided by the line's bytes.
    pub line: u64,
    /// The owner that used it last.
    pub owner: Owner,
    /// Whether it must be written to the next level.
    pub dirty: bool,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupOutcome {
    /// Whether the line was there.
    pub hit: bool,
    /// The line that made room, if the access missed and the set was full.
    pub victim: Option<Victim>,
}

/// The counts of a cache, by owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups by loads, stores and fetches.
    pub accesses: Box<[u64]>,
    /// Those that did not find their line.
    pub misses: Box<[u64]>,
    /// Evictions per pair of owners, dirty or not.
    pub evictions: Matrix,
    /// Of these the dirty ones, which were written to the next level.
    pub write_backs: Matrix,
}

impl CacheStats {
    pub(crate) fn new(owners: usize) -> Self {
        let zero = vec![0; owners].into_boxed_slice();
        Self {
            accesses: zero.clone(),
            misses: zero,
            evictions: Matrix::new(owners),
            write_backs: Matrix::new(owners),
        }
    }

    /// Adds another cache's counts for the same owners.
    ///
    /// # Panics
    /// If the numbers of owners differ.
    pub fn merge(&mut self, other: &Self) {
        self.evictions.merge(&other.evictions);
        self.write_backs.merge(&other.write_backs);
        for (sum, count) in self.accesses.iter_mut().zip(&other.accesses) {
            *sum += count;
        }
        for (sum, count) in self.misses.iter_mut().zip(&other.misses) {
            *sum += count;
        }
    }

    fn clear(&mut self) {
        self.accesses.fill(0);
        self.misses.fill(0);
        self.evictions.clear();
        self.write_backs.clear();
    }
}

// A way is one word: the line's number, its last user, and three flags. 0 is an empty way.
const LINE: u64 = (1 << 48) - 1;
const OWNER_SHIFT: u32 = 48;
const OWNER: u64 = 0xff << OWNER_SHIFT;
const SHARED: u64 = 1 << 61;
const DIRTY: u64 = 1 << 62;
const VALID: u64 = 1 << 63;

/// State of a line, as its coherence needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineState {
    /// It differs from the next level.
    pub dirty: bool,
    /// Another cache may have it, too.
    pub shared: bool,
}

impl LineState {
    fn of(way: u64) -> Self {
        Self { dirty: way & DIRTY != 0, shared: way & SHARED != 0 }
    }

    fn bits(self) -> u64 {
        (if self.dirty { DIRTY } else { 0 }) | (if self.shared { SHARED } else { 0 })
    }
}

/// A cache. See the [module](self).
#[derive(Clone, Debug)]
pub struct Cache {
    config: CacheConfig,
    ways: usize,
    line_shift: u32,
    set_mask: u64,
    /// Set by set. Under LRU a set is ordered from the most to the least recently used line, empty
    /// ways last.
    entries: Box<[u64]>,
    /// One word a set: node n's bit (root 1, children 2n and 2n+1) is set if the right half is to
    /// make room.
    trees: Box<[u64]>,
    random: u64,
    stats: CacheStats,
}

impl Cache {
    /// An empty cache that counts for owners 0 to `owners` - 1.
    ///
    /// # Errors
    /// [`CacheError`] names the value that does not fit.
    pub fn new(config: CacheConfig, owners: usize) -> Result<Self, CacheError> {
        let CacheConfig { size, ways, line, replacement } = config;
        if !(1..=64).contains(&ways) {
            return Err(CacheError::Ways(ways));
        }
        if replacement == Replacement::TreePlru && !ways.is_power_of_two() {
            return Err(CacheError::TreeWays(ways));
        }
        if !line.0.is_power_of_two() || line.0 < 16 || line.0 > 1 << 32 {
            return Err(CacheError::Line(line));
        }
        let set = Bytes(line.0 * u64::from(ways));
        let sets = size.0 / set.0;
        if !size.0.is_multiple_of(set.0) || !sets.is_power_of_two() || sets > 1 << 28 {
            return Err(CacheError::Sets { size, set });
        }
        if !(1..=256).contains(&owners) {
            return Err(CacheError::Owners(owners));
        }
        let ways = ways as usize;
        let sets_len = sets as usize;
        let random = match replacement {
            Replacement::Random { seed } => scramble(seed),
            _ => 0,
        };
        let trees = if replacement == Replacement::TreePlru { sets_len } else { 0 };
        Ok(Self {
            config,
            ways,
            line_shift: line.0.trailing_zeros(),
            set_mask: sets - 1,
            entries: vec![0; sets_len * ways].into_boxed_slice(),
            trees: vec![0; trees].into_boxed_slice(),
            random,
            stats: CacheStats::new(owners),
        })
    }

    /// The shape it was built with.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// The counts.
    #[must_use]
    pub fn stats(&self) -> &CacheStats {
        &self.stats
    }

    /// Forgets the counts, not the lines.
    pub fn clear_stats(&mut self) {
        self.stats.clear();
    }

    /// The number of the line that an address lies in.
    #[must_use]
    #[inline]
    pub fn line_of(&self, pa: Pa) -> u64 {
        (pa.0 >> self.line_shift) & LINE
    }

    /// A load or store of a single cache: searches the line and fetches it if it is not there.
    ///
    /// # Panics
    /// If the owner is not among those of [`Cache::new`].
    pub fn access(&mut self, pa: Pa, owner: Owner, write: bool) -> LookupOutcome {
        let line = self.line_of(pa);
        if self.lookup(line, owner, write).is_some() {
            return LookupOutcome { hit: true, victim: None };
        }
        let victim = self.fill(line, owner, LineState { dirty: write, shared: false });
        LookupOutcome { hit: false, victim }
    }

    /// Searches a line on behalf of `owner`, its user from now on; a store makes it dirty. Counts
    /// the access. The state is that of before the access; `None` is a miss.
    ///
    /// # Panics
    /// If the owner is not among those of [`Cache::new`].
    #[inline]
    pub fn lookup(&mut self, line: u64, owner: Owner, write: bool) -> Option<LineState> {
        self.stats.accesses[owner.index()] += 1;
        let found = self.touch(line, owner, write);
        if found.is_none() {
            self.stats.misses[owner.index()] += 1;
        }
        found
    }

    /// As [`Cache::lookup`] with a store, but not counted: the level above writes a line back.
    /// Whether it was here.
    pub fn write_back(&mut self, line: u64, owner: Owner) -> bool {
        self.touch(line, owner, true).is_some()
    }

    /// Brings a line in that is not here. The line that made room is counted as evicted by `owner`.
    ///
    /// # Panics
    /// If the owner is not among those of [`Cache::new`].
    pub fn fill(&mut self, line: u64, owner: Owner, state: LineState) -> Option<Victim> {
        debug_assert!(!self.contains(line), "line {line:#x} is here already");
        let entry = VALID | state.bits() | u64::from(owner.0) << OWNER_SHIFT | (line & LINE);
        let set = self.set_of(line);
        let start = set * self.ways;
        let ways = &mut self.entries[start..start + self.ways];
        let out = match self.config.replacement {
            Replacement::Lru => {
                let out = ways[self.ways - 1];
                ways.copy_within(..self.ways - 1, 1);
                ways[0] = entry;
                out
            }
            Replacement::TreePlru => {
                let empty = ways.iter().position(|&way| way == 0);
                let tree = &mut self.trees[set];
                let way = empty.unwrap_or_else(|| tree_victim(*tree, self.ways));
                tree_touch(tree, self.ways, way);
                core::mem::replace(&mut ways[way], entry)
            }
            Replacement::Random { .. } => {
                let empty = ways.iter().position(|&way| way == 0);
                let way = empty.unwrap_or_else(|| draw(&mut self.random, self.ways));
                core::mem::replace(&mut ways[way], entry)
            }
        };
        if out == 0 {
            return None;
        }
        let victim = victim(out);
        self.stats.evictions.add(owner, victim.owner);
        if victim.dirty {
            self.stats.write_backs.add(owner, victim.owner);
        }
        Some(victim)
    }

    /// Whether a line is here; neither counted nor a use.
    #[must_use]
    pub fn contains(&self, line: u64) -> bool {
        self.peek(line).is_some()
    }

    /// A line's state; neither counted nor a use.
    #[must_use]
    pub fn peek(&self, line: u64) -> Option<LineState> {
        let start = self.set_of(line) * self.ways;
        let way = position(&self.entries[start..start + self.ways], line)?;
        Some(LineState::of(self.entries[start + way]))
    }

    /// Marks a line as one that another cache may have too, or as one that none has.
    pub fn set_shared(&mut self, line: u64, shared: bool) {
        let start = self.set_of(line) * self.ways;
        let ways = &mut self.entries[start..start + self.ways];
        if let Some(way) = position(ways, line) {
            ways[way] = if shared { ways[way] | SHARED } else { ways[way] & !SHARED };
        }
    }

    /// Takes a line out on behalf of another cache. No eviction is counted.
    pub fn invalidate(&mut self, line: u64) -> Option<Victim> {
        let start = self.set_of(line) * self.ways;
        let ways = &mut self.entries[start..start + self.ways];
        let way = position(ways, line)?;
        let out = ways[way];
        if self.config.replacement == Replacement::Lru {
            ways.copy_within(way + 1.., way);
            ways[self.ways - 1] = 0;
        } else {
            ways[way] = 0;
        }
        Some(victim(out))
    }

    /// Takes all lines of an owner out, without writing them back. No eviction is counted.
    pub fn discard(&mut self, owner: Owner) {
        let its = |way: &u64| victim(*way).owner == owner;
        let lines: Vec<_> = self.entries.iter().filter(|way| **way != 0 && its(way)).collect();
        let lines: Vec<_> = lines.into_iter().map(|way| victim(*way).line).collect();
        for line in lines {
            self.invalidate(line);
        }
    }

    /// All lines that are here, in no stated order.
    pub fn lines(&self) -> impl Iterator<Item = Victim> {
        self.entries.iter().filter(|&&way| way != 0).map(|&way| victim(way))
    }

    #[inline]
    fn set_of(&self, line: u64) -> usize {
        (line & self.set_mask) as usize
    }

    #[inline]
    fn touch(&mut self, line: u64, owner: Owner, write: bool) -> Option<LineState> {
        let set = self.set_of(line);
        let start = set * self.ways;
        let ways = &mut self.entries[start..start + self.ways];
        let way = position(ways, line)?;
        let before = ways[way];
        let dirty = if write { DIRTY } else { 0 };
        let entry = before & !OWNER | u64::from(owner.0) << OWNER_SHIFT | dirty;
        match self.config.replacement {
            Replacement::Lru => {
                if way > 0 {
                    ways.copy_within(..way, 1);
                }
                ways[0] = entry;
            }
            Replacement::TreePlru => {
                ways[way] = entry;
                tree_touch(&mut self.trees[set], self.ways, way);
            }
            Replacement::Random { .. } => ways[way] = entry,
        }
        Some(LineState::of(before))
    }
}

#[inline]
fn position(ways: &[u64], line: u64) -> Option<usize> {
    let wanted = VALID | (line & LINE);
    ways.iter().position(|way| way & (VALID | LINE) == wanted)
}

fn victim(way: u64) -> Victim {
    Victim { line: way & LINE, owner: Owner((way >> OWNER_SHIFT) as u8), dirty: way & DIRTY != 0 }
}

/// Points every node above `way` to the other half.
fn tree_touch(tree: &mut u64, ways: usize, way: usize) {
    let mut node = way + ways;
    while node > 1 {
        let right = node & 1;
        node /= 2;
        *tree = *tree & !(1 << node) | ((right ^ 1) as u64) << node;
    }
}

fn tree_victim(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// SplitMix64's finalizer: a start for xorshift that is never 0.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}

fn draw(state: &mut u64, ways: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let high = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
    ((high * ways as u64) >> 32) as usize
}
