//! The identity of the hypervisor's build: which sources EL2 and the broker are made of.
//!
//! It is a hash of source text, so that it depends neither on the checkout's path nor on the
//! compiler or its host. Comments, blank lines and tests are left out: they change no instruction.

use crate::environment::Environment;
use std::{fs, io, path::Path, sync::OnceLock};

/// The crates that EL2 and the broker are built from, and the broker itself.
const SOURCES: [&str; 15] = [
    "core/broker/src",
    "core/exchange/src",
    "core/abi/src",
    "guests/runtime/src",
    "hypervisor",
    "core/paging/src",
    "core/budget/src",
    "core/sched/src",
    "core/units/src",
    "core/trace/src",
    "core/uart/src",
    "core/vdev/src",
    "core/vsock/src",
    "core/zdma/src",
    "guests/service",
];

/// The identity of the checkout that this process uses; none where its sources are not found.
pub fn of_checkout() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    let id = ID.get_or_init(|| {
        let environment = Environment::find();
        match environment.installation() {
            Some(installation) => Some(installation.build.clone()),
            None => of(environment.root().ok()?).ok(),
        }
    });
    id.as_deref()
}

/// The identity of the sources under `root`: 12 hexadecimal digits.
fn of(root: &Path) -> io::Result<String> {
    let mut hash = Fnv::default();
    for place in SOURCES {
        add(&root.join(place), place, &mut hash)?;
    }
    Ok(format!("{:012x}", hash.0 >> 16))
}

/// The hash of every byte that the hypervisor's build can depend on: whole files of its crates, the
/// manifests and locked versions, the file `board`, and `more`.
///
/// # Errors
///
/// One of the files cannot be read.
pub fn of_files(root: &Path, board: &str, more: &[&[u8]]) -> io::Result<String> {
    const OTHERS: [&str; 3] = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
    let mut hash = Fnv::default();
    let crates = SOURCES.map(|source| source.strip_suffix("/src").unwrap_or(source));
    for place in crates.into_iter().chain(OTHERS).chain([board]) {
        add_bytes(&root.join(place), place, &mut hash)?;
    }
    for bytes in more {
        hash.add(bytes);
    }
    Ok(format!("{:016x}", hash.0))
}

fn add_bytes(path: &Path, name: &str, hash: &mut Fnv) -> io::Result<()> {
    hash.add(name.as_bytes());
    if !path.is_dir() {
        hash.add(&fs::read(path)?);
        return Ok(());
    }
    for entry in names(path)? {
        add_bytes(&path.join(&entry), &entry, hash)?;
    }
    Ok(())
}

/// Returns the sorted names of a folder's entries.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn add(path: &Path, name: &str, hash: &mut Fnv) -> io::Result<()> {
    if path.is_dir() {
        for entry in names(path)? {
            if !matches!(entry.as_str(), "tests" | "tests.rs" | "target") {
                add(&path.join(&entry), &format!("{name}/{entry}"), hash)?;
            }
        }
        return Ok(());
    }
    let code = [".rs", ".s", ".S", ".ld", ".lds", ".x"].iter().any(|end| name.ends_with(end));
    if code {
        hash.add(name.as_bytes());
        let text = fs::read_to_string(path)?;
        // A module of tests is at the end of its file.
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().map(str::trim) {
            if !line.is_empty() && !line.starts_with("//") {
                hash.add(line.as_bytes());
            }
        }
    }
    Ok(())
}

/// FNV-1a of 64 bits: it distinguishes builds and protects against nothing.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(b"\n") {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    /// Each crate of the workspace that the hypervisor or the broker names is hashed.
    #[test]
    fn all_crates_of_the_hypervisor_are_in_the_identity() {
        for package in SOURCES {
            let folder = package.strip_suffix("/src").unwrap_or(package);
            let Ok(manifest) = fs::read_to_string(root().join(folder).join("Cargo.toml")) else {
                continue;
            };
            let Some((_, dependencies)) = manifest.split_once("\n[dependencies]\n") else {
                continue;
            };
            let dependencies = dependencies.split("\n[").next().unwrap_or_default();
            for name in dependencies.lines().filter_map(|line| line.strip_prefix("weir-")) {
                let name = name.split(['.', ' ', '=']).next().unwrap_or_default();
                let place = match name {
                    "guest" => "guests/runtime/src".to_owned(),
                    "model" => "host/model/src".to_owned(),
                    _ => format!("core/{name}/src"),
                };
                assert!(
                    SOURCES.iter().any(|source| source.starts_with(&place)),
                    "{package} depends on weir-{name}, which is not in SOURCES"
                );
            }
        }
    }

    #[test]
    fn a_build_depends_on_each_of_its_files() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        };
        let changed = ["core/abi/Cargo.toml", "hypervisor/link.ld", "boards/a/board.toml"];
        let others = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
        for place in SOURCES {
            write(&format!("{place}/x.rs"), "fn a() {}\n");
        }
        for file in changed.into_iter().chain(others) {
            write(file, "");
        }
        let hash = |compiler: &[u8]| {
            of_files(root.path(), "boards/a/board.toml", &[compiler]).expect("a hash")
        };
        let mut last = hash(b"1.95");
        assert_eq!(last, hash(b"1.95"));
        assert_ne!(last, hash(b"1.96"));
        for file in changed.into_iter().chain(others).chain(["core/abi/src/x.rs"]) {
            write(file, "# Something else.\n");
            let new = hash(b"1.95");
            assert_ne!(last, new, "{file}");
            last = new;
        }
    }

    #[test]
    fn an_identity_depends_on_code_only() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let write = |root: &Path, code: &str| {
            for place in SOURCES {
                let path = root.join(place);
                fs::create_dir_all(&path).expect("folders");
                fs::write(path.join("x.rs"), code).expect("a file");
            }
            of(root).expect("an identity")
        };
        let code = "// One.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let first = write(one.path(), code);
        assert_eq!(first, write(other.path(), "fn a() {}\n// Two.\n"));
        assert_ne!(first, write(one.path(), "fn a() { loop {} }\n"));
        assert!(first.len() == 12 && of_checkout().is_some());
    }
}
