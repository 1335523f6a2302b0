//! What integers the relations can take over the body.

use super::lattice::{LARGEST, Lattice, UNIT};
use super::{Span, dot, nearest, spreads, subtract};
use wide::f64x2;

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

    fn scale(&mut self, factor: f64) {
        for y in &mut self.y {
            *y *= factor;
        }
        self.time *= factor;
    }

    /// Least and greatest value over the body, at its corners: one y_i is 1 at T = 0 or 1 - fall at
    /// T = 1, or none.
    fn range(&self, fall: f64) -> (f64, f64) {
        let (mut low, mut high) = (0.0f64, 0.0f64);
        for &x in &self.y {
            low = if x < low { x } else { low };
            high = if x > high { x } else { high };
        }
        let rest = 1.0 - fall;
        let (early, late) = (self.time + rest * low, self.time + rest * high);
        (if early < low { early } else { low }, if late > high { late } else { high })
    }
}

/// A point of the body, the wanted values, and their projections on the first functionals, as
/// functionals: a sum of these, each by the value that it has there or should have, over the square
/// of its length.
#[derive(Clone, Copy)]
struct Start<const W: usize> {
    point: Functional<W>,
    /// The projection of the point.
    reached: Functional<W>,
    /// The projection of the wanted values.
    wanted: Functional<W>,
    /// The squares of the lengths of `reached` and of `wanted`, and the product of the two.
    reached_squared: f64,
    wanted_squared: f64,
    product: f64,
}

pub(super) struct Search<'a, const W: usize> {
    lattice: &'a Lattice<W>,
    /// The relations made orthogonal.
    functional: [Functional<W>; W],
    mu: [[f64; W]; W],
    norm: [f64; W],
    inverse_norm: [f64; W],
    /// The square of what the tolerances of the values up to this one come to in a direction of
    /// length 1, at most.
    slack_squared: [f64; W],
    /// What a relation amounts to at y = 0 and T = 0, but for an integer.
    offset: [f64; W],
    low: [f64; W],
    high: [f64; W],
    /// The value that each orthogonal functional has in the current branch.
    value: [f64; W],
    /// The square of the weight of T against the y_i in the metric: its deviation over the body
    /// against theirs.
    weight: f64,
    /// How far the T of a candidate may be off.
    time_error: f64,
    nodes: u64,
    found: Vec<Span>,
}

/// The position of the greatest, but for a part of 2^-47 of it: the last bits are taken for the
/// position, so that both are found at once, without a branch.
fn greatest<const W: usize>(of: &[f64; W]) -> usize {
    const POSITION: u64 = 31;
    let value = f64x2::splat(f64::from_bits(!POSITION));
    let mut most = [f64x2::splat(f64::NEG_INFINITY); 2];
    for (at, four) in (0..).step_by(4).zip(of.chunks_exact(4)) {
        for (k, most) in most.iter_mut().enumerate() {
            let x = f64x2::from([four[2 * k], four[2 * k + 1]]);
            let at = at + 2 * k as u64;
            let position = f64x2::from([f64::from_bits(at), f64::from_bits(at + 1)]);
            *most = (x & value | position).fast_max(*most);
        }
    }
    let [a, b] = most[0].fast_max(most[1]).to_array();
    ((if b > a { b } else { a }).to_bits() & POSITION).min(W as u64 - 1) as usize
}

impl<'a, const W: usize> Search<'a, W> {
    /// From relations with correct rates. Must be made orthogonal before it is run.
    pub const fn new(lattice: &'a Lattice<W>) -> Self {
        Self {
            lattice,
            functional: [Functional::ZERO; W],
            mu: [[0.0; W]; W],
            norm: [0.0; W],
            inverse_norm: [0.0; W],
            slack_squared: [0.0; W],
            offset: [0.0; W],
            low: [0.0; W],
            high: [0.0; W],
            value: [0.0; W],
            weight: 0.0,
            time_error: 0.0,
            nodes: 0,
            found: Vec::new(),
        }
    }

    /// Makes the relations orthogonal; false if they are too long for the tolerance.
    pub fn orthogonalize(&mut self) -> bool {
        let lattice = self.lattice;
        let n = lattice.n;
        let [spread, spread_of_time] = spreads(n, lattice.fall);
        let weight = (spread_of_time / spread) * (spread_of_time / spread);
        self.weight = weight;
        // How far each value can be from that of the functional: the cut of the rates, and for
        // rounding 64 units in the last place of the sum of all terms.
        let mut error = [0.0f64; W];
        let mut slack = 0.0;
        for j in 0..n {
            let mut v = Functional::ZERO;
            let sizes = lattice.m[j].map(f64::abs);
            for ((y, &m), &reach) in v.y.iter_mut().zip(&lattice.m[j]).zip(&lattice.reach) {
                *y = -m * reach;
            }
            v.time = lattice.rate[j] as f64 * UNIT;
            if sizes.iter().any(|&size| size > LARGEST) || v.time.abs() > LARGEST {
                return false;
            }
            self.offset[j] = dot(&lattice.m[j], &lattice.phase);
            // The reach is below 8.
            error[j] = (1.0 + dot(&sizes, &[1.0; W])) * (UNIT + 64.0 * 8.0 * f64::EPSILON);
            let mut scaled = v;
            scaled.time *= weight;
            for k in 0..j {
                let share = scaled.at(&self.functional[k]) * self.inverse_norm[k];
                self.mu[j][k] = share;
                error[j] += share.abs() * error[k];
                v.subtract(share, &self.functional[k]);
            }
            scaled = v;
            scaled.time *= weight;
            let norm = scaled.at(&v);
            // Dependent relations would not determine all job counts.
            if norm < 1e-9 || error[j] > TOLERANCE {
                return false;
            }
            self.norm[j] = norm;
            self.inverse_norm[j] = 1.0 / norm;
            slack += TOLERANCE * TOLERANCE / norm;
            self.slack_squared[j] = slack;
            self.time_error += weight * v.time.abs() / norm * error[j];
            let (low, high) = v.range(lattice.fall);
            self.low[j] = low - TOLERANCE;
            self.high[j] = high + TOLERANCE;
            self.functional[j] = v;
        }
        true
    }

    /// Whether the reduction did what it should: no length falls by more than its condition allows.
    pub fn well_reduced(&self) -> bool {
        self.norm[..self.lattice.n].windows(2).all(|pair| pair[1] > 0.4 * pair[0])
    }

    /// The spans that hold every candidate; `None` if the nodes, which are counted down, ran out.
    pub fn run(&mut self, nodes: &mut u64) -> Option<Vec<Span>> {
        let (n, fall) = (self.lattice.n, self.lattice.fall);
        self.nodes = *nodes;
        let mut middle = Start {
            point: Functional::ZERO,
            reached: Functional::ZERO,
            wanted: Functional::ZERO,
            reached_squared: 0.0,
            wanted_squared: 0.0,
            product: 0.0,
        };
        let share = 1.0 / (n as f64 + 2.0);
        let time = 0.5 * (1.0 - fall) + share * fall;
        middle.point.y[..n].fill(share * (1.0 - fall * time));
        middle.point.time = time;
        let done =
            if self.lattice.aligned { self.no_job(middle) } else { self.descend(0, &middle) };
        *nodes = self.nodes;
        done.then(|| core::mem::take(&mut self.found))
    }

    /// All that [`Self::descend`] does, where all deadlines align at the body's first instant:
    /// there every relation is 0, since the body's phases are those of the tasks. These values need
    /// no test, and what branches off from them begins with what is known of them.
    fn no_job(&mut self, mut start: Start<W>) -> bool {
        let mut projected = 0;
        for j in 0..self.lattice.n {
            let values = self.values(j);
            let (shift, first, last) = values;
            if first < 0.0 || last > 0.0 {
                for k in projected..j {
                    self.project(k, &mut start);
                }
                projected = j;
                if !self.branch(j, &start, values, true) {
                    return false;
                }
            }
            if first > 0.0 || last < 0.0 {
                return true;
            }
            if self.nodes == 0 {
                return false;
            }
            self.nodes -= 1;
            self.value[j] = -shift;
        }
        self.keep_no_job();
        true
    }

    /// What relation j is less than an integer by, the values of the earlier ones being fixed, and
    /// the least and the greatest integer that it can be.
    fn values(&self, j: usize) -> (f64, f64, f64) {
        let mut shift = self.offset[j];
        for (mu, value) in self.mu[j][..j].iter().zip(&self.value) {
            shift += mu * value;
        }
        let least = self.low[j] + shift;
        let near = nearest(least);
        (shift, if near < least { near + 1.0 } else { near }, self.high[j] + shift)
    }

    /// Tries every value that relation j can take, the values of the earlier ones being fixed,
    /// starting from a point of the body. False if the nodes ran out.
    fn descend(&mut self, j: usize, from: &Start<W>) -> bool {
        if j == self.lattice.n {
            self.keep(&from.point);
            return true;
        }
        self.branch(j, from, self.values(j), false)
    }

    /// The same for these values, but 0 if `not_zero`.
    fn branch(
        &mut self,
        j: usize,
        from: &Start<W>,
        (shift, mut integer, last): (f64, f64, f64),
        not_zero: bool,
    ) -> bool {
        while integer <= last {
            let value = integer;
            integer += 1.0;
            if not_zero && value == 0.0 {
                continue;
            }
            if self.nodes == 0 {
                return false;
            }
            self.nodes -= 1;
            self.value[j] = value - shift;
            let mut next = *from;
            if self.reachable(j, &mut next) && !self.descend(j + 1, &next) {
                return false;
            }
        }
        true
    }

    /// Whether the body may hold a point at which the functionals up to `last` have their values:
    /// false only if a linear functional separates the body from those points. `start` knows those
    /// before, and moves towards them (Gilbert 1966).
    fn reachable(&self, last: usize, start: &mut Start<W>) -> bool {
        self.project(last, start);
        for _ in 0..STEPS {
            let Start { reached, wanted, reached_squared, wanted_squared, product, .. } = *start;
            // What points from the values reached to those wanted, and the corner of the body
            // farthest in that direction.
            let mut direction = wanted;
            direction.subtract(1.0, &reached);
            let corner = greatest(&direction.y);
            let high = direction.y[corner];
            let high = if high > 0.0 { high } else { 0.0 };
            // There at T = 1, or at T = 0.
            let rest = 1.0 - self.lattice.fall;
            let late = direction.time + rest * high > high;
            let (height, time) = if late { (rest, 1.0) } else { (1.0, 0.0) };
            let height = if high > 0.0 { height } else { 0.0 };
            let high = height * high + time * direction.time;
            let distance = reached_squared + wanted_squared - 2.0 * product;
            let goal = wanted_squared - product;
            // At most what the tolerances of the values come to in that direction (Cauchy and
            // Schwarz).
            let slack = (distance.abs() * self.slack_squared[last]).sqrt() + 1e-9;
            if goal > high + slack + 1e-9 * (high.abs() + goal.abs()) {
                return false;
            }
            // Towards the corner, up to the nearest point of the segment.
            let there = |of: &Functional<W>| height * of.y[corner] + time * of.time;
            let mut projected = Functional::ZERO;
            for (v, inverse) in self.functional[..=last].iter().zip(&self.inverse_norm) {
                projected.subtract(-there(v) * inverse, v);
            }
            let (squared, with_reached) = (there(&projected), there(&reached));
            let length = squared - 2.0 * with_reached + reached_squared;
            let gain = high - (product - reached_squared);
            if gain <= 1e-12 || length <= 1e-12 || distance < 1e-9 {
                return true;
            }
            let share = if gain < length { gain / length } else { 1.0 };
            let keep = 1.0 - share;
            start.point.scale(keep);
            start.point.y[corner] += share * height;
            start.point.time += share * time;
            start.reached.scale(keep);
            start.reached.subtract(-share, &projected);
            start.reached_squared = keep * (keep * reached_squared + 2.0 * share * with_reached)
                + share * share * squared;
            start.product = keep * product + share * there(&wanted);
        }
        true
    }

    /// Adds functional k to the projections.
    fn project(&self, k: usize, start: &mut Start<W>) {
        let functional = &self.functional[k];
        let reached = functional.at(&start.point);
        let (wanted, inverse) = (self.value[k], self.inverse_norm[k]);
        start.reached.subtract(-reached * inverse, functional);
        start.wanted.subtract(-wanted * inverse, functional);
        start.reached_squared += reached * reached * inverse;
        start.wanted_squared += wanted * wanted * inverse;
        start.product += reached * wanted * inverse;
    }

    /// All job counts are 0: no deadline passes after the first instant, so no phase comes down
    /// again, and the first that reaches the budget ends it.
    fn keep_no_job(&mut self) {
        let Lattice { n, first, asked, reach, phase, period, .. } = self.lattice;
        let most = (0..*n).map(|i| (reach[i].min(1.0) - phase[i]) * period[i]);
        let most = most.fold(f64::INFINITY, f64::min) * (1.0 + 1e-12) + 2.0;
        let end = first.saturating_add(most.min(1e18) as i64);
        if end >= *asked {
            self.found.push((*asked, end));
        }
    }

    /// All job counts are fixed, so the instants lie on a line; `near` is a point of the body next
    /// to it.
    fn keep(&mut self, near: &Functional<W>) {
        let Lattice { n, first, length, reach, period, .. } = self.lattice;
        let mut t = near.time;
        for j in 0..*n {
            let v = &self.functional[j];
            t += (self.value[j] - v.at(near)) / self.norm[j] * v.time * self.weight;
        }
        // The foot of `near` on the line is nearer to it than any point of the body on the line, so
        // the two are within twice the diameter of the body, 4 in every y_i; along the line y_i
        // moves by 1 in reach * P.
        let fastest = (0..*n).map(|i| reach[i] * period[i]).fold(f64::INFINITY, f64::min);
        let margin = 4.0 * fastest + length * (self.time_error + 1e-13) + 2.0;
        // Saturates; the error of the sum is within the margin.
        let at = *first as f64 + t * length;
        self.found.push(((at - margin) as i64, (at + margin) as i64));
    }
}
