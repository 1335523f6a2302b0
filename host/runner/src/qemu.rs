//! The machine: a QEMU of our own, its UART on two pipes, gone when we are.

use super::{
    link::{Heard, Link, Reliability},
    ram::Ram,
};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal},
};
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use weir_image::{Environment, Failure, Result, debian, failure::Context};
use weir_model::platform::Platform;
use weir_units::{Bytes, Pa};

/// Bytes of the pipe from QEMU.
const PIPE: usize = 1 << 20;
/// How long QEMU may take to end when asked to.
const GRACE: Duration = Duration::from_secs(2);

/// A running QEMU. It is killed when this is dropped, and by the kernel when this process dies.
#[derive(Debug)]
pub struct QemuProcess {
    child: Child,
    link: Link,
    exited: Option<(ExitStatus, Instant)>,
}

/// What makes up QEMU's command line.
#[derive(Clone, Debug)]
pub struct MachineSetup {
    /// `-machine`.
    pub machine: String,
    /// `-cpu`.
    pub cpu: String,
    /// `-smp`.
    pub cores: usize,
    /// Cores that stay off, if the machine has no PSCI that keeps them off: a run of cores that
    /// spin at their table takes many times as long.
    pub parked: Option<Parked>,
    /// `-m`.
    pub memory: Bytes,
    /// The file for `-dtb`, if the machine generates no device tree.
    pub device_tree: Option<PathBuf>,
    /// The user's own.
    pub extra: Vec<OsString>,
}

/// Cores that wait for an interrupt that never comes.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Where their two instructions are: 8 bytes outside of the board's RAM.
    pub code: Pa,
    /// The cores.
    pub cores: Range<usize>,
}

impl Parked {
    /// Adds the devices that write the instructions and reset the cores to them.
    fn option(&self, mut option: impl FnMut(&str, &str)) {
        const WFI: u64 = 0xd503_207f;
        const BRANCH_BACK: u64 = 0x17ff_ffff;
        let (code, turn) = (self.code.0, BRANCH_BACK << 32 | WFI);
        option("-device", &format!("loader,addr={code:#x},data={turn:#x},data-len=8"));
        for core in self.cores.clone() {
            option("-device", &format!("loader,addr={code:#x},cpu-num={core}"));
        }
    }
}

impl MachineSetup {
    /// QEMU's arguments. No device but the board's own: each of QEMU's virtio devices, displays and
    /// monitors brings the host's time into the machine.
    /// `clock` is the value of `-plugin` for the emulated clock.
    pub fn arguments(&self, image: OsString, ram: &Ram, clock: OsString) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: &str| {
            arguments.push(name.into());
            arguments.push(value.into());
        };
        option("-machine", &self.machine);
        // A tick of the counter is one instruction then, and not 16.
        option("-cpu", &format!("{},cntfrq=1000000000", self.cpu));
        option("-smp", &self.cores.to_string());
        option("-m", &format!("{}k", self.memory.0 >> 10));
        let [object, backend, machine, memory] = ram.arguments();
        option(&object, &backend);
        option(&machine, &memory);
        if let Some(file) = &self.device_tree {
            option("-dtb", &file.to_string_lossy());
        }
        if let Some(parked) = &self.parked {
            parked.option(&mut option);
        }
        option("-display", "none");
        option("-monitor", "none");
        // Without this option the ZCU102's sound device opens the host's.
        option("-audiodev", "none,id=none");
        option("-rtc", "base=2026-01-01,clock=vm");
        option("-chardev", "stdio,id=wire,signal=off");
        option("-serial", "chardev:wire");
        option("-accel", "tcg,thread=multi");
        option("-seed", "1");
        arguments.extend(["-plugin".into(), clock]);
        arguments
            .extend(["-nodefaults", "-no-user-config", "-no-reboot", "-kernel"].map(Into::into));
        arguments.push(image);
        arguments.extend(self.extra.iter().cloned());
        arguments
    }
}

/// Names what the loader takes before the program's own libraries, split at blanks and colons.
const PRELOAD: &str = "LD_PRELOAD";

/// The reader of the trace rings, for which QEMU stops.
#[derive(Debug)]
struct TraceReader {
    /// QEMU's end of the connection.
    stops: UnixStream,
    /// The file of the memory, which QEMU inherits.
    memory: RawFd,
    /// The offset in the file of each ring's number of records.
    heads: Vec<u64>,
}

/// The emulated clock, which QEMU loads before its own libraries and as a plug-in.
#[derive(Debug)]
pub struct EmulatedClock {
    /// The library as an open file: its path may have blanks and commas, and a build may replace
    /// it.
    library: File,
    /// The reader for which QEMU stops.
    reader: Option<TraceReader>,
    /// The most by which the clocks of two running cores may be apart, in ns, if not as usual.
    quantum: Option<u64>,
    /// The board whose memory's time is charged, and the masks of the DRAM's bank bits.
    memory: Option<(String, Vec<u64>)>,
    /// The plug-in's option for the file with the input's record, and the file.
    input: Option<(&'static str, File)>,
}

impl EmulatedClock {
    /// Opens the library. The clocks of two running cores are at most `quantum` ns apart, or 100.
    pub fn open(library: &Path, quantum: Option<u64>) -> Result<Self> {
        let file = File::open(library).context(|| format!("read {}", library.display()))?;
        Ok(Self { library: file, quantum, memory: None, reader: None, input: None })
    }

    /// Charges the time of a board's memory, with these masks of the DRAM's bank bits, if they are
    /// not those of its file.
    pub fn charge(&mut self, board: &str, banks: Vec<u64>) {
        self.memory = Some((board.to_owned(), banks));
    }

    /// Has the machine stop when one of the rings has many new records, and returns the reader's
    /// end of the connection. `heads` has the offset in `ram` of each ring's number of records.
    pub fn stop_for_reader(&mut self, ram: &Ram, heads: Vec<u64>) -> Result<UnixStream> {
        let (near, stops) = UnixStream::pair().context(|| "make a socket")?;
        self.reader = Some(TraceReader { stops, memory: ram.descriptor().as_raw_fd(), heads });
        Ok(near)
    }

    /// Has the machine take input at the host's pace, and record it in the file.
    pub fn record(&mut self, file: File) {
        self.input = Some(("record", file));
    }

    /// Has the machine take the input in the file, which it recorded before.
    pub fn replay(&mut self, file: File) {
        self.input = Some(("replay", file));
    }

    /// The files that QEMU inherits.
    fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let input = self.input.iter().map(|(_, file)| file.as_fd());
        let stops = self.reader.iter().map(|reader| reader.stops.as_fd());
        std::iter::once(self.library.as_fd()).chain(stops).chain(input)
    }

    /// The library's path in QEMU.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.library.as_raw_fd())
    }

    /// Returns the value of `-plugin`.
    pub fn argument(&self) -> OsString {
        let mut value = self.path();
        // Writing to a string does not fail.
        if let Some(quantum) = self.quantum {
            let _ = write!(value, ",quantum={quantum}");
        }
        if let Some((board, banks)) = &self.memory {
            let _ = write!(value, ",memory={board}");
            for (index, mask) in banks.iter().enumerate() {
                let _ = write!(value, "{}{mask:x}", if index == 0 { ",banks=" } else { ":" });
            }
        }
        if let Some(TraceReader { stops, memory, heads }) = &self.reader {
            let _ = write!(value, ",reader={}:{memory}", stops.as_raw_fd());
            for head in heads {
                let _ = write!(value, ":{head}");
            }
        }
        if let Some((name, file)) = &self.input {
            let _ = write!(value, ",{name}={}", file.as_raw_fd());
        }
        value.into()
    }

    /// Returns the value of the loader's variable, for a child that inherits the file: this
    /// library, then the user's own.
    fn list(&self, own: Option<OsString>) -> OsString {
        let mut list = OsString::from(self.path());
        if let Some(own) = own {
            list.push(":");
            list.push(own);
        }
        list
    }
}

/// A QEMU that has a platform's machine.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: OsString,
    /// The version that it reports.
    pub version: String,
}

/// The oldest version whose plug-ins and threads the emulated clock knows: 7.2 is tested.
const OLDEST: u64 = 7;

impl Program {
    /// Returns the QEMU of the environment, or if that is too old for the platform the one that
    /// `weir setup --qemu backports` installed.
    pub fn find(environment: &Environment, platform: &Platform) -> Result<Self> {
        let own = Self { path: environment.qemu.clone(), version: version(&environment.qemu)? };
        let needed = platform.qemu.as_ref().map_or(0, |qemu| qemu.version).max(OLDEST);
        if major(&own.version).is_none_or(|major| major >= needed) {
            return Ok(own);
        }
        let cache = environment.downloads().ok();
        if let Some(path) = cache.as_deref().and_then(debian::installed_qemu) {
            let path = path.into_os_string();
            let version = version(&path)?;
            if major(&version).is_some_and(|major| major >= needed) {
                return Ok(Self { path, version });
            }
        }
        Err(Failure::environment(format!(
            "{} needs QEMU {needed} or newer, and {} is {}\n  install one by \
             `{} setup --qemu backports`, or set WEIR_QEMU",
            platform.name,
            own.path.display(),
            own.version,
            if environment.installation().is_some() { "weir" } else { "./weir" }
        )))
    }
}

/// Checks that there is a QEMU that has a platform's machine.
///
/// # Errors
///
/// The environment is at fault if there is none, or none that is new enough.
pub fn check_qemu(environment: &Environment, platform: &Platform) -> Result {
    Program::find(environment, platform).map(drop)
}

/// Returns the major number in what QEMU reports; none if that is no version of QEMU.
fn major(version: &str) -> Option<u64> {
    version.split_once("QEMU emulator version ")?.1.split('.').next()?.parse().ok()
}

/// The version that QEMU reports, or why it can't be started.
fn version(program: &OsString) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(program, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("unknown").trim().to_owned())
}

fn missing(program: &OsString, error: &io::Error) -> Failure {
    let hint = if error.kind() == io::ErrorKind::NotFound {
        "\n  install it (Debian and Ubuntu: `apt install qemu-system-arm`), or set WEIR_QEMU"
    } else {
        ""
    };
    Failure::environment(format!("cannot start {}: {error}{hint}", program.to_string_lossy()))
}

impl QemuProcess {
    /// Starts QEMU, which inherits the file of `ram` and loads the `clock` before all else. Its
    /// standard error goes to `log`.
    ///
    /// Must be called on a thread that exists as long as the run: the kernel kills QEMU when the
    /// thread that started it ends.
    pub fn start(
        program: &OsString,
        arguments: &[OsString],
        ram: &Arc<Ram>,
        clock: EmulatedClock,
        log: File,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .env(PRELOAD, clock.list(std::env::var_os(PRELOAD)))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Its own group: Ctrl-C on the terminal is for us alone, and ends QEMU by us.
            .process_group(0);
        let (parent, ram) = (rustix::process::getpid(), Arc::clone(ram));
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; the closure makes
        // at most seven system calls (fcntl, prctl, getppid) and neither allocates nor locks.
        unsafe {
            command.pre_exec(move || {
                // Only in this child: no other program that is started at the same time keeps the
                // memory.
                fcntl_setfd(ram.descriptor(), FdFlags::empty())?;
                for file in clock.files() {
                    fcntl_setfd(file, FdFlags::empty())?;
                }
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if rustix::process::getppid() == Some(parent) {
                    Ok(())
                } else {
                    // The parent died before it could be watched.
                    Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()))
                }
            });
        }
        let mut child = command.spawn().map_err(|error| missing(program, &error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::environment("QEMU came without its pipes"));
        };
        // Only speed: with the usual 64 KiB QEMU waits for us more often.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE);
        let link = Link::new(stdout, stdin, Reliability::Reliable);
        Ok(Self { child, link, exited: None })
    }

    /// The connection to the hypervisor.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Waits for bytes for at most `time`.
    pub fn hear(&mut self, time: Duration) -> Heard {
        let heard = self.link.hear(time);
        if !matches!(heard, Heard::Nothing) {
            return heard;
        }
        // Something that QEMU left behind may hold the pipe open for ever.
        if self.exited.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.exited = Some((status, Instant::now()));
        }
        match self.exited {
            Some((_, when)) if when.elapsed() > Duration::from_secs(1) => Heard::Gone,
            _ => Heard::Nothing,
        }
    }

    /// Ends QEMU and returns how it ended, unless it had to be killed.
    ///
    /// First politely, so that a plug-in of the user's can write its report.
    pub fn end(mut self) -> Option<ExitStatus> {
        // When it has closed its end of the wire it is about to end by itself.
        let gone = matches!(self.hear(Duration::ZERO), Heard::Gone);
        // QEMU can't end while it waits for a reader.
        self.link.close();
        if gone && let Some(status) = self.wait(GRACE) {
            return Some(status);
        }
        self.signal(Signal::TERM);
        self.wait(GRACE)
    }

    fn signal(&self, signal: Signal) {
        if self.exited.is_some() {
            return;
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Fails when it is gone already, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn wait(&mut self, time: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + time;
        loop {
            if let Some((status, _)) = self.exited {
                return Some(status);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                self.exited = Some((status, Instant::now()));
            } else if Instant::now() >= until {
                return None;
            } else {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // Collects the child, which has been killed; it fails when it was collected before.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::platform::RamRange;

    /// A program that reports a version, as an environment's QEMU.
    fn reporting(directory: &Path, version: &str) -> Environment {
        use std::os::unix::fs::PermissionsExt as _;
        let path = directory.join("qemu");
        std::fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let mut environment = Environment::find();
        environment.qemu = path.into_os_string();
        environment
    }

    #[test]
    fn a_board_needs_a_qemu_that_has_its_machine() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)";
        let old = reporting(directory.path(), old);
        let mut board = Platform::named("rpi4").expect("a board");
        let zcu102 = Platform::named("zcu102").expect("a board");
        assert!(Program::find(&old, &zcu102).is_ok());
        // No QEMU that was installed is so new.
        board.qemu.as_mut().expect("a machine").version = 99;
        let refused = Program::find(&old, &board).expect_err("too old");
        assert!(refused.text.starts_with("rpi4 needs QEMU 99 or newer, and "), "{}", refused.text);
        assert!(refused.text.contains("./weir setup --qemu backports"), "{}", refused.text);
        let new = reporting(directory.path(), "QEMU emulator version 99.0.2");
        assert_eq!(Program::find(&new, &board).expect("new enough").path, new.qemu);
    }

    #[test]
    fn machines_have_no_inputs_of_the_host() {
        let setup = MachineSetup {
            machine: "virt".into(),
            cpu: "cortex-a53".into(),
            cores: 4,
            parked: Some(Parked { code: Pa(0xff8), cores: 2..4 }),
            memory: Bytes(2 << 30),
            device_tree: Some("x.dtb".into()),
            extra: vec!["-d".into(), "int".into()],
        };
        let ram =
            Ram::new([RamRange { base: Pa(0x4000_0000), size: Bytes(2 << 30) }], Bytes(2 << 30))
                .expect("memory");
        let arguments = setup.arguments("x.img".into(), &ram, "clock.so,reader=7".into());
        let line: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        let line = line.join(" ");
        assert!(line.contains("-cpu cortex-a53,cntfrq=1000000000 "), "{line}");
        assert!(line.contains("-accel tcg,thread=multi") && line.contains("clock=vm"), "{line}");
        assert!(line.contains("-plugin clock.so,reader=7 "), "{line}");
        assert!(line.contains("-dtb x.dtb "), "{line}");
        let parked = "-device loader,addr=0xff8,data=0x17ffffffd503207f,data-len=8 \
                      -device loader,addr=0xff8,cpu-num=2 -device loader,addr=0xff8,cpu-num=3 ";
        assert!(line.contains(parked), "{line}");
        assert!(line.ends_with("-kernel x.img -d int"), "{line}");
        assert!(line.contains(&format!("size={},share=on", 2_u64 << 30)), "{line}");
    }
}
