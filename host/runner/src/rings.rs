//! Reads the cores' trace rings out of the machine's memory while it runs, and leaves `trace.bin`.
//!
//! The rings are a static of the hypervisor's; nothing that is done here can be noticed by the
//! machine.

use super::{
    kept::{self, KeptRecords, LIMIT, Traced},
    ram::Ram,
    statics::{StaticMemory, Statics},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    mem::offset_of,
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};
use weir_abi::MAX_CORES;
use weir_image::{Environment, Failure, Result, cargo::Programs, failure::Context};
use weir_model::System;
use weir_report::trace::file::TraceFacts;
use weir_trace::{
    reader::{Reader, RingMemory},
    recorder::RingHeader,
};

/// The hypervisor's name for its rings: an array with one for each of [`MAX_CORES`] cores.
const SYMBOL: &str = "weir_trace_rings";

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
        let gic_v2 = system.platform().is_gic_v2();
        let elf = Programs::new(environment, true).hypervisor_in(image);
        let elf = elf.map_err(|failure| failure.text)?;
        let bytes = fs::read(&elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let statics = Statics::new(&bytes, image, gic_v2)
            .map_err(|why| format!("{why} ({})", elf.display()))?;
        let rings =
            statics.find(SYMBOL).ok_or_else(|| format!("{} has no {SYMBOL}", elf.display()))?;
        let places = Place::each(rings, system.machine_cores());
        let facts = kept::facts(system);
        Ok(Self { places, facts })
    }

    /// Returns the offset in `ram` of each ring's number of records.
    ///
    /// # Errors
    /// A ring that is not in RAM.
    pub fn heads(&self, ram: &Ram) -> Result<Vec<u64>> {
        let head = |place: &Place| {
            let pa = place.all.address_at(place.offset + offset_of!(RingHeader, head))?;
            ram.offset(pa, size_of::<u64>() as u64)
        };
        let heads = self.places.iter().map(head).collect::<Option<_>>();
        heads.ok_or_else(|| Failure::environment(format!("{SYMBOL} is not in the machine's RAM")))
    }

    /// Begins to read, on its own thread. What is read waits in files without a name, in
    /// `directory`. The emulated clock stops the machine by `stops`, so that no record is lost.
    pub fn start(self, ram: Arc<Ram>, directory: &Path, stops: UnixStream) -> Result<RingReading> {
        let places = self.places.into_iter().zip(0..);
        let cores = places.map(|(place, core)| Core::new(core, place, directory));
        let cores = cores.collect::<Result<Vec<_>>>()?;
        let kept = stops.try_clone().context(|| "keep a socket")?;
        let thread = thread::Builder::new().name("trace".into());
        let thread = thread.spawn(move || watch(cores, &ram, &stops));
        let thread = thread.context(|| "start a thread")?;
        Ok(RingReading { stops: kept, thread: Some(thread), facts: self.facts })
    }
}

/// What is read of one core.
#[derive(Debug)]
struct Core {
    place: Place,
    reader: Reader,
    kept: KeptRecords,
}

impl Core {
    fn new(core: u8, place: Place, directory: &Path) -> Result<Self> {
        let kept = KeptRecords::new(core, directory)?;
        Ok(Self { reader: Reader::new(place.bytes), place, kept })
    }

    /// Takes the new records; returns their number.
    fn poll(&mut self, ram: &Ram, limit: u64) -> u64 {
        let Self { place, reader, kept } = self;
        reader.take(&mut View { ram, place }, |entry| kept.take(entry, limit))
    }
}

/// Reads while the machine is stopped, until the machine is gone, and once more then.
fn watch(mut cores: Vec<Core>, ram: &Ram, mut stops: &UnixStream) -> Vec<Core> {
    let limit = LIMIT / cores.len().max(1) as u64;
    loop {
        let mut byte = [0];
        let stopped = stops.read_exact(&mut byte);
        for core in &mut cores {
            core.poll(ram, limit);
        }
        if stopped.and_then(|()| stops.write_all(&byte)).is_err() {
            return cores;
        }
    }
}

/// The thread that reads the rings.
#[derive(Debug)]
pub struct RingReading {
    stops: UnixStream,
    thread: Option<JoinHandle<Vec<Core>>>,
    facts: TraceFacts,
}

impl RingReading {
    /// Reads what is left, once the machine has ended, and writes the trace to `path`: up to
    /// `until` nanoseconds after the hypervisor's start, or to the end.
    pub fn finish(mut self, until: Option<u64>, path: &Path) -> Result<Traced> {
        let cores = self.stop();
        let alive = cores.iter().find_map(|core| core.reader.facts());
        let (frequency, zero) = alive.map_or((1, 0), |facts| (facts.frequency, facts.zero));
        let facts = TraceFacts { frequency, zero, ..std::mem::take(&mut self.facts) };
        kept::write(cores.into_iter().map(|core| core.kept).collect(), facts, until, path)
    }

    fn stop(&mut self) -> Vec<Core> {
        // Fails only if the machine has closed its end, which ends the thread, too.
        let _ = self.stops.shutdown(Shutdown::Both);
        self.thread.take().map(|thread| thread.join().unwrap_or_default()).unwrap_or_default()
    }
}

impl Drop for RingReading {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use weir_model::platform;
    use weir_report::trace::file::{Trace, core};
    use weir_trace::{
        record::{Origin, RecordKind},
        recorder::{HEADER, SLOT, TraceRing},
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
            self.rings[core].push(
                time,
                Origin::new(0, 0).tag(RecordKind::Draw, core as u32),
                time,
                7,
            );
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
            let places = Place::each(self.all.clone(), 3).into_iter().zip(0..);
            places.map(|(place, core)| Core::new(core, place, directory).expect("a file")).collect()
        }
    }

    fn reading(cores: Vec<Core>) -> RingReading {
        let (stops, _) = UnixStream::pair().expect("a socket");
        let thread = thread::spawn(move || cores);
        RingReading {
            stops,
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

    const DRAW: u16 = RecordKind::Draw as u16;
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
        let new = cores.iter_mut().map(|core| core.poll(&board.ram, LIMIT));
        assert_eq!(new.collect::<Vec<_>>(), [3, 3, 0], "core 2 has not begun");
        let path = directory.path().join("t");
        // 9 ns after the start is 109.
        let traced = reading(cores).finish(Some(9), &path).expect("a trace");
        assert_eq!(traced, Traced { records: 5, lost: 0 });
        let (facts, records) = records(&path);
        assert_eq!((facts.records, facts.frequency, facts.zero), (5, 1_000_000_000, 100));
        assert_eq!(Some(facts.last), records.last().map(|record| record.2));
        let expected =
            [(0, DRAW, 101), (1, DRAW, 101), (1, DRAW, 104), (0, DRAW, 105), (0, DRAW, 103)];
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
            cores[1].poll(&board.ram, limit)
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
        assert_eq!(records[2..5], [(1, DRAW, 1002), (1, LOST, 1019), (1, DRAW, 1019)]);
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
        let rings = Rings { places, facts: TraceFacts { cores: 3, ..TraceFacts::default() } };
        let (mut machine, stops) = UnixStream::pair().expect("a socket");
        let reading =
            rings.start(Arc::clone(&board.ram), directory.path(), stops).expect("a thread");
        for n in 0..10 {
            (0..3).for_each(|core| board.push(core, 1000 + n));
            board.publish();
            if n < 8 {
                // The machine stands still until the thread has read.
                machine.write_all(&[0]).expect("a reader");
                machine.read_exact(&mut [0]).expect("a reader");
            }
        }
        let path = directory.path().join("t");
        let traced = reading.finish(None, &path).expect("a trace");
        assert_eq!(traced, Traced { records: 30, lost: 0 });
        let (_, records) = records(&path);
        assert!(records.is_sorted_by_key(|record| (record.2, record.0)));
    }

    #[test]
    fn the_machine_finds_the_number_of_records() {
        let board = Board::new();
        board.begin(1);
        (0..5).for_each(|n| board.push(1, 1000 + n));
        board.publish();
        let places = Place::each(board.all.clone(), 2);
        let rings = Rings { places, facts: TraceFacts::default() };
        let file = File::from(board.ram.descriptor().try_clone_to_owned().expect("a file"));
        let numbers = rings.heads(&board.ram).expect("rings in RAM").into_iter().map(|offset| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, offset).expect("RAM");
            u64::from_le_bytes(word)
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 5]);
        let gone = StaticMemory::of(vec![(Pa(BASE - 0x1000), MAX_CORES * RING)]);
        let rings = Rings { places: Place::each(gone, 1), facts: TraceFacts::default() };
        assert!(rings.heads(&board.ram).is_err());
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
            polls in
                [prop::collection::vec(1usize..6, 0..60), prop::collection::vec(1usize..6, 0..60)],
        ) {
            let directory = tempfile::tempdir().expect("a directory");
            let files = polls.map(|polls| {
                let board = Board::new();
                (0..3).for_each(|core| board.begin(core));
                let mut cores = board.cores(directory.path());
                let mut poll = |board: &Board| {
                    board.publish();
                    for core in &mut cores {
                        core.poll(&board.ram, LIMIT);
                    }
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
