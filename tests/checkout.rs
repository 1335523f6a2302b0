//! The systems and the guests of this checkout, for the tests of crates two folders below it.
#![allow(dead_code, reason = "each test crate uses its part")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a checkout").to_owned()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the names of all guests that come with weir, sorted.
pub fn guests() -> Vec<String> {
    let guests = root().join("guests");
    let folders = entries(&guests).into_iter().flat_map(|kind| entries(&kind));
    let folders = folders.filter(|folder| folder.join("src/main.rs").is_file());
    let programs = folders.chain(entries(&guests.join("attacks/src/bin")));
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = programs.map(name).collect();
    names.sort();
    names
}

/// Returns the files of all systems: the examples and the fixtures, sorted by name.
pub fn systems() -> Vec<PathBuf> {
    let examples = entries(&root().join("examples")).into_iter().flat_map(|one| entries(&one));
    let all = examples.chain(entries(&root().join("tests/systems")));
    let mut systems: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    systems.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    assert!(systems.len() >= 40, "{} systems", systems.len());
    systems
}

/// Returns the file of the system `name`.
pub fn system(name: &str) -> PathBuf {
    let found = systems().into_iter().find(|path| path.file_stem().unwrap() == name);
    found.unwrap_or_else(|| panic!("no system {name}"))
}
