//! Checks of the paths that a command writes to, made before its work begins.

use crate::failure::{Context, Failure, Result};
use std::{fs, io::ErrorKind, os::unix::fs::MetadataExt as _, path::Path};

/// Returns the files that a call reads: `files`, and the platform's if `platform` is a path.
#[must_use]
pub fn inputs<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    platform: Option<&'a str>,
) -> Vec<&'a Path> {
    files.into_iter().chain(platform.map(Path::new)).collect()
}

/// Checks the file that `option` names, before the work that writes its result there. Changes
/// nothing.
///
/// # Errors
///
/// The call is wrong if `output` is `-` or one of `inputs`, by any name. The environment is at
/// fault if `output` is a directory or lies in none.
pub fn check(option: &str, output: &Path, inputs: &[&Path]) -> Result {
    check_name(option, output)?;
    let writing = || format!("write {}", output.display());
    if output.is_dir() {
        return Err(std::io::Error::from(ErrorKind::IsADirectory)).context(writing);
    }
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), |parent| fs::metadata(parent).map(drop)).context(writing)?;
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    match identity(output) {
        Some(known) if inputs.iter().any(|input| identity(input) == Some(known)) => {
            Err(Failure::call(format!(
                "{option} would overwrite {}: name another file",
                output.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Checks that `option` names a file or a directory.
///
/// # Errors
///
/// The call is wrong if `output` is `-`, which means standard output elsewhere.
pub fn check_name(option: &str, output: &Path) -> Result {
    if output == Path::new("-") {
        let text = format!("{option} does not write to standard output: name a file, or ./-");
        return Err(Failure::call(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{CALL, ENVIRONMENT};
    use std::os::unix::fs::symlink;

    #[test]
    fn standard_output_is_not_a_file() {
        let refused = check("--output", Path::new("-"), &[]).expect_err("refused");
        assert_eq!(refused.status, CALL);
        assert!(check("--output", Path::new("./-"), &[]).is_ok());
    }

    #[test]
    fn an_input_is_known_by_any_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let [system, link, hard] = ["s.toml", "l.toml", "h.toml"].map(path);
        fs::write(&system, "text").expect("a file");
        symlink(&system, &link).expect("a link");
        fs::hard_link(&system, &hard).expect("a link");
        for output in [&system, &link, &hard] {
            let failure = check("--svg", output, &[&system]).expect_err("refused");
            assert_eq!(failure.status, CALL);
            assert!(failure.text.starts_with("--svg would overwrite "), "{}", failure.text);
        }
        assert_eq!(fs::read_to_string(&system).expect("there"), "text");
    }

    #[test]
    fn a_directory_and_a_file_in_no_directory_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere = directory.path().join("no/such");
        for output in [directory.path(), nowhere.as_path()] {
            let failure = check("-o", output, &[]).expect_err("refused");
            assert_eq!(failure.status, ENVIRONMENT);
            assert!(failure.text.starts_with("cannot write "), "{}", failure.text);
        }
        let new = directory.path().join("new");
        assert!(check("-o", &new, &[]).is_ok() && !new.exists());
    }
}
