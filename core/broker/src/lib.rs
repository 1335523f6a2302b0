//! The broker: takes packets of all flows out of their senders' rings and moves them, earliest
//! deadline first, in chunks (rt-virtio, sections III and IV), and passes on the frames of the
//! switch.
//!
//! - [`broker`]: what to take and to move next, and what became of it. `guests/service` is the VM
//!   around it.
//! - [`clock`]: times of the counter.
//! - [`ram`]: how it reaches the RAM of VMs.
//! - [`switch`]: frames from one VM's network device to another's.
//!
//! It exchanges data with EL2 in the memory of `weir-exchange`. Its stage 2 maps the RAM of VMs in
//! flows and at the switch, the exchange, and nothing else.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod broker;
pub mod clock;
mod control;
mod flow;
mod intake;
pub mod ram;
mod socket;
pub mod switch;
mod taken;
pub mod transfer;

/// Entries of a virtqueue at most.
const RING: usize = weir_vsock::queue::MAX_SIZE as usize;

/// Returns the numbers of the bits that are set, lowest first.
#[inline]
pub(crate) fn bits(mut left: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let first = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (first < 64).then_some(first)
    })
}
