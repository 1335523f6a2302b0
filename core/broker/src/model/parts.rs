// What the builds of the partition and the broker have in common; each has its own `sync`.

#[path = "../broker.rs"]
pub mod broker;
#[path = "../device.rs"]
pub mod device;
#[path = "../shared.rs"]
pub mod shared;

/// Two VMs with rings of two, and room for two flows.
mod sizes {
    pub const PORTS: usize = 2;
    pub const RING: usize = 2;
    pub const FLOWS: usize = 2;
}

/// A partition without flows.
pub fn partition() -> shared::Partition {
    use shared::{COMPLETIONS, Partition, PortRings, SharedFlow, SharedPacket, SharedPieces};
    use std::array::from_fn;
    use sync::{AtomicU32, AtomicU64};
    fn words<const N: usize>() -> [AtomicU32; N] {
        from_fn(|_| AtomicU32::new(0))
    }
    fn longs<const N: usize>() -> [AtomicU64; N] {
        from_fn(|_| AtomicU64::new(0))
    }
    let port = || PortRings {
        epoch: AtomicU32::new(0),
        submitted: AtomicU64::new(0),
        offered: AtomicU64::new(0),
        reserved: AtomicU32::new(0),
        rung: AtomicU64::new(0),
        submissions: words(),
        packets: from_fn(|_| SharedPacket {
            eligible: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            pieces: SharedPieces { addresses: longs(), lens: words() },
            header: words(),
            flow: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
        }),
        heads: words(),
        buffers: from_fn(|_| SharedPieces { addresses: longs(), lens: words() }),
    };
    Partition {
        settings: longs(),
        flows: from_fn(|_| SharedFlow {
            ports: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            burst: AtomicU64::new(0),
            members: AtomicU32::new(0),
            member: AtomicU32::new(0),
            retired: AtomicU64::new(0),
            alarm: AtomicU64::new(0),
        }),
        ports: [port(), port()],
        dozes: AtomicU32::new(0),
        alarms: AtomicU32::new(0),
        busy: AtomicU32::new(0),
        completed: AtomicU32::new(0),
        completions: longs::<COMPLETIONS>(),
        phases: longs::<COMPLETIONS>(),
    }
}
