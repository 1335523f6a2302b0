//! The demand test of Theorem 1 and the minimum bandwidth of Algorithm 1.
//!
//! Time is counted in half nanoseconds and demand in half nanoseconds times the bandwidth, so both sides of Eq. 10
//! are integers. Doubles are used as a filter only: they bound the demand from above, and where that bound does not
//! decide, the integers do.
//!
//! Tasks are sorted by d = D' - J'. Between d_k and d_(k+1) (*segment* k) only the tasks up to k have demand and the
//! blocking Q is the largest stretch of the tasks after k. With U_k, A_k the sums of C'/P' and C' (1 - d/P') over
//! those tasks the demand in the segment is at most Q_k + A_k + U_k t, hence met from T_k = (Q_k + A_k) / (1 - U_k)
//! on. Eq. 13 is this bound for the last segment; the others cut the points to test by orders of magnitude. Inside
//! a segment the test descends as QPA does: if the demand h at t is at most t, then every point in [h, t] holds.

use core::fmt;

use num_bigint::BigUint;

use super::alignment::{self, Budget, Wave};
use super::task::{FlowError, HALVES_PER_SEC, MAX_BANDWIDTH, Piece, Task, check_bandwidth};
use crate::units::{BytesPerSec, HalfNanos};

/// How much may be spent on one question, in evaluations of one task's demand at one instant (about 1 ns each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort(pub u64);

impl Default for Effort {
    fn default() -> Self {
        Self(1 << 31)
    }
}

/// Why a set can't be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// D' - J' <= 0: the overheads leave this task no time at all.
    NoTime {
        /// Position of the task.
        task: usize,
        /// D' - J'.
        window: HalfNanos,
    },
    /// P' <= 0: the spread of the send overhead exceeds the period.
    NoPeriod {
        /// Position of the task.
        task: usize,
        /// P'.
        period: HalfNanos,
    },
    /// U' > 1 at the bandwidth asked.
    Overload,
    /// The overheads alone load the broker fully: no bandwidth helps (Eq. 16).
    OverheadOverload,
    /// Eq. 10 fails at the bandwidth asked.
    Demand(Failure),
    /// Eq. 10 fails at any bandwidth: the overheads alone exceed the interval (Eq. 17).
    OverheadDemand(Failure),
    /// Only a bandwidth over 1 PiB/s would do.
    BeyondLimit,
}

/// An instant at which Eq. 10 fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// t, a point of D.
    pub at: HalfNanos,
    /// Demand and blocking at `at` in half ns, rounded up; of the overheads alone for [`Cause::OverheadDemand`].
    pub demand: u64,
    /// The task whose non-preemptive stretch blocks, if one does.
    pub blocker: Option<usize>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoTime { task, window } => {
                write!(f, "flow {task}: the overheads leave D' - J' = {window}")
            }
            Self::NoPeriod { task, period } => {
                write!(f, "flow {task}: the spread of the send overhead leaves P' = {period}")
            }
            Self::Overload => {
                f.write_str("U' > 1: the sum of C'/P' over all flows is over 1 at this bandwidth")
            }
            Self::OverheadOverload => f.write_str(
                "the sum of overhead/P' over all flows is 1 or more: no bandwidth helps",
            ),
            Self::Demand(at) => write!(f, "demand exceeds the interval: {at}"),
            Self::OverheadDemand(at) => {
                write!(f, "the overheads alone fill the interval, no bandwidth helps: {at}")
            }
            Self::BeyondLimit => f.write_str("only a bandwidth over 1 PiB/s would do"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demand = HalfNanos(i64::try_from(self.demand).unwrap_or(i64::MAX));
        write!(f, "{demand} in {}", self.at)?;
        match self.blocker {
            Some(task) => write!(f, ", with blocking by flow {task}"),
            None => Ok(()),
        }
    }
}

/// Whether a set is schedulable at a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every deadline is met.
    Schedulable,
    /// The condition of Theorem 1 does not hold.
    Unschedulable(Cause),
    /// The effort was spent before the last instant to test.
    GaveUp {
        /// No failure at or before this instant.
        checked: HalfNanos,
    },
}

/// The smallest bandwidth at which a set is schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinBandwidth {
    /// The smallest integer number of bytes/s that is schedulable.
    Exactly(BytesPerSec),
    /// No bandwidth is enough.
    Never(Cause),
    /// The effort was spent: at least this much is needed, and the second, if found, is enough.
    GaveUp {
        /// One byte/s less is unschedulable.
        at_least: BytesPerSec,
        /// Proven to be schedulable.
        enough: Option<BytesPerSec>,
    },
}

/// What a sweep does where the demand is exceeded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    Stop,
    Raise,
}

enum Swept {
    /// No failure in the interval (at the bandwidth raised to, if it raised).
    Clean,
    /// Eq. 10 fails at this point of D.
    Fails(i64),
    /// No bandwidth helps.
    Never(Cause),
    /// The effort is spent; failures at or below this instant are not excluded.
    Spent,
}

/// The test, with its scratch memory: one analyzer serves many sets without allocating again.
#[derive(Default)]
pub struct Analyzer {
    // In order of d, all of the same length.
    index: Vec<u32>,
    /// d and position, to sort by.
    keys: Vec<u64>,
    window: Vec<i64>,
    period: Vec<i64>,
    cost: Vec<Piece>,
    stretches: Vec<[Piece; 2]>,
    /// Stretches of best effort, which can block at any instant.
    background: Vec<[Piece; 2]>,
    // The filter: the same values as doubles.
    d: Vec<f64>,
    rate: Vec<f64>,
    /// The sums of what does not depend on the bandwidth and of the bytes of each, over P'.
    fixed_load: f64,
    byte_load: f64,
    /// C' at `bandwidth`, rounded up.
    c: Vec<f64>,
    /// The sum of the first of them.
    total: Vec<f64>,
    /// Q_k at `bandwidth`, rounded up.
    blocking: Vec<f64>,
    /// Q_k + A_k at `bandwidth`, rounded up.
    offset: Vec<f64>,
    /// T_k at `bandwidth`, rounded up.
    until: Vec<f64>,
    bandwidth: u64,
    /// U' > 1 at `bandwidth`: no T_k holds.
    overloaded_now: bool,
    /// An upper bound of A over all tasks, the sum of C' (1 - d/P').
    excess: f64,
    /// A lower bound of 1 - U' at `bandwidth`; 0 if U' = 1.
    spare: f64,
    /// Up to where the hyperperiod was looked for, and the hyperperiod if it is less.
    hyperperiod: Option<(i64, Option<i64>)>,
    /// The set is schedulable at this bandwidth, as was found out before.
    enough: Option<u64>,
    fault: Option<Cause>,
    /// What is left of the effort granted.
    effort: u64,
    /// Effort granted to the question at hand, and what was spent on those before it.
    granted: u64,
    before: u64,
}

/// Added before rounding to the nearest integer, so that the result is floor(x) or, within 2^-30 below an integer,
/// one more.
const FLOOR_BIAS: f64 = -0.5 + 1.0 / (1u64 << 30) as f64;
/// Adding and subtracting it rounds a double below 2^51 to the nearest integer.
const ROUND: f64 = 6_755_399_441_055_744.0;
const EPS: f64 = f64::EPSILON;
/// Relative errors of a few sums of doubles stay far below.
const SLACK: f64 = 1.0 / (1u64 << 40) as f64;
/// Of so many tasks the phases are looked at before those of all are.
const LAST: usize = 8;
/// From this many evaluations on, alignment is tried; it costs about as much as a few thousand of them.
const FAR_EVALUATIONS: f64 = 400_000.0;
/// Alignments to be expected at most among the tasks that are looked at: fewer tasks are reduced faster, more branch less.
const UNLIKELY: f64 = 1e-5;
/// Most groups of tasks whose alignments are looked for one by one,
const GROUPS: usize = 8;
/// and how far each should reach, in periods, at most.
const GROUP_REACH: f64 = 0.33;
/// Of so many tasks with the longest periods the groups are made.
const LONGEST: usize = 2 * alignment::MOST;
/// What a branch in the search for alignments costs, in evaluations.
const NODE: u64 = 256;
/// Beyond this many half ns (73 years) nothing is tested: a set whose T* lies farther is given up.
const REACH: i64 = 1 << 62;
/// Beyond this many half ns (52 days) the filter is not used: as doubles the instants would not be exact.
const FAR: i64 = 1 << 53;

#[expect(
    clippy::cast_precision_loss,
    reason = "times are below 2^53; larger values are bounds, widened by their callers"
)]
fn float(x: i64) -> f64 {
    x as f64
}

#[expect(clippy::cast_precision_loss, reason = "bounds, widened by their callers")]
fn float_u(x: u64) -> f64 {
    x as f64
}

/// The greater; of numbers only, and so quicker than `f64::max`.
fn greater(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// ceil(a / b), saturating.
fn div_up(a: u128, b: u128) -> u64 {
    u64::try_from(a.div_ceil(b)).unwrap_or(u64::MAX)
}

impl Analyzer {
    /// An analyzer with no set loaded.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a set. Positions in results are positions in `tasks`.
    pub fn load(&mut self, tasks: &[Task]) {
        self.load_beside(tasks, &[]);
    }

    /// Takes a set beside best effort, which runs when nothing else is pending: it has no deadline and no demand, but
    /// its longest stretch can block at any instant. As blockers its tasks count on behind `tasks`.
    pub fn load_beside(&mut self, tasks: &[Task], best_effort: &[Task]) {
        let n = tasks.len();
        self.background.clear();
        self.background.extend(best_effort.iter().map(|task| task.stretches));
        self.index.clear();
        self.index.extend(0..n as u32);
        if n <= 1 << 16 && tasks.iter().all(|task| (0..1 << 47).contains(&task.window())) {
            // In one integer both are compared without a look at the tasks.
            self.keys.clear();
            self.keys.extend(tasks.iter().zip(0..).map(|(t, i)| (t.window() as u64) << 16 | i));
            self.keys.sort_unstable();
            for (index, key) in self.index.iter_mut().zip(&self.keys) {
                *index = (key & 0xffff) as u32;
            }
        } else {
            self.index.sort_unstable_by_key(|&i| tasks[i as usize].window());
        }
        self.window.clear();
        self.period.clear();
        self.cost.clear();
        self.stretches.clear();
        self.d.clear();
        self.rate.clear();
        let sorted = self.index.iter().map(|&i| &tasks[i as usize]);
        self.window.extend(sorted.clone().map(Task::window));
        self.period.extend(sorted.clone().map(|task| task.period.0));
        self.cost.extend(sorted.clone().map(|task| task.cost));
        self.stretches.extend(sorted.map(|task| task.stretches));
        self.d.extend(self.window.iter().map(|&window| float(window)));
        self.rate.extend(self.period.iter().map(|&period| (1.0 + 4.0 * EPS) / float(period)));
        let (mut fixed, mut bytes) = (0.0, 0.0);
        for (c, &rate) in self.cost.iter().zip(&self.rate) {
            fixed += float_u(c.fixed) * rate;
            bytes += float_u(c.bytes) * rate;
        }
        (self.fixed_load, self.byte_load) = (fixed, bytes);
        let buffers =
            [&mut self.c, &mut self.total, &mut self.blocking, &mut self.offset, &mut self.until];
        for buffer in buffers {
            buffer.clear();
            buffer.resize(n, 0.0);
        }
        let first = tasks.iter().position(|task| task.period.0 <= 0 || task.window() <= 0);
        self.fault = first.map(|i| {
            let (period, window) = (tasks[i].period, HalfNanos(tasks[i].window()));
            if period.0 <= 0 {
                Cause::NoPeriod { task: i, period }
            } else {
                Cause::NoTime { task: i, window }
            }
        });
        self.bandwidth = 0;
        self.overloaded_now = false;
        self.hyperperiod = None;
        self.enough = None;
    }

    /// What all questions to this analyzer took so far, in the unit of [`Effort`].
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.before.saturating_add(self.granted - self.effort)
    }

    fn grant(&mut self, effort: Effort) {
        self.before = self.spent();
        (self.granted, self.effort) = (effort.0, effort.0);
    }

    /// Tests the set at a bandwidth (Theorem 1 over the points of D).
    ///
    /// # Errors
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn verdict(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Verdict, FlowError> {
        let b = check_bandwidth(bandwidth)?;
        if let Some(cause) = self.fault {
            return Ok(Verdict::Unschedulable(cause));
        }
        self.grant(effort);
        // C' and q' fall with the bandwidth and nothing else depends on it.
        if self.enough.is_some_and(|enough| b >= enough) {
            return Ok(Verdict::Schedulable);
        }
        if self.overloaded(b) {
            return Ok(Verdict::Unschedulable(Cause::Overload));
        }
        self.overloaded_now = false;
        self.prepare(b);
        Ok(match self.run(OnFailure::Stop) {
            (_, Swept::Clean) => Verdict::Schedulable,
            (_, Swept::Fails(at)) => Verdict::Unschedulable(Cause::Demand(self.failure(at))),
            (_, Swept::Never(cause)) => Verdict::Unschedulable(cause),
            (checked, Swept::Spent) => Verdict::GaveUp { checked: HalfNanos(checked) },
        })
    }

    /// The smallest bandwidth at which the set is schedulable (Algorithm 1).
    pub fn min_bandwidth(&mut self, effort: Effort) -> MinBandwidth {
        if let Some(cause) = self.fault {
            return MinBandwidth::Never(cause);
        }
        self.grant(effort);
        let start = match self.least_for_utilization() {
            Ok(b) => b,
            Err(cause) => return MinBandwidth::Never(cause),
        };
        self.overloaded_now = false;
        self.prepare(start);
        match self.run(OnFailure::Raise) {
            (_, Swept::Clean) => {
                self.enough = Some(self.bandwidth);
                MinBandwidth::Exactly(BytesPerSec(self.bandwidth))
            }
            (_, Swept::Never(cause)) => MinBandwidth::Never(cause),
            (_, Swept::Fails(_) | Swept::Spent) => self.bracket(effort),
        }
    }

    /// After giving up at the current bandwidth: a bandwidth a little higher that can be proven.
    fn bracket(&mut self, effort: Effort) -> MinBandwidth {
        let at_least = self.bandwidth;
        let mut enough = None;
        for shift in [20, 16, 12, 9, 6, 3, 0] {
            let b = at_least.saturating_add(at_least >> shift).saturating_add(1).min(MAX_BANDWIDTH);
            let effort = Effort(effort.0 / 8);
            if self.verdict(BytesPerSec(b), effort) == Ok(Verdict::Schedulable) {
                enough = Some(BytesPerSec(b));
                break;
            }
        }
        MinBandwidth::GaveUp { at_least: BytesPerSec(at_least), enough }
    }

    /// The earliest instant at which Eq. 10 fails at a bandwidth; `None` if it never does or the effort is spent
    /// first (U' may exceed 1 so little that the first failure is out of reach).
    ///
    /// # Errors
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn first_failure(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Option<Failure>, FlowError> {
        let b = check_bandwidth(bandwidth)?;
        if self.fault.is_some() {
            return Ok(None);
        }
        self.grant(effort);
        self.overloaded_now = self.overloaded(b);
        self.prepare(b);
        let last = self.window[self.window.len() - 1];
        let end = if self.overloaded_now { FAR } else { self.horizon().clamp(last, FAR) };
        let (mut lo, mut hi) = (0, self.window[0]);
        let found = loop {
            match self.sweep(lo, hi, OnFailure::Stop) {
                Swept::Fails(at) => break at,
                Swept::Clean if hi < end => (lo, hi) = (hi, hi.saturating_mul(2).min(end)),
                _ => return Ok(None),
            }
        };
        // No failure up to lo, one at hi: close in.
        hi = found;
        while hi - lo > 1 {
            let middle = lo + (hi - lo) / 2;
            match self.sweep(lo, middle, OnFailure::Stop) {
                Swept::Fails(at) => hi = at,
                Swept::Clean => lo = middle,
                _ => return Ok(None),
            }
        }
        Ok(Some(self.failure(hi)))
    }

    /// For each task, in the order of [`Self::load`], the least t - Q - DBF over its own deadlines, in ns (a lower
    /// bound within 1 ns; negative where Eq. 10 fails). `None` where the effort was spent or U' > 1.
    ///
    /// # Errors
    /// If the bandwidth is 0 or over 1 PiB/s.
    pub fn slack(
        &mut self,
        bandwidth: BytesPerSec,
        effort: Effort,
    ) -> Result<Vec<Option<f64>>, FlowError> {
        let b = check_bandwidth(bandwidth)?;
        let n = self.window.len();
        let mut slack = vec![None; n];
        if self.fault.is_some() || self.overloaded(b) {
            return Ok(slack);
        }
        self.grant(effort);
        self.overloaded_now = false;
        self.prepare(b);
        let excess = self.excess;
        let latest = self.window[n - 1];
        for i in 0..n {
            let mut least = f64::INFINITY;
            let mut t = self.window[i];
            loop {
                let Some(rest) = self.effort.checked_sub(n as u64) else {
                    return Ok(slack);
                };
                self.effort = rest;
                let k = self.window.partition_point(|&d| d <= t) - 1;
                least = least.min(float(t) - self.demand_bound(k, float(t)));
                // From the last d on the slack is at least (1 - U) t - A, which grows.
                if t >= latest && self.spare * float(t) - excess >= least {
                    break;
                }
                match t.checked_add(self.period[i]) {
                    Some(next) if next < FAR => t = next,
                    _ => break,
                }
            }
            slack[self.index[i] as usize] = Some((least / 2.0 * 10.0).floor() / 10.0);
        }
        Ok(slack)
    }

    /// U', the sum of C'/P', for printing; `None` where a flow is left no period, so that there is no such number.
    #[must_use]
    pub fn utilization(&self, bandwidth: BytesPerSec) -> Option<f64> {
        if self.period.iter().any(|&p| p <= 0) {
            return None;
        }
        let shares = self.cost.iter().zip(&self.period);
        Some(shares.map(|(c, &p)| 2.0 * c.nanos(bandwidth) / float(p)).sum())
    }

    /// Sweeps everything that has to be tested; also says up to where no failure is left.
    fn run(&mut self, on_failure: OnFailure) -> (i64, Swept) {
        let last = self.window[self.window.len() - 1];
        let (mut lo, mut hi) = (0, last);
        // Where alignment took too long, it is retry_below again only on a much shorter range.
        let mut retry_below = i64::MAX;
        loop {
            match self.sweep(lo, hi, on_failure) {
                Swept::Clean => {}
                other => return (lo, other),
            }
            let end = self.horizon();
            if hi >= end {
                return (hi, Swept::Clean);
            }
            if hi >= REACH {
                return (hi, Swept::Spent);
            }
            let near = end.min(REACH);
            if self.worth_alignment(self.window.len(), hi, near) && near - hi < retry_below {
                let before = self.bandwidth;
                // Past `REACH` no instant is visited, but all of them may be excluded.
                let far = if end > REACH { self.until[self.until.len() - 1] as i128 } else { 0 };
                let mut outcome = None;
                if far > 0 {
                    outcome = self.sweep_alignments(hi, far, on_failure);
                }
                let beyond = outcome.is_none() && near < end;
                if outcome.is_none() {
                    outcome = self.sweep_alignments(hi, near.into(), on_failure);
                }
                match outcome {
                    // Raised: T* is nearer now.
                    Some(Swept::Clean) if self.bandwidth > before => {
                        (lo, hi) = (hi, hi);
                        continue;
                    }
                    Some(Swept::Clean) if beyond => return (near, Swept::Spent),
                    Some(outcome) => return (hi, outcome),
                    None => retry_below = (near - hi) / 4,
                }
            }
            (lo, hi) = (hi, hi.saturating_mul(2).min(near));
        }
    }

    /// Whether visiting (lo, end] of segment `count` - 1 would take longer than excluding it by alignment.
    fn worth_alignment(&self, count: usize, lo: i64, end: i64) -> bool {
        // QPA descends by about half the sum of costs at a time.
        float(end - lo) * count as f64 > FAR_EVALUATIONS * self.total[count - 1]
    }

    /// Sweeps the instants in (lo, end], all of them after the last d, where the deadlines align; no other can fail.
    /// `None` if they are too many.
    fn sweep_alignments(&mut self, lo: i64, end: i128, on_failure: OnFailure) -> Option<Swept> {
        let spans = self.alignments(self.window.len(), (lo, end))?;
        let before = self.bandwidth;
        let mut outcome = Swept::Clean;
        for (first, last) in spans {
            let last = i64::try_from(end).map_or(last, |end| last.min(end));
            if last > REACH {
                outcome = Swept::Spent;
            }
            match self.sweep_points(first.max(lo), last.min(REACH), on_failure, false) {
                Swept::Clean if self.bandwidth == before => {}
                other => return Some(other),
            }
        }
        Some(outcome)
    }

    /// Spans that hold every instant of `within`, a part of segment `count` - 1, at which Eq. 10 can fail.
    fn alignments(&mut self, count: usize, within: (i64, i128)) -> Option<Vec<(i64, i64)>> {
        // Q_k + A_k - (1 - U_k) t, from above: it is nothing at T_k.
        let (offset, until) = (self.offset[count - 1], self.until[count - 1]);
        let slope = offset / until * (1.0 - 8.0 * EPS);
        let length = (within.1 - i128::from(within.0)) as f64 * (1.0 - EPS);
        let first = (offset - slope * float(within.0)).max(0.0) + offset * 4.0 * EPS;
        let budget = Budget { first, fall: (slope * length / first * (1.0 - 8.0 * EPS)).min(1.0) };
        let (longest, found) = self.longest_periods(count);
        let longest = &longest[..found];
        // One of several groups of tasks must stay under its part of the budget, and bodies that reach over a small
        // part of the periods need neither much reduction nor many branches.
        let groups = (first / self.c[longest[0] as usize] / GROUP_REACH).ceil();
        let groups = (groups as usize).clamp(1, GROUPS);
        let part = Budget { first: first / groups as f64 * (1.0 + 4.0 * EPS), ..budget };
        let nodes = self.effort / (4 * NODE);
        let mut left = nodes;
        let mut waves = Vec::with_capacity(alignment::MOST);
        let mut spans = Some(Vec::new());
        for group in 0..groups {
            // The tasks with the longest periods pass their deadlines least often: as many of them as make an
            // alignment unlikely, were the phases random.
            waves.clear();
            let (mut rate, mut share) = (0.0, 1.0);
            for &i in longest.iter().skip(group).step_by(groups).take(alignment::MOST) {
                let i = i as usize;
                let cost = self.c[i] * (1.0 - 16.0 * EPS);
                waves.push(Wave { window: self.window[i], period: self.period[i], cost });
                rate += 1.0 / float(self.period[i]);
                let others = (waves.len() - 1) as f64;
                if others > 0.0 {
                    share *= part.first / cost / others;
                }
                // The budget falls: on average that leaves this part of the volume.
                let average = 1.0 / (1.0 + others * part.fall);
                if rate * share * average * length < UNLIKELY {
                    break;
                }
            }
            let found = alignment::candidates(&waves, part, within, &mut left);
            spans = spans.zip(found).map(|(mut all, found)| {
                all.extend(found);
                all
            });
            if spans.is_none() {
                break;
            }
        }
        self.effort -= (nodes - left) * NODE;
        spans
    }

    /// The tasks with the longest periods among the first `count`, longest first, and how many these are.
    fn longest_periods(&self, count: usize) -> ([u32; LONGEST], usize) {
        let (mut longest, mut found) = ([0u32; LONGEST], 0);
        // The latest d mostly have the longest periods, so that hardly any has to move up.
        for i in (0..count).rev() {
            let period = self.period[i];
            let mut at = found;
            while at > 0 && self.period[longest[at - 1] as usize] < period {
                at -= 1;
            }
            if at < longest.len() {
                found = (found + 1).min(longest.len());
                longest.copy_within(at..found - 1, at + 1);
                longest[at] = i as u32;
            }
        }
        (longest, found)
    }

    /// The instants to test end here: T_k of the last segment, or the hyperperiod (Eq. 13).
    fn horizon(&mut self) -> i64 {
        let last = self.until[self.until.len() - 1];
        // Saturates; beyond `REACH` nothing is claimed.
        let end = last as i64;
        // Worth its gcds only where T* is far.
        if end <= self.window[self.window.len() - 1] {
            return end;
        }
        if self.spare < 1e-4 && self.spare >= 0.0 {
            // Beyond all that is tested it does not matter.
            let limit = end.min(REACH);
            let hyperperiod = match self.hyperperiod {
                Some((_, Some(known))) => known,
                Some((before, None)) if limit <= before => i64::MAX,
                _ => {
                    let found = self.period.iter().try_fold(1i64, |l, &p| {
                        (l / gcd(l, p)).checked_mul(p).filter(|&multiple| multiple < limit)
                    });
                    self.hyperperiod = Some((limit, found));
                    found.unwrap_or(i64::MAX)
                }
            };
            if !self.background.is_empty() {
                // What blocks at any instant blocks beyond H too: from the last d on all repeats after H.
                let last = self.window[self.window.len() - 1];
                return end.min(hyperperiod.saturating_add(last));
            }
            return end.min(hyperperiod);
        }
        end
    }

    /// Whether U' > 1.
    fn overloaded(&self, b: u64) -> bool {
        let per_byte = float_u(HALVES_PER_SEC) / float_u(b);
        let u = self.fixed_load + self.byte_load * per_byte;
        let margin = (self.cost.len() as f64 + 16.0) * EPS;
        if u < 1.0 - margin {
            false
        } else if u > 1.0 + margin {
            true
        } else {
            self.exact_spare(b).is_none()
        }
    }

    /// A lower bound of 1 - U', within n 2^-64 / b of it; `None` if U' > 1.
    fn exact_spare(&self, b: u64) -> Option<f64> {
        // U' b in units of 2^-64, from below, and how many of the fractions were cut off.
        let (mut whole, mut fraction, mut cut) = (0u128, 0u128, 0u128);
        for (c, &p) in self.cost.iter().zip(&self.period) {
            let (scaled, p) = (c.scaled(b), p as u128);
            whole = whole.saturating_add(scaled / p);
            let shifted = (scaled % p) << 64;
            fraction += shifted / p;
            cut += u128::from(shifted % p != 0);
        }
        whole = whole.saturating_add(fraction >> 64);
        fraction &= u128::from(u64::MAX);
        let b_wide = u128::from(b);
        if whole > b_wide || (whole == b_wide && fraction > 0) {
            return None;
        }
        if whole < b_wide {
            let left = ((b_wide - whole) << 64) - fraction;
            if left > cut {
                return Some((left - cut) as f64 / (b as f64 * 2f64.powi(64)) * (1.0 - 8.0 * EPS));
            }
        } else if cut == 0 {
            return Some(0.0);
        }
        // U' is within 2^-64/b of 1: only the full fractions tell.
        (self.compare_utilization(b) != core::cmp::Ordering::Greater).then_some(0.0)
    }

    /// U' against 1, by big integers.
    fn compare_utilization(&self, b: u64) -> core::cmp::Ordering {
        fn sum(parts: &[(BigUint, BigUint)]) -> (BigUint, BigUint) {
            match parts {
                [] => (BigUint::ZERO, BigUint::from(1u8)),
                [one] => one.clone(),
                _ => {
                    let (left, right) = parts.split_at(parts.len() / 2);
                    let ((a, p), (c, q)) = (sum(left), sum(right));
                    (a * &q + c * &p, p * q)
                }
            }
        }
        let parts: Vec<_> = self
            .cost
            .iter()
            .zip(&self.period)
            .map(|(c, &p)| (BigUint::from(c.scaled(b)), BigUint::from(p as u64)))
            .collect();
        let (numerator, denominator) = sum(&parts);
        numerator.cmp(&(denominator * b))
    }

    /// The smallest integer bandwidth with U' <= 1 (Eq. 16).
    fn least_for_utilization(&self) -> Result<u64, Cause> {
        let guess = self.byte_load * float_u(HALVES_PER_SEC) / (1.0 - self.fixed_load);
        let mut b = if guess.is_finite() && guess > 0.0 && guess < MAX_BANDWIDTH as f64 {
            (guess.ceil() as u64).max(1)
        } else if self.overloaded(MAX_BANDWIDTH) {
            return Err(if self.overhead_fills() {
                Cause::OverheadOverload
            } else {
                Cause::BeyondLimit
            });
        } else {
            MAX_BANDWIDTH
        };
        // Gallop to a bracket (bad, good], then halve it.
        let (mut bad, mut good, mut step) = (0, 0, 1u64);
        if self.overloaded(b) {
            while good == 0 {
                bad = b;
                if b == MAX_BANDWIDTH {
                    return Err(if self.overhead_fills() {
                        Cause::OverheadOverload
                    } else {
                        Cause::BeyondLimit
                    });
                }
                b = b.saturating_add(step).min(MAX_BANDWIDTH);
                step = step.saturating_mul(2);
                if !self.overloaded(b) {
                    good = b;
                }
            }
        } else {
            good = b;
            while good > 1 && bad == 0 {
                b = good.saturating_sub(step).max(1);
                step = step.saturating_mul(2);
                if self.overloaded(b) {
                    bad = b;
                } else {
                    good = b;
                }
            }
        }
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            if self.overloaded(middle) {
                bad = middle;
            } else {
                good = middle;
            }
        }
        Ok(good)
    }

    /// Whether the sum of overhead/P' is 1 or more.
    fn overhead_fills(&self) -> bool {
        let without_data = Self {
            cost: self.cost.iter().map(|c| Piece { bytes: 0, ..*c }).collect(),
            period: self.period.clone(),
            ..Self::default()
        };
        without_data.compare_utilization(1) != core::cmp::Ordering::Less
    }

    /// Fills the filter for a bandwidth.
    fn prepare(&mut self, b: u64) {
        let n = self.window.len();
        self.bandwidth = b;
        let per_byte = float_u(HALVES_PER_SEC) / float_u(b) * (1.0 + EPS);
        let up = 1.0 + 4.0 * EPS;
        for (c, piece) in self.c.iter_mut().zip(&self.cost) {
            *c = (float_u(piece.fixed) + float_u(piece.bytes) * per_byte) * up;
        }
        let mut q = 0.0f64;
        for piece in self.background.iter().flatten() {
            q = q.max((float_u(piece.fixed) + float_u(piece.bytes) * per_byte) * up);
        }
        for (blocking, stretches) in self.blocking.iter_mut().zip(&self.stretches).rev() {
            *blocking = q;
            let [a, b] = stretches
                .map(|piece| (float_u(piece.fixed) + float_u(piece.bytes) * per_byte) * up);
            q = greater(q, greater(a, b));
        }
        let (mut u, mut a, mut size, mut total) = (0.0, 0.0, 0.0, 0.0);
        for k in 0..n {
            let (c, rate) = (self.c[k], self.rate[k]);
            total += c;
            self.total[k] = total;
            u += c * rate;
            let early = c * rate * self.d[k];
            a += c - early;
            size += c + early;
            let margin = (k as f64 + 16.0) * EPS;
            let spare = 1.0 - u - margin * u.max(1.0);
            let bound = self.blocking[k] + a + margin * size;
            self.offset[k] = bound;
            self.until[k] = if self.overloaded_now {
                f64::INFINITY
            } else if bound <= 0.0 && u < 1.0 + margin {
                // The demand of the segment stays below t while U_k <= 1, which the caller has made sure of.
                0.0
            } else if spare > 0.0 {
                bound / spare * (1.0 + 4.0 * EPS)
            } else {
                f64::INFINITY
            };
            if k == n - 1 {
                self.spare = spare.max(0.0);
                self.excess = bound;
                if self.overloaded_now {
                    break;
                }
                if spare < 1e4 * margin && bound > 0.0 {
                    self.spare = self.exact_spare(b).unwrap_or(0.0);
                    self.until[k] = bound / self.spare * (1.0 + 4.0 * EPS);
                }
            }
        }
    }

    /// For how long before t, within segment k, no instant can fail, from below and by a look at few tasks only.
    ///
    /// A failure needs sum C' x < B over all tasks or any of them, where x is the fraction of a period since the last
    /// deadline and B = (Q_k + A_k) (1 - t / T_k). Back in time the sum falls by at most U of these tasks and rises
    /// where a deadline is passed, while B rises by 1 - U_k. Tasks with long periods fall slowly, and in order of d
    /// those are mostly the last.
    fn idle_before(&self, k: usize, t: f64) -> f64 {
        if self.overloaded_now {
            return 0.0;
        }
        let rise = self.offset[k] / self.until[k];
        let budget = (self.offset[k] - rise * t).max(0.0) + self.offset[k] * SLACK;
        let (mut sum, mut fall, mut longest) = (0.0, rise * (1.0 + SLACK), 0.0);
        let first = (k + 1).saturating_sub(LAST);
        for ((&d, &rate), &c) in
            self.d[first..=k].iter().zip(&self.rate[first..=k]).zip(&self.c[first..=k]).rev()
        {
            // Rates are rounded up, so that a phase is never taken for one before its deadline.
            let periods = (t - d) * rate;
            let phase = periods - ((periods + FLOOR_BIAS + ROUND) - ROUND) - periods * (8.0 * EPS);
            let own = c * phase * (1.0 - SLACK);
            let alone = (own - budget) / (c * rate + rise * (1.0 + SLACK));
            sum += own;
            fall += c * rate;
            let together = (sum - budget) / fall;
            longest = greater(longest, greater(alone, together));
        }
        longest * (1.0 - SLACK)
    }

    /// Q + DBF at t in segment k, from above.
    fn demand_bound(&self, k: usize, t: f64) -> f64 {
        let n = k + 1;
        let (d, rate, c) = (&self.d[..n], &self.rate[..n], &self.c[..n]);
        let mut sums = [0.0f64; 8];
        let (dc, rc, cc) = (d.chunks_exact(8), rate.chunks_exact(8), c.chunks_exact(8));
        let tail = dc.remainder().iter().zip(rc.remainder()).zip(cc.remainder());
        let mut rest = 0.0;
        for ((&d, &rate), &c) in tail {
            let jobs = ((t - d) * rate + FLOOR_BIAS + ROUND) - (ROUND - 1.0);
            rest += jobs * c;
        }
        for ((d, rate), c) in dc.zip(rc).zip(cc) {
            for i in 0..8 {
                let jobs = ((t - d[i]) * rate[i] + FLOOR_BIAS + ROUND) - (ROUND - 1.0);
                sums[i] += jobs * c[i];
            }
        }
        let sum = ((sums[0] + sums[4]) + (sums[1] + sums[5]))
            + ((sums[2] + sums[6]) + (sums[3] + sums[7]))
            + rest;
        (sum + self.blocking[k]) * (1.0 + (n as f64 + 16.0) * EPS)
    }

    /// Jobs of the task at position i with release and deadline in an interval of length t >= d_i.
    fn jobs(&self, i: usize, t: i64) -> u64 {
        ((t - self.window[i]) / self.period[i]) as u64 + 1
    }

    /// The stretches that can block in segment k, with the positions of their tasks.
    fn blockers(&self, k: usize) -> impl Iterator<Item = (Piece, usize)> {
        let later = (k + 1..self.window.len()).map(|i| (self.stretches[i], self.index[i] as usize));
        let background = self.background.iter().copied().zip(self.window.len()..);
        later.chain(background).flat_map(|(stretches, task)| stretches.map(|s| (s, task)))
    }

    /// Exactly Q + DBF at t in segment k, times the bandwidth (saturating: the capacity t b is below 2^117), with
    /// the blocking task.
    fn exact_demand(&self, k: usize, t: i64) -> (u128, Option<usize>) {
        let b = self.bandwidth;
        let mut demand = 0u128;
        for i in 0..=k {
            let jobs = u128::from(self.jobs(i, t));
            demand = demand.saturating_add(self.cost[i].scaled(b).saturating_mul(jobs));
        }
        let blocking = self
            .blockers(k)
            .map(|(piece, task)| (piece.scaled(b), task))
            .max_by_key(|&(scaled, _)| scaled);
        match blocking {
            Some((q, i)) => (demand.saturating_add(q), Some(i)),
            None => (demand, None),
        }
    }

    fn failure(&self, at: i64) -> Failure {
        let k = self.window.partition_point(|&d| d <= at) - 1;
        let (demand, blocker) = self.exact_demand(k, at);
        Failure { at: HalfNanos(at), demand: div_up(demand, u128::from(self.bandwidth)), blocker }
    }

    /// The last point of D at or before t, which lies in segment k.
    fn point_before(&self, k: usize, t: i64) -> i64 {
        (0..=k).map(|i| t - (t - self.window[i]) % self.period[i]).max().unwrap_or(t)
    }

    /// Tests the points of D in (lo, hi], from the last to the first.
    fn sweep(&mut self, lo: i64, hi: i64, on_failure: OnFailure) -> Swept {
        self.sweep_points(lo, hi, on_failure, true)
    }

    /// The same, excluding long stretches within a segment by alignment if `leap`.
    fn sweep_points(&mut self, lo: i64, hi: i64, on_failure: OnFailure, mut leap: bool) -> Swept {
        let exact_doubles = hi <= FAR;
        let mut t = hi;
        let mut k = self.window.partition_point(|&d| d <= t);
        while k > 0 {
            // Here k counts the tasks with d <= t.
            let until = self.until[k - 1];
            if float(t) > until {
                t = until as i64;
            }
            let first = self.window[k - 1];
            if t < first || t <= lo {
                if first - 1 <= lo {
                    break;
                }
                t = first - 1;
                k -= 1;
                while k > 0 && self.window[k - 1] > t {
                    k -= 1;
                }
                continue;
            }
            let from = first.max(lo + 1);
            // An overloaded set has no A to speak of.
            if leap && !self.overloaded_now && self.worth_alignment(k, from, t) {
                if let Some(mut spans) = self.alignments(k, (from, t.into())) {
                    // A point that fails at a bandwidth that was raised meanwhile failed before, so it is in a span.
                    spans.sort_unstable_by_key(|span| core::cmp::Reverse(span.1));
                    for (start, end) in spans {
                        let (start, end) = (start.max(from) - 1, end.min(t));
                        match self.sweep_points(start, end, on_failure, false) {
                            Swept::Clean => {}
                            other => return other,
                        }
                    }
                    t = from - 1;
                    while k > 0 && self.window[k - 1] > t {
                        k -= 1;
                    }
                    if t <= lo {
                        break;
                    }
                    continue;
                }
                leap = false;
            }
            // Integers of twice the width cost about 16 times as much.
            let cost = if exact_doubles { k as u64 } else { 16 * k as u64 };
            let Some(left) = self.effort.checked_sub(cost) else {
                return Swept::Spent;
            };
            self.effort = left;
            if exact_doubles {
                let idle = self.idle_before(k - 1, float(t));
                if idle > self.total[k - 1] {
                    t = t.saturating_sub(idle as i64).max(from) - 1;
                    continue;
                }
                let bound = self.demand_bound(k - 1, float(t));
                if bound <= float(t) {
                    t = (bound as i64).min(t - 1);
                    continue;
                }
            }
            let (demand, _) = self.exact_demand(k - 1, t);
            let b = u128::from(self.bandwidth);
            if demand <= t as u128 * b {
                t = ((demand / b) as i64).min(t - 1);
                continue;
            }
            let point = self.point_before(k - 1, t);
            if point <= lo {
                // The demand steps up at or before lo, which is not in question here.
                break;
            }
            if on_failure == OnFailure::Stop {
                return Swept::Fails(point);
            }
            match self.least_at(k - 1, point) {
                Ok(b) => self.prepare(b),
                Err(cause) => return Swept::Never(cause),
            }
            t = point - 1;
            while k > 0 && self.window[k - 1] > t {
                k -= 1;
            }
        }
        Swept::Clean
    }

    /// The smallest bandwidth that satisfies Eq. 10 at the point t of segment k: Eq. 18, and its two other cases
    /// over every stretch that can block.
    fn least_at(&self, k: usize, t: i64) -> Result<u64, Cause> {
        let (mut fixed, mut bytes) = (0u128, 0u128);
        for i in 0..=k {
            let jobs = u128::from(self.jobs(i, t));
            fixed += jobs * u128::from(self.cost[i].fixed);
            bytes += jobs * u128::from(self.cost[i].bytes);
        }
        let mut least = 0;
        let blockers = self.blockers(k).map(|(stretch, task)| (stretch, Some(task)));
        for (stretch, blocker) in core::iter::once((Piece::default(), None)).chain(blockers) {
            let overhead = fixed + u128::from(stretch.fixed);
            let data = bytes + u128::from(stretch.bytes);
            let room = (t as u128).saturating_sub(overhead);
            if room == 0 {
                return Err(Cause::OverheadDemand(Failure {
                    at: HalfNanos(t),
                    demand: u64::try_from(overhead).unwrap_or(u64::MAX),
                    blocker,
                }));
            }
            least = least.max(div_up(data.saturating_mul(u128::from(HALVES_PER_SEC)), room));
        }
        if least > MAX_BANDWIDTH { Err(Cause::BeyondLimit) } else { Ok(least) }
    }
}

/// By halving and subtracting (Stein 1967); both are positive.
fn gcd(a: i64, b: i64) -> i64 {
    let twos = (a | b).trailing_zeros();
    let (mut a, mut b) = (a >> a.trailing_zeros(), b >> b.trailing_zeros());
    while a != b {
        let (low, high) = (a.min(b), a.max(b));
        a = low;
        b = (high - low) >> (high - low).trailing_zeros();
    }
    a << twos
}

#[cfg(test)]
mod tests;
