//! The broker: it moves the packets of all flows, earliest deadline first, in chunks (rt-virtio, sections III and IV).
//!
//! - [`shared`]: what hypervisor and broker share. Every word has one writer; there is no lock, so that neither can hold the other up.
//! - [`broker`]: what to move next, and what became of it. `guests/broker` is the VM around it.
//!
//! The hypervisor checks what guests say and hands over addresses in the broker's own address space; the broker's stage 2 has the
//! flows' VMs in it, senders read-only, and nothing else. What the broker says back is a claim that the hypervisor checks.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod broker;
pub mod shared;
