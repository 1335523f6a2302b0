//! What moves the bytes of the flows of a system.

use crate::flows::Copier;
use weir_model::{
    Timing,
    timing::{DataPath, MeasuredOn},
};

/// What moves the bytes of flows. The steps of a chunk depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// A DMA engine behind the broker of rt-virtio.
    RtVirtio,
    /// The DMA engine of weir's broker, and its core for short chunks.
    Engine,
    /// A core.
    Core(Copier),
}

impl Mover {
    /// Returns the mover that a file is analyzed for. Overheads that were measured on weir are
    /// those of weir's broker; with others, the path "dma" is that of rt-virtio.
    pub fn of(timing: &Timing) -> Self {
        let is_weirs = || {
            let mut all = timing.overheads.iter();
            all.any(|overhead| overhead.measured_on == MeasuredOn::Weir)
        };
        match timing.dma.path {
            DataPath::Broker => Self::Core(Copier::Broker),
            DataPath::Sender => Self::Core(Copier::Sender),
            DataPath::Receiver => Self::Core(Copier::Receiver),
            DataPath::Dma if timing.engine().is_none() => Self::RtVirtio,
            DataPath::Dma if timing.engine_from().is_none() => Self::Core(Copier::Broker),
            DataPath::Dma if is_weirs() => Self::Engine,
            DataPath::Dma => Self::RtVirtio,
        }
    }

    /// Returns the mover that weir builds.
    pub fn built(timing: &Timing) -> Self {
        if timing.engine_from().is_some() { Self::Engine } else { Self::Core(Copier::Broker) }
    }

    /// Returns whether weir's broker schedules the chunks.
    pub const fn is_weirs_broker(self) -> bool {
        matches!(self, Self::Engine | Self::Core(Copier::Broker))
    }

    /// Returns the overheads that a verdict needs.
    pub const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::RtVirtio => {
                &["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br"]
            }
            Self::Engine => {
                &["pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "wake", "copy", "hold"]
            }
            Self::Core(Copier::Broker) => {
                &["pp", "ql", "qi", "qa", "qr", "ps", "ft", "wake", "copy", "hold"]
            }
            Self::Core(Copier::Sender) => &["pp", "qi", "qa", "qr", "ps", "ft", "copy"],
            Self::Core(Copier::Receiver) => &["pp", "qi", "qa", "qr", "ps", "ft", "wake", "copy"],
        }
    }

    /// Returns the bandwidth of a chunk in bytes/s, and its key, if it is limited and known: that
    /// of the core that copies, or the lower one of the core and the DMA engine.
    pub fn bandwidth(self, timing: &Timing) -> Option<(u64, &'static str)> {
        let copy = timing.dma.copy_bandwidth.map(|rate| (rate.0, "copy_bandwidth"));
        match self {
            Self::RtVirtio => None,
            Self::Core(_) => copy,
            Self::Engine => {
                let engine = timing.engine_bandwidth().map(|rate| (rate.0, "engine_bandwidth"));
                copy.into_iter().chain(engine).min_by_key(|(rate, _)| *rate)
            }
        }
    }
}
