//! `weir report`: the summary and the page of a run, the plan of a system, a comparison of two runs,
//! or what a run has measured.

use crate::{
    build,
    cargo::replace,
    environment::Environment,
    failure::{Failure, Result},
    image::{self, Estimate},
    output, screen,
};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_analysis::CheckRules;
use weir_model::{Faults, platform::Machine, timing::Origin};
use weir_report::{
    REPORT, RunFiles, SUMMARY, comparison_page,
    overheads::{MeasuredOverheads, OverheadsToml, measured},
    plan::SystemPlan,
    plan_page, read_report, run_page, trace,
};

/// The name of the page in the directory of a run.
const PAGE: &str = "report.html";

/// Prints the summary of a run and writes its page; or writes the page of a system's plan, or of two
/// runs; or prints how long the phases of its packets took.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir report\n  \
        weir report runs/2026-01-31T12-00-00Z --json\n  \
        weir report runs/2026-01-31T12-00-00Z --html evidence.html\n  \
        weir report examples/demo/demo.toml\n  \
        weir report 2026-01-31T12-00-00Z 2026-01-31T12-05-00Z\n  \
        weir report --overheads\n  \
        weir report --overheads runs/2026-01-31T12-00-00Z -o overheads.toml\n  \
        weir analyze system.toml --overheads overheads.toml\n\n\
        Exit status: 0 good (the summary has the verdict of the run), 1 no packet has arrived \
        in the run, its trace is damaged, or the system file has faults, 2 the call is wrong.")]
pub struct ReportArguments {
    /// Print the time of each phase of a packet, by the names of rt-virtio's Table II.
    #[arg(long)]
    overheads: bool,
    /// A run: its directory, its name in runs/, or its trace.bin (default: the newest run). Two runs
    /// are compared. Of a system file, the plan is shown.
    #[arg(value_name = "RUN|SYSTEM.toml", num_args = 0..=2)]
    what: Vec<PathBuf>,
    /// Write the overheads to this file: the table `[overheads]` of a platform file, with its
    /// origin. `weir analyze --overheads` and `[broker] overheads` read it as well.
    #[arg(short, long, value_name = "FILE", requires = "overheads")]
    output: Option<PathBuf>,
    /// Write the page to this file. Default: report.html or compare.html in the directory of the
    /// last run, or runs/SYSTEM-PLATFORM.html.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["overheads", "json"])]
    html: Option<PathBuf>,
    /// Also the packets of this run. May be given several times.
    #[arg(long, value_name = "RUN", requires = "overheads")]
    with: Vec<PathBuf>,
    /// With -o: the run of a larger system. Its values are written as `larger`, for steps that
    /// search flows or VMs.
    #[arg(long, value_name = "RUN", requires = "output")]
    larger: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &ReportArguments, environment: &Environment) -> Result {
    let is_system = |path: &Path| path.extension().is_some_and(|suffix| suffix == "toml");
    match (arguments.what.as_slice(), arguments.json, arguments.overheads) {
        (what, _, true) if what.len() > 1 || what.iter().any(|path| is_system(path)) => {
            Err(Failure::call("--overheads is about one run; more are given by --with"))
        }
        (what, _, true) => overheads(arguments, what.first(), &environment.runs()),
        ([system], false, false) if is_system(system) => plan(arguments, system, environment),
        ([before, after], false, false) if !is_system(before) && !is_system(after) => {
            comparison(arguments, [before, after], &environment.runs())
        }
        ([] | [_], true, false) if !arguments.what.iter().any(|path| is_system(path)) => {
            json(arguments.what.first(), &environment.runs())
        }
        ([] | [_], false, false) => summary(arguments, &environment.runs()),
        (_, true, false) => Err(Failure::call(
            "--json prints the report of one run; `weir check --json` prints a system",
        )),
        _ => Err(Failure::call("give one system file, or one or two runs")),
    }
}

/// Prints or writes the durations of the phases of packets.
fn overheads(arguments: &ReportArguments, run: Option<&PathBuf>, runs: &Path) -> Result {
    let path = match run {
        Some(run) => trace::find(run, runs)?,
        None => trace::newest(runs, trace::file::NAME)?,
    };
    let find = |run: &PathBuf| trace::find(run, runs);
    let larger = arguments.larger.as_ref().map(find).transpose()?;
    let with = arguments.with.iter().map(find).collect::<Result<Vec<_>>>()?;
    let read = [&path].into_iter().chain(&with).chain(&larger).flat_map(|run| trace::files(run));
    output::check(arguments.output.as_deref(), read)?;
    let (mut overheads, mut origin) = measured(&path)?;
    for path in with {
        let (other, other_origin) = measured(&path)?;
        add_origin(&mut origin, &other_origin)?;
        overheads.merge(other);
    }
    let larger = larger.map(|path| measured(&path)).transpose()?;
    if let Some((_, larger)) = &larger {
        add_origin(&mut origin, larger)?;
    }
    let larger = larger.map(|(larger, _)| larger);
    origin.command += "; weir report --overheads";
    if let Some(file) = &arguments.output {
        if let Some(why) = overheads.unfit() {
            return Err(Failure::system(why));
        }
        if let Some(why) = larger.as_ref().and_then(MeasuredOverheads::unfit_as_larger) {
            return Err(Failure::system(why));
        }
        let table = OverheadsToml { name: "overheads", origin: &origin, larger: larger.as_ref() };
        let text = overheads.to_toml(&table);
        replace(file, text.as_bytes())?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(overheads.record()))?;
    } else if arguments.output.is_none() {
        write!(out, "{overheads}")?;
    }
    Ok(())
}

/// Adds the command of another run, which has to be of the same build.
fn add_origin(origin: &mut Origin, other: &Origin) -> Result {
    if other.build != origin.build {
        let text = "the runs are of different builds of the hypervisor: repeat the older ones";
        return Err(Failure::system(text.to_owned()));
    }
    origin.command = format!("{}; {}", origin.command, other.command);
    Ok(())
}

/// Writes a page to the file that the call names, or to `default`, and names it.
fn write_page(
    arguments: &ReportArguments,
    default: PathBuf,
    inputs: Vec<PathBuf>,
    page: &str,
) -> Result {
    let file = arguments.html.clone().unwrap_or(default);
    output::check(Some(&file), inputs)?;
    // `weir report --html SYSTEM.toml` would replace the system.
    if file.extension().is_none_or(|suffix| suffix != "html" && suffix != "htm") {
        return Err(Failure::call(format!(
            "--html {}: a page's file ends in .html, and what is reported comes before or after it: \
             `weir report {0} --html page.html`",
            file.display()
        )));
    }
    replace(&file, page.as_bytes())?;
    if arguments.html.is_none() {
        writeln!(screen::stderr(), "page: {}", file.display())?;
    }
    Ok(())
}

/// Returns the failure of a page of a run with a damaged trace.
fn damage(files: &RunFiles, directory: &Path) -> Result {
    match files.trace_damage() {
        Some(damage) => Err(Failure::system(format!("{}: {damage}", directory.display()))),
        None => Ok(()),
    }
}

/// Returns the directory of a run: the one that the call names, or the newest with a file `name`.
fn directory(run: Option<&PathBuf>, runs: &Path, name: &str) -> Result<PathBuf> {
    let path = match run {
        Some(run) => trace::find(run, runs)?,
        None => trace::newest(runs, name)?,
    };
    Ok(trace::directory(&path))
}

/// Prints the summary of a run, unless the call names a file for the page, and writes its page. If
/// the trace is damaged, the page states it and the call fails.
fn summary(arguments: &ReportArguments, runs: &Path) -> Result {
    let directory = directory(arguments.what.first(), runs, REPORT)?;
    if arguments.html.is_none() {
        let text = weir_report::read_run_file(&directory, SUMMARY)?;
        screen::stdout().write_all(weir_report::fitted(&text).as_bytes())?;
    }
    let files = RunFiles::read(&directory)?;
    let inputs = RunFiles::inputs(&directory);
    write_page(arguments, directory.join(PAGE), inputs, &run_page(&files)?)?;
    damage(&files, &directory)
}

/// Prints the report of a run as JSON.
fn json(run: Option<&PathBuf>, runs: &Path) -> Result {
    let directory = directory(run, runs, REPORT)?;
    read_report(&directory)?;
    let text = weir_report::read_run_file(&directory, REPORT)?;
    screen::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Writes the page that compares two runs.
fn comparison(arguments: &ReportArguments, named: [&PathBuf; 2], runs: &Path) -> Result {
    let [before, after] = named.map(|run| directory(Some(run), runs, REPORT));
    let (before, after) = (before?, after?);
    let files = (RunFiles::read(&before)?, RunFiles::read(&after)?);
    let inputs = [&before, &after].into_iter().flat_map(|run| RunFiles::inputs(run)).collect();
    let page = comparison_page(&files.0, &files.1)?;
    write_page(arguments, after.join("compare.html"), inputs, &page)
}

/// Writes the page of a system's plan.
fn plan(arguments: &ReportArguments, file: &Path, environment: &Environment) -> Result {
    let checked = image::load(file, None, Machine::Board, environment).and_then(|system| {
        let estimate = Estimate::of(&system, environment);
        let placement = estimate.placement(&system)?;
        let guessed: Vec<_> = estimate.guessed.iter().map(ToString::to_string).collect();
        let refused = CheckRules::default().judge(&system).err();
        Ok((SystemPlan::of(&system, &placement), build::image_name(&system), guessed, refused))
    });
    let failure = |faults: &Faults| Failure {
        status: image::exit_status(faults),
        text: format!("{}: {}", file.display(), image::rendered(faults)),
    };
    let (plan, name, guessed, refused) = checked.map_err(|faults| failure(&faults))?;
    let reasons = refused.iter().flat_map(|faults| &faults.0);
    let reasons: Vec<_> = reasons.map(|it| format!("{}: {}", it.code, it.message)).collect();
    let runs = environment.runs();
    std::fs::create_dir_all(&runs)?;
    let default = runs.join(format!("{name}-{}.html", plan.platform));
    let page = plan_page(&plan, &guessed, &reasons)?;
    write_page(arguments, default, vec![file.to_owned()], &page)?;
    refused.map_or(Ok(()), |faults| Err(failure(&faults)))
}
