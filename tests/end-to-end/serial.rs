//! `weir run --serial`: a board behind a pseudo-terminal, played by recorded frames and by QEMU.

use crate::support::{
    Fake, Printed, SYSTEM, Signal, SyntheticWire, capture, eventually, finish,
    qemu::{Options, Outcome, build_image, run_system},
    signal,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use serialport::{SerialPort, TTYPort};
use std::{
    fs,
    io::{self, Read, Write},
    ops::Range,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use weir_abi::{PackedHeader, PackedTables};
use weir_trace::wire::{DLE, FOCUS, PADDING, What};
use zerocopy::FromZeros;

/// A pseudo-terminal: the board's end, and the name of the other.
pub fn line() -> (TTYPort, String, TTYPort) {
    let (board, host) = TTYPort::pair().expect("a pseudo-terminal");
    let name = host.name().expect("a name");
    (board, name, host)
}

/// The identity of the fake's image.
const IMAGE: u64 = 0x77c0;

/// A checkout with an image that names itself [`IMAGE`].
fn fake() -> Fake {
    let fake = Fake::new(SYSTEM, "exit 1");
    let header = PackedHeader { image_id: IMAGE, ..PackedHeader::new_zeroed() };
    fake.write("image", &PackedTables::default().pack(header));
    fake
}

/// `weir run` of the fake's system on the board at `line`.
fn run_on(fake: &Fake, line: &str) -> Command {
    fake.run(&["--serial", line])
}

/// Runs `weir run --serial`, to which the board sends `bytes`.
fn run_with(bytes: &[u8], arguments: &[&str]) -> (Fake, Printed) {
    let fake = fake();
    let (mut board, name, _host) = line();
    let mut command = run_on(&fake, &name);
    command.args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir");
    // weir asks a board for its state first.
    let mut asked = [0; 3];
    assert!(eventually(|| board.read_exact(&mut asked).is_ok()), "nothing was asked");
    assert_eq!(&asked, b"\x1e\x10r");
    board.write_all(bytes).expect("the line takes it");
    (fake, finish(child))
}

fn start(time_ns: u64) -> SyntheticWire {
    let banner = SyntheticWire::default().text("weir on 3 cores\r\n");
    banner.system_event(time_ns, What::SystemStart, IMAGE)
}

#[test]
fn a_board_meets_expectations() {
    let wire = start(5).line(7_000, 1, "two begins\r").line(9_000, 0, "all is well\r");
    let (fake, printed) = run_with(wire.bytes(), &[]);
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    assert!(printed.out.contains("one  | all is well\n"), "{}", printed.out);
    let report = fake.report();
    assert_eq!((&report["ended_by"], &report["clock"]), (&"all-met".into(), &"board".into()));
    assert!(!fake.runs()[0].join("qemu.log").exists());
}

#[test]
fn a_reset_of_the_board_starts_the_counts_again() {
    let before = start(5).line(7_000, 1, "two begins\r").mark(8_000, 0).text("all is");
    // Cut in the middle of a frame; then the boot loader prints.
    let before = &before.bytes()[..before.bytes().len() - 1];
    let after = start(4).line(6_000, 0, "all is well\r");
    let noise = b"\x10\r\nU-Boot 2025.01 (ZynqMP)\r\n=> booti\r\n";
    let (fake, printed) = run_with(&[before, noise, after.bytes()].concat(), &[]);
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    assert!(printed.out.contains("the board was reset 1 times"), "{}", printed.out);
    let report = fake.report();
    assert_eq!(report["board_resets"], 1);
    assert_eq!(report["vms"][1]["console"]["lines"], 0, "counted from the last start");
    assert!(report["time_ns"].as_u64() < Some(7_000), "{}", report["time_ns"]);
}

#[test]
fn a_silent_line_is_explained() {
    let (_fake, printed) = run_with(b"", &["--for", "1s"]);
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.contains("nothing came from /dev/pts/"), "{}", printed.err);
}

#[test]
fn a_board_that_already_runs_is_joined() {
    let wire = SyntheticWire::default().system_event(8_000, What::SystemRuns, IMAGE);
    let wire = wire.counters(9_000, 0, 0, 4).line(9_500, 0, "all is well\r");
    let (fake, printed) = run_with(wire.bytes(), &[]);
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    assert_eq!(fake.report()["started"], true);
}

#[test]
fn a_board_with_another_image_is_not_judged() {
    let other = |what| SyntheticWire::default().system_event(5, what, 0x1f3a);
    let wrong = "runs another image (0000000000001f3a): expected 00000000000077c0 of image\n";
    // At its start, when it is joined, and after a reset.
    let after_a_reset = [start(9).bytes(), other(What::SystemStart).bytes()].concat();
    for wire in [
        other(What::SystemStart).line(9, 0, "all is well\r").bytes(),
        other(What::SystemRuns).bytes(),
        &after_a_reset,
    ] {
        let (fake, printed) = run_with(wire, &[]);
        assert_eq!(printed.status, Some(3), "{}{}", printed.out, printed.err);
        assert!(printed.err.contains(wrong), "{}", printed.err);
        assert!(printed.err.contains("load image, then reset the board"), "{}", printed.err);
        assert!(!fake.runs()[0].join("report.json").exists());
    }
}

#[test]
fn a_board_that_names_no_image_is_asked_again() {
    let fake = fake();
    let (mut board, name, _host) = line();
    let child = run_on(&fake, &name).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("weir");
    let mut asked = [0; 3];
    let mut is_asked = |board: &mut TTYPort| eventually(|| board.read_exact(&mut asked).is_ok());
    assert!(is_asked(&mut board), "nothing was asked");
    // The record of the start was lost.
    board.write_all(SyntheticWire::default().line(7, 0, "hello\r").bytes()).expect("it is taken");
    assert!(is_asked(&mut board), "it was not asked again");
    board.write_all(SyntheticWire::default().line(8, 0, "all is well\r").bytes()).expect("taken");
    assert!(is_asked(&mut board), "it was not asked at the end");
    let printed = finish(child);
    assert_eq!(printed.status, Some(3), "{}", printed.out);
    assert!(printed.err.contains("did not name the image that it runs"), "{}", printed.err);
}

#[test]
fn a_command_of_the_user_loads_the_image() {
    let fake = fake();
    let (mut board, name, _host) = line();
    let loaded = fake.path("loaded");
    let mut command = run_on(&fake, &name);
    let copy =
        format!("cp \"$WEIR_IMAGE\" {0}.part && mv {0}.part {0}; echo busy", loaded.display());
    let child = command.args(["--load", &copy]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("weir");
    assert!(eventually(|| loaded.exists()), "nothing was loaded");
    board.write_all(start(5).line(9_000, 0, "all is well\r").bytes()).expect("the line takes it");
    let printed = finish(child);
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    assert!(printed.err.contains("busy") && !printed.out.contains("busy"), "{}", printed.err);
    let image = |file: &Path| fs::read(file).expect("an image");
    assert_eq!(image(&loaded), image(&fake.path("image")));
    assert!(!fake.runs()[0].join("system.img").exists());
}

#[test]
fn a_command_that_loads_nothing_ends_the_run() {
    let fake = fake();
    let (_board, name, _host) = line();
    let printed = capture(run_on(&fake, &name).args(["--load", "exit 4"]));
    assert_eq!(printed.status, Some(3), "{}", printed.out);
    let why = "the command that loads the image ended with exit status: 4: exit 4";
    assert!(printed.err.contains(why), "{}", printed.err);
    let printed = capture(fake.run(&[]).args(["--load", "true"]));
    assert_eq!(printed.status, Some(2), "without a line");
    let printed = capture(run_on(&fake, &name).args(["--load", ""]));
    assert_eq!(printed.status, Some(2), "without a command");
}

/// A hypervisor that refuses its image names none.
#[test]
fn a_refusal_of_the_loaded_image_ends_the_run() {
    let fake = fake();
    let (mut board, name, _host) = line();
    let loaded = fake.path("loaded");
    let load = format!("touch {}", loaded.display());
    let mut command = run_on(&fake, &name);
    command.args(["--load", &load]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("weir");
    assert!(eventually(|| loaded.exists()), "nothing was loaded");
    let refusal = "weir: refuses its image: it is damaged";
    let wire = SyntheticWire::default().text("U-Boot\r\n").text(refusal);
    board.write_all(wire.bytes()).expect("the line takes it");
    let printed = finish(child);
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(printed.err.contains("did not name the image that was loaded"), "{}", printed.err);
    assert!(printed.err.contains(&format!("the board said: {refusal}")), "{}", printed.err);
}

#[test]
fn a_closed_line_is_the_environments_fault() {
    let fake = fake();
    // Not in the hands of the process that is to see its end.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let board = openpt(flags).expect("a pseudo-terminal");
    grantpt(&board).and_then(|()| unlockpt(&board)).expect("the other end");
    let name = ptsname(&board, Vec::new()).expect("a name").into_string().expect("a path");
    let mut board = fs::File::from(board);
    let mut command = run_on(&fake, &name);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir");
    let mut asked = [0; 3];
    assert!(eventually(|| board.read_exact(&mut asked).is_ok()), "nothing was asked");
    drop(board);
    let printed = finish(child);
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("is the adapter still connected?"), "{}", printed.err);
}

#[test]
fn a_missing_line_is_named() {
    let fake = fake();
    let printed = capture(&mut run_on(&fake, "/dev/no-such-line"));
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("cannot open /dev/no-such-line at 115200 Bd"), "{}", printed.err);
    let printed = capture(run_on(&fake, "/dev/ttyUSB0:fast").arg("--input"));
    assert_eq!(printed.status, Some(2));
}

#[test]
fn ctrl_c_asks_a_board_for_its_counters() {
    let fake = fake();
    let (mut board, name, _host) = line();
    let mut command = run_on(&fake, &name);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir");
    let mut asked = [0; 3];
    assert!(eventually(|| board.read_exact(&mut asked).is_ok()));
    board.write_all(start(5).bytes()).expect("the line takes it");
    assert!(eventually(|| fake
        .runs()
        .iter()
        .any(|run| { fs::read(run.join("hypervisor.log")).is_ok_and(|log| !log.is_empty()) })));
    signal(&child, Signal::INT);
    assert!(eventually(|| board.read_exact(&mut asked).is_ok()), "it did not ask again");
    let counters = SyntheticWire::default().counters(9_000, 0, 0, 7).counters(9_000, 1, 0, 8);
    board.write_all(counters.counters(9_000, 1, 1, 9).bytes()).expect("the line takes it");
    assert_eq!(finish(child).status, Some(130));
    assert_eq!(fake.report()["vms"][1]["exits"]["hypercall"], 17);
}

/// A guest that prints 400 lines of letters slowly, prints `>`, then sends back what it receives by
/// its PL011.
const LETTERS_THEN_ECHO: [u32; 21] = [
    0xd2a1_2000, // mov x0, #0x9000000
    0x5280_3203, // mov w3, #400
    0x5280_0c22, // 1: mov w2, #'a'
    0xb900_0002, // 2: str w2, [x0]
    0x1100_0442, // add w2, w2, #1
    0x7101_e85f, // cmp w2, #'z'
    0x54ff_ffa1, // b.ne 2b
    0x5280_0142, // mov w2, #'\n'
    0xb900_0002, // str w2, [x0]
    0x52a0_0084, // mov w4, #0x40000
    0x7100_0484, // 3: subs w4, w4, #1
    0x54ff_ffe1, // b.ne 3b
    0x7100_0463, // subs w3, w3, #1
    0x54ff_fea1, // b.ne 1b
    0x5280_07c2, // mov w2, #'>'
    0xb900_0002, // str w2, [x0]
    0xb940_1801, // 4: ldr w1, [x0, #0x18]
    0x3727_ffe1, // tbnz w1, #4, 4b
    0xb940_0002, // ldr w2, [x0]
    0xb900_0002, // str w2, [x0]
    0x17ff_fffc, // b 4b
];

/// QEMU's machine for `qemu-virt-gicv2`.
pub const VIRT: [&str; 4] = ["-machine", "virt,virtualization=on,gic-version=2", "-m", "2G"];

/// A board: QEMU, with a UART that writes to a line. What is written to this is input of the UART.
pub struct Qemu {
    process: Child,
    output: JoinHandle<()>,
}

impl Qemu {
    /// Starts a machine with this image; its output passes through `noise`.
    fn with_noise(machine: &[&str], image: &Path, line: &TTYPort, noise: Noise) -> Self {
        let mut qemu = Command::new("qemu-system-aarch64");
        qemu.args(machine).args(["-display", "none", "-monitor", "none", "-nodefaults"]);
        qemu.args(["-serial", "stdio", "-kernel"]).arg(image);
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut qemu = qemu.spawn().expect("QEMU");
        let (out, line) = (qemu.stdout.take(), line.try_clone_native());
        let (out, line) = (out.expect("a pipe"), line.expect("a copy"));
        let output = thread::spawn(move || to_host(out, line, &noise));
        Self { process: qemu, output }
    }

    /// The same without noise.
    pub fn new(machine: &[&str], image: &Path, line: &TTYPort) -> Self {
        Self::with_noise(machine, image, line, QUIET)
    }
}

impl Write for Qemu {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.process.stdin.as_mut().expect("a pipe").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.process.stdin.as_mut().expect("a pipe").flush()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The next board must not begin within what this one sent. After the last run nothing
        // reads the line.
        let until = Instant::now() + Duration::from_secs(2);
        while !self.output.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a line does to bytes that one side sends.
#[derive(Clone, Debug)]
struct Noise {
    /// The positions in the stream at which it is noisy.
    at: Range<usize>,
    /// There each byte at a position divisible by this is lost,
    lost: usize,
    /// and of the others each by this is changed.
    changed: usize,
    /// A byte that becomes [`DLE`] at any position.
    escape: Option<u8>,
}

const QUIET: Noise = Noise { at: 0..0, lost: 1, changed: 1, escape: None };
/// Noise in what the board sends.
const NOISY_OUTPUT: Noise = Noise { at: 2_000..9_000, lost: 97, changed: 131, escape: None };

impl Noise {
    /// Returns what comes out of `bytes`, the first of which is at `position`.
    fn through(&self, position: usize, bytes: &[u8]) -> Vec<u8> {
        let pass = |(position, &byte): (usize, &u8)| match position {
            _ if self.escape == Some(byte) => Some(DLE),
            _ if !self.at.contains(&position) => Some(byte),
            _ if position.is_multiple_of(self.lost) => None,
            _ if position.is_multiple_of(self.changed) => Some(byte ^ 0x11),
            _ => Some(byte),
        };
        (position..).zip(bytes).filter_map(pass).collect()
    }
}

/// Passes on what the board sends.
fn to_host(mut board: impl Read, mut line: TTYPort, noise: &Noise) {
    let (mut position, mut buffer) = (1, [0; 1024]);
    while let Ok(count @ 1..) = board.read(&mut buffer) {
        let passed = noise.through(position, &buffer[..count]);
        position += count;
        if write_all(&mut line, &passed).is_err() {
            return;
        }
    }
}

/// Writes to a pseudo-terminal; its buffer can be full for a while.
pub fn write_all(line: &mut TTYPort, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match line.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes on what the host sends, and adds to `passed` what the board gets. A VM has room for 256
/// bytes of input: a line as slow as this leaves it the time to take them.
fn to_board(mut line: TTYPort, mut board: impl Write, noise: &Noise, passed: &Mutex<Vec<u8>>) {
    let (mut position, mut buffer) = (1, [0; 8]);
    loop {
        match line.read(&mut buffer) {
            Ok(count) => {
                let some = noise.through(position, &buffer[..count]);
                position += count;
                passed.lock().expect("no panic").extend_from_slice(&some);
                if board.write_all(&some).and_then(|()| board.flush()).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(_) => return,
        }
    }
}

/// Runs the system of this text on a board that runs `image`, by a line with this noise to the host
/// and to the board. Returns the bytes that the board got, too.
fn with_board(
    text: &str,
    image: &Path,
    [to_the_host, to_the_board]: [Noise; 2],
    options: &Options,
) -> (Outcome, Vec<u8>) {
    let (near, name, _host) = line();
    let machine = [&VIRT[..], &["-cpu", "cortex-a53", "-smp", "4"]].concat();
    let mut qemu = Qemu::with_noise(&machine, image, &near, to_the_host);
    let into = qemu.process.stdin.take().expect("a pipe");
    let passed = Arc::new(Mutex::new(Vec::new()));
    let passing = Arc::clone(&passed);
    thread::spawn(move || to_board(near, into, &to_the_board, &passing));
    let options = Options {
        arguments: &[&["--serial", &name, "--for", "120s"], options.arguments].concat(),
        limit: Duration::from_secs(180),
        ..options.clone()
    };
    let outcome = run_system(text, &options);
    drop(qemu);
    let passed = passed.lock().expect("no panic").clone();
    (outcome, passed)
}

/// Writes a guest with this code into `directory`. Returns the text of a system of it.
fn system_of(code: &[u32], directory: &Path) -> String {
    let guest = directory.join("letters.bin");
    let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(&guest, code).expect("a guest");
    format!(
        "platform = \"qemu-virt-gicv2\"\n[[vm]]\nname = \"keys\"\ncpus = [0]\nmemory = \"4MiB\"\n\
         image = {{ bin = {:?}, load = 0x4010_0000 }}\nexpect = [\"sent back by the guest\"]\n",
        guest.to_str().expect("a path")
    )
}

#[test]
fn an_old_image_on_the_board_is_not_judged() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = system_of(&LETTERS_THEN_ECHO, directory.path());
    let image = directory.path().join("letters.img");
    build_image(&text, &image);
    // The guest is changed, and the board still has the image of before.
    let mut code = LETTERS_THEN_ECHO;
    code[1] = 0x5280_0c83; // mov w3, #100
    system_of(&code, directory.path());
    let noise = [NOISY_OUTPUT, QUIET];
    let (outcome, _) = with_board(&text, &image, noise, &Options::default());
    let Printed { status, out, err } = &outcome.printed;
    assert_eq!(*status, Some(3), "{out}{err}");
    let before = image_of(&image);
    build_image(&text, &image);
    let after = image_of(&image);
    assert!(err.contains(&format!(" runs another image ({before:016x}): ")), "{err}");
    assert!(err.contains(&format!(": expected {after:016x} of ")), "{err}");
}

fn image_of(file: &Path) -> u64 {
    weir_abi::image_id(&fs::read(file).expect("an image")).expect("an identity")
}

#[test]
fn a_noisy_line_is_read_and_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = system_of(&LETTERS_THEN_ECHO, directory.path());
    let image = directory.path().join("letters.img");
    build_image(&text, &image);
    let typed = Some(("keys", ">", "sent back by the guest\n"));
    let options = Options { typed, ..Options::default() };
    let (outcome, _) = with_board(&text, &image, [NOISY_OUTPUT, QUIET], &options);
    let outcome = outcome.good();
    let totals = &outcome.report["totals"];
    assert!(totals["damaged_frames"].as_u64() > Some(10), "{totals}");
    assert_eq!(totals["met"], 1);
    assert_eq!(outcome.report["clock"], "board");
    let lines = outcome.lines("keys");
    let whole = lines.iter().filter(|&&line| line == "abcdefghijklmnopqrstuvwxy").count();
    assert!((150..400).contains(&whole), "{whole} lines are whole");
}

/// Noise in what the host sends.
const NOISY_INPUT: Noise = Noise { at: 8..2_000, lost: 7, changed: 11, escape: Some(b'~') };

/// What each of two VMs gets of what the host sends, as `core/trace/src/wire.rs` has it: input has
/// no check sum.
fn input(bytes: &[u8]) -> [Vec<u8>; 2] {
    let (mut vms, mut focus, mut bytes) = ([Vec::new(), Vec::new()], 0, bytes.iter().copied());
    while let Some(byte) = bytes.next() {
        let key = match byte {
            DLE => match bytes.next() {
                Some(FOCUS) => {
                    focus = bytes.next().map_or(focus, usize::from);
                    None
                }
                key => key.filter(|key| [DLE, PADDING].contains(key)),
            },
            PADDING => None,
            key => Some(key),
        };
        if let Some(vm) = vms.get_mut(focus) {
            vm.extend(key);
        }
    }
    vms
}

/// During noise input can reach another VM, and commands of the host be lost or come of it. Each
/// message ends a command that noise left open and names its VM, so that this ends with the noise.
#[test]
fn input_of_a_noisy_line_does_no_harm() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut code = LETTERS_THEN_ECHO;
    code[1] = 0x5280_0023; // mov w3, #1
    let text = system_of(&code, directory.path());
    // Both VMs send back what they get, and a line is expected of the second.
    let (platform, vm) = text.split_once("[[vm]]").expect("a VM");
    let (keys, _) = vm.split_once("expect").expect("an expectation");
    let other = vm.replace("\"keys\"", "\"other\"").replace("[0]", "[1]");
    let text = format!("{platform}[[vm]]{keys}[[vm]]{other}");
    let image = directory.path().join("echo.img");
    build_image(&text, &image);
    // Input like the host's commands, of which noise makes such: to move the focus, for counters,
    // for the trace. It is of several messages, and the line is quiet before the last one; at its
    // end a command begins.
    let keys = "a\x10a\x01bc\x1e\x10r\x10t\0\n".repeat(200) + "that was all\n~";
    let options = Options {
        typed: Some(("keys", ">", &keys)),
        then: Some(("other", ">", "sent back by the guest\n")),
        ..Options::default()
    };
    let (outcome, passed) = with_board(&text, &image, [QUIET, NOISY_INPUT], &options);
    let outcome = outcome.good();
    let Value::Object(report) = &outcome.report else { panic!("a report") };
    assert!(report["ended_by"] == "all-met" && !report.contains_key("board_resets"), "{report:?}");
    assert_eq!(report["totals"]["damaged_frames"], 0);
    assert!(outcome.consoles["keys"].contains("\nthat was all\n"), "the last message is whole");
    let expected = input(&passed);
    assert!(expected.iter().all(|vm| vm.len() > 100), "the noise moved the focus");
    for (vm, expected) in ["keys", "other"].into_iter().zip(expected) {
        let log = &outcome.files[&format!("{vm}.log")];
        let echo = log.strip_prefix(b"abcdefghijklmnopqrstuvwxy\n>").expect("letters first");
        let [echo, expected] = [echo, &expected].map(<[u8]>::escape_ascii).map(|it| it.to_string());
        assert_eq!(echo, expected, "{vm}");
        // The request at the end of the run reached the board, too.
        let facts = outcome.vm(vm);
        assert!(facts["exits"]["UART register"].as_u64() > Some(0), "{facts}");
        assert_eq!(facts["console"]["dropped"], 0, "{facts}");
    }
}

/// What a slow host does not ask for in time is overwritten, and its number is known. The messages
/// begin late: weir asks for no record of a system that has ended.
#[test]
fn a_board_sends_its_trace_for_overheads() {
    let text = "platform = \"qemu-virt-gicv2\"\n\
        [[vm]]\nname = \"sender\"\ncpus = [0]\nmemory = \"2MiB\"\n\
        image = { elf = \"sender\", args = \"to=4 messages=30 size=1000 period_us=20000 \
        start_us=2000000\" }\n\
        expect = [\"sender: 30 messages of 1000 bytes sent\"]\n\
        [[vm]]\nname = \"receiver\"\ncpus = [1]\nmemory = \"2MiB\"\n\
        image = { elf = \"receiver\", args = \"port=5000 bytes=30000 streams=1\" }\n\
        expect = [\"receiver: port 5000: 30000 bytes in order\"]\n\
        [[flow]]\nname = \"messages\"\nfrom = \"sender\"\nto = \"receiver\"\nport = 5000\n\
        size = \"1000B\"\nbest_effort = true\n";
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("flow.img");
    build_image(text, &image);
    let options = Options { arguments: &["--trace"], ..Options::default() };
    let (outcome, _) = with_board(text, &image, [QUIET, QUIET], &options);
    let outcome = outcome.good();
    let run = fs::read_to_string(outcome.run.join("run.json")).expect("run.json");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    let [records, lost] = ["records", "lost"].map(|key| run["trace"][key].as_u64());
    assert!(records > Some(500) && lost < records, "{}", run["trace"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let printed = capture(command.args(["report", "--overheads", "--json"]).arg(&outcome.run));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let overheads: Value = serde_json::from_str(&printed.out).expect("JSON");
    let phases = overheads["phases"].as_array().expect("phases");
    let parsing = phases.iter().find(|phase| phase["name"] == "pp").expect("pp");
    assert!((15..=40).contains(&parsing["count"].as_u64().expect("a count")), "{parsing}");
}
