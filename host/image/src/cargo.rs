//! Builds through cargo: the hypervisor and the guests for the board.

use crate::{
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::BuildProgress,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};
use weir_abi::Features;
use weir_model::platform::Platform;

/// The target of everything that runs on the board.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";
/// The package, and the binary, of the hypervisor.
const HYPERVISOR: &str = "weir-hypervisor";
/// The package, and the binary, of what Linux guests send and receive by.
const VSOCK_TOOL: &str = "weir-vsock-tool";

/// The last lines of cargo's output that are shown when a build fails.
const TAIL: usize = 60;

/// Programs for the board. Each is kept after its build: a later build for another board does not
/// replace it.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
    /// Take what was built last.
    no_build: bool,
    /// The programs are those of an installation.
    installed: bool,
}

impl Programs {
    /// Returns the programs of `environment`. With `no_build` each is taken as it was built last.
    #[must_use]
    pub fn new(environment: &Environment, no_build: bool) -> Self {
        if let Some(installation) = environment.installation() {
            return Self { directory: installation.programs(), no_build: true, installed: true };
        }
        let directory = environment.build().join("programs");
        Self { directory, no_build, installed: false }
    }

    /// Builds the hypervisor with these optional parts for a board, and returns its ELF file.
    /// Without a build, a hypervisor with all parts is preferred.
    ///
    /// # Errors
    ///
    /// The call is wrong if `boards/` has no folder for the board, or another value there of a key
    /// that the hypervisor is built from, which is not compared without a build; the environment is
    /// at fault if cargo cannot build the hypervisor, or without a build if it is not there.
    pub fn hypervisor(
        &self,
        environment: &Environment,
        board: &Platform,
        parts: Features,
    ) -> Result<PathBuf> {
        let name = &board.name;
        let [all, kept] =
            [Features::ALL, parts].map(|parts| self.directory.join(kept_name(name, parts)));
        if self.installed {
            is_built_from(environment.root()?, board, true)?;
            // An installation has the hypervisors with all parts and with none.
            return self.present(if kept.is_file() { kept } else { all });
        }
        if self.no_build {
            return self.present(if all.is_file() { all } else { kept });
        }
        let root = environment.sources()?;
        is_built_from(root, board, false)?;
        let gic = if board.is_gic_v2() { "gicv2" } else { "gicv3" };
        let features: Vec<&str> = std::iter::once(gic).chain(parts.names()).collect();
        let features = features.join(",");
        let arguments = ["-p", HYPERVISOR, "--no-default-features", "--features", &features];
        let sources = sources(environment, root, name);
        let made_of = |kept: &Path| fs::read_to_string(kept.with_extension("sources")).ok();
        // Cargo puts the hypervisors of all boards in one place, so that it would build this one
        // again after each build for another board.
        if sources.is_none() || !kept.is_file() || made_of(&kept) != sources {
            self.build(environment, "the hypervisor", Some(name), &arguments, |program| {
                (program == HYPERVISOR).then(|| kept.clone())
            })?;
            let sources = sources.as_deref().unwrap_or_default();
            replace(&kept.with_extension("sources"), sources.as_bytes())?;
        }
        if kept != all && all.is_file() && made_of(&all) != sources {
            // It would be older than what a later command without a build expects.
            let _ = fs::remove_file(all.with_extension("sources"));
            let _ = fs::remove_file(&all);
        }
        self.present(kept)
    }

    /// Returns the ELF file of the kept hypervisor that an image begins with.
    ///
    /// # Errors
    ///
    /// The environment is at fault if no kept hypervisor is in the image.
    pub fn hypervisor_in(&self, image: &[u8]) -> Result<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut kept: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_str().is_some_and(|it| it.starts_with(HYPERVISOR)))
            .map(|entry| entry.path())
            .collect();
        kept.sort();
        let found = kept
            .into_iter()
            .find(|elf| fs::read(elf).is_ok_and(|elf| crate::flat::begins_with(image, &elf)));
        found.ok_or_else(|| {
            Failure::environment(
                "the image has another hypervisor than the one that was built last: build it again",
            )
        })
    }

    /// Returns where a guest's ELF file is after its build.
    #[must_use]
    pub fn path(&self, guest: &str) -> PathBuf {
        self.directory.join(guest)
    }

    /// Builds these guests and returns their ELF files by name.
    ///
    /// # Errors
    ///
    /// As [`Self::hypervisor`].
    pub fn guests(
        &self,
        environment: &Environment,
        names: &[String],
    ) -> Result<BTreeMap<String, PathBuf>> {
        let kept = |name: &str| self.path(name);
        if !self.no_build && !names.is_empty() {
            let packages: Vec<String> =
                names.iter().map(|name| environment.package(name)).collect();
            let arguments: Vec<&str> = packages
                .iter()
                .zip(names)
                .flat_map(|(package, name)| ["-p", package, "--bin", name])
                .collect();
            self.build(environment, "the guests", None, &arguments, |name| {
                names.iter().any(|known| known == name).then(|| kept(name))
            })?;
        }
        names.iter().map(|name| Ok((name.clone(), self.present(kept(name))?))).collect()
    }

    /// Builds the vsock tool of Linux guests and returns its ELF file.
    ///
    /// # Errors
    ///
    /// As [`Self::hypervisor`].
    pub fn vsock_tool(&self, environment: &Environment) -> Result<PathBuf> {
        if !self.no_build {
            let arguments = ["-p", VSOCK_TOOL];
            self.build(environment, "the Linux guests' program", None, &arguments, |name| {
                (name == VSOCK_TOOL).then(|| self.path(name))
            })?;
        }
        self.present(self.path(VSOCK_TOOL))
    }

    /// Returns the path of a program that is there.
    /// Returns the hypervisor that was built with exactly these parts; none if there is none.
    #[must_use]
    pub fn built(&self, board: &Platform, parts: Features) -> Option<PathBuf> {
        let path = self.directory.join(kept_name(&board.name, parts));
        path.is_file().then_some(path)
    }

    fn present(&self, path: PathBuf) -> Result<PathBuf> {
        if path.is_file() {
            return Ok(path);
        }
        let why = if self.installed {
            "this installation does not have it; a checkout builds it"
        } else {
            "build without --no-build"
        };
        Err(Failure::environment(format!("{} is not there: {why}", path.display())))
    }

    /// One call of cargo, for `board` if the programs depend on it. `keep` returns the destination
    /// of each resulting program.
    fn build(
        &self,
        environment: &Environment,
        what: &str,
        board: Option<&str>,
        arguments: &[&str],
        keep: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result {
        let directory = &self.directory;
        fs::create_dir_all(directory).context(|| format!("create {}", directory.display()))?;
        // Cargo puts the hypervisor of every board in one place: no other call may build before it
        // is kept.
        let lock = File::create(directory.join(".lock")).context(|| "lock the build")?;
        flock(&lock, FlockOperation::LockExclusive).context(|| "lock the build")?;
        let mut command = bare_build(environment)?;
        command.args(arguments);
        command.envs(board.map(|board| ("WEIR_BOARD", board)));
        for path in call(&mut command, what)? {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(kept) = keep(name) {
                replace(&kept, &fs::read(&path).context(|| format!("read {}", path.display()))?)?;
            }
        }
        Ok(())
    }
}

/// Identifies all that a board's hypervisor is built from: sources, manifests, the board file, the
/// compiler and its flags; none if one of the files cannot be read, which cargo then reports.
fn sources(environment: &Environment, root: &Path, board: &str) -> Option<String> {
    let rustc = environment.rustc.clone().or_else(|| env::var_os("RUSTC"));
    let version = Command::new(rustc.unwrap_or_else(|| "rustc".into())).arg("-vV").output();
    let version = version.map_or_else(|_| Vec::new(), |version| version.stdout);
    let flags = environment.bare_flags.join(" ");
    let board = format!("boards/{board}/board.toml");
    build_id::of_files(root, &board, &[&version, flags.as_bytes()]).ok()
}

/// The file name under which a board's hypervisor with these optional parts is kept.
fn kept_name(board: &str, parts: Features) -> String {
    let name = format!("{HYPERVISOR}-{board}");
    if parts == Features::ALL {
        return name;
    }
    let parts: Vec<&str> = parts.names().collect();
    format!("{name}-{}", if parts.is_empty() { "minimal".into() } else { parts.join("-") })
}

/// Checks that the board is the one in `root` that the hypervisor is built from.
fn is_built_from(root: &Path, board: &Platform, is_installed: bool) -> Result {
    let name = &board.name;
    let file = format!("boards/{name}/board.toml");
    let path = root.join(&file);
    if !path.is_file() {
        let change = if is_installed {
            "this installation builds nothing: build for this board in a checkout"
        } else {
            "put the file there"
        };
        return Err(Failure::call(format!(
            "there is no {file}, which the hypervisor for platform `{name}` is built from: \
             {change}, or correct the platform's `name`"
        )));
    }
    let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
    match board.differs_in_build(&text) {
        None => Ok(()),
        Some(key) if is_installed => Err(Failure::call(format!(
            "platform `{name}`: `{key}` differs from {file}, which the hypervisor of this \
             installation was built from: take the value from there, or build in a checkout"
        ))),
        Some(key) => Err(Failure::call(format!(
            "platform `{name}`: `{key}` differs from {file}, which the hypervisor is built from: \
             build weir again if that file was changed, else change it too, or give the platform \
             another `name` and a folder in boards/"
        ))),
    }
}

/// `cargo build` in the checkout for the boards' target, with messages for [`call`].
fn bare_build(environment: &Environment) -> Result<Command> {
    let mut command = Command::new(&environment.cargo);
    command.args(["build", "--message-format=json-render-diagnostics"]);
    command.args(["--profile", "bare", "--target", TARGET]).args(&environment.bare_flags);
    command.current_dir(environment.sources()?);
    if let Some(rustc) = &environment.rustc {
        command.env("RUSTC", rustc);
    }
    if !environment.bare_flags.is_empty() {
        // Their options are not stable; crates for the host must not see this variable.
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    Ok(command)
}

/// Runs cargo and returns the programs that its messages name.
fn call(command: &mut Command, what: &str) -> Result<Vec<PathBuf>> {
    let mut progress = BuildProgress::new(what);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        // Cargo's steps of total are in its progress bar.
        .envs([("CARGO_TERM_PROGRESS_WHEN", "always"), ("CARGO_TERM_PROGRESS_WIDTH", "100")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("start {program} (WEIR_CARGO selects the program)"))?;
    let stdout = child.stdout.take().map(BufReader::new);
    let stderr = child.stderr.take().map(BufReader::new);
    let programs = thread::spawn(move || {
        let lines = stdout.into_iter().flat_map(BufRead::lines).map_while(std::result::Result::ok);
        lines.filter_map(|line| executable(&line)).collect::<Vec<_>>()
    });
    let mut lines = Vec::new();
    for line in stderr.into_iter().flat_map(BufRead::lines).map_while(std::result::Result::ok) {
        // The bar stands in front of the line's own text and ends with a carriage return.
        let (bar, text) = line.rsplit_once('\r').unwrap_or(("", &line));
        if let Some((done, total)) = steps(bar) {
            progress.show(done, total);
        }
        lines.push(text.to_owned());
    }
    let status = child.wait().context(|| format!("wait for {program}"))?;
    let programs = programs.join().unwrap_or_default();
    drop(progress);
    if status.success() {
        return Ok(programs);
    }
    let from = lines.len().saturating_sub(TAIL);
    let tail = lines.get(from..).unwrap_or(&[]).join("\n");
    Err(Failure::environment(format!("cannot build {what} ({status}):\n{tail}")))
}

/// Returns the steps that cargo has done, and all of them, by its progress bar: crates and their
/// build scripts.
fn steps(bar: &str) -> Option<(u64, u64)> {
    let (_, rest) = bar.rsplit_once("] ")?;
    let (done, total) = rest.split_once(':')?.0.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

/// The program in one of cargo's messages, which is about something that it has built or found
/// fresh.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_built = message.get("reason")? == "compiler-artifact";
    Some(message.get("executable")?.as_str()?.into()).filter(|_| is_built)
}

/// Writes a file atomically, through links, unless it has these contents already.
///
/// # Errors
///
/// The environment is at fault if the file cannot be written.
pub fn replace(path: &Path, contents: &[u8]) -> Result {
    let writing = || format!("write {}", path.display());
    // What a link points to is what is meant, and what is no regular file is written to.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        return fs::write(&target, contents).context(writing);
    }
    if weir_model::read_regular(&target).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    let directory = target.parent().unwrap_or(Path::new("."));
    let permissions = old.map_or_else(
        || std::os::unix::fs::PermissionsExt::from_mode(0o644),
        |old| old.permissions(),
    );
    let mut file = tempfile::Builder::new()
        .permissions(permissions)
        .tempfile_in(directory)
        // The temporary file's name would only puzzle.
        .map_err(|error| std::io::Error::from(error.kind()))
        .context(writing)?;
    file.write_all(contents).context(writing)?;
    file.persist(&target).map_err(|error| error.error).context(writing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_a_file_keeps_its_link_and_mode() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
        let directory = tempfile::tempdir().expect("a directory");
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        fs::write(&file, "old").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its rights");
        symlink(&file, &link).expect("a link");
        assert!(replace(&link, b"new").is_ok());
        assert_eq!(fs::read(&file).expect("the file"), b"new");
        assert_eq!(fs::metadata(&file).expect("its rights").permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        assert!(replace(Path::new("/dev/null"), b"new").is_ok());
        assert!(fs::metadata("/dev/null").expect("it").file_type().is_char_device());
    }

    #[test]
    fn a_changed_copy_of_a_board_file_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let folder = root.path().join("boards/rpi4");
        fs::create_dir_all(&folder).expect("a folder");
        let text = include_str!("../../../boards/rpi4/board.toml");
        fs::write(folder.join("board.toml"), text).expect("the board file");
        let outcome = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let copy = root.path().join("copy.toml");
            fs::write(&copy, text.replacen(from, to, 1)).expect("a copy");
            is_built_from(root.path(), &Platform::load(&copy).expect("a board"), false)
        };
        assert!(outcome("description = \"", "description = \"Our ").is_ok());
        assert!(outcome("min_period = \"", "min_period = \"1").is_ok(), "EL2 is not built from it");
        let failure = outcome("mpidr = 3", "mpidr = 0x103").expect_err("another core");
        assert!(failure.text.contains("`core.mpidr` differs from"), "{}", failure.text);
        assert_eq!(failure.status, crate::failure::CALL);
    }

    #[test]
    fn each_set_of_parts_has_a_file_name() {
        assert_eq!(kept_name("rpi4", Features::ALL), "weir-hypervisor-rpi4");
        assert_eq!(kept_name("zcu102", Features::NONE), "weir-hypervisor-zcu102-minimal");
        let two = Features::BROKER.with(Features::SHARED_CORES);
        assert_eq!(kept_name("rpi4", two), "weir-hypervisor-rpi4-broker-shared-cores");
    }

    /// A hypervisor with all parts is taken first: tests and measurements rely on it.
    #[test]
    fn without_a_build_all_parts_are_preferred() {
        let directory = tempfile::tempdir().expect("a directory");
        let environment = Environment::find();
        let directory_of = directory.path().to_owned();
        let programs = Programs { directory: directory_of, no_build: true, installed: false };
        let board = Platform::named("qemu-virt").expect("a board");
        let found = || programs.hypervisor(&environment, &board, Features::NONE);
        assert!(found().is_err());
        for name in ["weir-hypervisor-qemu-virt-minimal", "weir-hypervisor-qemu-virt"] {
            let path = directory.path().join(name);
            fs::write(&path, name).expect("a file");
            assert_eq!(found().ok(), Some(path));
        }
    }

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"x"},"executable":"/t/x"}"#;
        assert_eq!(executable(line), Some("/t/x".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("not JSON"), None);
        assert_eq!(executable(r#"{"reason":"build-script-executed","executable":"/t/x"}"#), None);
    }

    #[test]
    fn steps_are_found_in_cargos_bar() {
        let bar = "    Building [===>  ] 4/16: a\r    Building [====> ] 12/16: serde(build), syn  ";
        assert_eq!(steps(bar), Some((12, 16)));
        assert_eq!(steps("   Compiling syn v3.0.10"), None);
        assert_eq!(steps(" Downloading 1 crate, remaining bytes: 5  "), None);
    }

    #[test]
    fn a_failed_build_shows_cargos_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo error: no such crate >&2; exit 101"]);
        let failure = call(&mut command, "the guests").expect_err("it fails");
        assert_eq!(failure.status, crate::failure::ENVIRONMENT);
        assert!(failure.text.contains("error: no such crate"), "{}", failure.text);
        let missing = call(&mut Command::new("/nowhere/cargo"), "x").expect_err("it fails");
        assert!(missing.text.contains("WEIR_CARGO"), "{}", missing.text);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x");
        replace(&path, b"one").expect("it is written");
        let before = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        replace(&path, b"one").expect("it stays");
        assert_eq!(fs::metadata(&path).and_then(|file| file.modified()).expect("a time"), before);
        replace(&path, b"two").expect("it is written");
        assert_eq!(fs::read(&path).expect("it is there"), b"two");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }
}
