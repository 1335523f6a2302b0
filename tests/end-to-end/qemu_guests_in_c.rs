//! The guests of `guests/c`, compiled by this machine's compilers for AArch64.

use crate::support::{
    board::{board, end_without, has_gicv2, not_applicable_if},
    capture_within,
    qemu::{Options, Outcome, root, run_system, with},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns what a command prints if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the linker of Rust's toolchain that links ELF files.
fn rust_lld() -> Option<PathBuf> {
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    let hosts = fs::read_dir(Path::new(sysroot.trim()).join("lib/rustlib")).ok()?;
    hosts.flatten().map(|host| host.path().join("bin/rust-lld")).find(|linker| linker.is_file())
}

/// Returns the variables of `make` for each compiler that this machine has.
fn compilers() -> Vec<Vec<String>> {
    if output("make", &["--version"]).is_none() {
        return Vec::new();
    }
    let there = |prefix: &&str| output(&format!("{prefix}gcc"), &["--version"]).is_some();
    let prefixes = ["aarch64-linux-gnu-", "aarch64-none-elf-", "aarch64-elf-"];
    let gcc = prefixes.into_iter().find(there);
    let mut all: Vec<_> =
        gcc.map(|prefix| vec![format!("CROSS_COMPILE={prefix}")]).into_iter().collect();
    let targets = output("clang", &["--print-targets"]);
    if targets.is_some_and(|targets| targets.contains("aarch64")) {
        let llvm = "LLVM=1".to_owned();
        if output("ld.lld", &["--version"]).is_some() {
            all.push(vec![llvm]);
        } else if let Some(linker) = rust_lld() {
            all.push(vec![llvm, format!("LD={} -flavor gnu", linker.display())]);
        }
    }
    all
}

/// Builds the guests by each compiler. Returns the folders with the ELF files, which are below
/// `folder`.
fn build(folder: &Path) -> Vec<PathBuf> {
    let compilers = compilers();
    if compilers.is_empty() {
        let needed = "make and gcc-aarch64-linux-gnu, or make, clang and lld";
        end_without(needed);
        panic!("this machine needs {needed}");
    }
    let build = |(index, variables): (usize, &Vec<String>)| {
        let built = folder.join(index.to_string());
        let mut make = Command::new("make");
        make.arg("-C").arg(root().join("guests/c")).args(variables);
        make.arg("CFLAGS=-O2 -Wall -Wextra -Werror").arg(format!("O={}", built.display()));
        let printed = capture_within(&mut make, LIMIT);
        assert_eq!(printed.status, Some(0), "{variables:?}: {}", printed.err);
        println!("built with {variables:?}");
        built
    };
    compilers.iter().enumerate().map(build).collect()
}

/// Runs a system of `guests/c` with the guests of each compiler, and this change, until its lines
/// were seen.
fn run_each(file: &str, change: impl Fn(String) -> String, arguments: &[&str]) -> Vec<Outcome> {
    judge_each(file, change, arguments).into_iter().map(Outcome::good).collect()
}

/// The same, with any verdict.
fn judge_each(file: &str, change: impl Fn(String) -> String, arguments: &[&str]) -> Vec<Outcome> {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |built: PathBuf| {
        let text = fs::read_to_string(root().join("guests/c").join(file)).expect("a system");
        let text = change(text.replace("\"build/", &format!("\"{}/", built.display())));
        let arguments = [&["--for", "30s"], arguments].concat();
        run_system(&text, &Options { arguments: &arguments, ..Options::default() })
    };
    build(directory.path()).into_iter().map(run).collect()
}

/// Runs the task in C until its lines were seen.
fn they_run(arguments: &[&str], gic: u8) {
    for outcome in run_each("system.toml", |text| text, arguments) {
        assert_eq!(outcome.lines("hello"), [format!("hello: GICv{gic}, restarts 0")]);
        assert_eq!(outcome.vm("hello")["state"], "off");
        let control = outcome.vm("control");
        assert_eq!((&control["state"], &control["restarts"]), (&"running".into(), &0.into()));
        assert_eq!(control["denials"], serde_json::json!({}));
        let task = &control["tasks"][0];
        assert_eq!((&task["activations"], &task["misses"]), (&2000.into(), &0.into()), "{task}");
        assert_eq!(task["verdict"], "holds", "{task}");
    }
}

#[test]
fn a_task_in_c_is_judged() {
    they_run(&[], if has_gicv2(&board()) { 2 } else { 3 });
}

#[test]
fn a_task_in_c_is_judged_on_gicv2() {
    they_run(&["--platform", "qemu-virt-gicv2"], 2);
}

#[test]
fn a_flow_between_guests_in_c_holds() {
    for arguments in [&[][..], &["--platform", "qemu-virt-gicv2"]] {
        for outcome in run_each("flow.toml", |text| text, arguments) {
            let flow = &outcome.report["flows"][0];
            assert_eq!((&flow["packets"], &flow["lost"]), (&100.into(), &0.into()), "{flow}");
            assert_eq!(flow["verdict"], "holds", "{flow}");
            assert_eq!(outcome.vm("follow")["denials"], serde_json::json!({}));
        }
    }
}

/// A peer that dies is no end of the stream: it begins anew, in another language, and floods.
#[test]
fn a_guest_in_c_sees_that_its_peer_has_died() {
    let peer = "\"sender\", args = \"to=4 size=16 messages=300 period_us=100 crash=50\" }";
    let change = |text: String| {
        let from = text.find("elf = ").expect("an image") + "elf = ".len();
        let to = from + text[from..].find('}').expect("its end") + 1;
        let text = text.replacen(&text[from..to], peer, 1);
        let text =
            with(&text, "expect = [\"setpoint: 100 sent, 0 missed\"]", "on_fault = \"restart\"");
        with(&text, "follow: 100 setpoints in order, 0 others, ended", " others, broken")
    };
    for outcome in run_each("flow.toml", change, &[]) {
        assert_eq!(outcome.vm("follow")["state"], "off");
        assert_eq!(outcome.vm("setpoint")["restarts"], 1);
    }
}

/// The driver in C answers each request for credit. The attacker's own flow sends no data, and is
/// not judged.
#[test]
fn control_packets_delay_no_packet_to_a_guest_in_c() {
    let attacker = |name: &str, core: u32, arguments: &str| {
        format!(
            "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"4MiB\"\n\
             image = {{ elf = \"malicious-driver\", args = \"controls=16 to=4 start_us=20000 \
             rounds=1000 every_us=200 {arguments}\" }}\nexpect = [\"control packets over MMIO\"]\n\
             [[flow]]\nname = \"{name}\"\nfrom = \"{name}\"\nto = \"follow\"\nport = 5001\n\
             size = \"64B\"\nperiod = \"100us\"\ndeadline = \"100us\"\n"
        )
    };
    let change = |text: String| {
        let connected = attacker("connected", 2, "from=5 op=credit-request stray=0");
        let stray = attacker("stray", 4, "from=6 op=data stray=1");
        text + &connected + &stray
    };
    for outcome in judge_each("flow.toml", change, &[]) {
        let flow = &outcome.report["flows"][0];
        assert_eq!((&flow["packets"], &flow["lost"]), (&100.into(), &0.into()), "{flow}");
        assert_eq!(flow["verdict"], "holds", "{flow}");
        assert!(outcome.consoles["follow"].contains("100 setpoints in order, 0 others, ended"));
        for name in ["connected", "stray"] {
            assert!(outcome.consoles[name].contains("control packets over"), "{name}");
        }
    }
}

#[test]
fn a_guest_in_c_runs_without_weir() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    let directory = tempfile::tempdir().expect("a directory");
    let qemu = std::env::var_os("WEIR_QEMU").unwrap_or_else(|| "qemu-system-aarch64".into());
    for built in build(directory.path()) {
        for gic in [2, 3] {
            let mut machine = Command::new(&qemu);
            machine.args(["-M", &format!("virt,gic-version={gic}"), "-cpu", "cortex-a53"]);
            machine.args(["-nographic", "-nic", "none", "-kernel"]).arg(built.join("hello.elf"));
            let printed = capture_within(machine.stdin(std::process::Stdio::null()), LIMIT);
            let line = format!("hello: GICv{gic}, without weir");
            assert_eq!(printed.out.lines().collect::<Vec<_>>(), [line], "{}", printed.err);
        }
    }
}
