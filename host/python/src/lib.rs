//! `weir._weir`, the extension module of the Python package `weir`.
//!
//! Each function calls the library behind one command and converts its typed result by serde:
//! `check`, `analyze`, `plan`, `simulate`, and the readers of runs. A system is its text and the
//! path that images, platform and traces are relative to, so that it can go to another process. The
//! Python part of the package makes classes of them.
#![expect(clippy::needless_pass_by_value, reason = "the arguments of a Python function are values")]

mod record;

use pyo3::{exceptions::PyValueError, import_exception, prelude::*};
use record::toml_values;
use std::path::{Path, PathBuf};
use weir_analysis::{CheckRules, Options, PlanError, PlanOptions};
use weir_image::{Environment, Failure, catalog};
use weir_model::{Catalog, Faults, Style, System, SystemFile, check_text, edited};
use weir_report::{
    check::{CheckedFile, Judged, RefusedFile},
    read_report,
    run::RunFacts,
    trace::{self, Filter, TraceFormat, file::Trace, packets},
    versioned,
    why::{Subject, WhyQuery},
};
use weir_simulator::{Simulation, SimulationError, SimulationRecord, Span, Values};
use weir_units::Nanos;

import_exception!(weir._errors, WeirError);
import_exception!(weir._errors, RefusedError);
import_exception!(weir._errors, NoPlanError);

/// A Python object.
type Answer<'py> = PyResult<Bound<'py, PyAny>>;
/// Values of keys, as Python has them.
type Changes<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// Returns the error of a system with faults.
fn refused(py: Python<'_>, faults: &Faults) -> PyErr {
    match record::of(py, &faults.records()) {
        Ok(records) => RefusedError::new_err((faults.render(Style::Plain, 100), records.unbind())),
        Err(error) => error,
    }
}

/// Returns the error of a call that failed.
fn failed(failure: Failure) -> PyErr {
    WeirError::new_err(failure.text)
}

/// Returns what the names in a system file may stand for.
fn names() -> Catalog {
    catalog(&Environment::find())
}

/// A time: nanoseconds, or a text such as `5ms`.
#[derive(FromPyObject)]
enum Time {
    Nanos(u64),
    Text(String),
}

impl Time {
    /// Returns the time. The error names `key`.
    fn read(self, key: &str) -> PyResult<Nanos> {
        let time = match self {
            Self::Nanos(time) => Some(Nanos(time)),
            Self::Text(text) => Nanos::parse(&text).ok(),
        };
        time.filter(|time| time.0 > 0).ok_or_else(|| {
            PyValueError::new_err(format!("{key}: write a time above 0, such as \"5ms\""))
        })
    }
}

/// Returns the text of a system file with values changed.
#[pyfunction]
fn change(py: Python<'_>, path: PathBuf, text: &str, changes: Changes<'_>) -> PyResult<String> {
    let changes = toml_values(&changes)?;
    edited(&path, text, &changes).map_err(|faults| refused(py, &faults))
}

/// Checks a system, as `weir check --json` does.
#[pyfunction]
#[pyo3(signature = (path, text, *, planning=false, ignore_verdict=false))]
fn check<'py>(
    py: Python<'py>,
    path: PathBuf,
    text: &str,
    planning: bool,
    ignore_verdict: bool,
) -> Answer<'py> {
    let environment = Environment::find();
    let rules = CheckRules { planning, ignore_verdict };
    let read = check_text(&path, text, &catalog(&environment));
    let Judged { result, guessed } = py.detach(|| Judged::of(read, rules, &environment));
    match result {
        Ok(checked) => record::of(py, &CheckedFile::of(&path, checked, guessed)),
        Err(faults) => record::of(py, &RefusedFile::new(&path, &faults).with_guesses(guessed)),
    }
}

/// Reads a file of which a part is enough, for the analysis.
fn file(py: Python<'_>, path: &Path, text: &str) -> PyResult<SystemFile> {
    SystemFile::parse(path, text, &names()).map_err(|faults| refused(py, &faults))
}

/// Bounds flows, budgets, tasks and interrupts, as `weir analyze --json` does.
#[pyfunction]
fn analyze<'py>(py: Python<'py>, path: PathBuf, text: &str) -> Answer<'py> {
    let file = file(py, &path, text)?;
    let build = weir_image::build_id::of_checkout().map(str::to_owned);
    let options = Options { build, ..Options::default() };
    let report = py.detach(|| weir_analysis::analyze(&file, &options));
    record::of(py, &report.map_err(|faults| refused(py, &faults))?)
}

/// A planned text, the choices, their analysis, and what was not chosen.
type Planned<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<String>);

/// Chooses what a system leaves open, as `weir plan` does. Returns the text of the planned system,
/// the choices, their analysis, and what was not chosen.
#[pyfunction]
#[pyo3(signature = (path, text, *, max_steps=None))]
fn plan<'py>(
    py: Python<'py>,
    path: PathBuf,
    text: &str,
    max_steps: Option<u64>,
) -> PyResult<Planned<'py>> {
    let file = file(py, &path, text)?;
    let planned = py.detach(|| {
        let mut options = PlanOptions::default();
        options.max_steps = max_steps.unwrap_or(options.max_steps);
        weir_analysis::plan(&file, &options)
    });
    match planned {
        Ok(plan) => {
            let choices = record::of(py, &plan.choices)?;
            let report = record::of(py, &plan.report)?;
            Ok((plan.file.text().to_owned(), choices, report, plan.left_out))
        }
        Err(PlanError::Faults(faults)) => Err(refused(py, &faults)),
        Err(PlanError::Conflict(conflict)) => {
            let record = record::of(py, &conflict)?.unbind();
            Err(NoPlanError::new_err(("these demands cannot be met together", Some(record))))
        }
        Err(PlanError::GaveUp) => {
            let text = "the effort of max_steps was spent before a plan was found or excluded";
            Err(NoPlanError::new_err((text, None::<Py<PyAny>>)))
        }
    }
}

/// A system and the options of its simulation.
#[derive(FromPyObject)]
struct SimulationRequest<'py> {
    path: PathBuf,
    text: String,
    values: Changes<'py>,
    memory: Option<String>,
    length: Time,
    warm_up: Time,
    seed: u64,
}

/// A failure of a simulation: faults of the system, or what the model cannot do.
enum NotSimulated {
    Faults(Faults),
    Error(SimulationError),
}

impl SimulationRequest<'_> {
    /// Simulates, without Python's lock, and returns what `show` makes of the record.
    fn run<T: Send>(
        self,
        py: Python<'_>,
        show: impl FnOnce(&SimulationRecord<'_>) -> T + Send,
    ) -> PyResult<T> {
        let values = toml_values(&self.values)?;
        let Values { memory: of_memory, system, seed } =
            Values::new(&values).map_err(PyValueError::new_err)?;
        let span = Span {
            length: self.length.read("length")?,
            warm_up: self.warm_up.read("warm_up")?,
            seed: seed.unwrap_or(self.seed),
        };
        let Self { path, text, memory, .. } = self;
        let simulated = py.detach(|| {
            let text = edited(&path, &text, &system).map_err(NotSimulated::Faults)?;
            let system: System =
                check_text(&path, &text, &names()).map_err(NotSimulated::Faults)?;
            let simulated = Simulation::new(&system, memory.as_deref(), &of_memory, span)
                .and_then(|simulation| simulation.together_and_alone());
            let simulated = simulated.map_err(NotSimulated::Error)?;
            Ok(show(&SimulationRecord::of(&simulated)))
        });
        simulated.map_err(|error| match error {
            NotSimulated::Faults(faults) => refused(py, &faults),
            NotSimulated::Error(error) => WeirError::new_err(error.0),
        })
    }
}

/// Simulates a system, as `weir simulate run --json` does, and returns that JSON in one line.
#[pyfunction]
fn simulate(py: Python<'_>, request: SimulationRequest<'_>) -> PyResult<String> {
    request.run(py, |record| versioned(record).to_string())
}

/// Reads the report of a run and the facts of it; none if `run.json` is missing.
#[pyfunction]
fn read_run(
    py: Python<'_>,
    directory: PathBuf,
) -> PyResult<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)> {
    let report = read_report(&directory).map_err(failed)?;
    let facts = RunFacts::read(&directory).map(|facts| record::of(py, &facts)).transpose()?;
    Ok((record::of(py, &report)?, facts))
}

/// Reads the trace of a run as CSV, as `weir trace --csv` prints it.
#[pyfunction]
#[pyo3(signature = (directory, *, vms=Vec::new(), kinds=Vec::new()))]
fn trace_csv(
    py: Python<'_>,
    directory: PathBuf,
    vms: Vec<String>,
    kinds: Vec<String>,
) -> PyResult<String> {
    let read = || {
        let (numbers, mut trace) = (packets::numbers_of(&directory)?, Trace::open(&directory)?);
        let filter = Filter::new(&vms, &kinds, (0, u64::MAX), &trace.facts)?;
        let mut out = Vec::new();
        trace::write((&mut trace, &numbers), &filter, TraceFormat::Csv, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    };
    py.detach(read).map_err(failed)
}

/// Explains where the time of a packet, a task or a budget's period went, as `weir why --json` does.
#[pyfunction]
#[pyo3(signature = (directory, *, flow=None, task=None, budget=None, number=None))]
fn why(
    py: Python<'_>,
    directory: PathBuf,
    flow: Option<String>,
    task: Option<String>,
    budget: Option<String>,
    number: Option<u64>,
) -> Answer<'_> {
    let subject = flow
        .map(Subject::Flow)
        .or_else(|| task.map(Subject::Task))
        .or_else(|| budget.map(Subject::Budget));
    let query = WhyQuery { subject, number };
    let report = py.detach(|| weir_report::why::why(&directory, &query)).map_err(failed)?;
    record::of(py, &report)
}

/// Explains a diagnostic by its code or its name; none if there is none.
#[pyfunction]
fn explain<'py>(py: Python<'py>, code: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    weir_model::explain(code).map(|page| record::of(py, &page.record())).transpose()
}

/// The module.
#[pymodule]
mod _weir {
    #[pymodule_export]
    use super::{analyze, change, check, explain, plan, read_run, simulate, trace_csv, why};
}
