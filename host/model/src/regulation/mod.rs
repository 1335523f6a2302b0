//! From the key `memory_budget` of each VM to what EL2 enforces: the counter, whether the platform
//! has it, and whether the sum of all budgets is below saturation.

mod checker;
mod counter;
mod keys;
mod saturation;
mod shared;
mod source;

use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use crate::keys::memory_budget::{Regulator, Split};
use crate::system::System;
use crate::vm::Vm;
use checker::Checker;
pub use counter::Polling;
use counter::{Chosen, events};
use weir_abi::regulation;
use weir_abi::regulation::Regulation;
use weir_units::Nanos;

/// Returns how each VM is regulated, in the order of the file.
pub(crate) fn regulate(system: &System, faults: &mut Faults) -> Vec<Regulation> {
    let mut checker = Checker { system, cores: system.cores_needed(), faults };
    let all = checker.each();
    checker.sum();
    all
}

impl System {
    /// Checks whether the platform, if the file names it, can enforce the budget of each VM.
    ///
    /// # Errors
    ///
    /// A diagnostic for each budget that it cannot enforce.
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
        let last = self.guests().iter().flat_map(|vm| &vm.cpus).max();
        let cores = last.map_or(1, |last| usize::from(last.0) + 1);
        Checker { system: self, cores, faults }
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

impl Checker<'_> {
    /// Returns how each VM is regulated, in the order of the file.
    fn each(&mut self) -> Vec<Regulation> {
        let vms = self.system.guests().iter().enumerate();
        let sound = |(index, vm)| {
            let before = self.faults.0.len();
            let regulation = self.vm(index, vm);
            // The consequences of a reported error are not reported.
            if self.faults.0.len() == before { regulation } else { Regulation::default() }
        };
        let all: Vec<_> = vms.map(sound).collect();
        self.shared(&all);
        all
    }

    /// Returns how a VM is regulated.
    fn vm(&mut self, index: usize, vm: &Vm) -> Regulation {
        let none = Regulation::default();
        let Some(bandwidth) = &vm.memory_budget else { return none };
        let events = events(bandwidth);
        let rules = &bandwidth.keys;
        let chosen = if bandwidth.budget.is_some()
            || rules.event.is_some()
            || rules.source.is_some()
            || rules.poll.is_some()
        {
            let chosen = if let Some(platform) = &self.system.platform {
                self.source(platform, vm, bandwidth, &events)
            } else {
                // The remaining checks do not depend on the counter.
                let min_period = Nanos(0);
                Some(Chosen { source: regulation::PMU, min_period, polling: None })
            };
            let Some(chosen) = chosen else { return none };
            Some(chosen)
        } else {
            None
        };
        let weights = self.weights(vm, bandwidth);
        let critical = self.critical(index, vm, bandwidth);
        let (setter, least, most) = self.setter(vm, bandwidth);
        let staggered = bandwidth.is_staggered();
        if staggered && (rules.regulator != Regulator::Static || *rules.split() == Split::Pool) {
            let message = format!("{vm}: phase = \"staggered\" with a budget that cores share");
            let help = "leave `phase` out, or use the static regulator without a pool";
            self.fault(
                Code::BudgetStaggered,
                &bandwidth.place_of(rules.phase.as_ref()),
                message,
                help,
            );
        }
        // Without a budget there is only a demand, for which `weir plan` chooses a budget.
        let (Some((_, period)), Some(chosen)) = (bandwidth.budget, chosen) else { return none };
        if period < chosen.min_period {
            let least = chosen.min_period;
            let message = format!(
                "{vm}: period = \"{period}\" is shorter than the `min_period` of {} ({least})",
                self.platform_title()
            );
            let help = format!("write a period of at least \"{least}\"");
            self.fault(
                Code::BudgetPeriod,
                &bandwidth.place_of(bandwidth.keys.period.as_ref()),
                message,
                help,
            );
            return none;
        }
        if let Some(saturation) = self.saturation()
            && let Some(unkept) = self.unkept(&saturation, vm, bandwidth, &events)
        {
            self.faults.push(unkept);
            return none;
        }
        if period.0 > regulation::MOST_PERIOD_NS {
            let help = "write a period of at most 2199s";
            let message = format!("{vm}: period = \"{period}\" is too long (EL2 supports 2199s)");
            self.fault(
                Code::BudgetPeriod,
                &bandwidth.place_of(bandwidth.keys.period.as_ref()),
                message,
                help,
            );
            return none;
        }
        Regulation {
            period_ns: period.0,
            reads: rules.amount().map_or(u64::MAX, |reads| reads.value),
            writes: bandwidth.writes().unwrap_or(u64::MAX),
            poll_ns: chosen.polling.map_or(0, |polling| polling.every.0),
            access_ns: chosen.polling.map_or(0, |polling| polling.access.0),
            least,
            most,
            window: bandwidth.window.unwrap_or(0),
            events: [events[0].number(), events.get(1).map_or(0, |event| event.number())],
            weights,
            kind: match (rules.regulator, rules.split()) {
                (Regulator::Memguard, _) => regulation::MEMGUARD,
                (Regulator::Compensation, _) => regulation::COMPENSATION,
                (Regulator::Static, Split::Pool) => regulation::POOL,
                (Regulator::Static, _) => regulation::STATIC,
            },
            source: chosen.source,
            each: bandwidth.is_each().into(),
            staggered: staggered.into(),
            debt: rules.debt.into(),
            critical,
            setter,
            spare: bandwidth.spares().into(),
        }
    }
}
