//! Reads the board that an image was built for.

use std::path::Path;
use weir_image::{Failure, Result};

/// Precedes the board's name in the first page of the hypervisor.
const LABEL: &[u8] = b"weir board: ";
/// Bytes of that page.
const PAGE: usize = 4096;

/// Compares the board of an image with the board of the system.
///
/// # Errors
///
/// The call is wrong if the image is for another board.
pub fn check(path: &Path, image: &[u8], board: &str) -> Result {
    match of(image) {
        Some(other) if other != board => Err(Failure::call(format!(
            "{} was built for {other}, and the system is for {board}: give --platform {other}, or build it again",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the board that an image was built for, if the image names one.
fn of(image: &[u8]) -> Option<&str> {
    let page = image.get(..PAGE).unwrap_or(image);
    let start = page.windows(LABEL.len()).position(|bytes| bytes == LABEL)? + LABEL.len();
    let name = page.get(start..)?.split(|&byte| byte == 0).next()?;
    str::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_image::failure::CALL;

    #[test]
    fn an_image_for_another_board_is_refused() {
        let image = [&[0xff; 100][..], b"weir board: zcu102\0more"].concat();
        let path = Path::new("x.img");
        assert!(check(path, &image, "zcu102").is_ok());
        let failure = check(path, &image, "zcu104").expect_err("refused");
        assert_eq!(failure.status, CALL);
        assert!(failure.text.starts_with("x.img was built for zcu102, "), "{}", failure.text);
        // Images of other programs name no board.
        for other in [&b""[..], b"weir board: ", &[0; 5000]] {
            assert!(check(path, other, "zcu102").is_ok() || of(other) == Some(""), "{other:?}");
        }
    }
}
