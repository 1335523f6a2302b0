//! `[dma.NAME]` and `[tbu.NAME]` of a memory file: DMA engines, and the SMMU's translation buffer
//! units that they are behind.

use super::chip::{Policy, check};
use serde::Deserialize;
use std::collections::BTreeMap;
use weir_memory::{
    Bytes, Pa, Picos,
    dma::DmaConfig,
    qos::QosRate,
    smmu::{StreamId, TlbConfig, WalkTables},
    system::DmaPort,
};

/// Bytes of a line.
const LINE: u64 = 64;
/// Streams of an engine: one for each channel.
const STREAMS: u16 = 64;

/// A DMA engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    channels: usize,
    /// Width of its port.
    port_bits: u64,
    /// Clock of its port and of its regulator.
    clock_ps: u64,
    /// The time that a line takes the port in addition to its beats.
    #[serde(default)]
    line_overhead_ps: u64,
    /// Bytes of a transaction.
    burst: u64,
    /// Bytes of a channel's buffer.
    buffer: u64,
    /// Reads and writes on their way, over all channels.
    reads: usize,
    writes: usize,
    /// The same of one channel. Default: as many as the engine.
    channel_reads: Option<usize>,
    channel_writes: Option<usize>,
    /// From a transfer's start to its first transaction.
    setup_ns: u64,
    /// From the end of a piece of a linked transfer to the next piece's first transaction.
    next_piece_ns: u64,
    /// Bytes of a piece's descriptors.
    descriptor: u64,
    coherent: bool,
    /// True if the shared L2 allocates the lines of a coherent engine.
    #[serde(default)]
    allocates: bool,
    /// The unit that translates its addresses.
    tbu: Option<String>,
    /// QoS-400: transactions of a direction in 4096 clocks; 0 regulates nothing.
    qos: u16,
    /// Clocks after a transaction in which the regulator gathers no credit.
    #[serde(default)]
    qos_hold: u64,
}

/// A translation buffer unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TbuSettings {
    entries: u64,
    ways: u32,
    replacement: Policy,
    /// Descriptors that a walk reads.
    levels: u32,
}

/// All of a memory file, by their names.
#[derive(Clone, Debug, Default)]
pub struct Engines<'a> {
    pub engines: Vec<(&'a str, &'a EngineSettings)>,
    pub tbus: Vec<(&'a str, &'a TbuSettings)>,
}

impl<'a> Engines<'a> {
    pub fn new(
        engines: &'a BTreeMap<String, EngineSettings>,
        tbus: &'a BTreeMap<String, TbuSettings>,
    ) -> Self {
        Self {
            engines: engines.iter().map(|(name, engine)| (name.as_str(), engine)).collect(),
            tbus: tbus.iter().map(|(name, tbu)| (name.as_str(), tbu)).collect(),
        }
    }

    /// The engines' ports; tables of translations lie at `tables`.
    pub fn ports(&self, tables: Pa) -> Vec<DmaPort> {
        let ports = self.engines.iter().zip(0..);
        ports.map(|((_, engine), number)| self.port(engine, number, tables)).collect()
    }

    fn port(&self, engine: &EngineSettings, number: u16, base: Pa) -> DmaPort {
        let tbu = engine.tbu.as_ref().and_then(|wanted| {
            let at = self.tbus.iter().position(|(name, _)| name == wanted)?;
            let tables = WalkTables { base, levels: self.tbus[at].1.levels };
            Some((at, StreamId(number * STREAMS), tables))
        });
        let rate = QosRate { average: engine.qos, hold: engine.qos_hold };
        DmaPort {
            engine: engine.config(),
            coherent: engine.coherent,
            allocates: engine.allocates,
            line: Picos(LINE * 8 / engine.port_bits * engine.clock_ps + engine.line_overhead_ps),
            qos: (engine.qos > 0).then_some(rate),
            smmu: tbu,
        }
    }

    /// The units' TLBs; random replacement draws by `seed`.
    pub fn tlbs(&self, seed: u64) -> Vec<TlbConfig> {
        let tlb = |(_, tbu): &(&str, &TbuSettings)| TlbConfig {
            entries: tbu.entries,
            ways: tbu.ways,
            page: Bytes(4096),
            replacement: tbu.replacement.with(seed ^ 2),
        };
        self.tbus.iter().map(tlb).collect()
    }

    /// The engines' clock, which is the regulators'.
    pub fn check(&self, interconnect_ps: u64) -> Result<(), String> {
        for (name, tbu) in &self.tbus {
            if tbu.entries > 1 << 20 || !(1..=4).contains(&tbu.levels) {
                return Err(format!("[tbu.{name}]: write at most 2^20 entries and 1 to 4 levels"));
            }
        }
        for (name, engine) in &self.engines {
            let fault = |message: String| Err(format!("[dma.{name}]: {message}"));
            check(&format!("[dma.{name}] clock_ps"), engine.clock_ps)?;
            if ![32, 64, 128, 256, 512].contains(&engine.port_bits) {
                return fault("port_bits: write 32, 64, 128, 256 or 512".to_owned());
            }
            if engine.qos > 0 && engine.clock_ps != interconnect_ps {
                return fault(
                    "regulators count clocks of the interconnect: give both the same clock_ps"
                        .to_owned(),
                );
            }
            let small = engine.burst.max(engine.buffer).max(engine.descriptor) <= 1 << 20
                && engine.reads.max(engine.writes) <= 1024
                && engine.qos < 1 << 12
                && engine.qos_hold <= 1 << 20
                && engine.setup_ns.max(engine.next_piece_ns) <= 1_000_000
                && engine.line_overhead_ps <= 1_000_000
                && self.engines.len() <= 64;
            if !small || engine.descriptor == 0 {
                return fault(
                    "write bursts, buffers and descriptors up to 1 MiB, 1024 reads and writes, qos \
                     below 4096, at most a millisecond of setup_ns, a microsecond of \
                     line_overhead_ps, and 64 engines"
                        .to_owned(),
                );
            }
            if let Some(tbu) = &engine.tbu
                && !self.tbus.iter().any(|(known, _)| known == tbu)
            {
                return fault(format!("there is no [tbu.{tbu}]"));
            }
        }
        Ok(())
    }
}

impl EngineSettings {
    /// How many channels it has.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// The least time between two bursts at which a chunk of so many bytes takes what it does at
    /// `rate` bytes/s. What the engine takes to begin is part of that, as in rt-virtio's
    /// measurements (Table I).
    pub(crate) fn pace(&self, chunk: u64, rate: u64) -> Picos {
        let whole = u128::from(chunk) * 1_000_000_000_000 / u128::from(rate.max(1));
        let moving = whole.saturating_sub(u128::from(self.setup_ns) * 1000);
        let pace = moving / u128::from(chunk.div_ceil(self.burst).max(1));
        // A second between two bursts is as good as never.
        Picos(u64::try_from(pace).unwrap_or(u64::MAX).min(1_000_000_000_000))
    }

    /// Bytes of a piece's descriptors.
    #[must_use]
    pub const fn descriptor(&self) -> u64 {
        self.descriptor
    }

    const fn config(&self) -> DmaConfig {
        DmaConfig {
            channels: self.channels,
            burst: Bytes(self.burst),
            reads: self.reads,
            writes: self.writes,
            channel_reads: match self.channel_reads {
                Some(reads) => reads,
                None => self.reads,
            },
            channel_writes: match self.channel_writes {
                Some(writes) => writes,
                None => self.writes,
            },
            buffer: Bytes(self.buffer),
            setup: Picos::from_nanos(self.setup_ns),
            next_piece: Picos::from_nanos(self.next_piece_ns),
            descriptor: Bytes(self.descriptor),
        }
    }
}
