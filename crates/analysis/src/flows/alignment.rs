//! Excluding failures at instants too far away to visit.
//!
//! Where U' is just under 1, T* lies hours away and visiting every point of D up to there takes minutes, though
//! hardly any set fails that late. Write x_i(t) for the fraction of its period since task i's last deadline,
//! x_i = frac((t - d_i) / P_i). From the last d on, the demand is U t + A - sum C_i x_i(t), so Eq. 10 can only fail
//! where sum C_i x_i(t) < A: where *all* deadlines have just passed. With tens of tasks such an alignment is rarer
//! than T* is long; the proof that there is none (or the list of the few there are) goes as follows.
//!
//! Take some of the tasks; y_i = C_i x_i / A then lies in the simplex y >= 0, sum y <= 1. The job counts
//! k_i = (t - d_i)/P_i - x_i are integers, hence so is every sum of m_i k_i with integer m_i, which is an affine
//! function of T and y: a *relation*. A lattice reduction finds relations that hardly change over the whole range of
//! t and have small m_i, so that the function's range over all t and y holds only a few integers. Branching on those
//! and bounding the remaining body by linear functionals leaves no branch, or candidates, which are swept exactly.
//!
//! The m_i and the rates of t are integers and are checked against each other at the end. The bounds are doubles;
//! every range is widened by a tolerance that the accumulated errors, which are summed up on the way, must stay
//! under, and a widened range only costs a branch. The reduction needs no precision: any relations are valid ones.

/// Most tasks in the lattice.
pub(super) const MOST: usize = 24;
/// Coordinates of a functional: one a task, one for t, padded for vector instructions.
const WIDTH: usize = 28;
/// Fraction bits of the rates of t.
const RATE_BITS: u32 = 52;
/// One unit of the rates of t.
const UNIT: f64 = 1.0 / (1u64 << RATE_BITS) as f64;
/// Relations with larger coefficients are not used: the error estimate assumes them small.
const LARGEST: i32 = 1 << 10;

/// By how much a swap must shorten: closer to 1 it takes more swaps, and leaves less to branch on.
const SHORTER: f64 = 0.9;

type Functional = [f64; WIDTH];

/// A task as this argument needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wave {
    /// d, half ns.
    pub window: i64,
    /// P', half ns.
    pub period: i64,
    /// C', half ns, from above or below: it scales the body, so it must be a lower bound of the true cost.
    pub cost: f64,
}

/// What the sum of cost times phase must stay under for a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// At the first instant, half ns; an upper bound.
    pub first: f64,
    /// The part of it by which it is less at the last instant, 0 to 1; a lower bound.
    pub fall: f64,
}

/// An interval of instants, inclusive.
pub(super) type Span = (i64, i64);

/// Instants in `within` where the sum of cost times phase over `waves` can be under the budget, which falls linearly: each such
/// instant lies in one of the spans returned. `None` if that took more than `nodes` steps, which are counted down, or the numbers are out of range.
pub(super) fn candidates(
    waves: &[Wave],
    budget: Budget,
    within: Span,
    nodes: &mut u64,
) -> Option<Vec<Span>> {
    let mut lattice = Lattice::new(waves, budget, within)?;
    let rates = lattice.rate;
    lattice.reduce();
    let mut search = Search::new(&lattice);
    // Doubles lose digits on the first, nearly parallel relations; a pass from the exact integers repairs that.
    for _ in 0..6 {
        if search.as_ref().is_some_and(Search::well_reduced) {
            break;
        }
        lattice.reduce();
        search = Search::new(&lattice);
    }
    if !lattice.consistent(&rates) {
        return None;
    }
    search?.run(nodes)
}

struct Lattice {
    /// Number of tasks.
    n: usize,
    first: i64,
    /// Half ns from T = 0 to T = 1.
    length: f64,
    fall: f64,
    /// budget / cost.
    reach: [f64; MOST],
    /// frac((first - d) / P), from the tasks.
    phase: [f64; MOST],
    period: [f64; MOST],
    /// The relations.
    m: [[i32; MOST]; MOST],
    /// Their rate of change: length * sum m_i / P_i, in units of 2^-52, cut off once for each task.
    rate: [i128; MOST],
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for i in 0..4 {
            sums[i] += a[i] * b[i];
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

fn subtract(a: &mut [f64], factor: f64, b: &[f64]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a -= factor * b;
    }
}

fn nearest(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    (x + ROUND) - ROUND
}

impl Lattice {
    fn new(waves: &[Wave], budget: Budget, (first, last): Span) -> Option<Self> {
        let n = waves.len();
        if n == 0 || n > MOST || first < 0 || last < first {
            return None;
        }
        let length = (last - first).max(1);
        let mut lattice = Self {
            n,
            first,
            length: length as f64,
            fall: budget.fall.clamp(0.0, 1.0),
            reach: [0.0; MOST],
            phase: [0.0; MOST],
            period: [1.0; MOST],
            m: [[0; MOST]; MOST],
            rate: [0; MOST],
        };
        for (i, wave) in waves.iter().enumerate() {
            let reach = budget.first / wave.cost;
            // In a phase that reaches over many periods nothing is excluded.
            if !(reach > 0.0 && reach < 8.0) {
                return None;
            }
            let period = wave.period as f64;
            let rate = (i128::from(length) << RATE_BITS) / i128::from(wave.period);
            lattice.reach[i] = reach * (1.0 + 1e-12);
            lattice.period[i] = period;
            lattice.phase[i] = (first - wave.window).rem_euclid(wave.period) as f64 / period;
            lattice.rate[i] = rate;
            lattice.m[i][i] = 1;
        }
        Some(lattice)
    }

    /// The relation as a functional of (y, t), in the metric of the reduction: each coordinate times about its
    /// deviation over the body.
    fn weighted(&self, j: usize) -> Functional {
        let mut v = [0.0; WIDTH];
        let [spread, spread_of_time] = spreads(self.n, self.fall);
        for i in 0..self.n {
            v[i] = f64::from(self.m[j][i]) * self.reach[i] * spread;
        }
        v[self.n] = self.rate[j] as f64 * (spread_of_time * UNIT);
        v
    }

    /// Coordinates of a functional that are in use, rounded up for vector instructions.
    fn width(&self) -> usize {
        (self.n + 1).next_multiple_of(4)
    }

    /// Relation a minus `factor` times relation b.
    fn combine(&mut self, a: usize, factor: i64, b: usize) {
        let (from, factor_small) = (self.m[b], factor as i32);
        let n = self.width();
        for (x, y) in self.m[a][..n.min(MOST)].iter_mut().zip(from) {
            *x = x.wrapping_sub(y.wrapping_mul(factor_small));
        }
        self.rate[a] = self.rate[a].wrapping_sub(self.rate[b].wrapping_mul(i128::from(factor)));
    }

    /// Shortens the relations by Lenstra, Lenstra and Lovasz (1982), with doubles.
    fn reduce(&mut self) {
        let (n, width) = (self.n, self.width());
        let mut mu = [[0.0f64; MOST]; MOST];
        let mut norm = [0.0f64; MOST];
        let mut star: [Functional; MOST] = [[0.0; WIDTH]; MOST];
        let mut known = 0;
        let mut k = 0;
        // A bound on the swaps, so that rounding can't make it cycle; the result is valid whenever it stops.
        let mut left = 4000;
        while k < n && left > 0 {
            left -= 1;
            if k >= known {
                let relation = self.weighted(k);
                star[k] = relation;
                for j in 0..k {
                    mu[k][j] = dot(&relation[..width], &star[j][..width]) / norm[j];
                    let projection = star[j];
                    subtract(&mut star[k][..width], mu[k][j], &projection[..width]);
                }
                norm[k] = dot(&star[k][..width], &star[k][..width]).max(1e-300);
                known = k + 1;
            }
            for j in (0..k).rev() {
                let factor = nearest(mu[k][j]);
                if factor == 0.0 || factor.abs() > 1e9 {
                    continue;
                }
                self.combine(k, factor as i64, j);
                let row = mu[j];
                for i in 0..j {
                    mu[k][i] -= factor * row[i];
                }
                mu[k][j] -= factor;
            }
            if k > 0 {
                let share = mu[k][k - 1];
                let swapped = norm[k] + share * share * norm[k - 1];
                if swapped < SHORTER * norm[k - 1] {
                    self.m.swap(k, k - 1);
                    self.rate.swap(k, k - 1);
                    // The usual update of the orthogonalization after a swap.
                    let coefficient = share * norm[k - 1] / swapped;
                    norm[k] = norm[k - 1] * norm[k] / swapped;
                    norm[k - 1] = swapped;
                    mu[k][k - 1] = coefficient;
                    let (low, high) = mu.split_at_mut(k);
                    for i in 0..k - 1 {
                        core::mem::swap(&mut low[k - 1][i], &mut high[0][i]);
                    }
                    for row in mu.iter_mut().take(known).skip(k + 1) {
                        let x = row[k];
                        row[k] = row[k - 1] - share * x;
                        row[k - 1] = x + coefficient * row[k];
                    }
                    // Only rows that are still to come need the vectors themselves.
                    if known < n {
                        let moved = star[k - 1];
                        let mut new_low = star[k];
                        subtract(&mut new_low[..width], -share, &moved[..width]);
                        let mut new_high = moved;
                        subtract(&mut new_high[..width], coefficient, &new_low[..width]);
                        star[k - 1] = new_low;
                        star[k] = new_high;
                    }
                    k = k.max(2) - 1;
                    continue;
                }
            }
            k += 1;
        }
    }

    /// Whether every rate still is the sum that its relation says.
    fn consistent(&self, rates: &[i128; MOST]) -> bool {
        (0..self.n).all(|j| {
            let sum = (0..self.n).try_fold(0i128, |sum, i| {
                sum.checked_add(rates[i].checked_mul(i128::from(self.m[j][i]))?)
            });
            sum == Some(self.rate[j])
        })
    }
}

/// What every bound is widened by; the errors of a relation's value must stay under it.
const TOLERANCE: f64 = 1e-5;
/// Steps towards the wanted values before a branch is taken to be possible.
const STEPS: usize = 6;

/// The deviations of a y_i and of T over the body, about.
fn spreads(n: usize, fall: f64) -> [f64; 2] {
    let simplex = 1.0 / (n as f64 + 2.0);
    [simplex, (1.0 - fall) * 0.29 + fall * simplex]
}

/// Least and greatest value over the body, at its corners: one y_i is 1 at T = 0 or 1 - fall at T = 1, or none.
fn range(v: &Functional, n: usize, fall: f64) -> (f64, f64) {
    let (mut low, mut high) = (0.0f64, 0.0f64);
    for &x in &v[..n] {
        low = low.min(x);
        high = high.max(x);
    }
    let rest = 1.0 - fall;
    (low.min(v[n] + rest * low), high.max(v[n] + rest * high))
}

/// A point of the body and the values of the functionals there.
#[derive(Clone, Copy)]
struct Start {
    point: Functional,
    at: [f64; MOST],
    pull: Pull,
}

/// The functional that points from the values at a point to the wanted ones, and what it amounts to at both.
#[derive(Clone, Copy)]
struct Pull {
    direction: Functional,
    wanted: f64,
    reached: f64,
    distance: f64,
    slack: f64,
}

impl Pull {
    const NONE: Self =
        Self { direction: [0.0; WIDTH], wanted: 0.0, reached: 0.0, distance: 0.0, slack: 1e-9 };
}

struct Search {
    n: usize,
    /// Coordinates in use, rounded up for vector instructions.
    width: usize,
    first: i64,
    length: f64,
    fall: f64,
    reach: [f64; MOST],
    period: [f64; MOST],
    /// The relations made orthogonal, as functionals of (y, T).
    functional: [Functional; MOST],
    mu: [[f64; MOST]; MOST],
    norm: [f64; MOST],
    inverse_norm: [f64; MOST],
    /// What a relation amounts to at y = 0 and T = 0, but for an integer.
    offset: [f64; MOST],
    low: [f64; MOST],
    high: [f64; MOST],
    /// The value that each orthogonal functional has in the current branch.
    value: [f64; MOST],
    /// How far the T of a candidate may be off.
    time_error: f64,
    nodes: u64,
    found: Vec<Span>,
}

impl Search {
    fn new(lattice: &Lattice) -> Option<Self> {
        let n = lattice.n;
        let mut search = Self {
            n,
            width: lattice.width(),
            first: lattice.first,
            length: lattice.length,
            fall: lattice.fall,
            reach: lattice.reach,
            period: lattice.period,
            functional: [[0.0; WIDTH]; MOST],
            mu: [[0.0; MOST]; MOST],
            norm: [0.0; MOST],
            inverse_norm: [0.0; MOST],
            offset: [0.0; MOST],
            low: [0.0; MOST],
            high: [0.0; MOST],
            value: [0.0; MOST],
            time_error: 0.0,
            nodes: 0,
            found: Vec::new(),
        };
        // How far each value can be from that of the functional: the cut of the rates, and for rounding 64
        // units in the last place of the sum of all terms.
        let mut error = [0.0f64; MOST];
        let weight = search.time_weight();
        for j in 0..n {
            let mut v = [0.0; WIDTH];
            let mut offset = 0.0;
            let mut size = 1.0;
            for i in 0..n {
                let m = lattice.m[j][i];
                size += f64::from(m.unsigned_abs());
                if m.abs() > LARGEST {
                    return None;
                }
                v[i] = -f64::from(m) * lattice.reach[i];
                offset += f64::from(m) * lattice.phase[i];
            }
            v[n] = lattice.rate[j] as f64 * UNIT;
            if v[n].abs() > f64::from(LARGEST) {
                return None;
            }
            search.offset[j] = offset;
            // The reach is below 8.
            error[j] = size * (UNIT + 64.0 * 8.0 * f64::EPSILON);
            let mut scaled = v;
            scaled[n] *= weight * weight;
            for k in 0..j {
                let other = search.functional[k];
                let share = dot(&scaled, &other) / search.norm[k];
                search.mu[j][k] = share;
                error[j] += share.abs() * error[k];
                subtract(&mut v, share, &other);
            }
            scaled = v;
            scaled[n] *= weight * weight;
            search.norm[j] = dot(&scaled, &v).max(1e-12);
            if error[j] > TOLERANCE {
                return None;
            }
            search.time_error += weight * weight * v[n].abs() / search.norm[j] * error[j];
            let (low, high) = range(&v, n, lattice.fall);
            search.low[j] = low - TOLERANCE;
            search.high[j] = high + TOLERANCE;
            search.functional[j] = v;
        }
        Some(search)
    }

    /// The weight of T against the y_i in the metric: its deviation over the body against theirs.
    fn time_weight(&self) -> f64 {
        let [spread, spread_of_time] = spreads(self.n, self.fall);
        spread_of_time / spread
    }

    /// Whether the reduction did what it should: no length falls by more than its condition allows.
    fn well_reduced(&self) -> bool {
        self.norm[..self.n].windows(2).all(|pair| pair[1] > 0.4 * pair[0])
    }

    fn run(mut self, nodes: &mut u64) -> Option<Vec<Span>> {
        self.nodes = *nodes;
        for k in 0..self.n {
            self.inverse_norm[k] = 1.0 / self.norm[k];
        }
        let mut middle = Start { point: [0.0; WIDTH], at: [0.0; MOST], pull: Pull::NONE };
        let share = 1.0 / (self.n as f64 + 2.0);
        let time = 0.5 * (1.0 - self.fall) + share * self.fall;
        middle.point[..self.n].fill(share * (1.0 - self.fall * time));
        middle.point[self.n] = time;
        let done = self.descend(0, &middle);
        *nodes = self.nodes;
        done.then_some(self.found)
    }

    /// Tries every value that relation j can take, the values of the earlier ones being fixed, starting from a point
    /// of the body. False if the nodes ran out.
    fn descend(&mut self, j: usize, from: &Start) -> bool {
        if j == self.n {
            self.keep(&from.point);
            return true;
        }
        let shift: f64 = dot(&self.mu[j][..j], &self.value[..j]) + self.offset[j];
        // value = integer - shift, within low..high.
        let mut integer = (self.low[j] + shift).ceil();
        let last = self.high[j] + shift;
        if integer > last {
            return true;
        }
        let mut here = *from;
        here.at[j] = dot(&self.functional[j][..self.width], &here.point[..self.width]);
        while integer <= last {
            if self.nodes == 0 {
                return false;
            }
            self.nodes -= 1;
            self.value[j] = integer - shift;
            integer += 1.0;
            let mut next = here;
            if self.reachable(j + 1, &mut next) && !self.descend(j + 1, &next) {
                return false;
            }
        }
        true
    }

    /// Whether the body may hold a point at which the first `count` functionals have their values: false only if a
    /// linear functional separates the body from those points. `start` moves towards them (Gilbert 1966).
    fn reachable(&self, count: usize, start: &mut Start) -> bool {
        let n = self.n;
        self.pull(count - 1, start);
        for step in 0..STEPS {
            if step > 0 {
                start.pull = Pull::NONE;
                for k in 0..count {
                    self.pull(k, start);
                }
            }
            let Pull { direction, wanted, reached, distance, slack } = &start.pull;
            // The corner of the body farthest in that direction.
            let (mut corner, mut high) = (n, 0.0);
            for (i, &x) in direction[..n].iter().enumerate() {
                if x > high {
                    (corner, high) = (i, x);
                }
            }
            // There at T = 1, or at T = 0.
            let rest = 1.0 - self.fall;
            let late = direction[n] + rest * high > high;
            let (height, time) = if late { (rest, 1.0) } else { (1.0, 0.0) };
            high = height * high + time * direction[n];
            if *wanted > high + slack + 1e-9 * (high.abs() + wanted.abs()) {
                return false;
            }
            // Towards the corner, up to the nearest point of the segment.
            let mut length = 0.0;
            let mut along = [0.0f64; MOST];
            for k in 0..count {
                let v = &self.functional[k];
                let there = if corner < n { height * v[corner] } else { 0.0 } + time * v[n];
                along[k] = there - start.at[k];
                length += along[k] * along[k] * self.inverse_norm[k];
            }
            let gain = high - reached;
            if gain <= 1e-12 || length <= 1e-12 || *distance < 1e-9 {
                return true;
            }
            let share = (gain / length).min(1.0);
            for x in &mut start.point[..=n] {
                *x *= 1.0 - share;
            }
            if corner < n {
                start.point[corner] += share * height;
            }
            start.point[n] += share * time;
            for k in 0..count {
                start.at[k] += share * along[k];
            }
        }
        start.pull = Pull::NONE;
        for k in 0..count {
            self.pull(k, start);
        }
        true
    }

    /// Adds functional k to the pull.
    fn pull(&self, k: usize, start: &mut Start) {
        let gap = self.value[k] - start.at[k];
        let weight = gap * self.inverse_norm[k];
        let pull = &mut start.pull;
        subtract(&mut pull.direction[..self.width], -weight, &self.functional[k][..self.width]);
        pull.wanted += weight * self.value[k];
        pull.reached += weight * start.at[k];
        pull.distance += weight * gap;
        pull.slack += weight.abs() * TOLERANCE;
    }

    /// All job counts are fixed, so the instants lie on a line; `near` is a point of the body beside it.
    fn keep(&mut self, near: &Functional) {
        let n = self.n;
        let weight = self.time_weight();
        let mut t = near[n];
        for j in 0..n {
            let v = &self.functional[j];
            t += (self.value[j] - dot(v, near)) / self.norm[j] * v[n] * weight * weight;
        }
        // The foot of `near` on the line is nearer to it than any point of the body on the line, so the two are
        // within twice the diameter of the body, 4 in every y_i; along the line y_i moves by 1 in reach * P.
        let fastest = (0..n).map(|i| self.reach[i] * self.period[i]).fold(f64::INFINITY, f64::min);
        let margin =
            (4.0 * fastest + self.length * (self.time_error + 1e-13) + 2.0).min(1e18) as i64;
        let at = self.first.saturating_add((t * self.length) as i64);
        self.found.push((at.saturating_sub(margin), at.saturating_add(margin)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instants at which the phases are aligned, by visiting every job of the first task.
    fn aligned(waves: &[Wave], budget: Budget, (first, last): Span) -> Vec<i64> {
        let mut found = Vec::new();
        for wave in waves {
            let mut t = first + (wave.window - first).rem_euclid(wave.period);
            while t <= last {
                let sum: f64 = waves
                    .iter()
                    .map(|w| {
                        w.cost * ((t - w.window).rem_euclid(w.period) as f64 / w.period as f64)
                    })
                    .sum();
                let passed = (t - first) as f64 / (last - first) as f64;
                if sum < budget.first * (1.0 - budget.fall * passed) {
                    found.push(t);
                }
                t += wave.period;
            }
        }
        found
    }

    #[test]
    fn every_alignment_lies_in_a_candidate() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut alignments, mut empty) = (0, 0);
        for _ in 0..400 {
            let n = random.usize(2..=9);
            let waves: Vec<Wave> = (0..n)
                .map(|_| Wave {
                    window: random.i64(1000..2_000_000),
                    period: random.i64(300_000..5_000_000),
                    cost: random.f64().mul_add(400.0, 100.0),
                })
                .collect();
            let total: f64 = waves.iter().map(|w| w.cost).sum();
            // Steady, falling, or falling to nothing.
            let fall = [0.0, random.f64(), 1.0][random.usize(..3)];
            let budget = Budget { first: total * random.f64() * 0.16, fall };
            let within = (10_000_000, 10_000_000 + random.i64(1_000_000..3_000_000_000));
            let expected = aligned(&waves, budget, within);
            let Some(spans) = candidates(&waves, budget, within, &mut (1 << 16)) else {
                continue;
            };
            empty += usize::from(spans.is_empty());
            alignments += expected.len();
            for t in expected {
                assert!(
                    spans.iter().any(|&(low, high)| (low..=high).contains(&t)),
                    "{t} {spans:?} {waves:?}"
                );
            }
        }
        assert!(alignments > 1000 && empty > 50, "{alignments} {empty}");
    }

    #[test]
    fn the_relations_stay_a_basis() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..50 {
            let n = random.usize(2..=12);
            let waves: Vec<Wave> = (0..n)
                .map(|_| Wave { window: 1, period: random.i64(1_000_000..90_000_000), cost: 1.0 })
                .collect();
            let mut lattice =
                Lattice::new(&waves, Budget { first: 0.5, fall: 1.0 }, (0, 1 << 44)).unwrap();
            let before = lattice.rate;
            lattice.reduce();
            assert!(lattice.consistent(&before));
            let mut matrix = vec![vec![0.0; n]; n];
            for (j, row) in matrix.iter_mut().enumerate() {
                for (i, x) in row.iter_mut().enumerate() {
                    *x = f64::from(lattice.m[j][i]);
                }
            }
            let mut determinant = 1.0;
            for k in 0..n {
                let pivot = (k..n)
                    .max_by(|&a, &b| matrix[a][k].abs().total_cmp(&matrix[b][k].abs()))
                    .unwrap();
                matrix.swap(k, pivot);
                determinant *= matrix[k][k];
                for r in k + 1..n {
                    let factor = matrix[r][k] / matrix[k][k];
                    for c in k..n {
                        matrix[r][c] -= factor * matrix[k][c];
                    }
                }
            }
            assert!((determinant.abs() - 1.0).abs() < 1e-6, "{determinant}");
        }
    }
}
