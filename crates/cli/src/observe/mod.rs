//! `weir observe`: a system in QEMU with every access to memory sent through a model of caches and DRAM banks.

pub mod picture;
mod tell;

use crate::{
    bench::elf::Image,
    cargo::{self, Programs},
    environment::Environment,
    failure::{Context, Failure, GOOD, Result},
    image, run,
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};
use weir_config::{Packed, System, page_owners};
use weir_observer::caches::{Observed, PAGE, Run, Setup, Shape};

/// L1 data cache of a Cortex-A53 in its usual configuration, the one that QEMU's `cortex-a53` reports (Cortex-A53 TRM, DDI 0500,
/// 2.1.4 and 6.1).
const L1D: Shape = Shape { size: 32 << 10, ways: 4, line: 64 };
/// Its L1 instruction cache.
const L1I: Shape = Shape { size: 32 << 10, ways: 2, line: 64 };
/// Bytes of a row of a DRAM bank: 1024 columns of 64 bits, as on DIMMs of DDR4 x8 devices (JESD79-4, 2.7).
const ROW: u64 = 8 << 10;

/// What the plug-in is told before the run, and in the end.
const CACHES: &str = "caches.json";
const UNTIL: &str = "until";

/// Boots a system in QEMU and tells who evicted whose cache lines and who closed whose DRAM rows.
///
/// Each load, store and fetch goes through a model of private L1s, the platform's shared cache and its DRAM banks. Runs
/// under instruction counting, slower than `weir run`, and two runs give the same figures. Ends like
/// `weir run --deterministic`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir observe systems/isolation-colors-on.toml\n  weir observe systems/demo.toml --for 2s --json\n  weir observe systems/demo.toml --svg demo.svg\n\nExit status: 0 good, 1 the system is at fault, 2 the call is, 3 the environment is, 130 interrupted."
)]
pub struct Arguments {
    /// The system file.
    file: PathBuf,
    #[command(flatten)]
    image: image::Options,
    /// End after this long, in virtual time.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Draw the two matrices here.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Go on when every expected line was seen.
    #[arg(long)]
    stay: bool,
    /// Show no consoles.
    #[arg(long, short)]
    quiet: bool,
    /// One more argument for QEMU; may be given several times.
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu_args: Vec<OsString>,
}

/// What was seen of a system.
pub struct Outcome {
    /// The system.
    pub system: System,
    /// What was counted.
    pub seen: Observed,
    /// The run.
    pub run: run::Outcome,
}

impl Outcome {
    /// As data.
    pub fn json(&self) -> Value {
        tell::json(self)
    }
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let wanted = run::Arguments {
        image: arguments.image.clone(),
        time: arguments.time,
        stay: arguments.stay,
        quiet: arguments.quiet || arguments.json,
        qemu_args: arguments.qemu_args.clone(),
        ..run::Arguments::of(arguments.file.clone())
    };
    let outcome = observe(wanted, arguments.json, environment)?;
    if let Some(path) = &arguments.svg {
        fs::write(path, picture::svg(&outcome)).context(|| format!("write {}", path.display()))?;
    }
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", outcome.json())?;
    } else {
        writeln!(out, "\n{}", run::show::summary(&outcome.run.report))?;
        writeln!(out, "{}", tell::report(&outcome))?;
        writeln!(out, "logs and report: {}", outcome.run.directory.display())?;
    }
    match outcome.run.status {
        GOOD => Ok(()),
        status => Err(Failure { status, text: outcome.run.trouble.unwrap_or_default() }),
    }
}

/// Builds a system to be observed, runs it deterministically with the plug-in, and gives what it saw. The run may have missed what it
/// expected.
pub fn observe(
    arguments: run::Arguments,
    json: bool,
    environment: &Environment,
) -> Result<Outcome> {
    let mut system = image::checked(&arguments.file, &arguments.image, json, environment)?;
    system.hypervisor.observed = true;
    system.hypervisor.slice = Some(run::SLICE);
    let mut told = Err(String::new());
    let built = image::build(&system, arguments.image.no_build, environment, |packed| {
        told = setup(&system, packed);
    })?;
    let setup = told.map_err(Failure::system)?;
    let plugin = cargo::observer(environment)?;
    let hypervisor =
        Programs::new(environment, true).hypervisor(environment, system.platform.is_gic_v2())?;
    let hypervisor = Image::read(&hypervisor)?;
    let scratch = tempfile::tempdir().context(|| "make a directory")?;
    let file = |name: &str| scratch.path().join(name);
    let told = serde_json::to_vec(&setup).context(|| "write what the plug-in is told")?;
    fs::write(file(CACHES), told).context(|| "write what the plug-in is told")?;
    fs::write(file("system.img"), built).context(|| "write the image")?;
    let plugin = plugin_arguments(&plugin, &hypervisor, &file("seen.json"), Some(scratch.path()));
    let run = run::perform(
        &run::Arguments {
            deterministic: true,
            slow: true,
            until: Some(file(UNTIL)),
            image_file: Some(file("system.img")),
            qemu_args: plugin.into_iter().map(Into::into).chain(arguments.qemu_args).collect(),
            ..arguments
        },
        environment,
    )?;
    match Observed::read(&file("seen.json")) {
        Ok(seen) => Ok(Outcome { system, seen, run }),
        Err(error) => {
            let log = run.directory.join("qemu.log");
            let said = fs::read_to_string(&log).unwrap_or_default();
            let said = said.lines().find_map(|line| line.strip_prefix("weir-observer: "));
            let why = said.map_or_else(|| format!("{error}; see {}", log.display()), str::to_owned);
            Err(Failure::environment(format!("the plug-in saw nothing: {why}")))
        }
    }
}

/// QEMU's arguments that load the plug-in; for the caches job with the directory of what it is told.
pub fn plugin_arguments(
    plugin: &Path,
    hypervisor: &Image,
    out: &Path,
    caches: Option<&Path>,
) -> [String; 2] {
    // QEMU splits its options at commas; a doubled one stands for itself.
    let quote = |path: &Path| path.display().to_string().replace(',', ",,");
    let (start, end) = (hypervisor.addresses.start, hypervisor.addresses.end);
    let mut arguments = format!(
        "{},out={},hyp={start:#x}-{end:#x},vectors={:#x}",
        quote(plugin),
        quote(out),
        hypervisor.vectors
    );
    if let Some(caches) = caches {
        let file = |name: &str| quote(&caches.join(name));
        let _ = write!(arguments, ",caches={},until={}", file(CACHES), file(UNTIL));
    }
    ["-plugin".to_owned(), arguments]
}

/// What the plug-in is told of a system.
fn setup(system: &System, packed: &Packed) -> std::result::Result<Setup, String> {
    let platform = &system.platform;
    let cache = platform.places.cache.ok_or_else(|| {
        format!(
            "{} tells no cache: give its file a [cache] with size, ways and line",
            platform.name
        )
    })?;
    let runs_on = |core: usize| {
        system.vms.iter().position(|vm| vm.cpus.iter().any(|cpu| usize::from(cpu.0) == core))
    };
    let mut pages: Vec<Run> = Vec::new();
    for (first, vm) in page_owners(system, packed)? {
        match pages.last_mut() {
            Some(run) if run.vm == vm && run.first + run.count * PAGE == first => run.count += 1,
            _ => pages.push(Run { first, count: 1, vm }),
        }
    }
    Ok(Setup {
        vms: system.vms.iter().map(|vm| vm.name.clone()).collect(),
        cores: (0..system.machine_cores()).map(runs_on).collect(),
        l1d: Shape { line: cache.line.0, ..L1D },
        l1i: Shape { line: cache.line.0, ..L1I },
        l2: Shape { size: cache.size.0, ways: cache.ways as u32, line: cache.line.0 },
        banks: system.division.geometry.banks.into_iter().take_while(|&mask| mask != 0).collect(),
        row: ROW,
        uart: platform.uart.base.0,
        ram: platform.memory.base.0,
        ram_len: platform.memory.size.0,
        pages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_commas_reach_the_plugin() {
        let hypervisor = Image { addresses: 0x1000..0x3000, vectors: 0x1800, ..Image::default() };
        let arguments =
            plugin_arguments(Path::new("a,b.so"), &hypervisor, Path::new("o"), Some("c".as_ref()));
        let told =
            "a,,b.so,out=o,hyp=0x1000-0x3000,vectors=0x1800,caches=c/caches.json,until=c/until";
        assert_eq!(arguments, ["-plugin", told]);
    }
}
