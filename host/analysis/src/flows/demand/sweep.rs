//! The demand at an instant, and the sweep over the instants of an interval.

use super::verdict::{Cause, Failure};
use super::{
    Analyzer, EPS, FAR, FLOOR_BIAS, OnFailure, ROUND, SLACK, Swept, div_up, float, float_u, greater,
};
use crate::flows::task::{HALVES_PER_SEC, MAX_BANDWIDTH, Piece};
use crate::units::HalfNanos;

/// The phases of so many tasks are compared before those of all are.
const LAST: usize = 8;

impl Analyzer {
    /// Fills the filter for a bandwidth.
    pub(super) fn prepare(&mut self, b: u64) {
        let n = self.window.len();
        self.bandwidth = b;
        let per_byte = float_u(HALVES_PER_SEC) / float_u(b) * (1.0 + EPS);
        let up = 1.0 + 4.0 * EPS;
        for (c, piece) in self.c.iter_mut().zip(&self.wcet) {
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
                // The demand of the segment stays below t while U_k <= 1, which the caller has
                // checked.
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

    /// For how long before t, within segment k, no instant can fail, from below and by a test of
    /// few tasks only.
    ///
    /// A failure needs sum C' x < B over all tasks or any of them, where x is the fraction of a
    /// period since the last deadline and B = (Q_k + A_k) (1 - t / T_k). Back in time the sum falls
    /// by at most U of these tasks and rises where a deadline is passed, while B rises by 1 - U_k.
    /// Tasks with long periods fall slowly, and in order of d those are mostly the last.
    pub(super) fn idle_before(&self, k: usize, t: f64) -> f64 {
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
    pub(super) fn demand_bound(&self, k: usize, t: f64) -> f64 {
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
    pub(super) fn jobs(&self, i: usize, t: i64) -> u64 {
        ((t - self.window[i]) / self.period[i]) as u64 + 1
    }

    /// The stretches that can block in segment k, with the positions of their tasks.
    pub(super) fn blockers(&self, k: usize) -> impl Iterator<Item = (Piece, usize)> {
        let later = (k + 1..self.window.len()).map(|i| (self.stretches[i], self.index[i] as usize));
        let background = self.background.iter().copied().zip(self.window.len()..);
        later.chain(background).flat_map(|(stretches, task)| stretches.map(|s| (s, task)))
    }

    /// Exactly Q + DBF at t in segment k, times the bandwidth (saturating: the capacity t b is
    /// below 2^117), with the blocking task.
    pub(super) fn exact_demand(&self, k: usize, t: i64) -> (u128, Option<usize>) {
        let b = self.bandwidth;
        let mut demand = 0u128;
        for i in 0..=k {
            let jobs = u128::from(self.jobs(i, t));
            demand = demand.saturating_add(self.wcet[i].scaled(b).saturating_mul(jobs));
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

    pub(super) fn failure(&self, at: i64) -> Failure {
        let k = self.window.partition_point(|&d| d <= at) - 1;
        let (demand, blocker) = self.exact_demand(k, at);
        Failure { at: HalfNanos(at), demand: div_up(demand, u128::from(self.bandwidth)), blocker }
    }

    /// The last point of D at or before t, which lies in segment k.
    pub(super) fn point_before(&self, k: usize, t: i64) -> i64 {
        (0..=k).map(|i| t - (t - self.window[i]) % self.period[i]).max().unwrap_or(t)
    }

    /// Tests the points of D in (lo, hi], from the last to the first.
    pub(super) fn sweep(&mut self, lo: i64, hi: i64, on_failure: OnFailure) -> Swept {
        self.sweep_points(lo, hi, on_failure, true)
    }

    /// The same, excluding long stretches within a segment by alignment if `leap`.
    pub(super) fn sweep_points(
        &mut self,
        lo: i64,
        hi: i64,
        on_failure: OnFailure,
        mut leap: bool,
    ) -> Swept {
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
                    // A point that fails after another thread has raised the bandwidth failed
                    // before, so it is in a span.
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

    /// The smallest bandwidth that satisfies Eq. 10 at the point t of segment k: Eq. 18, and its
    /// two other cases over every stretch that can block.
    pub(super) fn least_at(&self, k: usize, t: i64) -> Result<u64, Cause> {
        let (mut fixed, mut bytes) = (0u128, 0u128);
        for i in 0..=k {
            let jobs = u128::from(self.jobs(i, t));
            fixed += jobs * u128::from(self.wcet[i].fixed);
            bytes += jobs * u128::from(self.wcet[i].bytes);
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
