//! The DMA engine of the broker: whether a system uses it, and for which chunks.

use super::System;
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::measured::{MeasuredOn, Overhead};
use crate::platform::{DmaEngine, Machine};
use crate::timing::engine::{Crossover, Movers, qos_bandwidth};
use crate::timing::flow::{DEFAULT_CHUNK, DataPath};
use weir_abi::ENGINE_LIMIT;
use weir_units::{Bytes, BytesPerSec, Nanos};

impl System {
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
