//! The DMA engine of the broker: whether a system uses it, and for which chunks.

use super::facts::Timing;
use super::flow::{DEFAULT_CHUNK, DataPath};
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::measured::{MeasuredOn, Overhead};
use crate::platform::{DmaEngine, Machine};
use weir_abi::ENGINE_LIMIT;
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

impl Timing {
    /// Returns the bytes that the broker moves between two decisions.
    #[must_use]
    pub fn chunk(&self) -> Bytes {
        self.dma.chunk.unwrap_or(DEFAULT_CHUNK)
    }

    /// Returns the DMA engine of the broker: that of the platform, if the path is "dma".
    #[must_use]
    pub fn engine(&self) -> Option<&DmaEngine> {
        let engine = self.platform.as_ref()?.dma_engine.as_ref();
        engine.filter(|_| self.dma.path == DataPath::Dma)
    }

    /// Returns the least bytes of a chunk that the engine moves; the core copies shorter ones. None
    /// if the core moves all: there is no engine, or no chunk is that long.
    #[must_use]
    pub fn engine_from(&self) -> Option<Bytes> {
        self.engine()?;
        let from = self.dma.engine_from.or_else(|| match self.crossover() {
            // Nothing says that the core is faster.
            Crossover::Unknown => Some(Bytes(0)),
            Crossover::From(from) => Some(from),
            Crossover::Never => None,
        });
        from.filter(|from| *from <= self.chunk())
    }

    /// Returns the crossover of weir's broker, with both hypercalls of a transfer in `ip`.
    #[must_use]
    pub fn crossover(&self) -> Crossover {
        let most = |name| Some(self.of_weirs_path(name)?.max);
        let known = || {
            Some(Movers {
                engine_set_up: Nanos(most("pd")?.0.saturating_add(most("ip")?.0)),
                engine: self.engine_bandwidth()?,
                copy_set_up: most("copy")?,
                copy: self.dma.copy_bandwidth?,
            })
        };
        known().map_or(Crossover::Unknown, |movers| movers.crossover())
    }

    /// Returns a step of weir's own data path, if it is known: not one that was measured on another
    /// hypervisor.
    #[must_use]
    pub fn of_weirs_path(&self, name: &str) -> Option<&Overhead> {
        let step = self.overheads.iter().find(|step| step.name == name);
        step.filter(|step| step.measured_on != MeasuredOn::Other)
    }

    /// Returns the bandwidth of the engine within a chunk: the one of the overheads, or what the
    /// engine alone reaches with the largest chunk size of `[saturation]` that is not above
    /// `[dma]` `chunk`. The bandwidth grows with the chunk size, so this is no more than the
    /// engine's, and a smaller chunk than all of these has none. What the engine does in QEMU takes
    /// the time of the emulator, which `[saturation]` does not contain. With a level of the QoS
    /// regulator, the engine is no faster than `[dma]` `bandwidth`, which it reaches at this level.
    #[must_use]
    pub fn engine_bandwidth(&self) -> Option<BytesPerSec> {
        let alone = || {
            if self.is_emulated() {
                return None;
            }
            let chunks = self.saturation.iter().flat_map(|known| &known.chunks);
            let fitting = chunks.filter(|(size, _)| *size <= self.chunk());
            fitting.max_by_key(|(size, _)| *size).map(|(_, rate)| *rate)
        };
        let regulated = self.dma.qos_level.and(self.dma.bandwidth).unwrap_or(BytesPerSec(u64::MAX));
        self.dma.engine_bandwidth.or_else(alone).map(|rate| rate.min(regulated))
    }

    /// Whether the system runs in QEMU's machine of its board.
    fn is_emulated(&self) -> bool {
        self.platform.as_ref().is_some_and(|platform| platform.machine == Machine::Qemu)
    }

    /// Returns how long the engine may take for a chunk until the broker gives up: twice the
    /// greatest time of the longest one next to the busiest cores of `[saturation]`, so that a
    /// transfer that hangs holds other flows about as long as a good one can. Without values that
    /// were measured with weir, without `[saturation]`, and in QEMU, where pauses of the host would
    /// count, the longest that a system can have.
    #[must_use]
    pub fn engine_limit(&self) -> Nanos {
        let greatest = || {
            let interrupt = self.of_weirs_path("ip")?.max.0;
            let points = &self.saturation.as_ref()?.points;
            let least = points.iter().map(|(_, rate)| rate.0).min()?;
            let rate = self.engine_bandwidth()?.0.min(least).max(1);
            let moving = u128::from(self.chunk().0) * 1_000_000_000 / u128::from(rate);
            Some(interrupt.saturating_add(u64::try_from(moving).unwrap_or(u64::MAX)))
        };
        let twice = greatest().filter(|_| !self.is_emulated()).map(|time| time.saturating_mul(2));
        Nanos(twice.map_or(ENGINE_LIMIT, |time| time.clamp(1, ENGINE_LIMIT)))
    }

    /// Returns the level of the engine's QoS regulator, and the most that it lets through, if the
    /// file sets one and the engine moves something.
    #[must_use]
    pub fn qos_level(&self) -> Option<(u64, BytesPerSec)> {
        let level = self.dma.qos_level.filter(|_| self.engine_from().is_some())?;
        let qos = self.engine()?.qos.as_ref()?;
        Some((level, qos_bandwidth(qos.block, level, qos.clock)))
    }

    /// Returns why the level of the QoS regulator cannot be set, or breaks the bounds of flows.
    pub(crate) fn qos_fault(&self) -> Option<Fault> {
        let level = self.dma.qos_level?;
        let fault =
            |code, message, help| Some(self.fault(code, &self.dma.qos_place, message, help));
        let Some((_, most)) = self.qos_level() else {
            let (lacks, help) = match self.engine() {
                Some(engine) if engine.qos.is_none() => (
                    format!(
                        "the board file names no QoS regulator of the DMA engine {}",
                        engine.name
                    ),
                    "take the key out",
                ),
                Some(engine) => (
                    format!(
                        "the DMA engine {} moves no chunk, as the broker's core is faster or \
                         `engine_from` is above `chunk`",
                        engine.name
                    ),
                    "write engine_from = \"0B\", or take the key out",
                ),
                None => ("no DMA engine moves chunks".to_owned(), "take the key out"),
            };
            let message = format!("[dma]: `qos_level` cannot be enforced: {lacks}");
            return fault(Code::NotEnforced, message, help.to_owned());
        };
        let Some(bandwidth) = self.dma.bandwidth else {
            let message = "[dma]: `qos_level` needs `bandwidth`: the rate that the engine reaches \
                           at this level, at which the broker paces it"
                .to_owned();
            return fault(Code::MissingKey, message, "add bandwidth = \"..MB/s\"".to_owned());
        };
        if most >= bandwidth {
            return None;
        }
        let message = format!(
            "[dma]: level {level} of the QoS regulator lets at most {} B/s through (Eq. 1), less \
             than the `bandwidth` of {} B/s on which the bounds of flows rely",
            most.0, bandwidth.0
        );
        let help = format!("write a higher `qos_level`, or bandwidth = \"{}B/s\" or less", most.0);
        fault(Code::OutOfRange, message, help)
    }

    /// Returns what the engine cannot do.
    pub(crate) fn engine_faults(&self) -> Option<Fault> {
        let engine = self.engine()?;
        let chunk = self.chunk();
        if self.engine_from().is_none() || chunk <= DmaEngine::CHUNK {
            return None;
        }
        let message = format!(
            "[dma]: `chunk` is {chunk}, and the DMA engine {} moves at most {} at once",
            engine.name,
            DmaEngine::CHUNK
        );
        let help = format!("write chunk = \"{}\" or less, or path = \"broker\"", DmaEngine::CHUNK);
        Some(self.fault(Code::OutOfRange, &self.dma.chunk_place, message, help))
    }
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
