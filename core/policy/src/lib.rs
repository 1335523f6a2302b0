//! The decisions of a partitioned system, with no hardware in them: state machines that are told the time and what was
//! counted, and that answer what to do. The hypervisor and the simulator run this very code.
//!
//! Every operation is bounded and none panics or overflows, whatever it is told; nothing allocates; there is no floating
//! point.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod admission;
pub mod bandwidth;
pub mod partition;
pub mod ticket;
pub mod transfer;
mod units;
mod word;

pub use units::Nanos;
