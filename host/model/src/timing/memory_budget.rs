//! The key `memory_budget` of a VM: the required bandwidth, and how its budget is enforced.

use crate::counters::CounterEvent;
use crate::diagnostics::Code;
use crate::document::Reader;
use crate::fault::FilePlace;
use crate::keys::memory_budget::MemoryBudget as Keys;
use crate::keys::memory_budget::{Phase, Regulator, Scope, Split};
use crate::table::At;
use weir_units::{BytesPerSec, Nanos};

/// A VM's memory bandwidth.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    /// What it must get.
    pub required: Option<BytesPerSec>,
    /// Accesses of all its vCPUs in each period, and the period. With two budgets the reads, or
    /// else the writes.
    pub budget: Option<(u64, Nanos)>,
    /// Periods between two resets of a compensating regulator; none for a static one.
    pub window: Option<u32>,
    /// How many have what the file writes: the vCPUs where each has it, else one.
    pub(crate) share: u64,
    /// Its keys.
    pub(crate) keys: Keys,
    /// The table.
    pub place: FilePlace,
}

impl MemoryBudget {
    /// Returns the keys that give a VM of `vcpus` a budget of refills, for all its vCPUs,
    /// in addition to what it has `asked`.
    #[must_use]
    pub fn with_budget(
        asked: Option<&Self>,
        vcpus: usize,
        (accesses, period): (u64, Nanos),
    ) -> Self {
        let mut bandwidth = asked.cloned().unwrap_or_else(|| Self {
            required: None,
            budget: None,
            window: None,
            share: 1,
            keys: Keys::default(),
            place: FilePlace::default(),
        });
        bandwidth.share = if bandwidth.is_each() { vcpus.max(1) as u64 } else { 1 };
        let each = At { value: accesses / bandwidth.share, span: 0..0 };
        (bandwidth.keys.accesses, bandwidth.keys.reads) = (Some(each), None);
        bandwidth.budget = Some((accesses, period));
        bandwidth
    }

    /// The budget, if it limits the lines that are brought into the cache: nothing else does, and
    /// what saturates the memory is measured in these.
    #[must_use]
    pub fn refills(&self) -> Option<(u64, Nanos)> {
        let event = self.event().unwrap_or(CounterEvent::L2dRefill);
        self.budget.filter(|_| self.keys.amount().is_some() && event == CounterEvent::L2dRefill)
    }

    /// The least and the greatest values of this budget at run time, and the period.
    #[must_use]
    pub fn settable_refills(&self) -> Option<(u64, u64, Nanos)> {
        let (budget, period) = self.refills()?;
        let whole = |each: u64| each.saturating_mul(self.share);
        let (least, most) = match &self.keys.adjust {
            Some(adjust) => (whole(adjust.min).min(budget), whole(adjust.max).max(budget)),
            None => (budget, budget),
        };
        Some((least, most, period))
    }

    /// The VM that may change the budget at run time.
    #[must_use]
    pub fn setter(&self) -> Option<&str> {
        Some(&self.keys.adjust.as_ref()?.by.value)
    }

    /// Whether each vCPU has the budget for itself.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.keys.scope == Scope::Vcpu
    }

    /// Whether what is counted beyond a budget is taken off the next.
    #[must_use]
    pub fn has_debt(&self) -> bool {
        self.keys.debt
    }

    /// The least budget of a VM of `vcpus` of which each vCPU has `part` at least.
    #[must_use]
    pub fn least_whole(&self, part: u64, vcpus: usize) -> u64 {
        let (least, all) = self.least_weight(vcpus);
        let whole = u128::from(part).saturating_mul(all).div_ceil(u128::from(least));
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// The least part that a vCPU of a VM of `vcpus` has of `whole`.
    #[must_use]
    pub fn least_part(&self, whole: u64, vcpus: usize) -> u64 {
        let (least, all) = self.least_weight(vcpus);
        u64::try_from(u128::from(whole) * u128::from(least) / all).unwrap_or(u64::MAX)
    }

    /// The least weight of a vCPU that has one, and their sum.
    fn least_weight(&self, vcpus: usize) -> (u64, u128) {
        let Split::Weights(weights) = self.keys.split() else { return (1, vcpus.max(1) as u128) };
        let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let least = weights.iter().copied().filter(|weight| *weight > 0).min().unwrap_or(1);
        (least.into(), all.max(1))
    }

    /// Whether it has a budget of writes, with or without one of reads.
    #[must_use]
    pub fn limits_writes(&self) -> bool {
        self.keys.writes.is_some()
    }

    /// The budget of writes, in the same period.
    #[must_use]
    pub fn writes(&self) -> Option<u64> {
        self.keys.writes.as_ref().map(|writes| writes.value)
    }

    /// Whether the VM's vCPUs draw from one pool.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        *self.keys.split() == Split::Pool
    }

    /// Whether the VM is in MemGuard's domain.
    #[must_use]
    pub fn is_memguard(&self) -> bool {
        self.keys.regulator == Regulator::Memguard
    }

    /// Whether each vCPU has a part of the budget that stays its own and alone stops it.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.is_pool() && !self.is_memguard() && !self.limits_writes()
    }

    /// Whether it runs without a limit once all of MemGuard's domain have spent their budgets.
    #[must_use]
    pub fn spares(&self) -> bool {
        self.keys.spare.as_ref().is_some_and(|spare| spare.value)
    }

    /// Whether the periods of the cores begin one after the other.
    pub(crate) fn is_staggered(&self) -> bool {
        self.keys.phase.as_ref().is_some_and(|phase| phase.value == Phase::Staggered)
    }

    /// The VM with the unused budget that comes on top.
    #[must_use]
    pub fn critical(&self) -> Option<&str> {
        self.keys.critical.as_ref().map(|critical| critical.value.as_str())
    }

    /// The counted event, if the file sets it.
    #[must_use]
    pub fn event(&self) -> Option<CounterEvent> {
        self.keys.event.as_ref().map(|event| event.value)
    }

    /// Whether the file sets the counter.
    #[must_use]
    pub fn names_source(&self) -> bool {
        self.keys.source.is_some()
    }

    /// Whether the file bears that all budgets together exceed what the memory takes.
    #[must_use]
    pub fn overcommits(&self) -> bool {
        self.keys.overcommit
    }
}

impl Keys {
    /// `accesses`, or `reads`.
    pub(crate) fn amount(&self) -> Option<&At<u64>> {
        self.accesses.as_ref().or(self.reads.as_ref())
    }

    pub(crate) fn split(&self) -> &Split {
        self.split.as_ref().map_or(&Split::Even, |split| &split.value)
    }
}

impl MemoryBudget {
    /// The place of a key, or else that of the table.
    pub(crate) fn place_of<T>(&self, key: Option<&At<T>>) -> FilePlace {
        key.map_or_else(|| self.place.clone(), |key| FilePlace(key.span.clone()))
    }

    /// The place of `accesses`, or `reads`, or else `writes`.
    pub(crate) fn budget_place(&self) -> FilePlace {
        self.place_of(self.keys.amount().or(self.keys.writes.as_ref()))
    }

    /// Reads the table of the VM that messages call `vm`, which has `vcpus` vCPUs as far as the
    /// file states.
    pub(crate) fn read(
        At { value: keys, span }: &At<Keys>,
        vm: &str,
        vcpus: usize,
        reader: &mut Reader<'_>,
    ) -> Self {
        let Keys { accesses, reads, writes, period, split, regulator, .. } = keys;
        let mut wrong = |code, place, what: &str, help: &str| {
            reader.fault(code, place, format!("{vm}: the memory budget has {what}"), help);
        };
        let two = reads.as_ref().or(writes.as_ref()).is_some();
        if let (Some(accesses), true) = (accesses, two) {
            let what = "`accesses` together with `reads` or `writes`";
            let help = "write accesses = ..., or reads = ... and writes = ...";
            wrong(Code::KeyConflict, &accesses.span, what, help);
        }
        if let (Some(event), true) = (&keys.event, two) {
            let what = "`event` together with `reads` or `writes`";
            let help = "remove `event`: `reads` and `writes` count l2d-refill and l2d-writeback";
            wrong(Code::KeyConflict, &event.span, what, help);
        }
        let has_budget = two || accesses.is_some();
        if !has_budget && period.is_none() && keys.required.is_none() {
            let help = "write accesses = 4000, period = \"1ms\"; or required = \"100MB/s\"";
            wrong(Code::KeyConflict, span, "no key", help);
        }
        if has_budget != period.is_some() {
            let help = "write both, like accesses = 4000, period = \"1ms\"; or required = \
                        \"100MB/s\" alone";
            wrong(Code::KeyConflict, span, "only one of `accesses` and `period`", help);
        }
        let compensation = *regulator == Regulator::Compensation;
        if compensation != keys.window.is_some() {
            let what = if compensation {
                "regulator \"compensation\" without `window`"
            } else {
                "`window` without regulator \"compensation\""
            };
            let help = "write both: regulator = \"compensation\", window = 10";
            wrong(Code::KeyConflict, span, what, help);
        }
        if let Some(spare) = keys.spare.as_ref().filter(|_| *regulator != Regulator::Memguard) {
            let help = "add regulator = \"memguard\", or leave `spare` out";
            wrong(Code::KeyConflict, &spare.span, "`spare` without regulator \"memguard\"", help);
        }
        if let Some(critical) = keys.critical.as_ref().filter(|_| !compensation) {
            let help = "add regulator = \"compensation\", or leave `critical` out";
            let what = "`critical` without regulator \"compensation\"";
            wrong(Code::CompensationCritical, &critical.span, what, help);
        }
        let each = keys.scope == Scope::Vcpu;
        if let Some(split) = split {
            if each && split.value != Split::Even {
                let help = "write scope = \"vm\", or remove `split`";
                wrong(Code::BudgetSplit, &split.span, "`split` with scope = \"vcpu\"", help);
            }
            if split.value == Split::Pool && *regulator != Regulator::Static {
                let help = "remove `split` or `regulator`: a pool is a regulator";
                let what = "split = \"pool\" with another regulator";
                wrong(Code::BudgetSplit, &split.span, what, help);
            }
        }
        if let Some(adjust) = keys.adjust.as_ref().filter(|adjust| adjust.min > adjust.max) {
            let what = format!("a `min` greater than `max` ({} > {})", adjust.min, adjust.max);
            let help = "write a `max` of at least `min`";
            wrong(Code::BudgetAdjust, &adjust.span, &what, help);
        }
        let share = if each { vcpus.max(1) as u64 } else { 1 };
        let total = keys.amount().or(writes.as_ref()).zip(period.as_ref());
        let total = total.map(|(budget, period)| (budget.saturating_mul(share), period.value));
        Self {
            required: keys.required,
            budget: total,
            // What is no window has been refused.
            window: compensation.then(|| keys.window.unwrap_or(1)),
            share,
            keys: keys.clone(),
            place: FilePlace(span.clone()),
        }
    }
}
