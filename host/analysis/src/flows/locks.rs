//! Bounds on the waits of concurrent cores for the locks of the devices.
//!
//! A device's lock is granted in order of arrival. A critical section, of at most `hold`, handles
//! one packet, one buffer or a few completions. A core therefore waits for at most one critical
//! section of each other core that can request the lock: the broker's, and those of the VMs that a
//! flow connects with the device's VM. A core that raises the device's interrupt waits, within its
//! critical section, for the lock of the VM's GIC, which each of the VM's own vCPUs holds for no
//! longer than a critical section. The connections of a flow to several receivers have such a lock,
//! too. The cores of the flow's ends, the broker's core and the core that writes the report request
//! it. Within a critical section of the sender's device a core waits for it once.

use super::task::TransformedTask;
use crate::units::Nanos;

/// The ends of a flow: VMs by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The sender.
    pub from: u32,
    /// The receivers.
    pub to: Vec<u32>,
}

/// What a flow's packets wait for locks, at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// Of the sender's core, for each packet that it takes.
    pub admit: Nanos,
    /// Of the sender's core, for each control packet that it passes on besides.
    pub pass: Nanos,
    /// Of the broker's core, for each packet: each of its completions may be a critical section.
    pub settle: Nanos,
    /// Of the broker's core, once: it may just have begun to serve the receivers of flows to
    /// several.
    pub attend: Nanos,
}

/// Saturating, as all times here: what is too long for the analysis is found when it is added to a
/// task.
fn times(time: u64, count: usize) -> u64 {
    time.saturating_mul(count as u64)
}

/// Of each flow; `chunks` are those of its packets, `cores` the vCPUs of each VM, each on its own
/// core.
#[must_use]
pub fn waits(flows: &[Ends], chunks: &[u64], cores: &[u32], hold: Nanos) -> Vec<LockWaits> {
    let own = |vm: u32| cores.get(vm as usize).copied().unwrap_or(1).max(1);
    let all = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::saturating_add);
    // The wait for the lock of a flow to several receivers: for the cores of its ends, the broker's
    // and the reporting core, without the waiter's own.
    let flow_lock = |flow: &Ends| {
        let ends: u64 = flow.to.iter().chain([&flow.from]).map(|vm| u64::from(own(*vm))).sum();
        if flow.to.len() > 1 { hold.0.saturating_mul(ends + 1) } else { 0 }
    };
    let flow_locks =
        |vm: u32| flows.iter().filter(|flow| flow.from == vm).map(flow_lock).max().unwrap_or(0);
    // The critical sections that a request for the device of `vm` waits for, from a core of
    // `waiter`, or from the broker's core.
    let sections = |vm: u32, waiter: Option<u32>| {
        let mut peers: Vec<u32> = flows
            .iter()
            .filter(|flow| flow.from == vm || flow.to.contains(&vm))
            .flat_map(|flow| flow.to.iter().chain([&flow.from]).copied())
            .filter(|peer| *peer != vm)
            .collect();
        peers.sort_unstable();
        peers.dedup();
        let others: u32 = peers.iter().map(|peer| own(*peer)).sum();
        let (mut outside, mut inside) = (others + 1, own(vm));
        if waiter == Some(vm) {
            inside -= 1;
        } else {
            outside -= 1;
        }
        // The cores outside raise the interrupt, and so may the waiter.
        let raising = if waiter == Some(vm) { outside } else { outside + 1 };
        let section = hold.0.saturating_add(flow_locks(vm));
        section
            .saturating_mul((outside + inside).into())
            .saturating_add(hold.0.saturating_mul((raising * own(vm)).into()))
    };
    let receivers = |flow: &Ends| all(&mut flow.to.iter().map(|vm| sections(*vm, None)));
    // The broker asks whether a late receiver has buffers left; then the others no longer wait for
    // it.
    let groups = || flows.iter().filter(|flow| flow.to.len() > 1);
    let attend = all(&mut groups().map(|flow| receivers(flow).saturating_add(flow_lock(flow))));
    let of = |(flow, chunks): (&Ends, &u64)| {
        let peers =
            flows.iter().filter(|other| other.from == flow.from || other.to.contains(&flow.from));
        let passed = |other: &Ends| {
            let ends = other.to.iter().chain([&other.from]);
            let section = ends.map(|vm| sections(*vm, Some(flow.from))).max().unwrap_or(0);
            section.saturating_add(flow_lock(other))
        };
        let own_sections = sections(flow.from, Some(flow.from));
        // After a packet to several receivers the sender's own device may send it its credit.
        let credit = match flow_locks(flow.from) {
            0 => 0,
            flow_lock => own_sections.saturating_add(flow_lock),
        };
        let settled = sections(flow.from, None).saturating_add(flow_lock(flow));
        // At most one completion is reported to the hypervisor per chunk and receiver.
        let chunk = receivers(flow).saturating_add(times(attend, flow.to.len()));
        LockWaits {
            admit: Nanos(own_sections.saturating_add(credit)),
            pass: Nanos(peers.map(passed).max().unwrap_or(0)),
            settle: Nanos(
                chunks.saturating_mul(chunk).saturating_add(times(settled, flow.to.len())),
            ),
            attend: Nanos(attend),
        }
    };
    flows.iter().zip(chunks).map(of).collect()
}

impl LockWaits {
    /// The task of a flow with this: `batch` packets come by one notification. None beyond what the
    /// analysis can count.
    #[must_use]
    pub fn added_to(&self, task: &TransformedTask, batch: u32) -> Option<TransformedTask> {
        let mut task = *task;
        let behind = (self.admit.0.checked_add(self.pass.0)?)
            .checked_mul(u64::from(batch).saturating_sub(1))?;
        let jitter = self.admit.0.checked_add(behind)?.checked_add(self.attend.0)?;
        task.jitter.0 = task.jitter.0.checked_add(i64::try_from(jitter).ok()?.checked_mul(2)?)?;
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

    fn one(from: u32, to: &[u32]) -> Ends {
        Ends { from, to: to.to_vec() }
    }

    #[test]
    fn two_vms_and_the_broker_wait_for_each_others_locks() {
        let found = waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(100));
        // The broker's core and the receiver's each have a critical section, and each raises the
        // interrupt within it; the sender has its own.
        assert_eq!(found[0].admit, Nanos(400));
        // The broker waits for the two VMs' cores at each device: one is outside and raises; so
        // does the broker.
        assert_eq!(found[0].settle, Nanos(400 + 400));
        assert_eq!(found[0].attend, Nanos(0));
    }

    #[test]
    fn several_receivers_have_a_lock_of_their_own() {
        let found = waits(&[one(0, &[1, 2]), one(3, &[1])], &[1, 1], &[1; 4], Nanos(100));
        // Three ends, the broker's core and the one that reports, without one's own.
        let flow_lock = 400;
        // The sender's device: both receivers' cores and the broker's, each behind that lock, and
        // each raises the interrupt.
        let own = 3 * (100 + flow_lock) + 3 * 100;
        // A credit update comes by the same device.
        assert_eq!(found[0].admit, Nanos(2 * own + flow_lock));
        // The receivers' devices: the first has two senders, and none of their critical sections
        // waits for the lock.
        let (first, second) = (4 * 100 + 4 * 100, 3 * 100 + 3 * 100);
        let attend = first + second + flow_lock;
        assert_eq!(found.iter().map(|waits| waits.attend).collect::<Vec<_>>(), [Nanos(attend); 2]);
        // The broker at the sender's device: two receivers' cores, the sender's own, and itself
        // behind the lock, for each receiver.
        let settled = 3 * (100 + flow_lock) + 3 * 100 + flow_lock;
        assert_eq!(found[0].settle, Nanos(first + second + 2 * attend + 2 * settled));
        // The other flow's packets have nothing to do with the lock but what the broker does
        // between them: its sender's device has a core of the receiver's, the broker's and its own.
        assert_eq!(found[1].admit, Nanos(2 * 100 + 2 * 100));
        assert_eq!(found[1].settle, Nanos(first + attend + 2 * 100 + 2 * 100));
        // A control packet of theirs goes to its receiver, of the others' to one of the three ends.
        assert!(found[0].pass > Nanos(own + flow_lock - 1) && found[0].pass > found[1].pass);
    }

    #[test]
    fn waits_grow_with_cores_flows_and_chunks() {
        let base = waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(100))[0];
        let wider = waits(&[one(0, &[1])], &[1], &[1, 2], Nanos(100))[0];
        let busier = waits(&[one(0, &[1]), one(2, &[0])], &[1, 1], &[1, 1, 1], Nanos(100))[0];
        let longer = waits(&[one(0, &[1])], &[3], &[1, 1], Nanos(100))[0];
        let several = waits(&[one(0, &[1, 2])], &[1], &[1, 1, 1], Nanos(100))[0];
        for more in [wider, busier, several] {
            assert!(more.admit > base.admit && more.settle > base.settle, "{more:?}");
        }
        assert_eq!((longer.admit, longer.settle), (base.admit, Nanos(base.settle.0 + 800)));
        assert_eq!(waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(0)), [LockWaits::default()]);
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
        let (admit, pass, settle) = (Nanos(7), Nanos(11), Nanos(100));
        let waits = LockWaits { admit, pass, settle, attend: Nanos(1000) };
        let found = waits.added_to(&task, 3).expect("small numbers");
        assert_eq!(found.jitter, HalfNanos(20 + 2 * (7 + 2 * 18 + 1000)));
        assert_eq!(found.wcet, TransferPiece { fixed: 210, bytes: 5 });
        assert_eq!(found.stretches, [TransferPiece { fixed: 210, bytes: 5 }; 2]);
        assert_eq!((found.deadline, found.period), (task.deadline, task.period));
        let most = LockWaits { settle: Nanos(u64::MAX), ..waits };
        assert_eq!(most.added_to(&task, 1), None);
    }
}
