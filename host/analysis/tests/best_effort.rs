//! Best effort can block at any instant and has no demand: against Eq. 10 evaluated at every
//! deadline.

use weir_analysis::flows::{
    Analyzer, Effort, MinBandwidth, Schedulability, TransferPiece, TransformedTask,
    UnschedulableCause,
};
use weir_analysis::{BytesPerSec, HalfNanos};

fn task(random: &mut fastrand::Rng, periods: (i64, i64)) -> TransformedTask {
    let period = random.i64(periods.0..periods.1);
    let piece = TransferPiece { fixed: random.u64(1..40), bytes: random.u64(1..60) };
    let stretch =
        TransferPiece { fixed: random.u64(1..=piece.fixed), bytes: random.u64(1..=piece.bytes) };
    TransformedTask {
        wcet: piece,
        deadline: HalfNanos(random.i64(periods.0..2 * periods.1)),
        period: HalfNanos(period),
        jitter: HalfNanos(0),
        stretches: [stretch, piece],
    }
}

/// Of a time that is not negative.
fn wide(time: i64) -> u128 {
    u128::from(time.unsigned_abs())
}

/// Duration times bandwidth: half ns times bytes/s.
fn work(piece: TransferPiece, b: u64) -> u128 {
    u128::from(piece.fixed) * u128::from(b) + u128::from(piece.bytes) * 2_000_000_000
}

/// Eq. 10 at every deadline up to `end`.
fn holds(tasks: &[TransformedTask], best_effort: &[TransformedTask], b: u64, end: i64) -> bool {
    let mut points: Vec<i64> = tasks
        .iter()
        .flat_map(|t| (0..).map(|k| t.window() + k * t.period.0).take_while(|&t| t <= end))
        .collect();
    points.sort_unstable();
    points.dedup();
    points.iter().all(|&t| {
        let blocked = tasks.iter().filter(|task| task.window() > t).chain(best_effort);
        let longest =
            blocked.flat_map(|task| task.stretches).map(|s| work(s, b)).max().unwrap_or(0);
        let demand: u128 = tasks
            .iter()
            .filter(|task| task.window() <= t)
            .map(|task| wide((t - task.window()) / task.period.0 + 1) * work(task.wcet, b))
            .sum();
        longest + demand <= wide(t) * u128::from(b)
    })
}

fn overloaded(tasks: &[TransformedTask], b: u64) -> bool {
    let product: u128 = tasks.iter().map(|t| wide(t.period.0)).product();
    let sum: u128 = tasks.iter().map(|t| work(t.wcet, b) * (product / wide(t.period.0))).sum();
    sum > product * u128::from(b)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn every_deadline_is_met() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut schedulable, mut refused, mut blocked) = (0, 0, 0);
    let sets = if cfg!(debug_assertions) { 300 } else { 4000 };
    for _ in 0..sets {
        let tasks: Vec<TransformedTask> =
            (0..random.usize(1..4)).map(|_| task(&mut random, (60, 400))).collect();
        let background: Vec<TransformedTask> =
            (0..random.usize(0..3)).map(|_| task(&mut random, (60, 400))).collect();
        let b = random.u64(200_000_000..4_000_000_000);
        // Beyond a hyperperiod and the last deadline all repeats.
        let hyperperiod = tasks.iter().fold(1, |h, t| h / gcd(h, t.period.0) * t.period.0);
        let latest = tasks.iter().map(TransformedTask::window).max().unwrap();
        let end = hyperperiod + 2 * latest;
        if end > 1_000_000 {
            continue;
        }
        let expected = !overloaded(&tasks, b) && holds(&tasks, &background, b, end);
        let mut analyzer = Analyzer::new(&tasks, &background);
        let verdict = analyzer.verdict(BytesPerSec(b), Effort::default()).unwrap();
        assert_eq!(
            verdict == Schedulability::Schedulable,
            expected,
            "{tasks:?} {background:?} {b}"
        );
        schedulable += usize::from(expected);
        refused += usize::from(!expected);
        if let Schedulability::Unschedulable(UnschedulableCause::Demand(failure)) = verdict {
            let first = analyzer.first_failure(BytesPerSec(b), Effort::default()).unwrap().unwrap();
            assert!(first.at <= failure.at);
            assert!(!holds(&tasks, &background, b, first.at.0));
            assert!(holds(&tasks, &background, b, first.at.0 - 1));
            blocked += usize::from(first.blocker.is_some_and(|task| task >= tasks.len()));
        }
        match analyzer.min_bandwidth(Effort::default()) {
            MinBandwidth::Exactly(least) => {
                let enough = |b: u64| !overloaded(&tasks, b) && holds(&tasks, &background, b, end);
                assert!(enough(least.0), "{least:?} {tasks:?} {background:?}");
                assert!(least.0 == 1 || !enough(least.0 - 1), "{least:?} {tasks:?} {background:?}");
            }
            MinBandwidth::Never(_) => assert!(!expected),
            MinBandwidth::GaveUp { .. } => panic!("{tasks:?}"),
        }
    }
    let seen = schedulable.min(refused).min(10 * blocked);
    assert!(seen > sets / 20, "{schedulable} {refused} {blocked}");
}

/// With U' = 1 nothing fails before all deadlines coincide, at the hyperperiod.
#[test]
fn a_full_load_fails_at_the_hyperperiod() {
    let task = |period: i64, fixed: u64| {
        let piece = TransferPiece { fixed, bytes: 0 };
        TransformedTask {
            wcet: piece,
            deadline: HalfNanos(period),
            period: HalfNanos(period),
            jitter: HalfNanos(0),
            stretches: [piece, piece],
        }
    };
    // The stretches of the real-time tasks alone never block too long; one of best effort does, but
    // only at 120.
    let mut tasks = [task(40, 20), task(60, 30)];
    tasks[1].stretches = [TransferPiece { fixed: 5, bytes: 0 }; 2];
    let mut analyzer = Analyzer::new(&tasks, &[]);
    let verdict = analyzer.verdict(BytesPerSec(1), Effort::default()).unwrap();
    assert_eq!(verdict, Schedulability::Schedulable);
    let mut best_effort = task(1, 5);
    best_effort.stretches = [TransferPiece { fixed: 5, bytes: 0 }; 2];
    let mut analyzer = Analyzer::new(&tasks, &[best_effort]);
    let verdict = analyzer.verdict(BytesPerSec(1), Effort::default()).unwrap();
    let Schedulability::Unschedulable(UnschedulableCause::Demand(failure)) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!((failure.at, failure.demand, failure.blocker), (HalfNanos(120), 125, Some(2)));
}
