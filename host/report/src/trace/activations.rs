//! The activations of tasks, by the marks of their guests.

use super::file::{TraceFacts, core};
use std::collections::BTreeMap;
use weir_trace::record::{MarkName, Record, RecordKind};

/// A task in a trace: its VM, and the beginning of its name.
pub type TaskKey = (u8, MarkName);

/// An activation of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The task.
    pub task: TaskKey,
    /// The number among the activations of the task, from 1 in the order of their marks.
    pub number: u64,
    /// The vCPU that marked it.
    pub vcpu: u8,
    /// The core of that vCPU.
    pub core: u16,
    /// The release, in ns since the hypervisor's start.
    pub release_ns: u64,
    /// The time of the mark with which it begins, in ns since the hypervisor's start.
    pub marked_ns: u64,
    /// The time of its end, in ns since the hypervisor's start.
    pub until_ns: u64,
    /// The releases before it that got no activation of their own.
    pub skipped: u32,
    /// How it ended.
    pub end: ActivationEnd,
}

/// The end of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationEnd {
    /// Its guest marked the completion.
    Completed,
    /// The task was released again before a completion.
    Superseded,
    /// The VM's boot or the trace ended before a completion.
    Cut,
}

impl Activation {
    /// Returns the response time in ns: from the release to the completion, or to the end of what
    /// is known.
    #[must_use]
    pub const fn response_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.release_ns)
    }

    /// Returns how many deadlines were missed with it: those of the releases that it stands for, or
    /// its own. One that was released again before it was complete has missed its own.
    #[must_use]
    pub fn misses(&self, deadline_ns: u64) -> u64 {
        let is_late = self.response_ns() > deadline_ns || self.end == ActivationEnd::Superseded;
        u64::from(self.skipped).max(is_late.into())
    }

    /// Returns whether its response can be judged: it ended, or is late already.
    #[must_use]
    pub const fn is_known(&self, deadline_ns: u64) -> bool {
        !matches!(self.end, ActivationEnd::Cut) || self.response_ns() > deadline_ns
    }
}

/// Finds the activations of some tasks in a trace.
#[derive(Clone, Debug)]
pub struct Activations {
    /// The activation under way of each task, and how many there were.
    tasks: BTreeMap<TaskKey, (Option<Activation>, u64)>,
}

impl Activations {
    /// Returns a finder for these tasks. Other names are ignored, because a guest chooses them
    /// freely.
    pub fn of(tasks: impl IntoIterator<Item = TaskKey>) -> Self {
        Self { tasks: tasks.into_iter().map(|task| (task, (None, 0))).collect() }
    }

    /// Takes the next record, and passes the activations that it ends to `ended`.
    pub fn take(&mut self, record: &Record, facts: &TraceFacts, mut ended: impl FnMut(Activation)) {
        let Some(now) = facts.time(record) else { return };
        let task = (record.vm, MarkName(record.count));
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::TaskRelease) => {
                let Some((open, count)) = self.tasks.get_mut(&task) else { return };
                *count += 1;
                let released = record.time.saturating_sub(record.other()).max(facts.zero);
                let begun = Activation {
                    task,
                    number: *count,
                    vcpu: record.vcpu,
                    core: core(record),
                    release_ns: facts.nanos(released),
                    marked_ns: now,
                    until_ns: now,
                    skipped: record.detail,
                    end: ActivationEnd::Superseded,
                };
                if let Some(before) = open.replace(begun) {
                    ended(Activation { until_ns: now, ..before });
                }
            }
            Some(RecordKind::TaskComplete) => {
                let open = self.tasks.get_mut(&task).and_then(|(open, _)| open.take());
                if let Some(open) = open {
                    ended(Activation { until_ns: now, end: ActivationEnd::Completed, ..open });
                }
            }
            Some(RecordKind::VmStop | RecordKind::VmFault | RecordKind::VmRestart) => {
                self.cut(now, Some(record.vm), ended);
            }
            _ => {}
        }
    }

    /// Passes the activations that are under way at the end of the trace to `ended`.
    pub fn finish(mut self, end_ns: u64, ended: impl FnMut(Activation)) {
        self.cut(end_ns, None, ended);
    }

    /// Ends the activations under way of a VM, or of all.
    fn cut(&mut self, now: u64, vm: Option<u8>, ended: impl FnMut(Activation)) {
        let of = self.tasks.iter_mut().filter(|((of, _), _)| vm.is_none_or(|vm| vm == *of));
        of.filter_map(|(_, (open, _))| open.take())
            .map(|open| Activation { until_ns: now, end: ActivationEnd::Cut, ..open })
            .for_each(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::facts;
    use super::*;

    const TASK: &str = "loop";

    fn at(time: u64, kind: RecordKind, [skipped, age]: [u32; 2], name: &str) -> Record {
        Record {
            time: facts().zero + time,
            kind: kind as u16,
            vm: 1,
            detail: skipped,
            count: MarkName::new(name).0,
            rest: age.into(),
            ..Record::default()
        }
    }

    fn release(time: u64, skipped: u32, age: u32) -> Record {
        at(time, RecordKind::TaskRelease, [skipped, age], TASK)
    }

    fn complete(time: u64) -> Record {
        at(time, RecordKind::TaskComplete, [0; 2], TASK)
    }

    /// The number, the release, the response and the misses, with a deadline of 100 ns, of each
    /// activation that is known.
    fn found(records: &[Record], end_ns: u64) -> Vec<[u64; 4]> {
        let mut all = Vec::new();
        let mut activations = Activations::of([(1, MarkName::new(TASK))]);
        let mut add = |it: Activation| {
            if it.is_known(100) {
                all.push([it.number, it.release_ns, it.response_ns(), it.misses(100)]);
            }
        };
        for record in records {
            activations.take(record, &facts(), &mut add);
        }
        activations.finish(end_ns, &mut add);
        all
    }

    #[test]
    fn a_response_lasts_from_release_to_completion() {
        let records = [release(50, 0, 10), complete(80), release(250, 2, 10), complete(360)];
        assert_eq!(found(&records, 400), [[1, 40, 40, 0], [2, 240, 120, 2]]);
    }

    #[test]
    fn an_activation_without_completion_is_missed() {
        // It was released again, although within its deadline.
        let records = [release(50, 0, 0), release(60, 0, 0), complete(70)];
        assert_eq!(found(&records, 400), [[1, 50, 10, 1], [2, 60, 10, 0]]);
        // At the end of the trace it is late, or not known.
        assert_eq!(found(&records[..1], 151), [[1, 50, 101, 1]]);
        assert_eq!(found(&records[..1], 150), [[0; 4]; 0]);
        // The boot ends.
        let stopped = [release(50, 0, 0), at(90, RecordKind::VmStop, [0; 2], ""), complete(95)];
        assert_eq!(found(&stopped, 400), [[0; 4]; 0]);
    }

    #[test]
    fn marks_of_others_do_not_count() {
        let other = at(60, RecordKind::TaskComplete, [0; 2], "other");
        let other_vm = Record { vm: 2, ..complete(60) };
        let records = [release(50, 0, 0), other, other_vm, complete(120), complete(130)];
        assert_eq!(found(&records, 400), [[1, 50, 70, 0]]);
        // A release cannot be before the start.
        assert_eq!(found(&[release(5, 0, u32::MAX), complete(6)], 9), [[1, 0, 6, 0]]);
    }
}
