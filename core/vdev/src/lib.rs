//! The virtual board: what a VM sees of its machine besides memory, with no hardware in it.
//!
//! Each module is a model that EL2 asks: it takes what a guest did (a trapped register, an access
//! to a device, a call) and says what the guest sees and what is to be done. Nothing here can
//! panic, loop without a bound or allocate, for any behavior of a guest; all of it is tested on the
//! host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod calls;
pub mod debug;
pub mod esr;
pub mod gic;
pub mod id;
pub mod inject;
pub mod pci;
pub mod pl011;
pub mod pmu;
pub mod psci;
pub mod registers;
pub mod smccc;
pub mod stolen;
pub mod sysreg;
