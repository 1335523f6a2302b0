//! The keys of a memory budget.

use crate::counters::CounterEvent;
use crate::shape::Kind;
use crate::table::{At, Table, Value, choice, table};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use weir_units::{BytesPerSec, Nanos};

/// `u64::MAX` is no limit, for a VM that is only counted.
const ACCESSES: Kind = Kind::Number(1, u64::MAX - 1);

table! {
    /// A VM's memory budget.
    pub(crate) struct MemoryBudget = "memory_budget" {
        /// The bandwidth that it must get: `weir plan` chooses the budget from it.
        required: Option<BytesPerSec> > 0,
        /// Accesses in each period.
        accesses: Option<At<u64>> as ACCESSES,
        /// Lines brought into the cache in each period; with or without `writes`.
        reads: Option<At<u64>> as ACCESSES,
        /// Lines written back in each period.
        writes: Option<At<u64>> as ACCESSES,
        /// The period.
        period: Option<At<Nanos>> > 0,
        /// The counted event. Default: "l2d-refill".
        event: Option<At<CounterEvent>>,
        /// The counter: the cores' PMUs, or the platform's counter page. Default: the first of them
        /// that counts the event.
        source: Option<At<Source>>,
        /// source counter-page: time between two polls.
        poll: Option<At<Nanos>> > 0,
        /// Whether the budget is the VM's or each vCPU's.
        scope: Scope = "vm",
        /// scope vm: in equal parts ("even", the default), from a pool, or by a weight for each
        /// vCPU.
        split: Option<At<Split>>,
        /// How the budget is spent.
        regulator: Regulator = "static",
        /// compensation: the VM that leaves its unused budget to this one.
        critical: Option<At<String>>,
        /// compensation: periods between two resets.
        window: Option<u32> [1, u32::MAX as u64],
        /// memguard: whether all run without a limit once all have spent their budgets.
        spare: Option<At<bool>>,
        /// Whether an excess over a budget reduces the next budget.
        debt: bool = true,
        /// Whether the periods of all cores begin together ("aligned", the default) or one after
        /// the other.
        phase: Option<At<Phase>>,
        /// Whether the sum of all budgets may be above saturation.
        overcommit: bool = false,
        /// The VM that may change the budget at run time, and its range.
        adjust: Option<At<Adjust>>,
    }

    /// The right to change a budget while the system runs.
    pub(crate) struct Adjust = "{ by = ..., min = ..., max = ... }" {
        /// The VM that may.
        by: At<String>,
        /// The least budget.
        min: u64 as ACCESSES,
        /// The greatest budget.
        max: u64 as ACCESSES,
    }
}

choice! {
    /// A counter.
    pub(crate) enum Source {
        /// The core's PMU.
        Pmu = "pmu",
        /// The platform's counter page.
        CounterPage = "counter-page",
    }
}

choice! {
    /// The owner of a budget.
    pub(crate) enum Scope {
        /// All vCPUs of the VM together.
        Vm = "vm",
        /// Each vCPU.
        Vcpu = "vcpu",
    }
}

choice! {
    /// How a budget is spent.
    pub(crate) enum Regulator {
        /// The same in each period.
        Static = "static",
        /// Prediction, donation and reclaim among all VMs with this regulator.
        Memguard = "memguard",
        /// What a critical VM left in earlier periods of a window comes on top.
        Compensation = "compensation",
    }
}

choice! {
    /// When the periods of the cores begin.
    pub(crate) enum Phase {
        Aligned = "aligned",
        Staggered = "staggered",
    }
}

/// How the vCPUs of a VM share its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each the same.
    Even,
    /// A vCPU takes slices as it needs them.
    Pool,
    /// By a weight for each vCPU.
    Weights(Vec<u16>),
}

impl Value for Split {
    const KIND: Kind = Kind::OneOf(&[Kind::Choice(&["even", "pool"]), Vec::<u16>::KIND]);

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some("even") => Some(Self::Even),
            Some("pool") => Some(Self::Pool),
            Some(_) => None,
            None => Value::read(value).map(Self::Weights),
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::read_table(&DeTable::new()).expect("no key of a memory budget is required")
    }
}
