//! The report of a run before its first byte: what the system and the analysis state.

use crate::{
    findings::{BudgetFinding, InterruptFinding, TaskFinding},
    report::{FlowRun, VcpuRun, VmRun},
};
use std::{
    collections::BTreeMap,
    iter::{repeat, zip},
};
use weir_model::{
    System, Vm,
    timing::{DEFAULT_PORT, Task, TimedLine},
};
use weir_trace::record::Accesses;
use weir_units::{CoreId, Events, Nanos};

/// Bounds of the analysis that the observations of a run are compared with, in ns.
#[derive(Clone, Debug, Default)]
pub struct RunBounds {
    /// On the latency of each flow, in the order of the file.
    pub flows: Vec<Option<u64>>,
    /// On the response time of tasks, by the names of VM and task.
    pub tasks: BTreeMap<(String, String), u64>,
    /// On the time until a VM has the core for its interrupt, by the names of both.
    pub interrupts: BTreeMap<(String, String), u64>,
}

/// Returns the VMs of a system, with their tasks, memory budgets, and interrupts with deadlines.
#[must_use]
pub fn vms(system: &System, bounds: &RunBounds) -> Vec<VmRun> {
    let vcpu =
        |(number, core): (u8, &CoreId)| VcpuRun { number, core: core.0, ..VcpuRun::default() };
    let each = system.vms.iter().enumerate().map(|(place, vm)| {
        let named = |name: &str| (vm.name.clone(), name.to_owned());
        let task = |task: &Task| TaskFinding {
            name: task.name.clone(),
            deadline_ns: task.deadline.0,
            bound_ns: bounds.tasks.get(&named(&task.name)).copied(),
            ..TaskFinding::default()
        };
        let interrupt = |line: &TimedLine| {
            Some(InterruptFinding {
                intid: line.intid()?.0,
                deadline_ns: line.deadline?.0,
                bound_ns: bounds.interrupts.get(&named(&line.name)).copied(),
                ..InterruptFinding::default()
            })
        };
        let own = system.lines.iter().filter(|line| line.vm == place);
        VmRun {
            name: vm.name.clone(),
            vcpus: zip(0.., &vm.cpus).map(vcpu).collect(),
            tasks: vm.tasks.iter().map(task).collect(),
            interrupts: own.filter_map(interrupt).collect(),
            budgets: budgets(system, place, vm),
            ..VmRun::default()
        }
    });
    each.collect()
}

/// Returns the memory budgets of each vCPU of a VM.
fn budgets(system: &System, place: usize, vm: &Vm) -> Vec<BudgetFinding> {
    let Some(rules) = system.regulations.get(place).filter(|rules| rules.period_ns > 0) else {
        return Vec::new();
    };
    let two = rules.writes != u64::MAX;
    let limits = if two {
        &[(Accesses::Reads, rules.reads), (Accesses::Writes, rules.writes)][..]
    } else {
        &[(Accesses::All, rules.reads)]
    };
    let overshoot = system.overshoot(vm, Nanos(rules.period_ns)).map(Events::get);
    let limits = limits.iter().filter(|(_, budget)| *budget != u64::MAX);
    let budgets = (0..).zip(&vm.cpus).flat_map(|(vcpu, _)| {
        limits.clone().map(move |&(accesses, budget)| BudgetFinding {
            vcpu,
            counts: accesses.name().to_owned(),
            budget,
            period_ns: rules.period_ns,
            overshoot,
            ..BudgetFinding::default()
        })
    });
    budgets.collect()
}

/// Returns the flows that the broker moves, one for each receiver, with their bounds.
#[must_use]
pub fn flows(system: &System, bounds: &RunBounds) -> Vec<FlowRun> {
    if system.broker().is_none() {
        return Vec::new();
    }
    let bounds = bounds.flows.iter().copied().chain(repeat(None));
    let mut flows = Vec::new();
    for ((index, flow), bound_ns) in system.flows.iter().enumerate().zip(bounds) {
        let has_several = flow.to.len() > 1;
        let first_receiver = u32::try_from(flows.len()).unwrap_or(u32::MAX);
        flows.extend(flow.to.iter().map(|&to| FlowRun {
            name: if has_several {
                format!("{}/{}", flow.name, system.vms[to].name)
            } else {
                flow.name.clone()
            },
            from: system.vms[flow.from].name.clone(),
            to: system.vms[to].name.clone(),
            address: format!("{}:{}", system.destination(index), flow.port.unwrap_or(DEFAULT_PORT)),
            bound_ns,
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
            period_ns: flow.period.map(|period| period.0),
            dropped: has_several.then_some(0),
            ends_on_core: shares_all_cores(system, to),
            first_receiver,
            ..FlowRun::default()
        }));
    }
    flows
}

/// Returns whether a VM shares all of its cores.
pub(crate) fn shares_all_cores(system: &System, vm: usize) -> bool {
    let is_shared =
        |core: &CoreId| system.cores.iter().any(|shared| shared.id == u64::from(core.0));
    system.vms.get(vm).is_some_and(|vm| vm.cpus.iter().all(is_shared))
}
