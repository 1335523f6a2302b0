//! The stage python: the tests of the Python package `host/python`.

use std::{
    collections::hash_map::DefaultHasher,
    env, fs,
    hash::{Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the reason why the host's Python cannot run the tests, if it cannot.
///
/// The package is for Python 3.11 and newer, and its tests need an environment of their own.
pub fn unusable() -> Option<String> {
    let asks = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
    let output = Command::new("python3").args(["-c", asks]).output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) if output.stderr.is_empty() => Some("python3 is older than 3.11".to_owned()),
        Ok(_) => Some("python3 has no venv: install python3-venv".to_owned()),
        Err(error) => Some(format!("there is no python3: {error}")),
    }
}

/// An environment with what the tests import.
pub struct Environment {
    folder: PathBuf,
    package: PathBuf,
}

impl Environment {
    /// Returns the environment of a checkout, below the directory of downloads. Its name has a hash
    /// of what is installed in it, and of the checkout, whose package is installed as a link.
    pub fn of(root: &Path) -> io::Result<Self> {
        let package = root.join("host/python");
        let cache = env::var_os("WEIR_CACHE").filter(|value| !value.is_empty());
        let cache = cache.map_or_else(|| root.join(".cache"), PathBuf::from);
        let version = Command::new("python3").arg("--version").output()?.stdout;
        let mut hash = DefaultHasher::new();
        (root, fs::read(package.join(REQUIREMENTS))?, version).hash(&mut hash);
        Ok(Self { folder: cache.join(format!("python-{:016x}", hash.finish())), package })
    }

    /// Returns a program of it, which is called in the package's folder.
    pub fn program(&self, name: &str) -> Command {
        let bin = self.folder.join("bin");
        let mut command = Command::new(bin.join(name));
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_default()).env("VIRTUAL_ENV", &self.folder);
        command.current_dir(&self.package);
        command
    }

    /// Returns the commands that make it; none if it is there.
    pub fn commands(&self) -> Vec<Command> {
        if self.folder.join(DONE).exists() {
            return Vec::new();
        }
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.folder);
        let mut install = self.program("pip");
        install.args(["install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS]);
        // It is whole only with this file.
        let mut done = Command::new("touch");
        done.arg(self.folder.join(DONE));
        vec![make, install, done]
    }
}

/// The packages that the tests import, with their versions.
const REQUIREMENTS: &str = "requirements.txt";
/// The file that an environment has when everything is installed.
const DONE: &str = "installed";
