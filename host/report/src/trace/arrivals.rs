//! How many accesses a VM makes in any window of a length, from the counts that its trace holds
//! (xen-throttling IV-B, Figures 5 and 6).
//!
//! A trace contains counts at instants, not each access: between two records an access may have
//! come at any time. So in addition to the curve that takes each count as if it had come at its
//! record, as a sampled figure does, there are two that hold for any time of the accesses: the most
//! that any window can have held, and the least that each window must have held.

use super::file::TraceFacts;
use rayon::prelude::*;
use std::collections::BTreeMap;
use weir_analysis::{Nanos, curves::Curve};
use weir_trace::record::{Record, RecordKind};

/// Periods that are shown without `--window`.
const PERIODS: u64 = 20;

/// Accesses that were counted between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    /// Not before this moment,
    from: u64,
    /// and not after this one.
    to: u64,
    count: u64,
}

/// A counter of one vCPU: batches of which each begins where the one before it ended.
#[derive(Clone, Debug, Default)]
struct Stream {
    batches: Vec<Batch>,
    /// The time of the last record, and the count of the period that it showed.
    last: Option<(u64, u64)>,
}

/// The accesses of one VM in a trace.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// By vCPU and [`Accesses`](weir_trace::record::Accesses).
    streams: BTreeMap<(u8, u32), Stream>,
    /// When a vCPU was first heard of.
    first: BTreeMap<u8, u64>,
    /// Moments of replenishment of the first stream that has some.
    replenished: Option<((u8, u32), Vec<u64>)>,
    /// Records that were lost in the trace.
    lost: u64,
    /// The trace is read from its middle on: a counter's first record contains its value, not what
    /// was counted since then.
    partial: bool,
}

/// Three staircases over the length of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curves {
    /// The most accesses that any window can have held.
    pub most: Curve,
    /// The most if each count came at its record.
    pub recorded: Curve,
    /// The least accesses that each window within the trace held.
    pub least: Curve,
}

impl Arrivals {
    /// Returns an empty count for a trace that is read from its beginning, or if `partial`, from a
    /// later time on.
    pub fn new(partial: bool) -> Self {
        Self { partial, ..Self::default() }
    }

    /// Takes the next record of the trace; it may concern another VM.
    pub fn take(&mut self, record: &Record, vm: usize, facts: &TraceFacts) {
        let kind = RecordKind::from_number(record.kind);
        if kind == Some(RecordKind::Lost) {
            self.lost = self.lost.saturating_add(record.count);
        }
        if usize::from(record.vm) != vm {
            return;
        }
        let now = facts.nanos(record.time);
        let first = *self.first.entry(record.vcpu).or_insert(now);
        let over = match kind {
            Some(RecordKind::Replenish) => true,
            Some(RecordKind::Overflow | RecordKind::Throttle | RecordKind::Draw) => false,
            _ => return,
        };
        let name = (record.vcpu, record.detail);
        let stream = self.streams.entry(name).or_default();
        let known = stream.last.or((!self.partial).then_some((first, 0)));
        let (from, before) = known.unwrap_or((now, record.count));
        // A count that is less than it was is a new one: the VM was restarted.
        let count = record.count.checked_sub(before).unwrap_or(record.count);
        let from = from.min(now);
        stream.batches.push(Batch { from, to: now, count });
        stream.last = Some((now, if over { 0 } else { record.count }));
    }

    /// Receives the next record, also one that is not taken: replenishments give the length of a
    /// period.
    pub fn hear(&mut self, record: &Record, vm: usize, facts: &TraceFacts) {
        if usize::from(record.vm) != vm || record.kind != RecordKind::Replenish as u16 {
            return;
        }
        let name = (record.vcpu, record.detail);
        let replenished = self.replenished.get_or_insert_with(|| (name, Vec::new()));
        if replenished.0 == name {
            replenished.1.push(facts.nanos(record.time));
        }
    }

    /// Returns whether the trace has no count.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the number of lost records; their counts may be missing.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.streams.values().flat_map(|stream| &stream.batches)
    }

    /// Returns the sum of all counted accesses.
    pub fn total(&self) -> u64 {
        self.batches().fold(0, |sum, batch| sum.saturating_add(batch.count))
    }

    /// The moments between which they were counted.
    fn extent(&self) -> (u64, u64) {
        let first = self.batches().map(|batch| batch.from).min().unwrap_or(0);
        (first, self.batches().map(|batch| batch.to).max().unwrap_or(0))
    }

    /// Returns the length of the interval in which they were counted.
    pub fn span(&self) -> Nanos {
        let (first, last) = self.extent();
        Nanos((last - first.min(last)).saturating_add(1))
    }

    /// The usual distance of two replenishments, if there are some. Each may be late, some may be
    /// missing, and a VM's restart moves them: so it is the mean of the gaps that are about as long
    /// as the one in the middle.
    pub fn period(&self) -> Option<Nanos> {
        let (_, moments) = self.replenished.as_ref()?;
        // Without those before the selected part: a VM's start can leave a gap of nearly a period.
        let (first, _) = self.extent();
        let counted = moments.windows(2).filter(|pair| pair[0] >= first);
        let mut gaps: Vec<u64> = counted.map(|pair| pair[1].saturating_sub(pair[0])).collect();
        gaps.sort_unstable();
        let middle = gaps.get(gaps.len() / 2).copied().filter(|&gap| gap > 0)?;
        gaps.retain(|gap| gap.abs_diff(middle) <= middle / 8);
        let sum = gaps.iter().copied().fold(0, u64::saturating_add);
        let gaps = gaps.len() as u64;
        Some(Nanos(sum.saturating_add(gaps / 2) / gaps.max(1)))
    }

    /// The default of the longest window: so many periods, at most the whole trace.
    pub fn window(&self) -> Nanos {
        let span = self.span();
        self.period().map_or(span, |period| Nanos(period.0.saturating_mul(PERIODS).min(span.0)))
    }

    /// The curves for windows of `points` lengths up to `window`. Takes time proportional to
    /// `points` times the number of records.
    pub fn curves(&self, window: Nanos, points: u32) -> Curves {
        let begins = Sums::new(self.batches().map(|batch| (batch.from, batch.count)));
        let ends = Sums::new(self.batches().map(|batch| (batch.to, batch.count)));
        let extent = self.extent();
        let starts = self.starts(extent.0);
        let length = |point: u32| {
            let length = u128::from(window.0) * u128::from(point) / u128::from(points.max(1));
            (length as u64).max(1)
        };
        let steps: Vec<_> = (1..=points.max(1))
            .into_par_iter()
            .map(|point| {
                let d = length(point);
                let shorter = if point == 1 { 0 } else { length(point - 1) };
                (
                    shorter,
                    d,
                    most(&begins, &ends, d),
                    most(&ends, &ends, d),
                    self.least(&starts, extent, d),
                )
            })
            .collect();
        let horizon = window;
        Curves {
            // What a window of this length can hold bounds all down to the next shorter one.
            most: Curve::new(
                steps.iter().map(|step| (Nanos(step.0 + 1), step.2)).collect(),
                horizon,
            ),
            recorded: Curve::new(
                steps.iter().map(|step| (Nanos(step.1), step.3)).collect(),
                horizon,
            ),
            least: Curve::new(
                steps.iter().filter_map(|step| Some((Nanos(step.1), step.4?))).collect(),
                Nanos(horizon.0.min(self.span().0)),
            ),
        }
    }

    /// Where a window with the least accesses can begin: at the first moment, or just behind the
    /// earliest moment of a batch, which then may lie before it.
    fn starts(&self, first: u64) -> Vec<u64> {
        let behind = self
            .batches()
            .filter(|batch| batch.count > 0)
            .map(|batch| batch.from.saturating_add(1));
        let mut starts: Vec<u64> = std::iter::once(first).chain(behind).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The least accesses that any window of `length` must have held that lies within the extent;
    /// none if no window does.
    fn least(&self, starts: &[u64], (first, last): (u64, u64), length: u64) -> Option<u64> {
        let latest =
            last.saturating_add(1).checked_sub(length).filter(|&latest| latest >= first)?;
        // Of each stream: the first batch that begins in the window, the first that ends behind it,
        // and what lies between.
        let mut bounds: Vec<_> = self.streams.values().map(|s| (&s.batches, 0, 0, 0u64)).collect();
        let mut fewest = u64::MAX;
        for &start in starts.iter().take_while(|&&start| start <= latest) {
            let mut held = 0u64;
            for (batches, low, high, sum) in &mut bounds {
                while let Some(batch) =
                    batches.get(*high).filter(|b| b.to < start.saturating_add(length))
                {
                    *sum = sum.saturating_add(batch.count);
                    *high += 1;
                }
                while let Some(batch) = batches.get(*low).filter(|b| *low < *high && b.from < start)
                {
                    *sum = sum.saturating_sub(batch.count);
                    *low += 1;
                }
                held = held.saturating_add(*sum);
            }
            fewest = fewest.min(held);
        }
        Some(fewest)
    }
}

/// Sums of counts by time.
struct Sums {
    /// Times, rising, with the sum of the counts up to and with each.
    upto: Vec<(u64, u64)>,
}

impl Sums {
    fn new(counts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut upto: Vec<(u64, u64)> = counts.collect();
        upto.sort_unstable();
        let mut sum = 0u64;
        for (_, count) in &mut upto {
            sum = sum.saturating_add(*count);
            *count = sum;
        }
        Self { upto }
    }
}

/// The most of what begins before the end of a window of `length` less what ends before its start,
/// over all windows. Such a window can start where a batch ends: a later start loses that batch, an
/// earlier one gains none.
fn most(begins: &Sums, ends: &Sums, length: u64) -> u64 {
    let (mut begun, mut ended) = (0, 0);
    let (mut behind, mut most) = (0u64, 0u64);
    let mut before = None;
    for &(start, _) in &ends.upto {
        if before == Some(start) {
            continue;
        }
        before = Some(start);
        while begins.upto.get(begun).is_some_and(|begin| begin.0 < start.saturating_add(length)) {
            begun += 1;
        }
        while let Some(end) = ends.upto.get(ended).filter(|end| end.0 < start) {
            behind = end.1;
            ended += 1;
        }
        let upto = begun.checked_sub(1).and_then(|last| begins.upto.get(last)).map_or(0, |b| b.1);
        most = most.max(upto.saturating_sub(behind));
    }
    most
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::file::tests::facts;
    use super::*;
    use proptest::prelude::*;

    /// A record of VM 1 at `time` ns.
    pub fn counted(kind: RecordKind, vcpu: u8, time: u64, used: u64, budget: u64) -> Record {
        let time = facts().zero + time;
        Record { time, kind: kind as u16, vm: 1, vcpu, detail: 0, count: used, rest: budget }
    }

    fn arrivals(records: &[Record]) -> Arrivals {
        let mut arrivals = Arrivals::new(false);
        for record in records {
            arrivals.hear(record, 1, &facts());
            arrivals.take(record, 1, &facts());
        }
        arrivals
    }

    #[test]
    fn a_period_is_the_mean_of_all_gaps() {
        let mut heard = Arrivals::new(true);
        let moments = [30, 1000, 2090, 3000, 3010, 5050, 6050, 7040, 8070];
        for (place, time) in moments.into_iter().enumerate() {
            let record = counted(RecordKind::Replenish, 0, time, 5, 9);
            heard.hear(&record, 1, &facts());
            if place == 1 {
                heard.take(&record, 1, &facts());
            }
        }
        // The mean of 1090, 910, 1000, 990, and 1030: the first gap began before the selected part.
        assert_eq!((heard.period(), heard.span()), (Some(Nanos(1004)), Nanos(1)));
        heard.hear(&counted(RecordKind::Draw, 0, 9999, 5, 9), 1, &facts());
        heard.hear(&counted(RecordKind::Replenish, 1, 8031, 5, 9), 1, &facts());
        assert_eq!(heard.period(), Some(Nanos(1004)));
    }

    /// A memory stressor under a budget of `q` in each period of `p` ns, which it spends in 100 ns.
    pub fn throttled(p: u64, q: u64, periods: u64) -> Vec<Record> {
        let period = |n: u64| {
            let used = if n == 0 { 0 } else { q };
            [
                counted(RecordKind::Replenish, 0, n * p, used, q),
                counted(RecordKind::Draw, 0, n * p + 50, q / 2, q),
                counted(RecordKind::Throttle, 0, n * p + 100, q, q),
            ]
        };
        (0..periods).flat_map(period).collect()
    }

    #[test]
    fn a_throttled_trace_is_a_staircase_of_its_period() {
        let arrivals = arrivals(&throttled(1000, 40, 60));
        assert_eq!((arrivals.total(), arrivals.period()), (2400, Some(Nanos(1000))));
        assert_eq!(arrivals.window(), Nanos(20_000));
        let curves = arrivals.curves(Nanos(20_000), 400);
        for periods in 0..19 {
            // From one spent budget to the next nothing comes.
            for within in [100, 500, 900] {
                let length = Nanos(periods * 1000 + within);
                let expected = 40 * (periods + 1);
                assert_eq!(curves.recorded.at(length), expected, "{length}");
            }
        }
        // The end of one period's accesses, and the beginning of the next's; then all of both.
        let most = [850, 1000, 1050].map(|length| curves.most.at(Nanos(length)));
        assert_eq!(most, [40, 60, 80]);
        assert_eq!((curves.least.at(Nanos(1000)), curves.least.at(Nanos(1100))), (20, 40));
    }

    #[test]
    fn others_records_are_passed_over_and_losses_counted() {
        let other = Record { vm: 0, ..counted(RecordKind::Draw, 0, 5, 5, 0) };
        let lost = super::super::file::lost(1, 7, 9);
        let arrivals = arrivals(&[other, lost, counted(RecordKind::Exit, 0, 7, 9, 0)]);
        assert!(arrivals.is_empty());
        assert_eq!((arrivals.lost(), arrivals.period(), arrivals.total()), (9, None, 0));
        let none = arrivals.curves(Nanos(100), 10);
        assert_eq!(none.most.at(Nanos(100)), 0);
    }

    #[test]
    fn a_count_that_falls_is_a_new_one() {
        let polls = [(10, 30), (20, 5), (30, 8)];
        let records = polls.map(|(time, used)| counted(RecordKind::Draw, 0, time, used, 0));
        assert_eq!(arrivals(&records).total(), 38);
    }

    #[test]
    fn a_count_from_the_middle_excludes_earlier_records() {
        let mut arrivals = Arrivals::new(true);
        for record in [(10, 30), (20, 35), (30, 36)]
            .map(|(time, used)| counted(RecordKind::Draw, 0, time, used, 0))
        {
            arrivals.take(&record, 1, &facts());
        }
        assert_eq!((arrivals.total(), arrivals.span()), (6, Nanos(21)));
    }

    /// Accesses of one vCPU at these times, and the hypervisor's records of them: the period's
    /// count at draws, the whole of it at replenishments.
    fn polled(vcpu: u8, accesses: &[u64], polls: &[(u64, bool)]) -> Vec<Record> {
        let mut records = vec![counted(RecordKind::VcpuOn, vcpu, 0, 0, 0)];
        let (mut since, mut last) = (0, 0);
        let mut polls = polls.to_vec();
        polls.sort_unstable();
        polls.push((100, true));
        for (time, over) in polls {
            let used = accesses.iter().filter(|&&at| at < time && at >= since).count() as u64;
            let kind = if over { RecordKind::Replenish } else { RecordKind::Draw };
            records.push(counted(kind, vcpu, time, used, 0));
            if over {
                since = time;
            }
            last = time;
        }
        assert_eq!(last, 100);
        records
    }

    proptest! {
        /// Whenever the accesses between two records came, the curves bound them.
        #[test]
        fn curves_bound_every_window(
            accesses in prop::collection::vec((0u64..100, 0u8..2), 1..25),
            polls in prop::collection::vec((1u64..100, any::<bool>(), 0u8..2), 0..12),
            points in 1u32..40,
            window in 1u64..100,
        ) {
            let of = |vcpu| -> Vec<u64> {
                accesses.iter().filter(|a| a.1 == vcpu).map(|a| a.0).collect()
            };
            let poll_of = |vcpu| -> Vec<_> {
                polls.iter().filter(|l| l.2 == vcpu).map(|l| (l.0, l.1)).collect()
            };
            let mut records = polled(0, &of(0), &poll_of(0));
            records.extend(polled(1, &of(1), &poll_of(1)));
            records.sort_by_key(|record| record.time);
            let arrivals = arrivals(&records);
            prop_assert_eq!(arrivals.total(), accesses.len() as u64);
            let curves = arrivals.curves(Nanos(window), points);
            let held = |start: u64, length: u64| {
                accesses.iter().filter(|a| a.0 >= start && a.0 < start + length).count() as u64
            };
            for length in 1..=window {
                let starts = 0..=101 - length;
                let most = starts.clone().map(|start| held(start, length)).max().unwrap();
                let least = starts.map(|start| held(start, length)).min().unwrap();
                prop_assert!(
                    curves.most.at(Nanos(length)) >= most,
                    "{} > most at {}",
                    most,
                    length
                );
                if length <= curves.least.horizon().0 {
                    prop_assert!(
                        curves.least.at(Nanos(length)) <= least,
                        "{} < least at {}",
                        least,
                        length
                    );
                }
                prop_assert!(curves.recorded.at(Nanos(length)) <= curves.most.at(Nanos(length)));
            }
        }

        /// When each access has a record, nothing is left open: all are the curves of the accesses
        /// themselves.
        #[test]
        fn a_record_for_each_access_gives_its_curve(
            mut times in prop::collection::vec(1u64..80, 2..20),
        ) {
            times.sort_unstable();
            // The first record starts the first batch: nothing is known of what came before.
            let record =
                |(n, time): (usize, &u64)| counted(RecordKind::Draw, 0, *time, n as u64 + 1, 0);
            let records: Vec<_> = times.iter().enumerate().map(record).collect();
            let window = times[times.len() - 1] - times[0] + 1;
            let curves = arrivals(&records).curves(Nanos(window), window as u32);
            let times: Vec<Nanos> = times.into_iter().map(Nanos).collect();
            let exact = Curve::upper(&times, times.len());
            for length in 1..=window {
                prop_assert_eq!(
                    curves.recorded.at(Nanos(length)),
                    exact.at(Nanos(length)),
                    "{}",
                    length
                );
            }
        }
    }
}
