//! Where things are: the checkout, the tools, and what is written where.

use crate::failure::{Failure, Result};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// The surroundings, from the variables that the `./weir` script sets, or as good as can be guessed.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The checkout: sources of the hypervisor and the guests. `WEIR_ROOT`, or the first directory upward
    /// from here or from this program that looks like one.
    root: Option<PathBuf>,
    /// Cargo. `WEIR_CARGO`, or `cargo` on the `PATH`.
    pub cargo: OsString,
    /// The compiler for cargo to use. `WEIR_RUSTC`, or cargo's own choice.
    pub rustc: Option<OsString>,
    /// Further arguments of cargo for bare-metal builds, such as `-Zbuild-std=core`. `WEIR_BARE_FLAGS`.
    pub bare_flags: Vec<String>,
    /// QEMU. `WEIR_QEMU`, or `qemu-system-aarch64` on the `PATH`.
    pub qemu: OsString,
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl Environment {
    /// As this process finds it.
    pub fn find() -> Self {
        let root = variable("WEIR_ROOT").map(PathBuf::from).or_else(|| {
            let here = env::current_dir().ok();
            let program = env::current_exe().ok();
            here.iter()
                .chain(&program)
                .flat_map(|path| path.ancestors())
                .find(is_checkout)
                .map(Into::into)
        });
        let flags = env::var("WEIR_BARE_FLAGS").unwrap_or_default();
        Self {
            root,
            cargo: variable("WEIR_CARGO").unwrap_or_else(|| "cargo".into()),
            rustc: variable("WEIR_RUSTC"),
            bare_flags: flags.split_whitespace().map(Into::into).collect(),
            qemu: variable("WEIR_QEMU").unwrap_or_else(|| "qemu-system-aarch64".into()),
        }
    }

    /// The checkout.
    pub fn root(&self) -> Result<&Path> {
        self.root.as_deref().ok_or_else(|| {
            Failure::environment(
                "cannot find weir's sources: call it in the checkout, or set WEIR_ROOT to it",
            )
        })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(Path::new("")).join(name)
    }

    /// Where runs are recorded: `WEIR_RUNS`, or `runs` in the checkout, or here without one.
    pub fn runs(&self) -> PathBuf {
        variable("WEIR_RUNS").map_or_else(|| self.place("runs"), PathBuf::from)
    }

    /// Where images are built: `build` in the checkout, or here without one.
    pub fn build(&self) -> PathBuf {
        self.place("build")
    }

    /// The names of the guests that come with weir: the folders of `guests`, sorted.
    pub fn guests(&self) -> Vec<String> {
        let entries = fs::read_dir(self.place("guests")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().join("Cargo.toml").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

fn is_checkout(path: &&Path) -> bool {
    path.join("crates/hypervisor/Cargo.toml").is_file() && path.join("guests").is_dir()
}
