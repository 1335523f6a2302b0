//! The keys of a memory budget.

use crate::counters::EVENT_NAMES;
use crate::shape::{Key, Kind, Shape, optional, required};

/// `u64::MAX` is no limit, for a VM that is only counted.
const ACCESSES: Kind = Kind::Number(1, u64::MAX - 1);
const WEIGHT: Kind = Kind::Number(0, u16::MAX as u64);

/// Key `memory_budget` of a VM.
pub(crate) const MEMORY_BUDGET_KEY: Key = optional(
    "memory_budget",
    Kind::Table(&MEMORY_BUDGET),
    "Its memory budget: `accesses` and `period`, or only `required` to have `weir plan` choose them. Regulators: docs/explanation/regulators.md.",
);

static MEMORY_BUDGET: Shape = Shape {
    name: "memory_budget",
    doc: "A VM's memory budget.",
    keys: &[
        optional(
            "required",
            Kind::Rate,
            "The bandwidth that it must get: `weir plan` chooses the budget from it.",
        ),
        optional("accesses", ACCESSES, "Accesses in each period."),
        optional(
            "reads",
            ACCESSES,
            "Lines brought into the cache in each period; with or without `writes`.",
        ),
        optional("writes", ACCESSES, "Lines written back in each period."),
        optional("period", Kind::Duration, "The period."),
        optional("event", Kind::Choice(EVENT_NAMES), "The counted event; default: \"l2d-refill\"."),
        optional(
            "source",
            Kind::Choice(&["pmu", "counter-page"]),
            "The counter: the cores' PMUs, or the platform's counter page. Default: the first of them that counts the event.",
        ),
        optional("poll", Kind::Duration, "source counter-page: time between two polls."),
        optional(
            "scope",
            Kind::Choice(&["vm", "vcpu"]),
            "Whether the budget is the VM's (default) or each vCPU's.",
        ),
        optional(
            "split",
            Kind::OneOf(&[Kind::Choice(&["even", "pool"]), Kind::List(&WEIGHT)]),
            "scope vm: in equal parts (default), from a pool, or by a weight for each vCPU.",
        ),
        optional(
            "regulator",
            Kind::Choice(&["static", "memguard", "compensation"]),
            "How the budget is spent; default: \"static\".",
        ),
        optional(
            "critical",
            Kind::Text,
            "compensation: the VM that leaves its unused budget to this one.",
        ),
        optional(
            "window",
            Kind::Number(1, u32::MAX as u64),
            "compensation: periods between two resets.",
        ),
        optional(
            "spare",
            Kind::Boolean,
            "memguard: whether all run without a limit once all have spent their budgets.",
        ),
        optional(
            "debt",
            Kind::Boolean,
            "Whether an excess over a budget reduces the next budget; default: true.",
        ),
        optional(
            "phase",
            Kind::Choice(&["aligned", "staggered"]),
            "Whether the periods of all cores begin together (default) or one after the other.",
        ),
        optional(
            "overcommit",
            Kind::Boolean,
            "Whether the sum of all budgets may be above saturation.",
        ),
        optional(
            "adjust",
            Kind::Table(&ADJUST),
            "The VM that may change the budget at run time, and its range.",
        ),
    ],
};

static ADJUST: Shape = Shape {
    name: "{ by = ..., min = ..., max = ... }",
    doc: "The right to change a budget while the system runs.",
    keys: &[
        required("by", Kind::Text, "The VM that may."),
        required("min", ACCESSES, "The least budget."),
        required("max", ACCESSES, "The greatest budget."),
    ],
};
