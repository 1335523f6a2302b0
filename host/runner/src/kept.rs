//! The records of a run's trace on their way into `trace.bin`, whether they were read from the
//! machine's memory or came by its wire.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    path::Path,
};
use weir_image::{Result, failure::Context};
use weir_model::System;
use weir_report::run::TraceSize;
use weir_report::trace::file::{self, TraceFacts};
use weir_trace::{
    reader::RingEntry,
    record::{Record, RecordKind},
};
use zerocopy::IntoBytes;

/// Records of a run that are kept; 2 GiB. What comes then is counted as lost.
pub const LIMIT: u64 = 1 << 26;

/// Returns what is known of a system's trace before the run.
pub fn facts(system: &System) -> TraceFacts {
    let vms = system.vms.iter().map(|vm| file::TracedVm {
        name: vm.name.clone(),
        cores: vm.cpus.iter().map(|core| core.0).collect(),
    });
    let cores = system.machine_cores() as u32;
    TraceFacts { cores, vms: vms.collect(), ..TraceFacts::default() }
}

/// What is kept of one core.
#[derive(Debug)]
pub struct KeptRecords {
    core: u8,
    /// Records in the order of the ring; unnamed, so that nothing is left behind.
    kept: BufWriter<File>,
    records: u64,
    /// Lost since the last record that was kept.
    gap: u64,
    /// The newest record's time.
    last: u64,
    failed: Option<io::Error>,
}

impl KeptRecords {
    /// Keeps records of a core in a file without a name, in `directory`.
    pub fn new(core: u8, directory: &Path) -> Result<Self> {
        let kept = tempfile::tempfile_in(directory)
            .context(|| format!("write to {}", directory.display()))?;
        Ok(Self { core, kept: BufWriter::new(kept), records: 0, gap: 0, last: 0, failed: None })
    }

    /// Takes what came next. Above `limit` records the rest is counted as lost.
    pub fn take(&mut self, entry: RingEntry, limit: u64) {
        let Self { core, kept, records, gap, last, failed } = self;
        let mut keep = |record: Record| match kept.write_all(record.as_bytes()) {
            Ok(()) => 1,
            Err(error) => {
                *failed = failed.take().or(Some(error));
                0
            }
        };
        match entry {
            RingEntry::Record(record) if *records < limit => {
                if *gap > 0 {
                    *records += keep(file::lost(*core, record.time, *gap));
                    *gap = 0;
                }
                *records += keep(record.with_sequence((*core).into()));
                *last = record.time;
            }
            RingEntry::Record(_) => *gap += 1,
            RingEntry::Lost(count) => *gap = gap.saturating_add(count),
        }
    }

    /// Everything that was kept, from its first record on.
    fn rewind(mut self) -> io::Result<BufReader<File>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.gap > 0 {
            self.kept.write_all(file::lost(self.core, self.last, self.gap).as_bytes())?;
        }
        let mut file = self.kept.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(BufReader::new(file))
    }
}

/// The size of a run's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Records in the file.
    pub records: u64,
    /// Records that were lost, from those in the file.
    pub lost: u64,
}

impl Traced {
    /// Returns the counts as `run.json` has them.
    #[must_use]
    pub fn size(self) -> TraceSize {
        TraceSize { records: Some(self.records), lost: Some(self.lost), absent: None }
    }
}

/// Writes the trace to `path`: up to `until` nanoseconds after the hypervisor's start, or to the
/// end.
pub fn write(
    cores: Vec<KeptRecords>,
    mut facts: TraceFacts,
    until: Option<u64>,
    path: &Path,
) -> Result<Traced> {
    let mut traced = Traced { records: 0, lost: 0 };
    let writing = || format!("write {}", path.display());
    let streams = cores.into_iter().map(KeptRecords::rewind);
    let streams = streams.collect::<io::Result<Vec<_>>>().context(writing)?;
    let write = || {
        // A trace appears whole or not at all: the number of its records, and when the last one
        // was, come last.
        let directory = path.parent().unwrap_or(Path::new("."));
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let file = tempfile::Builder::new().permissions(readable).tempfile_in(directory)?;
        let mut out = BufWriter::new(file);
        facts.write(&mut out)?;
        let mut last = 0;
        merge(streams, |record| {
            if until.is_some_and(|until| facts.nanos(record.time) > until) {
                return Ok(());
            }
            traced.records += 1;
            last = record.time;
            if record.kind == RecordKind::Lost as u16 {
                traced.lost = traced.lost.saturating_add(record.count);
            }
            out.write_all(record.as_bytes())
        })?;
        (facts.records, facts.lost, facts.last) = (traced.records, traced.lost, last);
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        facts.write(&mut file)?;
        file.persist(path).map_err(|error| error.error)?;
        io::Result::Ok(())
    };
    write().context(writing)?;
    Ok(traced)
}

/// Gives the records of all streams in the order of time, of one time in that of the streams.
/// Within a stream records stay in their order.
fn merge<R: Read>(
    mut streams: Vec<R>,
    mut sink: impl FnMut(&Record) -> io::Result<()>,
) -> io::Result<()> {
    let count = streams.len();
    let mut next = |stream: usize| -> io::Result<Option<Record>> {
        let mut record = Record::default();
        match streams.get_mut(stream).map(|from| from.read_exact(record.as_mut_bytes())) {
            Some(Ok(())) => Ok(Some(record)),
            Some(Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(None),
        }
    };
    let mut heads = vec![Record::default(); count];
    let mut order = BinaryHeap::new();
    for (stream, head) in heads.iter_mut().enumerate() {
        if let Some(record) = next(stream)? {
            order.push(Reverse((record.time, stream)));
            *head = record;
        }
    }
    while let Some(Reverse((_, stream))) = order.pop() {
        sink(&heads[stream])?;
        if let Some(record) = next(stream)? {
            order.push(Reverse((record.time, stream)));
            heads[stream] = record;
        }
    }
    Ok(())
}
