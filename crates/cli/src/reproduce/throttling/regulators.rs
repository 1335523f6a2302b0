//! What each regulator gives to whom, end to end.

use super::{
    grid::POLL_LINES,
    lab::{Job, Lab, Seen, Vm},
};
use crate::{
    failure::{Failure, Result},
    progress::Bar,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};
use weir_observer::ledger::Period;

/// The period of all, in ns, and everybody's budget, in lines.
const PERIOD: &str = "100us";
const PERIOD_NS: u64 = 100_000;
const BUDGET: u64 = 1_000;
/// Periods in a window of compensation.
const WINDOW: u64 = 4;
/// The core of who is hungry, and of the other.
const HUNGRY: usize = 1;
const OTHER: usize = 2;

/// How many runs that is.
pub const RUNS: u64 = 3 + 2 + 2;
/// And of [`unregulated`].
pub const UNREGULATED: u64 = 2;

/// Findings as they come.
#[derive(Default)]
pub struct Findings {
    /// For a program.
    pub json: Value,
    /// For a person.
    pub text: String,
    /// What is not as it should be.
    pub misses: Vec<String>,
}

impl Findings {
    fn say(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.misses.push(what());
        }
    }
}

/// All of them.
pub fn run(lab: &Lab<'_>, bar: &Bar) -> Result<Findings> {
    let mut findings = Findings { json: json!({}), ..Findings::default() };
    memguard(lab, bar, &mut findings)?;
    compensation(lab, bar, &mut findings)?;
    pool(lab, bar, &mut findings)?;
    Ok(findings)
}

fn refills(periods: &[Period]) -> Vec<u64> {
    periods.iter().map(|period| period.counts.refills).collect()
}

/// The later half of the time from the first period in which the core was suspended to the last one: in the other its guest has printed.
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

/// Two hogs: one that always wants more, and one whose passes begin every `pause` us.
fn pair(
    lab: &Lab<'_>,
    name: &str,
    (hungry, other): (&str, &str),
    (other_args, passes): (&str, u64),
    bar: &Bar,
) -> Result<Seen> {
    let bandwidth = |keys: &str| {
        format!(
            "budget = {BUDGET}, period = \"{PERIOD}\", source = \"monitor\", overcommit = true{keys}"
        )
    };
    let args = format!("mode=read size=0x200000 passes={passes}");
    let [first, second] = [hungry, other].map(bandwidth);
    let vms = [
        Vm { name: "hungry", cpus: "[1]", guest: ("hog", &args), bandwidth: &first }.toml(),
        Vm { name: "other", cpus: "[2]", guest: ("hog", other_args), bandwidth: &second }.toml(),
    ];
    let seen = lab.run(name, &lab.system("", &vms), Job::Traffic);
    bar.add(1);
    Ok(seen?.forget())
}

/// The most by which a core that wanted more than it got was short of its budgets, over all stretches of periods, beyond what MemGuard
/// says: that half of the periods, rounded up, can be lost, to what it lent, and a debt and a poll.
fn short(periods: &[Period]) -> (u64, bool) {
    let (mut most, mut broken) = (0, false);
    for start in 0..periods.len() {
        let (mut given, mut count) = (0_u64, 0_u64);
        for period in periods[start..].iter().take_while(|period| period.throttled) {
            given += period.counts.refills;
            count += 1;
            let lack = (count * BUDGET).saturating_sub(given);
            most = most.max(lack);
            broken |= lack > count.div_ceil(2) * BUDGET + POLL_LINES;
        }
    }
    (most, broken)
}

fn memguard(lab: &Lab<'_>, bar: &Bar, findings: &mut Findings) -> Result {
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
    findings.say(&format!(
        "memguard: a hungry core gets {:.1} of its {BUDGET} lines a period alone, {:.1} with reclaim, {:.1} with spare sharing; the lender is short by at most {} lines",
        rates[0], rates[1], rates[2], lent.0
    ));
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let budget = BUDGET as f64;
    findings.must((rates[0] / budget - 1.0).abs() < 1e-2, || {
        format!("memguard: without it the hungry core gets {:.1}", rates[0])
    });
    findings.must(rates[1] > 1.2 * budget, || {
        format!("memguard: reclaim gives the hungry core {:.1}", rates[1])
    });
    findings.must(rates[2] > rates[1], || {
        format!("memguard: spare sharing gives {:.1}, reclaim alone {:.1}", rates[2], rates[1])
    });
    findings.must(!lent.1, || format!("memguard: a lender was short by {} lines", lent.0));
    // The domain's promise to the rest of the board.
    let sums = domain(&reclaim)?;
    findings.must(sums <= 2 * BUDGET + 2 * POLL_LINES, || {
        format!("memguard: {sums} lines of the domain in one period")
    });
    findings.json["memguard"] = json!({
        "budget": BUDGET, "alone": rates[0], "reclaim": rates[1], "spare": rates[2],
        "lender_short_max": lent.0, "domain_max_per_period": sums,
    });
    Ok(())
}

/// The most that both cores had in one period. Their periods are aligned; a core whose turn on the emulated machine's clock is late begins
/// one late, but never by half of it.
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

fn compensation(lab: &Lab<'_>, bar: &Bar, findings: &mut Findings) -> Result {
    // The critical VM is there, and after its first pass over what stays in its L1 needs no memory.
    let other = ("mode=read size=0x1000 passes=2 period_us=20000", 12);
    let keys = format!(", regulator = \"compensation\", critical = \"other\", window = {WINDOW}");
    let off = pair(lab, "compensation-off", ("", ""), other, bar)?;
    let on = pair(lab, "compensation-on", (&keys, ""), other, bar)?;
    let rates = [mean(&off.core(HUNGRY)?.periods), mean(&on.core(HUNGRY)?.periods)];
    let used = refills(settled(&on.core(HUNGRY)?.periods));
    // By place in the window: Q, 2Q, .., NQ if the critical VM used nothing, and then Q again.
    let place = |start: usize| {
        let of: Vec<u64> =
            used.iter().skip(start).step_by(WINDOW as usize).copied().take(8).collect();
        of.iter().sum::<u64>() / of.len().max(1) as u64
    };
    let mut places: Vec<u64> = (0..WINDOW as usize).map(place).collect();
    if let Some(least) = (0..places.len()).min_by_key(|place| places[*place]) {
        places.rotate_left(least);
    }
    findings.say(&format!(
        "compensation: beside a critical VM that leaves its budget the interferer gets {:.1} lines a period instead of {:.1}; in the periods of a window of {WINDOW}: {places:?}",
        rates[1], rates[0]
    ));
    for (place, &lines) in places.iter().enumerate() {
        let wanted = (place as u64 + 1) * BUDGET;
        findings.must(lines.abs_diff(wanted) <= BUDGET / 2, || {
            format!("compensation: {lines} lines in period {place} of a window, not {wanted}")
        });
    }
    let most = used.iter().max().copied().unwrap_or(0);
    findings.must(most <= WINDOW * BUDGET + POLL_LINES, || {
        format!("compensation: {most} lines in one period of a window of {WINDOW}")
    });
    findings.json["compensation"] = json!({
        "budget": BUDGET, "window": WINDOW, "off": rates[0], "on": rates[1], "by_period": places,
        "max_per_period": most,
    });
    Ok(())
}

fn pool(lab: &Lab<'_>, bar: &Bar, findings: &mut Findings) -> Result {
    let mut rates = Vec::new();
    for split in ["even", "pool"] {
        let bandwidth = format!(
            "budget = {BUDGET}, period = \"{PERIOD}\", source = \"monitor\", overcommit = true, split = \"{split}\""
        );
        let guest = ("spender", "then=off after_us=10000");
        let vm = Vm { name: "spender", cpus: "[1, 2]", guest, bandwidth: &bandwidth };
        let name = format!("pool-{split}");
        let seen = lab.run(&name, &lab.system("", &[vm.toml()]), Job::Traffic)?.forget();
        rates.push(mean(&seen.core(2)?.periods));
        bar.add(1);
    }
    findings.say(&format!(
        "pool: of a VM's {BUDGET} lines its one busy vCPU of two gets {:.1} with the even split, {:.1} from the pool",
        rates[0], rates[1]
    ));
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let budget = BUDGET as f64;
    findings.must((rates[0] / budget - 0.5).abs() < 0.01, || {
        format!("pool: the even split gives the busy vCPU {:.1} of {BUDGET}", rates[0])
    });
    findings.must((0.95..=1.01).contains(&(rates[1] / budget)), || {
        format!("pool: the pool gives the busy vCPU {:.1} of {BUDGET}", rates[1])
    });
    findings.json["pool"] = json!({ "budget": BUDGET, "even": rates[0], "pool": rates[1] });
    Ok(())
}

/// The instructions of a VM without a budget, its guest's and EL2's, while another is throttled and while it is not: by how much
/// the former are more, as a share.
pub fn unregulated(lab: &Lab<'_>, bar: &Bar, findings: &mut Findings) -> Result<f64> {
    let mut sums = Vec::new();
    for (name, bandwidth) in [
        ("unregulated-off", ""),
        (
            "unregulated-on",
            "budget = 20000, period = \"100us\", event = \"inst-retired\", source = \"pmu\"",
        ),
    ] {
        let free = ("latency", "size=0x10000 loads=400000 rounds=2");
        let busy = ("hog", "mode=read size=0x10000 passes=1000");
        let vms = [
            Vm { name: "free", cpus: "[1]", guest: free, bandwidth: "" }.toml(),
            Vm { name: "throttled", cpus: "[2]", guest: busy, bandwidth }.toml(),
        ];
        let seen = lab.run(name, &lab.system("", &vms), Job::Instructions)?.forget();
        let throttled = seen.core(2)?.periods.iter().filter(|period| period.throttled).count();
        findings.must((throttled > 0) == (name == "unregulated-on"), || {
            format!("{name}: the other VM was suspended in {throttled} periods")
        });
        let phases = &seen.core(1)?.phases;
        let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
            return Err(Failure::system(format!("{name}: the guest marked nothing")));
        };
        sums.push((last.guest - first.guest, last.el2 - first.el2));
        bar.add(1);
    }
    let [off, on] = sums[..] else { return Ok(f64::NAN) };
    findings.say(&format!(
        "a VM without a budget: {} instructions and {} at EL2 for it while another is throttled, {} and {} while it is not",
        on.0, on.1, off.0, off.1
    ));
    findings.must(on == off, || format!("throttling costs an unregulated VM: {on:?}, not {off:?}"));
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let overhead = (on.0 + on.1) as f64 / (off.0 + off.1).max(1) as f64 - 1.0;
    Ok(overhead)
}
