//! Latency bounds of packets: response-time bounds of limited-preemption sporadic tasks
//! under EDF, after Spuri, *Analysis of Deadline Scheduled Real-Time Systems* (INRIA RR-2772,
//! 1996), theorem 3.2, with release jitter and blocking.
//!
//! A job stamped `a` after the beginning of a busy period ends at the latest with the work of all
//! jobs that are there by then with deadlines that are not behind its own, its own predecessors,
//! and one stretch (Eq. 4) of a job with a later deadline that had begun. The critical `a` is not
//! known, but it is among the values at which a job of another task starts to count. The bound
//! ignores that the last stretch is not preempted, so that later arrivals wait: this makes the
//! bound larger, never smaller.

use super::{
    demand::Effort,
    task::{HALVES_PER_SEC, TransformedTask},
};
use crate::units::{BytesPerSec, Nanos};

/// Most instants that are tested for one task, and most iterations of one fixed point.
const MOST: usize = 1 << 16;

/// At which bandwidths bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidths {
    /// Of all flows over time: the lower of the two where the engine is paced.
    pub paced: BytesPerSec,
    /// Of one chunk while it is moved, at least `paced`: what comes behind a packet's last chunk
    /// waits for the pace, but the packet does not.
    pub chunk: BytesPerSec,
}

/// A task in half nanoseconds at a bandwidth, costs rounded up.
#[derive(Clone, Copy)]
struct Timed {
    wcet: i128,
    stretch: i128,
    deadline: i128,
    period: i128,
    jitter: i128,
    /// What the pace adds to the last chunk.
    rest: i128,
}

impl Timed {
    fn new(task: &TransformedTask, at: Bandwidths) -> Self {
        let paced = at.paced.0.max(1);
        let time =
            |scaled: u128| i128::try_from(scaled.div_ceil(paced.into())).unwrap_or(i128::MAX);
        let [end, _] = task.stretches;
        let moving = u128::from(end.bytes) * u128::from(HALVES_PER_SEC);
        let quick = moving.div_ceil(at.chunk.0.max(1).into());
        let rest = (moving / u128::from(paced)).saturating_sub(quick);
        Self {
            wcet: time(task.wcet.scaled(paced)),
            stretch: task.stretches.iter().map(|one| time(one.scaled(paced))).max().unwrap_or(0),
            deadline: task.deadline.0.into(),
            period: task.period.0.into(),
            jitter: task.jitter.0.into(),
            rest: i128::try_from(rest).unwrap_or(0),
        }
    }

    /// Jobs that are there in a busy period of length `t`.
    fn arrived(&self, t: i128) -> i128 {
        (t + self.jitter + self.period - 1).div_euclid(self.period).max(0)
    }

    /// Jobs with a deadline no later than `limit` after the busy period's beginning.
    fn due(&self, limit: i128) -> i128 {
        ((limit - self.deadline + self.jitter).div_euclid(self.period) + 1).max(0)
    }
}

/// What a demand at an instant takes here, in the unit of [`Effort`]: its integers have twice the
/// width of a register.
const EVALUATION: u64 = 32;

/// Why there is no bound.
enum Failed {
    /// There is none.
    Bound,
    /// It takes too long to be found.
    Effort,
}

/// The rest of an effort.
struct Left(u64);

impl Left {
    /// Spends the effort of one evaluation of so many tasks.
    fn evaluate(&mut self, tasks: usize) -> Result<(), Failed> {
        self.0 = self.0.checked_sub(EVALUATION * tasks as u64).ok_or(Failed::Effort)?;
        Ok(())
    }

    /// The least `t` with `t = work(t)`, from `start` on, if it is at most `limit`; `work` does not
    /// fall, and evaluates so many tasks.
    fn settle(
        &mut self,
        start: i128,
        limit: i128,
        tasks: usize,
        work: impl Fn(i128) -> i128,
    ) -> Result<i128, Failed> {
        let mut t = start;
        for _ in 0..MOST {
            self.evaluate(tasks)?;
            let next = work(t).max(t);
            if next == t {
                return Ok(t);
            }
            if next > limit {
                return Err(Failed::Bound);
            }
            t = next;
        }
        Err(Failed::Effort)
    }
}

/// The response-time bounds of a set's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// Of each task; `None` where there is no bound, or none was found.
    pub longest: Vec<Option<Nanos>>,
    /// Some were not found in the effort.
    pub gave_up: bool,
}

/// For each task the bound on the time from a packet's stamp, or from where it may go if that is
/// later, to the end of its last chunk's notification. `best_effort` only blocks. There is no bound
/// where the flows load the broker fully, or a task is left no period.
#[must_use]
pub fn responses(
    tasks: &[TransformedTask],
    best_effort: &[TransformedTask],
    at: Bandwidths,
    effort: Effort,
) -> Responses {
    let all: Vec<Timed> = tasks.iter().map(|task| Timed::new(task, at)).collect();
    let background = best_effort.iter().map(|task| Timed::new(task, at).stretch);
    let background = background.max().unwrap_or(0);
    let mut found = Responses { longest: vec![None; all.len()], gave_up: false };
    if all.iter().any(|task| task.period <= 0) {
        return found;
    }
    let blocking = all.iter().map(|task| task.stretch).chain([background]).max().unwrap_or(0);
    let most = 1i128 << 62;
    let everything =
        |t: i128| blocking + all.iter().map(|one| one.arrived(t) * one.wcet).sum::<i128>();
    let mut left = Left(effort.0);
    let busy = match left.settle(1, most, all.len(), everything) {
        Ok(busy) => busy,
        Err(failed) => {
            found.gave_up = matches!(failed, Failed::Effort);
            return found;
        }
    };
    for (i, (own, longest)) in all.iter().zip(&mut found.longest).enumerate() {
        match response(&all, i, own, background, busy, &mut left) {
            Ok(time) => *longest = time,
            Err(Failed::Bound) => {}
            Err(Failed::Effort) => found.gave_up = true,
        }
    }
    found
}

fn response(
    all: &[Timed],
    i: usize,
    own: &Timed,
    background: i128,
    busy: i128,
    left: &mut Left,
) -> Result<Option<Nanos>, Failed> {
    let mut stamps: Vec<i128> = Vec::new();
    left.evaluate(all.len())?;
    for one in all {
        let first = one.deadline - own.deadline - one.jitter;
        let steps = (busy + own.jitter) / one.period + 2;
        // From the first that is not before the task's own earliest stamp.
        let skip = (-own.jitter - first + one.period - 1).div_euclid(one.period).max(0);
        if stamps.len() as i128 + steps > MOST as i128 {
            return Err(Failed::Effort);
        }
        let each = (skip..=skip + steps).map(|k| first + k * one.period);
        stamps.extend(each.take_while(|stamp| *stamp <= busy));
    }
    stamps.push(-own.jitter);
    stamps.sort_unstable();
    stamps.dedup();
    left.evaluate(stamps.len())?;
    let mut longest = own.jitter + own.wcet;
    for stamp in stamps {
        let limit = stamp + own.deadline;
        let before = (stamp + own.jitter).div_euclid(own.period) + 1;
        let work = |t: i128| {
            let (mut blocked, mut others) = (background, 0);
            for one in all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, one)| one) {
                let demand = one.arrived(t).min(one.due(limit)) * one.wcet;
                others += demand;
                if one.deadline > limit {
                    // See above: the blocking task has no other job before.
                    blocked = blocked.max(one.stretch - demand);
                }
            }
            blocked + before * own.wcet + others
        };
        let end = left.settle(before * own.wcet, i128::MAX / 4, all.len(), work)?;
        longest = longest.max(end - stamp);
    }
    // Half nanoseconds.
    Ok(u64::try_from((longest - own.rest + 1) / 2).ok().map(Nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{flows::TransferPiece, units::HalfNanos};
    use proptest::prelude::*;

    const FAST: Bandwidths =
        Bandwidths { paced: BytesPerSec(1_000_000_000), chunk: BytesPerSec(1_000_000_000) };

    /// All in ns; the chunk is `chunk` of the cost.
    fn task(wcet: u64, chunk: u64, deadline: i64, period: i64, jitter: i64) -> TransformedTask {
        let piece = |ns| TransferPiece { fixed: 2 * ns, bytes: 0 };
        TransformedTask {
            wcet: piece(wcet),
            deadline: HalfNanos(2 * deadline),
            period: HalfNanos(2 * period),
            jitter: HalfNanos(2 * jitter),
            stretches: [piece(chunk); 2],
        }
    }

    fn ns(tasks: &[TransformedTask], best_effort: &[TransformedTask]) -> Vec<Option<u64>> {
        responses(tasks, best_effort, FAST, Effort::default())
            .longest
            .into_iter()
            .map(|one| one.map(|ns| ns.0))
            .collect()
    }

    #[test]
    fn one_task_takes_its_jitter_and_its_wcet() {
        assert_eq!(ns(&[task(100, 100, 900, 1000, 30)], &[]), [Some(130)]);
        let best_effort = task(70, 50, 1, 1000, 0);
        assert_eq!(ns(&[task(100, 100, 900, 1000, 30)], &[best_effort]), [Some(180)]);
    }

    #[test]
    fn urgent_flows_wait_for_one_chunk() {
        let tasks = [task(100, 100, 200, 1000, 0), task(300, 40, 900, 1000, 0)];
        assert_eq!(ns(&tasks, &[]), [Some(140), Some(400)]);
    }

    /// A packet of a flow with jitter is due late, or blocks early, but not both in the same busy
    /// period.
    #[test]
    fn the_blocker_has_no_earlier_packet() {
        let tasks = [task(100, 100, 900, 1000, 50), task(100, 100, 900, 1000, 50)];
        assert_eq!(ns(&tasks, &[]), [Some(250), Some(250)]);
    }

    #[test]
    fn a_full_broker_has_no_bound() {
        assert_eq!(
            ns(&[task(600, 1, 900, 1000, 0), task(600, 1, 900, 1000, 0)], &[]),
            [None, None]
        );
        assert_eq!(ns(&[task(6, 1, 900, 0, 0)], &[]), [None]);
    }

    #[test]
    fn an_exhausted_effort_is_reported() {
        let tasks = [task(100, 100, 900, 1000, 30); 50]
            .map(|one| TransformedTask { period: HalfNanos(20_000), ..one });
        let all = responses(&tasks, &[], FAST, Effort::default());
        assert!(!all.gave_up && all.longest.iter().all(Option::is_some), "{all:?}");
        let none = responses(&tasks, &[], FAST, Effort(1));
        assert_eq!(none, Responses { longest: vec![None; 50], gave_up: true });
        let some = responses(&tasks, &[], FAST, Effort(EVALUATION * 50 * 60));
        assert!(some.gave_up && some.longest.iter().any(Option::is_some), "{some:?}");
        let full = [task(600, 1, 900, 1000, 0); 2];
        assert!(!responses(&full, &[], FAST, Effort::default()).gave_up);
    }

    #[test]
    fn pacing_delays_later_packets_only() {
        let slow = Bandwidths { paced: BytesPerSec(100_000_000), ..FAST };
        let piece = TransferPiece { fixed: 200, bytes: 1000 };
        let packet = TransformedTask {
            wcet: piece,
            stretches: [piece; 2],
            ..task(0, 0, 90_000, 100_000, 0)
        };
        let bound = |at| responses(&[packet], &[], at, Effort::default()).longest[0].map(|ns| ns.0);
        assert_eq!((bound(FAST), bound(slow)), (Some(1100), Some(1100)));
        let two =
            responses(&[packet, packet], &[], slow, Effort::default()).longest[0].map(|ns| ns.0);
        assert_eq!(two, Some(100 + 10_000 + 1100));
    }

    /// Jobs of a task: stamp, when it is there, deadline, cost, chunk.
    type Job = (u64, u64, u64, u64, u64);

    /// Limited-preemption EDF; the longest response of each task.
    fn simulate(jobs: &mut Vec<(usize, Job)>, count: usize) -> Vec<u64> {
        let (mut now, mut observed_max) = (0, vec![0; count]);
        while !jobs.is_empty() {
            let there = jobs.iter().enumerate().filter(|(_, (_, job))| job.1 <= now);
            let Some(first) = there.min_by_key(|(_, (task, job))| (job.2, *task)).map(|(at, _)| at)
            else {
                now = jobs.iter().map(|(_, job)| job.1).min().unwrap_or(now);
                continue;
            };
            let (task, job) = &mut jobs[first];
            let step = job.3.min(job.4);
            now += step;
            job.3 -= step;
            if job.3 == 0 {
                observed_max[*task] = observed_max[*task].max(now - job.0);
                jobs.remove(first);
            }
        }
        observed_max
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// No schedule of any sporadic arrivals takes longer, whether deadlines are met or not.
        #[test]
        fn no_packet_takes_longer(
            set in
                prop::collection::vec((1u64..40, 1u64..15, 5u64..300, 60u64..300, 0u64..30), 1..5),
            gaps in prop::collection::vec(prop::collection::vec((0u64..30, 0u64..=30), 8), 5),
            starts in prop::collection::vec(0u64..60, 5), lazy in prop::option::of(1u64..15),
        ) {
            let tasks: Vec<TransformedTask> = set
                .iter()
                .map(|&(wcet, chunk, deadline, period, jitter)| {
                    task(wcet, chunk.min(wcet), deadline as i64, period as i64, jitter as i64)
                })
                .collect();
            let best_effort: Vec<TransformedTask> =
                lazy.iter().map(|chunk| task(60, *chunk, 1, 1, 0)).collect();
            let bounds = ns(&tasks, &best_effort);
            let mut jobs = Vec::new();
            for (index, &(wcet, chunk, deadline, period, jitter)) in set.iter().enumerate() {
                let mut stamp = starts[index];
                for (wait, late) in &gaps[index] {
                    let there = stamp + late.min(&jitter);
                    jobs.push((index, (stamp, there, stamp + deadline, wcet, chunk.min(wcet))));
                    stamp += period + wait / 3 * 3;
                }
            }
            if let Some(chunk) = lazy {
                for start in [0, 500] {
                    jobs.push((set.len(), (start, start, u64::MAX, 60, chunk)));
                }
            }
            let observed_max = simulate(&mut jobs, set.len() + 1);
            for (bound, observed_max) in bounds.iter().zip(observed_max) {
                prop_assert!(
                    bound.is_none_or(|bound| observed_max <= bound),
                    "{observed_max} {bound:?}"
                );
            }
        }
    }
}
