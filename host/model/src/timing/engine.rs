//! The choice between a DMA engine and a core for a chunk.

use weir_units::{Bytes, BytesPerSec, Nanos};

/// The greatest chunk size that a crossover is searched for: 1 TiB.
const LONGEST: u128 = 1 << 40;

/// The chunk size from which a DMA engine moves a chunk no slower than a core copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossover {
    /// An input is not known.
    Unknown,
    /// This size.
    From(Bytes),
    /// None up to 1 TiB. An engine that is slower and starts sooner has none either: it gains for
    /// short chunks only.
    Never,
}

/// The times of a chunk of s bytes: `engine_set_up` + s / `engine` if an engine moves it, and
/// `copy_set_up` + s / `copy` if a core copies it.
#[derive(Clone, Copy, Debug)]
pub struct Movers {
    /// What the engine takes apart from the transfer: programming it, and its interrupt.
    pub engine_set_up: Nanos,
    /// The bandwidth of the engine.
    pub engine: BytesPerSec,
    /// What a core takes apart from the copy.
    pub copy_set_up: Nanos,
    /// The bandwidth of the core's copy.
    pub copy: BytesPerSec,
}

impl Movers {
    /// Returns the least chunk that the engine moves no slower than the core.
    #[must_use]
    pub fn crossover(&self) -> Crossover {
        let Self { engine_set_up, engine, copy_set_up, copy } = *self;
        let extra = u128::from(engine_set_up.0.saturating_sub(copy_set_up.0));
        if extra == 0 && engine >= copy {
            return Crossover::From(Bytes(0));
        }
        // extra <= s (1/copy - 1/engine) 10^9, in ns.
        let Some(gain) = engine.0.checked_sub(copy.0).filter(|gain| *gain > 0) else {
            return Crossover::Never;
        };
        let both =
            extra.checked_mul(engine.0.into()).and_then(|both| both.checked_mul(copy.0.into()));
        let from = both.map(|both| both.div_ceil(u128::from(gain) * 1_000_000_000));
        let from = from.filter(|from| *from <= LONGEST).and_then(|from| u64::try_from(from).ok());
        from.map_or(Crossover::Never, |from| Crossover::From(Bytes(from)))
    }
}

/// Eq. 1: the bandwidth of a QoS-400 issue rate, `block` bytes times `level` `clock_hz` / 2^12,
/// rounded up. An upper bound: QoS 40 at 128 B and 500 MHz gives 625 MB/s, measured were 485.
#[must_use]
pub fn qos_bandwidth(block: Bytes, level: u64, clock_hz: u64) -> BytesPerSec {
    let per_clock = u128::from(block.0).saturating_mul(level.into());
    let per_second = per_clock.saturating_mul(clock_hz.into());
    BytesPerSec(u64::try_from(per_second.div_ceil(1 << 12)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: BytesPerSec = BytesPerSec(2_000_000_000);
    const SLOW: BytesPerSec = BytesPerSec(500_000_000);

    fn crossover(set_up: [u64; 2], [engine, copy]: [BytesPerSec; 2]) -> Crossover {
        let [engine_set_up, copy_set_up] = set_up.map(Nanos);
        Movers { engine_set_up, engine, copy_set_up, copy }.crossover()
    }

    #[test]
    fn the_choice_between_engine_and_core() {
        // 2726 - 120 ns of extra set-up against 1.5 ns gained a byte.
        assert_eq!(crossover([2726, 120], [FAST, SLOW]), Crossover::From(Bytes(1738)));
        assert_eq!(crossover([2726, 120], [SLOW, FAST]), Crossover::Never);
        assert_eq!(crossover([120, 2726], [SLOW, FAST]), Crossover::Never);
        assert_eq!(crossover([0, 120], [FAST, SLOW]), Crossover::From(Bytes(0)));
        assert_eq!(crossover([120, 120], [SLOW, SLOW]), Crossover::From(Bytes(0)));
        assert_eq!(crossover([121, 120], [SLOW, SLOW]), Crossover::Never);
        // Beyond 1 TiB, and beyond all numbers.
        let close = [BytesPerSec(SLOW.0 + 1), SLOW];
        assert_eq!(crossover([u64::MAX, 0], close), Crossover::Never);
        assert_eq!(crossover([u64::MAX, 0], [BytesPerSec(u64::MAX), SLOW]), Crossover::Never);
    }
}
