//! `weir bench`: measures the overheads of weir.

pub mod board;
pub mod clock;
pub mod copies;
pub mod engine;
pub mod flows;
pub mod mapping;
pub mod memory;
pub mod table3;
