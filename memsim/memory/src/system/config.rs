//! The parts of a memory system.

use core::fmt;

use crate::{
    cache::CacheError,
    dma::{DmaConfig, DmaError},
    dram::{ChannelError, DramTiming, Policy},
    hierarchy::{HierarchyConfig, HierarchyError},
    qos::QosRate,
    smmu::{StreamId, TlbConfig, WalkTables},
    units::Picos,
};

/// How long the caches take and how much they have on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTiming {
    /// A hit in the first level, from the access to its data; also the way of a miss to the second
    /// level.
    pub l1_hit: Picos,
    /// Least time between two lookups of a second-level cache.
    pub l2_cycle: Picos,
    /// From a lookup of the second level to the core's data, if it hits.
    pub l2_hit: Picos,
    /// The same if another core's private cache serves it.
    pub peer_hit: Picos,
    /// From a lookup of the second level that misses to the interconnect.
    pub l2_miss: Picos,
    /// From the line's arrival at the second level to the core's data.
    pub fill: Picos,
    /// Lines that a core can wait for at once.
    pub core_misses: usize,
    /// Miss-status registers of a second-level cache: lines that it can wait for at once, over all
    /// its cores.
    pub l2_misses: usize,
    /// Its write-back buffers.
    pub l2_write_buffers: usize,
}

/// The way to DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterconnectTiming {
    /// Clock of the regulators.
    pub clock: Picos,
    /// How long the port of a DRAM channel is taken by one line.
    pub line: Picos,
    /// From the port to the controller's queue.
    pub to_memory: Picos,
    /// From the last data (or the acceptance of a write) back.
    pub from_memory: Picos,
    /// How long a line takes the caches' own port, reads and writes apart.
    pub cpu_line: Picos,
}

/// A DMA engine and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaPort {
    /// The engine.
    pub engine: DmaConfig,
    /// Whether its accesses snoop the caches.
    pub coherent: bool,
    /// True if the second level, which must be a shared one, allocates the lines of a coherent
    /// engine.
    pub allocates: bool,
    /// How long a line takes its port, reads and writes apart: 16 ns for 64 B on 64 bits at 500
    /// MHz.
    pub line: Picos,
    /// Its QoS-400 regulator, if it has one.
    pub qos: Option<QosRate>,
    /// Its way through an SMMU, if it takes one: the number of the TBU, the stream of its first
    /// channel (the others' follow), and where its tables lie.
    pub smmu: Option<(usize, StreamId, WalkTables)>,
}

/// A memory system.
#[derive(Clone, Debug)]
pub struct SystemConfig {
    /// Cores, caches, and the DRAM's address functions, which are needed here.
    pub hierarchy: HierarchyConfig,
    /// The caches' timing.
    pub caches: CacheTiming,
    /// The interconnect's timing.
    pub interconnect: InterconnectTiming,
    /// The DRAM's timing.
    pub dram: DramTiming,
    /// How its controllers decide.
    pub policy: Policy,
    /// DMA engines.
    pub dma: Vec<DmaPort>,
    /// Translation buffer units of the SMMU.
    pub tbus: Vec<TlbConfig>,
}

/// Why a memory system can't be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemError {
    /// The caches.
    Hierarchy(HierarchyError),
    /// The hierarchy has no address functions.
    NoDram,
    /// A DRAM channel.
    Dram(ChannelError),
    /// A number of lines, registers or buffers that is 0, or a clock of 0 ps.
    Zero(&'static str),
    /// A DMA engine.
    Dma {
        /// Its number.
        engine: usize,
        /// The fault in it.
        error: DmaError,
    },
    /// A DMA engine whose lines a shared second level is to allocate: there is none, or the engine
    /// is not coherent.
    NoAllocation {
        /// The engine.
        engine: usize,
    },
    /// A DMA engine behind a TBU that is not there.
    NoTbu {
        /// The engine.
        engine: usize,
        /// The TBU that it names.
        tbu: usize,
    },
    /// A TBU's TLB.
    Tbu {
        /// Its number.
        tbu: usize,
        /// The fault in it; a line is a page.
        error: CacheError,
    },
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hierarchy(error) => error.fmt(f),
            Self::NoDram => f.write_str("a timed memory system needs DRAM address functions"),
            Self::Dram(error) => error.fmt(f),
            Self::Zero(what) => write!(f, "{what} is 0: give at least 1"),
            Self::Dma { engine, error } => write!(f, "DMA engine {engine}: {error}"),
            Self::NoAllocation { engine } => write!(
                f,
                "DMA engine {engine} allocates lines: that needs a shared L2 and a coherent engine"
            ),
            Self::NoTbu { engine, tbu } => {
                write!(f, "DMA engine {engine} is behind TBU {tbu}, which is not described")
            }
            Self::Tbu { tbu, error } => write!(f, "TBU {tbu}: {error}"),
        }
    }
}

impl core::error::Error for SystemError {}
