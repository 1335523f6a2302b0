//! rjmm, section IV-C and Figure 4, on the real binary: Debian's real-time Linux runs the real
//! `cyclictest` next to a VM that reads 16 MiB all the time.
//!
//! The systems run twice: with the time of a memory charged to the cores, which gives latencies, and
//! observed without time, which gives the DRAM rows that the VMs close of each other. QEMU's board
//! has banks that no color bit chooses, so that each can be separate without the other.
//!
//! The latencies are lowered by far less than in the paper. The control for the suspected cause, a
//! wake-up of instructions and of lines that the L1 keeps, is a thread on the model of the same
//! memory that executes no instructions: it reads lines that the L1 cannot keep, or that it keeps.

use super::{PAPER, SEEDS, Stressor, WEIR, cyclictest, printed, system};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures, isolation,
    memory::{self, Spread},
    statement::{
        ClaimSource, Deviation,
        Relation::{self, AtLeast, AtMost, Near},
        Statement, statements,
    },
    write,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};
use weir_image::{Environment, Failure, Result, failure::Context};
use weir_runner::{RunOptions, SilentConsole, run, watch_signals};

const FIGURE_4: ClaimSource = PAPER.at("IV-C, Figure 4");
const DESIGN: ClaimSource = PAPER.at("III");
/// Section IV-C: the mean and the greatest latency are lower by so many percent.
const MEAN: f64 = 73.7;
const MOST: f64 = 73.5;
/// The distance that counts as near them, in percent: other memories have other times.
const NEAR: f64 = 10.0;
/// "No difference": up to this, in percent.
const SAME: f64 = 5.0;
/// With fewer closed rows than this the run in shared memory shows nothing.
const MANY: f64 = 1000.0;
/// The memory whose time is charged: that of the platform, with its banks.
const MEMORY: &str = "qemu-virt";
/// Wake-ups, one each millisecond.
const WAKES: u32 = 300;
const QUICK_WAKES: u32 = 50;
/// What the thread without instructions reads, in KiB: twice the L1, and an eighth of it.
const BEYOND_L1: u64 = 64;
const INSIDE_L1: u64 = 4;

/// The surroundings of the VM with Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Surroundings {
    /// The other VM ends before.
    Alone,
    /// Caches and banks are shared.
    Shared,
    /// Separate banks, a shared L2.
    Banks,
    /// Separate parts of the L2, shared banks.
    Colors,
    /// Both are separate, as with separate banks on the paper's board.
    BanksAndColors,
}

impl Surroundings {
    const ALL: [Self; 5] =
        [Self::Shared, Self::Banks, Self::BanksAndColors, Self::Colors, Self::Alone];

    const fn keys(self) -> &'static str {
        match self {
            Self::Alone | Self::Shared => "",
            Self::Banks => "banks = \"rt\"\n",
            Self::Colors => "colors = \"8-15\"\n",
            Self::BanksAndColors => "banks = \"rt\"\ncolors = \"8-15\"\n",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Shared => "shared memory",
            Self::Banks => "separate banks",
            Self::Colors => "separate colors",
            Self::BanksAndColors => "separate banks and colors",
        }
    }

    /// Whether the accesses are counted, which takes as long as the latencies.
    const fn is_observed(self) -> bool {
        matches!(self, Self::Shared | Self::Banks)
    }

    /// The text of the system.
    fn toml(self, wakes: u32) -> String {
        format!(
            "platform = \"qemu-virt\"\n\n[hypervisor]\nconsole_core = 1\n\n[[vm]]\n\
             name = \"linux\"\ncpus = [0]\nmemory = \"128MiB\"\n{}\
             image = {{ linux = \"debian-rt\", initrd = \"debian-rt\", \
             cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests weir.run=cyclictest \
             weir.cyclictest=--nsecs weir.loops={wakes}\" }}\n\
             expect = [\"linux: cyclictest T: 0\", \"linux: done\"]\n\n[[vm]]\n\
             name = \"other\"\ncpus = [1]\nmemory = \"32MiB\"\n\
             image = {{ elf = \"memory-stressor\", args = \"mode=read size=0x1000000 passes={}\" \
             }}\n",
            self.keys(),
            u8::from(self == Self::Alone),
        )
    }
}

/// The outcomes of a system.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinuxWakes {
    /// The surroundings of the VM.
    pub surroundings: Surroundings,
    /// The least latency in ns.
    pub least_ns: f64,
    /// The mean.
    pub mean_ns: f64,
    /// The greatest.
    pub most_ns: f64,
    /// The accesses of both VMs, if they were counted.
    pub conflicts: Option<Conflicts>,
}

/// The conflicts of two VMs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Conflicts {
    /// DRAM rows that the two VMs closed of each other.
    pub rows_closed: f64,
    /// Lines of the L2 that they evicted of each other.
    pub lines_evicted: f64,
}

/// The memory of a simulated thread that executes no instructions, next to a VM that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadPoint {
    /// What it reads at each wake-up, in KiB.
    pub size_kib: u64,
    /// The surroundings of its VM.
    pub surroundings: Surroundings,
}

/// The latencies of a simulated thread by seed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadWakes {
    /// The memory.
    #[serde(flatten)]
    pub point: ThreadPoint,
    /// The means in ns.
    pub mean_ns: Vec<f64>,
    /// The greatest ones.
    pub most_ns: Vec<f64>,
}

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinuxFigures {
    /// The systems.
    pub systems: Vec<LinuxWakes>,
    /// The simulated threads, none in a quick call.
    #[serde(default)]
    pub threads: Vec<ThreadWakes>,
}

/// The points of the simulated threads.
fn thread_points() -> Vec<ThreadPoint> {
    let sizes = [BEYOND_L1, INSIDE_L1].into_iter();
    let each = sizes.flat_map(|size_kib| {
        [Surroundings::Shared, Surroundings::BanksAndColors]
            .map(|surroundings| ThreadPoint { size_kib, surroundings })
    });
    each.collect()
}

/// Simulates the threads without instructions.
fn threads() -> Result<Vec<ThreadWakes>> {
    let runs = memory::each_by_seed(&thread_points(), SEEDS, |point, seed| {
        let workload = format!("kind = \"cyclictest\", size = \"{}KiB\"", point.size_kib);
        let text = system(MEMORY, point.surroundings.keys(), &workload, Stressor::Reads);
        cyclictest::latencies(&memory::board(&text, MEMORY, &[])?, seed, cyclictest::LENGTH_US)
    })?;
    let all = runs.into_iter().map(|(point, runs)| ThreadWakes {
        point,
        mean_ns: runs.iter().map(|one| one.mean).collect(),
        most_ns: runs.iter().map(|one| one.most).collect(),
    });
    Ok(all.collect())
}

/// Parses `linux: cyclictest T: 0 (  100) P:80 I:1000 C:    300 Min:   5011 Act: 5126 Avg: 5093
/// Max:    8220`: the least, the mean and the greatest latency.
fn latencies(line: &str) -> Option<[f64; 3]> {
    let rest = line.strip_prefix("linux: cyclictest T: 0 ")?;
    let of = |name: &str| {
        let (_, behind) = rest.split_once(name)?;
        behind.split_whitespace().next()?.parse().ok()
    };
    Some([of("Min:")?, of("Avg:")?, of("Max:")?])
}

fn run_one(
    surroundings: Surroundings,
    wakes: u32,
    request: &ExperimentRequest,
) -> Result<LinuxWakes> {
    let environment = &request.environment;
    let name = surroundings.name().replace(' ', "-");
    let file = request.directory.join(name).with_extension("toml");
    write(&file, &surroundings.toml(wakes))?;
    let system = weir_image::check(&file, None, environment)?;
    let options = RunOptions {
        accept_not_judged: true,
        memory: Some(MEMORY.to_owned()),
        interrupt: watch_signals()?,
        ..RunOptions::new(environment.clone())
    };
    let timed = run(&system, &options, &mut SilentConsole)?.good(&file)?;
    let log = timed.directory.join("linux.log");
    let printed = fs::read_to_string(&log).context(|| format!("read {}", log.display()))?;
    let latencies = printed.lines().find_map(latencies);
    let [least_ns, mean_ns, most_ns] = latencies.ok_or_else(|| {
        Failure::system(format!("{}: cyclictest printed no latencies", file.display()))
    })?;
    // Nothing needs the logs of a run that passes.
    let _ = fs::remove_dir_all(&timed.directory);
    let observed = surroundings.is_observed();
    let conflicts = observed.then(|| conflicts(&file, environment)).transpose()?;
    Ok(LinuxWakes { surroundings, least_ns, mean_ns, most_ns, conflicts })
}

/// Counts the conflicts of the two VMs of a system.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn conflicts(file: &Path, environment: &Environment) -> Result<Conflicts> {
    let seen = isolation::observed(file, environment)?.seen;
    Ok(Conflicts {
        rows_closed: seen.between_vms(&seen.rows_closed) as f64,
        lines_evicted: seen.between_vms(&seen.l2_evictions) as f64,
    })
}

/// The whole experiment.
pub(crate) fn linux(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (surroundings, wakes) = if request.quick {
        (&Surroundings::ALL[..2], QUICK_WAKES)
    } else {
        (&Surroundings::ALL[..], WAKES)
    };
    let systems = memory::each(surroundings, |one| run_one(*one, wakes, request))?;
    let threads = if request.quick { Vec::new() } else { threads()? };
    let measured = LinuxFigures { systems, threads };
    Ok(ExperimentOutcome {
        text: format!(
            "{}\n\n{NOTES}\n{}\n",
            printed(&measured.cells()),
            printed(&measured.thread_cells())
        ),
        statements: stated(&measured),
        json: figures(measured),
        files: Vec::new(),
    })
}

const NOTES: &str = "Latencies of Debian's cyclictest in a VM with one vCPU, with the memory timing \
                     of qemu-virt; rows and lines are counted in a run without time. Then the \
                     latencies of a\nthread that executes no instructions, on the model of the \
                     same memory: mean of the seeds with the least and the greatest.\n";

impl LinuxFigures {
    fn of(&self, surroundings: Surroundings) -> Option<&LinuxWakes> {
        self.systems.iter().find(|one| one.surroundings == surroundings)
    }

    fn value(&self, surroundings: Surroundings, value: fn(&LinuxWakes) -> f64) -> f64 {
        self.of(surroundings).map_or(f64::NAN, value)
    }

    /// By how many percent of shared memory's a value is lower in these surroundings.
    fn lower(&self, surroundings: Surroundings, value: fn(&LinuxWakes) -> f64) -> f64 {
        let of = |surroundings| self.value(surroundings, value);
        100.0 * (1.0 - of(surroundings) / of(Surroundings::Shared))
    }

    fn thread(&self, size_kib: u64, surroundings: Surroundings) -> Option<&ThreadWakes> {
        let point = ThreadPoint { size_kib, surroundings };
        self.threads.iter().find(|one| one.point == point)
    }

    /// By how many percent separate banks and colors lower a value of the thread that reads so many
    /// KiB, by seed.
    fn thread_lower(&self, size_kib: u64, value: fn(&ThreadWakes) -> &[f64]) -> Spread {
        let of = |surroundings| self.thread(size_kib, surroundings).map_or(&[][..], value);
        let pairs = of(Surroundings::Shared).iter().zip(of(Surroundings::BanksAndColors));
        let each: Vec<_> = pairs.map(|(shared, own)| 100.0 * (1.0 - own / shared)).collect();
        Spread::of(&each)
    }

    fn rows_closed(&self, surroundings: Surroundings) -> f64 {
        let conflicts = self.of(surroundings).and_then(|one| one.conflicts);
        conflicts.map_or(f64::NAN, |conflicts| conflicts.rows_closed)
    }

    /// Returns the rows of the table, the header first.
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let header = [
            "",
            "least, ns",
            "mean, ns",
            "greatest, ns",
            "mean, lower by %",
            "mean, added to alone, ns",
            "greatest, added to alone, ns",
            "rows closed between VMs",
            "lines evicted between VMs",
        ];
        let mut all = vec![header.map(str::to_owned).to_vec()];
        for one in &self.systems {
            let count = |value: f64| format!("{value:.0}");
            let lower = format!("{:.1}", self.lower(one.surroundings, |one| one.mean_ns));
            // Differences of a few instructions of EL2 and of the two runs: too small to be judged.
            let added = |value: fn(&LinuxWakes) -> f64| {
                let alone = self
                    .of(Surroundings::Alone)
                    .filter(|alone| alone.surroundings != one.surroundings);
                alone.map_or_else(|| "-".to_owned(), |alone| count(value(one) - value(alone)))
            };
            let conflicts = |value: fn(&Conflicts) -> f64| {
                let value = one.conflicts.as_ref().map(value);
                value.map_or_else(|| "-".to_owned(), count)
            };
            all.push(vec![
                one.surroundings.name().to_owned(),
                count(one.least_ns),
                count(one.mean_ns),
                count(one.most_ns),
                if one.surroundings == Surroundings::Shared { "-".to_owned() } else { lower },
                added(|one| one.mean_ns),
                added(|one| one.most_ns),
                conflicts(|all| all.rows_closed),
                conflicts(|all| all.lines_evicted),
            ]);
        }
        all
    }

    /// Returns the rows of the table of the thread without instructions, the header first.
    #[must_use]
    pub fn thread_cells(&self) -> Vec<Vec<String>> {
        let header = ["KiB read", "memory", "mean, us", "greatest, us", "mean, lower by %"];
        let mut all = vec![header.map(str::to_owned).to_vec()];
        for ThreadWakes { point, mean_ns, most_ns } in &self.threads {
            let us = |all: &[f64]| {
                Spread::of(&all.iter().map(|ns| ns / 1000.0).collect::<Vec<_>>()).text(2)
            };
            let lower = self.thread_lower(point.size_kib, |one| &one.mean_ns).text(1);
            all.push(vec![
                point.size_kib.to_string(),
                point.surroundings.name().to_owned(),
                us(mean_ns),
                us(most_ns),
                if point.surroundings == Surroundings::Shared { "-".to_owned() } else { lower },
            ]);
        }
        all
    }
}

/// The known deviations.
pub(crate) static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "instructions-of-linux",
    reason: "nearly all of a wake-up's time is instructions of Linux, of which each takes 1 ns and \
             whose fetches cost nothing, and the L1 keeps nearly all lines that they read, so that \
             a division of memory shortens little; without instructions and with lines that the L1 \
             cannot keep, it lowers the latencies by more than in the paper, and with lines that \
             the L1 keeps, by nothing",
    tested_by: &["accesses-mean", "accesses-maximum", "accesses-l1"],
    of: &[("mean", Near(2.7, 4.0)), ("maximum", Near(13.0, 10.0))],
}];

fn stated(measured: &LinuxFigures) -> Vec<Statement> {
    let lower = |surroundings, value| measured.lower(surroundings, value);
    let mut all = statements![
        DESIGN, "rows", "with separate banks no VM closes a row of the other"
            => Relation::exactly(0.0), [measured.rows_closed(Surroundings::Banks)];
        WEIR, "rows-shared", "in shared memory the VMs close rows of each other"
            => AtLeast(MANY), [measured.rows_closed(Surroundings::Shared)];
        WEIR, "banks", "separate banks with a shared L2 do not lower the mean latency: lower by"
            => AtMost(SAME), [lower(Surroundings::Banks, |one| one.mean_ns)], "%";
    ];
    if measured.of(Surroundings::BanksAndColors).is_some() {
        let both = |value| lower(Surroundings::BanksAndColors, value);
        let colors = lower(Surroundings::Colors, |one| one.mean_ns);
        let accesses = |size_kib, value| measured.thread_lower(size_kib, value);
        all.extend(statements![
            FIGURE_4, "mean",
            "separate banks, which are colors, too, lower the mean latency of cyclictest: by"
                => Near(MEAN, NEAR), [both(|one| one.mean_ns)], "%";
            FIGURE_4, "maximum",
            "separate banks, which are colors, too, lower its greatest latency: by"
                => Near(MOST, NEAR), [both(|one| one.most_ns)], "%";
            FIGURE_4, "minimum", "its least latencies make no difference: apart by"
                => AtMost(SAME), [both(|one| one.least_ns).abs()], "%";
            WEIR, "accesses-mean",
            "without instructions and with lines that the L1 cannot keep, separate banks and colors \
             lower the mean latency, with each seed, by at least as much as in the paper"
                => AtLeast(MEAN), [accesses(BEYOND_L1, |one| &one.mean_ns).least], "%";
            WEIR, "accesses-maximum",
            "without instructions and with lines that the L1 cannot keep, separate banks and colors \
             lower the greatest latency, with each seed, by at least as much as in the paper"
                => AtLeast(MOST), [accesses(BEYOND_L1, |one| &one.most_ns).least], "%";
            WEIR, "accesses-l1",
            "without instructions and with lines that the L1 keeps, separate banks and colors make \
             no difference to the mean latency: lower by"
                => AtMost(SAME), [accesses(INSIDE_L1, |one| &one.mean_ns).most], "%";
            WEIR, "colors",
            "separate colors with shared banks lower the mean as much as both: apart by"
                => AtMost(SAME), [(both(|one| one.mean_ns) - colors).abs()], "%";
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn a_line_of_cyclictest_has_the_latencies() {
        let line = "linux: cyclictest T: 0 (  100) P:80 I:1000 C:    300 Min:   5264 Act: 5904 \
                    Avg: 5931 Max:   10597";
        assert_eq!(latencies(line), Some([5264.0, 5931.0, 10_597.0]));
        assert_eq!(latencies("linux: cyclictest # /dev/cpu_dma_latency set to 0us"), None);
    }

    /// Returns values like those of the systems.
    fn good() -> LinuxFigures {
        let of = |surroundings, [least_ns, mean_ns, most_ns]: [f64; 3], rows: Option<f64>| {
            let conflicts = rows.map(|rows_closed| Conflicts { rows_closed, lines_evicted: 1e7 });
            LinuxWakes { surroundings, least_ns, mean_ns, most_ns, conflicts }
        };
        let systems = vec![
            of(Surroundings::Shared, [5264.0, 5931.0, 10_597.0], Some(1e6)),
            of(Surroundings::Banks, [5342.0, 6126.0, 10_791.0], Some(0.0)),
            of(Surroundings::BanksAndColors, [5365.0, 5773.0, 9168.0], None),
            of(Surroundings::Colors, [5317.0, 5736.0, 9220.0], None),
            of(Surroundings::Alone, [5200.0, 5760.0, 9000.0], None),
        ];
        let latency = |point: ThreadPoint| match (point.size_kib, point.surroundings) {
            (INSIDE_L1, _) => 160.0,
            (_, Surroundings::Shared) => 129_400.0,
            _ => 12_900.0,
        };
        let threads = thread_points().into_iter().map(|point| {
            let all = vec![latency(point); 2];
            ThreadWakes { point, mean_ns: all.clone(), most_ns: all }
        });
        LinuxFigures { systems, threads: threads.collect() }
    }

    #[test]
    fn threads_that_were_not_simulated_fail() {
        let measured = LinuxFigures { threads: Vec::new(), ..good() };
        let failing = stated(&measured).into_iter().filter(|one| !one.relation.holds(&one.own));
        let failing: Vec<_> = failing.map(|one| one.id).collect();
        let tests = DEVIATIONS[0].tested_by;
        assert_eq!(failing, [&["mean", "maximum"], tests].concat());
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, stated, |measured| {
            let systems = measured.systems.iter_mut();
            let values = systems.flat_map(|one| {
                let LinuxWakes { least_ns, mean_ns, most_ns, conflicts, .. } = one;
                let rows = conflicts.as_mut().map(|conflicts| &mut conflicts.rows_closed);
                [least_ns, mean_ns, most_ns].into_iter().chain(rows)
            });
            let threads = measured.threads.iter_mut();
            let threads = threads.flat_map(|one| one.mean_ns.iter_mut().chain(&mut one.most_ns));
            values.chain(threads).map(|value| value as &mut dyn Change).collect()
        });
    }
}
