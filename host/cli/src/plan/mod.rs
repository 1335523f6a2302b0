//! `weir plan`: the cheapest setting in which a system holds, proven by `weir analyze`.

mod ask;
mod board;
mod edit;
pub mod open;
mod tell;

use crate::{
    analyze::{
        Analysis, Question, flows,
        memory::{self, Limits},
        missing_json,
        regulation::regulation,
        status,
    },
    cargo::replace,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result},
    image, output, screen,
};
use ask::{Asker, EFFORT};
use board::{Board, is_best_effort};
use serde_json::json;
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use tell::Refused;
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{Effort, MAX_BANDWIDTH, Overheads, Reading, Setting},
    memory::{CriticalTask, SaturationPoint, SaturationTable},
    plan::{Plan, Platform, Refusal, Shape, System, Vm, check, plan_by, shortages},
    verdict::Verdict,
};
use weir_model::{
    Code, Fault, Faults, Timing,
    timing::{Bandwidth, Saturation, TimedVm},
};

/// Chooses what a system file leaves open - colors, banks, memory budgets, DMA bandwidth and chunk - so that all its
/// demands hold and best effort is left the most memory bandwidth; proves it by `weir analyze`.
///
/// The result is the input with the choices written into it, comments kept. Demands are `criticality`, `bandwidth =
/// { required = .. }`, `working_set`, `[[vm.task]]` and `[[flow]]`; what the file says already is kept. If they can't live together,
/// the smallest set of them that can't is named, with what there is too little of.
///
/// Budgets are the least in which all tasks hold, also where a task waits for a replenishment of
/// its VM's budget, and best effort gets the most that leaves the tasks in time. No budget is
/// larger than what the memory takes (`[saturation]`) or the VM's cores can use in the period.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir plan system.toml\n  weir plan system.toml -o planned.toml\n  weir plan system.toml --json\n\nExit status: 0 planned, 1 there is no plan (or none was found within the effort, or something of it is not judged), 2 the call is wrong, such as a file that can't be read, 3 the plan can't be written."
)]
pub struct Arguments {
    /// The system file.
    file: PathBuf,
    /// Write the planned system here instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How much may be spent on the whole search, in steps of about 1 ns.
    ///
    /// If it is spent before there is a plan, there is no answer; if it is spent on the search for the smallest set of
    /// demands that can't live together, a set is named that is perhaps not the smallest.
    #[arg(long, value_name = "STEPS", default_value_t = 10_000_000_000)]
    max_steps: u64,
    /// Exit with status 0 also where something of the plan is not judged because an input is
    /// missing.
    #[arg(long)]
    accept_not_judged: bool,
    /// Print what was chosen, its analysis and the planned file as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let path = &arguments.file;
    if let Some(output) = &arguments.output {
        output::check("-o", output, &[path])?;
    }
    let refused = |faults: &Faults| {
        if arguments.json {
            let json = json!({ "file": path.display().to_string(), "faults": faults.to_json() });
            writeln!(screen::stdout(), "{json}")?;
        }
        Err(Failure { status: image::whose(faults), text: image::rendered(faults) })
    };
    let timing = match crate::check::to_analyze(path, None, environment) {
        Ok((timing, _)) => timing,
        Err(faults) => return refused(&faults),
    };
    let text = weir_model::read_text(path, weir_model::TEXT_LIMIT)
        .context(|| format!("read {}", path.display()))?;
    let choice = match choose(&timing, &text, arguments.max_steps) {
        Ok(choice) => choice,
        Err(Trouble::Faults(faults)) => return refused(&faults),
        Err(Trouble::Refused(why)) => {
            if arguments.json {
                let json = json!({
                    "file": path.display().to_string(),
                    "plan": null,
                    "conflict": why.to_json(),
                });
                writeln!(screen::stdout(), "{json}")?;
            }
            return Err(Failure::system(why.text()));
        }
        Err(Trouble::GaveUp) => {
            if arguments.json {
                let json = json!({
                    "file": path.display().to_string(),
                    "plan": null,
                    "conflict": null,
                    "gave_up": true,
                });
                writeln!(screen::stdout(), "{json}")?;
            }
            let effort = arguments.max_steps;
            return Err(Failure::system(format!(
                "given up: within {effort} steps no plan was found, and none was excluded; allow more with --max-steps, or ask less"
            )));
        }
    };
    let planned = edit::write(&text, &timing, &choice)
        .map_err(|error| Failure::system(format!("cannot edit {}: {error}", path.display())))?;
    let (proof, analysis) = match prove(path, &planned, environment) {
        Ok(proof) => proof,
        Err(faults) => return refused(&faults),
    };
    let judgement = analysis.judgement();
    if judgement.verdict() == Verdict::DoesNotHold {
        return refused(&Faults(analysis.faults(&proof)));
    }
    if let Some(output) = &arguments.output {
        replace(output, planned.as_bytes())?;
    }
    let mut left_out = tell::left_out(&proof, &choice);
    let notes = analysis.memory.iter().flat_map(memory::Memory::notes);
    left_out.extend(notes.map(String::as_str));
    for what in &left_out {
        writeln!(screen::stderr(), "{}: {what}", path.display())?;
    }
    for missing in judgement.missing() {
        writeln!(screen::stderr(), "{}: not judged: {missing}", path.display())?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        let json = json!({
            "file": path.display().to_string(),
            "plan": tell::describe(&proof, &choice),
            "analysis": analysis.to_json(),
            "verdict": judgement.verdict().key(),
            "not_judged": missing_json(&judgement),
            "output": arguments.output.as_ref().map(|output| output.display().to_string()),
            "left_out": left_out,
            "toml": planned,
        });
        writeln!(out, "{json}")?;
    } else if let Some(output) = &arguments.output {
        write!(out, "{}", tell::summary(&proof, &choice))?;
        let verdict = match judgement.verdict() {
            Verdict::Holds => "all holds".to_owned(),
            other => other.to_string(),
        };
        writeln!(out, "{}: {verdict}", output.display())?;
    } else {
        write!(out, "{planned}")?;
    }
    match status(judgement.verdict(), arguments.accept_not_judged) {
        GOOD => Ok(()),
        status => Err(Failure::said(status)),
    }
}

/// What was chosen.
pub struct Choice {
    plan: Plan,
    /// What there was to divide, if anything is to be divided.
    board: Option<Board>,
    /// Without it there are no budgets.
    saturation: Option<Saturation>,
    /// Whether there are flows, which are moved at some bandwidth.
    flows: bool,
}

enum Trouble {
    Faults(Faults),
    Refused(Refused),
    GaveUp,
}

/// When the memory saturates, if anybody says. Without it no budgets are chosen, and the analysis
/// says what is not judged.
fn saturation_of(timing: &Timing) -> std::result::Result<Option<Saturation>, Faults> {
    if let Some(saturation) = &timing.saturation {
        short_table(timing, saturation)?;
    }
    Ok(timing.saturation.clone())
}

/// Refuses to choose budgets in a table's period which it says is too short for any.
fn short_table(timing: &Timing, saturation: &Saturation) -> std::result::Result<(), Faults> {
    let chosen = |vm: &&TimedVm| vm.bandwidth.as_ref().is_none_or(|its| its.budget.is_none());
    let Some(vm) = timing.vms.iter().find(chosen) else { return Ok(()) };
    let (period, least) = (saturation.period, saturation.min_period);
    if period >= least {
        return Ok(());
    }
    let place = vm.bandwidth.as_ref().map_or(&vm.place, |asked| &asked.place);
    let message = format!(
        "no budget can be planned for {}: [saturation] is for periods of {period}, and says that none below {least} are kept",
        vm.name
    );
    let help = format!(
        "measure it for such a period: `weir calibrate --period {least}`; or write `accesses` and `period` for each VM"
    );
    Err(Faults(vec![timing.fault(Code::PlanBudget, place, message, help)]))
}

/// What the table leaves for budgets beside what VMs without debt may take beyond theirs.
fn less_forgiven(
    timing: &Timing,
    from: &Saturation,
) -> std::result::Result<Saturation, Vec<Fault>> {
    let without = || timing.vms.iter().filter(|vm| memory::forgiven(timing, vm) > 0);
    let forgiven = without().fold(0u64, |sum, vm| sum.saturating_add(memory::forgiven(timing, vm)));
    let points = from.points.iter();
    let points: Vec<_> =
        points.filter_map(|(budget, dma)| Some((budget.checked_sub(forgiven)?, *dma))).collect();
    if let (true, Some(first)) = (points.is_empty(), without().next()) {
        let place = first.bandwidth.as_ref().map_or(&first.place, |asked| &asked.place);
        let names: Vec<_> = without().map(|vm| vm.name.as_str()).collect();
        let message = format!(
            "without debt {} may take {forgiven} accesses beyond what they are given in {}, which saturates the memory whatever that is",
            names.join(", "),
            from.period
        );
        let help = "remove `debt = false`: what goes beyond is then taken off the next budget";
        return Err(vec![timing.fault(Code::MemoryBandwidth, place, message, help)]);
    }
    Ok(Saturation { points, ..from.clone() })
}

fn choose(timing: &Timing, text: &str, effort: u64) -> std::result::Result<Choice, Trouble> {
    let wrong = |faults| Trouble::Faults(Faults(faults));
    let saturation = saturation_of(timing).map_err(Trouble::Faults)?;
    let table = match &saturation {
        Some(saturation) => {
            let left = less_forgiven(timing, saturation).map_err(wrong)?;
            memory::saturation(timing, &left).map_err(wrong)?
        }
        None => unlimited(timing).map_err(Trouble::Faults)?,
    };
    let copy = flows::most_copied(timing).map(BytesPerSec);
    let table = if timing.dma.path.is_of_vms() { beside_any(table, copy) } else { table };
    if !timing.flows.is_empty() {
        flows::Input::of(timing, Reading::Printed).map_err(wrong)?;
    }
    open::check(timing).map_err(wrong)?;
    // Everything that has no meaning at all is told before anything is chosen.
    let bandwidth = (!timing.flows.is_empty()).then_some(1);
    let probe = Question { bandwidth, effort: Effort(1), ..Question::default() };
    Analysis::of(timing, &probe).map_err(Trouble::Faults)?;

    let timed: Vec<usize> =
        (0..timing.flows.len()).filter(|flow| !timing.flows[*flow].best_effort).collect();
    let board = Board::of(timing, text);
    // Banks of its own cost a VM memory: nobody asked for them, so they go first.
    let colors_only = board.as_ref().and_then(Board::colors_only);
    let boards: Vec<Option<Board>> = std::iter::once(board).chain(colors_only.map(Some)).collect();
    let systems: Vec<System> = boards
        .iter()
        .map(|board| system(timing, board.as_ref(), saturation.as_ref(), &table, &timed))
        .collect();
    let systems: Vec<&System> = systems.iter().collect();
    let period = table.period();
    let asker = Asker::new(timing, period, timed, effort);
    match plan_by(&systems, &asker) {
        Ok((position, plan)) => {
            let system = systems[position];
            let flows = !timing.flows.is_empty();
            // Colors, banks and budgets once more by other rules than the search's; flows are proven from the file.
            let divided =
                System { flows: Vec::new(), dma: None, best_effort_flows: false, ..system.clone() };
            if check(&divided, &plan, EFFORT).is_empty() {
                let board = boards.into_iter().nth(position).flatten();
                return Ok(Choice { plan, board, saturation, flows });
            }
            let place = timing.vms.first().map(|vm| vm.place.clone()).unwrap_or_default();
            let message = "the plan was refuted by its own check";
            let fault = timing.fault(Code::PlanRefuted, &place, message, "report this system file");
            Err(Trouble::Faults(Faults(vec![fault])))
        }
        Err(Refusal::Conflict(conflict)) => {
            let spent = asker.spent();
            asker.allow_explanation();
            let last = systems.last().map(|system| shortages(system, &conflict.demands, &asker));
            let last = last.unwrap_or_default();
            Err(Trouble::Refused(Refused::new(&conflict, last, &asker, spent)))
        }
        Err(Refusal::GaveUp) => Err(Trouble::GaveUp),
    }
}

/// The table for flows that VMs' cores copy, whose budgets count what is moved: at whatever bandwidth up to `copy` they do it, it takes no more.
fn beside_any(table: SaturationTable, copy: Option<BytesPerSec>) -> SaturationTable {
    let total_budget = table.max_budget(BytesPerSec(0)).unwrap_or(0);
    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let dma = copy.unwrap_or(fastest);
    let point = SaturationPoint { total_budget, dma };
    SaturationTable::new(table.period(), vec![point]).unwrap_or(table)
}

/// Where nobody says when the memory saturates, nothing is known to be harmful.
fn unlimited(timing: &Timing) -> std::result::Result<SaturationTable, Faults> {
    let dma = if timing.flows.is_empty() { 0 } else { MAX_BANDWIDTH };
    let point = SaturationPoint { total_budget: u64::MAX, dma: BytesPerSec(dma) };
    SaturationTable::new(Nanos(1), vec![point]).map_err(|_| Faults::default())
}

/// The file's demands as the search has them.
fn system(
    timing: &Timing,
    board: Option<&Board>,
    saturation: Option<&Saturation>,
    table: &SaturationTable,
    timed: &[usize],
) -> System {
    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let known = saturation.map(|saturation| saturation.chunks.as_slice()).unwrap_or_default();
    let mut chunks: Vec<(Bytes, BytesPerSec)> = known.to_vec();
    let most = flows::most_copied(timing).map_or(BytesPerSec(u64::MAX), BytesPerSec);
    if let Some(given) = timing.dma.chunk {
        chunks.retain(|(size, _)| size.0 == given.0);
        if chunks.is_empty() {
            chunks.push((given, fastest));
        }
    } else if chunks.is_empty() {
        chunks.push((Bytes(flows::CHUNK), fastest));
    }
    for (_, reach) in &mut chunks {
        *reach = most.min(*reach);
    }
    let line = saturation.map(|saturation| saturation.line).or_else(|| timing.line());
    let line = Bytes(line.map_or(1, |line| line.0));
    let least = saturation.map_or(0, |saturation| saturation.min_accesses);
    let demands =
        |vm| Vm { shape: shape(timing, vm, table, least), ..demands(timing, vm, table, line) };
    let mut vms: Vec<Vm> = timing.vms.iter().map(demands).collect();
    if let Some(board) = board {
        let left = board.left(&timing.vms);
        for (vm, asked) in vms.iter_mut().zip(&timing.vms) {
            vm.working_set = Bytes(asked.working_set.map_or(0, |set| set.0));
            vm.memory = Bytes(board.memory(asked, left));
        }
    }
    let period = table.period();
    let overshoots = timing.vms.iter().map(|vm| timing.overshoot(vm, period));
    System {
        platform: Platform {
            // Without a board to divide each VM gets one of many, and none is written.
            colors: board.map_or(u32::MAX, |board| board.colors),
            color_bytes: Bytes(board.map_or(u64::MAX, |board| board.color_bytes)),
            banks: board.map_or(u32::MAX, |board| board.banks.unwrap_or(board.colors)),
            bank_bytes: Bytes(board.map_or(u64::MAX, Board::piece)),
            line,
            min_accesses: least,
            saturation: table.clone(),
            chunks,
            overshoot: overshoots.max().flatten().unwrap_or(0),
            banks_are_colors: board.is_some_and(|board| board.banks.is_none()),
        },
        vms,
        flows: flows_of(timing, timed),
        overheads: Overheads::default(),
        setting: Setting { chunk: Bytes(1), queues: None, reading: Reading::Printed },
        dma: timing.dma.bandwidth.map(|rate| most.min(rate)),
        best_effort_flows: timed.len() < timing.flows.len(),
    }
}

/// Positions are all that the search needs of flows, and their rates; their demand is the judge's.
fn flows_of(timing: &Timing, timed: &[usize]) -> Vec<weir_analysis::flows::Flow> {
    let flow = |flow: &usize| {
        let flow = &timing.flows[*flow];
        weir_analysis::flows::Flow {
            size: flow.size,
            period: Nanos(flow.period.map_or(1, |time| time.0)),
            deadline: Nanos(flow.deadline.map_or(1, |time| time.0)),
            from: 0,
            to: 1,
        }
    };
    timed.iter().map(flow).collect()
}

/// What a budget must be that is chosen for a VM, where it is to be `least` at least.
fn shape(timing: &Timing, vm: &TimedVm, table: &SaturationTable, least: u64) -> Shape {
    let vcpus = vm.cpus.len().max(1);
    let pool = vm.bandwidth.as_ref().is_some_and(Bandwidth::is_pool);
    let period = table.period();
    // No core makes more accesses, so that a larger budget limits nothing.
    let each = timing.looks(vm, period).map_or(u64::MAX, |looks| looks.most_in(period));
    let most = each.saturating_mul(vcpus as u64);
    let siblings = vcpus > 1 && timing.delay().is_some_and(|(delay, _)| delay.0 > 0);
    // Without a table none is chosen.
    let bandwidth = vm.bandwidth.as_ref().filter(|_| timing.saturation.is_some());
    let Some(bandwidth) = bandwidth else {
        return Shape { least: vcpus as u64, most, siblings, ..Shape::default() };
    };
    let part = if bandwidth.has_debt() { 1 } else { least.max(1) };
    let regulation = regulation(&timing.vms, vm, None);
    let whole =
        |each| if pool { regulation.enough(each) } else { bandwidth.least_whole(each, vcpus) };
    Shape {
        least: bandwidth.least_whole(part, vcpus).max(whole(1)),
        most,
        siblings,
        step: if bandwidth.is_each() { vcpus as u64 } else { 1 },
        regulation,
    }
}

/// The bandwidth whose budget leaves a VM `required` bytes/s beside EL2's looks at the monitor; the largest where none does.
fn beside_looks(
    timing: &Timing,
    vm: &TimedVm,
    required: u64,
    table: &SaturationTable,
    line: Bytes,
) -> u64 {
    let period = table.period();
    let Some(looks) = timing.looks(vm, period).filter(|_| required > 0) else { return required };
    let second = u128::from(line.0.max(1)) * 1_000_000_000;
    let least = (u128::from(required) * u128::from(period.0)).div_ceil(second);
    let vcpus = vm.cpus.len().max(1) as u64;
    let whole = u64::try_from(least).ok().and_then(|least| looks.enough(least, period, vcpus));
    // Rounded down, it still takes the same budget: a line in a period is many bytes/s.
    let rate = |whole| u64::try_from(u128::from(whole) * second / u128::from(period.0.max(1)));
    whole.and_then(|whole| rate(whole).ok()).map_or(u64::MAX, |rate| rate.max(required))
}

fn demands(timing: &Timing, vm: &TimedVm, table: &SaturationTable, line: Bytes) -> Vm {
    let asked = vm.bandwidth.as_ref();
    let given = Limits::of(timing, vm);
    // Without a table no budget is chosen, and whether the VM gets it is not judged.
    let known = timing.saturation.is_some() || given.is_some();
    let required = asked.and_then(|asked| asked.required).filter(|_| known);
    // The search asks the judge about all tasks of a VM as soon as it has one.
    let critical = vm.tasks.first().map(|task| {
        let alone = task.cost;
        let task_of = CriticalTask { alone, accesses: 0, delay: Nanos(0), per_access: None };
        (task_of, task.deadline)
    });
    let mut bandwidth = required.map_or(0, |rate| rate.0);
    if given.is_none() {
        bandwidth = beside_looks(timing, vm, bandwidth, table, line);
    }
    let mut counted =
        given.map(|given| table.counted(given.most, given.regulation).unwrap_or(u64::MAX));
    if let Some(given) = given {
        let sure = given.sure();
        let got = u128::from(sure.accesses) * u128::from(line.0) * 1_000_000_000;
        if got >= u128::from(bandwidth) * u128::from(sure.period.0) {
            bandwidth = 0;
        } else {
            // In its own period it is too little, whatever it is in the table's.
            counted = Some(0);
        }
    }
    Vm {
        best_effort: is_best_effort(vm),
        working_set: Bytes(0),
        memory: Bytes(0),
        bandwidth: BytesPerSec(bandwidth),
        critical,
        given: counted,
        shape: Shape::default(),
    }
}

/// Reads the planned file again and analyzes it.
fn prove(
    path: &Path,
    planned: &str,
    environment: &Environment,
) -> std::result::Result<(Timing, Analysis), Faults> {
    let (timing, unkept) = crate::check::to_analyze(path, Some(planned), environment)?;
    timing.check_budgets()?;
    let mut analysis = Analysis::of(&timing, &Question { effort: EFFORT, ..Question::default() })?;
    analysis.bear(unkept);
    Ok((timing, analysis))
}
