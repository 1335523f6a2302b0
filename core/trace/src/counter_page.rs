//! The counter page: an agent other than the cores counts each core's memory traffic in it, and EL2
//! polls it.
//!
//! The page stands for a memory controller's counters that software can read, as in A. Zuepke, A.
//! Bastoni, W. Chen, M. Caccamo, R. Mancuso: MemPol, Policing Core Memory Bandwidth from Outside of
//! the Cores (RTAS 2023). In QEMU the plug-in counts with its model of the caches. The page is a
//! static of the hypervisor:
//!
//! ```text
//!    0  magic, "weirmon\0"
//!    8  version (u32), cores that have counters (u32)
//!   16  1 when counting has begun (u64); then zeros up to 64
//!   64  core 0: eight counters (u64) in the order of [`CounterKind`], the rest 0
//!  128  core 1, and so on
//! ```
//!
//! All numbers are little endian. The page has one writer, which is outside of the machine; each
//! counter only grows. A core that reads its own counters sees all of its earlier accesses, because
//! only its own accesses change them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// First bytes of the page.
pub const MAGIC: [u8; 8] = *b"weirmon\0";
/// Version of the layout; changes with each change of it.
pub const VERSION: u32 = 1;
/// Number of cores that the page has counters for.
pub const CORES: usize = 8;
/// Bytes of the page.
pub const SIZE: usize = 4096;

/// Number of places for counters of one core.
const KINDS: usize = 8;
/// Bytes before the counters of core 0, and bytes of each core's counters.
const BLOCK: usize = 64;

/// What a counter counts; the number is its place among a core's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Lines that an access of the guest at EL1 or EL0 brought into the last cache from memory.
    Refills = 0,
    /// Dirty lines, of any owner, that such an access evicted from the last cache to memory.
    WriteBacks = 1,
    /// Like [`CounterKind::Refills`], but caused by EL2 and charged to no VM.
    HypervisorRefills = 2,
    /// Like [`CounterKind::WriteBacks`], but caused by EL2.
    HypervisorWriteBacks = 3,
}

/// One core's counters.
#[derive(Debug)]
#[repr(C, align(64))]
struct CoreCounts([AtomicU64; KINDS]);

/// The counter page.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct CounterPage {
    magic: [u8; 8],
    version: u32,
    cores: u32,
    counting: AtomicU64,
    counts: [CoreCounts; CORES],
}

const _: () = assert!(
    size_of::<CounterPage>() == SIZE
        && core::mem::offset_of!(CounterPage, counts) == BLOCK
        && size_of::<CoreCounts>() == BLOCK
);

impl CounterPage {
    /// Returns a page on which counting has not begun and all counters are 0.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            cores: CORES as u32,
            counting: AtomicU64::new(0),
            counts: [const { CoreCounts([const { AtomicU64::new(0) }; KINDS]) }; CORES],
        }
    }

    /// Whether counting has begun; true at the latest when the first guest runs its first
    /// instruction. Without a writer the counters stay 0, and no budget that uses them is spent.
    #[must_use]
    #[inline]
    pub fn is_counting(&self) -> bool {
        self.counting.load(Relaxed) != 0
    }

    /// Returns the refills and write-backs of the guest on `core` since counting began; 0 for a
    /// core without counters.
    #[must_use]
    #[inline]
    pub fn counts(&self, core: usize) -> (u64, u64) {
        (self.count(core, CounterKind::Refills), self.count(core, CounterKind::WriteBacks))
    }

    /// Returns one counter; 0 for a core without counters.
    #[must_use]
    #[inline]
    pub fn count(&self, core: usize, kind: CounterKind) -> u64 {
        self.counts.get(core).map_or(0, |counts| counts.0[kind as usize].load(Relaxed))
    }

    /// Marks that counting has begun. Only the writer calls this.
    pub fn begin(&self) {
        self.counting.store(1, Relaxed);
    }

    /// Sets one counter; does nothing for a core without counters. Only the writer calls this.
    #[inline]
    pub fn set(&self, core: usize, kind: CounterKind, count: u64) {
        if let Some(counts) = self.counts.get(core) {
            counts.0[kind as usize].store(count, Relaxed);
        }
    }

    /// Whether magic, version and number of cores are those of this layout.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (self.magic, self.version, self.cores) == (MAGIC, VERSION, CORES as u32)
    }

    /// Returns a copy of the page from bytes that were read, or `None` if they are no counter page.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Option<Self> {
        let word = |at: usize| {
            bytes
                .get(at..at + 8)
                .and_then(|word| word.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        let copy = Self {
            magic: word(0).to_le_bytes(),
            version: word(8) as u32,
            cores: (word(8) >> 32) as u32,
            counting: AtomicU64::new(word(16)),
            counts: core::array::from_fn(|core| {
                CoreCounts(core::array::from_fn(|kind| {
                    AtomicU64::new(word((core + 1) * BLOCK + 8 * kind))
                }))
            }),
        };
        copy.is_valid().then_some(copy)
    }
}

impl Default for CounterPage {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a page's bytes with the layout that the module's documentation describes.
    fn bytes() -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..16].copy_from_slice(b"weirmon\0\x01\0\0\0\x08\0\0\0");
        bytes[16] = 1;
        bytes[64..72].copy_from_slice(&7_u64.to_le_bytes());
        bytes[64 + 8..64 + 16].copy_from_slice(&5_u64.to_le_bytes());
        bytes[8 * 64..8 * 64 + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[8 * 64 + 16..8 * 64 + 24].copy_from_slice(&2_u64.to_le_bytes());
        bytes[8 * 64 + 24..8 * 64 + 32].copy_from_slice(&3_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn the_layout_is_as_documented() {
        let page = CounterPage::from_bytes(&bytes()).expect("a page");
        assert!(page.is_counting());
        assert_eq!((page.counts(0), page.counts(1)), ((7, 5), (0, 0)));
        assert_eq!((page.counts(7), page.counts(8)), ((u64::MAX, 0), (0, 0)));
        assert_eq!(page.count(7, CounterKind::HypervisorRefills), 2);
        assert_eq!(page.count(7, CounterKind::HypervisorWriteBacks), 3);
        assert_eq!(page.count(0, CounterKind::HypervisorRefills), 0);
    }

    #[test]
    fn each_counter_has_a_place_of_its_own() {
        let page = CounterPage::new();
        assert!(page.is_valid() && !page.is_counting());
        let kinds = [
            CounterKind::Refills,
            CounterKind::WriteBacks,
            CounterKind::HypervisorRefills,
            CounterKind::HypervisorWriteBacks,
        ];
        let all = || (0..CORES).flat_map(|core| kinds.map(|kind| (core, kind)));
        for (n, (core, kind)) in all().enumerate() {
            page.set(core, kind, n as u64 + 1);
        }
        page.set(CORES, CounterKind::Refills, 99);
        for (n, (core, kind)) in all().enumerate() {
            assert_eq!(page.count(core, kind), n as u64 + 1);
        }
        page.begin();
        assert!(page.is_counting());
    }

    #[test]
    fn other_bytes_are_no_page() {
        for (place, byte) in [(0, b'W'), (7, 1), (8, 2), (12, 7), (15, 1)] {
            let mut bytes = bytes();
            bytes[place] = byte;
            assert!(CounterPage::from_bytes(&bytes).is_none(), "byte {place}");
        }
        assert!(CounterPage::from_bytes(&[0; SIZE]).is_none());
    }
}
