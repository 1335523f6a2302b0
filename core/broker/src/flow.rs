//! The broker's state of each flow: its pace, its connections, its counts.

use crate::transfer::{Bucket, Pace};
use weir_exchange::flows::{BrokerFlow, PacketCounts};
use weir_units::Cid;
use weir_vsock::vsock::{Header, Operation};

/// Largest number of concurrent connections of a flow.
pub(crate) const CONNECTIONS: usize = 16;
/// Number of control packets of a flow that may arrive at once, counting both directions. The same
/// number may arrive in each [`CONTROL_PERIODS`] periods.
const CONTROL: u64 = 64;
/// The number of periods in which [`CONTROL`] further packets may arrive.
const CONTROL_PERIODS: u64 = 8;
/// The period, in ns, that is assumed for the control packets of a flow without a period.
pub(crate) const BEST_EFFORT: u64 = 1_000_000;

/// A connection, identified by the sender's port; the receiver's port is that of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    port: u32,
    kind: u16,
}

/// The state of a flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) pace: Pace,
    /// The budget for control packets, one byte per packet.
    control: Bucket,
    connections: [Option<Connection>; CONNECTIONS],
    pub(crate) counts: PacketCounts,
}

impl Flow {
    /// The state before a flow is configured.
    pub(crate) const NONE: Self = Self {
        pace: Pace::new(0, 0),
        control: Bucket::NONE,
        connections: [None; CONNECTIONS],
        counts: PacketCounts::NONE,
    };

    /// Returns the state of a flow of the system, with the counts that it has already.
    pub(crate) fn new(settings: &BrokerFlow, counts: PacketCounts) -> Self {
        Self {
            pace: Pace::new(settings.period, settings.deadline),
            control: Bucket::new(control_rate(settings.period), CONTROL),
            connections: [None; CONNECTIONS],
            counts,
        }
    }

    /// Returns whether one more control packet may be passed at `now`, in ns.
    pub(crate) fn admits_control(&mut self, now: u64) -> bool {
        let admitted = self.control.ready_at(1) <= now;
        if admitted {
            self.control.take(now, 1);
        }
        admitted
    }

    /// Counts a packet that arrived at `at` and took `latency`, both in ns. A `deadline` of 0 means
    /// none.
    pub(crate) const fn arrived(&mut self, latency: u64, deadline: u64, at: u64) {
        let counts = &mut self.counts;
        counts.packets += 1;
        if counts.packets == 1 || latency > counts.observed_max_ns {
            counts.observed_max_ns = latency;
            counts.observed_max_packet = counts.packets;
            counts.observed_max_arrived_ns = at;
        }
        if latency < counts.least_ns {
            counts.least_ns = latency;
        }
        if deadline != 0 && latency > deadline {
            counts.late += 1;
        }
    }

    /// Records the effect of a control packet on the flow's connections; `forth` states whether the
    /// sender sent it. Returns false for a request beyond `CONNECTIONS`.
    pub(crate) fn note(&mut self, header: &Header, operation: Operation, forth: bool) -> bool {
        let port = if forth { header.src_port } else { header.dst_port };
        let connection = Some(Connection { port, kind: header.kind });
        let known = self.connections.iter().position(|one| *one == connection);
        match operation {
            Operation::Request if known.is_none() => {
                let free = self.connections.iter_mut().find(|one| one.is_none());
                free.map(|place| *place = connection).is_some()
            }
            Operation::Reset => {
                if let Some(place) = known.and_then(|known| self.connections.get_mut(known)) {
                    *place = None;
                }
                true
            }
            _ => true,
        }
    }

    /// Returns whether a packet of the sender belongs to a connection that both ends still have.
    pub(crate) fn is_known(&self, header: &Header) -> bool {
        let connection = Connection { port: header.src_port, kind: header.kind };
        self.connections.iter().flatten().any(|known| *known == connection)
    }

    /// Removes all connections. Returns for each the reset that the VM at port `ended`, one end of
    /// the flow, would have sent to the other end.
    pub(crate) fn end(
        &mut self,
        flow: &BrokerFlow,
        ended: usize,
    ) -> impl Iterator<Item = Header> + use<> {
        let connections = core::mem::replace(&mut self.connections, [None; CONNECTIONS]);
        let (flow, forth) = (*flow, ended == usize::from(flow.from));
        let reset = move |connection| reset(&flow, connection, forth);
        connections.into_iter().flatten().map(reset)
    }

    /// Removes the connection of `header`, a packet of the sender. Returns the resets that each end
    /// would have sent to the other.
    pub(crate) fn break_off(&mut self, flow: &BrokerFlow, header: &Header) -> [Header; 2] {
        self.note(header, Operation::Reset, true);
        let connection = Connection { port: header.src_port, kind: header.kind };
        [true, false].map(|forth| reset(flow, connection, forth))
    }
}

/// Returns the reset of a connection; `forth` states whether the sender sends it.
fn reset(flow: &BrokerFlow, connection: Connection, forth: bool) -> Header {
    let [sender, receiver] = [(flow.from, connection.port), (flow.to, flow.port)]
        .map(|(vm, port)| (Cid::of_vm(vm.into()), port));
    let [(src_cid, src_port), (dst_cid, dst_port)] =
        if forth { [sender, receiver] } else { [receiver, sender] };
    let op = Operation::Reset as u16;
    Header { src_cid, dst_cid, src_port, dst_port, kind: connection.kind, op, ..Header::ZERO }
}

/// Returns the control packets per second of a flow with this period in ns.
fn control_rate(period: u64) -> u64 {
    let period = if period == 0 { BEST_EFFORT } else { period };
    (CONTROL * 1_000_000_000 / period.saturating_mul(CONTROL_PERIODS)).max(1)
}
