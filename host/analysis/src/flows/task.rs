//! From flows to limited-preemption sporadic tasks.

use core::fmt;
use std::collections::BTreeMap;

use super::overheads::{Overheads, Reading, Terms};
use crate::units::{Bytes, BytesPerSec, HalfNanos, Nanos};

/// Longest time that is accepted, ns (52 days): in half nanoseconds it is still exact as a double,
/// in which results are printed.
pub(crate) const MAX_NANOS: u64 = 1 << 52;
/// Largest packet or chunk that is accepted (1 TiB).
pub(crate) const MAX_BYTES: u64 = 1 << 40;
/// Largest bandwidth that is accepted, bytes/s (1 PiB/s).
pub const MAX_BANDWIDTH: u64 = 1 << 50;
/// Most flows in a set.
pub(crate) const MAX_FLOWS: usize = 1 << 16;
/// Longest overhead that is accepted, ns (18 minutes).
const MAX_OVERHEAD: u64 = 1 << 40;
/// Most queues.
const MAX_QUEUES: u64 = 1 << 16;
/// Half nanoseconds in a second.
pub(crate) const HALVES_PER_SEC: u64 = 2_000_000_000;

/// A flow: packets of `size` bytes, at least `period` apart, each to be delivered within `deadline`
/// (rt-virtio II-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDemand {
    /// C, bytes in a packet.
    pub size: Bytes,
    /// P, least time between two packets.
    pub period: Nanos,
    /// D, relative deadline; may be longer or shorter than the period.
    pub deadline: Nanos,
    /// The sending VM.
    pub from: u32,
    /// The receiving VM.
    pub to: u32,
}

/// The parameters that all flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSetting {
    /// S_c, the bytes moved between two scheduling decisions.
    pub chunk: Bytes,
    /// m, the number of sender queues; `None`: the number of VMs that send.
    pub queues: Option<u32>,
    /// How Eq. 20 and 22 are read.
    pub reading: Reading,
}

/// A stretch of transfer time: a part that does not depend on the bandwidth, and bytes to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferPiece {
    /// Overhead, half ns.
    pub fixed: u64,
    /// Bytes that are moved at the bandwidth.
    pub bytes: u64,
}

impl TransferPiece {
    /// Duration at `bandwidth`, in half ns times bytes/s (so that it is an integer).
    pub(crate) fn scaled(self, bandwidth: u64) -> u128 {
        u128::from(self.fixed) * u128::from(bandwidth)
            + u128::from(self.bytes) * u128::from(HALVES_PER_SEC)
    }

    /// Duration in ns, for printing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for printing; verdicts use the scaled integer")]
    pub fn nanos(self, bandwidth: BytesPerSec) -> f64 {
        self.fixed as f64 / 2.0 + self.bytes as f64 * 1e9 / bandwidth.0 as f64
    }
}

/// A transformed task (rt-virtio IV): C', D', P', J', q'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformedTask {
    /// C' (Eq. 3).
    pub wcet: TransferPiece,
    /// D'.
    pub deadline: HalfNanos,
    /// P'.
    pub period: HalfNanos,
    /// J' (Eq. 27).
    pub jitter: HalfNanos,
    /// The non-preemptive stretches with the maximum q' (Eq. 4); equal where there is only one.
    pub stretches: [TransferPiece; 2],
}

impl TransformedTask {
    /// D' - J', half ns: the length of the shortest interval that holds a job's release and
    /// deadline.
    #[must_use]
    pub fn window(&self) -> i64 {
        self.deadline.0 - self.jitter.0
    }

    /// q' in ns at `bandwidth`, for printing.
    #[must_use]
    pub fn blocking_nanos(&self, bandwidth: BytesPerSec) -> f64 {
        self.stretches[0].nanos(bandwidth).max(self.stretches[1].nanos(bandwidth))
    }
}

/// A fault in an input, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowError {
    /// Position of the flow, where one is at fault.
    pub flow: Option<usize>,
    /// The rule that is broken.
    pub kind: FlowErrorKind,
}

/// The rules of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowErrorKind {
    /// A packet has at least one byte.
    ZeroSize,
    /// The period is at least 1 ns.
    ZeroPeriod,
    /// The deadline is at least 1 ns.
    ZeroDeadline,
    /// Sender and receiver differ (rt-virtio II-B).
    SelfLoop,
    /// The chunk has at least one byte.
    ZeroChunk,
    /// The bandwidth is at least 1 byte/s.
    ZeroBandwidth,
    /// There is at least one queue.
    ZeroQueues,
    /// A set has at least one flow.
    NoFlows,
    /// More flows than the analysis takes.
    TooManyFlows,
    /// A size over 1 TiB.
    SizeTooLarge,
    /// A time over 52 days.
    TimeTooLarge,
    /// A bandwidth over 1 PiB/s.
    BandwidthTooLarge,
    /// An overhead with min > max.
    RangeReversed(&'static str),
    /// An overhead over 18 minutes, or too many queues for the sum.
    OverheadTooLarge(&'static str),
    /// The overheads of one packet (chunks, queue) exceed 52 days.
    PacketOverheadTooLarge,
    /// A flow has at least one receiver.
    NoReceiver,
}

impl fmt::Display for FlowErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize => f.write_str("the size is 0; a packet has at least 1 byte"),
            Self::ZeroPeriod => f.write_str("the period is 0; it must be at least 1 ns"),
            Self::ZeroDeadline => f.write_str("the deadline is 0; it must be at least 1 ns"),
            Self::SelfLoop => f.write_str("sender and receiver are the same VM"),
            Self::ZeroChunk => f.write_str("the chunk is 0; it must be at least 1 byte"),
            Self::ZeroBandwidth => f.write_str("the bandwidth is 0; it must be at least 1 byte/s"),
            Self::ZeroQueues => f.write_str("the number of queues is 0"),
            Self::NoFlows => f.write_str("there are no flows"),
            Self::TooManyFlows => write!(f, "more than {MAX_FLOWS} flows"),
            Self::SizeTooLarge => f.write_str("the size is over 1 TiB"),
            Self::TimeTooLarge => f.write_str("the time is over 2^52 ns (52 days)"),
            Self::BandwidthTooLarge => f.write_str("the bandwidth is over 1 PiB/s"),
            Self::RangeReversed(name) => write!(f, "overhead {name}: min is greater than max"),
            Self::OverheadTooLarge(name) => {
                write!(f, "overhead {name} is over 2^40 ns (18 minutes)")
            }
            Self::PacketOverheadTooLarge => {
                f.write_str("the overheads of one packet exceed 2^52 ns (52 days)")
            }
            Self::NoReceiver => f.write_str("there is no receiver"),
        }
    }
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flow {
            Some(flow) => write!(f, "flow {flow}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl core::error::Error for FlowError {}

pub(crate) fn fault<T>(flow: Option<usize>, kind: FlowErrorKind) -> Result<T, FlowError> {
    Err(FlowError { flow, kind })
}

pub(crate) fn check_bandwidth(bandwidth: BytesPerSec) -> Result<u64, FlowError> {
    match bandwidth.0 {
        0 => fault(None, FlowErrorKind::ZeroBandwidth),
        b if b > MAX_BANDWIDTH => fault(None, FlowErrorKind::BandwidthTooLarge),
        b => Ok(b),
    }
}

fn check(
    flows: &[FlowDemand],
    setting: &FlowSetting,
    overheads: &Overheads,
) -> Result<(), FlowError> {
    if flows.is_empty() {
        return fault(None, FlowErrorKind::NoFlows);
    }
    if flows.len() > MAX_FLOWS {
        return fault(None, FlowErrorKind::TooManyFlows);
    }
    match setting.chunk.0 {
        0 => return fault(None, FlowErrorKind::ZeroChunk),
        s if s > MAX_BYTES => return fault(None, FlowErrorKind::SizeTooLarge),
        _ => {}
    }
    match setting.queues {
        Some(0) => return fault(None, FlowErrorKind::ZeroQueues),
        Some(m) if u64::from(m) > MAX_QUEUES => {
            return fault(None, FlowErrorKind::OverheadTooLarge("queues"));
        }
        _ => {}
    }
    for (name, range) in overheads.named() {
        if range.min > range.max {
            return fault(None, FlowErrorKind::RangeReversed(name));
        }
        if range.max.0 > MAX_OVERHEAD {
            return fault(None, FlowErrorKind::OverheadTooLarge(name));
        }
    }
    for (i, flow) in flows.iter().enumerate() {
        let kind = if flow.size.0 == 0 {
            FlowErrorKind::ZeroSize
        } else if flow.period.0 == 0 {
            FlowErrorKind::ZeroPeriod
        } else if flow.deadline.0 == 0 {
            FlowErrorKind::ZeroDeadline
        } else if flow.from == flow.to {
            FlowErrorKind::SelfLoop
        } else if flow.size.0 > MAX_BYTES {
            FlowErrorKind::SizeTooLarge
        } else if flow.period.0 > MAX_NANOS || flow.deadline.0 > MAX_NANOS {
            FlowErrorKind::TimeTooLarge
        } else {
            continue;
        };
        return fault(Some(i), kind);
    }
    Ok(())
}

/// The flows of a sender.
#[derive(Clone, Copy, Default)]
struct Sender {
    flows: u64,
    /// The packets that it can have pending (the sum of ceil(D/P) in Eq. 23).
    pending: u64,
}

/// The transformed tasks of a flow set (Eq. 3, 4, 19 to 27), one a flow, in the same order.
///
/// D' - J' and P' may come out zero or negative; such a task can't be scheduled, which the test
/// reports.
///
/// # Errors
/// If a value breaks a rule of [`FlowErrorKind`].
pub fn transform(
    flows: &[FlowDemand],
    setting: &FlowSetting,
    overheads: &Overheads,
) -> Result<Vec<TransformedTask>, FlowError> {
    check(flows, setting, overheads)?;
    let mut senders: BTreeMap<u32, Sender> = BTreeMap::new();
    for flow in flows {
        let sender = senders.entry(flow.from).or_default();
        sender.flows += 1;
        // At most 2^16 flows of at most 2^52 pending packets each.
        sender.pending = sender.pending.saturating_add(flow.deadline.0.div_ceil(flow.period.0));
    }
    let queues = setting.queues.map_or(senders.len() as u64, u64::from);
    let terms = overheads.terms(queues, setting.reading);
    let task = |(i, flow): (usize, &FlowDemand)| {
        let sender = senders[&flow.from];
        let kind = FlowErrorKind::PacketOverheadTooLarge;
        let task = packet(sender, flow.size, setting.chunk, (overheads, &terms));
        let task = task.ok_or(FlowError { flow: Some(i), kind })?;
        Ok(TransformedTask {
            deadline: HalfNanos(2 * flow.deadline.0 as i64 - terms.send_max - terms.receive),
            period: HalfNanos(2 * flow.period.0 as i64 + terms.send_min - terms.send_max),
            ..task
        })
    };
    flows.iter().enumerate().map(task).collect()
}

/// Returns C', q' and J' of the packets of this size of a sender; none if a sum is over the limit
/// of times.
fn packet(
    sender: Sender,
    size: Bytes,
    chunk: Bytes,
    (overheads, terms): (&Overheads, &Terms),
) -> Option<TransformedTask> {
    // Eq. 23 to 26.
    let lock = overheads.ql.max.0;
    let find = sender.pending.checked_mul(overheads.qa.max.0)?;
    let remove = find
        .checked_add(overheads.qi.max.0 + lock + lock + overheads.qr.max.0)
        .filter(|&o| o <= MAX_NANOS)?;
    // Eq. 27.
    let jitter =
        (overheads.pp.max.0 + remove).checked_mul(sender.flows).filter(|&j| j <= 2 * MAX_NANOS)?;
    let task = tasks_from_costs(size.0, chunk.0, terms.dma, remove)?;
    Some(TransformedTask { jitter: HalfNanos(2 * jitter as i64), ..task })
}

/// C' and q' (Eq. 3 and 4) from the overhead of a chunk and of a packet, both in ns; `None` if the
/// sum is over the limit of times.
pub(crate) fn tasks_from_costs(
    size: u64,
    chunk: u64,
    per_chunk: u64,
    per_packet: u64,
) -> Option<TransformedTask> {
    let chunks = size.div_ceil(chunk);
    let last = size - (chunks - 1) * chunk;
    let fixed = chunks
        .checked_mul(per_chunk)
        .and_then(|o| o.checked_add(per_packet))
        .filter(|&o| o <= MAX_NANOS)?;
    let end = TransferPiece { fixed: 2 * (per_chunk + per_packet), bytes: last };
    let middle = TransferPiece { fixed: 2 * per_chunk, bytes: chunk };
    Some(TransformedTask {
        wcet: TransferPiece { fixed: 2 * fixed, bytes: size },
        deadline: HalfNanos(0),
        period: HalfNanos(0),
        jitter: HalfNanos(0),
        stretches: [end, if chunks > 1 { middle } else { end }],
    })
}
