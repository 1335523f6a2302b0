use super::*;
use crate::memory::Interferer;
use proptest::prelude::*;
use std::slice;

/// Whether each server can spend its budget within each period.
fn servers_hold(servers: &[(Nanos, Nanos)], switching: &Switching, extra: &[Nanos]) -> bool {
    (0..servers.len()).all(|i| server_holds(servers, i, switching, extra))
}

/// A round of equal time slices, as `weir_sched::scheduler::RoundRobin` has it while all are ready,
/// step by step. At some times the last VM takes the rest of the time slice, if it does not have
/// it.
struct Round<'a> {
    quantum: u64,
    vms: u64,
    times: &'a [u64],
}

impl Round<'_> {
    /// The VM that has the core in each step, and the end of that time slice.
    fn run(&self, steps: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut current, mut end) = (self.vms - 1, 0);
        (0..steps).map(move |now| {
            if now >= end {
                current = (current + 1) % self.vms;
                end = now + self.quantum;
            }
            if self.times.contains(&now) {
                current = self.vms - 1;
            }
            (current, end)
        })
    }
}

fn ns(times: &[(u64, u64)]) -> Vec<(Nanos, Nanos)> {
    times.iter().map(|&(a, b)| (Nanos(a), Nanos(b))).collect()
}

#[test]
fn mobivmm_two_vms_of_20_ms() {
    let schedule = VmSchedule::RoundRobin {
        quantum: Nanos(20_000_000),
        others: Nanos(20_000_000),
        switch: Nanos(0),
        vms: 2,
    };
    let free = Supply::new(schedule.clone(), vec![]).unwrap();
    assert_eq!(free.window_for(Nanos(1)), Some(Nanos(20_000_001)));
    // No admission rule: no bound, and the analysis reports it.
    let open = InterruptLine { admission: None, cost: Nanos(1000), delay: Nanos(0) };
    let flooded = Supply::new(schedule.clone(), vec![open]).unwrap();
    let task = Task { wcet: Nanos(1_000_000), period: Nanos(100_000_000), ..Task::default() };
    assert!(flooded.unprotected());
    assert_eq!(response_times(slice::from_ref(&task), &flooded, None, None), [None]);
    // One interrupt of 10 us a millisecond at most: 1 % less.
    let rule = Admission { burst: 1, interval: Nanos(1_000_000) };
    let ruled = InterruptLine { admission: Some(rule), cost: Nanos(10_000), delay: Nanos(0) };
    let guarded = Supply::new(schedule, vec![ruled]).unwrap();
    let alone = response_times(slice::from_ref(&task), &free, None, None)[0].unwrap();
    let interference = response_times(&[task], &guarded, None, None)[0].unwrap();
    assert_eq!(alone, Nanos(21_000_000));
    assert_eq!(interference, Nanos(21_000_000 + 22 * 10_000));
}

#[test]
fn textbook_response_times() {
    // Burns and Wellings: C 3, 3, 5 of T 7, 12, 20 respond in 3, 6, 20.
    let tasks = [(3, 7), (3, 12), (5, 20)].map(|(c, p)| Task {
        wcet: Nanos(c),
        period: Nanos(p),
        ..Task::default()
    });
    let supply = Supply::new(VmSchedule::Dedicated, vec![]).unwrap();
    assert_eq!(
        response_times(&tasks, &supply, None, None),
        [Some(Nanos(3)), Some(Nanos(6)), Some(Nanos(20))]
    );
    // Lehoczky 1990: C 26, 62 of T 70, 100; the fifth job of the second is the latest, 118.
    let tasks = [(26, 70), (62, 100)].map(|(c, p)| Task {
        wcet: Nanos(c),
        period: Nanos(p),
        ..Task::default()
    });
    assert_eq!(response_times(&tasks, &supply, None, None)[1], Some(Nanos(118)));
}

#[test]
fn interference_is_limited_by_issue_or_by_victim() {
    use crate::memory::{Budget, RegulatorModel};
    use crate::units::Events;
    let supply = Supply::new(VmSchedule::Dedicated, vec![]).unwrap();
    let interferer = Interferer {
        budget: Budget { accesses: 50, period: Nanos(30_000) },
        regulation: RegulatorModel::Static,
        overshoot: Events(0),
        write_back: false,
        vms: 1,
    };
    let task = Task { wcet: Nanos(100_000), period: Nanos(10_000_000), ..Task::default() };
    for (accesses, per_access) in [(None, None), (Some(40), Some(2)), (Some(10_000), Some(1))] {
        let delay = Nanos(60);
        let interference = CoreInterference { interferers: vec![interferer], delay, per_access };
        // The response of one job is the least t with t = C + delay * what delays it in t.
        let task = Task { accesses, ..task.clone() };
        let times = response_times(slice::from_ref(&task), &supply, Some(&interference), None);
        let bound = times[0].expect("a bound");
        let delays = |t| interferer.delaying(t, accesses, per_access) * delay.0;
        assert_eq!(bound.0, task.wcet.0 + delays(bound));
        assert!(bound > task.wcet && task.wcet.0 + delays(Nanos(bound.0 - 1)) > bound.0 - 1);
    }
    // A budget without limit has no bound unless the own accesses cap it.
    let budget = Budget { accesses: u64::MAX, period: Nanos(1) };
    let wild = Interferer { budget, ..interferer };
    let interference =
        |per_access| CoreInterference { interferers: vec![wild], delay: Nanos(60), per_access };
    let task = Task { accesses: Some(10), ..task };
    let times = |per_access| {
        let interference = interference(per_access);
        response_times(slice::from_ref(&task), &supply, Some(&interference), None)
    };
    assert_eq!(times(None), [None]);
    assert_eq!(times(Some(1)), [Some(Nanos(100_600))]);
    // Blocked by an unknown task: no cap.
    let blocked = Task { blocking: Nanos(1), ..task };
    let times = response_times(&[blocked], &supply, Some(&interference(Some(1))), None);
    assert_eq!(times, [None]);
}

#[test]
fn servers_hit_twice_only_if_unsynchronized() {
    let free = Switching::default();
    let hold = |servers: &[(u64, u64)]| servers_hold(&ns(servers), &free, &[]);
    assert!(hold(&[(5, 10), (5, 10)]) && !hold(&[(5, 10), (6, 10)]));
    assert!(hold(&[(5, 10), (10, 20)]) && !hold(&[(5, 10), (11, 20)]));
    // From 14 on: 6 to 20, and 6 from then on.
    assert!(hold(&[(6, 10), (2, 14)]) && !hold(&[(6, 10), (3, 14)]));
    assert!(!hold(&[(4, 0)]));
}

#[test]
fn switches_are_in_the_budgets() {
    let switching = Switching { most: Nanos(2), least: Nanos(1), entry: Nanos(0) };
    let hold = |servers: &[(u64, u64)]| servers_hold(&ns(servers), &switching, &[]);
    assert!(!hold(&[(50, 100), (50, 100)]));
    assert!(hold(&[(50, 100), (46, 100)]) && !hold(&[(50, 100), (47, 100)]));
    // One of lower priority keeps it waiting.
    assert!(hold(&[(100, 100)]) && !hold(&[(100, 100), (0, 100)]));
    let servers = ns(&[(50, 100), (46, 100)]);
    assert!(!servers_hold(&servers, &switching, &[Nanos(0), Nanos(1)]));
    assert_eq!(left_of_budget(&servers, 1, &switching), Nanos(42));
    let entry = Switching { entry: Nanos(1), ..switching };
    // 54 time slices of 1 each and one that was under way.
    assert_eq!(left_of_budget(&ns(&[(50, 200), (80, 200)]), 1, &entry), Nanos(80 - 4 - 55));
}

#[test]
fn bad_schedules_are_refused() {
    let table = |frame, slots: &[(u64, u64)]| {
        Supply::new(
            VmSchedule::Table { frame: Nanos(frame), slots: ns(slots), switch: Nanos(0) },
            vec![],
        )
        .map(|_| ())
    };
    assert_eq!(table(0, &[]), Err(ScheduleError::Zero));
    assert_eq!(table(10, &[(0, 4), (3, 2)]), Err(ScheduleError::Slot(1)));
    assert_eq!(table(10, &[(8, u64::MAX)]), Err(ScheduleError::Slot(0)));
    let server = VmSchedule::Server { budget: Nanos(3), period: Nanos(2), switch: Nanos(0) };
    assert_eq!(Supply::new(server, vec![]).map(|_| ()), Err(ScheduleError::Budget));
}

proptest! {
    /// Against the supply counted nanosecond by nanosecond over every window of three frames.
    #[test]
    fn table_supply_is_the_least_over_all_windows(
        frame in 1u64..24, cuts in prop::collection::vec(0u64..24, 0..6), t in 0u64..60,
    ) {
        let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c % (frame + 1)).collect();
        cuts.sort_unstable();
        let slots: Vec<_> =
            cuts.chunks_exact(2).map(|c| (Nanos(c[0]), Nanos(c[1] - c[0]))).collect();
        let on = |x: u64| slots.iter().any(|&(s, l)| (s.0..s.0 + l.0).contains(&(x % frame)));
        let least = (0..frame).map(|s| (s..s + t).filter(|&x| on(x)).count() as u64).min().unwrap();
        let supply =
            Supply::new(VmSchedule::Table { frame: Nanos(frame), slots, switch: Nanos(0) }, vec![])
                .unwrap();
        prop_assert_eq!(supply.least(Nanos(t)), Nanos(least));
    }

    /// A server with a budget that may lie anywhere in each period: the worst window has it early,
    /// then late.
    #[test]
    fn server_supply_is_that_of_budget_early_then_late(
        budget in 1u64..10, gap in 0u64..10, t in 0u64..80,
    ) {
        let period = budget + gap;
        let server =
            VmSchedule::Server { budget: Nanos(budget), period: Nanos(period), switch: Nanos(0) };
        let supply = Supply::new(server, vec![]).unwrap();
        // The window starts as the early budget ends.
        let late = |x: u64| x >= gap && (x - gap) % period >= gap;
        let expected = (0..t).filter(|&x| late(x)).count() as u64;
        prop_assert_eq!(supply.least(Nanos(t)).0, expected);
    }

    #[test]
    fn the_line_lies_under_the_supply(
        frame in 1u64..24, cuts in prop::collection::vec(0u64..24, 0..6), t in 0u64..200,
        interval in 20u64..90, cost in 0u64..3, delay in 0u64..6, kind in 0..3, switch in 0u64..3,
    ) {
        let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c % (frame + 1)).collect();
        cuts.sort_unstable();
        let slots: Vec<_> =
            cuts.chunks_exact(2).map(|c| (Nanos(c[0]), Nanos(c[1] - c[0]))).collect();
        let schedule = match kind {
            0 => VmSchedule::Table { frame: Nanos(frame), slots, switch: Nanos(switch) },
            1 => VmSchedule::Server {
                budget: Nanos(frame / 2),
                period: Nanos(frame),
                switch: Nanos(switch),
            },
            _ => VmSchedule::RoundRobin {
                quantum: Nanos(frame),
                others: Nanos(7),
                switch: Nanos(switch),
                vms: 2,
            },
        };
        let admission = Some(Admission { burst: 2, interval: Nanos(interval) });
        let line = InterruptLine { admission, cost: Nanos(cost), delay: Nanos(delay) };
        let supply = Supply::new(schedule, vec![line]).unwrap();
        if let Some(line) = supply.linear() {
            let promised = u128::from(line.share) * u128::from(t.saturating_sub(line.delay.0))
                / u128::from(line.whole);
            prop_assert!(u128::from(supply.least(Nanos(t)).0) >= promised, "{:?}", line);
        }
    }

    /// A round in which the last VM's interrupts take the rest of any current time slice: what each
    /// gets of any window, the last one, too.
    #[test]
    fn preempting_interrupts_delay_a_round_as_published(
        quantum in 1u64..9, vms in 2u32..5, victim in 0u32..4,
        times in prop::collection::vec(0u64..160, 0..6),
    ) {
        let victim = victim % vms;
        let round = Round { quantum, vms: vms.into(), times: &times };
        let has: Vec<bool> =
            round.run(200).map(|(running, _)| running == u64::from(victim)).collect();
        let switch = Nanos(0);
        let others = Nanos(quantum * u64::from(vms - 1));
        let schedule = VmSchedule::RoundRobin { quantum: Nanos(quantum), others, switch, vms };
        let supply = Supply::new(schedule, vec![]).unwrap();
        for (start, t) in (0..150).flat_map(|start| (0..50).map(move |t| (start, t))) {
            let got = has[start..start + t].iter().filter(|has| **has).count() as u64;
            let span = start as u64..(start + t) as u64;
            let came = times.iter().filter(|time| span.contains(time)).count() as u64;
            let late = put_off(Nanos(quantum), switch, vms).0 * came;
            let least = supply.least(Nanos((t as u64).saturating_sub(late)));
            prop_assert!(got >= least.0, "{got} of {t} from {start}, at least {least:?}");
        }
    }

    /// Two VMs in a round; the first's ticks are lost while it is off.
    #[test]
    fn no_tick_exceeds_its_bound(
        tick in 1u64..5, ticks in 1u32..4, longer in 0u64..5, own in 0u64..3,
        times in prop::collection::vec(0u64..160, 0..6),
    ) {
        let quantum = (u64::from(ticks - 1) * tick + own + 1).max(tick) + longer;
        let round = Round { quantum, vms: 2, times: &times };
        let mut next = 0;
        let (mut all, mut has) = (Vec::new(), Vec::new());
        let mut was = false;
        for (now, (running, _)) in (0u64..).zip(round.run(400)) {
            let is = running == 0;
            if is && !was {
                next = next.max(now);
            }
            if is && now >= next {
                all.push(now);
                next = now + tick;
            }
            has.push(is);
            was = is;
        }
        let schedule = VmSchedule::RoundRobin {
            quantum: Nanos(quantum), others: Nanos(quantum), switch: Nanos(0), vms: 2,
        };
        for start in (0..200).filter(|start| has[*start as usize]) {
            let last = *all.iter().filter(|time| **time > start).nth(ticks as usize - 1).unwrap();
            let its = (last..400).filter(|time| has[*time as usize]);
            let end = its.take(own as usize).last().map_or(last, |step| step + 1);
            let late = end - start;
            let came = times.iter().filter(|time| (start..start + late).contains(time)).count();
            // As many as came, at once.
            let line = (came > 0).then_some(InterruptLine {
                admission: Some(Admission { burst: came as u64, interval: Nanos(1 << 40) }),
                cost: Nanos(0),
                delay: put_off(Nanos(quantum), Nanos(0), 2),
            });
            let supply = Supply::new(schedule.clone(), line.into_iter().collect()).unwrap();
            let bound = supply.nth_tick(ticks, Nanos(tick), Nanos(own)).unwrap();
            // A tick that is tested in the step after the one in which it fell due is one later.
            prop_assert!(late <= bound.0 + 1, "{late} from {start}, at most {bound:?}");
        }
    }

    #[test]
    fn window_for_is_the_inverse(budget in 1u64..10, gap in 0u64..10, need in 0u64..50) {
        let server = VmSchedule::Server {
            budget: Nanos(budget),
            period: Nanos(budget + gap),
            switch: Nanos(0),
        };
        let supply = Supply::new(server, vec![]).unwrap();
        let window = supply.window_for(Nanos(need)).unwrap();
        prop_assert!(supply.least(window).0 >= need);
        prop_assert!(window.0 == 0 || supply.least(Nanos(window.0 - 1)).0 < need);
    }
}
