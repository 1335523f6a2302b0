//! A bare DRAM under a trace.

use crate::{
    failure::{Failure, Result},
    screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Take, Write},
    path::Path,
};
use weir_memory::{Pa, dram::trace};
use weir_report::table;
use weir_simulator::MemoryModel;

/// Bytes of a line at most. A long file without line ends is refused by it.
const LONGEST_LINE: u64 = 4096;
/// Lines of a file at most: minutes.
const MOST_LINES: u64 = 1_000_000_000;

/// A trace file, request by request. It ends at the first line that is none, and keeps what is
/// wrong with it.
struct Requests<'a> {
    reader: BufReader<Take<File>>,
    name: &'a Path,
    line: String,
    number: u64,
    fault: Option<Failure>,
}

impl<'a> Requests<'a> {
    fn open(name: &'a Path) -> Result<Self> {
        let file = weir_model::open_regular(name)
            .map_err(|error| Failure::call(format!("cannot read {}: {error}", name.display())))?;
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Self { reader, name, line: String::new(), number: 0, fault: None })
    }

    /// Whether it ended because the file did.
    fn finish(self) -> Result {
        self.fault.map_or(Ok(()), Err)
    }
}

impl Iterator for &mut Requests<'_> {
    type Item = (Pa, bool);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line.clear();
            self.number += 1;
            let fault = |what: String| {
                Failure::system(format!("{}:{}: {what}", self.name.display(), self.number))
            };
            let mut reader = self.reader.by_ref().take(LONGEST_LINE + 1);
            match reader.read_line(&mut self.line) {
                Ok(0) => return None,
                Ok(length) if length as u64 > LONGEST_LINE || self.number > MOST_LINES => {
                    let what = if self.number > MOST_LINES {
                        format!("a trace of more than {MOST_LINES} lines")
                    } else {
                        format!("a line of more than {LONGEST_LINE} bytes")
                    };
                    self.fault = Some(fault(what));
                    return None;
                }
                Ok(_) => match trace::parse_line(&self.line) {
                    Ok(Some(request)) => return Some(request),
                    Ok(None) => {}
                    Err(error) => {
                        self.fault = Some(fault(error.to_string()));
                        return None;
                    }
                },
                Err(error) => {
                    self.fault = Some(fault(error.to_string()));
                    return None;
                }
            }
        }
    }
}

/// The outcome of a trace on a bare DRAM.
#[derive(Serialize, JsonSchema)]
pub struct DramRun {
    /// Requests that were served.
    requests: u64,
    /// Memory clocks from the first request to the last answer.
    cycles: u64,
    /// Requests to an open row.
    row_hits: u64,
    /// Requests to a bank with another row open.
    row_conflicts: u64,
    /// The bandwidth in MB/s.
    mb_per_s: f64,
}

/// Runs the trace and prints what it came to.
pub fn run(file: &Path, memory: &str, values: &[(String, String)], json: bool) -> Result {
    let memory = MemoryModel::find_with(memory, values)
        .map_err(|error| Failure::system(error.to_string()))?;
    let dram = &memory.dram;
    let map = dram.map().map_err(Failure::system)?;
    let mut requests = Requests::open(file)?;
    let result = trace::run(&mut requests, &map, dram.timing(), dram.policy());
    requests.finish()?;
    let result = result.map_err(|error| Failure::system(error.to_string()))?;
    if result.requests == 0 {
        return Err(Failure::system(format!(
            "{}: there are no requests: write lines R 0xADDRESS or W 0xADDRESS",
            file.display()
        )));
    }
    let mb_per_s = result.mb_per_s(dram.request_bytes(), dram.timing().clock_ps);
    let mut out = screen::stdout();
    if json {
        let figures = DramRun {
            requests: result.requests,
            cycles: result.cycles,
            row_hits: result.row_hits,
            row_conflicts: result.row_conflicts,
            mb_per_s: (mb_per_s * 10.0).round() / 10.0,
        };
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
        return Ok(());
    }
    let mut rows = table(["requests", "cycles", "row hits", "row conflicts", "MB/s"]);
    rows.add_row([
        result.requests.to_string(),
        result.cycles.to_string(),
        result.row_hits.to_string(),
        result.row_conflicts.to_string(),
        format!("{mb_per_s:.1}"),
    ]);
    writeln!(out, "{rows}")?;
    Ok(())
}
