//! `weir bench`: measures the overheads of weir.

pub mod hypervisor;
pub mod mapping;
pub mod simulator;
