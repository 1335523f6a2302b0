//! The search against trying everything.

use super::budgets::of_best_effort;
use super::conflict;
use super::judge::Standard;
use super::needs::Ranges;
use super::plan::search;
use super::problem::demands;
use super::{
    Conflict, Demand, Judge, Moved, Plan, Platform, Refusal, Shape, Share, Shortage, System,
    Unsure, Vm, check, plan, plan_by, shortages,
};
use crate::flows::{Effort, Flow, Overheads, Reading, Setting};
use crate::memory::{CriticalTask, SaturationPoint, SaturationTable};
use crate::units::{Bytes, BytesPerSec, Events, Nanos};

const EFFORT: Effort = Effort(1 << 20);

fn small_system(r: &mut fastrand::Rng) -> System {
    let vms: Vec<Vm> = (0..r.usize(2..=3))
        .map(|i| Vm {
            best_effort: i > 0 && r.u8(0..3) == 0,
            working_set: Bytes(r.u64(0..100)),
            memory: Bytes(r.u64(1..90)),
            bandwidth: BytesPerSec(r.u64(0..4) * 2_000_000),
            critical: (r.u8(0..4) == 0).then(|| {
                let task = CriticalTask {
                    alone: Nanos(r.u64(1000..50_000)),
                    accesses: r.u64(0..200),
                    delay: Nanos(r.u64(1..200)),
                    per_access: r.bool().then_some(1),
                };
                (task, Nanos(r.u64(30_000..200_000)))
            }),
            given: (r.u8(0..5) == 0).then(|| r.u64(1..6)),
            shape: Shape { least: r.u64(0..3), ..Shape::default() },
        })
        .collect();
    let flows = (0..r.usize(0..3))
        .map(|_| {
            let from = r.u32(0..vms.len() as u32);
            let period = Nanos(r.u64(60_000..600_000));
            let to = (from + 1) % vms.len() as u32;
            Flow { size: Bytes(r.u64(1..9000)), period, deadline: period, from, to }
        })
        .collect();
    let points = (0..r.usize(1..5))
        .map(|_| SaturationPoint {
            total_budget: r.u64(4..13),
            dma: BytesPerSec(r.u64(2..14) * 60_000_000),
        })
        .collect();
    System {
        platform: Platform {
            colors: r.u32(3..6),
            color_bytes: Bytes(64),
            banks: r.u32(3..6),
            bank_bytes: Bytes(64),
            line: Bytes(64),
            min_accesses: r.u64(0..3),
            saturation: SaturationTable::new(Nanos(30_000), points).unwrap(),
            chunks: vec![
                (Bytes(1024), BytesPerSec(500_000_000)),
                (Bytes(4096), BytesPerSec(700_000_000)),
                (Bytes(8192), BytesPerSec(800_000_000)),
            ],
            overshoot: Events(r.u64(0..2)),
            banks_are_colors: false,
        },
        vms,
        flows,
        overheads: Overheads::RT_VIRTIO,
        setting: Setting { chunk: Bytes(1), queues: None, reading: Reading::Printed },
        dma: (r.u8(0..5) == 0).then(|| BytesPerSec(r.u64(1..6) * 60_000_000)),
        best_effort_flows: r.u8(0..4) == 0,
    }
}

/// Every division of colors and banks, every budget, every chunk and every DMA bandwidth at which
/// the table or a flow set changes: the most that best effort can get, by `check` alone.
fn exhaustive(system: &System) -> Option<u64> {
    let n = system.vms.len();
    let p = &system.platform;
    let divisions = |most: u32| -> Vec<Ranges> {
        // Own ranges in order, best effort at the end and together.
        let mut all = vec![vec![]];
        for vm in &system.vms {
            all = all
                .into_iter()
                .flat_map(|counts: Vec<u32>| {
                    let range = if vm.best_effort { 0..=0 } else { 1..=most };
                    range.map(move |c| [counts.clone(), vec![c]].concat())
                })
                .filter(|counts| counts.iter().sum::<u32>() <= most)
                .collect();
        }
        all.into_iter()
            .map(|counts| {
                let used: u32 = counts.iter().sum();
                let mut next = 0;
                counts
                    .iter()
                    .zip(&system.vms)
                    .map(|(&c, vm)| {
                        let first = next;
                        next += c;
                        if vm.best_effort { (used, most - used) } else { (first, c) }
                    })
                    .collect()
            })
            .collect()
    };
    let top = p.saturation.points().iter().map(|x| x.total_budget).max().unwrap();
    let mut dmas: Vec<BytesPerSec> = p.saturation.points().iter().map(|x| x.dma).collect();
    dmas.push(BytesPerSec(0));
    dmas.extend(system.dma);
    let mut chunks: Vec<Option<Bytes>> = vec![None];
    if !system.flows.is_empty() {
        chunks = p.chunks.iter().map(|c| Some(c.0)).collect();
        let all: Vec<usize> = (0..system.flows.len()).collect();
        dmas.extend(
            p.chunks
                .iter()
                .filter_map(|c| Standard { system, effort: EFFORT }.least_dma(&all, c.0).unwrap()),
        );
    }
    // The parts of a plan are independent but for budgets and DMA bandwidth: find one division that
    // has no fault of its own, then run through the rest.
    let mut best = None;
    let divisions: Vec<(Ranges, Ranges)> = divisions(p.colors)
        .into_iter()
        .flat_map(|c| divisions(p.banks).into_iter().map(move |b| (c.clone(), b)))
        .collect();
    let generous = |shares: &(Ranges, Ranges)| {
        let plan = Plan {
            shares: (0..n)
                .map(|i| Share { colors: shares.0[i], banks: shares.1[i], budget: 1 << 20 })
                .collect(),
            chunk: None,
            dma: system.dma.unwrap_or(BytesPerSec(1)),
            best_effort: 0,
        };
        let faults = check(system, &plan, EFFORT);
        // One fault is the saturation by these budgets, and one each a budget that is not the given
        // one; flows and tasks are judged below.
        let given = system.vms.iter().filter(|vm| vm.given.is_some()).count();
        faults.iter().filter(|f| f.is_none()).count() == 1 + given
            && !faults.iter().any(|f| matches!(f, Some(Demand::WorkingSet(_) | Demand::Memory(_))))
    };
    let (colors, banks) = divisions.into_iter().find(generous)?;
    let mut budgets = vec![0u64; n];
    'budgets: loop {
        for &chunk in &chunks {
            for &dma in &dmas {
                let plan = Plan {
                    shares: (0..n)
                        .map(|i| Share { colors: colors[i], banks: banks[i], budget: budgets[i] })
                        .collect(),
                    chunk,
                    dma,
                    best_effort: of_best_effort(system, &budgets),
                };
                if best.is_none_or(|b| plan.best_effort > b)
                    && check(system, &plan, EFFORT).is_empty()
                {
                    best = Some(plan.best_effort);
                }
            }
        }
        for b in &mut budgets {
            *b += 1;
            if *b <= top {
                continue 'budgets;
            }
            *b = 0;
        }
        return best;
    }
}

#[test]
fn as_good_as_trying_everything() {
    let systems = if cfg!(debug_assertions) { 40 } else { 1000 };
    let mut r = fastrand::Rng::with_seed(5);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..systems {
        let system = small_system(&mut r);
        let expected = exhaustive(&system);
        match plan(&system, EFFORT) {
            Ok(plan) => {
                planned += 1;
                assert_eq!(check(&system, &plan, EFFORT), vec![], "{system:?} {plan:?}");
                assert_eq!(Some(plan.best_effort), expected, "{system:?} {plan:?}");
            }
            Err(Refusal::GaveUp) => panic!("{system:?}"),
            Err(Refusal::Conflict(conflict)) => {
                refused += 1;
                assert_eq!(expected, None, "{system:?} {conflict:?}");
                assert_conflict(&system, &conflict);
            }
        }
    }
    assert!(planned * 5 > systems && refused * 5 > systems, "{planned} {refused}");
}

/// The demands conflict, and without any one of them they have a plan, by the search for plans,
/// which shares no step with that for conflicts. A shortage is named.
fn assert_conflict(system: &System, conflict: &Conflict) {
    let judge = Standard { system, effort: EFFORT };
    assert_eq!(search(system, &conflict.demands, &judge), Ok(None));
    assert!(conflict.minimal);
    let all = demands(system);
    for mask in 0u32..1 << all.len() {
        let subset: Vec<Demand> =
            (0..all.len()).filter(|i| mask >> i & 1 == 1).map(|i| all[i]).collect();
        let feasible = search(system, &subset, &judge).unwrap().is_some();
        assert_eq!(
            conflict::feasible(&[system], &subset, &judge),
            Ok(feasible),
            "{subset:?} {system:?}"
        );
        if subset != conflict.demands && subset.iter().all(|one| conflict.demands.contains(one)) {
            assert!(feasible, "{subset:?} {conflict:?}");
        }
    }
    let short = shortages(system, &conflict.demands, &judge);
    assert!(!short.is_empty(), "{conflict:?} {system:?}");
    for shortage in short {
        match shortage {
            Shortage::Colors { asked, have }
            | Shortage::Banks { asked, have }
            | Shortage::Given { asked, have, .. }
            | Shortage::Budgets { asked, have } => assert!(asked > have, "{asked} {have}"),
            Shortage::Dma { asked, have, .. } => {
                assert!(asked.is_none_or(|asked| asked > have), "{asked:?} {have:?}");
            }
            Shortage::Task { vm, budgets, moved } => {
                assert_eq!(judge.task_holds(vm, &budgets, &moved), Ok(false));
            }
        }
    }
}

/// So many flows that sets of demands can't be tried one by one.
#[test]
fn a_minimal_conflict_among_hundreds_is_found() {
    let mut system = small_system(&mut fastrand::Rng::with_seed(3));
    let flow = |period: u64| Flow {
        size: Bytes(1024),
        period: Nanos(period),
        deadline: Nanos(period),
        from: 0,
        to: 1,
    };
    system.vms.iter_mut().for_each(|vm| {
        *vm = Vm {
            working_set: Bytes(0),
            memory: Bytes(0),
            bandwidth: BytesPerSec(0),
            critical: None,
            given: None,
            shape: Shape::default(),
            ..vm.clone()
        };
    });
    system.platform.min_accesses = 0;
    system.platform.saturation = SaturationTable::rt_virtio();
    system.dma = None;
    system.setting.queues = Some(1);
    // Jitter grows with the number of a sender's flows, and these have time.
    system.flows = (0..150).map(|i| flow(900_000_000 + 1000 * i)).collect();
    assert!(plan(&system, EFFORT).is_ok());
    // Each of the three takes 40 % of the time, with overheads.
    system.flows.extend([22_000, 22_001, 22_002].map(|period| Flow {
        from: 2,
        deadline: Nanos(200_000),
        ..flow(period)
    }));
    let Err(Refusal::Conflict(conflict)) = plan(&system, EFFORT) else {
        panic!("three flows of 40 % have a plan");
    };
    assert_eq!(conflict.demands, [150, 151, 152].map(Demand::Flow), "{conflict:?}");
    assert!(conflict.minimal, "{conflict:?}");
}

/// Tasks that hold if their VM's budget is at least `.0` and `.1` eighths of all others, and at
/// most `.2`.
struct Waiting(Vec<Option<(u64, u64, u64)>>);

impl Waiting {
    fn holds(&self, vm: usize, budgets: &[u64]) -> bool {
        let others = budgets.iter().sum::<u64>() - budgets[vm];
        self.0[vm].is_none_or(|(least, eighths, most)| {
            8 * budgets[vm] >= 8 * least + eighths * others && budgets[vm] <= most
        })
    }
}

impl Judge for Waiting {
    fn least_dma(&self, _: &[usize], _: Bytes) -> Result<Option<BytesPerSec>, Unsure> {
        Ok(None)
    }

    fn flows_hold(&self, _: &[usize], _: Bytes, _: BytesPerSec) -> Result<bool, Unsure> {
        Ok(false)
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], _: &Moved) -> Result<bool, Unsure> {
        Ok(self.holds(vm, budgets))
    }
}

/// Of all budgets in which tasks wait for their own and still hold, best effort gets the most and
/// the others the least.
#[test]
fn budgets_for_waiting_tasks_match_brute_force() {
    let mut r = fastrand::Rng::with_seed(9);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..400 {
        let total = r.u64(4..16);
        let mut system = small_system(&mut r);
        (system.flows, system.dma, system.best_effort_flows) = (Vec::new(), None, false);
        (system.platform.colors, system.platform.banks) = (4, 4);
        system.platform.saturation = {
            let point = SaturationPoint { total_budget: total, dma: BytesPerSec(0) };
            SaturationTable::new(Nanos(30_000), vec![point]).unwrap()
        };
        let end = system.vms.len() - 1;
        let mut needs = Vec::new();
        for (i, vm) in system.vms.iter_mut().enumerate() {
            vm.best_effort = i == end;
            (vm.working_set, vm.memory, vm.bandwidth) = (Bytes(0), Bytes(0), BytesPerSec(0));
            let critical = i < end && r.u8(0..4) > 0;
            let task =
                CriticalTask { alone: Nanos(1), accesses: 0, delay: Nanos(0), per_access: None };
            vm.critical = critical.then_some((task, Nanos(1)));
            vm.shape.most = r.u64(4..16);
            vm.shape.step = r.u64(1..3);
            vm.shape.siblings = r.bool();
            let most = if vm.shape.siblings { r.u64(2..12) } else { u64::MAX };
            needs.push(critical.then(|| (r.u64(0..5), r.u64(0..9), most)));
        }
        let judge = Waiting(needs);
        let fits = |budgets: &[u64]| {
            budgets.iter().sum::<u64>() <= total
                && budgets.iter().zip(&system.vms).enumerate().all(|(i, (budget, vm))| {
                    let shape = vm.shape;
                    let least = system.platform.min_accesses.max(shape.least);
                    let least = least.next_multiple_of(shape.step);
                    let whole = budget.is_multiple_of(shape.step);
                    // What is needed at least may be more than the cores can make.
                    let chosen = *budget >= least && whole && *budget <= shape.most.max(least);
                    vm.given.map_or(chosen, |given| *budget == given) && judge.holds(i, budgets)
                })
        };
        let mut best: Option<(u64, std::cmp::Reverse<u64>)> = None;
        let n = system.vms.len();
        for code in 0..(total + 1).pow(n as u32) {
            let budgets: Vec<u64> =
                (0..n).map(|i| code / (total + 1).pow(i as u32) % (total + 1)).collect();
            if fits(&budgets) {
                let all = budgets.iter().sum::<u64>();
                best = best.max(Some((budgets[end], std::cmp::Reverse(all))));
            }
        }
        match plan_by(&[&system], &judge) {
            Ok((_, plan)) => {
                planned += 1;
                let budgets: Vec<u64> = plan.shares.iter().map(|share| share.budget).collect();
                assert!(fits(&budgets), "{system:?} {budgets:?}");
                let found = (budgets[end], std::cmp::Reverse(budgets.iter().sum::<u64>()));
                assert_eq!(Some(found), best, "{system:?} {budgets:?}");
            }
            Err(Refusal::Conflict(conflict)) => {
                refused += 1;
                assert_eq!(best, None, "{system:?} {conflict:?}");
                assert!(!shortages(&system, &conflict.demands, &judge).is_empty());
            }
            Err(Refusal::GaveUp) => panic!("{system:?}"),
        }
    }
    assert!(planned > 60 && refused > 60, "{planned} {refused}");
}
