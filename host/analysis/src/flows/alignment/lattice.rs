//! The relations, and how they are made short.

use super::hurried::{Hurried, Row};
use super::{Budget, Wave, dot, nearest, spreads, subtract};
use wide::f32x4;

/// Fraction bits of the rates of t.
const RATE_BITS: u32 = 52;
/// The instants must be below, half ns: the rates must fit into 128 bits.
const FARTHEST: i128 = 1 << 74;
/// One unit of the rates of t.
pub(super) const UNIT: f64 = 1.0 / (1u64 << RATE_BITS) as f64;
/// By how much a swap must shorten: closer to 1 it takes more swaps, and leaves less to branch on.
const SHORTER: f64 = 0.9;
/// Where Euclid's algorithm hands over: rates about as large as the rest of a short relation.
const STILL_FAST: f64 = 4.0;
/// Relations with larger coefficients are not used: the error estimate assumes them small.
pub(super) const LARGEST: f64 = 1024.0;
/// Bits of a rate, without its sign, while it is reduced in a hurry.
const HURRIED_BITS: u32 = 56;

pub(super) struct Lattice<const W: usize> {
    /// Number of tasks.
    pub n: usize,
    pub first: i64,
    /// Before this instant nothing is asked for.
    pub asked: i64,
    /// All deadlines align at `first`: the branch of no job is not empty.
    pub aligned: bool,
    /// Half ns from T = 0 to T = 1.
    pub length: f64,
    pub fall: f64,
    /// budget / cost.
    pub reach: [f64; W],
    /// frac((first - d) / P), from the tasks.
    pub phase: [f64; W],
    pub period: [f64; W],
    /// The relations: integers, exact as doubles.
    pub m: [[f64; W]; W],
    /// Their rate of change: length * sum m_i / P_i, in units of 2^-52, cut off once for each task.
    pub rate: [i128; W],
    /// The rates of the tasks.
    rates: [i128; W],
}

impl<const W: usize> Lattice<W> {
    /// Of no task. It is filled where it lies, since moving it would take a while.
    pub const fn new() -> Self {
        Self {
            n: 0,
            first: 0,
            asked: 0,
            aligned: false,
            length: 0.0,
            fall: 0.0,
            reach: [0.0; W],
            phase: [0.0; W],
            period: [1.0; W],
            m: [[0.0; W]; W],
            rate: [0; W],
            rates: [0; W],
        }
    }

    /// Takes tasks, into one that has none; `None` if numbers are out of range.
    pub fn take(
        &mut self,
        waves: &[Wave],
        budget: Budget,
        (asked, last): (i64, i128),
    ) -> Option<()> {
        let n = waves.len();
        let asked_wide = i128::from(asked);
        if n == 0 || n > W || asked < 0 || last < asked_wide || last >= FARTHEST {
            return None;
        }
        // Where t = d - P for all tasks, nearly.
        let start = waves.iter().map(|w| w.window - w.period).max().unwrap_or(asked);
        let phases =
            waves.iter().map(|w| w.cost * ((start - w.window + w.period) as f64 / w.period as f64));
        let near = start <= asked && i128::from(asked - start) < (last - asked_wide) / 64;
        let aligned = near && phases.sum::<f64>() < budget.first * 0.9;
        let first = if aligned { start } else { asked };
        let length = (last - i128::from(first)).max(1);
        let stretch = length as f64 / (last - asked_wide).max(1) as f64;
        // The line that the budget falls along, from the earlier instant on.
        let earlier = budget.first * (1.0 + budget.fall * (stretch - 1.0)) * (1.0 + 1e-12);
        let fall = if aligned {
            budget.fall * stretch * budget.first / earlier * (1.0 - 1e-12)
        } else {
            budget.fall
        };
        (self.n, self.first, self.asked, self.aligned) = (n, first, asked, aligned);
        (self.length, self.fall) = (length as f64, fall.clamp(0.0, 1.0));
        for (i, wave) in waves.iter().enumerate() {
            let reach = earlier / wave.cost;
            // In a phase that reaches over many periods nothing is excluded.
            if !(reach > 0.0 && reach < 8.0) {
                return None;
            }
            let period = wave.period as f64;
            let rate = (length << RATE_BITS) / i128::from(wave.period);
            self.reach[i] = reach * (1.0 + 1e-12);
            self.period[i] = period;
            let since = (first - wave.window).rem_euclid(wave.period);
            self.phase[i] = since as f64 / period;
            self.rate[i] = rate;
            self.rates[i] = rate;
            self.m[i][i] = 1.0;
        }
        Some(())
    }

    /// What each coordinate of a relation counts in the metric of the reduction: about its
    /// deviation over the body.
    fn weights(&self) -> ([f64; W], f64) {
        let [spread, spread_of_time] = spreads(self.n, self.fall);
        (self.reach.map(|reach| reach * spread), spread_of_time * UNIT)
    }

    /// Relation a minus `factor` times relation b.
    fn combine(&mut self, a: usize, factor: f64, b: usize) {
        let from = self.m[b];
        subtract(&mut self.m[a], factor, &from);
        let rate = self.rate[b].wrapping_mul(i128::from(factor as i64));
        self.rate[a] = self.rate[a].wrapping_sub(rate);
    }

    /// Shortens the tasks' own relations cheaply, in single precision; they come in rising order of
    /// length. Leaves them as they are if that went out of range.
    pub fn reduce_in_a_hurry<const V: usize>(&mut self) {
        let most = self.rates.iter().fold(0, |most, &rate| most | rate);
        let shift = (i128::BITS - most.leading_zeros()).saturating_sub(HURRIED_BITS);
        let unit = UNIT * 2f64.powi(shift as i32);
        let (weight, weight_of_time) = self.weights();
        let mut hurried = Hurried::<W, V> {
            n: self.n,
            m: core::array::from_fn(|i| four(|j| f32::from(u8::from(i == j)))),
            rate: self.rates.map(|rate| (rate >> shift) as i64),
            weight: four(|j| weight[j] as f32),
            weight_of_time: (weight_of_time / UNIT * unit) as f32,
        };
        hurried.slow_down((STILL_FAST / unit) as i64);
        let order = hurried.shorten_pairs();
        // Not so for what is no number either.
        let sizes = hurried.m.iter().flatten().map(|m| m.abs().to_array());
        if !sizes.flatten().all(|m| f64::from(m) <= LARGEST) {
            return;
        }
        // In pieces of 32 bits a rate times a coefficient, and the sum of all, is exact as a
        // double.
        let pieces = (i128::BITS - most.leading_zeros()).div_ceil(32) as usize;
        let mut piece = [[0.0; W]; 4];
        for (k, piece) in piece[..pieces].iter_mut().enumerate() {
            *piece = self.rates.map(|rate| f64::from((rate >> (32 * k)) as u32));
        }
        for (to, &from) in order[..self.n].iter().enumerate() {
            let m = hurried.m[from].map(f32x4::to_array);
            let m = m.as_flattened();
            self.m[to] = core::array::from_fn(|i| f64::from(m[i]));
            self.rate[to] = piece[..pieces].iter().rev().fold(0, |sum: i128, piece| {
                sum.wrapping_shl(32).wrapping_add(i128::from(dot(&self.m[to], piece) as i64))
            });
        }
    }

    /// Shortens the relations by Lenstra, Lenstra and Lovasz (1982), with doubles.
    pub fn reduce(&mut self) {
        let n = self.n;
        let (weight, weight_of_time) = self.weights();
        let mut mu = [[0.0f64; W]; W];
        let mut norm = [0.0f64; W];
        let mut star = [[0.0f64; W]; W];
        let mut star_time = [0.0f64; W];
        let mut known = 0;
        let mut k = 0;
        // A bound on the swaps, so that rounding can't make it cycle; the result is valid whenever
        // it stops.
        let mut left = 4000;
        while k < n && left > 0 {
            left -= 1;
            if k >= known {
                let relation: [f64; W] = core::array::from_fn(|i| self.m[k][i] * weight[i]);
                let time = self.rate[k] as f64 * weight_of_time;
                star[k] = relation;
                star_time[k] = time;
                for j in 0..k {
                    let share = (dot(&relation, &star[j]) + time * star_time[j]) / norm[j];
                    mu[k][j] = share;
                    let projection = star[j];
                    subtract(&mut star[k], share, &projection);
                    star_time[k] -= share * star_time[j];
                }
                norm[k] = (dot(&star[k], &star[k]) + star_time[k] * star_time[k]).max(1e-300);
                known = k + 1;
            }
            for j in (0..k).rev() {
                let factor = nearest(mu[k][j]);
                if factor == 0.0 || factor.abs() > 1e9 {
                    continue;
                }
                self.combine(k, factor, j);
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
                        let (moved, moved_time) = (star[k - 1], star_time[k - 1]);
                        let mut low = star[k];
                        subtract(&mut low, -share, &moved);
                        let low_time = star_time[k] + share * moved_time;
                        let mut high = moved;
                        subtract(&mut high, coefficient, &low);
                        star[k - 1] = low;
                        star[k] = high;
                        star_time[k - 1] = low_time;
                        star_time[k] = moved_time - coefficient * low_time;
                    }
                    k = k.max(2) - 1;
                    continue;
                }
            }
            k += 1;
        }
    }

    /// Whether every rate still is the sum that its relation defines. Coefficients must be below
    /// 2^62.
    pub fn consistent(&self) -> bool {
        (0..self.n).all(|j| {
            let sum = (0..self.n).try_fold(0i128, |sum, i| {
                sum.checked_add(self.rates[i].checked_mul(i128::from(self.m[j][i] as i64))?)
            });
            sum == Some(self.rate[j])
        })
    }
}

fn four<const V: usize>(of: impl Fn(usize) -> f32) -> Row<V> {
    core::array::from_fn(|v| f32x4::from(core::array::from_fn(|k| of(4 * v + k))))
}
