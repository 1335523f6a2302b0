//! Reads the cores' trace rings out of the machine's memory while it runs, and leaves `trace.bin`.
//!
//! The rings are a static of the hypervisor's; nothing that is done here can be noticed by the
//! machine.

use super::{
    ram::Ram,
    statics::{StaticMemory, Statics},
};
use serde_json::{Value, json};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use weir_abi::MAX_CORES;
use weir_image::{Environment, Result, cargo::Programs, failure::Context};
use weir_model::System;
use weir_report::trace::file::{self, TraceFacts};
use weir_trace::{
    reader::{Reader, RingEntry, RingMemory},
    record::{Record, RecordKind},
    recorder::SLOT,
};
use zerocopy::IntoBytes;

/// The hypervisor's name for its rings: an array with one for each of [`MAX_CORES`] cores.
const SYMBOL: &str = "weir_trace_rings";
/// Between two polls of the rings.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The same when a ring has filled by a sixteenth since the last one.
const HURRY: Duration = Duration::from_micros(100);
/// Records of a run that are kept; 2 GiB. What comes then is counted as lost.
const LIMIT: u64 = 1 << 26;

/// Where a core's ring lies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Those of all cores.
    all: Arc<StaticMemory>,
    /// Where in them it begins.
    offset: usize,
    bytes: usize,
}

impl Place {
    /// Those of the first `cores` cores.
    fn each(all: StaticMemory, cores: usize) -> Vec<Self> {
        let (bytes, all) = (all.len() / MAX_CORES, Arc::new(all));
        let place = |core| Self { all: Arc::clone(&all), offset: core * bytes, bytes };
        (0..cores.min(MAX_CORES)).map(place).collect()
    }
}

/// A ring in the machine's memory.
struct View<'a> {
    ram: &'a Ram,
    place: &'a Place,
}

impl RingMemory for View<'_> {
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let Place { all, offset: first, bytes } = self.place;
        let inside = offset.checked_add(into.len()).is_some_and(|end| end <= *bytes);
        inside && all.read_at(self.ram, first + offset, into).is_ok()
    }
}

/// The rings of a system that is to run.
#[derive(Clone, Debug)]
pub struct Rings {
    places: Vec<Place>,
    progress: Option<StaticMemory>,
    facts: TraceFacts,
}

impl Rings {
    /// Finds the rings of `image`, which was made with a kept hypervisor; the error states why it
    /// has none.
    pub fn find(
        system: &System,
        image: &[u8],
        environment: &Environment,
    ) -> std::result::Result<Self, String> {
        let gic_v2 = system.platform.is_gic_v2();
        let elf = Programs::new(environment, true).hypervisor_in(image);
        let elf = elf.map_err(|failure| failure.text)?;
        let bytes = fs::read(&elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let statics = Statics::new(&bytes, image, gic_v2)
            .map_err(|why| format!("{why} ({})", elf.display()))?;
        let rings =
            statics.find(SYMBOL).ok_or_else(|| format!("{} has no {SYMBOL}", elf.display()))?;
        let progress = statics.find(super::standstill::SYMBOL);
        let places = Place::each(rings, system.machine_cores());
        let vms = system.vms.iter().map(|vm| file::TracedVm {
            name: vm.name.clone(),
            cores: vm.cpus.iter().map(|core| core.0).collect(),
        });
        let facts = TraceFacts {
            cores: system.machine_cores() as u32,
            vms: vms.collect(),
            ..TraceFacts::default()
        };
        Ok(Self { places, progress, facts })
    }

    /// What each core's ticks change, if the hypervisor has it.
    pub fn progress(&self) -> Option<&StaticMemory> {
        self.progress.as_ref()
    }

    /// Begins to read, on its own thread. What is read waits in files without a name, in
    /// `directory`.
    pub fn start(self, ram: Arc<Ram>, directory: &Path) -> Result<RingReading> {
        let cores = self.places.into_iter().map(|place| Core::new(place, directory));
        let cores = cores.collect::<Result<Vec<_>>>()?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("trace".into()).spawn({
            let over = Arc::clone(&over);
            move || watch(cores, &ram, &over)
        });
        let thread = thread.context(|| "start a thread")?;
        Ok(RingReading { over, thread: Some(thread), facts: self.facts })
    }
}

/// What is read of one core.
#[derive(Debug)]
struct Core {
    place: Place,
    reader: Reader,
    /// Records in the order of the ring; unnamed, so that nothing is left behind.
    kept: BufWriter<File>,
    records: u64,
    /// Lost since the last record that was kept.
    gap: u64,
    /// The newest record's time.
    last: u64,
    failed: Option<io::Error>,
}

impl Core {
    fn new(place: Place, directory: &Path) -> Result<Self> {
        let kept = tempfile::tempfile_in(directory)
            .context(|| format!("write to {}", directory.display()))?;
        Ok(Self {
            reader: Reader::new(place.bytes),
            place,
            kept: BufWriter::new(kept),
            records: 0,
            gap: 0,
            last: 0,
            failed: None,
        })
    }

    /// Takes the new records; returns their number.
    fn poll(&mut self, ram: &Ram, core: u8, limit: u64) -> u64 {
        let Self { place, reader, kept, records, gap, last, failed } = self;
        reader.take(&mut View { ram, place }, |entry| {
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
                        *records += keep(file::lost(core, record.time, *gap));
                        *gap = 0;
                    }
                    *records += keep(record.with_sequence(core.into()));
                    *last = record.time;
                }
                RingEntry::Record(_) => *gap += 1,
                RingEntry::Lost(count) => *gap = gap.saturating_add(count),
            }
        })
    }

    /// Everything that was kept, from its first record on.
    fn rewind(mut self, core: u8) -> io::Result<BufReader<File>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.gap > 0 {
            self.kept.write_all(file::lost(core, self.last, self.gap).as_bytes())?;
        }
        let mut file = self.kept.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(BufReader::new(file))
    }
}

/// Reads until it is over, and once more then.
fn watch(mut cores: Vec<Core>, ram: &Ram, over: &AtomicBool) -> Vec<Core> {
    loop {
        let last = over.load(Ordering::Acquire);
        let limit = LIMIT / cores.len().max(1) as u64;
        let mut hurry = false;
        for (number, core) in cores.iter_mut().enumerate() {
            let new = core.poll(ram, number as u8, limit);
            hurry |= new > (core.place.bytes / SLOT / 16) as u64;
        }
        if last {
            return cores;
        }
        thread::park_timeout(if hurry { HURRY } else { POLL_INTERVAL });
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
    pub fn json(self) -> Value {
        json!({ "records": self.records, "lost": self.lost })
    }
}

/// The thread that reads the rings.
#[derive(Debug)]
pub struct RingReading {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Core>>>,
    facts: TraceFacts,
}

impl RingReading {
    /// Reads what is left, once the machine has ended, and writes the trace to `path`: up to
    /// `until` nanoseconds after the hypervisor's start, or to the end.
    pub fn finish(mut self, until: Option<u64>, path: &Path) -> Result<Traced> {
        let cores = self.stop();
        let mut facts = std::mem::take(&mut self.facts);
        let alive = cores.iter().find_map(|core| core.reader.facts());
        let (frequency, zero) = alive.map_or((1, 0), |facts| (facts.frequency, facts.zero));
        (facts.frequency, facts.zero) = (frequency, zero);
        let mut traced = Traced { records: 0, lost: 0 };
        let writing = || format!("write {}", path.display());
        let streams = cores.into_iter().zip(0..).map(|(core, number)| core.rewind(number));
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

    fn stop(&mut self) -> Vec<Core> {
        self.over.store(true, Ordering::Release);
        let thread = self.thread.take().map(|thread| {
            thread.thread().unpark();
            thread.join().unwrap_or_default()
        });
        thread.unwrap_or_default()
    }
}

impl Drop for RingReading {
    fn drop(&mut self) {
        self.stop();
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;
    use weir_model::platform;
    use weir_report::trace::file::{Trace, core};
    use weir_trace::{
        record::Who,
        recorder::{HEADER, TraceRing},
    };
    use weir_units::Bytes;
    use weir_units::Pa;

    const SLOTS: usize = 16;
    const RING: usize = HEADER + SLOTS * SLOT;
    const BASE: u64 = 0x4000_0000;

    /// A machine with rings in its RAM, in pieces that do not follow each other.
    struct Board {
        ram: Arc<Ram>,
        rings: Vec<TraceRing<SLOTS>>,
        all: StaticMemory,
    }

    impl Board {
        fn new() -> Self {
            let ram = Arc::new(
                Ram::new(
                    [platform::RamRange { base: Pa(BASE), size: Bytes(1 << 16) }],
                    Bytes(1 << 16),
                )
                .expect("memory"),
            );
            let rings = (0..MAX_CORES).map(|_| TraceRing::new()).collect();
            let piece = |n: usize| (Pa(BASE + 0x7000 - 0x1000 * (n as u64)), 1000);
            let pieces = (0..).map(piece).take(MAX_CORES * RING / 1000);
            let rest = (Pa(BASE + 0x9000), MAX_CORES * RING % 1000);
            Self { ram, rings, all: StaticMemory::of(pieces.chain([rest]).collect()) }
        }

        fn begin(&self, core: usize) {
            self.rings[core].begin(core, 1_000_000_000, 100);
        }

        fn push(&self, core: usize, time: u64) {
            self.rings[core].push(time, Who::new(0, 0).tag(RecordKind::Poll, core as u32), time, 7);
        }

        /// Puts the rings into RAM, as they are now.
        fn publish(&self) {
            let file = File::from(self.ram.descriptor().try_clone_to_owned().expect("a file"));
            let mut bytes = Vec::new();
            for mut ring in &self.rings {
                let mut image = vec![0; RING];
                assert!(RingMemory::read(&mut ring, 0, &mut image));
                bytes.extend(image);
            }
            let mut at = 0;
            for &(pa, len) in self.all.parts() {
                file.write_all_at(&bytes[at..at + len], pa.0 - BASE).expect("RAM");
                at += len;
            }
            assert_eq!(at, bytes.len());
        }

        fn cores(&self, directory: &Path) -> Vec<Core> {
            let places = Place::each(self.all.clone(), 3).into_iter();
            places.map(|place| Core::new(place, directory).expect("a file")).collect()
        }
    }

    fn reading(cores: Vec<Core>) -> RingReading {
        let over = Arc::new(AtomicBool::new(true));
        let thread = thread::spawn(move || cores);
        RingReading {
            over,
            thread: Some(thread),
            facts: TraceFacts { cores: 3, ..TraceFacts::default() },
        }
    }

    /// The trace's records: core, kind, time.
    fn records(path: &Path) -> (TraceFacts, Vec<(u16, u16, u64)>) {
        let mut trace = Trace::open(path).expect("a trace");
        let mut records = Vec::new();
        while let Some(record) = trace.next_record().expect("a record") {
            records.push((core(&record), record.kind, record.time));
        }
        (trace.facts, records)
    }

    const POLL: u16 = RecordKind::Poll as u16;
    const LOST: u16 = RecordKind::Lost as u16;

    #[test]
    fn records_are_sorted_by_time_and_core() {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Board::new();
        (0..2).for_each(|core| board.begin(core));
        for (core, time) in [(0, 101), (1, 101), (1, 104), (0, 105), (0, 103), (2, 106), (1, 110)] {
            board.push(core, time);
        }
        board.publish();
        let mut cores = board.cores(directory.path());
        let new =
            cores.iter_mut().zip(0..).map(|(core, number)| core.poll(&board.ram, number, LIMIT));
        assert_eq!(new.collect::<Vec<_>>(), [3, 3, 0], "core 2 has not begun");
        let path = directory.path().join("t");
        // 9 ns after the start is 109.
        let traced = reading(cores).finish(Some(9), &path).expect("a trace");
        assert_eq!(traced, Traced { records: 5, lost: 0 });
        let (facts, records) = records(&path);
        assert_eq!((facts.records, facts.frequency, facts.zero), (5, 1_000_000_000, 100));
        assert_eq!(Some(facts.last), records.last().map(|record| record.2));
        let expected =
            [(0, POLL, 101), (1, POLL, 101), (1, POLL, 104), (0, POLL, 105), (0, POLL, 103)];
        assert_eq!(records, expected);
    }

    #[test]
    fn what_was_lost_stands_where_it_is_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Board::new();
        board.begin(1);
        let mut cores = board.cores(directory.path());
        let mut poll = |board: &Board, limit| {
            board.publish();
            cores[1].poll(&board.ram, 1, limit)
        };
        (0..3).for_each(|n| board.push(1, 1000 + n));
        assert_eq!(poll(&board, LIMIT), 3);
        (3..33).for_each(|n| board.push(1, 1000 + n));
        // The last 14 of 30; above the limit nothing more is kept, but it is counted.
        assert_eq!(poll(&board, LIMIT), 30);
        board.push(1, 2000);
        assert_eq!(poll(&board, 3), 1);
        let path = directory.path().join("t");
        let traced = reading(cores).finish(None, &path).expect("a trace");
        assert_eq!(traced, Traced { records: 19, lost: 17 });
        let records = records(&path).1;
        assert_eq!(records[2..5], [(1, POLL, 1002), (1, LOST, 1019), (1, POLL, 1019)]);
        assert_eq!(records[18], (1, LOST, 1032));
        // Nothing else is left in the directory.
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn a_thread_reads_what_comes_and_what_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Board::new();
        (0..3).for_each(|core| board.begin(core));
        let places = Place::each(board.all.clone(), 3);
        let rings = Rings {
            places,
            progress: None,
            facts: TraceFacts { cores: 3, ..TraceFacts::default() },
        };
        let reading = rings.start(Arc::clone(&board.ram), directory.path()).expect("a thread");
        for n in 0..10 {
            (0..3).for_each(|core| board.push(core, 1000 + n));
            board.publish();
        }
        let path = directory.path().join("t");
        let traced = reading.finish(None, &path).expect("a trace");
        assert_eq!(traced, Traced { records: 30, lost: 0 });
        let (_, records) = records(&path);
        assert!(records.is_sorted_by_key(|record| (record.2, record.0)));
    }

    #[test]
    fn a_run_without_hypervisor_start_has_no_trace() {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Board::new();
        board.publish();
        let path = directory.path().join("t");
        let traced = reading(board.cores(directory.path())).finish(None, &path).expect("a trace");
        assert_eq!((traced, records(&path).1), (Traced { records: 0, lost: 0 }, vec![]));
    }

    proptest! {
        /// For any number of polls, the file is the same byte for byte.
        #[test]
        fn two_runs_alike_leave_the_same_bytes(
            pushes in prop::collection::vec((0usize..3, 0u64..4), 0..60),
            polls in [prop::collection::vec(1usize..6, 0..60), prop::collection::vec(1usize..6, 0..60)],
        ) {
            let directory = tempfile::tempdir().expect("a directory");
            let files = polls.map(|polls| {
                let board = Board::new();
                (0..3).for_each(|core| board.begin(core));
                let mut cores = board.cores(directory.path());
                let mut poll = |board: &Board| {
                    board.publish();
                    cores.iter_mut().zip(0..).for_each(|(core, n)| { core.poll(&board.ram, n, LIMIT); });
                };
                let (mut polls, mut time) = (polls.into_iter(), 100);
                let mut wait = polls.next().unwrap_or(5);
                for &(core, later) in &pushes {
                    time += later;
                    board.push(core, time);
                    wait -= 1;
                    if wait == 0 {
                        poll(&board);
                        wait = polls.next().unwrap_or(5);
                    }
                }
                poll(&board);
                let path = directory.path().join("t");
                reading(cores).finish(None, &path).expect("a trace");
                fs::read(path).expect("the trace")
            });
            prop_assert_eq!(&files[0], &files[1]);
        }
    }
}
