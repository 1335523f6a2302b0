//! EL2's instructions for a period's beginning and for a budget's end, for each regulator.

use super::WEIR;
use crate::statement::{
    ClaimSource, Paper,
    Relation::{AtMost, Below},
    Statement, statements,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_image::{Failure, Result, progress::CountBar};
use weir_model::Platform;
use weir_qemu_plugin::report::{PathReport, Summary};
use weir_report::table;
use weir_runner::lab::{Job, Lab, LabVm};

/// Bao's throttling branch of June 2026, per-core static budgets: a replenishment, and an overflow
/// to standby; and a period with an overflow as a whole.
pub const BAO: [(&str, u64); 3] = [("replenish", 317), ("overflow", 236), ("overflow_period", 553)];

/// The paths, and what each is.
pub const PATHS: [(&str, &str); 6] = [
    ("replenish", "a period begins, the vCPU runs"),
    ("overflow", "the budget is spent: from the interrupt to the wait"),
    ("release", "a period begins, the vCPU waits: from the wait to its next instruction"),
    ("overflow_period", "a period with an overflow: from the interrupt to the next instruction"),
    (POLL_PATH, "the counter page is polled, the vCPU goes on"),
    (BEGIN, "the counter page is polled as a period begins, the vCPU runs"),
];

const POLL_PATH: &str = "poll";
const BEGIN: &str = "poll-replenish";

/// A regulator's keys, and whether another VM is critical.
const REGULATORS: [(&str, &str, bool); 4] = [
    ("static", "", false),
    ("pool", ", split = \"pool\"", false),
    ("memguard", ", regulator = \"memguard\"", false),
    ("compensation", ", regulator = \"compensation\", critical = \"critical\", window = 4", true),
];

/// A regulator's paths by name.
pub type Paths = BTreeMap<&'static str, PathReport>;

/// How many runs that is.
#[must_use]
pub fn runs(quick: bool) -> u64 {
    3 * if quick { 1 } else { REGULATORS.len() as u64 }
}

/// The paths of each regulator. Each runs twice with the PMU as the counter, with a budget that is
/// spent in each period and with one that never is; and once with the counter page, and a budget of
/// which so little is left that EL2 polls it all the time. With `quick` those of the static
/// regulator alone.
///
/// # Errors
///
/// As [`Lab::run`].
pub fn run(lab: &Lab<'_>, quick: bool, bar: &CountBar) -> Result<Vec<(&'static str, Paths)>> {
    let mut all = Vec::new();
    for (name, keys, critical) in
        REGULATORS.into_iter().take(if quick { 1 } else { REGULATORS.len() })
    {
        let mut paths = Paths::new();
        let by_pmu = "event = \"cycles\", source = \"pmu\"";
        for (budget, source, wanted) in [
            (20_000_u64, by_pmu, &["overflow", "release", "overflow_period"][..]),
            (1 << 32, by_pmu, &["replenish"]),
            (1_500, "source = \"counter-page\"", &[POLL_PATH, BEGIN]),
        ] {
            let run = format!("paths-{name}-{}", wanted.last().unwrap_or(&""));
            let bandwidth = format!("accesses = {budget}, period = \"100us\", {source}{keys}");
            let guest = ("memory-stressor", "mode=read size=0x10000 passes=800");
            let mut vms = vec![
                LabVm { name: "memory-stressor", cpus: "[0]", guest, bandwidth: &bandwidth }.toml(),
            ];
            if critical {
                // It sleeps between its two passes, longer than the other runs.
                let guest = ("memory-stressor", "mode=read size=0x1000 passes=2 period_us=20000");
                let bandwidth = bandwidth.replace(keys, "");
                let vm = LabVm { name: "critical", cpus: "[1]", guest, bandwidth: &bandwidth };
                vms.push(vm.toml());
            }
            let job = if source == by_pmu { Job::Instructions } else { Job::Polls };
            let seen = lab.run(&run, &lab.system("", &vms), job)?.forget();
            let seen = &seen.core(0)?.paths;
            for (path, _) in PATHS.iter().filter(|(path, _)| wanted.contains(path)) {
                let booked = match *path {
                    BEGIN => "replenish",
                    path => path,
                };
                match seen.get(booked) {
                    Some(report) if report.n > 0 => {
                        paths.insert(path, report.clone());
                    }
                    _ => {
                        return Err(Failure::system(format!(
                            "{run}: EL2 never took the path {path}"
                        )));
                    }
                }
            }
            bar.add(1);
        }
        all.push((name, paths));
    }
    Ok(all)
}

/// The instructions of a path of a regulator.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BudgetPath {
    /// The least.
    pub min: u64,
    /// The median.
    pub median: u64,
    /// The greatest.
    pub max: u64,
    /// The number of times that it was taken.
    pub n: u64,
    /// The median of DSB, DMB, ISB and SB.
    pub barriers: u64,
    /// The median of the accesses to GIC CPU interface registers.
    pub gic_sysregs: u64,
}

/// The instructions of each path of each regulator, by regulator and path.
pub type BudgetPaths = BTreeMap<String, BTreeMap<String, BudgetPath>>;

/// Returns the instructions as a JSON result has them.
#[must_use]
pub fn record(all: &[(&'static str, Paths)]) -> BudgetPaths {
    let path = |(name, path): (&&str, &PathReport)| {
        let PathReport { n, barriers, gic_sysregs, .. } = *path;
        let Summary { min, median, max, .. } = path.instructions;
        ((*name).to_owned(), BudgetPath { min, median, max, n, barriers, gic_sysregs })
    };
    all.iter().map(|(name, paths)| ((*name).to_owned(), paths.iter().map(path).collect())).collect()
}

/// For a person: least, median and most, and what each regulator's median has on top of the static
/// one's.
#[must_use]
pub fn text(all: &[(&'static str, Paths)]) -> String {
    let mut rows =
        table(["EL2 instructions", "regulator", "n", "min", "median", "max", "on top", "Bao"]);
    let fixed = all.first();
    for (path, what) in PATHS {
        for (name, paths) in all {
            let Some(PathReport { n, instructions, .. }) = paths.get(path) else { continue };
            let Summary { min, median, max, .. } = *instructions;
            let fixed = fixed.and_then(|(_, paths)| paths.get(path));
            let on_top =
                fixed.map(|fixed| median.cast_signed() - fixed.instructions.median.cast_signed());
            let bao = BAO.iter().find(|(bao, _)| *bao == path && *name == "static");
            rows.add_row([
                format!("{path}: {what}"),
                (*name).to_owned(),
                n.to_string(),
                min.to_string(),
                median.to_string(),
                max.to_string(),
                on_top.map_or_else(|| "-".to_owned(), |more| format!("{more:+}")),
                bao.map_or_else(|| "-".to_owned(), |(_, bao)| bao.to_string()),
            ]);
        }
    }
    rows.to_string()
}

const PEER: ClaimSource =
    Paper("Bao, throttling branch, June 2026").at("measured by the same rule").by_separate_code();

/// The static regulator is below the peer, and no poll takes longer than the platform's file
/// states: `poll_overhead` of its `[counter_page]`, at an instruction a ns, and twice that as a
/// period begins.
#[must_use]
pub fn statements(all: &[(&'static str, Paths)]) -> Vec<Statement> {
    let page = Platform::named("qemu-virt").and_then(|platform| platform.counters.counter_page);
    let poll = page.map_or(0, |page| page.poll_overhead.0);
    let instructions = |regulator: &str, path: &str, of: fn(&Summary) -> u64| -> Vec<f64> {
        let paths = all.iter().find(|(name, _)| *name == regulator);
        let report = paths.and_then(|(_, paths)| paths.get(path));
        #[expect(clippy::cast_precision_loss, reason = "some hundred")]
        let value = |report: &PathReport| of(&report.instructions) as f64;
        report.map(value).into_iter().collect()
    };
    let mut statements = Vec::new();
    #[expect(clippy::cast_precision_loss, reason = "some hundred")]
    let limit = |instructions: u64| instructions as f64;
    for (path, bao) in BAO {
        statements.extend(statements![
            PEER, "peer-{path}",
            "{path}: instructions at EL2, the median, are fewer than the peer's"
                => Below(limit(bao)), instructions("static", path, |summary| summary.median);
        ]);
    }
    for (name, _) in all {
        for (path, most) in [(POLL_PATH, poll), (BEGIN, 2 * poll)] {
            statements.extend(statements![
                WEIR, "{path}-{name}",
                "{path}, {name}: instructions at EL2, the most, are within the platform's \
                 `poll_overhead`"
                    => AtMost(limit(most)), instructions(name, path, |summary| summary.max);
            ]);
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn each_statement_can_fail() {
        let report = |n: u64| PathReport {
            marks: 9,
            n: 9,
            instructions: Summary { min: n, median: n, max: n, mean: 0.0 },
            barriers: 1,
            maintenance: 0,
            device_accesses: 0,
            gic_sysregs: 0,
        };
        let paths: Paths = [
            ("replenish", 300),
            ("overflow", 230),
            ("overflow_period", 500),
            (POLL_PATH, 400),
            (BEGIN, 500),
        ]
        .into_iter()
        .map(|(path, n)| (path, report(n)))
        .collect();
        let good = vec![("static", paths.clone()), ("pool", paths)];
        each_can_fail(
            &good,
            &[],
            |all| statements(all),
            |all| {
                let mut values: Vec<&mut dyn Change> = Vec::new();
                for report in all.iter_mut().flat_map(|(_, paths)| paths.values_mut()) {
                    let Summary { median, max, .. } = &mut report.instructions;
                    values.push(median);
                    values.push(max);
                }
                values
            },
        );
        // A path that was not measured is a failure, too.
        let failing = statements(&[("static", Paths::new())]);
        assert!(failing.iter().all(|statement| !statement.relation.holds(&statement.own)));
    }
}
