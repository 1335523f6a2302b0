//! What is kept of each flow: its pace, its connections, its counts.

use super::lock::Fair;
use crate::{arch::lock::Lock, console, system};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spin::Once;
use weir_abi::{FIRST_GROUP, MAX_FLOWS};
use weir_broker::transfer::{Bucket, Pace, Stamp};
use weir_trace::wire;
use weir_units::Cid;
use weir_vsock::{
    flows::{FlowRule, PacketVerdict, admit},
    multicast::{FlowGroup, Rules},
    vsock::{Header, Operation},
};

/// Connections of a flow at once.
const CONNECTIONS: usize = 16;
/// Control packets of a flow that may come at once, both ways together; so many may come in each
/// [`CONTROL_PERIODS`] periods, too.
const CONTROL: u64 = 64;
/// See [`CONTROL`].
const CONTROL_PERIODS: u64 = 8;
/// The period of a flow without one, for its control packets, in ns.
const BEST_EFFORT: u64 = 1_000_000;

/// A connection, by the sender's port: the receiver's is the flow's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Connection {
    port: u32,
    kind: u16,
    /// One end is gone, and the other has not been told.
    ended: bool,
}

/// What is kept of a flow.
pub struct FlowState {
    pace: Lock<Pace>,
    /// Control packets, one a byte.
    control: Lock<Bucket>,
    connections: Lock<[Option<Connection>; CONNECTIONS]>,
    packets: AtomicU64,
    lost: AtomicU64,
    observed_max_ns: AtomicU64,
    least_ns: AtomicU64,
    late: AtomicU64,
    observed_max_packet: AtomicU64,
    observed_max_arrived_ns: AtomicU64,
    /// The connections, where this is the first of several receivers'.
    pub group: Option<Fair<FlowGroup>>,
    /// When the group is due, as its lock was given up last, in ns.
    pub due: AtomicU64,
}

/// There are flows to several receivers.
static GROUPS: AtomicBool = AtomicBool::new(false);
static FLOWS: [Once<FlowState>; MAX_FLOWS] = [const { Once::new() }; MAX_FLOWS];

/// Takes the system's flows in; on the boot core.
pub fn init() {
    for (index, (flow, place)) in system::get().flows().iter().zip(&FLOWS).enumerate() {
        GROUPS.fetch_or(flow.members > 1, Ordering::Relaxed);
        place.call_once(|| FlowState {
            pace: Lock::new(Pace::new(flow.period, flow.deadline)),
            control: Lock::new(Bucket::new(control_rate(flow.period), CONTROL)),
            connections: Lock::new([None; CONNECTIONS]),
            packets: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            observed_max_ns: AtomicU64::new(0),
            least_ns: AtomicU64::new(u64::MAX),
            late: AtomicU64::new(0),
            observed_max_packet: AtomicU64::new(0),
            observed_max_arrived_ns: AtomicU64::new(0),
            group: group(index, flow).map(Fair::new),
            due: AtomicU64::new(u64::MAX),
        });
    }
}

/// Whether there are flows to several receivers.
pub fn has_groups() -> bool {
    // Relaxed: written before another core starts.
    GROUPS.load(Ordering::Relaxed)
}

/// The connections of the flows to several receivers that begin with `flow`, the system's flow
/// `index`.
fn group(index: usize, flow: &weir_abi::PackedFlow) -> Option<FlowGroup> {
    if flow.members <= 1 || flow.first as usize != index {
        return None;
    }
    let rules = Rules {
        from: Cid::of_vm(flow.from),
        group: flow.destination(),
        port: flow.port,
        size: flow.size,
        patience: if flow.deadline == 0 { BEST_EFFORT } else { flow.deadline },
    };
    let members = system::get().flows().iter().skip(index).take(flow.members as usize);
    Some(FlowGroup::new(rules, members.map(|flow| Cid::of_vm(flow.to))))
}

/// Control packets a second of a flow with this period in ns.
fn control_rate(period: u64) -> u64 {
    let period = if period == 0 { BEST_EFFORT } else { period };
    (CONTROL * 1_000_000_000 / period.saturating_mul(CONTROL_PERIODS)).max(1)
}

/// Flow `index`, if there is one: what the system file says, and what is kept.
pub fn get(index: usize) -> Option<(&'static weir_abi::PackedFlow, &'static FlowState)> {
    system::get().flows().get(index).zip(FLOWS.get(index)?.get())
}

/// What becomes of a packet.
pub fn judge(header: &Header, operation: Operation) -> PacketVerdict {
    let all = || system::get().flows().iter();
    if header.dst_cid >= FIRST_GROUP {
        // The sender knows its receivers by one name.
        let is =
            |flow: &weir_abi::PackedFlow| flow.members > 1 && flow.destination() == header.dst_cid;
        let Some(first) = all().position(is) else { return PacketVerdict::Refuse };
        let rule = all().nth(first).map(|flow| FlowRule {
            from: Cid::of_vm(flow.from),
            to: flow.destination(),
            port: flow.port,
        });
        return match admit(rule, header, operation) {
            PacketVerdict::Transfer(_) => PacketVerdict::Transfer(first),
            PacketVerdict::Pass(_) => PacketVerdict::Pass(first),
            PacketVerdict::Refuse => PacketVerdict::Refuse,
        };
    }
    match admit(rules(), header, operation) {
        PacketVerdict::Transfer(flow) | PacketVerdict::Pass(flow)
            if all().nth(flow).is_some_and(|flow| {
                flow.members > 1 && Cid::of_vm(flow.from) == header.src_cid
            }) =>
        {
            PacketVerdict::Refuse
        }
        verdict => verdict,
    }
}

/// What each flow allows.
fn rules() -> impl Iterator<Item = FlowRule> {
    let flows = system::get().flows().iter();
    flows.map(move |flow| FlowRule {
        from: Cid::of_vm(flow.from),
        to: Cid::of_vm(flow.to),
        port: flow.port,
    })
}

impl FlowState {
    /// Stamps a packet that was seen at `now_ns`.
    pub fn stamp(&self, now_ns: u64) -> Stamp {
        self.pace.lock().stamp(now_ns)
    }

    /// Whether one more control packet may be passed at `now_ns`.
    pub fn admits_control(&self, now_ns: u64) -> bool {
        let mut control = self.control.lock();
        let admitted = control.ready_at(1) <= now_ns;
        if admitted {
            control.take(now_ns, 1);
        }
        admitted
    }

    /// Counts a packet that arrived at `at_ns` and took `latency_ns`. A `deadline_ns` of 0 is none.
    ///
    /// The caller holds the lock of the sender's device, so there is one writer. A report may read
    /// counts of which only some have this packet.
    pub fn arrived(&self, latency_ns: u64, deadline_ns: u64, at_ns: u64) {
        let add = |count: &AtomicU64, more: u64| {
            let sum = count.load(Ordering::Relaxed).saturating_add(more);
            count.store(sum, Ordering::Relaxed);
            sum
        };
        let number = add(&self.packets, 1);
        if number == 1 || latency_ns > self.observed_max_ns.load(Ordering::Relaxed) {
            self.observed_max_ns.store(latency_ns, Ordering::Relaxed);
            self.observed_max_packet.store(number, Ordering::Relaxed);
            self.observed_max_arrived_ns.store(at_ns, Ordering::Relaxed);
        }
        if latency_ns < self.least_ns.load(Ordering::Relaxed) {
            self.least_ns.store(latency_ns, Ordering::Relaxed);
        }
        if deadline_ns != 0 && latency_ns > deadline_ns {
            add(&self.late, 1);
        }
    }

    /// Packets were given up.
    pub fn lose(&self, packets: u64) {
        self.lost.fetch_add(packets, Ordering::Relaxed);
    }

    /// Notes what a control packet does to the flow's connections; `forth` says whether the sender
    /// sends it. False for a request beyond those that there can be.
    pub fn note(&self, header: &Header, operation: Operation, forth: bool) -> bool {
        let port = if forth { header.src_port } else { header.dst_port };
        let connection = Some(Connection { port, kind: header.kind, ended: false });
        let mut connections = self.connections.lock();
        let known = connections.iter().position(|one| *one == connection);
        match operation {
            Operation::Request if known.is_none() => {
                let free = connections.iter_mut().find(|one| one.is_none());
                free.map(|place| *place = connection).is_some()
            }
            Operation::Reset => {
                if let Some(place) = known.and_then(|known| connections.get_mut(known)) {
                    *place = None;
                }
                true
            }
            _ => true,
        }
    }

    /// Whether a packet of the sender's belongs to a connection that both ends still have.
    pub fn is_known(&self, header: &Header) -> bool {
        let connection = Connection { port: header.src_port, kind: header.kind, ended: false };
        self.connections.lock().contains(&Some(connection))
    }

    /// Ends all connections: nothing more is sent by them.
    pub fn end(&self) {
        self.connections.lock().iter_mut().flatten().for_each(|connection| connection.ended = true);
    }

    /// Forgets the connections that have ended, and gives for each the reset that `ended`, one end
    /// of the flow, would have sent to the other.
    pub fn ended(
        &self,
        flow: &weir_abi::PackedFlow,
        ended: u32,
    ) -> impl Iterator<Item = Header> + use<> {
        let mut connections = [None; CONNECTIONS];
        for (gone, connection) in connections.iter_mut().zip(self.connections.lock().iter_mut()) {
            *gone = connection.take_if(|connection| connection.ended);
        }
        let flow = *flow;
        connections.into_iter().flatten().map(move |connection| {
            let (src_port, dst_port, to) = if ended == flow.from {
                (connection.port, flow.port, flow.to)
            } else {
                (flow.port, connection.port, flow.from)
            };
            Header {
                src_cid: Cid::of_vm(ended),
                dst_cid: Cid::of_vm(to),
                src_port,
                dst_port,
                kind: connection.kind,
                op: Operation::Reset as u16,
                ..Header::default()
            }
        })
    }
}

/// Sends the counts of every flow.
pub fn report() {
    let time_ns = crate::arch::timer::now_ns();
    for (index, flow) in FLOWS.iter().map_while(Once::get).enumerate() {
        let counts = wire::FlowCounts {
            time_ns,
            flow: index as u32,
            dropped: dropped(index),
            packets: flow.packets.load(Ordering::Relaxed),
            lost: flow.lost.load(Ordering::Relaxed),
            observed_max_ns: flow.observed_max_ns.load(Ordering::Relaxed),
            least_ns: flow.least_ns.load(Ordering::Relaxed),
            late: flow.late.load(Ordering::Relaxed),
            observed_max_packet: flow.observed_max_packet.load(Ordering::Relaxed),
            observed_max_arrived_ns: flow.observed_max_arrived_ns.load(Ordering::Relaxed),
        };
        console::record(wire::FrameKind::Flow, &counts);
    }
}

/// How often the receiver of flow `index` was dropped, if it is one of several.
fn dropped(index: usize) -> u32 {
    let first = get(index).map_or(0, |(entry, _)| entry.first as usize);
    let group = get(first).and_then(|(_, flow)| flow.group.as_ref());
    group.map_or(0, |group| group.lock().dropped(index - first))
}

/// The flows that the VM at place `vm` of the system is an end of.
pub fn of(vm: usize) -> impl Iterator<Item = (&'static weir_abi::PackedFlow, &'static FlowState)> {
    let index = vm as u32;
    let all = (0..MAX_FLOWS).map_while(get);
    all.filter(move |(flow, _)| flow.from == index || flow.to == index)
}
