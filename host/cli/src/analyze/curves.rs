//! Arrival curves of traces, and what waits at a service.

use crate::failure::{Failure, Result};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
};
use weir_analysis::{
    Nanos,
    curves::{Curve, PeriodicService},
};
use weir_model::read_short;
use weir_report::table;

/// Events in the largest window that a curve describes.
const MOST: usize = 256;

/// Longest file of times, in bytes.
const MOST_BYTES: u64 = 1 << 27;

/// Reads a service of Q units in each period P, like `50/30us`.
///
/// # Errors
///
/// The suggestion.
pub fn service(text: &str) -> std::result::Result<PeriodicService, String> {
    let help = || "write units and period, like 50/30us".to_owned();
    let (units, period) = text.split_once('/').ok_or_else(help)?;
    let period = Nanos::parse(period).ok().ok_or_else(help)?;
    let units = units.trim().parse().map_err(|_| help())?;
    if period.0 == 0 || units == 0 {
        return Err(help());
    }
    Ok(PeriodicService { units, period })
}

/// The arrival curves of traces in a JSON result. Steps are pairs of the length of a window in ns
/// and the events in it.
#[derive(Serialize, JsonSchema)]
pub struct TracesRecord {
    /// The traces.
    traces: Vec<TraceRecord>,
    /// The sum of the upper curves.
    sum: SumRecord,
    /// The service of `--service`.
    service: Option<ServiceRecord>,
}

/// The arrival curves of a trace.
#[derive(Serialize, JsonSchema)]
struct TraceRecord {
    /// The file.
    file: String,
    /// The number of events.
    events: usize,
    /// The longest window, in ns.
    horizon_ns: u64,
    /// The steps of the most events in a window.
    upper: Vec<[u64; 2]>,
    /// The steps of the least events in a window.
    lower: Vec<[u64; 2]>,
}

/// The sum of upper arrival curves.
#[derive(Serialize, JsonSchema)]
struct SumRecord {
    /// The longest window that all traces cover, in ns.
    horizon_ns: u64,
    /// The steps of the most events in a window.
    upper: Vec<[u64; 2]>,
}

/// The bounds of the events at a service.
#[derive(Serialize, JsonSchema)]
struct ServiceRecord {
    /// Events that are served in each period.
    units: u64,
    /// The period in ns.
    period_ns: u64,
    /// The longest time that an event waits, in ns; none without a bound.
    delay_ns: Option<u64>,
    /// The most events that wait; none without a bound.
    backlog: Option<u64>,
}

/// Traces with their curves.
#[derive(Debug)]
pub struct Traces {
    each: Vec<(PathBuf, usize, Curve, Curve)>,
    sum: Curve,
    service: Option<(PeriodicService, Option<Nanos>, Option<u64>)>,
}

impl Traces {
    /// Reads traces: the time of an event, in ns, in each line; what follows a comma, and lines
    /// that begin with `#`, are passed over.
    ///
    /// # Errors
    ///
    /// A file that can't be read, a line that is no time, a trace without an event.
    pub fn read(paths: &[PathBuf], service: Option<PeriodicService>) -> Result<Self> {
        let mut each = Vec::new();
        for path in paths {
            let times = times(path)?;
            let (upper, lower) = (Curve::upper(&times, MOST), Curve::lower(&times, MOST));
            each.push((path.clone(), times.len(), upper, lower));
        }
        let sum = each.iter().map(|trace| trace.2.clone()).reduce(|a, b| a.sum(&b));
        let sum = sum.unwrap_or_else(|| Curve::upper(&[], 0));
        let service = service.map(|service| {
            let least = |window| service.guaranteed(window);
            (service, sum.delay(least), sum.backlog(least))
        });
        Ok(Self { each, sum, service })
    }

    /// Whether the service keeps up, as far as the traces show.
    pub fn holds(&self) -> bool {
        self.service.is_none_or(|(_, delay, _)| delay.is_some())
    }

    /// As `weir analyze --trace .. --json` prints it.
    pub fn record(&self) -> TracesRecord {
        let each = self.each.iter().map(|(path, events, upper, lower)| TraceRecord {
            file: path.display().to_string(),
            events: *events,
            horizon_ns: upper.horizon().0,
            upper: upper.pairs(),
            lower: lower.pairs(),
        });
        TracesRecord {
            traces: each.collect(),
            sum: SumRecord { horizon_ns: self.sum.horizon().0, upper: self.sum.pairs() },
            service: self.service.map(|(service, delay, backlog)| ServiceRecord {
                units: service.units,
                period_ns: service.period.0,
                delay_ns: delay.map(|delay| delay.0),
                backlog,
            }),
        }
    }
}

fn times(path: &Path) -> Result<Vec<Nanos>> {
    let name = path.display();
    let why = |error| format!("cannot read {name}: {error}");
    // Text of another kind is the trace's fault, no file there is the call's.
    let bytes = read_short(path, MOST_BYTES).map_err(|error| Failure::call(why(error)))?;
    let text =
        String::from_utf8(bytes).map_err(|_| Failure::system(why("it is not UTF-8".to_owned())))?;
    let mut times = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let word = line.split(',').next().unwrap_or("").trim();
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        let time = word.parse().map_err(|_| {
            Failure::system(format!(
                "{name}:{number}: `{word}` is not a time in ns; write one whole number a line"
            ))
        })?;
        times.push(Nanos(time));
    }
    if times.is_empty() {
        return Err(Failure::system(format!(
            "{name}: no event, and silence proves nothing: write the time of each event in ns, one a line, or leave the file out"
        )));
    }
    Ok(times)
}

impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, events, upper, lower) in &self.each {
            writeln!(f, "{}: {events} events", path.display())?;
            let mut rows = table(["window ns", "at most", "at least"]);
            let mut lengths: Vec<_> = upper.steps().map(|step| step.0).collect();
            lengths.dedup();
            for length in lengths {
                let known = length <= lower.horizon();
                let least = if known { lower.at(length).to_string() } else { "-".to_owned() };
                rows.add_row([length.0.to_string(), upper.at(length).to_string(), least]);
            }
            writeln!(f, "{rows}")?;
        }
        if let Some((service, delay, backlog)) = self.service {
            write!(f, "served {} anywhere in each {}: ", service.units, service.period)?;
            match (delay, backlog) {
                (Some(delay), Some(backlog)) => {
                    writeln!(f, "an event waits at most {delay}, at most {backlog} wait")?;
                }
                _ => writeln!(
                    f,
                    "no bound: the service does not catch up within {}, the longest window that all traces cover",
                    self.sum.horizon()
                )?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    /// The curves of traces with these texts, at a service.
    fn traces(texts: &[&str], served: &str) -> Result<Traces> {
        let directory = tempfile::tempdir().expect("a directory");
        let files = texts.iter().enumerate().map(|(index, text)| {
            let path = directory.path().join(format!("{index}.txt"));
            fs::write(&path, text).expect("a file");
            path
        });
        Traces::read(&files.collect::<Vec<_>>(), Some(service(served).expect("a service")))
    }

    #[test]
    fn traces_give_arrival_curves() {
        let times: Vec<String> =
            (0..50).flat_map(|p| (0..4).map(move |i| (p * 1000 + i).to_string())).collect();
        let text = format!("# ns\n{}\n", times.join("\n"));
        let found = traces(&[&text], "5/1us").expect("curves");
        let json = json!(found.record());
        assert!(found.holds());
        assert_eq!(json["traces"][0]["events"], 200);
        assert_eq!(json["traces"][0]["upper"][3], json!([4, 4]));
        // The five may come first in one period and last in the next, when the next four have
        // arrived.
        assert_eq!(json["service"]["delay_ns"], 2000);
        assert_eq!(json["service"]["backlog"], 8);
        // Four that come late stay late: they never catch up.
        let found = traces(&[&text], "4/1us").expect("curves");
        assert!(!found.holds() && json!(found.record())["service"]["delay_ns"].is_null());
        let text = found.to_string();
        assert!(text.contains("no bound: the service does not catch up within 49004ns"), "{text}");
    }

    #[test]
    fn an_event_waits_for_an_early_then_late_service() {
        let text = traces(&["5\n100000\n"], "1/1us").expect("curves").to_string();
        assert!(text.contains("an event waits at most 2us, at most 1 wait"), "{text}");
    }

    #[test]
    fn silence_in_a_trace_is_no_proof() {
        let two = "5\n100000\n";
        for (texts, why) in [
            (&[""][..], "0.txt: no event"),
            (&[two, "# ns\n\n# that is all\n"], "1.txt: no event"),
            (&["1\n2,x\nthree\n"], "0.txt:3: `three`"),
        ] {
            let failure = traces(texts, "1/1us").expect_err("a failure");
            assert_eq!(failure.status, crate::failure::SYSTEM);
            assert!(failure.text.contains(why), "{}", failure.text);
        }
        // One event does not show the windows in which a service would catch up, and so do more at
        // one time than the curve has steps.
        for little in ["5\n", &"5\n".repeat(300)] {
            let found = traces(&[little, two], "1/1us").expect("curves");
            let service = &json!(found.record())["service"];
            assert!(!found.holds() && service["backlog"].is_null(), "{service}");
        }
    }
}
