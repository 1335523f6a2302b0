//! A quick reduction that leaves relations short enough where the body reaches over a small part of the periods.

use super::{dot, subtract};

/// By how much a pair must gain to be worth its step.
const WORTH: f32 = 0.002;
/// The bits of a gain that hold its position.
const POSITION: u32 = 31;

/// Relations in single precision. Coefficients that are not exact any more, or rates that wrap, only make a relation
/// longer than it could be: whoever takes them counts the rates anew.
pub(super) struct Hurried<const W: usize> {
    pub n: usize,
    /// The relations: integers.
    pub m: [[f32; W]; W],
    /// Their rate of change.
    pub rate: [i64; W],
    /// What a coefficient of each task counts in the metric.
    pub weight: [f32; W],
    /// What a unit of the rates does.
    pub weight_of_time: f32,
}

impl<const W: usize> Hurried<W> {
    /// Relation a minus `factor` times relation b.
    fn combine(&mut self, a: usize, factor: f32, b: usize) {
        let from = self.m[b];
        subtract(&mut self.m[a], factor, &from);
        let rate = self.rate[b].wrapping_mul(factor as i64);
        self.rate[a] = self.rate[a].wrapping_sub(rate);
    }

    /// Makes the rates small, without regard to the coefficients: Euclid's algorithm on the two largest (Brun 1920).
    pub fn slow_down(&mut self, enough: i64) {
        let n = self.n;
        let mut order: [usize; W] = core::array::from_fn(|i| i);
        order[..n].sort_unstable_by_key(|&i| core::cmp::Reverse(self.rate[i]));
        for _ in 0..32 * n {
            let (a, b) = (order[0], order[1 % n]);
            if a == b || self.rate[a] < enough || self.rate[b] == 0 {
                break;
            }
            let rest = self.rate[a] - self.rate[b];
            let factor = if rest < self.rate[b] {
                1.0
            } else {
                (self.rate[a] as f32 / self.rate[b] as f32).min(1e6).floor()
            };
            self.combine(a, factor, b);
            let new = self.rate[a];
            let mut at = 1;
            while at < n && self.rate[order[at]] > new {
                order[at - 1] = order[at];
                at += 1;
            }
            order[at - 1] = a;
        }
    }

    /// Subtracts multiples of one another as long as that shortens a relation. Returns the order of their lengths.
    pub fn shorten_pairs(&mut self) -> [usize; W] {
        let n = self.n;
        let mut inner = [[0.0f32; W]; W];
        let mut weighted = [[0.0f32; W]; W];
        let time: [f32; W] = self.rate.map(|rate| rate as f32 * self.weight_of_time);
        for i in 0..n {
            for k in 0..W {
                weighted[i][k] = self.m[i][k] * self.weight[k];
            }
            for j in 0..=i {
                let product = dot(&weighted[i], &weighted[j]) + time[i] * time[j];
                inner[i][j] = product;
                inner[j][i] = product;
            }
        }
        let mut inverse = [0.0f32; W];
        let mut length = [0.0f32; W];
        for i in 0..n {
            length[i] = inner[i][i];
            inverse[i] = 1.0 / length[i].max(f32::MIN_POSITIVE);
        }
        let mut left = 64 * n;
        let (mut still, mut i) = (0, 0);
        while still < n && left > 0 {
            // What changes is kept here until the next relation's turn: column i of the others is written then.
            let mut row = inner[i];
            let mut own = length[i];
            let before = left;
            // None of its own multiples.
            let mut others = inverse;
            others[i] = 0.0;
            while left > 0 {
                left -= 1;
                let best = greatest_gain(&row, &others, &length);
                if best <= WORTH * own {
                    break;
                }
                let with = ((best.to_bits() & POSITION) as usize).min(W - 1);
                let factor = nearest(row[with] * inverse[with]);
                self.combine(i, factor, with);
                own -= best;
                subtract(&mut row, factor, &inner[with]);
            }
            if left + 1 == before {
                still += 1;
            } else {
                still = 1;
                row[i] = own;
                inner[i] = row;
                for j in 0..n {
                    inner[j][i] = row[j];
                }
                length[i] = own;
                inverse[i] = 1.0 / own.max(f32::MIN_POSITIVE);
            }
            i = (i + n - 1) % n;
        }
        let mut order: [usize; W] = core::array::from_fn(|i| i);
        order[..n].sort_unstable_by(|&a, &b| length[a].total_cmp(&length[b]));
        order
    }
}

/// By how much a relation with these products with the others gets shorter by the best multiple of another, in length
/// squared. The last bits of the gain are the other's position, so that both are found at once, without a branch.
fn greatest_gain<const W: usize>(row: &[f32; W], inverse: &[f32; W], length: &[f32; W]) -> f32 {
    let factor: [f32; W] = core::array::from_fn(|j| nearest(row[j] * inverse[j]));
    let gain: [f32; W] =
        core::array::from_fn(|j| factor[j] * ((row[j] + row[j]) - factor[j] * length[j]));
    let tagged: [f32; W] =
        core::array::from_fn(|j| f32::from_bits(gain[j].to_bits() & !POSITION | j as u32));
    let mut lanes = [0.0f32; 4];
    for four in tagged.chunks_exact(4) {
        lanes = core::array::from_fn(|k| if four[k] > lanes[k] { four[k] } else { lanes[k] });
    }
    let [a, b, c, d] = lanes;
    let low = if c > a { c } else { a };
    let high = if d > b { d } else { b };
    if high > low { high } else { low }
}

fn nearest(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    (x + ROUND) - ROUND
}
