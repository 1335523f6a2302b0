//! The broker takes packets of all flows out of their senders' rings and moves them, earliest
//! deadline first, in chunks (rt-virtio, sections III and IV). It also passes on the frames of the
//! switch.
//!
//! - [`broker`]: decides what to take and to move next, and records the results. `guests/service`
//!   is the VM that runs it.
//! - [`clock`]: converts counter values to times.
//! - [`ram`]: access to the RAM of VMs.
//! - [`switch`]: moves frames from one VM's network device to another's.
//!
//! The broker exchanges data with EL2 in the memory of `weir-exchange`. Its stage 2 maps the RAM of
//! VMs in flows and at the switch, the exchange, and nothing else.

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

/// Largest number of entries of a virtqueue.
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
