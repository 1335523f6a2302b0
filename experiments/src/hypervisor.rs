//! `weir bench hypervisor`: instructions at EL2 per path, boot and sizes, next to
//! those of Bao.
//!
//! Instructions are counted from outside by the plug-in of `weir-qemu-plugin`, in QEMU by the
//! emulated clock, from the exception vector's first instruction to the ERET, both included. So entry
//! and exit are part of every figure, and two runs give the same ones. Instructions are not cycles:
//! barriers, cache and TLB maintenance and device accesses, which cost far more on hardware than
//! another instruction, are also counted.
//!
//! The systems: one with a guest that walks all paths and marks them, some that only boot, one with
//! VMs that share a core, one with VMs that send frames, and some in which the longest section with
//! interrupts masked is searched. The paths are also walked on a board with a GICv2.

mod paths;

pub use self::paths::{PATHS, PATHS_GICV2, Path};
use self::paths::{WHOLE, Whole};
use crate::throttling::paths::BudgetPaths;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path as FilePath, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_abi::Features;
use weir_image::{
    Environment, Failure, Result, cargo::Programs, check_on, failure::Context, features_of,
};
use weir_model::platform::Machine;
use weir_qemu_plugin::{
    CountReport,
    report::{PathReport, Summary},
};
use weir_report::run::RunFacts;
use weir_runner::{
    RunOptions, SilentConsole,
    elf::{LinkedHypervisor, SectionSizes, Symbol},
    plugin::plugin_arguments,
    run, watch_signals,
};

/// The path from one vCPU's guest to that of another.
pub(crate) const SWITCH: &str = "vcpu_switch";
/// The path of a notification of a port of the switch, on the sender's core.
const NOTIFY: &str = "notify";
/// The path of a notification of a flow.
const NOTIFY_FLOW: &str = "notify_flow";
/// A guest's name of both.
const VIRTIO_NOTIFY: &str = "virtio_notify";

/// Symbols that are shown.
const SYMBOLS: usize = 20;

/// The systems of the benchmark, by their TOML files.
#[derive(Clone, Debug)]
pub struct Systems {
    /// Its guest marks and takes every path (at least 2 vCPUs, for the SGIs), then powers off.
    pub paths: PathBuf,
    /// The same on a board with a GICv2.
    pub paths_gicv2: PathBuf,
    /// One VM with one vCPU, on a board with 4 cores: with 2 MiB, 64 MiB and 256 MiB of RAM.
    pub one_vcpu: [PathBuf; 3],
    /// Two VMs on one core, which want it all the time.
    pub shared: PathBuf,
    /// Two VMs, of which one sends frames of the largest size to the other.
    pub frames: PathBuf,
    /// Two VMs, of which one sends messages by a flow to the other.
    pub flow: PathBuf,
    /// Further ones, which are run for their longest section with interrupts masked.
    pub others: Vec<PathBuf>,
}

/// What a run of a system used.
#[derive(Clone, Debug)]
pub struct Used {
    /// The hypervisor of its image.
    pub hypervisor: LinkedHypervisor,
    /// The size of its image.
    pub image_bytes: u64,
}

/// What the benchmark needs from the rest of the command.
pub struct Needs<'a, R>
where
    R: FnMut(&FilePath, &FilePath) -> Result<Used>,
{
    /// A directory for the plug-in's reports; created if missing.
    pub scratch: &'a FilePath,
    /// The systems to run.
    pub systems: &'a Systems,
    /// Builds the system in the first argument and runs it in QEMU by the
    /// emulated clock with the plug-in, which writes its report to the second, until it powers
    /// off or its `expect` lines were met. QEMU must end by itself or by SIGTERM, not by SIGKILL:
    /// the plug-in writes its report at the end.
    pub run: R,
}

/// The figures, serialized as `weir bench hypervisor --json` prints them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Of the paths with GICv3.
    #[serde(flatten)]
    pub paths: PathFigures,
    /// Of the paths with GICv2.
    pub gicv2: PathFigures,
    /// Instructions of all cores before the first one of the guest with one vCPU and 2 MiB, without
    /// those that clear its RAM.
    pub boot_instructions: u64,
    /// The same with 64 MiB.
    pub boot_instructions_64_mib: u64,
    /// The same with 256 MiB.
    pub boot_instructions_256_mib: u64,
    /// The same with four vCPUs and 2 MiB.
    pub boot_instructions_four_vcpus: u64,
    /// Instructions that clear the RAM of the guest with one vCPU and 2 MiB, on its core, before
    /// its first instruction.
    pub clearing_instructions: u64,
    /// The same with 64 MiB.
    pub clearing_instructions_64_mib: u64,
    /// The same with 256 MiB.
    pub clearing_instructions_256_mib: u64,
    /// The compiler that made the hypervisor: counts and sizes depend on it.
    pub compiler: String,
    /// Sizes of the sections of the hypervisor that takes all paths.
    #[serde(flatten)]
    pub sizes: SectionSizes,
    /// Sizes of the hypervisor of the system with one vCPU.
    pub minimal: SectionSizes,
    /// Size of the image of the system with one vCPU, with its guest.
    pub image_bytes: u64,
    /// The largest functions and statics.
    pub largest_symbols: Vec<Symbol>,
    /// The longest section of EL2 with interrupts masked while VMs run, of the guest that takes all
    /// paths.
    pub longest_masked: Option<Masked>,
    /// The same for each system.
    pub masked: BTreeMap<String, Masked>,
    /// The longest of these.
    pub masked_max: Option<Masked>,
    /// The instructions of the regulators of memory budgets.
    pub budgets: BudgetPaths,
    /// The build of the hypervisor.
    pub build: Option<String>,
}

/// What the paths of a system take.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PathFigures {
    /// Instructions per path. A path with `n` 0 was taken without entering EL2.
    pub el2_instructions: BTreeMap<String, Instructions>,
    /// Median of DSB, DMB, ISB and SB per path.
    pub barriers: BTreeMap<String, u64>,
    /// Median of TLBI, DC and IC per path.
    pub maintenance: BTreeMap<String, u64>,
    /// Median of the instructions that touched a device, per path.
    pub device_accesses: BTreeMap<String, u64>,
    /// Median of the accesses to GIC CPU interface registers per path.
    pub gic_sysregs: BTreeMap<String, u64>,
}

/// EL2 instructions of one path.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Instructions {
    /// The number of times that it was taken.
    pub n: u64,
    /// The least.
    pub min: u64,
    /// The median; of an even number of values the lower one in the middle.
    pub median: u64,
    /// The greatest.
    pub max: u64,
    /// The arithmetic mean.
    pub mean: f64,
}

/// A figure that belongs to no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeFigure {
    /// A description.
    pub what: &'static str,
    /// The value of weir.
    pub weir: u64,
    /// The value of Bao.
    pub bao: Option<u64>,
    /// True if the README shows it.
    pub in_readme: bool,
}

/// A section with interrupts masked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Masked {
    /// Its length.
    pub instructions: u64,
    /// The path that it belongs to, `other` for one that no marker names.
    pub path: String,
    /// The system in which it was seen.
    pub system: String,
}

/// A figure that is not below Bao's, or not at half of it. This is a comparison, not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbovePeer {
    /// The measured quantity.
    pub what: &'static str,
    /// Whether it was measured with GICv2.
    pub gicv2: bool,
    /// The value of weir.
    pub weir: u64,
    /// The value of Bao.
    pub bao: u64,
    /// Whether it is compared with half of that.
    pub half: bool,
}

impl fmt::Display for AbovePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, gicv2, weir, bao, half } = self;
        let with = if *gicv2 { " with GICv2" } else { "" };
        let than = if *half { "more than half of" } else { "not less than" };
        write!(f, "{what}{with}: {weir}, {than} Bao's {bao}")
    }
}

/// Runs the benchmark.
///
/// # Errors
/// Those of `run`; a guest marked no boot, or never took a path; files
/// that cannot be read.
pub fn measure<R>(needs: Needs<'_, R>) -> Result<Figures>
where
    R: FnMut(&FilePath, &FilePath) -> Result<Used>,
{
    let Needs { scratch, systems, mut run } = needs;
    fs::create_dir_all(scratch).context(|| format!("create {}", scratch.display()))?;
    let mut masked = BTreeMap::new();
    let mut observe = |system: &FilePath| -> Result<(CountReport, Used)> {
        let name = system.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let out = scratch.join(&name).with_extension("json");
        let _ = fs::remove_file(&out);
        let used = run(system, &out)?;
        let reading = || format!("read the plug-in's report on {}", system.display());
        let report = CountReport::read(&out).context(reading)?;
        if let Some(longest) = &report.longest_masked {
            let (instructions, path) = (longest.instructions, longest.path.clone());
            masked.insert(name.clone(), Masked { instructions, path, system: name });
        }
        Ok((report, used))
    };
    let (mut paths, full) = observe(&systems.paths)?;
    let (gicv2, _) = observe(&systems.paths_gicv2)?;
    let mut boots = Vec::new();
    let mut minimal = None;
    for system in &systems.one_vcpu {
        let (report, used) = observe(system)?;
        boots.push(boot(&report, system)?);
        minimal.get_or_insert(used);
    }
    let boots = [boots[0], boots[1], boots[2], boot(&paths, &systems.paths)?];
    let (shared, _) = observe(&systems.shared)?;
    let (frames, _) = observe(&systems.frames)?;
    let (flow, _) = observe(&systems.flow)?;
    for system in &systems.others {
        observe(system)?;
    }
    for (name, report, marked, system, what) in [
        (SWITCH, &shared, [SWITCH; 2], &systems.shared, "no vCPU got another's core"),
        (NOTIFY_FLOW, &flow, [VIRTIO_NOTIFY; 2], &systems.flow, "no VM notified a flow"),
        (NOTIFY, &frames, [NOTIFY, VIRTIO_NOTIFY], &systems.frames, "no VM sent a frame"),
    ] {
        let taken = marked.iter().filter_map(|path| report.paths.get(*path));
        let Some(path) = taken.into_iter().find(|path| path.n > 0) else {
            return Err(Failure::system(format!("{what} in {}", system.display())));
        };
        // The guest that takes the other paths does not mark it.
        paths.paths.insert(name.to_owned(), PathReport { marks: path.n, ..path.clone() });
    }
    let minimal = minimal.unwrap_or_else(|| full.clone());
    let name =
        |system: &FilePath| system.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // The plug-in does not see that GICC_IAR is read, which ends a section.
    masked.remove(&name(&systems.paths_gicv2));
    let mut figures = Figures::new([&paths, &gicv2], boots, &full.hypervisor, &minimal, masked)?;
    figures.longest_masked = figures.masked.get(&name(&systems.paths)).cloned();
    Ok(figures)
}

/// Builds a system, of its own or another platform, and runs it with the plug-in, which writes its
/// report to `out`. The hypervisor has all its parts, or, as `weir build` makes it, those that the
/// system uses.
///
/// # Errors
///
/// The system has faults or its run is not good; a part cannot be built.
pub fn counted(
    file: &FilePath,
    platform: Option<&str>,
    all_parts: bool,
    out: &FilePath,
    environment: &Environment,
) -> Result<Used> {
    let programs = Programs::new(environment, false);
    let system = check_on(Machine::Qemu, file, platform, environment)?;
    let parts = if all_parts { Features::ALL } else { features_of(&system) };
    let hypervisor = programs.hypervisor(environment, system.platform(), parts)?;
    let hypervisor = LinkedHypervisor::read(&hypervisor)?;
    let plugin = environment.plugin()?;
    let qemu = plugin_arguments(&plugin, &hypervisor, out, None);
    let options = RunOptions {
        accept_not_judged: true,
        all_parts,
        qemu_args: qemu.iter().map(Into::into).collect(),
        interrupt: watch_signals()?,
        ..RunOptions::new(environment.clone())
    };
    let outcome = run(&system, &options, &mut SilentConsole)?.good(file)?;
    let facts = RunFacts::read(&outcome.directory);
    let image_bytes = facts.and_then(|facts| facts.image_bytes).unwrap_or_default();
    Ok(Used { hypervisor, image_bytes })
}

/// The instructions before the first one of a guest.
#[derive(Clone, Copy, Debug)]
struct Boot {
    /// Those that do not clear RAM.
    rest: u64,
    clearing: u64,
}

fn boot(report: &CountReport, system: &FilePath) -> Result<Boot> {
    let boot = report.boot_instructions.zip(report.clearing_instructions);
    boot.map(|(rest, clearing)| Boot { rest, clearing }).ok_or_else(|| {
        let system = system.display();
        Failure::system(format!("no guest of {system} marked its first instruction"))
    })
}

impl PathFigures {
    fn new(report: &CountReport, paths: &[Path]) -> Result<Self> {
        let missing: Vec<_> = paths
            .iter()
            .map(|path| path.key)
            .filter(|path| report.paths.get(*path).is_none_or(|path| path.n == 0))
            .collect();
        if !missing.is_empty() {
            return Err(Failure::system(format!(
                "the benchmark guest never entered EL2 on: {}",
                missing.join(", ")
            )));
        }
        let with_marks = || report.paths.iter().filter(|(_, path)| path.marks > 0);
        let medians = |pick: fn(&PathReport) -> u64| {
            with_marks().map(|(name, path)| (name.clone(), pick(path))).collect()
        };
        Ok(Self {
            el2_instructions: with_marks()
                .map(|(name, path)| {
                    let Summary { min, median, max, mean } = path.instructions;
                    (name.clone(), Instructions { n: path.n, min, median, max, mean })
                })
                .collect(),
            barriers: medians(|path| path.barriers),
            maintenance: medians(|path| path.maintenance),
            device_accesses: medians(|path| path.device_accesses),
            gic_sysregs: medians(|path| path.gic_sysregs),
        })
    }

    /// What of `paths` is compared with Bao's figure.
    fn compared(&self, paths: &'static [Path], gicv2: bool) -> impl Iterator<Item = AbovePeer> {
        paths.iter().filter_map(move |&Path { key, what, bao, half }| {
            let weir = self.el2_instructions.get(key).map_or(0, |path| path.median);
            Some(AbovePeer { what, gicv2, weir, bao: bao?, half })
        })
    }
}

impl Figures {
    /// Of the reports with GICv3 and with GICv2.
    fn new(
        [report, gicv2]: [&CountReport; 2],
        boot: [Boot; 4],
        full: &LinkedHypervisor,
        minimal: &Used,
        masked: BTreeMap<String, Masked>,
    ) -> Result<Self> {
        Ok(Self {
            paths: PathFigures::new(report, &PATHS)?,
            gicv2: PathFigures::new(gicv2, &PATHS_GICV2)?,
            boot_instructions: boot[0].rest,
            boot_instructions_64_mib: boot[1].rest,
            boot_instructions_256_mib: boot[2].rest,
            boot_instructions_four_vcpus: boot[3].rest,
            clearing_instructions: boot[0].clearing,
            clearing_instructions_64_mib: boot[1].clearing,
            clearing_instructions_256_mib: boot[2].clearing,
            compiler: full.compiler.clone(),
            sizes: full.sizes,
            minimal: minimal.hypervisor.sizes,
            image_bytes: minimal.image_bytes,
            largest_symbols: full.symbols.iter().take(SYMBOLS).cloned().collect(),
            longest_masked: None,
            masked_max: masked.values().max_by_key(|masked| masked.instructions).cloned(),
            masked,
            budgets: BudgetPaths::default(),
            build: None,
        })
    }

    /// What is compared with Bao's figure.
    fn compared(&self) -> impl Iterator<Item = AbovePeer> {
        let whole = self.whole().filter_map(|WholeFigure { what, weir, bao, .. }| {
            Some(AbovePeer { what, gicv2: false, weir, bao: bao?, half: false })
        });
        let gicv2 = self.gicv2.compared(&PATHS_GICV2, true);
        self.paths.compared(&PATHS, false).chain(gicv2).chain(whole)
    }

    /// Returns the figures that belong to no path.
    pub fn whole(&self) -> impl Iterator<Item = WholeFigure> {
        let figures = [
            self.boot_instructions,
            self.boot_instructions_64_mib,
            self.boot_instructions_256_mib,
            self.boot_instructions_four_vcpus,
            self.clearing_instructions,
            self.clearing_instructions_64_mib,
            self.clearing_instructions_256_mib,
            self.sizes.text,
            self.minimal.text,
            self.image_bytes,
        ];
        WHOLE.iter().zip(figures).map(|(&Whole { what, bao, in_readme }, weir)| WholeFigure {
            what,
            weir,
            bao,
            in_readme,
        })
    }

    /// The figures that are not below Bao's, or above half of it on the interrupt paths.
    #[must_use]
    pub fn above_peer(&self) -> Vec<AbovePeer> {
        self.compared()
            .filter(|each| each.weir > if each.half { each.bao / 2 } else { each.bao - 1 })
            .collect()
    }
}

#[cfg(test)]
mod tests;
