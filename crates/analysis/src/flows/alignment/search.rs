//! What integers the relations can take over the body.

use super::lattice::{LARGEST, Lattice, UNIT};
use super::{Span, dot, spreads, subtract};

/// What every bound is widened by; the errors of a relation's value must stay under it.
const TOLERANCE: f64 = 1e-5;
/// Steps towards the wanted values before a branch is taken to be possible.
const STEPS: usize = 6;

/// A linear functional of (y, T), or a point.
#[derive(Clone, Copy)]
struct Functional<const W: usize> {
    y: [f64; W],
    time: f64,
}

impl<const W: usize> Functional<W> {
    const ZERO: Self = Self { y: [0.0; W], time: 0.0 };

    fn at(&self, point: &Self) -> f64 {
        dot(&self.y, &point.y) + self.time * point.time
    }

    fn subtract(&mut self, factor: f64, other: &Self) {
        subtract(&mut self.y, factor, &other.y);
        self.time -= factor * other.time;
    }

    /// Least and greatest value over the body, at its corners: one y_i is 1 at T = 0 or 1 - fall at T = 1, or none.
    fn range(&self, fall: f64) -> (f64, f64) {
        let (mut low, mut high) = (0.0f64, 0.0f64);
        for &x in &self.y {
            low = if x < low { x } else { low };
            high = if x > high { x } else { high };
        }
        let rest = 1.0 - fall;
        (low.min(self.time + rest * low), high.max(self.time + rest * high))
    }
}

/// A point of the body and the values of the functionals there.
#[derive(Clone, Copy)]
struct Start<const W: usize> {
    point: Functional<W>,
    at: [f64; W],
    pull: Pull<W>,
    /// For how many functionals the pull is known.
    pulled: usize,
}

/// The functional that points from the values at a point to the wanted ones, and what it amounts to at both.
#[derive(Clone, Copy)]
struct Pull<const W: usize> {
    direction: Functional<W>,
    wanted: f64,
    reached: f64,
    distance: f64,
    slack: f64,
}

impl<const W: usize> Pull<W> {
    const NONE: Self =
        Self { direction: Functional::ZERO, wanted: 0.0, reached: 0.0, distance: 0.0, slack: 1e-9 };
}

pub(super) struct Search<'a, const W: usize> {
    lattice: &'a Lattice<W>,
    /// The relations made orthogonal.
    functional: [Functional<W>; W],
    mu: [[f64; W]; W],
    norm: [f64; W],
    inverse_norm: [f64; W],
    /// What a relation amounts to at y = 0 and T = 0, but for an integer.
    offset: [f64; W],
    low: [f64; W],
    high: [f64; W],
    /// The value that each orthogonal functional has in the current branch.
    value: [f64; W],
    /// The square of the weight of T against the y_i in the metric: its deviation over the body against theirs.
    weight: f64,
    /// How far the T of a candidate may be off.
    time_error: f64,
    nodes: u64,
    found: Vec<Span>,
}

impl<'a, const W: usize> Search<'a, W> {
    /// Of relations whose rates are what they say; `None` if they are too long for the tolerance.
    pub fn new(lattice: &'a Lattice<W>) -> Option<Self> {
        let n = lattice.n;
        let [spread, spread_of_time] = spreads(n, lattice.fall);
        let weight = (spread_of_time / spread) * (spread_of_time / spread);
        let mut search = Self {
            lattice,
            functional: [Functional::ZERO; W],
            mu: [[0.0; W]; W],
            norm: [0.0; W],
            inverse_norm: [0.0; W],
            offset: [0.0; W],
            low: [0.0; W],
            high: [0.0; W],
            value: [0.0; W],
            weight,
            time_error: 0.0,
            nodes: 0,
            found: Vec::new(),
        };
        // How far each value can be from that of the functional: the cut of the rates, and for rounding 64
        // units in the last place of the sum of all terms.
        let mut error = [0.0f64; W];
        for j in 0..n {
            let mut v = Functional::ZERO;
            let (mut size, mut largest) = (1.0, 0.0f64);
            for (i, &m) in lattice.m[j].iter().enumerate() {
                size += m.abs();
                largest = largest.max(m.abs());
                v.y[i] = -m * lattice.reach[i];
            }
            v.time = lattice.rate[j] as f64 * UNIT;
            if largest > LARGEST || v.time.abs() > LARGEST {
                return None;
            }
            search.offset[j] = dot(&lattice.m[j], &lattice.phase);
            // The reach is below 8.
            error[j] = size * (UNIT + 64.0 * 8.0 * f64::EPSILON);
            let mut scaled = v;
            scaled.time *= weight;
            for k in 0..j {
                let share = scaled.at(&search.functional[k]) * search.inverse_norm[k];
                search.mu[j][k] = share;
                error[j] += share.abs() * error[k];
                v.subtract(share, &search.functional[k]);
            }
            scaled = v;
            scaled.time *= weight;
            let norm = scaled.at(&v);
            // Dependent relations would not tell all job counts.
            if norm < 1e-9 || error[j] > TOLERANCE {
                return None;
            }
            search.norm[j] = norm;
            search.inverse_norm[j] = 1.0 / norm;
            search.time_error += weight * v.time.abs() / norm * error[j];
            let (low, high) = v.range(lattice.fall);
            search.low[j] = low - TOLERANCE;
            search.high[j] = high + TOLERANCE;
            search.functional[j] = v;
        }
        Some(search)
    }

    /// Whether the reduction did what it should: no length falls by more than its condition allows.
    pub fn well_reduced(&self) -> bool {
        self.norm[..self.lattice.n].windows(2).all(|pair| pair[1] > 0.4 * pair[0])
    }

    /// The spans that hold every candidate; `None` if the nodes, which are counted down, ran out.
    pub fn run(&mut self, nodes: &mut u64) -> Option<Vec<Span>> {
        let (n, fall) = (self.lattice.n, self.lattice.fall);
        self.nodes = *nodes;
        let mut middle =
            Start { point: Functional::ZERO, at: [0.0; W], pull: Pull::NONE, pulled: 0 };
        let share = 1.0 / (n as f64 + 2.0);
        let time = 0.5 * (1.0 - fall) + share * fall;
        middle.point.y[..n].fill(share * (1.0 - fall * time));
        middle.point.time = time;
        for j in 0..n {
            middle.at[j] = self.functional[j].at(&middle.point);
        }
        let done = self.descend(0, &middle, self.lattice.aligned);
        *nodes = self.nodes;
        done.then(|| core::mem::take(&mut self.found))
    }

    /// Tries every value that relation j can take, the values of the earlier ones being fixed, starting from a point
    /// of the body; `no_job` if these are the values at the body's first instant, at which all deadlines align. False
    /// if the nodes ran out.
    fn descend(&mut self, j: usize, from: &Start<W>, no_job: bool) -> bool {
        if j == self.lattice.n {
            if no_job {
                self.keep_no_job();
            } else {
                self.keep(&from.point);
            }
            return true;
        }
        let mut shift = self.offset[j];
        for (mu, value) in self.mu[j][..j].iter().zip(&self.value) {
            shift += mu * value;
        }
        // value = integer - shift, within low..high.
        let mut integer = (self.low[j] + shift).ceil();
        let last = self.high[j] + shift;
        if integer > last {
            return true;
        }
        let reached = self.functional[j].at(&from.point);
        while integer <= last {
            if self.nodes == 0 {
                return false;
            }
            self.nodes -= 1;
            self.value[j] = integer - shift;
            // At the first instant every relation is 0, since the body's phases there are those of the tasks.
            let no_job = no_job && integer == 0.0;
            integer += 1.0;
            if no_job {
                if !self.descend(j + 1, from, true) {
                    return false;
                }
                continue;
            }
            let mut next = *from;
            next.at[j] = reached;
            if self.reachable(j + 1, &mut next) && !self.descend(j + 1, &next, false) {
                return false;
            }
        }
        true
    }

    /// Whether the body may hold a point at which the first `count` functionals have their values: false only if a
    /// linear functional separates the body from those points. `start` moves towards them (Gilbert 1966).
    fn reachable(&self, count: usize, start: &mut Start<W>) -> bool {
        for k in start.pulled..count {
            self.pull(k, start);
        }
        start.pulled = count;
        for step in 0..STEPS {
            if step > 0 {
                self.pull_anew(count, start);
            }
            let Pull { direction, wanted, reached, distance, slack } = &start.pull;
            // The corner of the body farthest in that direction.
            let (mut corner, mut high) = (W, 0.0);
            for (i, &x) in direction.y.iter().enumerate() {
                if x > high {
                    (corner, high) = (i, x);
                }
            }
            // There at T = 1, or at T = 0.
            let rest = 1.0 - self.lattice.fall;
            let late = direction.time + rest * high > high;
            let (height, time) = if late { (rest, 1.0) } else { (1.0, 0.0) };
            high = height * high + time * direction.time;
            if *wanted > high + slack + 1e-9 * (high.abs() + wanted.abs()) {
                return false;
            }
            // Towards the corner, up to the nearest point of the segment.
            let mut length = 0.0;
            let mut along = [0.0f64; W];
            for k in 0..count {
                let v = &self.functional[k];
                let there = if corner < W { height * v.y[corner] } else { 0.0 } + time * v.time;
                along[k] = there - start.at[k];
                length += along[k] * along[k] * self.inverse_norm[k];
            }
            let gain = high - reached;
            if gain <= 1e-12 || length <= 1e-12 || *distance < 1e-9 {
                return true;
            }
            let share = (gain / length).min(1.0);
            for x in &mut start.point.y {
                *x *= 1.0 - share;
            }
            start.point.time *= 1.0 - share;
            if corner < W {
                start.point.y[corner] += share * height;
            }
            start.point.time += share * time;
            for k in 0..count {
                start.at[k] += share * along[k];
            }
        }
        self.pull_anew(count, start);
        true
    }

    fn pull_anew(&self, count: usize, start: &mut Start<W>) {
        start.pull = Pull::NONE;
        for k in 0..count {
            self.pull(k, start);
        }
    }

    /// Adds functional k to the pull.
    fn pull(&self, k: usize, start: &mut Start<W>) {
        let gap = self.value[k] - start.at[k];
        let weight = gap * self.inverse_norm[k];
        let pull = &mut start.pull;
        pull.direction.subtract(-weight, &self.functional[k]);
        pull.wanted += weight * self.value[k];
        pull.reached += weight * start.at[k];
        pull.distance += weight * gap;
        pull.slack += weight.abs() * TOLERANCE;
    }

    /// All job counts are 0: no deadline passes after the first instant, so no phase comes down again, and the first
    /// that reaches the budget ends it.
    fn keep_no_job(&mut self) {
        let Lattice { n, first, asked, reach, phase, period, .. } = self.lattice;
        let most = (0..*n).map(|i| (reach[i].min(1.0) - phase[i]) * period[i]);
        let most = most.fold(f64::INFINITY, f64::min) * (1.0 + 1e-12) + 2.0;
        let end = first.saturating_add(most.min(1e18) as i64);
        if end >= *asked {
            self.found.push((*asked, end));
        }
    }

    /// All job counts are fixed, so the instants lie on a line; `near` is a point of the body beside it.
    fn keep(&mut self, near: &Functional<W>) {
        let Lattice { n, first, length, reach, period, .. } = self.lattice;
        let mut t = near.time;
        for j in 0..*n {
            let v = &self.functional[j];
            t += (self.value[j] - v.at(near)) / self.norm[j] * v.time * self.weight;
        }
        // The foot of `near` on the line is nearer to it than any point of the body on the line, so the two are
        // within twice the diameter of the body, 4 in every y_i; along the line y_i moves by 1 in reach * P.
        let fastest = (0..*n).map(|i| reach[i] * period[i]).fold(f64::INFINITY, f64::min);
        let margin = 4.0 * fastest + length * (self.time_error + 1e-13) + 2.0;
        // Saturates; the error of the sum is within the margin.
        let at = *first as f64 + t * length;
        self.found.push(((at - margin) as i64, (at + margin) as i64));
    }
}
