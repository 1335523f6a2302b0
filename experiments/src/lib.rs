//! Computes tables and figures of the papers again and compares them with what was published.
//!
//! Each paper has its module; [`EXPERIMENTS`] lists all experiments, and [`coverage`] the tables
//! and figures of the papers. An experiment returns its figures and
//! [statements](statement::Statement), each of which holds, fails or is a listed deviation.
//!
//! # Examples
//!
//! ```
//! let names = weir_experiments::EXPERIMENTS.iter().map(|each| each.name);
//! assert!(names.into_iter().any(|name| name == "rt-virtio-table3"));
//! ```

mod bao_throttling;
pub mod board;
pub mod coverage;
pub mod hypervisor;
pub mod isolation;
mod memory;
pub mod mobivmm;
pub mod rjmm;
mod rt_virtio;
pub mod statement;
pub mod throttling;
pub mod xen_throttling;

pub use rt_virtio::table3::{Table3Flow, table3_flows};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use statement::{Deviation, Statement, StatementCounts, StatementKind, StatementRecord};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use weir_image::{Environment, Failure, Result, failure::Context};

/// How figures are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Systems run in QEMU with the real hypervisor: the figures are of one build of it.
    RealBinary,
    /// Systems run on the timing model of `weir simulate`.
    Simulator,
    /// The analysis of `weir analyze` computes them.
    Analysis,
}

impl Method {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RealBinary => "real binary",
            Self::Simulator => "simulator",
            Self::Analysis => "analysis",
        }
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentReport {
    /// The name of the experiment.
    pub experiment: String,
    /// The method by which its figures are computed.
    pub method: Method,
    /// The build of the hypervisor, if the experiment runs systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The counts of each kind of statement.
    pub counts: BTreeMap<StatementKind, StatementCounts>,
    /// The statements.
    pub statements: Vec<StatementRecord>,
    /// True if each statement holds or is a listed deviation.
    pub as_expected: bool,
    /// The reasons for which the experiment fails.
    pub failures: Vec<String>,
    /// The figures, which each experiment has for itself.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
    /// The files that were written, relative to the checkout.
    pub files: Vec<String>,
}

/// Returns the figures of an experiment as its report has them.
fn figures(figures: impl Serialize) -> Value {
    // Figures have no maps with keys that are no text, which JSON could not have.
    serde_json::to_value(figures).unwrap_or_default()
}

/// A table or a figure of a paper that is computed again.
#[derive(Debug)]
pub struct Experiment {
    /// The name by which it is called.
    pub name: &'static str,
    /// The computed values.
    pub what: &'static str,
    run: fn(&ExperimentRequest) -> Result<ExperimentOutcome>,
    /// The method by which its figures are computed.
    pub method: Method,
    /// Statements of it that are known not to hold.
    pub deviations: &'static [Deviation],
}

/// All experiments, by name.
pub static EXPERIMENTS: [Experiment; 17] = [
    Experiment {
        name: "bao-throttling-budgets",
        what: "programs next to three memory stressors with memory budgets of three periods, with \
               colors and without, on the model of the memory",
        run: bao_throttling::budgets::budgets,
        method: Method::Simulator,
        deviations: &bao_throttling::budgets::DEVIATIONS,
    },
    Experiment {
        name: "bao-throttling-dma",
        what: "programs next to DMA channels of both engines, regulated and with linked \
               descriptors, on the model of the memory: Figures 5.1 to 5.3, 5.5, 5.7, 5.10, 5.12",
        run: bao_throttling::dma::interference,
        method: Method::Simulator,
        deviations: &bao_throttling::dma::DEVIATIONS,
    },
    Experiment {
        name: "bao-throttling-tlb",
        what: "SMMU translations of a network device next to DMA channels, and a channel that \
               shares TLB and regulator, on the model of the memory: Figures 5.4, 5.6, 5.8, 5.9, \
               5.11, 5.13, Table 5.1",
        run: bao_throttling::tlb::translations,
        method: Method::Simulator,
        deviations: &[],
    },
    Experiment {
        name: "isolation",
        what: "cache lines and DRAM rows that VMs take from each other, with colors and banks and \
               without, and a VM's share of the cache",
        run: isolation::isolation,
        method: Method::RealBinary,
        deviations: &[],
    },
    Experiment {
        name: "mobivmm",
        what: "sleep times next to another VM on the core and its interrupts: Table I, Figures 8, \
               9 and 11, and with admission",
        run: mobivmm::mobivmm,
        method: Method::RealBinary,
        deviations: &mobivmm::paper::DEVIATIONS,
    },
    Experiment {
        name: "rjmm-cyclictest",
        what: "latencies of a thread that wakes next to a VM that accesses 16 MiB all the time, \
               with separate banks and with separate colors, on the model of the memory: Figures 3 \
               and 4",
        run: rjmm::cyclictest::cyclictest,
        method: Method::Simulator,
        deviations: &rjmm::cyclictest::DEVIATIONS,
    },
    Experiment {
        name: "rjmm-isolbench",
        what: "speed of a program that reads 16 to 128 KiB next to a VM that accesses 16 MiB all \
               the time, with separate banks and with separate colors, on the model of the \
               memory: Figure 5",
        run: rjmm::isolbench::isolbench,
        method: Method::Simulator,
        deviations: &[],
    },
    Experiment {
        name: "rjmm-linux",
        what: "latencies of Debian's cyclictest next to a VM that reads 16 MiB all the time, and \
               the DRAM rows that the two close of each other: Figure 4",
        run: rjmm::linux::linux,
        method: Method::RealBinary,
        deviations: &rjmm::linux::DEVIATIONS,
    },
    Experiment {
        name: "rjmm-mapping",
        what: "instructions that map a VM's memory of contiguous pages and of chosen ones: Table II",
        run: rjmm::mapping::mapping,
        method: Method::RealBinary,
        deviations: &rjmm::mapping::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-dma",
        what: "bandwidth of a DMA engine by chunk and QoS level, Figure 4 and Table I, on the \
               model of the memory",
        run: rt_virtio::dma::bandwidth,
        method: Method::Simulator,
        deviations: &rt_virtio::dma::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-fig3",
        what: "bandwidth of USTRESS over the memory budget, on the model of the memory",
        run: rt_virtio::ustress::fig3,
        method: Method::Simulator,
        deviations: &rt_virtio::ustress::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-table3",
        what: "smallest period of one flow, four cases, with both models of the equations",
        run: rt_virtio::table3::table3,
        method: Method::Analysis,
        deviations: &rt_virtio::table3::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-fig5",
        what: "share of schedulable flow sets over utilization, 18 curves of 20 points",
        run: rt_virtio::fig5::fig5,
        method: Method::Analysis,
        deviations: &[],
    },
    Experiment {
        name: "throttling",
        what: "memory budgets seen from outside: bounds, rates, arrival curves, what each \
               regulator gives and what it costs at EL2",
        run: throttling::throttling,
        method: Method::RealBinary,
        deviations: &[],
    },
    Experiment {
        name: "xen-throttling-bandwidth",
        what: "bandwidth of programs, free and with a budget of 91 MB/s, and their times, on the \
               model of the memory: Figures 3, 5 and 6",
        run: xen_throttling::bandwidth::bandwidth,
        method: Method::Simulator,
        deviations: &xen_throttling::bandwidth::DEVIATIONS,
    },
    Experiment {
        name: "xen-throttling-compensation",
        what: "throttled programs with compensation in windows of two periods, and the critical \
               one, on the model of the memory: Figures 7 and 8",
        run: xen_throttling::compensation::compensation,
        method: Method::Simulator,
        deviations: &[],
    },
    Experiment {
        name: "xen-throttling-critical",
        what: "time of a critical program next to a throttled one, 200 jobs of mcf, on the model \
               of the memory: Figure 4",
        run: xen_throttling::critical::critical,
        method: Method::Simulator,
        deviations: &[],
    },
];

/// The extent of an experiment, and what it needs.
#[derive(Clone, Debug)]
pub struct ExperimentRequest {
    /// Where its files go; it exists.
    pub directory: PathBuf,
    /// Random sets at each point.
    pub sets: Option<u32>,
    /// A small part is enough.
    pub quick: bool,
    /// The checkout and the tools.
    pub environment: Environment,
}

/// The result of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOutcome {
    /// For a program.
    pub json: Value,
    /// For a person.
    pub text: String,
    /// The judged values.
    pub statements: Vec<Statement>,
    /// Files that were written.
    pub files: Vec<PathBuf>,
}

impl Experiment {
    /// Runs the experiment.
    ///
    /// # Errors
    ///
    /// A system of the experiment is at fault, or the environment is. A statement that does not
    /// hold is no error here.
    pub fn run(&self, request: &ExperimentRequest) -> Result<ExperimentOutcome> {
        (self.run)(request)
    }

    /// Whether the experiment runs systems in QEMU, so that its figures are of a build of the
    /// hypervisor.
    #[must_use]
    pub fn runs_systems(&self) -> bool {
        self.method == Method::RealBinary
    }
}

/// Writes a copy of a system file with other text in places that it must have.
///
/// # Errors
///
/// A place is not there, or a file cannot be read or written.
pub fn write_changed<'a>(
    file: &Path,
    changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    copy: &Path,
) -> Result {
    let mut text = fs::read_to_string(file).context(|| format!("read {}", file.display()))?;
    for (old, new) in changes {
        if !text.contains(old) {
            return Err(Failure::system(format!("{}: there is no `{old}`", file.display())));
        }
        text = text.replace(old, new);
    }
    write(copy, &text)
}

/// Writes a file of an experiment's.
fn write(file: &Path, contents: &str) -> Result {
    fs::write(file, contents).context(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_have_a_reason_and_name_a_statement_once() {
        for experiment in &EXPERIMENTS {
            let mut named: Vec<_> =
                experiment.deviations.iter().flat_map(|each| each.of).map(|(id, _)| id).collect();
            let all = named.len();
            named.sort_unstable();
            named.dedup();
            assert_eq!(named.len(), all, "{}", experiment.name);
            for deviation in experiment.deviations {
                assert!(
                    deviation.reason.len() > 20 && !deviation.of.is_empty(),
                    "{}",
                    deviation.id
                );
            }
        }
    }

    #[test]
    fn each_change_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = root.join("tests/systems").join("flows-engine.toml");
        let engine = "path = \"dma\"";
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("copy.toml");
        write_changed(&file, [(engine, "other")], &copy).expect("a system");
        let text = fs::read_to_string(&copy).expect("a copy");
        assert!(text.contains("other") && !text.contains(engine));
        let failure = write_changed(&file, [("no such text", "")], &copy).expect_err("nothing");
        assert!(failure.text.ends_with("there is no `no such text`"), "{}", failure.text);
    }
}
