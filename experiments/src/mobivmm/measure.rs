//! Runs one system of the experiment and reads what its VMs print.

use super::system::Point;
use std::{ffi::OsString, fs, path::Path};
use weir_image::{Environment, Failure, Result, failure::Context};
use weir_runner::{RunOptions, SilentConsole, run, watch_signals};

/// The measurements of the whole experiment.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) alone: Response,
    pub(super) shared: Response,
    pub(super) points: Vec<(Point, Response)>,
}

/// The result of a run, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) avg: f64,
    pub(super) max: f64,
    /// Interrupts of each source that the loaded VM handled in 10 ms (mobivmm, Figure 10); none if
    /// it did not run long enough to report.
    pub(super) came: Option<[f64; 2]>,
    /// The response-time bound.
    pub(super) bound: Option<f64>,
}

/// Runs a system and reads the response times that its sleeper prints.
pub(super) fn measure(
    name: &str,
    (text, qemu_args): (&str, Vec<OsString>),
    directory: &Path,
    environment: &Environment,
) -> Result<Response> {
    let system = directory.join(name).with_extension("toml");
    fs::write(&system, text).context(|| format!("write {}", system.display()))?;
    let checked = weir_image::check(&system, None, environment)?;
    let options = RunOptions {
        accept_not_judged: true,
        no_build: true,
        qemu_args,
        interrupt: watch_signals()?,
        ..RunOptions::new(environment.clone())
    };
    let outcome = run(&checked, &options, &mut SilentConsole)?.good(&system)?;
    let log = |vm: &str| {
        let log = outcome.directory.join(vm).with_extension("log");
        fs::read_to_string(&log).context(|| format!("read {}", log.display()))
    };
    let mut response = log("rtos")?.lines().find_map(response);
    if let (Some(response), Ok(said)) = (&mut response, log("gpos")) {
        response.came = said.lines().rev().find_map(came);
    }
    // Nothing needs the logs of a run that passes.
    let _ = fs::remove_dir_all(&outcome.directory);
    response
        .ok_or_else(|| Failure::system(format!("{}: no response was measured", system.display())))
}

/// Parses `sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks`
fn response(line: &str) -> Option<Response> {
    let numbers = line.strip_prefix("sleeper: ")?;
    let mut numbers = numbers.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    let [_, avg, max] = [numbers.next()?, numbers.next()?, numbers.next()?];
    Some(Response {
        avg: f64::from(avg) / 1000.0,
        max: f64::from(max) / 1000.0,
        came: None,
        bound: None,
    })
}

/// Parses `loaded: 8 ticks, 81 interrupts, 9 of the second line, in 161000 us`, as interrupts in
/// 10 ms.
fn came(line: &str) -> Option<[f64; 2]> {
    let numbers = line.strip_prefix("loaded: ")?;
    let mut numbers = numbers.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    let [_, all @ .., us] =
        [numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?].map(f64::from);
    let all: [f64; 2] = all;
    (us > 0.0).then(|| all.map(|count| count * 10_000.0 / us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let read = response("sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks");
        let read = read.map(|response| (response.avg, response.max));
        assert_eq!(read, Some((35.123, 40.001)));
        assert!(response("loaded: 1 ticks").is_none());
        let came = came("loaded: 8 ticks, 81 interrupts, 9 of the second line, in 162000 us");
        assert_eq!(came, Some([5.0, 90_000.0 / 162_000.0]));
    }
}
