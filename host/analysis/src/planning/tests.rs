//! The search against trying everything.

use super::{
    problem::{BudgetShape, Demand, Problem, Unsure, VmDemands},
    search::{
        Failed, Judge, PlanSetting, PositionRange, Refusal, SearchShortage, VmResources, attempt,
        search,
    },
};
use crate::flows::{
    Analyzer, Effort, Flow, MinBandwidth, Overheads, Path, Schedulability, TransformedTask,
    transform,
};
use crate::memory::{Budget, Interferer, RegulatorModel, SaturationPoint, SaturationTable};
use crate::time::{CoreInterference, Supply, Task, VmSchedule, response_times};
use crate::units::{Bytes, BytesPerSec, Events, Nanos};

const EFFORT: Effort = Effort(1 << 26);

/// A task that others' memory accesses delay.
#[derive(Clone, Copy, Debug)]
struct CriticalTask {
    alone: Nanos,
    accesses: u64,
    delay: Nanos,
    per_access: Option<u64>,
    deadline: Nanos,
}

/// A problem with flows of the paper's data path and one task per VM.
#[derive(Clone, Debug)]
struct Case {
    problem: Problem,
    flows: Vec<Flow>,
    queues: Option<u32>,
    /// The task of each VM that has one.
    critical: Vec<Option<CriticalTask>>,
    overshoot: Events,
}

fn flow(from: usize, to: usize, size: u64, period: u64) -> Flow {
    let period = Some(Nanos(period));
    Flow { from, to: vec![to], size: Bytes(size), period, deadline: period, ..Flow::default() }
}

impl Case {
    fn tasks(&self, flows: &[usize], chunk: Bytes) -> Option<Vec<TransformedTask>> {
        let flows: Vec<Flow> = flows.iter().map(|&i| self.flows[i].clone()).collect();
        let path = Path { chunk, queues: self.queues, ..Path::paper(Overheads::RT_VIRTIO) };
        transform(&flows, &path).ok()
    }

    fn holds(&self, vm: usize, budgets: &[u64]) -> bool {
        let Some(task) = self.critical[vm] else { return true };
        let others = budgets.iter().enumerate().filter(|(other, _)| *other != vm);
        let interferers = others.map(|(_, &accesses)| Interferer {
            budget: Budget { accesses, period: self.problem.saturation.period() },
            regulation: RegulatorModel::Static,
            overshoot: self.overshoot,
            write_back: true,
            vms: 1,
        });
        let CriticalTask { alone, accesses, delay, per_access, deadline } = task;
        let interference =
            CoreInterference { interferers: interferers.collect(), delay, per_access };
        let (period, accesses) = (Nanos(1 << 40), Some(accesses));
        let job = Task { wcet: alone, period, accesses, ..Task::default() };
        let supply = Supply::new(VmSchedule::Dedicated, vec![]).unwrap();
        let times = response_times(&[job], &supply, Some(&interference), None);
        times[0].is_some_and(|time| time <= deadline)
    }

    fn search(&self) -> Result<PlanSetting, Refusal> {
        let found = search(std::slice::from_ref(&self.problem), self, || {});
        found.map(|(_, setting)| setting)
    }
}

impl Judge for Case {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure> {
        let Some(tasks) = self.tasks(flows, chunk) else { return Ok(None) };
        match Analyzer::new(&tasks, &[]).min_bandwidth(EFFORT) {
            MinBandwidth::Exactly(b) => Ok(Some(b)),
            MinBandwidth::GaveUp { enough, .. } => enough.map(Some).ok_or(Unsure),
            MinBandwidth::Never(_) => Ok(None),
        }
    }

    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure> {
        let Some(tasks) = self.tasks(flows, chunk) else { return Ok(false) };
        match Analyzer::new(&tasks, &[]).verdict(dma, EFFORT) {
            Ok(Schedulability::GaveUp { .. }) => Err(Unsure),
            verdict => Ok(verdict == Ok(Schedulability::Schedulable)),
        }
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], _: BytesPerSec) -> Result<bool, Unsure> {
        Ok(self.holds(vm, budgets))
    }
}

/// The demands that a plan does not meet, and `None` for a rule of the platform that it breaks
/// (overlap, saturation, a budget or a chunk that is not to be had).
fn check(case: &Case, plan: &PlanSetting) -> Vec<Option<Demand>> {
    let problem = &case.problem;
    let mut faults = Vec::new();
    if plan.shares.len() != problem.vms.len() {
        return vec![None];
    }
    let within = |(first, count): (u32, u32), most: u32| {
        first.checked_add(count).is_some_and(|end| end <= most)
    };
    let apart = |a: (u32, u32), b: (u32, u32)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    for (i, (share, vm)) in plan.shares.iter().zip(&problem.vms).enumerate() {
        if !within(share.colors, problem.colors)
            || !within(share.banks, problem.banks)
            || share.colors.1 == 0
        {
            faults.push(None);
            continue;
        }
        for (other, other_vm) in plan.shares.iter().zip(&problem.vms).skip(i + 1) {
            let shared = vm.best_effort && other_vm.best_effort;
            let disjoint = apart(share.colors, other.colors) && apart(share.banks, other.banks);
            if !(shared || disjoint) {
                faults.push(None);
            }
        }
        let chosen_wrong = share.budget < problem.min_accesses.max(vm.shape.least)
            || !share.budget.is_multiple_of(vm.shape.step.max(1));
        if vm.given.map_or(chosen_wrong, |given| share.budget != given) {
            faults.push(None);
        }
        let cache = u64::from(share.colors.1).saturating_mul(problem.color_bytes.0);
        if !vm.best_effort && cache < vm.working_set.0 {
            faults.push(Some(Demand::WorkingSet(i)));
        }
        let neighbors =
            plan.shares.iter().zip(&problem.vms).filter(|(s, _)| s.banks == share.banks);
        let memory: u64 = neighbors.map(|(_, vm)| vm.memory.0).fold(0, u64::saturating_add);
        if u64::from(share.banks.1).saturating_mul(problem.bank_bytes.0) < memory {
            faults.push(Some(Demand::Memory(i)));
        }
        // The caller accounts for the guaranteed part of a given budget.
        let guaranteed = vm.given.unwrap_or_else(|| vm.shape.regulation.guaranteed(share.budget));
        let budget = Budget { accesses: guaranteed, period: problem.saturation.period() };
        let rate = u128::from(budget.accesses) * u128::from(problem.line.0) * 1_000_000_000;
        if !vm.best_effort && rate < u128::from(vm.bandwidth.0) * u128::from(budget.period.0) {
            faults.push(Some(Demand::Bandwidth(i)));
        }
        let budgets: Vec<u64> = plan.shares.iter().map(|s| s.budget).collect();
        if !vm.best_effort && !case.holds(i, &budgets) {
            faults.push(Some(Demand::Task(i)));
        }
    }
    let total = plan.shares.iter().fold(0u64, |sum, s| sum.saturating_add(s.budget));
    if !problem.saturation.holds(total, plan.dma) {
        faults.push(None);
    }
    let Some(chunk) = plan.chunk else {
        faults.extend((0..case.flows.len()).map(|i| Some(Demand::Flow(i))));
        let wrong = plan.dma.0 == 0 || problem.dma.is_some_and(|given| given != plan.dma);
        if problem.best_effort_flows && wrong {
            faults.push(None);
        }
        return faults;
    };
    if !problem.chunks.iter().any(|&(size, reach)| size == chunk && plan.dma <= reach)
        || problem.dma.is_some_and(|given| given != plan.dma)
    {
        faults.push(None);
    }
    let all: Vec<usize> = (0..case.flows.len()).collect();
    if case.flows_hold(&all, chunk, plan.dma) != Ok(true) {
        faults.extend((0..case.flows.len()).map(|i| Some(Demand::Flow(i))));
    }
    faults
}

fn small_case(r: &mut fastrand::Rng) -> Case {
    let vm = |i: usize, r: &mut fastrand::Rng| {
        let best_effort = i > 0 && r.u8(0..3) == 0;
        let (working_set, memory) = (Bytes(r.u64(0..100)), Bytes(r.u64(1..90)));
        let bandwidth = BytesPerSec(r.u64(0..4) * 2_000_000);
        let critical = (r.u8(0..4) == 0).then(|| CriticalTask {
            alone: Nanos(r.u64(1000..50_000)),
            accesses: r.u64(0..200),
            delay: Nanos(r.u64(1..200)),
            per_access: r.bool().then_some(1),
            deadline: Nanos(r.u64(30_000..200_000)),
        });
        let given = (r.u8(0..5) == 0).then(|| r.u64(1..6));
        let shape = BudgetShape { least: r.u64(0..3), ..BudgetShape::default() };
        let has_tasks = critical.is_some();
        (
            VmDemands { best_effort, working_set, memory, bandwidth, has_tasks, given, shape },
            critical,
        )
    };
    let (vms, critical): (Vec<_>, Vec<_>) = (0..r.usize(2..=3)).map(|i| vm(i, r)).unzip();
    let flows: Vec<Flow> = (0..r.usize(0..3))
        .map(|_| {
            let from = r.u32(0..vms.len() as u32) as usize;
            let period = r.u64(60_000..600_000);
            let to = (from + 1) % vms.len();
            flow(from, to, r.u64(1..9000), period)
        })
        .collect();
    let points = (0..r.usize(1..5))
        .map(|_| SaturationPoint {
            total_budget: r.u64(4..13),
            dma: BytesPerSec(r.u64(2..14) * 60_000_000),
        })
        .collect();
    let problem = Problem {
        colors: r.u32(3..6),
        color_bytes: Bytes(64),
        banks: r.u32(3..6),
        bank_bytes: Bytes(64),
        banks_are_colors: false,
        line: Bytes(64),
        min_accesses: r.u64(0..3),
        saturation: SaturationTable::new(Nanos(30_000), points).unwrap(),
        chunks: vec![
            (Bytes(1024), BytesPerSec(500_000_000)),
            (Bytes(4096), BytesPerSec(700_000_000)),
            (Bytes(8192), BytesPerSec(800_000_000)),
        ],
        vms,
        flows: flows.iter().map(|flow| flow.size.0 * 1000 / flow.period.unwrap().0).collect(),
        dma: (r.u8(0..5) == 0).then(|| BytesPerSec(r.u64(1..6) * 60_000_000)),
        best_effort_flows: r.u8(0..4) == 0,
    };
    Case { problem, flows, queues: None, critical, overshoot: Events(r.u64(0..2)) }
}

/// Every division of colors and banks, every budget, every chunk and every DMA bandwidth at which
/// the table or a flow set changes: the most that best effort can get, by `check` alone.
fn exhaustive(case: &Case) -> Option<u64> {
    let p = &case.problem;
    let n = p.vms.len();
    let divisions = |most: u32| -> Vec<Vec<PositionRange>> {
        // Own ranges in order, best effort at the end and together.
        let mut all = vec![vec![]];
        for vm in &p.vms {
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
                    .zip(&p.vms)
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
    dmas.extend(p.dma);
    let mut chunks: Vec<Option<Bytes>> = vec![None];
    if !case.flows.is_empty() {
        chunks = p.chunks.iter().map(|c| Some(c.0)).collect();
        let all: Vec<usize> = (0..case.flows.len()).collect();
        dmas.extend(p.chunks.iter().filter_map(|c| case.least_dma(&all, c.0).unwrap()));
    }
    // The parts of a plan are independent but for budgets and DMA bandwidth: find one division that
    // has no fault of its own, then run through the rest.
    let mut best = None;
    let divisions: Vec<(Vec<PositionRange>, Vec<PositionRange>)> = divisions(p.colors)
        .into_iter()
        .flat_map(|c| divisions(p.banks).into_iter().map(move |b| (c.clone(), b)))
        .collect();
    let generous = |shares: &(Vec<PositionRange>, Vec<PositionRange>)| {
        let plan = PlanSetting {
            shares: (0..n)
                .map(|i| VmResources { colors: shares.0[i], banks: shares.1[i], budget: 1 << 20 })
                .collect(),
            chunk: None,
            dma: p.dma.unwrap_or(BytesPerSec(1)),
            best_effort: 0,
        };
        let faults = check(case, &plan);
        // One fault is the saturation by these budgets, and one each a budget that is not the given
        // one; flows and tasks are judged below.
        let given = p.vms.iter().filter(|vm| vm.given.is_some()).count();
        faults.iter().filter(|f| f.is_none()).count() == 1 + given
            && !faults.iter().any(|f| matches!(f, Some(Demand::WorkingSet(_) | Demand::Memory(_))))
    };
    let (colors, banks) = divisions.into_iter().find(generous)?;
    let mut budgets = vec![0u64; n];
    'budgets: loop {
        for &chunk in &chunks {
            for &dma in &dmas {
                let plan = PlanSetting {
                    shares: (0..n)
                        .map(|i| VmResources {
                            colors: colors[i],
                            banks: banks[i],
                            budget: budgets[i],
                        })
                        .collect(),
                    chunk,
                    dma,
                    best_effort: of_best_effort(p, &budgets),
                };
                if best.is_none_or(|b| plan.best_effort > b) && check(case, &plan).is_empty() {
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

/// Returns the sum of the budgets of best effort.
fn of_best_effort(problem: &Problem, budgets: &[u64]) -> u64 {
    let both = budgets.iter().zip(&problem.vms);
    both.filter(|(_, vm)| vm.best_effort).map(|(budget, _)| budget).sum()
}

#[test]
fn as_good_as_trying_everything() {
    let cases = if cfg!(debug_assertions) { 40 } else { 1000 };
    let mut r = fastrand::Rng::with_seed(5);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..cases {
        let case = small_case(&mut r);
        let expected = exhaustive(&case);
        match case.search() {
            Ok(plan) => {
                planned += 1;
                assert_eq!(check(&case, &plan), vec![], "{case:?} {plan:?}");
                assert_eq!(Some(plan.best_effort), expected, "{case:?} {plan:?}");
            }
            Err(Refusal::GaveUp) => panic!("{case:?}"),
            Err(Refusal::Conflict { demands, minimal, shortages }) => {
                refused += 1;
                assert_eq!(expected, None, "{case:?} {demands:?}");
                assert!(minimal, "{demands:?}");
                assert_conflict(&case, &demands);
                assert_shortages(&case, &shortages);
            }
        }
    }
    assert!(planned * 5 > cases && refused * 5 > cases, "{planned} {refused}");
}

/// The demands conflict, and without any one of them there is a setting.
fn assert_conflict(case: &Case, demands: &[Demand]) {
    let fails = |kept: &[Demand]| attempt(&case.problem, kept, case, true).is_err();
    assert!(fails(demands), "{demands:?} {case:?}");
    for one in demands {
        let without: Vec<_> = demands.iter().copied().filter(|other| other != one).collect();
        assert!(!fails(&without), "{one:?} {demands:?} {case:?}");
    }
}

/// A shortage is named, and it is one.
fn assert_shortages(case: &Case, shortages: &[SearchShortage]) {
    assert!(!shortages.is_empty(), "{case:?}");
    for shortage in shortages {
        match shortage {
            SearchShortage::Colors { asked, have }
            | SearchShortage::Banks { asked, have }
            | SearchShortage::Budgets { asked, have } => assert!(asked > have, "{asked} {have}"),
            SearchShortage::Given { vm } => assert!(case.problem.vms[*vm].given.is_some()),
            SearchShortage::Dma { asked, have, .. } => {
                assert!(asked.is_none_or(|asked| asked > *have), "{asked:?} {have:?}");
            }
            SearchShortage::Task { vm, budgets, .. } => assert!(!case.holds(*vm, budgets)),
        }
    }
}

/// Any setting is found if and only if there is a best one.
#[test]
fn any_and_best_exist_for_the_same_demands() {
    let mut r = fastrand::Rng::with_seed(6);
    for _ in 0..if cfg!(debug_assertions) { 10 } else { 200 } {
        let case = small_case(&mut r);
        let all = case.problem.demands();
        for mask in 0_u32..1 << all.len().min(10) {
            let kept = all.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
            let kept: Vec<Demand> = kept.map(|(_, demand)| *demand).collect();
            let [any, best] = [false, true].map(|best| attempt(&case.problem, &kept, &case, best));
            assert_eq!(any.is_ok(), best.is_ok(), "{kept:?} {case:?}");
            assert_ne!(any, Err(Failed::Unsure));
        }
    }
}

/// So many flows that sets of demands can't be tried one by one.
#[test]
fn a_minimal_conflict_among_hundreds_is_found() {
    let mut case = small_case(&mut fastrand::Rng::with_seed(3));
    case.critical.fill(None);
    case.problem.vms.iter_mut().for_each(|vm| {
        *vm = VmDemands {
            working_set: Bytes(0),
            memory: Bytes(0),
            bandwidth: BytesPerSec(0),
            has_tasks: false,
            given: None,
            shape: BudgetShape::default(),
            ..vm.clone()
        };
    });
    case.problem.min_accesses = 0;
    case.problem.saturation = SaturationTable::rt_virtio();
    case.problem.dma = None;
    case.queues = Some(1);
    // Jitter grows with the number of a sender's flows, and these have time.
    case.flows = (0..150).map(|i| flow(0, 1, 1024, 900_000_000 + 1000 * i)).collect();
    case.problem.flows = vec![1; 150];
    assert!(case.search().is_ok());
    // Each of the three takes 40 % of the time, with overheads.
    case.flows.extend(
        [22_000, 22_001, 22_002]
            .map(|period| Flow { deadline: Some(Nanos(200_000)), ..flow(2, 1, 1024, period) }),
    );
    case.problem.flows.extend([40_000; 3]);
    let Err(Refusal::Conflict { demands, minimal, .. }) = case.search() else {
        panic!("three flows of 40 % have a plan");
    };
    assert_eq!(demands, [150, 151, 152].map(Demand::Flow), "{demands:?}");
    assert!(minimal, "{demands:?}");
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

    fn task_holds(&self, vm: usize, budgets: &[u64], _: BytesPerSec) -> Result<bool, Unsure> {
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
        let mut problem = small_case(&mut r).problem;
        (problem.flows, problem.dma, problem.best_effort_flows) = (Vec::new(), None, false);
        (problem.colors, problem.banks) = (4, 4);
        problem.saturation = {
            let point = SaturationPoint { total_budget: total, dma: BytesPerSec(0) };
            SaturationTable::new(Nanos(30_000), vec![point]).unwrap()
        };
        let end = problem.vms.len() - 1;
        let mut needs = Vec::new();
        for (i, vm) in problem.vms.iter_mut().enumerate() {
            vm.best_effort = i == end;
            (vm.working_set, vm.memory, vm.bandwidth) = (Bytes(0), Bytes(0), BytesPerSec(0));
            let critical = i < end && r.u8(0..4) > 0;
            vm.has_tasks = critical;
            vm.shape.most = r.u64(4..16);
            vm.shape.step = r.u64(1..3);
            vm.shape.siblings = r.bool();
            let most = if vm.shape.siblings { r.u64(2..12) } else { u64::MAX };
            needs.push(critical.then(|| (r.u64(0..5), r.u64(0..9), most)));
        }
        let judge = Waiting(needs);
        let fits = |budgets: &[u64]| {
            budgets.iter().sum::<u64>() <= total
                && budgets.iter().zip(&problem.vms).enumerate().all(|(i, (budget, vm))| {
                    let shape = vm.shape;
                    let least = problem.min_accesses.max(shape.least);
                    let least = least.next_multiple_of(shape.step);
                    let whole = budget.is_multiple_of(shape.step);
                    // What is needed at least may be more than the cores can make.
                    let chosen = *budget >= least && whole && *budget <= shape.most.max(least);
                    vm.given.map_or(chosen, |given| *budget == given) && judge.holds(i, budgets)
                })
        };
        let mut best: Option<(u64, std::cmp::Reverse<u64>)> = None;
        let n = problem.vms.len();
        for code in 0..(total + 1).pow(n as u32) {
            let budgets: Vec<u64> =
                (0..n).map(|i| code / (total + 1).pow(i as u32) % (total + 1)).collect();
            if fits(&budgets) {
                let all = budgets.iter().sum::<u64>();
                best = best.max(Some((budgets[end], std::cmp::Reverse(all))));
            }
        }
        match search(std::slice::from_ref(&problem), &judge, || {}) {
            Ok((_, plan)) => {
                planned += 1;
                let budgets: Vec<u64> = plan.shares.iter().map(|share| share.budget).collect();
                assert!(fits(&budgets), "{problem:?} {budgets:?}");
                let found = (budgets[end], std::cmp::Reverse(budgets.iter().sum::<u64>()));
                assert_eq!(Some(found), best, "{problem:?} {budgets:?}");
            }
            Err(Refusal::Conflict { demands, shortages, .. }) => {
                refused += 1;
                assert_eq!(best, None, "{problem:?} {demands:?}");
                assert!(!shortages.is_empty());
            }
            Err(Refusal::GaveUp) => panic!("{problem:?}"),
        }
    }
    assert!(planned > 60 && refused > 60, "{planned} {refused}");
}
