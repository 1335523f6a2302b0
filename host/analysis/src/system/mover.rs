//! What moves the bytes of the flows of a system.

use crate::flows::Mover;
use weir_model::{
    System,
    timing::{DataPath, MeasuredOn},
};

impl Mover {
    /// Returns the mover that a file is analyzed for. Overheads that were measured on weir are
    /// those of weir's broker; with others, the path "dma" is that of rt-virtio.
    pub(crate) fn of(system: &System) -> Self {
        let is_weirs = || {
            let mut all = system.overheads.iter();
            all.any(|overhead| overhead.measured_on == MeasuredOn::Weir)
        };
        match system.dma.path {
            DataPath::Broker => Self::Core,
            DataPath::Dma if system.engine().is_none() => Self::RtVirtio,
            DataPath::Dma if system.engine_from().is_none() => Self::Core,
            DataPath::Dma if is_weirs() => Self::Engine,
            DataPath::Dma => Self::RtVirtio,
        }
    }

    /// Returns the mover that weir builds.
    pub(crate) fn built(system: &System) -> Self {
        if system.engine_from().is_some() { Self::Engine } else { Self::Core }
    }

    /// Returns the overheads that a verdict needs.
    pub(crate) const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::RtVirtio => {
                &["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br"]
            }
            Self::Engine => {
                &["pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "wake", "copy", "hold"]
            }
            Self::Core => &["pp", "ql", "qi", "qa", "qr", "ps", "ft", "wake", "copy", "hold"],
        }
    }

    /// Returns the bandwidth of a chunk in bytes/s, and its key, if it is limited and known: that
    /// of the core that copies, or the lower one of the core and the DMA engine.
    pub(crate) fn bandwidth(self, system: &System) -> Option<(u64, &'static str)> {
        let copy = system.dma.copy_bandwidth.map(|rate| (rate.0, "copy_bandwidth"));
        match self {
            Self::RtVirtio => None,
            Self::Core => copy,
            Self::Engine => {
                let engine = system.engine_bandwidth().map(|rate| (rate.0, "engine_bandwidth"));
                copy.into_iter().chain(engine).min_by_key(|(rate, _)| *rate)
            }
        }
    }
}
