//! What a platform can count of a core's memory traffic, and by what: its PMU, which interrupts
//! when a counter overflows, or a counter page that EL2 polls.

use crate::diagnostics::Code;
use crate::document::{At, Values, number, text};
use crate::fault::{Fault, Faults, File};
use crate::shape::suggestion;
use toml::de::DeTable;
use weir_units::{IntId, Nanos};

/// Something that a core's counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Lines brought into the L2 cache.
    L2dRefill,
    /// Lines written back from the L2 cache.
    L2dWriteback,
    /// Accesses on the core's bus interface.
    BusAccess,
    /// Loads and stores.
    MemAccess,
    /// Instructions.
    InstRetired,
    /// Clock cycles of the core.
    Cycles,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::L2dRefill,
        Self::L2dWriteback,
        Self::BusAccess,
        Self::MemAccess,
        Self::InstRetired,
        Self::Cycles,
    ];

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2dRefill => "l2d-refill",
            Self::L2dWriteback => "l2d-writeback",
            Self::BusAccess => "bus-access",
            Self::MemAccess => "mem-access",
            Self::InstRetired => "inst-retired",
            Self::Cycles => "cycles",
        }
    }

    /// Its number in PMEVTYPERn_EL0.evtCount (DDI0487, D11.11.2, common events): L2D_CACHE_REFILL,
    /// L2D_CACHE_WB, BUS_ACCESS, MEM_ACCESS, INST_RETIRED, CPU_CYCLES.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::L2dRefill => 0x17,
            Self::L2dWriteback => 0x18,
            Self::BusAccess => 0x19,
            Self::MemAccess => 0x13,
            Self::InstRetired => 0x08,
            Self::Cycles => 0x11,
        }
    }

    /// Whether each is a line that goes over the memory bus, so that the platform's saturation
    /// limits their sum.
    #[must_use]
    pub const fn is_traffic(self) -> bool {
        matches!(self, Self::L2dRefill | Self::L2dWriteback)
    }

    /// The accesses to memory that it leaves out; `None` if it counts all that cross the core's
    /// bus.
    #[must_use]
    pub const fn not_counted(self) -> Option<&'static str> {
        Some(match self {
            Self::L2dRefill => {
                "accesses with the MMU off or to memory mapped non-cacheable, nor write-backs, by eviction or cache maintenance, nor lines that prefetch hints bring in where the core leaves these out"
            }
            Self::L2dWriteback => {
                "lines brought in, nor stores with the MMU off or to memory mapped non-cacheable"
            }
            Self::MemAccess => "cache maintenance, prefetches and table walks",
            Self::InstRetired | Self::Cycles => "accesses to memory as such",
            Self::BusAccess => return None,
        })
    }

    /// The event of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// The names of all events, for keys.
pub(crate) const EVENT_NAMES: &[&str] =
    &["l2d-refill", "l2d-writeback", "bus-access", "mem-access", "inst-retired", "cycles"];

/// What a board's cores can count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The PMUs of its cores.
    pub pmu: Option<Pmu>,
    /// A counter page.
    pub counter_page: Option<CounterPage>,
}

/// The PMUs of a board's cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// What they count.
    pub events: Vec<Event>,
    /// The interrupt of an overflow: one that is private to each core, or one for each core; empty
    /// where it is not wired.
    pub intids: Vec<IntId>,
    /// Event counters of each core, 0 if the file does not set them.
    pub counters: u8,
    /// The shortest period that leaves a VM 95 % of its time at the cost of a replenishment and of
    /// an overflow.
    pub min_period: Nanos,
}

/// A page of counters that something other than the cores keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterPage {
    /// What it counts: refills and write-backs.
    pub events: Vec<Event>,
    /// Time between two polls, unless a VM has the key `poll`.
    pub poll: Nanos,
    /// The least time of an instruction, so that a poll can wait as long as the rest of the budget
    /// takes at least.
    pub access: Nanos,
    /// Upper bound on the time that a poll takes from the core; the poll at the start of a period
    /// takes at most twice as much.
    pub poll_overhead: Nanos,
    /// As for a PMU.
    pub min_period: Nanos,
}

/// Reads the description in a platform file.
pub(crate) fn read(table: &DeTable<'_>, file: &File, faults: &mut Faults) -> Counters {
    let events = |table: &DeTable<'_>| {
        let names = table.list("events", text).map_or(Vec::new(), |names| names.value);
        names.iter().filter_map(|name| Event::named(&name.value)).collect()
    };
    let mut time = |table: &DeTable<'_>, key: &str| {
        let At { value, span } = table.duration(key)?;
        if value.0 == 0 {
            let fault = Fault::new(Code::Zero, file, span, format!("`{key}` is 0"));
            faults.push(fault.label("this").help("write more than 0, like \"10us\""));
            return None;
        }
        Some(value)
    };
    let pmu = table.inner("pmu").and_then(|(table, _)| {
        let intids = table.list("intids", number).map_or(Vec::new(), |intids| intids.value);
        let intids = intids.iter().map(|intid| IntId(intid.value as u32)).collect();
        let counters = table.number("counters").map_or(0, |counters| counters.value as u8);
        let min_period = time(table, "min_period")?;
        Some(Pmu { events: events(table), intids, counters, min_period })
    });
    let counter_page = table.inner("counter_page").and_then(|(table, _)| {
        Some(CounterPage {
            events: events(table),
            poll: time(table, "poll")?,
            access: time(table, "access")?,
            poll_overhead: time(table, "poll_overhead")?,
            min_period: time(table, "min_period")?,
        })
    });
    if let Some(CounterPage { poll, poll_overhead, .. }) = &counter_page
        && poll_overhead >= poll
        && let Some((table, _)) = table.inner("counter_page")
        && let Some(At { span, .. }) = table.duration("poll")
    {
        let message = format!("a poll of {poll_overhead} each {poll} leaves a vCPU no time");
        let fault = Fault::new(Code::BudgetPoll, file, span, message);
        faults.push(
            fault
                .label("this")
                .help(format!("write more than \"{poll_overhead}\", the `poll_overhead`")),
        );
    }
    Counters { pmu, counter_page }
}

/// A way out for an event that a source does not count.
pub(crate) fn instead(event: Event, counted: &[Event]) -> String {
    suggestion(event.name(), counted.iter().map(|event| event.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_events_are_each_others() {
        assert!(Event::ALL.iter().map(|event| event.name()).eq(EVENT_NAMES.iter().copied()));
        for event in Event::ALL {
            assert_eq!(Event::named(event.name()), Some(event));
        }
        assert_eq!(Event::named("l3d-refill"), None);
    }
}
