//! A system file's simulation: all VMs together, and each one alone.

mod record;
mod result;
mod values;

pub use record::SimulationRecord;
pub use result::{
    Alone, LINE, MOST_OF_A_CURVE, SameWork, Simulated, arrival_curve, max_latency_ns, within_bound,
};
pub use values::Values;

use crate::{MemoryModel, Outcome, SimulatedBoard, SimulationError, Span, run, run_to};
use weir_analysis::{flows::Effort, system::end_to_end};
use weir_model::{Image, Sizes, System, place_all, timing::WorkloadKind};
use weir_units::Nanos;

/// A system on its memory, with its measurement interval.
///
/// ```
/// use std::path::Path;
/// use weir_model::{Catalog, check_text};
/// use weir_simulator::{Simulation, Span};
/// use weir_units::Nanos;
///
/// let text = r#"
/// platform = "zcu102"
///
/// [[vm]]
/// name = "walk"
/// cpus = [0]
/// memory = "4MiB"
/// image = { elf = "walk" }
/// workload = { kind = "latency", size = "16KiB" }
/// "#;
/// let catalog = Catalog { guests: vec!["walk".to_owned()], ..Catalog::default() };
/// let system = check_text(Path::new("walk.toml"), text, &catalog)?;
/// let span = Span { warm_up: Nanos(100_000), length: Nanos(100_000), seed: 1 };
/// let simulated = Simulation::new(&system, None, &[], span)?.together_and_alone()?;
/// assert!(simulated.outcome.vms[0].accesses > 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation {
    /// The VMs on their memory.
    pub board: SimulatedBoard,
    span: Span,
    /// The latency bound of each flow, in ns, by the analysis.
    bounds: Vec<Option<u64>>,
}

impl Simulation {
    /// Puts a system on the memory of this name or file, or else on that of its platform. `values`
    /// are other values for keys of the memory file, see [`Values`].
    ///
    /// # Errors
    ///
    /// The VMs do not fit into the memory, no VM and no flow does anything, the memory is unknown or
    /// not that of the platform, or the model cannot simulate a part of the system.
    pub fn new(
        system: &System,
        memory: Option<&str>,
        values: &[(String, String)],
        span: Span,
    ) -> Result<Self, SimulationError> {
        let placement = place_all(system, &sizes(system))
            .map_err(|faults| SimulationError(faults.to_string()))?;
        let memory = MemoryModel::find_with(memory.unwrap_or(&system.platform().name), values)
            .map_err(|error| SimulationError(error.to_string()))?;
        let board = SimulatedBoard::new(system, &placement, &memory)?;
        if !board.has_flows() && (0..board.len()).all(|vm| !board.works(vm)) {
            let flows =
                board.flows_left_out().map(|why| format!("; its flows are left out: {why}"));
            return Err(SimulationError(format!(
                "{}: no VM has a workload: write workload = {{ kind = \"latency\", size = \
                 \"64KiB\" }} into a [[vm]]{}",
                system.path.display(),
                flows.unwrap_or_default()
            )));
        }
        Ok(Self { board, span, bounds: end_to_end(system, Effort::default()).of })
    }

    /// Simulates a variant of the board.
    ///
    /// # Errors
    ///
    /// As [`run()`].
    pub fn simulate(&self, board: &SimulatedBoard) -> Result<Outcome, SimulationError> {
        run(board, self.span)
    }

    /// Simulates the board as it is, and each VM alone.
    ///
    /// # Errors
    ///
    /// As [`run()`].
    pub fn together_and_alone(&self) -> Result<Simulated, SimulationError> {
        let outcome = self.simulate(&self.board)?;
        Ok(Simulated {
            alone: self.alone(&[&outcome])?,
            too_short: self.too_short(&outcome),
            outcome,
            bounds: self.bounds.clone(),
            left_out: self.board.flows_left_out().map(str::to_owned),
        })
    }

    /// Returns the reason why a run is too short for its figures: [`SecondLevel::filling`] names a
    /// VM. One that begins each pass with empty caches, or has phases of different sizes, never
    /// settles and does not count.
    ///
    /// [`SecondLevel::filling`]: crate::SecondLevel::filling
    #[must_use]
    pub fn too_short(&self, outcome: &Outcome) -> Option<String> {
        let is_steady = |vm: usize| {
            let workload = self.board.vms[vm].workload.as_ref();
            workload.is_some_and(|it| it.kind != WorkloadKind::Kernel && it.phases.len() < 2)
        };
        let vm = outcome.l2.filling(is_steady)?;
        let [from, to] = outcome.l2.lines[vm];
        Some(format!(
            "the caches still fill: vm `{}` had {from} of the L2's {} lines when the measurement \
             began and {to} when it ended; begin where it ended, with a warm-up of {}",
            outcome.vms[vm].name,
            outcome.l2.capacity,
            Nanos(self.span.warm_up.0 + self.span.length.0)
        ))
    }

    /// Returns what each VM of the board does alone, and when it has done what it did in each of
    /// these outcomes; none for a VM that does nothing.
    ///
    /// # Errors
    ///
    /// As [`run()`].
    pub fn alone(&self, together: &[&Outcome]) -> Result<Vec<Option<Alone>>, SimulationError> {
        let vms = 0..self.board.len();
        vms.map(|vm| self.board.works(vm).then(|| self.one_alone(vm, together)).transpose())
            .collect()
    }

    fn one_alone(&self, vm: usize, together: &[&Outcome]) -> Result<Alone, SimulationError> {
        let board = self.board.alone(vm);
        let units: Vec<_> = together.iter().flat_map(|o| o.vms[vm].work.map(|w| w.units)).collect();
        let (mut outcome, mut marks) = run_to(&board, self.span, vm, &units)?;
        // Where others do it good, alone it takes longer than the span.
        if marks.iter().any(Option::is_none) {
            let length = Nanos(self.span.length.0 + self.span.warm_up.0);
            (_, marks) = run_to(&board, Span { length, ..self.span }, vm, &units)?;
        }
        let marks = marks.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
        Ok(Alone { outcome: outcome.vms.swap_remove(vm), marks })
    }
}

/// Returns the sizes that the images are taken to have. They are not those of what happens to be
/// built, so that the same file gives the same placement.
fn sizes(system: &System) -> Sizes {
    const HYPERVISOR: u64 = 1 << 20;
    let pristine: Vec<u64> = system
        .vms
        .iter()
        .map(|vm| if matches!(vm.image, Image::Linux { .. }) { 44 << 20 } else { 1 << 20 })
        .collect();
    Sizes { image: HYPERVISOR + pristine.iter().sum::<u64>(), hypervisor: HYPERVISOR, pristine }
}
