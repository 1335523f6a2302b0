//! U', the sum of C'/P', as an exact function of the bandwidth.

use super::verdict::UnschedulableCause;
use crate::flows::task::{HALVES_PER_SEC, MAX_BANDWIDTH, TransformedTask};
use num_bigint::BigUint;

/// U' = (`fixed` + `bytes` / b) / `period` at bandwidth b.
pub(super) struct Utilization {
    /// The product of all periods.
    period: BigUint,
    fixed: BigUint,
    bytes: BigUint,
}

impl Utilization {
    /// Returns the utilization of tasks with positive periods.
    pub fn of(tasks: &[TransformedTask]) -> Self {
        match tasks {
            [] => Self { period: 1_u8.into(), fixed: BigUint::ZERO, bytes: BigUint::ZERO },
            [task] => Self {
                period: task.period.0.unsigned_abs().into(),
                fixed: task.wcet.fixed.into(),
                bytes: BigUint::from(task.wcet.bytes) * HALVES_PER_SEC,
            },
            // By halves, since a product of numbers of the same length is the fastest.
            _ => {
                let (left, right) = tasks.split_at(tasks.len() / 2);
                let (left, right) = (Self::of(left), Self::of(right));
                Self {
                    fixed: left.fixed * &right.period + right.fixed * &left.period,
                    bytes: left.bytes * &right.period + right.bytes * &left.period,
                    period: left.period * right.period,
                }
            }
        }
    }

    /// Returns whether U' > 1.
    pub fn exceeds_one(&self, b: u64) -> bool {
        &self.fixed * b + &self.bytes > &self.period * b
    }

    /// Returns a lower bound on 1 - U', which must not be negative, within 2^-63 of its value.
    pub fn spare(&self, b: u64) -> f64 {
        let whole = &self.period * b;
        let used = &self.fixed * b + &self.bytes;
        let parts = ((&whole - used) << 64_u32) / whole;
        // Rounded to 53 bits.
        u128::try_from(parts).unwrap_or(1 << 64) as f64 / 2_f64.powi(64) * (1.0 - f64::EPSILON)
    }

    /// Returns the smallest bandwidth with U' <= 1 (Eq. 16).
    pub fn least_bandwidth(&self) -> Result<u64, UnschedulableCause> {
        if self.fixed >= self.period {
            return Err(UnschedulableCause::OverheadOverload);
        }
        let room = &self.period - &self.fixed;
        let least = (&self.bytes + &room - 1_u8) / room;
        let least = u64::try_from(least).ok().filter(|least| *least <= MAX_BANDWIDTH);
        least.map(|least| least.max(1)).ok_or(UnschedulableCause::BeyondLimit)
    }
}
