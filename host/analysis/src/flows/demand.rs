//! The demand test of Theorem 1 and the minimum bandwidth of Algorithm 1.
//!
//! Time is counted in half nanoseconds and demand in half nanoseconds times the bandwidth, so both
//! sides of Eq. 10 are integers. Doubles are used as a filter only: they bound the demand from
//! above, and where that bound does not decide, the integers do.
//!
//! Tasks are sorted by d = D' - J'. Between d_k and d_(k+1) (*segment* k) only the tasks up to k
//! have demand and the blocking Q is the largest stretch of the tasks after k. With U_k, A_k the
//! sums of C'/P' and C' (1 - d/P') over those tasks the demand in the segment is at most
//! `Q_k+A_k+U_k t`, hence met from T_k = (Q_k + A_k) / (1 - U_k) on. Eq. 13 is this bound for the
//! last segment; the others cut the points to test by orders of magnitude. Inside a segment the
//! test descends as QPA does: if the demand h at t is at most t, then every point in [h, t] holds.

mod alignments;
mod sweep;
mod utilization;
mod verdict;

use super::task::{FlowError, MAX_BANDWIDTH, Piece, Task, check_bandwidth};
use crate::units::{BytesPerSec, HalfNanos};

pub use verdict::{Cause, Effort, Failure, MinBandwidth, Verdict};

/// The action of a sweep where the demand is exceeded.
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
    wcet: Vec<Piece>,
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
    /// The limit up to which the hyperperiod was computed, and the hyperperiod if it is less.
    hyperperiod: Option<(i64, Option<i64>)>,
    /// The set is schedulable at this bandwidth, as was found out before.
    enough: Option<u64>,
    fault: Option<Cause>,
    /// The rest of the effort granted.
    effort: u64,
    /// Effort granted to the question at hand, and what was spent on those before it.
    granted: u64,
    before: u64,
}

/// Added before rounding to the nearest integer, so that the result is floor(x) or, within 2^-30
/// below an integer, one more.
const FLOOR_BIAS: f64 = -0.5 + 1.0 / (1u64 << 30) as f64;
/// Adding and subtracting it rounds a double below 2^51 to the nearest integer.
const ROUND: f64 = 6_755_399_441_055_744.0;
const EPS: f64 = f64::EPSILON;
/// Relative errors of a few sums of doubles stay far below.
const SLACK: f64 = 1.0 / (1u64 << 40) as f64;
/// Beyond this many half ns (73 years) nothing is tested: a set whose T* lies farther is given up.
const REACH: i64 = 1 << 62;
/// Beyond this many half ns (52 days) the filter is not used: as doubles the instants would not be
/// exact.
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
        self.load_with(tasks, &[]);
    }

    /// Takes a set next to best effort, which runs when nothing else is pending: it has no deadline
    /// and no demand, but its longest stretch can block at any instant. As blockers its tasks count
    /// on behind `tasks`.
    pub fn load_with(&mut self, tasks: &[Task], best_effort: &[Task]) {
        let n = tasks.len();
        self.background.clear();
        self.background.extend(best_effort.iter().map(|task| task.stretches));
        self.index.clear();
        self.index.extend(0..n as u32);
        if n <= 1 << 16 && tasks.iter().all(|task| (0..1 << 47).contains(&task.window())) {
            // In one integer both are compared without a pass over the tasks.
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
        self.wcet.clear();
        self.stretches.clear();
        self.d.clear();
        self.rate.clear();
        let sorted = self.index.iter().map(|&i| &tasks[i as usize]);
        self.window.extend(sorted.clone().map(Task::window));
        self.period.extend(sorted.clone().map(|task| task.period.0));
        self.wcet.extend(sorted.clone().map(|task| task.wcet));
        self.stretches.extend(sorted.map(|task| task.stretches));
        self.d.extend(self.window.iter().map(|&window| float(window)));
        self.rate.extend(self.period.iter().map(|&period| (1.0 + 4.0 * EPS) / float(period)));
        let (mut fixed, mut bytes) = (0.0, 0.0);
        for (c, &rate) in self.wcet.iter().zip(&self.rate) {
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

    /// The earliest instant at which Eq. 10 fails at a bandwidth; `None` if it never does or the
    /// effort is spent first (U' may exceed 1 so little that the first failure is out of reach).
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

    /// For each task, in the order of [`Self::load`], the least t - Q - DBF over its own deadlines,
    /// in ns (a lower bound within 1 ns; negative where Eq. 10 fails). `None` where the effort was
    /// spent or U' > 1.
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

    /// U', the sum of C'/P', for printing; `None` where a flow is left no period, so that there is
    /// no such number.
    #[must_use]
    pub fn utilization(&self, bandwidth: BytesPerSec) -> Option<f64> {
        if self.period.iter().any(|&p| p <= 0) {
            return None;
        }
        let shares = self.wcet.iter().zip(&self.period);
        Some(shares.map(|(c, &p)| 2.0 * c.nanos(bandwidth) / float(p)).sum())
    }

    /// Sweeps everything that has to be tested; also returns the instant up to which no failure is
    /// left.
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
                // What blocks at any instant blocks beyond H too: from the last d on all repeats
                // after H.
                let last = self.window[self.window.len() - 1];
                return end.min(hyperperiod.saturating_add(last));
            }
            return end.min(hyperperiod);
        }
        end
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
