//! What a platform can count of a core's memory traffic, and by what: its PMU, which interrupts
//! when a counter overflows, or a counter page that EL2 polls.

use crate::shape::suggestion;
use crate::table::choice;

choice! {
    /// Something that a core's counters count.
    pub enum CounterEvent {
        /// Lines brought into the L2 cache.
        L2dRefill = "l2d-refill",
        /// Lines written back from the L2 cache.
        L2dWriteback = "l2d-writeback",
        /// Accesses on the core's bus interface.
        BusAccess = "bus-access",
        /// Loads and stores.
        MemAccess = "mem-access",
        /// Instructions.
        InstRetired = "inst-retired",
        /// Clock cycles of the core.
        Cycles = "cycles",
    }
}

impl CounterEvent {
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
                "accesses with the MMU off or to memory mapped non-cacheable, nor write-backs, by \
                 eviction or cache maintenance, nor lines that prefetch hints bring in where the \
                 core leaves these out"
            }
            Self::L2dWriteback => {
                "lines brought in, nor stores with the MMU off or to memory mapped non-cacheable"
            }
            Self::MemAccess => "cache maintenance, prefetches and table walks",
            Self::InstRetired | Self::Cycles => "accesses to memory as such",
            Self::BusAccess => return None,
        })
    }
}

/// A way out for an event that a source does not count.
pub(crate) fn instead(event: CounterEvent, counted: &[CounterEvent]) -> String {
    suggestion(event.name(), counted.iter().map(|event| event.name()))
}
