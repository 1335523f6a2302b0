//! The result of a simulation.

use weir_analysis::curves::Curve;
use weir_memory::Picos;
use weir_simulator::{FlowOutcome, Outcome, VmOutcome, WorkMark};
use weir_units::Nanos;

/// The result of a run, and what each VM does alone.
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
    /// Where it has done as much as when the span began with the others, and as when it ended; for
    /// each of the outcomes that were asked about.
    pub marks: Vec<[Option<WorkMark>; 2]>,
}

/// The same work with the others and alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameWork {
    /// Jobs, transfers or accesses: see [`WorkMark`].
    pub units: u64,
    /// How long it took with the others: from the end of the last unit before it to its own end; of
    /// jobs, their responses together.
    pub together: Picos,
    /// The same alone.
    pub alone: Picos,
}

impl SameWork {
    /// What a VM completed in the span, if that is something, in the outcome numbered `index` of
    /// those that `Simulation::alone` was given.
    pub fn of(together: &VmOutcome, alone: Option<&Alone>, index: usize) -> Option<Self> {
        let &[from, to] = alone?.marks.get(index)?;
        let took = |from: WorkMark, to: WorkMark| match together.jobs {
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

/// Bytes of a line.
pub const LINE: u64 = 64;

/// A flow's longest latency in ns, rounded up.
pub const fn max_latency_ns(flow: &FlowOutcome) -> u64 {
    flow.max_latency.0.div_ceil(1000)
}

/// Whether no packet took longer than the bound of the analysis, if there is a bound and packets
/// arrived.
pub fn within_bound(flow: &FlowOutcome, bound: Option<u64>) -> Option<bool> {
    bound.filter(|_| flow.arrived > 0).map(|bound| max_latency_ns(flow) <= bound)
}

/// The upper arrival curve of a VM's refills, as `weir trace` has it: for windows of up to
/// [`MOST_OF_A_CURVE`] lines.
pub fn arrival_curve(vm: &VmOutcome) -> Curve {
    let times: Vec<_> = vm.arrivals.iter().map(|at| Nanos(*at)).collect();
    Curve::upper(&times, MOST_OF_A_CURVE)
}

/// Lines of the longest windows of an arrival curve.
pub const MOST_OF_A_CURVE: usize = 256;
