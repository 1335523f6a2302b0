//! `weir bench board` and `weir calibrate` with `--serial`: what they write into a board file. The
//! board behind the pseudo-terminal is QEMU, or recorded frames.

use crate::{
    serial::{Qemu, VIRT, line, write_all},
    support::{Printed, SyntheticWire, capture, capture_within, qemu::root},
};
use serialport::TTYPort;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, SystemTime},
};
use toml_edit::{DocumentMut, Item};
use weir_model::platform::Platform;
use weir_trace::{
    record::{Record, RecordKind},
    wire::{DLE, FrameKind, TRACE, TRACE_RECORDS, TraceRecords, What, frame},
};
use weir_units::{BytesPerSec, Events, Nanos};

/// Limit on a series of runs.
const LIMIT: Duration = Duration::from_secs(300);

/// A folder with a copy of a board file, `change`d.
struct Copied {
    directory: tempfile::TempDir,
    before: String,
}

impl Copied {
    fn new(board: &str, change: impl Fn(String) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = root().join("boards").join(board);
        for file in fs::read_dir(&folder).expect("a board").flatten() {
            fs::copy(file.path(), directory.path().join(file.file_name())).expect("a copy");
        }
        let before = change(fs::read_to_string(folder.join("board.toml")).expect("a board file"));
        fs::write(directory.path().join("board.toml"), &before).expect("a board file");
        Self { directory, before }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn after(&self) -> String {
        fs::read_to_string(self.path("board.toml")).expect("a board file")
    }

    /// `weir` on a board at `name` that [`play`] plays, with `board.toml` as its output.
    fn weir(&self, arguments: &[&str], name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.current_dir(self.directory.path()).args(arguments).args(["-o", "board.toml"]);
        command.env("WEIR_ROOT", root()).env("WEIR_RUNS", self.path("runs"));
        // The board takes the file `image` away.
        let load = "cp \"${WEIR_IMAGE%/*}/system.toml\" system.toml && cp \"$WEIR_IMAGE\" part && \
                    mv part image && while [ -e image ]; do sleep 0.02; done";
        command.args(["--serial", name, "--load", load]);
        command
    }

    /// Runs `command`. Calls `load` with each image that it loads on the board, and passes what it
    /// sends to the writer that `load` returned last.
    fn play<W: Write>(
        &self,
        mut command: Command,
        line: &mut TTYPort,
        mut load: impl FnMut(&Path, &mut TTYPort) -> W,
    ) -> Printed {
        let (image, taken) = (self.path("image"), self.path("taken"));
        thread::scope(|scope| {
            let weir = scope.spawn(|| capture_within(&mut command, LIMIT));
            let (mut board, mut buffer) = (None, [0; 64]);
            while !weir.is_finished() {
                if image.exists() {
                    fs::rename(&image, &taken).expect("an image");
                    // The board of before must not answer any more.
                    drop(board.take());
                    board = Some(load(&taken, line));
                }
                match (line.read(&mut buffer), &mut board) {
                    // A board that is off takes nothing.
                    (Ok(count), Some(board)) => drop(board.write_all(&buffer[..count])),
                    (Err(error), _) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
                    _ => {}
                }
            }
            weir.join().expect("no panic")
        })
    }
}

/// Today, as the commands write it.
fn day() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().expect("a day").to_owned()
}

fn text<'a>(item: &'a Item, key: &str) -> &'a str {
    item[key].as_str().unwrap_or_else(|| panic!("{key}: {item}"))
}

/// A board with instructions as time, so that pauses of the host are in no step. A tick of its
/// counter is 1 us, so that a record holds 65 ms: QEMU's UART is never full, and the trace takes
/// the broker's core for milliseconds.
const COUNTED: [&str; 6] =
    ["-cpu", "cortex-a53,cntfrq=1000000", "-smp", "8", "-icount", "shift=0,sleep=off"];

#[test]
fn a_boards_overheads_go_to_its_file() {
    // A step of boards with a DMA engine, which this one does not have.
    let copied = Copied::new("qemu-virt-gicv2", |text| {
        text.replacen("\nwake = ", "\nip = { min = 1, max = 2 }\nwake = ", 1)
    });
    let (mut line, name, _host) = line();
    let first_day = day();
    let arguments = ["bench", "board", "--platform", "qemu-virt-gicv2"];
    let machine = [&VIRT[..], &COUNTED].concat();
    let printed = copied.play(copied.weir(&arguments, &name), &mut line, |image, line| {
        let mut qemu = Qemu::new(&machine, image, line);
        // Its systems can end before weir asks for the trace, 100 ms of the host's after the start.
        qemu.write_all(&[DLE, TRACE]).and_then(|()| qemu.flush()).expect("QEMU runs");
        qemu
    });
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    let taken_out = "taken out, because this does not measure them: overheads.ip\n";
    assert!(printed.err.contains(taken_out), "{}", printed.err);
    let switch = " by the trace, and 200ns for entry and exit of the exception";
    assert!(printed.out.contains(switch), "{}", printed.out);

    let [before, after] = [&copied.before, &copied.after()].map(|text| {
        let document: DocumentMut = text.parse().expect("TOML");
        document
    });
    let origin = &after["overheads"]["origin"];
    let command = format!("weir bench board --platform qemu-virt-gicv2 --serial {name}:115200");
    assert_eq!(text(origin, "command"), command);
    assert!([first_day, day()].contains(&text(origin, "date").to_owned()), "{origin}");
    assert_eq!(text(origin, "machine"), format!("board at {name} at 115200 Bd"));
    assert_ne!(text(origin, "build"), "");
    let keys = |document: &DocumentMut| {
        let table = document["overheads"].as_table().expect("a table");
        table.iter().map(|(key, _)| key.to_owned()).filter(|key| key != "ip").collect::<Vec<_>>()
    };
    assert_eq!(keys(&after), keys(&before), "no other key goes, and none comes");
    // What the command does not measure of this board stays, comments included.
    for kept in ["interference", "cache", "qemu"] {
        assert_eq!(after[kept].to_string(), before[kept].to_string());
    }
    for kept in ["interrupt", "entry"] {
        assert_eq!(text(&after["sharing"], kept), text(&before["sharing"], kept));
    }
    let sharing = text(&after["sharing"], "source");
    assert!(sharing.starts_with(&format!("measured: {command}, ")), "{sharing}");
    assert!(sharing.contains("; `interrupt`, `entry` as before: "), "{sharing}");
    let head = copied.before.split("\n[sharing]").next().expect("a head");
    assert!(copied.after().starts_with(head));
    assert!(copied.after().contains("\n# Measured by weir on 260 packets, in ns (of the board's"));

    let board = Platform::load(&copied.path("board.toml")).expect("a board file");
    assert_eq!(board.name, "qemu-virt-gicv2");
    let sharing = board.sharing.expect("[sharing]");
    assert!(sharing.least_switch <= sharing.switch, "{sharing:?}");
    let overheads = &after["overheads"];
    let of = |step: &str, key: &str| {
        overheads[step][key].as_integer().unwrap_or_else(|| panic!("{step} {key}: {overheads}"))
    };
    for step in ["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "wake", "copy"] {
        assert!(of(step, "min") <= of(step, "max"), "{step}: {overheads}");
    }
    // Parsing a packet, or choosing the next one, contains several times the program of a copy.
    assert!(of("pp", "max") >= of("pd", "min") && of("ps", "max") >= of("pd", "min"));
    let size = |key: &str| (of("larger", key), overheads[key].as_integer());
    assert_eq!((size("flows"), size("vms")), ((12, Some(2)), (4, Some(3))));
}

/// What a board with this memory writes on its line: each core takes at most 300 lines of 64 bytes
/// in a microsecond, and all of them together 500.
fn memory(image: &Path, system: &Path) -> SyntheticWire {
    /// Periods of a run.
    const PERIODS: u64 = 20;
    let id = weir_abi::image_id(&fs::read(image).expect("an image")).expect("an identity");
    let system = fs::read_to_string(system).expect("the system that runs");
    let system: DocumentMut = system.parse().expect("TOML");
    let vms = system["vm"].as_array_of_tables().expect("VMs");
    let budget = &vms.get(0).expect("a VM")["memory_budget"];
    assert_eq!(text(budget, "source"), "pmu", "{budget}");
    let budgeted = budget["accesses"].as_integer().and_then(|lines| u64::try_from(lines).ok());
    let budgeted = budgeted.expect("a budget");
    let period = humantime::parse_duration(text(budget, "period")).expect("a period");
    let micros = u64::try_from(period.as_micros()).expect("a short period");
    let most = micros * if vms.len() == 1 { 300 } else { 250 };
    // The interrupt of the PMU comes 40 lines late; in short periods it takes a tenth of them.
    let late = if micros < 50 { budgeted / 10 } else { 40 };
    let throttled = budgeted < most;
    let used = if throttled { budgeted + late } else { most };

    let mut wire = SyntheticWire::default().system_event(5, What::SystemStart, id);
    for vm in vms {
        let core = vm["cpus"][0].as_integer().and_then(|core| u8::try_from(core).ok());
        let record = |kind: RecordKind, time, count| Record {
            time,
            kind: kind as u16,
            count,
            ..Record::default()
        };
        let period = |number: u64| {
            let replenish = record(RecordKind::Replenish, number * micros, used);
            let throttle = record(RecordKind::Throttle, number * micros + 1, used);
            [Some(replenish), throttled.then_some(throttle)].into_iter().flatten()
        };
        let records: Vec<_> = (0..=PERIODS).flat_map(period).collect();
        for (place, some) in records.chunks(TRACE_RECORDS).enumerate() {
            let first = place * TRACE_RECORDS;
            let mut frames = TraceRecords {
                core: core.expect("a core"),
                count: u8::try_from(some.len()).expect("a few"),
                first: first as u64,
                frequency: 1_000_000,
                ..TraceRecords::default()
            };
            for ((number, record), room) in (first..).zip(some).zip(&mut frames.records) {
                *room = record.with_sequence(number as u16);
            }
            let mut bytes = Vec::new();
            frame(FrameKind::Trace, &frames, |part| bytes.extend_from_slice(part));
            wire = wire.garbage(&bytes);
        }
    }
    wire.system_event(PERIODS * micros * 1000, What::SystemStop, id)
}

/// A system to calibrate for.
const STRESSED: &str = "platform = \"zcu102\"\n\
    [[vm]]\nname = \"one\"\ncpus = [0]\nmemory = \"8MiB\"\nimage = { elf = \"memory-stressor\" }\n\
    [[vm]]\nname = \"two\"\ncpus = [1]\nmemory = \"8MiB\"\nimage = { elf = \"memory-stressor\" }\n";

/// The calls of `weir calibrate` in these tests.
const CALIBRATE: [&str; 4] = ["calibrate", "stressed.toml", "--platform", "zcu102"];

/// QEMU's PMU counts no refills, so that frames play this board.
#[test]
fn a_boards_saturation_goes_to_its_file() {
    let copied = Copied::new("zcu102", |text| text);
    fs::write(copied.path("stressed.toml"), STRESSED).expect("a system file");
    let (mut line, name, _host) = line();
    let first_day = day();
    let mut runs = 0;
    let printed = copied.play(copied.weir(&CALIBRATE, &name), &mut line, |image, line| {
        runs += 1;
        let wire = memory(image, &copied.path("system.toml"));
        write_all(line, wire.bytes()).expect("the line takes it");
        std::io::sink()
    });
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    // One core, both, four periods from the board's shortest on, and budgets from 16 to 8192.
    assert_eq!(runs, 2 + 4 + 10);
    let alone = "one core alone moves 30000 lines in 100us, cores [0, 1] together 50000\n";
    assert!(printed.out.contains(alone), "{}", printed.out);

    let board = Platform::load(&copied.path("board.toml")).expect("a board file");
    let known = board.saturation.expect("[saturation]");
    assert_eq!((known.period, known.line.0), (Nanos(100_000), 64));
    assert_eq!(known.points, [(50_000, BytesPerSec(0))]);
    // 40 lines are 5 % of 800, and a tenth is too much.
    assert_eq!((known.min_accesses, known.min_period), (1024, Nanos(50_000)));
    assert_eq!(known.overshoot, Some(Events(450)), "a tenth of 4500");
    let source = known.source.expect("a source");
    let whole = |day: &str| {
        format!(
            "measured: weir calibrate stressed.toml --platform zcu102, board at {name} at 115200 \
             Bd, {day}; `qos_block`, `qos_clock`, `chunks` as before: paper: rt-virtio, Table I \
             and section V-A"
        )
    };
    assert!([whole(&first_day), whole(&day())].contains(&source), "{source}");
    let head = copied.before.split("\n[saturation]").next().expect("a head");
    let tail = copied.before.split("\n# Derived: ").nth(1).expect("a tail");
    let head = head.rsplit_once("\n\n").expect("a comment").0;
    assert!(copied.after().starts_with(head) && copied.after().ends_with(tail));
}

#[test]
fn a_board_that_counts_no_refills_keeps_its_file() {
    let copied = Copied::new("zcu102", |text| text);
    fs::write(copied.path("stressed.toml"), STRESSED).expect("a system file");
    let (mut line, name, _host) = line();
    let machine = "-machine xlnx-zcu102,virtualization=on -smp 4 -m 2G -audiodev none,id=none";
    let machine: Vec<_> = machine.split(' ').collect();
    let printed = copied.play(copied.weir(&CALIBRATE, &name), &mut line, |image, line| {
        Qemu::new(&machine, image, line)
    });
    assert_eq!(printed.status, Some(3), "{}{}", printed.out, printed.err);
    let why = "the board said: weir: the PMU of core 0 does not count event 0x17";
    assert!(printed.err.contains(why), "{}", printed.err);
    assert_eq!(copied.after(), copied.before);

    // Without a line QEMU's model of a cache would count, which is not the board's.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(copied.path("")).env("WEIR_ROOT", root());
    let printed = capture(command.args(CALIBRATE).args(["-o", "board.toml"]));
    assert_eq!(printed.status, Some(2), "{}{}", printed.out, printed.err);
    let why = "[saturation] of a board file is the board's";
    assert!(printed.err.contains(why), "{}", printed.err);
    assert_eq!(copied.after(), copied.before);
}
