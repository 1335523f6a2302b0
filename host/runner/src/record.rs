//! What a run leaves behind: `runs/TIME/`.

use super::{
    demux::{ConsoleSource, WireStep},
    report::{RunReport, in_words},
};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};
use weir_image::{Environment, Estimate, Failure, Result, failure::Context};
use weir_model::System;
use weir_report::{
    REPORT, SUMMARY, SYSTEM,
    plan::{PLAN, SystemPlan},
};

/// The file with all bytes of the board's UART.
pub const WIRE: &str = "wire.bin";
/// Ways to name directories of the same second.
const SAME_SECOND: u32 = 1000;

/// A run's directory and its open logs.
#[derive(Debug)]
pub struct RunRecord {
    directory: PathBuf,
    wire: BufWriter<File>,
    hypervisor: BufWriter<File>,
    consoles: Vec<BufWriter<File>>,
}

impl RunRecord {
    /// A new directory for a run, with a copy of the system file and with its plan.
    pub fn create(environment: &Environment, system: &System) -> Result<Self> {
        let runs = environment.runs();
        fs::create_dir_all(&runs).context(|| format!("create {}", runs.display()))?;
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        // Colons are trouble for other systems, for make and for scp.
        let time = time.replace(':', "-");
        let directory = (1..SAME_SECOND)
            .map(|n| runs.join(if n == 1 { time.clone() } else { format!("{time}-{n}") }))
            .find_map(|directory| match fs::create_dir(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
                other => Some(other.map(|()| directory)),
            });
        let directory = directory
            .ok_or_else(|| Failure::environment(format!("too many runs at {time}")))?
            .context(|| format!("create a directory in {}", runs.display()))?;
        let open = |name: &str| {
            let path = directory.join(name);
            File::create(&path).map(BufWriter::new).context(|| format!("write {}", path.display()))
        };
        let log = |name: &str| open(&weir_report::console_log(name));
        let consoles: Result<Vec<_>> = system.vms.iter().map(|vm| log(&vm.name)).collect();
        let (wire, hypervisor) = (open(WIRE)?, open("hypervisor.log")?);
        // The file may have been changed or deleted since it was read; what ran is in the image.
        let copied = directory.join(SYSTEM);
        fs::copy(&system.path, &copied).context(|| format!("write {}", copied.display()))?;
        let record = Self { consoles: consoles?, wire, hypervisor, directory };
        record.write_plan(system, environment)?;
        Ok(record)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A new file in it.
    pub fn file(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        File::create(&path).context(|| format!("write {}", path.display()))
    }

    /// A new file that only the user may read, open for writing.
    pub fn secret_file(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path).context(|| format!("write {}", path.display()))
    }

    /// A new file with these contents.
    pub fn write_file(&self, name: &str, contents: &[u8]) -> Result {
        let path = self.path(name);
        fs::write(&path, contents).context(|| format!("write {}", path.display()))
    }

    /// A new JSON file.
    pub fn write_json(&self, name: &str, value: impl Serialize) -> Result {
        let value = weir_report::versioned(value);
        self.write_file(name, format!("{value:#}\n").as_bytes())
    }

    /// Writes the plan of the system.
    fn write_plan(&self, system: &System, environment: &Environment) -> Result {
        let estimate = Estimate::of(system, environment);
        let placement = estimate.placement(system).unwrap_or_default();
        let plan = weir_report::versioned(SystemPlan::of(system, &placement));
        self.write_file(PLAN, format!("{plan:#}\n").as_bytes())
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) {
        // If this fails, it stays and takes room.
        let _ = fs::remove_file(self.path(name));
    }

    /// The last lines of a file, at most `count`.
    pub fn tail(&self, name: &str, count: usize) -> Vec<String> {
        const BYTES: u64 = 8192;
        let read = || {
            let mut file = File::open(self.path(name))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
            let mut bytes = Vec::new();
            file.take(BYTES).read_to_end(&mut bytes)?;
            std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(count);
        lines.get(from..).unwrap_or(&[]).iter().map(|line| (*line).to_owned()).collect()
    }

    /// Keeps bytes off the wire.
    pub fn wire(&mut self, bytes: &[u8]) -> Result {
        self.wire.write_all(bytes).context(|| "write wire.bin")
    }

    /// Keeps a step in the log that it belongs to.
    pub fn step(&mut self, step: &WireStep, name: impl Fn(u8) -> String) -> Result {
        match step {
            WireStep::Byte(ConsoleSource::Vm(vm), byte) => match self.consoles.get_mut(*vm) {
                Some(console) => console.write_all(&[*byte]).context(|| "write a console's log"),
                None => Ok(()),
            },
            WireStep::Event(event) => self.own(event.time_ns, &in_words(event, name)),
            WireStep::Line { source: ConsoleSource::Hypervisor, text, time_ns } => {
                self.own(*time_ns, text)
            }
            WireStep::Dropped { source, bytes, time_ns } => {
                let name = match source {
                    ConsoleSource::Vm(vm) => u8::try_from(*vm).map(&name).unwrap_or_default(),
                    ConsoleSource::Hypervisor => "weir".into(),
                };
                self.own(*time_ns, &format!("{name}: {bytes} console bytes lost"))
            }
            WireStep::Damaged => writeln!(self.hypervisor, "[a frame was damaged on the wire]")
                .context(|| "write hypervisor.log"),
            WireStep::Reset => writeln!(self.hypervisor, "[the board was reset]")
                .context(|| "write hypervisor.log"),
            _ => Ok(()),
        }
    }

    fn own(&mut self, time_ns: u64, text: &str) -> Result {
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        writeln!(self.hypervisor, "[{seconds:5}.{rest:09}] {text}")
            .context(|| "write hypervisor.log")
    }

    /// Lets a reader see all that was kept so far.
    pub fn flush(&mut self) -> Result {
        let logs = [&mut self.wire, &mut self.hypervisor].into_iter().chain(&mut self.consoles);
        for log in logs {
            log.flush().context(|| format!("write to {}", self.directory.display()))?;
        }
        Ok(())
    }

    /// Completes the logs and writes the report, and the summary as a person sees it.
    pub fn finish(&mut self, report: &RunReport, summary: &str) -> Result {
        self.flush()?;
        self.write_file(SUMMARY, format!("{summary}\n").as_bytes())?;
        self.write_file(REPORT, format!("{:#}\n", report.json()).as_bytes())?;
        self.remove(super::control::SOCKET);
        Ok(())
    }
}
