//! The check that a counter of the platform can enforce a budget, and of the key `poll`.

use super::checker::Checker;
use super::counter::{Chosen, counting_source, sources};
use crate::counters::{CounterEvent, instead};
use crate::diagnostics::Code;
use crate::fault::FilePlace;
use crate::keys::memory_budget::Source;
use crate::platform::Platform;
use crate::timing::memory_budget::MemoryBudget;
use crate::vm::Vm;
use weir_abi::regulation;
use weir_units::Nanos;

impl Checker<'_> {
    /// Returns the counter of a VM's `events`, or reports why there is none.
    pub(super) fn source(
        &mut self,
        platform: &Platform,
        vm: &Vm,
        bandwidth: &MemoryBudget,
        events: &[CounterEvent],
    ) -> Option<Chosen> {
        let rules = &bandwidth.keys;
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
                Some(Source::Pmu) => format!("the PMU of {platform} does not count"),
                Some(Source::CounterPage) => {
                    format!("the counter page of {platform} does not count")
                }
                None => {
                    format!("no counter of {platform} that can stop a vCPU counts")
                }
            };
            let message = format!("{vm}: {source} `{}`", missing.name());
            let place = rules.event.as_ref().map(|event| event.span.clone());
            let place = place.or(rules.source.as_ref().map(|source| source.span.clone()));
            let place = place.map_or(bandwidth.place.clone(), FilePlace);
            let other = |requested| {
                let mut others = sources().filter(|(_, chosen)| !chosen.is(requested));
                others.any(|(can, _)| events.iter().all(|event| can.contains(event)))
            };
            let help = match requested {
                Some(Source::Pmu) if other(Source::Pmu) => {
                    format!("leave `source` out: the counter page of {platform} counts it")
                }
                Some(Source::CounterPage) if other(Source::CounterPage) => {
                    format!("leave `source` out: the PMU of {platform} counts it")
                }
                // The events of two budgets cannot be chosen.
                _ if rules.writes.is_some() => {
                    let known = if counted.contains(&CounterEvent::L2dRefill) {
                        "`accesses` alone, which counts refills"
                    } else {
                        "`accesses` and `event`"
                    };
                    format!("nothing on {platform} counts reads and writes: write {known}")
                }
                _ if !counted.is_empty() => instead(*missing, &counted),
                Some(Source::CounterPage) if counters.counter_page.is_none() => {
                    format!("{platform} has no counter page: leave `source` out")
                }
                Some(Source::Pmu) if counters.pmu.is_none() => {
                    format!("{platform} has no PMU that weir knows of: leave `source` out")
                }
                _ => format!("nothing on {platform} can stop a vCPU: remove `memory_budget`"),
            };
            self.fault(Code::BudgetEvent, &place, message, help);
            return None;
        };
        if let Some(poll) = &rules.poll {
            // Without a budget, the period is not known.
            let period = bandwidth.budget.map_or(Nanos(u64::MAX), |(_, period)| period);
            let place = FilePlace(poll.span.clone());
            if found.source == regulation::PMU {
                let message =
                    format!("{vm}: `poll` has no effect, because the PMU counts the memory budget");
                self.fault(Code::BudgetPoll, &place, message, "leave `poll` out");
            } else if let Some(polling) = found.polling
                && (poll.value < polling.least() || poll.value > period)
            {
                let least = polling.least();
                let message = if poll.value < least {
                    format!(
                        "{vm}: poll = \"{}\" is shorter than a poll can be ({least})",
                        poll.value
                    )
                } else {
                    format!("{vm}: poll = \"{}\" is longer than the period ({period})", poll.value)
                };
                // A measured table holds only for polls that are as frequent as in the measurement.
                let own = counters.counter_page.as_ref().map(|page| page.poll.value);
                let own = own.filter(|_| self.saturation().is_some()).unwrap_or(period);
                let most =
                    if own < period { format!("\"{own}\"") } else { "the period".to_owned() };
                let help = format!(
                    "write at least \"{least}\", as a poll takes {}, and at most {most}",
                    polling.cost
                );
                self.fault(Code::BudgetPoll, &place, message, help);
            } else if self.saturation().is_some()
                && let Some(rare) = self.coarse_poll(platform, vm, bandwidth)
            {
                self.faults.push(rare);
            }
        }
        Some(found)
    }
}
