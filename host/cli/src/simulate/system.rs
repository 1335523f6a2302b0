//! A system on the model.

use super::{
    Model,
    result::{Alone, Simulated},
    values::Values,
};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
    image, screen,
};
use std::path::Path;
use weir_analysis::{flows::Effort, system::end_to_end};
use weir_model::{Faults, Image, Sizes, System, check_text, place_all, platform::Machine};
use weir_simulator::{MemoryModel, Outcome, SimulatedBoard, Span};
use weir_units::Nanos;

/// A board and its measurement interval.
pub struct Simulation {
    /// The VMs on their memory.
    pub board: SimulatedBoard,
    span: Span,
    /// How long each flow's packets take at most, in ns, by the analysis.
    bounds: Vec<Option<u64>>,
}

impl Simulation {
    /// Reads the system and finds its memory.
    pub fn new(
        model: &Model,
        values: &[(String, String)],
        environment: &Environment,
    ) -> Result<Self> {
        let values = Values::new(values).map_err(Failure::call)?;
        let reported = |faults: &Faults| {
            screen::say(format_args!("{faults}"));
            Failure::reported(image::exit_status(faults))
        };
        let system =
            load(&model.system, &values, environment)?.map_err(|faults| reported(&faults))?;
        let placement = place_all(&system, &sizes(&system)).map_err(|faults| reported(&faults))?;
        let name = model.memory.as_deref().unwrap_or(&system.platform().name);
        let memory = MemoryModel::find_with(name, &values.memory);
        let memory = memory.map_err(|error| Failure::system(error.to_string()))?;
        let board = SimulatedBoard::new(&system, &placement, &memory);
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
        Ok(Self { board, span, bounds: end_to_end(&system, Effort::default()).of })
    }

    /// Simulates a variant of the board.
    pub fn simulate(&self, board: &SimulatedBoard) -> Result<Outcome> {
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

    /// What each VM of the board does alone, and when it has done what it did in each of these
    /// outcomes.
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

/// Simulates a system on the memory of this name.
pub fn outcome(system: &System, memory: &str, span: Span) -> Result<Outcome> {
    let failed = |error: String| Failure::system(error);
    let placement =
        place_all(system, &sizes(system)).map_err(|faults| failed(faults.to_string()))?;
    let memory = MemoryModel::find(memory).map_err(|error| failed(error.to_string()))?;
    let board = SimulatedBoard::new(system, &placement, &memory);
    let board = board.map_err(|error| failed(error.to_string()))?;
    weir_simulator::run(&board, span).map_err(|error| failed(error.to_string()))
}

/// Reads and checks the system with other values for some of its keys.
fn load(
    file: &Path,
    values: &Values,
    environment: &Environment,
) -> Result<std::result::Result<System, Faults>> {
    if values.system.is_empty() {
        return Ok(image::load(file, None, Machine::Board, environment));
    }
    let text = weir_model::read_text(file, weir_model::TEXT_LIMIT)
        .map_err(|error| Failure::call(format!("cannot read {}: {error}", file.display())))?;
    let text = values.edit(&text).map_err(Failure::call)?;
    Ok(check_text(file, &text, &image::catalog(environment)))
}

/// The sizes that the images are taken to have; not those of what happens to be built, so that the
/// same file gives the same placement.
fn sizes(system: &System) -> Sizes {
    const HYPERVISOR: u64 = 1 << 20;
    let pristine: Vec<u64> = system
        .vms
        .iter()
        .map(|vm| if matches!(vm.image, Image::Linux { .. }) { 44 << 20 } else { 1 << 20 })
        .collect();
    Sizes { image: HYPERVISOR + pristine.iter().sum::<u64>(), hypervisor: HYPERVISOR, pristine }
}
