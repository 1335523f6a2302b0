//! Limited-preemption sporadic tasks, which flows become, and the rules of their input.

use core::fmt;

use crate::units::{BytesPerSec, HalfNanos, Nanos};
use weir_model::timing::Flow;

/// Longest time that is accepted, ns (52 days): in half nanoseconds it is still exact as a double,
/// in which results are printed.
pub(crate) const MAX_NANOS: u64 = 1 << 52;
/// Largest packet or chunk that is accepted (1 TiB).
pub(crate) const MAX_BYTES: u64 = 1 << 40;
/// Largest bandwidth that is accepted, bytes/s (1 PiB/s).
pub const MAX_BANDWIDTH: u64 = 1 << 50;
/// Most flows in a set.
pub(crate) const MAX_FLOWS: usize = 1 << 16;
/// Half nanoseconds in a second.
pub(crate) const HALVES_PER_SEC: u64 = 2_000_000_000;

/// Returns the deadline and the period of a flow, D and P in the analysis. A flow without them, of
/// best effort, has the greatest that the analysis takes.
pub(crate) fn times(flow: &Flow) -> (Nanos, Nanos) {
    let longest = Nanos(MAX_NANOS);
    (flow.deadline.unwrap_or(longest), flow.period.unwrap_or(longest))
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
pub struct InputError {
    /// Position of the flow, where one is at fault.
    pub flow: Option<usize>,
    /// The rule that is broken.
    pub kind: InputRule,
}

/// The rules of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRule {
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

impl fmt::Display for InputRule {
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

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flow {
            Some(flow) => write!(f, "flow {flow}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl core::error::Error for InputError {}

pub(crate) fn fault<T>(flow: Option<usize>, kind: InputRule) -> Result<T, InputError> {
    Err(InputError { flow, kind })
}

pub(crate) fn check_bandwidth(bandwidth: BytesPerSec) -> Result<u64, InputError> {
    match bandwidth.0 {
        0 => fault(None, InputRule::ZeroBandwidth),
        b if b > MAX_BANDWIDTH => fault(None, InputRule::BandwidthTooLarge),
        b => Ok(b),
    }
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
