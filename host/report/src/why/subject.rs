//! The subjects of a run, by its `report.json`.

use super::{NOT_RECORDED, Subject, SubjectKind, TimePart, WhyQuery, WhyReport};
use crate::{REPORT, read_run_file};
use serde_json::Value;
use std::path::Path;
use weir_image::{Failure, Result};

/// The report of a run.
#[derive(Clone, Debug)]
pub(super) struct ReportedRun {
    report: Value,
}

/// What is explained.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub kind: SubjectKind,
    /// Its name, unique in the run.
    pub name: String,
    /// Its object in the report.
    pub facts: Value,
    /// Its VM, unless it is a flow.
    pub vm: String,
    /// Its place among those of its kind.
    pub place: u32,
    /// Why it was chosen; none if the caller named it.
    pub reason: Option<String>,
}

impl Chosen {
    /// Returns a number of its object in the report.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.facts[key].as_u64()
    }

    /// Whether it fails, the ratio of its maximum and its bound (in thousandths), and the ratio in
    /// words; none if the run shows no maximum.
    fn severity(&self) -> Option<(bool, u64, String)> {
        let fails = self.facts["verdict"] == "does-not-hold";
        let (max, limit, words) = if self.kind == SubjectKind::Budget {
            let beyond = self.number("max_beyond").filter(|_| self.number("periods") > Some(0));
            (beyond?, self.number("overshoot"), "max above limit/overshoot")
        } else {
            let latency = self.facts["latency_ns"]["max"].as_u64();
            let max = latency.or_else(|| self.number("observed_max_ns"))?;
            match (self.number("bound_ns"), self.number("deadline_ns")) {
                (Some(bound), _) => (max, Some(bound), "max/bound"),
                (None, deadline) => (max, deadline, "max/deadline"),
            }
        };
        let ratio = limit.map_or(0, |limit| {
            max.saturating_mul(1000).checked_div(limit).unwrap_or(u64::from(max > 0) * u64::MAX)
        });
        let words = match limit {
            Some(0) | None => "the run has nothing with a bound".to_owned(),
            Some(_) => {
                format!("{words} is {}.{:03}, the greatest of the run", ratio / 1000, ratio % 1000)
            }
        };
        Some((fails, ratio, words))
    }

    /// Whether a person means it by this name.
    fn is_called(&self, name: &str) -> bool {
        let mut called = vec![self.name.clone()];
        match self.kind {
            SubjectKind::Flow => {}
            SubjectKind::Task => called.push(format!("{}/{}", self.vm, self.name)),
            SubjectKind::Budget => {
                called.push(self.vm.clone());
                called.push(format!("{}/{}", self.vm, self.number("vcpu").unwrap_or(0)));
            }
        }
        called.iter().any(|called| called == name)
    }
}

impl ReportedRun {
    /// Reads the report in the directory of a run.
    pub fn read(run: &Path) -> Result<Self> {
        let report = serde_json::from_str(&read_run_file(run, REPORT)?).map_err(|error| {
            let path = run.join(REPORT);
            Failure::call(format!("{} is damaged: {error}; run the system again", path.display()))
        })?;
        Ok(Self { report })
    }

    /// Returns the report of these objects.
    #[cfg(test)]
    pub const fn of(report: Value) -> Self {
        Self { report }
    }

    /// Returns all subjects of a kind, in the order of the report.
    fn all(&self, kind: SubjectKind) -> Vec<Chosen> {
        let chosen = |(place, vm, name, facts): (u32, &str, String, &Value)| Chosen {
            kind,
            name,
            facts: facts.clone(),
            vm: vm.to_owned(),
            place,
            reason: None,
        };
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        if kind == SubjectKind::Flow {
            let flows = self.report["flows"].as_array().into_iter().flatten();
            let flows =
                (0..).zip(flows).map(|(place, flow)| (place, "", text(&flow["name"]), flow));
            return flows.map(chosen).collect();
        }
        let vms = self.report["vms"].as_array().into_iter().flatten();
        let of = vms.flat_map(|vm| {
            let key = if kind == SubjectKind::Task { "tasks" } else { "budgets" };
            let name = vm["name"].as_str().unwrap_or("?");
            vm[key].as_array().into_iter().flatten().map(move |facts| {
                let own = match kind {
                    SubjectKind::Task => text(&facts["name"]),
                    _ => format!("{name}/{}/{}", facts["vcpu"], text(&facts["counts"])),
                };
                (0, name, own, facts)
            })
        });
        of.map(chosen).collect()
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
        let key = |one: &Chosen| one.severity().map(|(fails, ratio, _)| (fails, ratio));
        // The first of the worst ones.
        called.rev().max_by_key(key).ok_or_else(|| {
            let known = if names.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            Failure::call(format!("the run has no {word} {name}: {known}"))
        })
    }

    /// Returns the worst subject of the run.
    fn worst(&self) -> Result<Chosen> {
        let kinds = [SubjectKind::Flow, SubjectKind::Task, SubjectKind::Budget];
        let all = kinds.into_iter().flat_map(|kind| self.all(kind));
        let shown = all.filter_map(|one| Some((one.severity()?, one)));
        let key = |((fails, ratio, _), _): &((bool, u64, String), Chosen)| (*fails, *ratio);
        let worst = shown.collect::<Vec<_>>().into_iter().rev().max_by_key(key);
        let ((fails, _, words), chosen) = worst.ok_or_else(|| {
            let text = "the run shows nothing to explain: no packet of a flow arrived, no task \
                        reported a response, and no period of a memory budget ended";
            Failure::system(text.to_owned())
        })?;
        let reason = if fails { format!("it does not hold; {words}") } else { words };
        Ok(Chosen { reason: Some(reason), ..chosen })
    }
}

/// Explains a task: the trace has no record of its activations.
pub(super) fn task(run: &Path, chosen: &Chosen) -> WhyReport {
    let mut report = WhyReport::new(run, SubjectKind::Task, chosen);
    report.count = chosen.number("activations").unwrap_or(0);
    report.total_ns = chosen.number("observed_max_ns").unwrap_or(0);
    if report.total_ns > 0 {
        report.parts.push(TimePart {
            from_ns: 0,
            ns: report.total_ns,
            what: NOT_RECORDED.to_owned(),
            vm: Some(chosen.vm.clone()),
            core: None,
            term: None,
        });
    }
    report.notes.push(format!(
        "the trace has no records of a task's release and completion, so that the times of its \
         activations are not known; its VM prints the longest response. `weir trace RUN --vm {} \
         --kind throttle,wake,vcpu-switch` shows when the VM lost its core",
        chosen.vm
    ));
    report
}
