//! xen-throttling, section IV: a critical VM and a throttled one, each with a program of a
//! benchmark suite, on a model of the paper's machine.
//!
//! The programs are profiles: what the paper prints about them, and assumptions where it prints
//! nothing. Its experiments count accesses to the memory, so that here a budget counts lines that
//! are brought in and written back.

pub(crate) mod bandwidth;
pub(crate) mod compensation;
pub(crate) mod critical;

pub use crate::memory::Spread;
pub use bandwidth::{BandwidthFigures, ProgramBandwidth, ThrottledTime};
pub use compensation::{CompensationChange, CompensationChanges};
pub use critical::{CriticalFigures, CriticalTime};

use crate::memory::board;
use crate::statement::{ClaimSource, Paper};
use std::fmt::Write as _;
use weir_image::Result;
use weir_simulator::SimulatedBoard;

const PAPER: Paper = Paper("xen-throttling");
const WEIR: ClaimSource = ClaimSource::own("docs/results/reproduce.md, Budgets next to programs");
const MEMORY: &str = "athlon64x2";
/// Bytes of a line.
const LINE: f64 = 64.0;
/// The bandwidth of the throttled VM and its period, where the paper prints them (Figures 5 and 6).
const BUDGET_MB_PER_S: u64 = 91;
const PERIOD_US: u64 = 10_000;
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
const MB_PER_S: f64 = BUDGET_MB_PER_S as f64;
/// The period where the paper prints none (Figures 4, 7 and 8), which is assumed: a shorter one, so
/// that many of them can be simulated.
const ASSUMED_PERIOD_US: u64 = 1_000;
/// The bandwidth of the machine's memory (section IV-B).
const MEMORY_MB_PER_MS: f64 = 3.0;
const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;

const fn seeds(quick: bool) -> u64 {
    if quick { QUICK_SEEDS } else { SEEDS }
}

/// A program of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Gcc,
    /// The same, with the accesses that the paper shows in a part of its time only.
    GccInAPart,
    /// The phase of gcc with the higher rate.
    GccDense,
    Mcf,
    Gems,
    Lbm,
    /// The phase of lbm with the higher rate.
    LbmDense,
    /// A program that reads lines as fast as it can: what the memory can do.
    Reader,
}

/// Accesses at one rate.
#[derive(Clone, Copy, Debug)]
struct Phase {
    accesses: u64,
    gap_ns: u64,
    /// Of a hundred accesses.
    writes: u64,
    /// True for one line behind the other, false for a random order.
    stream: bool,
}

/// 403.gcc: 0.5 MB/ms on average, and at most 1.3 in 1 ms (section IV-B, Figure 5). Fitted to
/// these: the gaps, and the share of the two phases. Assumed: the length of the phases, the share
/// of writes.
const GCC: [Phase; 2] = [
    Phase { accesses: 28_000, gap_ns: 64, writes: 30, stream: true },
    Phase { accesses: 14_700, gap_ns: 357, writes: 30, stream: true },
];
/// Passes of 7 ms through these in the part of the time in which [`Program::GccInAPart`] accesses
/// memory, and then accesses that are so far apart that they hardly count. Fitted to the 7 s of gcc
/// with its budget: a quarter of the time.
const GCC_PASSES: usize = 6;
const GCC_IDLE: Phase = Phase { accesses: 1268, gap_ns: 100_000, writes: 0, stream: true };

/// 429.mcf follows pointers: each access waits for the one before, so that its rate follows from
/// the latency of the memory. Assumed: all of it. The paper says that its rate is moderate.
const MCF: [Phase; 1] = [Phase { accesses: 100_000, gap_ns: 1, writes: 20, stream: false }];

/// 459.GemsFDTD. Assumed: a rate between those of mcf and of lbm, as Figure 3 has no numbers.
const GEMS: [Phase; 2] = [
    Phase { accesses: 60_000, gap_ns: 59, writes: 35, stream: true },
    Phase { accesses: 80_000, gap_ns: 94, writes: 35, stream: true },
];

/// 470.lbm: at most 2.5 MB in 1 ms, and 13 s that become 200 s at 91 MB/s, which are 1.4 MB/ms
/// (section IV-B, Figure 6). Fitted to these: the gaps, and the share of the two phases.
const LBM: [Phase; 2] = [
    Phase { accesses: 136_500, gap_ns: 38, writes: 50, stream: true },
    Phase { accesses: 54_000, gap_ns: 144, writes: 50, stream: true },
];

const READER: [Phase; 1] = [Phase { accesses: 60_000, gap_ns: 1, writes: 0, stream: true }];

/// The programs that the paper has as critical ones and as throttled ones.
const PROGRAMS: [Program; 3] = [Program::Mcf, Program::Gems, Program::Lbm];

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Gcc => "403.gcc",
            Self::GccInAPart => "403.gcc in a quarter",
            Self::GccDense => "403.gcc, dense",
            Self::Mcf => "429.mcf",
            Self::Gems => "459.GemsFDTD",
            Self::Lbm => "470.lbm",
            Self::LbmDense => "470.lbm, dense",
            Self::Reader => "reader",
        }
    }

    /// The name in a statement's.
    const fn id(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::GccInAPart => "gcc-quarter",
            Self::GccDense => "gcc-dense",
            Self::Mcf => "mcf",
            Self::Gems => "gems",
            Self::Lbm => "lbm",
            Self::LbmDense => "lbm-dense",
            Self::Reader => "reader",
        }
    }

    fn phases(self) -> Vec<Phase> {
        match self {
            Self::Gcc => GCC.to_vec(),
            Self::GccInAPart => [GCC.repeat(GCC_PASSES), vec![GCC_IDLE]].concat(),
            Self::GccDense => GCC[..1].to_vec(),
            Self::Mcf => MCF.to_vec(),
            Self::Gems => GEMS.to_vec(),
            Self::Lbm => LBM.to_vec(),
            Self::LbmDense => LBM[..1].to_vec(),
            Self::Reader => READER.to_vec(),
        }
    }

    /// The accesses of a pass through its phases.
    fn accesses(self) -> u64 {
        self.phases().iter().map(|phase| phase.accesses).sum()
    }

    fn workload(self) -> String {
        let mut text = "workload = { kind = \"profile\", size = \"8MiB\", ".to_owned();
        if self == Self::Mcf {
            text.push_str("outstanding = 1, ");
        }
        text.push_str("phases = [");
        for Phase { accesses, gap_ns, writes, stream } in self.phases() {
            let order = if stream { "stream" } else { "random" };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{{ accesses = {accesses}, order = \"{order}\", gap = \"{gap_ns}ns\", \
                 writes = {writes} }}, "
            );
        }
        text.push_str("] }\n");
        text
    }
}

/// The budget of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget {
    mb_per_s: u64,
    period_us: u64,
    /// Compensation by what the first VM leaves in windows of two periods.
    compensated: bool,
}

/// The budget of section IV-B.
const BUDGET: Budget =
    Budget { mb_per_s: BUDGET_MB_PER_S, period_us: PERIOD_US, compensated: false };

impl Budget {
    /// Lines in a period.
    const fn lines(self) -> u64 {
        self.mb_per_s * self.period_us / 64
    }

    fn text(self) -> String {
        let keys = if self.compensated {
            ", regulator = \"compensation\", critical = \"vm0\", window = 2"
        } else {
            ""
        };
        format!(
            "memory_budget = {{ accesses = {}, period = \"{}us\", source = \"counter-page\", \
             overcommit = true{keys} }}\n",
            self.lines(),
            self.period_us
        )
    }

    /// More than a core can use in a period: it is counted, as a critical VM's must be.
    const fn unlimited(self) -> Self {
        Self { mb_per_s: 100_000, compensated: false, ..self }
    }
}

/// A program on a core of its own.
#[derive(Clone, Copy, Debug)]
struct Runs {
    program: Program,
    budget: Option<Budget>,
}

/// The board of these programs.
fn board_of(all: &[Runs]) -> Result<SimulatedBoard> {
    let mut text = "platform = \"qemu-virt\"\n".to_owned();
    for (core, Runs { program, budget }) in all.iter().enumerate() {
        let _ = write!(
            text,
            "[[vm]]\nname = \"vm{core}\"\ncpus = [{core}]\nmemory = \"16MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\n{}{}",
            program.workload(),
            budget.map_or(String::new(), Budget::text)
        );
    }
    board(&text, MEMORY, &[])
}
