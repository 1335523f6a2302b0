//! From flows to tasks, by the terms of the paper's data path or of weir's own:
//! `docs/theory/analysis.md` derives the latter from what the code does.

use super::overheads::{Overheads, Range, Reading, Terms};
use super::task::{
    InputError, InputRule, MAX_BYTES, MAX_FLOWS, MAX_NANOS, TransferPiece, TransformedTask, fault,
    tasks_from_costs, times,
};
use crate::time::Linear;
use crate::units::{Bytes, HalfNanos, Nanos};
use std::collections::BTreeMap;
use weir_model::timing::{DEFAULT_CHUNK, Flow};

/// Longest overhead that is accepted, ns (18 minutes).
const MAX_OVERHEAD: u64 = 1 << 40;
/// Most queues.
const MAX_QUEUES: u64 = 1 << 16;

/// The broker that takes packets, with the mover of their bytes: their steps depend on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The broker of rt-virtio, whose DMA engine is programmed, started by a hypercall, and
    /// interrupts. Each sender has a list of packets, around which hypervisor and broker take a
    /// lock (Eq. 23 to 25).
    RtVirtio,
    /// weir's broker, which has one heap and no lock, with its DMA engine, or its core for a short
    /// chunk: the longer one of both counts. `ip` contains both hypercalls.
    Engine,
    /// weir's broker, whose core copies.
    Core,
}

impl Mover {
    /// Returns whether weir's broker schedules the chunks.
    #[must_use]
    pub const fn is_weirs_broker(self) -> bool {
        matches!(self, Self::Engine | Self::Core)
    }
}

/// A data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The twelve constants of Table II, as far as the path has those steps.
    pub overheads: Overheads,
    /// From the store that sends the SGI to the first instruction of the woken core's scheduler.
    pub wake: Range,
    /// Setting up the copy of a chunk by a core.
    pub copy: Range,
    /// The mover of the bytes.
    pub mover: Mover,
    /// The bound on the time that a core holds the lock of a device.
    pub hold: Nanos,
    /// The lower bound on the time to finalize a transfer after the receiver's interrupt.
    pub tail: Nanos,
    /// S_c, the bytes moved between two scheduling decisions.
    pub chunk: Bytes,
    /// m, the number of sender queues; `None`: the number of VMs that send.
    pub queues: Option<u32>,
    /// The reading of Eq. 20 and 22.
    pub reading: Reading,
}

impl Path {
    /// Returns the paper's data path, with its chunks and a queue for each VM that sends.
    #[must_use]
    pub const fn paper(overheads: Overheads) -> Self {
        let none = Range::new(0, 0);
        Self {
            overheads,
            wake: none,
            copy: none,
            mover: Mover::RtVirtio,
            hold: Nanos(0),
            tail: Nanos(0),
            chunk: DEFAULT_CHUNK,
            queues: None,
            reading: Reading::Printed,
        }
    }

    /// Overhead of a chunk in ns: the scheduling decision, the transfer's own, the notification.
    fn per_chunk(&self, queues: u64) -> u64 {
        let o = &self.overheads;
        let transfer = match self.mover {
            Mover::RtVirtio => o.pd.max.0 + o.hc.max.0 + o.ip.max.0,
            Mover::Core => self.copy.max.0,
            Mover::Engine => self.copy.max.0.max(o.pd.max.0 + o.ip.max.0),
        };
        queues * o.ps.max.0 + transfer + o.ft.max.0
    }

    /// Reading a packet in its sender's ring: locking, parsing.
    #[must_use]
    pub const fn read(&self) -> u64 {
        self.overheads.ql.max.0.saturating_add(self.overheads.pp.max.0)
    }

    /// Taking a packet out of its sender's ring: reading, insertion.
    #[must_use]
    pub const fn take(&self) -> u64 {
        self.read().saturating_add(self.overheads.qi.max.0)
    }

    /// Taking a control packet out of a ring and passing it on: at most what it takes to pick a
    /// buffer, to write a header and to finalize a transfer.
    #[must_use]
    pub const fn control(&self) -> u64 {
        let o = &self.overheads;
        let pass = o.ps.max.0.saturating_add(self.copy.max.0).saturating_add(o.ft.max.0);
        self.read().saturating_add(pass)
    }
}

/// Checks the rules of the input.
fn check(flows: &[Flow], path: &Path) -> Result<(), InputError> {
    if flows.is_empty() {
        return fault(None, InputRule::NoFlows);
    }
    if flows.len() > MAX_FLOWS {
        return fault(None, InputRule::TooManyFlows);
    }
    match path.chunk.0 {
        0 => return fault(None, InputRule::ZeroChunk),
        s if s > MAX_BYTES => return fault(None, InputRule::SizeTooLarge),
        _ => {}
    }
    match path.queues {
        Some(0) => return fault(None, InputRule::ZeroQueues),
        Some(m) if u64::from(m) > MAX_QUEUES => {
            return fault(None, InputRule::OverheadTooLarge("queues"));
        }
        _ => {}
    }
    for (name, range) in path.overheads.named() {
        if range.min > range.max {
            return fault(None, InputRule::RangeReversed(name));
        }
        if range.max.0 > MAX_OVERHEAD {
            return fault(None, InputRule::OverheadTooLarge(name));
        }
    }
    for (i, flow) in flows.iter().enumerate() {
        let (deadline, period) = times(flow);
        let kind = if flow.size.0 == 0 {
            InputRule::ZeroSize
        } else if period.0 == 0 {
            InputRule::ZeroPeriod
        } else if deadline.0 == 0 {
            InputRule::ZeroDeadline
        } else if flow.to.is_empty() {
            InputRule::NoReceiver
        } else if flow.to.contains(&flow.from) {
            InputRule::SelfLoop
        } else if flow.size.0 > MAX_BYTES {
            InputRule::SizeTooLarge
        } else if period.0 > MAX_NANOS || deadline.0 > MAX_NANOS {
            InputRule::TimeTooLarge
        } else {
            continue;
        };
        return fault(Some(i), kind);
    }
    Ok(())
}

/// The flows of a sender.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    flows: u64,
    /// The packets that it can have pending (the sum of ceil(D/P) in Eq. 23).
    pending: u64,
}

/// Returns the transformed tasks of a flow set (Eq. 3, 4, 19 to 27), one a flow, in the same order.
/// A packet to several receivers is moved chunk by chunk to each of them, and every such move is its
/// own step.
///
/// D' - J' and P' may come out zero or negative; such a task can't be scheduled, which the test
/// reports.
///
/// # Errors
/// If a value breaks a rule of [`InputRule`].
pub fn transform(flows: &[Flow], path: &Path) -> Result<Vec<TransformedTask>, InputError> {
    check(flows, path)?;
    let mut senders: BTreeMap<usize, Sender> = BTreeMap::new();
    for flow in flows {
        let (deadline, period) = times(flow);
        let sender = senders.entry(flow.from).or_default();
        sender.flows += 1;
        // At most 2^16 flows of at most 2^52 pending packets each.
        sender.pending = sender.pending.saturating_add(deadline.0.div_ceil(period.0));
    }
    let per_chunk = path.per_chunk(path.queues.map_or(senders.len() as u64, u64::from));
    let terms = path.overheads.terms(path.reading);
    let task = |(i, flow): (usize, &Flow)| {
        let kind = InputRule::PacketOverheadTooLarge;
        let task = task_of(flow, senders[&flow.from], per_chunk, &terms, path);
        task.ok_or(InputError { flow: Some(i), kind })
    };
    flows.iter().enumerate().map(task).collect()
}

/// Returns the task of a flow; none if a sum is over its limit.
fn task_of(
    flow: &Flow,
    sender: Sender,
    per_chunk: u64,
    terms: &Terms,
    path: &Path,
) -> Option<TransformedTask> {
    let o = &path.overheads;
    let (deadline, period) = times(flow);
    let [mut deadline, mut period] = [deadline, period].map(|time| 2 * time.0 as i64);
    let (remove, jitter) = if path.mover.is_weirs_broker() {
        // The broker takes packets out of the rings, stamps them and finds their places, once each;
        // what was measured of a heap contains all comparisons of a packet. It sleeps and wakes up;
        // or it is awake, and polls the rings in vain before it sees this packet, which takes less
        // than a poll that finds one. It stamps a packet at the notification, at least a period
        // after the one before, and the deadline ends with the receiver's interrupt: O_s and O_r
        // are outside.
        let remove = o.qr.max.0.saturating_add(o.qa.max.0).saturating_add(path.take());
        (remove, path.wake.max.0.max(o.qa.max.0))
    } else {
        deadline -= terms.send_max + terms.receive;
        period += terms.send_min - terms.send_max;
        // Insertion and removal each wait for the other (Eq. 23 to 27).
        let lock = o.ql.max.0;
        let find = sender.pending.checked_mul(o.qa.max.0)?;
        let remove = find.checked_add(o.qi.max.0 + lock + lock + o.qr.max.0)?;
        let remove = Some(remove).filter(|&remove| remove <= MAX_NANOS)?;
        (remove, (o.pp.max.0 + remove).checked_mul(sender.flows)?)
    };
    let jitter = Some(jitter).filter(|&jitter| jitter <= 2 * MAX_NANOS)?;
    let receivers = flow.to.len() as u64;
    let packet = tasks_from_costs(flow.size.0, path.chunk.0, per_chunk, remove)?;
    // All receivers but the first have the chunks again.
    let moves = flow.size.0.div_ceil(path.chunk.0).checked_mul(receivers)?;
    let fixed = moves.checked_mul(per_chunk)?.checked_add(remove)?;
    let bytes = flow.size.0.checked_mul(receivers)?;
    (fixed <= MAX_NANOS && bytes <= MAX_BYTES).then_some(TransformedTask {
        wcet: TransferPiece { fixed: 2 * fixed, bytes },
        deadline: HalfNanos(deadline),
        period: HalfNanos(period),
        jitter: HalfNanos(2 * jitter as i64),
        ..packet
    })
}

/// Tasks on a core that gives its processor of chunks only the supply `rate (t - delay)`: Q +
/// DBF(t) <= rate (t - delay) is Eq. 10 with every cost divided by the rate and every D' - J'
/// shorter by the delay. Costs round up.
///
/// A transfer by DMA goes on while its core is away; counting it as work of the core is on the safe
/// side.
///
/// # Errors
/// If a cost grows beyond the limits.
pub fn on_shared_core(
    tasks: &[TransformedTask],
    supply: Linear,
) -> Result<Vec<TransformedTask>, InputError> {
    tasks
        .iter()
        .enumerate()
        .map(|(i, task)| {
            let too_large = InputError { flow: Some(i), kind: InputRule::PacketOverheadTooLarge };
            let scale = |x: u64, most: u64| {
                let scaled = (u128::from(x) * u128::from(supply.whole))
                    .div_ceil(u128::from(supply.share.max(1)));
                u64::try_from(scaled).ok().filter(|&s| s <= most).ok_or(too_large)
            };
            let piece = |p: TransferPiece| -> Result<TransferPiece, InputError> {
                Ok(TransferPiece {
                    fixed: scale(p.fixed, 2 * MAX_NANOS)?,
                    bytes: scale(p.bytes, MAX_BYTES)?,
                })
            };
            let delay = i64::try_from(supply.delay.0)
                .ok()
                .filter(|&d| d <= MAX_NANOS as i64)
                .ok_or(too_large)?;
            Ok(TransformedTask {
                wcet: piece(task.wcet)?,
                stretches: [piece(task.stretches[0])?, piece(task.stretches[1])?],
                jitter: HalfNanos(task.jitter.0 + 2 * delay),
                ..*task
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::{Analyzer, Effort, MinBandwidth};
    use crate::time::{Supply, VmSchedule};

    fn flow(size: u64, period: u64, to: &[usize]) -> Flow {
        let period = Some(Nanos(period));
        Flow { size: Bytes(size), period, deadline: period, to: to.to_vec(), ..Flow::default() }
    }

    fn flows(random: &mut fastrand::Rng) -> Vec<Flow> {
        (0..random.u32(1..6))
            .map(|_| {
                let period = random.u64(300_000..3_000_000);
                let from = random.usize(0..3);
                Flow { from, ..flow(random.u64(1..20_000), period, &[from + 1]) }
            })
            .collect()
    }

    fn weir() -> Path {
        Path {
            mover: Mover::Core,
            wake: Range::new(500, 900),
            copy: Range::new(50, 120),
            ..Path::paper(Overheads::RT_VIRTIO)
        }
    }

    fn least(tasks: &[TransformedTask]) -> Option<u64> {
        match Analyzer::new(tasks, &[]).min_bandwidth(Effort(1 << 24)) {
            MinBandwidth::Exactly(b) | MinBandwidth::GaveUp { at_least: b, .. } => Some(b.0),
            MinBandwidth::Never(_) => None,
        }
    }

    #[test]
    fn a_heap_without_lock_costs_less() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..100 {
            let flows = flows(&mut random);
            let of = |path: &Path| transform(&flows, path).unwrap();
            let silent = Path { wake: Range::default(), ..weir() };
            for (own, paper) in of(&silent).iter().zip(&of(&Path::paper(Overheads::RT_VIRTIO))) {
                // The broker takes the packet out of its ring, too.
                let fixed = own.wcet.fixed - 2 * silent.take();
                assert!(fixed <= paper.wcet.fixed && own.wcet.bytes == paper.wcet.bytes);
            }
        }
    }

    /// The broker takes the packets of a notification one by one: what it takes for another one is
    /// in no jitter, but in that one's cost.
    #[test]
    fn a_packet_waits_for_the_brokers_wake_up() {
        let flow = |to| flow(64, 1_000_000, &[to]);
        let path = weir();
        let o = &path.overheads;
        for flows in [&[flow(1)][..], &[flow(1), flow(2), flow(3)]] {
            let tasks = transform(flows, &path).unwrap();
            assert_eq!(tasks[0].jitter.0 as u64 / 2, path.wake.max.0.max(o.qa.max.0));
            let once = o.qr.max.0 + o.qa.max.0 + path.take();
            let chunk = o.ps.max.0 + path.copy.max.0 + o.ft.max.0;
            assert_eq!(tasks[0].wcet.fixed, 2 * (once + chunk));
        }
    }

    /// A chunk of the engine or the core takes what the slower of both takes, if either moved all.
    #[test]
    fn the_engine_takes_no_less_than_either_mover() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut longer = 0;
        for _ in 0..100 {
            let flows = flows(&mut random);
            let mut overheads = Overheads::RT_VIRTIO;
            overheads.pd = Range::new(0, random.u64(0..3000));
            overheads.ip = Range::new(0, random.u64(0..3000));
            let path = Path { overheads, copy: Range::new(0, random.u64(0..6000)), ..weir() };
            let costs = |mover, path: Path| transform(&flows, &Path { mover, ..path }).unwrap();
            let both = costs(Mover::Engine, path);
            let core = costs(Mover::Core, path);
            // The engine alone: no copy is longer.
            let engine = costs(Mover::Engine, Path { copy: Range::default(), ..path });
            let set_up = overheads.pd.max.0 + overheads.ip.max.0;
            let by_core = set_up <= path.copy.max.0;
            longer += usize::from(!by_core);
            for ((both, core), engine) in both.iter().zip(&core).zip(&engine) {
                assert_eq!(both, if by_core { core } else { engine });
                assert!(both.wcet.fixed >= core.wcet.fixed.max(engine.wcet.fixed));
            }
        }
        assert!((1..100).contains(&longer), "{longer}");
    }

    #[test]
    fn two_receivers_cost_two_transfers() {
        let cost = |receivers: &[usize]| {
            transform(&[flow(10_000, 1_000_000, receivers)], &weir()).unwrap()[0].wcet
        };
        let (one, two, three) = (cost(&[1]), cost(&[1, 2]), cost(&[1, 2, 3]));
        assert_eq!(two.bytes, 20_000);
        assert_eq!(three.fixed - two.fixed, two.fixed - one.fixed);
        let none = transform(&[flow(1, 1, &[])], &weir()).unwrap_err();
        assert_eq!(none.kind, InputRule::NoReceiver);
    }

    #[test]
    fn half_a_core_needs_more_than_twice_the_bandwidth() {
        let tasks = transform(&[flow(4096, 400_000, &[1])], &weir()).unwrap();
        let alone = least(&tasks).unwrap();
        let slots = vec![(Nanos(0), Nanos(50_000))];
        let half = VmSchedule::Table { frame: Nanos(100_000), slots, switch: Nanos(0) };
        let supply = Supply::new(half, vec![]).unwrap().linear().unwrap();
        assert_eq!((supply.share, supply.whole, supply.delay), (50_000, 100_000, Nanos(50_000)));
        let shared = least(&on_shared_core(&tasks, supply).unwrap()).unwrap();
        assert!(shared > 2 * alone, "{shared} {alone}");
        let own = Supply::new(VmSchedule::Dedicated, vec![]).unwrap().linear().unwrap();
        assert_eq!(on_shared_core(&tasks, own).unwrap(), tasks);
    }
}
