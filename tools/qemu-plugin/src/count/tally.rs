//! The statistics of the finished stretches of a path.

use std::{collections::BTreeMap, ops::Add};

use crate::report::{PathReport, Summary};

/// The counts of one stretch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) instructions: u64,
    pub(super) barriers: u64,
    pub(super) maintenance: u64,
    pub(super) device_accesses: u64,
    pub(super) gic_sysregs: u64,
}

impl Add for Sums {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            barriers: self.barriers + other.barriers,
            maintenance: self.maintenance + other.maintenance,
            device_accesses: self.device_accesses + other.device_accesses,
            gic_sysregs: self.gic_sysregs + other.gic_sysregs,
        }
    }
}

/// The markers and the finished stretches of one path.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) marks: u64,
    instructions: Distribution,
    barriers: Distribution,
    maintenance: Distribution,
    device_accesses: Distribution,
    gic_sysregs: Distribution,
}

impl Tally {
    pub(super) fn add(&mut self, sums: Sums) {
        self.instructions.add(sums.instructions);
        self.barriers.add(sums.barriers);
        self.maintenance.add(sums.maintenance);
        self.device_accesses.add(sums.device_accesses);
        self.gic_sysregs.add(sums.gic_sysregs);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.marks += other.marks;
        self.instructions.merge(&other.instructions);
        self.barriers.merge(&other.barriers);
        self.maintenance.merge(&other.maintenance);
        self.device_accesses.merge(&other.device_accesses);
        self.gic_sysregs.merge(&other.gic_sysregs);
    }

    pub(super) fn report(&self) -> PathReport {
        PathReport {
            marks: self.marks,
            n: self.instructions.len(),
            instructions: self.instructions.summary(),
            barriers: self.barriers.median(),
            maintenance: self.maintenance.median(),
            device_accesses: self.device_accesses.median(),
            gic_sysregs: self.gic_sysregs.median(),
        }
    }
}

/// The number of occurrences of each value. It is exact, and its size depends only on the number of
/// different values.
#[derive(Debug, Default)]
struct Distribution(BTreeMap<u64, u64>);

impl Distribution {
    fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (&value, &count) in &other.0 {
            *self.0.entry(value).or_default() += count;
        }
    }

    fn len(&self) -> u64 {
        self.0.values().sum()
    }

    fn median(&self) -> u64 {
        let middle = self.len().div_ceil(2);
        let mut seen = 0;
        for (&value, &count) in &self.0 {
            seen += count;
            if seen >= middle {
                return value;
            }
        }
        0
    }

    fn summary(&self) -> Summary {
        let sum: u64 = self.0.iter().map(|(value, count)| value * count).sum();
        #[expect(clippy::cast_precision_loss, reason = "instruction counts stay far below 2^53")]
        let mean = sum as f64 / self.len().max(1) as f64;
        Summary {
            min: self.0.first_key_value().map_or(0, |(&value, _)| value),
            median: self.median(),
            max: self.0.last_key_value().map_or(0, |(&value, _)| value),
            mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Distribution;

    proptest! {
        #[test]
        fn a_distribution_is_that_of_the_sorted_values(
            mut values in prop::collection::vec(0..50_u64, 1..60)
        ) {
            let mut distribution = Distribution::default();
            for &value in &values {
                distribution.add(value);
            }
            values.sort_unstable();
            let summary = distribution.summary();
            prop_assert_eq!(summary.min, values[0]);
            prop_assert_eq!(summary.max, values[values.len() - 1]);
            prop_assert_eq!(summary.median, values[(values.len() - 1) / 2]);
        }
    }
}
