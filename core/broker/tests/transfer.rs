//! The laws of deadlines, periods and rates.

use proptest::prelude::*;
use weir_broker::transfer::{Bucket, Edf, Full, Pace};

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    Pop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few times, so that many are equal.
    let step = prop_oneof![3 => (0u64..6).prop_map(Step::Push), 2 => Just(Step::Pop)];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn the_earliest_deadline_is_first_and_ties_are_fifo(steps in steps()) {
        let mut queue = Edf::<usize, 12>::new();
        let mut model: Vec<(u64, usize)> = Vec::new();
        for (item, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(time) => {
                    let result = queue.push(time, item);
                    prop_assert_eq!(result, if model.len() == 12 { Err(Full) } else { Ok(()) });
                    if result.is_ok() {
                        model.push((time, item));
                        model.sort_unstable();
                    }
                }
                Step::Pop => {
                    let first = if model.is_empty() { None } else { Some(model.remove(0)) };
                    prop_assert_eq!(queue.peek(), first);
                    prop_assert_eq!(queue.pop(), first);
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn no_interval_exceeds_burst_and_rate(
        rate in 1u64..4_000_000_000,
        burst in 1u64..100_000,
        wishes in prop::collection::vec((0u64..50_000, 1u64..10_000), 1..60),
    ) {
        let mut bucket = Bucket::new(rate, burst);
        let (mut now, mut begun) = (0, Vec::new());
        for (pause, bytes) in wishes {
            let bytes = bytes.min(burst);
            now = (now + pause).max(bucket.ready_at(bytes));
            bucket.take(now, bytes);
            begun.push((now, bytes));
        }
        for from in 0..begun.len() {
            let mut sum = 0u128;
            for &(at, bytes) in &begun[from..] {
                sum += u128::from(bytes);
                let time = u128::from(at - begun[from].0);
                // What is begun at both ends counts.
                let most = u128::from(burst) * 1_000_000_000 + u128::from(rate) * time;
                prop_assert!(sum * 1_000_000_000 <= most, "{sum} bytes in {time} ns");
            }
        }
    }

    #[test]
    fn a_flow_is_sporadic_however_it_sends(
        period in 1u64..1000,
        deadline in 1u64..1000,
        gaps in prop::collection::vec(0u64..2000, 1..60),
    ) {
        let mut pace = Pace::new(period, deadline);
        let (mut now, mut last) = (0, None);
        for gap in gaps {
            now += gap;
            let stamp = pace.stamp(now);
            // Not before it was there, nor before its period; and one that comes in time is not
            // delayed.
            let least = last.map_or(now, |last: u64| now.max(last + period));
            prop_assert_eq!(stamp.eligible, least);
            prop_assert_eq!(stamp.deadline, stamp.eligible + deadline);
            last = Some(stamp.eligible);
        }
    }
}

#[test]
fn a_bucket_starts_full_and_rate_0_is_unlimited() {
    let mut bucket = Bucket::new(1_000_000_000, 100);
    assert_eq!(bucket.ready_at(100), 0);
    bucket.take(50, 100);
    assert_eq!(bucket.ready_at(100), 150);
    assert_eq!(bucket.ready_at(40), 90);
    assert_eq!(bucket.ready_at(5000), 150, "more than the bucket holds waits until it is full");
    let mut bucket = Bucket::new(0, 0);
    bucket.take(0, u64::MAX);
    assert_eq!(bucket.ready_at(u64::MAX), 0);
}

#[test]
fn without_deadline_a_packet_comes_after_all_others() {
    let stamp = Pace::new(0, 0).stamp(7);
    assert_eq!((stamp.eligible, stamp.deadline), (7, u64::MAX));
}
