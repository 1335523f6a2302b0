//! Traces of runs: the records, for people, spreadsheets, programs and Perfetto, and arrival
//! curves.

pub mod activations;
mod arrivals;
pub mod curve;
pub mod file;
pub mod packets;
mod perfetto;
pub mod words;

use crate::wrap;
use anstyle::{AnsiColor, Style};
use file::{Trace, TraceFacts, core};
use packets::PacketNumbers;
use serde::Serialize;
use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use weir_analysis::Nanos;
use weir_image::{Failure, Result, failure::Context};
use weir_trace::record::{Record, RecordKind};

/// The run of a trace, as JSON has it.
#[derive(Serialize)]
struct RunOfTrace<'a> {
    cores: u32,
    frequency_hz: u64,
    lost: u64,
    vms: Vec<VmOfTrace<'a>>,
}

/// A VM of a trace, as JSON has it.
#[derive(Serialize)]
struct VmOfTrace<'a> {
    name: &'a str,
    cores: &'a [u8],
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Aligned lines for people, with the columns of the terminal if they go there.
    Table(Option<u16>),
    /// One line per record, values separated by commas.
    Csv,
    /// One JSON object.
    Json,
    /// Chrome's trace event format.
    Perfetto,
}

/// Returns the path of a run: `run` itself, or the run of this name in `runs`.
///
/// # Errors
///
/// The call is wrong if neither exists.
pub fn find(run: &Path, runs: &Path) -> Result<PathBuf> {
    let found = [run.to_owned(), runs.join(run)].into_iter().find(|path| path.exists());
    found.ok_or_else(|| {
        let (run, runs) = (run.display(), runs.display());
        Failure::call(format!(
            "there is no run {run}, here or in {runs}; without a name the newest is taken"
        ))
    })
}

/// Returns the directory of a run, which is named by its directory or by a file in it.
#[must_use]
pub fn directory(run: &Path) -> PathBuf {
    let directory = if run.is_dir() { run } else { run.parent().unwrap_or(run) };
    // `trace.bin` lies in the directory "".
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    directory.to_owned()
}

/// Returns the files that are read of a run, which is named by its directory or its trace.
#[must_use]
pub fn files(run: &Path) -> Vec<PathBuf> {
    let trace = if run.is_dir() { run.join(file::NAME) } else { run.to_owned() };
    let summary = trace.with_file_name("run.json");
    vec![trace, summary]
}

/// Returns the newest run that left a file of this name.
///
/// # Errors
///
/// The call is wrong if no run in `runs` has left such a file.
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

/// Returns the warning that `from` is after the end of a trace, both in ns.
#[must_use]
pub fn past(from: u64, end: u64) -> String {
    let (from, end) = (Nanos(from), Nanos(end));
    format!("--from {from} is after the end of the trace; its last record is of {end}")
}

/// The records that are wanted: of these VMs, of these kinds, in this span of time.
#[derive(Clone, Debug)]
pub struct Filter {
    vms: Vec<usize>,
    kinds: Vec<u16>,
    between: (u64, u64),
}

impl Filter {
    /// Returns the filter for VMs and kinds by their names; an empty list stands for all of them.
    /// The times, in ns after the hypervisor's start, belong to the span.
    ///
    /// # Errors
    ///
    /// The call is wrong if the trace has no VM of a name.
    pub fn new(
        vms: &[String],
        kinds: &[String],
        between: (u64, u64),
        facts: &TraceFacts,
    ) -> Result<Self> {
        let vms = vms.iter().map(|vm| curve::place(vm, facts)).collect::<Result<_>>()?;
        let asked = |kind: &&RecordKind| kinds.iter().any(|name| name == kind.name());
        let kinds = RecordKind::ALL.iter().filter(asked).map(|kind| *kind as u16).collect();
        Ok(Self { vms, kinds, between })
    }

    fn wants(&self, record: &Record, facts: &TraceFacts) -> bool {
        let time = facts.nanos(record.time);
        // The reader of a part must know that records are missing in it.
        let lost = record.kind == RecordKind::Lost as u16;
        (self.vms.is_empty() || lost || self.vms.contains(&usize::from(record.vm)))
            && (self.kinds.is_empty() || self.kinds.contains(&record.kind))
            && (self.between.0..=self.between.1).contains(&time)
    }
}

/// Writes the records that the filter wants and returns how many they are. `numbers` are those of
/// the packets of this trace.
///
/// # Errors
///
/// The trace cannot be read, or `out` cannot be written.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_report::trace::{self, Filter, TraceFormat, file::Trace, packets};
///
/// # fn main() -> weir_image::Result {
/// let run = Path::new("runs/2026-01-31T12-00-00Z");
/// let (numbers, mut trace) = (packets::numbers_of(run)?, Trace::open(run)?);
/// let filter = Filter::new(&["linux".to_owned()], &[], (0, 10_000_000), &trace.facts)?;
/// let out = &mut std::io::stdout();
/// trace::write((&mut trace, &numbers), &filter, TraceFormat::Csv, out)?;
/// # Ok(())
/// # }
/// ```
pub fn write<R: Read>(
    (trace, numbers): (&mut Trace<R>, &PacketNumbers),
    filter: &Filter,
    format: TraceFormat,
    out: &mut impl Write,
) -> Result<u64> {
    let facts = trace.facts.clone();
    let (mut shown, mut place) = (0, 0);
    let mut next = || -> Result<Option<(Record, Option<u64>)>> {
        while let Some(record) = trace.next_record()? {
            place += 1;
            if filter.wants(&record, &facts) {
                shown += 1;
                return Ok(Some((record, numbers.at(place - 1))));
            }
        }
        Ok(None)
    };
    match format {
        TraceFormat::Table(columns) => {
            let width = facts.vms.iter().map(|vm| vm.name.len() + 2).max().unwrap_or(0).max(4);
            let bold = Style::new().bold();
            writeln!(
                out,
                "{bold}{:>16}  core  {:width$}  {:14}{bold:#}",
                "seconds", "vCPU", "what"
            )?;
            while let Some((record, number)) = next()? {
                let text = words::numbers(&record, number, &facts);
                line(&record, &text, &facts, (width, columns), out)?;
            }
        }
        TraceFormat::Csv => {
            out.write_all(words::CSV.as_bytes())?;
            while let Some((record, number)) = next()? {
                out.write_all(words::csv(&record, number, &facts).as_bytes())?;
            }
        }
        TraceFormat::Json => {
            let vms = facts.vms.iter().map(|vm| VmOfTrace { name: &vm.name, cores: &vm.cores });
            let run = RunOfTrace {
                cores: facts.cores,
                frequency_hz: facts.frequency,
                lost: facts.lost,
                vms: vms.collect(),
            };
            let run = serde_json::to_string(&run).context(|| "describe the run")?;
            let version = crate::JSON_VERSION;
            write!(out, "{{\"version\":{version},\"run\":{run},\"records\":[")?;
            let mut comma = "\n";
            while let Some((record, number)) = next()? {
                write!(out, "{comma}{}", words::json(&record, number, &facts))?;
                comma = ",\n";
            }
            out.write_all(b"\n]}\n")?;
        }
        TraceFormat::Perfetto => {
            let mut events = perfetto::PerfettoEvents::new(&facts, &mut *out)?;
            while let Some((record, number)) = next()? {
                events.take(&record, number)?;
            }
            events.finish()?;
        }
    }
    Ok(shown)
}

/// Columns of a line before its details, without the name of the vCPU.
const BEFORE_DETAILS: usize = 41;
/// Details have at least this many columns.
const LEAST_DETAILS: usize = 12;

/// Writes a record with its `numbers` as a line for a person. Names of vCPUs have `width` columns.
fn line(
    record: &Record,
    numbers: &str,
    facts: &TraceFacts,
    (width, columns): (usize, Option<u16>),
    out: &mut impl Write,
) -> io::Result<()> {
    let nanos = facts.nanos(record.time);
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let style = match RecordKind::from_number(record.kind) {
        Some(RecordKind::Throttle | RecordKind::VmFault | RecordKind::Lost) => {
            AnsiColor::Red.on_default()
        }
        Some(RecordKind::Overflow | RecordKind::BudgetChanged) => AnsiColor::Yellow.on_default(),
        Some(RecordKind::Replenish | RecordKind::Wake) => AnsiColor::Green.on_default(),
        Some(RecordKind::VmStart | RecordKind::VmStop | RecordKind::VmRestart) => {
            Style::new().bold()
        }
        _ => Style::new(),
    };
    let (vcpu_name, kind) = (words::vcpu_name(record, facts), words::kind(record));
    let before = BEFORE_DETAILS + width;
    let left = columns.map(|columns| usize::from(columns).saturating_sub(before));
    let left = left.map(|left| left.max(LEAST_DETAILS));
    let numbers = wrap(numbers, left, [0, 0]);
    let numbers = numbers.trim_end().replace('\n', &format!("\n{:before$}", ""));
    let text = format!("{style}{kind:14}{style:#} {numbers}");
    let text = text.trim_end();
    writeln!(out, "{seconds:6}.{rest:09}  {:4}  {vcpu_name:width$}  {text}", core(record))
}

#[cfg(test)]
mod tests {
    use super::{arrivals::tests::throttled, file::tests::*, *};
    use curve::{ArrivalCurves, CurveQuery};
    use file::lost;
    use serde_json::json;
    use std::fs::File;

    const ALWAYS: (u64, u64) = (0, u64::MAX);

    fn filter(vms: &[&str], kinds: &[&str], between: (u64, u64)) -> Result<Filter> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(vms), &owned(kinds), between, &facts())
    }

    fn written(filter: &Filter, format: TraceFormat) -> (String, u64) {
        let mut records = throttled(1000, 40, 3);
        records.insert(4, lost(2, facts().zero + 1010, 5));
        let mut trace = trace(facts(), &records);
        let mut out = anstream::StripStream::new(Vec::new());
        let numbers = PacketNumbers::default();
        let shown = write((&mut trace, &numbers), filter, format, &mut out).expect("memory");
        (String::from_utf8(out.into_inner()).expect("text"), shown)
    }

    fn count(vms: &[&str], kinds: &[&str], between: (u64, u64)) -> u64 {
        written(&filter(vms, kinds, between).expect("a filter"), TraceFormat::Table(None)).1
    }

    #[test]
    fn the_table_is_aligned() {
        let (text, shown) =
            written(&filter(&[], &[], (0, 1050)).expect("a filter"), TraceFormat::Table(None));
        let expected = "\
         seconds  core  vCPU       what
     0.000000000     0  linux/0    replenish      used 0, budget 40
     0.000000050     0  linux/0    draw           used 20, budget 40
     0.000000100     0  linux/0    throttle       used 40, budget 40
     0.000001000     0  linux/0    replenish      used 40, budget 40
     0.000001010     2  -          lost           records 5
     0.000001050     0  linux/0    draw           used 20, budget 40
";
        let text: Vec<_> = text.trim_start().lines().map(str::trim_end).collect();
        assert_eq!((text, shown), (expected.lines().collect(), 6));
    }

    #[test]
    fn details_are_wrapped_at_the_terminals_end() {
        let mut out = anstream::StripStream::new(Vec::new());
        let record = throttled(1000, 40, 1).remove(0);
        let details = words::numbers(&record, None, &facts());
        line(&record, &details, &facts(), (20, Some(71)), &mut out).expect("memory");
        let narrow = String::from_utf8(out.into_inner()).expect("text");
        assert!(narrow.lines().all(|line| line.chars().count() <= 73), "{narrow}");
        assert_eq!(narrow.lines().count(), 2, "{narrow}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(words(&narrow).ends_with(&words(&details)), "{narrow}");
    }

    #[test]
    fn filters_take_what_is_asked_for() {
        assert_eq!(count(&["control"], &[], ALWAYS), 1, "what is lost may have been its");
        assert_eq!(count(&[], &["throttle", "draw"], ALWAYS), 6);
        assert_eq!(count(&["linux"], &[], (1000, 2000)), 5);
        let unknown = filter(&["linus"], &[], ALWAYS).expect_err("refused");
        assert!(unknown.text.contains("linus") && unknown.text.contains("control, linux"));
    }

    #[test]
    fn each_format_has_each_record() {
        let all = filter(&[], &[], ALWAYS).expect("a filter");
        let (csv, shown) = written(&all, TraceFormat::Csv);
        assert_eq!((csv.lines().count(), shown), (11, 10));
        assert!(csv.starts_with(words::CSV) && csv.contains("1010,2,,0,lost,0,5,0,\n"), "{csv}");
        let (json, _) = written(&all, TraceFormat::Json);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["records"].as_array().map(Vec::len), Some(10));
        assert_eq!(
            (&json["records"][2]["used"], &json["run"]["vms"][1]["name"]),
            (&json!(40), &json!("linux"))
        );
        let (perfetto, _) = written(&all, TraceFormat::Perfetto);
        let perfetto: serde_json::Value = serde_json::from_str(&perfetto).expect("JSON");
        assert!(perfetto["traceEvents"].as_array().is_some_and(|events| events.len() > 10));
    }

    #[test]
    fn curves_come_in_each_format() {
        let directory = tempfile::tempdir().expect("a directory");
        let run = |name: &str, period| {
            let run = directory.path().join(name);
            fs::create_dir(&run).expect("a directory");
            let records = throttled(period, 40, 30);
            let mut file = File::create(run.join(file::NAME)).expect("a file");
            TraceFacts { records: records.len() as u64, ..facts() }
                .write(&mut file)
                .expect("a write");
            file.write_all(zerocopy::IntoBytes::as_bytes(records.as_slice())).expect("a write");
            run.display().to_string()
        };
        let (one, two) = (run("one", 1000), run("two", 2000));
        let ask = |runs: &[&str], window, points| {
            ArrivalCurves::to(&CurveQuery {
                runs: runs.iter().map(PathBuf::from).collect(),
                vms: vec!["linux".to_owned()],
                between: ALWAYS,
                window,
                points,
            })
        };
        let both = [one.as_str(), two.as_str()];
        let answer = ask(&both, None, 400).expect("curves");
        let table = answer.text();
        assert!(
            table.contains("linux in one: 1200 accesses in") && table.contains("every 2us"),
            "{table}"
        );
        let csv = ask(&both, Some(Nanos(10_000)), 10).expect("curves").csv();
        assert_eq!(csv.lines().count(), 21);
        assert!(csv.contains("linux in two,10000,220,200,180\n"), "{csv}");
        let json = json!(answer.record());
        assert_eq!(
            (&json["window_ns"], &json["curves"][1]["period_ns"]),
            (&json!(40_000), &json!(2000))
        );
        let svg = answer.svg().expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("linux in two") && svg.contains(", us"));
        let head = TraceFacts { lost: 3, records: 90, ..facts() };
        let mut file =
            File::options().write(true).open(Path::new(&one).join(file::NAME)).expect("it");
        head.write(&mut file).expect("a write");
        let answer = ask(&both, None, 400).expect("curves");
        let [damage] = answer.damages.as_slice() else { panic!("{:?}", answer.damages) };
        assert!(damage.contains("3 lost records") && damage.contains("no bounds"), "{damage}");
        let none = ArrivalCurves::to(&CurveQuery {
            runs: vec![PathBuf::from(&two)],
            vms: vec!["control".to_owned()],
            between: ALWAYS,
            window: None,
            points: 400,
        });
        assert!(none.expect_err("no counts").text.contains("memory_budget ="));
        assert_eq!(
            newest(directory.path(), file::NAME).expect("a run").parent(),
            Some(directory.path())
        );
        assert!(newest(&directory.path().join("one"), file::NAME).is_err());
    }
}
