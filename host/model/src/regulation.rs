//! From the key `memory_budget` of each VM to what EL2 enforces: the counter, whether the platform
//! has it, and whether the sum of all budgets is below saturation.

use crate::counters::{Counters, Event, instead};
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, Place};
use crate::measured::Saturation;
use crate::packed::regulation::{NOBODY, Regulation};
use crate::packed::{MAX_CORES, regulation as packed};
use crate::platform::Platform;
use crate::shape::suggestion;
use crate::system::System;
use crate::timing::facts::Timing;
use crate::timing::memory_budget::{MemoryBudget, Regulator, Rules, Source, Split};
use crate::timing::vm::TimedVm;
use weir_budget::Refused;
use weir_units::{Events, Nanos};

/// The shortest interval of polls: shorter ones leave a vCPU hardly any time.
const LEAST_POLL: Nanos = Nanos(500);

/// The suggestion if there is no critical VM.
const LEAVE_COMPENSATION: &str = "leave `regulator`, `critical` and `window` out";

/// How each VM is regulated, in the order of the file.
pub(crate) fn regulate(system: &System, faults: &mut Faults) -> Vec<Regulation> {
    let (timing, platform) = (&system.timing, Some(&system.platform));
    let mut checker = Checker { timing, platform, cores: system.cores_needed(), faults };
    let all = checker.each();
    checker.sum();
    all
}

impl Timing {
    /// Whether the platform that the file names, if it does, can keep each VM to its budget.
    ///
    /// # Errors
    ///
    /// A fault for each that it can't.
    pub fn check_budgets(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        if self.platform.is_some() {
            let mut checker = self.checker(&mut faults);
            checker.each();
            checker.sum();
        }
        faults.into_result(())
    }

    fn checker<'a>(&'a self, faults: &'a mut Faults) -> Checker<'a> {
        let last = self.vms.iter().flat_map(|vm| &vm.cpus).max();
        let cores = last.and_then(|last| usize::try_from(last.saturating_add(1)).ok()).unwrap_or(1);
        Checker { timing: self, platform: self.platform.as_ref(), cores, faults }
    }

    /// How EL2 polls the counter page for the budget of each vCPU of `vm`, in periods of `period`;
    /// none if the PMU counts, if nothing counts, or if the file names no platform.
    #[must_use]
    pub fn polling(&self, vm: &TimedVm, period: Nanos) -> Option<Polling> {
        let counters = &self.platform.as_ref()?.counters;
        let events = vm.memory_budget.as_ref().map_or(vec![Event::L2dRefill], events);
        let rules = vm.memory_budget.as_ref().map(|bandwidth| &bandwidth.rules);
        counting_source(counters, rules, &events, period)?.polling
    }

    /// The most accesses that a vCPU of `vm` makes between the end of a budget, in periods of
    /// `period`, and its stop: with a counter page, the most that a core can do between two polls,
    /// else the measured value of `[saturation]`. None if it is unknown.
    #[must_use]
    pub fn overshoot(&self, vm: &TimedVm, period: Nanos) -> Option<Events> {
        let bound = self.polling(vm, period).map(|polling| polling.between());
        bound.max(self.measured_overshoot())
    }

    /// Returns the accesses that were measured, or are taken, to pass between a budget's end and
    /// the stop: those of `[saturation]` before those of the platform's `[interference]`.
    #[must_use]
    pub fn measured_overshoot(&self) -> Option<Events> {
        let own = self.saturation.as_ref().and_then(|saturation| saturation.overshoot);
        let platform = self.platform.as_ref().and_then(|platform| platform.interference.as_ref());
        own.or_else(|| platform?.overshoot)
    }

    /// Returns the diagnostics of budgets that cannot be enforced, without the check of their sum.
    /// Without a platform, every event is assumed to be counted.
    #[must_use]
    pub fn unkept(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        self.checker(&mut faults).each();
        faults.0
    }
}

struct Checker<'a> {
    timing: &'a Timing,
    platform: Option<&'a Platform>,
    cores: usize,
    faults: &'a mut Faults,
}

/// The chosen counter, its shortest period, and for a counter page how it is polled.
struct Chosen {
    source: u8,
    min_period: Nanos,
    polling: Option<Polling>,
}

impl Chosen {
    fn is(&self, source: Source) -> bool {
        source == if self.source == packed::PMU { Source::Pmu } else { Source::CounterPage }
    }
}

/// How EL2 polls the counter page for a vCPU's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polling {
    /// The least time between two polls within a period.
    pub every: Nanos,
    /// Upper bound on the time that one takes from the core.
    pub cost: Nanos,
    /// The least time of an instruction.
    access: Nanos,
}

impl Polling {
    /// Upper bound on the accesses of the core between two polls: the overshoot of a budget.
    #[must_use]
    pub fn between(&self) -> Events {
        Events(self.most_in(self.every))
    }

    /// Upper bound on the accesses of the core in `time`.
    #[must_use]
    pub fn most_in(&self, time: Nanos) -> u64 {
        packed::most_events(time.0, self.access.0)
    }

    /// Upper bound on the polling overhead in a period of a vCPU that spends its budget: one poll
    /// each [`every`](Self::every), and the one at the start of the period, which takes less than
    /// two others.
    #[must_use]
    pub fn taken(&self, period: Nanos) -> Nanos {
        let polls = period.0.div_ceil(self.every.0.max(1)).saturating_add(2);
        Nanos(polls.saturating_mul(self.cost.0).min(period.0))
    }

    /// The part of `accesses` per period that `cores` can make under the polling overhead, at most
    /// what any core can make.
    #[must_use]
    pub fn beside(&self, accesses: u64, period: Nanos, cores: u64) -> u64 {
        let time = period.0 - self.taken(period).0;
        let part = u128::from(accesses) * u128::from(time) / u128::from(period.0.max(1));
        let most = self.most_in(Nanos(time)).saturating_mul(cores);
        u64::try_from(part).unwrap_or(u64::MAX).min(if time == 0 { 0 } else { most })
    }

    /// The least accesses of which `cores` can make so many under the polling overhead
    /// ([`beside`](Self::beside)); none if it leaves no time.
    #[must_use]
    pub fn enough(&self, accesses: u64, period: Nanos, cores: u64) -> Option<u64> {
        let time = period.0 - self.taken(period).0;
        let whole = (u128::from(accesses) * u128::from(period.0)).div_ceil(time.max(1).into());
        let whole = u64::try_from(whole).ok()?;
        (self.beside(whole, period, cores) >= accesses).then_some(whole)
    }

    /// The least permitted value of `poll`.
    fn least(&self) -> Nanos {
        LEAST_POLL.max(Nanos(self.cost.0.saturating_add(1)))
    }

    /// The least time between two polls while `left` accesses are left of a budget of `period`,
    /// which are not spent sooner; at most the period, at whose end there is always a poll.
    #[must_use]
    pub fn apart(&self, left: u64, period: Nanos) -> Nanos {
        self.every.max(period.min(Nanos(packed::least_time(left, self.access.0))))
    }
}

/// The counters of a platform that can stop a vCPU at its budget in periods of `period`, with their
/// events: the PMU before the counter page.
fn sources<'a>(
    counters: &'a Counters,
    rules: Option<&Rules>,
    period: Nanos,
) -> impl Iterator<Item = (&'a [Event], Chosen)> {
    let requested = rules.and_then(|rules| rules.poll.as_ref()).map(|poll| poll.value);
    let pmu = counters.pmu.as_ref().filter(|pmu| !pmu.intids.is_empty()).map(|pmu| {
        let chosen = Chosen { source: packed::PMU, min_period: pmu.min_period, polling: None };
        (pmu.events.as_slice(), chosen)
    });
    let counter_page = counters.counter_page.as_ref().map(|page| {
        // A period has some polls, unless the file has `poll`.
        let some = Nanos((period.0 / 8).max(packed::LEAST_POLL_NS));
        let every = requested.unwrap_or(page.poll.min(some));
        let polling = Polling { every, cost: page.poll_overhead, access: page.access };
        let min_period = page.min_period;
        (
            page.events.as_slice(),
            Chosen { source: packed::MONITOR, min_period, polling: Some(polling) },
        )
    });
    [pmu, counter_page].into_iter().flatten()
}

/// The first permitted counter of all of `events`, if there is one.
fn counting_source(
    counters: &Counters,
    rules: Option<&Rules>,
    events: &[Event],
    period: Nanos,
) -> Option<Chosen> {
    let requested = rules.and_then(|rules| rules.source.as_ref()).map(|source| source.value);
    let mut can = sources(counters, rules, period)
        .filter(|(_, chosen)| requested.is_none_or(|requested| chosen.is(requested)))
        .filter(|(can, _)| events.iter().all(|event| can.contains(event)));
    can.next().map(|(_, chosen)| chosen)
}

impl<'a> Checker<'a> {
    /// How each VM is regulated, in the order of the file.
    fn each(&mut self) -> Vec<Regulation> {
        let vms = self.timing.vms.iter().enumerate();
        let sound = |(index, vm)| {
            let before = self.faults.0.len();
            let regulation = self.vm(index, vm);
            // One fault is enough: what follows from it is not said again.
            if self.faults.0.len() == before { regulation } else { Regulation::default() }
        };
        let all: Vec<_> = vms.map(sound).collect();
        self.shared(&all);
        all
    }

    /// The platform as a message names it.
    fn platform_name(&self) -> &'a str {
        self.platform.map_or("the platform", |platform| platform.name.as_str())
    }

    fn fault(&mut self, code: Code, place: &Place, message: String, help: String) {
        self.faults.push(self.timing.fault(code, place, message, help));
    }

    fn vm(&mut self, index: usize, vm: &TimedVm) -> Regulation {
        let none = Regulation::default();
        let Some(bandwidth) = &vm.memory_budget else { return none };
        let events = events(bandwidth);
        let rules = &bandwidth.rules;
        let chosen = if bandwidth.budget.is_some()
            || rules.event.is_some()
            || rules.source.is_some()
            || rules.poll.is_some()
        {
            let chosen = if let Some(platform) = self.platform {
                self.source(platform, vm, bandwidth, &events)
            } else {
                // The remaining checks do not depend on the counter.
                let min_period = Nanos(0);
                Some(Chosen { source: packed::PMU, min_period, polling: None })
            };
            let Some(chosen) = chosen else { return none };
            Some(chosen)
        } else {
            None
        };
        let weights = self.weights(vm, bandwidth);
        let critical = self.critical(index, vm, bandwidth);
        let (setter, least, most) = self.setter(vm, bandwidth);
        if rules.staggered && (rules.regulator != Regulator::Static || rules.split == Split::Pool) {
            let message =
                format!("vm `{}`: phase = \"staggered\" with a budget that cores share", vm.name);
            let help = "leave `phase` out, or use the static regulator without a pool";
            self.fault(Code::BudgetStaggered, &rules.places.phase, message, help.to_owned());
        }
        // Without a budget there is a demand only, from which `weir plan` makes one.
        let (Some((_, period)), Some(chosen)) = (bandwidth.budget, chosen) else { return none };
        if period < chosen.min_period {
            let least = chosen.min_period;
            let message = format!(
                "the period of {period} is shorter than the `min_period` of {}",
                self.platform_name()
            );
            let help = format!("write a period of at least \"{least}\"");
            self.fault(Code::BudgetPeriodShort, &bandwidth.rules.places.period, message, help);
            return none;
        }
        if let Some(saturation) = self.saturation()
            && let Some(unkept) = unkept(&saturation, vm, bandwidth, &events)
        {
            self.fault(unkept.code, &unkept.place, unkept.message, unkept.help);
            return none;
        }
        if period.0 > packed::MOST_PERIOD_NS {
            let help = "write a period of at most 2199s".to_owned();
            let message = format!("the period of {period} is too long to count in");
            self.fault(Code::BudgetPeriodLong, &bandwidth.rules.places.period, message, help);
            return none;
        }
        Regulation {
            period_ns: period.0,
            reads: rules.reads.unwrap_or(u64::MAX),
            writes: rules.writes.unwrap_or(u64::MAX),
            poll_ns: chosen.polling.map_or(0, |polling| polling.every.0),
            access_ns: chosen.polling.map_or(0, |polling| polling.access.0),
            least,
            most,
            window: bandwidth.window.unwrap_or(0),
            events: [events[0].number(), events.get(1).map_or(0, |event| event.number())],
            weights,
            kind: match (rules.regulator, &rules.split) {
                (Regulator::Memguard, _) => packed::MEMGUARD,
                (Regulator::Compensation, _) => packed::COMPENSATION,
                (Regulator::Static, Split::Pool) => packed::POOL,
                (Regulator::Static, _) => packed::STATIC,
            },
            source: chosen.source,
            each: rules.each.into(),
            staggered: rules.staggered.into(),
            debt: rules.debt.into(),
            critical,
            setter,
            spare: rules.spare.into(),
        }
    }

    /// The system's own saturation table, or the platform's.
    fn saturation(&self) -> Option<Saturation> {
        let own = self.timing.saturation.clone();
        own.or_else(|| self.platform?.saturation.clone())
    }

    /// The counter of these events of a VM.
    fn source(
        &mut self,
        platform: &Platform,
        vm: &TimedVm,
        bandwidth: &MemoryBudget,
        events: &[Event],
    ) -> Option<Chosen> {
        let rules = &bandwidth.rules;
        let counters = &platform.counters;
        let requested = rules.source.as_ref().map(|source| source.value);
        let (_, period) = bandwidth.budget.unwrap_or((0, Nanos(0)));
        let sources = || sources(counters, Some(rules), period);
        let allowed = |chosen: &Chosen| requested.is_none_or(|requested| chosen.is(requested));
        let mut counted = Vec::new();
        for (can, _) in sources().filter(|(_, chosen)| allowed(chosen)) {
            counted.extend(can.iter().copied());
        }
        let found = counting_source(counters, Some(rules), events, period);
        let Some(found) = found else {
            let missing =
                events.iter().find(|event| !counted.contains(event)).unwrap_or(&events[0]);
            let source = match requested {
                Some(Source::Pmu) => format!("the PMU of {} does not count", platform.name),
                Some(Source::CounterPage) => {
                    format!("the counter page of {} does not count", platform.name)
                }
                None => {
                    format!("no counter of {} that can stop a vCPU counts", platform.name)
                }
            };
            let message = format!("vm `{}`: {source} `{}`", vm.name, missing.name());
            let place = rules.event.as_ref().map(|event| event.span.clone());
            let place = place.or(rules.source.as_ref().map(|source| source.span.clone()));
            let place = place.map_or(bandwidth.place.clone(), Place);
            let name = &platform.name;
            let other = |requested| {
                let mut others = sources().filter(|(_, chosen)| !chosen.is(requested));
                others.any(|(can, _)| events.iter().all(|event| can.contains(event)))
            };
            let help = match requested {
                Some(Source::Pmu) if other(Source::Pmu) => {
                    format!("leave `source` out: {name}'s counter page counts it")
                }
                Some(Source::CounterPage) if other(Source::CounterPage) => {
                    format!("leave `source` out: {name}'s PMU counts it")
                }
                // What two budgets count is no choice.
                _ if rules.writes.is_some() => {
                    let known = if counted.contains(&Event::L2dRefill) {
                        "`accesses` alone, which counts refills"
                    } else {
                        "`accesses` and `event`"
                    };
                    format!("nothing on {name} counts reads and writes: write {known}")
                }
                _ if !counted.is_empty() => instead(*missing, &counted),
                Some(Source::CounterPage) if counters.counter_page.is_none() => {
                    format!("{name} has no counter page: leave `source` out")
                }
                Some(Source::Pmu) if counters.pmu.is_none() => {
                    format!("{name} has no PMU that weir knows of: leave `source` out")
                }
                _ => format!("nothing on {name} can stop a vCPU: remove `memory_budget`"),
            };
            self.fault(Code::BudgetEvent, &place, message, help);
            return None;
        };
        if let Some(poll) = &rules.poll {
            // Without a budget, any period may come of it.
            let period = bandwidth.budget.map_or(Nanos(u64::MAX), |(_, period)| period);
            let place = Place(poll.span.clone());
            if found.source == packed::PMU {
                let message = format!(
                    "vm `{}`: `poll` has no effect, because the PMU counts the memory budget",
                    vm.name
                );
                self.fault(Code::BudgetPoll, &place, message, "leave `poll` out".to_owned());
            } else if let Some(polling) = found.polling
                && (poll.value < polling.least() || poll.value > period)
            {
                let least = polling.least();
                let message = if poll.value < least {
                    format!("a poll of the counter page each {}", poll.value)
                } else {
                    format!("a poll of the counter page each {} in periods of {period}", poll.value)
                };
                // A measured table holds for polls as frequent as in the measurement.
                let own = counters.counter_page.as_ref().map(|page| page.poll);
                let own = own.filter(|_| self.saturation().is_some()).unwrap_or(period);
                let most =
                    if own < period { format!("\"{own}\"") } else { "the period".to_owned() };
                let help = format!(
                    "write at least \"{least}\", as a poll takes {}, and at most {most}",
                    polling.cost
                );
                self.fault(Code::BudgetPoll, &place, message, help);
            } else if self.saturation().is_some()
                && let Some(rare) = coarse_poll(platform, vm, bandwidth)
            {
                self.fault(rare.code, &rare.place, rare.message, rare.help);
            }
        }
        Some(found)
    }

    fn weights(&mut self, vm: &TimedVm, bandwidth: &MemoryBudget) -> [u16; MAX_CORES] {
        let mut weights = [0; MAX_CORES];
        let vcpus = vm.cpus.len().min(MAX_CORES);
        weights[..vcpus].fill(1);
        if let Split::Weights(allowed) = &bandwidth.rules.split {
            // A file without cores says nothing of vCPUs.
            if allowed.len() == vcpus || vm.cpus.is_empty() {
                for (weight, requested) in weights.iter_mut().zip(allowed) {
                    *weight = (*requested).min(u16::MAX.into()) as u16;
                }
            } else {
                let (given, name) = (allowed.len(), &vm.name);
                let message = format!("{given} weights for the {vcpus} vCPUs of {name}");
                let help = "write one for each of `cpus`".to_owned();
                self.fault(Code::BudgetSplit, &bandwidth.rules.places.split, message, help);
            }
        }
        weights
    }

    /// The VM called `name`, which may be any but `never`.
    fn find(&mut self, name: &str, place: &Place, never: Option<usize>) -> Option<usize> {
        let names = self.timing.vms.iter().map(|vm| vm.name.as_str());
        let found = names.clone().position(|known| known == name);
        if found.is_none() {
            let others = names.enumerate().filter(|(index, _)| never != Some(*index));
            let help = match never {
                Some(_) if others.clone().next().is_none() => LEAVE_COMPENSATION.to_owned(),
                _ => suggestion(name, others.map(|(_, name)| name)),
            };
            self.fault(Code::UnknownVm, place, format!("there is no VM `{name}`"), help);
        }
        found
    }

    fn critical(&mut self, index: usize, vm: &TimedVm, bandwidth: &MemoryBudget) -> u8 {
        if bandwidth.rules.regulator != Regulator::Compensation {
            return NOBODY;
        }
        let Some(critical) = &bandwidth.rules.critical else {
            let message =
                format!("vm `{}`: regulator \"compensation\" requires the key `critical`", vm.name);
            let help = "add critical = \"...\", the VM that leaves a part of its budget".to_owned();
            self.fault(Code::CompensationCritical, &bandwidth.place, message, help);
            return NOBODY;
        };
        let place = Place(critical.span.clone());
        let Some(found) = self.find(&critical.value, &place, Some(index)) else { return NOBODY };
        let its = self.timing.vms.get(found).and_then(|vm| vm.memory_budget.as_ref());
        // What `weir plan` is to choose has one period.
        let open = its.is_some_and(|its| its.budget.is_none()) && bandwidth.budget.is_none();
        let its = its.and_then(|its| its.budget);
        let own = bandwidth.budget;
        if found == index {
            let message = format!("vm `{}`: `critical` names the VM itself", vm.name);
            let help = LEAVE_COMPENSATION.to_owned();
            self.fault(Code::CompensationCritical, &place, message, help);
        } else if !open
            && (its.is_none()
                || own.is_some() && its.map(|(_, period)| period) != own.map(|(_, period)| period))
        {
            let message = format!(
                "vm `{}`: a critical VM needs a memory budget of the same period",
                critical.value
            );
            let period =
                own.map_or(String::new(), |(_, period)| format!(", period = \"{period}\""));
            let help = format!(
                "write memory_budget = {{ accesses = ...{period} }} for {}",
                critical.value
            );
            self.fault(Code::CompensationCritical, &place, message, help);
        }
        found as u8
    }

    fn setter(&mut self, vm: &TimedVm, bandwidth: &MemoryBudget) -> (u8, u64, u64) {
        let Some(adjust) = &bandwidth.rules.adjust else { return (NOBODY, 0, 0) };
        let place = Place(adjust.by.span.clone());
        let by = self.find(&adjust.by.value, &place, None);
        let rules = &bandwidth.rules;
        let places = &rules.places;
        for (budget, place) in [(rules.reads, &places.budget), (rules.writes, &places.writes)] {
            // Limits that are none have been refused.
            let refused = adjust.min > adjust.max || adjust.min == 0;
            let beyond = |budget: &u64| !refused && !(adjust.min..=adjust.max).contains(budget);
            let Some(budget) = budget.filter(beyond) else {
                continue;
            };
            let message = format!(
                "vm `{}`: the budget {budget} is outside the range that {} may set ({} to {})",
                vm.name, adjust.by.value, adjust.min, adjust.max
            );
            let help = "widen `min` and `max` so that the range contains the budget".to_owned();
            self.fault(Code::BudgetAdjust, place, message, help);
        }
        (by.map_or(NOBODY, |by| by as u8), adjust.min, adjust.max)
    }

    /// What depends on all: each vCPU gets something, and what is shared has one period.
    fn shared(&mut self, all: &[Regulation]) {
        let cores: Vec<Vec<u8>> = self.timing.vms.iter().map(cores).collect();
        let of = |index: usize| Some((all.get(index)?, cores.get(index)?.as_slice()));
        let mut domain: Option<(&TimedVm, &Regulation)> = None;
        for (index, (vm, regulation)) in self.timing.vms.iter().zip(all).enumerate() {
            let Some(bandwidth) = vm.memory_budget.as_ref().filter(|_| regulation.is_on()) else {
                continue;
            };
            let places = &bandwidth.rules.places;
            // A budget of 0 is refused where it is read, and staggered periods by the key that says
            // so.
            let is_said = |refused: &Refused| {
                *refused == Refused::Staggered || regulation.reads == 0 || regulation.writes == 0
            };
            if let Some(refused) = self.refused(of, index).filter(|refused| !is_said(refused)) {
                let message = format!("vm `{}`: this memory budget cannot be enforced", vm.name);
                self.fault(Code::BudgetEmpty, &places.budget, message, refused.to_string());
            }
            self.adjusted(index, all, &cores);
            let same = |other: &Regulation| {
                (other.source, other.events) == (regulation.source, regulation.events)
            };
            let critical = all.get(usize::from(regulation.critical));
            if regulation.kind == packed::COMPENSATION
                && let Some(critical) = critical.filter(|critical| critical.is_on())
                && !same(critical)
            {
                let message = format!(
                    "vm `{}`: `event` or `source` is not that of its `critical` VM",
                    vm.name
                );
                let help = "write the same `event` and `source` for both".to_owned();
                self.fault(Code::CompensationEvent, &places.budget, message, help);
            }
            if regulation.kind == packed::COMPENSATION
                && let Some(critical) = self.timing.vms.get(usize::from(regulation.critical))
                && let Some(its) = critical.memory_budget.as_ref().filter(|its| its.rules.staggered)
                && critical.name != vm.name
            {
                let message = format!(
                    "vm `{}`: phase = \"staggered\", but it is the `critical` VM of {}",
                    critical.name, vm.name
                );
                let help = "leave `phase` out";
                self.fault(
                    Code::BudgetStaggered,
                    &its.rules.places.phase,
                    message,
                    help.to_owned(),
                );
            }
            if regulation.kind != packed::MEMGUARD {
                continue;
            }
            match domain {
                Some((first, other)) if other.spare != regulation.spare => {
                    let (with, without) = if other.spare == 0 { (vm, first) } else { (first, vm) };
                    let message = format!(
                        "vm `{}`: has `spare = true`, but vm `{}` does not, so neither gets any",
                        with.name, without.name
                    );
                    let help = "write `spare = true` for all VMs with regulator = \"memguard\", or for none";
                    self.fault(Code::MemguardSpare, &places.spare, message, help.to_owned());
                }
                Some((first, other)) if !same(other) => {
                    let message = format!(
                        "vm `{}` and vm `{}`: share the pool of MemGuard, but count different events",
                        first.name, vm.name
                    );
                    let help = "write the same `event` and `source` for all VMs with regulator = \"memguard\"";
                    self.fault(Code::MemguardEvent, &places.budget, message, help.to_owned());
                }
                Some((first, other)) if other.period_ns != regulation.period_ns => {
                    let message = format!(
                        "vm `{}` and vm `{}`: share the pool of MemGuard, but have the periods {} and {}",
                        first.name,
                        vm.name,
                        Nanos(other.period_ns),
                        Nanos(regulation.period_ns)
                    );
                    let help = "write the same period for all VMs with regulator = \"memguard\"";
                    self.fault(Code::MemguardPeriod, &places.period, message, help.to_owned());
                }
                Some(_) => {}
                None => domain = Some((vm, regulation)),
            }
        }
    }

    /// Why VM `index` can't be regulated as `of` says of each VM, if it can't.
    fn refused<'r>(
        &self,
        of: impl Fn(usize) -> Option<(&'r Regulation, &'r [u8])> + Copy,
        index: usize,
    ) -> Option<Refused> {
        let vcpus = self.timing.vms.get(index).map_or(0, |vm| vm.cpus.len());
        let mut settings =
            (0..vcpus).filter_map(|vcpu| packed::setting(of, index, vcpu, self.cores));
        settings.find_map(|setting| setting.check().err())
    }

    /// What another VM may set the budget of VM `index` to must be something that it can be
    /// regulated by.
    fn adjusted(&mut self, index: usize, all: &[Regulation], cores: &[Vec<u8>]) {
        let (Some(vm), Some(regulation)) = (self.timing.vms.get(index), all.get(index)) else {
            return;
        };
        let bandwidth = vm.memory_budget.as_ref().filter(|_| regulation.setter != NOBODY);
        let Some(adjust) = bandwidth.and_then(|bandwidth| bandwidth.rules.adjust.as_ref()) else {
            return;
        };
        // 0 is refused where it is read.
        for limit in [regulation.least, regulation.most].into_iter().filter(|limit| *limit > 0) {
            let set = |budget: u64| if budget == u64::MAX { budget } else { limit };
            let (reads, writes) = (set(regulation.reads), set(regulation.writes));
            let changed = Regulation { reads, writes, ..*regulation };
            let of = |other: usize| {
                let its = if other == index { &changed } else { all.get(other)? };
                Some((its, cores.get(other)?.as_slice()))
            };
            let Some(refused) = self.refused(of, index) else { continue };
            let place = Place(adjust.by.span.clone());
            let message = format!(
                "vm `{}`: may set the budget of vm `{}` to {limit}, which cannot be enforced",
                adjust.by.value, vm.name
            );
            let help = format!("narrow `min` and `max`: {refused}");
            return self.fault(Code::BudgetAdjust, &place, message, help);
        }
    }

    /// All budgets together are what the memory takes.
    fn sum(&mut self) {
        let Some(saturation) = &self.saturation() else {
            return;
        };
        let limited =
            |vm: &&TimedVm| vm.memory_budget.as_ref().and_then(MemoryBudget::refills).is_some();
        let vms: Vec<_> = self.timing.vms.iter().filter(limited).collect();
        let rules = || vms.iter().filter_map(|vm| vm.memory_budget.as_ref());
        let mut all = self.timing.vms.iter().filter_map(|vm| vm.memory_budget.as_ref());
        if all.any(MemoryBudget::overcommits) {
            return;
        }
        // Lines in the saturation table's period, rounded up for each VM.
        let lines = rules().filter_map(|bandwidth| {
            let (_, budget, period) = bandwidth.settable_refills()?;
            let scaled = u128::from(budget) * u128::from(saturation.period.0);
            Some(scaled.div_ceil(u128::from(period.0.max(1))))
        });
        let sum: u128 = lines.sum();
        let most = saturation.points.iter().map(|(budget, _)| *budget).max().unwrap_or(0);
        let last = rules().next_back();
        if sum > u128::from(most)
            && let Some(last) = last
        {
            let names: Vec<_> = vms.iter().map(|vm| vm.name.as_str()).collect();
            let set = if rules().any(|rules| rules.rules.adjust.is_some()) {
                "may be set to"
            } else {
                "are"
            };
            let message = format!(
                "the budgets of {} {set} {sum} lines in {}; {}'s memory takes {most}",
                names.join(", "),
                saturation.period,
                self.platform_name()
            );
            let help = self.to_fit(&vms, saturation, most);
            self.fault(
                Code::BudgetsOverSaturation,
                &last.rules.places.budget.clone(),
                message,
                help,
            );
        }
    }
}

impl Checker<'_> {
    /// How the budgets of these VMs come to be what the memory takes, by that of the last one if it
    /// can.
    fn to_fit(&self, vms: &[&TimedVm], saturation: &Saturation, most: u64) -> String {
        let all = format!(
            "lower them, and `max` where `adjust` has one, until they are at most {most} lines in {} together",
            saturation.period
        );
        let Some((last, others)) = vms.split_last() else { return all };
        // As the analysis counts: a budget may be spent in one burst, and a compensated one may be
        // that of its whole window.
        let counted = |vm: &TimedVm| {
            let bandwidth = vm.memory_budget.as_ref()?;
            let (_, budget, period) = bandwidth.settable_refills()?;
            let periods = saturation.period.0.div_ceil(period.0.max(1));
            let times = periods.saturating_mul(bandwidth.window.unwrap_or(1).into());
            let overshoot = self.timing.overshoot(vm, period).filter(|_| !bandwidth.rules.debt);
            let beyond = overshoot.unwrap_or_default().saturating_mul(vm.cpus.len().max(1) as u64);
            Some((budget, times, beyond.saturating_mul(periods).0))
        };
        let of_others = others.iter().filter_map(|vm| counted(vm));
        let taken = of_others.fold(0_u64, |sum, (budget, times, beyond)| {
            sum.saturating_add(budget.saturating_mul(times)).saturating_add(beyond)
        });
        let (Some((_, times, beyond)), Some(bandwidth)) = (counted(last), &last.memory_budget)
        else {
            return all;
        };
        let whole = most.saturating_sub(taken).saturating_sub(beyond) / times.max(1);
        let room = whole / bandwidth.rules.share.max(1);
        if room == 0 || whole < last.cpus.len() as u64 {
            return all;
        }
        let adjust = bandwidth.rules.adjust.as_ref().map_or("", |_| ", also for `max` of `adjust`");
        format!("write at most {room}{adjust}")
    }
}

/// The diagnostic of a budget that cannot be enforced.
struct Unkept {
    code: Code,
    place: Place,
    message: String,
    help: String,
}

/// Why period and budget are some of those that were measured not to be kept, if they are.
fn unkept(
    saturation: &Saturation,
    vm: &TimedVm,
    bandwidth: &MemoryBudget,
    events: &[Event],
) -> Option<Unkept> {
    let (_, period) = bandwidth.budget?;
    let places = &bandwidth.rules.places;
    let least = saturation.min_period;
    if period < least {
        let message = format!(
            "the period of {period} is shorter than the `min_period` of [saturation] ({least})"
        );
        let help = format!("write a period of at least \"{least}\"");
        let (code, place) = (Code::BudgetPeriodShort, places.period.clone());
        return Some(Unkept { code, place, message, help });
    }
    if bandwidth.rules.debt {
        return None;
    }
    // Each against its own counter, and what overshoots is a vCPU: its part must be enough.
    let rules = &bandwidth.rules;
    let share = |budget: u64| budget.saturating_mul(rules.share);
    let enough = bandwidth.least_whole(saturation.min_accesses, vm.cpus.len());
    let reads = rules.reads.filter(|_| events[0].is_traffic());
    for (budget, place) in [(reads, &places.budget), (rules.writes, &places.writes)] {
        let Some(written) = budget else { continue };
        let least = rules.adjust.as_ref().map_or(written, |adjust| adjust.min.min(written));
        if share(least) >= enough {
            continue;
        }
        let (set, key, place) = match &rules.adjust {
            Some(adjust) if least < written => {
                ("an adjustable budget", " for `min`", Place(adjust.place.clone()))
            }
            _ => ("a budget", "", place.clone()),
        };
        let message = format!(
            "vm `{}`: {set} of {least} gives a vCPU less than the `min_accesses` of [saturation] ({})",
            vm.name, saturation.min_accesses
        );
        let help = format!("write at least {}{key}", enough.div_ceil(rules.share.max(1)));
        return Some(Unkept { code: Code::BudgetTooSmall, place, message, help });
    }
    None
}

/// The diagnostic of a `poll` that is coarser than the platform's, at which the overshoot of
/// `[saturation]` was measured.
fn coarse_poll(platform: &Platform, vm: &TimedVm, bandwidth: &MemoryBudget) -> Option<Unkept> {
    let poll = bandwidth.rules.poll.as_ref()?;
    let most = platform.counters.counter_page.as_ref()?.poll;
    if poll.value <= most {
        return None;
    }
    let message = format!(
        "vm `{}`: poll = \"{}\" is coarser than the {most} at which [saturation] was measured",
        vm.name, poll.value
    );
    let help = format!("write at most \"{most}\"");
    Some(Unkept { code: Code::BudgetPoll, place: Place(poll.span.clone()), message, help })
}

/// The core of each vCPU.
fn cores(vm: &TimedVm) -> Vec<u8> {
    vm.cpus.iter().take(MAX_CORES).map(|core| *core as u8).collect()
}

/// What the budgets of a VM count.
fn events(bandwidth: &MemoryBudget) -> Vec<Event> {
    let rules = &bandwidth.rules;
    let first = rules.event.as_ref().map_or(Event::L2dRefill, |event| event.value);
    if rules.writes.is_some() { vec![first, Event::L2dWriteback] } else { vec![first] }
}
