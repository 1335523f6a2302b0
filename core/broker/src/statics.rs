//! What makes the partition a constant: all zeros, as the hypervisor finds it.

use crate::{
    shared::{
        COMPLETIONS, FLOWS, HEADER_WORDS, PORTS, Partition, PortRings, RING, SharedFlow,
        SharedPacket, SharedPieces,
    },
    sync::{AtomicU32, AtomicU64},
};
use weir_vsock::queue::MAX_SEGMENTS;

impl SharedPieces {
    const fn new() -> Self {
        Self {
            addresses: [const { AtomicU64::new(0) }; MAX_SEGMENTS],
            lens: [const { AtomicU32::new(0) }; MAX_SEGMENTS],
        }
    }
}

impl PortRings {
    const fn new() -> Self {
        Self {
            epoch: AtomicU32::new(0),
            submitted: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            reserved: AtomicU32::new(0),
            rung: AtomicU64::new(0),
            submissions: [const { AtomicU32::new(0) }; RING],
            packets: [const {
                SharedPacket {
                    eligible: AtomicU64::new(0),
                    deadline: AtomicU64::new(0),
                    pieces: SharedPieces::new(),
                    header: [const { AtomicU32::new(0) }; HEADER_WORDS],
                    flow: AtomicU32::new(0),
                    epoch: AtomicU32::new(0),
                }
            }; RING],
            heads: [const { AtomicU32::new(0) }; RING],
            buffers: [const { SharedPieces::new() }; RING],
        }
    }
}

impl Default for Partition {
    fn default() -> Self {
        Self::new()
    }
}

impl Partition {
    /// Without flows, all rings empty: all zeros.
    #[expect(clippy::large_stack_arrays, reason = "a constant, or in a test's heap")]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            settings: [const { AtomicU64::new(0) }; 4],
            flows: [const {
                SharedFlow {
                    ports: AtomicU64::new(0),
                    rate: AtomicU64::new(0),
                    burst: AtomicU64::new(0),
                    members: AtomicU32::new(0),
                    member: AtomicU32::new(0),
                    retired: AtomicU64::new(0),
                    alarm: AtomicU64::new(0),
                }
            }; FLOWS],
            ports: [const { PortRings::new() }; PORTS],
            dozes: AtomicU32::new(0),
            alarms: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            completions: [const { AtomicU64::new(0) }; COMPLETIONS],
            phases: [const { AtomicU64::new(0) }; COMPLETIONS],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::COMPLETIONS;

    /// What `docs/results/performance.md` says that the partition is made of; printed with `--
    /// --nocapture`.
    #[test]
    fn the_partition_is_made_of_packets_and_buffers() {
        let [packet, buffer, flow] =
            [size_of::<SharedPacket>(), size_of::<SharedPieces>(), size_of::<SharedFlow>()];
        // Heads of both rings, too.
        let entry = packet + buffer + 2 * size_of::<AtomicU32>();
        let (port, completions) =
            (size_of::<PortRings>(), COMPLETIONS * 2 * size_of::<AtomicU64>());
        let all = PORTS * port + FLOWS * flow + completions;
        println!(
            "an entry of a VM's rings: {entry} B, {packet} of a packet and {buffer} of a buffer"
        );
        println!("a VM: {port} B, a flow: {flow} B, {COMPLETIONS} completions: {completions} B");
        println!(
            "all: {all} B, and up to {} B of counts and padding",
            size_of::<Partition>() - all
        );
        assert_eq!((packet, buffer, flow), (120, 48, 48));
        assert_eq!((port - RING * entry, completions), (40, 16_384));
        assert!(size_of::<Partition>() - all < 4096);
    }
}
