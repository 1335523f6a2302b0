//! The checks that need the regulation of all VMs: each vCPU has a part of its budget, and VMs that
//! share a pool agree on period and events.

use super::checker::Checker;
use crate::diagnostics::Code;
use crate::fault::FilePlace;
use crate::object::Object;
use crate::vm::Vm;
use weir_abi::regulation::{NO_VM, Regulation};
use weir_abi::{MAX_CORES, regulation};
use weir_budget::Refused;
use weir_units::Nanos;

impl Checker<'_> {
    /// Checks the regulation of all VMs together.
    pub(super) fn shared(&mut self, all: &[Regulation]) {
        let cores: Vec<Vec<u8>> = self.system.guests().iter().map(cores).collect();
        let of = |index: usize| Some((all.get(index)?, cores.get(index)?.as_slice()));
        let mut domain: Option<(&Vm, &Regulation)> = None;
        for (index, (vm, regulation)) in self.system.guests().iter().zip(all).enumerate() {
            let Some(bandwidth) = vm.memory_budget.as_ref().filter(|_| regulation.is_on()) else {
                continue;
            };
            // A budget of 0 is refused where it is read, staggered periods at the key `phase`.
            let is_reported = |refused: &Refused| {
                *refused == Refused::Staggered || regulation.reads == 0 || regulation.writes == 0
            };
            let budget = bandwidth.budget_place();
            if let Some(refused) = self.refused(of, index).filter(|refused| !is_reported(refused)) {
                let message = format!("{vm}: this memory budget cannot be enforced");
                self.fault(Code::BudgetTooSmall, &budget, message, refused.to_string());
            }
            self.adjusted(index, all, &cores);
            let same = |other: &Regulation| {
                (other.source, other.events) == (regulation.source, regulation.events)
            };
            let critical = all.get(usize::from(regulation.critical));
            if regulation.kind == regulation::COMPENSATION
                && let Some(critical) = critical.filter(|critical| critical.is_on())
                && !same(critical)
            {
                let message = format!("{vm}: `event` or `source` is not that of its `critical` VM");
                let help = "write the same `event` and `source` for both";
                self.fault(Code::BudgetEvent, &budget, message, help);
            }
            if regulation.kind == regulation::COMPENSATION
                && let Some(critical) = self.system.guests().get(usize::from(regulation.critical))
                && let Some(its) = critical.memory_budget.as_ref().filter(|its| its.is_staggered())
                && critical.name != vm.name
            {
                let message = format!(
                    "{critical}: phase = \"staggered\", but it is the `critical` VM of {vm}"
                );
                let place = its.place_of(its.keys.phase.as_ref());
                self.fault(Code::BudgetStaggered, &place, message, "leave `phase` out");
            }
            if regulation.kind != regulation::MEMGUARD {
                continue;
            }
            match domain {
                Some((first, other)) if other.spare != regulation.spare => {
                    let (with, without) = if other.spare == 0 { (vm, first) } else { (first, vm) };
                    let message = format!(
                        "{with}: has `spare = true`, but {without} does not, so neither gets any"
                    );
                    let help = "write `spare = true` for all VMs with regulator = \"memguard\", or \
                                for none";
                    let place = bandwidth.place_of(bandwidth.keys.spare.as_ref());
                    self.fault(Code::MemguardSpare, &place, message, help);
                }
                Some((first, other)) if !same(other) => {
                    let message = format!(
                        "{vm}: shares the pool of MemGuard with {first}, but counts other events"
                    );
                    let help = "write the same `event` and `source` for all VMs with regulator = \
                                \"memguard\"";
                    self.fault(Code::BudgetEvent, &budget, message, help);
                }
                Some((first, other)) if other.period_ns != regulation.period_ns => {
                    let message = format!(
                        "{vm}: shares the pool of MemGuard with {first}, but has the period {}, \
                         not {}",
                        Nanos(regulation.period_ns),
                        Nanos(other.period_ns)
                    );
                    let help = "write the same period for all VMs with regulator = \"memguard\"";
                    let place = bandwidth.place_of(bandwidth.keys.period.as_ref());
                    self.fault(Code::BudgetPeriod, &place, message, help);
                }
                Some(_) => {}
                None => domain = Some((vm, regulation)),
            }
        }
    }

    /// Returns why VM `index` cannot be regulated if each VM has the regulation that `of` returns.
    fn refused<'r>(
        &self,
        of: impl Fn(usize) -> Option<(&'r Regulation, &'r [u8])> + Copy,
        index: usize,
    ) -> Option<Refused> {
        let vcpus = self.system.guests().get(index).map_or(0, |vm| vm.cpus.len());
        let mut settings =
            (0..vcpus).filter_map(|vcpu| regulation::setting(of, index, vcpu, self.cores));
        settings.find_map(|setting| setting.check().err())
    }

    /// Checks that VM `index` can be regulated with each budget that another VM may set.
    fn adjusted(&mut self, index: usize, all: &[Regulation], cores: &[Vec<u8>]) {
        let (Some(vm), Some(regulation)) = (self.system.guests().get(index), all.get(index)) else {
            return;
        };
        let bandwidth = vm.memory_budget.as_ref().filter(|_| regulation.setter != NO_VM);
        let Some(adjust) = bandwidth.and_then(|bandwidth| bandwidth.keys.adjust.as_ref()) else {
            return;
        };
        // A limit of 0 is refused where it is read.
        for limit in [regulation.least, regulation.most].into_iter().filter(|limit| *limit > 0) {
            let set = |budget: u64| if budget == u64::MAX { budget } else { limit };
            let (reads, writes) = (set(regulation.reads), set(regulation.writes));
            let changed = Regulation { reads, writes, ..*regulation };
            let of = |other: usize| {
                let its = if other == index { &changed } else { all.get(other)? };
                Some((its, cores.get(other)?.as_slice()))
            };
            let Some(refused) = self.refused(of, index) else { continue };
            let place = FilePlace(adjust.by.span.clone());
            let message = format!(
                "{}: may set the budget of {vm} to {limit}, which cannot be enforced",
                Object::vm(&adjust.by)
            );
            let help = format!("narrow `min` and `max`: {refused}");
            return self.fault(Code::BudgetAdjust, &place, message, help);
        }
    }
}

/// Returns the core of each vCPU.
fn cores(vm: &Vm) -> Vec<u8> {
    vm.cpus.iter().take(MAX_CORES).map(|core| core.0).collect()
}
