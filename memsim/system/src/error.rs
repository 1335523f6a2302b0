//! Errors of a board.

use std::fmt;

/// Why a system can't be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationError(pub String);

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SimulationError {}
