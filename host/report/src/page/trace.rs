//! What a page shows of a trace: its records by kind, the use of memory budgets over the run, and
//! the cores around an event.

use crate::trace::file::{Trace, TraceFacts, core};
use std::{collections::BTreeMap, io::Read};
use weir_image::Result;
use weir_trace::record::{Accesses, Record, RecordKind};

/// The spans of a run that a figure of a budget distinguishes.
const SPANS: u64 = 100;
/// The most interrupts of a core that a figure shows.
const INTERRUPTS: usize = 200;

/// A memory budget: VM, vCPU, and the number of its [`Accesses`].
pub(super) type BudgetKey = (u8, u8, u32);

/// The view of a whole trace.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceView {
    /// Records by the name of their kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Records that were lost.
    pub lost: u64,
    /// Why the trace cannot be read, or its damage.
    pub damage: Option<String>,
    /// The use of the budgets.
    pub budgets: Vec<BudgetUse>,
}

/// The use of a budget over the run.
#[derive(Clone, Debug, Default)]
pub(super) struct BudgetUse {
    /// The VM.
    pub vm: String,
    /// The vCPU.
    pub vcpu: u8,
    /// The name of the accesses.
    pub accesses: &'static str,
    /// The spans in which a period ended, by their place among all.
    pub spans: BTreeMap<u64, BudgetSpan>,
}

/// The use of a budget in a span of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BudgetSpan {
    /// The most accesses in a period.
    pub used: u64,
    /// The time for which the vCPU was suspended, in ns.
    pub throttled_ns: u64,
}

/// Returns the length of a span of a run, in ns.
pub(super) fn span_ns(run_ns: u64) -> u64 {
    run_ns.div_ceil(SPANS).max(1)
}

impl TraceView {
    /// Reads a trace of a run that took `run_ns` to its end. A failure is a damage.
    pub fn read<R: Read>(trace: &mut Trace<R>, run_ns: u64) -> Self {
        let facts = trace.facts.clone();
        let mut view = Self { lost: facts.lost, ..Self::default() };
        let mut budgets: BTreeMap<BudgetKey, BudgetUse> = BTreeMap::new();
        let mut suspended: BTreeMap<BudgetKey, u64> = BTreeMap::new();
        let span = span_ns(run_ns);
        loop {
            let record = match trace.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(failure) => {
                    view.damage = Some(failure.text);
                    break;
                }
            };
            let kind = RecordKind::from_number(record.kind);
            *view.kinds.entry(kind.map_or("unknown", RecordKind::name)).or_default() += 1;
            let Some(now) = facts.time(&record) else { continue };
            let key = (record.vm, record.vcpu, record.detail);
            match kind {
                Some(RecordKind::Replenish) => {
                    let used = budgets.entry(key).or_insert_with(|| named(key, &facts));
                    let at = used.spans.entry(now / span).or_default();
                    at.used = at.used.max(record.count);
                }
                Some(RecordKind::Throttle) => _ = suspended.entry(key).or_insert(now),
                Some(
                    RecordKind::Wake
                    | RecordKind::VmStop
                    | RecordKind::VmFault
                    | RecordKind::VmRestart,
                ) => {
                    let is_wake = kind == Some(RecordKind::Wake);
                    suspended.retain(|key, since| {
                        if key.0 != record.vm || is_wake && key.1 != record.vcpu {
                            return true;
                        }
                        let used = budgets.entry(*key).or_insert_with(|| named(*key, &facts));
                        add_throttled(used, (*since, now), span);
                        false
                    });
                }
                _ => {}
            }
        }
        view.damage = view.damage.or_else(|| trace.damage());
        view.budgets = budgets.into_values().collect();
        view
    }
}

fn named((vm, vcpu, accesses): BudgetKey, facts: &TraceFacts) -> BudgetUse {
    BudgetUse {
        vm: facts.name(vm).unwrap_or("?").to_owned(),
        vcpu,
        accesses: Accesses::ALL.get(accesses as usize).map_or("?", |accesses| accesses.name()),
        spans: BTreeMap::new(),
    }
}

/// Adds the time of a suspension to the spans that it lies in.
fn add_throttled(used: &mut BudgetUse, (mut from, to): (u64, u64), span: u64) {
    while from < to {
        let place = from / span;
        let end = to.min((place + 1).saturating_mul(span));
        used.spans.entry(place).or_default().throttled_ns += end - from;
        from = end;
    }
}

/// The state of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoreState {
    /// A VM has it.
    Vm(u8),
    /// A VM has it, and its vCPU is suspended because its budget is spent.
    Throttled(u8),
    /// No VM has it.
    Free,
}

/// A span of time of a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
    pub state: CoreState,
}

/// A core in a span of time.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub core: u16,
    pub spans: Vec<Span>,
    /// The times of the interrupts that took the core to EL2, in ns.
    pub interrupts: Vec<u64>,
}

/// The present state of a core, and since when.
#[derive(Clone, Copy, Debug)]
struct Present {
    state: CoreState,
    since: u64,
}

/// Reads a trace and returns the lanes of all cores that VMs have, for each of these spans of time.
pub(super) fn lanes<R: Read>(
    trace: &mut Trace<R>,
    windows: &[(u64, u64)],
) -> Result<Vec<Vec<Lane>>> {
    let facts = trace.facts.clone();
    let mut present: BTreeMap<u16, Present> = BTreeMap::new();
    for (vm, traced) in (0u8..).zip(&facts.vms) {
        for core in &traced.cores {
            // A core of several VMs has a record when one of them gets it.
            let state =
                present.get(&u16::from(*core)).map_or(CoreState::Vm(vm), |_| CoreState::Free);
            present.insert((*core).into(), Present { state, since: 0 });
        }
    }
    let lane = |core: &u16| Lane { core: *core, spans: Vec::new(), interrupts: Vec::new() };
    let mut all: Vec<Vec<Lane>> =
        windows.iter().map(|_| present.keys().map(lane).collect()).collect();
    let mut set = |core: u16, state: Option<CoreState>, now: u64| {
        let Some(before) = present.get_mut(&core) else { return };
        if state.is_some_and(|state| state == before.state) {
            return;
        }
        for ((from, to), lanes) in windows.iter().zip(&mut all) {
            let (from, to) = (before.since.max(*from), now.min(*to));
            let lane = lanes.iter_mut().find(|lane| lane.core == core).filter(|_| from < to);
            if let Some(lane) = lane {
                lane.spans.push(Span { from, to, state: before.state });
            }
        }
        *before = Present { state: state.unwrap_or(before.state), since: now };
    };
    let mut interrupts: Vec<(u16, u64)> = Vec::new();
    while let Some(record) = trace.next_record()? {
        let Some(now) = facts.time(&record) else { continue };
        for (core, state) in changes(&record, &facts) {
            set(core, Some(state), now);
        }
        if record.kind == RecordKind::Interrupt as u16
            && windows.iter().any(|(from, to)| (*from..*to).contains(&now))
        {
            interrupts.push((core(&record), now));
        }
    }
    let end = windows.iter().map(|(_, to)| *to).max().unwrap_or(0);
    let cores: Vec<u16> =
        facts.vms.iter().flat_map(|vm| &vm.cores).map(|core| (*core).into()).collect();
    for core in cores {
        set(core, None, end);
    }
    for ((from, to), lanes) in windows.iter().zip(&mut all) {
        for lane in lanes {
            let of = interrupts
                .iter()
                .filter(|(core, now)| *core == lane.core && (*from..*to).contains(now));
            lane.interrupts.extend(of.map(|(_, now)| *now).take(INTERRUPTS));
        }
    }
    Ok(all)
}

/// Returns the cores whose state a record changes, with the state.
fn changes(record: &Record, facts: &TraceFacts) -> Vec<(u16, CoreState)> {
    let vm = record.vm;
    let traced = facts.vms.get(usize::from(vm));
    let cores = traced.map_or(&[][..], |vm| &vm.cores);
    let of_vcpu = cores.get(usize::from(record.vcpu)).map(|core| u16::from(*core));
    let is_shared = |core: u8| facts.vms.iter().filter(|vm| vm.cores.contains(&core)).count() > 1;
    let own = cores.iter().filter(|core| !is_shared(**core)).map(|core| u16::from(*core));
    match RecordKind::from_number(record.kind) {
        Some(RecordKind::VcpuSwitch | RecordKind::VcpuResume) => {
            vec![(core(record), CoreState::Vm(vm))]
        }
        Some(RecordKind::CoreFree) => vec![(core(record), CoreState::Free)],
        Some(RecordKind::Throttle) => {
            of_vcpu.map(|core| (core, CoreState::Throttled(vm))).into_iter().collect()
        }
        Some(RecordKind::Wake) => {
            of_vcpu.map(|core| (core, CoreState::Vm(vm))).into_iter().collect()
        }
        Some(RecordKind::VmStart) => own.map(|core| (core, CoreState::Vm(vm))).collect(),
        Some(RecordKind::VmStop | RecordKind::VmFault) => {
            own.map(|core| (core, CoreState::Free)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::file::{
        TracedVm,
        tests::{facts, trace},
    };

    /// Core 0 is of VMs 0 and 2, core 1 of VM 1 alone.
    fn shared() -> TraceFacts {
        let vm = |name: &str, core| TracedVm { name: name.to_owned(), cores: vec![core] };
        TraceFacts { vms: vec![vm("a", 0), vm("b", 1), vm("c", 0)], ..facts() }
    }

    /// A record of a VM's first vCPU on a core, at this time in ns.
    fn at(time: u64, kind: RecordKind, vm: u8, core: u16) -> Record {
        let record =
            Record { time: facts().zero + time, kind: kind as u16, vm, ..Record::default() };
        record.with_sequence(core)
    }

    fn records() -> Vec<Record> {
        vec![
            at(10, RecordKind::VcpuSwitch, 0, 0),
            at(20, RecordKind::Interrupt, 0, 0),
            at(30, RecordKind::CoreFree, 0, 0),
            at(40, RecordKind::Throttle, 1, 1),
            at(50, RecordKind::VcpuSwitch, 2, 0),
            at(60, RecordKind::Wake, 1, 1),
            at(70, RecordKind::Interrupt, 1, 1),
            at(80, RecordKind::VmStop, 1, 1),
            Record { count: 7, ..at(90, RecordKind::Replenish, 1, 1) },
        ]
    }

    #[test]
    fn the_lanes_of_a_window_have_no_gap() {
        let lanes = lanes(&mut trace(shared(), &records()), &[(15, 75), (70, 100)]);
        let lanes = lanes.expect("memory");
        let spans = |window: usize, lane: usize| -> Vec<_> {
            let lane: &Lane = &lanes[window][lane];
            lane.spans.iter().map(|span| (span.from, span.to, span.state)).collect()
        };
        let (vm, free) = (CoreState::Vm, CoreState::Free);
        assert_eq!(spans(0, 0), [(15, 30, vm(0)), (30, 50, free), (50, 75, vm(2))]);
        let throttled = CoreState::Throttled(1);
        assert_eq!(spans(0, 1), [(15, 40, vm(1)), (40, 60, throttled), (60, 75, vm(1))]);
        assert_eq!(spans(1, 1), [(70, 80, vm(1)), (80, 100, free)]);
        let interrupts = |window: usize, lane: usize| lanes[window][lane].interrupts.clone();
        assert_eq!([interrupts(0, 0), interrupts(0, 1)], [vec![20], vec![70]]);
        assert_eq!([interrupts(1, 0), interrupts(1, 1)], [vec![], vec![70]]);
    }

    #[test]
    fn a_suspension_is_in_each_span_that_it_meets() {
        // Spans of 5 ns.
        let view = TraceView::read(&mut trace(shared(), &records()), 500);
        let [used] = &view.budgets[..] else { panic!("{view:?}") };
        assert_eq!((used.vm.as_str(), used.vcpu, used.accesses), ("b", 0, "all"));
        let throttled: Vec<_> =
            used.spans.iter().map(|(place, span)| (*place, span.throttled_ns)).collect();
        assert_eq!(throttled, [(8, 5), (9, 5), (10, 5), (11, 5), (18, 0)]);
        assert_eq!((used.spans[&18].used, view.kinds["interrupt"]), (7, 2));
        assert_eq!(view.damage, None);
    }
}
