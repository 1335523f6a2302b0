//! The locations of the checkout, the tools and the outputs.

use crate::{
    failure::{Failure, Result},
    installation::{Installation, needs_sources, users_folder},
};
use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use toml::de::DeTable;

/// The checkout and the tools, by the variables that the `./weir` script sets, or by defaults.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The checkout: sources of the hypervisor and the guests. `WEIR_ROOT`, or the first directory
    /// upward from here or from this program that has the files of one.
    root: Option<PathBuf>,
    /// Cargo. `WEIR_CARGO`, or `cargo` on the `PATH`.
    pub cargo: OsString,
    /// The compiler for cargo to use. `WEIR_RUSTC`, or cargo's own choice.
    pub rustc: Option<OsString>,
    /// Further arguments of cargo for bare-metal builds, such as `-Zbuild-std=core`.
    /// `WEIR_BARE_FLAGS`.
    pub bare_flags: Vec<String>,
    /// QEMU. `WEIR_QEMU`, or `qemu-system-aarch64` on the `PATH`.
    pub qemu: OsString,
    /// The folders of the libraries that QEMU loads. `WEIR_LIBRARIES`, or those of the
    /// installation, or those where cargo puts them when it builds this program.
    libraries: Vec<PathBuf>,
    /// The installation that this program belongs to.
    installation: Option<Installation>,
}

impl Default for Environment {
    /// Returns what [`Self::find`] finds.
    fn default() -> Self {
        Self::find()
    }
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl Environment {
    /// Finds the checkout and the tools by the environment variables of this process.
    pub fn find() -> Self {
        let given = variable("WEIR_ROOT").map(PathBuf::from);
        let installation = || Installation::of(&env::current_exe().ok()?);
        let installation = if given.is_some() { None } else { installation() };
        let root = given.or_else(|| Some(installation.as_ref()?.share())).or_else(|| {
            let here = env::current_dir().ok();
            let program = env::current_exe().ok();
            here.iter()
                .chain(&program)
                .flat_map(|path| path.ancestors())
                .find(is_checkout)
                .map(Into::into)
        });
        let libraries = match (variable("WEIR_LIBRARIES"), &installation) {
            (Some(folder), _) => vec![folder.into()],
            (None, Some(installation)) => vec![installation.libraries()],
            (None, None) => {
                env::current_exe().map(|program| built_along(&program)).unwrap_or_default()
            }
        };
        let flags = env::var("WEIR_BARE_FLAGS").unwrap_or_default();
        Self {
            root,
            cargo: variable("WEIR_CARGO").unwrap_or_else(|| "cargo".into()),
            rustc: variable("WEIR_RUSTC"),
            bare_flags: flags.split_whitespace().map(Into::into).collect(),
            qemu: variable("WEIR_QEMU").unwrap_or_else(|| "qemu-system-aarch64".into()),
            libraries,
            installation,
        }
    }

    /// Returns the installation that this program belongs to.
    #[must_use]
    pub const fn installation(&self) -> Option<&Installation> {
        self.installation.as_ref()
    }

    /// Returns the directory of the checkout, with the sources.
    ///
    /// # Errors
    ///
    /// As [`Self::root`], and if this program belongs to an installation.
    pub fn sources(&self) -> Result<&Path> {
        if self.installation.is_some() { Err(needs_sources()) } else { self.root() }
    }

    /// Returns the directory of the checkout, or that of boards and examples of the installation.
    ///
    /// # Errors
    ///
    /// The environment is at fault if there is no checkout.
    pub fn root(&self) -> Result<&Path> {
        self.root.as_deref().ok_or_else(|| {
            Failure::environment(
                "cannot find weir's sources: call it in the checkout, or set WEIR_ROOT to it",
            )
        })
    }

    /// Returns the start of a command line of QEMU under instruction counting, for at most so many
    /// seconds, without the host's devices.
    #[must_use]
    pub fn counting_qemu(&self, seconds: &str) -> Command {
        // In weir's group of processes: Ctrl-C on the terminal ends it, too.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-k", "2", seconds]).arg(&self.qemu);
        command.args(["-icount", "shift=0,sleep=off", "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-monitor", "none"]);
        command
    }

    /// Returns the emulated clock, a shared object that QEMU loads twice.
    ///
    /// # Errors
    ///
    /// The environment is at fault if it is not there.
    pub fn clock(&self) -> Result<PathBuf> {
        self.library("libweir_clock.so")
    }

    /// Returns QEMU's plug-in, a shared object.
    ///
    /// # Errors
    ///
    /// As [`Self::clock`].
    pub fn plugin(&self) -> Result<PathBuf> {
        self.library("libweir_qemu_plugin.so")
    }

    fn library(&self, name: &str) -> Result<PathBuf> {
        let mut places = self.libraries.iter().map(|folder| folder.join(name));
        places.find(|path| path.is_file()).ok_or_else(|| {
            let folders: Vec<_> =
                self.libraries.iter().map(|folder| folder.display().to_string()).collect();
            let change = match self.installation {
                Some(_) => "install the package again",
                None => "build weir-cli by cargo, which builds it, too",
            };
            Failure::environment(format!(
                "{name}, which QEMU loads, is not in {}: {change}, or set WEIR_LIBRARIES to its \
                 folder",
                folders.join(" or ")
            ))
        })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(Path::new("")).join(name)
    }

    /// Returns the file of a system that comes with weir: an example or a fixture.
    ///
    /// # Errors
    ///
    /// As [`Self::root`].
    pub fn system(&self, name: &str) -> Result<PathBuf> {
        let root = self.root()?;
        let example = root.join("examples").join(name).join(name).with_extension("toml");
        let fixture = root.join("tests/systems").join(name).with_extension("toml");
        Ok(if example.is_file() { example } else { fixture })
    }

    /// Returns the directory of runs: `WEIR_RUNS`, or `runs` in the checkout, or here without one;
    /// of an installation, `weir/runs` of the user's state.
    pub fn runs(&self) -> PathBuf {
        let otherwise = || match self.installation {
            Some(_) => self.state().join("runs"),
            None => self.place("runs"),
        };
        variable("WEIR_RUNS").map_or_else(otherwise, PathBuf::from)
    }

    /// Returns the directory of the secret that guests' seeds follow from: `build` in the checkout,
    /// or here without one; of an installation, `weir` of the user's state, because a user deletes
    /// a cache, and another secret makes other images.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        match self.installation {
            Some(_) => users_folder("XDG_STATE_HOME", ".local/state"),
            None => self.build(),
        }
    }

    /// Returns the directory of what is made: `build` in the checkout, or here without one; of an
    /// installation, `weir` of the user's cache.
    #[must_use]
    pub fn build(&self) -> PathBuf {
        match self.installation {
            Some(_) => users_folder("XDG_CACHE_HOME", ".cache"),
            None => self.place("build"),
        }
    }

    /// Returns the directory of images that the user asks for: [`Self::build`], or, of an
    /// installation, the current one.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        if self.installation.is_some() { PathBuf::from(".") } else { self.build() }
    }

    /// Returns the directory of downloads: `WEIR_CACHE`, or `.cache` in the checkout, or
    /// [`Self::build`] of an installation.
    ///
    /// # Errors
    ///
    /// As [`Self::root`].
    pub fn downloads(&self) -> Result<PathBuf> {
        match self.installation {
            Some(_) => Ok(variable("WEIR_CACHE").map_or_else(|| self.build(), PathBuf::from)),
            None => self.root().map(cache_dir),
        }
    }

    /// Returns the names of the guests that come with weir, sorted.
    #[must_use]
    pub fn guests(&self) -> Vec<String> {
        match &self.installation {
            Some(installation) => installation.guests.keys().cloned().collect(),
            None => self.packages_of_guests().into_keys().collect(),
        }
    }

    /// Returns the folder of the package of each guest that comes with weir, by the guest's name:
    /// one for each folder of `guests/KIND`, and one for each program of `guests/attacks`.
    fn packages_of_guests(&self) -> BTreeMap<String, PathBuf> {
        let guests = self.place("guests");
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let attacks = guests.join("attacks");
        let programs = entries(&attacks.join("src/bin")).filter_map(|entry| {
            Some((entry.path().file_stem()?.to_str()?.to_owned(), attacks.clone()))
        });
        let folders = entries(&guests)
            .flat_map(|kind| entries(&kind.path()))
            .filter(|entry| entry.path().join("src/main.rs").is_file())
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        programs.chain(folders).collect()
    }

    /// Returns the name of the package that has the program of a guest that comes with weir.
    pub fn package(&self, guest: &str) -> String {
        let folder = self.packages_of_guests().remove(guest);
        let name = folder.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        name.unwrap_or(guest).to_owned()
    }

    /// Returns the keys of the arguments of a guest that comes with weir, as its manifest has them
    /// in `[package.metadata.weir]`: in `arguments`, or in `programs` for a program of a package of
    /// several. None if it declares none.
    #[must_use]
    pub fn arguments(&self, guest: &str) -> Option<Vec<String>> {
        if let Some(installation) = &self.installation {
            return installation.guests.get(guest)?.clone();
        }
        let manifest = self.packages_of_guests().get(guest)?.join("Cargo.toml");
        declared(&fs::read_to_string(manifest).ok()?, guest)
    }
}

/// Returns the directory of downloads: `WEIR_CACHE`, or `.cache` in `folder`.
#[must_use]
pub fn cache_dir(folder: &Path) -> PathBuf {
    variable("WEIR_CACHE").map_or_else(|| folder.join(".cache"), PathBuf::from)
}

/// Returns the folders where cargo puts the libraries that it builds along with `program`. First
/// that of dependencies: another build may have left old ones next to the program.
fn built_along(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new(""));
    vec![folder.join("deps"), folder.to_owned()]
}

/// The keys of a guest's arguments in the text of its package's manifest.
fn declared(manifest: &str, guest: &str) -> Option<Vec<String>> {
    let manifest = DeTable::parse(manifest).ok()?;
    let mut table = manifest.get_ref();
    for key in ["package", "metadata", "weir"] {
        table = table.get(key)?.get_ref().as_table()?;
    }
    let keys = match table.get("programs") {
        Some(programs) => programs.get_ref().as_table()?.get(guest)?,
        None => table.get("arguments")?,
    };
    let keys = keys.get_ref().as_array()?;
    keys.iter().map(|key| Some(key.get_ref().as_str()?.to_owned())).collect()
}

fn is_checkout(path: &&Path) -> bool {
    path.join("hypervisor/Cargo.toml").is_file() && path.join("guests").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_searched_in_all_folders() {
        let folder = tempfile::tempdir().expect("a directory");
        let libraries = built_along(&folder.path().join("weir"));
        let environment = Environment { libraries: libraries.clone(), ..Environment::find() };
        let missing = environment.clock().expect_err("no library");
        let [one, other] = [0, 1].map(|folder| libraries[folder].join("libweir_clock.so"));
        let place = folder.path().display();
        let expected = format!("which QEMU loads, is not in {place}/deps or {place}: ");
        assert!(missing.text.contains(&expected), "{}", missing.text);
        fs::write(&other, "").expect("a file");
        assert_eq!(environment.clock().ok(), Some(other));
        fs::create_dir(&libraries[0]).expect("a directory");
        fs::write(&one, "").expect("a file");
        assert_eq!(environment.clock().ok(), Some(one));
    }

    /// The sources of a guest: of a package's only program, or of one of several.
    fn sources(package: &Path, guest: &str) -> String {
        let read = |path: PathBuf| fs::read_to_string(path).expect("a text");
        let program = package.join("src/bin").join(guest);
        let file = program.with_extension("rs");
        if file.is_file() {
            return read(file);
        }
        let place = if program.is_dir() { program } else { package.join("src") };
        let sources = fs::read_dir(place).expect("sources").flatten();
        sources.map(|source| read(source.path())).collect()
    }

    /// Every guest declares its arguments: every key that it asks for is declared, and every
    /// declared one occurs in its sources.
    #[test]
    fn guests_declare_the_arguments_that_they_take() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a checkout");
        let environment = Environment { root: Some(root.to_owned()), ..Environment::find() };
        let mut seen = 0;
        for (guest, package) in environment.packages_of_guests() {
            let declared = environment.arguments(&guest);
            let declared = declared.unwrap_or_else(|| panic!("{guest} declares no arguments"));
            let text = sources(&package, &guest);
            let asked = ["number(\"", "get(\""].map(|call| text.split(call).skip(1));
            for key in asked.into_iter().flatten().filter_map(|rest| rest.split('"').next()) {
                assert!(declared.iter().any(|known| known == key), "{guest}: {key}");
                seen += 1;
            }
            for key in &declared {
                assert!(text.contains(&format!("\"{key}\"")), "{guest}: {key}");
            }
        }
        assert!(seen > 110, "{seen}");
    }
}
