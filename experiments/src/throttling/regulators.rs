//! The share that each regulator gives to each VM, end to end.

use super::{WEIR, XEN_RULE, grid::POLL_LINES};
use crate::statement::{
    Relation::{AtLeast, AtMost, Near, RisingBy, Within},
    Statement, statements,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _};
use weir_image::{Failure, Result, progress::CountBar};
use weir_qemu_plugin::ledger::Period;
use weir_runner::lab::{Job, Lab, LabVm, Seen};

/// The period of all VMs, in ns, and the budget of each, in lines.
const PERIOD: &str = "100us";
const PERIOD_NS: u64 = 100_000;
const BUDGET: u64 = 1_000;
/// Periods in the windows of compensation: the paper's, and a longer one.
const WINDOWS: [u64; 2] = [2, 4];
/// What the mean of the lines in a period may be off by, as a share.
const TOLERANCE: f64 = 0.03;
/// The core of the VM that requests more than its budget, and of the other.
const HUNGRY: usize = 1;
const OTHER: usize = 2;

/// How many runs that is.
pub const RUNS: u64 = 3 + 1 + WINDOWS.len() as u64 + 2;
/// And of [`unregulated`].
pub const UNREGULATED: u64 = 2;

/// The lines in a period that a core gets which always wants more, by regulator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegulatorFigures {
    /// MemGuard, next to a partly busy VM.
    pub memguard: MemguardFigures,
    /// Compensation, next to a critical VM that needs nothing.
    pub compensation: CompensationFigures,
    /// The pool, for one busy vCPU of two.
    pub pool: PoolFigures,
}

/// The figures of MemGuard.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MemguardFigures {
    /// The budget.
    pub budget: u64,
    /// Without it.
    pub alone: f64,
    /// With reclaim.
    pub reclaim: f64,
    /// With spare sharing.
    pub spare: f64,
    /// The most by which the lender was short.
    pub lender_short_max: u64,
    /// The most of both in a period.
    pub domain_max_per_period: u64,
}

/// The figures of compensation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CompensationFigures {
    /// The budget.
    pub budget: u64,
    /// Without it.
    pub off: f64,
    /// With it, by the length of a window.
    pub windows: Vec<WindowFigures>,
}

/// The figures of compensation with windows of one length.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowFigures {
    /// The periods in a window.
    pub window: u64,
    /// The lines in a period, in the mean.
    pub on: f64,
    /// The lines in each period of a window.
    pub by_period: Vec<u64>,
    /// The most in a period.
    pub max_per_period: u64,
}

/// The figures of the pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PoolFigures {
    /// The budget.
    pub budget: u64,
    /// With the even split.
    pub even: f64,
    /// From the pool.
    pub pool: f64,
}

/// Findings as they come.
#[derive(Default)]
pub struct Findings {
    /// For a program.
    pub figures: RegulatorFigures,
    /// For a person.
    pub text: String,
    /// The judged values.
    pub statements: Vec<Statement>,
}

impl Findings {
    fn add_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }
}

/// All of them.
pub fn run(lab: &Lab<'_>, bar: &CountBar) -> Result<Findings> {
    let mut findings = Findings::default();
    memguard(lab, bar, &mut findings)?;
    compensation(lab, bar, &mut findings)?;
    pool(lab, bar, &mut findings)?;
    Ok(findings)
}

/// Each budget, in lines.
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
const LINES: f64 = BUDGET as f64;
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
const POLL: f64 = POLL_LINES as f64;

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

/// The share that MemGuard gives, in lines a period.
#[derive(Clone, Debug)]
struct Reclaimed {
    /// Without it, with reclaim, and with spare sharing.
    rates: [f64; 3],
    /// The most that a lender was short of, beyond what it may be.
    short: f64,
    /// The most of the domain in one period.
    domain: f64,
}

impl Reclaimed {
    fn statements(&self) -> Vec<Statement> {
        let [alone, reclaim, spare] = self.rates;
        statements![
            WEIR, "memguard-alone", "a hungry core without MemGuard gets its budget"
                => Within(LINES, 0.01), [alone];
            WEIR, "memguard-reclaim",
            "with reclaim it gets more, next to a core that is busy for a part of the time"
                => AtLeast(1.2 * LINES), [reclaim];
            WEIR, "memguard-spare", "with spare sharing it gets still more"
                => RisingBy(0.05 * LINES), [reclaim, spare];
            WEIR, "memguard-spare-most", "it never gets more than both budgets in the mean"
                => AtMost(2.0 * LINES + POLL), [reclaim, spare];
            WEIR, "memguard-lender", "a lender is short of what it lent at most: lines beyond that"
                => AtMost(0.0), [self.short];
            WEIR, "memguard-domain", "lines of the domain in one period"
                => AtMost(2.0 * LINES + 2.0 * POLL), [self.domain];
        ]
    }
}

/// The share that compensation gives, in lines a period.
#[derive(Clone, Debug)]
struct Compensated {
    window: u64,
    /// In the mean, without it and with it.
    off: f64,
    on: f64,
    /// By place in the window.
    places: Vec<f64>,
    /// The most in one period.
    most: f64,
}

impl Compensated {
    fn statements(&self) -> Vec<Statement> {
        let window = self.window;
        // The paper's windows have two periods.
        let source = if window == 2 { XEN_RULE } else { WEIR };
        // What passes until a poll is taken off the next budget, and is far less than half of one.
        let place = |(place, &lines): (u32, &f64)| {
            statements![
                source, "compensation-{window}-{place}",
                "period {place} of a window of {window}, next to a critical VM that needs nothing"
                    => Near(f64::from(place), 0.5), [lines / LINES], "Q";
            ]
        };
        let mut all: Vec<_> = (1..).zip(&self.places).flat_map(place).collect();
        // Q, 2 Q, .. in turn.
        let lift = to_f64(window - 1) / 2.0;
        let percent = 100.0 * lift;
        all.extend(statements![
            source, "compensation-{window}-lift",
            "a window of {window} gives {percent:.0} % more in the mean"
                => Near(lift, (1.0 + lift) * TOLERANCE), [self.on / self.off - 1.0];
            WEIR, "compensation-{window}-off",
            "without compensation the interferer gets its budget"
                => Within(LINES, 0.01), [self.off];
            WEIR, "compensation-{window}-most", "lines in one period"
                => AtMost(to_f64(window) * LINES + POLL), [self.most];
        ]);
        all
    }
}

/// What one busy vCPU of two gets of the VM's lines, by the even split and from the pool.
fn pooled([even, pool]: [f64; 2]) -> Vec<Statement> {
    statements![
        WEIR, "pool-even",
        "one busy vCPU of two gets half of the VM's budget by the even split"
            => Near(LINES / 2.0, LINES / 100.0), [even];
        WEIR, "pool-all", "from the pool it gets all of it" => Within(LINES, 0.05), [pool];
    ]
}

/// The overhead of throttling for a VM without a budget.
#[derive(Clone, Debug)]
struct Unregulated {
    /// Periods in which the other VM was suspended, without a budget and with one.
    throttled: [u64; 2],
    /// The VM's own instructions, likewise.
    guest: [u64; 2],
    /// EL2's for it, likewise.
    el2: [u64; 2],
}

impl Unregulated {
    fn statements(&self) -> Vec<Statement> {
        let more = |of: [u64; 2]| [to_f64(of[1].abs_diff(of[0]))];
        let [off, on] = self.throttled.map(to_f64);
        statements![
            WEIR, "unregulated-off", "periods in which a VM without a budget is suspended"
                => AtMost(0.0), [off];
            WEIR, "unregulated-on", "periods in which a VM with one is suspended"
                => AtLeast(1.0), [on];
            WEIR, "unregulated-guest",
            "instructions of a VM without a budget that another's budget adds"
                => AtMost(0.0), more(self.guest);
            WEIR, "unregulated-el2", "instructions of EL2 for it that another's budget adds"
                => AtMost(0.0), more(self.el2);
        ]
    }
}

fn refills(periods: &[Period]) -> Vec<u64> {
    periods.iter().map(|period| period.counts.refills).collect()
}

/// The later half of the time from the first period in which the core was suspended to the last
/// one: in the other its guest has printed.
fn settled(periods: &[Period]) -> &[Period] {
    let first = periods.iter().position(|period| period.throttled);
    let last = periods.iter().rposition(|period| period.throttled);
    let between =
        first.zip(last).and_then(|(first, last)| periods.get(usize::midpoint(first, last)..=last));
    between.unwrap_or_default()
}

/// Lines a period in that time.
fn mean(periods: &[Period]) -> f64 {
    let settled = settled(periods);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mean = refills(settled).iter().sum::<u64>() as f64 / settled.len().max(1) as f64;
    mean
}

/// Two memory stressors: one that always wants more, and one with passes that begin every `pause`
/// us.
fn pair(
    lab: &Lab<'_>,
    name: &str,
    (hungry, other): (&str, &str),
    (other_args, passes): (&str, u64),
    bar: &CountBar,
) -> Result<Seen> {
    let bandwidth = |keys: &str| {
        format!(
            "accesses = {BUDGET}, period = \"{PERIOD}\", source = \"counter-page\", overcommit = \
             true{keys}"
        )
    };
    let args = format!("mode=read size=0x200000 passes={passes}");
    let [first, second] = [hungry, other].map(bandwidth);
    let vms = [
        LabVm { name: "hungry", cpus: "[1]", guest: ("memory-stressor", &args), bandwidth: &first }
            .toml(),
        LabVm {
            name: "other",
            cpus: "[2]",
            guest: ("memory-stressor", other_args),
            bandwidth: &second,
        }
        .toml(),
    ];
    let seen = lab.run(name, &lab.system("", &vms), Job::Traffic);
    bar.add(1);
    Ok(seen?.forget())
}

/// The most by which a core that wanted more than it got was short of its budgets, over all
/// stretches of periods, beyond MemGuard's bound: half of the periods, rounded up, can be lost to
/// what it lent, plus a debt and a poll.
fn short(periods: &[Period]) -> (u64, u64) {
    let (mut most, mut beyond) = (0, 0);
    for start in 0..periods.len() {
        let (mut given, mut count) = (0_u64, 0_u64);
        for period in periods[start..].iter().take_while(|period| period.throttled) {
            given += period.counts.refills;
            count += 1;
            let shortfall = (count * BUDGET).saturating_sub(given);
            most = most.max(shortfall);
            beyond = beyond.max(shortfall.saturating_sub(count.div_ceil(2) * BUDGET + POLL_LINES));
        }
    }
    (most, beyond)
}

fn memguard(lab: &Lab<'_>, bar: &CountBar, findings: &mut Findings) -> Result {
    // 32768 lines a pass, 3.3 ms with its own budget, every 8 ms.
    let other = ("mode=read size=0x200000 passes=4 period_us=8000", 14);
    let keys = ", regulator = \"memguard\"";
    let spare = ", regulator = \"memguard\", spare = true";
    let alone = pair(lab, "memguard-off", ("", ""), other, bar)?;
    let reclaim = pair(lab, "memguard-on", (keys, keys), other, bar)?;
    let spare = pair(lab, "memguard-spare", (spare, spare), other, bar)?;
    let rate = |seen: &Seen| Ok::<_, Failure>(mean(&seen.core(HUNGRY)?.periods));
    let rates = [rate(&alone)?, rate(&reclaim)?, rate(&spare)?];
    let lent = short(&reclaim.core(OTHER)?.periods);
    findings.add_line(&format!(
        "memguard: a hungry core gets {:.1} of its {BUDGET} lines a period alone, {:.1} with \
         reclaim, {:.1} with spare sharing; the lender is short by at most {} lines",
        rates[0], rates[1], rates[2], lent.0
    ));
    // The domain's promise to the rest of the board.
    let sums = domain(&reclaim)?;
    let [short, domain] = [lent.1, sums].map(to_f64);
    findings.statements.extend(Reclaimed { rates, short, domain }.statements());
    findings.figures.memguard = MemguardFigures {
        budget: BUDGET,
        alone: rates[0],
        reclaim: rates[1],
        spare: rates[2],
        lender_short_max: lent.0,
        domain_max_per_period: sums,
    };
    Ok(())
}

/// The most that both cores had in one period. Their periods are aligned; a core can begin a period
/// late, but never by half of it.
fn domain(seen: &Seen) -> Result<u64> {
    let by_number = |core| -> Result<BTreeMap<u64, u64>> {
        let used = refills(&seen.core(core)?.periods);
        let begun = seen.boundaries.get(&core).into_iter().flatten();
        Ok(begun.map(|ns| (ns + PERIOD_NS / 2) / PERIOD_NS).zip(used).collect())
    };
    let (one, two) = (by_number(HUNGRY)?, by_number(OTHER)?);
    let both = one.iter().filter_map(|(number, used)| Some(used + two.get(number)?));
    Ok(both.max().unwrap_or(0))
}

fn compensation(lab: &Lab<'_>, bar: &CountBar, findings: &mut Findings) -> Result {
    // The critical VM is there, and after its first pass over what stays in its L1 needs no memory.
    let other = ("mode=read size=0x1000 passes=2 period_us=20000", 12);
    let off = mean(&pair(lab, "compensation-off", ("", ""), other, bar)?.core(HUNGRY)?.periods);
    findings.figures.compensation.budget = BUDGET;
    findings.figures.compensation.off = off;
    for window in WINDOWS {
        let keys =
            format!(", regulator = \"compensation\", critical = \"other\", window = {window}");
        let name = format!("compensation-{window}");
        let run = pair(lab, &name, (&keys, ""), other, bar)?;
        let on = mean(&run.core(HUNGRY)?.periods);
        let used = refills(settled(&run.core(HUNGRY)?.periods));
        // By place in the window: Q, 2Q, .., NQ if the critical VM used nothing, and then Q again.
        let place = |start: usize| {
            let of: Vec<u64> =
                used.iter().skip(start).step_by(window as usize).copied().take(8).collect();
            of.iter().sum::<u64>() / of.len().max(1) as u64
        };
        let mut places: Vec<u64> = (0..window as usize).map(place).collect();
        if let Some(least) = (0..places.len()).min_by_key(|place| places[*place]) {
            places.rotate_left(least);
        }
        findings.add_line(&format!(
            "compensation: next to a critical VM that leaves its budget unused, the interferer \
             gets {on:.1} lines a period instead of {off:.1}; in the periods of a window of \
             {window}: {places:?}"
        ));
        let most = used.iter().max().copied().unwrap_or(0);
        let compensated = Compensated {
            window,
            off,
            on,
            places: places.iter().copied().map(to_f64).collect(),
            most: to_f64(most),
        };
        findings.statements.extend(compensated.statements());
        let figures = WindowFigures { window, on, by_period: places, max_per_period: most };
        findings.figures.compensation.windows.push(figures);
    }
    Ok(())
}

fn pool(lab: &Lab<'_>, bar: &CountBar, findings: &mut Findings) -> Result {
    let mut rates = Vec::new();
    for split in ["even", "pool"] {
        let bandwidth = format!(
            "accesses = {BUDGET}, period = \"{PERIOD}\", source = \"counter-page\", overcommit = \
             true, split = \"{split}\""
        );
        let guest = ("spender", "then=off after_us=10000");
        let vm = LabVm { name: "spender", cpus: "[1, 2]", guest, bandwidth: &bandwidth };
        let name = format!("pool-{split}");
        let seen = lab.run(&name, &lab.system("", &[vm.toml()]), Job::Traffic)?.forget();
        rates.push(mean(&seen.core(2)?.periods));
        bar.add(1);
    }
    findings.add_line(&format!(
        "pool: of a VM's {BUDGET} lines its one busy vCPU of two gets {:.1} with the even split, \
         {:.1} from the pool",
        rates[0], rates[1]
    ));
    findings.statements.extend(pooled([rates[0], rates[1]]));
    findings.figures.pool = PoolFigures { budget: BUDGET, even: rates[0], pool: rates[1] };
    Ok(())
}

/// The instructions of a VM without a budget, its guest's and EL2's, while another is throttled and
/// while it is not: by how much the former are more, as a share.
pub fn unregulated(lab: &Lab<'_>, bar: &CountBar, findings: &mut Findings) -> Result<f64> {
    let mut sums = Vec::new();
    let mut suspended = Vec::new();
    for (name, bandwidth) in [
        ("unregulated-off", ""),
        (
            "unregulated-on",
            "accesses = 20000, period = \"100us\", event = \"cycles\", source = \"pmu\"",
        ),
    ] {
        let free = ("latency", "size=0x10000 loads=400000 rounds=2");
        let busy = ("memory-stressor", "mode=read size=0x10000 passes=1000");
        let vms = [
            LabVm { name: "free", cpus: "[1]", guest: free, bandwidth: "" }.toml(),
            LabVm { name: "throttled", cpus: "[2]", guest: busy, bandwidth }.toml(),
        ];
        let seen = lab.run(name, &lab.system("", &vms), Job::Instructions)?.forget();
        let throttled = seen.core(2)?.periods.iter().filter(|period| period.throttled).count();
        suspended.push(throttled as u64);
        let phases = &seen.core(1)?.phases;
        let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
            return Err(Failure::system(format!("{name}: the guest marked nothing")));
        };
        sums.push((last.guest - first.guest, last.el2 - first.el2));
        bar.add(1);
    }
    let [off, on] = sums[..] else { return Ok(f64::NAN) };
    findings.add_line(&format!(
        "a VM without a budget: {} instructions and {} at EL2 for it while another is throttled, \
         {} and {} while it is not",
        on.0, on.1, off.0, off.1
    ));
    let unregulated = Unregulated {
        throttled: [suspended[0], suspended[1]],
        guest: [off.0, on.0],
        el2: [off.1, on.1],
    };
    findings.statements.extend(unregulated.statements());
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let overhead = (on.0 + on.1) as f64 / (off.0 + off.1).max(1) as f64 - 1.0;
    Ok(overhead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn each_statement_can_fail() {
        let reclaimed = Reclaimed { rates: [999.0, 1538.0, 1993.0], short: 0.0, domain: 2300.0 };
        each_can_fail(&reclaimed, &[], Reclaimed::statements, |all| {
            let mut values: Vec<&mut dyn Change> = vec![&mut all.short, &mut all.domain];
            for rate in &mut all.rates {
                values.push(rate);
            }
            values
        });
        let with = |window, on, places, most| Compensated { window, off: 1000.0, on, places, most };
        let windows = [
            with(2, 1498.0, vec![1000.0, 1999.0], 2100.0),
            with(4, 2492.0, vec![1000.0, 2001.0, 3000.0, 3999.0], 4100.0),
        ];
        let statements =
            |all: &[Compensated; 2]| all.each_ref().map(Compensated::statements).concat();
        each_can_fail(&windows, &[], statements, |all| {
            let mut values: Vec<&mut dyn Change> = Vec::new();
            for window in all {
                values.extend([&mut window.off as &mut dyn Change, &mut window.on]);
                values.push(&mut window.most);
                values.extend(window.places.iter_mut().map(|place| place as &mut dyn Change));
            }
            values
        });
        each_can_fail(
            &[501.0, 998.0],
            &[],
            |rates| pooled(*rates),
            |rates| rates.iter_mut().map(|rate| rate as &mut dyn Change).collect(),
        );
        let unregulated =
            Unregulated { throttled: [0, 40], guest: [5_000_000; 2], el2: [40_000; 2] };
        each_can_fail(&unregulated, &[], Unregulated::statements, |all| {
            let values = all.throttled.iter_mut().chain(&mut all.guest).chain(&mut all.el2);
            values.map(|value| value as &mut dyn Change).collect()
        });
    }

    /// Half of the periods, rounded up, and a poll may be missing.
    #[test]
    fn a_lender_short_of_more_than_its_loan_is_detected() {
        let periods = |given: u64, count: usize| {
            let counts =
                weir_qemu_plugin::ledger::GuestCounts { refills: given, ..Default::default() };
            vec![Period { counts, polls: 1, throttled: true }; count]
        };
        assert_eq!(short(&periods(BUDGET / 2, 10)), (5 * BUDGET, 0));
        let (most, beyond) = short(&periods(0, 10));
        assert_eq!((most, beyond), (10 * BUDGET, 5 * BUDGET - POLL_LINES));
    }
}
