//! The search that skips points without a test of every task, against a test of every point.

use super::alignments::GROUP_REACH;
use super::*;

const BANDWIDTH: u64 = 1_000_000_000;

/// A set with U' a little below 1 and deadlines well before the periods, so that it fails at many
/// instants.
fn failing_set(random: &mut fastrand::Rng) -> Vec<Task> {
    let count = random.usize(1..=14);
    let early = random.f64();
    (0..count)
        .map(|_| {
            let period = random.i64(2_000..200_000);
            let fixed = (period as f64 / count as f64 * 0.99) as u64;
            let stretch = Piece { fixed: random.u64(1..=fixed), bytes: 0 };
            Task {
                wcet: Piece { fixed, bytes: 0 },
                deadline: HalfNanos(period - (period as f64 * early * random.f64() * 0.7) as i64),
                period: HalfNanos(period),
                jitter: HalfNanos(0),
                stretches: [stretch; 2],
            }
        })
        .collect()
}

/// Loaded and prepared, and the points of D up to `end` at which Eq. 10 fails.
fn prepared(tasks: &[Task], end: i64) -> (Analyzer, Vec<i64>) {
    let mut analyzer = Analyzer::new();
    analyzer.load(tasks);
    assert!(!analyzer.overloaded(BANDWIDTH));
    analyzer.grant(Effort::default());
    analyzer.prepare(BANDWIDTH);
    let failing = tasks.iter().flat_map(|task| {
        (task.window()..=end).step_by(task.period.0 as usize).filter(|&t| {
            let k = analyzer.window.partition_point(|&d| d <= t) - 1;
            analyzer.exact_demand(k, t).0 > t as u128 * u128::from(BANDWIDTH)
        })
    });
    let mut failing: Vec<i64> = failing.collect();
    failing.sort_unstable();
    failing.dedup();
    (analyzer, failing)
}

#[test]
fn no_failure_is_passed_over_as_idle() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut close, mut long) = (0, 0);
    for _ in 0..600 {
        let tasks = failing_set(&mut random);
        let (analyzer, failing) = prepared(&tasks, 2_000_000);
        for &point in &failing {
            let k = analyzer.window.partition_point(|&d| d <= point);
            let next = analyzer.window.get(k).copied().unwrap_or(i64::MAX);
            for reach in [100, 3_000, 100_000] {
                let t = point + random.i64(0..reach);
                if t >= next {
                    continue;
                }
                let idle = analyzer.idle_before(k - 1, float(t));
                assert!(idle < float(t - point) + 1.0, "{point} {t} {idle} {tasks:?}");
                close += usize::from(idle > 0.9 * float(t - point) && t > point + 10);
                long += usize::from(idle > analyzer.total[k - 1]);
            }
        }
    }
    // Nearly up to the failure, and farther than QPA goes.
    assert!(close > 50 && long > 50, "{close} {long}");
}

#[test]
fn every_failure_lies_in_a_span_of_some_group() {
    let mut random = fastrand::Rng::with_seed(4);
    let (mut inside, mut groups, mut excluded) = (0, 0, 0);
    for _ in 0..400 {
        let tasks = failing_set(&mut random);
        let (lo, end) = (300_000, 6_000_000);
        let (mut analyzer, failing) = prepared(&tasks, end);
        let n = tasks.len();
        if analyzer.offset[n - 1] <= 0.0 {
            continue;
        }
        analyzer.effort = 1 << 26;
        let Some(spans) = analyzer.alignments(n, (lo, i128::from(end))) else { continue };
        groups += usize::from(analyzer.offset[n - 1] > GROUP_REACH * analyzer.c[n - 1]);
        excluded += usize::from(spans.is_empty());
        for &point in failing.iter().filter(|&&point| point > lo) {
            inside += 1;
            assert!(
                spans.iter().any(|&(first, last)| (first..=last).contains(&point)),
                "{point} {spans:?} {tasks:?}"
            );
        }
    }
    assert!(inside > 1000 && groups > 50 && excluded > 20, "{inside} {groups} {excluded}");
}

/// At U' = 1 only the hyperperiod ends the test, also if it was of no use to a question with a
/// nearer end before.
#[test]
fn the_hyperperiod_is_searched_as_far_as_needed() {
    // The d differ by 4 modulo 8, by which all deadlines are spread, so that never both have just
    // passed.
    let task = |period: i64, window: i64| Task {
        wcet: Piece { fixed: 0, bytes: (period / 2) as u64 },
        deadline: HalfNanos(window),
        period: HalfNanos(period),
        jitter: HalfNanos(0),
        stretches: [Piece { fixed: 0, bytes: 1 }; 2],
    };
    let tasks = [task(20_024, 20_021), task(20_032, 20_033)];
    let mut analyzer = Analyzer::new();
    analyzer.load(&tasks);
    for bandwidth in [2_000_020_000, 2_000_000_000] {
        let verdict = analyzer.verdict(BytesPerSec(bandwidth), Effort::default()).unwrap();
        assert_eq!(verdict, Verdict::Schedulable, "{bandwidth}");
    }
    let (upto, found) = analyzer.hyperperiod.unwrap();
    assert_eq!((upto, found), (REACH, Some(8 * 2503 * 2504)));
}
