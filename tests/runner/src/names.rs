//! The names of tests as the sources have them. A name is a label in reports, not a specification,
//! so its length is limited.

use crate::cargo::TestTarget;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Characters of the longest name.
pub const LONGEST: usize = 50;

/// Returns the tests below `root` with names that are too long, as `file: name`.
pub fn too_long(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "build" {
            search(&path, root, &mut found)?;
        }
    }
    found.sort();
    Ok(found)
}

fn search(folder: &Path, root: &Path, found: &mut Vec<String>) -> io::Result<()> {
    for path in sources(folder)? {
        let text = fs::read_to_string(&path)?;
        let file = path.strip_prefix(root).unwrap_or(&path).display();
        let long = tests(&text).filter(|name| name.len() > LONGEST);
        found.extend(long.map(|name| format!("{file}: {name} ({} characters)", name.len())));
    }
    Ok(())
}

/// Returns the names of the targets with an integration test that has `text` in its name, so that
/// no others have to be built; none if the sources name no such test, as a macro may.
pub fn targets_with(text: &str, targets: &[TestTarget]) -> io::Result<Vec<String>> {
    let mut found = BTreeSet::new();
    for target in targets {
        if !found.contains(&target.name) && has_test(text, &target.root)? {
            found.insert(target.name.clone());
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns whether a test of this target has `text` in its name, such as `module::test`.
fn has_test(text: &str, root: &Path) -> io::Result<bool> {
    let folder = root.parent().unwrap_or(root);
    let is_folder = root.file_name().is_some_and(|name| name == "main.rs");
    let files = if is_folder { sources(folder)? } else { vec![root.to_owned()] };
    for file in files {
        let module = file.strip_prefix(folder).unwrap_or(&file).with_extension("");
        let module: Vec<_> = module.iter().map(|part| part.to_string_lossy()).collect();
        let module = if file == root { String::new() } else { module.join("::") + "::" };
        let code = fs::read_to_string(&file)?;
        if tests(&code).any(|name| (module.clone() + name).contains(text)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the sources below a folder.
pub fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                found.extend(sources(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the names of the functions that follow `#[test]`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().map(str::trim_start).filter_map(move |line| {
        marked |= line.starts_with("#[test]");
        let name = line.strip_prefix("fn ")?.split(['(', '<']).next()?;
        std::mem::take(&mut marked).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_are_measured() {
        let text =
            "fn helper() {}\n    #[test]\n    #[should_panic]\n    fn a(x in 0..3) {\nfn b() {}";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn only_targets_with_such_a_test_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(&path, text).expect("a file");
            path
        };
        let test = "#[test]\nfn it_works() {}\n";
        let target = |name: &str, root: PathBuf| TestTarget { name: name.into(), root };
        let targets = [
            target("one", write("one/rings.rs", test)),
            target("two", write("two/main.rs", "mod deep;\n")),
        ];
        write("two/deep/queue.rs", "#[test]\nfn other() {}\n");
        let with = |text: &str| targets_with(text, &targets).expect("it reads");
        assert_eq!(with("works"), ["one"]);
        assert_eq!(with("deep::queue::oth"), ["two"]);
        assert_eq!(with("o"), ["one", "two"]);
        assert!(with("rings").is_empty(), "the root's name is in no test's name");
    }

    #[test]
    fn a_long_name_is_found_with_its_file() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("core/x/src")).expect("a folder");
        let name = "n".repeat(LONGEST + 1);
        let text = format!("#[test]\nfn {name}() {{}}\n#[test]\nfn short() {{}}\n");
        fs::write(root.path().join("core/x/src/lib.rs"), text).expect("a file");
        let found = too_long(root.path()).expect("it reads");
        assert_eq!(found, [format!("core/x/src/lib.rs: {name} (51 characters)")]);
    }
}
