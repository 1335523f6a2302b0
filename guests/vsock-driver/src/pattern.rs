//! What test guests send: bytes that say where in a stream they belong.

/// Byte number `at` of the stream.
#[must_use]
pub const fn byte(at: u64) -> u8 {
    (word(at / 8) >> (at % 8 * 8)) as u8
}

/// Word `number` of the stream, its bytes little-endian: splitmix64.
const fn word(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Fills `bytes` with the stream from byte `at` on.
pub fn fill(at: u64, bytes: &mut [u8]) {
    let skip = (at % 8) as usize;
    let mut number = at / 8;
    let (first, rest) = bytes.split_at_mut(bytes.len().min(8 - skip));
    first.copy_from_slice(&word(number).to_le_bytes()[skip..skip + first.len()]);
    for chunk in rest.chunks_mut(8) {
        number += 1;
        chunk.copy_from_slice(&word(number).to_le_bytes()[..chunk.len()]);
    }
}

/// How many of `bytes` are not those of the stream from byte `at` on.
#[must_use]
pub fn wrong(at: u64, bytes: &[u8]) -> u64 {
    const PIECE: usize = 256;
    let mut wanted = [0; PIECE];
    let pieces = bytes.chunks(PIECE).zip((at..).step_by(PIECE));
    pieces
        .map(|(piece, at)| {
            let wanted = &mut wanted[..piece.len()];
            fill(at, wanted);
            piece.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count() as u64
        })
        .sum()
}

/// A running check sum: FNV-1a over bytes, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum(pub u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    /// Takes `bytes` in.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_piece_is_what_its_bytes_are(at in 0u64..10_000, len in 0usize..100) {
            let mut piece = vec![0; len];
            fill(at, &mut piece);
            prop_assert!(piece.iter().zip(at..).all(|(&found, at)| found == byte(at)));
        }

        #[test]
        fn each_wrong_byte_counts(
            at in 0u64..10_000, len in 0usize..1000, places in prop::collection::btree_set(0usize..1000, 0..9),
        ) {
            let mut bytes = vec![0; len];
            fill(at, &mut bytes);
            let places: Vec<_> = places.into_iter().filter(|&place| place < len).collect();
            for &place in &places {
                bytes[place] ^= 0x10;
            }
            prop_assert_eq!(wrong(at, &bytes), places.len() as u64);
        }
    }
}
