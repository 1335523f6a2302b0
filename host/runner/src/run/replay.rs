//! A run with the recorded input of an earlier one.

use super::options::{ConsoleInput, RunOptions};
use crate::{
    qemu::EmulatedClock,
    record::{RunRecord, WIRE},
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};
use weir_image::{
    Failure, Result,
    failure::{Context, ENVIRONMENT, SYSTEM},
};
use weir_report::{
    REPORT,
    run::{End, RunFacts, read_report},
};

/// The file of a run with the record of its input, see `weir_clock::input`.
const INPUT: &str = "input.txt";

/// The options of a run, those of the earlier run if one is replayed.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// The options, with the limit and the end of the earlier run.
    pub options: RunOptions,
    /// The earlier run.
    earlier: Option<Earlier>,
    /// The last time of the earlier run, in ns, if it did not end by itself.
    pub end_ns: Option<u64>,
}

/// A run that is replayed.
#[derive(Clone, Debug)]
struct Earlier {
    directory: PathBuf,
    /// The image's checksum.
    image: String,
}

impl Replay {
    /// Reads the earlier run, if `options` name one.
    ///
    /// # Errors
    ///
    /// The call is wrong if the run has recorded no input.
    pub(super) fn of(options: &RunOptions) -> Result<Self> {
        let mut options = options.clone();
        let ConsoleInput::Replay(directory) = &options.input else {
            return Ok(Self { options, earlier: None, end_ns: None });
        };
        let directory = directory.clone();
        if !directory.join(INPUT).is_file() {
            return Err(Failure::call(format!(
                "{} has no {INPUT}: only a run with --input or --attach records its input",
                directory.display()
            )));
        }
        let damaged = |name: &str| {
            Failure::call(format!(
                "{} cannot be read: only a run that has ended, and whose files are whole, can be \
                 replayed",
                directory.join(name).display()
            ))
        };
        let run = RunFacts::read(&directory).ok_or_else(|| damaged("run.json"))?;
        let report = read_report(&directory).map_err(|_| damaged(REPORT))?;
        options.time = run.limit_ns.map(Duration::from_nanos);
        options.quantum = run.quantum_ns.map(Duration::from_nanos);
        options.memory = run.memory;
        options.keep_running = run.keep_running;
        let by_itself = matches!(report.ended_by, End::AllMet | End::TimeOver | End::SystemStop);
        let end_ns = (!by_itself).then_some(report.time_ns);
        let image = run.image_crc32.unwrap_or_default();
        Ok(Self { options, earlier: Some(Earlier { directory, image }), end_ns })
    }

    /// Checks that `image` is the one of the earlier run.
    ///
    /// # Errors
    ///
    /// The call is wrong if it is another one: its machine would behave otherwise.
    pub(super) fn compare(&self, image: &[u8]) -> Result {
        let Some(Earlier { directory, image: earlier }) = &self.earlier else { return Ok(()) };
        if *earlier == checksum(image) {
            return Ok(());
        }
        Err(Failure::call(format!(
            "the image is not the one of {}: replay the system file as it was then, built by the \
             same weir",
            directory.display()
        )))
    }

    /// Returns the status and the text of a run, which fails if the bytes in the file `wire` differ
    /// from those of the earlier run. A run that was cut has some that a replay does not repeat, or
    /// fewer.
    pub(super) fn conclude(
        &self,
        outcome: (u8, Option<String>),
        wire: &Path,
    ) -> Result<(u8, Option<String>)> {
        let Some(Earlier { directory, .. }) = &self.earlier else { return Ok(outcome) };
        let read = |path: &Path| fs::read(path).context(|| format!("read {}", path.display()));
        let (earlier, now) = (read(&directory.join(WIRE))?, read(wire)?);
        let same = earlier.iter().zip(&now).take_while(|(one, other)| one == other).count();
        let is_whole = if self.end_ns.is_some() {
            same == earlier.len().min(now.len())
        } else {
            earlier == now
        };
        let (status, trouble) = outcome;
        // A QEMU that has failed says why.
        if is_whole || status == ENVIRONMENT {
            return Ok((status, trouble));
        }
        let difference = format!(
            "the replay is another run than {}: {WIRE} differs from byte {same} on\n  replay with \
             the same QEMU and the same --qemu-arg",
            directory.display()
        );
        let texts = trouble.into_iter().chain([difference]);
        Ok((status.max(SYSTEM), Some(texts.collect::<Vec<_>>().join("\n"))))
    }

    /// Connects the machine's input: to the record of the earlier run, or to the host with a record
    /// in `record`.
    pub(super) fn give_input(&self, clock: &mut EmulatedClock, record: &RunRecord) -> Result {
        match &self.options.input {
            ConsoleInput::None => {}
            ConsoleInput::Live => clock.record(record.secret_file(INPUT)?),
            ConsoleInput::Replay(directory) => {
                let path = directory.join(INPUT);
                clock.replay(File::open(&path).context(|| format!("read {}", path.display()))?);
            }
        }
        Ok(())
    }
}

/// Returns the checksum of an image as `run.json` has it.
pub(super) fn checksum(image: &[u8]) -> String {
    format!("{:#010x}", weir_abi::checksum(image))
}
