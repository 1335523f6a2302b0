//! The page that compares two runs.
#![expect(clippy::cast_precision_loss, reason = "a position is of pixels, a ratio of three digits")]

use super::{
    files::RunFiles,
    judged::{self, JudgedRow},
};
use crate::plan::{PlannedCore, PlannedFlow, PlannedVm, SystemPlan};
use serde::Serialize;
use similar::{ChangeTag, TextDiff};
use std::collections::BTreeSet;
use weir_image::Result;

/// The values of the template of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonPage<'a> {
    before: Side<'a>,
    after: Side<'a>,
    rows: Vec<ComparedRow>,
    /// The differences of the plans; none if a run left no plan.
    differences: Option<Vec<Difference>>,
    /// The lines that differ in the system files, with `-` or `+`; none if a run left no file.
    lines: Option<Vec<String>>,
}

/// A run of a comparison.
#[derive(Debug, Serialize)]
struct Side<'a> {
    run: &'a str,
    system: &'a str,
    platform: &'a str,
    verdict: &'static str,
    words: String,
    build: Option<&'a str>,
    time_ns: u64,
}

/// An object in both runs, or in one of them.
#[derive(Debug, Serialize)]
struct ComparedRow {
    name: String,
    unit: &'static str,
    before: JudgedRow,
    after: JudgedRow,
    /// The observed maximum after, as a part of that before.
    ratio: Option<f64>,
    /// The same of the bounds.
    bound_ratio: Option<f64>,
}

/// A value that differs in the systems.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    what: String,
    before: String,
    after: String,
}

fn side<'a>(files: &'a RunFiles, rows: &[JudgedRow]) -> Result<Side<'a>> {
    let report = &files.report;
    let (verdict, words) = judged::verdict(report, rows)?;
    Ok(Side {
        run: &files.run,
        system: &report.system,
        platform: &report.platform,
        verdict,
        words,
        build: files.facts.as_ref().and_then(|facts| facts.hypervisor_build.as_deref()),
        time_ns: report.time_ns,
    })
}

impl<'a> ComparisonPage<'a> {
    /// Compares two runs.
    pub fn of(before: &'a RunFiles, after: &'a RunFiles) -> Result<Self> {
        let rows = [judged::rows(&before.report), judged::rows(&after.report)];
        let mut names: Vec<&str> = Vec::new();
        for row in rows.iter().flatten() {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        let find = |side: usize, name: &str| {
            rows[side].iter().find(|row| row.name == name).cloned().unwrap_or_default()
        };
        let ratio = |before: Option<u64>, after: Option<u64>| {
            let (before, after) = before.zip(after).filter(|(before, _)| *before > 0)?;
            Some(after as f64 / before as f64)
        };
        let row = |name: &str| {
            let (before, after) = (find(0, name), find(1, name));
            ComparedRow {
                name: name.to_owned(),
                unit: if before.unit.is_empty() { after.unit } else { before.unit },
                ratio: ratio(before.observed, after.observed),
                bound_ratio: ratio(before.bound, after.bound),
                before,
                after,
            }
        };
        let plans = before.plan.as_ref().zip(after.plan.as_ref());
        let systems = before.system.as_deref().zip(after.system.as_deref());
        Ok(Self {
            before: side(before, &rows[0])?,
            after: side(after, &rows[1])?,
            rows: names.into_iter().map(row).collect(),
            differences: plans.map(|(before, after)| differences(before, after)),
            lines: systems.map(|(before, after)| changed_lines(before, after)),
        })
    }
}

/// Returns the lines that only one of two texts has, with its sign.
fn changed_lines(before: &str, after: &str) -> Vec<String> {
    let changes = TextDiff::from_lines(before, after);
    let changes = changes.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    changes.map(|change| format!("{} {}", change.tag(), change.value().trim_end())).collect()
}

/// Returns what differs in two plans, by VM, core and flow.
fn differences(before: &SystemPlan, after: &SystemPlan) -> Vec<Difference> {
    let mut all = Vec::new();
    let facts = [facts(before), facts(after)];
    let names: BTreeSet<&String> = facts.iter().flatten().map(|(what, _)| what).collect();
    for what in names {
        let value = |side: usize| {
            let of = facts[side].iter().filter(|(name, _)| name == what);
            let values: Vec<&str> = of.map(|(_, value)| value.as_str()).collect();
            if values.is_empty() { "\u{2013}".to_owned() } else { values.join("; ") }
        };
        let (before, after) = (value(0), value(1));
        if before != after {
            all.push(Difference { what: what.clone(), before, after });
        }
    }
    all
}

/// Returns the values of a plan with their names.
fn facts(plan: &SystemPlan) -> Vec<(String, String)> {
    let mut all = vec![("platform".to_owned(), plan.platform.clone())];
    all.extend(plan.vms.iter().flat_map(vm_facts));
    all.extend(plan.cores.iter().map(core_facts));
    all.extend(plan.flows.iter().map(flow_facts));
    for device in &plan.devices {
        all.push((format!("vm {}: devices", device.vm), device.device.clone()));
    }
    if let Some(classes) = &plan.classes {
        let owners = classes.classes.iter().map(|class| class.owners.join("+"));
        all.push(("page classes".to_owned(), owners.collect::<Vec<_>>().join(", ")));
    }
    all
}

fn vm_facts(vm: &PlannedVm) -> Vec<(String, String)> {
    let cores: Vec<_> = vm.cores.iter().map(u8::to_string).collect();
    let budget = vm.budget.as_ref().map_or_else(
        || "none".to_owned(),
        |budget| {
            let period = crate::units::time(budget.period_ns);
            format!("{} accesses in {period}", crate::units::count(budget.accesses))
        },
    );
    let own = [
        ("cores", cores.join(", ")),
        ("memory", crate::units::bytes(vm.memory_bytes)),
        ("images", vm.images.join(", ")),
        ("arguments", vm.arguments.clone()),
        ("memory budget", budget),
    ];
    let own = own.into_iter().map(|(key, value)| (format!("vm {}: {key}", vm.name), value));
    let tasks = vm.tasks.iter().map(|task| {
        let [wcet, period, deadline] =
            [task.wcet_ns, task.period_ns, task.deadline_ns].map(crate::units::time);
        let value = format!("wcet {wcet}, period {period}, deadline {deadline}");
        (format!("vm {}: task {}", vm.name, task.name), value)
    });
    own.chain(tasks).collect()
}

fn core_facts(core: &PlannedCore) -> (String, String) {
    let shares = core.shares.iter().map(|share| {
        let (start, length) = (share.start_ns, share.length_ns);
        match (&core.schedule, share.period_ns) {
            (None, _) => share.vm.clone(),
            (_, Some(period)) => format!("{} {length} ns in {period} ns", share.vm),
            (_, None) => format!("{} {length} ns from {start} ns", share.vm),
        }
    });
    let shares: Vec<_> = shares.collect();
    let schedule = core.schedule.as_deref().unwrap_or("one VM");
    (format!("core {}", core.core), format!("{schedule}: {}", shares.join(", ")))
}

fn flow_facts(flow: &PlannedFlow) -> (String, String) {
    let time = |time: Option<u64>| time.map_or_else(|| "none".to_owned(), crate::units::time);
    let value = format!(
        "{} from {} to {}, at {}, period {}, deadline {}",
        crate::units::bytes(flow.size_bytes),
        flow.from,
        flow.to,
        flow.address,
        time(flow.period_ns),
        time(flow.deadline_ns)
    );
    (format!("flow {}", flow.name), value)
}
