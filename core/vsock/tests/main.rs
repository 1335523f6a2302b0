//! Tests of the virtio devices and of packets.
#![allow(missing_docs, reason = "tests")]

mod conformance;
mod hostile;
mod mmio;
mod multicast;
mod net;
mod pci;
mod queue;
mod support;
mod vsock;
