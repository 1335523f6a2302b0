//! The same analysis with the terms of weir's own data path instead of the paper's:
//! `docs/theory/analysis.md` derives each from what the code does.

use super::overheads::{Overheads, Range};
use super::task::{
    FlowDemand, FlowError, FlowErrorKind, FlowSetting, MAX_BYTES, MAX_NANOS, TransferPiece,
    TransformedTask, fault, tasks_from_costs, transform,
};
use crate::time::Linear;
use crate::units::HalfNanos;

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
}

impl Path {
    /// The paper's data path: [`tasks`] then gives the tasks of [`transform`].
    #[must_use]
    pub const fn paper(overheads: Overheads) -> Self {
        let none = Range::new(0, 0);
        Self { overheads, wake: none, copy: none, mover: Mover::RtVirtio }
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

/// The tasks of a flow set under a data path, one for each flow. `receivers` is the number of
/// receivers of each flow (1 for unicast): a multicast packet is moved chunk by chunk to each
/// receiver, and every such move is its own step.
///
/// # Errors
/// As [`transform`]; [`FlowErrorKind::NoReceiver`].
pub fn tasks(
    flows: &[FlowDemand],
    receivers: &[u32],
    setting: &FlowSetting,
    path: &Path,
) -> Result<Vec<TransformedTask>, FlowError> {
    // The rules of the input, and O_s, O_r in the reading asked, are those of the paper's path.
    let base = transform(flows, setting, &path.overheads)?;
    if let Some(flow) = receivers.iter().position(|count| *count == 0) {
        return fault(Some(flow), FlowErrorKind::NoReceiver);
    }
    let mut senders: Vec<u32> = flows.iter().map(|flow| flow.from).collect();
    senders.sort_unstable();
    senders.dedup();
    let queues = setting.queues.map_or(senders.len() as u64, u64::from);
    let task = |(i, base): (usize, &TransformedTask)| {
        let count = receivers.get(i).copied().unwrap_or(1);
        local_task(flows, i, count, queues, setting, path, base)
    };
    base.iter().enumerate().map(task).collect()
}

fn local_task(
    flows: &[FlowDemand],
    i: usize,
    receivers: u32,
    queues: u64,
    setting: &FlowSetting,
    path: &Path,
    base: &TransformedTask,
) -> Result<TransformedTask, FlowError> {
    let too_large = FlowError { flow: Some(i), kind: FlowErrorKind::PacketOverheadTooLarge };
    let flow = &flows[i];
    let o = &path.overheads;
    let (remove, jitter) = if path.mover.is_weirs_broker() {
        // The broker takes packets out of the rings, stamps them and finds their places, once each;
        // what was measured of a heap contains all comparisons of a packet. It sleeps and wakes up;
        // or it is awake, and polls the rings in vain before it sees this packet, which takes less
        // than a poll that finds one.
        let remove = o.qr.max.0.saturating_add(o.qa.max.0).saturating_add(path.take());
        (remove, Some(path.wake.max.0.max(o.qa.max.0)))
    } else {
        let own = flows.iter().filter(|other| other.from == flow.from);
        let pending =
            |sum: u64, f: &FlowDemand| sum.saturating_add(f.deadline.0.div_ceil(f.period.0));
        let find = own.clone().fold(0, pending).saturating_mul(o.qa.max.0);
        // Insertion and removal each wait for the other (Eq. 26 and 27).
        let inserted = o.ql.max.0.saturating_add(o.qi.max.0.saturating_add(find));
        let both = inserted.saturating_add(o.ql.max.0 + o.qr.max.0);
        (both, o.pp.max.0.saturating_add(both).checked_mul(own.count() as u64))
    };
    let jitter = jitter.filter(|&j| j <= 2 * MAX_NANOS).ok_or(too_large)?;

    let receivers = u64::from(receivers);
    let per_chunk = path.per_chunk(queues);
    let packet = tasks_from_costs(flow.size.0, setting.chunk.0, per_chunk, remove);
    let packet = packet.ok_or(too_large)?;
    // All receivers but the first have the chunks again.
    let moves = flow.size.0.div_ceil(setting.chunk.0).checked_mul(receivers);
    let fixed = moves
        .and_then(|moves| moves.checked_mul(per_chunk)?.checked_add(remove))
        .filter(|&fixed| fixed <= MAX_NANOS)
        .ok_or(too_large)?;
    let bytes = flow.size.0.checked_mul(receivers).filter(|&bytes| bytes <= MAX_BYTES);
    let bytes = bytes.ok_or(too_large)?;
    let (deadline, period) = if path.mover.is_weirs_broker() {
        // weir stamps a packet at the notification, at least a period after the one before, and the
        // deadline ends with the receiver's interrupt: O_s and O_r are outside.
        (HalfNanos(2 * flow.deadline.0 as i64), HalfNanos(2 * flow.period.0 as i64))
    } else {
        (base.deadline, base.period)
    };
    Ok(TransformedTask {
        wcet: TransferPiece { fixed: 2 * fixed, bytes },
        deadline,
        period,
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
) -> Result<Vec<TransformedTask>, FlowError> {
    tasks
        .iter()
        .enumerate()
        .map(|(i, task)| {
            let too_large =
                FlowError { flow: Some(i), kind: FlowErrorKind::PacketOverheadTooLarge };
            let scale = |x: u64, most: u64| {
                let scaled = (u128::from(x) * u128::from(supply.whole))
                    .div_ceil(u128::from(supply.share.max(1)));
                u64::try_from(scaled).ok().filter(|&s| s <= most).ok_or(too_large)
            };
            let piece = |p: TransferPiece| -> Result<TransferPiece, FlowError> {
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
    use crate::flows::{Analyzer, Effort, MinBandwidth, Reading};
    use crate::time::{Supply, VmSchedule};
    use crate::units::{Bytes, Nanos};

    fn flows(random: &mut fastrand::Rng) -> Vec<FlowDemand> {
        (0..random.u32(1..6))
            .map(|_| {
                let period = Nanos(random.u64(300_000..3_000_000));
                let from = random.u32(0..3);
                FlowDemand {
                    size: Bytes(random.u64(1..20_000)),
                    period,
                    deadline: period,
                    from,
                    to: from + 1,
                }
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

    fn setting() -> FlowSetting {
        FlowSetting { chunk: Bytes(4096), queues: None, reading: Reading::Printed }
    }

    fn least(tasks: &[TransformedTask]) -> Option<u64> {
        match Analyzer::new(tasks, &[]).min_bandwidth(Effort(1 << 24)) {
            MinBandwidth::Exactly(b) | MinBandwidth::GaveUp { at_least: b, .. } => Some(b.0),
            MinBandwidth::Never(_) => None,
        }
    }

    #[test]
    fn the_papers_path_gives_the_papers_tasks() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let flows = flows(&mut random);
            let setting = setting();
            let path = Path::paper(Overheads::RT_VIRTIO);
            let own = tasks(&flows, &vec![1; flows.len()], &setting, &path).unwrap();
            let papers = transform(&flows, &setting, &Overheads::RT_VIRTIO).unwrap();
            assert_eq!(own.len(), papers.len());
            for (a, b) in own.iter().zip(&papers) {
                assert_eq!(
                    (a.wcet, a.deadline, a.period, a.jitter),
                    (b.wcet, b.deadline, b.period, b.jitter)
                );
                let q = |t: &TransformedTask| {
                    t.stretches.map(|s| s.scaled(500_000_000)).into_iter().max()
                };
                assert_eq!(q(a), q(b));
            }
        }
    }

    #[test]
    fn a_heap_without_lock_costs_less() {
        let mut random = fastrand::Rng::with_seed(4);
        let setting = setting();
        for _ in 0..100 {
            let flows = flows(&mut random);
            let ones = vec![1; flows.len()];
            let of = |path: &Path| tasks(&flows, &ones, &setting, path).unwrap();
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
        let flow = |to| FlowDemand {
            size: Bytes(64),
            period: Nanos(1_000_000),
            deadline: Nanos(1_000_000),
            from: 0,
            to,
        };
        let path = weir();
        let o = &path.overheads;
        for flows in [&[flow(1)][..], &[flow(1), flow(2), flow(3)]] {
            let tasks = tasks(flows, &[1; 3], &setting(), &path).unwrap();
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
        let setting = setting();
        let mut longer = 0;
        for _ in 0..100 {
            let flows = flows(&mut random);
            let mut overheads = Overheads::RT_VIRTIO;
            overheads.pd = Range::new(0, random.u64(0..3000));
            overheads.ip = Range::new(0, random.u64(0..3000));
            let path = Path { overheads, copy: Range::new(0, random.u64(0..6000)), ..weir() };
            let costs = |mover, path: Path| {
                let path = Path { mover, ..path };
                tasks(&flows, &vec![1; flows.len()], &setting, &path).unwrap()
            };
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
        let flow = FlowDemand {
            size: Bytes(10_000),
            period: Nanos(1_000_000),
            deadline: Nanos(1_000_000),
            from: 0,
            to: 1,
        };
        let setting = setting();
        let cost = |receivers| tasks(&[flow], &[receivers], &setting, &weir()).unwrap()[0].wcet;
        let (one, two, three) = (cost(1), cost(2), cost(3));
        assert_eq!(two.bytes, 20_000);
        assert_eq!(three.fixed - two.fixed, two.fixed - one.fixed);
        assert_eq!(
            tasks(&[flow], &[0], &setting, &weir()).unwrap_err().kind,
            FlowErrorKind::NoReceiver
        );
    }

    #[test]
    fn half_a_core_needs_more_than_twice_the_bandwidth() {
        let flow = FlowDemand {
            size: Bytes(4096),
            period: Nanos(400_000),
            deadline: Nanos(400_000),
            from: 0,
            to: 1,
        };
        let setting = setting();
        let tasks = tasks(&[flow], &[1], &setting, &weir()).unwrap();
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
