//! Memory bandwidth: what each VM's budget lets it use, and whether all of them and the DMA engine saturate the memory.

use super::{
    regulation::{regulation, vcpus, why_unlimited},
    ways::{Ways, to_fit, to_limit_dma},
};
use crate::run::show::table;
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    memory::{Budget, Regulation, SaturationPoint, SaturationTable, qos_bandwidth, qos_level},
    verdict::{Judgement, Missing},
};
use weir_model::Code;
use weir_model::Fault;
use weir_model::Looks;
use weir_model::Timing;
use weir_model::counters::Event;
use weir_model::timing::Bandwidth;
use weir_model::timing::DataPath;
use weir_model::timing::Place;
use weir_model::timing::Saturation;
use weir_model::timing::TimedVm;

/// What the analysis says of the budgets.
#[derive(Debug)]
pub struct Memory {
    vms: Vec<Row>,
    /// Sum of the budgets per period of the saturation table, the most beside this DMA bandwidth, and that period.
    total: Option<(u64, Option<u64>, Nanos)>,
    /// DMA bandwidth, bytes/s, and the most beside these budgets.
    dma: (u64, Option<u64>),
    /// Level of the QoS regulator and the bandwidth that it lets through at most, bytes/s.
    qos: Option<(u16, u64)>,
    /// Why not all holds, with what to write.
    reasons: Vec<Fault>,
    /// How the memory may be saturated, with what to write.
    saturated: Option<Fault>,
    /// What the figures take for granted.
    notes: Vec<String>,
    /// Inputs without which something here is not judged.
    missing: Vec<Missing>,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// Refills and their period.
    budget: Option<(u64, Nanos)>,
    /// The most refills that count for it in the saturation table's period.
    counted: Option<u64>,
    /// Refills, and refills with write-backs, bytes/s.
    bandwidth: Option<(u64, u64)>,
    /// Refills that it is sure to get, bytes/s.
    sure: Option<u64>,
    required: Option<u64>,
}

/// A budget of refills while the system runs.
#[derive(Clone, Copy)]
pub struct Limits {
    /// What the file says.
    written: Budget,
    /// The least that it may be set to.
    pub least: Budget,
    /// The most that it may be set to.
    pub most: Budget,
    /// How it is spent.
    pub regulation: Regulation,
    /// How EL2 looks at the monitor for it, if that counts it.
    looks: Option<Looks>,
    vcpus: u64,
}

impl Limits {
    /// Those of a VM; none if it has no budget of refills.
    pub fn of(timing: &Timing, vm: &TimedVm) -> Option<Self> {
        let asked = vm.bandwidth.as_ref()?;
        let ((written, _), (least, most, period)) = (asked.refills()?, asked.settable_refills()?);
        let budget = |accesses| Budget { accesses, period };
        let regulation = regulation(&timing.vms, vm, None);
        Some(Self {
            written: budget(written),
            least: budget(least),
            most: budget(most),
            regulation,
            looks: timing.looks(vm, period),
            vcpus: vcpus(vm).into(),
        })
    }

    /// What its VM is sure to get of it, if its cores could make all of it in a period without EL2's looks at the monitor.
    pub fn sure(&self) -> Budget {
        let whole = self.regulation.sure(self.least.accesses);
        let beside = |looks: Looks| looks.beside(whole, self.period(), self.vcpus);
        Budget { accesses: self.looks.map_or(whole, beside), ..self.least }
    }

    fn period(&self) -> Nanos {
        self.least.period
    }

    /// Why that is less than what the file says, if it is.
    fn why_less(&self, asked: &Bandwidth) -> String {
        // Writing to a string does not fail.
        let mut why = String::new();
        if let Some(setter) = asked.setter().filter(|_| self.least != self.written) {
            let least = self.least.accesses;
            let _ = write!(why, "; {setter} may set its budget to {least}");
        }
        why.push_str(match self.regulation {
            Regulation::Memguard { .. } => {
                "; half of a budget is sure under MemGuard, which may be short of what it lent in every other period"
            }
            Regulation::Pool { vcpus: 2.. } => {
                "; vCPUs that turn idle keep a slice of the pool each, or an access"
            }
            _ => "",
        });
        if let Some(looks) = self.looks {
            let period = self.least.period.0.max(1);
            let taken = u128::from(looks.taken(self.period()).0) * 100;
            let percent = taken.div_ceil(period.into());
            let _ = write!(
                why,
                "; EL2's polls of the counter page take up to {percent} % of each of its cores"
            );
        }
        why
    }
}

/// The table of a file as the library takes it.
///
/// # Errors
///
/// A table without points, which the file's check has refused.
pub fn saturation(timing: &Timing, from: &Saturation) -> Result<SaturationTable, Vec<Fault>> {
    let points = from
        .points
        .iter()
        .map(|(budget, dma)| SaturationPoint { total_budget: *budget, dma: *dma });
    SaturationTable::new(from.period, points.collect()).map_err(|error| {
        let help = "write measured pairs of budget and DMA bandwidth";
        vec![timing.fault(Code::SaturationPoints, &Place::default(), error.to_string(), help)]
    })
}

/// What the vCPUs of a VM without debt may take beyond its budget in any window of the table's period: an overshoot each in each of the
/// budget's periods that fill it. With debt it is paid from what follows. 0 without a table.
pub fn forgiven(timing: &Timing, vm: &TimedVm) -> u64 {
    let Some(known) = &timing.saturation else { return 0 };
    let Some(asked) = vm.bandwidth.as_ref().filter(|asked| !asked.has_debt()) else { return 0 };
    let period = asked.budget.map_or(known.period, |(_, period)| period);
    let periods = known.period.0.div_ceil(period.0.max(1));
    let each = timing.overshoot(vm, period).unwrap_or(0);
    each.saturating_mul(u64::from(vcpus(vm))).saturating_mul(periods)
}

/// Analyzes the budgets of a file, if it has some, beside flows that need a DMA bandwidth of `least` bytes/s.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn analyze(timing: &Timing, least: Option<u64>) -> Result<Option<Memory>, Vec<Fault>> {
    if timing.vms.iter().all(|vm| vm.bandwidth.is_none()) {
        return Ok(None);
    }
    let known = timing.saturation.as_ref();
    let line = timing.line();
    let table = known.map(|known| saturation(timing, known)).transpose()?;
    let (mut vms, mut total) = (Vec::new(), 0_u64);
    let (mut short, mut free) = (Vec::new(), Vec::new());
    for vm in &timing.vms {
        let asked = vm.bandwidth.as_ref();
        let limits = Limits::of(timing, vm);
        let counted = limits
            .zip(table.as_ref())
            .map(|(limits, table)| table.counted(limits.most, limits.regulation));
        let beyond = forgiven(timing, vm);
        let counted = counted.map(|counted| counted.map(|counted| counted.saturating_add(beyond)));
        match counted {
            Some(Some(counted)) => total = total.saturating_add(counted),
            Some(None) => free.push((vm, why_unlimited(&vm.name))),
            None => free.push((vm, why_free(vm))),
        }
        let required = asked.and_then(|asked| asked.required).map(|rate| rate.0);
        // Without a table there is no way to choose a budget, so that its lack is no fault.
        let judged = required.filter(|_| limits.is_some() || table.is_some());
        let why = judged.and_then(|required| shortfall(vm, limits, line, required));
        short.extend(why.map(|why| (vm, counted.flatten().unwrap_or(0), required, why)));
        let written = limits.map(|limits| limits.written);
        vms.push(Row {
            name: vm.name.clone(),
            budget: written.map(|budget| (budget.accesses, budget.period)),
            counted: counted.flatten(),
            bandwidth: written
                .zip(line)
                .map(|(budget, line)| (budget.bandwidth(line).0, budget.total_bandwidth(line).0)),
            sure: limits.zip(line).map(|(limits, line)| limits.sure().bandwidth_at_least(line).0),
            required,
        });
    }
    let engine = !timing.flows.is_empty() && !timing.dma.path.is_of_vms();
    let dma = timing.dma.bandwidth.filter(|_| engine).map_or(0, |rate| rate.0);
    let mut memory = Memory {
        vms,
        total: None,
        dma: (dma, None),
        qos: None,
        reasons: timing.unkept(),
        saturated: None,
        notes: notes(timing),
        missing: missing(timing),
    };
    let place = |vm: &TimedVm| vm.bandwidth.as_ref().map_or(&vm.place, |its| &its.place).clone();
    let fault = |place: &Place, reason: String, help: String| {
        timing.fault(Code::MemoryBandwidth, place, reason, help)
    };
    let (Some(known), Some(table)) = (known, table) else {
        let help = "write a budget of refills, or a larger one";
        let unsure = short.into_iter().map(|(vm, .., why)| fault(&place(vm), why, help.to_owned()));
        memory.reasons.extend(unsure);
        return Ok(Some(memory));
    };
    let first = timing.vms.iter().find_map(|vm| Some(vm.bandwidth.as_ref()?.place.clone()));
    let first = first.unwrap_or_default();
    let most = table.max_budget(BytesPerSec(dma)).unwrap_or(0);
    memory.total = Some((total, table.max_budget(BytesPerSec(dma)), table.period()));
    memory.dma.1 = table.max_dma(total).map(|rate| rate.0);
    if let Some((block, clock)) = known.qos {
        let lets = |level| qos_bandwidth(block, level, clock);
        let level = qos_level(block, BytesPerSec(dma), clock);
        memory.qos = level.map(|level| (level, lets(level).0));
        let next = |level| (lets(level), table.holds(total, lets(level)));
        memory.notes.extend(starved(memory.qos, least, next));
    }
    let ways = |vm, left| Ways { timing, vm, known, table: &table, left };
    for (vm, own, required, why) in short {
        let left = most.saturating_sub(total - own).saturating_sub(forgiven(timing, vm));
        let help = ways(vm, left).to_get(required.unwrap_or(0));
        memory.reasons.push(fault(&place(vm), why, help));
    }
    if let Some((vm, _)) = free.first() {
        let left = most.saturating_sub(total) / free.len() as u64;
        let help = ways(vm, left).to_limit();
        let free: Vec<_> = free.iter().map(|(_, why)| why.as_str()).collect();
        let reason = format!(
            "no budget of refills for {}: nothing keeps the memory from saturation",
            free.join(", ")
        );
        memory.saturated = Some(fault(&place(vm), reason, help));
    } else if engine && dma == 0 && timing.flows.iter().all(|flow| flow.best_effort) {
        memory.saturated = Some(unlimited(timing, to_limit_dma(&table, total)));
    } else if !table.holds(total, BytesPerSec(dma)) {
        let mut reason = format!(
            "budgets of {total} in {} beside {dma} B/s of DMA saturate the memory (Eq. 2)",
            table.period()
        );
        let whole = counted_whole(&memory.vms, table.period());
        reason.push_str(&(whole.unwrap_or_default() + &counted_more(timing)));
        let help = to_fit(&table, total, (dma, least));
        memory.saturated = Some(fault(&first, reason, help));
    }
    Ok(Some(memory))
}

/// That a QoS level lets less through than the `least` bytes/s that the flows need. `lets` gives what a level lets through, and whether that is harmless.
fn starved(
    qos: Option<(u16, u64)>,
    least: Option<u64>,
    lets: impl Fn(u16) -> (BytesPerSec, bool),
) -> Option<String> {
    let ((level, most), least) = qos.zip(least)?;
    let (next, harmless) = lets(level.saturating_add(1));
    let harmless = if harmless { "harmless" } else { "not harmless" };
    (most < least).then(|| {
        format!(
            "QoS level {level} lets less through than the flows need, {least} B/s: the next lets at most {next} through, which is {harmless} beside these budgets"
        )
    })
}

/// That flows, all of them best effort, move as much as they like.
fn unlimited(timing: &Timing, help: String) -> Fault {
    let names: Vec<_> = timing.flows.iter().map(|flow| flow.name.as_str()).collect();
    let reason = format!(
        "nothing limits what is moved for {}: best effort takes what bandwidth there is, and nobody says [dma] bandwidth",
        names.join(", ")
    );
    let place = timing.flows.first().map(|flow| flow.place.clone()).unwrap_or_default();
    timing.fault(Code::MemoryBandwidth, &place, reason, help)
}

/// Who has no budget of refills, and what it has instead, if it has one.
fn why_free(vm: &TimedVm) -> String {
    let other = vm.bandwidth.as_ref().filter(|asked| asked.budget.is_some());
    other.map_or_else(
        || vm.name.clone(),
        |other| {
            let event = other.event().unwrap_or(Event::L2dWriteback);
            format!("{} ({} says nothing of refills)", vm.name, event.name())
        },
    )
}

/// Why a VM is not sure to get `required` bytes/s, if it is not.
fn shortfall(
    vm: &TimedVm,
    limits: Option<Limits>,
    line: Option<Bytes>,
    required: u64,
) -> Option<String> {
    let Some((limits, asked)) = limits.zip(vm.bandwidth.as_ref()) else {
        return Some(format!(
            "{}: it must get {required} B/s and has no budget of refills",
            vm.name
        ));
    };
    let (line, sure) = (line?, limits.sure());
    let got = u128::from(sure.accesses) * u128::from(line.0) * 1_000_000_000;
    (got < u128::from(required) * u128::from(sure.period.0)).then(|| {
        format!(
            "{}: its budget is {} B/s, of which {} are sure, but it must get {required} B/s{}",
            vm.name,
            limits.written.bandwidth(line).0,
            sure.bandwidth_at_least(line).0,
            limits.why_less(asked)
        )
    })
}

/// Of VMs that have a budget and copy flows: what of that is not analyzed.
fn copiers(timing: &Timing) -> Vec<String> {
    let copies = |vm: usize| {
        timing.flows.iter().any(|flow| match timing.dma.path {
            DataPath::Sender => flow.from == vm,
            DataPath::Receiver => flow.to.contains(&vm),
            DataPath::Dma | DataPath::Broker => false,
        })
    };
    let of = |(position, vm): (usize, &TimedVm)| {
        let budget = vm.bandwidth.as_ref().is_some_and(|asked| asked.budget.is_some());
        (budget && copies(position)).then(|| {
            format!(
                "{}: the bandwidth at which its cores copy flows is taken as said, and what they copy for no part of its budget: give it one that allows both",
                vm.name
            )
        })
    };
    timing.vms.iter().enumerate().filter_map(of).collect()
}

/// The inputs without which the budgets are not judged.
fn missing(timing: &Timing) -> Vec<Missing> {
    let platform = timing.platform.as_ref().map_or("the board", |platform| &platform.name);
    let mut missing = Vec::new();
    for vm in timing.vms.iter().filter(|_| timing.saturation.is_none()) {
        let required = vm.bandwidth.as_ref().and_then(|asked| asked.required);
        if let (Some(required), None) = (required, Limits::of(timing, vm)) {
            missing.push(Missing {
                what: format!(
                    "{}: whether it gets {required} is open, as it has no budget of refills",
                    vm.name
                ),
                supply: "write a budget, or add [saturation] and let `weir plan` choose one"
                    .to_owned(),
            });
        }
    }
    if timing.saturation.is_none() && !timing.is_free_of_contention() {
        missing.push(Missing {
            what: format!(
                "memory: whether the budgets saturate it is open, as no saturation is known for {platform}"
            ),
            supply: "add [saturation], which `weir calibrate` measures on a platform of QEMU's, or name a platform whose file has it"
                .to_owned(),
        });
    } else if counted_by_interrupt(timing) && no_overshoot(timing) {
        missing.push(Missing {
            what: format!(
                "memory: the overshoot behind a budget's end is not known for {platform}"
            ),
            supply: "add `overshoot` to [saturation]".to_owned(),
        });
    }
    missing
}

/// Returns whether a budget counts whose overshoot is that of a PMU's interrupt.
fn counted_by_interrupt(timing: &Timing) -> bool {
    let Some(known) = &timing.saturation else { return false };
    let delays = timing.delay().is_some_and(|(delay, _)| delay.0 > 0);
    let tasks = delays && timing.vms.iter().any(|vm| !vm.tasks.is_empty());
    // The monitor's is bounded by what a core can do between two looks.
    let by_interrupt = |vm: &TimedVm| {
        let asked = vm.bandwidth.as_ref();
        let period = asked.and_then(|asked| asked.budget).map_or(known.period, |its| its.1);
        asked.is_some_and(|asked| tasks || !asked.has_debt()) && timing.looks(vm, period).is_none()
    };
    timing.vms.iter().any(by_interrupt)
}

/// Returns whether no overshoot of a PMU's interrupt is known.
fn no_overshoot(timing: &Timing) -> bool {
    timing.measured_overshoot().is_none()
}

/// What the figures take for granted and the file does not say.
fn notes(timing: &Timing) -> Vec<String> {
    let mut notes = copiers(timing);
    if counted_by_interrupt(timing)
        && let Some(measured) = timing.measured_overshoot()
    {
        notes.push(format!(
            "the overshoot counts as the file or the platform says, {measured}: nothing bounds how late the interrupt of a PMU is"
        ));
    }
    for vm in &timing.vms {
        let Some(asked) = vm.bandwidth.as_ref().filter(|asked| asked.required.is_some()) else {
            continue;
        };
        let name = &vm.name;
        if Limits::of(timing, vm).is_some_and(|limits| limits.looks.is_some()) {
            notes.push(format!(
                "{name}: what is sure is what EL2's polls of the counter page leave of its budget, where its cores could make all of it in a period without them, and no other core's looks take their time, as they do in QEMU under instruction counting"
            ));
        }
        if asked.limits_writes() {
            notes.push(format!(
                "{name}: what is sure is so as long as its write budget lasts: it is suspended where either is spent"
            ));
        }
        if let Some(core) = timing.cores.iter().find(|core| vm.cpus.contains(&core.id)) {
            notes.push(format!(
                "{name}: what is sure is so where it has its cores all the time, and it shares core {}",
                core.id
            ));
        }
    }
    notes
}

/// Which budgets count more than their rate, and how to write them so that they don't.
fn counted_whole(vms: &[Row], of_table: Nanos) -> Option<String> {
    let longer: Vec<_> = vms
        .iter()
        .filter_map(|vm| {
            let (accesses, period) = vm.budget.filter(|(_, period)| *period > of_table)?;
            let share = u128::from(accesses) * u128::from(of_table.0) / u128::from(period.0);
            Some(format!("{} {share}", vm.name))
        })
        .collect();
    (!longer.is_empty()).then(|| {
        format!(
            "; a budget of a longer period may be spent in one burst and counts whole, in {of_table} the same \
             rate would be {}",
            longer.join(", ")
        )
    })
}

/// Which budgets count as more than what the file writes for them.
fn counted_more(timing: &Timing) -> String {
    let mut why = String::new();
    for vm in &timing.vms {
        let (Some(limits), Some(asked)) = (Limits::of(timing, vm), &vm.bandwidth) else { continue };
        let beyond = forgiven(timing, vm);
        if beyond > 0 {
            let _ = write!(why, "; {} may take {beyond} beyond its budget: debt = false", vm.name);
        }
        if let Some(setter) = asked.setter().filter(|_| limits.most != limits.written) {
            let most = limits.most.accesses;
            let _ = write!(why, "; {setter} may set the budget of {} to {most}", vm.name);
        }
        if let (Some(window @ 2..), Some(critical)) = (asked.window, asked.critical()) {
            let _ = write!(
                why,
                "; {} may use {window} budgets in one period where {critical} used nothing in {} before",
                vm.name,
                window - 1
            );
        }
    }
    why
}

impl Memory {
    /// Whether nothing saturates and every VM gets what it must, as far as it is judged.
    pub fn holds(&self) -> bool {
        self.reasons().next().is_none()
    }

    /// Returns the verdict on all budgets.
    pub fn judgement(&self) -> Judgement {
        let missing = self.missing.iter().cloned().map(Judgement::from);
        missing.fold(Judgement::of(self.holds()), Judgement::and)
    }

    /// Why not.
    fn reasons(&self) -> impl Iterator<Item = &Fault> {
        self.reasons.iter().chain(&self.saturated)
    }

    /// How the memory may be saturated where the file says that it bears that.
    pub fn overcommitted(&self, timing: &Timing) -> Option<&str> {
        let mut rules = timing.vms.iter().filter_map(|vm| vm.bandwidth.as_ref());
        let saturated = self.saturated.as_ref()?;
        rules.any(Bandwidth::overcommits).then_some(saturated.message.as_str())
    }

    /// What the figures take for granted.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why not, as faults of the file, less what it bears.
    pub fn faults(&self, timing: &Timing) -> Vec<Fault> {
        let borne = self.overcommitted(timing).is_some();
        let saturated = self.saturated.iter().filter(|_| !borne);
        self.reasons.iter().chain(saturated).cloned().collect()
    }

    /// As `weir analyze --json` prints it.
    pub fn to_json(&self) -> Value {
        let vms = self.vms.iter().map(|vm| {
            json!({
                "name": vm.name,
                "budget": vm.budget.map(|budget| budget.0),
                "period_ns": vm.budget.map(|budget| budget.1.0),
                "counted": vm.counted,
                "bandwidth": vm.bandwidth.map(|bandwidth| bandwidth.0),
                "bandwidth_with_write_backs": vm.bandwidth.map(|bandwidth| bandwidth.1),
                "sure": vm.sure,
                "required": vm.required,
            })
        });
        let verdict = self.judgement().verdict();
        json!({
            "holds": verdict.truth(),
            "verdict": verdict.key(),
            "period_ns": self.total.map(|total| total.2.0),
            "total_budget": self.total.map(|total| total.0),
            "max_total_budget": self.total.and_then(|total| total.1),
            "dma_bandwidth": self.dma.0,
            "max_dma_bandwidth": self.dma.1,
            "qos_level": self.qos.map(|qos| qos.0),
            "qos_bandwidth": self.qos.map(|qos| qos.1),
            "vms": vms.collect::<Vec<_>>(),
            "reasons": self.reasons().map(|reason| &reason.message).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows =
            table(["VM", "budget", "refills B/s", "with write-backs", "sure B/s", "required B/s"]);
        for vm in &self.vms {
            let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            rows.add_row([
                vm.name.clone(),
                or(vm.budget.map(|(accesses, period)| format!("{accesses} in {period}"))),
                or(vm.bandwidth.map(|bandwidth| bandwidth.0.to_string())),
                or(vm.bandwidth.map(|bandwidth| bandwidth.1.to_string())),
                or(vm.sure.map(|sure| sure.to_string())),
                or(vm.required.map(|required| required.to_string())),
            ]);
        }
        writeln!(f, "{rows}")?;
        if let Some((total, most, period)) = self.total {
            let most = most.map_or("none".to_owned(), |most| most.to_string());
            writeln!(
                f,
                "memory: budgets of {total} in {period} beside {} B/s of DMA; harmless up to {most}",
                self.dma.0
            )?;
        }
        if let Some((level, most)) = self.qos {
            writeln!(f, "QoS level {level} lets at most {most} B/s through (Eq. 1)")?;
        }
        for reason in self.reasons() {
            writeln!(f, "  {}", reason.message)?;
            if let Some(help) = &reason.help {
                writeln!(f, "    help: {help}")?;
            }
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}
