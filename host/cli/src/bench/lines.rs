//! `weir bench lines`: the lines of code of the program at EL2, counted by `cloc`.
//!
//! The compiler lists the files of each crate, those of other projects included. Parts that are
//! compiled for tests alone are left out. What a line of code is, `cloc` decides.

use crate::{
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, Result},
    screen,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};
use weir_abi::Features;
use weir_report::table;
use weir_runner::lab::qemu_virt;

/// Bao's lines, with its headers.
pub const BAO: u64 = 6_604 + 3_466;

/// Counts the lines and prints them by crate.
pub fn run(json: bool, environment: &Environment) -> Result {
    let full = Lines::count(Features::ALL, environment)?;
    let minimal = Lines::count(Features::NONE, environment)?;
    let mut out = screen::stdout();
    if json {
        let mut figures = full.json();
        figures["counter"] = format!("cloc {}", full.counter).into();
        figures["minimal"] = minimal.json();
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
        return Ok(());
    }
    for (what, lines) in [("all optional parts", full), ("no optional part", minimal)] {
        let mut rows = table(["crate", "lines of code", "of this project"]);
        for (name, each) in &lines.crates {
            let own = if each.own { "yes" } else { "no" };
            rows.add_row([name.clone(), each.code.to_string(), own.to_owned()]);
        }
        let [own, code] = lines.sums();
        rows.add_row(["all".to_owned(), code.to_string(), format!("{own} lines")]);
        writeln!(out, "The hypervisor with {what}:\n{rows}")?;
    }
    Ok(())
}

/// The lines of one crate.
#[derive(Clone, Copy, Debug, Serialize)]
struct Crate {
    /// Whether it is of this project.
    own: bool,
    code: u64,
    /// Those of `code` in assembly files.
    assembly: u64,
}

/// The lines of all crates of a hypervisor.
struct Lines {
    counter: String,
    crates: BTreeMap<String, Crate>,
}

impl Lines {
    fn count(parts: Features, environment: &Environment) -> Result<Self> {
        let crates = Programs::new(environment, false);
        let crates = crates.hypervisor_sources(environment, &qemu_virt()?, parts)?;
        let scratch = environment.build().join("bench/lines");
        let _ = fs::remove_dir_all(&scratch);
        let root = environment.root()?;
        let mut lines = Self { counter: String::new(), crates: BTreeMap::new() };
        for (name, files) in crates {
            let folder = scratch.join(&name);
            fs::create_dir_all(&folder).context(|| format!("create {}", folder.display()))?;
            for (index, file) in files.iter().enumerate() {
                let reading = || format!("read {}", file.display());
                let text = fs::read_to_string(file).context(reading)?;
                let copy = copied(&folder, index, file);
                let writing = || format!("write {}", copy.display());
                fs::write(&copy, without_tests(&text)).context(writing)?;
            }
            let counted = count(&folder)?;
            if let Some(version) = counted["header"]["cloc_version"].as_str() {
                version.clone_into(&mut lines.counter);
            }
            let code = |language: &str| counted[language]["code"].as_u64().unwrap_or(0);
            let (rust, assembly) = (code("Rust"), code("Assembly"));
            // Some crates of other projects have a generated file in the build folder.
            let own = files.iter().all(|file| file.starts_with(root));
            lines.crates.insert(name, Crate { own, code: rust + assembly, assembly });
        }
        Ok(lines)
    }

    /// The lines of this project, and those of all crates.
    fn sums(&self) -> [u64; 2] {
        let sum = |own: bool| {
            let counted = self.crates.values().filter(|each| each.own || !own);
            counted.map(|each| each.code).sum()
        };
        [sum(true), sum(false)]
    }

    fn json(&self) -> Value {
        let [own, code] = self.sums();
        json!({ "crates": self.crates, "own_code": own, "code": code })
    }
}

/// The copy of a file. Two files of a crate can have one name.
fn copied(folder: &Path, index: usize, file: &Path) -> PathBuf {
    let ending = file.extension().unwrap_or_default().to_string_lossy();
    folder.join(format!("{index}.{ending}"))
}

fn count(folder: &Path) -> Result<Value> {
    // Equal files count each time.
    let mut command = Command::new("cloc");
    command.args(["--json", "--quiet", "--skip-uniqueness"]).arg(folder);
    let output = command.output().map_err(|error| {
        Failure::environment(format!("cannot start cloc ({error}): apt-get install cloc"))
    })?;
    if output.stdout.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&output.stdout).context(|| "read the output of cloc")
}

/// Removes each item behind `#[cfg(test)]`, as rustfmt writes it: up to a line that ends with `;`,
/// or to the brace below the attribute.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let blanks = &line[..line.len() - line.trim_start().len()];
        if line.trim_start() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let mut first = true;
        for line in lines.by_ref() {
            let is_attribute = first && line.trim_start().starts_with("#[");
            first &= is_attribute;
            let closes = line.strip_prefix(blanks).is_some_and(|rest| rest.starts_with('}'));
            let ends = line.ends_with(';');
            let deeper = line.strip_prefix(blanks).is_some_and(|rest| rest.starts_with(' '));
            if !is_attribute && (closes || ends && !deeper) {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_for_tests_is_removed() {
        let text = "fn a() {}\n#[cfg(test)]\nmod x;\nfn b() {}\nimpl C {\n    #[cfg(test)]\n    \
                    #[must_use]\n    fn d() {\n        1;\n    }\n    fn e() {}\n}\n\
                    #[cfg(test)]\nmod tests {\n    use a;\n}\n";
        assert_eq!(without_tests(text), "fn a() {}\nfn b() {}\nimpl C {\n    fn e() {}\n}\n");
    }
}
