//! Reads the board that an image was built for, and compares the image that a board runs.

use std::path::Path;
use weir_image::{Failure, Result};

/// The image that a board must run for the run to be about its system.
#[derive(Clone, Debug)]
pub struct ExpectedImage {
    /// Its identity.
    id: u64,
    /// What it is an image of, and where it comes from.
    origin: String,
    /// How the user gets it.
    remedy: String,
}

impl ExpectedImage {
    /// Returns what is expected of a board if the image is the contents of `file`, or, without a
    /// file, what `weir build` writes for the system in `system` on `platform`.
    ///
    /// # Errors
    ///
    /// The call is wrong if the bytes are not an image of this version.
    pub fn new(
        bytes: &[u8],
        file: Option<&Path>,
        (system, platform): (&Path, &str),
    ) -> Result<Self> {
        let system = system.display();
        let (origin, remedy) = match file {
            Some(file) => (file.display().to_string(), format!("load {}", file.display())),
            None => (
                system.to_string(),
                format!("build it with `weir build {system} --platform {platform}`, load it"),
            ),
        };
        let Some(id) = weir_abi::image_id(bytes) else {
            return Err(Failure::call(format!(
                "{origin}: not an image of this version of weir\n  build it again with `weir build`"
            )));
        };
        Ok(Self { id, origin, remedy })
    }

    /// Returns the identity.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Compares the image that the board on `line` runs.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the board runs another image.
    pub fn compare(&self, id: u64, line: &str) -> Result {
        if id == self.id {
            return Ok(());
        }
        let Self { id: expected, origin, remedy } = self;
        Err(Failure::environment(format!(
            "the board on {line} runs another image ({id:016x}): expected {expected:016x} of \
             {origin}\n  {remedy}, then reset the board"
        )))
    }
}

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
            "{} was built for {other}, and the system is for {board}: give --platform {other}, or \
             build it again",
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
    use weir_abi::{PackedHeader, PackedTables};
    use weir_image::failure::{CALL, ENVIRONMENT};
    use zerocopy::FromZeros;

    #[test]
    fn another_image_is_named_with_the_remedy() {
        let header = PackedHeader { image_id: 0x77c0, ..PackedHeader::new_zeroed() };
        let packed = PackedTables::default().pack(header);
        // As in a file of U-Boot's: its header is no multiple of 8 bytes.
        let file = [&b"weirsys\0 is also text"[..], &packed, b"guests"].concat();
        let system = (Path::new("demo.toml"), "zcu102");
        let built = ExpectedImage::new(&file, None, system).expect("an image");
        assert!(built.compare(0x77c0, "/dev/ttyUSB0 at 115200 Bd").is_ok());
        let failure = built.compare(0x1f3a, "/dev/ttyUSB0 at 115200 Bd").expect_err("another");
        assert_eq!(failure.status, ENVIRONMENT);
        assert_eq!(
            failure.text,
            "the board on /dev/ttyUSB0 at 115200 Bd runs another image (0000000000001f3a): \
             expected 00000000000077c0 of demo.toml\n  build it with `weir build demo.toml \
             --platform zcu102`, load it, then reset the board"
        );
        let given = ExpectedImage::new(&file, Some(Path::new("x.img")), system).expect("an image");
        let failure = given.compare(0, "a line").expect_err("another");
        assert!(failure.text.ends_with("of x.img\n  load x.img, then reset the board"));
        for damaged in [&file[..file.len() - 7], &[], b"weirsys\0"] {
            let failure = ExpectedImage::new(damaged, None, system).expect_err("no image");
            assert_eq!(failure.status, CALL);
        }
    }

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
