//! Calls of cargo, for the host and for bare metal.

use serde_json::Value;
use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Command,
    str,
};

/// The target of everything that runs on a board.
const TARGET: &str = "aarch64-unknown-none-softfloat";
/// Linux on AArch64.
const AARCH64_LINUX: &str = "aarch64-unknown-linux-gnu";

/// The toolchain that the script `weir` chose.
pub struct Cargo {
    root: PathBuf,
    host: OsString,
    /// Cargo for bare-metal builds.
    bare: OsString,
    /// Its further arguments.
    bare_flags: Vec<String>,
}

/// A test binary of cargo's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestBinary {
    /// Package and target, such as `weir-cli::qemu_flows`.
    pub name: String,
    pub executable: PathBuf,
    /// Folder of the package.
    pub package: PathBuf,
}

/// A test target, by its name, which targets of other packages can have, too, and its root file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestTarget {
    pub name: String,
    pub root: PathBuf,
}

/// The results of `cargo test --no-run`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Built {
    pub tests: Vec<TestBinary>,
    /// The `weir` command.
    pub weir: Option<PathBuf>,
}

impl Cargo {
    pub fn from_environment(root: &Path) -> io::Result<Self> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let host = variable("CARGO").ok_or_else(|| {
            io::Error::other("CARGO is not set: run the tests by the script, `./weir test`")
        })?;
        let bare = variable("WEIR_CARGO").unwrap_or_else(|| host.clone());
        let flags = env::var("WEIR_BARE_FLAGS").unwrap_or_default();
        let bare_flags = flags.split_whitespace().map(str::to_owned).collect();
        Ok(Self { root: root.to_owned(), host, bare, bare_flags })
    }

    /// Cargo in the checkout.
    pub fn host(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.host);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// Cargo in the checkout, for bare metal.
    pub fn bare(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.bare);
        command.current_dir(&self.root).arg(verb);
        self.add_bare(&mut command, arguments);
        command
    }

    /// A subcommand of the chosen toolchain, such as `cargo-clippy` with the verb `clippy`.
    pub fn tool(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder().join(format!("cargo-{verb}")));
        command.current_dir(&self.root).arg(verb).args(arguments);
        command
    }

    /// `cargo clippy` for bare metal, which calls cargo by `CARGO`.
    pub fn bare_clippy(&self, arguments: &[&str]) -> Command {
        let mut command = self.tool("clippy", &[]);
        command.env("CARGO", &self.bare);
        self.add_bare(&mut command, arguments);
        command.args(["--", "-D", "warnings"]);
        command
    }

    /// `cargo clippy` for Linux on AArch64.
    ///
    /// # Errors
    ///
    /// rustup cannot install its standard library. Other toolchains compile it.
    pub fn clippy_for_aarch64_linux(&self, arguments: &[&str]) -> io::Result<Command> {
        let mut command = self.tool("clippy", &["--target", AARCH64_LINUX]);
        if self.bare_flags.is_empty() {
            self.rustup(&["target", "add", AARCH64_LINUX])?;
        } else {
            // An option that is not stable.
            command.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std");
        }
        command.args(arguments).args(["--", "-D", "warnings"]);
        Ok(command)
    }

    /// Calls rustup for the chosen toolchain, if it is one of rustup's.
    fn rustup(&self, verb: &[&str]) -> io::Result<()> {
        let folder = self.folder();
        let toolchain = folder.parent().filter(|toolchain| {
            toolchain.parent().and_then(Path::file_name).is_some_and(|it| it == "toolchains")
        });
        let Some(name) = toolchain.and_then(Path::file_name) else { return Ok(()) };
        let mut command = Command::new("rustup");
        let output = command.args(verb).arg("--toolchain").arg(name).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    fn add_bare(&self, command: &mut Command, arguments: &[&str]) {
        if !self.bare_flags.is_empty() {
            // Their options are not stable.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command.args(&self.bare_flags).args(["--target", TARGET, "--profile", "bare"]);
        command.args(arguments);
    }

    /// Folder of the toolchain's programs.
    fn folder(&self) -> PathBuf {
        Path::new(&self.host).parent().unwrap_or(Path::new("")).to_owned()
    }

    /// Installs rustfmt and clippy if rustup's toolchain does not have them.
    ///
    /// # Errors
    ///
    /// They are missing and rustup cannot install them.
    pub fn require_components(&self) -> io::Result<()> {
        let folder = self.folder();
        let present = || ["cargo-fmt", "cargo-clippy"].iter().all(|it| folder.join(it).exists());
        if present() {
            return Ok(());
        }
        // If it fails, they are still missing.
        let _ = self.rustup(&["component", "add", "rustfmt", "clippy"]);
        if present() {
            return Ok(());
        }
        let folder = folder.display();
        Err(io::Error::other(format!("rustfmt and clippy are missing in {folder}")))
    }

    /// Returns the packages of the guests as arguments of cargo.
    pub fn guest_packages(&self) -> io::Result<Vec<String>> {
        let guests = self.root.join("guests");
        let packages = self.packages()?;
        let here = packages.iter();
        let here = here.filter(|package| path(&package["manifest_path"]).starts_with(&guests));
        let names = here.filter_map(|package| package["name"].as_str());
        Ok(names.flat_map(|name| ["-p".to_owned(), name.to_owned()]).collect())
    }

    /// Returns the optional parts of the hypervisor: what its feature `all` has.
    pub fn hypervisor_parts(&self) -> io::Result<Vec<String>> {
        let packages = self.packages()?;
        let hypervisor = packages.iter().find(|package| package["name"] == "weir-hypervisor");
        let all = hypervisor.and_then(|package| package["features"]["all"].as_array());
        let parts = all.into_iter().flatten().filter_map(|part| part.as_str().map(str::to_owned));
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            return Err(io::Error::other("weir-hypervisor has no feature `all` with its parts"));
        }
        Ok(parts)
    }

    /// Returns those of these packages that have a library, which can have documentation tests.
    pub fn libraries(&self, packages: &[String]) -> io::Result<Vec<String>> {
        let has_library = |package: &Value| targets(package).any(|target| is(target, "lib"));
        let all = self.packages()?;
        let names = all.iter().filter(|it| has_library(it)).filter_map(|it| it["name"].as_str());
        let names = names.filter(|name| packages.iter().any(|known| known == name));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the integration tests of all packages.
    pub fn test_targets(&self) -> io::Result<Vec<TestTarget>> {
        let mut found = Vec::new();
        for package in self.packages()? {
            let tests = targets(&package).filter(|target| is(target, "test"));
            found.extend(tests.map(|target| TestTarget {
                name: target["name"].as_str().unwrap_or_default().to_owned(),
                root: path(&target["src_path"]).to_owned(),
            }));
        }
        Ok(found)
    }

    /// Returns the packages of the workspace, as cargo describes them.
    fn packages(&self) -> io::Result<Vec<Value>> {
        let output = self.host(&["metadata", "--no-deps", "--format-version=1"]).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
        Ok(serde_json::from_value(metadata["packages"].take())?)
    }
}

fn targets(package: &Value) -> impl Iterator<Item = &Value> {
    package["targets"].as_array().into_iter().flatten()
}

/// Returns whether a target is of this kind.
fn is(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == kind))
}

fn path(value: &Value) -> &Path {
    Path::new(value.as_str().unwrap_or_default())
}

/// Reads the messages of `cargo test --no-run --message-format=json`.
pub fn built(messages: &str) -> Built {
    let mut built = Built::default();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for message in messages.filter(|message| message["executable"].is_string()) {
        let target = &message["target"];
        let executable = path(&message["executable"]).to_owned();
        let name = target["name"].as_str().unwrap_or_default();
        if message["profile"]["test"] == true {
            let package = path(&message["manifest_path"]).parent().unwrap_or(Path::new(""));
            let name = format!("{}::{name}", package_name(&message["package_id"]));
            built.tests.push(TestBinary { name, executable, package: package.to_owned() });
        } else if name == "weir" {
            built.weir = Some(executable);
        }
    }
    built.tests.sort_by(|a, b| a.name.cmp(&b.name));
    built
}

/// Returns the package of an identity such as `path+file:///weir/host/cli#weir-cli@0.1.0`.
fn package_name(id: &Value) -> &str {
    let id = id.as_str().unwrap_or_default();
    let (url, fragment) = id.rsplit_once('#').unwrap_or(("", id));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        // The name is left out if it is that of the folder.
        None => url.rsplit('/').next().unwrap_or(fragment),
    }
}

/// Returns what cargo could not compile, from its log: such as ``weir-cli (test "cli")``.
pub fn not_compiled(log: &str) -> Vec<String> {
    let errors = log.lines().filter_map(|line| line.strip_prefix("error: could not compile `"));
    let name = |rest: &str| {
        let rest = rest.split(" due to ").next().unwrap_or(rest);
        rest.replacen('`', "", 1)
    };
    let mut names: Vec<String> = errors.map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_and_the_command_are_found() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///a%20b/host/cli#weir-cli@0.1.0","manifest_path":"/a b/host/cli/Cargo.toml","target":{"kind":["test"],"name":"cli"},"profile":{"test":true},"executable":"/t/cli-1"}
{"reason":"compiler-artifact","package_id":"path+file:///a/host/cli#weir-cli@0.1.0","manifest_path":"/a/host/cli/Cargo.toml","target":{"kind":["bin"],"name":"weir"},"profile":{"test":false},"executable":"/t/weir"}
{"reason":"compiler-artifact","package_id":"path+file:///a/mesh#0.1.0","manifest_path":"/a/mesh/Cargo.toml","target":{"kind":["lib"],"name":"mesh"},"profile":{"test":true},"executable":"/t/mesh-1"}
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/x","target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}
not JSON
"#;
        let built = built(messages);
        let names: Vec<&str> = built.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["mesh::mesh", "weir-cli::cli"]);
        assert_eq!(built.tests[1].package, Path::new("/a b/host/cli"));
        assert_eq!(built.weir.as_deref(), Some(Path::new("/t/weir")));
    }

    #[test]
    fn what_did_not_compile_is_named_once() {
        let log = "error[E0425]: x\n\
                   error: could not compile `weir-cli` (test \"cli\") due to 2 previous errors\n\
                   error: could not compile `weir-cli` (test \"cli\") due to 2 previous errors; 1 \
                   warning emitted\n";
        assert_eq!(not_compiled(log), ["weir-cli (test \"cli\")"]);
    }
}
