//! A quick reduction that leaves relations short enough where the body reaches over a small part of
//! the periods.

use wide::{CmpEq, f32x4, i32x4};

/// By how much a pair must gain to be worth its step.
const WORTH: f32 = 0.002;
/// The bits of a gain, and of a rate while they are sorted, that hold the position.
const POSITION: i32 = 31;
const POSITION_BITS: u32 = 5;
/// Adding and subtracting it rounds a number below 2^22 to the nearest integer.
const ROUND: f32 = 12_582_912.0;

/// Four numbers a step, in registers: V of these are W numbers.
pub(super) type Row<const V: usize> = [f32x4; V];

/// Relations in single precision. Coefficients that are not exact any more, or rates that wrap,
/// only make a relation longer than it could be: the caller computes the rates again.
pub(super) struct Hurried<const W: usize, const V: usize> {
    pub n: usize,
    /// The relations: integers.
    pub m: [Row<V>; W],
    /// Their rate of change, of at most 56 bits.
    pub rate: [i64; W],
    /// What a coefficient of each task counts in the metric.
    pub weight: Row<V>,
    /// What a unit of the rates does.
    pub weight_of_time: f32,
}

impl<const W: usize, const V: usize> Hurried<W, V> {
    /// Relation a minus `factor` times relation b.
    fn combine(&mut self, a: usize, factor: f32, b: usize) {
        let from = self.m[b];
        subtract(&mut self.m[a], factor, &from);
        let rate = self.rate[b].wrapping_mul(factor as i64);
        self.rate[a] = self.rate[a].wrapping_sub(rate);
    }

    /// Makes the rates small, without regard to the coefficients: Euclid's algorithm on the two
    /// largest (Brun 1920).
    // By itself, as the other step: together they have too few registers.
    #[inline(never)]
    pub fn slow_down(&mut self, enough: i64) {
        // In falling order; the last bits are the position.
        let mut keys: [i64; W] = core::array::from_fn(|i| self.rate[i] << POSITION_BITS | i as i64);
        keys[self.n..].fill(0);
        sort_falling(&mut keys);
        for _ in 0..32 * self.n {
            let (fast, next) = (keys[0] >> POSITION_BITS, keys[1] >> POSITION_BITS);
            if fast < enough || next <= 0 {
                break;
            }
            let [a, b] = [keys[0], keys[1]].map(|key| key as usize & POSITION as usize);
            let (a, b) = (a.min(W - 1), b.min(W - 1));
            let rest = fast - next;
            let factor =
                if rest < next { 1.0 } else { (fast as f32 / next as f32).min(1e6).floor() };
            let from = self.m[b];
            subtract(&mut self.m[a], factor, &from);
            let new = if rest < next { rest } else { fast - next * factor as i64 };
            // Into its place, without a branch.
            let mut key = new << POSITION_BITS | a as i64;
            for at in 1..W {
                let other = keys[at];
                keys[at - 1] = other.max(key);
                key = other.min(key);
            }
            keys[W - 1] = key;
        }
        for key in &keys[..self.n] {
            self.rate[(key & i64::from(POSITION)) as usize % W] = key >> POSITION_BITS;
        }
    }

    /// Subtracts multiples of one another as long as that shortens a relation. Returns the order of
    /// their lengths.
    #[inline(never)]
    pub fn shorten_pairs(&mut self) -> [usize; W] {
        let n = self.n;
        let zero = f32x4::splat(0.0);
        let mut inner = [[zero; V]; W];
        let mut length = [zero; V];
        let mut inverse = [zero; V];
        let time: [f32; W] = self.rate.map(|rate| rate as f32 * self.weight_of_time);
        let squares = self.weight.map(|weight| weight * weight);
        for i in 0..n {
            let mut weighted = self.m[i];
            for (weighted, square) in weighted.iter_mut().zip(&squares) {
                *weighted *= *square;
            }
            for j in 0..=i {
                let product = dot(&weighted, &self.m[j]) + time[i] * time[j];
                set(&mut inner[i], j, product);
                set(&mut inner[j], i, product);
            }
            let own = get(&inner[i], i);
            set(&mut length, i, own);
            set(&mut inverse, i, 1.0 / own.max(f32::MIN_POSITIVE));
        }
        let positions: [i32x4; V] =
            core::array::from_fn(|v| i32x4::from(core::array::from_fn(|k| (4 * v + k) as i32)));
        let mut left = 64 * n;
        let (mut still, mut i) = (0, 0);
        // If half of them in sequence could not be shortened, the others hardly can.
        while 2 * still < n && left > 0 {
            let here: Row<V> =
                positions.map(|position| cast(position.cmp_eq(i32x4::splat(i as i32))));
            // Changes are kept here until the next relation is processed: column i of the others is
            // written then.
            let mut row = inner[i];
            let mut own = get(&length, i);
            let before = left;
            // None of its own multiples.
            let mut others = inverse;
            put(&mut others, &here, 0.0);
            while left > 0 {
                left -= 1;
                let (best, factors) = greatest_gain(&row, &others, &length, &positions);
                if best <= WORTH * own {
                    break;
                }
                let with = ((best.to_bits() as i32 & POSITION) as usize).min(W - 1);
                let factor = get(&factors, with);
                self.combine(i, factor, with);
                own -= best;
                subtract(&mut row, factor, &inner[with]);
            }
            if left + 1 == before {
                still += 1;
            } else {
                still = 1;
                put(&mut row, &here, own);
                inner[i] = row;
                for (inner, &product) in inner.iter_mut().zip(flat(&row)) {
                    let four = &mut inner[i / 4];
                    *four = here[i / 4].blend(f32x4::splat(product), *four);
                }
                put(&mut length, &here, own);
                put(&mut inverse, &here, 1.0 / own.max(f32::MIN_POSITIVE));
            }
            i = if i == 0 { n - 1 } else { i - 1 };
        }
        // Positive numbers are in the order of their bits.
        let mut keys: [i64; W] = core::array::from_fn(|i| {
            i64::from(!get(&length, i).to_bits()) << POSITION_BITS | i as i64
        });
        keys[n..].fill(0);
        sort_falling(&mut keys);
        keys.map(|key| (key & i64::from(POSITION)) as usize % W)
    }
}

/// By how much a relation with these products with the others gets shorter by the best multiple of
/// another, in length squared, and the best multiple of each. The last bits of the gain are the
/// other's position, so that both are found at once, without a branch.
fn greatest_gain<const V: usize>(
    row: &Row<V>,
    inverse: &Row<V>,
    length: &Row<V>,
    positions: &[i32x4; V],
) -> (f32, Row<V>) {
    let value: f32x4 = cast(i32x4::splat(!POSITION));
    let mut factors = *row;
    let mut most = f32x4::splat(0.0);
    for v in 0..V {
        let exact = row[v] * inverse[v];
        let factor = exact + ROUND - ROUND;
        let gain = factor * length[v] * (exact + exact - factor);
        let tagged = gain & value | cast(positions[v]);
        factors[v] = factor;
        // What is no number is passed over.
        most = if v == 0 { tagged } else { tagged.fast_max(most) };
    }
    let [a, b, c, d] = most.to_array();
    let low = if c > a { c } else { a };
    let high = if d > b { d } else { b };
    (if high > low { high } else { low }, factors)
}

/// By insertion, which without a branch is quick for a few.
fn sort_falling<const W: usize>(keys: &mut [i64; W]) {
    for i in 1..W {
        let mut key = keys[i];
        for other in &mut keys[..i] {
            let least = key.min(*other);
            *other = key.max(*other);
            key = least;
        }
        keys[i] = key;
    }
}

fn cast(bits: i32x4) -> f32x4 {
    bytemuck::must_cast(bits)
}

fn get<const V: usize>(row: &Row<V>, i: usize) -> f32 {
    flat(row)[i]
}

fn set<const V: usize>(row: &mut Row<V>, i: usize, to: f32) {
    row[i / 4].as_array_mut()[i % 4] = to;
}

/// Where the mask is. Whole vectors are written: what reads one would wait for a part that was
/// written alone.
fn put<const V: usize>(row: &mut Row<V>, mask: &Row<V>, to: f32) {
    for (four, mask) in row.iter_mut().zip(mask) {
        *four = mask.blend(f32x4::splat(to), *four);
    }
}

/// All numbers of it.
fn flat<const V: usize>(row: &Row<V>) -> &[f32] {
    bytemuck::must_cast_slice(row)
}

fn dot<const V: usize>(a: &Row<V>, b: &Row<V>) -> f32 {
    let mut sum = a[0] * b[0];
    for v in 1..V {
        sum += a[v] * b[v];
    }
    let [a, b, c, d] = sum.to_array();
    (a + c) + (b + d)
}

fn subtract<const V: usize>(a: &mut Row<V>, factor: f32, b: &Row<V>) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a -= b * factor;
    }
}
