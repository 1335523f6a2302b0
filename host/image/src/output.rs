//! A check of the path that a command writes to, made before its work begins.

use crate::failure::{Context, Failure, Result};
use std::{
    fs,
    io::{Error, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// Checks the file of the option `--output`, before the work that writes its result there. Changes
/// nothing.
///
/// # Errors
///
/// The call is wrong if `output` is one of `inputs`, by any name. The environment is at fault if
/// it is a directory or lies in none: a run would lose its result.
pub fn check<P: AsRef<Path>>(output: Option<&Path>, inputs: impl IntoIterator<Item = P>) -> Result {
    let Some(output) = output else { return Ok(()) };
    let name = output.display();
    let writing = || format!("write {name}");
    if output.is_dir() {
        return Err(Error::from(ErrorKind::IsADirectory)).context(writing);
    }
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), |parent| fs::metadata(parent).map(drop)).context(writing)?;
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let known = identity(output);
    if known.is_some() && inputs.into_iter().any(|input| identity(input.as_ref()) == known) {
        return Err(Failure::call(format!("the output would overwrite {name}: name another file")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{CALL, ENVIRONMENT};
    use std::os::unix::fs::symlink;

    #[test]
    fn an_input_is_known_by_any_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let [system, link, hard] = ["s.toml", "l.toml", "h.toml"].map(path);
        fs::write(&system, "text").expect("a file");
        symlink(&system, &link).expect("a link");
        fs::hard_link(&system, &hard).expect("a link");
        for output in [&system, &link, &hard] {
            let failure = check(Some(output.as_path()), [&system]).expect_err("refused");
            assert_eq!(failure.status, CALL);
            assert!(failure.text.starts_with("the output would overwrite "), "{}", failure.text);
        }
        assert_eq!(fs::read_to_string(&system).expect("there"), "text");
    }

    const NO_INPUTS: [&Path; 0] = [];

    #[test]
    fn a_directory_and_a_file_in_no_directory_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere = directory.path().join("no/such");
        for output in [directory.path(), nowhere.as_path()] {
            let failure = check(Some(output), NO_INPUTS).expect_err("refused");
            assert_eq!(failure.status, ENVIRONMENT);
            assert!(failure.text.starts_with("cannot write "), "{}", failure.text);
        }
        let new = directory.path().join("new");
        assert!(check(Some(new.as_path()), [&new]).is_ok() && !new.exists());
        assert!(check(None, NO_INPUTS).is_ok());
    }
}
