//! The socket devices of VMs in flows: rings and control packets here, payloads by the broker.
//!
//! EL2 reads a device's rings on the core of the VM that notifies, and on the broker's when it has
//! completions, each time through a [`Peephole`](crate::arch::memory::peephole::Peephole). Data
//! go to the broker by the partition that both share; control packets are passed at once, into a
//! stock of buffers that is kept for them, so that a receiver that returns none holds up its own
//! flows only.
//!
//! Locks: a device's own ([`socket::FlowDevice`]) is taken alone or with a flow's and the VM's GIC
//! inside, never with another device's. It is held for one packet, one buffer, or a few
//! completions, and given in the order of requests ([`Fair`](lock::Fair)), so that no waiter waits
//! for all that a driver can put into its rings.

mod completion;
mod device;
mod flow;
mod link;
mod lock;
mod memory;
mod multicast;
mod receive;
mod send;
pub mod socket;

pub use completion::complete;
pub use device::{Place, access, close, open, place};
pub use flow::report;
pub use link::init;
