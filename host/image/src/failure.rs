//! Failures, with the exit status for their kind.

use std::{fmt, io};
use weir_model::printable;

/// Exit status of a command that did its job.
pub const GOOD: u8 = 0;
/// Exit status when the system is at fault: it does not check, or an expected line was missed.
pub const SYSTEM: u8 = 1;
/// Exit status when the command line is wrong.
pub const CALL: u8 = 2;
/// Exit status when the surroundings are: QEMU is missing, a build failed, a disk is full.
pub const ENVIRONMENT: u8 = 3;
/// Exit status of a run that a person ended with Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// The reason for which a verb failed, as text, with the exit status for its kind.
#[derive(Debug)]
pub struct Failure {
    /// The process's exit status.
    pub status: u8,
    /// What to print on standard error; may be empty if all has been printed.
    pub text: String,
}

/// The result of an operation that can fail so.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns a failure of the system, with status [`SYSTEM`].
    pub fn system(text: impl Into<String>) -> Self {
        Self { status: SYSTEM, text: plain(text) }
    }

    /// Returns a failure of the call, with status [`CALL`].
    pub fn call(text: impl Into<String>) -> Self {
        Self { status: CALL, text: plain(text) }
    }

    /// Returns a failure of the environment, with status [`ENVIRONMENT`].
    pub fn environment(text: impl Into<String>) -> Self {
        Self { status: ENVIRONMENT, text: plain(text) }
    }

    /// Returns a failure with a reason that has been printed already.
    #[must_use]
    pub fn reported(status: u8) -> Self {
        Self { status, text: String::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Returns a message in which names and values have no control characters, colors included.
fn plain(text: impl Into<String>) -> String {
    printable(&text.into()).into_owned()
}

/// An error on standard output. A reader that has gone away (`weir platforms | head -1`) has all
/// that it wants, so that is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::reported(GOOD);
        }
        Self::environment(format!("cannot write to standard output: {error}"))
    }
}

/// Adds to an I/O error what was being done, and to what.
pub trait Context<T> {
    /// `doing` reads well after "cannot", such as "write runs/x/report.json".
    ///
    /// # Errors
    ///
    /// The same error, as a failure of the environment: "cannot DOING: ERROR".
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| Failure::environment(format!("cannot {}: {error}", doing())))
    }
}
