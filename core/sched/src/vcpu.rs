//! The states of a vCPU on its core, and the events that change them.
//!
//! [`VcpuState::after`] is the complete table: the state that an event leads to, and what the
//! vCPU's core does then. It only decides. The hypervisor raises the events on that core and
//! carries out the actions. A combination of a state and an event that cannot occur has a reason
//! ([`Impossible`]), which names what prevents it.
//!
//! A core with one vCPU goes through the same states as a shared core. They differ in the place of
//! the registers of a vCPU that waits or is throttled: on a core with one vCPU the registers stay
//! on the core, because no other vCPU uses it.

use weir_units::Nanos;

/// The state of a vCPU on its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VcpuState {
    /// The vCPU is off, by PSCI or because its VM has stopped.
    #[default]
    Off,
    /// The VM is stopping. The vCPU is the VM's first one and decides what follows, not before
    /// `due`.
    Ending {
        /// The time from which on the vCPU wants the core for that decision.
        due: Nanos,
    },
    /// The VM stops for good, in steps.
    Halting,
    /// The hypervisor loads the VM's image, in steps.
    Loading,
    /// The VM is loaded and waits for the broker. The vCPU asks again at `due`.
    Blocked {
        /// The time from which on the vCPU wants the core to ask.
        due: Nanos,
    },
    /// The hypervisor resets the VM's virtual devices, in steps.
    Resetting,
    /// The vCPU wants the core.
    Ready,
    /// The vCPU has the core.
    Running,
    /// The vCPU waits for an interrupt.
    Waiting {
        /// The time at which the first of the vCPU's timers interrupts; [`NEVER`] if none does, or
        /// if the timer interrupts the core itself.
        due: Nanos,
    },
    /// The vCPU's memory budget is spent.
    Throttled,
}

/// A time that is never reached.
pub const NEVER: Nanos = Nanos(u64::MAX);

/// An event that changes the state of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuEvent {
    /// The vCPU was turned on by PSCI CPU_ON.
    TurnedOn,
    /// The schedule gives the vCPU the core.
    Chosen,
    /// The schedule gives the core to another vCPU.
    Preempted,
    /// The vCPU has nothing to do until an interrupt comes (WFI, CPU_SUSPEND).
    Waits {
        /// See [`VcpuState::Waiting`].
        due: Nanos,
    },
    /// An interrupt that ends the vCPU's wait has come.
    Called,
    /// The time in the vCPU's state has come.
    Due,
    /// The vCPU's memory budget is spent.
    Spent,
    /// The vCPU's memory budget is replenished.
    Replenished,
    /// The vCPU is turned off, by CPU_OFF or because its VM is stopping.
    TurnedOff {
        /// Whether it is the first vCPU of a VM that is stopping.
        leads: bool,
    },
    /// The vCPU is the first one of a VM that is stopping, and the others are off.
    OthersOff,
    /// The decision about what follows the end of the VM's boot is deferred.
    Deferred {
        /// The time at which the vCPU asks again.
        due: Nanos,
    },
    /// Nothing follows now: the VM is not stopping, has vCPUs that are on, or has stopped for good.
    Settled,
    /// The VM stops for good.
    Halts,
    /// The VM starts again.
    Restarts,
    /// The VM has stopped for good.
    Halted,
    /// The VM's image is loaded.
    Loaded,
    /// The broker is not ready.
    Delayed {
        /// The time at which the vCPU asks again.
        due: Nanos,
    },
    /// The broker is ready, or the VM needs none.
    Admitted,
    /// The VM's virtual devices are reset.
    Reset,
}

/// The work of a vCPU's core after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuAction {
    /// No work: the schedule decides.
    Nothing,
    /// Enters the vCPU's guest.
    Run,
    /// Decides what follows the end of the VM's boot.
    Lead,
    /// Does a step of stopping the VM for good.
    Halt,
    /// Does a step of loading the VM's image.
    Load,
    /// Asks whether the broker is ready.
    AskBroker,
    /// Does a step of resetting the VM's virtual devices.
    Reset,
}

/// The reason why an event cannot occur in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// Only a vCPU that is off is turned on, or asked to lead.
    IsNotOff,
    /// The schedule chooses only vCPUs that want the core.
    WantsNoCore,
    /// The event occurs only for the vCPU that has the core, or has just left it.
    HasNoCore,
    /// Only a vCPU that waits is called.
    DoesNotWait,
    /// The state contains no time.
    NamesNoTime,
    /// Only the budget of a throttled vCPU is replenished by this event.
    IsNotThrottled,
    /// A vCPU that is off, or whose VM has not started yet, is not turned off.
    IsOff,
    /// A step ends only in the state in which it is done.
    HasOtherWork,
}

impl Impossible {
    /// Returns the reason as text.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::IsNotOff => "only a vCPU that is off is turned on, or asked to lead",
            Self::WantsNoCore => "the schedule chooses among the vCPUs that want the core",
            Self::HasNoCore => "this happens to the vCPU that has the core, or has just left it",
            Self::DoesNotWait => "only a vCPU that waits is called",
            Self::NamesNoTime => "the state names no time",
            Self::IsNotThrottled => "only a throttled vCPU has its budget replenished for it",
            Self::IsOff => "a vCPU that is off, or whose VM has not started yet, stays so",
            Self::HasOtherWork => "a step reports to the state in which it is done",
        }
    }
}

impl VcpuState {
    /// Returns the state after `event`, and what the core does then. It is inlined because for a
    /// constant event the compiler can remove most of the table.
    ///
    /// # Errors
    ///
    /// Returns the reason why the event cannot occur in this state.
    #[inline(always)]
    #[expect(clippy::match_same_arms, reason = "one line for each transition")]
    pub const fn after(self, event: VcpuEvent) -> Result<(Self, VcpuAction), Impossible> {
        use VcpuAction::{AskBroker, Halt, Lead, Load, Nothing, Reset as ResetStep, Run};
        use VcpuEvent::{
            Admitted, Called, Chosen, Deferred, Delayed, Due, Halted, Halts, Loaded, OthersOff,
            Preempted, Replenished, Reset, Restarts, Settled, Spent, TurnedOff, TurnedOn, Waits,
        };
        Ok(match (self, event) {
            (Self::Off, TurnedOn) => (Self::Ready, Nothing),
            (Self::Off, OthersOff) => (Self::Ending { due: Nanos(0) }, Nothing),
            (_, TurnedOn | OthersOff) => return Err(Impossible::IsNotOff),

            (Self::Ready, Chosen) => (Self::Running, Run),
            // The vCPU kept the core while EL2 was interrupted.
            (Self::Running, Chosen) => (Self::Running, Run),
            (Self::Ending { .. }, Chosen) => (self, Lead),
            (Self::Halting, Chosen) => (self, Halt),
            (Self::Loading, Chosen) => (self, Load),
            (Self::Blocked { .. }, Chosen) => (self, AskBroker),
            (Self::Resetting, Chosen) => (self, ResetStep),
            (_, Chosen) => return Err(Impossible::WantsNoCore),

            (Self::Running, Preempted) => (Self::Ready, Nothing),
            (Self::Running | Self::Ready, Waits { due }) => (Self::Waiting { due }, Nothing),
            (Self::Running | Self::Ready, Spent) => (Self::Throttled, Nothing),
            (_, Preempted | Waits { .. } | Spent) => return Err(Impossible::HasNoCore),

            (Self::Waiting { .. }, Called) => (Self::Ready, Nothing),
            (_, Called) => return Err(Impossible::DoesNotWait),

            (Self::Waiting { .. }, Due) => (Self::Ready, Nothing),
            (Self::Ending { .. }, Due) => (Self::Ending { due: Nanos(0) }, Nothing),
            (Self::Blocked { .. }, Due) => (Self::Blocked { due: Nanos(0) }, Nothing),
            (_, Due) => return Err(Impossible::NamesNoTime),

            (Self::Throttled, Replenished) => (Self::Ready, Nothing),
            (_, Replenished) => return Err(Impossible::IsNotThrottled),

            (
                Self::Running
                | Self::Ready
                | Self::Waiting { .. }
                | Self::Throttled
                // The VM has started, and this vCPU has not started yet.
                | Self::Resetting,
                TurnedOff { leads },
            ) => (if leads { Self::Ending { due: Nanos(0) } } else { Self::Off }, Nothing),
            (_, TurnedOff { .. }) => return Err(Impossible::IsOff),

            (Self::Ending { .. }, Deferred { due }) => (Self::Ending { due }, Nothing),
            (Self::Ending { .. }, Settled) => (Self::Off, Nothing),
            (Self::Ending { .. }, Halts) => (Self::Halting, Nothing),
            (Self::Ending { .. }, Restarts) => (Self::Loading, Nothing),
            (Self::Halting, Halted) => (Self::Off, Nothing),
            (Self::Loading, Loaded) => (Self::Blocked { due: Nanos(0) }, Nothing),
            (Self::Blocked { .. }, Delayed { due }) => (Self::Blocked { due }, Nothing),
            (Self::Blocked { .. }, Admitted) => (Self::Resetting, Nothing),
            (Self::Resetting, Reset) => (Self::Ready, Nothing),
            (
                _,
                Deferred { .. } | Settled | Halts | Restarts | Halted | Loaded | Delayed { .. }
                | Admitted | Reset,
            ) => return Err(Impossible::HasOtherWork),
        })
    }

    /// Returns the time at which the vCPU wants the core, if it waits for a time.
    #[must_use]
    pub const fn due(self) -> Option<Nanos> {
        match self {
            Self::Waiting { due } => Some(due),
            Self::Ending { due } | Self::Blocked { due } if due.0 > 0 => Some(due),
            _ => None,
        }
    }

    /// Returns whether the vCPU wants the core now.
    #[must_use]
    pub const fn wants_core(self) -> bool {
        match self {
            Self::Off | Self::Waiting { .. } | Self::Throttled => false,
            Self::Ending { due } | Self::Blocked { due } => due.0 == 0,
            Self::Halting | Self::Loading | Self::Resetting | Self::Ready | Self::Running => true,
        }
    }

    /// One of each state, for tables.
    pub const ALL: [Self; 10] = [
        Self::Off,
        Self::Ready,
        Self::Running,
        Self::Waiting { due: NEVER },
        Self::Throttled,
        Self::Ending { due: Nanos(0) },
        Self::Halting,
        Self::Loading,
        Self::Blocked { due: Nanos(0) },
        Self::Resetting,
    ];
}

impl VcpuEvent {
    /// One of each event, for tables.
    pub const ALL: [Self; 19] = [
        Self::TurnedOn,
        Self::Chosen,
        Self::Preempted,
        Self::Waits { due: NEVER },
        Self::Called,
        Self::Due,
        Self::Spent,
        Self::Replenished,
        Self::TurnedOff { leads: false },
        Self::OthersOff,
        Self::Deferred { due: NEVER },
        Self::Settled,
        Self::Halts,
        Self::Restarts,
        Self::Halted,
        Self::Loaded,
        Self::Delayed { due: NEVER },
        Self::Admitted,
        Self::Reset,
    ];
}
