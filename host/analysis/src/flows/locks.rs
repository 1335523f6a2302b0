//! Bounds on what the packets of flows wait for on concurrent cores: the locks of the devices, and
//! packets of other VMs that are in no flow's lane.
//!
//! EL2 has a lock for the registers of each device. The stamp of a notification is taken under it,
//! so a sender's wait is before its packet. The broker's hypercall takes the lock of each device
//! once, and waits there for at most one critical section, of at most `hold`, of each core of that
//! VM; within its own it waits for the lock of the VM's GIC, which each of these cores holds for no
//! longer than a critical section. A core that VMs share also holds that lock while it switches to
//! the VM and from it, for a part of the switch.
//!
//! The broker takes control packets, refused packets, packets of best effort and packets that come
//! before their period out of the rings of all devices. While a packet with a deadline is ready to
//! be moved, it takes as many of them from each device as its VM sends flows, or receives if these
//! are more: its share. One more it reads and holds. A packet itself is supposed to have no more of
//! them ahead in its own ring. And the broker takes the packets of all flows out of the rings when
//! they come, also of those with a later deadline. A packet may come just behind the last poll at
//! its ring before the broker sleeps.

use super::task::{MAX_NANOS, TransformedTask, times};
use crate::units::{Bytes, Nanos};
use weir_model::timing::Flow;

/// What a flow's packets wait for, at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// Of the broker's core, for the locks of devices, for each packet: each of its chunks may be
    /// reported to EL2.
    pub settle: Nanos,
    /// Of the broker's core, for packets of other VMs in no flow's lane, and for taking packets
    /// with later deadlines out of their rings.
    pub others: Nanos,
}

/// What the broker's core spends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In a critical section of a device's lock.
    pub hold: Nanos,
    /// On a poll in vain or on waking up: the shorter of both, as a flow's task has the longer one.
    pub poll: Nanos,
    /// On reading a packet.
    pub read: Nanos,
    /// On a control packet, from its ring to its receiver's.
    pub control: Nanos,
    /// On taking a packet of a flow out of its ring.
    pub take: Nanos,
}

/// The cores of a VM in flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCores {
    /// Its vCPUs, each on another core.
    pub vcpus: u32,
    /// The sum of the longest switches of those cores that it shares.
    pub switches: Nanos,
}

/// Returns the packets of a flow that come in a window of its deadline; 0 for best effort.
fn packets(flow: &Flow) -> u64 {
    let (deadline, period) = times(flow);
    if deadline.0 < MAX_NANOS { deadline.0.div_ceil(period.0.max(1)) } else { 0 }
}

/// Returns the waits of each flow, whose packets move in chunks of this size; `cores` are those of
/// each VM. Saturating, as all times here: what is too long for the analysis is found when it is
/// added to a task.
#[must_use]
pub fn waits(
    flows: &[Flow],
    chunk: Bytes,
    cores: &[EndCores],
    Spent { hold, poll, read, control, take }: Spent,
) -> Vec<LockWaits> {
    let mut vms: Vec<usize> =
        flows.iter().flat_map(|flow| flow.to.iter().chain([&flow.from]).copied()).collect();
    vms.sort_unstable();
    vms.dedup();
    let cores_of = |vm: &usize| cores.get(*vm).copied().unwrap_or_default();
    let sections = |vm: &usize| 2 * u64::from(cores_of(vm).vcpus.max(1));
    let sections = vms.iter().map(sections).fold(0, u64::saturating_add);
    let switches = vms.iter().map(|vm| cores_of(vm).switches.0).fold(0, u64::saturating_add);
    let call = hold.0.saturating_mul(sections).saturating_add(switches);
    let share = |vm: &usize| {
        let sends = flows.iter().filter(|flow| flow.from == *vm).count() as u64;
        let receives = flows.iter().filter(|flow| flow.to.contains(vm)).count() as u64;
        sends.max(receives).max(1)
    };
    let shares = vms.iter().map(share).fold(0, u64::saturating_add);
    // Its own is none of them.
    let passed = control.0.saturating_mul(shares.saturating_sub(1));
    let held = read.0.saturating_mul(vms.len() as u64);
    // With later deadlines than a packet: of another flow, those that come in a window of that
    // flow's deadline; of its own, those behind it, as it is one of them.
    let all = flows.iter().map(packets).fold(0, u64::saturating_add);
    let of = |flow: &Flow| {
        let chunks = flow.size.0.div_ceil(chunk.0.max(1));
        let calls = chunks.saturating_mul(flow.to.len() as u64);
        let taking = take.0.saturating_mul(all.saturating_sub(packets(flow).min(1)));
        let others = [passed, held, poll.0, taking].into_iter().fold(0, u64::saturating_add);
        LockWaits { settle: Nanos(call.saturating_mul(calls)), others: Nanos(others) }
    };
    flows.iter().map(of).collect()
}

impl LockWaits {
    /// The task of a flow with this. None beyond what the analysis can count.
    #[must_use]
    pub fn added_to(&self, task: &TransformedTask) -> Option<TransformedTask> {
        let mut task = *task;
        let others = i64::try_from(self.others.0).ok()?.checked_mul(2)?;
        task.jitter.0 = task.jitter.0.checked_add(others)?;
        let settle = self.settle.0.checked_mul(2)?;
        // Its pieces may be dealt with behind another packet's, so in any of its stretches.
        for piece in [&mut task.wcet].into_iter().chain(&mut task.stretches) {
            piece.fixed = piece.fixed.checked_add(settle)?;
        }
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::TransferPiece;
    use crate::units::HalfNanos;

    fn one(from: usize, to: &[usize], size: u64) -> Flow {
        let time = Some(Nanos(1));
        let (to, size) = (to.to_vec(), Bytes(size));
        Flow { from, to, size, period: time, deadline: time, ..Flow::default() }
    }

    #[test]
    fn a_call_waits_for_the_cores_of_each_device() {
        let [hold, poll, read, control, take] = [100, 20_000, 1000, 7, 1].map(Nanos);
        let times = Spent { hold, poll, read, control, take };
        let cores = |vcpus: &[u32]| -> Vec<EndCores> {
            vcpus.iter().map(|&vcpus| EndCores { vcpus, switches: Nanos(0) }).collect()
        };
        let found = waits(&[one(0, &[1], 1)], Bytes(1), &cores(&[1, 1]), times);
        // Each of the two VMs' cores has a critical section, and holds its GIC's lock once.
        assert_eq!(found, [LockWaits { settle: Nanos(400), others: Nanos(22_007) }]);
        let found =
            waits(&[one(0, &[1, 2], 1), one(3, &[1], 2)], Bytes(1), &cores(&[1, 2, 1, 1]), times);
        // Five cores of four VMs; two receivers, or two chunks, are two calls.
        let of_each = LockWaits { settle: Nanos(2 * 1000), others: Nanos(4 * 7 + 24_000 + 1) };
        assert_eq!(found, [of_each; 2]);
        let none = waits(&[one(0, &[1], 1)], Bytes(1), &cores(&[1, 1]), Spent::default());
        assert_eq!(none, [LockWaits::default()]);
        // A shared core holds the lock of its VM's GIC for a part of a switch, too.
        let mut shared = cores(&[1, 1]);
        shared[1].switches = Nanos(5000);
        let found = waits(&[one(0, &[1], 1)], Bytes(1), &shared, times);
        assert_eq!(found, [LockWaits { settle: Nanos(5400), others: Nanos(22_007) }]);
    }

    #[test]
    fn waits_are_in_jitter_wcet_and_stretches() {
        let piece = TransferPiece { fixed: 10, bytes: 5 };
        let task = TransformedTask {
            wcet: piece,
            deadline: HalfNanos(1000),
            period: HalfNanos(2000),
            jitter: HalfNanos(20),
            stretches: [piece; 2],
        };
        let waits = LockWaits { settle: Nanos(100), others: Nanos(1000) };
        let found = waits.added_to(&task).expect("small numbers");
        assert_eq!(found.jitter, HalfNanos(20 + 2 * 1000));
        assert_eq!(found.wcet, TransferPiece { fixed: 210, bytes: 5 });
        assert_eq!(found.stretches, [TransferPiece { fixed: 210, bytes: 5 }; 2]);
        assert_eq!((found.deadline, found.period), (task.deadline, task.period));
        let most = LockWaits { settle: Nanos(u64::MAX), ..waits };
        assert_eq!(most.added_to(&task), None);
    }
}
