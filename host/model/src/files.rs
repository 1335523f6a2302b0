//! Files that users name: regular files only, and no more of them than they have when they are
//! opened.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

/// Longest file of a system, in bytes: longer ones are refused.
const FILE_LIMIT: u64 = 1 << 30;

/// Opens a regular file; the reader ends where the file ends now.
///
/// Directories, devices, pipes and sockets are refused before they are opened, since that can wait
/// and reading them need not end. A file of the kernel's, like `/proc/kmsg`, claims to be a regular
/// one with no bytes, and none are read.
///
/// # Errors
///
/// The reason for a person, to follow "cannot read NAME: ".
pub fn open_regular(path: &Path) -> Result<io::Take<fs::File>, String> {
    let metadata = fs::metadata(path).map_err(|error| reason(&error))?;
    regular(&metadata)?;
    let file = fs::File::open(path).map_err(|error| reason(&error))?;
    // The name can stand for another file by now.
    let metadata = file.metadata().map_err(|error| reason(&error))?;
    regular(&metadata)?;
    Ok(file.take(metadata.len()))
}

/// Reads a regular file of at most 1 GiB.
///
/// # Errors
///
/// As [`open_regular`].
pub fn read_regular(path: &Path) -> Result<Vec<u8>, String> {
    read_short(path, FILE_LIMIT)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`open_regular`]; also that the file is longer.
pub fn read_short(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut file = open_regular(path)?;
    if file.limit() > most {
        return Err(format!("it has {} bytes, more than {most}", file.limit()));
    }
    let mut bytes = Vec::with_capacity(file.limit() as usize);
    file.read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    Ok(bytes)
}

/// Reads a text of at most `most` bytes from a regular file.
///
/// # Errors
///
/// As [`read_short`]; also that the file is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, String> {
    String::from_utf8(read_short(path, most)?).map_err(|error| {
        format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to())
    })
}

fn regular(metadata: &fs::Metadata) -> Result<(), String> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(format!("it is {what}, not a regular file"))
}

/// The operating system's message, without the error number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let why = |path: &str| read_regular(Path::new(path)).expect_err("refused");
        assert_eq!(why("/"), "it is a directory, not a regular file");
        assert_eq!(why("/dev/zero"), "it is a device, not a regular file");
        assert_eq!(why("/dev/null"), "it is a device, not a regular file");
        assert_eq!(why("/nowhere"), "there is no such file");
        // Reading beyond its length would wait for the kernel's next message.
        if let Ok(bytes) = read_regular(Path::new("/proc/kmsg")) {
            assert!(bytes.is_empty());
        }
        assert_eq!(read_regular(Path::new("/proc/self/status")), Ok(Vec::new()));
    }

    #[test]
    fn a_long_file_is_refused() {
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/files.rs");
        let length = read_regular(&this).expect("this file").len() as u64;
        assert_eq!(read_text(&this, length).map(|text| text.len() as u64), Ok(length));
        let why = read_text(&this, length - 1).expect_err("refused");
        assert_eq!(why, format!("it has {length} bytes, more than {}", length - 1));
    }
}
