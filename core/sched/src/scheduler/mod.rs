//! The scheduler of a shared core decides which of several entities has the core, and until when.
//!
//! A *driver* (the hypervisor, or the simulator) has one [`Scheduler`] for each shared core. It
//! passes the *entities* that are ready ([`Ready`]) to the scheduler and gets a [`Decision`]: which
//! entity runs, and when to ask again. The entities have numbers from 0 on, in the order in which
//! the schedule names them.
//!
//! The driver must keep these rules:
//! - It calls [`Scheduler::step`] when [`Decision::until`] has come, and whenever the set of ready
//!   entities changes.
//! - Its time does not run backwards; a time before the last one is treated as the last one.
//! - It runs only [`Decision::run`] on the core.
//! - It calls [`Scheduler::entered`] when the guest of another entity than before begins to run on
//!   the core.
//!
//! An entity that is always ready gets at least the supply that `weir_analysis::time::Supply`
//! computes for its schedule, minus the time of switches:
//!
//! | schedule | supply | work-conserving |
//! | --- | --- | --- |
//! | [`RoundRobin`] | its quantum after at most the others' quanta | yes |
//! | [`TimeTable`] | its slots | no |
//! | [`Servers`] | its budget in each of its periods, if each server holds (`server_holds`) | among those with budget |
//!
//! ```
//! use weir_units::Nanos;
//! use weir_sched::scheduler::Scheduler;
//! use weir_sched::scheduler::Ready;
//! use weir_sched::scheduler::RoundRobin;
//!
//! let mut core = Scheduler::RoundRobin(RoundRobin::new(&[Nanos(20), Nanos(20)]));
//! let both = Ready::of([0, 1]);
//! let first = core.step(Nanos(0), both);
//! assert_eq!((first.run, first.until), (Some(0), Nanos(20)));
//! assert_eq!(core.step(first.until, both).run, Some(1));
//! // The second entity has nothing to do any more: its time slice passes to the next one.
//! assert_eq!(core.step(Nanos(25), Ready::of([0])).until, Nanos(45));
//! ```

mod round_robin;
mod servers;
mod table;

pub use round_robin::RoundRobin;
pub use servers::Servers;
pub use table::{Slot, TimeTable};

use weir_units::Nanos;

/// Largest number of entities of a schedule.
pub const MAX_ENTITIES: usize = 8;
/// Largest number of slots of a time table.
pub const MAX_SLOTS: usize = 32;

/// The entities that are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u8);

impl Ready {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set of these entities. Numbers from [`MAX_ENTITIES`] up are ignored.
    #[must_use]
    pub fn of(entities: impl IntoIterator<Item = u8>) -> Self {
        entities.into_iter().fold(Self::NONE, Self::with)
    }

    /// Returns the set with `entity` added.
    #[must_use]
    pub const fn with(self, entity: u8) -> Self {
        if entity < MAX_ENTITIES as u8 { Self(self.0 | 1 << entity) } else { self }
    }

    /// Returns whether `entity` is in the set.
    #[must_use]
    pub const fn has(self, entity: u8) -> bool {
        entity < MAX_ENTITIES as u8 && self.0 >> entity & 1 != 0
    }
}

/// The entity that has the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The entity that runs; none if the core idles.
    pub run: Option<u8>,
    /// Latest time to ask again; `u64::MAX` if that is not needed before an entity becomes ready.
    pub until: Nanos,
}

/// The scheduler of one core, by the kind of its schedule.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one a core, made once, never moved")]
pub enum Scheduler {
    /// See [`RoundRobin`].
    RoundRobin(RoundRobin),
    /// See [`TimeTable`].
    Table(TimeTable),
    /// See [`Servers`].
    Servers(Servers),
}

impl Scheduler {
    /// Returns the entity that has the core from `now` on, if the entities in `ready` can use it.
    pub fn step(&mut self, now: Nanos, ready: Ready) -> Decision {
        match self {
            Self::RoundRobin(schedule) => schedule.step(now, ready),
            Self::Table(schedule) => schedule.step(now, ready),
            Self::Servers(schedule) => schedule.step(now, ready),
        }
    }

    /// Returns whether an interrupt of `priority`, 0 the most urgent, may preempt the current time
    /// slice or slot: no more urgent interrupt has started it.
    #[must_use]
    pub const fn may_take(&self, priority: u8) -> bool {
        match self {
            Self::RoundRobin(schedule) => schedule.taken >= priority,
            Self::Table(schedule) => schedule.may_take(priority),
            Self::Servers(_) => true,
        }
    }

    /// Gives `entity` the rest of the current time slice or slot (mobivmm, V-B), if the interrupt
    /// [may take](Self::may_take) it: the next [`Self::step`] returns the entity if it is ready
    /// then. Servers use their priorities instead, so for them nothing changes.
    pub fn preempt(&mut self, entity: u8, priority: u8) {
        if !self.may_take(priority) {
            return;
        }
        match self {
            Self::RoundRobin(schedule) => schedule.preempt(entity, priority),
            Self::Table(schedule) => schedule.preempt(entity, priority),
            Self::Servers(_) => {}
        }
    }

    /// Returns whether [`Self::entered`] has an effect.
    #[must_use]
    pub const fn needs_entries(&self) -> bool {
        matches!(self, Self::Servers(_))
    }

    /// Notes that the guest of the chosen entity runs from `now` on. With servers, the time since
    /// the decision is charged to the entity that had the core before, if that entity is more
    /// urgent, because it delayed the chosen one. In round robin and in a table this time is a part
    /// of the time slice or the slot.
    pub fn entered(&mut self, now: Nanos) {
        if let Self::Servers(schedule) = self {
            schedule.entered(now);
        }
    }

    /// Subtracts `time`, which the driver spent on behalf of `entity` while another entity had the
    /// core, from the next time slice or budget of `entity`, and adds it to that of the entity that
    /// had the core. The slots of a time table do not move.
    pub fn charge(&mut self, entity: u8, time: Nanos) {
        match self {
            Self::RoundRobin(schedule) => schedule.charge(entity, time),
            Self::Table(_) => {}
            Self::Servers(schedule) => schedule.charge(entity, time),
        }
    }
}
