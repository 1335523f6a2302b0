//! Schedulers and interrupt admission, against the guarantees that the analysis computes for them.

use proptest::prelude::*;
use weir_analysis::{
    Nanos as Time,
    time::{Supply, Switching, VmSchedule, left_of_budget, put_off, server_holds},
};
use weir_sched::admission::TokenBucket;
use weir_sched::scheduler::Ready;
use weir_sched::scheduler::RoundRobin;
use weir_sched::scheduler::Scheduler;
use weir_sched::scheduler::Servers;
use weir_sched::scheduler::Slot;
use weir_sched::scheduler::TimeTable;
use weir_units::Nanos;

/// Whether all servers can spend their budgets in each of their periods.
fn servers_hold(servers: &[(Time, Time)], switching: &Switching) -> bool {
    (0..servers.len()).all(|position| server_holds(servers, position, switching, &[]))
}

/// The entity that had the core in each nanosecond, with `ready` for each of them. Asked as rarely
/// as a driver may.
fn run(scheduler: &mut Scheduler, ready: &[Ready]) -> Vec<Option<u8>> {
    let (mut until, mut run, mut last) = (Nanos(0), None, Ready::NONE);
    let step = |(now, ready): (usize, &Ready)| {
        if now as u64 >= until.0 || *ready != last {
            let decision = scheduler.step(Nanos(now as u64), *ready);
            assert!(decision.until > Nanos(now as u64), "it must be worth while");
            assert!(decision.run.is_none_or(|entity| ready.has(entity)), "only ready entities run");
            (until, run, last) = (decision.until, decision.run, *ready);
        }
        run
    };
    ready.iter().enumerate().map(step).collect()
}

/// Readiness that changes at random, of `entities` entities, with entity `always` always ready.
fn changing(entities: u8, always: u8, length: usize) -> impl Strategy<Value = Vec<Ready>> {
    prop::collection::vec((any::<u8>(), 1..30_usize), 1..length).prop_map(move |spans| {
        let all = spans.into_iter().flat_map(|(set, length)| std::iter::repeat_n(set, length));
        let ready = |set: u8| {
            let others = (0..entities).filter(|entity| set >> entity & 1 != 0);
            Ready::of(others.chain([always]))
        };
        all.take(length).map(ready).collect()
    })
}

/// The least time of entity `entity` in any window, for each length.
fn assert_supplied(had: &[Option<u8>], entity: u8, supply: &Supply) {
    let mut sums = vec![0_u64];
    sums.extend(had.iter().scan(0, |sum, run| {
        *sum += u64::from(*run == Some(entity));
        Some(*sum)
    }));
    for length in 0..sums.len() {
        let least = sums.iter().zip(&sums[length..]).map(|(from, to)| to - from).min().unwrap();
        let promised = supply.least(Time(length as u64)).0;
        assert!(least >= promised, "entity {entity} got {least} of {promised} in {length}");
    }
}

/// The time that EL2 takes of the core when another entity gets it: before it asks the schedule,
/// until it asks again, and until the guest goes on.
type Costs = (u64, u64, u64);

/// As [`run`] with a driver that takes time to give the core to another entity: the next of `costs`
/// each time.
fn run_paying(scheduler: &mut Scheduler, ready: &[Ready], costs: &[Costs]) -> Vec<Option<u8>> {
    run_taken(scheduler, ready, costs, 0, &[])
}

/// Runs a round of these quanta. Returns who had the core, and the supply of the first entity; a
/// switch costs at most the first number of `costs`.
fn round(quanta: &[u64], ready: &[Ready], costs: (u64, &[Costs])) -> (Vec<Option<u8>>, Supply) {
    let all: Vec<_> = quanta.iter().map(|quantum| Nanos(*quantum)).collect();
    let mut scheduler = Scheduler::RoundRobin(RoundRobin::new(&all));
    let schedule = VmSchedule::RoundRobin {
        quantum: Time(quanta[0]),
        others: Time(quanta[1..].iter().sum()),
        switch: Time(costs.0),
        vms: quanta.len() as u32,
    };
    (run_paying(&mut scheduler, ready, costs.1), supply(schedule))
}

/// As [`run_paying`] with interrupts of `taker` that take the core at these moments, if it has not
/// got it; one that comes while EL2 is busy is handled after that.
fn run_taken(
    scheduler: &mut Scheduler,
    ready: &[Ready],
    costs: &[Costs],
    taker: u8,
    times: &[u64],
) -> Vec<Option<u8>> {
    let mut times = times.iter().peekable();
    let mut had = Vec::with_capacity(ready.len());
    let (mut until, mut run, mut last) = (Nanos(0), None, Ready::NONE);
    let mut costs = costs.iter().cycle();
    while had.len() < ready.len() {
        let now = |had: &Vec<_>| had.len() as u64;
        let at = |had: &Vec<_>| ready[had.len().min(ready.len() - 1)];
        while times.next_if(|time| **time <= now(&had)).is_some() {
            if run != Some(taker) {
                scheduler.preempt(taker, 128);
                until = Nanos(0);
            }
        }
        if now(&had) >= until.0 || at(&had) != last {
            let wanted = scheduler.clone().step(Nanos(now(&had)), at(&had)).run;
            if wanted == run {
                last = at(&had);
                until = scheduler.step(Nanos(now(&had)), last).until;
            } else {
                let (entry, leave, enter) = *costs.next().unwrap();
                had.resize(had.len() + entry as usize, None);
                let decided = scheduler.step(Nanos(now(&had)), at(&had)).run;
                // It may have become its own again.
                if decided != run {
                    had.resize(had.len() + leave as usize, None);
                }
                last = at(&had);
                let decision = scheduler.step(Nanos(now(&had)), last);
                until = decision.until;
                if decision.run != run && decision.run.is_some() {
                    had.resize(had.len() + enter as usize, None);
                    scheduler.entered(Nanos(now(&had)));
                }
                run = decision.run;
            }
        }
        had.push(run);
    }
    had.truncate(ready.len());
    had
}

/// Costs of switches, which are `most` altogether at the most, and the `most`.
fn costs() -> impl Strategy<Value = (u64, Vec<Costs>)> {
    (0..4_u64, prop::collection::vec((0..4_u64, 0..4_u64, 0..4_u64), 1..20)).prop_map(
        |(most, all)| {
            let limited = |(entry, leave, enter): Costs| {
                let entry = entry.min(most);
                let leave = leave.min(most - entry);
                (entry, leave, enter.min(most - entry - leave))
            };
            (most, all.into_iter().map(limited).collect())
        },
    )
}

/// Checks that entity `entity`, from when it gets ready, has the core within the shortest window
/// with any supply, if it stays ready so long: what a receiver's packet waits for.
fn assert_back(had: &[Option<u8>], ready: &[Ready], entity: u8, supply: &Supply) {
    let Some(window) = supply.window_for(Time(1)) else { return };
    for wakes in 1..ready.len() {
        if ready[wakes - 1].has(entity) || !ready[wakes].has(entity) {
            continue;
        }
        let end = wakes.saturating_add(usize::try_from(window.0).expect("a short window"));
        let Some(until) = (wakes..end)
            .find(|&now| now >= ready.len() || !ready[now].has(entity) || had[now] == Some(entity))
        else {
            panic!("entity {entity} is away from {wakes} to {end}")
        };
        assert!(until < end);
    }
}

fn supply(schedule: VmSchedule) -> Supply {
    Supply::new(schedule, vec![]).unwrap()
}

proptest! {
    #[test]
    fn round_robin_keeps_its_supply_and_wastes_nothing(
        quanta in prop::collection::vec(1..20_u64, 1..5), ready in changing(4, 0, 300),
    ) {
        let mut scheduler = Scheduler::RoundRobin(RoundRobin::new(
            &quanta.iter().map(|q| Nanos(*q)).collect::<Vec<_>>(),
        ));
        let had = run(&mut scheduler, &ready);
        let others = quanta[1..].iter().sum();
        assert_supplied(
            &had,
            0,
            &supply(VmSchedule::RoundRobin {
                quantum: Time(quanta[0]),
                others: Time(others),
                switch: Time(0),
                vms: quanta.len() as u32,
            }),
        );
        prop_assert!(had.iter().all(Option::is_some), "one was always ready");
    }

    #[test]
    fn nobody_starves_in_a_round(
        quanta in prop::collection::vec(1..9_u64, 1..9), rounds in 1..5_usize,
    ) {
        let round = quanta.iter().sum::<u64>() as usize;
        let ready = vec![Ready::of(0..quanta.len() as u8); round * rounds];
        let mut scheduler = Scheduler::RoundRobin(RoundRobin::new(
            &quanta.iter().map(|q| Nanos(*q)).collect::<Vec<_>>(),
        ));
        let had = run(&mut scheduler, &ready);
        for (entity, quantum) in quanta.iter().enumerate() {
            let got = had.iter().filter(|run| **run == Some(entity as u8)).count();
            prop_assert_eq!(got, *quantum as usize * rounds);
        }
    }

    #[test]
    fn a_table_supplies_its_slots_and_nothing_else(
        frame in 1..40_u64, cuts in prop::collection::vec((0..40_u64, 0..3_u8), 0..10),
        ready in changing(3, 1, 200),
    ) {
        let mut cuts: Vec<_> =
            cuts.into_iter().map(|(cut, entity)| (cut % (frame + 1), entity)).collect();
        cuts.sort_unstable();
        let slots: Vec<_> = cuts
            .chunks_exact(2)
            .map(|c| Slot { entity: c[0].1, start: Nanos(c[0].0), length: Nanos(c[1].0 - c[0].0) })
            .collect();
        let had = run(&mut Scheduler::Table(TimeTable::new(Nanos(frame), &slots)), &ready);
        for (now, run) in had.iter().enumerate() {
            let at = now as u64 % frame;
            let slot = slots.iter().find(|s| (s.start.0..s.start.0 + s.length.0).contains(&at));
            let expected = slot.map(|slot| slot.entity).filter(|entity| ready[now].has(*entity));
            prop_assert_eq!(*run, expected, "at {}", now);
        }
        let own = slots.iter().filter(|slot| slot.entity == 1);
        let slots = own.map(|slot| (Time(slot.start.0), Time(slot.length.0))).collect();
        assert_supplied(
            &had,
            1,
            &supply(VmSchedule::Table { frame: Time(frame), slots, switch: Time(0) }),
        );
    }

    #[test]
    fn servers_that_hold_supply_their_budgets(
        servers in prop::collection::vec((1..12_u64, 0..40_u64), 1..4), entity in 0..3_u8,
        ready in changing(3, 0, 400),
    ) {
        let entity = entity % servers.len() as u8;
        let ready: Vec<_> = ready.into_iter().map(|set| set.with(entity)).collect();
        let servers: Vec<_> =
            servers.into_iter().map(|(budget, gap)| (budget, budget + gap)).collect();
        let times: Vec<_> = servers.iter().map(|(q, p)| (Time(*q), Time(*p))).collect();
        prop_assume!(servers_hold(&times, &Switching::default()));
        let all: Vec<_> = servers.iter().map(|(q, p)| (Nanos(*q), Nanos(*p))).collect();
        let had = run(&mut Scheduler::Servers(Servers::new(&all)), &ready);
        let (budget, period) = times[usize::from(entity)];
        assert_supplied(
            &had,
            entity,
            &supply(VmSchedule::Server { budget, period, switch: Time(0) }),
        );
        for (place, (budget, period)) in servers.iter().enumerate() {
            for window in had.chunks(*period as usize) {
                let got = window.iter().filter(|run| **run == Some(place as u8)).count() as u64;
                prop_assert!(got <= *budget, "server {} got {} of {}", place, got, budget);
            }
        }
    }

    #[test]
    fn a_round_supplies_what_switches_leave(
        quanta in prop::collection::vec(4..24_u64, 2..5), ready in changing(4, 0, 500),
        (most, costs) in costs(),
    ) {
        let (had, supply) = round(&quanta, &ready, (most, &costs));
        assert_supplied(&had, 0, &supply);
    }

    #[test]
    fn an_entity_that_wakes_is_back_in_its_round(
        quanta in prop::collection::vec(4..24_u64, 2..5), ready in changing(4, 3, 500),
        (most, costs) in costs(),
    ) {
        let (had, supply) = round(&quanta, &ready, (most, &costs));
        assert_back(&had, &ready, 0, &supply);
    }

    #[test]
    fn an_entity_that_wakes_is_back_in_its_slot(
        gaps in prop::collection::vec((0..9_u64, 8..20_u64, 0..3_u8), 1..5),
        ready in changing(3, 0, 300), (most, costs) in costs(),
    ) {
        let mut end = 0;
        let slot = |(gap, length, entity): (u64, u64, u8)| {
            let start = end + gap;
            end = start + length;
            Slot { entity, start: Nanos(start), length: Nanos(length) }
        };
        let slots: Vec<_> = gaps.into_iter().map(slot).collect();
        let mut table = Scheduler::Table(TimeTable::new(Nanos(end), &slots));
        let had = run_paying(&mut table, &ready, &costs);
        let own = slots.iter().filter(|slot| slot.entity == 1);
        let slots = own.map(|slot| (Time(slot.start.0), Time(slot.length.0))).collect();
        let schedule = VmSchedule::Table { frame: Time(end), slots, switch: Time(most) };
        assert_back(&had, &ready, 1, &supply(schedule));
    }

    #[test]
    fn preempting_interrupts_keep_the_published_delay(
        quantum in 4..14_u64, vms in 2..5_u8, victim in 0..3_u8,
        times in prop::collection::vec(0..160_u64, 0..6), (most, costs) in costs(),
    ) {
        let victim = victim % (vms - 1);
        let ready = vec![Ready::of(0..vms); 400];
        let quanta = vec![Nanos(quantum); vms.into()];
        let times: Vec<_> = {
            let mut times = times;
            times.sort_unstable();
            times
        };
        let mut round = Scheduler::RoundRobin(RoundRobin::new(&quanta));
        let had = run_taken(&mut round, &ready, &costs, vms - 1, &times);
        let supply = supply(VmSchedule::RoundRobin {
            quantum: Time(quantum),
            others: Time(quantum * u64::from(vms - 1)),
            switch: Time(most),
            vms: vms.into(),
        });
        let late = put_off(Time(quantum), Time(most), vms.into()).0;
        for start in (0..300).step_by(3) {
            let (mut got, mut came) = (
                0,
                times.iter().filter(|time| (**time..**time + most).contains(&start)).count() as u64,
            );
            for now in start..400 {
                let t = now - start;
                let least = supply.least(Time(t.saturating_sub(late * came))).0;
                prop_assert!(got >= least, "{got} of {t} from {start}, at least {least}");
                got += u64::from(had[now as usize] == Some(victim));
                came += times.iter().filter(|time| **time == now).count() as u64;
            }
        }
    }

    /// Also where the entity sleeps until some time in its slot: then from when it wakes.
    #[test]
    fn a_table_supplies_what_switches_leave(
        gaps in prop::collection::vec((0..9_u64, 4..20_u64, 0..3_u8), 1..5),
        ready in changing(3, 1, 300), (most, costs) in costs(), wakes in 0..100_usize,
    ) {
        let mut end = 0;
        let slot = |(gap, length, entity): (u64, u64, u8)| {
            let start = end + gap;
            end = start + length;
            Slot { entity, start: Nanos(start), length: Nanos(length) }
        };
        let slots: Vec<_> = gaps.into_iter().map(slot).collect();
        let mut table = Scheduler::Table(TimeTable::new(Nanos(end), &slots));
        let wakes = wakes.min(ready.len());
        let awake = |(now, ready): (usize, &Ready)| {
            let others = Ready::of([0, 2].into_iter().filter(|entity| ready.has(*entity)));
            if now < wakes { others } else { *ready }
        };
        let ready: Vec<_> = ready.iter().enumerate().map(awake).collect();
        let had = run_paying(&mut table, &ready, &costs);
        let own = slots.iter().filter(|slot| slot.entity == 1);
        let slots = own.map(|slot| (Time(slot.start.0), Time(slot.length.0))).collect();
        let schedule = VmSchedule::Table { frame: Time(end), slots, switch: Time(most) };
        assert_supplied(&had[wakes..], 1, &supply(schedule));
    }

    #[test]
    fn servers_that_hold_supply_what_switches_leave(
        servers in prop::collection::vec((8..40_u64, 0..80_u64, 0..3_u8), 1..4), entity in 0..3_u8,
        ready in changing(3, 0, 900), (most, costs) in costs(), wakes in 0..100_usize,
    ) {
        let entity = entity % servers.len() as u8;
        let wakes = wakes.min(ready.len());
        let awake = |(now, ready): (usize, &Ready)| {
            let others = Ready::of((0..3).filter(|other| *other != entity && ready.has(*other)));
            if now < wakes { others } else { others.with(entity) }
        };
        let ready: Vec<_> = ready.iter().enumerate().map(awake).collect();
        // Of all kinds: in step, half in step, and not.
        let period = |budget, gap, kind| match kind {
            0 => budget + gap,
            1 => 60_u64.max(budget),
            _ => 120,
        };
        let servers: Vec<_> = servers
            .into_iter()
            .map(|(budget, gap, kind)| (budget, period(budget, gap, kind)))
            .collect();
        let times: Vec<_> = servers.iter().map(|(q, p)| (Time(*q), Time(*p))).collect();
        let least = costs.iter().map(|(entry, leave, enter)| entry + leave + enter).min().unwrap();
        let entry = costs.iter().map(|(entry, ..)| *entry).max().unwrap();
        let switching = Switching { most: Time(most), least: Time(least), entry: Time(entry) };
        prop_assume!(servers_hold(&times, &switching));
        let all: Vec<_> = servers.iter().map(|(q, p)| (Nanos(*q), Nanos(*p))).collect();
        let had = run_paying(&mut Scheduler::Servers(Servers::new(&all)), &ready, &costs);
        let budget = left_of_budget(&times, entity.into(), &switching);
        let period = times[usize::from(entity)].1;
        let schedule = VmSchedule::Server { budget, period, switch: Time(most) };
        assert_supplied(&had[wakes..], entity, &supply(schedule.clone()));
        assert_back(&had, &ready, entity, &supply(schedule));
    }

    /// The most urgent entity with a budget runs, and the core idles only when no one that is ready
    /// has any.
    #[test]
    fn budgets_are_spent_by_priority(
        servers in prop::collection::vec((1..8_u64, 1..10_u64), 1..4), ready in changing(3, 0, 200),
    ) {
        let servers: Vec<_> =
            servers.into_iter().map(|(budget, gap)| (budget, budget + gap)).collect();
        let all: Vec<_> = servers.iter().map(|(q, p)| (Nanos(*q), Nanos(*p))).collect();
        let had = run(&mut Scheduler::Servers(Servers::new(&all)), &ready);
        let mut left: Vec<u64> = vec![0; servers.len()];
        for (now, run) in had.iter().enumerate() {
            for (left, (budget, period)) in left.iter_mut().zip(&servers) {
                if (now as u64).is_multiple_of(*period) {
                    *left = *budget;
                }
            }
            let best = (0..servers.len()).find(|p| left[*p] > 0 && ready[now].has(*p as u8));
            prop_assert_eq!(*run, best.map(|entity| entity as u8), "at {}", now);
            if let Some(best) = best {
                left[best] -= 1;
            }
        }
    }

    /// A driver that comes late gives no more than that in the long run.
    #[test]
    fn a_server_overrun_reduces_its_next_budget(
        budget in 1..10_u64, gap in 1..20_u64, lates in prop::collection::vec(0..90_u64, 1..40),
    ) {
        let period = budget + gap;
        let mut scheduler =
            Scheduler::Servers(Servers::new(&[(Nanos(budget), Nanos(period))]));
        let (mut now, mut got) = (0, 0);
        for late in lates {
            let decision = scheduler.step(Nanos(now), Ready::of([0]));
            let next = decision.until.0 + late;
            if decision.run == Some(0) {
                got += next - now;
            }
            now = next;
            prop_assert!(got <= (now / period + 1) * budget + 89, "{got} in {now}");
        }
    }

    #[test]
    fn what_is_charged_to_a_server_comes_off_its_budget(budget in 5..50_u64, charge in 1..5_u64) {
        let servers = [(Nanos(10), Nanos(100)), (Nanos(budget), Nanos(100))];
        let mut scheduler = Scheduler::Servers(Servers::new(&servers));
        let both = Ready::of([0, 1]);
        prop_assert_eq!(scheduler.step(Nanos(0), both).run, Some(0));
        scheduler.charge(1, Nanos(charge));
        let first = scheduler.step(Nanos(10), both);
        prop_assert_eq!((first.run, first.until.0), (Some(0), 10 + charge));
        let second = scheduler.step(first.until, both);
        prop_assert_eq!((second.run, second.until.0), (Some(1), 10 + budget));
    }

    #[test]
    fn a_server_pays_for_the_way_back_to_whom_it_kept_off(enter in 0..5_u64) {
        let servers = [(Nanos(10), Nanos(100)), (Nanos(50), Nanos(100))];
        let mut scheduler = Scheduler::Servers(Servers::new(&servers));
        let second = scheduler.step(Nanos(0), Ready::of([1]));
        prop_assert_eq!(second.run, Some(1));
        scheduler.entered(Nanos(0));
        prop_assert_eq!(scheduler.step(Nanos(5), Ready::of([0, 1])).run, Some(0));
        scheduler.entered(Nanos(5 + enter));
        prop_assert_eq!(scheduler.step(Nanos(11), Ready::of([1])).run, Some(1));
        scheduler.entered(Nanos(11 + enter));
        // The first has had 6 and the way back, the second 5 and what it has had since.
        let first = scheduler.step(Nanos(20), Ready::of([0, 1]));
        prop_assert_eq!(
            (first.run, first.until),
            (
                if enter < 4 { Some(0) } else { Some(1) },
                Nanos(if enter < 4 { 24 - enter } else { 56 + enter })
            )
        );
        // Idle time is charged to no entity; an entity that comes onto an idle core pays for its
        // own switch.
        scheduler.step(Nanos(21), Ready::NONE);
        scheduler.step(Nanos(30), Ready::of([1]));
        scheduler.entered(Nanos(33));
        prop_assert_eq!(scheduler.step(Nanos(40), Ready::of([1])).run, Some(1));
    }

    #[test]
    fn what_is_charged_in_a_round_is_moved(
        quantum in 10..100_u64, time in 0..5_u64, late in 0..3_u64,
    ) {
        let mut scheduler = Scheduler::RoundRobin(RoundRobin::new(&[Nanos(quantum); 2]));
        let both = Ready::of([0, 1]);
        let first = scheduler.step(Nanos(0), both);
        prop_assert_eq!(first.run, Some(0));
        scheduler.charge(1, Nanos(time));
        let first = scheduler.step(Nanos(1), both);
        prop_assert_eq!(first.until.0, quantum + time);
        let begun = first.until.0 + late;
        prop_assert_eq!(scheduler.step(Nanos(begun), both).until.0, begun + quantum - time);
    }

    #[test]
    fn the_preempting_vm_keeps_the_rest_of_the_slot(
        quantum in 2..50_u64, at in 0..50_u64, table: bool,
    ) {
        let at = at % quantum;
        let slots = [0, 1].map(|entity| Slot {
            entity,
            start: Nanos(u64::from(entity) * quantum),
            length: Nanos(quantum),
        });
        let mut scheduler = if table {
            Scheduler::Table(TimeTable::new(Nanos(2 * quantum), &slots))
        } else {
            Scheduler::RoundRobin(RoundRobin::new(&[Nanos(quantum); 2]))
        };
        let both = Ready::of([0, 1]);
        prop_assert_eq!(scheduler.step(Nanos(0), both).run, Some(0));
        scheduler.preempt(1, 128);
        let taken = scheduler.step(Nanos(at), both);
        prop_assert_eq!((taken.run, taken.until.0), (Some(1), quantum));
        let again = scheduler.step(Nanos(at), both);
        prop_assert_eq!(again, taken);
        // In a table the next slot is its own; in a round the other is next (mobivmm, V-B).
        let next = scheduler.step(taken.until, both).run;
        prop_assert_eq!(next, Some(u8::from(table)));
    }

    #[test]
    fn no_less_urgent_interrupt_preempts_an_urgent_one(first: u8, second: u8, table: bool) {
        let slots = [
            Slot { entity: 0, start: Nanos(0), length: Nanos(10) },
            Slot { entity: 0, start: Nanos(10), length: Nanos(10) },
        ];
        let mut scheduler = if table {
            Scheduler::Table(TimeTable::new(Nanos(20), &slots))
        } else {
            Scheduler::RoundRobin(RoundRobin::new(&[Nanos(10); 3]))
        };
        let all = Ready::of([0, 1, 2]);
        prop_assert_eq!(scheduler.step(Nanos(0), all).run, Some(0));
        prop_assert!(scheduler.may_take(u8::MAX));
        scheduler.preempt(1, first);
        // Whether or not the schedule was asked in between.
        if second % 2 == 0 {
            prop_assert_eq!(scheduler.step(Nanos(1), all).run, Some(1));
        }
        prop_assert_eq!(scheduler.may_take(second), second <= first);
        scheduler.preempt(2, second);
        prop_assert_eq!(
            scheduler.step(Nanos(2), all).run,
            Some(if second <= first { 2 } else { 1 })
        );
        // The next time slice or slot is not preempted yet.
        scheduler.step(Nanos(10), all);
        prop_assert!(scheduler.may_take(u8::MAX));
    }

    #[test]
    fn a_bucket_admits_what_the_analysis_takes_it_to(
        burst in 1..6_u64, interval in 1..30_u64, gaps in prop::collection::vec(0..40_u64, 1..80),
    ) {
        let mut bucket = TokenBucket::new(burst, Nanos(interval));
        let (mut now, mut admitted) = (1000, Vec::new());
        for gap in gaps {
            now += gap;
            let credit = bucket.credit();
            match bucket.admit(Nanos(now)) {
                Ok(()) => {
                    prop_assert!(credit.0 <= now);
                    admitted.push(now);
                }
                Err(at) => {
                    prop_assert!(at.0 > now && at == credit);
                    let mut then = bucket;
                    prop_assert!(then.admit(Nanos(at.0 - 1)).is_err());
                    prop_assert!(then.admit(at).is_ok());
                }
            }
        }
        // As `Supply::least` counts them.
        for (first, from) in admitted.iter().enumerate() {
            for (count, to) in admitted[first..].iter().enumerate() {
                prop_assert!((count as u64) < burst + (to - from) / interval);
            }
        }
    }

    #[test]
    fn nothing_panics_whatever_it_is_told(
        numbers in prop::collection::vec(any::<u64>(), 0..12),
        steps in prop::collection::vec((any::<u64>(), any::<u8>(), 0..4), 0..40), kind in 0..3,
    ) {
        let pairs: Vec<_> = numbers.iter().map(|n| (Nanos(*n), Nanos(n.rotate_left(20)))).collect();
        let mut scheduler = match kind {
            0 => Scheduler::RoundRobin(RoundRobin::new(
                &numbers.iter().map(|n| Nanos(*n)).collect::<Vec<_>>(),
            )),
            1 => Scheduler::Servers(Servers::new(&pairs)),
            _ => {
                let slot = |&(start, length): &(Nanos, Nanos)| Slot {
                    entity: start.0 as u8,
                    start,
                    length,
                };
                Scheduler::Table(TimeTable::new(
                    Nanos(numbers.iter().fold(0, |sum, n| n.wrapping_add(sum))),
                    &pairs.iter().map(slot).collect::<Vec<_>>(),
                ))
            }
        };
        let mut bucket =
            TokenBucket::new(numbers.first().copied().unwrap_or(0), Nanos(numbers.len() as u64));
        for (now, set, act) in steps {
            let ready = Ready::of((0..8).filter(|entity| set >> entity & 1 != 0));
            match act {
                0 => scheduler.preempt(set, now as u8),
                1 => scheduler.charge(set, Nanos(now)),
                2 if set > 200 => scheduler.entered(Nanos(now)),
                _ => {
                    let run = scheduler.step(Nanos(now), ready).run;
                    prop_assert!(run.is_none_or(|entity| ready.has(entity)));
                }
            }
            let _ = bucket.admit(Nanos(now));
        }
    }
}
