//! The result of a simulation.

use crate::{FlowOutcome, Outcome, VmOutcome, WorkMark};
use weir_analysis::curves::Curve;
use weir_memory::Picos;
use weir_units::Nanos;

/// The result of a simulation, and what each VM does alone.
pub struct Simulated {
    /// All together.
    pub outcome: Outcome,
    /// What each VM does without the others and without budgets; none for those that do nothing.
    pub alone: Vec<Option<Alone>>,
    /// The latency bound of each flow, in ns, by the analysis.
    pub bounds: Vec<Option<u64>>,
    /// The reason why the run is too short for its figures, if it is.
    pub too_short: Option<String>,
    /// The reason why the flows are not simulated, if they are not.
    pub left_out: Option<String>,
}

/// A VM's outcome alone.
pub struct Alone {
    /// The outcome in the same span.
    pub outcome: VmOutcome,
    /// The marks at which the VM has done as much as when the span began with the others, and as
    /// when it ended; for each of the outcomes that were asked about.
    pub marks: Vec<[Option<WorkMark>; 2]>,
}

/// The same work with the others and alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameWork {
    /// Jobs, transfers or accesses: see [`WorkMark`].
    pub units: u64,
    /// The time with the others: from the end of the last unit before it to its own end; of jobs,
    /// the sum of their responses.
    pub together: Picos,
    /// The time alone.
    pub alone: Picos,
}

impl SameWork {
    /// Compares what a VM completed in the span, in the outcome numbered `index` of those that
    /// [`Simulation::alone`](crate::Simulation::alone) was given; none if it completed nothing.
    #[must_use]
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

    /// Returns how many times as slow as alone the VM was.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for printing")]
    pub fn slowdown(self) -> f64 {
        self.together.0 as f64 / self.alone.0 as f64
    }

    /// Returns the slowdown with three digits behind the point, as JSON has it.
    #[must_use]
    pub fn rounded(self) -> f64 {
        (self.slowdown() * 1000.0).round() / 1000.0
    }
}

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// Returns a flow's observed maximum of the latency in ns, rounded up.
#[must_use]
pub const fn max_latency_ns(flow: &FlowOutcome) -> u64 {
    flow.max_latency.0.div_ceil(1000)
}

/// Returns whether no packet took longer than the bound of the analysis; none if there is no bound
/// or no packet arrived.
#[must_use]
pub fn within_bound(flow: &FlowOutcome, bound: Option<u64>) -> Option<bool> {
    bound.filter(|_| flow.arrived > 0).map(|bound| max_latency_ns(flow) <= bound)
}

/// Returns the upper arrival curve of a VM's refills, as `weir trace` has it: for windows of up to
/// [`MOST_OF_A_CURVE`] lines.
#[must_use]
pub fn arrival_curve(vm: &VmOutcome) -> Curve {
    let times: Vec<_> = vm.arrivals.iter().map(|at| Nanos(*at)).collect();
    Curve::upper(&times, MOST_OF_A_CURVE)
}

/// Lines of the longest windows of an arrival curve.
pub const MOST_OF_A_CURVE: usize = 256;
