//! The trace of a board, with records that come by its wire.

use super::kept::{self, KeptRecords, LIMIT, Traced};
use std::path::{Path, PathBuf};
use weir_image::Result;
use weir_model::System;
use weir_report::trace::file::TraceFacts;
use weir_trace::{reader::RingEntry, wire::TraceRecords};

/// What has come of a board's trace since its last start.
#[derive(Debug)]
pub struct WireTrace {
    directory: PathBuf,
    cores: Vec<Core>,
    facts: TraceFacts,
}

#[derive(Debug)]
struct Core {
    kept: KeptRecords,
    /// The number of the next record.
    next: u64,
}

impl WireTrace {
    /// Begins with no record. What comes waits in files without a name, in `directory`.
    pub fn new(system: &System, directory: &Path) -> Result<Self> {
        Self::of(kept::facts(system), directory)
    }

    fn of(facts: TraceFacts, directory: &Path) -> Result<Self> {
        let cores = (0..u8::try_from(facts.cores).unwrap_or(u8::MAX))
            .map(|core| Ok(Core { kept: KeptRecords::new(core, directory)?, next: 0 }));
        let cores = cores.collect::<Result<_>>()?;
        Ok(Self { directory: directory.to_owned(), cores, facts })
    }

    /// Begins again, after a reset of the board.
    pub fn reset(&mut self) -> Result {
        *self = Self::of(std::mem::take(&mut self.facts), &self.directory)?;
        Ok(())
    }

    /// Takes records. Those of a core that the board does not have are ignored, and so are numbers
    /// that came before: the line can change a byte.
    pub fn take(&mut self, frame: &TraceRecords) {
        let limit = LIMIT / self.cores.len().max(1) as u64;
        let Some(core) = self.cores.get_mut(usize::from(frame.core)) else { return };
        let end = frame.first.saturating_add(frame.count.into());
        let Some(lost) = frame.first.checked_sub(core.next).filter(|_| frame.frequency > 0) else {
            return;
        };
        (self.facts.frequency, self.facts.zero) = (frame.frequency, frame.zero);
        let torn = usize::from(frame.torn.min(frame.count));
        let lost = lost.saturating_add(torn as u64);
        if lost > 0 {
            core.kept.take(RingEntry::Lost(lost), limit);
        }
        let records = frame.records.iter().take(frame.count.into()).skip(torn);
        for (number, record) in (frame.first..end).skip(torn).zip(records) {
            let whole = record.sequence() == number as u16;
            let entry = if whole { RingEntry::Record(*record) } else { RingEntry::Lost(1) };
            core.kept.take(entry, limit);
        }
        core.next = end;
    }

    /// Writes the trace to `path`.
    pub fn finish(self, path: &Path) -> Result<Traced> {
        let kept = self.cores.into_iter().map(|core| core.kept).collect();
        let frequency = self.facts.frequency.max(1);
        kept::write(kept, TraceFacts { frequency, ..self.facts }, None, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::trace::file::Trace;
    use weir_trace::{
        record::{Origin, Record, RecordKind},
        recorder::TraceRing,
        sender::TraceSender,
    };

    /// Kind, time and count of each record in the file.
    fn records(path: &Path) -> Vec<(u16, u64, u64)> {
        let mut trace = Trace::open(path).expect("a trace");
        let mut records = Vec::new();
        while let Some(Record { kind, time, count, .. }) = trace.next_record().expect("a record") {
            records.push((kind, time, count));
        }
        records
    }

    const DRAW: u16 = RecordKind::Draw as u16;
    const LOST: u16 = RecordKind::Lost as u16;

    #[test]
    fn frames_become_a_trace_with_its_gaps() {
        let directory = tempfile::tempdir().expect("a directory");
        let facts = TraceFacts { cores: 2, ..TraceFacts::default() };
        let mut trace = WireTrace::of(facts, directory.path()).expect("a trace");
        let rings: [TraceRing<64>; 2] = std::array::from_fn(|_| TraceRing::new());
        for (core, ring) in rings.iter().enumerate() {
            ring.begin(core, 1_000_000_000, 100);
        }
        let push = |core: usize, time| {
            rings[core].push(time, Origin::new(0, 0).tag(RecordKind::Draw, 0), time, 0);
        };
        let mut sender = TraceSender::new();
        (0..20).for_each(|n| push(0, 1000 + n));
        push(1, 1005);
        let mut frames: Vec<_> = std::iter::from_fn(|| sender.take(&rings, 1)).collect();
        assert_eq!(frames.len(), 5);
        // The line loses the second one of core 0; the third was damaged in a way that its sum does
        // not show: a core that is not there; and one comes again.
        let of_first: Vec<usize> = (0..5).filter(|&place| frames[place].core == 0).collect();
        frames[of_first[2]].core = 9;
        let lost = of_first[1];
        frames.push(frames[0]);
        for (place, frame) in frames.iter().enumerate() {
            if place != lost {
                trace.take(frame);
            }
        }
        let path = directory.path().join("t");
        let traced = trace.finish(&path).expect("a file");
        assert_eq!(traced, Traced { records: 10, lost: 12 });
        let mut expected: Vec<_> = (1000..1006).map(|time| (DRAW, time, time)).collect();
        expected.extend([(DRAW, 1005, 1005), (LOST, 1018, 12)]);
        expected.extend([1018, 1019].map(|time| (DRAW, time, time)));
        assert_eq!(records(&path), expected);
    }

    #[test]
    fn a_reset_begins_a_new_trace() {
        let directory = tempfile::tempdir().expect("a directory");
        let facts = TraceFacts { cores: 1, ..TraceFacts::default() };
        let mut trace = WireTrace::of(facts, directory.path()).expect("a trace");
        let frame = |first: u64, time| {
            let record = Record { time, kind: DRAW, ..Record::default() };
            let record = record.with_sequence(first as u16);
            let mut frame = TraceRecords { count: 1, first, frequency: 1, ..Default::default() };
            frame.records[0] = record;
            frame
        };
        trace.take(&frame(0, 7));
        trace.take(&frame(5, 9));
        trace.reset().expect("files");
        trace.take(&frame(0, 3));
        let path = directory.path().join("t");
        assert_eq!(trace.finish(&path).expect("a file"), Traced { records: 1, lost: 0 });
        assert_eq!(records(&path), [(DRAW, 3, 0)]);
    }
}
