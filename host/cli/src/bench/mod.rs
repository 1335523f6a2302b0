//! `weir bench`: measures the overheads of weir.

pub mod engine;
pub mod flows;
pub mod hypervisor;
pub mod lines;
pub mod mapping;
pub mod simulator;
