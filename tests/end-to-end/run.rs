//! `weir run` with a script in QEMU's place.

use crate::support::{
    Fake, Printed, SYSTEM, Signal, SyntheticWire, capture, eventually, finish, signal,
};
use rustix::process::{Pid, kill_process};
use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};
use weir_trace::wire::{FaultKind, HYPERVISOR, What};

/// Both VMs start, `two` faults once, `one` prints that all is well.
fn good() -> SyntheticWire {
    SyntheticWire::default()
        .text("weir on 3 cores\r\n")
        .event(1_000, What::SystemStart, HYPERVISOR, 0)
        .event(2_000, What::VmStart, 0, 0)
        .event(2_000, What::VmStart, 1, 0)
        .line(3_000, 1, "two begins\r")
        .fault(4_000, 1, FaultKind::Write, 0x9200_0046)
        .event(5_000, What::VmStart, 1, 1)
        .mark_dropped(5_500, 1, 7)
        .counters(6_000, 0, 0, 1)
        .denials(6_000, 1, 2)
        .line(7_000, 0, "\u{1b}[31mall is well\u{1b}[0m\r")
}

fn last_counters() -> SyntheticWire {
    SyntheticWire::default()
        .counters(9_000, 0, 0, 20)
        .counters(9_000, 1, 0, 30)
        .counters(9_000, 1, 1, 40)
        .denials(9_000, 1, 2)
}

fn fake(script: &str) -> Fake {
    let fake = Fake::new(SYSTEM, script);
    fake.write("good", good().bytes());
    fake.write("last", last_counters().bytes());
    fake
}

const WELL: &str = "cat good; exec sleep 100";

#[test]
fn a_run_ends_when_every_expected_line_was_seen() {
    let fake = fake(WELL);
    let printed = capture(&mut fake.run(&["--output", "report.json"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("one  | all is well\n"), "{}", printed.out);
    assert!(printed.out.contains("two  | two begins\n"), "{}", printed.out);
    assert!(printed.out.contains("weir | two: 7 console bytes lost"), "{}", printed.out);
    assert!(printed.out.contains("two: 7 console bytes lost\n"), "{}", printed.out);
    assert!(printed.out.contains("1 write outside its memory"), "{}", printed.out);
    assert!(!printed.out.contains('\u{1b}'), "no colors in a pipe: {}", printed.out);
    assert_eq!(printed.err, "");
    assert!(!fake.qemu_survives());

    let report = fake.report();
    assert_eq!(report["ended_by"], "all-met");
    assert_eq!(report["vms"][0]["expect"][0]["time_ns"], 7_000);
    assert_eq!(report["vms"][0]["exits"]["hypercall"], 1);
    assert_eq!(report["vms"][1]["denials"]["PMU register"], 2);
    assert_eq!(report["vms"][1]["restarts"], 1);
    assert_eq!(report["vms"][1]["console"]["dropped"], 7);
    assert_eq!(fake.read("report.json").as_bytes(), fake.left("report.json"));

    assert_eq!(fake.left("one.log"), b"\x1b[31mall is well\x1b[0m\r\n", "as the guest wrote it");
    let hypervisor = String::from_utf8(fake.left("hypervisor.log")).expect("text");
    for line in [
        "[    0.000001000] weir on 3 cores\n",
        "[    0.000004000] two: fault on vCPU 0: write outside its memory, address 0xdead0000, at \
         pc 0x40001234; data abort: store, translation fault at level 2",
        "[    0.000005000] two: started, boot 1\n",
        "[    0.000005500] two: 7 console bytes lost\n",
    ] {
        assert!(hypervisor.contains(line), "{line} in {hypervisor}");
    }
    assert_eq!(fake.left("wire.bin"), good().bytes());
    assert_eq!(fake.left("system.toml"), SYSTEM.as_bytes());
    let host: serde_json::Value = serde_json::from_slice(&fake.left("run.json")).expect("JSON");
    assert_eq!(host["qemu"], "fake 1");
    assert_eq!(host["image_bytes"], 8);
    assert!(
        !fake.runs()[0].join("control.sock").exists()
            && !fake.runs()[0].join("system.img").exists()
    );
}

/// The machine goes on for a moment behind the last expected line, and a read ends where it likes.
#[test]
fn a_run_ends_at_the_last_expected_line() {
    let fake = fake(WELL);
    // Below PIPE_BUF, so that it is written, and then read, at once.
    let whole = good().line(7_500, 0, "and more").mark(7_600, 0).text("half a ");
    fake.write("good", whole.bytes());
    let printed = capture(&mut fake.run(&[]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(fake.left("wire.bin"), good().bytes());
}

/// An image without a heartbeat reports no time, so that the host's tells a prompt from a line.
#[test]
fn a_line_without_an_end_meets_an_expectation() {
    let fake = fake(WELL);
    let prompt = SyntheticWire::default()
        .event(1_000, What::SystemStart, HYPERVISOR, 0)
        .mark(2_000, 0)
        .text("all is well => ")
        .mark(3_000, 1)
        .text("two interrupts\n");
    fake.write("good", prompt.bytes());
    let silent = format!("{SYSTEM}\n[hypervisor]\nheartbeat = \"0ms\"\n");
    fake.write("system.toml", silent.as_bytes());
    let printed = capture(&mut fake.run(&[]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(fake.left("one.log").ends_with(b"=> "), "a prompt has no end");
    assert!(fake.left("one.log").ends_with(b"=> "), "a prompt has no end");
}

#[test]
fn the_report_alone_goes_to_standard_output() {
    let fake = fake(WELL);
    let printed = capture(&mut fake.run(&["--json"]));
    assert_eq!(printed.out.as_bytes(), fake.left("report.json"));
    assert!(printed.err.contains("one  | all is well\n"), "{}", printed.err);
}

#[test]
fn a_missed_line_is_the_systems_fault() {
    let fake = fake("head -c 200 good; cat late late; exec sleep 100");
    fake.write("late", SyntheticWire::default().counters(1_000_000_001, 0, 0, 20).bytes());
    let printed = capture(&mut fake.run(&["--for", "1s"]));
    assert_eq!(printed.status, Some(1));
    assert!(printed.out.contains("missed: one did not print \"all is well\""), "{}", printed.out);
    assert!(printed.out.contains("the time is over"), "{}", printed.out);
    assert!(!fake.qemu_survives());
    assert_eq!(fake.report()["ended_by"], "time-over");
}

#[test]
fn without_expected_lines_time_is_all_there_is() {
    let fake = fake("cat good late; exec sleep 100");
    fake.write("late", SyntheticWire::default().counters(3_000_000_001, 0, 0, 20).bytes());
    fake.write("system.toml", SYSTEM.replace("expect", "# expect").as_bytes());
    let printed = capture(&mut fake.run(&["--for", "3s"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
}

#[test]
fn a_system_that_ends_itself_ends_the_run() {
    let fake = fake("cat good end");
    let end = SyntheticWire::default()
        .event(8_000, What::VmOff, 0, 0)
        .event(8_100, What::VmOff, 1, 0)
        .event(8_200, What::SystemStop, HYPERVISOR, 0);
    fake.write("end", end.bytes());
    let printed = capture(&mut fake.run(&["--keep-running"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let report = fake.report();
    assert_eq!(
        (&report["ended_by"], &report["vms"][0]["state"]),
        (&"system-stop".into(), &"off".into())
    );
}

#[test]
fn a_qemu_that_dies_at_once_is_quoted() {
    let fake = fake("echo 'qemu: unsupported machine' >&2; exit 1");
    let printed = capture(&mut fake.run(&[]));
    assert_eq!(printed.status, Some(3));
    assert!(
        printed.err.contains("QEMU ended (exit status: 1) before the system ran"),
        "{}",
        printed.err
    );
    assert!(printed.err.contains("QEMU said: qemu: unsupported machine"), "{}", printed.err);
    assert_eq!(fake.report()["ended_by"], "machine-gone");
}

#[test]
fn a_hypervisor_that_refuses_is_quoted() {
    let fake = fake("echo 'weir: this machine has no EL2'");
    let printed = capture(&mut fake.run(&[]));
    assert_eq!(printed.status, Some(1));
    assert!(
        printed.err.contains("the hypervisor said: weir: this machine has no EL2"),
        "{}",
        printed.err
    );
}

#[test]
fn a_killed_qemu_is_the_environments_fault() {
    let fake = fake("cat good; kill -9 $$");
    let printed = capture(&mut fake.run(&["--keep-running"]));
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("while the system ran"), "{}", printed.err);
}

#[test]
fn without_qemu_the_package_to_install_is_named() {
    let fake = fake("");
    let printed = capture(fake.run(&[]).env("WEIR_QEMU", "/nowhere/qemu"));
    assert_eq!(printed.status, Some(3));
    assert!(
        printed.err.contains("qemu-system-arm") && printed.err.contains("WEIR_QEMU"),
        "{}",
        printed.err
    );
    assert!(fake.runs().is_empty());
}

#[test]
fn garbage_is_survived_and_counted() {
    // Damage counts once up to the next intact frame.
    let fake = fake(
        "i=0; while [ $i -lt 300 ]; do printf '\\020\\377\\001gar\\000\\033[2Jbage\\n\
         '; cat intact; i=$((i+1)); done; cat late; exec sleep 100",
    );
    fake.write("late", SyntheticWire::default().counters(3_000_000_001, 0, 0, 20).bytes());
    fake.write("intact", SyntheticWire::default().counters(9_000, 0, 0, 20).bytes());
    let printed = capture(&mut fake.run(&["--for", "3s"]));
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(printed.out.contains("frames damaged on the wire: 300"), "{}", printed.out);
    assert!(!printed.out.contains('\u{1b}'), "no escape sequence comes through");
    assert_eq!(fake.report()["totals"]["damaged_frames"], 300);
}

#[test]
fn a_flood_does_not_outlast_the_time() {
    let fake =
        fake("cat good; yes 'a flood of words that never ends' | head -c 200000; exec cat late");
    let late = SyntheticWire::default().text("\n").counters(1_000_000_001, 0, 0, 20);
    fake.write("late", late.bytes());
    let mut command = fake.run(&["--for", "1s", "--keep-running"]);
    let printed = capture(command.stdout(Stdio::null()));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(!fake.qemu_survives());
    let bytes = fake.report()["vms"][0]["console"]["bytes"].as_u64().expect("a number");
    assert!(bytes > 100_000, "{bytes}");
    assert_eq!(fake.left("one.log").len() as u64, bytes);
}

/// All that a run leaves and that must not depend on the host.
fn remains(fake: &Fake) -> Vec<(String, Vec<u8>)> {
    let [run] = &fake.runs()[..] else { panic!("one run") };
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(run)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.file_name().into_string().expect("a name"), entry.path()))
        .filter(|(name, _)| name != "run.json")
        .map(|(name, path)| (name, fs::read(path).expect("a file")))
        .collect();
    files.sort();
    files
}

#[test]
fn runs_do_not_depend_on_the_host() {
    // All at once, so that what follows the end is in the same read.
    let quick = fake("cat all; exec yes more");
    let all = [good().bytes(), last_counters().bytes(), b"more\n"].concat();
    quick.write("all", &all);
    let slow =
        fake("head -c 100 good; sleep 0.2; tail -c +101 good; sleep 0.2; cat last; exec sleep 100");
    let [one, other] = [&quick, &slow].map(|fake| capture(&mut fake.run(&[])));
    assert_eq!((one.status, other.status), (Some(0), Some(0)), "{} {}", one.err, other.err);
    assert_eq!(remains(&quick), remains(&slow));
    assert_eq!(quick.left("wire.bin"), good().bytes(), "it ends at the last expected line");
    let names: Vec<String> = remains(&quick).into_iter().map(|(name, _)| name).collect();
    let all = [
        "hypervisor.log",
        "one.log",
        "plan.json",
        "qemu.log",
        "report.json",
        "summary.txt",
        "system.toml",
        "two.log",
        "wire.bin",
    ];
    assert_eq!(names, all);
    let lines = |printed: &Printed| printed.out.lines().filter(|line| line.contains(" | ")).count();
    assert_eq!(lines(&one), lines(&other));
}

#[test]
fn time_is_the_wires() {
    let fake = fake("cat good; sleep 0.5; exec cat last");
    let printed = capture(&mut fake.run(&["--for", "6us"]));
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    let report = fake.report();
    assert_eq!((&report["ended_by"], &report["time_ns"]), (&"time-over".into(), &7_000.into()));
    assert_eq!(report["vms"][0]["expect"][0]["met"], false);
}

#[test]
fn interrupting_asks_for_counters_and_sums_up() {
    for name in [Signal::INT, Signal::TERM, Signal::HUP] {
        let fake =
            fake("head -c 150 good; echo > ready; head -c 2 > asked; cat last; exec sleep 100");
        let child = fake.run(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("it starts");
        assert!(eventually(|| fake.path("ready").exists()));
        signal(&child, name);
        let printed = finish(child);
        assert_eq!(printed.status, Some(130), "{}", printed.err);
        assert!(printed.out.contains("interrupted"), "{}", printed.out);
        assert_eq!(fake.report()["vms"][1]["injected"], 70);
        assert!(!fake.qemu_survives());
    }
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let fake = fake("echo > ready; head -c 2 > asked; exec sleep 100");
    let child = fake.run(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    assert!(eventually(|| fake.path("ready").exists()));
    signal(&child, Signal::INT);
    // The first one has been taken when the last counters are asked for.
    assert!(eventually(|| fake.read("asked").len() == 2));
    signal(&child, Signal::INT);
    let printed = finish(child);
    assert_eq!(printed.status, Some(130));
    assert!(!printed.out.contains("interrupted"), "no summary: {}", printed.out);
    assert!(!fake.qemu_survives());
}

#[test]
fn qemu_does_not_survive_a_killed_weir() {
    let fake = fake("echo > ready; exec sleep 100");
    let mut child = fake.run(&[]).stdout(Stdio::null()).spawn().expect("it starts");
    assert!(eventually(|| fake.path("ready").exists()));
    signal(&child, Signal::KILL);
    child.wait().expect("it is gone");
    assert!(!fake.qemu_survives());
}

#[test]
fn a_reader_that_leaves_ends_the_run() {
    let fake = fake("cat good; head -c 2 > asked; cat last; exec yes");
    let mut child =
        fake.run(&["--keep-running"]).stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert!(eventually(|| child.try_wait().expect("a status").is_some()));
    assert!(!fake.qemu_survives());
    assert_eq!(fake.report()["ended_by"], "interrupted");
}

#[test]
fn a_terminal_gets_colors_unless_disabled() {
    let on_terminal = |fake: &Fake, prefix: &str| {
        let line = format!("{prefix} \"$WEIR\" run system.toml --image-file image");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
        command.env("WEIR", env!("CARGO_BIN_EXE_weir"));
        command.env("WEIR_ROOT", fake.path("")).env("WEIR_QEMU", fake.path("qemu"));
        command.env_remove("NO_COLOR").current_dir(fake.path("")).stdin(Stdio::null());
        capture(&mut command).out
    };
    let colored = on_terminal(&fake(WELL), "");
    assert!(colored.contains("\u{1b}[36mone \u{1b}[0m | all is well"), "{colored:?}");
    let plain = on_terminal(&fake(WELL), "NO_COLOR=1");
    assert!(plain.contains("one  | all is well"), "{plain:?}");
}

#[test]
fn a_full_disk_is_reported() {
    let fake = fake(WELL);
    fake.write("runs", b"not a directory");
    let printed = capture(&mut fake.run(&[]));
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("cannot create"), "{}", printed.err);
}

mod attach {
    use super::*;

    /// A run in which `one` prints a prompt, then what comes after eight bytes of input.
    fn prompting() -> Fake {
        let fake =
            fake("cat good prompt; echo > ready; head -c 8 > typed; cat answer; exec sleep 100");
        fake.write(
            "prompt",
            SyntheticWire::default().mark(10_000, 0).text("login: ").mark(11_000, 1).bytes(),
        );
        fake.write(
            "answer",
            SyntheticWire::default()
                .line(12_000, 1, "not you")
                .line(13_000, 0, "hello, root\r")
                .bytes(),
        );
        fake
    }

    /// A run that does not outlive a failed test.
    struct Started(Child);

    impl Drop for Started {
        fn drop(&mut self) {
            // It may have ended as it should.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Started {
        fn interrupt(&mut self) {
            signal(&self.0, Signal::INT);
            self.0.wait().expect("it ends");
        }
    }

    fn start(fake: &Fake) -> Started {
        let child = fake.run(&["--keep-running", "--input"]).stdout(Stdio::null()).spawn();
        let child = child.expect("it starts");
        assert!(eventually(|| fake.path("ready").exists()));
        Started(child)
    }

    fn attach(fake: &Fake, arguments: &[&str], input: &[u8]) -> Printed {
        let mut command = fake.weir();
        command.arg("attach").args(arguments).stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let _ = stdin.write_all(input);
        drop(stdin);
        finish(child)
    }

    #[test]
    fn piped_keys_go_to_the_vm_and_its_output_comes_back() {
        let fake = prompting();
        let mut run = start(&fake);
        // DLE, focus, VM 0, then the keys, one of them stuffed.
        let printed = attach(&fake, &["one"], b"ro\x10t");
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert_eq!(fake.read("typed"), "\u{10}a\0ro\u{10}\u{10}t");
        assert!(printed.out.ends_with("login: hello, root\r\n"), "{:?}", printed.out);
        assert!(
            !printed.out.contains("not you") && !printed.out.contains("two begins"),
            "{:?}",
            printed.out
        );

        let named = fake.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
        let printed = attach(&fake, &[&named, "two", "--linger", "10ms"], b"");
        assert!(printed.out.contains("not you"), "{:?} {}", printed.out, printed.err);
        let printed = attach(&fake, &["three"], b"");
        assert_eq!(printed.status, Some(2));
        assert!(
            printed.err.contains("no VM is named three; there are: one, two"),
            "{}",
            printed.err
        );
        run.interrupt();
        let printed = attach(&fake, &["one"], b"");
        assert_eq!(printed.status, Some(3));
        assert!(printed.err.contains("no run under way in "), "{}", printed.err);
        let printed = attach(&fake, &[&named, "one"], b"");
        assert!(printed.err.contains("has the run ended, or"), "{}", printed.err);
    }

    #[test]
    fn a_vm_that_is_never_quiet_can_be_left() {
        let script = "cat good prompt; echo > ready; while :; do cat prompt; sleep 0.02; done";
        let fake = fake(script);
        fake.write("prompt", SyntheticWire::default().line(10_000, 0, "tick").bytes());
        let mut run = start(&fake);
        let printed = attach(&fake, &["one", "--for", "3s"], b"");
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(printed.out.matches("tick").count() > 2, "{:?}", printed.out);
        run.interrupt();
    }

    #[test]
    fn the_end_of_the_run_ends_it() {
        let fake = prompting();
        let mut run = start(&fake);
        let mut command = fake.weir();
        command.args(["attach", "one"]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().expect("it starts");
        let shown = Shown::begin(client.stdout.take().expect("a pipe"));
        assert!(shown.contains("login: "), "{}", shown.text());
        run.interrupt();
        let printed = finish(client);
        assert_eq!(printed.status, Some(0), "{}", printed.err);
    }

    /// What a child has printed so far.
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Shown {
        /// Reads from `pipe` until its end.
        fn begin(mut pipe: impl Read + Send + 'static) -> Self {
            let shown = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&shown);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = pipe.read(&mut bytes) {
                    kept.lock().expect("no panic").extend_from_slice(&bytes[..length]);
                }
            });
            Self(shown)
        }

        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
        }

        /// Whether `text` comes.
        fn contains(&self, text: &str) -> bool {
            eventually(|| self.text().contains(text))
        }
    }

    /// Runs `line` in a terminal, types `keys` when the prompt is there and ends it by `end` when
    /// they are answered. Returns all that the terminal showed, `stty -a` at the end.
    fn on_terminal(
        fake: &Fake,
        line: &str,
        keys: &str,
        end: impl FnOnce(&mut ChildStdin),
    ) -> String {
        let line = format!("{line}; echo status $?; stty -a; echo all");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped());
        command.env("WEIR", env!("CARGO_BIN_EXE_weir"));
        command.env("WEIR_ROOT", fake.path("")).env("WEIR_QEMU", fake.path("qemu"));
        command.current_dir(fake.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let shown = Shown::begin(child.stdout.take().expect("a pipe"));
        assert!(shown.contains("login: "), "{}", shown.text());
        if !keys.is_empty() {
            stdin.write_all(keys.as_bytes()).expect("keys");
            assert!(shown.contains("hello, root"), "{}", shown.text());
        }
        end(&mut stdin);
        assert!(shown.contains("\nall"), "{}", shown.text());
        finish(child);
        let text = shown.text();
        assert!(text.contains(" icanon ") && text.contains(" echo "), "{text}");
        text
    }

    /// Types Ctrl-].
    fn leave(stdin: &mut ChildStdin) {
        stdin.write_all(b"\x1d").expect("a key");
    }

    #[test]
    fn detaching_restores_the_terminal() {
        let fake = prompting();
        let mut run = start(&fake);
        // Ctrl-C is the guest's.
        let shown = on_terminal(&fake, "\"$WEIR\" attach one", "ro\u{3}t\r", leave);
        assert!(shown.contains("login: hello, root\r\n"), "{shown:?}");
        assert!(shown.contains("left the console"), "{shown}");
        assert!(shown.contains("status 0"), "{shown}");
        assert_eq!(fake.read("typed"), "\u{10}a\0ro\u{3}t\r");
        assert!(run.0.try_wait().expect("a status").is_none(), "the run goes on");
        run.interrupt();
    }

    #[test]
    fn terminating_the_client_restores_the_terminal() {
        let fake = prompting();
        let mut run = start(&fake);
        let line = "sh -c 'echo $$ > client; exec \"$WEIR\" attach one'";
        // Nothing but the signal ends it, however late that comes.
        let shown = on_terminal(&fake, line, "", |_| {
            let client = fake.read("client").trim().parse().expect("a number");
            kill_process(Pid::from_raw(client).expect("a process"), Signal::TERM)
                .expect("it is there");
        });
        assert!(shown.contains("status 143"), "{shown}");
        run.interrupt();
    }

    #[test]
    fn running_and_attaching_in_one() {
        let fake = prompting();
        let line = "\"$WEIR\" run system.toml --image-file image --attach one";
        let shown = on_terminal(&fake, line, "root\r", leave);
        assert!(shown.contains("login: hello, root\r\n"), "{shown:?}");
        assert!(!shown.contains("two begins"), "{shown}");
        assert!(shown.contains("interrupted"), "the summary: {shown}");
        assert!(shown.contains("status 130"), "{shown}");
        assert!(!fake.qemu_survives());
    }

    #[test]
    fn a_vm_to_attach_to_must_exist() {
        let fake = prompting();
        let printed = capture(&mut fake.run(&["--attach", "three"]));
        assert_eq!(printed.status, Some(2));
        assert!(printed.err.contains("there are: one, two"), "{}", printed.err);
    }
}
