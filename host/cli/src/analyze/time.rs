//! Time: what schedules of shared cores supply, and the response times of the VMs' tasks beside interrupts and other VMs'
//! memory accesses.

use super::{
    flows::Copying,
    lack::{self, Lack},
    own::{self, Own},
    regulation::{regulation, vcpus},
};
use crate::run::show::table;
use serde_json::{Value, json};
use std::{borrow::Cow, fmt};
use weir_analysis::{
    Nanos,
    memory::{Budget, Interferer, Regulation},
    time::{
        Admission, Interference, InterruptLine, Linear, Schedule as Partition, Supply, Switching,
        VmTask, left_of_budget, put_off, response_times_beside, server_holds,
    },
    verdict::{Judgement, Missing, Verdict},
};
use weir_model::Code;
use weir_model::Fault;
use weir_model::Looks;
use weir_model::Timing;
use weir_model::timing::Bandwidth;
use weir_model::timing::Class;
use weir_model::timing::Flow;
use weir_model::timing::Line;
use weir_model::timing::Place;
use weir_model::timing::Runner;
use weir_model::timing::Schedule;
use weir_model::timing::SharedCore;
use weir_model::timing::Task;
use weir_model::timing::TimedVm;

/// What the analysis says of schedules and tasks.
#[derive(Debug, Default)]
pub struct Time {
    cores: Vec<(u64, Vec<Supplied>)>,
    tasks: Vec<Row>,
    /// The interrupts with deadlines.
    interrupts: Vec<Awaited>,
    /// Whether accesses of other VMs are in the response times.
    interference: bool,
    /// Inputs without which something here is not judged.
    missing: Vec<Missing>,
    reasons: Vec<(Place, String, Option<Cow<'static, str>>)>,
    /// What was taken for granted, and what is counted in.
    notes: Vec<String>,
}

/// A VM or the broker, and what it is sure to get; none if nothing.
type Supplied = (String, Option<Linear>);

#[derive(Debug)]
struct Row {
    vm: String,
    name: String,
    response: Option<u64>,
    deadline: u64,
    /// Whether an input of the response is missing.
    open: bool,
}

impl Row {
    fn verdict(&self) -> Verdict {
        match self.response {
            Some(response) if response <= self.deadline && self.open => Verdict::NotJudged,
            response => Verdict::of(response.is_some_and(|response| response <= self.deadline)),
        }
    }
}

/// An interrupt with a deadline.
#[derive(Debug)]
struct Awaited {
    vm: String,
    name: String,
    /// How long its VM waits for the core at most; none without a bound.
    wait: Option<u64>,
    deadline: u64,
    verdict: Verdict,
}

/// What is said of an interrupt whose VM may have the core too late.
enum Late {
    /// It does not hold: why, and what to write instead.
    Refuted(String, String),
    /// It is not judged.
    Open(Missing),
}

/// The way out where the polls of the counter page are taken to be as close as they can be.
const ADD: &str = "add `accesses` to each of its tasks: the polls of the counter page are taken as if little were left of the budget; or a larger budget, or a longer deadline";

/// The way out where tasks ask for more than is sure.
const MORE: &str = "give the VM more time, or a task less `wcet` or a longer `period`";

/// The way out where a core has too much to copy beside its VM's tasks.
const COPY: &str = "let the broker copy ([dma] path = \"broker\"), or ask less of the flows or the tasks: the VM's core copies flows, which is in the responses";

/// The way out where a core copies without a limit.
const PACE: &str = "write `period` and `deadline` for the flow instead of best_effort, and [dma] bandwidth, or let the broker copy ([dma] path = \"broker\")";

/// What a VM or the broker gets of the core that moves its flows, and which core that is; none where it has a core to
/// itself and no interrupt comes to it.
///
/// # Errors
///
/// A schedule that can't be kept.
pub fn supply(timing: &Timing, runner: Runner) -> Result<Option<(String, Place, Supply)>, Fault> {
    let core = match runner {
        Runner::Vm(vm) => timing.vms.get(vm).and_then(|vm| vm.cpus.first()).copied(),
        Runner::Broker => timing.broker,
    };
    if let Some(fault) = unshared(timing, runner, core) {
        return Err(fault);
    }
    // What it moves is no task of its: nobody says how much is left of its budget.
    let looks = closest_looks(timing, runner);
    if let Some(core) = core_of_flows(timing, runner) {
        let supply = supply_on(timing, core, runner, looks)?;
        return Ok(Some((format!("core {}", core.id), core.place.clone(), supply)));
    }
    match runner {
        Runner::Vm(position) => {
            let Some(vm) = timing.vms.get(position) else { return Ok(None) };
            if looks.is_empty() && timing.lines.iter().all(|line| line.vm != position) {
                return Ok(None);
            }
            let supply = dedicated(timing, position, looks)?;
            Ok(Some(("its own core".to_owned(), vm.place.clone(), supply)))
        }
        Runner::Broker => Ok(None),
    }
}

/// The shared core on which a VM or the broker moves flows, if it is one.
fn core_of_flows(timing: &Timing, runner: Runner) -> Option<&SharedCore> {
    let own = match runner {
        Runner::Vm(vm) => timing.vms.get(vm).and_then(|vm| vm.cpus.first()).copied(),
        Runner::Broker => None,
    };
    let is_its =
        |core: &&SharedCore| own.is_none_or(|own| own == core.id) && runs(&core.schedule, runner);
    timing.cores.iter().find(is_its)
}

/// Why a VM or the broker is sure of no time where it moves flows; none if it is sure of some, or has a core of its own.
pub fn why_none(timing: &Timing, runner: Runner) -> Option<Lack> {
    lack::nothing_sure(timing, core_of_flows(timing, runner)?, runner)
}

/// What `runner` is sure of on a shared core beside these looks.
pub(super) fn sure(
    timing: &Timing,
    core: &SharedCore,
    runner: Runner,
    looks: Vec<InterruptLine>,
) -> Option<Linear> {
    supply_on(timing, core, runner, looks).ok()?.linear()
}

/// How EL2 looks at the monitor for the budget of VM `vm`, and the period of that.
fn looked_at(timing: &Timing, vm: usize) -> Option<(Looks, Nanos)> {
    let this = timing.vms.get(vm)?;
    let (_, period) = this.bandwidth.as_ref().and_then(|asked| asked.budget)?;
    Some((timing.looks(this, period)?, period))
}

/// What EL2's polls of the counter page take from a core of VM `vm`, while `left` accesses are left of its budget there: those within a period, and the
/// one at each beginning, which takes less than two others.
fn looks(timing: &Timing, vm: usize, left: u64) -> Vec<InterruptLine> {
    let Some((looks, period)) = looked_at(timing, vm) else { return Vec::new() };
    let line = |interval: Nanos, cost| InterruptLine {
        admission: Some(Admission { burst: 1, interval }),
        cost: Nanos(cost),
        delay: Nanos(0),
    };
    let cost = looks.cost.0;
    vec![line(looks.apart(left, period), cost), line(period, cost.saturating_mul(2))]
}

/// The same of who has the core, of whom nobody says how much is left.
pub(super) fn closest_looks(timing: &Timing, runner: Runner) -> Vec<InterruptLine> {
    match runner {
        Runner::Vm(vm) => looks(timing, vm, 0),
        Runner::Broker => Vec::new(),
    }
}

/// A core of a VM's own, less what the VM's interrupts take, as nobody says to which of its cores they come, and EL2's `looks`.
fn dedicated(timing: &Timing, vm: usize, looks: Vec<InterruptLine>) -> Result<Supply, Fault> {
    let own = timing.lines.iter().filter(|line| line.vm == vm);
    let mut lines = own
        .map(|line| Ok(interrupt(line, cost_of(timing, line, 0)?, 0, 0)))
        .collect::<Result<Vec<_>, _>>()?;
    lines.extend(looks);
    Supply::new(Partition::Dedicated, lines).map_err(|error| {
        let place = timing.vms.get(vm).map(|vm| vm.place.clone()).unwrap_or_default();
        timing.fault(
            Code::ScheduleLimit,
            &place,
            error.to_string(),
            "write times within the limits",
        )
    })
}

pub(super) fn runs(schedule: &Schedule, runner: Runner) -> bool {
    runners(schedule).contains(&runner)
}

fn runners(schedule: &Schedule) -> Vec<Runner> {
    let mut all: Vec<Runner> = match schedule {
        Schedule::RoundRobin { runners, .. } => runners.clone(),
        Schedule::Table { slots, .. } => slots.iter().map(|slot| slot.0).collect(),
        Schedule::FixedPriority { servers } => servers.iter().map(|server| server.0).collect(),
    };
    let mut seen = Vec::new();
    all.retain(|runner| !seen.contains(runner) && (seen.push(*runner), true).1);
    all
}

/// Whether anybody ever comes on or goes off: who is alone does at the end of a slot or of a budget.
fn switches(schedule: &Schedule) -> bool {
    match schedule {
        Schedule::RoundRobin { runners, .. } => runners.len() > 1,
        Schedule::Table { .. } => true,
        Schedule::FixedPriority { servers } => {
            servers.len() > 1 || servers.iter().any(|(_, budget, period)| budget.0 < period.0)
        }
    }
}

/// A shared core's schedule as `runner` sees it, with what switches take.
///
/// # Errors
///
/// Budgets that cannot all be had in time.
pub(super) fn partition(
    timing: &Timing,
    core: &SharedCore,
    runner: Runner,
) -> Result<Partition, Fault> {
    let sharing = timing.sharing(core).unwrap_or_default();
    let switch = Nanos(if switches(&core.schedule) { sharing.switch.0 } else { 0 });
    Ok(match &core.schedule {
        Schedule::RoundRobin { quantum, runners } => {
            let others = runners.len().saturating_sub(1) as u64;
            Partition::RoundRobin {
                quantum: *quantum,
                others: Nanos(quantum.0.saturating_mul(others)),
                switch,
                vms: u32::try_from(runners.len()).unwrap_or(u32::MAX),
            }
        }
        Schedule::Table { frame, slots } => Partition::Table {
            frame: *frame,
            slots: slots
                .iter()
                .filter(|slot| slot.0 == runner)
                .map(|(_, start, length)| (*start, *length))
                .collect(),
            switch,
        },
        Schedule::FixedPriority { servers } => {
            let budgets: Vec<_> = servers.iter().map(|(_, q, p)| (*q, *p)).collect();
            let least_switch = sharing.least_switch;
            let switching = Switching { most: switch, least: least_switch, entry: sharing.entry };
            let beside = |(runner, _, period): &(Runner, _, Nanos)| {
                let lines = charged_to_others(timing, core, *runner)?;
                let taken = lines.iter().map(|line| line.taken(*period).0);
                Ok(Nanos(taken.fold(0, u64::saturating_add)))
            };
            let beside = servers.iter().map(beside).collect::<Result<Vec<_>, Fault>>()?;
            let late = |place: &usize| !server_holds(&budgets, *place, &switching, &beside);
            if let Some(late) = (0..budgets.len()).find(late) {
                let (who, budget, period) = servers[late];
                let message = format!(
                    "core {}: {} may not get its {budget} in each {period}",
                    core.id,
                    who.name(timing)
                );
                let help = shorter(&budgets, late, (&switching, &beside));
                return Err(timing.fault(Code::ServerLate, &core.place, message, help));
            }
            let own = servers.iter().position(|server| server.0 == runner);
            let period = own.and_then(|own| budgets.get(own)).map_or(Nanos(1), |own| own.1);
            let budget = own.map_or(Nanos(0), |own| left_of_budget(&budgets, own, &switching));
            Partition::Server { budget, period, switch }
        }
    })
}

/// What `runner` gets of a shared core, less what switches take, and EL2's `looks` for its own budget.
fn supply_on(
    timing: &Timing,
    core: &SharedCore,
    runner: Runner,
    looks: Vec<InterruptLine>,
) -> Result<Supply, Fault> {
    let partition = partition(timing, core, runner)?;
    let entry = timing.sharing(core).unwrap_or_default().entry;
    let mut lines = looks;
    // Whose vCPU is off or waits is asked at each of its periods' beginnings only, but then the core is taken for it.
    for other in (0..timing.vms.len()).filter(|other| Runner::Vm(*other) != runner) {
        if timing.vms[other].cpus.contains(&core.id) {
            lines.extend(self::looks(timing, other, 0).pop());
        }
    }
    for vm in here(timing, core) {
        let mut its = lines_of(timing, core, vm, runner)?;
        // Who is charged with it gives the time back.
        if Runner::Vm(vm) != runner && matches!(core.schedule, Schedule::FixedPriority { .. }) {
            for line in &mut its {
                line.cost.0 = line.cost.0.min(entry.0);
            }
        }
        lines.extend(its);
    }
    Supply::new(partition, lines).map_err(|error| {
        let message = format!("core {}: {error}", core.id);
        timing.fault(Code::ScheduleLimit, &core.place, message, "write times within the limits")
    })
}

/// What to write instead of the budget of server `late`, which does not hold.
fn shorter(
    budgets: &[(Nanos, Nanos)],
    late: usize,
    (switching, beside): (&Switching, &[Nanos]),
) -> String {
    let holds = |budget: u64| {
        let mut budgets = budgets.to_vec();
        budgets[late].0 = Nanos(budget);
        server_holds(&budgets, late, switching, beside)
    };
    let (mut fits, mut exceeds) = (0, budgets[late].0.0 / 1000);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if holds(middle * 1000) { fits = middle } else { exceeds = middle }
    }
    let rest = "what those before it spend of its period, and what EL2 takes, is to be left over";
    if fits == 0 {
        return format!("shorten the budgets before it, or put shorter periods first: {rest}");
    }
    format!(
        "a budget of {fits}us fits, or shorten those before it, or put shorter periods first: {rest}"
    )
}

/// The VMs on a shared core.
fn here<'a>(timing: &'a Timing, core: &'a SharedCore) -> impl Iterator<Item = usize> + 'a {
    (0..timing.vms.len()).filter(|vm| {
        timing.vms[*vm].cpus.contains(&core.id) || runs(&core.schedule, Runner::Vm(*vm))
    })
}

/// What EL2 does on others' account while `runner` has budget, which puts it off.
fn charged_to_others(
    timing: &Timing,
    core: &SharedCore,
    runner: Runner,
) -> Result<Vec<InterruptLine>, Fault> {
    let mut lines = Vec::new();
    for vm in here(timing, core).filter(|vm| Runner::Vm(*vm) != runner) {
        lines.extend(lines_of(timing, core, vm, runner)?);
    }
    Ok(lines)
}

/// What comes to VM `vm` between two of its turns, by how long EL2 takes for it, in ns: its lines, as long as each in `costs`, and what no [`Line`] is about: lines without a rule, and SGIs, changes of
/// its distributor and CPU_ON of its other vCPUs, each once in each of its turns. A VM of one vCPU has its timer.
fn meanwhile(timing: &Timing, vm: usize, costs: &[u64], known: u64) -> impl Iterator<Item = u64> {
    let calls = if timing.vms[vm].cpus.len() > 1 { 3 } else { 1 };
    let others = timing.unruled(vm).len() + calls;
    costs.iter().copied().chain(std::iter::repeat_n(known, others))
}

/// All of that together, at the most.
fn charged(timing: &Timing, vm: usize, costs: &[u64], known: u64) -> u64 {
    meanwhile(timing, vm, costs, known).fold(0, u64::saturating_add)
}

/// What VM `vm`'s interrupts on a shared core take from `runner`.
fn lines_of(
    timing: &Timing,
    core: &SharedCore,
    vm: usize,
    runner: Runner,
) -> Result<Vec<InterruptLine>, Fault> {
    let owner = Runner::Vm(vm);
    let sharing = timing.sharing(core).unwrap_or_default();
    let (switch, known) = (sharing.switch.0, sharing.interrupt.0);
    let rules: Vec<_> = timing.lines.iter().filter(|line| line.vm == vm).collect();
    let pays = match runner {
        Runner::Vm(vm) => {
            let own = timing.lines.iter().filter(|line| line.vm == vm);
            let costs: Vec<_> = own.map(|line| line.cost.0.max(known)).collect();
            charged(timing, vm, &costs, known)
        }
        Runner::Broker => 0,
    };
    let waits = Some(waits(&core.schedule, owner, runner, pays));
    let waiting = |cost| InterruptLine { admission: waits, cost: Nanos(cost), delay: Nanos(0) };
    let mut costs = Vec::new();
    for line in &rules {
        costs.push(cost_of(timing, line, known)?);
    }
    // A line without credit waits as well, and so does one that nobody wrote a rule for.
    let mut lines: Vec<_> = meanwhile(timing, vm, &costs, known).map(waiting).collect();
    // In a table nobody is charged: what EL2 does for a VM in others' slots is theirs alone.
    if owner == runner && matches!(core.schedule, Schedule::Table { .. }) {
        lines.clear();
    }
    // All that waits may come anew behind a turn that a line brings its VM.
    let anew = charged(timing, vm, &costs, known);
    let round = matches!(core.schedule, Schedule::RoundRobin { .. });
    for (line, cost) in rules.iter().zip(costs) {
        // The turn that an interrupt brings its VM is no loss to that VM in a table, but being interrupted is. A round goes on behind that turn.
        let admitted = if owner == runner && !(line.preempt && round) {
            Some((0, 0))
        } else if line.preempt {
            preempted(&core.schedule, runner, switch)
                .map(|(taken, delay)| (taken.saturating_add(anew), delay))
        } else {
            None
        };
        lines.extend(admitted.map(|(taken, delay)| interrupt(line, cost, taken, delay)));
    }
    lines.retain(|line| line.cost.0 > 0 || line.delay.0 > 0);
    Ok(lines)
}

/// How often an interrupt of `owner`'s comes while `runner` has the core, if it waits for its VM's turn; `runner` pays so many ns of its own turn for what EL2 did for it.
fn waits(schedule: &Schedule, owner: Runner, runner: Runner, pays: u64) -> Admission {
    match schedule {
        Schedule::RoundRobin { quantum, .. } => Admission::once_a_round(*quantum, Nanos(pays)),
        Schedule::Table { frame, slots } => {
            let turns = slots.iter().filter(|slot| slot.0 == owner).count();
            Admission::once_a_slot(*frame, turns as u64)
        }
        Schedule::FixedPriority { servers } => {
            let period = |of| {
                let own = servers.iter().find(|server| server.0 == of);
                Nanos(own.map_or(u64::MAX, |server| server.2.0))
            };
            Admission::once_a_period(period(owner), period(runner))
        }
    }
}

/// What an interrupt that takes the core takes of `runner`'s supply, at most, and by how much it puts off the rest. Servers have their order for that.
fn preempted(schedule: &Schedule, runner: Runner, switch: u64) -> Option<(u64, u64)> {
    match schedule {
        Schedule::RoundRobin { quantum, runners } => {
            Some((0, others_turns(*quantum, runners, switch).0))
        }
        Schedule::Table { slots, .. } => {
            let own = slots.iter().filter(|slot| slot.0 == runner).map(|slot| slot.2.0);
            Some((own.max().unwrap_or(0), 0))
        }
        Schedule::FixedPriority { .. } => None,
    }
}

/// How long it takes to get a core back at most, for who was suspended: a round goes on without it, and the others have their turns first. Slots stay where
/// they are, and servers have their order.
fn back(timing: &Timing, core: &SharedCore) -> Nanos {
    let Schedule::RoundRobin { quantum, runners } = &core.schedule else { return Nanos(0) };
    let switch = timing.sharing(core).unwrap_or_default().switch;
    others_turns(*quantum, runners, switch.0)
}

/// How long the others' turns of a round put one off at most.
fn others_turns(quantum: Nanos, runners: &[Runner], switch: u64) -> Nanos {
    put_off(quantum, Nanos(switch), u32::try_from(runners.len()).unwrap_or(u32::MAX))
}

/// What one interrupt takes: as the file says, or what is `known` of the board.
pub(super) fn cost_of(timing: &Timing, line: &Line, known: u64) -> Result<u64, Fault> {
    let cost = if line.cost.0 == 0 { known } else { line.cost.0 };
    if cost == 0 {
        let message = format!("nobody says what one interrupt {} takes from its core", line.name);
        let help = "add wcet = \"2us\", the most time that one takes";
        return Err(timing.fault(Code::IrqNoWcet, &line.place, message, help));
    }
    Ok(cost)
}

/// What an interrupt takes: its own cost and what its VM takes by it, and how much it puts off.
fn interrupt(line: &Line, cost: u64, taken: u64, delay: u64) -> InterruptLine {
    let cost = cost.saturating_add(taken);
    // Rounded down: interrupts may come a little closer than they may.
    let admission = line.admission.map(|(rate, burst)| Admission {
        burst,
        interval: Nanos((1_000_000_000 / rate.max(1)).max(1)),
    });
    InterruptLine { admission, cost: Nanos(cost), delay: Nanos(delay) }
}

/// The missing cost of a switch on a shared core.
fn no_switch(timing: &Timing, core: &SharedCore) -> Option<Missing> {
    (timing.sharing(core).is_none() && switches(&core.schedule)).then(|| Missing {
        what: format!(
            "core {}: the cost of a switch is not known for {}, so that none is taken off",
            core.id,
            platform_name(timing)
        ),
        supply: "add `switch` to the schedule: the maximum of `vcpu_switch` that `weir bench hypervisor` prints".to_owned(),
    })
}

/// What was taken off the supply of a shared core's VMs, for a person.
fn taken_off(timing: &Timing, core: &SharedCore) -> Vec<String> {
    let id = core.id;
    let here: Vec<_> = runners(&core.schedule);
    let mut said = Vec::new();
    match timing.sharing(core) {
        Some(sharing) if switches(&core.schedule) => {
            let meanwhile = match sharing.interrupt.0 {
                0 => String::new(),
                _ => format!(
                    ", and {} once in each turn of a VM for whatever comes to it meanwhile",
                    sharing.interrupt
                ),
            };
            let switch = sharing.switch;
            said.push(format!("core {id}: taken off are up to {switch} for a switch{meanwhile}"));
        }
        _ => {}
    }
    let known = timing.sharing(core).map_or(0, |sharing| sharing.interrupt.0);
    for runner in here {
        let Runner::Vm(vm) = runner else { continue };
        let small = |line: &&Line| line.vm == vm && (1..known).contains(&line.cost.0);
        for line in timing.lines.iter().filter(small) {
            let platform = timing.platform.as_ref().map_or("the platform", |known| &known.name);
            said.push(format!(
                "core {id}: interrupt {} of {} is counted with {}, as its `wcet` says ({}): less than the {} that one takes on {platform}; write no less, or take the `cost` out",
                line.name,
                runner.name(timing),
                line.cost,
                timing.location(&line.place),
                Nanos(known),
            ));
        }
        let lines: Vec<_> = timing.unruled(vm).iter().map(u32::to_string).collect();
        if !lines.is_empty() {
            said.push(format!(
                "core {id}: {}'s interrupt {} has no [[irq]]: it counts once in each of its turns, and what it takes in them is for its own tasks",
                runner.name(timing),
                lines.join(", ")
            ));
        }
    }
    said
}

/// Everybody else who uses the memory, as a VM sees them; none where nobody says what an access costs.
fn interference(
    timing: &Timing,
    vm: usize,
    tried: Option<weir_units::BytesPerSec>,
) -> Option<Interference> {
    let (delay, per_access) = timing.delay()?;
    let mut interferers = Vec::new();
    if delay.0 == 0 {
        return Some(Interference { interferers, delay, per_access });
    }
    // Of what has no budget any period will do.
    let of_table = timing.saturation.as_ref().map_or(Nanos(1_000_000), |known| known.period);
    // MemGuard's VMs lend to each other, so that all of them have one budget: also what this VM gave, if it is one of them.
    let mut domain: Option<Interferer> = None;
    for (position, other) in timing.vms.iter().enumerate() {
        let regulation = regulation(&timing.vms, other, Some(&timing.vms[vm].name));
        let lends = matches!(regulation, Regulation::Memguard { .. });
        let own = position == vm && !lends;
        let siblings = u64::from(vcpus(other)) - 1;
        if own && siblings == 0 {
            continue;
        }
        let budget = other.bandwidth.as_ref().and_then(Bandwidth::settable_refills);
        let budget = budget.map(|(_, most, period)| (most, period));
        // What its vCPU on the task's core has for itself the others don't.
        let parts = other.bandwidth.as_ref().filter(|asked| own && asked.has_parts());
        let part = |whole| parts.map_or(0, |asked| asked.least_part(whole, vcpus(other) as usize));
        let budget = budget.map(|(whole, period)| (whole - part(whole), period));
        // Without a budget there is no limit.
        let (accesses, period) = budget.unwrap_or((u64::MAX, of_table));
        let vms = u64::from(position != vm || own);
        let cores = if own { siblings } else { u64::from(vcpus(other)) };
        let overshoot = timing.overshoot(other, period).unwrap_or(0);
        let interferer = Interferer {
            budget: Budget { accesses, period },
            regulation,
            overshoot: overshoot.saturating_mul(cores * vms),
            write_back: true,
            vms,
        };
        match &mut domain {
            _ if !lends => interferers.push(interferer),
            Some(domain) => domain.join(&interferer),
            None => domain = Some(interferer),
        }
    }
    interferers.extend(domain.filter(|domain| domain.vms > 0));
    if moves_for_vms(timing) {
        // Each line is read and written. Without a bandwidth there is no limit.
        let dma = timing.dma.bandwidth.or(tried).map_or(u64::MAX, |dma| dma.0);
        let bytes = u128::from(dma) * u128::from(of_table.0);
        let line = timing.line().map_or(1, |line| line.0.max(1));
        let accesses = bytes.div_ceil(u128::from(line) * 1_000_000_000);
        interferers.push(Interferer {
            budget: Budget {
                accesses: u64::try_from(accesses).unwrap_or(u64::MAX),
                period: of_table,
            },
            regulation: Regulation::Static,
            overshoot: 0,
            write_back: true,
            vms: 1,
        });
    }
    Some(Interference { interferers, delay, per_access })
}

/// Returns whether a DMA engine or the broker moves flows for the VMs.
fn moves_for_vms(timing: &Timing) -> bool {
    !timing.flows.is_empty() && !timing.dma.path.is_of_vms()
}

/// Returns whether anything else uses the memory while a task of VM `vm` runs.
fn is_exposed(timing: &Timing, vm: usize) -> bool {
    timing.vms.len() > 1
        || timing.vms.get(vm).is_some_and(|vm| vcpus(vm) > 1)
        || moves_for_vms(timing)
}

/// The platform as a message names it.
fn platform_name(timing: &Timing) -> &str {
    timing.platform.as_ref().map_or("the board (the file names no platform)", |known| &known.name)
}

/// Analyzes the schedules and tasks of a file, if it has some.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn analyze(timing: &Timing) -> Result<Option<Time>, Vec<Fault>> {
    let idle = timing.vms.iter().all(|vm| vm.tasks.is_empty());
    if timing.cores.is_empty() && idle && timing.lines.iter().all(|line| line.deadline.is_none()) {
        return Ok(None);
    }
    let mut faults = Vec::new();
    let mut time = Time::default();
    let mut without = Vec::new();
    for core in &timing.cores {
        let mut shares = Vec::new();
        for runner in runners(&core.schedule) {
            let looks = closest_looks(timing, runner);
            match supply_on(timing, core, runner, looks) {
                Ok(supply) => {
                    let sure = supply.linear();
                    if sure.is_none() && !has_task(timing, core, runner) {
                        without.push((core, runner));
                    }
                    shares.push((runner.name(timing).to_owned(), sure));
                }
                Err(fault) => {
                    faults.push(fault);
                    break;
                }
            }
        }
        time.cores.push((core.id, shares));
        time.notes.extend(taken_off(timing, core));
        time.missing.extend(no_switch(timing, core));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for vm in 0..timing.vms.len() {
        tasks_of(timing, vm, (None, true), &mut time).map_err(|fault| vec![fault])?;
    }
    // Behind the tasks: their reasons come in their order.
    for (core, runner) in without {
        nothing_for(timing, core, runner, &mut time);
    }
    for line in &timing.lines {
        interrupt_of(timing, line, &mut time);
    }
    Ok(Some(time))
}

/// Judges the deadline of an interrupt, if it has one: from its arrival until its VM has the core.
fn interrupt_of(timing: &Timing, line: &Line, time: &mut Time) {
    let (Some(deadline), Some(vm)) = (line.deadline, timing.vms.get(line.vm)) else { return };
    let (wait, late) = match wait_for_core(timing, line, deadline) {
        Ok(wait) => (Some(wait), None),
        Err((wait, late)) => (wait, Some(late)),
    };
    let verdict = match late {
        None => {
            if line.admission.is_some() {
                time.notes.push(format!(
                    "{}: interrupt {} keeps its deadline while it comes no more often than its `rate`",
                    vm.name, line.name
                ));
            }
            Verdict::Holds
        }
        Some(Late::Open(missing)) => {
            time.missing.push(missing);
            Verdict::NotJudged
        }
        Some(Late::Refuted(why, way)) => {
            let reason = format!("{}: interrupt {} {why}", vm.name, line.name);
            time.reasons.push((line.place.clone(), reason, Some(way.into())));
            Verdict::DoesNotHold
        }
    };
    time.interrupts.push(Awaited {
        vm: vm.name.clone(),
        name: line.name.clone(),
        wait,
        deadline: deadline.0,
        verdict,
    });
}

/// How long VM `vm` of a line waits for the core at most, in ns, on the worst of its cores, as
/// nobody says to which of them it comes.
///
/// # Errors
///
/// Why that may be longer than the deadline, with the bound if there is one.
fn wait_for_core(
    timing: &Timing,
    line: &Line,
    deadline: Nanos,
) -> Result<u64, (Option<u64>, Late)> {
    let (vm, runner) = (&timing.vms[line.vm], Runner::Vm(line.vm));
    let open = |why: &str, supply: &str| {
        Late::Open(Missing {
            what: format!("{}: the deadline of interrupt {}, as {why}", vm.name, line.name),
            supply: supply.to_owned(),
        })
    };
    let its = |core: &&SharedCore| runs(&core.schedule, runner);
    let mut cores: Vec<_> = vm.cpus.iter().copied().map(Some).collect();
    if cores.is_empty() {
        cores.extend(timing.cores.iter().filter(its).map(|core| Some(core.id)));
    }
    if cores.is_empty() {
        cores.push(None);
    }
    let mut longest = 0;
    for core in cores {
        let shared = timing.cores.iter().filter(its).find(|shared| Some(shared.id) == core);
        let sharing = shared.and_then(|shared| timing.sharing(shared)).unwrap_or_default();
        let cost = cost_of(timing, line, sharing.interrupt.0).unwrap_or(0);
        if cost > deadline.0 {
            let why = format!("takes {} itself, its deadline is {deadline}", Nanos(cost));
            let way = format!("write a `deadline` of more than {}", Nanos(cost));
            return Err((Some(cost), Late::Refuted(why, way)));
        }
        if line.class != Class::Dedicated {
            let why = "only interrupts of devices of one VM alone are analyzed";
            return Err((None, open(why, "take its `class` or the `deadline` out")));
        }
        if let Some(other) = lack::unlimited(timing, runner, shared) {
            let why = format!("interrupt {} on its core has no `rate`", other.name);
            return Err((None, open(&why, "add `rate` to that [[irq]]")));
        }
        let budget = vm.bandwidth.as_ref().is_some_and(|asked| asked.budget.is_some());
        if budget && own::unspent(timing, vm) == 0 {
            let why = "its VM's own memory budget may suspend it meanwhile";
            return Err((None, open(why, "take the budget or the `deadline` out")));
        }
        let supply = supply_for(timing, (line.vm, core), shared, closest_looks(timing, runner))
            .map_err(|fault| {
                let supply = fault.help.as_deref().unwrap_or("correct the schedule");
                (None, open(&fault.message, supply))
            })?;
        // The VM has the core as soon as it is sure of a moment.
        let moment =
            VmTask { cost: Nanos(1), period: Nanos(1 << 50), jitter: Nanos(0), blocking: Nanos(0) };
        let wait = response_times_beside(&[moment], &supply, &[Some(0)], None, None);
        let Some(wait) = wait.first().copied().flatten() else {
            let lack = shared.and_then(|core| lack::nothing_sure(timing, core, runner));
            let (why, way) = lack.map_or_else(
                || ("interrupts take its core".to_owned(), "write lower `rate`s".to_owned()),
                |lack| (lack.why, lack.way),
            );
            return Err((None, Late::Refuted(format!("has no bound: {why}"), way)));
        };
        longest = longest.max(wait.0);
        if wait > deadline {
            // One that takes the core does not wait for its VM's turn, so that this is no proof.
            let late = if line.preempt && shared.is_some() {
                let why = format!(
                    "its VM's turns alone make it wait up to {wait}, and what `preempt` spares of that is not known"
                );
                open(&why, &format!("write a `deadline` of {wait} or more, or shorter turns"))
            } else {
                let why = format!("may wait {wait} for the core, its deadline is {deadline}");
                let way = "give its VM shorter turns that come more often, or a longer `deadline`";
                Late::Refuted(why, way.to_owned())
            };
            return Err((Some(wait.0), late));
        }
    }
    Ok(longest)
}

/// Whether a task of `runner`'s is on a core: what is wrong there is said of it.
fn has_task(timing: &Timing, core: &SharedCore, runner: Runner) -> bool {
    let Runner::Vm(vm) = runner else { return false };
    let Some(vm) = timing.vms.get(vm) else { return false };
    vm.tasks.iter().any(|task| own::core_of(vm, task).is_none_or(|its| its == core.id))
}

/// Judges that nothing of a core is sure for `runner`. A flow of its does not hold then. Else
/// nothing in the file says what time it needs, so that it is not judged.
fn nothing_for(timing: &Timing, core: &SharedCore, runner: Runner, time: &mut Time) {
    let Some(Lack { place, why, way }) = lack::nothing_sure(timing, core, runner) else { return };
    let name = runner.name(timing);
    let what = format!("core {}: no time is sure for {name}: {why}", core.id);
    let at = timing.location(&place);
    match flow_at(timing, core, runner) {
        Some(flow) => {
            time.reasons.push((
                place,
                format!("{what}: its flow {flow} waits for it"),
                Some(way.into()),
            ));
        }
        None => time.missing.push(Missing { what: format!("{what} ({at})"), supply: way }),
    }
}

/// A flow with a deadline that `runner` sends, receives or copies on a core.
fn flow_at<'a>(timing: &'a Timing, core: &SharedCore, runner: Runner) -> Option<&'a str> {
    let is_here = match runner {
        Runner::Vm(vm) => timing.vms.get(vm)?.cpus.first().is_none_or(|first| *first == core.id),
        Runner::Broker => true,
    };
    let is_its = |flow: &&Flow| match runner {
        Runner::Vm(vm) => flow.from == vm || flow.to.contains(&vm),
        Runner::Broker => true,
    };
    let mut timed = timing.flows.iter().filter(|flow| is_here && !flow.best_effort);
    timed.find(is_its).map(|flow| flow.name.as_str())
}

/// What each VM is sure to get of the cores that it shares; none if no core is shared.
pub fn supplies(timing: &Timing) -> Option<Time> {
    let mut timing = timing.clone();
    timing.vms.iter_mut().for_each(|vm| vm.tasks.clear());
    timing.lines.iter_mut().for_each(|line| line.deadline = None);
    analyze(&timing).ok().flatten()
}

/// Analyzes the tasks of one VM at a bandwidth of the DMA engine that is tried where the file says
/// none. With `explain` it says why bounds are missing.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn tasks(
    timing: &Timing,
    vm: usize,
    tried: Option<weir_units::BytesPerSec>,
    explain: bool,
) -> Result<Time, Fault> {
    let mut time = Time::default();
    tasks_of(timing, vm, (tried, explain), &mut time)?;
    Ok(time)
}

/// What share of a core EL2's polls of the counter page take at worst, for a person: for each VM whose budget the monitor counts.
pub fn worst_looks(timing: &Timing) -> Vec<String> {
    let of = |(position, vm): (usize, &TimedVm)| {
        let (looks, period) = looked_at(timing, position)?;
        let Looks { cost, .. } = looks;
        let every = looks.apart(own::unspent(timing, vm), period);
        let percent = |looks: u128, interval: Nanos| {
            (u128::from(cost.0) * 100 * looks).div_ceil(interval.0.max(1).into())
        };
        let most = (percent(1, every) + percent(2, period)).min(100);
        // Beside a measured table they are no rarer than when it was measured.
        let way = if timing.saturation.is_some() { "" } else { "`poll` or " };
        Some(format!(
            "{}: EL2's polls of the counter page take up to {most} % of each of its cores, {cost} each {every} where little is left of the budget; {way}a larger budget sets them apart",
            vm.name
        ))
    };
    timing.vms.iter().enumerate().filter_map(of).collect()
}

/// Whether `runner` and somebody else have a core of which no schedule says who has it when.
fn unshared(timing: &Timing, runner: Runner, core: Option<u64>) -> Option<Fault> {
    let core = core.filter(|core| timing.cores.iter().all(|shared| shared.id != *core))?;
    let vms = timing.vms.iter().enumerate().filter(|(_, vm)| vm.cpus.contains(&core));
    let vms = vms.map(|(vm, _)| Runner::Vm(vm));
    let mut here: Vec<_> =
        vms.chain((timing.broker == Some(core)).then_some(Runner::Broker)).collect();
    here.retain(|other| *other != runner);
    let other = here.first()?;
    // Both are named in one order, whoever is asked about.
    let [first, second] = match (runner, other) {
        (Runner::Vm(one), Runner::Vm(other)) => {
            [Runner::Vm(one.min(*other)), Runner::Vm(one.max(*other))]
        }
        (Runner::Broker, other) => [*other, Runner::Broker],
        (vm, Runner::Broker) => [vm, Runner::Broker],
    };
    let place = match first {
        Runner::Vm(vm) => timing.vms.get(vm).map(|vm| vm.place.clone()).unwrap_or_default(),
        Runner::Broker => Place::default(),
    };
    let [first, second] = [first, second].map(|runner| match runner {
        Runner::Vm(_) => runner.name(timing),
        Runner::Broker => "the broker",
    });
    let message = format!("{first} and {second} share core {core}, and nobody says how");
    let help = match second {
        "the broker" => {
            "add [[core]] with its `id` and a `schedule` that names both, or give [broker] `cpus` another core"
        }
        _ => "add [[core]] with its `id` and a `schedule` that names both",
    };
    Some(timing.fault(Code::NoSchedule, &place, message, help))
}

/// Why a VM does not have a core without a schedule to itself.
fn not_its_own(timing: &Timing, position: usize, core: Option<u64>) -> Option<Fault> {
    let (vm, core) = (timing.vms.get(position)?, core?);
    if !vm.cpus.is_empty() && !vm.cpus.contains(&core) {
        let message = format!("{} has tasks on core {core}, which it does not have", vm.name);
        let help = "give them a `core` of the VM's `cpus`";
        return Some(timing.fault(Code::TaskCore, &vm.place, message, help));
    }
    unshared(timing, Runner::Vm(position), Some(core))
}

/// The way out of late tasks that make so many accesses, where the `closest` looks at the monitor are in their responses for want of knowing what
/// is left of a part of the budget that is the core's own.
fn way_of(vm: &TimedVm, accesses: &[Option<u64>], closest: bool) -> Option<&'static str> {
    let parted = vm.bandwidth.as_ref().is_none_or(Bandwidth::has_parts);
    (closest && parted && accesses.contains(&None)).then_some(ADD)
}

/// What is wrong with a task's response, if it is.
fn late(row: &Row, lack: Option<&Lack>) -> Option<String> {
    match row.response {
        None => Some(lack.map_or("has no bound on its response".to_owned(), |lack| {
            format!("has no bound: {}", lack.why)
        })),
        Some(response) if response > row.deadline => {
            Some(format!("may take {response} ns, its deadline is {} ns", row.deadline))
        }
        Some(_) => None,
    }
}

/// Why a task has no bound on a core where `supply` is left, and it and those before it ask for `asked`; `bounded` says whether it has one in another file, `way` what
/// else makes the core's time more.
fn no_bound(
    timing: &Timing,
    (vm, shared): (usize, Option<&SharedCore>),
    (task, asked, supply): (&Task, f64, &Supply),
    way: Option<&'static str>,
    bounded: impl Fn(&Timing) -> bool,
) -> Option<Lack> {
    let runner = Runner::Vm(vm);
    let nothing = || lack::nothing_sure(timing, shared?, runner);
    let lack = lack::by_line(timing, runner, shared, bounded).or_else(nothing);
    lack.or_else(|| {
        let sure = supply.linear().map_or(0.0, share);
        (asked > sure).then(|| Lack {
            place: task.place.clone(),
            why: format!(
                "of its core {:.1} % are sure, and the VM's tasks up to this one ask for {:.1} %",
                (sure * 1000.0).floor() / 10.0,
                (asked * 1000.0).ceil() / 10.0,
            ),
            way: way.unwrap_or(MORE).to_owned(),
        })
    })
}

/// Why a task has no bound where its core has time enough: what its VM's own memory budget, or others' accesses, do to it. Whether it has one without either is said.
fn held_up(
    timing: &Timing,
    vm: usize,
    task: &Task,
    unsuspended: impl FnOnce() -> bool,
    alone: impl FnOnce() -> bool,
) -> Option<Lack> {
    let this = timing.vms.get(vm)?;
    let (why, way) = if unsuspended() {
        let why = "its VM's own memory budget, which its tasks spend, suspends it for longer than its core goes on";
        (why.to_owned(), "write a larger budget, or one of a shorter `period`".to_owned())
    } else {
        let free = |(position, other): &(usize, &TimedVm)| {
            other.bandwidth.as_ref().is_none_or(|asked| asked.refills().is_none())
                && (*position != vm || vcpus(other) > 1)
        };
        let free: Vec<_> = timing.vms.iter().enumerate().filter(free).collect();
        let who = if vcpus(this) > 1 { "others, also of its VM's other cores," } else { "others" };
        let mut why =
            format!("the accesses of {who} may delay its own for longer than its core goes on");
        if !alone() {
            why.push_str(", and its VM's own memory budget suspends it");
        }
        let names: Vec<_> = free.iter().map(|(_, other)| other.name.as_str()).collect();
        let way = match names.as_slice() {
            [] => "lower the others' budgets, or the task's `accesses`".to_owned(),
            names => {
                format!("give {} a `memory_budget` with a budget of refills", names.join(", "))
            }
        };
        (why, way)
    };
    Some(Lack { place: task.place.clone(), why, way })
}

/// That a task has no bound because its VM's cores copy a flow, at position `flow`, without end.
fn unpaced(timing: &Timing, flow: Option<usize>, task: &Task) -> Option<Lack> {
    let flow = &timing.flows.get(flow?)?.name;
    Some(Lack {
        place: task.place.clone(),
        why: format!("its VM's cores copy the flow {flow}, and nothing says how often or how fast"),
        way: PACE.to_owned(),
    })
}

fn load_of(tasks: &[&Task]) -> Vec<VmTask> {
    let load = |task: &&Task| VmTask {
        cost: task.cost,
        period: task.period,
        jitter: task.jitter,
        blocking: task.blocking,
    };
    tasks.iter().map(load).collect()
}

/// What VM `vm` is sure to get of core `core`, or of those that it has; `shared` is the one whose schedule names it.
///
/// # Errors
///
/// That nobody says when it has the core.
fn supply_for(
    timing: &Timing,
    (vm, core): (usize, Option<u64>),
    shared: Option<&SharedCore>,
    looks: Vec<InterruptLine>,
) -> Result<Supply, Fault> {
    let this = &timing.vms[vm];
    let elsewhere = core.and_then(|core| timing.cores.iter().find(|shared| shared.id == core));
    if elsewhere.is_none()
        && let Some(fault) = not_its_own(timing, vm, core)
    {
        return Err(fault);
    }
    match (shared, elsewhere) {
        (Some(shared), _) => supply_on(timing, shared, Runner::Vm(vm), looks),
        (None, Some(shared)) => {
            let message = format!(
                "{} has tasks on core {}, whose schedule leaves it out",
                this.name, shared.id
            );
            let help = "name the VM in the schedule, or give its tasks another `core`";
            Err(timing.fault(Code::TaskNotScheduled, &shared.place, message, help))
        }
        (None, None) => dedicated(timing, vm, looks),
    }
}

/// With `explain` ways out of what has no bound are looked for, which takes as long as many analyses.
fn tasks_of(
    timing: &Timing,
    vm: usize,
    (tried, explain): (Option<weir_units::BytesPerSec>, bool),
    time: &mut Time,
) -> Result<(), Fault> {
    let this = &timing.vms[vm];
    let core_of = |task: &Task| own::core_of(this, task);
    let mut cores: Vec<_> = this.tasks.iter().map(core_of).collect();
    cores.sort_unstable();
    cores.dedup();
    let beside = interference(timing, vm, tried);
    // Nobody says which of its cores copies, so each may.
    let copying = Copying::by(timing, vm, tried.map(|rate| rate.0));
    let copies = copying.tasks.len();
    let asked_by_copies: f64 =
        copying.tasks.iter().map(|copy| part(copy.cost.0, copy.period.0)).sum();
    time.interference |= beside.as_ref().is_some_and(|beside| beside.delay.0 > 0);
    let mut missing = Vec::new();
    if beside.is_none() && !this.tasks.is_empty() && is_exposed(timing, vm) {
        missing.push(no_delay(timing, &this.name));
    }
    let (mut unknown, mut waits, mut looked) = (false, false, false);
    for core in cores {
        let tasks: Vec<_> = this.tasks.iter().filter(|task| core_of(task) == core).collect();
        let shared = timing.cores.iter().find(|shared| {
            core.is_none_or(|core| core == shared.id) && runs(&shared.schedule, Runner::Vm(vm))
        });
        let left = own::left(timing, this, core);
        let looks = looks(timing, vm, left);
        looked |= !looks.is_empty();
        let supply = supply_for(timing, (vm, core), shared, looks.clone())?;
        let load: Vec<VmTask> = copying.tasks.iter().copied().chain(load_of(&tasks)).collect();
        // What delays a copy's accesses is in the bandwidth that it is said to have.
        let own_accesses = tasks.iter().map(|task| task.accesses);
        let accesses: Vec<Option<u64>> =
            std::iter::repeat_n(Some(0), copies).chain(own_accesses).collect();
        let back = shared.map_or(Nanos(0), |core| back(timing, core));
        let own = match own::on_core(timing, this, core, back) {
            Own::Enough => None,
            Own::Unknown => {
                unknown = true;
                missing.push(no_accesses(this));
                None
            }
            Own::Waits(own) => {
                waits = true;
                Some(own)
            }
        };
        let times = |load: &[VmTask], supply: &Supply| {
            response_times_beside(load, supply, &accesses, beside.as_ref(), own.as_ref())
        };
        let mut asked = asked_by_copies;
        let responses = times(&load, &supply).into_iter().enumerate().skip(copies);
        for (task, (place, response)) in tasks.iter().zip(responses) {
            asked += part(task.cost.0, task.period.0);
            // Those of lower priority matter to one that they can block.
            let those = if task.blocking.0 == 0 { &load[..=place] } else { &load[..] };
            let response = response.filter(|_| copying.unlimited.is_none());
            let row = Row {
                vm: this.name.clone(),
                name: task.name.clone(),
                response: response.map(|time| time.0),
                deadline: task.deadline.0,
                open: !missing.is_empty(),
            };
            let bounded = |tried: &Timing| {
                let supply = supply_for(tried, (vm, core), shared, looks.clone());
                // Where more is asked for than is sure it takes long to find that there is none.
                supply.is_ok_and(|supply| {
                    supply.linear().is_some_and(|sure| share(sure) > asked)
                        && times(those, &supply).get(place).copied().flatten().is_some()
                })
            };
            let way = way_of(this, &accesses, looked && left == 0);
            let way = way.or((copies > 0).then_some(COPY));
            let without = |beside, own| {
                let times = response_times_beside(those, &supply, &accesses, beside, own);
                times.get(place).copied().flatten().is_some()
            };
            let unsuspended = || without(beside.as_ref(), None);
            let alone = || without(None, own.as_ref());
            let lack = unpaced(timing, copying.unlimited, task).or_else(|| {
                if response.is_some() || !explain {
                    return None;
                }
                no_bound(timing, (vm, shared), (task, asked, &supply), way, bounded)
                    .or_else(|| held_up(timing, vm, task, unsuspended, alone))
            });
            let reason = late(&row, lack.as_ref())
                .map(|reason| format!("{}: {} {reason}", row.vm, row.name));
            let (place, way) = match lack {
                Some(lack) => (lack.place, Some(lack.way.into())),
                None => (task.place.clone(), way.map(Cow::Borrowed)),
            };
            time.reasons.extend(reason.map(|reason| (place, reason, way)));
            time.tasks.push(row);
        }
    }
    time.notes.extend(notes(&this.name, [copies > 0, unknown, looked, waits]));
    missing.dedup();
    time.missing.extend(missing);
    Ok(())
}

/// The missing delay of the tasks of the VM `name` by other VMs' accesses.
fn no_delay(timing: &Timing, name: &str) -> Missing {
    Missing {
        what: format!(
            "{name}: the response times leave out other VMs' memory accesses, as the delay by one is not known for {}",
            platform_name(timing)
        ),
        supply: "add `delay` to [saturation], or name a platform whose file has [interference]"
            .to_owned(),
    }
}

/// The missing number of accesses of a VM's tasks, which spend its budget.
fn no_accesses(vm: &TimedVm) -> Missing {
    let counts = vm.bandwidth.as_ref().is_some_and(|asked| asked.refills().is_some());
    let (what, supply) = if counts {
        ("the `accesses` of its tasks are not known", "add `accesses` to each of its [[vm.task]]")
    } else {
        ("its budget does not count refills", "write a budget of refills")
    };
    Missing {
        what: format!("{}: whether its tasks wait for its own budget is open, as {what}", vm.name),
        supply: supply.to_owned(),
    }
}

/// What holds for the responses of the VM `name`: that it copies flows, that its budget is unknown, that it is looked at, that it waits.
fn notes(name: &str, hold: [bool; 4]) -> impl Iterator<Item = String> {
    let notes = [
        "the flows that its cores copy are in its responses, as more urgent than its tasks",
        "its own budget is taken to be enough for its tasks: nobody says how many of the `accesses` that it counts they make",
        "EL2's polls of the counter page for its budget are in its responses",
        "its tasks may spend its own budget and wait for the next, which is in their responses",
    ];
    let holding = notes.into_iter().zip(hold).filter(|(_, holds)| *holds);
    holding.map(move |(note, _)| format!("{name}: {note}"))
}

impl Time {
    /// Whether no task is late, as far as it is judged.
    pub fn holds(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Returns the verdict on all tasks and shared cores.
    pub fn judgement(&self) -> Judgement {
        let missing = self.missing.iter().cloned().map(Judgement::from);
        missing.fold(Judgement::of(self.holds()), Judgement::and)
    }

    /// The tasks that are late: name, response and deadline in ns, and that in a sentence.
    pub fn late(&self) -> impl Iterator<Item = (&str, Option<u64>, u64, &str)> {
        let late = self.tasks.iter().filter(|row| row.response.is_none_or(|r| r > row.deadline));
        late.zip(&self.reasons)
            .map(|(row, reason)| (row.name.as_str(), row.response, row.deadline, reason.1.as_str()))
    }

    /// Why not, as faults of the file.
    pub fn faults(&self, timing: &Timing) -> Vec<Fault> {
        let help = "give the VM more time or a larger budget, other VMs less bandwidth, or the task a longer deadline";
        let fault = |(place, reason, way): &(Place, String, Option<Cow<'static, str>>)| {
            timing.fault(Code::TaskDeadlineMissed, place, reason, way.as_deref().unwrap_or(help))
        };
        self.reasons.iter().map(fault).collect()
    }

    /// As `weir analyze --json` prints it.
    pub fn to_json(&self) -> Value {
        let cores = self.cores.iter().map(|(id, shares)| {
            let shares = shares.iter().map(|(name, linear)| {
                json!({
                    "name": name,
                    "share": linear.map(share),
                    "delay_ns": linear.map(|linear| linear.delay.0),
                })
            });
            json!({ "id": id, "vms": shares.collect::<Vec<_>>() })
        });
        let tasks = self.tasks.iter().map(|task| {
            json!({
                "vm": task.vm,
                "name": task.name,
                "response_ns": task.response,
                "deadline_ns": task.deadline,
                "holds": task.verdict().truth(),
                "verdict": task.verdict().key(),
            })
        });
        let interrupts = self.interrupts.iter().map(|line| {
            json!({
                "vm": line.vm,
                "interrupt": line.name,
                "wait_ns": line.wait,
                "deadline_ns": line.deadline,
                "holds": line.verdict.truth(),
                "verdict": line.verdict.key(),
            })
        });
        let verdict = self.judgement().verdict();
        json!({
            "holds": verdict.truth(),
            "verdict": verdict.key(),
            "cores": cores.collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "interrupts": interrupts.collect::<Vec<_>>(),
            "memory_interference": self.interference,
            "reasons": self.reasons.iter().map(|reason| &reason.1).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn share(linear: Linear) -> f64 {
    part(linear.share, linear.whole)
}

#[expect(clippy::cast_precision_loss, reason = "for printing")]
fn part(some: u64, whole: u64) -> f64 {
    some as f64 / whole as f64
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cores.is_empty() {
            let mut rows = table(["core", "VM", "share", "after ns"]);
            for (id, shares) in &self.cores {
                for (name, linear) in shares {
                    let (share, delay) = linear
                        .map_or(("none".to_owned(), "-".to_owned()), |linear| {
                            (format!("{:.4}", share(linear)), linear.delay.0.to_string())
                        });
                    rows.add_row([id.to_string(), name.clone(), share, delay]);
                }
            }
            writeln!(f, "{rows}")?;
        }
        if !self.tasks.is_empty() {
            let mut rows = table(["VM", "task", "response ns", "deadline ns", "verdict"]);
            for task in &self.tasks {
                let response = task.response.map_or("no bound".to_owned(), |time| time.to_string());
                rows.add_row([
                    task.vm.clone(),
                    task.name.clone(),
                    response,
                    task.deadline.to_string(),
                    task.verdict().to_string(),
                ]);
            }
            writeln!(f, "{rows}")?;
        }
        if !self.interrupts.is_empty() {
            let mut rows = table(["VM", "interrupt", "wait ns", "deadline ns", "verdict"]);
            for line in &self.interrupts {
                rows.add_row([
                    line.vm.clone(),
                    line.name.clone(),
                    line.wait.map_or("no bound".to_owned(), |wait| wait.to_string()),
                    line.deadline.to_string(),
                    line.verdict.to_string(),
                ]);
            }
            writeln!(f, "{rows}")?;
        }
        for (_, reason, way) in &self.reasons {
            writeln!(f, "  {reason}")?;
            if let Some(way) = way {
                writeln!(f, "    help: {way}")?;
            }
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The faults of a core with this schedule and these lines, which `rtos`, that has a task, and `gpos` share.
    fn faults(core: &str) -> String {
        let text = format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"rtos\"\ncpus = [0]\n[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"100ms\"\n\
             [[vm]]\nname = \"gpos\"\ncpus = [0]\n[[core]]\nid = 0\nschedule = {{ {core}"
        );
        let timing = Timing::from_text(Path::new("s.toml"), &text).expect("a system");
        let faults = crate::analyze::check(&timing).err().map(|faults| faults.to_string());
        // Lines are broken where a page ends.
        let words = |line: &str| line.trim_start_matches([' ', '|']).to_owned();
        let lines: Vec<_> = faults.iter().flat_map(|faults| faults.lines()).map(words).collect();
        lines.join(" ")
    }

    #[test]
    fn what_is_not_limited_is_pointed_at() {
        let rule =
            "kind = \"round-robin\", quantum = \"20ms\" }\n[[irq]]\nline = 34\nvm = \"gpos\"\n";
        assert_eq!(faults(rule), "");
        let said = faults(&format!("{rule}preempt = true\n"));
        assert!(said.contains("s.toml:15:1") && said.contains("add `rate` to this"), "{said}");
        assert!(
            said.contains("interrupt 34 of gpos, on its core, is let through without"),
            "{said}"
        );
    }

    /// The number in `text` behind `before`.
    fn number(text: &str, before: &str) -> u64 {
        let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("{before}: {text}"));
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().unwrap_or_else(|_| panic!("{before}: {text}"))
    }

    #[test]
    fn too_frequent_interrupts_get_a_feasible_rate() {
        let rule = |keys: &str| {
            faults(&format!(
                "kind = \"round-robin\", quantum = \"20ms\" }}\n[[irq]]\nline = 33\nvm = \"gpos\"\nrate = 1\npreempt = true\n[[irq]]\nline = 34\nvm = \"gpos\"\n{keys}"
            ))
        };
        let preempt = |rate: u64| rule(&format!("preempt = true\nrate = {rate}\n"));
        let said = preempt(1000);
        assert!(said.contains("s.toml:20:1"), "{said}");
        assert!(said.contains("interrupt 34 of gpos, on its core, may come 1000 times a second and takes 10us each time, and with `preempt` its VM's turn"), "{said}");
        let most = number(&said, "write rate = ");
        assert!(!preempt(most).contains("no bound"), "{}", preempt(most));
        assert!(preempt(most + 1).contains("no bound"));
        assert!(said.contains("or take `preempt` out"), "{said}");
        assert_eq!(rule("rate = 1000\n"), "");
        // Without a rate the same one is enough.
        assert_eq!(number(&rule("preempt = true\n"), "that are let through: "), most);
    }

    #[test]
    fn interrupts_too_frequent_together_get_a_factor() {
        let rates = |times: u64| {
            let line = |line: u32| {
                let rate = 260_000 / times;
                format!("[[irq]]\nline = {line}\nvm = \"rtos\"\nwcet = \"5us\"\nrate = {rate}\n")
            };
            faults(&format!(
                "kind = \"round-robin\", quantum = \"20ms\" }}\n{}{}",
                line(34),
                line(35)
            ))
        };
        let said = rates(1);
        assert!(
            said.contains(
                "interrupts 34 of rtos, 35 of rtos, on its core, come too often together"
            ),
            "{said}"
        );
        let times = number(&said, "write a `rate` for each that is ");
        assert!(!rates(times).contains("no bound"), "{}", rates(times));
        assert!(rates(times - 1).contains("no bound"));
    }

    #[test]
    fn turns_that_switches_take_are_told_with_longer_ones() {
        let round = |quantum: u64| {
            faults(&format!("kind = \"round-robin\", quantum = \"{quantum}us\" }}\n"))
        };
        let said = round(20);
        assert!(
            said.contains("rtos's turns of 20us are too short: switches take up to 25us of each"),
            "{said}"
        );
        assert!(!said.contains("the rest"), "{said}");
        let enough = number(&said, "write quantum = \"");
        let better = round(enough);
        assert!(
            !better.contains("too short") && round(enough - 20).contains("too short"),
            "{better}"
        );
        assert!(
            round(34).contains("and what EL2 does for VMs that are off, up to 10us each, the rest")
        );
        let table = |times: u64| {
            let [length, second, frame] = [40, 50, 1000].map(|time| time * times);
            faults(&format!(
                "kind = \"table\", major_frame = \"{frame}us\", slots = [{{ vm = \"rtos\", start = \"0us\", length = \"{length}us\" }}, {{ vm = \"gpos\", start = \"{length}us\", length = \"{second}us\" }}] }}\n"
            ))
        };
        let said = table(1);
        assert!(
            said.contains("rtos's slots of 40us are too short: switches take up to 50us of each"),
            "{said}"
        );
        assert!(!table(number(&said, "slots that are ")).contains("too short"));
        let servers = |times: u64| {
            let [budget, period] = [50, 2000].map(|time| time * times);
            faults(&format!(
                "kind = \"fixed-priority\", servers = [{{ vm = \"rtos\", budget = \"{budget}us\", period = \"{period}us\" }}, {{ vm = \"gpos\", budget = \"500us\", period = \"{period}us\" }}] }}\n"
            ))
        };
        let said = servers(1);
        assert!(
            said.contains("rtos's budgets of 50us are too short: switches take up to 50us of each"),
            "{said}"
        );
        assert!(!servers(number(&said, "budgets and periods that are ")).contains("too short"));
    }

    #[test]
    fn excess_demand_names_the_guaranteed_supply() {
        let said = faults(
            "kind = \"table\", major_frame = \"100ms\", slots = [{ vm = \"rtos\", start = \"0us\", length = \"1ms\" }, { vm = \"gpos\", start = \"40ms\", length = \"50ms\" }] }\n",
        );
        assert!(
            said.contains(
                "of its core 0.9 % are sure, and the VM's tasks up to this one ask for 1.0 %"
            ),
            "{said}"
        );
    }

    /// A VM without tasks is in no fault.
    #[test]
    fn missing_supply_and_tiny_costs_are_noted() {
        let notes = |core: &str| {
            let text = format!(
                "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n[[vm]]\nname = \"b\"\ncpus = [0]\n[[core]]\nid = 0\nschedule = {{ {core}"
            );
            let timing = Timing::from_text(Path::new("s.toml"), &text).expect("a system");
            let supplies = supplies(&timing).expect("supplies");
            let judgement = supplies.judgement();
            let open = judgement.missing().iter().map(ToString::to_string);
            open.fold(supplies.to_string(), |said, one| said + &one)
        };
        let said = notes("kind = \"round-robin\", quantum = \"20us\" }\n");
        assert!(
            said.contains("core 0: no time is sure for b: b's turns of 20us are too short"),
            "{said}"
        );
        let cost = |cost: &str| {
            notes(&format!(
                "kind = \"round-robin\", quantum = \"1ms\" }}\n[[irq]]\nline = 34\nvm = \"b\"\n{cost}"
            ))
        };
        let said = cost("wcet = \"9us\"\n");
        assert!(
            said.contains("interrupt 34 of b is counted with 9us, as its `wcet` says (s.toml:11:1): less than the 10us that one takes on qemu-virt"),
            "{said}"
        );
        for good in ["", "wcet = \"10us\"\n"] {
            assert!(!cost(good).contains("is counted with"), "{good}");
        }
    }

    #[test]
    fn a_budget_that_fits_is_said() {
        let servers = |budget: &str| {
            faults(&format!(
                "kind = \"fixed-priority\", servers = [{{ vm = \"rtos\", budget = \"20ms\", period = \"40ms\" }}, {{ vm = \"gpos\", budget = \"{budget}\", period = \"40ms\" }}] }}\n"
            ))
        };
        let said = servers("20ms");
        assert!(said.contains("gpos may not get its 20ms in each 40ms"), "{said}");
        let fits = said.split("a budget of ").nth(1).and_then(|rest| rest.split("us ").next());
        let fits: u64 = fits.and_then(|fits| fits.parse().ok()).expect("a budget");
        assert_eq!(servers(&format!("{fits}us")), "");
        assert!(!servers(&format!("{}us", fits + 1)).is_empty());
    }
}
