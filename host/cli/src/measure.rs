//! `weir bench`: measures the overheads of weir.

use crate::{
    bench::{board, clock, engine, flows, mapping, memory},
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result, SYSTEM},
    progress::CountBar,
    results, screen,
};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use weir_experiments::{
    hypervisor::{Needs, Systems, counted, measure},
    statement::Judged,
    throttling::paths,
    write_changed,
};
use weir_runner::Lab;

/// Measures the overheads of weir.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir bench hypervisor\n  \
        weir bench hypervisor --json\n  \
        weir bench mapping\n  \
        weir bench clock\n  \
        weir bench flows\n  \
        weir bench engine")]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What weir takes on a board, for its board file: the overhead of each step of a message, the
    /// switch between vCPUs, and the DMA engine by chunk size.
    ///
    /// Runs systems of the tests on the board, or in QEMU's machine for it. On a serial line the
    /// switch is taken from the trace; for the entry and the exit of its exception, `entry` of the
    /// board file is added, or else the longest hypercall.
    #[command(after_help = "Examples:\n  \
        weir bench board --platform zcu102\n  \
        weir bench board --platform zcu102 -o boards/zcu102/board.toml\n  \
        weir bench board --platform zcu102 --serial /dev/ttyUSB0 --load './load-on-board \
        $WEIR_IMAGE'")]
    Board(board::BoardArguments),
    /// Instructions at EL2 for each thing that a guest asks of it, its boot, its sections and its
    /// largest symbols.
    ///
    /// Counted from outside by a plug-in of QEMU: the same figures each time.
    #[command(after_help = "Example:\n  weir bench hypervisor --json")]
    Hypervisor {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Instructions to build a VM's page tables from 1 to 256 MiB of colored pages, compared to
    /// contiguous pages and 2 MiB blocks.
    ///
    /// The hypervisor's own code, counted in QEMU: the same figures each time. The limit is 5 %
    /// more.
    #[command(after_help = "Example:\n  weir bench mapping --json")]
    Mapping {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Latencies of flows, tasks and interrupts, memory budgets, phases of a packet, round trips.
    ///
    /// Runs examples and the systems of the tests that have flows, in QEMU, by the emulated clock.
    #[command(after_help = "Example:\n  weir bench flows --json")]
    Flows {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Messages by the ZCU102's DMA engine and by a core, as in rt-virtio's Tables II and III.
    ///
    /// Runs systems in QEMU, by the emulated clock: phases of a packet, and latencies and bounds of
    /// four flows, compared with the published ones.
    #[command(after_help = "Example:\n  weir bench engine --json")]
    Engine {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The speed of the emulated clock by quantum and number of busy cores: host seconds for a
    /// second of virtual time, and instructions a second. Use a release build.
    #[command(after_help = "Example:\n  weir bench clock --json")]
    Clock {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Loads next to writers by `weir run --memory` and by `weir simulate`, and the speed of such
    /// runs. Use a release build.
    #[command(after_help = "Example:\n  weir bench memory --json")]
    Memory {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Carries the verb out.
pub fn run(arguments: &BenchArguments, environment: &Environment) -> Result {
    environment.sources()?;
    match arguments.what {
        What::Board(ref arguments) => board::run(arguments, environment),
        What::Hypervisor { json } => hypervisor(json, environment),
        What::Mapping { json } => mapping::run(json, environment),
        What::Flows { json } => flows::run(json, environment),
        What::Engine { json } => engine::run(json, environment),
        What::Clock { json } => clock::run(json, environment),
        What::Memory { json } => memory::run(json, environment),
    }
}

fn hypervisor(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let (paths, one_vcpu) = (environment.system("probe-4")?, environment.system(BOOTS)?);
    let memory = |size: &str| {
        let new = format!("memory = \"{size}\"");
        with(&one_vcpu, ["memory = \"2MiB\"", &new], size, &scratch)
    };
    let mut figures = measure(Needs {
        scratch: &scratch,
        systems: &Systems {
            paths_gicv2: with(
                &paths,
                ["\"qemu-virt\"", "\"qemu-virt-gicv2\""],
                "qemu-virt-gicv2",
                &scratch,
            )?,
            paths,
            one_vcpu: [one_vcpu.clone(), memory("64MiB")?, memory("256MiB")?],
            shared: environment.system("shared")?,
            frames: environment.system("frames")?,
            flow: environment.system("flows-exact")?,
            others: ["flows-shared", "flows-mesh", "phoenix"]
                .map(|name| environment.system(name))
                .into_iter()
                .collect::<Result<_>>()?,
        },
        run: |system: &Path, out: &Path| {
            let name = system.file_stem().unwrap_or_default().to_string_lossy();
            counted(system, None, !name.starts_with(BOOTS), out, environment)
        },
    })?;
    let lab = Lab::new(environment, &scratch)?;
    let budgets = paths::run(&lab, false, &CountBar::new("running", paths::runs(false)))?;
    let judged = Judged::new(paths::statements(&budgets), &[], true);
    let mut out = screen::stdout();
    figures.budgets = paths::record(&budgets);
    figures.build = build_id::of_checkout().map(str::to_owned);
    if json {
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
    } else {
        writeln!(out, "{}", results::of_hypervisor(&figures))?;
        writeln!(out, "{}\ncompiled by {}", paths::text(&budgets), figures.compiler)?;
        for failure in &judged.failures {
            writeln!(out, "does not hold: {failure}")?;
        }
        for above in figures.above_peer() {
            writeln!(out, "{above}")?;
        }
    }
    if judged.failures.is_empty() { Ok(()) } else { Err(Failure::reported(SYSTEM)) }
}

/// Writes a copy of a system to `scratch`, in which the text `old` is `new`, and returns the copy,
/// with a name that ends with `tag`.
fn with(system: &Path, [old, new]: [&str; 2], tag: &str, scratch: &Path) -> Result<PathBuf> {
    let name = system.file_stem().unwrap_or_default().display();
    let copy = scratch.join(format!("{name}-{tag}.toml"));
    write_changed(system, [(old, new)], &copy)?;
    Ok(copy)
}

/// The beginning of the names of systems that only boot. Their hypervisor has the parts that they
/// use, as `weir build` makes it; the others' has all.
const BOOTS: &str = "probe-1";
