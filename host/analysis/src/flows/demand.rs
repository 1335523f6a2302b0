//! The demand test of Theorem 1 and the minimum bandwidth of Algorithm 1.
//!
//! Times are in half nanoseconds, and demand is in half nanoseconds times the bandwidth, so that
//! both sides of Eq. 10 are integers.
//!
//! Tasks are sorted by d = D' - J'. Between two consecutive values of d the same tasks have demand
//! and the blocking Q is constant, so that the demand h does not fall with t. There the test
//! descends as QPA does: if h(t) is at most t, then every instant in [h(t), t] holds.

mod utilization;
mod verdict;

use super::task::{
    HALVES_PER_SEC, InputError, MAX_BANDWIDTH, TransferPiece, TransformedTask, check_bandwidth,
};
use crate::units::{BytesPerSec, HalfNanos};
use utilization::Utilization;

pub use verdict::{Effort, FailingInstant, MinBandwidth, Schedulability, UnschedulableCause};

/// No instant beyond this many half ns (73 years) is tested.
const REACH: i64 = 1 << 62;
/// The effort of one task's demand at one instant.
const EVALUATION: u64 = 8;

/// Why a sweep ended early.
enum Stop {
    /// Eq. 10 fails at this instant, a point of D.
    Fails(i64),
    /// The effort is spent.
    Spent,
}

/// A set of tasks under test.
pub struct Analyzer {
    /// In order of d.
    tasks: Vec<TransformedTask>,
    /// The position of each task in the set that was given.
    index: Vec<usize>,
    /// Stretches of best effort, which can block at any instant.
    background: Vec<[TransferPiece; 2]>,
    utilization: Utilization,
    fault: Option<UnschedulableCause>,
    /// The rest of the effort granted.
    effort: u64,
    spent: u64,
}

impl Analyzer {
    /// Takes a set next to best effort, which runs when nothing else is pending: it has no deadline
    /// and no demand, but its longest stretch can block at any instant. Positions in results are
    /// positions in `tasks`, and behind them those of `best_effort`.
    #[must_use]
    pub fn new(tasks: &[TransformedTask], best_effort: &[TransformedTask]) -> Self {
        let mut index: Vec<usize> = (0..tasks.len()).collect();
        index.sort_by_key(|&i| tasks[i].window());
        let first = tasks.iter().position(|task| task.period.0 <= 0 || task.window() <= 0);
        let fault = first.map(|task| {
            let (period, window) = (tasks[task].period, HalfNanos(tasks[task].window()));
            if period.0 <= 0 {
                UnschedulableCause::NoPeriod { task, period }
            } else {
                UnschedulableCause::NoTime { task, window }
            }
        });
        Self {
            tasks: index.iter().map(|&i| tasks[i]).collect(),
            index,
            background: best_effort.iter().map(|task| task.stretches).collect(),
            utilization: Utilization::of(if fault.is_none() { tasks } else { &[] }),
            fault,
            effort: 0,
            spent: 0,
        }
    }

    /// Returns what all questions so far took, in the unit of [`Effort`].
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// Tests the set at a bandwidth (Theorem 1 over the points of D).
    ///
    /// # Errors
    ///
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn verdict(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Schedulability, InputError> {
        let b = check_bandwidth(bandwidth)?;
        if let Some(cause) = self.fault {
            return Ok(Schedulability::Unschedulable(cause));
        }
        if self.utilization.exceeds_one(b) {
            return Ok(Schedulability::Unschedulable(UnschedulableCause::Overload));
        }
        self.effort = effort.0;
        let end = self.horizon(b);
        let (mut lo, mut hi) = (0, self.last());
        loop {
            match self.sweep(lo, hi, b) {
                Ok(()) if hi >= end => return Ok(Schedulability::Schedulable),
                Ok(()) if hi < REACH => (lo, hi) = (hi, hi.saturating_mul(2).min(end).min(REACH)),
                Err(Stop::Fails(at)) => {
                    return Ok(Schedulability::Unschedulable(UnschedulableCause::Demand(
                        self.failure(at, b),
                    )));
                }
                Ok(()) => return Ok(Schedulability::GaveUp { checked: HalfNanos(hi) }),
                Err(Stop::Spent) => return Ok(Schedulability::GaveUp { checked: HalfNanos(lo) }),
            }
        }
    }

    /// Returns the smallest bandwidth at which the set is schedulable (Algorithm 1).
    ///
    /// If U' is so close to 1 there that the last instant to test is out of reach, or if the effort
    /// is spent, the answer is [`MinBandwidth::GaveUp`]: a lower bound, and a bandwidth that is
    /// proven to be enough, if one was found. It is the first of the lower bound times 1 + 2^-n,
    /// for n from 20 down to 0, for which the proof succeeds.
    pub fn min_bandwidth(&mut self, effort: Effort) -> MinBandwidth {
        if let Some(cause) = self.fault {
            return MinBandwidth::Never(cause);
        }
        self.effort = effort.0 / 8;
        let mut b = match self.utilization.least_bandwidth() {
            Ok(b) => b,
            Err(cause) => return MinBandwidth::Never(cause),
        };
        let (mut lo, mut hi) = (0, self.last());
        let mut top = hi;
        loop {
            match self.sweep(lo, top, b) {
                // The instants above it hold, at a larger bandwidth, too.
                Err(Stop::Fails(at)) => match self.least_at(at) {
                    Ok(least) => (b, top) = (least, at - 1),
                    Err(cause) => return MinBandwidth::Never(cause),
                },
                Ok(()) => {
                    let end = self.horizon(b);
                    if hi >= end {
                        return MinBandwidth::Exactly(BytesPerSec(b));
                    }
                    if hi >= REACH {
                        return self.bracket(b, effort);
                    }
                    (lo, hi) = (hi, hi.saturating_mul(2).min(end).min(REACH));
                    top = hi;
                }
                Err(Stop::Spent) => return self.bracket(b, effort),
            }
        }
    }

    /// Returns a bandwidth above `at_least` that can be proven.
    fn bracket(&mut self, at_least: u64, effort: Effort) -> MinBandwidth {
        let enough = [20, 16, 12, 9, 6, 3, 0].into_iter().find_map(|shift| {
            let b = at_least.saturating_add(at_least >> shift).saturating_add(1);
            let b = BytesPerSec(b.min(MAX_BANDWIDTH));
            (self.verdict(b, Effort(effort.0 / 8)) == Ok(Schedulability::Schedulable)).then_some(b)
        });
        MinBandwidth::GaveUp { at_least: BytesPerSec(at_least), enough }
    }

    /// Returns the earliest instant at which Eq. 10 fails at a bandwidth. None if it never does or
    /// the effort is spent first: U' may exceed 1 so little that the first failure is out of reach.
    ///
    /// # Errors
    ///
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn first_failure(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Option<FailingInstant>, InputError> {
        let b = check_bandwidth(bandwidth)?;
        if self.fault.is_some() {
            return Ok(None);
        }
        self.effort = effort.0;
        let last = self.last();
        let overloaded = self.utilization.exceeds_one(b);
        let end = if overloaded { REACH } else { self.horizon(b).clamp(last, REACH) };
        let (mut lo, mut hi) = (0, self.tasks[0].window());
        loop {
            match self.sweep(lo, hi, b) {
                Err(Stop::Fails(at)) => {
                    hi = at;
                    break;
                }
                Ok(()) if hi < end => (lo, hi) = (hi, hi.saturating_mul(2).min(end)),
                _ => return Ok(None),
            }
        }
        while hi - lo > 1 {
            let middle = lo + (hi - lo) / 2;
            match self.sweep(lo, middle, b) {
                Err(Stop::Fails(at)) => hi = at,
                Ok(()) => lo = middle,
                Err(Stop::Spent) => return Ok(None),
            }
        }
        Ok(Some(self.failure(hi, b)))
    }

    /// Returns for each task the least t - Q - DBF over its own deadlines, in ns (rounded down to
    /// 0.1 ns; negative where Eq. 10 fails). None where the effort was spent or U' > 1.
    ///
    /// # Errors
    ///
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn slack(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Vec<Option<f64>>, InputError> {
        let b = check_bandwidth(bandwidth)?;
        let mut slack = vec![None; self.tasks.len()];
        if self.fault.is_some() || self.utilization.exceeds_one(b) {
            return Ok(slack);
        }
        self.effort = effort.0;
        let (spare, excess, end) = (self.utilization.spare(b), self.excess(b), self.last());
        for i in 0..self.tasks.len() {
            let mut least = f64::INFINITY;
            let mut t = self.tasks[i].window();
            loop {
                let Some(demand) = self.evaluate(t, b) else { return Ok(slack) };
                let left = t as f64 - demand as f64 / b as f64;
                least = least.min(left);
                // From the last d on the slack is at least (1 - U') t - A, which grows.
                if t >= end && spare * t as f64 - excess >= least {
                    break;
                }
                match t.checked_add(self.tasks[i].period.0) {
                    Some(next) if next < REACH => t = next,
                    _ => break,
                }
            }
            slack[self.index[i]] = Some((least / 2.0 * 10.0).floor() / 10.0);
        }
        Ok(slack)
    }

    /// Returns U', the sum of C'/P', for printing. None where a flow is left no period, so that
    /// there is no such number.
    #[must_use]
    pub fn utilization(&self, bandwidth: BytesPerSec) -> Option<f64> {
        let share =
            |task: &TransformedTask| 2.0 * task.wcet.nanos(bandwidth) / task.period.0 as f64;
        let has_period = self.tasks.iter().all(|task| task.period.0 > 0);
        has_period.then(|| self.tasks.iter().map(share).sum())
    }

    fn last(&self) -> i64 {
        self.tasks.last().map_or(0, TransformedTask::window)
    }

    /// Returns the end of the instants to test, if U' <= 1: T* of Eq. 13 with the blocking of best
    /// effort. From there on the demand, which is at most U' t + A, is below t.
    fn horizon(&self, b: u64) -> i64 {
        let (excess, spare) = (self.excess(b), self.utilization.spare(b));
        let reached = if excess <= 0.0 {
            0
        } else if spare > 0.0 {
            // Saturates.
            (excess / spare * (1.0 + 1e-9)).ceil() as i64
        } else {
            i64::MAX
        };
        if reached <= self.last() {
            return self.last();
        }
        let mut periods = self.tasks.iter().map(|task| task.period.0);
        let hyperperiod =
            periods.try_fold(1_i64, |all, period| (all / gcd(all, period)).checked_mul(period));
        // What blocks at any instant blocks beyond the hyperperiod, too: from the last d on all
        // repeats.
        let first = if self.background.is_empty() { 0 } else { self.last() };
        reached.min(hyperperiod.map_or(i64::MAX, |all| all.saturating_add(first)))
    }

    /// Returns an upper bound on A: the blocking of best effort and the sum of C' (1 - d/P').
    fn excess(&self, b: u64) -> f64 {
        let time = |piece: TransferPiece| piece.scaled(b) as f64 / b as f64;
        let blocking = self.background.iter().flatten().map(|piece| time(*piece));
        let (mut sum, mut size) = (blocking.fold(0.0, f64::max), 0.0);
        for task in &self.tasks {
            let early = task.window() as f64 / task.period.0 as f64;
            sum += time(task.wcet) * (1.0 - early);
            size += time(task.wcet) * (1.0 + early);
        }
        sum + (sum.abs() + size) * (self.tasks.len() as f64 + 16.0) * f64::EPSILON
    }

    /// Returns the number of tasks that have demand at `t`.
    fn count(&self, t: i64) -> usize {
        self.tasks.partition_point(|task| task.window() <= t)
    }

    /// Returns the stretches that can block at an instant at which `count` tasks have demand, with
    /// the positions of their tasks.
    fn blockers(&self, count: usize) -> impl Iterator<Item = (TransferPiece, usize)> {
        let later = (count..self.tasks.len()).map(|i| (self.tasks[i].stretches, self.index[i]));
        let background = self.background.iter().copied().zip(self.tasks.len()..);
        later.chain(background).flat_map(|(stretches, task)| stretches.map(|piece| (piece, task)))
    }

    /// Returns the work that is due at `t`.
    fn due(&self, t: i64) -> impl Iterator<Item = (u64, TransferPiece)> {
        let jobs = move |task: &TransformedTask| ((t - task.window()) / task.period.0) as u64 + 1;
        self.tasks[..self.count(t)].iter().map(move |task| (jobs(task), task.wcet))
    }

    /// Returns Q + DBF at `t`, times the bandwidth, with the task that blocks. Saturates: the
    /// capacity t b is below 2^112.
    fn demand(&self, t: i64, b: u64) -> (u128, Option<usize>) {
        let work = self.due(t).map(|(jobs, wcet)| wcet.scaled(b).saturating_mul(jobs.into()));
        let demand = work.fold(0, u128::saturating_add);
        let blockers = self.blockers(self.count(t)).map(|(piece, task)| (piece.scaled(b), task));
        match blockers.max_by_key(|(scaled, _)| *scaled) {
            Some((blocking, task)) => (demand.saturating_add(blocking), Some(task)),
            None => (demand, None),
        }
    }

    /// Returns the same demand at the price of an evaluation; none if the effort is spent.
    fn evaluate(&mut self, t: i64, b: u64) -> Option<u128> {
        let price = EVALUATION * self.tasks.len() as u64;
        self.effort = self.effort.checked_sub(price)?;
        self.spent = self.spent.saturating_add(price);
        Some(self.demand(t, b).0)
    }

    fn failure(&self, at: i64, b: u64) -> FailingInstant {
        let (demand, blocker) = self.demand(at, b);
        let demand = u64::try_from(demand.div_ceil(b.into())).unwrap_or(u64::MAX);
        FailingInstant { at: HalfNanos(at), demand, blocker }
    }

    /// Tests the points of D in (lo, hi], from the last to the first.
    fn sweep(&mut self, lo: i64, hi: i64, b: u64) -> Result<(), Stop> {
        let mut t = hi;
        while t > lo {
            let Some(segment) = self.count(t).checked_sub(1) else { break };
            let first = self.tasks[segment].window();
            let demand = self.evaluate(t, b).ok_or(Stop::Spent)?;
            if demand > t as u128 * u128::from(b) {
                let before = |task: &TransformedTask| t - (t - task.window()) % task.period.0;
                let point = self.tasks[..=segment].iter().map(before).max().unwrap_or(t);
                // The demand steps up at or before `lo`, which is not in question here.
                return if point > lo { Err(Stop::Fails(point)) } else { Ok(()) };
            }
            let held = ((demand / u128::from(b)) as i64).min(t - 1);
            t = if held < first { first - 1 } else { held };
        }
        Ok(())
    }

    /// Returns the smallest bandwidth that satisfies Eq. 10 at `t`: Eq. 18, and its two other cases
    /// over every stretch that can block.
    fn least_at(&self, t: i64) -> Result<u64, UnschedulableCause> {
        let (mut fixed, mut bytes) = (0_u128, 0_u128);
        for (jobs, wcet) in self.due(t) {
            fixed += u128::from(jobs) * u128::from(wcet.fixed);
            bytes += u128::from(jobs) * u128::from(wcet.bytes);
        }
        let blockers = self.blockers(self.count(t)).map(|(piece, task)| (piece, Some(task)));
        let mut least = 0;
        for (stretch, blocker) in core::iter::once((TransferPiece::default(), None)).chain(blockers)
        {
            let overhead = fixed + u128::from(stretch.fixed);
            let data = bytes + u128::from(stretch.bytes);
            let room = (t as u128).saturating_sub(overhead);
            if room == 0 {
                let demand = u64::try_from(overhead).unwrap_or(u64::MAX);
                let failure = FailingInstant { at: HalfNanos(t), demand, blocker };
                return Err(UnschedulableCause::OverheadDemand(failure));
            }
            least = least.max(data.saturating_mul(HALVES_PER_SEC.into()).div_ceil(room));
        }
        let least = u64::try_from(least).ok().filter(|least| *least <= MAX_BANDWIDTH);
        least.ok_or(UnschedulableCause::BeyondLimit)
    }
}

const fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
