//! The key `memory_budget` of a VM: the required bandwidth, and how its budget is enforced.

use crate::counters::Event;
use crate::diagnostics::Code;
use crate::document::{At, Reader, Values, number, place, place_of};
use crate::fault::Place;
use std::ops::Range;
use toml::de::DeTable;
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
    /// How the budget is enforced.
    pub(crate) rules: Rules,
    /// The table.
    pub place: Place,
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
            rules: Rules::default(),
            place: Place::default(),
        });
        bandwidth.rules.share = if bandwidth.rules.each { vcpus.max(1) as u64 } else { 1 };
        bandwidth.rules.reads = Some(accesses / bandwidth.rules.share);
        bandwidth.budget = Some((accesses, period));
        bandwidth
    }

    /// The budget, if it limits the lines that are brought into the cache: nothing else does, and
    /// what saturates the memory is measured in these.
    #[must_use]
    pub fn refills(&self) -> Option<(u64, Nanos)> {
        let event = self.rules.event.as_ref().map_or(Event::L2dRefill, |event| event.value);
        self.budget.filter(|_| self.rules.reads.is_some() && event == Event::L2dRefill)
    }

    /// The least and the greatest values of this budget at run time, and the period.
    #[must_use]
    pub fn settable_refills(&self) -> Option<(u64, u64, Nanos)> {
        let (budget, period) = self.refills()?;
        let whole = |each: u64| each.saturating_mul(self.rules.share);
        let (least, most) = match &self.rules.adjust {
            Some(adjust) => (whole(adjust.min).min(budget), whole(adjust.max).max(budget)),
            None => (budget, budget),
        };
        Some((least, most, period))
    }

    /// The VM that may change the budget at run time.
    #[must_use]
    pub fn setter(&self) -> Option<&str> {
        self.rules.adjust.as_ref().map(|adjust| adjust.by.value.as_str())
    }

    /// Whether each vCPU has the budget for itself.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.rules.each
    }

    /// Whether what is counted beyond a budget is taken off the next.
    #[must_use]
    pub fn has_debt(&self) -> bool {
        self.rules.debt
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
        let Split::Weights(weights) = &self.rules.split else { return (1, vcpus.max(1) as u128) };
        let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let least = weights.iter().copied().filter(|weight| *weight > 0).min().unwrap_or(1);
        (least, all.max(1))
    }

    /// Whether it has a budget of writes, with or without one of reads.
    #[must_use]
    pub fn limits_writes(&self) -> bool {
        self.rules.writes.is_some()
    }

    /// The budget of writes, in the same period.
    #[must_use]
    pub fn writes(&self) -> Option<u64> {
        self.rules.writes
    }

    /// Whether the VM's vCPUs draw from one pool.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        self.rules.split == Split::Pool
    }

    /// Whether the VM is in MemGuard's domain.
    #[must_use]
    pub fn is_memguard(&self) -> bool {
        self.rules.regulator == Regulator::Memguard
    }

    /// Whether each vCPU has a part of the budget that stays its own and alone stops it.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.is_pool() && !self.is_memguard() && !self.limits_writes()
    }

    /// Whether it runs without a limit once all of MemGuard's domain have spent their budgets.
    #[must_use]
    pub fn spares(&self) -> bool {
        self.rules.spare
    }

    /// The VM whose unused budget comes on top.
    #[must_use]
    pub fn critical(&self) -> Option<&str> {
        self.rules.critical.as_ref().map(|critical| critical.value.as_str())
    }

    /// The counted event, if the file sets it.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        self.rules.event.as_ref().map(|event| event.value)
    }

    /// Whether the file sets the counter.
    #[must_use]
    pub fn names_source(&self) -> bool {
        self.rules.source.is_some()
    }

    /// Whether the file bears that all budgets together exceed what the memory takes.
    #[must_use]
    pub fn overcommits(&self) -> bool {
        self.rules.overcommit
    }
}

/// How a budget is enforced.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file, and any combination of them is one"
)]
pub(crate) struct Rules {
    /// What is counted; without it what the platform counts of memory traffic.
    pub event: Option<At<Event>>,
    /// Accesses in each period: of a vCPU or of the VM, by `scope`; reads if there are two budgets.
    pub reads: Option<u64>,
    /// Writes in each period.
    pub writes: Option<u64>,
    /// Whether each vCPU has the budget for itself.
    pub each: bool,
    /// How many have what the file writes: the vCPUs where each has it, else one.
    pub share: u64,
    /// How the VM's vCPUs share it.
    pub split: Split,
    /// How it is spent.
    pub regulator: Regulator,
    /// compensation: the VM that leaves its unused budget.
    pub critical: Option<At<String>>,
    /// memguard: whether all run without a limit once all have spent their budgets.
    pub spare: bool,
    /// Whether what is counted beyond a budget is taken off the next.
    pub debt: bool,
    /// The counter; without it the first that counts the event.
    pub source: Option<At<Source>>,
    /// Time between two polls of a counter page.
    pub poll: Option<At<Nanos>>,
    /// Whether the periods of the cores begin one after the other.
    pub staggered: bool,
    /// Whether all budgets together may exceed what the memory takes.
    pub overcommit: bool,
    /// The VM that may change the budget at run time.
    pub adjust: Option<Adjust>,
    /// The keys that others judge.
    pub places: Places,
}

/// The value for an empty table.
impl Default for Rules {
    fn default() -> Self {
        Self {
            event: None,
            reads: None,
            writes: None,
            each: false,
            share: 1,
            split: Split::default(),
            regulator: Regulator::default(),
            critical: None,
            spare: false,
            debt: true,
            source: None,
            poll: None,
            staggered: false,
            overcommit: false,
            adjust: None,
            places: Places::default(),
        }
    }
}

/// Where keys are, or else the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// `accesses`, or `reads`.
    pub budget: Place,
    /// `period`.
    pub period: Place,
    /// `writes`.
    pub writes: Place,
    /// `split`.
    pub split: Place,
    /// `phase`.
    pub phase: Place,
    /// `spare`.
    pub spare: Place,
}

/// How the vCPUs of a VM share its budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each the same.
    #[default]
    Even,
    /// A vCPU takes slices as it needs them.
    Pool,
    /// By a weight for each vCPU.
    Weights(Vec<u64>),
}

/// How a budget is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Regulator {
    /// The same in each period.
    #[default]
    Static,
    /// Prediction, donation and reclaim among all VMs with this regulator.
    Memguard,
    /// What a critical VM left in earlier periods of a window comes on top.
    Compensation,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The core's PMU.
    Pmu,
    /// The platform's counter page.
    CounterPage,
}

/// The right to change a budget while the system runs.
#[derive(Clone, Debug)]
pub(crate) struct Adjust {
    /// The VM that may.
    pub by: At<String>,
    /// The least budget that it may set.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// The table.
    pub place: Range<usize>,
}

impl Reader<'_> {
    /// Reads the table of the VM called `vm`, which has `vcpus` vCPUs as far as the file states.
    pub(super) fn bandwidth(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
        vcpus: usize,
    ) -> MemoryBudget {
        let owner = format!("the memory budget of vm `{vm}`");
        let period = self.time(table, "period", &owner);
        let (reads, writes) = self.amounts(table, span, &owner);
        let choice =
            |key: &str, value: &str| table.text(key).is_some_and(|text| text.value == value);
        let regulator = match table.text("regulator").as_ref().map(|text| text.value.as_str()) {
            Some("memguard") => Regulator::Memguard,
            Some("compensation") => Regulator::Compensation,
            _ => Regulator::Static,
        };
        let compensation = regulator == Regulator::Compensation;
        let window = table.number("window");
        if compensation != table.contains_key("window") {
            let message = if compensation {
                format!("{owner}: regulator \"compensation\" requires the key `window`")
            } else {
                format!("{owner}: `window` without regulator \"compensation\"")
            };
            let help = "write both: regulator = \"compensation\", window = 10";
            self.fault(Code::CompensationWindow, span, message, help);
        }
        if let Some(spare) = table.value("spare").filter(|_| regulator != Regulator::Memguard) {
            let help = "add regulator = \"memguard\", or leave `spare` out";
            let message = format!("{owner}: `spare` without regulator \"memguard\"");
            self.fault(Code::BudgetSpare, &spare.span(), message, help);
        }
        if let Some(critical) = table.value("critical").filter(|_| !compensation) {
            let help = "add regulator = \"compensation\", or leave `critical` out";
            let message = format!("{owner}: `critical` without regulator \"compensation\"");
            self.fault(Code::CompensationCritical, &critical.span(), message, help);
        }
        let each = choice("scope", "vcpu");
        let split = split(table);
        let here = |key: &str| table.value(key).map_or(place(span), |value| place(&value.span()));
        let places = Places {
            budget: place_of(reads.as_ref().or(writes.as_ref()), span),
            period: place_of(period.as_ref(), span),
            writes: place_of(writes.as_ref(), span),
            split: here("split"),
            phase: here("phase"),
            spare: here("spare"),
        };
        if each && split != Split::Even {
            let help = "write scope = \"vm\", or remove `split`";
            self.fault(
                Code::BudgetSplit,
                &places.split.0,
                format!("{owner}: `split` with scope = \"vcpu\""),
                help,
            );
        }
        if split == Split::Pool && regulator != Regulator::Static {
            let help = "remove `split` or `regulator`: a pool is a regulator";
            let message = format!("{owner}: split = \"pool\" with another regulator");
            self.fault(Code::BudgetSplit, &places.split.0, message, help);
        }
        let share = if each { vcpus.max(1) as u64 } else { 1 };
        let total = reads.as_ref().or(writes.as_ref()).zip(period);
        MemoryBudget {
            required: self.rate(table, "required", &owner).map(|rate| rate.value),
            budget: total
                .map(|(budget, period)| (budget.value.saturating_mul(share), period.value)),
            // What is no window has been refused.
            window: window
                .filter(|_| compensation)
                .map(|window| u32::try_from(window.value).unwrap_or(u32::MAX).max(1)),
            rules: Rules {
                event: named(table, "event", Event::named),
                reads: reads.map(|reads| reads.value),
                writes: writes.map(|writes| writes.value),
                each,
                share,
                split,
                regulator,
                critical: table.text("critical"),
                spare: table.boolean("spare").unwrap_or(false),
                debt: table.boolean("debt").unwrap_or(true),
                source: named(table, "source", |name| match name {
                    "pmu" => Some(Source::Pmu),
                    "counter-page" => Some(Source::CounterPage),
                    _ => None,
                }),
                poll: self.time_if_there(table, "poll", &owner),
                staggered: choice("phase", "staggered"),
                overcommit: table.boolean("overcommit").unwrap_or(false),
                adjust: self.adjust(table, &owner),
                places,
            },
            place: place(span),
        }
    }

    /// How much: of accesses, or of reads, and of writes.
    fn amounts(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        owner: &str,
    ) -> (Option<At<u64>>, Option<At<u64>>) {
        let (accesses, reads) = (table.number("accesses"), table.number("reads"));
        let writes = table.number("writes");
        if let (Some(accesses), Some(_)) = (&accesses, reads.as_ref().or(writes.as_ref())) {
            let message = format!("{owner}: `accesses` together with `reads` or `writes`");
            let help = "write accesses = ..., or reads = ... and writes = ...";
            self.fault(Code::BudgetKeys, &accesses.span, message, help);
        }
        let two = reads.as_ref().or(writes.as_ref()).is_some();
        if let Some(event) = table.value("event").filter(|_| two) {
            let message = format!("{owner}: `event` together with `reads` or `writes`");
            let help = "remove `event`: `reads` and `writes` count l2d-refill and l2d-writeback";
            self.fault(Code::BudgetKeys, &event.span(), message, help);
        }
        let reads = accesses.or(reads);
        let written = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
        let has_budget = written(&["accesses", "reads", "writes"]);
        if !has_budget && !written(&["period", "required"]) {
            let help = "write accesses = 4000, period = \"1ms\"; or required = \"100MB/s\"; or leave it out";
            self.fault(Code::BudgetIncomplete, span, format!("{owner}: the table is empty"), help);
        }
        if has_budget != table.contains_key("period") {
            let help = "write both, like accesses = 4000, period = \"1ms\"; or required = \"100MB/s\" alone";
            let message = format!("{owner}: only one of `accesses` and `period`");
            self.fault(Code::BudgetIncomplete, span, message, help);
        }
        (reads, writes)
    }

    fn time_if_there(&mut self, table: &DeTable<'_>, key: &str, owner: &str) -> Option<At<Nanos>> {
        table.contains_key(key).then(|| self.time(table, key, owner)).flatten()
    }

    fn adjust(&mut self, table: &DeTable<'_>, owner: &str) -> Option<Adjust> {
        let (adjust, span) = table.inner("adjust")?;
        let (min, max) = (adjust.number("min")?.value, adjust.number("max")?.value);
        if min > max {
            let message = format!("{owner}: `min` is greater than `max` ({min} > {max})");
            self.fault(Code::BudgetAdjust, &span, message, "write a `max` of at least `min`");
        }
        Some(Adjust { by: adjust.text("by")?, min, max, place: span })
    }
}

fn split(table: &DeTable<'_>) -> Split {
    if let Some(weights) = table.list("split", number) {
        return Split::Weights(weights.value.iter().map(|weight| weight.value).collect());
    }
    match table.text("split") {
        Some(text) if text.value == "pool" => Split::Pool,
        _ => Split::Even,
    }
}

fn named<T>(table: &DeTable<'_>, key: &str, find: impl Fn(&str) -> Option<T>) -> Option<At<T>> {
    let At { value, span } = table.text(key)?;
    Some(At { value: find(&value)?, span })
}
