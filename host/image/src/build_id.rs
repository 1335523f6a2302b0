//! The identity of the hypervisor's build: which sources EL2 and the broker are made of.
//!
//! It is a hash of source text, so that it depends neither on the checkout's path nor on the
//! compiler or its host. Comments, blank lines and tests are left out: they change no instruction.

use crate::environment::Environment;
use std::{fs, io, path::Path, sync::OnceLock};

/// The crates that EL2 and the broker are built from, and the broker itself.
const SOURCES: [&str; 15] = [
    "core/broker/src",
    "core/partition/src",
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
    let id = ID.get_or_init(|| of(Environment::find().root().ok()?).ok());
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

fn add(path: &Path, name: &str, hash: &mut Fnv) -> io::Result<()> {
    if path.is_dir() {
        let mut names: Vec<String> = fs::read_dir(path)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        for entry in names {
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
