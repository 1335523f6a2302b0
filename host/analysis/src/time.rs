//! Time on a shared core: what a schedule supplies, what interrupts of other VMs take
//! from it, and when a VM's tasks finish under what is left. Times are whole nanoseconds.

mod budget;
mod response;
mod servers;

use crate::units::Nanos;
use core::fmt;

pub use budget::{OwnBudget, Spender};
pub use response::{CoreInterference, response_times};
pub use servers::{left_of_budget, server_holds};
pub use weir_model::timing::Task;

/// Times beyond this (36 years) are treated as never.
const NEVER: u64 = 1 << 60;
/// Steps of an iteration before it is given up.
const STEPS: u32 = 100_000;

/// The schedule of a core, as one VM sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmSchedule {
    /// The core is the VM's own.
    Dedicated,
    /// A time table that repeats every `frame`.
    Table {
        /// Length of the table.
        frame: Nanos,
        /// Start and length of each slot of the VM, in order, apart from each other and within the
        /// frame.
        slots: Vec<(Nanos, Nanos)>,
        /// The most that a switch takes.
        switch: Nanos,
    },
    /// Each VM runs for its quantum, one after the other; an idle VM yields the rest of its time
    /// slice.
    RoundRobin {
        /// The VM's own quantum.
        quantum: Nanos,
        /// The sum of the others' quanta.
        others: Nanos,
        /// The most that a switch takes; there are as many as VMs in a round.
        switch: Nanos,
        /// VMs on the core, this one included.
        vms: u32,
    },
    /// A budget replenished every period at a fixed priority (periodic resource model, Shin and Lee
    /// 2003). [`server_holds`] decides whether the budget arrives in time next to servers of higher
    /// priority.
    Server {
        /// Time in each period that is the guest's: [`left_of_budget`].
        budget: Nanos,
        /// Period.
        period: Nanos,
        /// The most that a switch takes.
        switch: Nanos,
    },
}

/// The time that EL2 takes of a core with budgets of fixed priority when it gives it to another
/// vCPU. A budget pays for its own switch, and for the one to a less urgent server behind it, which
/// it has kept from going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switching {
    /// The most that a switch takes, from the one guest to the other.
    pub most: Nanos,
    /// The least.
    pub least: Nanos,
    /// The part of an interrupt for another VM that is charged to the interrupted VM's budget: the
    /// exception's entry and exit.
    pub entry: Nanos,
}

/// A fault in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// A frame, quantum or period of 0.
    Zero,
    /// A slot reaches out of the frame or into the next slot; its position.
    Slot(usize),
    /// The budget exceeds the period.
    Budget,
    /// A time over 2^60 ns.
    TooLarge,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("a frame, quantum or period is 0"),
            Self::Slot(i) => write!(f, "slot {i} reaches out of the frame or into the next slot"),
            Self::Budget => f.write_str("the budget exceeds the period"),
            Self::TooLarge => f.write_str("a time is over 2^60 ns"),
        }
    }
}

impl core::error::Error for ScheduleError {}

/// Interrupts that other VMs take on the core, as the admission rule lets them through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptLine {
    /// The admission rule: at most `burst` plus one every `interval`. `None`: every interrupt is
    /// let through, so nothing is left that could be promised (mobivmm).
    pub admission: Option<Admission>,
    /// The most time that one takes from the running VM: the hypervisor's handling, and where it
    /// preempts in a time table for the owner, the slot of the VM that it preempts.
    pub cost: Nanos,
    /// The delay that one causes for the rest of the schedule: if it preempts under round robin
    /// (mobivmm V-B), the time slices that start again, see [`put_off`].
    pub delay: Nanos,
}

impl InterruptLine {
    /// The time that it takes in a window of length `t`; nothing is counted of what is not limited.
    #[must_use]
    pub fn taken(&self, t: Nanos) -> Nanos {
        let count = self.admission.map_or(0, |rule| {
            u128::from(rule.burst.max(1)) + u128::from(t.0 / rule.interval.0.max(1))
        });
        Nanos(u64::try_from(count * u128::from(self.cost.0)).unwrap_or(u64::MAX))
    }
}

/// The delay by an interrupt that takes the rest of a time slice, for each VM, in a round of `vms`
/// time slices of `quantum`. The interrupted VM loses the rest of its time slice, and the round
/// continues after the owner of the interrupt. In the worst case a VM was about to start, the last
/// in the round: then all time slices but the owner's come again before it. The owner's own time
/// slice is delayed as much: the interrupt may give it the last part of the preceding time slice,
/// and all others run before its next one.
#[must_use]
pub const fn put_off(quantum: Nanos, switch: Nanos, vms: u32) -> Nanos {
    let others = vms.saturating_sub(1) as u64;
    Nanos((quantum.0.saturating_add(switch.0)).saturating_mul(others).saturating_add(switch.0))
}

impl Admission {
    /// How often a line that waits for its VM's slot comes in another's slot, where its VM has
    /// `slots` slots in each major `frame`: once ahead of each of its slots, as it stays active
    /// until its VM has dealt with it, and once behind the last.
    #[must_use]
    pub const fn once_a_slot(frame: Nanos, slots: u64) -> Self {
        let interval = match frame.0.checked_div(slots) {
            None | Some(0) => 1,
            Some(interval) => interval,
        };
        Self { burst: slots.saturating_add(1), interval: Nanos(interval) }
    }

    /// The same in a round: between two time slices of its VM lies one of the other VM, of
    /// `quantum` less what that VM `pays` for EL2's work on its account, at most half of it.
    #[must_use]
    pub const fn once_a_round(quantum: Nanos, pays: Nanos) -> Self {
        let half = quantum.0 / 2;
        let slot = quantum.0 - if pays.0 < half { pays.0 } else { half };
        Self { burst: 2, interval: Nanos(if slot == 0 { 1 } else { slot }) }
    }

    /// The same of budgets, of these two periods: either the other has been off the core in
    /// between, because its budget was spent, or the line's VM goes first, and pays for the
    /// interrupt with its budget as long as it has some.
    #[must_use]
    pub const fn once_a_period(of_line: Nanos, of_other: Nanos) -> Self {
        let period = if of_line.0 < of_other.0 { of_line } else { of_other };
        Self { burst: 2, interval: Nanos(if period.0 == 0 { 1 } else { period.0 }) }
    }
}

/// A token bucket: in any window of length t at most `burst` + floor(t / `interval`), since all but
/// `burst` of them have an interval before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Interrupts that may come at once; at least 1 is ever let through.
    pub burst: u64,
    /// Time to earn another; at least 1 ns.
    pub interval: Nanos,
}

/// The supply of a schedule after interrupts, as a lower bound for any window.
#[derive(Clone, Debug)]
pub struct Supply {
    /// Less what switches take.
    schedule: VmSchedule,
    /// The time that a switch takes of a window once, in addition: the vCPU was not on the core
    /// when the window began.
    late: u64,
    /// The part of the window's first budget that was spent before: a non-preemptible section of
    /// EL2 delays a server.
    owed: u64,
    lines: Vec<InterruptLine>,
}

impl Supply {
    /// Checks a schedule.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn new(schedule: VmSchedule, lines: Vec<InterruptLine>) -> Result<Self, ScheduleError> {
        let limit = |times: &[Nanos]| {
            if times.iter().any(|t| t.0 > NEVER) { Err(ScheduleError::TooLarge) } else { Ok(()) }
        };
        match &schedule {
            VmSchedule::Dedicated => {}
            VmSchedule::Table { frame, slots, switch } => {
                limit(&[*frame, *switch])?;
                if frame.0 == 0 {
                    return Err(ScheduleError::Zero);
                }
                let mut end = 0;
                for (i, (start, length)) in slots.iter().enumerate() {
                    let next = start.0.checked_add(length.0).filter(|&e| e <= frame.0);
                    match next {
                        Some(next) if start.0 >= end => end = next,
                        _ => return Err(ScheduleError::Slot(i)),
                    }
                }
            }
            VmSchedule::RoundRobin { quantum, others, switch, vms } => {
                limit(&[*quantum, *others, Nanos(switch.0.saturating_mul(u64::from(*vms)))])?;
                if quantum.0 == 0 {
                    return Err(ScheduleError::Zero);
                }
            }
            VmSchedule::Server { budget, period, switch } => {
                limit(&[*period, *switch])?;
                if period.0 == 0 {
                    return Err(ScheduleError::Zero);
                }
                if budget > period {
                    return Err(ScheduleError::Budget);
                }
            }
        }
        let (mut schedule, mut late, mut owed) = (schedule, 0, 0);
        match &mut schedule {
            VmSchedule::Dedicated => {}
            // A switch that is under way when the slot begins, and the slot's own. The same again
            // where the vCPU was going to sleep when it was needed.
            VmSchedule::Table { slots, switch, .. } => {
                for (start, length) in slots {
                    let taken = switch.0.saturating_mul(2).min(length.0);
                    (start.0, length.0) = (start.0 + taken, length.0 - taken);
                }
                late = switch.0.saturating_mul(2);
            }
            // A switch has a part before the start of the time slice, which makes the round longer,
            // and a part after it, which makes the time slice shorter. Their lengths are not known,
            // so each counts as the whole switch.
            VmSchedule::RoundRobin { quantum, switch, .. } => {
                quantum.0 = quantum.0.saturating_sub(switch.0);
            }
            VmSchedule::Server { switch, .. } => owed = switch.0,
        }
        Ok(Self { schedule, late, owed, lines })
    }

    /// The least time that the VM gets in any window of length `t`: the supply bound function, less
    /// what admitted interrupts take. Zero for ever if a line has no admission rule and a cost.
    #[must_use]
    pub fn least(&self, t: Nanos) -> Nanos {
        if self.unprotected() {
            return Nanos(0);
        }
        let late = u64::try_from(self.of_lines(t, |line| line.delay)).unwrap_or(u64::MAX);
        let late = late.saturating_add(self.late);
        let supply = u128::from(self.schedule_least(t.0.saturating_sub(late)));
        let taken = self.of_lines(t, |line| line.cost) + u128::from(self.owed);
        Nanos(u64::try_from(supply.saturating_sub(taken)).unwrap_or(u64::MAX))
    }

    /// The sum over all interrupts that are admitted in a window of length `t`.
    fn of_lines(&self, t: Nanos, each: impl Fn(&InterruptLine) -> Nanos) -> u128 {
        let admitted = self.lines.iter().filter_map(|line| {
            let rule = line.admission?;
            let earned = t.0 / rule.interval.0.max(1);
            Some((u128::from(rule.burst.max(1)) + u128::from(earned)) * u128::from(each(line).0))
        });
        admitted.sum()
    }

    /// A bound on the time from a moment at which the VM has the core to its `ticks`-th tick from
    /// then, plus `own` further time of its own. A tick is due every `tick` while the VM runs.
    /// Ticks that fall due while it is off the core come once, when it is back (`ticks = "lose"`).
    /// The VM keeps the core as long as it may, and a server has the highest priority. `None` if
    /// one of its time slices is no longer than all of so many ticks but one and `own`, or if those
    /// of all others together are shorter than a tick, or if the schedule is of another kind: then
    /// [`Supply::window_for`] their sum is a bound.
    ///
    /// When the VM comes back after at least a tick, one is due. So for as many ticks as fit into a
    /// time slice, the others run at most once in between: the rest of the first time slice brings
    /// j ticks and ends before the (j + 1)-th. That one comes after the others' time slices, and
    /// the rest within the VM's next one. An interrupt that takes the core delays that once, and a
    /// whole time slice of the VM follows it.
    #[must_use]
    pub fn nth_tick(&self, ticks: u32, tick: Nanos, own: Nanos) -> Option<Nanos> {
        let (slot, away) = match &self.schedule {
            VmSchedule::RoundRobin { quantum, others, switch, vms } => {
                (quantum.0, others.0 + switch.0 * u64::from(*vms))
            }
            VmSchedule::Server { budget, period, switch } => {
                (budget.0.saturating_sub(switch.0), period.0 - budget.0 + switch.0)
            }
            VmSchedule::Dedicated | VmSchedule::Table { .. } => return None,
        };
        let all = u64::from(ticks).checked_mul(tick.0)?;
        let rest = all.saturating_sub(tick.0).checked_add(own.0)?;
        if self.unprotected() || rest >= slot || away < tick.0 {
            return None;
        }
        let base = all.checked_add(own.0)?.checked_add(away)?;
        let mut window = base;
        for _ in 0..STEPS {
            let more = self.of_lines(Nanos(window), |line| Nanos(line.delay.0 + line.cost.0));
            let next = base.checked_add(u64::try_from(more).ok()?)?;
            if next > NEVER {
                return None;
            }
            if next == window {
                return Some(Nanos(window));
            }
            window = next;
        }
        None
    }

    /// Whether a line without an admission rule makes every promise void.
    #[must_use]
    pub fn unprotected(&self) -> bool {
        self.lines.iter().any(|line| line.admission.is_none() && line.cost.0 + line.delay.0 > 0)
    }

    fn schedule_least(&self, t: u64) -> u64 {
        match &self.schedule {
            VmSchedule::Dedicated => t,
            VmSchedule::Table { frame, slots, .. } => {
                let whole: u64 = slots.iter().map(|s| s.1.0).sum();
                let (frames, rest) = (t / frame.0, t % frame.0);
                // The supply in [s, s + rest) is least where s is the end of a slot.
                let least = slots
                    .iter()
                    .map(|&(start, length)| supplied(slots, frame.0, start.0 + length.0, rest))
                    .min()
                    .unwrap_or(0);
                frames.saturating_mul(whole).saturating_add(least)
            }
            VmSchedule::RoundRobin { quantum, others, switch, vms } => {
                let away = others.0 + switch.0 * u64::from(*vms);
                let round = away + quantum.0;
                let rest = (t % round).saturating_sub(away);
                (t / round).saturating_mul(quantum.0).saturating_add(rest)
            }
            VmSchedule::Server { budget, period, .. } => {
                let gap = period.0 - budget.0;
                // Worst case: a budget spent at once, then twice the gap (Shin and Lee, Eq. 3).
                let Some(after) = t.checked_sub(gap) else {
                    return 0;
                };
                let rest = (after % period.0).saturating_sub(gap);
                (after / period.0).saturating_mul(budget.0).saturating_add(rest)
            }
        }
    }

    /// The shortest window that is guaranteed to supply `time`; `None` if there is none under 2^60
    /// ns.
    #[must_use]
    pub fn window_for(&self, time: Nanos) -> Option<Nanos> {
        if time.0 == 0 {
            return Some(Nanos(0));
        }
        // Interrupts make the supply fall where a token is earned: gallop and halve on its running
        // maximum, which is a lower bound too, since supply never shrinks with the window.
        let mut high = time.0;
        while self.least(Nanos(high)) < time {
            high = high.checked_mul(2).filter(|&h| h <= NEVER)?;
        }
        let mut low = 0;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.least(Nanos(middle)) >= time {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(Nanos(high))
    }
}

/// A linear lower bound of a supply: `share` / `whole` of all time after `delay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Numerator of the rate; at least 1.
    pub share: u64,
    /// Denominator of the rate.
    pub whole: u64,
    /// Nothing is promised before this.
    pub delay: Nanos,
}

impl Supply {
    /// The linear lower bound with the schedule's own rate less that of the interrupts (both
    /// rounded in the safe direction); `None` if nothing is left.
    #[must_use]
    pub fn linear(&self) -> Option<Linear> {
        let (share, whole) = match &self.schedule {
            VmSchedule::Dedicated => (1, 1),
            VmSchedule::Table { frame, slots, .. } => (slots.iter().map(|s| s.1.0).sum(), frame.0),
            VmSchedule::RoundRobin { quantum, others, switch, vms } => {
                (quantum.0, quantum.0 + others.0 + switch.0 * u64::from(*vms))
            }
            VmSchedule::Server { budget, period, .. } => (budget.0, period.0),
        };
        if share == 0 || self.unprotected() {
            return None;
        }
        // The supply touches the line where a slot starts after a window that began at the end of a
        // slot.
        let delay = match &self.schedule {
            VmSchedule::Dedicated => 0,
            VmSchedule::Table { frame, slots, .. } => slots
                .iter()
                .flat_map(|&(from, length)| slots.iter().map(move |s| (from.0 + length.0, s.0.0)))
                .map(|(from, to)| {
                    let t = (frame.0 + to % frame.0 - from % frame.0) % frame.0;
                    let got = u128::from(supplied(slots, frame.0, from, t)) * u128::from(whole);
                    t.saturating_sub(u64::try_from(got / u128::from(share)).unwrap_or(u64::MAX))
                })
                .max()
                .unwrap_or(0),
            VmSchedule::RoundRobin { others, switch, vms, .. } => {
                others.0 + switch.0 * u64::from(*vms)
            }
            VmSchedule::Server { budget, period, .. } => 2 * (period.0 - budget.0),
        };
        let owed = (u128::from(self.owed) * u128::from(whole)).div_ceil(u128::from(share));
        let delay = delay.checked_add(self.late)?.checked_add(u64::try_from(owed).ok()?)?;
        let lines: Vec<(Admission, u64, u64)> = self
            .lines
            .iter()
            .filter_map(|l| l.admission.map(|a| (a, l.cost.0, l.delay.0)))
            .filter(|l| l.1 > 0 || l.2 > 0)
            .collect();
        if lines.is_empty() {
            return Some(Linear { share, whole, delay: Nanos(delay) });
        }
        // In units of 2^-32 of all time: rate x (1 - sum of delay/interval) - sum of cost/interval,
        // and the bursts.
        let unit = 1u128 << 32;
        let of_time = |a: &Admission, time: u64| {
            (u128::from(time) * unit).div_ceil(u128::from(a.interval.0.max(1)))
        };
        let rate = u128::from(share) * unit / u128::from(whole);
        let put_off: u128 = lines.iter().map(|(a, _, delay)| of_time(a, *delay)).sum();
        let taken: u128 = lines.iter().map(|(a, cost, _)| of_time(a, *cost)).sum();
        let left = rate * unit.checked_sub(put_off)? / unit;
        let left = left.checked_sub(taken).filter(|&l| l > 0)?;
        let burst = |a: &Admission, time: u64| u128::from(a.burst.max(1)) * u128::from(time);
        let bursts: u128 = lines.iter().map(|(a, cost, _)| burst(a, *cost)).sum();
        let delays: u128 = lines.iter().map(|(a, _, delay)| burst(a, *delay)).sum();
        let lost = (rate + 1)
            .checked_mul(u128::from(delay).checked_add(delays)?)?
            .checked_add(bursts.checked_mul(unit)?)?;
        let delay = u64::try_from(lost.div_ceil(left)).ok()?;
        Some(Linear { share: u64::try_from(left).ok()?, whole: 1 << 32, delay: Nanos(delay) })
    }
}

/// Supply of a table in [start, start + length), length < frame.
fn supplied(slots: &[(Nanos, Nanos)], frame: u64, start: u64, length: u64) -> u64 {
    let start = start % frame;
    [0, frame]
        .iter()
        .flat_map(|shift| slots.iter().map(move |&(s, l)| (s.0 + shift, s.0 + l.0 + shift)))
        .map(|(from, to)| to.min(start + length).saturating_sub(from.max(start)))
        .sum()
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
