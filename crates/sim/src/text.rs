//! Files that users name: read as a whole, but not for ever.

use std::{
    fs::File,
    io::{Error, Read as _, Result},
    path::Path,
};

/// The text of a file of at most so many bytes.
///
/// # Errors
/// What stands in the way; also that there is more, as in a device that never ends.
pub(crate) fn read(path: &Path, most: u64) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_file_without_an_end_is_refused() {
        let error = read(Path::new("/dev/zero"), 1 << 16).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 65536 bytes");
        assert_eq!(read(Path::new("/dev/null"), 1).unwrap(), "");
    }
}
