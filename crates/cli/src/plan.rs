//! `weir plan`: the cheapest setting in which a system holds, proven by `weir analyze`.

use crate::{
    analyze::{Analysis, Question, flows, memory, time},
    cargo::replace,
    failure::{Context, Failure, Result, SYSTEM},
    image,
};
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::Write as _,
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, value};
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{Effort, Overheads, Reading, Setting},
    memory::{Budget, CriticalTask, SaturationTable},
    plan::{Conflict, Demand, Judge, Plan, Platform, System, Vm, check, plan_by},
};
use weir_config::{
    Faults, Timing,
    timing::{Saturation, TimedVm},
    units,
};
use weir_layout::cells::Cells;

/// Chooses what a system file leaves open - colors, banks, memory budgets, DMA bandwidth and chunk - so that all its
/// demands hold and best effort is left the most memory bandwidth; proves it by `weir analyze`.
///
/// The result is the input with the choices written into it, comments kept. Demands are `criticality`, `bandwidth =
/// { required = .. }`, `working_set`, `[[vm.task]]` and `[[flow]]`; what the file says already is kept. If they can't live together,
/// the smallest set of them that can't is named.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir plan system.toml\n  weir plan system.toml -o planned.toml\n  weir plan system.toml --json\n\nExit status: 0 planned, 1 there is no plan, 2 the call is wrong."
)]
pub struct Arguments {
    /// The system file.
    file: PathBuf,
    /// Write the planned system here instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what was chosen, its analysis and the planned file as JSON.
    #[arg(long)]
    json: bool,
}

/// How much may be spent on one question of the search.
const EFFORT: Effort = Effort(1 << 26);

/// Carries the verb out.
pub fn run(arguments: &Arguments) -> Result {
    let path = &arguments.file;
    let refused = |faults: &Faults| {
        if arguments.json {
            let json = json!({ "file": path.display().to_string(), "faults": faults.to_json() });
            writeln!(anstream::stdout(), "{json}")?;
        }
        Err(Failure { status: SYSTEM, text: image::rendered(faults) })
    };
    let timing = match Timing::load(path) {
        Ok(timing) => timing,
        Err(faults) => return refused(&faults),
    };
    let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
    let choice = match choose(&timing, &text) {
        Ok(choice) => choice,
        Err(Trouble::Faults(faults)) => return refused(&faults),
        Err(Trouble::Conflict(conflict)) => {
            let told = tell(&timing, &conflict);
            if arguments.json {
                let demands: Vec<_> =
                    conflict.demands.iter().map(|demand| name(&timing, *demand)).collect();
                let json = json!({
                    "file": path.display().to_string(),
                    "plan": null,
                    "conflict": { "demands": demands, "smallest": conflict.smallest },
                });
                writeln!(anstream::stdout(), "{json}")?;
            }
            return Err(Failure::system(told));
        }
    };
    let planned = write(&text, &timing, &choice)
        .map_err(|error| Failure::system(format!("cannot edit {}: {error}", path.display())))?;
    let (proof, analysis) = match prove(path, &planned) {
        Ok(proof) => proof,
        Err(faults) => return refused(&faults),
    };
    if !analysis.holds() {
        let text = format!("the plan was refuted by the analysis: {}", analysis.to_json());
        return Err(Failure::system(text));
    }
    if let Some(output) = &arguments.output {
        replace(output, planned.as_bytes())?;
    }
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let json = json!({
            "file": path.display().to_string(),
            "plan": describe(&proof, &choice),
            "analysis": analysis.to_json(),
            "output": arguments.output.as_ref().map(|output| output.display().to_string()),
            "toml": planned,
        });
        writeln!(out, "{json}")?;
    } else if let Some(output) = &arguments.output {
        write!(out, "{}", summary(&proof, &choice))?;
        writeln!(out, "{}: all holds", output.display())?;
    } else {
        write!(out, "{planned}")?;
    }
    Ok(())
}

/// What was chosen.
struct Choice {
    plan: Plan,
    /// What there was to divide, if anything is to be divided.
    board: Option<Board>,
    saturation: Saturation,
    /// Whether there are flows that need bandwidth.
    flows: bool,
}

enum Trouble {
    Faults(Faults),
    Conflict(Conflict),
}

/// Colors and banks of a board, for VMs that ask for a part of the cache of their own.
#[derive(Clone, Debug)]
struct Board {
    colors: u32,
    color_bytes: u64,
    /// Banks that can be chosen beside any color; otherwise there is nothing to choose.
    banks: Option<u32>,
    ram: u64,
}

impl Board {
    /// None where no VM has a `working_set`, the file says itself who has which colors, or nobody knows the cache.
    fn of(timing: &Timing, text: &str) -> Option<Self> {
        let document: DocumentMut = text.parse().ok()?;
        let says = |table: &dyn TableLike| {
            let given = |key: &str| table.get(key).is_some_and(|key| key.as_str() != Some("auto"));
            given("colors") || given("banks")
        };
        let vms = document.get("vm").and_then(Item::as_array_of_tables)?;
        let hypervisor = document.get("hypervisor").and_then(Item::as_table_like);
        if vms.iter().any(|vm| says(vm)) || hypervisor.is_some_and(says) {
            return None;
        }
        if timing.vms.iter().all(|vm| vm.working_set.is_none()) {
            return None;
        }
        let platform = timing.platform.as_ref()?;
        let cache = platform.places.cache?;
        let name = document.get("dram").and_then(Item::as_str);
        let map =
            name.and_then(|name| platform.places.dram.iter().position(|map| map.name == name));
        let cells = Cells::new(&platform.places.geometry(map.unwrap_or(0))).ok()?;
        let (colors, banks) = (u32::from(cells.colors()), u32::from(cells.bank_groups()));
        let independent = banks > 1 && cells.count() as u64 == u64::from(colors) * u64::from(banks);
        // Without best effort there must be something left for the hypervisor alone.
        let reserve = u32::from(timing.vms.iter().all(|vm| !is_best_effort(vm)));
        Some(Self {
            colors: colors.checked_sub(reserve).filter(|colors| *colors > 0)?,
            color_bytes: cache.size.0 / u64::from(colors),
            banks: independent.then_some(banks - reserve),
            ram: platform.pools().iter().map(|pool| pool.end - pool.start).sum(),
        })
    }

    /// RAM behind one color or, where they are chosen, one bank.
    fn piece(&self) -> u64 {
        (self.ram / u64::from(self.banks.unwrap_or(self.colors))).max(1)
    }

    /// Colors that a VM needs: for its working set and, where banks are not chosen, for its memory.
    fn needed(&self, vm: &TimedVm) -> u64 {
        let cache = vm.working_set.map_or(0, |set| set.0.div_ceil(self.color_bytes.max(1)));
        let memory = vm.memory.map_or(0, |memory| memory.0.div_ceil(self.piece()));
        cache.max(if self.banks.is_some() { 0 } else { memory }).max(1)
    }

    /// A VM's memory as the search counts it, in pieces that lie behind all colors or all banks.
    fn memory(&self, vm: &TimedVm, left: u64) -> u64 {
        let memory = vm.memory.map_or(0, |memory| memory.0);
        if self.banks.is_none() {
            // Colors are counted twice, as parts of the cache and as parts of RAM.
            return if is_best_effort(vm) { memory } else { self.needed(vm) * self.piece() };
        }
        let own = if is_best_effort(vm) { left.max(1) } else { self.needed(vm) };
        let scaled = u128::from(memory) * u128::from(self.colors) / u128::from(own);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

fn is_best_effort(vm: &TimedVm) -> bool {
    let required = vm.bandwidth.as_ref().and_then(|bandwidth| bandwidth.required);
    vm.criticality == 0 && required.is_none() && vm.tasks.is_empty()
}

fn choose(timing: &Timing, text: &str) -> std::result::Result<Choice, Trouble> {
    let board = Board::of(timing, text);
    let colors_only = board.clone().filter(|board| board.banks.is_some());
    match (choose_on(timing, board), colors_only) {
        // Banks of its own cost a VM memory: nobody asked for them, so they go first.
        (Err(Trouble::Conflict(_)), Some(board)) => {
            choose_on(timing, Some(Board { banks: None, ..board }))
        }
        (choice, _) => choice,
    }
}

fn choose_on(timing: &Timing, board: Option<Board>) -> std::result::Result<Choice, Trouble> {
    let Some(saturation) = timing.saturation.clone() else {
        let place = timing.vms.first().map(|vm| vm.place.clone()).unwrap_or_default();
        let fault = timing.fault(
            "no-saturation",
            &place,
            "nobody says how much traffic the memory takes",
            "add [saturation] with `period`, `line` and measured `points`, or name a platform that has it",
        );
        return Err(Trouble::Faults(Faults(vec![fault])));
    };
    let wrong = |faults| Trouble::Faults(Faults(faults));
    let table = memory::saturation(timing, &saturation).map_err(wrong)?;
    if !timing.flows.is_empty() {
        flows::Input::of(timing, Reading::Printed).map_err(wrong)?;
    }
    // Everything that has no meaning at all is told before anything is chosen.
    let probe = Question { bandwidth: Some(1), effort: Effort(1), ..Question::default() };
    Analysis::of(timing, &probe).map_err(Trouble::Faults)?;

    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let mut chunks: Vec<(Bytes, BytesPerSec)> = saturation
        .chunks
        .iter()
        .map(|(size, reach)| (Bytes(size.0), BytesPerSec(reach.0)))
        .collect();
    if let Some(given) = timing.dma.chunk {
        chunks.retain(|(size, _)| size.0 == given.0);
        if chunks.is_empty() {
            chunks.push((Bytes(given.0), fastest));
        }
    } else if chunks.is_empty() {
        chunks.push((Bytes(flows::CHUNK), fastest));
    }
    let mut vms: Vec<Vm> =
        timing.vms.iter().map(|vm| demands(vm, &table, Bytes(saturation.line.0))).collect();
    if let Some(board) = &board {
        let own = timing.vms.iter().filter(|vm| !is_best_effort(vm));
        let left = u64::from(board.colors).saturating_sub(own.map(|vm| board.needed(vm)).sum());
        for (vm, asked) in vms.iter_mut().zip(&timing.vms) {
            vm.working_set = Bytes(board.needed(asked).saturating_mul(board.color_bytes));
            vm.memory = Bytes(board.memory(asked, left));
        }
    }
    let timed: Vec<usize> =
        (0..timing.flows.len()).filter(|flow| !timing.flows[*flow].best_effort).collect();
    let system = System {
        platform: Platform {
            // Without a board to divide each VM gets one of many, and none is written.
            colors: board.as_ref().map_or(u32::MAX, |board| board.colors),
            color_bytes: Bytes(board.as_ref().map_or(u64::MAX, |board| board.color_bytes)),
            banks: board.as_ref().map_or(u32::MAX, |board| board.banks.unwrap_or(board.colors)),
            bank_bytes: Bytes(board.as_ref().map_or(u64::MAX, Board::piece)),
            line: Bytes(saturation.line.0),
            least_budget: saturation.least_budget,
            saturation: table.clone(),
            chunks,
            overshoot: saturation.overshoot,
        },
        vms,
        flows: flows_of(timing, &timed),
        overheads: Overheads::default(),
        setting: Setting { chunk: Bytes(1), queues: None, reading: Reading::Printed },
        dma: timing.dma.bandwidth.map(|rate| BytesPerSec(rate.0)),
    };
    let asker = Asker { timing, saturation: &saturation, timed, known: RefCell::default() };
    match plan_by(&system, &asker) {
        Ok(plan) => {
            let flows = !system.flows.is_empty();
            // Colors, banks and budgets once more by other rules than the search's; flows are proven from the file.
            let divided = System { flows: Vec::new(), dma: None, ..system };
            if check(&divided, &plan, EFFORT).is_empty() {
                Ok(Choice { plan, board, saturation, flows })
            } else {
                let place = timing.vms.first().map(|vm| vm.place.clone()).unwrap_or_default();
                let message = "the plan was refuted by its own check";
                let fault = timing.fault("plan", &place, message, "report this system file");
                Err(Trouble::Faults(Faults(vec![fault])))
            }
        }
        Err(conflict) => Err(Trouble::Conflict(conflict)),
    }
}

/// Positions are all that the search needs of flows; their demand is the judge's.
fn flows_of(timing: &Timing, timed: &[usize]) -> Vec<weir_analysis::flows::Flow> {
    let flow = |flow: &usize| {
        let flow = &timing.flows[*flow];
        weir_analysis::flows::Flow {
            size: Bytes(flow.size.0),
            period: Nanos(flow.period.map_or(1, |time| time.0)),
            deadline: Nanos(flow.deadline.map_or(1, |time| time.0)),
            from: 0,
            to: 1,
        }
    };
    timed.iter().map(flow).collect()
}

fn demands(vm: &TimedVm, table: &SaturationTable, line: Bytes) -> Vm {
    let asked = vm.bandwidth.as_ref();
    let required = asked.and_then(|asked| asked.required);
    // The search asks the judge about all tasks of a VM as soon as it has one.
    let critical = vm.tasks.first().map(|task| {
        let alone = Nanos(task.cost.0);
        let task_of = CriticalTask { alone, accesses: 0, delay: Nanos(0), per_access: None };
        (task_of, Nanos(task.deadline.0))
    });
    let given = asked.and_then(|asked| asked.budget);
    let given = given.map(|(accesses, period)| Budget { accesses, period: Nanos(period.0) });
    let mut bandwidth = required.map_or(0, |rate| rate.0);
    let mut counted = given.map(|given| table.total(&[given]));
    if let Some(given) = given {
        let got = u128::from(given.accesses) * u128::from(line.0) * 1_000_000_000;
        if got >= u128::from(bandwidth) * u128::from(given.period.0) {
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
    }
}

type Known = HashMap<(Vec<usize>, u64), Option<u64>>;

/// Answers the search by the analysis of the file with what is being tried.
struct Asker<'a> {
    timing: &'a Timing,
    saturation: &'a Saturation,
    /// Positions in the file of the search's flows.
    timed: Vec<usize>,
    known: RefCell<Known>,
}

impl Judge for Asker<'_> {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Option<BytesPerSec> {
        let key = (flows.to_vec(), chunk.0);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.map(BytesPerSec);
        }
        let mut timing = self.timing.clone();
        timing.dma.chunk = Some(units::Bytes(chunk.0));
        let kept: Vec<usize> =
            flows.iter().filter_map(|flow| self.timed.get(*flow)).copied().collect();
        let mut position = 0..;
        timing.flows.retain(|flow| {
            let here = position.next().unwrap_or(0);
            flow.best_effort || kept.contains(&here)
        });
        let question = Question { effort: EFFORT, ..Question::default() };
        let least = flows::least(&timing, &question).map(|least| least.max(1));
        self.known.borrow_mut().insert(key, least);
        least.map(BytesPerSec)
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], dma: BytesPerSec) -> bool {
        let mut timing = self.timing.clone();
        for ((position, other), budget) in timing.vms.iter_mut().enumerate().zip(budgets) {
            if position != vm {
                other.tasks.clear();
            }
            set_budget(other, *budget, self.saturation.period);
        }
        timing.dma.bandwidth = Some(units::BytesPerSec(dma.0));
        time::analyze(&timing).is_ok_and(|time| time.is_none_or(|time| time.holds()))
    }
}

fn set_budget(vm: &mut TimedVm, budget: u64, period: units::Nanos) {
    let place = vm.place.clone();
    let empty =
        || weir_config::timing::Bandwidth { required: None, budget: None, window: None, place };
    let bandwidth = vm.bandwidth.get_or_insert_with(empty);
    bandwidth.budget.get_or_insert((budget, period));
}

/// Writes the choices into the file.
fn write(text: &str, timing: &Timing, choice: &Choice) -> std::result::Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    let period = choice.saturation.period.to_string();
    let listed = document.get("vm").is_some();
    for (position, (vm, share)) in timing.vms.iter().zip(&choice.plan.shares).enumerate() {
        if let (Some(board), false) = (&choice.board, is_best_effort(vm)) {
            let table = table_of(&mut document, position, listed, &vm.name)?;
            table.insert("colors", value(numbers(share.colors)));
            if board.banks.is_some() {
                table.insert("banks", value(numbers(share.banks)));
            }
        }
        if vm.bandwidth.as_ref().is_some_and(|bandwidth| bandwidth.budget.is_some()) {
            continue;
        }
        let budget = i64::try_from(share.budget).map_err(|error| error.to_string())?;
        let table = table_of(&mut document, position, listed, &vm.name)?;
        if !table.contains_key("bandwidth") {
            table.insert("bandwidth", value(InlineTable::new()));
        }
        let bandwidth = table.get_mut("bandwidth").and_then(Item::as_table_like_mut);
        let bandwidth = bandwidth.ok_or("`bandwidth` is no table")?;
        bandwidth.insert("budget", value(budget));
        bandwidth.insert("period", value(&period));
        tidy(table.get_mut("bandwidth"));
    }
    if let (true, Some(chunk)) = (choice.flows, choice.plan.chunk) {
        if document.get("dma").is_none() {
            document.insert("dma", Item::Table(Table::new()));
        }
        let dma = document.get_mut("dma").and_then(Item::as_table_like_mut);
        let dma = dma.ok_or("`dma` is no table")?;
        if timing.dma.bandwidth.is_none() {
            dma.insert("bandwidth", value(units::BytesPerSec(choice.plan.dma.0).to_string()));
        }
        if timing.dma.chunk.is_none() {
            dma.insert("chunk", value(units::Bytes(chunk.0).to_string()));
        }
    }
    Ok(document.to_string())
}

/// So many numbers from the first on, as a system file has them.
fn numbers((first, count): (u32, u32)) -> String {
    match count {
        0 | 1 => first.to_string(),
        _ => format!("{first}-{}", first + count - 1),
    }
}

/// A VM's table; made where flows alone have named the VM.
fn table_of<'a>(
    document: &'a mut DocumentMut,
    position: usize,
    listed: bool,
    name: &str,
) -> std::result::Result<&'a mut dyn TableLike, String> {
    if !listed {
        let vms =
            document.entry("vm").or_insert(Item::ArrayOfTables(toml_edit::ArrayOfTables::new()));
        if let Some(vms) = vms.as_array_of_tables_mut() {
            let mut table = Table::new();
            table.insert("name", value(name));
            vms.push(table);
        }
    }
    let vms = document.get_mut("vm").ok_or("there are no VMs")?;
    let table = match vms {
        Item::ArrayOfTables(tables) => {
            tables.get_mut(position).map(|table| table as &mut dyn TableLike)
        }
        Item::Value(list) => list
            .as_array_mut()
            .and_then(|list| list.get_mut(position))
            .and_then(toml_edit::Value::as_inline_table_mut)
            .map(|table| table as &mut dyn TableLike),
        _ => None,
    };
    table.ok_or_else(|| format!("the VM {name} is not where it was"))
}

/// Spaces of an inline table that got keys.
fn tidy(item: Option<&mut Item>) {
    if let Some(table) = item.and_then(Item::as_inline_table_mut) {
        table.fmt();
    }
}

/// Reads the planned file again and analyzes it.
fn prove(path: &Path, planned: &str) -> std::result::Result<(Timing, Analysis), Faults> {
    let timing = Timing::from_text(path, planned)?;
    let analysis = Analysis::of(&timing, &Question { effort: EFFORT, ..Question::default() })?;
    Ok((timing, analysis))
}

fn name(timing: &Timing, demand: Demand) -> String {
    let vm = |vm: usize| timing.vms.get(vm).map_or("?", |vm| vm.name.as_str());
    let mut timed = timing.flows.iter().filter(|flow| !flow.best_effort);
    match demand {
        Demand::WorkingSet(at) => format!("working set of {}", vm(at)),
        Demand::Memory(at) => format!("memory of {}", vm(at)),
        Demand::Bandwidth(at) => format!("bandwidth of {}", vm(at)),
        Demand::Task(at) => format!("tasks of {}", vm(at)),
        Demand::Flow(at) => {
            format!("flow {}", timed.nth(at).map_or("?", |flow| flow.name.as_str()))
        }
    }
}

fn tell(timing: &Timing, conflict: &Conflict) -> String {
    if conflict.demands.is_empty() {
        return "there is no plan: what the file and the platform give already (least budgets, budgets, DMA bandwidth) saturates the memory".to_owned();
    }
    let mut text = String::from("there is no plan: these demands can't be met together");
    if !conflict.smallest {
        text.push_str(" (perhaps fewer of them neither)");
    }
    for demand in &conflict.demands {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {}", name(timing, *demand));
    }
    text
}

fn describe(timing: &Timing, choice: &Choice) -> Value {
    let line = Bytes(choice.saturation.line.0);
    let period = Nanos(choice.saturation.period.0);
    let vms = timing.vms.iter().zip(&choice.plan.shares).map(|(vm, share)| {
        let budget = vm.bandwidth.as_ref().and_then(|bandwidth| bandwidth.budget);
        let own = !is_best_effort(vm);
        let board = choice.board.as_ref().filter(|_| own);
        json!({
            "name": vm.name,
            "colors": board.map(|_| numbers(share.colors)),
            "banks": board.and_then(|board| board.banks).map(|_| numbers(share.banks)),
            "budget": budget.map(|budget| budget.0),
            "period_ns": budget.map(|budget| budget.1.0),
        })
    });
    let rest = Budget { accesses: choice.plan.best_effort, period };
    json!({
        "vms": vms.collect::<Vec<_>>(),
        "chunk": choice.plan.chunk.map(|chunk| chunk.0),
        "dma_bandwidth": choice.plan.dma.0,
        "best_effort_budget": choice.plan.best_effort,
        "best_effort_bandwidth": rest.bandwidth(line).0,
    })
}

fn summary(timing: &Timing, choice: &Choice) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for vm in &timing.vms {
        if let Some((budget, period)) = vm.bandwidth.as_ref().and_then(|bandwidth| bandwidth.budget)
        {
            let _ = writeln!(text, "{}: {budget} accesses in {period}", vm.name);
        }
    }
    if let Some(chunk) = choice.plan.chunk {
        let dma = units::BytesPerSec(choice.plan.dma.0);
        let _ = writeln!(text, "DMA: {dma} in chunks of {}", units::Bytes(chunk.0));
    }
    let _ = writeln!(
        text,
        "best effort: {} accesses in {}",
        choice.plan.best_effort, choice.saturation.period
    );
    text
}
