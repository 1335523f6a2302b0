//! How long cores that run side by side wait for each other's turns of the devices' locks.
//!
//! A device's lock serves who comes first, and is held for one packet, one buffer or a few completions (`hold`): so whoever wants it waits for
//! one turn of each other core that can want it, which is the broker's and those of the VMs that a flow connects with the device's. Who raises
//! the device's interrupt waits for the lock of its VM's GIC inside, which that VM's own vCPUs hold: for no longer than a turn each.

use super::task::Task;
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
pub struct Waits {
    /// Of the sender's core, for each packet that it takes.
    pub admit: Nanos,
    /// Of the sender's core, for each control packet that it passes on besides.
    pub pass: Nanos,
    /// Of the broker's core, for each packet: its completions may each be a turn.
    pub settle: Nanos,
}

/// Of each flow; `chunks` are those of its packets, `cores` the vCPUs of each VM, each on a core of its own.
#[must_use]
pub fn waits(flows: &[Ends], chunks: &[u64], cores: &[u32], hold: Nanos) -> Vec<Waits> {
    let own = |vm: u32| cores.get(vm as usize).copied().unwrap_or(1).max(1);
    // Turns that whoever wants the device of `vm` waits for, on a core of `waiter`'s, or on the broker's.
    let turns = |vm: u32, waiter: Option<u32>| {
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
        // Who is outside raises the interrupt, and so may the waiter.
        let raising = if waiter == Some(vm) { outside } else { outside + 1 };
        hold.0
            .saturating_mul((outside + inside).into())
            .saturating_add(hold.0.saturating_mul((raising * own(vm)).into()))
    };
    let of = |(flow, chunks): (&Ends, &u64)| {
        let to = |one: fn(u64, u64) -> u64, waiter| {
            flow.to.iter().map(|vm| turns(*vm, waiter)).fold(0, one)
        };
        let peers =
            flows.iter().filter(|other| other.from == flow.from || other.to.contains(&flow.from));
        let pass = peers
            .flat_map(|other| other.to.iter().chain([&other.from]))
            .map(|vm| turns(*vm, Some(flow.from)))
            .max();
        Waits {
            admit: Nanos(turns(flow.from, Some(flow.from))),
            pass: Nanos(pass.unwrap_or(0)),
            settle: Nanos(
                chunks
                    .saturating_mul(to(u64::saturating_add, None))
                    .saturating_add(turns(flow.from, None).saturating_mul(flow.to.len() as u64)),
            ),
        }
    };
    flows.iter().zip(chunks).map(of).collect()
}

impl Waits {
    /// The task of a flow with this: `batch` packets come by one notification. None beyond what the analysis can count.
    #[must_use]
    pub fn added_to(&self, task: &Task, batch: u32) -> Option<Task> {
        let mut task = *task;
        let behind = (self.admit.0.checked_add(self.pass.0)?)
            .checked_mul(u64::from(batch).saturating_sub(1))?;
        let jitter = self.admit.0.checked_add(behind)?;
        task.jitter.0 = task.jitter.0.checked_add(i64::try_from(jitter).ok()?.checked_mul(2)?)?;
        let settle = self.settle.0.checked_mul(2)?;
        // Its pieces may be dealt with behind another packet's, so in any of its stretches.
        for piece in [&mut task.cost].into_iter().chain(&mut task.stretches) {
            piece.fixed = piece.fixed.checked_add(settle)?;
        }
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Piece;
    use crate::units::HalfNanos;

    fn one(from: u32, to: &[u32]) -> Ends {
        Ends { from, to: to.to_vec() }
    }

    #[test]
    fn two_vms_and_the_broker_wait_for_each_others_turns() {
        let found = waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(100));
        // The broker's core and the receiver's each have a turn, and each raises the interrupt inside; the sender has its own.
        assert_eq!(found[0].admit, Nanos(400));
        // The broker waits for the two VMs' cores at each device: one is outside and raises; so does the broker.
        assert_eq!(found[0].settle, Nanos(400 + 400));
    }

    #[test]
    fn more_cores_more_flows_and_more_chunks_mean_longer_waits() {
        let base = waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(100))[0];
        let wider = waits(&[one(0, &[1])], &[1], &[1, 2], Nanos(100))[0];
        let busier = waits(&[one(0, &[1]), one(2, &[0])], &[1, 1], &[1, 1, 1], Nanos(100))[0];
        let longer = waits(&[one(0, &[1])], &[3], &[1, 1], Nanos(100))[0];
        let several = waits(&[one(0, &[1, 2])], &[1], &[1, 1, 1], Nanos(100))[0];
        for more in [wider, busier, several] {
            assert!(more.admit > base.admit && more.settle > base.settle, "{more:?}");
        }
        assert_eq!((longer.admit, longer.settle), (base.admit, Nanos(base.settle.0 + 800)));
        assert_eq!(waits(&[one(0, &[1])], &[1], &[1, 1], Nanos(0)), [Waits::default()]);
    }

    #[test]
    fn waits_are_in_jitter_cost_and_stretches() {
        let piece = Piece { fixed: 10, bytes: 5 };
        let task = Task {
            cost: piece,
            deadline: HalfNanos(1000),
            period: HalfNanos(2000),
            jitter: HalfNanos(20),
            stretches: [piece; 2],
        };
        let waits = Waits { admit: Nanos(7), pass: Nanos(11), settle: Nanos(100) };
        let found = waits.added_to(&task, 3).expect("small numbers");
        assert_eq!(found.jitter, HalfNanos(20 + 2 * (7 + 2 * 18)));
        assert_eq!(found.cost, Piece { fixed: 210, bytes: 5 });
        assert_eq!(found.stretches, [Piece { fixed: 210, bytes: 5 }; 2]);
        assert_eq!((found.deadline, found.period), (task.deadline, task.period));
        let most = Waits { settle: Nanos(u64::MAX), ..waits };
        assert_eq!(most.added_to(&task, 1), None);
    }
}
