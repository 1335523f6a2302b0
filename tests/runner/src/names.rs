//! The length of test names: a name is a label in reports, not a specification.

use std::{fs, io, path::Path};

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
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                search(&path, root, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let file = path.strip_prefix(root).unwrap_or(&path).display();
            let long = tests(&text).filter(|name| name.len() > LONGEST);
            found.extend(long.map(|name| format!("{file}: {name} ({} characters)", name.len())));
        }
    }
    Ok(())
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
