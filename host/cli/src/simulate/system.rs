//! A system on the model.

use super::{Model, draw, tell, values::Values};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
    image, screen,
};
use serde_json::{Value, json};
use std::{io::Write, path::Path};
use weir_analysis::{curves::Curve, flows::Effort, system::end_to_end, verdict::Verdict};
use weir_memory::Picos;
use weir_model::{Faults, Image, Sizes, System, check_text, place_all};
use weir_simulator::{Board, FlowOutcome, Histogram, Mark, Memory, Outcome, Span, VmOutcome};
use weir_units::Nanos;

/// A board and how long to look at it.
pub struct Simulation {
    /// The VMs on their memory.
    pub board: Board,
    span: Span,
    /// How long each flow's packets take at most, in ns, by the analysis.
    bounds: Vec<Option<u64>>,
}

/// What a run came to, and what each VM does alone.
pub struct Simulated {
    /// All together.
    pub outcome: Outcome,
    /// What each VM does without the others and without budgets; none for those that do nothing.
    pub alone: Vec<Option<Alone>>,
    /// How long each flow's packets take at most, in ns, by the analysis.
    pub bounds: Vec<Option<u64>>,
    /// Why the flows are not simulated, if they are not.
    pub left_out: Option<String>,
}

/// What a VM does alone.
pub struct Alone {
    /// In the same span.
    pub outcome: VmOutcome,
    /// Where it has done as much as when the span began with the others, and as when it ended; for each of the outcomes that were asked about.
    pub marks: Vec<[Option<Mark>; 2]>,
}

impl Simulation {
    /// Reads the system and finds its memory.
    pub fn new(
        model: &Model,
        values: &[(String, String)],
        environment: &Environment,
    ) -> Result<Self> {
        let values = Values::new(values).map_err(Failure::call)?;
        let said = |faults: &Faults| {
            screen::say(format_args!("{faults}"));
            Failure::said(image::whose(faults))
        };
        let system = load(&model.system, &values, environment)?.map_err(|faults| said(&faults))?;
        let placement = place_all(&system, &sizes(&system)).map_err(|faults| said(&faults))?;
        let name = model.platform.as_deref().unwrap_or(&system.platform.name);
        let memory = Memory::find_with(name, &values.memory);
        let memory = memory.map_err(|error| Failure::system(error.to_string()))?;
        let board = Board::new(&system, &placement, &memory);
        let board = board.map_err(|error| Failure::system(error.to_string()))?;
        if !board.has_flows() && (0..board.len()).all(|vm| !board.works(vm)) {
            let flows =
                board.flows_left_out().map(|why| format!("; its flows are left out: {why}"));
            return Err(Failure::system(format!(
                "{}: no VM has a workload: write workload = {{ kind = \"latency\", size = \"64KiB\" }} into a [[vm]]{}",
                model.system.display(),
                flows.unwrap_or_default()
            )));
        }
        let Model { warm_up, length, seed, .. } = model;
        let seed = values.seed.unwrap_or(*seed);
        let span = Span { warm_up: *warm_up, length: *length, seed };
        Ok(Self { board, span, bounds: end_to_end(&system.timing, Effort::default()).of })
    }

    /// Simulates a variant of the board.
    pub fn simulate(&self, board: &Board) -> Result<Outcome> {
        weir_simulator::run(board, self.span).map_err(|error| Failure::system(error.to_string()))
    }

    /// The board as it is, and each VM alone.
    pub fn together_and_alone(&self) -> Result<Simulated> {
        let outcome = self.simulate(&self.board)?;
        Ok(Simulated {
            alone: self.alone(&[&outcome])?,
            outcome,
            bounds: self.bounds.clone(),
            left_out: self.board.flows_left_out().map(str::to_owned),
        })
    }

    /// What each VM of the board does alone, and when it has done what it did in each of these outcomes.
    pub fn alone(&self, together: &[&Outcome]) -> Result<Vec<Option<Alone>>> {
        let vms = 0..self.board.len();
        vms.map(|vm| self.board.works(vm).then(|| self.one_alone(vm, together)).transpose())
            .collect()
    }

    fn one_alone(&self, vm: usize, together: &[&Outcome]) -> Result<Alone> {
        let board = self.board.alone(vm);
        let units: Vec<_> = together.iter().flat_map(|o| o.vms[vm].work.map(|w| w.units)).collect();
        let simulate = |span| {
            weir_simulator::run_to(&board, span, vm, &units)
                .map_err(|error| Failure::system(error.to_string()))
        };
        let (mut outcome, mut marks) = simulate(self.span)?;
        // Where others do it good, alone it takes longer than the span.
        if marks.iter().any(Option::is_none) {
            let length = Nanos(self.span.length.0 + self.span.warm_up.0);
            (_, marks) = simulate(Span { length, ..self.span })?;
        }
        let marks = marks.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
        Ok(Alone { outcome: outcome.vms.swap_remove(vm), marks })
    }
}

/// Reads and checks the system with other values for some of its keys.
fn load(
    file: &Path,
    values: &Values,
    environment: &Environment,
) -> Result<std::result::Result<System, Faults>> {
    if values.system.is_empty() {
        return Ok(image::load(file, None, environment));
    }
    let text = weir_model::read_text(file, weir_model::TEXT_LIMIT)
        .map_err(|error| Failure::call(format!("cannot read {}: {error}", file.display())))?;
    let text = values.edit(&text).map_err(Failure::call)?;
    Ok(check_text(file, &text, &image::catalog(environment)))
}

/// The sizes that the images are taken to have; not those of what happens to be built, so that the same file gives the same placement.
fn sizes(system: &System) -> Sizes {
    const HYPERVISOR: u64 = 1 << 20;
    let pristine: Vec<u64> = system
        .vms
        .iter()
        .map(|vm| if matches!(vm.image, Image::Linux { .. }) { 44 << 20 } else { 1 << 20 })
        .collect();
    Sizes { image: HYPERVISOR + pristine.iter().sum::<u64>(), hypervisor: HYPERVISOR, pristine }
}

/// The same work with the others and alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameWork {
    /// Jobs, transfers or accesses: see [`Mark`].
    pub units: u64,
    /// How long it took with the others: from the end of the last unit before it to its own end; of jobs, their responses together.
    pub together: Picos,
    /// The same alone.
    pub alone: Picos,
}

impl SameWork {
    /// What a VM completed in the span, if that is something, in the outcome numbered `index` of those that [`Simulation::alone`] was given.
    pub fn of(together: &VmOutcome, alone: Option<&Alone>, index: usize) -> Option<Self> {
        let &[from, to] = alone?.marks.get(index)?;
        let took = |from: Mark, to: Mark| match together.jobs {
            Some(_) => to.responses.since(from.responses),
            None => to.at.since(from.at),
        };
        let [begin, end] = together.work;
        let units = end.units - begin.units;
        let (together, alone) = (took(begin, end), took(from?, to?));
        (units > 0 && alone.0 > 0).then_some(Self { units, together, alone })
    }

    /// How many times as slow as alone.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for printing")]
    pub fn slowdown(self) -> f64 {
        self.together.0 as f64 / self.alone.0 as f64
    }

    /// As JSON has it.
    pub fn rounded(self) -> f64 {
        (self.slowdown() * 1000.0).round() / 1000.0
    }
}

/// Simulates and prints.
pub fn run(simulation: &Simulation, svg: Option<&Path>, json: bool) -> Result {
    let result = simulation.together_and_alone()?;
    let files = svg.map_or(Ok(Vec::new()), |directory| draw::write(directory, &result))?;
    let mut out = screen::stdout();
    if json {
        let mut all = describe(&result);
        if svg.is_some() {
            all["files"] = files.iter().map(|file| file.display().to_string()).collect();
        }
        writeln!(out, "{all:#}")?;
    } else {
        tell::tables(&mut out, &result)?;
        for file in files {
            writeln!(out, "{}", file.display())?;
        }
    }
    Ok(())
}

/// As `--json` prints it.
fn describe(result: &Simulated) -> Value {
    let Outcome { vms, flows, waits, evictions, closed, tbus, blocked_ps, span_ns, slice_ns } =
        &result.outcome;
    let name = |vm: usize| vms[vm].name.clone();
    let matrix = |rows: &[Vec<u64>]| -> Value {
        rows.iter()
            .enumerate()
            .map(|(by, row)| {
                let of = row.iter().enumerate().map(|(of, count)| (name(of), json!(count)));
                (name(by), Value::Object(of.collect()))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let each = vms.iter().zip(&result.alone).zip(0_u8..).map(|((vm, alone), index)| {
        let work = SameWork::of(vm, alone.as_ref(), 0);
        let alone = alone.as_ref().map(|alone| &alone.outcome);
        let blame = vms.iter().zip(0_u8..).map(|(other, by)| {
            (
                other.name.clone(),
                json!(waits.get(weir_memory::Owner(index), weir_memory::Owner(by)).0),
            )
        });
        json!({
            "name": vm.name,
            "accesses": vm.accesses,
            "slowdown": work.map(SameWork::rounded),
            "same_work": work.map(|work| json!({
                "units": work.units,
                "together_ps": work.together.0,
                "alone_ps": work.alone.0,
            })),
            "latency_ns": latency(vm),
            "alone": alone.map(|alone| json!({
                "accesses": alone.accesses,
                "latency_ns": latency(alone),
            })),
            "jobs": vm.jobs.as_ref().map(|jobs| json!({
                "deadline_ns": jobs.deadline_ns,
                "ended": jobs.ended,
                "met": jobs.met,
                "missed": jobs.missed,
                "response_ns": distribution(&jobs.response),
            })),
            "pass_ps": vm.pass.map(|pass| pass.0),
            "refills": vm.refills,
            "write_backs": vm.write_backs,
            "dma_bytes": vm.moved,
            "mb_per_s": tell::mb_per_s(vm, *span_ns),
            "lines_per_slice": vm.slices,
            "delay_ps": vm.delay_ps,
            "waited_for_ps": Value::Object(blame.collect()),
            "arrival_curve": curve(vm),
            "budgets": vm.budgets.iter().map(budget).collect::<Vec<_>>(),
        })
    });
    json!({
        "span_ns": span_ns,
        "slice_ns": slice_ns,
        "vms": each.collect::<Vec<_>>(),
        "flows": flows.iter().zip(&result.bounds).map(|(flow, bound)| json!({
            "name": flow.name,
            "sent": flow.sent,
            "arrived": flow.arrived,
            "deadline_ns": flow.deadline_ns,
            "met": flow.met,
            "missed": flow.missed,
            "lost": flow.lost,
            "latency_ns": distribution(&flow.latency),
            "worst_ns": worst_ns(flow),
            "bound_ns": bound,
            "within_bound": within_bound(flow, *bound),
            "verdict": within_bound(flow, *bound).map_or(Verdict::NotJudged, Verdict::of).key(),
        })).collect::<Vec<_>>(),
        "flows_left_out": result.left_out,
        "evicted": matrix(evictions),
        "rows_closed": matrix(closed),
        "tbus": tbus.iter().map(|tbu| json!({
            "name": tbu.name,
            "lookups": by_vm(vms, &tbu.lookups),
            "walks": by_vm(vms, &tbu.misses),
            "evicted": matrix(&tbu.evictions),
        })).collect::<Vec<_>>(),
        "l2_blocked_ps": blocked_ps,
    })
}

/// A flow's longest latency in ns, rounded up.
pub const fn worst_ns(flow: &FlowOutcome) -> u64 {
    flow.worst.0.div_ceil(1000)
}

/// Whether no packet took longer than the analysis says, if it says something and packets arrived.
pub fn within_bound(flow: &FlowOutcome, bound: Option<u64>) -> Option<bool> {
    bound.filter(|_| flow.arrived > 0).map(|bound| worst_ns(flow) <= bound)
}

fn by_vm(vms: &[VmOutcome], counts: &[u64]) -> Value {
    let each = vms.iter().zip(counts).map(|(vm, count)| (vm.name.clone(), json!(count)));
    Value::Object(each.collect())
}

/// What a line of a sweep says of each VM.
pub fn brief(result: &Simulated) -> Value {
    let vms = result.outcome.vms.iter().zip(&result.alone);
    let each = vms.map(|(vm, alone)| {
        json!({
            "name": vm.name,
            "accesses": vm.accesses,
            "slowdown": SameWork::of(vm, alone.as_ref(), 0).map(SameWork::rounded),
            "latency_ns": latency(vm),
            "mb_per_s": tell::mb_per_s(vm, result.outcome.span_ns),
            "deadlines_missed": vm.jobs.as_ref().map(|jobs| jobs.missed),
            "delay_ps": vm.delay_ps,
            "budgets": vm.budgets.iter().map(budget).collect::<Vec<_>>(),
        })
    });
    each.collect()
}

/// The most lines that came in in any window, as pairs of a window's length in ns and the lines: the first ones of the span.
pub fn curve(vm: &VmOutcome) -> Vec<(u64, u64)> {
    arrival_curve(vm).steps().map(|(length, lines)| (length.0, lines)).collect()
}

/// The upper arrival curve of a VM's refills, as `weir trace` has it: for windows of up to [`MOST_OF_A_CURVE`] lines.
pub fn arrival_curve(vm: &VmOutcome) -> Curve {
    let times: Vec<_> = vm.arrivals.iter().map(|at| Nanos(*at)).collect();
    Curve::upper(&times, MOST_OF_A_CURVE)
}

/// Lines of the longest windows of an arrival curve.
pub const MOST_OF_A_CURVE: usize = 256;

fn budget(budget: &weir_simulator::Budget) -> Value {
    let count = |count: u64| (count != u64::MAX).then_some(count);
    json!({
        "period_ns": budget.period_ns,
        "granted": [count(budget.granted.reads), count(budget.granted.writes)],
        "periods": budget.periods,
        "most_in_a_period": [budget.most.reads, budget.most.writes],
        "total": [budget.total.reads, budget.total.writes],
        "throttled": budget.throttled,
        "stopped_ns": budget.stopped_ns,
    })
}

fn latency(vm: &VmOutcome) -> Value {
    distribution(&vm.latency)
}

fn distribution(latency: &Histogram) -> Value {
    json!({
        "mean": latency.mean().0 / 1000,
        "p50": latency.at_most_ns(500),
        "p90": latency.at_most_ns(900),
        "p99": latency.at_most_ns(990),
        "p999": latency.at_most_ns(999),
        "max": latency.most_ns(),
    })
}
