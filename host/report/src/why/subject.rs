//! The subjects of a run, by its `report.json`.

use super::{NOT_RECORDED, Subject, SubjectKind, TimePart, WhyQuery, WhyReport};
use crate::{JSON_VERSION, REPORT, read_run_file};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weir_image::{Failure, Result};

/// The report of a run.
#[derive(Clone, Debug)]
pub(super) struct ReportedRun {
    run: PathBuf,
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

/// How bad a subject is: the greater one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Severity {
    /// Its verdict is that it does not hold.
    fails: bool,
    /// Whether the trace shows its parts.
    is_explained: bool,
    /// The ratio of its maximum and its limit, in thousandths; none without a limit.
    ratio: Option<u64>,
    /// What the ratio is of.
    words: &'static str,
}

impl Severity {
    /// Returns why this one was chosen.
    fn reason(&self) -> String {
        let among = match (self.fails, self.is_explained) {
            (true, _) => "of what does not hold",
            (false, true) => "of the flows and budgets",
            (false, false) => "of the tasks",
        };
        let ratio = self.ratio.map(|ratio| {
            let (whole, rest) = (ratio / 1000, ratio % 1000);
            format!("{} is {whole}.{rest:03}, the greatest {among}", self.words)
        });
        match (self.fails, ratio) {
            (true, Some(ratio)) => format!("it does not hold; {ratio}"),
            (true, None) => "it does not hold, and has no bound".to_owned(),
            (false, Some(ratio)) => ratio,
            (false, None) => "nothing that the trace explains has a bound".to_owned(),
        }
    }
}

impl Chosen {
    /// Returns a number of its object in the report.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.facts[key].as_u64()
    }

    /// Returns how bad it is; none if the run shows no maximum.
    fn severity(&self) -> Option<Severity> {
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
        let ratio = limit.and_then(|limit| max.saturating_mul(1000).checked_div(limit));
        // The trace explains no task.
        let is_explained = self.kind != SubjectKind::Task;
        Some(Severity { fails, is_explained, ratio, words })
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
        let path = run.join(REPORT);
        let path = path.display();
        let report: Value =
            serde_json::from_str(&read_run_file(run, REPORT)?).map_err(|error| {
                Failure::call(format!("{path} is damaged: {error}; run the system again"))
            })?;
        match report["version"].as_u64() {
            Some(version) if version == u64::from(JSON_VERSION) => {
                Ok(Self { run: run.to_owned(), report })
            }
            Some(version) => Err(Failure::call(format!(
                "{path} is of version {version}, and this weir reads {JSON_VERSION}: run the \
                 system again"
            ))),
            None => Err(Failure::call(format!(
                "{path} is no report of a run, as it has no `version`: run the system again"
            ))),
        }
    }

    /// Returns the report of these objects.
    #[cfg(test)]
    pub fn of(report: Value) -> Self {
        Self { run: PathBuf::from("runs/one"), report }
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
                "the run {} shows nothing to explain: no packet of a flow arrived, no task \
                 reported a response, and no period of a memory budget ended; name another run: \
                 weir why RUN",
                self.run.display()
            ))
        })?;
        Ok(Chosen { reason: Some(severity.reason()), ..chosen })
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
         activations are not known; its VM prints the longest response. `weir trace {} --vm {} \
         --kind throttle,wake,vcpu-switch` shows when the VM lost its core",
        run.display(),
        chosen.vm
    ));
    report
}
