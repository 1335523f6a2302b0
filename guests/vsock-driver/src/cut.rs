//! Packets and frames in chains of several buffers.

/// Most buffers of a chain.
pub const MOST: usize = 64;

/// Cuts bytes into so many pieces, of which none is empty. Returns them and their number.
pub fn cut(bytes: &[u8], pieces: usize) -> ([&[u8]; MOST], usize) {
    let count = pieces.clamp(1, MOST).min(bytes.len());
    let at = |piece: usize| bytes.len() * piece / count.max(1);
    let piece = |piece| bytes.get(at(piece)..at(piece + 1)).unwrap_or(&[]);
    (core::array::from_fn(piece), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_and_none_is_empty() {
        let bytes: [u8; 200] = core::array::from_fn(|at| at as u8);
        for len in 1..bytes.len() {
            for wanted in 0..=MOST + 1 {
                let (pieces, count) = cut(&bytes[..len], wanted);
                assert_eq!(count, wanted.clamp(1, MOST).min(len));
                assert!(pieces[..count].iter().all(|piece| !piece.is_empty()));
                assert!(pieces[..count].iter().copied().flatten().eq(&bytes[..len]));
            }
        }
    }
}
