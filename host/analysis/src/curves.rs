//! Arrival curves (xen-throttling IV-B): how many events any window of a length can hold, from
//! traces.
//!
//! A curve is a non-decreasing staircase over whole nanoseconds, known up to its horizon. An upper
//! curve bounds the events in any half-open window [s, s + length) from above, a lower one from
//! below.

use crate::units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// A non-decreasing staircase with f(0) = 0 at its start, known for lengths up to its horizon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// From this length on, this value: both rising.
    steps: Vec<(u64, u64)>,
    horizon: u64,
}

/// A staircase in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CurveRecord {
    /// The longest length at which the curve is known, in ns.
    pub horizon_ns: u64,
    /// The steps, each a length in ns and the value from there on.
    pub steps: Vec<[u64; 2]>,
}

impl Curve {
    /// A staircase from its steps (length from which on, value). Steps out of order are sorted; one
    /// that does not rise above those before it is dropped, and so are steps beyond the horizon.
    #[must_use]
    pub fn new(mut steps: Vec<(Nanos, u64)>, horizon: Nanos) -> Self {
        steps.sort_unstable();
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for (from, value) in steps {
            let last = kept.last().map_or(0, |s| s.1);
            if value > last && from <= horizon {
                if kept.last().is_some_and(|s| s.0 == from.0) {
                    kept.pop();
                }
                kept.push((from.0, value));
            }
        }
        Self { steps: kept, horizon: horizon.0 }
    }

    /// The longest length at which the curve is known.
    #[must_use]
    pub fn horizon(&self) -> Nanos {
        Nanos(self.horizon)
    }

    /// The steps: from this length on, this value.
    pub fn steps(&self) -> impl Iterator<Item = (Nanos, u64)> {
        self.steps.iter().map(|&(from, value)| (Nanos(from), value))
    }

    /// Returns the curve as a JSON result has it.
    #[must_use]
    pub fn record(&self) -> CurveRecord {
        CurveRecord { horizon_ns: self.horizon, steps: self.pairs() }
    }

    /// Returns the steps as a JSON result has them: each a length in ns and the value from there
    /// on.
    #[must_use]
    pub fn pairs(&self) -> Vec<[u64; 2]> {
        self.steps.iter().map(|&(from, value)| [from, value]).collect()
    }

    /// The value at a length; beyond the horizon, that at the horizon.
    #[must_use]
    pub fn at(&self, length: Nanos) -> u64 {
        let k = self.steps.partition_point(|s| s.0 <= length.0);
        if k == 0 { 0 } else { self.steps[k - 1].1 }
    }

    /// The upper curve of a trace: the most events in any window of each length, for windows of up
    /// to `most` events. Times need not be sorted. Takes time proportional to `most` times the
    /// length of the trace.
    #[must_use]
    pub fn upper(times: &[Nanos], most: usize) -> Self {
        let times = sorted(times);
        let most = most.min(times.len());
        // n events fit into [s, s + length) as soon as length exceeds the shortest span of n of
        // them.
        let steps = (1..=most)
            .filter_map(|n| {
                let shortest = times.windows(n).map(|w| w[n - 1] - w[0]).min()?;
                // No window is long enough where that is 2^64 ns.
                Some((Nanos(shortest.checked_add(1)?), n as u64))
            })
            .collect::<Vec<_>>();
        let horizon = if most == times.len() {
            times.last().zip(times.first()).map_or(0, |(l, f)| (l - f).saturating_add(1))
        } else {
            // The next event may enter just after this.
            times.windows(most + 1).map(|w| w[most] - w[0]).min().unwrap_or(0)
        };
        Self::new(steps, Nanos(horizon))
    }

    /// The lower curve of a trace: the least events in any window of each length that lies within
    /// the trace, for windows of up to `most` events. Known up to the length at which `most` events
    /// are certain, or the trace ends.
    #[must_use]
    pub fn lower(times: &[Nanos], most: usize) -> Self {
        let times = sorted(times);
        let span = times.last().zip(times.first()).map_or(0, |(l, f)| l - f);
        // A window that starts just after event i holds n events once it reaches event i + n; one
        // that starts with the first event holds it too, and one that starts after the n-th last
        // holds fewer to the end of the trace.
        let mut steps = Vec::new();
        for n in 1..=most.min(times.len().saturating_sub(1)) {
            let after_an_event = times.windows(n + 1).map(|w| w[n] - w[0]).max().unwrap_or(0);
            let at_an_end =
                (times[n - 1] - times[0]).max(times[times.len() - 1] - times[times.len() - n]);
            // No window is long enough where that is 2^64 ns.
            let Some(at_an_end) = at_an_end.checked_add(1) else { break };
            steps.push((Nanos(after_an_event.max(at_an_end)), n as u64));
        }
        let horizon = steps.last().map_or(0, |s| s.0.0).min(span);
        Self::new(steps, Nanos(horizon))
    }
}

fn sorted(times: &[Nanos]) -> Vec<u64> {
    let mut times: Vec<u64> = times.iter().map(|t| t.0).collect();
    times.sort_unstable();
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(times: &[u64]) -> Vec<Nanos> {
        times.iter().map(|&t| Nanos(t)).collect()
    }

    #[test]
    fn a_throttled_trace_is_a_staircase_of_the_period() {
        // xen-throttling Figure 5: with (P, Q) the curve climbs Q every P.
        let times: Vec<u64> = (0..50).flat_map(|p| (0..4).map(move |i| p * 1000 + i)).collect();
        let curve = Curve::upper(&nanos(&times), 100);
        assert_eq!(curve.at(Nanos(4)), 4);
        assert_eq!(curve.at(Nanos(997)), 4);
        assert_eq!(curve.at(Nanos(1004)), 8);
        assert_eq!(curve.at(Nanos(10_004)), 44);
    }

    #[test]
    fn nothing_arrives_in_an_empty_trace() {
        let none = Curve::upper(&[], 10);
        assert_eq!(none.at(Nanos(100)), 0);
    }

    #[test]
    fn more_events_than_steps_are_not_known() {
        // More events at one time than the curve has steps: it is known for no window at all.
        let burst = Curve::upper(&nanos(&[5; 11]), 10);
        for unknown in [&burst, &Curve::upper(&[], 10)] {
            assert_eq!(unknown.horizon(), Nanos(0));
        }
    }

    #[test]
    fn the_longest_span_does_not_wrap() {
        let times = nanos(&[0, u64::MAX]);
        let upper = Curve::upper(&times, 10);
        assert_eq!((upper.horizon(), upper.at(Nanos(1))), (Nanos(u64::MAX), 1));
        assert_eq!(Curve::lower(&times, 10).at(Nanos(u64::MAX)), 1);
        // A window that holds both would be 2^64 ns long.
        assert_eq!(upper.steps().collect::<Vec<_>>(), [(Nanos(1), 1)]);
        for both in [[0, u64::MAX, u64::MAX], [0, 0, u64::MAX]] {
            assert_eq!(Curve::lower(&nanos(&both), 10).at(Nanos(u64::MAX)), 1, "{both:?}");
        }
    }

    proptest! {
        #[test]
        fn trace_curves_bound_every_window(
            times in prop::collection::vec(0u64..60, 1..14), most in 1usize..16,
        ) {
            let (upper, lower) =
                (Curve::upper(&nanos(&times), most), Curve::lower(&nanos(&times), most));
            let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
            let count =
                |s: u64, l: u64| times.iter().filter(|&&t| t >= s && t < s + l).count() as u64;
            for length in 0..=upper.horizon().0 {
                let exact = (0..70).map(|s| count(s, length)).max().unwrap();
                prop_assert_eq!(upper.at(Nanos(length)), exact);
            }
            for length in 0..=lower.horizon().0 {
                for s in first..=(last + 1).saturating_sub(length) {
                    prop_assert!(lower.at(Nanos(length)) <= count(s, length));
                }
            }
        }
    }
}
