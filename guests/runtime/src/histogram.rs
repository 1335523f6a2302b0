//! A log-linear histogram: 16 buckets to a power of two, so that a value is known to 1/16 of
//! itself from one nanosecond to eighteen minutes, in 2.4 KiB.

/// Values below 2^`LINEAR_BITS` have a bucket each; above, so many bits after the leading one tell.
const LINEAR_BITS: u32 = 4;
const STEPS: usize = 1 << LINEAR_BITS;
/// Values from 2^`MAX_BITS` on share the last bucket.
const MAX_BITS: u32 = 40;
const BUCKETS: usize = (MAX_BITS - LINEAR_BITS + 1) as usize * STEPS;

/// Counts of values with exact minimum, maximum and mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        let bucket = &mut self.counts[bucket_of(value)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// How many values were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least value, 0 if there is none.
    #[must_use]
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest value, 0 if there is none.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean, rounded down, 0 if there is no value.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        match self.sum.checked_div(self.count) {
            Some(mean) => mean,
            None => 0,
        }
    }

    /// A value that at least `percent` of the recorded ones do not exceed: the upper end of the
    /// bucket with that rank, at most the maximum. 0 if there is no value.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }

    /// The buckets that hold something: least value of the bucket, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (0..BUCKETS)
            .filter(|&bucket| self.counts[bucket] != 0)
            .map(|bucket| (lower_end(bucket), self.counts[bucket]))
    }
}

fn bucket_of(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - LINEAR_BITS;
    let step = (value >> shift) as usize & (STEPS - 1);
    ((shift as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

fn lower_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS) as u64) << shift
}

fn upper_end(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 { u64::MAX } else { lower_end(bucket + 1) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_is_all_zero() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.max(), empty.mean(), empty.percentile(99)), (0, 0, 0, 0));
        assert_eq!(empty.buckets().count(), 0);
    }

    #[test]
    fn percentile_is_the_rank() {
        let mut h = Histogram::new();
        for value in 0..10 {
            h.record(value);
        }
        assert_eq!(h.percentile(10), 0);
        assert_eq!(h.percentile(50), 4);
        assert_eq!(h.percentile(99), 9);
        assert_eq!(h.percentile(100), 9);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value: u64) {
            let bucket = bucket_of(value);
            prop_assert!(lower_end(bucket) <= value && value <= upper_end(bucket));
        }

        #[test]
        fn a_bucket_is_narrow(value in 16_u64..1 << MAX_BITS) {
            let bucket = bucket_of(value);
            if bucket < BUCKETS - 1 {
                prop_assert!(upper_end(bucket) - lower_end(bucket) < lower_end(bucket) / 16 + 1);
            }
        }

        #[test]
        fn agrees_with_the_sorted_values(
            mut values in prop::collection::vec(0_u64..1 << 39, 1..200),
            percent in 1_u64..=100,
        ) {
            let mut h = Histogram::new();
            for &value in &values {
                h.record(value);
            }
            values.sort_unstable();
            prop_assert_eq!(h.min(), values[0]);
            prop_assert_eq!(h.max(), values[values.len() - 1]);
            prop_assert_eq!(h.mean(), values.iter().sum::<u64>() / values.len() as u64);
            let exact = values[(values.len() * percent as usize).div_ceil(100) - 1];
            let found = h.percentile(percent);
            prop_assert!(exact <= found && found <= exact + exact / 16);
            prop_assert_eq!(h.buckets().map(|(_, count)| u64::from(count)).sum::<u64>(), h.count());
        }
    }
}
