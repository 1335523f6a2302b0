//! Excluding failures at instants too far away to visit.
//!
//! Where U' is just under 1, T* lies hours away and visiting every point of D up to there takes
//! minutes, though hardly any set fails that late. Write x_i(t) for the fraction of its period
//! since task i's last deadline, x_i = frac((t - d_i) / P_i). From the last d on, the demand is `U
//! t + A - sum C_i x_i(t)`, so Eq. 10 can only fail where sum C_i x_i(t) < A: where *all* deadlines
//! have just passed. With tens of tasks such an alignment is rarer than T* is long; the proof that
//! there is none (or the list of the few there are) goes as follows.
//!
//! Take some of the tasks; y_i = C_i x_i / A then lies in the simplex y >= 0, sum y <= 1. The job
//! counts k_i = (t - d_i)/P_i - x_i are integers, hence so is every sum of m_i k_i with integer
//! m_i, which is an affine function of T and y: a *relation*. A lattice reduction finds relations
//! that hardly change over the whole range of t and have small m_i, so that the function's range
//! over all t and y holds only a few integers. Branching on those and bounding the remaining body
//! by linear functionals leaves no branch, or candidates, which are swept exactly.
//!
//! Where every d_i is about P_i, all deadlines align just before t = 0. The body is made to begin
//! there, so that one branch, the one of no job, needs no bounding at all; its instants are known
//! exactly.
//!
//! The m_i and the rates of t are integers and are checked against each other at the end. The
//! bounds are doubles; every range is widened by a tolerance that the accumulated errors, which are
//! summed up on the way, must stay under, and a widened range only costs a branch. The reduction
//! needs no precision: any relations are valid ones.

mod hurried;
mod lattice;
mod search;

use lattice::Lattice;
use search::Search;

/// Most tasks in the lattice.
pub(super) const MOST: usize = 24;
/// Relations of bodies that reach over less than this part of the periods are short enough when
/// reduced in a hurry,
const SMALL_REACH: f64 = 0.45;
/// unless they lead to more branches than this.
const HURRY: u64 = 60;

/// A task as this argument needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wave {
    /// d, half ns.
    pub window: i64,
    /// P', half ns.
    pub period: i64,
    /// C', half ns, from above or below: it scales the body, so it must be a lower bound of the
    /// true cost.
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

/// Instants in `within` where the sum of cost times phase over `waves` can be under the budget,
/// which falls linearly: each such instant lies in one of the spans returned, or beyond i64 in one
/// that ends at its limit. `None` if that took more than `nodes` steps, which are counted down, or
/// the numbers are out of range.
pub(super) fn candidates(
    waves: &[Wave],
    budget: Budget,
    within: (i64, i128),
    nodes: &mut u64,
) -> Option<Vec<Span>> {
    // Rows of a fixed width are added and multiplied in registers.
    match waves.len() {
        ..=8 => by_width::<8, 2>(waves, budget, within, nodes),
        9..=12 => by_width::<12, 3>(waves, budget, within, nodes),
        13..=16 => by_width::<16, 4>(waves, budget, within, nodes),
        _ => by_width::<MOST, { MOST / 4 }>(waves, budget, within, nodes),
    }
}

// Each width by itself: in one function of all of them the registers don't suffice.
#[inline(never)]
fn by_width<const W: usize, const V: usize>(
    waves: &[Wave],
    budget: Budget,
    within: (i64, i128),
    nodes: &mut u64,
) -> Option<Vec<Span>> {
    let mut lattice = Lattice::<W>::new();
    lattice.take(waves, budget, within)?;
    lattice.reduce_in_a_hurry::<V>();
    if lattice.reach.iter().all(|&reach| reach < SMALL_REACH) {
        let mut search = Search::new(&lattice);
        if search.orthogonalize() {
            let granted = HURRY.min(*nodes);
            let mut left = granted;
            let spans = search.run(&mut left);
            *nodes -= granted - left;
            if spans.is_some() {
                return spans;
            }
        }
    }
    // Doubles lose digits on the first, nearly parallel relations; a pass from the exact integers
    // repairs that.
    for _ in 0..6 {
        lattice.reduce();
        let mut search = Search::new(&lattice);
        if lattice.consistent() && search.orthogonalize() && search.well_reduced() {
            return search.run(nodes);
        }
    }
    lattice.reduce();
    let mut search = Search::new(&lattice);
    if lattice.consistent() && search.orthogonalize() { search.run(nodes) } else { None }
}

fn dot<const W: usize>(a: &[f64; W], b: &[f64; W]) -> f64 {
    let mut sums = [0.0; 4];
    for i in (0..W).step_by(4) {
        for j in 0..4 {
            sums[j] += a[i + j] * b[i + j];
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

fn subtract<const W: usize>(a: &mut [f64; W], factor: f64, b: &[f64; W]) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a -= factor * b;
    }
}

fn nearest(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    (x + ROUND) - ROUND
}

/// The deviations of a y_i and of T over the body, about.
fn spreads(n: usize, fall: f64) -> [f64; 2] {
    let simplex = 1.0 / (n as f64 + 2.0);
    [simplex, (1.0 - fall) * 0.29 + fall * simplex]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instants at which the phases are aligned, by visiting every job, and what comes soon after
    /// the first instant.
    fn aligned(waves: &[Wave], budget: Budget, (first, last): Span) -> Vec<i64> {
        let visits = waves.iter().flat_map(|wave| {
            let start = first + (wave.window - first).rem_euclid(wave.period);
            (start..=last).step_by(wave.period as usize)
        });
        let soon = (first..=last).step_by(1000).take(200);
        let under = |t: &i64| {
            let phase = |w: &Wave| (t - w.window).rem_euclid(w.period) as f64 / w.period as f64;
            let sum: f64 = waves.iter().map(|w| w.cost * phase(w)).sum();
            let passed = (t - first) as f64 / (last - first) as f64;
            sum < budget.first * (1.0 - budget.fall * passed)
        };
        visits.chain(soon).filter(under).collect()
    }

    #[test]
    fn every_alignment_lies_in_a_candidate() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut alignments, mut empty) = (0, 0);
        let mut at_the_beginning = 0;
        for round in 0..480 {
            let n = random.usize(2..=[7, 9, 14, 18][round % 4]);
            // As deadlines equal to periods give it: all align just before 0.
            let together = round % 8 < 4;
            let waves: Vec<Wave> = (0..n)
                .map(|_| {
                    let period = random.i64(300_000..5_000_000);
                    let window = if together {
                        period - random.i64(100..5000)
                    } else {
                        random.i64(1000..2_000_000)
                    };
                    Wave { window, period, cost: random.f64().mul_add(400.0, 100.0) }
                })
                .collect();
            let total: f64 = waves.iter().map(|w| w.cost).sum();
            // Steady, falling, or falling to nothing.
            let fall = [0.0, random.f64(), 1.0][random.usize(..3)];
            let budget = Budget { first: total * random.f64() * 0.16, fall };
            let first = if together { random.i64(0..100_000) } else { 10_000_000 };
            let within = (first, first + random.i64(1_000_000..3_000_000_000));
            let expected = aligned(&waves, budget, within);
            let until = (within.0, within.1.into());
            let Some(spans) = candidates(&waves, budget, until, &mut (1 << 16)) else {
                continue;
            };
            empty += usize::from(spans.is_empty());
            alignments += expected.len();
            at_the_beginning += usize::from(together && expected.iter().any(|&t| t < 2_000_000));
            for t in expected {
                assert!(
                    spans.iter().any(|&(low, high)| (low..=high).contains(&t)),
                    "{t} {spans:?} {waves:?}"
                );
            }
        }
        assert!(
            alignments > 1000 && empty > 50 && at_the_beginning > 20,
            "{alignments} {empty} {at_the_beginning}"
        );
    }

    #[test]
    fn the_relations_stay_a_basis() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..50 {
            let n = random.usize(2..=12);
            let waves: Vec<Wave> = (0..n)
                .map(|_| Wave { window: 1, period: random.i64(1_000_000..90_000_000), cost: 1.0 })
                .collect();
            let mut lattice = Lattice::<12>::new();
            lattice.take(&waves, Budget { first: 0.5, fall: 1.0 }, (0, 1 << 44)).unwrap();
            lattice.reduce_in_a_hurry::<3>();
            assert!(lattice.consistent());
            lattice.reduce();
            assert!(lattice.consistent());
            let mut matrix = vec![vec![0.0; n]; n];
            for (j, row) in matrix.iter_mut().enumerate() {
                for (i, x) in row.iter_mut().enumerate() {
                    *x = lattice.m[j][i];
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
