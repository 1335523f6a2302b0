//! The utilization of a set at a bandwidth, and the least bandwidth for a utilization of 1.

use super::verdict::Cause;
use super::{Analyzer, EPS, float_u};
use crate::flows::task::{HALVES_PER_SEC, MAX_BANDWIDTH, Piece};
use num_bigint::BigUint;

impl Analyzer {
    /// Whether U' > 1.
    pub(super) fn overloaded(&self, b: u64) -> bool {
        let per_byte = float_u(HALVES_PER_SEC) / float_u(b);
        let u = self.fixed_load + self.byte_load * per_byte;
        let margin = (self.wcet.len() as f64 + 16.0) * EPS;
        if u < 1.0 - margin {
            false
        } else if u > 1.0 + margin {
            true
        } else {
            self.exact_spare(b).is_none()
        }
    }

    /// A lower bound of 1 - U', within n 2^-64 / b of it; `None` if U' > 1.
    pub(super) fn exact_spare(&self, b: u64) -> Option<f64> {
        // U' b in units of 2^-64, from below, and how many of the fractions were cut off.
        let (mut whole, mut fraction, mut cut) = (0u128, 0u128, 0u128);
        for (c, &p) in self.wcet.iter().zip(&self.period) {
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
        // U' is within 2^-64/b of 1: only the full fractions decide.
        (self.compare_utilization(b) != core::cmp::Ordering::Greater).then_some(0.0)
    }

    /// U' against 1, by big integers.
    pub(super) fn compare_utilization(&self, b: u64) -> core::cmp::Ordering {
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
            .wcet
            .iter()
            .zip(&self.period)
            .map(|(c, &p)| (BigUint::from(c.scaled(b)), BigUint::from(p as u64)))
            .collect();
        let (numerator, denominator) = sum(&parts);
        numerator.cmp(&(denominator * b))
    }

    /// The smallest integer bandwidth with U' <= 1 (Eq. 16).
    pub(super) fn least_for_utilization(&self) -> Result<u64, Cause> {
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
    pub(super) fn overhead_fills(&self) -> bool {
        let without_data = Self {
            wcet: self.wcet.iter().map(|c| Piece { bytes: 0, ..*c }).collect(),
            period: self.period.clone(),
            ..Self::default()
        };
        without_data.compare_utilization(1) != core::cmp::Ordering::Less
    }
}
