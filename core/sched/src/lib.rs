//! The states of a vCPU ([`vcpu`]), the scheduler of a core that several VMs share ([`scheduler`]),
//! admission of interrupts ([`admission`]), and the order in which a lock serves its contenders
//! ([`ticket`]). The hypervisor and the simulator run this code.
//!
//! Every operation is bounded, and none panics, overflows or allocates.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod admission;
pub mod scheduler;
pub mod ticket;
pub mod vcpu;
