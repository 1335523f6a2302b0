//! Cores that VMs share: their schedules, and the interrupts that take time on them.

pub use crate::keys::timing::Class;

use crate::fault::FilePlace;
use weir_units::{IntId, Nanos};

/// A schedulable entity of a shared core: a VM by its position, or the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A position in [`System::vms`](crate::System::vms).
    Vm(usize),
    /// The broker.
    Broker,
}

/// A shared core.
#[derive(Clone, Debug)]
pub struct SharedCore {
    /// Its number.
    pub id: u64,
    /// When each entity runs.
    pub schedule: Schedule,
    /// The bound on a switch, if the file sets it.
    pub switch: Option<Nanos>,
    /// Of the schedule.
    pub place: FilePlace,
}

/// The schedule of a shared core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Round robin.
    RoundRobin {
        /// The time slice.
        quantum: Nanos,
        /// The scheduled entities.
        entities: Vec<Entity>,
    },
    /// A time table.
    Table {
        /// After this it repeats.
        frame: Nanos,
        /// Entity, start and length; in order and disjoint.
        slots: Vec<(Entity, Nanos, Nanos)>,
    },
    /// Budgets by falling priority.
    FixedPriority {
        /// Entity, budget and period.
        servers: Vec<(Entity, Nanos, Nanos)>,
    },
}

impl Schedule {
    /// The entity of each time slice, slot or server, and its length.
    #[must_use]
    pub fn slots(&self) -> Vec<(Entity, Nanos)> {
        match self {
            Self::RoundRobin { quantum, entities, .. } => {
                entities.iter().map(|entity| (*entity, *quantum)).collect()
            }
            Self::Table { slots, .. } => slots.iter().map(|slot| (slot.0, slot.2)).collect(),
            Self::FixedPriority { servers } => {
                servers.iter().map(|server| (server.0, server.1)).collect()
            }
        }
    }

    /// All scheduled entities, each once.
    #[must_use]
    pub fn entities(&self) -> Vec<Entity> {
        let mut entities = Vec::new();
        for (entity, _) in self.slots() {
            if !entities.contains(&entity) {
                entities.push(entity);
            }
        }
        entities
    }

    /// The longest after which it repeats: its frame or its longest period.
    pub(crate) fn repeats(&self) -> Nanos {
        match self {
            Self::RoundRobin { .. } => Nanos(0),
            Self::Table { frame, .. } => *frame,
            Self::FixedPriority { servers } => {
                servers.iter().map(|server| server.2).max().unwrap_or(Nanos(0))
            }
        }
    }
}

/// An interrupt line.
#[derive(Clone, Debug)]
pub struct TimedLine {
    /// Its number or name.
    pub name: String,
    /// The VM that it belongs to.
    pub vm: usize,
    /// Of which class its device is.
    pub class: Class,
    /// Whether it takes the core for its VM at once.
    pub preempt: bool,
    /// How urgent that is: 0 the most, as a GIC counts. A line does not preempt a time slice that a
    /// more urgent one started.
    pub priority: u8,
    /// Interrupts a second and burst that are let through; none: all.
    pub admission: Option<(u64, u64)>,
    /// The WCET of one interrupt at EL2.
    pub wcet: Nanos,
    /// The most time from its arrival until its VM has the core, as a run is judged by.
    pub deadline: Option<Nanos>,
    /// Its header.
    pub place: FilePlace,
}

impl TimedLine {
    /// Of a line that the file gives none.
    pub const PRIORITY: u8 = 128;

    /// Its number, if it goes by that.
    #[must_use]
    pub fn intid(&self) -> Option<IntId> {
        self.name.parse().ok().map(IntId)
    }
}
