//! Files that a verb is to write: looked at before its work begins, so that nothing is lost by it.

use crate::failure::{Context, Failure, Result};
use rustix::{fs::OFlags, io::Errno};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};
use weir_model::Input;

/// Writes a file. A pipe is written to only if a process reads it: without a reader, opening it for
/// writing waits without end.
///
/// # Errors
///
/// A file that cannot be written, and a pipe without a reader.
pub fn write(path: &Path, contents: &[u8]) -> Result {
    let writing = || format!("write {}", path.display());
    if !fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
        return fs::write(path, contents).context(writing);
    }
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
    let mut pipe = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err("it is a pipe that no process reads").context(writing);
        }
        opened => opened.context(writing)?,
    };
    // A full pipe is waited for: its reader is there.
    rustix::fs::fcntl_setfl(&pipe, OFlags::empty()).context(writing)?;
    pipe.write_all(contents).context(writing)
}

/// What a call reads: its files, and its platform's if that is one.
pub fn inputs<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    platform: Option<&'a str>,
) -> Vec<&'a Path> {
    files.into_iter().chain(platform.map(Path::new)).collect()
}

/// Refuses what `option` names if it is one of `inputs` or a file that one of these names, or if it can't be written. What is there stays
/// as it is.
///
/// # Errors
///
/// A wrong call, or what stands in the way.
pub fn check(option: &str, output: &Path, inputs: &[&Path]) -> Result {
    apart(option, output, inputs, |_| true)?;
    let writing = || format!("write {}", output.display());
    match fs::metadata(output) {
        Ok(there) if there.is_file() => {
            OpenOptions::new().write(true).open(output).context(writing)?;
        }
        Ok(there) if there.is_dir() => {
            return Err(std::io::Error::from(ErrorKind::IsADirectory)).context(writing);
        }
        // To write nothing is enough for a device that takes nothing to say so.
        Ok(there) if there.file_type().is_char_device() => {
            let nonblocking = OFlags::NONBLOCK | OFlags::NOCTTY;
            let device = OpenOptions::new()
                .write(true)
                .custom_flags(nonblocking.bits().cast_signed())
                .open(output);
            device.and_then(|mut device| device.write(&[])).context(writing)?;
        }
        // `write` refuses a pipe without a reader. Opening it here would end its reader's input.
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

/// The same, but for whether it can be written: of a file that another call may be writing.
///
/// # Errors
///
/// A wrong call.
pub fn check_apart(option: &str, output: &Path, inputs: &[&Path]) -> Result {
    apart(option, output, inputs, |_| true)
}

/// The same of files in a directory, which may not be there yet. That a recording takes the place of an older one which a workload
/// replays is as it should be.
///
/// # Errors
///
/// A wrong call.
pub fn check_in(
    option: &str,
    directory: &Path,
    names: impl IntoIterator<Item = String>,
    inputs: &[&Path],
) -> Result {
    is_file(option, directory)?;
    let mut names = names.into_iter();
    names.try_for_each(|name| apart(option, &directory.join(name), inputs, |input| !input.is_trace))
}

/// Refuses `-`, by which one means standard output elsewhere.
fn is_file(option: &str, output: &Path) -> Result {
    if output == Path::new("-") {
        let text = format!("{option} does not write to standard output: name a file, or ./-");
        return Err(Failure::call(text));
    }
    Ok(())
}

/// Refuses `output` if it is no file, or one of those that `matter` of those that `inputs` name, themselves included.
fn apart(
    option: &str,
    output: &Path,
    inputs: &[&Path],
    matters: impl Fn(&Input) -> bool,
) -> Result {
    is_file(option, output)?;
    // By any name, hard links too.
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let Some(known) = identity(output) else { return Ok(()) };
    for &file in inputs {
        let mut found = weir_model::inputs(file).into_iter().filter(&matters);
        if let Some(input) = found.find(|input| identity(&input.path) == Some(known)) {
            let reader = if input.path == file {
                String::new()
            } else {
                format!(", which {} names", file.display())
            };
            return Err(Failure::call(format!(
                "{option} would overwrite {}{reader}: name another file",
                output.display()
            )));
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
    fn standard_output_is_no_file() {
        let refused = |checked: Result| checked.expect_err("refused").status;
        assert_eq!(refused(check("--output", Path::new("-"), &[])), CALL);
        assert_eq!(refused(check_apart("--output", Path::new("-"), &[])), CALL);
        assert_eq!(refused(check_in("--record", Path::new("-"), [], &[])), CALL);
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
        fs::create_dir(directory.path().join("d")).expect("a directory");
        let roundabout = directory.path().join("d/../s.toml");
        for output in [&system, &link, &hard, &roundabout] {
            let failure = check("--svg", output, &[&system]).expect_err("refused");
            assert_eq!(failure.status, CALL);
            assert!(failure.text.starts_with("--svg would overwrite "), "{}", failure.text);
        }
        assert_eq!(fs::read_to_string(&system).expect("there"), "text");
    }

    #[test]
    fn what_an_input_names_is_an_input() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let vm = "[[vm]]\nimage = { bin = \"guest.bin\" }\nworkload = { file = \"a.trace\" }\n";
        fs::write(path("s.toml"), vm).expect("a file");
        for name in ["guest.bin", "a.trace", "b.trace"] {
            fs::write(path(name), name).expect("a file");
        }
        let system = path("s.toml");
        for name in ["guest.bin", "a.trace"] {
            let failure = check("--output", &path(name), &[&system]).expect_err("refused");
            let text = format!(
                "--output would overwrite {}, which {} names: name another file",
                path(name).display(),
                system.display()
            );
            assert_eq!((failure.status, failure.text), (CALL, text));
        }
        check("--output", &path("b.trace"), &[&system]).expect("good");
        let within = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned());
            check_in("--record", directory.path(), names, &[&system])
        };
        within(&["a.trace", "b.trace", "c.trace"]).expect("good");
        assert_eq!(within(&["b.trace", "guest.bin"]).expect_err("refused").status, CALL);
        check_in("--svg", &path("new"), ["x".to_owned()], &[&system]).expect("good");
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
    fn a_pipe_is_written_to_only_if_it_is_read() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
        check("-o", &pipe, &[]).expect("good");
        let failure = write(&pipe, b"text").expect_err("refused");
        assert_eq!(failure.status, ENVIRONMENT);
        assert!(failure.text.ends_with("a pipe that no process reads"), "{}", failure.text);
        // More than a pipe holds.
        let contents = vec![b'x'; 1 << 20];
        let name = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(name).map(|read| read.len()));
        while write(&pipe, &contents).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(reader.join().expect("a reader").expect("contents"), contents.len());
        let file = directory.path().join("file");
        write(&file, b"text").expect("written");
        assert_eq!(fs::read(&file).expect("the file"), b"text");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere = directory.path().join("no/such");
        for output in [directory.path(), nowhere.as_path(), Path::new("/dev/full")] {
            let failure = check("-o", output, &[]).expect_err("refused");
            assert_eq!(failure.status, ENVIRONMENT);
            assert!(failure.text.starts_with("cannot write "), "{}", failure.text);
        }
    }
}
