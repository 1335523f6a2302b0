//! Memory budgets: the bandwidth that each guarantees, and whether all of them and the DMA engine
//! saturate the memory.

use super::{
    limits::{Limits, forgiven, saturation},
    messages,
    regulation::why_unlimited,
    suggestion::{Shortfall, to_fit, to_limit_dma},
};
use crate::units::Events;
use crate::{
    Bytes, BytesPerSec, Nanos,
    memory::{Budget, qos_bandwidth, qos_level},
    verdict::{Judgement, Missing, Verdict},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use weir_model::{
    Code, Fault, Object, System, Vm,
    counters::CounterEvent,
    timing::{FilePlace, MemoryBudget},
};

/// The budgets of all VMs, and whether they saturate the memory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MemoryReport {
    /// Whether nothing saturates the memory and each VM gets what it requires; none if an input is
    /// missing.
    pub holds: Option<bool>,
    /// The verdict on all budgets.
    pub verdict: Verdict,
    /// The period of the saturation table in ns.
    pub period_ns: Option<u64>,
    /// The sum of the budgets in this period.
    pub total_budget: Option<u64>,
    /// The greatest sum below saturation next to the DMA bandwidth.
    pub max_total_budget: Option<u64>,
    /// The DMA bandwidth in bytes/s.
    pub dma_bandwidth: u64,
    /// The greatest DMA bandwidth below saturation next to the budgets.
    pub max_dma_bandwidth: Option<u64>,
    /// The level of the QoS regulator that the file sets, or the highest one that lets through no
    /// more than the DMA bandwidth.
    pub qos_level: Option<u64>,
    /// The most that this level lets through, in bytes/s.
    pub qos_bandwidth: Option<u64>,
    /// The budget of each VM.
    pub vms: Vec<BudgetBound>,
    /// Why something does not hold, with a suggestion each.
    #[serde(rename = "reasons", serialize_with = "messages")]
    #[schemars(with = "Vec<String>")]
    pub causes: Vec<Fault>,
    /// The assumptions of the figures.
    pub notes: Vec<String>,
    /// Inputs without which something is not judged.
    #[serde(skip)]
    pub missing: Vec<Missing>,
    /// The position in `causes` of the cause that the memory may be saturated.
    #[serde(skip)]
    saturated: Option<usize>,
    /// Whether the file accepts a saturated memory.
    #[serde(skip)]
    overcommits: bool,
}

/// The memory budget of a VM, and the bandwidth that it guarantees.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BudgetBound {
    /// The VM.
    pub name: String,
    /// Refills in each period; none if it has no budget of refills.
    pub budget: Option<u64>,
    /// The period in ns.
    pub period_ns: Option<u64>,
    /// The most refills that count for it in the period of the saturation table.
    pub counted: Option<u64>,
    /// The upper bound on its refills, in bytes/s.
    pub bandwidth: Option<u64>,
    /// The same with a write-back for each refill.
    pub bandwidth_with_write_backs: Option<u64>,
    /// The lower bound on the refills that it gets, in bytes/s.
    pub guaranteed: Option<u64>,
    /// Its required bandwidth, in bytes/s.
    pub required: Option<u64>,
}

/// Analyzes the budgets of a file next to flows that need a DMA bandwidth of `least` bytes/s.
///
/// # Errors
///
/// The faults that prevent the analysis.
pub fn analyze(system: &System, least: Option<u64>) -> Result<Option<MemoryReport>, Vec<Fault>> {
    if system.guests().iter().all(|vm| vm.memory_budget.is_none()) {
        return Ok(None);
    }
    let known = system.saturation.as_ref();
    let line = system.line();
    let table = known.map(|known| saturation(system, known)).transpose()?;
    let (mut vms, mut total) = (Vec::new(), 0_u64);
    let (mut short, mut free) = (Vec::new(), Vec::new());
    for vm in system.guests() {
        let asked = vm.memory_budget.as_ref();
        let limits = Limits::of(system, vm);
        let counted = limits
            .zip(table.as_ref())
            .map(|(limits, table)| table.counted(limits.most, limits.regulation));
        let beyond = forgiven(system, vm);
        let counted =
            counted.map(|counted| counted.map(|counted| counted.saturating_add(beyond.0)));
        match counted {
            Some(Some(counted)) => total = total.saturating_add(counted),
            Some(None) => free.push((vm, why_unlimited(&vm.to_string()))),
            None => free.push((vm, why_free(vm))),
        }
        let required = asked.and_then(|asked| asked.required).map(|rate| rate.0);
        // Without a table no budget can be chosen, so a missing budget is no fault.
        let judged = required.filter(|_| limits.is_some() || table.is_some());
        let why = judged.and_then(|required| shortfall(vm, limits, line, required));
        short.extend(why.map(|why| (vm, counted.flatten().unwrap_or(0), required, why)));
        vms.push(BudgetBound::new(vm, limits, counted.flatten(), line));
    }
    let engine = !system.flows.is_empty();
    let dma = system.dma.bandwidth.filter(|_| engine).map_or(0, |rate| rate.0);
    let mut memory = MemoryReport::new(system, vms, dma);
    let place = |vm: &Vm| vm.memory_budget.as_ref().map_or(&vm.place, |its| &its.place).clone();
    let fault = |place: &FilePlace, reason: String, help: String| {
        system.fault(Code::MemoryBandwidth, place, reason, help)
    };
    let (Some(known), Some(table)) = (known, table) else {
        let help = "write a budget of refills, or a larger one";
        let unsure = short.into_iter().map(|(vm, .., why)| fault(&place(vm), why, help.to_owned()));
        memory.causes.extend(unsure);
        return Ok(Some(memory.judged()));
    };
    let counted = system.guests().iter().zip(&memory.vms);
    let counted = counted.filter_map(|(vm, its)| Some((vm.memory_budget.as_ref()?, its.counted)));
    // The first one of several that count for the same.
    let largest = counted.rev().max_by_key(|(_, counted)| *counted);
    let largest = largest.map(|(budget, _)| budget.place.clone()).unwrap_or_default();
    let most = table.max_budget(BytesPerSec(dma)).unwrap_or(0);
    memory.total_budget = Some(total);
    memory.max_total_budget = table.max_budget(BytesPerSec(dma));
    memory.period_ns = Some(table.period().0);
    memory.max_dma_bandwidth = table.max_dma(total).map(|rate| rate.0);
    let regulator = system.engine().and_then(|engine| engine.qos.as_ref());
    if let Some((block, clock)) = regulator.map(|qos| (qos.block, qos.clock)).or(known.qos) {
        let lets = |level| qos_bandwidth(block, level, clock);
        let set = system.qos_level().map(|(level, _)| level);
        let level = set.or_else(|| qos_level(block, BytesPerSec(dma), clock));
        memory.qos_level = level;
        memory.qos_bandwidth = level.map(|level| lets(level).0);
        let next = |level| (lets(level), table.holds(total, lets(level)));
        memory.notes.extend(starved(level.map(|level| (level, lets(level).0)), least, next));
    }
    let short_of = |vm, left| Shortfall { system, vm, known, table: &table, left };
    for (vm, own, required, why) in short {
        let left = most.saturating_sub(total - own).saturating_sub(forgiven(system, vm).0);
        let help = short_of(vm, left).to_get(required.unwrap_or(0));
        memory.causes.push(fault(&place(vm), why, help));
    }
    let saturated = if let Some((vm, _)) = free.first() {
        let left = most.saturating_sub(total) / free.len() as u64;
        let help = short_of(vm, left).to_limit();
        let free: Vec<_> = free.iter().map(|(_, why)| why.as_str()).collect();
        let reason = format!(
            "{}: no budget of refills, so that nothing keeps the memory from saturation",
            free.join(", ")
        );
        Some(fault(&place(vm), reason, help))
    } else if engine && dma == 0 && system.flows.iter().all(|flow| flow.best_effort) {
        Some(unlimited(system, to_limit_dma(&table, total)))
    } else if !table.holds(total, BytesPerSec(dma)) {
        let mut reason = format!(
            "the memory budgets: {total} in {} next to {dma} B/s of DMA saturate the memory (Eq. \
             2)",
            table.period()
        );
        let whole = counted_whole(&memory.vms, table.period());
        reason.push_str(&(whole.unwrap_or_default() + &counted_more(system)));
        let help = to_fit(&table, total, (dma, least));
        Some(fault(&largest, reason, help))
    } else {
        None
    };
    memory.saturated = saturated.as_ref().map(|_| memory.causes.len());
    memory.causes.extend(saturated);
    Ok(Some(memory.judged()))
}

/// Returns a note if a QoS level lets through less than the `least` bytes/s that the flows need.
/// `lets` returns the bandwidth of a level and whether it is below saturation.
fn starved(
    qos: Option<(u64, u64)>,
    least: Option<u64>,
    lets: impl Fn(u64) -> (BytesPerSec, bool),
) -> Option<String> {
    let ((level, most), least) = qos.zip(least)?;
    let (next, harmless) = lets(level.saturating_add(1));
    let harmless = if harmless { "below saturation" } else { "above saturation" };
    (most < least).then(|| {
        format!(
            "QoS level {level} lets through less than the {least} B/s that the flows need: the \
             next level lets through at most {next}, which is {harmless} next to these budgets"
        )
    })
}

/// Returns the fault that nothing limits flows of best effort.
fn unlimited(system: &System, help: String) -> Fault {
    let names: Vec<_> = system.flows.iter().map(ToString::to_string).collect();
    let reason = format!(
        "{}: nothing limits best effort, which takes all bandwidth without a [dma] bandwidth",
        names.join(", ")
    );
    let place = system.flows.first().map(|flow| flow.place.clone()).unwrap_or_default();
    system.fault(Code::MemoryBandwidth, &place, reason, help)
}

/// Returns the name of a VM without a budget of refills, with what it has instead.
fn why_free(vm: &Vm) -> String {
    let other = vm.memory_budget.as_ref().filter(|asked| asked.budget.is_some());
    other.map_or_else(
        || vm.to_string(),
        |other| {
            let event = other.event().unwrap_or(CounterEvent::L2dWriteback);
            format!("{vm} ({} does not count refills)", event.name())
        },
    )
}

/// Returns why `required` bytes/s are not guaranteed to a VM.
fn shortfall(
    vm: &Vm,
    limits: Option<Limits>,
    line: Option<Bytes>,
    required: u64,
) -> Option<String> {
    let Some((limits, asked)) = limits.zip(vm.memory_budget.as_ref()) else {
        return Some(format!("{vm}: it requires {required} B/s and has no budget of refills"));
    };
    let (line, guaranteed) = (line?, limits.guaranteed());
    let got = u128::from(guaranteed.accesses) * u128::from(line.0) * 1_000_000_000;
    (got < u128::from(required) * u128::from(guaranteed.period.0)).then(|| {
        format!(
            "{vm}: its budget is {} B/s, of which {} are guaranteed, but it requires {required} \
             B/s{}",
            limits.written.bandwidth(line).0,
            guaranteed.bandwidth_at_least(line).0,
            limits.why_less(asked)
        )
    })
}

/// Returns the inputs without which the budgets are not judged.
fn missing(system: &System) -> Vec<Missing> {
    let platform = system.platform.as_ref().map_or("the board", |platform| &platform.name);
    let mut missing = Vec::new();
    for vm in system.guests().iter().filter(|_| system.saturation.is_none()) {
        let required = vm.memory_budget.as_ref().and_then(|asked| asked.required);
        if let (Some(required), None) = (required, Limits::of(system, vm)) {
            missing.push(Missing {
                what: format!(
                    "{vm}: whether it gets {required} is not known, as it has no budget of refills"
                ),
                supply: "write a budget, or add [saturation] and let `weir plan` choose one"
                    .to_owned(),
            });
        }
    }
    if system.saturation.is_none() && !system.is_free_of_contention() {
        missing.push(Missing {
            what: format!(
                "memory: whether the budgets saturate it is not known, as {platform} has no \
                 saturation table"
            ),
            supply:
                "add [saturation], which `weir calibrate` measures on a platform of QEMU's, or \
                 name a platform with a file that has it"
                    .to_owned(),
        });
    } else if counted_by_interrupt(system) && no_overshoot(system) {
        missing.push(Missing {
            what: format!("memory: the overshoot of a budget is not known for {platform}"),
            supply: "add `overshoot` to [saturation]".to_owned(),
        });
    }
    missing
}

/// Returns whether a budget counts with the overshoot of a PMU's interrupt.
fn counted_by_interrupt(system: &System) -> bool {
    let Some(known) = &system.saturation else { return false };
    let delays = system.delay().is_some_and(|(delay, _)| delay.0 > 0);
    let tasks = delays && system.guests().iter().any(|vm| !vm.tasks.is_empty());
    // The overshoot of the counter page is bounded by the accesses between two polls.
    let by_interrupt = |vm: &Vm| {
        let asked = vm.memory_budget.as_ref();
        let period = asked.and_then(|asked| asked.budget).map_or(known.period, |its| its.1);
        asked.is_some_and(|asked| tasks || !asked.has_debt())
            && system.polling(vm, period).is_none()
    };
    system.guests().iter().any(by_interrupt)
}

/// Returns whether no overshoot of a PMU's interrupt is known.
fn no_overshoot(system: &System) -> bool {
    system.measured_overshoot().is_none()
}

/// Returns the assumptions of the figures that are not in the file.
fn notes(system: &System) -> Vec<String> {
    let mut notes = Vec::new();
    if counted_by_interrupt(system)
        && let Some(measured) = system.measured_overshoot()
    {
        notes.push(format!(
            "the overshoot is {measured}, from the file or the platform: the delay of a PMU's \
             interrupt has no proven bound"
        ));
    }
    for vm in system.guests() {
        let Some(asked) = vm.memory_budget.as_ref().filter(|asked| asked.required.is_some()) else {
            continue;
        };
        if Limits::of(system, vm).is_some_and(|limits| limits.polling.is_some()) {
            notes.push(format!(
                "{vm}: the guaranteed bandwidth is what EL2's polls of the counter page leave of \
                 its budget, if its cores can spend all of it in a period without polls, and if \
                 polls of other cores take no time of them, which they do in QEMU with instruction \
                 counting"
            ));
        }
        if asked.limits_writes() {
            notes.push(format!(
                "{vm}: the guaranteed bandwidth holds until its write budget is spent, which \
                 suspends it too"
            ));
        }
        if let Some(core) = system.cores.iter().find(|core| vm.is_on(core.id)) {
            notes.push(format!(
                "{vm}: the guaranteed bandwidth holds while it has its cores, and it shares core \
                 {}",
                core.id
            ));
        }
    }
    notes
}

/// Returns which budgets count for more than their rate, and how to write them.
fn counted_whole(vms: &[BudgetBound], of_table: Nanos) -> Option<String> {
    let longer: Vec<_> = vms
        .iter()
        .filter_map(|vm| {
            let (accesses, period) = vm.budget.zip(vm.period_ns.map(Nanos))?;
            if period <= of_table {
                return None;
            }
            let share = u128::from(accesses) * u128::from(of_table.0) / u128::from(period.0);
            Some(format!("{} {share}", vm.name))
        })
        .collect();
    (!longer.is_empty()).then(|| {
        format!(
            "; a budget of a longer period may be spent in one burst and counts whole, in \
             {of_table} the same rate would be {}",
            longer.join(", ")
        )
    })
}

/// Returns which budgets count for more than the file writes, and why.
fn counted_more(system: &System) -> String {
    let mut why = String::new();
    for vm in system.guests() {
        let (Some(limits), Some(asked)) = (Limits::of(system, vm), &vm.memory_budget) else {
            continue;
        };
        let beyond = forgiven(system, vm);
        if beyond > Events(0) {
            let _ = write!(why, "; {vm} may take {beyond} beyond its budget: debt = false");
        }
        if let Some(setter) = asked.setter().filter(|_| limits.most != limits.written) {
            let most = limits.most.accesses;
            let setter = Object::vm(setter);
            let _ = write!(why, "; {setter} may set the budget of {vm} to {most}");
        }
        if let (Some(window @ 2..), Some(critical)) = (asked.window, asked.critical()) {
            let _ = write!(
                why,
                "; {vm} may use {window} budgets in one period where {} used nothing in {} before",
                Object::vm(critical),
                window - 1
            );
        }
    }
    why
}

impl BudgetBound {
    fn new(vm: &Vm, limits: Option<Limits>, counted: Option<u64>, line: Option<Bytes>) -> Self {
        let written = limits.map(|limits| limits.written);
        let rate = |of: fn(Budget, Bytes) -> BytesPerSec| {
            written.zip(line).map(|(budget, line)| of(budget, line).0)
        };
        let guaranteed = limits.zip(line);
        Self {
            name: vm.name.clone(),
            budget: written.map(|budget| budget.accesses),
            period_ns: written.map(|budget| budget.period.0),
            counted,
            bandwidth: rate(Budget::bandwidth),
            bandwidth_with_write_backs: rate(Budget::total_bandwidth),
            guaranteed: guaranteed
                .map(|(limits, line)| limits.guaranteed().bandwidth_at_least(line).0),
            required: vm.memory_budget.as_ref().and_then(|asked| asked.required).map(|rate| rate.0),
        }
    }
}

impl MemoryReport {
    /// Returns a report on budgets that no saturation table is known for.
    fn new(system: &System, vms: Vec<BudgetBound>, dma_bandwidth: u64) -> Self {
        let mut asked = system.guests().iter().filter_map(|vm| vm.memory_budget.as_ref());
        Self {
            holds: None,
            verdict: Verdict::default(),
            period_ns: None,
            total_budget: None,
            max_total_budget: None,
            dma_bandwidth,
            max_dma_bandwidth: None,
            qos_level: None,
            qos_bandwidth: None,
            vms,
            causes: system.unkept(),
            notes: notes(system),
            missing: missing(system),
            saturated: None,
            overcommits: asked.any(MemoryBudget::overcommits),
        }
    }

    /// Sets the verdict, once all parts are known.
    fn judged(mut self) -> Self {
        self.verdict = self.judgement().verdict();
        self.holds = self.verdict.truth();
        self
    }

    /// Returns the verdict on all budgets, with the missing inputs.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let missing = self.missing.iter().cloned().map(Judgement::from);
        missing.fold(Judgement::of(self.causes.is_empty()), Judgement::and)
    }

    /// Returns why the memory may be saturated, if the file accepts that (`overcommit = true`).
    #[must_use]
    pub fn overcommitted(&self) -> Option<&Fault> {
        self.saturated.filter(|_| self.overcommits).and_then(|at| self.causes.get(at))
    }

    /// Returns the causes that the file does not accept.
    pub fn refused(&self) -> impl Iterator<Item = &Fault> {
        let accepted = self.saturated.filter(|_| self.overcommits);
        let causes = self.causes.iter().enumerate();
        causes.filter(move |(at, _)| Some(*at) != accepted).map(|(_, cause)| cause)
    }
}
