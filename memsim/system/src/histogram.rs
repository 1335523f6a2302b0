//! Distributions of latencies.

use schemars::JsonSchema;
use serde::Serialize;
use weir_memory::Picos;

/// Latencies in whole nanoseconds, exact up to 64 us, and in steps of as much beyond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "Distribution")]
pub struct LatencyHistogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u64,
    most: u64,
}

/// A distribution of times in a JSON result, in ns.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Distribution {
    /// The mean, rounded down.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The greatest.
    pub max: u64,
}

impl From<LatencyHistogram> for Distribution {
    fn from(latency: LatencyHistogram) -> Self {
        Self {
            mean: latency.mean().0 / 1000,
            p50: latency.at_most_ns(500),
            p90: latency.at_most_ns(900),
            p99: latency.at_most_ns(990),
            p999: latency.at_most_ns(999),
            max: latency.most_ns(),
        }
    }
}

/// Latencies below this one are counted each by itself, up to this times as much in steps of this,
/// longer ones as the longest.
const MOST: usize = 1 << 16;

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; 2 * MOST].into_boxed_slice(), count: 0, sum: 0, most: 0 }
    }
}

impl LatencyHistogram {
    /// Counts one.
    pub fn add(&mut self, latency: Picos) {
        let ns = latency.0 / 1000;
        let ns_place = usize::try_from(ns).unwrap_or(usize::MAX);
        let place = if ns_place < MOST { ns_place } else { MOST + (ns_place / MOST).min(MOST - 1) };
        self.counts[place] += 1;
        self.count += 1;
        self.sum += latency.0;
        self.most = self.most.max(ns);
    }

    /// Counts what another one has counted, too.
    pub(crate) fn join(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.most = self.most.max(other.most);
    }

    /// How many were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 without any.
    #[must_use]
    pub fn mean(&self) -> Picos {
        Picos(self.sum.checked_div(self.count).unwrap_or(0))
    }

    /// The greatest, in ns.
    #[must_use]
    pub const fn most_ns(&self) -> u64 {
        self.most
    }

    /// So many thousandths of them are at most this long, in ns.
    #[must_use]
    pub fn at_most_ns(&self, thousandths: u64) -> u64 {
        let wanted = (self.count * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        let below = |place: u64| {
            place.checked_sub(MOST as u64).map_or(place, |step| (step + 1) * MOST as u64 - 1)
        };
        for (place, count) in (0..).zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                return below(place).min(self.most);
            }
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_the_mean_of_known_latencies() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!((histogram.mean(), histogram.at_most_ns(500)), (Picos(0), 0));
        for ns in 1..=1000 {
            histogram.add(Picos(ns * 1000));
        }
        histogram.add(Picos(1_000_000_000));
        assert_eq!((histogram.count(), histogram.most_ns()), (1001, 1_000_000));
        assert_eq!(histogram.at_most_ns(500), 501);
        assert_eq!(histogram.at_most_ns(999), 1000);
        assert_eq!(histogram.at_most_ns(1000), 1_000_000);
        histogram.add(Picos(2_000_000_000));
        assert_eq!(histogram.at_most_ns(999), 16 * MOST as u64 - 1);
        assert_eq!(histogram.at_most_ns(1000), 2_000_000);
        assert_eq!(histogram.mean(), Picos((500_500 + 3_000_000) * 1000 / 1002));
    }
}
