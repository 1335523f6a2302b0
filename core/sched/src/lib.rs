//! The states of a vCPU ([`vcpu`]), schedules of a core that several VMs share ([`partition`]),
//! admission of interrupts ([`admission`]), and the order in which a lock serves its contenders
//! ([`ticket`]). The hypervisor and the simulator run this code.
//!
//! Every operation is bounded, and none panics, overflows or allocates.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod admission;
pub mod partition;
pub mod ticket;
pub mod vcpu;
