//! The last-level cache, as described by a platform file and by the ID registers of a machine, and
//! the differences between the two.

use crate::PAGE;

/// The geometry of a cache. All zeros means an unknown cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheGeometry {
    /// Size in bytes.
    pub size: u64,
    /// Cache lines per set.
    pub ways: u64,
    /// Bytes per cache line.
    pub cache_line: u64,
}

/// A quantity in which two caches can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// [`CacheGeometry::size`].
    Size,
    /// [`CacheGeometry::ways`].
    Ways,
    /// [`CacheGeometry::cache_line`].
    CacheLine,
    /// [`CacheGeometry::colors`].
    Colors,
}

/// A difference between the cache that was found and the one that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The quantity that differs.
    pub quantity: Quantity,
    /// The expected value.
    pub expected: u64,
    /// The value that was found.
    pub there: u64,
}

/// Returns the last level of cache that holds data, according to CLIDR_EL1 (Arm ARM D19.2.27):
/// Ctype 2 to 4. Levels are numbered from 0 as in CSSELR_EL1.Level.
#[must_use]
pub fn last_level(clidr: u64) -> Option<u64> {
    (0..7).rev().find(|level| matches!(clidr >> (3 * level) & 7, 2..=4))
}

impl CacheGeometry {
    /// Returns the cache that CCSIDR_EL1 describes (Arm ARM D19.2.25), in the 32-bit format or,
    /// with FEAT_CCIDX, in the 64-bit format.
    #[must_use]
    pub const fn from_ccsidr(ccsidr: u64, ccidx: bool) -> Self {
        let (ways, sets) = if ccidx {
            (ccsidr >> 3 & 0x1f_ffff, ccsidr >> 32 & 0xff_ffff)
        } else {
            (ccsidr >> 3 & 0x3ff, ccsidr >> 13 & 0x7fff)
        };
        let (ways, sets, cache_line) = (ways + 1, sets + 1, 16 << (ccsidr & 7));
        Self { size: ways * sets * cache_line, ways, cache_line }
    }

    /// Returns the address bits above the page that select a set: the color of a page. None for an
    /// unknown cache.
    #[must_use]
    pub const fn colors(&self) -> u64 {
        match self.size.checked_div(self.ways) {
            Some(way) if way > 0 => (way.next_power_of_two() - 1) & !(PAGE - 1),
            _ => 0,
        }
    }

    /// Returns the quantities in which `there` differs from this cache.
    pub fn differences(&self, there: &Self) -> impl Iterator<Item = Difference> + use<> {
        [
            (Quantity::Size, self.size, there.size),
            (Quantity::Ways, self.ways, there.ways),
            (Quantity::CacheLine, self.cache_line, there.cache_line),
            (Quantity::Colors, self.colors(), there.colors()),
        ]
        .into_iter()
        .filter(|(_, expected, there)| expected != there)
        .map(|(quantity, expected, there)| Difference { quantity, expected, there })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A53: CacheGeometry = CacheGeometry { size: 1 << 20, ways: 16, cache_line: 64 };

    #[test]
    fn the_id_registers_of_known_cores() {
        // Cortex-A53 with 1 MiB (DDI 0500, 4.3.22), as QEMU models it.
        assert_eq!(CacheGeometry::from_ccsidr(0x707f_e07a, false), A53);
        // Cortex-A57 with 2 MiB.
        let a57 = CacheGeometry { size: 2 << 20, ..A53 };
        assert_eq!(CacheGeometry::from_ccsidr(0x70ff_e07a, false), a57);
        // The same cache in the other format: 2048 sets of 16 ways.
        assert_eq!(CacheGeometry::from_ccsidr(2047 << 32 | 15 << 3 | 2, true), a57);
        assert_eq!((A53.colors(), a57.colors()), (0xf000, 0x1_f000));
    }

    #[test]
    fn the_last_level_is_the_last_one_with_data() {
        // Cortex-A53: split first level, unified second.
        assert_eq!(last_level(0x0a20_0023), Some(1));
        // A split level only; then an instruction cache behind a unified cache.
        assert_eq!(last_level(0x3), Some(0));
        assert_eq!(last_level(0o1_4_3), Some(1));
        assert_eq!(last_level(0), None);
    }

    #[test]
    fn each_difference_is_named_with_both_values() {
        let of = |there: CacheGeometry| A53.differences(&there).collect::<Vec<_>>();
        let difference = |quantity, expected, there| Difference { quantity, expected, there };
        assert_eq!(of(A53), []);
        assert_eq!(
            of(CacheGeometry { size: 2 << 20, ways: 32, cache_line: 32 }),
            [
                difference(Quantity::Size, 1 << 20, 2 << 20),
                difference(Quantity::Ways, 16, 32),
                difference(Quantity::CacheLine, 64, 32),
            ]
        );
        assert_eq!(
            of(CacheGeometry { ways: 8, ..A53 }),
            [difference(Quantity::Ways, 16, 8), difference(Quantity::Colors, 0xf000, 0x1_f000)]
        );
        assert_eq!(of(CacheGeometry::default()).len(), 4);
    }

    #[test]
    fn no_register_makes_it_overflow() {
        for ccsidr in [0, u64::MAX, 0x7, u64::MAX << 32, 0xffff_ffff] {
            for ccidx in [false, true] {
                let cache = CacheGeometry::from_ccsidr(ccsidr, ccidx);
                assert!(cache.size >= 16 && cache.colors() & (PAGE - 1) == 0);
            }
        }
    }
}
