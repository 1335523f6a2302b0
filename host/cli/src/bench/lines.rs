//! How many lines of code the hypervisor is made of.
//!
//! The rule: a line counts when it is in a file that is compiled into the hypervisor's binary and
//! is neither blank nor a comment. In detail:
//! - Counted are the hypervisor's crate and the crates of this workspace that it links, as
//!   `cargo tree` names them with their features, from each root file along `mod name;` (with
//!   `#[path = ..]`) and `include_str!("name.s")`. Crates of others, build scripts, linker scripts
//!   and generated constants are not.
//! - A comment line begins with `//` (so documentation is one), or lies in a `/*` comment that
//!   begins a line. In assembly `#` begins a comment too. Code with a comment behind it is code.
//! - What a `#[cfg(..)]` leaves out of the build is left out here, tests with it. Such an item ends
//!   at the first line in its attribute's column that ends in `}`, `;` or `,` (or deeper, where
//!   nothing is open: `const A: u32 =` on a line of its own). The sources are formatted by rustfmt,
//!   which makes that exact without parsing Rust, but for strings that span lines. Such a string
//!   can only end an item too early, so that more lines are counted, never fewer.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Serialize;

use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
};

/// How `cargo tree` is asked for what is linked into the hypervisor for GICv3; the same features as
/// in [`crate::cargo::Programs::hypervisor`].
const TREE: [&str; 14] = [
    "tree",
    "--offline",
    "--package=weir-hypervisor",
    "--edges=normal",
    "--target",
    crate::cargo::TARGET,
    "--no-default-features",
    "--features=gicv3",
    "--prefix=none",
    "--no-dedupe",
    "--charset=ascii",
    "--color=never",
    "--format",
    "{p}|{f}",
];

/// A crate of the workspace that is linked into the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    directory: PathBuf,
    features: Vec<String>,
}

/// The crates of the workspace in the output of [`TREE`]: lines of
/// `NAME vVERSION (DIRECTORY)|FEATURES`. Those of a registry have no directory, and macros are not
/// linked.
fn crates(tree: &str) -> Vec<Crate> {
    let of_line = |line: &str| {
        let (package, features) = line.split_once('|')?;
        let (name, rest) = package.split_once(' ')?;
        let directory = rest.split_once(" (/")?.1.strip_suffix(')')?;
        Some(Crate {
            name: name.to_owned(),
            directory: PathBuf::from(format!("/{directory}")),
            features: features.split(',').map(|name| name.trim().to_owned()).collect(),
        })
    };
    let mut crates: Vec<_> = tree.lines().filter_map(of_line).collect();
    crates.sort();
    crates.dedup();
    crates
}

/// Runs `cargo tree` in the work tree at `root`.
fn linked(root: &Path) -> Result<Vec<Crate>> {
    let environment = Environment::find();
    let mut command = Command::new(&environment.cargo);
    command.args(TREE).current_dir(root).stdin(Stdio::null());
    if let Some(rustc) = &environment.rustc {
        command.env("RUSTC", rustc);
    }
    let output = command.output().context(|| "run `cargo tree`")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::environment(format!("`cargo tree` failed: {}", text.trim())));
    }
    let crates = crates(&String::from_utf8_lossy(&output.stdout));
    if !crates.iter().any(|one| one.name == "weir-hypervisor") {
        return Err(Failure::environment("`cargo tree` does not name weir-hypervisor"));
    }
    Ok(crates)
}

/// What the lines of a file are for: the first part that names a piece of its path, else [`CORE`].
const PARTS: [(&str, &[&str]); 2] = [
    (
        "memory by cells",
        &[
            "/cells/",
            "/walk.rs",
            "/packed/memory.rs",
            "/packed/stage2.rs",
            "/space.rs",
            "/ownership.rs",
        ],
    ),
    ("PCI and SMMU", &["/pci", "/smmu", "/ecam.rs"]),
];
/// Everything else.
const CORE: &str = "all else";

/// Lines of code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lines {
    /// Of Rust, inline assembly included.
    pub rust: u64,
    /// Of assembly files.
    pub assembly: u64,
    /// All of them by what they are for.
    pub parts: BTreeMap<&'static str, u64>,
    /// All of them by the crate that they are in.
    pub crates: BTreeMap<String, u64>,
}

impl Lines {
    /// Counts the hypervisor's lines in the work tree at `root`.
    pub fn of_hypervisor(root: &Path) -> Result<Self> {
        let mut lines = Self::default();
        for Crate { name, directory, features } in linked(root)? {
            let before = lines.total();
            let features: Vec<&str> = features.iter().map(String::as_str).collect();
            let roots = ["src/main.rs", "src/lib.rs"].map(|file| directory.join(file));
            let file = roots.iter().find(|file| file.exists()).ok_or_else(|| {
                Failure::environment(format!("{}: no root file", directory.display()))
            })?;
            lines.add_rust(file, &features)?;
            lines.crates.insert(name, lines.total() - before);
        }
        Ok(lines)
    }

    /// Both together.
    pub fn total(&self) -> u64 {
        self.rust + self.assembly
    }

    fn file_under(&mut self, file: &Path, lines: u64) {
        let path = file.to_string_lossy();
        // Not where the checkout lies.
        let path = ["/hypervisor/src/", "/core/", "/host/model/"]
            .iter()
            .find_map(|folder| path.rsplit_once(folder))
            .map_or(&*path, |(_, inside)| inside);
        let part = PARTS.iter().find(|(_, pieces)| pieces.iter().any(|piece| path.contains(piece)));
        *self.parts.entry(part.map_or(CORE, |(name, _)| name)).or_default() += lines;
    }

    fn add_rust(&mut self, file: &Path, features: &[&str]) -> Result {
        let source = Source::scan(&read(file)?, features)
            .map_err(|error| Failure::environment(format!("{}: {error}", file.display())))?;
        self.rust += source.lines;
        self.file_under(file, source.lines);
        let directory = file.parent().unwrap_or(Path::new("."));
        for name in source.assembly {
            let text = read(&directory.join(name))?;
            let lines = code_lines(&text, &["//", "#"]).count() as u64;
            self.assembly += lines;
            self.file_under(file, lines);
        }
        for module in source.modules {
            self.add_rust(&module.find(file, directory)?, features)?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).context(|| format!("read {}", file.display()))
}

/// A module in a file of its own.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// Its `#[path]`.
    path: Option<String>,
}

impl Module {
    /// Its file, if `parent` in `directory` declares it (Rust reference, "Module source files").
    fn find(&self, parent: &Path, directory: &Path) -> Result<PathBuf> {
        if let Some(path) = &self.path {
            return Ok(directory.join(path));
        }
        let stem = parent.file_stem().unwrap_or_default();
        let directory = if ["lib", "main", "mod"].iter().any(|root| stem == *root) {
            directory.to_owned()
        } else {
            directory.join(stem)
        };
        let name = &self.name;
        [directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")]
            .into_iter()
            .find(|file| file.exists())
            .ok_or_else(|| {
                Failure::environment(format!("{}: no file for `mod {name}`", parent.display()))
            })
    }
}

/// One Rust file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Source {
    lines: u64,
    modules: Vec<Module>,
    /// Assembly files that it includes.
    assembly: Vec<String>,
}

impl Source {
    fn scan(text: &str, features: &[&str]) -> std::result::Result<Self, String> {
        let mut source = Self::default();
        let mut path = None;
        let mut lines = code_lines(text, &["//"]);
        while let Some(line) = lines.next() {
            let code = line.trim();
            if code.starts_with("#[cfg(") || code.starts_with("#![cfg(") {
                let mut attribute = code.to_owned();
                let mut length = 1;
                while !attribute.ends_with(")]") {
                    attribute.push_str(lines.next().ok_or("an attribute has no end")?.trim());
                    length += 1;
                }
                let start = attribute.find("cfg(").unwrap_or_default() + "cfg(".len();
                if holds(&attribute[start..attribute.len() - ")]".len()], features)? {
                    source.lines += length;
                } else if code.starts_with("#![") {
                    return Ok(Self::default());
                } else {
                    skip_item(&mut lines, indentation(line)).ok_or("an item has no end")?;
                }
                continue;
            }
            source.lines += 1;
            if let Some(name) = quoted(code, "#[path = \"") {
                path = Some(name.to_owned());
            } else if let Some(name) = module(code) {
                source.modules.push(Module { name: name.to_owned(), path: path.take() });
            }
            if let Some(name) = quoted(code, "include_str!(\"")
                && Path::new(name).extension().is_some_and(|extension| extension == "s")
            {
                source.assembly.push(name.to_owned());
            }
        }
        Ok(source)
    }
}

/// The lines of `text` that are neither blank nor comments.
fn code_lines<'a>(text: &'a str, comments: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let mut in_comment = false;
    text.lines().filter(move |line| {
        let line = line.trim();
        if in_comment || line.starts_with("/*") {
            in_comment = !line.contains("*/");
            return false;
        }
        !line.is_empty() && !comments.iter().any(|comment| line.starts_with(comment))
    })
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Passes over the item, field, arm or statement behind an attribute that is indented by `indent`.
/// None if it has no end.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: usize) -> Option<()> {
    // Whether the last line in the item's own column leaves something open below it, as `{` does
    // and the `=` of a constant does not.
    let mut open = true;
    for line in lines {
        let code = line.split(" //").next().unwrap_or(line).trim();
        let ends = code.ends_with(['}', ';', ',']);
        if indentation(line) > indent {
            if !open && ends && !code.ends_with('}') {
                return Some(());
            }
        } else if !code.starts_with("#[") {
            if ends {
                return Some(());
            }
            open = code.ends_with(['{', '(', '[', '<']) || code == "where";
        }
    }
    None
}

/// The text between `start` and the next quotation mark.
fn quoted<'a>(code: &'a str, start: &str) -> Option<&'a str> {
    code.split_once(start)?.1.split_once('"').map(|(name, _)| name)
}

/// The name in `mod name;`, with any visibility.
fn module(code: &str) -> Option<&str> {
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => code,
    };
    code.trim_start().strip_prefix("mod ")?.strip_suffix(';')
}

/// Whether a configuration predicate holds in the build of the hypervisor.
fn holds(predicate: &str, features: &[&str]) -> std::result::Result<bool, String> {
    let predicate = predicate.trim().trim_end_matches(',');
    let list = |name: &str| {
        predicate.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')
    };
    if let Some(list) = list("not") {
        return Ok(!holds(list, features)?);
    }
    if let Some(list) = list("all") {
        return parts(list).try_fold(true, |all, part| Ok(all & holds(part, features)?));
    }
    if let Some(list) = list("any") {
        return parts(list).try_fold(false, |any, part| Ok(any | holds(part, features)?));
    }
    let (name, value) = match predicate.split_once('=') {
        Some((name, value)) => (name.trim(), value.trim().trim_matches('"')),
        None => (predicate, ""),
    };
    match name {
        "test" | "debug_assertions" | "doc" | "loom" => Ok(false),
        "feature" => Ok(features.contains(&value)),
        "target_arch" => Ok(value == "aarch64"),
        "target_os" => Ok(value == "none"),
        "target_pointer_width" => Ok(value == "64"),
        _ => Err(format!("whether `cfg({predicate})` holds is not known")),
    }
}

/// The parts of a list between its commas outside of parentheses.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> u64 {
        Source::scan(text, &["gicv3"]).unwrap().lines
    }

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        let text = "\
//! A module.

/* a comment
   of two lines */
use core::fmt; // counts

/// Documentation.
#[inline]
fn f() -> u32 {
    // A reason.
    2
}
";
        assert_eq!(count(text), 5);
    }

    #[test]
    fn what_is_not_compiled_does_not_count() {
        let text = "\
#[cfg(feature = \"gicv3\")]
mod v3;
#[cfg(feature = \"gicv2\")]
mod v2;
#[cfg(any(feature = \"std\", test))]
#[derive(Debug)]
pub fn pack(
    a: u32,
) -> Vec<u8> {
    if a == 1 {
        return vec![];
    }
    vec![1]
}
struct S {
    #[cfg(test)]
    probes: u32,
    a: u32,
}
#[cfg(all(
    not(test),
    target_os = \"none\",
))]
const A: u32 = 1;
#[cfg(feature = \"gicv2\")]
const DEVICES: &[(u64, u64)] =
    &[(0, 0x1000)];
#[cfg(test)]
impl<T> Probe for S<T>
where
    T: Copy,
{
    fn probe() {}
}
const B: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a() {}
}
";
        let source = Source::scan(text, &["gicv3"]).unwrap();
        assert_eq!(source.lines, 2 + 3 + 5 + 1);
        assert_eq!(source.modules, [Module { name: "v3".into(), path: None }]);
        assert_eq!(count("#![cfg(feature = \"std\")]\nfn f() {}\n"), 0);
    }

    #[test]
    fn an_unknown_predicate_is_an_error_and_not_a_guess() {
        let error = Source::scan("#[cfg(moon = \"full\")]\nfn f() {}\n", &[]).unwrap_err();
        assert!(error.contains("moon"), "{error}");
    }

    #[test]
    fn files_are_found_from_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(
            "main.rs",
            "pub mod arch;\nmod gic;\n#[path = \"other.rs\"]\npub(crate) mod board;\n",
        );
        write("arch/mod.rs", "global_asm!(include_str!(\"boot.s\"));\n");
        write("arch/boot.s", "// entry\n# old\nstart:\n    nop\n\n/* end\n*/\n    b start\n");
        write("gic.rs", "mod v3;\n");
        write("gic/v3.rs", "fn f() {}\n");
        write("other.rs", "fn f() {}\n");
        write("forgotten.rs", "fn f() {}\n");
        let mut lines = Lines::default();
        lines.add_rust(&directory.path().join("main.rs"), &[]).unwrap();
        let parts = [(CORE, 4 + 1 + 1 + 1 + 1 + 3)].into();
        let crates = BTreeMap::new();
        assert_eq!(lines, Lines { rust: 4 + 1 + 1 + 1 + 1, assembly: 3, parts, crates });
        assert_eq!(lines.total(), 11);

        fs::remove_file(directory.path().join("gic/v3.rs")).unwrap();
        let error = lines.add_rust(&directory.path().join("main.rs"), &[]).unwrap_err();
        assert!(error.text.contains("no file for `mod v3`"), "{}", error.text);
    }

    #[test]
    fn the_tree_names_workspace_crates_and_features() {
        let tree = "weir-hypervisor v0.1.0 (/a b/hypervisor)|gicv3\n\
                    spin v0.12.3|mutex,once\n\
                    thiserror-impl v2.0.21 (proc-macro)|\n\
                    weir-trace v0.1.0 (/a b/core/trace)|\n\
                    weir-trace v0.1.0 (/a b/core/trace)|\n";
        let found = crates(tree);
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["weir-hypervisor", "weir-trace"]);
        assert_eq!(found[0].features, ["gicv3"]);
        assert_eq!(found[1].directory, Path::new("/a b/core/trace"));
    }

    /// The crates that the hypervisor's manifest names, and those that they name, are all counted;
    /// the sum of the crates is the total.
    #[test]
    fn every_linked_crate_is_counted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let lines =
            Lines::of_hypervisor(&root).unwrap_or_else(|failure| panic!("{}", failure.text));
        let mut wanted = vec!["weir-hypervisor".to_owned()];
        let mut next = 0;
        while let Some(name) = wanted.get(next) {
            let directory = match name.trim_start_matches("weir-") {
                "hypervisor" => "hypervisor".to_owned(),
                "model" => "host/model".to_owned(),
                core => format!("core/{core}"),
            };
            let manifest = fs::read_to_string(root.join(directory).join("Cargo.toml"));
            let manifest: toml::Table = manifest.expect(name).parse().expect(name);
            let all = manifest.get("dependencies").and_then(toml::Value::as_table).cloned();
            for (name, dependency) in all.unwrap_or_default() {
                let optional = dependency.get("optional").and_then(toml::Value::as_bool);
                if name.starts_with("weir-") && optional != Some(true) && !wanted.contains(&name) {
                    wanted.push(name);
                }
            }
            next += 1;
        }
        wanted.sort();
        assert_eq!(lines.crates.keys().cloned().collect::<Vec<_>>(), wanted);
        for name in ["weir-broker", "weir-budget", "weir-vsock"] {
            assert!(lines.crates[name] > 100, "{name}: {lines:?}");
        }
        assert_eq!(lines.crates.values().sum::<u64>(), lines.total());
        assert_eq!(lines.parts.values().sum::<u64>(), lines.total());
        assert!(lines.rust > 1_000, "{lines:?}");
        assert!(lines.assembly > 100, "{lines:?}");
    }
}
