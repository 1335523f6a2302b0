//! The parts of a period of a memory budget.

use super::{CoreState, TimePart, WhyReport, push, subject::Chosen};
use crate::{
    run::BudgetFinding,
    trace::file::{Trace, TraceFacts, core},
};
use std::{collections::BTreeSet, io::Read, path::Path};
use weir_image::{Failure, Result};
use weir_trace::record::{Accesses, Record, RecordKind};

/// A vCPU in a period of its budget.
#[derive(Clone, Debug, Default)]
struct Period {
    number: u64,
    from_ns: u64,
    parts: Vec<TimePart>,
    used: u64,
    budget: u64,
}

impl Period {
    fn throttled(&self) -> u64 {
        let throttled = self.parts.iter().filter(|part| part.what.starts_with(THROTTLED));
        throttled.map(|part| part.ns).sum()
    }
}

const THROTTLED: &str = "throttled";

/// The state of a vCPU.
#[derive(Debug, Default)]
struct Watched {
    /// The budgets that it has spent.
    spent: BTreeSet<u32>,
    /// Whether it waits to be woken since before the period.
    waits: bool,
    /// Its core.
    core: CoreState,
    /// The end of the last part.
    now: u64,
}

/// A budget in a trace.
struct BudgetTrace<'a> {
    facts: &'a TraceFacts,
    vm: u8,
    vcpu: u8,
    accesses: u32,
    core: u16,
    watched: Watched,
    open: Option<Period>,
}

impl BudgetTrace<'_> {
    fn name(&self, vm: u8) -> Option<String> {
        self.facts.name(vm).map(str::to_owned)
    }

    /// Ends the part until `now`.
    fn part(&mut self, now: u64) {
        let from_ns = std::mem::replace(&mut self.watched.now, now);
        let Watched { spent, waits, core, .. } = &self.watched;
        let names =
            spent.iter().map(|of| Accesses::ALL.get(*of as usize).map_or("?", |a| a.name()));
        let names: Vec<_> = names.collect();
        let (what, vm, term) = if !names.is_empty() {
            let what = format!("{THROTTLED}: budget of {} accesses spent", names.join(" and "));
            (what, Some(self.vm), Some("budget"))
        } else if *waits {
            ("EL2 begins the period and wakes the vCPU".to_owned(), Some(self.vm), Some("overhead"))
        } else {
            match core {
                CoreState::Own => ("not throttled".to_owned(), Some(self.vm), None),
                CoreState::Other(_) | CoreState::Free => {
                    ("off its core".to_owned(), core.other(), Some("schedule"))
                }
            }
        };
        let vm = vm.and_then(|vm| self.name(vm));
        let (ns, core, term) = (now - from_ns.min(now), Some(self.core), term.map(str::to_owned));
        if let Some(period) = &mut self.open {
            push(&mut period.parts, TimePart { from_ns, ns, what, vm, core, term });
        }
    }

    /// Takes the next record. Returns the period that it ends.
    fn take(&mut self, record: &Record) -> Option<Period> {
        let now = self.facts.time(record)?.max(self.watched.now);
        let is_own = (record.vm, record.vcpu) == (self.vm, self.vcpu);
        let kind = RecordKind::from_number(record.kind)?;
        match kind {
            RecordKind::Replenish if is_own && record.detail == self.accesses => {
                self.part(now);
                self.watched.waits |= !self.watched.spent.is_empty();
                self.watched.spent.clear();
                let number = self.open.as_ref().map_or(0, |open| open.number) + 1;
                let budget = record.other();
                let begun = Period { number, from_ns: now, budget, ..Period::default() };
                let ended = self.open.replace(begun);
                ended.map(|ended| Period { used: record.count, ..ended })
            }
            RecordKind::Throttle if is_own => {
                self.part(now);
                self.watched.spent.insert(record.detail);
                None
            }
            RecordKind::Wake if is_own => {
                self.part(now);
                self.watched.waits = false;
                self.watched.spent.clear();
                None
            }
            RecordKind::VcpuSwitch | RecordKind::VcpuResume if core(record) == self.core => {
                self.part(now);
                self.watched.core =
                    if is_own { CoreState::Own } else { CoreState::Other(record.vm) };
                None
            }
            RecordKind::CoreFree if core(record) == self.core => {
                self.part(now);
                self.watched.core = CoreState::Free;
                None
            }
            _ => None,
        }
    }
}

/// Explains a period of a budget: the one with this number, or the one that was throttled for the
/// longest time.
pub(super) fn explain(
    run: &Path,
    (chosen, budget): (&Chosen, &BudgetFinding),
    number: Option<u64>,
) -> Result<WhyReport> {
    let report = WhyReport::new(run, chosen);
    parts(&mut Trace::open(run)?, report, (&chosen.vm, budget), number)
}

/// Adds the parts of the period to a report.
pub(super) fn parts<R: Read>(
    trace: &mut Trace<R>,
    mut report: WhyReport,
    (vm_name, finding): (&str, &BudgetFinding),
    number: Option<u64>,
) -> Result<WhyReport> {
    let facts = trace.facts.clone();
    let vm = facts.vms.iter().position(|vm| vm.name == vm_name);
    let vm = vm.and_then(|vm| u8::try_from(vm).ok());
    let vm = vm.ok_or_else(|| Failure::call(format!("the trace has no VM {vm_name}")))?;
    let vcpu = finding.vcpu;
    let cores = facts.vms.get(usize::from(vm)).map_or(&[][..], |vm| &vm.cores);
    let core = cores.get(usize::from(vcpu)).copied().unwrap_or(0).into();
    let accesses =
        Accesses::ALL.iter().position(|of| of.name() == finding.counts).unwrap_or(0) as u32;
    let watched = Watched::default();
    let mut budget = BudgetTrace { facts: &facts, vm, vcpu, accesses, core, watched, open: None };
    let mut found: Option<Period> = None;
    while let Some(record) = trace.next_record()? {
        let Some(ended) = budget.take(&record) else { continue };
        report.count += 1;
        let is_wanted = match (number, &found) {
            (Some(number), _) => ended.number == number,
            (None, Some(found)) => ended.throttled() > found.throttled(),
            (None, None) => true,
        };
        if is_wanted {
            found = Some(ended);
        }
    }
    let (name, damage) = (&report.name, trace.damage().or_else(|| trace.warning()));
    let period = found.ok_or_else(|| match &damage {
        Some(damage) => Failure::system(format!(
            "memory budget {name}: the trace has {} of its periods, and {damage}; run the system \
             again",
            report.count
        )),
        None => Failure::call(format!(
            "the memory budget {name} has no period {}: {} periods ended in the run",
            number.unwrap_or(1),
            report.count
        )),
    })?;
    report.number = Some(period.number);
    report.from_ns = Some(period.from_ns);
    report.total_ns = period.parts.iter().map(|part| part.ns).sum();
    // A bound on accesses, and none on the time.
    (report.bound_ns, report.deadline_ns) = (None, None);
    report.notes.push(format!(
        "{} accesses of a budget of {}; throttled for {} ns",
        period.used,
        period.budget,
        period.throttled()
    ));
    report.notes.extend(damage);
    report.parts = period.parts;
    Ok(report)
}
