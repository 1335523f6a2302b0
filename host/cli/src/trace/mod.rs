//! `weir trace`: what the cores of a run have recorded, for people, spreadsheets, programs and Perfetto.

mod arrivals;
pub mod curve;
pub mod file;
mod perfetto;
pub mod words;

use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    output, screen,
};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use curve::{Answer, Question};
use file::{Facts, Trace, core};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};
use weir_analysis::Nanos;

use weir_trace::record::{Kind, Record};

/// Shows what the hypervisor recorded in a run: exits, interrupts, budgets and what became of them.
///
/// With --arrival-curve it tells instead how many accesses a VM made in any window of a length.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir trace\n  weir trace runs/2026-01-31T12-00-00Z --vm linux --kind throttle,wake\n  weir trace --format perfetto -o trace.json   # open it at ui.perfetto.dev\n  weir trace --from 10ms --to 20ms --format csv\n  weir trace --arrival-curve stressor --window 20ms\n  weir trace --arrival-curve stressor --against runs/unthrottled -o curves.svg\n\nExit status: 0 good, 1 the trace is damaged (what can be read of it is shown), 2 the call is wrong."
)]
pub struct Arguments {
    /// The run: its directory, its name in runs/, or its trace.bin; without it the newest one that left a trace.
    run: Option<PathBuf>,
    /// How to write it; without it what the ending of --output says (csv, json, svg), else a table. svg is for arrival curves.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Only what concerns this VM; may be given several times.
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
    /// The most and the least accesses of this VM in any window of a length; may be given several times.
    #[arg(long, value_name = "VM", conflicts_with_all = ["vms", "kinds"])]
    arrival_curve: Vec<String>,
    /// With --arrival-curve: the same of another run, to compare with.
    #[arg(long, value_name = "RUN", requires = "arrival_curve")]
    against: Option<PathBuf>,
    /// With --arrival-curve: the longest window; without it 20 periods of the budget, at most the whole trace.
    #[arg(long, value_name = "TIME", requires = "arrival_curve", value_parser = time)]
    window: Option<u64>,
    /// With --arrival-curve: how many lengths of windows.
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
    Json,
    /// Chrome's trace event format.
    Perfetto,
    /// A picture.
    Svg,
}

fn kinds() -> clap::builder::PossibleValuesParser {
    Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().into()
}

fn time(text: &str) -> std::result::Result<u64, String> {
    let nanos = Nanos::parse(text).ok();
    nanos
        .map(|nanos| nanos.0)
        .ok_or_else(|| "write a time with its unit, such as 10ms or 30us".into())
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let runs = environment.runs();
    if let (Some(from), Some(to)) = (arguments.from, arguments.to)
        && from > to
    {
        let (from, to) = (Nanos(from), Nanos(to));
        return Err(Failure::call(format!("--from {from} is behind --to {to}")));
    }
    let path = match &arguments.run {
        Some(run) => find(run, &runs),
        None => newest(&runs, file::NAME)?,
    };
    if let Some(output) = &arguments.output {
        let against = arguments.against.as_deref().map(|run| find(run, &runs));
        let read: Vec<_> =
            std::iter::once(&path).chain(&against).flat_map(|run| read(run)).collect();
        output::check("-o", output, &read.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let told = if arguments.arrival_curve.is_empty() {
        records(arguments, &path)?
    } else {
        curves(arguments, path, &runs)?
    };
    let yellow = AnsiColor::Yellow.on_default().bold();
    for warning in told.warnings {
        screen::say(format_args!("{yellow}warning:{yellow:#} {warning}"));
    }
    if told.damages.is_empty() { Ok(()) } else { Err(Failure::system(told.damages.join("\n"))) }
}

/// What there is to say beside the result.
#[derive(Debug, Default)]
struct Told {
    warnings: Vec<String>,
    /// How traces are damaged.
    damages: Vec<String>,
}

/// A run by the name that a person gives it.
pub fn find(run: &Path, runs: &Path) -> PathBuf {
    let beside = runs.join(run);
    if !run.exists() && beside.exists() { beside } else { run.to_owned() }
}

/// What is read of a run, which may be named by its trace.
pub fn read(run: &Path) -> Vec<PathBuf> {
    let trace = if run.is_dir() { run.join(file::NAME) } else { run.to_owned() };
    let told = trace.with_file_name("run.json");
    vec![trace, told]
}

/// Returns the newest run that left a file of this name.
pub fn newest(runs: &Path, name: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let made = |path: &PathBuf| fs::metadata(path.join(name)).ok()?.modified().ok();
    let found =
        entries.map(|entry| entry.path()).filter_map(|path| Some((made(&path)?, path))).max();
    found.map(|(_, path)| path).ok_or_else(|| {
        Failure::call(format!(
            "no run in {} has left {name}: start one with `weir run`",
            runs.display()
        ))
    })
}

impl Arguments {
    /// Where the result goes: made when there is one, so that a wrong call leaves an old file as it is.
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
        let known = [("csv", Format::Csv), ("json", Format::Json), ("svg", Format::Svg)];
        let ending = self.output.as_deref().and_then(Path::extension);
        let by_ending = known.iter().find(|(name, _)| ending.is_some_and(|ending| ending == *name));
        self.format.or(by_ending.map(|(_, format)| *format)).unwrap_or(Format::Table)
    }
}

fn curves(arguments: &Arguments, path: PathBuf, runs: &Path) -> Result<Told> {
    let format = arguments.format();
    if format == Format::Perfetto {
        return Err(Failure::call("Perfetto shows no curves: choose table, csv, json or svg"));
    }
    let against = arguments.against.as_deref().map(|run| find(run, runs));
    let answer = Answer::to(&Question {
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
        Format::Json => writeln!(out, "{:#}", answer.json())?,
        Format::Svg => out.write_all(picture.as_bytes())?,
        Format::Table | Format::Perfetto => out.write_all(answer.text().as_bytes())?,
    }
    out.flush()?;
    Ok(Told { warnings: answer.warnings, damages: answer.damages })
}

/// That nothing is asked for of a trace that ends before.
fn past(from: u64, end: u64) -> String {
    let (from, end) = (Nanos(from), Nanos(end));
    format!("--from {from} is behind the end of the trace, whose last record is of {end}")
}

/// Which records are asked for.
struct Filter {
    vms: Vec<usize>,
    kinds: Vec<u16>,
    between: (u64, u64),
}

impl Filter {
    fn new(arguments: &Arguments, facts: &Facts) -> Result<Self> {
        let vms = arguments.vms.iter().map(|vm| curve::place(vm, facts)).collect::<Result<_>>()?;
        let asked = |kind: &&Kind| arguments.kinds.iter().any(|name| name == kind.name());
        Ok(Self {
            vms,
            kinds: Kind::ALL.iter().filter(asked).map(|kind| *kind as u16).collect(),
            between: (arguments.from.unwrap_or(0), arguments.to.unwrap_or(u64::MAX)),
        })
    }

    fn wants(&self, record: &Record, facts: &Facts) -> bool {
        let time = facts.nanos(record.time);
        // Whoever looks at a part must know that something is missing in it.
        let lost = record.kind == Kind::Lost as u16;
        (self.vms.is_empty() || lost || self.vms.contains(&usize::from(record.vm)))
            && (self.kinds.is_empty() || self.kinds.contains(&record.kind))
            && (self.between.0..=self.between.1).contains(&time)
    }
}

fn records(arguments: &Arguments, path: &Path) -> Result<Told> {
    let format = arguments.format();
    if format == Format::Svg {
        return Err(Failure::call("svg is for arrival curves: add --arrival-curve VM"));
    }
    let mut trace = Trace::open(path)?;
    let filter = Filter::new(arguments, &trace.facts)?;
    let mut out = arguments.out()?;
    let shown = write(&mut trace, &filter, format, &mut out)?;
    out.flush()?;
    let mut warnings: Vec<String> = trace.warning().into_iter().collect();
    if shown == 0 {
        let records = trace.facts.records;
        warnings.push(match arguments.from.filter(|from| *from > trace.end()) {
            Some(from) => past(from, trace.end()),
            None => format!("none of the {records} records is asked for"),
        });
    }
    Ok(Told { warnings, damages: trace.damage().into_iter().collect() })
}

/// Writes the records that the filter wants, and tells how many those were.
fn write<R: Read>(
    trace: &mut Trace<R>,
    filter: &Filter,
    format: Format,
    out: &mut impl Write,
) -> Result<u64> {
    let facts = trace.facts.clone();
    let mut shown = 0;
    let mut next = || -> Result<Option<Record>> {
        while let Some(record) = trace.next()? {
            if filter.wants(&record, &facts) {
                shown += 1;
                return Ok(Some(record));
            }
        }
        Ok(None)
    };
    match format {
        Format::Table | Format::Svg => {
            let width = facts.vms.iter().map(|vm| vm.name.len() + 2).max().unwrap_or(0).max(4);
            let bold = Style::new().bold();
            writeln!(
                out,
                "{bold}{:>16}  core  {:width$}  {:14}{bold:#}",
                "seconds", "vCPU", "what"
            )?;
            while let Some(record) = next()? {
                line(&record, &facts, width, out)?;
            }
        }
        Format::Csv => {
            out.write_all(words::CSV.as_bytes())?;
            while let Some(record) = next()? {
                out.write_all(words::csv(&record, &facts).as_bytes())?;
            }
        }
        Format::Json => {
            let vms = facts.vms.iter().map(|vm| json!({ "name": vm.name, "cores": vm.cores }));
            let run = json!({
                "cores": facts.cores,
                "frequency_hz": facts.frequency,
                "lost": facts.lost,
                "vms": vms.collect::<Vec<_>>(),
            });
            write!(out, "{{\"run\":{run},\"records\":[")?;
            let mut comma = "\n";
            while let Some(record) = next()? {
                write!(out, "{comma}{}", words::json(&record, &facts))?;
                comma = ",\n";
            }
            out.write_all(b"\n]}\n")?;
        }
        Format::Perfetto => {
            let mut events = perfetto::Events::new(&facts, &mut *out)?;
            while let Some(record) = next()? {
                events.take(&record)?;
            }
            events.finish()?;
        }
    }
    Ok(shown)
}

/// A record as a line for a person.
fn line(record: &Record, facts: &Facts, width: usize, out: &mut impl Write) -> io::Result<()> {
    let nanos = facts.nanos(record.time);
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let style = match Kind::from_number(record.kind) {
        Some(Kind::Throttle | Kind::VmFault | Kind::Lost) => AnsiColor::Red.on_default(),
        Some(Kind::Overflow | Kind::BudgetChanged) => AnsiColor::Yellow.on_default(),
        Some(Kind::Replenish | Kind::Wake) => AnsiColor::Green.on_default(),
        Some(Kind::VmStart | Kind::VmStop | Kind::VmRestart) => Style::new().bold(),
        _ => Style::new(),
    };
    let (who, kind) = (words::who(record, facts), words::kind(record));
    let numbers = words::numbers(record, facts);
    let text = format!("{style}{kind:14}{style:#} {numbers}");
    let text = text.trim_end();
    writeln!(out, "{seconds:6}.{rest:09}  {:4}  {who:width$}  {text}", core(record))
}

#[cfg(test)]
mod tests {
    use super::{arrivals::tests::throttled, file::tests::*, *};
    use clap::Parser;
    use file::lost;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        trace: Arguments,
    }

    fn call(words: &[&str]) -> Arguments {
        Call::try_parse_from(["weir"].iter().chain(words)).expect("a call").trace
    }

    fn written(words: &[&str]) -> (String, u64) {
        let mut records = throttled(1000, 40, 3);
        records.insert(4, lost(2, facts().zero + 1010, 5));
        let mut trace = trace(facts(), &records);
        let arguments = call(words);
        let filter = Filter::new(&arguments, &trace.facts).expect("a filter");
        let mut out = anstream::StripStream::new(Vec::new());
        let format = arguments.format.unwrap_or(Format::Table);
        let shown = write(&mut trace, &filter, format, &mut out).expect("memory");
        (String::from_utf8(out.into_inner()).expect("text"), shown)
    }

    #[test]
    fn the_table_is_aligned() {
        let (text, shown) = written(&["--to", "1050ns"]);
        let expected = "\
         seconds  core  vCPU       what
     0.000000000     0  linux/0    replenish      used 0, budget 40
     0.000000050     0  linux/0    poll           used 20, budget 40
     0.000000100     0  linux/0    throttle       used 40, budget 40
     0.000001000     0  linux/0    replenish      used 40, budget 40
     0.000001010     2  -          lost           records 5
     0.000001050     0  linux/0    poll           used 20, budget 40
";
        let text: Vec<_> = text.trim_start().lines().map(str::trim_end).collect();
        assert_eq!((text, shown), (expected.lines().collect(), 6));
    }

    #[test]
    fn filters_take_what_is_asked_for() {
        assert_eq!(written(&["--vm", "control"]).1, 1, "what is lost may have been its");
        assert_eq!(written(&["--kind", "throttle,poll"]).1, 6);
        assert_eq!(written(&["--from", "1us", "--to", "2us", "--vm", "linux"]).1, 5);
        let facts = facts();
        let unknown = Filter::new(&call(&["--vm", "linus"]), &facts).err().expect("refused");
        assert!(unknown.text.contains("linus") && unknown.text.contains("control, linux"));
        assert!(Call::try_parse_from(["weir", "--kind", "trottle"]).is_err());
        assert!(Call::try_parse_from(["weir", "--from", "10"]).is_err());
    }

    #[test]
    fn each_format_has_each_record() {
        let (csv, shown) = written(&["--format", "csv"]);
        assert_eq!((csv.lines().count(), shown), (11, 10));
        assert!(csv.starts_with(words::CSV) && csv.contains("1010,2,,0,lost,0,5,0\n"), "{csv}");
        let (json, _) = written(&["--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["records"].as_array().map(Vec::len), Some(10));
        assert_eq!(
            (&json["records"][2]["used"], &json["run"]["vms"][1]["name"]),
            (&json!(40), &json!("linux"))
        );
        let (perfetto, _) = written(&["--format", "perfetto"]);
        let perfetto: serde_json::Value = serde_json::from_str(&perfetto).expect("JSON");
        assert!(perfetto["traceEvents"].as_array().is_some_and(|events| events.len() > 10));
    }

    #[test]
    fn the_ending_of_the_file_says_the_format() {
        assert_eq!(call(&["-o", "x.csv"]).format(), Format::Csv);
        assert_eq!(call(&["-o", "x.json", "--format", "perfetto"]).format(), Format::Perfetto);
        assert_eq!(call(&["-o", "csv"]).format(), Format::Table);
        assert_eq!(call(&[]).format(), Format::Table);
    }

    #[test]
    fn curves_come_in_each_format() {
        let directory = tempfile::tempdir().expect("a directory");
        let run = |name: &str, period| {
            let run = directory.path().join(name);
            fs::create_dir(&run).expect("a directory");
            let records = throttled(period, 40, 30);
            let mut file = File::create(run.join(file::NAME)).expect("a file");
            Facts { records: records.len() as u64, ..facts() }.write(&mut file).expect("a write");
            file.write_all(zerocopy::IntoBytes::as_bytes(records.as_slice())).expect("a write");
            run.display().to_string()
        };
        let (one, two) = (run("one", 1000), run("two", 2000));
        let words = [one.as_str(), "--arrival-curve", "linux", "--against", "two"];
        let draw = |more: &[&str]| {
            let out = directory.path().join("out");
            let out = out.to_str().expect("a path");
            let words: Vec<_> = words.iter().chain(more).chain(&["-o", out]).copied().collect();
            let path = PathBuf::from(&one);
            curves(&call(&words), path, directory.path())
                .map(|_| fs::read_to_string(out).expect("a file"))
        };
        let table = draw(&[]).expect("a table");
        assert!(
            table.contains("linux in one: 1200 accesses in") && table.contains("every 2us"),
            "{table}"
        );
        let csv = draw(&["--format", "csv", "--points", "10", "--window", "10us"]).expect("CSV");
        assert_eq!(csv.lines().count(), 21);
        assert!(csv.contains("linux in two,10000,220,200,180\n"), "{csv}");
        let json = draw(&["--format", "json"]).expect("JSON");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&json["window_ns"], &json["curves"][1]["period_ns"]),
            (&json!(40_000), &json!(2000))
        );
        let svg = draw(&["--format", "svg"]).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("linux in two") && svg.contains(", us"));
        assert!(draw(&["--format", "perfetto"]).is_err());
        let picture = directory.path().join("x.svg").display().to_string();
        for records_alone in [["-o", picture.as_str()], ["--format", "svg"]] {
            let refused = records(&call(&records_alone), Path::new(&one)).expect_err("no picture");
            assert!(refused.text.contains("--arrival-curve"), "{}", refused.text);
        }
        let head = Facts { lost: 3, records: 90, ..facts() };
        let mut file =
            File::options().write(true).open(Path::new(&one).join(file::NAME)).expect("it");
        head.write(&mut file).expect("a write");
        let told = curves(&call(&words), PathBuf::from(&one), directory.path()).expect("curves");
        let [damage] = told.damages.as_slice() else { panic!("{:?}", told.damages) };
        assert!(!Path::new(&picture).exists());
        assert!(damage.contains("3 lost records") && damage.contains("no bounds"), "{damage}");
        let path = PathBuf::from(&two);
        let none = curves(&call(&["--arrival-curve", "control"]), path, directory.path());
        assert!(none.expect_err("no counts").text.contains("bandwidth ="));
        assert_eq!(
            newest(directory.path(), file::NAME).expect("a run").parent(),
            Some(directory.path())
        );
        assert!(newest(&directory.path().join("one"), file::NAME).is_err());
    }
}
