//! The socket devices of VMs in flows: rings and control packets here, payloads by the broker; and,
//! in [`net`], the network devices.
//!
//! A device's rings are looked at on the core of the VM that notifies, and on the broker's when it
//! has completions, each time through a [`Peephole`](crate::arch::memory::Peephole). Data go to the
//! broker by the partition that both share; control packets are passed at once, into a stock of
//! buffers that is kept for them, so that a receiver that returns none holds up its own flows only.
//!
//! Locks: a device's own ([`Socket`](socket::Socket)) is taken alone or with a flow's and the VM's
//! GIC inside, never with another device's. It is held for one packet, one buffer, or a few
//! completions, and given to who came first ([`Fair`](lock::Fair)), so that nobody waits for all
//! that a driver can put into its rings.

pub mod completion;
pub mod device;
pub mod flows;
pub mod link;
pub mod lock;
mod memory;
mod multicast;
pub mod net;
pub mod port;
mod receive;
mod send;
pub mod socket;
