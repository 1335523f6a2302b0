//! The virtual board: the devices, registers and calls of the machine that a VM sees, without any
//! access to hardware.
//!
//! Each module is a model that EL2 calls: it takes an action of a guest (a trapped register, an
//! access to a device, a call) and returns what the guest sees and what EL2 must do. No function
//! here can panic, loop without a bound or allocate, for any behavior of a guest; all of it is
//! tested on the host.
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
