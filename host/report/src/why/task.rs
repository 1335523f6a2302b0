//! The parts of a task's response time.

use super::{CoreState, TimePart, WhyReport, push, subject::Chosen};
use crate::{
    run::TaskFinding,
    trace::{
        activations::{Activation, ActivationEnd, Activations},
        file::{Trace, TraceFacts, core},
    },
};
use std::{io::Read, path::Path};
use weir_image::{Failure, Result};
use weir_trace::record::{MarkName, Record, RecordKind};

/// Explains an activation of a task: the one with this number, or the one with the longest
/// response.
pub(super) fn explain(
    run: &Path,
    (chosen, task): (&Chosen, &TaskFinding),
    number: Option<u64>,
) -> Result<WhyReport> {
    let report = WhyReport::new(run, chosen);
    let found = find(&mut Trace::open(run)?, (&chosen.vm, task), number)?;
    parts(&mut Trace::open(run)?, report, found)
}

/// An activation, and how many are known.
pub(super) struct Found {
    activation: Activation,
    count: u64,
}

/// Finds the activation of a task in a trace.
pub(super) fn find<R: Read>(
    trace: &mut Trace<R>,
    (vm_name, task): (&str, &TaskFinding),
    number: Option<u64>,
) -> Result<Found> {
    let facts = trace.facts.clone();
    let vm = facts.vms.iter().position(|vm| vm.name == vm_name);
    let vm = vm.and_then(|vm| u8::try_from(vm).ok());
    let vm = vm.ok_or_else(|| Failure::call(format!("the trace has no VM {vm_name}")))?;
    let mut activations = Activations::of([(vm, MarkName::new(&task.name))]);
    let (mut count, mut found) = (0, None::<Activation>);
    let mut ended = |it: Activation| {
        if !it.is_known(task.deadline_ns) {
            return;
        }
        count += 1;
        let is_wanted = match (number, &found) {
            (Some(number), _) => it.number == number,
            (None, Some(longest)) => it.response_ns() > longest.response_ns(),
            (None, None) => true,
        };
        if is_wanted {
            found = Some(it);
        }
    };
    while let Some(record) = trace.next_record()? {
        activations.take(&record, &facts, &mut ended);
    }
    activations.finish(trace.end(), &mut ended);
    let activation = found.ok_or_else(|| {
        let (name, number) = (&task.name, number.unwrap_or(1));
        let damage = trace.damage().or_else(|| trace.warning());
        let damage = damage.map(|damage| format!(", and {damage}")).unwrap_or_default();
        Failure::call(format!(
            "the task {name} has no activation {number}: its VM marked {count}{damage}"
        ))
    })?;
    Ok(Found { activation, count })
}

/// A vCPU during an activation.
struct Watched<'a> {
    facts: &'a TraceFacts,
    activation: Activation,
    throttled: bool,
    core: CoreState,
    /// The end of the last part.
    now: u64,
    interrupts: u64,
    parts: Vec<TimePart>,
}

impl Watched<'_> {
    /// Ends the part until `now`.
    fn part(&mut self, now: u64) {
        let Activation { release_ns, marked_ns, until_ns, .. } = self.activation;
        // The mark divides what the VM does itself.
        if self.now < marked_ns && marked_ns < now {
            self.part(marked_ns);
        }
        let from_ns = std::mem::replace(&mut self.now, now).max(release_ns);
        let ns = now.min(until_ns).saturating_sub(from_ns);
        let own = Some(self.activation.task.0);
        let (what, vm, term) = match self.core {
            _ if self.throttled => ("throttled: memory budget spent", own, Some("budget")),
            CoreState::Other(_) | CoreState::Free => {
                ("off its core", self.core.other(), Some("schedule"))
            }
            CoreState::Own if from_ns < marked_ns => {
                ("from the release to its mark: EL2, and other work of the VM", own, None)
            }
            CoreState::Own => ("the task, and what interrupts it", own, Some("wcet")),
        };
        let vm = vm.and_then(|vm| self.facts.name(vm)).map(str::to_owned);
        let (what, term) = (what.to_owned(), term.map(str::to_owned));
        let core = Some(self.activation.core);
        push(&mut self.parts, TimePart { from_ns, ns, what, vm, core, term });
    }

    fn take(&mut self, record: &Record) {
        let Some(now) = self.facts.time(record) else { return };
        let now = now.max(self.now);
        let is_own = (record.vm, record.vcpu) == (self.activation.task.0, self.activation.vcpu);
        let is_here = core(record) == self.activation.core;
        match RecordKind::from_number(record.kind) {
            Some(kind @ (RecordKind::Throttle | RecordKind::Wake)) if is_own => {
                self.part(now);
                self.throttled = kind == RecordKind::Throttle;
            }
            Some(RecordKind::VcpuSwitch | RecordKind::VcpuResume) if is_here => {
                self.part(now);
                self.core = if is_own { CoreState::Own } else { CoreState::Other(record.vm) };
            }
            Some(RecordKind::CoreFree) if is_here => {
                self.part(now);
                self.core = CoreState::Free;
            }
            Some(RecordKind::Interrupt) if is_here => {
                let Activation { release_ns, until_ns, .. } = self.activation;
                self.interrupts += u64::from((release_ns..until_ns).contains(&now));
            }
            _ => {}
        }
    }
}

/// Adds the parts of the activation to a report.
pub(super) fn parts<R: Read>(
    trace: &mut Trace<R>,
    mut report: WhyReport,
    Found { activation, count }: Found,
) -> Result<WhyReport> {
    let facts = trace.facts.clone();
    let mut watched = Watched {
        facts: &facts,
        activation,
        throttled: false,
        core: CoreState::Own,
        now: 0,
        interrupts: 0,
        parts: Vec::new(),
    };
    while let Some(record) = trace.next_record()? {
        if watched.now >= activation.until_ns {
            break;
        }
        watched.take(&record);
    }
    watched.part(activation.until_ns.max(watched.now));
    report.number = Some(activation.number);
    report.count = count;
    report.from_ns = Some(activation.release_ns);
    report.total_ns = activation.response_ns();
    report.notes.push(format!(
        "{} interrupts came to its core meanwhile; {}",
        watched.interrupts,
        match activation.end {
            ActivationEnd::Completed => "its VM marked the completion",
            ActivationEnd::Superseded => "it was released again before a completion",
            ActivationEnd::Cut => "boot or trace ended before a completion",
        }
    ));
    if activation.skipped > 0 {
        let skipped = activation.skipped;
        report.notes.push(format!("{skipped} releases before it got no activation of their own"));
    }
    report.parts = watched.parts;
    Ok(report)
}
