//! Time on a shared core: what a partition schedule supplies, what interrupts of other VMs take from it, and when a
//! VM's tasks finish under what is left. Times are whole nanoseconds.

mod budget;

use core::fmt;

use crate::memory::Interferer;
use crate::units::Nanos;

pub use budget::{OwnBudget, Spender};

/// Times beyond this (36 years) are treated as never.
const NEVER: u64 = 1 << 60;
/// Steps of an iteration before it is given up.
const STEPS: u32 = 100_000;

/// A partition schedule, as one VM sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The core is the VM's own.
    Dedicated,
    /// A time table that repeats every `frame`.
    Table {
        /// Length of the table.
        frame: Nanos,
        /// Start and length of each slot of the VM, in order, apart from each other and within the frame.
        slots: Vec<(Nanos, Nanos)>,
        /// The most that a switch takes.
        switch: Nanos,
    },
    /// Each VM runs for its quantum in turn; a VM that has nothing to do passes its turn on.
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
    /// A budget replenished every period at a fixed priority (periodic resource model, Shin and Lee 2003). Whether
    /// the budget arrives in time beside servers of higher priority, [`servers_hold`] says.
    Server {
        /// Time in each period that is the guest's: [`left_of_budget`].
        budget: Nanos,
        /// Period.
        period: Nanos,
        /// The most that a switch takes.
        switch: Nanos,
    },
}

/// What EL2 takes of a core with budgets of fixed priority when it gives it to another vCPU. A budget pays for its own switch, and for the one
/// to a less urgent server behind it, which it has kept from going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switching {
    /// The most that a switch takes, from the one guest to the other.
    pub most: Nanos,
    /// The least.
    pub least: Nanos,
    /// What of an interrupt for another VM stays with the budget of who was interrupted: the exception's entry and exit.
    pub entry: Nanos,
}

/// What is wrong with a schedule.
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
    /// The admission rule: at most `burst` plus one every `interval`. `None`: every interrupt is let through, so
    /// nothing is left that could be promised (mobivmm).
    pub admission: Option<Admission>,
    /// The most time that one takes from the running VM: the hypervisor's handling, and where it preempts in a time table for the
    /// owner, the slot of the VM that it preempts.
    pub cost: Nanos,
    /// By how much one puts off all that the schedule has still to give: where it preempts under round robin (mobivmm V-B), the turns that it begins anew,
    /// see [`put_off`].
    pub delay: Nanos,
}

impl InterruptLine {
    /// What it takes in a window of length `t`; nothing is counted of what is not limited.
    #[must_use]
    pub fn taken(&self, t: Nanos) -> Nanos {
        let count = self.admission.map_or(0, |rule| {
            u128::from(rule.burst.max(1)) + u128::from(t.0 / rule.interval.0.max(1))
        });
        Nanos(u64::try_from(count * u128::from(self.cost.0)).unwrap_or(u64::MAX))
    }
}

/// How much an interrupt that takes the rest of a turn puts everybody off, in a round of `vms` turns of `quantum`: who was interrupted has lost the rest of
/// a turn, and after the owner's next neighbor all have theirs anew. At worst one had just been about to begin, the last in the round: then
/// all turns but the owner's are as if they had not been. The owner's own is put off as much: what it gets may be the last bit of the turn before its own,
/// and then all others have theirs first.
#[must_use]
pub const fn put_off(quantum: Nanos, switch: Nanos, vms: u32) -> Nanos {
    let others = vms.saturating_sub(1) as u64;
    Nanos((quantum.0.saturating_add(switch.0)).saturating_mul(others).saturating_add(switch.0))
}

impl Admission {
    /// How often a line that waits for its VM's turn comes in another's, where the one has `turns` slots in each `frame`: once ahead of each of its slots, as it stays
    /// active until its VM has dealt with it, and once behind the last.
    #[must_use]
    pub const fn once_a_slot(frame: Nanos, turns: u64) -> Self {
        let interval = match frame.0.checked_div(turns) {
            None | Some(0) => 1,
            Some(interval) => interval,
        };
        Self { burst: turns.saturating_add(1), interval: Nanos(interval) }
    }

    /// The same in a round: between two turns of its VM lies one of the other's, which is `quantum` long less what it `pays` for what EL2 did on its account, half of it at the most.
    #[must_use]
    pub const fn once_a_round(quantum: Nanos, pays: Nanos) -> Self {
        let half = quantum.0 / 2;
        let turn = quantum.0 - if pays.0 < half { pays.0 } else { half };
        Self { burst: 2, interval: Nanos(if turn == 0 { 1 } else { turn }) }
    }

    /// The same of budgets, of these two periods: either the other has been off the core in between, because its budget was spent, or the line's VM goes first, and
    /// pays for the interrupt with its budget as long as it has some.
    #[must_use]
    pub const fn once_a_period(of_line: Nanos, of_other: Nanos) -> Self {
        let period = if of_line.0 < of_other.0 { of_line } else { of_other };
        Self { burst: 2, interval: Nanos(if period.0 == 0 { 1 } else { period.0 }) }
    }
}

/// A token bucket: in any window of length t at most `burst` + floor(t / `interval`), since all but `burst` of them have an interval before them.
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
    schedule: Schedule,
    /// What a switch takes of a window once, beside that: the vCPU was not on the core when the window began.
    late: u64,
    /// What of the window's first budget was spent before: a server is late by what EL2 does in one piece.
    owed: u64,
    lines: Vec<InterruptLine>,
}

impl Supply {
    /// Checks a schedule.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn new(schedule: Schedule, lines: Vec<InterruptLine>) -> Result<Self, ScheduleError> {
        let limit = |times: &[Nanos]| {
            if times.iter().any(|t| t.0 > NEVER) { Err(ScheduleError::TooLarge) } else { Ok(()) }
        };
        match &schedule {
            Schedule::Dedicated => {}
            Schedule::Table { frame, slots, switch } => {
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
            Schedule::RoundRobin { quantum, others, switch, vms } => {
                limit(&[*quantum, *others, Nanos(switch.0.saturating_mul(u64::from(*vms)))])?;
                if quantum.0 == 0 {
                    return Err(ScheduleError::Zero);
                }
            }
            Schedule::Server { budget, period, switch } => {
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
            Schedule::Dedicated => {}
            // A switch that is under way when the slot begins, and the slot's own. The same again where the vCPU was going to sleep when it was needed.
            Schedule::Table { slots, switch, .. } => {
                for (start, length) in slots {
                    let taken = switch.0.saturating_mul(2).min(length.0);
                    (start.0, length.0) = (start.0 + taken, length.0 - taken);
                }
                late = switch.0.saturating_mul(2);
            }
            // A switch has a part ahead of where the turn begins, which makes the round longer, and one behind it, which makes the turn shorter.
            // Nobody says how long each is, so both are taken for the whole of it.
            Schedule::RoundRobin { quantum, switch, .. } => {
                quantum.0 = quantum.0.saturating_sub(switch.0);
            }
            Schedule::Server { switch, .. } => owed = switch.0,
        }
        Ok(Self { schedule, late, owed, lines })
    }

    /// The least time that the VM gets in any window of length `t`: the supply bound function, less what admitted
    /// interrupts take. Zero for ever if a line has no admission rule and a cost.
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

    /// The longest from a moment at which the VM has the core to its `ticks`-th tick from then, one every `tick` if it is there, where what fell due
    /// while it was off comes once, when it is back (`ticks = "lose"`), and `own` further time of its own passes. The VM keeps the core as long as it may, and is
    /// the server of highest priority if it is one. `None` where one of its turns is no longer than all of so many ticks but one and `own`, or all
    /// others' together shorter than one, or the schedule is of another kind: then [`Supply::window_for`] their sum is a bound.
    ///
    /// Whenever it comes back from what is at least a tick, one is due. So of the ticks a turn is long enough for, at most one turn of the others lies between:
    /// what was left of the turn at first brings j ticks and ends before the (j + 1)-th, which comes after the others' turns, and the rest within the next one. An
    /// interrupt that takes the core puts that off once, and a whole turn of the VM's own follows it.
    #[must_use]
    pub fn nth_tick(&self, ticks: u32, tick: Nanos, own: Nanos) -> Option<Nanos> {
        let (turn, away) = match &self.schedule {
            Schedule::RoundRobin { quantum, others, switch, vms } => {
                (quantum.0, others.0 + switch.0 * u64::from(*vms))
            }
            Schedule::Server { budget, period, switch } => {
                (budget.0.saturating_sub(switch.0), period.0 - budget.0 + switch.0)
            }
            Schedule::Dedicated | Schedule::Table { .. } => return None,
        };
        let all = u64::from(ticks).checked_mul(tick.0)?;
        let rest = all.saturating_sub(tick.0).checked_add(own.0)?;
        if self.unprotected() || rest >= turn || away < tick.0 {
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
            Schedule::Dedicated => t,
            Schedule::Table { frame, slots, .. } => {
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
            Schedule::RoundRobin { quantum, others, switch, vms } => {
                let away = others.0 + switch.0 * u64::from(*vms);
                let round = away + quantum.0;
                let rest = (t % round).saturating_sub(away);
                (t / round).saturating_mul(quantum.0).saturating_add(rest)
            }
            Schedule::Server { budget, period, .. } => {
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

    /// The shortest window that is sure to supply `time`; `None` if there is none under 2^60 ns.
    #[must_use]
    pub fn window_for(&self, time: Nanos) -> Option<Nanos> {
        if time.0 == 0 {
            return Some(Nanos(0));
        }
        // Interrupts make the supply fall where a token is earned: gallop and halve on its running maximum, which
        // is a lower bound too, since supply never shrinks with the window.
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
    /// The linear lower bound with the schedule's own rate less that of the interrupts (both rounded in the safe
    /// direction); `None` if nothing is left.
    #[must_use]
    pub fn linear(&self) -> Option<Linear> {
        let (share, whole) = match &self.schedule {
            Schedule::Dedicated => (1, 1),
            Schedule::Table { frame, slots, .. } => (slots.iter().map(|s| s.1.0).sum(), frame.0),
            Schedule::RoundRobin { quantum, others, switch, vms } => {
                (quantum.0, quantum.0 + others.0 + switch.0 * u64::from(*vms))
            }
            Schedule::Server { budget, period, .. } => (budget.0, period.0),
        };
        if share == 0 || self.unprotected() {
            return None;
        }
        // The supply touches the line where a slot starts after a window that began at the end of a slot.
        let delay = match &self.schedule {
            Schedule::Dedicated => 0,
            Schedule::Table { frame, slots, .. } => slots
                .iter()
                .flat_map(|&(from, length)| slots.iter().map(move |s| (from.0 + length.0, s.0.0)))
                .map(|(from, to)| {
                    let t = (frame.0 + to % frame.0 - from % frame.0) % frame.0;
                    let got = u128::from(supplied(slots, frame.0, from, t)) * u128::from(whole);
                    t.saturating_sub(u64::try_from(got / u128::from(share)).unwrap_or(u64::MAX))
                })
                .max()
                .unwrap_or(0),
            Schedule::RoundRobin { others, switch, vms, .. } => {
                others.0 + switch.0 * u64::from(*vms)
            }
            Schedule::Server { budget, period, .. } => 2 * (period.0 - budget.0),
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
        // In units of 2^-32 of all time: rate x (1 - sum of delay/interval) - sum of cost/interval, and the bursts.
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

/// How many of its budgets a server can spend, at the most, of what lies within `window` from the beginning of a period of `period` on. At any phase the worst is that a budget is
/// spent to its end just when the next one comes. But the periods of both begin at multiples of their lengths, so its own begin at multiples of the greatest divisor of both
/// from there, and where that is more than its budget the next one does not come before.
fn budgets_in(window: u64, (budget, its): (Nanos, Nanos), period: u64) -> u64 {
    let anew = budget.0.max(gcd(its.0, period));
    (window + (its.0 - anew)).div_ceil(its.0)
}

/// What a server spends beyond its budgets in any window, in the end: it is late by what EL2 does in one piece, and the switch behind it is its own. Its next budget is shorter by that.
const fn beyond(switching: &Switching) -> u64 {
    switching.most.0.saturating_mul(2)
}

/// Whether servers (budget, period), highest priority first, whose periods begin at multiples of their lengths, each can spend their budget within each period, beside
/// those of higher priority, what one of lower priority has EL2 do in one piece when it begins, and for each what EL2 does `beside` for others in a period, which these are charged with.
#[must_use]
pub fn servers_hold(servers: &[(Nanos, Nanos)], switching: &Switching, beside: &[Nanos]) -> bool {
    (0..servers.len()).all(|i| server_holds(servers, i, switching, beside))
}

/// Whether server `i` can, as [`servers_hold`] says of all.
#[must_use]
pub fn server_holds(
    servers: &[(Nanos, Nanos)],
    i: usize,
    switching: &Switching,
    beside: &[Nanos],
) -> bool {
    servers.get(i).is_some_and(|&(budget, period)| {
        if period.0 == 0 || budget > period || period.0 > NEVER || switching.most.0 > NEVER {
            return false;
        }
        let lower = if i + 1 < servers.len() { switching.most.0 } else { 0 };
        let late = u128::from(lower) + beside.get(i).map_or(0, |time| u128::from(time.0));
        let mut r = budget.0;
        for _ in 0..STEPS {
            let spent = |higher: &(Nanos, Nanos)| {
                let budgets = budgets_in(r, *higher, period.0);
                u128::from(budgets) * u128::from(higher.0.0) + u128::from(beyond(switching))
            };
            let higher: u128 = servers[..i].iter().map(spent).sum();
            let next = u128::from(budget.0) + late + higher;
            if next > u128::from(period.0) {
                return false;
            }
            if next == u128::from(r) {
                return true;
            }
            r = next as u64;
        }
        false
    })
}

/// What of server `i`'s budget is its guest's in each period in which it wants all of it: less the switch to it and the one behind it, and what those of higher
/// priority leave to it of their interrupts. These come as often as they can pay for two switches.
#[must_use]
pub fn left_of_budget(servers: &[(Nanos, Nanos)], i: usize, switching: &Switching) -> Nanos {
    let Some(&(budget, period)) = servers.get(i) else { return Nanos(0) };
    let turn = (2 * switching.least.0).saturating_sub(switching.entry.0).max(1);
    let interrupts = |higher: &(Nanos, Nanos)| {
        let budgets = budgets_in(period.0, *higher, period.0);
        let time = u128::from(budgets) * u128::from(higher.0.0) + u128::from(beyond(switching));
        (time / u128::from(turn) + 1) * u128::from(switching.entry.0)
    };
    let entries: u128 = servers[..i].iter().map(interrupts).sum();
    let taken = u128::from(switching.most.0) * 2 + entries;
    Nanos(budget.0.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX)))
}

/// A task of a VM that schedules by fixed priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmTask {
    /// Worst-case execution time.
    pub cost: Nanos,
    /// Least time between two activations; at least 1 ns.
    pub period: Nanos,
    /// Release jitter.
    pub jitter: Nanos,
    /// The longest that a task of lower priority can block it.
    pub blocking: Nanos,
}

/// The worst response times of tasks, highest priority first; `None` where there is no bound (or none was reached in
/// bounded time).
#[must_use]
pub fn response_times(tasks: &[VmTask], supply: &Supply) -> Vec<Option<Nanos>> {
    response_times_beside(tasks, supply, &[], None, None)
}

/// What other VMs' memory accesses do to a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interference {
    /// The other VMs, and the DMA engine.
    pub interferers: Vec<Interferer>,
    /// How much one transaction can delay the core.
    pub delay: Nanos,
    /// The most transactions of one interferer that can delay one own access; `None` if unknown.
    pub per_access: Option<u64>,
}

impl Interference {
    /// The most delay in a window of length `t` in which the core itself makes at most `accesses`, if that is known.
    fn in_window(&self, t: Nanos, accesses: Option<u64>) -> u128 {
        let transactions: u128 = self
            .interferers
            .iter()
            .map(|i| u128::from(i.delaying(t, accesses, self.per_access)))
            .sum();
        transactions * u128::from(self.delay.0)
    }
}

/// The same beside other VMs' memory accesses: whatever they issue in a task's busy window delays it. `accesses` has
/// each task's own accesses in an activation, where known; a task that can be blocked meets all that is issued, since
/// nobody knows the blocker's accesses. Where the tasks may spend their VM's own budget, `own`, they wait for it; that is
/// left out of a task where the accesses of those that it waits for are not known.
#[must_use]
pub fn response_times_beside(
    tasks: &[VmTask],
    supply: &Supply,
    accesses: &[Option<u64>],
    beside: Option<&Interference>,
    own: Option<&OwnBudget>,
) -> Vec<Option<Nanos>> {
    (0..tasks.len()).map(|i| response_time(tasks, i, supply, accesses, (beside, own))).collect()
}

fn response_time(
    tasks: &[VmTask],
    i: usize,
    supply: &Supply,
    accesses: &[Option<u64>],
    (beside, own): (Option<&Interference>, Option<&OwnBudget>),
) -> Option<Nanos> {
    let task = tasks[i];
    let known = |k: usize| accesses.get(k).copied().flatten().map(u128::from);
    // Whoever blocks it is one job of a task of lower priority.
    let blocker = match task.blocking.0 {
        0 => Some(0),
        _ => (i + 1..tasks.len()).map(known).try_fold(0, |most, its| its.map(|its| most.max(its))),
    };
    let mut steps = STEPS;
    let mut worst = 0;
    // Jobs in one busy period: a job may still be there when the next arrives.
    let mut window = 0u64;
    for job in 0u64.. {
        let cost = u128::from(task.blocking.0) + u128::from(job + 1) * u128::from(task.cost.0);
        loop {
            steps = steps.checked_sub(1)?;
            let jobs_of = |t: &VmTask| {
                let window = u128::from(window) + u128::from(t.jitter.0);
                window.div_ceil(u128::from(t.period.0.max(1))).max(1)
            };
            let higher: u128 = tasks[..i].iter().map(|t| jobs_of(t) * u128::from(t.cost.0)).sum();
            let made = known(i).and_then(|its| {
                let mut sum = u128::from(job + 1).checked_mul(its)?;
                for (k, t) in tasks[..i].iter().enumerate() {
                    sum = sum.checked_add(jobs_of(t).checked_mul(known(k)?)?)?;
                }
                Some(sum)
            });
            let delays = beside.map_or(0, |beside| {
                let unblocked = made.filter(|_| task.blocking.0 == 0);
                beside.in_window(Nanos(window), unblocked.and_then(|made| u64::try_from(made).ok()))
            });
            let waits = match own.zip(made).zip(blocker) {
                Some(((own, made), blocker)) => own.wait(window, made.checked_add(blocker)?)?,
                None => 0,
            };
            let busy = cost.checked_add(higher)?.checked_add(delays)?;
            let needed = u64::try_from(busy.checked_add(waits)?).ok()?;
            let next = supply.window_for(Nanos(needed))?.0;
            if next <= window {
                break;
            }
            window = next;
        }
        let release = job.checked_mul(task.period.0)?;
        worst = worst.max(window.saturating_sub(release).saturating_add(task.jitter.0));
        if window.saturating_add(task.jitter.0) <= release.saturating_add(task.period.0) {
            break;
        }
    }
    (worst <= NEVER).then_some(Nanos(worst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Events;
    use proptest::prelude::*;

    /// A round of equal turns, as `weir_sched::partition::RoundRobin` has it while all are ready, step by step. At some times the last VM takes the rest of the
    /// turn, if it has not got it.
    struct Round<'a> {
        quantum: u64,
        vms: u64,
        times: &'a [u64],
    }

    impl Round<'_> {
        /// Who has the core in each step, and the end of that turn.
        fn run(&self, steps: u64) -> impl Iterator<Item = (u64, u64)> {
            let (mut turn, mut end) = (self.vms - 1, 0);
            (0..steps).map(move |now| {
                if now >= end {
                    turn = (turn + 1) % self.vms;
                    end = now + self.quantum;
                }
                if self.times.contains(&now) {
                    turn = self.vms - 1;
                }
                (turn, end)
            })
        }
    }

    fn ns(times: &[(u64, u64)]) -> Vec<(Nanos, Nanos)> {
        times.iter().map(|&(a, b)| (Nanos(a), Nanos(b))).collect()
    }

    #[test]
    fn mobivmm_two_vms_of_20_ms() {
        let schedule = Schedule::RoundRobin {
            quantum: Nanos(20_000_000),
            others: Nanos(20_000_000),
            switch: Nanos(0),
            vms: 2,
        };
        let free = Supply::new(schedule.clone(), vec![]).unwrap();
        assert_eq!(free.window_for(Nanos(1)), Some(Nanos(20_000_001)));
        // No admission rule: no bound, and the analysis says so.
        let open = InterruptLine { admission: None, cost: Nanos(1000), delay: Nanos(0) };
        let flooded = Supply::new(schedule.clone(), vec![open]).unwrap();
        let task = VmTask {
            cost: Nanos(1_000_000),
            period: Nanos(100_000_000),
            jitter: Nanos(0),
            blocking: Nanos(0),
        };
        assert!(flooded.unprotected());
        assert_eq!(response_times(&[task], &flooded), [None]);
        // One interrupt of 10 us a millisecond at most: 1 % less.
        let rule = Admission { burst: 1, interval: Nanos(1_000_000) };
        let ruled = InterruptLine { admission: Some(rule), cost: Nanos(10_000), delay: Nanos(0) };
        let guarded = Supply::new(schedule, vec![ruled]).unwrap();
        let alone = response_times(&[task], &free)[0].unwrap();
        let beside = response_times(&[task], &guarded)[0].unwrap();
        assert_eq!(alone, Nanos(21_000_000));
        assert_eq!(beside, Nanos(21_000_000 + 22 * 10_000));
    }

    #[test]
    fn textbook_response_times() {
        // Burns and Wellings: C 3, 3, 5 of T 7, 12, 20 respond in 3, 6, 20.
        let tasks = [(3, 7), (3, 12), (5, 20)].map(|(c, p)| VmTask {
            cost: Nanos(c),
            period: Nanos(p),
            jitter: Nanos(0),
            blocking: Nanos(0),
        });
        let supply = Supply::new(Schedule::Dedicated, vec![]).unwrap();
        assert_eq!(
            response_times(&tasks, &supply),
            [Some(Nanos(3)), Some(Nanos(6)), Some(Nanos(20))]
        );
        // Lehoczky 1990: C 26, 62 of T 70, 100; the fifth job of the second is the latest, 118.
        let tasks = [(26, 70), (62, 100)].map(|(c, p)| VmTask {
            cost: Nanos(c),
            period: Nanos(p),
            jitter: Nanos(0),
            blocking: Nanos(0),
        });
        assert_eq!(response_times(&tasks, &supply)[1], Some(Nanos(118)));
    }

    #[test]
    fn interference_is_limited_by_issue_or_by_victim() {
        use crate::memory::{Bound, Budget, CriticalTask, Regulation, execution_bound};
        let supply = Supply::new(Schedule::Dedicated, vec![]).unwrap();
        let interferer = Interferer {
            budget: Budget { accesses: 50, period: Nanos(30_000) },
            regulation: Regulation::Static,
            overshoot: Events(0),
            write_back: false,
            vms: 1,
        };
        let task = VmTask {
            cost: Nanos(100_000),
            period: Nanos(10_000_000),
            jitter: Nanos(0),
            blocking: Nanos(0),
        };
        for (accesses, per_access) in [(None, None), (Some(40), Some(2)), (Some(10_000), Some(1))] {
            let delay = Nanos(60);
            let beside = Interference { interferers: vec![interferer], delay, per_access };
            let alone = task.cost;
            let critical =
                CriticalTask { alone, accesses: accesses.unwrap_or(0), delay, per_access };
            let Bound::AtMost(bound) = execution_bound(&critical, &[interferer]) else { panic!() };
            // One job alone on its core is the execution bound.
            let times = response_times_beside(&[task], &supply, &[accesses], Some(&beside), None);
            assert_eq!(times, [Some(bound)]);
            assert!(bound > task.cost);
        }
        // A budget without limit has no bound unless the own accesses cap it.
        let budget = Budget { accesses: u64::MAX, period: Nanos(1) };
        let wild = Interferer { budget, ..interferer };
        let beside =
            |per_access| Interference { interferers: vec![wild], delay: Nanos(60), per_access };
        let times = |per_access| {
            response_times_beside(&[task], &supply, &[Some(10)], Some(&beside(per_access)), None)
        };
        assert_eq!(times(None), [None]);
        assert_eq!(times(Some(1)), [Some(Nanos(100_600))]);
        // Blocked by who knows what: no cap.
        let blocked = VmTask { blocking: Nanos(1), ..task };
        let times =
            response_times_beside(&[blocked], &supply, &[Some(10)], Some(&beside(Some(1))), None);
        assert_eq!(times, [None]);
    }

    #[test]
    fn servers_hit_twice_only_if_unsynchronized() {
        let free = Switching::default();
        let hold = |servers: &[(u64, u64)]| servers_hold(&ns(servers), &free, &[]);
        assert!(hold(&[(5, 10), (5, 10)]) && !hold(&[(5, 10), (6, 10)]));
        assert!(hold(&[(5, 10), (10, 20)]) && !hold(&[(5, 10), (11, 20)]));
        // From 14 on: 6 to 20, and 6 from then on.
        assert!(hold(&[(6, 10), (2, 14)]) && !hold(&[(6, 10), (3, 14)]));
        assert!(!hold(&[(4, 0)]));
    }

    #[test]
    fn switches_are_in_the_budgets() {
        let switching = Switching { most: Nanos(2), least: Nanos(1), entry: Nanos(0) };
        let hold = |servers: &[(u64, u64)]| servers_hold(&ns(servers), &switching, &[]);
        assert!(!hold(&[(50, 100), (50, 100)]));
        assert!(hold(&[(50, 100), (46, 100)]) && !hold(&[(50, 100), (47, 100)]));
        // One of lower priority keeps it waiting.
        assert!(hold(&[(100, 100)]) && !hold(&[(100, 100), (0, 100)]));
        let servers = ns(&[(50, 100), (46, 100)]);
        assert!(!servers_hold(&servers, &switching, &[Nanos(0), Nanos(1)]));
        assert_eq!(left_of_budget(&servers, 1, &switching), Nanos(42));
        let entry = Switching { entry: Nanos(1), ..switching };
        // 54 turns of 1 each and one that was under way.
        assert_eq!(left_of_budget(&ns(&[(50, 200), (80, 200)]), 1, &entry), Nanos(80 - 4 - 55));
    }

    #[test]
    fn bad_schedules_are_refused() {
        let table = |frame, slots: &[(u64, u64)]| {
            Supply::new(
                Schedule::Table { frame: Nanos(frame), slots: ns(slots), switch: Nanos(0) },
                vec![],
            )
            .map(|_| ())
        };
        assert_eq!(table(0, &[]), Err(ScheduleError::Zero));
        assert_eq!(table(10, &[(0, 4), (3, 2)]), Err(ScheduleError::Slot(1)));
        assert_eq!(table(10, &[(8, u64::MAX)]), Err(ScheduleError::Slot(0)));
        let server = Schedule::Server { budget: Nanos(3), period: Nanos(2), switch: Nanos(0) };
        assert_eq!(Supply::new(server, vec![]).map(|_| ()), Err(ScheduleError::Budget));
    }

    proptest! {
        /// Against the supply counted nanosecond by nanosecond over every window of three frames.
        #[test]
        fn table_supply_is_the_least_over_all_windows(
            frame in 1u64..24, cuts in prop::collection::vec(0u64..24, 0..6), t in 0u64..60,
        ) {
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c % (frame + 1)).collect();
            cuts.sort_unstable();
            let slots: Vec<_> = cuts.chunks_exact(2).map(|c| (Nanos(c[0]), Nanos(c[1] - c[0]))).collect();
            let on = |x: u64| slots.iter().any(|&(s, l)| (s.0..s.0 + l.0).contains(&(x % frame)));
            let least = (0..frame).map(|s| (s..s + t).filter(|&x| on(x)).count() as u64).min().unwrap();
            let supply = Supply::new(Schedule::Table { frame: Nanos(frame), slots, switch: Nanos(0) }, vec![]).unwrap();
            prop_assert_eq!(supply.least(Nanos(t)), Nanos(least));
        }

        /// A server whose budget may lie anywhere in each period: the worst window has it early, then late.
        #[test]
        fn server_supply_is_that_of_budget_early_then_late(budget in 1u64..10, gap in 0u64..10, t in 0u64..80) {
            let period = budget + gap;
            let server = Schedule::Server { budget: Nanos(budget), period: Nanos(period), switch: Nanos(0) };
            let supply = Supply::new(server, vec![]).unwrap();
            // The window starts as the early budget ends.
            let late = |x: u64| x >= gap && (x - gap) % period >= gap;
            let expected = (0..t).filter(|&x| late(x)).count() as u64;
            prop_assert_eq!(supply.least(Nanos(t)).0, expected);
        }

        #[test]
        fn the_line_lies_under_the_supply(
            frame in 1u64..24, cuts in prop::collection::vec(0u64..24, 0..6), t in 0u64..200,
            interval in 20u64..90, cost in 0u64..3, delay in 0u64..6, kind in 0..3, switch in 0u64..3,
        ) {
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c % (frame + 1)).collect();
            cuts.sort_unstable();
            let slots: Vec<_> = cuts.chunks_exact(2).map(|c| (Nanos(c[0]), Nanos(c[1] - c[0]))).collect();
            let schedule = match kind {
                0 => Schedule::Table { frame: Nanos(frame), slots, switch: Nanos(switch) },
                1 => Schedule::Server { budget: Nanos(frame / 2), period: Nanos(frame), switch: Nanos(switch) },
                _ => Schedule::RoundRobin { quantum: Nanos(frame), others: Nanos(7), switch: Nanos(switch), vms: 2 },
            };
            let admission = Some(Admission { burst: 2, interval: Nanos(interval) });
            let line = InterruptLine { admission, cost: Nanos(cost), delay: Nanos(delay) };
            let supply = Supply::new(schedule, vec![line]).unwrap();
            if let Some(line) = supply.linear() {
                let promised = u128::from(line.share) * u128::from(t.saturating_sub(line.delay.0)) / u128::from(line.whole);
                prop_assert!(u128::from(supply.least(Nanos(t)).0) >= promised, "{:?}", line);
            }
        }

        /// A round in which the last VM's interrupts take the rest of whatever turn is under way: what each gets of any window, the last one, too.
        #[test]
        fn preempting_interrupts_delay_a_round_as_published(
            quantum in 1u64..9, vms in 2u32..5, victim in 0u32..4, times in prop::collection::vec(0u64..160, 0..6),
        ) {
            let victim = victim % vms;
            let round = Round { quantum, vms: vms.into(), times: &times };
            let has: Vec<bool> = round.run(200).map(|(who, _)| who == u64::from(victim)).collect();
            let switch = Nanos(0);
            let others = Nanos(quantum * u64::from(vms - 1));
            let schedule = Schedule::RoundRobin { quantum: Nanos(quantum), others, switch, vms };
            let supply = Supply::new(schedule, vec![]).unwrap();
            for (start, t) in (0..150).flat_map(|start| (0..50).map(move |t| (start, t))) {
                let got = has[start..start + t].iter().filter(|has| **has).count() as u64;
                let span = start as u64..(start + t) as u64;
                let came = times.iter().filter(|time| span.contains(time)).count() as u64;
                let late = put_off(Nanos(quantum), switch, vms).0 * came;
                let least = supply.least(Nanos((t as u64).saturating_sub(late)));
                prop_assert!(got >= least.0, "{got} of {t} from {start}, at least {least:?}");
            }
        }

        /// Two VMs in a round; the first's ticks are lost while it is off.
        #[test]
        fn no_tick_comes_later_than_said(
            tick in 1u64..5, ticks in 1u32..4, longer in 0u64..5, own in 0u64..3, times in prop::collection::vec(0u64..160, 0..6),
        ) {
            let quantum = (u64::from(ticks - 1) * tick + own + 1).max(tick) + longer;
            let round = Round { quantum, vms: 2, times: &times };
            let mut next = 0;
            let (mut all, mut has) = (Vec::new(), Vec::new());
            let mut was = false;
            for (now, (who, _)) in (0u64..).zip(round.run(400)) {
                let is = who == 0;
                if is && !was {
                    next = next.max(now);
                }
                if is && now >= next {
                    all.push(now);
                    next = now + tick;
                }
                has.push(is);
                was = is;
            }
            let schedule = Schedule::RoundRobin {
                quantum: Nanos(quantum), others: Nanos(quantum), switch: Nanos(0), vms: 2,
            };
            for start in (0..200).filter(|start| has[*start as usize]) {
                let last = *all.iter().filter(|time| **time > start).nth(ticks as usize - 1).unwrap();
                let its = (last..400).filter(|time| has[*time as usize]);
                let end = its.take(own as usize).last().map_or(last, |step| step + 1);
                let late = end - start;
                let came = times.iter().filter(|time| (start..start + late).contains(time)).count();
                // As many as came, at once.
                let line = (came > 0).then_some(InterruptLine {
                    admission: Some(Admission { burst: came as u64, interval: Nanos(1 << 40) }),
                    cost: Nanos(0),
                    delay: put_off(Nanos(quantum), Nanos(0), 2),
                });
                let supply = Supply::new(schedule.clone(), line.into_iter().collect()).unwrap();
                let bound = supply.nth_tick(ticks, Nanos(tick), Nanos(own)).unwrap();
                // A tick that is looked at in the step after the one in which it fell due is one later.
                prop_assert!(late <= bound.0 + 1, "{late} from {start}, at most {bound:?}");
            }
        }

        #[test]
        fn window_for_is_the_inverse(budget in 1u64..10, gap in 0u64..10, need in 0u64..50) {
            let server = Schedule::Server { budget: Nanos(budget), period: Nanos(budget + gap), switch: Nanos(0) };
            let supply = Supply::new(server, vec![]).unwrap();
            let window = supply.window_for(Nanos(need)).unwrap();
            prop_assert!(supply.least(window).0 >= need);
            prop_assert!(window.0 == 0 || supply.least(Nanos(window.0 - 1)).0 < need);
        }
    }
}
