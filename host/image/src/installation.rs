//! An installation of weir below a prefix such as `/usr`: the command with programs that were built
//! before, so that it needs neither a compiler nor a checkout.
//!
//! `PREFIX/bin/weir` is the command, `PREFIX/lib/weir` has the libraries that QEMU loads and the
//! programs for the boards, and `PREFIX/share/weir` has boards, examples and [`RECORD`].

use crate::failure::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

/// The file that describes an installation, in `PREFIX/share/weir`.
const RECORD: &str = "installed.json";

/// An installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// The build of the hypervisor, as results name it.
    pub build: String,
    /// The keys of the arguments of each guest that comes with it; none if it declares none.
    pub guests: BTreeMap<String, Option<Vec<String>>>,
    #[serde(skip)]
    prefix: PathBuf,
}

impl Installation {
    /// Returns an empty installation below `prefix`.
    #[must_use]
    pub fn below(prefix: &Path) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// Returns the installation that `program` belongs to; none if it belongs to none. One whose
    /// description is damaged has no guests.
    #[must_use]
    pub fn of(program: &Path) -> Option<Self> {
        let prefix = program.parent()?.parent()?;
        let record = fs::read(Self::below(prefix).share().join(RECORD)).ok()?;
        // It is an installation all the same: the command must not look for a compiler.
        let installation: Self = serde_json::from_slice(&record).unwrap_or_default();
        Some(Self { prefix: prefix.to_owned(), ..installation })
    }

    /// Returns whether its description is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.guests.is_empty()
    }

    /// Writes the file that describes it.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the file cannot be written.
    pub fn record(&self) -> Result {
        let path = self.share().join(RECORD);
        let text = serde_json::to_vec_pretty(self).context(|| "describe the installation")?;
        fs::write(&path, text).context(|| format!("write {}", path.display()))
    }

    /// Returns the folder of boards and examples, laid out as in a checkout.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        self.prefix.join("share/weir")
    }

    /// Returns the folder of the libraries that QEMU loads.
    #[must_use]
    pub fn libraries(&self) -> PathBuf {
        self.prefix.join("lib/weir")
    }

    /// Returns the folder of the programs for the boards.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.libraries().join("programs")
    }
}

/// Returns the user's folder of `kind`, as the XDG Base Directory Specification has it: that of the
/// variable, else `otherwise` below the home directory, else below the current one.
pub(crate) fn users_folder(variable: &str, otherwise: &str) -> PathBuf {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(otherwise)));
    base.unwrap_or_default().join("weir")
}

/// Returns the failure of a command that needs the sources.
pub(crate) fn needs_sources() -> Failure {
    Failure::environment(
        "this is an installation, and the command needs weir's sources: call ./weir in a checkout",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_its_installation() {
        let prefix = tempfile::tempdir().expect("a directory");
        let program = prefix.path().join("bin/weir");
        assert_eq!(Installation::of(&program), None);
        let mut installation = Installation::below(prefix.path());
        installation.build = "a1".to_owned();
        installation.guests.insert("echo".to_owned(), Some(vec!["lines".to_owned()]));
        fs::create_dir_all(installation.share()).expect("a folder");
        installation.record().expect("a record");
        assert_eq!(Installation::of(&program), Some(installation));
        fs::write(prefix.path().join("share/weir/installed.json"), "{").expect("a file");
        assert!(Installation::of(&program).expect("an installation").is_damaged());
    }
}
