//! Real systems in QEMU, from their text to what came of them.

pub use super::checkout::{self, root};
use super::{Printed, board::capture_on_board, capture_within, programs, schema::valid, within};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Condvar, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};
use weir_image::Environment;
use weir_model::platform::Machine;

/// QEMUs at a time in one test process: more only slow each other down. The test runner has one
/// test per process, and as many processes as cores.
const SLOTS: usize = 2;
static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// The right to run a QEMU.
pub struct Slot;

impl Slot {
    /// Waits for it.
    pub fn take() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = LEFT.wait_while(taken, |taken| *taken == SLOTS);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LEFT.notify_one();
    }
}

/// How a system is run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The test fails when the run takes longer; of the host's time.
    pub limit: Duration,
    /// More arguments of `weir run`.
    pub arguments: &'a [&'a str],
    /// Where `weir` is called.
    pub from: Option<&'a Path>,
    /// What is typed at a VM's console: the VM, the text to wait for there, the keys.
    pub typed: Option<(&'a str, &'a str, &'a str)>,
    /// What is typed then.
    pub then: Option<(&'a str, &'a str, &'a str)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let limit = Duration::from_secs(300);
        Self { limit, arguments: &[], from: None, typed: None, then: None }
    }
}

/// What came of a run.
pub struct Outcome {
    /// The exit status and all that was printed.
    pub printed: Printed,
    /// `report.json`; null if the run never began.
    pub report: Value,
    /// Each VM's console as it wrote it, by the VM's name.
    pub consoles: BTreeMap<String, String>,
    /// The files of the run by name, but for those about the host.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The run's directory, until the end of the test.
    pub run: PathBuf,
    /// Keeps the files until the end of the test.
    _directory: tempfile::TempDir,
}

impl Outcome {
    /// Fails the test, with the lines that were waited for, unless every expected line was seen.
    pub fn good(self) -> Self {
        let Printed { status, out, err } = &self.printed;
        assert_eq!(*status, Some(0), "the run failed:\n{}\n{err}", tail(out));
        self
    }

    /// Fails the test unless the only flow lost none of `packets`, and none took longer than its
    /// bound.
    pub fn keeps_its_bound(&self, packets: u64) {
        let flow = &self.report["flows"][0];
        assert_eq!((&flow["packets"], &flow["lost"]), (&packets.into(), &0.into()), "{flow}");
        let [max, bound] = [&flow["latency_ns"]["max"], &flow["bound_ns"]].map(Value::as_u64);
        assert!(max.is_some() && max <= bound, "{flow}");
    }

    /// Fails the test unless the only flow lost none of `packets`, and none took longer than its
    /// bound would be if no other VM could disturb.
    pub fn keeps_its_quiet_bound(&self, packets: u64) {
        let flow = &self.report["flows"][0];
        assert_eq!((&flow["packets"], &flow["lost"]), (&packets.into(), &0.into()), "{flow}");
        let bound = quiet_bounds(&self.run.join("system.toml"), None)[0];
        let max = flow["latency_ns"]["max"].as_u64();
        assert!(max.is_some() && max <= bound, "{bound:?} {flow}");
    }

    /// The report on the VM of this name.
    pub fn vm(&self, name: &str) -> &Value {
        let Printed { out, err, .. } = &self.printed;
        let vms = self.report["vms"].as_array();
        let vms = vms.unwrap_or_else(|| panic!("no report with VMs:\n{}\n{err}", tail(out)));
        vms.iter().find(|vm| vm["name"] == name).unwrap_or_else(|| panic!("no VM {name}"))
    }

    /// Trace records that were overwritten before they were read.
    pub fn lost_records(&self) -> u64 {
        let run = fs::read(self.run.join("run.json")).expect("run.json");
        let run: Value = serde_json::from_slice(&run).expect("JSON");
        run["trace"]["lost"].as_u64().expect("a number of lost records")
    }

    /// The lines of a VM's console.
    pub fn lines(&self, name: &str) -> Vec<&str> {
        self.consoles[name].lines().map(|line| line.trim_end_matches('\r')).collect()
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Something that keeps every core of the host busy until it is dropped.
pub struct Load(Vec<Child>);

impl Load {
    /// Begins.
    pub fn begin() -> Self {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let busy =
            || Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Self((0..cores).map(|_| busy().expect("a shell")).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The text of a system that is in the tree.
pub fn system(name: &str) -> String {
    let file = checkout::system(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// `text` with `old` replaced, which must be there once.
pub fn with(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old} in {text}");
    text.replace(old, new)
}

/// Returns `text` with budgets that together may exceed what a board's memory serves: such a test
/// is about EL2, and runs on the board, too.
pub fn overcommitted(text: &str) -> String {
    let budget = "memory_budget = {";
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        if line.contains("overcommit") {
            all += line;
        } else {
            all += &line.replace(budget, &format!("{budget} overcommit = true,"));
        }
    }
    all
}

/// A word that no output can have been prepared for.
pub fn random_word() -> String {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("w{:x}", time.expect("a clock").as_nanos() ^ u128::from(std::process::id()) << 64)
}

/// Builds the hypervisor for both GICs and all guests, unless the test runner has built them.
pub fn build_programs() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        if std::env::var_os(programs::BUILT).is_none() {
            let directory = tempfile::tempdir().expect("a directory");
            let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
            programs::build(weir, directory.path()).unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

/// The bounds of a system's flows if no other VM disturbs, for each receiver.
pub fn quiet_bounds(file: &Path, platform: Option<&str>) -> Vec<Option<u64>> {
    let environment = Environment::find();
    let system = weir_image::load(file, platform, Machine::Qemu, &environment);
    let system = system.unwrap_or_else(|faults| panic!("{faults}"));
    weir_analysis::system::quiet_bounds(&system)
}

/// The JSON of `weir build` for the system of this text; the image goes to `image`.
pub fn build_image(text: &str, image: &Path) -> Value {
    build_programs();
    let file = image.with_extension("toml");
    fs::write(&file, text).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("WEIR_ROOT", root());
    command.arg("build").arg(&file).args(["--no-build", "--ignore-verdict", "--json", "-o"]);
    command.arg(image);
    let printed = capture_on_board(&mut command, &file, Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    valid("build", &printed.out)
}

/// Builds the image of a system with the hypervisor without its optional parts: in a checkout that
/// has no other one.
fn build_minimal(text: &str, image: &Path) {
    build_programs();
    let checkout = tempfile::tempdir().expect("a directory");
    let (from, to) = (root(), checkout.path());
    for name in ["hypervisor", "core", "host", "guests", "boards", "Cargo.toml"] {
        symlink(from.join(name), to.join(name)).expect("a link");
    }
    let programs = |root: &Path| root.join("build/programs");
    fs::create_dir_all(programs(to)).expect("a directory");
    let kept = "weir-hypervisor-qemu-virt".to_owned();
    let guests = checkout::guests().into_iter().map(|guest| (guest.clone(), guest));
    for (program, name) in guests.chain([(format!("{kept}-minimal"), kept)]) {
        fs::copy(programs(&from).join(&program), programs(to).join(name)).expect(&program);
    }
    let file = to.join("system.toml");
    fs::write(&file, text).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("WEIR_ROOT", to).arg("build").arg(&file);
    command.args(["--no-build", "--ignore-verdict", "-o"]).arg(image);
    let printed = capture_within(&mut command, Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
}

/// Runs a system with the hypervisor without its optional parts.
pub fn run_minimal(text: &str, more: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("system.img");
    build_minimal(text, &image);
    let image = image.to_str().expect("a path");
    let arguments = [&["--image-file", image], more].concat();
    run_system(text, &Options { arguments: &arguments, ..Options::default() })
}

/// Waits for `prompt` at the console of `vm` of the run in `runs`, then types `keys` there.
pub fn type_keys(runs: &Path, vm: &str, prompt: &str, keys: &str) {
    let log = |run: &Path| fs::read(run.join(format!("{vm}.log"))).unwrap_or_default();
    let prompted = |run: &Path| String::from_utf8_lossy(&log(run)).contains(prompt);
    let run = || fs::read_dir(runs).ok()?.flatten().map(|entry| entry.path()).next();
    if !within(Duration::from_secs(90), || run().is_some_and(|run| prompted(&run))) {
        // The end of the run lists the missing lines.
        return;
    }
    let mut attach = Command::new(env!("CARGO_BIN_EXE_weir"));
    attach.arg("attach").arg(run().expect("it was there")).arg(vm).stdin(Stdio::piped());
    let child =
        attach.env("WEIR_ROOT", root()).env("WEIR_RUNS", runs).stdout(Stdio::null()).spawn();
    let mut child = child.expect("weir");
    child.stdin.take().expect("a pipe").write_all(keys.as_bytes()).expect("keys are typed");
    assert!(child.wait().expect("it ends").success(), "weir attach failed");
}

/// Boots the system of this text, with paths relative to `systems`.
pub fn run_system(text: &str, options: &Options) -> Outcome {
    build_programs();
    let _slot = Slot::take();
    let directory = tempfile::tempdir().expect("a directory");
    let (file, runs) = (directory.path().join("system.toml"), directory.path().join("runs"));
    fs::write(&file, text).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // Some tests run systems that are at their limits, or beyond.
    command.arg("run").arg(&file).args(["--ignore-verdict", "--accept-not-judged"]);
    command.args(options.arguments);
    if !options.arguments.contains(&"--image-file") {
        command.arg("--no-build");
    }
    if options.typed.is_some() && !options.arguments.contains(&"--serial") {
        command.arg("--input");
    }
    command.env("WEIR_ROOT", root()).env("WEIR_RUNS", &runs);
    command.current_dir(options.from.unwrap_or(directory.path()));
    let printed = thread::scope(|scope| {
        if let Some((vm, prompt, keys)) = options.typed {
            scope.spawn(|| {
                type_keys(&runs, vm, prompt, keys);
                if let Some((vm, prompt, keys)) = options.then {
                    type_keys(&runs, vm, prompt, keys);
                }
            });
        }
        capture_on_board(&mut command, &file, options.limit)
    });
    let run = fs::read_dir(&runs).into_iter().flatten().flatten().next().map(|entry| entry.path());
    let entries = run.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut files: BTreeMap<String, Vec<u8>> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, fs::read(entry.path()).ok()?))
        })
        .collect();
    files.retain(|name, _| name != "run.json" && name != "qemu.log");
    let report = files
        .get("report.json")
        .map_or(Value::Null, |report| valid("report", &String::from_utf8_lossy(report)));
    let console = |vm: &Value| {
        let name = vm["name"].as_str()?.to_owned();
        let log = files.get(&format!("{name}.log"))?;
        Some((name, String::from_utf8_lossy(log).into_owned()))
    };
    let vms = report["vms"].as_array().cloned().unwrap_or_default();
    let consoles = vms.iter().filter_map(console).collect();
    let run = run.unwrap_or_default();
    Outcome { printed, report, consoles, files, run, _directory: directory }
}
