//! Budgets and periods over two decades and a half, kept by the PMU and by the counter page, as in
//! bao-throttling's Figure 4.8. That figure shows times of programs, which the experiment
//! `bao-throttling-budgets` judges; the statements here are weir's.

use super::WEIR;
use crate::statement::{Relation::AtMost, Statement, statements};
use serde::{Deserialize, Serialize};
use weir_abi::regulation::most_events;
use weir_image::{Failure, Result, progress::CountBar};
use weir_report::table;
use weir_runner::lab::{Job, Lab, LabVm, STRESSOR, Seen, qemu_virt};
use weir_runner::measure::{Measured, Pick};
use weir_units::{Events, Nanos};

/// The periods, in ns.
const PERIODS: [u64; 4] = [30_000, 100_000, 1_000_000, 10_000_000];
/// Budgets with the PMU: cycles in 100 ns. An instruction takes one, of 1 ns.
const PMU_RATES: [u64; 3] = [10, 20, 40];
/// Budgets with the counter page: lines in 1000 ns, for each of three cores. A core can have 500,
/// less what EL2 takes.
const MONITOR_RATES: [u64; 3] = [10, 20, 40];
/// Core of the console.
const CONSOLE: usize = 0;
/// Cores of the busy VMs with the counter page.
const BUSY: [usize; 3] = [1, 2, 3];
/// Periods that a run has at least.
const LEAST_PERIODS: u64 = 12;
/// A monitored vCPU takes so much at least, of which an overshoot is then less than a thousandth.
const LINES: u64 = 1_200_000;
/// As above, in a run of a PMU.
const INSTRUCTIONS: u64 = 600_000;
/// A round of the guest `storm` is so many, those that trap left out.
const ROUND: u64 = 2000;
/// The long-run rate may differ from the budget's by so much.
const RATE_TOLERANCE: f64 = 1e-3;

/// The guest that traps, and what it gets: some 33 traps in 1000 instructions, so that what is left
/// of a budget at one is anything.
const TRAPPING: (u64, u64) = (100_000, 1000);

/// One run, or the maximum of several busy cores.
#[derive(Clone, Debug)]
pub struct GridPoint {
    source: &'static str,
    guest: &'static str,
    /// Whether the console is on another core: what that core does is on no budget.
    console_apart: bool,
    period: u64,
    budget: u64,
    measured: Measured,
    /// The allowed overshoot.
    allowed: u64,
}

/// Runs all of it, or with `quick` one budget for each source and two periods.
pub fn run(lab: &Lab<'_>, quick: bool, bar: &CountBar) -> Result<Vec<GridPoint>> {
    let mut points = Vec::new();
    let some = |all: usize, few: usize| if quick { few } else { all };
    for &period in &PERIODS[..some(4, 2)] {
        for &rate in &PMU_RATES[..some(3, 1)] {
            points.push(pmu(lab, ("memory-stressor", CONSOLE), period, rate * period / 100)?);
            bar.add(1);
        }
        for &rate in &MONITOR_RATES[..some(3, 1)] {
            points.push(counter_page(lab, period, rate * period / 1000)?);
            bar.add(1);
        }
    }
    for core in [CONSOLE, BUSY[0]] {
        points.push(pmu(lab, ("storm", core), TRAPPING.0, TRAPPING.1)?);
        bar.add(1);
    }
    Ok(points)
}

/// How many runs that is.
pub fn runs(quick: bool) -> u64 {
    if quick { 6 } else { 26 }
}

/// What may come beyond a budget that the PMU counts: the platform's `overshoot`.
fn pmu_overshoot() -> Result<u64> {
    let stated = qemu_virt()?.interference.and_then(|its| its.overshoot);
    let missing = || Failure::environment("qemu-virt states no `overshoot` in [interference]");
    stated.map(Events::get).ok_or_else(missing)
}

/// One busy vCPU.
fn pmu(
    lab: &Lab<'_>,
    (guest, core): (&'static str, usize),
    period: u64,
    budget: u64,
) -> Result<GridPoint> {
    let wanted = INSTRUCTIONS.max(LEAST_PERIODS * budget);
    let args = match guest {
        "storm" => format!("count={}", wanted / ROUND),
        // A pass over 64 KiB is some 2500 instructions.
        _ => format!("mode=read size=0x10000 passes={}", wanted / 2400),
    };
    let bandwidth = format!(
        "accesses = {budget}, period = \"{}\", event = \"cycles\", source = \"pmu\"",
        Nanos(period)
    );
    let cpus = format!("[{core}]");
    let vm = LabVm { name: guest, cpus: &cpus, guest: (guest, &args), bandwidth: &bandwidth };
    let name = format!("pmu-{guest}{core}-{period}-{budget}");
    let seen = lab.run(&name, &lab.system("", &[vm.toml()]), Job::Instructions)?.forget();
    let measured = measured(&name, &seen, core, |counts| counts.instructions, budget, period)?;
    Ok(GridPoint {
        source: "pmu",
        guest,
        console_apart: core != CONSOLE,
        period,
        budget,
        measured,
        allowed: pmu_overshoot()?,
    })
}

/// Three busy vCPUs, each with the budget.
fn counter_page(lab: &Lab<'_>, period: u64, budget: u64) -> Result<GridPoint> {
    let passes = LINES.max(LEAST_PERIODS * budget).div_ceil(STRESSOR / 64);
    let bandwidth = format!(
        "accesses = {budget}, period = \"{}\", source = \"counter-page\", overcommit = true",
        Nanos(period)
    );
    let name = format!("monitor-{period}-{budget}");
    let seen = lab.stressors(&name, "", &BUSY, passes, &bandwidth)?;
    let each =
        |&core: &usize| measured(&name, &seen, core, |counts| counts.refills, budget, period);
    let each = BUSY.iter().map(each).collect::<Result<Vec<_>>>()?;
    let most = |of: fn(&Measured) -> u64| each.iter().map(of).max().unwrap_or(0);
    let rate_error = each.iter().map(|one| one.rate_error);
    let rate_error = rate_error.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
    Ok(GridPoint {
        source: "counter-page",
        guest: "memory-stressor",
        console_apart: false,
        period,
        budget,
        measured: Measured {
            max_per_period: most(|one| one.max_per_period),
            overshoot_max: most(|one| one.overshoot_max),
            rate_error,
            periods: each.iter().map(|one| one.periods).min().unwrap_or(0),
            total: each.iter().map(|one| one.total).sum(),
        },
        allowed: POLL_LINES,
    })
}

/// The most lines that a core can move in one poll interval, from `boards/qemu-virt/board.toml`: 1
/// us, and an instruction in 1 ns.
pub const POLL_LINES: u64 = most_events(1000, 1);

/// The counts of core `core`, which must have been busy.
pub fn measured(
    name: &str,
    seen: &Seen,
    core: usize,
    pick: Pick,
    budget: u64,
    period: u64,
) -> Result<Measured> {
    let of = Measured::of(seen.core(core)?, pick, budget, period, seen.boundaries.get(&core));
    of.ok_or_else(|| Failure::system(format!("{name}: core {core} never spent its budget")))
}

/// A run with a budget in a JSON result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GridRun {
    /// The regulator.
    pub regulator: String,
    /// The counter of the accesses.
    pub source: String,
    /// The guest.
    pub guest: String,
    /// True if another core serves the console.
    pub console_on_other_core: bool,
    /// The period in ns.
    pub period_ns: u64,
    /// The budget.
    pub budget: u64,
    /// The most in a period.
    pub max_per_period: u64,
    /// The most beyond what the budget left.
    pub overshoot_max: u64,
    /// The bound on that.
    pub overshoot_allowed: u64,
    /// The difference of the rate as a share.
    pub rate_error: f64,
    /// The number of periods.
    pub periods: u64,
}

impl GridPoint {
    /// The guest, and whether the console is on another core.
    fn source_name(&self) -> String {
        format!(
            "{}{}",
            self.guest,
            if self.console_apart { ", console on another core" } else { "" }
        )
    }

    /// The statements about it.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn statements(&self) -> Vec<Statement> {
        let Self { source, guest, console_apart, period, budget, measured, allowed } = self;
        let what = format!("{source}, {}, {budget} in {}", self.source_name(), Nanos(*period));
        let suffix = if *console_apart { "-console-apart" } else { "" };
        let run = format!("{source}-{guest}{suffix}-{period}-{budget}");
        statements![
            WEIR, "overshoot-{run}", "{what}: the most beyond what the budget left"
                => AtMost(*allowed as f64), [measured.overshoot_max as f64];
            WEIR, "period-{run}", "{what}: the most in one period"
                => AtMost((budget + allowed) as f64), [measured.max_per_period as f64];
            WEIR, "rate-most-{run}",
            "{what}: the same bandwidth at each period; the rate is above it by a share"
                => AtMost(RATE_TOLERANCE), [measured.rate_error];
            WEIR, "rate-least-{run}",
            "{what}: the same bandwidth at each period; the rate is below it by a share"
                => AtMost(RATE_TOLERANCE), [-measured.rate_error];
        ]
    }

    /// Returns the run as a JSON result has it.
    pub fn record(&self) -> GridRun {
        let Self { source, guest, console_apart, period, budget, measured, allowed } = self;
        GridRun {
            regulator: "static".to_owned(),
            source: source.to_string(),
            guest: guest.to_string(),
            console_on_other_core: *console_apart,
            period_ns: *period,
            budget: *budget,
            max_per_period: measured.max_per_period,
            overshoot_max: measured.overshoot_max,
            overshoot_allowed: *allowed,
            rate_error: measured.rate_error,
            periods: measured.periods,
        }
    }
}

/// For a person.
pub fn text(points: &[GridPoint]) -> String {
    let mut rows = table([
        "source",
        "guest",
        "period",
        "budget",
        "periods",
        "most in one",
        "overshoot",
        "allowed",
        "rate error, %",
        "events/us",
    ]);
    for point in points {
        let GridPoint { source, period, budget, measured, allowed, .. } = point;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = 1000.0 * (*budget as f64 / *period as f64) * (1.0 + measured.rate_error);
        rows.add_row([
            (*source).to_owned(),
            point.source_name(),
            Nanos(*period).to_string(),
            budget.to_string(),
            measured.periods.to_string(),
            measured.max_per_period.to_string(),
            measured.overshoot_max.to_string(),
            allowed.to_string(),
            format!("{:+.4}", 100.0 * measured.rate_error),
            format!("{rate:.2}"),
        ]);
    }
    rows.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Platform;

    #[test]
    fn each_statement_can_fail() {
        let point = |source, guest, console_apart, allowed| GridPoint {
            source,
            guest,
            console_apart,
            period: 100_000,
            budget: 10_000,
            measured: Measured {
                max_per_period: 10_001,
                overshoot_max: 1,
                rate_error: 0.0001,
                periods: 100,
                total: 1_000_000,
            },
            allowed,
        };
        let pmu = pmu_overshoot().expect("the platform states it");
        let good = vec![
            point("pmu", "memory-stressor", false, pmu),
            point("pmu", "storm", true, pmu),
            point("counter-page", "memory-stressor", false, POLL_LINES),
        ];
        let mut few = good.clone();
        for point in &mut few {
            point.measured.rate_error *= -1.0;
        }
        for good in [good, few] {
            let mut left: Vec<String> =
                good.iter().flat_map(GridPoint::statements).map(|statement| statement.id).collect();
            // Overshoots and rates are beyond the factors of the common test.
            for (overshoot, most, rate) in [
                (pmu + 1, 10_001, 0.0),
                (POLL_LINES + 1, 10_001, 0.0),
                (1, 10_001 + pmu, 0.0),
                (1, 10_001 + POLL_LINES, 0.0),
                (1, 10_001, 0.0011),
                (1, 10_001, -0.0011),
            ] {
                for point in &good {
                    let measured = Measured {
                        overshoot_max: overshoot,
                        max_per_period: most,
                        rate_error: rate,
                        ..point.measured
                    };
                    let broken = GridPoint { measured, ..point.clone() };
                    let failing =
                        broken.statements().into_iter().filter(|s| !s.relation.holds(&s.own));
                    for statement in failing {
                        left.retain(|id| *id != statement.id);
                    }
                }
            }
            assert_eq!(left, [""; 0]);
            assert!(good.iter().flat_map(GridPoint::statements).all(|s| s.relation.holds(&s.own)));
        }
    }

    #[test]
    fn an_overshoot_is_bounded_by_the_platforms_poll() {
        let page = Platform::named("qemu-virt").and_then(|found| found.counters.counter_page);
        let bound = page.map(|page| most_events(page.poll.0, page.access.0));
        assert_eq!((bound, POLL_LINES), (Some(2064), 2064));
    }
}
