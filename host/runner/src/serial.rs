//! A board on a serial line.

use crate::link::{Link, Reliability};
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};
use weir_image::{Failure, Format, Result};

/// The rate that the hypervisor sets.
const BAUD: u32 = 115_200;
/// The time after which a read ends without a byte, and the thread that reads can end.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// A serial line on the command line: `DEVICE` or `DEVICE:BAUD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialLine {
    /// The device, for example `/dev/ttyUSB0`.
    pub device: PathBuf,
    /// Its rate.
    pub baud: u32,
}

/// The user's way to load an image on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// The shell command, which loads the image on the board and resets it. The environment
    /// variable `WEIR_IMAGE` names the image's file.
    pub command: String,
    /// The format of that file.
    pub format: Format,
}

/// A board on a serial line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardLine {
    /// The line.
    pub serial: SerialLine,
    /// The way to load an image.
    pub loader: Loader,
}

impl FromStr for SerialLine {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (device, baud) = match text.rsplit_once(':') {
            // Names below /dev/serial/by-path have colons too.
            Some((device, baud)) if baud.bytes().all(|byte| byte.is_ascii_digit()) => {
                (device, baud)
            }
            _ => (text, "115200"),
        };
        if device.is_empty() {
            return Err("there is no device before the rate: write /dev/ttyUSB0:115200".into());
        }
        match baud.parse() {
            Ok(rate) if rate > 0 => Ok(Self { device: device.into(), baud: rate }),
            _ => Err(format!("`{baud}` is not a rate in Bd: write for example {device}:115200")),
        }
    }
}

impl fmt::Display for SerialLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {} Bd", self.device.display(), self.baud)
    }
}

impl SerialLine {
    /// Returns the line as the command line takes it.
    #[must_use]
    pub fn argument(&self) -> String {
        format!("{}:{}", self.device.display(), self.baud)
    }

    /// Opens the line with 8 data bits, no parity and one stop bit, for this process alone.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the device cannot be opened at this rate.
    pub fn open(&self) -> Result<Link> {
        let device = self.device.to_string_lossy();
        let cannot = |error: &dyn fmt::Display| {
            let mut text = format!("cannot open {self}: {error}");
            if !self.device.exists() {
                text +=
                    "\n  connect the board, and look for the device with `ls /dev/serial/by-id`";
            } else if self.baud != BAUD {
                text += "\n  the hypervisor sends at 115200 Bd";
            } else {
                text += "\n  another program may use it, or this user may not: on Debian, add the \
                         user to the group `dialout`";
            }
            Failure::environment(text)
        };
        let port = serialport::new(device.as_ref(), self.baud).timeout(READ_TIMEOUT);
        let reader = port.open_native().map_err(|error| cannot(&error))?;
        let writer = reader.try_clone_native().map_err(|error| cannot(&error))?;
        Ok(Link::new(reader, writer, Reliability::Lossy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Hub;

    #[test]
    fn a_line_is_a_device_and_a_rate() {
        let line = |text: &str| text.parse::<SerialLine>();
        let found = |device: &str, baud| Ok(SerialLine { device: device.into(), baud });
        assert_eq!(line("/dev/ttyUSB0"), found("/dev/ttyUSB0", 115_200));
        assert_eq!(line("/dev/ttyUSB0:9600"), found("/dev/ttyUSB0", 9600));
        let path = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0";
        assert_eq!(line(path), found(path, 115_200));
        let again = found(path, 9600).and_then(|found| line(&found.argument()));
        assert_eq!(again, found(path, 9600));
        for wrong in ["", ":115200", "/dev/ttyUSB0:", "/dev/ttyUSB0:0", "/dev/x:99999999999"] {
            assert!(line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_opened_again_after_a_run() {
        use serialport::SerialPort as _;
        let (_board, host) = serialport::TTYPort::pair().expect("a pseudo-terminal");
        let device = host.name().expect("a name");
        drop(host);
        let serial = SerialLine { device: device.into(), baud: BAUD };
        for _ in 0..3 {
            let link = serial.open().expect("the line");
            let directory = tempfile::tempdir().expect("a directory");
            let hub = Hub::new(vec!["one".to_owned()], link.input());
            hub.listen(directory.path()).expect("a socket");
            hub.close();
            link.end();
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let line: SerialLine = "/dev/no-such-line".parse().expect("a line");
        let failure = line.open().expect_err("no device");
        assert!(failure.text.starts_with("cannot open /dev/no-such-line at 115200 Bd: "));
        assert!(failure.text.contains("/dev/serial/by-id"), "{}", failure.text);
    }
}
