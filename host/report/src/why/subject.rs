//! The subjects of a run, by its report.

use super::{Subject, SubjectKind, WhyQuery};
use crate::run::{BudgetFinding, FlowRun, RunReport, TaskFinding};
use std::path::{Path, PathBuf};
use weir_analysis::verdict::Verdict;
use weir_image::{Failure, Result};

/// A run with its report.
#[derive(Clone, Debug)]
pub(super) struct ReportedRun {
    pub run: PathBuf,
    report: RunReport,
}

/// The part of the report on a subject.
#[derive(Clone, Debug)]
pub(super) enum Facts {
    /// The findings on a flow.
    Flow(FlowRun),
    /// The findings on a task.
    Task(TaskFinding),
    /// The findings on a memory budget.
    Budget(BudgetFinding),
}

/// What is explained.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Its name, unique in the run.
    pub name: String,
    /// The part of the report.
    pub facts: Facts,
    /// Its VM, unless it is a flow.
    pub vm: String,
    /// Its place among those of its kind.
    pub place: u32,
    /// Why it was chosen; none if the caller named it.
    pub reason: Option<String>,
}

/// How bad a subject is: the greater one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Severity {
    /// Its verdict is that it does not hold.
    fails: bool,
    /// The ratio of its maximum and its limit, in thousandths; none without a limit.
    ratio: Option<u64>,
    /// What the ratio is of.
    words: &'static str,
}

impl Severity {
    /// Returns why this one was chosen.
    fn reason(&self) -> String {
        let among = if self.fails { "of what does not hold" } else { "of the run" };
        let ratio = self.ratio.map(|ratio| {
            let (whole, rest) = (ratio / 1000, ratio % 1000);
            format!("{} is {whole}.{rest:03}, the greatest {among}", self.words)
        });
        match (self.fails, ratio) {
            (true, Some(ratio)) => format!("it does not hold; {ratio}"),
            (true, None) => "it does not hold, and has no bound".to_owned(),
            (false, Some(ratio)) => ratio,
            (false, None) => "nothing in the run has a bound".to_owned(),
        }
    }
}

impl Chosen {
    /// Returns its kind.
    pub const fn kind(&self) -> SubjectKind {
        match self.facts {
            Facts::Flow(_) => SubjectKind::Flow,
            Facts::Task(_) => SubjectKind::Task,
            Facts::Budget(_) => SubjectKind::Budget,
        }
    }

    /// Returns bound and deadline of its time, in ns. A budget limits accesses.
    pub const fn limits(&self) -> [Option<u64>; 2] {
        match &self.facts {
            Facts::Flow(flow) => [flow.bound_ns, flow.deadline_ns],
            Facts::Task(task) => [task.bound_ns, Some(task.deadline_ns)],
            Facts::Budget(_) => [None, None],
        }
    }

    /// Returns its verdict.
    pub fn verdict(&self) -> Option<Verdict> {
        match &self.facts {
            Facts::Flow(flow) => flow.finding.as_ref().map(|finding| finding.verdict),
            Facts::Task(task) => Some(task.finding.verdict),
            Facts::Budget(budget) => Some(budget.finding.verdict),
        }
    }

    /// Returns how bad it is; none if the run shows no maximum.
    fn severity(&self) -> Option<Severity> {
        let (max, limit, words) = match &self.facts {
            Facts::Budget(budget) => {
                let beyond = (budget.periods > 0).then_some(budget.max_beyond)?;
                (beyond, budget.overshoot, "max above limit/overshoot")
            }
            Facts::Flow(FlowRun { latency_ns, .. }) => self.of_limit(latency_ns.as_ref()?.max),
            Facts::Task(TaskFinding { observed_max_ns, .. }) => self.of_limit((*observed_max_ns)?),
        };
        let ratio = limit.and_then(|limit| max.saturating_mul(1000).checked_div(limit));
        let fails = self.verdict() == Some(Verdict::DoesNotHold);
        Some(Severity { fails, ratio, words })
    }

    /// Returns a maximum with the limit that it is compared with.
    const fn of_limit(&self, max: u64) -> (u64, Option<u64>, &'static str) {
        match self.limits() {
            [Some(bound), _] => (max, Some(bound), "max/bound"),
            [None, deadline] => (max, deadline, "max/deadline"),
        }
    }

    /// Whether a person means it by this name.
    fn is_called(&self, name: &str) -> bool {
        let mut called = vec![self.name.clone()];
        match &self.facts {
            Facts::Flow(_) => {}
            Facts::Task(_) => called.push(format!("{}/{}", self.vm, self.name)),
            Facts::Budget(budget) => {
                called.push(self.vm.clone());
                called.push(format!("{}/{}", self.vm, budget.vcpu));
            }
        }
        called.iter().any(|called| called == name)
    }
}

impl ReportedRun {
    /// Returns the run in a directory, with its report.
    pub fn of(run: &Path, report: RunReport) -> Self {
        Self { run: run.to_owned(), report }
    }

    /// Returns all subjects of a kind, in the order of the report.
    fn all(&self, kind: SubjectKind) -> Vec<Chosen> {
        let chosen = |place, vm: &str, name: String, facts| Chosen {
            name,
            facts,
            vm: vm.to_owned(),
            place,
            reason: None,
        };
        let vms = self.report.vms.iter();
        match kind {
            SubjectKind::Flow => (0..)
                .zip(&self.report.flows)
                .map(|(place, flow)| {
                    chosen(place, "", flow.name.clone(), Facts::Flow(flow.clone()))
                })
                .collect(),
            SubjectKind::Task => vms
                .flat_map(|vm| vm.tasks.iter().map(move |task| (vm, task)))
                .map(|(vm, task)| chosen(0, &vm.name, task.name.clone(), Facts::Task(task.clone())))
                .collect(),
            SubjectKind::Budget => vms
                .flat_map(|vm| vm.budgets.iter().map(move |budget| (vm, budget)))
                .map(|(vm, budget)| {
                    let name = format!("{}/{}/{}", vm.name, budget.vcpu, budget.counts);
                    chosen(0, &vm.name, name, Facts::Budget(budget.clone()))
                })
                .collect(),
        }
    }

    /// Returns the subject of a question.
    pub fn choose(&self, query: &WhyQuery) -> Result<Chosen> {
        let (kind, word, name) = match &query.subject {
            None => return self.worst(),
            Some(Subject::Flow(name)) => (SubjectKind::Flow, "flow", name),
            Some(Subject::Task(name)) => (SubjectKind::Task, "task", name),
            Some(Subject::Budget(name)) => (SubjectKind::Budget, "memory budget", name),
        };
        let all = self.all(kind);
        let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
        let called = all.into_iter().filter(|one| one.is_called(name));
        // The first of the worst ones.
        called.rev().max_by_key(Chosen::severity).ok_or_else(|| {
            let known = if names.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            let run = self.run.display();
            Failure::call(format!("the run {run} has no {word} `{name}`: {known}"))
        })
    }

    /// Returns the worst subject of the run.
    fn worst(&self) -> Result<Chosen> {
        let kinds = [SubjectKind::Flow, SubjectKind::Task, SubjectKind::Budget];
        let all = kinds.into_iter().flat_map(|kind| self.all(kind));
        let shown = all.filter_map(|one| Some((one.severity()?, one)));
        let worst = shown.collect::<Vec<_>>().into_iter().rev().max_by_key(|(of, _)| *of);
        let (severity, chosen) = worst.ok_or_else(|| {
            Failure::system(format!(
                "the run {} shows nothing to explain: no packet of a flow arrived, no activation \
                 of a task was marked, and no period of a memory budget ended; name another run: \
                 weir why RUN",
                self.run.display()
            ))
        })?;
        Ok(Chosen { reason: Some(severity.reason()), ..chosen })
    }
}
