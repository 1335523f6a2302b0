//! `weir calibrate`: the smallest budget and period that make sense on a platform, and how much its
//! memory takes, measured by the memory stressor.

use crate::{
    build,
    cargo::replace,
    duration,
    environment::Environment,
    failure::{Context, Failure, Result},
    image, output,
    run::LineArguments,
    screen,
};
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};
use weir_model::platform::Platform;
use weir_report::{board_file::TableFile, table};
use weir_runner::{
    BoardLine, Lab,
    calibrate::{Calibrated, calibrate},
};
use weir_units::Nanos;

/// Finds the smallest enforceable budget and period on a system's platform, and the bandwidth of
/// its memory at saturation.
///
/// Runs the memory stressor on the cores of the system's VMs, without a budget and over a grid of
/// budgets and periods, and finds where the measured and the requested bandwidth differ (rt-virtio,
/// V-A). Prints a table `[saturation]` that `weir check`, `weir plan` and `weir analyze` read in a
/// system file or a board file. In QEMU the accesses are the refills of the plug-in's model, by the
/// emulated clock: each call gives the same values, which are none of the board's. On a board the
/// PMU counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir calibrate examples/demo/demo.toml\n  \
        weir calibrate examples/demo/demo.toml -o saturation.toml\n  \
        weir calibrate system.toml --platform zcu102 --serial /dev/ttyUSB0 --load \
        './load-on-board $WEIR_IMAGE' -o boards/zcu102/board.toml\n\n\
        Exit status: 0 success, 1 the system failed a check, an expectation or a verdict, 2 \
        wrong call, 3 the environment is incomplete.")]
pub struct CalibrateArguments {
    /// The system file.
    file: PathBuf,
    /// Take this platform instead of the file's.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// The period of the table's budgets; at least the shortest enforceable period.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = period)]
    period: Nanos,
    /// Measured and nominal bandwidth may differ by so many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=50))]
    tolerance: u64,
    #[command(flatten)]
    line: LineArguments,
    /// Write the table into this file, in place of the one that it has, instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

fn period(text: &str) -> std::result::Result<Nanos, String> {
    let time = duration::parse(text)?;
    match u64::try_from(time.as_nanos()) {
        Ok(nanos @ 10_000..=100_000_000) => Ok(Nanos(nanos)),
        _ => Err("a period of 10us to 100ms".to_owned()),
    }
}

/// Carries the verb out.
pub fn run(arguments: &CalibrateArguments, environment: &Environment) -> Result {
    let platform = arguments.platform.as_deref();
    let inputs = [arguments.file.as_path()].into_iter().chain(platform.map(Path::new));
    output::check(arguments.output.as_deref(), inputs)?;
    platform.map_or(Ok(()), image::check_platform)?;
    // A table that the file has is the old one.
    let checked = image::load_to_measure(&arguments.file, platform, environment);
    let system = build::taken(&arguments.file, checked, true, arguments.json)?;
    let counters = &system.platform().counters;
    let is_counted = system.platform().qemu.is_some() && counters.counter_page.is_some();
    let board = arguments.line.line();
    if board.is_none() && !is_counted {
        return Err(Failure::call(format!(
            "QEMU counts no memory accesses of {}: calibrate the board by --serial and --load, or \
             give --platform qemu-virt",
            system.platform().name
        )));
    }
    let file = arguments.output.as_deref().map(TableFile::read).transpose()?;
    if let Some(file) = &file {
        keeps_board(file, system.platform(), board.is_some())?;
    }
    let mut cores: Vec<usize> =
        system.vms.iter().flat_map(|vm| vm.cpus.iter().map(|cpu| usize::from(cpu.0))).collect();
    cores.sort_unstable();
    cores.dedup();
    // Two boards can be calibrated at the same time, by systems of the same names.
    let directory = environment.build().join("calibrate").join(&system.platform().name);
    fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
    let lab = Lab::on(system.platform(), environment, &directory)?.with_line(board.clone());
    let found = calibrate(&lab, &cores, arguments.period.0, arguments.tolerance)?;
    let line = system.platform().places.cache.map_or(64, |cache| cache.line.0);
    let toml = toml(&found, line, board.as_ref(), arguments);
    let kept =
        file.map_or_else(|| Ok(toml.clone()), |file| file.with(&toml).map(|new| new.text))?;
    keep(arguments.output.as_deref(), &kept, |kept| {
        let mut out = screen::stdout();
        if arguments.json {
            return writeln!(out, "{:#}", weir_report::versioned(found));
        }
        writeln!(out, "{}", text(&found))?;
        match kept {
            Some(file) => writeln!(out, "{}", file.display()),
            None => write!(out, "{toml}"),
        }
    })
}

/// Refuses to write what another board, or QEMU's machine, gave into a board file.
fn keeps_board(file: &TableFile<'_>, platform: &Platform, on_board: bool) -> Result {
    if !file.has("name") {
        return Ok(());
    }
    file.is_of(&platform.name)?;
    if on_board || platform.is_emulator() {
        return Ok(());
    }
    Err(Failure::call(format!(
        "[saturation] of a board file is the board's, and QEMU's model of a cache gives none of \
         {}: calibrate the board by --serial and --load, or give -o another file",
        platform.name
    )))
}

/// Writes the table to `file` if there is one, and reports where it was written. The measurement
/// takes long: if writing fails, all is printed as without a file.
fn keep(
    file: Option<&Path>,
    toml: &str,
    report: impl FnOnce(Option<&Path>) -> io::Result<()>,
) -> Result {
    let kept = file.map_or(Ok(()), |file| replace(file, toml.as_bytes()));
    report(file.filter(|_| kept.is_ok()))?;
    kept
}

/// The table for a system file or a board file.
fn toml(
    found: &Calibrated,
    line: u64,
    board: Option<&BoardLine>,
    arguments: &CalibrateArguments,
) -> String {
    let Calibrated { period, saturation, min_accesses, min_period, overshoot, .. } = found;
    let platform = arguments.platform.as_ref();
    let platform = platform.map_or(String::new(), |platform| format!(" --platform {platform}"));
    let machine =
        board.map_or_else(|| "QEMU".to_owned(), |board| format!("board at {}", board.serial));
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date = now.split('T').next().unwrap_or_default();
    format!(
        "# By `weir calibrate`: cores {:?} together, the bandwidth within {} %.\n[saturation]\n\
         source = \"measured: weir calibrate {}{platform}, {machine}, {date}\"\nperiod = \"{}\"\n\
         line = \"{line}B\"\npoints = [{{ accesses = {saturation}, dma = \"0B/s\" }}]\n\
         min_accesses = {min_accesses}\nmin_period = \"{}\"\novershoot = {overshoot}\n",
        found.cores,
        arguments.tolerance,
        arguments.file.display(),
        Nanos(*period),
        Nanos(*min_period),
    )
}

/// For a person.
fn text(found: &Calibrated) -> String {
    let mut text = String::new();
    for (what, points) in [("budgets", &found.budgets), ("periods", &found.periods)] {
        let mut rows = table([what, "period", "budget", "measured", "off, %", "overshoot"]);
        for point in points {
            rows.add_row([
                String::new(),
                Nanos(point.period).to_string(),
                point.budget.to_string(),
                format!("{:.1}", point.measured),
                format!("{:+.1}", 100.0 * point.off()),
                point.overshoot.to_string(),
            ]);
        }
        let _ = writeln!(text, "{rows}");
    }
    let _ = writeln!(
        text,
        "one core alone moves {} lines in {}, cores {:?} together {}",
        found.one_core,
        Nanos(found.period),
        found.cores,
        found.saturation
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ENVIRONMENT;

    #[test]
    fn values_of_an_emulator_do_not_replace_a_boards() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board.toml");
        let kept = |text: &str, platform: &str, on_board| {
            fs::write(&path, text).expect("a file");
            let file = TableFile::read(&path).expect("a table file");
            keeps_board(&file, &Platform::named(platform).expect("a board"), on_board)
        };
        assert!(kept("name = \"zcu102\"\n", "zcu102", true).is_ok());
        assert!(kept("name = \"zcu102\"\n", "zcu102", false).is_err());
        assert!(kept("name = \"zcu102\"\n", "zcu104", true).is_err());
        assert!(kept("name = \"qemu-virt\"\n", "qemu-virt", false).is_ok());
        assert!(kept("", "zcu102", false).is_ok(), "a table alone");
    }

    #[test]
    fn a_table_that_cannot_be_kept_is_printed() {
        let directory = tempfile::tempdir().expect("a directory");
        let [gone, there] =
            ["gone/table.toml", "table.toml"].map(|file| directory.path().join(file));
        let outcome = |file: &Path| {
            let mut outcome = None;
            let kept = keep(Some(file), "[saturation]\n", |kept| {
                outcome = Some(kept.is_some());
                Ok(())
            });
            (kept, outcome)
        };
        let (kept, printed) = outcome(&gone);
        let failure = kept.expect_err("no directory");
        assert_eq!((failure.status, printed), (ENVIRONMENT, Some(false)));
        assert!(failure.text.contains("gone/table.toml"), "{}", failure.text);
        let (kept, printed) = outcome(&there);
        assert!(kept.is_ok() && printed == Some(true));
        assert_eq!(fs::read_to_string(&there).expect("the table"), "[saturation]\n");
    }
}
