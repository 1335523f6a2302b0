//! `weir bench`: what weir costs, measured here and now.

pub mod analysis;
pub mod hypervisor;
pub mod mapping;
pub mod simulator;
