//! The counter that enforces a budget, and how EL2 polls the counter page.

use crate::counters::CounterEvent;
use crate::keys::memory_budget::{MemoryBudget as Keys, Source};
use crate::platform::Counters;
use crate::system::System;
use crate::timing::memory_budget::MemoryBudget;
use crate::vm::Vm;
use weir_abi::regulation;
use weir_units::{Events, Nanos};

/// The shortest polling interval: a shorter one leaves a vCPU hardly any time.
const LEAST_POLL: Nanos = Nanos(500);

impl System {
    /// Returns how EL2 polls the counter page for the budget of each vCPU of `vm`, in periods of
    /// `period`; none if the PMU counts, if nothing counts, or if the file names no platform.
    #[must_use]
    pub fn polling(&self, vm: &Vm, period: Nanos) -> Option<Polling> {
        let counters = &self.platform.as_ref()?.counters;
        let events = vm.memory_budget.as_ref().map_or(vec![CounterEvent::L2dRefill], events);
        let rules = vm.memory_budget.as_ref().map(|bandwidth| &bandwidth.keys);
        counting_source(counters, rules, &events, period)?.polling
    }

    /// Returns an upper bound on the accesses that a vCPU of `vm` makes between the end of its
    /// budget, in periods of `period`, and its stop: with a counter page, the most that a core can
    /// make between two polls, else the measured value of `[saturation]`. None if it is unknown.
    #[must_use]
    pub fn overshoot(&self, vm: &Vm, period: Nanos) -> Option<Events> {
        let bound = self.polling(vm, period).map(|polling| polling.between());
        bound.max(self.measured_overshoot())
    }

    /// Returns the measured or assumed number of accesses between the end of a budget and the stop:
    /// that of `[saturation]`, or else that of the platform's `[interference]`.
    #[must_use]
    pub fn measured_overshoot(&self) -> Option<Events> {
        let own = self.saturation.as_ref().and_then(|saturation| saturation.overshoot);
        let platform = self.platform.as_ref().and_then(|platform| platform.interference.as_ref());
        own.or_else(|| platform?.overshoot)
    }
}

/// The chosen counter, its shortest period, and for a counter page how it is polled.
pub(super) struct Chosen {
    pub(super) source: u8,
    pub(super) min_period: Nanos,
    pub(super) polling: Option<Polling>,
}

impl Chosen {
    /// Returns whether the counter is `source`.
    pub(super) fn is(&self, source: Source) -> bool {
        source == if self.source == regulation::PMU { Source::Pmu } else { Source::CounterPage }
    }
}

/// How EL2 polls the counter page for a vCPU's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polling {
    /// The least time between two polls within a period.
    pub every: Nanos,
    /// Upper bound on the time that a poll takes from the core.
    pub cost: Nanos,
    /// The least time of an instruction.
    pub(super) access: Nanos,
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
        regulation::most_events(time.0, self.access.0)
    }

    /// Upper bound on the polling overhead in a period of a vCPU that spends its budget: a poll per
    /// [`every`](Self::every), and the poll at the start of the period, which takes less than two
    /// others.
    #[must_use]
    pub fn taken(&self, period: Nanos) -> Nanos {
        let polls = period.0.div_ceil(self.every.0.max(1)).saturating_add(2);
        Nanos(polls.saturating_mul(self.cost.0).min(period.0))
    }

    /// Returns the part of `accesses` per period that `cores` can make under the polling overhead,
    /// limited by the rate of the cores.
    #[must_use]
    pub fn beside(&self, accesses: u64, period: Nanos, cores: u64) -> u64 {
        let time = period.0 - self.taken(period).0;
        let part = u128::from(accesses) * u128::from(time) / u128::from(period.0.max(1));
        let most = self.most_in(Nanos(time)).saturating_mul(cores);
        u64::try_from(part).unwrap_or(u64::MAX).min(if time == 0 { 0 } else { most })
    }

    /// Returns the least number of accesses of which `cores` can make `accesses` under the polling
    /// overhead ([`beside`](Self::beside)); none if the overhead leaves no time.
    #[must_use]
    pub fn enough(&self, accesses: u64, period: Nanos, cores: u64) -> Option<u64> {
        let time = period.0 - self.taken(period).0;
        let whole = (u128::from(accesses) * u128::from(period.0)).div_ceil(time.max(1).into());
        let whole = u64::try_from(whole).ok()?;
        (self.beside(whole, period, cores) >= accesses).then_some(whole)
    }

    /// Returns the least permitted value of `poll`.
    pub(super) fn least(&self) -> Nanos {
        LEAST_POLL.max(Nanos(self.cost.0.saturating_add(1)))
    }

    /// Returns the least time between two polls while `left` accesses of the budget are left: the
    /// core needs at least this time to spend them. At most `period`, because there is always a
    /// poll at the end of a period.
    #[must_use]
    pub fn apart(&self, left: u64, period: Nanos) -> Nanos {
        self.every.max(period.min(Nanos(regulation::least_time(left, self.access.0))))
    }
}

/// Returns the counters of a platform that can stop a vCPU at its budget in periods of `period`,
/// with their events: the PMU before the counter page.
pub(super) fn sources<'a>(
    counters: &'a Counters,
    rules: Option<&Keys>,
    period: Nanos,
) -> impl Iterator<Item = (&'a [CounterEvent], Chosen)> {
    let requested = rules.and_then(|rules| rules.poll.as_ref()).map(|poll| poll.value);
    let pmu = counters.pmu.as_ref().filter(|pmu| !pmu.intids.is_empty()).map(|pmu| {
        let chosen = Chosen { source: regulation::PMU, min_period: pmu.min_period, polling: None };
        (pmu.events.as_slice(), chosen)
    });
    let counter_page = counters.counter_page.as_ref().map(|page| {
        // Without the key `poll`, a period has several polls.
        let some = Nanos((period.0 / 8).max(regulation::LEAST_POLL_NS));
        let every = requested.unwrap_or(page.poll.value.min(some));
        let polling = Polling { every, cost: page.poll_overhead, access: page.access };
        let min_period = page.min_period;
        (
            page.events.as_slice(),
            Chosen { source: regulation::COUNTER_PAGE, min_period, polling: Some(polling) },
        )
    });
    [pmu, counter_page].into_iter().flatten()
}

/// Returns the first permitted counter that counts all of `events`, if there is one.
pub(super) fn counting_source(
    counters: &Counters,
    rules: Option<&Keys>,
    events: &[CounterEvent],
    period: Nanos,
) -> Option<Chosen> {
    let requested = rules.and_then(|rules| rules.source.as_ref()).map(|source| source.value);
    let mut can = sources(counters, rules, period)
        .filter(|(_, chosen)| requested.is_none_or(|requested| chosen.is(requested)))
        .filter(|(can, _)| events.iter().all(|event| can.contains(event)));
    can.next().map(|(_, chosen)| chosen)
}

/// Returns the events that the budgets of a VM count.
pub(super) fn events(bandwidth: &MemoryBudget) -> Vec<CounterEvent> {
    let rules = &bandwidth.keys;
    let first = rules.event.as_ref().map_or(CounterEvent::L2dRefill, |event| event.value);
    if rules.writes.is_some() { vec![first, CounterEvent::L2dWriteback] } else { vec![first] }
}
