//! The accesses of VMs, for a simulator to replay.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_memory::recording::{RecordedAccess, RecordingLine};

/// The recording to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingLimit {
    /// Accesses that are kept of each VM, the first ones; others are counted.
    pub most: u64,
    /// The directory of the recordings: of VM N a file `N`, with physical addresses and
    /// the machine's cores as vCPUs.
    pub into: PathBuf,
}

/// The recording of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Accesses that were kept.
    pub kept: u64,
    /// Those after them.
    pub left_out: u64,
}

/// A recording of each VM while the machine runs.
#[derive(Debug)]
pub(super) struct Recorder {
    record: RecordingLimit,
    tapes: Vec<Tape>,
    /// For each core the instructions that its guest has executed and that no recorded access
    /// accounts for. An access takes one at least, so that it can be less than none.
    since: Box<[i64]>,
    line: u64,
}

#[derive(Debug, Default)]
struct Tape {
    /// Each with its core.
    steps: Vec<(RecordedAccess, u8)>,
    left_out: u64,
}

impl Recorder {
    /// For caches of lines of so many bytes.
    pub fn new(record: RecordingLimit, vms: usize, cores: usize, line: u64) -> Self {
        let tapes = (0..vms).map(|_| Tape::default()).collect();
        Self { record, tapes, since: vec![0; cores].into(), line: line.max(1) }
    }

    /// The guest on `core` begins to execute so many instructions.
    pub fn executes(&mut self, core: usize, instructions: u64) {
        self.since[core] = self.since[core].saturating_add_unsigned(instructions);
    }

    /// The VM on `core` reads or writes so many bytes of one page: a step for each line that it
    /// touches.
    pub fn access(&mut self, vm: usize, core: usize, pa: u64, bytes: u64, write: bool) {
        let (first, last) = (pa / self.line, (pa + bytes.max(1) - 1) / self.line);
        for line in first..=last {
            let cycles = u32::try_from(self.since[core].max(1)).unwrap_or(u32::MAX);
            self.since[core] -= i64::from(cycles);
            let at = pa.max(line * self.line);
            let Tape { steps, left_out } = &mut self.tapes[vm];
            if (steps.len() as u64) < self.record.most {
                steps.push((RecordedAccess { at, cycles, write }, core as u8));
            } else {
                *left_out += 1;
            }
        }
    }

    /// The recordings so far.
    pub fn report(&self) -> Vec<Recorded> {
        let recorded =
            |tape: &Tape| Recorded { kept: tape.steps.len() as u64, left_out: tape.left_out };
        self.tapes.iter().map(recorded).collect()
    }

    /// Writes the recordings as far as `seen` has them.
    pub fn write(&self, seen: &[Recorded]) -> io::Result<()> {
        fs::create_dir_all(&self.record.into)?;
        for ((number, tape), seen) in self.tapes.iter().enumerate().zip(seen) {
            let mut file =
                BufWriter::new(fs::File::create(self.record.into.join(number.to_string()))?);
            let mut on = None;
            for &(step, core) in tape.steps.iter().take(seen.kept as usize) {
                if on.replace(core) != Some(core) {
                    writeln!(file, "{}", RecordingLine::Vcpu(core.into()))?;
                }
                writeln!(file, "{}", RecordingLine::Access(step))?;
            }
            file.flush()?;
        }
        Ok(())
    }
}
