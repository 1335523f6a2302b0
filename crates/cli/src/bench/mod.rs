//! `weir bench`: what weir costs, measured here and now.

pub mod hypervisor;

mod elf;
mod lines;
