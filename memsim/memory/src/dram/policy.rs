//! How a controller decides, and what it can't be built with.

use core::fmt;

use crate::dram::rules::LONGEST_GAP;

/// How a controller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Reads that wait at most, 1 to 64.
    pub read_queue: usize,
    /// Writes that wait at most, 1 to 64.
    pub write_queue: usize,
    /// So many row hits may pass an older request of their bank that needs another row.
    pub cap: u32,
    /// So many waiting writes switch the bus to writing.
    pub drain_from: usize,
    /// At so few it switches back if a read waits.
    pub drain_to: usize,
}

/// Queues of 32, as the simulators have them that the closed forms of `tests/dram.rs` are compared
/// with; drained from 80 % to 20 %.
pub const DEFAULT_POLICY: Policy =
    Policy { read_queue: 32, write_queue: 32, cap: 16, drain_from: 26, drain_to: 6 };

/// Why a channel can't be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// A queue outside of 1 to 64 entries, or drain marks that don't lie in `to < from <=
    /// write_queue`.
    Policy(Policy),
    /// More than 64 banks on a channel.
    Banks(u32),
    /// A rule that holds a command up for more cycles than the model counts with.
    Gap(u64),
    /// A refresh takes as long as the time between two.
    Refresh {
        /// tRFC.
        rfc: u64,
        /// tREFI.
        refi: u64,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(p) => write!(
                f,
                "DRAM queues of {} reads and {} writes, drained from {} to {}: give 1 to 64 \
                 entries and drain_to < drain_from <= write_queue",
                p.read_queue, p.write_queue, p.drain_from, p.drain_to
            ),
            Self::Banks(bits) => {
                write!(f, "2^{bits} DRAM banks on a channel: the model has at most 64")
            }
            Self::Gap(cycles) => {
                write!(f, "a DRAM timing of {cycles} cycles: the model counts to {LONGEST_GAP}")
            }
            Self::Refresh { rfc, refi } => {
                write!(
                    f,
                    "a refresh of {rfc} cycles every {refi} leaves no time: check tRFC, tREFI"
                )
            }
        }
    }
}

impl core::error::Error for ChannelError {}
