//! The stages of `./weir test`.

use crate::{
    Context, Stage, boards,
    cargo::{Built, TestBinary, built, not_compiled},
    coverage, layers, libtest, losses, names,
    pool::{self, Job},
    process::{self, End},
    programs, progress, python,
    report::{Case, Outcome, StageReport, log_tail},
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Opens an empty file for the output of processes, which append to it.
pub fn output_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    File::options().create(true).append(true).read(true).open(path)
}

pub fn run(stage: Stage, context: &Context) -> io::Result<StageReport> {
    let started = Instant::now();
    let log = output_file(&context.log(stage))?;
    let mut report = StageReport {
        name: stage.name(),
        cases: Vec::new(),
        took: Duration::ZERO,
        binaries: Vec::new(),
        note: None,
        interrupted: false,
    };
    match stage {
        Stage::Format => format(context, &log, &mut report)?,
        Stage::Clippy => commands(clippy(context)?, stage, context, &log, &mut report)?,
        Stage::Doc => commands(doc(context)?, stage, context, &log, &mut report)?,
        Stage::Parts => commands(parts(context)?, stage, context, &log, &mut report)?,
        Stage::Unit => unit(context, &log, &mut report)?,
        Stage::Qemu => qemu(context, &log, &mut report)?,
        Stage::Python => python(context, &log, &mut report)?,
    }
    report.took = started.elapsed();
    report.interrupted = process::interrupted();
    Ok(report)
}

/// The result of a stage that counts as one test.
fn whole(outcome: Outcome) -> Case {
    Case { binary: String::new(), name: String::new(), outcome, took: Duration::ZERO }
}

/// Runs commands until one fails; together they count as one test.
fn commands(
    commands: Vec<Command>,
    stage: Stage,
    context: &Context,
    log: &File,
    report: &mut StageReport,
) -> io::Result<()> {
    for mut command in commands {
        let (end, _) = process::run(&mut command, log, process::UNLIMITED)?;
        if end == End::Interrupted {
            return Ok(());
        }
        if !end.success() {
            let why = log_tail(&context.log(stage));
            report.cases.push(whole(Outcome::Failed(why)));
            return Ok(());
        }
    }
    report.cases.push(whole(Outcome::Passed));
    Ok(())
}

fn format(context: &Context, log: &File, report: &mut StageReport) -> io::Result<()> {
    context.cargo.require_components()?;
    let check = context.cargo.tool("fmt", &["--all", "--check", "--", "--color", "never"]);
    commands(vec![check], Stage::Format, context, log, report)?;
    let found = names::too_long(&context.root)?;
    if !found.is_empty() {
        let why = format!(
            "names of tests have at most {} characters; these have more:\n{}",
            names::LONGEST,
            found.join("\n")
        );
        report.cases.push(whole(Outcome::Failed(why)));
    }
    let circles = layers::circles(&context.root)?;
    if !circles.is_empty() {
        let why = format!(
            "the modules of each crate form layers; these import themselves by way of others: move what \
             one of them imports from the next into a module of its own:\n{}",
            circles.join("\n")
        );
        report.cases.push(whole(Outcome::Failed(why)));
    }
    Ok(())
}

fn clippy(context: &Context) -> io::Result<Vec<Command>> {
    let cargo = &context.cargo;
    cargo.require_components()?;
    let mut commands = vec![cargo.tool("clippy", &["--all-targets", "--", "-D", "warnings"])];
    let gicv2 = [&hypervisor("gicv2,all")[..], &["--all-targets", "--", "-D", "warnings"]].concat();
    commands.push(cargo.tool("clippy", &gicv2));
    for (board, features) in HYPERVISORS {
        commands.push(for_board(board, cargo.bare_clippy(&hypervisor(features))));
    }
    // The vsock tool shares a crate with the guests and takes fewer of its features.
    commands.push(cargo.bare_clippy(&VSOCK_TOOL));
    commands.push(cargo.bare_clippy(&words(&cargo.guest_packages()?)));
    Ok(commands)
}

/// The board and the cargo features of the hypervisor's builds that every run lints: with all parts
/// and each kind of GIC, of UART and of start, and without optional parts, where memory has no page
/// classes. The stage qemu links those that it runs.
const HYPERVISORS: [(&str, &str); 4] = [
    ("zcu102", "gicv2,all"),
    ("rpi4", "gicv2,all"),
    ("qemu-virt", "gicv3"),
    ("qemu-virt", "gicv3,all"),
];

/// Links the hypervisor with each optional part alone, and without any on a GICv2. Lints the
/// emulated clock for a host of another architecture.
fn parts(context: &Context) -> io::Result<Vec<Command>> {
    let cargo = &context.cargo;
    cargo.require_components()?;
    let mut commands = Vec::new();
    for (board, features) in partial(&cargo.hypervisor_parts()?) {
        commands.push(for_board(board, cargo.bare("build", &hypervisor(&features))));
    }
    commands.push(cargo.clippy_for_aarch64_linux(&["-p", "weir-clock"])?);
    Ok(commands)
}

fn partial(parts: &[String]) -> Vec<(&'static str, String)> {
    let alone = parts.iter().map(|part| ("qemu-virt", format!("gicv3,{part}")));
    alone.chain([("qemu-virt-gicv2", "gicv2".to_owned())]).collect()
}

/// Has a command of cargo's build the hypervisor for a board.
fn for_board(board: &str, mut command: Command) -> Command {
    command.env("WEIR_BOARD", board);
    command
}

/// Arguments of cargo for the hypervisor with these features.
fn hypervisor(features: &str) -> [&str; 5] {
    ["-p", HYPERVISOR, "--no-default-features", "--features", features]
}

const HYPERVISOR: &str = "weir-hypervisor";
const VSOCK_TOOL: [&str; 2] = ["-p", "weir-vsock-tool"];

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn doc(context: &Context) -> io::Result<Vec<Command>> {
    let cargo = &context.cargo;
    let guests = cargo.guest_packages()?;
    let all = [&["--no-deps", "-p", "weir-hypervisor"][..], &words(&guests)].concat();
    let mut commands = vec![
        cargo.host(&["doc", "--no-deps"]),
        cargo.bare("doc", &all),
        cargo.bare("doc", &["--no-deps", "-p", "weir-vsock-tool"]),
    ];
    for command in &mut commands {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    Ok(commands)
}

/// Builds test binaries of these packages, or of all; each that does not build is a failed test.
fn build(
    context: &Context,
    stage: Stage,
    packages: &[String],
    arguments: &[&str],
    log: &File,
    report: &mut StageReport,
) -> io::Result<Built> {
    progress::show(stage.name(), "building the tests");
    let packages = packages.iter().flat_map(|name| ["--package", name]);
    let messages = context.logs.join(stage.name()).with_extension("json");
    let mut command = context.cargo.host(&["test", "--no-run", "--no-fail-fast"]);
    command.args(["--message-format=json-render-diagnostics"]);
    command.args(packages).args(arguments);
    let (end, took) =
        process::run_into(&mut command, &output_file(&messages)?, log, process::UNLIMITED)?;
    let built = built(&fs::read_to_string(&messages)?);
    fs::remove_file(messages)?;
    if !end.success() && end != End::Interrupted {
        let text = fs::read(context.log(stage))?;
        let text = String::from_utf8_lossy(&text);
        let mut names = not_compiled(&text);
        if names.is_empty() {
            names.push("cargo test --no-run".to_owned());
        }
        for name in names {
            let why = "does not build:\n".to_owned() + &errors(&text);
            report.cases.push(Case {
                binary: name,
                name: String::new(),
                outcome: Outcome::Failed(why),
                took,
            });
        }
    }
    Ok(built)
}

/// Returns the log from the first error on.
fn errors(log: &str) -> String {
    let errors: Vec<&str> = log.lines().skip_while(|line| !line.starts_with("error")).collect();
    errors.join("\n")
}

fn unit(context: &Context, log: &File, report: &mut StageReport) -> io::Result<()> {
    let packages = &context.packages;
    let mut built = build(context, Stage::Unit, packages, &["--lib", "--bins"], log, report)?;
    // The usual hypervisor has a GICv3.
    if packages.is_empty() || packages.iter().any(|name| name == HYPERVISOR) {
        let gicv2 = [&hypervisor("gicv2,all")[..], &["--bins"]].concat();
        let of_gicv2 = build(context, Stage::Unit, &[], &gicv2, log, report)?.tests.into_iter();
        built
            .tests
            .extend(of_gicv2.map(|binary| TestBinary { name: binary.name + " (gicv2)", ..binary }));
    }
    let only = context.only.as_slice();
    for (index, binary) in built.tests.iter().enumerate() {
        progress::show("unit", &format!("{index}/{} {}", built.tests.len(), binary.name));
        let mut command = binary.command();
        let took = harness(&binary.name, command.args(only), context, log, report)?;
        report.binaries.push((binary.name.clone(), took));
    }
    let libraries = context.cargo.libraries(packages)?;
    if packages.is_empty() || !libraries.is_empty() {
        progress::show("unit", "documentation tests");
        let mut doc = context.cargo.host(&["test", "--no-fail-fast", "--doc"]);
        let libraries = libraries.iter().flat_map(|name| ["--package", name]);
        doc.args(libraries).arg("--").args(only);
        harness("documentation", &mut doc, context, log, report)?;
    }
    if report.failed() == 0 && context.only.is_none() && packages.is_empty() {
        progress::show("unit", "coverage");
        report.note = Some(coverage::line(context)?);
    }
    Ok(())
}

/// Runs a program that runs many tests and prints their results.
fn harness(
    name: &str,
    command: &mut Command,
    context: &Context,
    mut log: &File,
    report: &mut StageReport,
) -> io::Result<Duration> {
    if process::interrupted() {
        return Ok(Duration::ZERO);
    }
    let start = log.seek(SeekFrom::End(0))?;
    let (end, took) = process::run(command, log, context.time_limit)?;
    log.seek(SeekFrom::Start(start))?;
    let mut output = Vec::new();
    log.read_to_end(&mut output)?;
    let output = String::from_utf8_lossy(&output);
    let cases = libtest::cases(name, &output);
    let known = cases.iter().any(|case| matches!(case.outcome, Outcome::Failed(_)));
    report.cases.extend(cases);
    // What keeps the tests from running is a failure, too.
    let why = match end {
        End::Interrupted => return Ok(took),
        End::Exited(status) if status.success() || known => return Ok(took),
        End::Exited(status) => format!("{output}\nit ended early: {status}"),
        End::TimedOut => format!("{output}{}", process::timed_out(context.time_limit)),
    };
    let (binary, outcome) = (name.to_owned(), Outcome::Failed(why));
    report.cases.push(Case { binary, name: String::new(), outcome, took });
    Ok(took)
}

fn qemu(context: &Context, log: &File, report: &mut StageReport) -> io::Result<()> {
    // Selected by target and not by package: cargo would compile the crates that they share again,
    // with the features of the chosen packages only.
    let mut targets = match &context.only {
        Some(text) => names::targets_with(text, &context.cargo.test_targets()?)?,
        None => Vec::new(),
    };
    if targets.is_empty() || !context.packages.is_empty() {
        targets = vec!["*".to_owned()];
    }
    let targets: Vec<&str> = targets.iter().flat_map(|name| ["--test", name]).collect();
    let built = build(context, Stage::Qemu, &context.packages, &targets, log, report)?;
    let mut jobs = Vec::new();
    for binary in &built.tests {
        let found: Vec<String> = list(binary)?
            .into_iter()
            .filter(|name| context.only.as_ref().is_none_or(|only| name.contains(only.as_str())))
            .collect();
        for board in &context.boards {
            let board = Some(board.as_str());
            let found = found.iter().filter(|name| boards::is_of_systems(name)).cloned();
            jobs.extend(found.map(|name| Job { binary, name, board }));
        }
        if context.boards.is_empty() {
            jobs.extend(found.into_iter().map(|name| Job { binary, name, board: None }));
        }
    }
    let programs = Path::new("built");
    // Long paths of sockets fail: the tests' files lie in a short path, which the runner removes.
    let folder = tempfile::tempdir()?;
    let weir = built.weir.filter(|_| !jobs.is_empty());
    let make_programs = || weir.map_or(Ok(()), |weir| programs::build(&weir, folder.path()));
    let variables = [(programs::BUILT, programs), ("TMPDIR", folder.path())];
    report.cases.extend(pool::run(context, jobs, make_programs, &variables, log)?);
    if let Some(file) = &context.table {
        fs::write(file, boards::table(&report.cases, &context.boards))?;
    }
    if let Some(file) = &context.losses {
        let log = fs::read(context.log(Stage::Qemu))?;
        let losses = losses::from_log(&String::from_utf8_lossy(&log)).ok_or_else(|| {
            io::Error::other(
                "no test reported a loss by an attack: call it with --only qemu_attacks",
            )
        })?;
        fs::write(file, format!("{losses:#}\n"))?;
    }
    Ok(())
}

/// Builds the Python package in an environment of its own, and checks its types and tests it there.
fn python(context: &Context, log: &File, report: &mut StageReport) -> io::Result<()> {
    if let Some(reason) = python::unusable() {
        report.note = Some(format!("not applicable: {reason}"));
        report.cases.push(whole(Outcome::NotApplicable(reason)));
        return Ok(());
    }
    // Tests run systems. The stage qemu has built the command in the same way.
    let built = build(context, Stage::Python, &[], &["--test", "end-to-end"], log, report)?;
    let Some(weir) = built.weir else { return Ok(()) };
    progress::show("python", "");
    let environment = python::Environment::of(&context.root)?;
    let mut all = environment.commands();
    let mut develop = environment.program("maturin");
    develop.args(["develop", "--quiet", "--locked"]);
    let mut types = environment.program("mypy");
    let mut tests = environment.program("pytest");
    tests.args(["-q", "--color=no", "--durations=5"]).env("WEIR_PROGRAM", weir);
    if let Some(only) = &context.only {
        tests.args(["-k", only]);
    }
    types.arg("--no-color-output");
    all.extend([develop, types, tests]);
    commands(all, Stage::Python, context, log, report)
}

/// Returns the names of a binary's tests.
fn list(binary: &TestBinary) -> io::Result<Vec<String>> {
    let arguments = ["--list", "--format", "terse"].map(OsStr::new);
    let output = binary.command().args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{} does not list its tests", binary.name)));
    }
    Ok(libtest::listed(&String::from_utf8_lossy(&output.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_hypervisor_is_built_alone() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hypervisor/Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("a manifest");
        let all = manifest.split_once("\nall = [").and_then(|(_, rest)| rest.split_once(']'));
        let parts = all.expect("the parts").0.split('"').skip(1).step_by(2);
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        let built = partial(&parts);
        for part in &parts {
            assert!(built.contains(&("qemu-virt", format!("gicv3,{part}"))), "{part}");
        }
        assert!(parts.len() > 1 && built.len() == parts.len() + 1, "{parts:?}");
    }
}
