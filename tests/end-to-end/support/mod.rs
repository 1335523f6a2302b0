//! A run with a shell script in QEMU's place: what it prints is the wire, what it reads is
//! recorded.

#![allow(dead_code, reason = "each test program uses its part of this")]

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

pub mod board;
pub mod browser;
#[path = "../../checkout.rs"]
pub mod checkout;
pub mod loss;
#[path = "../../programs.rs"]
pub mod programs;
pub mod qemu;
pub mod schema;
#[path = "../../../host/runner/src/synthetic.rs"]
pub mod synthetic;
#[allow(unused_imports, reason = "each test program uses its part of this")]
pub use synthetic::SyntheticWire;

/// How long anything may take that takes no time.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Two VMs: `one` on core 0, which must print "all is well", and `two` on cores 1 and 2.
pub const SYSTEM: &str = r#"
platform = "qemu-virt"

[[vm]]
name = "one"
cpus = [0]
memory = "16MiB"
image = { bin = "guest.bin", load = 0x4010_0000 }
expect = ["all is well"]

[[vm]]
name = "two"
cpus = [1, 2]
memory = "16MiB"
image = { bin = "guest.bin", load = 0x4010_0000 }
"#;

/// A directory that stands for the checkout, with a system and a fake QEMU in it.
pub struct Fake {
    pub directory: tempfile::TempDir,
}

impl Fake {
    /// `script` runs in the directory, as QEMU would: its standard output is the wire.
    pub fn new(system: &str, script: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let fake = Self { directory };
        fake.write("system.toml", system.as_bytes());
        fake.write("guest.bin", &[0; 64]);
        fake.write("image", b"an image");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo fake 1 && exit\ncd \"{}\" || exit\n\
             echo $$ > pid\n{script}\n",
            fake.path("").display()
        );
        fake.write("qemu", script.as_bytes());
        fs::set_permissions(fake.path("qemu"), fs::Permissions::from_mode(0o755)).expect("a mode");
        // Stands for what QEMU would load: some library that the loader takes.
        fs::create_dir(fake.path("libraries")).expect("a directory");
        let maps = fs::read_to_string("/proc/self/maps").expect("what is loaded here");
        let library = maps.split_whitespace().find(|word| word.ends_with("libc.so.6"));
        symlink(library.expect("the C library"), fake.path("libraries/libweir_clock.so"))
            .expect("a link");
        fake
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).expect("a file is written");
    }

    pub fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// The command, ready for arguments.
    pub fn weir(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .current_dir(self.path(""))
            .env("WEIR_ROOT", self.path(""))
            .env("WEIR_QEMU", self.path("qemu"))
            .env("WEIR_LIBRARIES", self.path("libraries"))
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    /// `weir run` of the system with the fake image.
    pub fn run(&self, arguments: &[&str]) -> Command {
        let mut command = self.weir();
        command.args(["run", "system.toml", "--image-file", "image", "--ignore-verdict"]);
        command.args(arguments);
        command
    }

    /// The directories of the runs so far, oldest first.
    pub fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("runs")).into_iter().flatten().flatten();
        let mut runs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        runs.sort();
        runs
    }

    /// A file of the only run.
    pub fn left(&self, name: &str) -> Vec<u8> {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "one run");
        fs::read(runs[0].join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The report of the only run.
    pub fn report(&self) -> Value {
        serde_json::from_slice(&self.left("report.json")).expect("a report in JSON")
    }

    /// Whether the fake QEMU is still there, after waiting a little for its end.
    pub fn qemu_survives(&self) -> bool {
        let pid = self.read("pid");
        let process = Path::new("/proc").join(pid.trim());
        assert!(!pid.is_empty(), "it was never started");
        let zombie = || {
            let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
            stat.is_empty() || stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
        };
        !eventually(zombie)
    }
}

/// Whether `it` becomes true before patience ends.
pub fn eventually(it: impl FnMut() -> bool) -> bool {
    within(PATIENCE, it)
}

fn within(limit: Duration, mut it: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if it() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A command's output, for assertions.
pub struct Printed {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end; it is killed, and the test fails, when that takes too long.
pub fn capture(command: &mut Command) -> Printed {
    capture_within(command, PATIENCE)
}

/// The same for a command that may take `limit`.
pub fn capture_within(command: &mut Command, limit: Duration) -> Printed {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    finish_within(child.expect("it starts"), limit)
}

/// Waits for the end of a command with output to pipes.
pub fn finish(child: Child) -> Printed {
    finish_within(child, PATIENCE)
}

fn finish_within(child: Child, limit: Duration) -> Printed {
    let process = Pid::from_child(&child);
    let waiting = thread::spawn(move || child.wait_with_output());
    if !within(limit, || waiting.is_finished()) {
        let _ = kill_process(process, Signal::KILL);
        let printed: Printed = waiting.join().expect("no panic").expect("output").into();
        panic!("it took too long; out: {}\nerr: {}", printed.out, printed.err);
    }
    waiting.join().expect("no panic").expect("output").into()
}

/// Sends a signal to a child.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a child to send it to");
}
