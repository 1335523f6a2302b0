//! `weir trace`: what the cores of a run have recorded, for people, spreadsheets, programs and
//! Perfetto.

use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    output, screen,
};
use anstyle::AnsiColor;
use clap::ValueEnum;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};
use weir_analysis::Nanos;
use weir_report::columns;
use weir_report::trace::{
    self, Filter,
    curve::{ArrivalCurves, CurveQuery},
    file::{self, Trace},
    files, find, newest, packets, past,
};
use weir_trace::record::RecordKind;

/// Shows the hypervisor's records of a run: exits, interrupts, budgets and their outcomes.
///
/// With --arrival-curve it prints instead the accesses of a VM in windows of each length.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir trace\n  \
        weir trace runs/2026-01-31T12-00-00Z --vm linux --kind throttle,wake\n  \
        weir trace --json | jq .run\n  \
        weir trace --format perfetto -o trace.json   # open it at ui.perfetto.dev\n  \
        weir trace --from 10ms --to 20ms --format csv\n  \
        weir trace --arrival-curve memory-stressor --window 20ms\n  \
        weir trace --arrival-curve memory-stressor --against runs/unthrottled -o curves.svg\n\n\
        Exit status: 0 good, 1 the trace is damaged (what can be read of it is shown), 2 the \
        call is wrong.")]
pub struct TraceArguments {
    /// The run: its directory, its name in runs/, or its trace.bin. Default: the newest run that
    /// left a trace.
    run: Option<PathBuf>,
    /// Output format; by default from the suffix of --output (csv, json, svg), else a table.
    /// svg is for arrival curves.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Print the result as JSON.
    #[arg(long, conflicts_with_all = ["format", "output"])]
    json: bool,
    /// Only records of this VM; may be given several times.
    #[arg(long = "vm", value_name = "NAME")]
    vms: Vec<String>,
    /// Only records of these kinds.
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    kinds: Vec<String>,
    /// From this moment after the hypervisor's start on, such as 10ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,
    /// Up to this moment.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,
    /// The most and the least accesses of this VM in any window of a length; may be given several
    /// times.
    #[arg(long, value_name = "VM", conflicts_with_all = ["vms", "kinds"])]
    arrival_curve: Vec<String>,
    /// With --arrival-curve: the same of another run, to compare with.
    #[arg(long, value_name = "RUN", requires = "arrival_curve")]
    against: Option<PathBuf>,
    /// With --arrival-curve: the longest window. Default: 20 periods of the budget, at most the
    /// whole trace.
    #[arg(long, value_name = "TIME", requires = "arrival_curve", value_parser = time)]
    window: Option<u64>,
    /// With --arrival-curve: the number of window lengths.
    #[arg(long, value_name = "COUNT", requires = "arrival_curve", default_value = "400", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    points: u32,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned lines for people.
    Table,
    /// One line a record.
    Csv,
    /// One object.
    #[value(skip)]
    Json,
    /// Chrome's trace event format.
    Perfetto,
    /// A picture.
    Svg,
}

fn kinds() -> clap::builder::PossibleValuesParser {
    RecordKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().into()
}

fn time(text: &str) -> std::result::Result<u64, String> {
    let nanos = if text == "0" { Some(Nanos(0)) } else { Nanos::parse(text).ok() };
    nanos
        .map(|nanos| nanos.0)
        .ok_or_else(|| "write a time with its unit, such as 10ms or 30us".into())
}

/// Carries the verb out.
pub fn run(arguments: &TraceArguments, environment: &Environment) -> Result {
    let runs = environment.runs();
    if let (Some(from), Some(to)) = (arguments.from, arguments.to)
        && from > to
    {
        let (from, to) = (Nanos(from), Nanos(to));
        return Err(Failure::call(format!("--from {from} is behind --to {to}")));
    }
    let path = match &arguments.run {
        Some(run) => find(run, &runs)?,
        None => newest(&runs, file::NAME)?,
    };
    let against = arguments.against.as_deref().map(|run| find(run, &runs)).transpose()?;
    let read = [&path].into_iter().chain(&against).flat_map(|run| files(run));
    output::check(arguments.output.as_deref(), read)?;
    let printed = if arguments.arrival_curve.is_empty() {
        records(arguments, &path)?
    } else {
        curves(arguments, path, against)?
    };
    let yellow = AnsiColor::Yellow.on_default().bold();
    for warning in printed.warnings {
        screen::say(format_args!("{yellow}warning:{yellow:#} {warning}"));
    }
    if printed.damages.is_empty() {
        Ok(())
    } else {
        Err(Failure::system(printed.damages.join("\n")))
    }
}

/// Warnings and damages in addition to the result.
#[derive(Debug, Default)]
struct Warnings {
    warnings: Vec<String>,
    /// How traces are damaged.
    damages: Vec<String>,
}

impl TraceArguments {
    /// Where the result goes: made when there is one, so that a wrong call leaves an old file as it
    /// is.
    fn out(&self) -> Result<Box<dyn Write>> {
        Ok(match &self.output {
            Some(file) => {
                let file = File::create(file).context(|| format!("write {}", file.display()))?;
                // No terminal: escape sequences are left out.
                Box::new(BufWriter::new(anstream::StripStream::new(file)))
            }
            None => Box::new(BufWriter::new(screen::stdout())),
        })
    }

    fn format(&self) -> Format {
        if self.json {
            return Format::Json;
        }
        let known = [("csv", Format::Csv), ("json", Format::Json), ("svg", Format::Svg)];
        let ending = self.output.as_deref().and_then(Path::extension);
        let by_ending = known.iter().find(|(name, _)| ending.is_some_and(|ending| ending == *name));
        self.format.or(by_ending.map(|(_, format)| *format)).unwrap_or(Format::Table)
    }
}

fn curves(arguments: &TraceArguments, path: PathBuf, against: Option<PathBuf>) -> Result<Warnings> {
    let format = arguments.format();
    if format == Format::Perfetto {
        return Err(Failure::call("Perfetto shows no curves: choose table, csv, svg or --json"));
    }
    let answer = ArrivalCurves::to(&CurveQuery {
        runs: std::iter::once(path).chain(against).collect(),
        vms: arguments.arrival_curve.clone(),
        between: (arguments.from.unwrap_or(0), arguments.to.unwrap_or(u64::MAX)),
        window: arguments.window.map(Nanos),
        points: arguments.points,
    })?;
    let picture = if format == Format::Svg { answer.svg()? } else { String::new() };
    let mut out = arguments.out()?;
    match format {
        Format::Csv => out.write_all(answer.csv().as_bytes())?,
        Format::Json => writeln!(out, "{:#}", weir_report::versioned(answer.record()))?,
        Format::Svg => out.write_all(picture.as_bytes())?,
        Format::Table | Format::Perfetto => out.write_all(answer.text().as_bytes())?,
    }
    out.flush()?;
    Ok(Warnings { warnings: answer.warnings, damages: answer.damages })
}

fn records(arguments: &TraceArguments, path: &Path) -> Result<Warnings> {
    let format = arguments.format();
    let format = match format {
        Format::Table => {
            trace::TraceFormat::Table(arguments.output.is_none().then(columns).flatten())
        }
        Format::Csv => trace::TraceFormat::Csv,
        Format::Json => trace::TraceFormat::Json,
        Format::Perfetto => trace::TraceFormat::Perfetto,
        Format::Svg => {
            return Err(Failure::call("svg is for arrival curves: add --arrival-curve VM"));
        }
    };
    let numbers = packets::numbers_of(path)?;
    let mut trace = Trace::open(path)?;
    let between = (arguments.from.unwrap_or(0), arguments.to.unwrap_or(u64::MAX));
    let filter = Filter::new(&arguments.vms, &arguments.kinds, between, &trace.facts)?;
    let mut out = arguments.out()?;
    let shown = trace::write((&mut trace, &numbers), &filter, format, &mut out)?;
    out.flush()?;
    let mut warnings: Vec<String> = trace.warning().into_iter().collect();
    if shown == 0 {
        let records = trace.facts.records;
        warnings.push(match arguments.from.filter(|from| *from > trace.end()) {
            Some(from) => past(from, trace.end()),
            None => format!("none of the {records} records is asked for"),
        });
    }
    Ok(Warnings { warnings, damages: trace.damage().into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        trace: TraceArguments,
    }

    fn call(words: &[&str]) -> TraceArguments {
        Call::try_parse_from(["weir"].iter().chain(words)).expect("a call").trace
    }

    #[test]
    fn a_wrong_value_is_refused() {
        assert!(Call::try_parse_from(["weir", "--kind", "trottle"]).is_err());
        assert!(Call::try_parse_from(["weir", "--from", "10"]).is_err());
    }

    #[test]
    fn the_suffix_of_the_file_sets_the_format() {
        assert_eq!(call(&["-o", "x.csv"]).format(), Format::Csv);
        assert_eq!(call(&["-o", "x.json", "--format", "perfetto"]).format(), Format::Perfetto);
        assert_eq!(call(&["-o", "x.json"]).format(), Format::Json);
        assert_eq!(call(&["-o", "csv"]).format(), Format::Table);
        assert_eq!(call(&[]).format(), Format::Table);
        assert_eq!(call(&["--json"]).format(), Format::Json);
        assert!(Call::try_parse_from(["weir", "--format", "json"]).is_err());
        assert!(Call::try_parse_from(["weir", "--json", "-o", "x.csv"]).is_err());
    }

    #[test]
    fn curves_and_records_have_their_own_formats() {
        let nowhere = Path::new("/nowhere");
        let perfetto = call(&["--arrival-curve", "linux", "--format", "perfetto"]);
        assert!(curves(&perfetto, nowhere.to_owned(), None).is_err());
        for words in [["-o", "x.svg"], ["--format", "svg"]] {
            let refused = records(&call(&words), nowhere).expect_err("no picture");
            assert!(refused.text.contains("--arrival-curve"), "{}", refused.text);
        }
    }
}
