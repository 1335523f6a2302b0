//! Files that a verb is to write: looked at before its work begins, so that nothing is lost by it.

use crate::failure::{Context, Failure, Result};
use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::Path,
};

/// Refuses what `option` names if it is one of `inputs`, or if it can't be written. What is there stays as it is.
///
/// # Errors
///
/// A wrong call, or what stands in the way.
pub fn check(option: &str, output: &Path, inputs: &[&Path]) -> Result {
    let known = fs::canonicalize(output).ok();
    let same = |input: &&&Path| known.is_some() && fs::canonicalize(input).ok() == known;
    if inputs.iter().any(|input| same(&input)) {
        return Err(Failure::call(format!(
            "{option} would overwrite {}: name another file",
            output.display()
        )));
    }
    let writing = || format!("write {}", output.display());
    match fs::metadata(output) {
        Ok(there) if there.is_file() => {
            OpenOptions::new().write(true).open(output).context(writing)?;
        }
        Ok(there) if there.is_dir() => {
            return Err(std::io::Error::from(ErrorKind::IsADirectory)).context(writing);
        }
        // To open a pipe is to wait for its reader.
        Ok(_) => {}
        // What it points to is made when there is something to write.
        Err(_) if output.is_symlink() => {}
        Err(_) => {
            let made = OpenOptions::new().write(true).create_new(true).open(output);
            made.context(writing)?;
            // It was not there, and what comes of the verb is not known yet.
            let _ = fs::remove_file(output);
        }
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
        let [system, link] = ["s.toml", "l.toml"].map(|name| directory.path().join(name));
        fs::write(&system, "text").expect("a file");
        symlink(&system, &link).expect("a link");
        fs::create_dir(directory.path().join("d")).expect("a directory");
        let roundabout = directory.path().join("d/../s.toml");
        for output in [&system, &link, &roundabout] {
            let failure = check("--svg", output, &[&system]).expect_err("refused");
            assert_eq!(failure.status, CALL);
            assert!(failure.text.starts_with("--svg would overwrite "), "{}", failure.text);
        }
        assert_eq!(fs::read_to_string(&system).expect("there"), "text");
    }

    #[test]
    fn what_can_be_written_is_left_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        fs::write(&old, "text").expect("a file");
        let link = directory.path().join("link");
        symlink(&new, &link).expect("a link");
        for output in [&old, &new, &link] {
            check("-o", output, &[]).expect("good");
        }
        check("-o", Path::new("/dev/null"), &[]).expect("good");
        assert_eq!(fs::read_to_string(&old).expect("there"), "text");
        assert!(!new.exists());
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere = directory.path().join("no/such");
        for output in [directory.path(), nowhere.as_path()] {
            let failure = check("-o", output, &[]).expect_err("refused");
            assert_eq!(failure.status, ENVIRONMENT);
            assert!(failure.text.starts_with("cannot write "), "{}", failure.text);
        }
    }
}
