//! rt-virtio (RTSS'21): schedulability of flows, USTRESS over the memory budget, and DMA bandwidth.

pub mod dma;
pub mod fig5;
mod oracle;
pub mod table3;
pub mod ustress;
