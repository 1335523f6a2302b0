//! Arrival curves (xen-throttling IV-B): how many events any window of a length can hold, from
//! traces; their sum; and the delay and backlog of such arrivals at a service.
//!
//! A curve is a non-decreasing staircase over whole nanoseconds, known up to its horizon. An upper
//! curve bounds the events in any half-open window [s, s + length) from above, a lower one from
//! below.

use crate::units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// A service of some units in each period, anywhere in the period.
///
/// ```
/// use weir_analysis::{Nanos, curves::PeriodicService};
///
/// let service = PeriodicService { units: 50, period: Nanos(30_000) };
/// assert_eq!(service.guaranteed(Nanos(59_999)), 0);
/// assert_eq!(service.guaranteed(Nanos(60_000)), 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicService {
    /// Units in each period.
    pub units: u64,
    /// The period, at least 1 ns.
    pub period: Nanos,
}

impl PeriodicService {
    /// Returns the least number of units in any window of this length. A window may start just
    /// behind the units of its first period and end just before those of its last one, so only
    /// periods that lie in it as a whole count.
    #[must_use]
    pub fn guaranteed(self, window: Nanos) -> u64 {
        (window.0 / self.period.0.max(1)).saturating_sub(1).saturating_mul(self.units)
    }
}

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

    /// The arrivals of both: f + g.
    #[must_use]
    pub fn sum(&self, other: &Self) -> Self {
        let horizon = Nanos(self.horizon.min(other.horizon));
        let steps = self
            .steps
            .iter()
            .chain(&other.steps)
            .map(|s| (Nanos(s.0), self.at(Nanos(s.0)).saturating_add(other.at(Nanos(s.0)))))
            .collect();
        Self::new(steps, horizon)
    }

    /// The bound on an event's wait for its service (horizontal deviation), where each takes one
    /// unit of `service`, the least units served in any window of a busy period. `None` if the busy
    /// period does not end within the horizon, so that nothing is known; so it is at a horizon of
    /// 0.
    #[must_use]
    pub fn delay(&self, service: impl Fn(Nanos) -> u64) -> Option<Nanos> {
        let busy = self.busy_period(&service)?;
        let mut max_delay = 0;
        for &(from, value) in self.steps.iter().take_while(|s| s.0 <= busy.max(1)) {
            // The events of this step have arrived by the window just before it.
            let arrived = from.saturating_sub(1);
            let mut high = busy.max(1);
            while service(Nanos(high)) < value {
                high = high.checked_mul(2)?;
            }
            let served = first_served(&service, value, 0, high);
            max_delay = max_delay.max(served.saturating_sub(arrived));
        }
        Some(Nanos(max_delay))
    }

    /// The most events that wait at a time (vertical deviation); `None` as for [`Self::delay`].
    #[must_use]
    pub fn backlog(&self, service: impl Fn(Nanos) -> u64) -> Option<u64> {
        let busy = self.busy_period(&service)?;
        let at_steps = self.steps.iter().take_while(|s| s.0 <= busy.max(1));
        Some(
            at_steps
                .map(|s| s.1.saturating_sub(service(Nanos(s.0 - s.0.min(1)))))
                .max()
                .unwrap_or(0),
        )
    }

    /// The least length at which everything that may have arrived is served.
    fn busy_period(&self, service: &impl Fn(Nanos) -> u64) -> Option<u64> {
        // Within a plateau the service grows: the first crossing is found by halving.
        let mut pieces = self.steps.iter().map(|s| s.0).chain([self.horizon.saturating_add(1)]);
        let mut from = pieces.next()?;
        for end in pieces {
            if end == from {
                continue;
            }
            let value = self.at(Nanos(from));
            let last = end - 1;
            if service(Nanos(last)) >= value {
                return Some(first_served(service, value, from.saturating_sub(1), last));
            }
            from = end;
        }
        // Without a step nothing arrives as far as is known, which at a horizon of 0 is no window
        // at all.
        (self.steps.is_empty() && self.horizon > 0).then_some(0)
    }
}

/// Returns the first length above `low` in which `service` serves `value`, which it does in `high`.
fn first_served(service: &impl Fn(Nanos) -> u64, value: u64, mut low: u64, mut high: u64) -> u64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if service(Nanos(middle)) >= value { high = middle } else { low = middle }
    }
    high
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
    fn nothing_arrives_nothing_waits() {
        let none = Curve::upper(&[], 10);
        assert_eq!(none.at(Nanos(100)), 0);
        let silent = Curve::new(vec![], Nanos(100));
        assert_eq!(silent.delay(|_| 0), Some(Nanos(0)));
        assert_eq!(silent.backlog(|_| 0), Some(0));
    }

    #[test]
    fn nothing_known_bounds_nothing() {
        // More events at one time than the curve has steps: it is known for no window at all.
        let burst = Curve::upper(&nanos(&[5; 11]), 10);
        for unknown in
            [&burst, &Curve::upper(&[], 10), &burst.sum(&Curve::upper(&nanos(&[0, 9]), 10))]
        {
            assert_eq!(unknown.horizon(), Nanos(0));
            assert_eq!(unknown.delay(|t| t.0), None);
            assert_eq!(unknown.backlog(|t| t.0), None);
        }
    }

    #[test]
    fn the_longest_span_does_not_wrap() {
        let times = nanos(&[0, u64::MAX]);
        let upper = Curve::upper(&times, 10);
        assert_eq!((upper.horizon(), upper.at(Nanos(1))), (Nanos(u64::MAX), 1));
        assert_eq!(upper.delay(|t| t.0 / 10), Some(Nanos(10)));
        assert_eq!(Curve::lower(&times, 10).at(Nanos(u64::MAX)), 1);
        // A window that holds both would be 2^64 ns long.
        assert_eq!(upper.steps().collect::<Vec<_>>(), [(Nanos(1), 1)]);
        for both in [[0, u64::MAX, u64::MAX], [0, 0, u64::MAX]] {
            assert_eq!(Curve::lower(&nanos(&both), 10).at(Nanos(u64::MAX)), 1, "{both:?}");
        }
    }

    #[test]
    fn too_slow_a_service_has_no_bound() {
        let curve = Curve::upper(&nanos(&[0, 10, 20, 30, 40]), 5);
        assert_eq!(curve.delay(|t| t.0 / 30), None);
        assert_eq!(curve.backlog(|t| t.0 / 30), None);
    }

    fn small_curve() -> impl Strategy<Value = Curve> {
        (prop::collection::vec((0u64..40, 1u64..20), 0..6), 30u64..45).prop_map(
            |(steps, horizon)| {
                Curve::new(steps.into_iter().map(|(f, v)| (Nanos(f), v)).collect(), Nanos(horizon))
            },
        )
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

        #[test]
        fn a_sum_is_one_at_each_length(f in small_curve(), g in small_curve()) {
            let sum = f.sum(&g);
            for t in 0..=f.horizon().0.min(g.horizon().0) {
                prop_assert_eq!(sum.at(Nanos(t)), f.at(Nanos(t)) + g.at(Nanos(t)));
            }
        }

        /// A server that is as slow as its curve allows, fed by the trace itself.
        #[test]
        fn delay_and_backlog_bound_a_slow_server(
            gaps in prop::collection::vec(0u64..9, 1..14), latency in 0u64..12, each in 1u64..5,
        ) {
            let times: Vec<u64> = gaps.iter().scan(0, |t, g| { *t += g; Some(*t) }).collect();
            let curve = Curve::upper(&nanos(&times), times.len());
            let service = |t: Nanos| t.0.saturating_sub(latency) / each;
            let (Some(delay), Some(backlog)) = (curve.delay(service), curve.backlog(service)) else {
                return Ok(());
            };
            // Each busy period starts with the latency; then one event every `each`.
            let (mut free, mut done): (u64, Vec<u64>) = (0, Vec::new());
            for &t in &times {
                free = if t >= free { t + latency + each } else { free + each };
                done.push(free);
                prop_assert!(free - t <= delay.0, "{} after {}", free - t, t);
                let waiting = done.iter().filter(|&&d| d > t).count() as u64;
                prop_assert!(waiting <= backlog);
            }
        }
    }
}
