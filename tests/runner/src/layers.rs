//! The layers of each crate: no folder of a crate, and no file, imports itself by way of others.
//! Imports between a file and the modules inside it do not count.

use crate::names::sources;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// A module by the names on its path; the root of the crate has none.
type Module = Vec<String>;
/// The modules that each module imports from.
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The folders of crates.
const CRATES: [&str; 4] = ["core", "host", "memsim", "tools"];

/// Returns an import cycle of each crate that has one, as `crate: a -> b -> a`.
pub fn circles(root: &Path) -> io::Result<Vec<String>> {
    let mut crates = ["hypervisor", "experiments"].map(|name| root.join(name)).to_vec();
    for folder in CRATES {
        for entry in fs::read_dir(root.join(folder))? {
            crates.push(entry?.path());
        }
    }
    crates.sort();
    let mut found = Vec::new();
    for folder in crates.iter().map(|folder| folder.join("src")).filter(|folder| folder.is_dir()) {
        let files = arrows(&folder)?;
        if let Some(circle) = circle(&files).or_else(|| circle(&folders(&files))) {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            let name = folder.strip_prefix(root).unwrap_or(&folder).display();
            found.push(format!("{name}: {}", names.join(" -> ")));
        }
    }
    Ok(found)
}

/// Reads which modules of a crate import from which.
fn arrows(folder: &Path) -> io::Result<Arrows> {
    let mut texts = BTreeMap::new();
    for file in sources(folder)? {
        let module = module(file.strip_prefix(folder).unwrap_or(&file));
        if module.last().is_none_or(|name| name != "tests") && !module.contains(&"model".into()) {
            texts.insert(module, fs::read_to_string(file)?);
        }
    }
    let modules: BTreeSet<Module> = texts.keys().cloned().collect();
    let arrows = texts.into_iter().map(|(module, text)| {
        let used = used(&text, &module).into_iter().map(|path| file_of(path, &modules));
        let used = used.filter(|used| !used.starts_with(&module) && !module.starts_with(used));
        let used = used.collect();
        (module, used)
    });
    Ok(arrows.collect())
}

/// Returns which folders of a crate, and files beside them, import from which.
fn folders(files: &Arrows) -> Arrows {
    let top = |module: &Module| module.iter().take(1).cloned().collect::<Module>();
    let mut found = Arrows::new();
    for (module, used) in files {
        let used = used.iter().map(top).filter(|used| *used != top(module));
        found.entry(top(module)).or_default().extend(used);
    }
    found
}

/// Returns the module of a file.
fn module(file: &Path) -> Module {
    let file = file.with_extension("");
    let mut module: Module = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        module.pop();
    }
    module
}

/// Returns the module that has an item: the longest beginning of its path.
fn file_of(mut path: Module, modules: &BTreeSet<Module>) -> Module {
    while !modules.contains(&path) && path.pop().is_some() {}
    path
}

/// Returns the paths in the crate that the code of a module names, without its tests.
fn used(text: &str, module: &Module) -> Vec<Module> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let mut words = words(&code).into_iter().peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if words.peek() != Some(&"::") {
            continue;
        }
        let mut start = match word {
            "crate" => Vec::new(),
            "super" => module.clone(),
            _ => continue,
        };
        if word == "super" {
            start.pop();
        }
        words.next();
        tree(&mut words, start, &mut found);
    }
    found
}

/// Splits code into words, and what separates the parts of a path.
fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = if rest.starts_with("::") {
            2
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        words.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    words
}

/// Reads what follows `path::`: a name and what follows it, or a list of these.
fn tree<'a>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    mut path: Module,
    found: &mut Vec<Module>,
) {
    loop {
        match words.peek() {
            Some(&"{") => {
                words.next();
                while words.peek().is_some_and(|word| *word != "}") {
                    tree(words, path.clone(), found);
                    if words.peek() == Some(&",") {
                        words.next();
                    }
                }
                words.next();
                return;
            }
            Some(&"super") => {
                words.next();
                path.pop();
            }
            Some(&word) if word != "self" && word.starts_with(|c: char| c.is_alphabetic()) => {
                words.next();
                path.push(word.to_owned());
            }
            // `self`, `*`, or the end of what is known here.
            _ => {
                words.next();
                found.push(path);
                return;
            }
        }
        if words.peek() != Some(&"::") {
            // Another name for the item.
            if words.peek() == Some(&"as") {
                words.next();
                words.next();
            }
            found.push(path);
            return;
        }
        words.next();
    }
}

/// Returns a cycle, if there is one: modules of which each imports from the next, the first one
/// again at the end.
fn circle(arrows: &Arrows) -> Option<Vec<Module>> {
    let mut left = arrows.clone();
    // A module that imports nothing that is left is in no cycle.
    loop {
        let all: BTreeSet<Module> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, used| used.iter().any(|used| all.contains(used)));
        if left.len() == before {
            break;
        }
    }
    let mut path = vec![left.keys().next()?.clone()];
    loop {
        let used = left.get(path.last()?)?.iter().find(|used| left.contains_key(*used))?.clone();
        if let Some(first) = path.iter().position(|module| *module == used) {
            path.push(used);
            return Some(path.split_off(first));
        }
        path.push(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder");
        for folder in CRATES {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for (file, text) in files {
            let path = root.path().join("hypervisor/src").join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        circles(root.path()).expect("it reads")
    }

    #[test]
    fn a_circle_is_named() {
        let files = [
            ("main.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "pub mod deep;\n"),
            ("a/deep.rs", "use crate::{b::{self, Item as Other}, a};\n"),
            ("b.rs", "use crate::c;\nfn f() { crate::c::call::<u8>() }\n"),
            ("c.rs", "// use crate::nothing;\nuse super::{a::deep::{One, Two}, d};\n"),
        ];
        assert_eq!(crate_of(&files), ["hypervisor/src: a::deep -> b -> c -> a::deep"]);
        assert!(crate_of(&files[..4]).is_empty());
    }

    #[test]
    fn a_circle_of_folders_is_named() {
        let files = [
            ("main.rs", "mod a;\nmod b;\n"),
            ("a/low.rs", ""),
            ("a/high.rs", "use crate::b;\n"),
            ("b.rs", "use crate::a::low::Item;\n"),
        ];
        assert_eq!(crate_of(&files), ["hypervisor/src: a -> b -> a"]);
    }

    #[test]
    fn a_module_and_its_parts_are_one() {
        let files = [
            ("main.rs", "mod a;\n"),
            ("a.rs", "mod part;\nuse crate::a::part::Item;\n"),
            ("a/part.rs", "use super::Other;\n#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}\n"),
            ("b.rs", "use crate::a::{part::Item, *};\n"),
        ];
        assert!(crate_of(&files).is_empty());
    }

    #[test]
    fn paths_are_read() {
        let read = |text: &str| {
            let paths = used(text, &vec!["vm".to_owned(), "pci".to_owned()]);
            paths.iter().map(|path| path.join("::")).collect::<Vec<_>>()
        };
        assert_eq!(read("use super::{Vm, super::cpu};"), ["vm::Vm", "cpu"]);
        assert_eq!(
            read("use crate::{arch::{gic::{self, Line}, *}, mail};"),
            ["arch::gic", "arch::gic::Line", "arch", "mail"]
        );
        assert_eq!(read("let a = crate::arch::relax();"), ["arch::relax"]);
    }
}
