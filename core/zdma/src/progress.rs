//! The end of a transfer as the channel reports it.

use crate::{ALL, DMA_DONE, EngineRegisters, ISR, STATE, STATE_ERROR, STATUS, is_busy};
use core::fmt;

/// The errors of ZDMA_CH_ISR, by bit (UG1087), and their causes. The counts of descriptors are not
/// used, so they do not overflow.
const CAUSES: [(u32, &str); 8] = [
    (1 << 9, "AXI error when writing data"),
    (1 << 8, "AXI error when reading data"),
    (1 << 7, "AXI error when reading a descriptor of the destination"),
    (1 << 6, "AXI error when reading a descriptor of the source"),
    (1 << 5, "overflow of the count of the destination's descriptors"),
    (1 << 4, "overflow of the count of the source's descriptors"),
    (1 << 3, "overflow of the count of bytes"),
    (1, "access to a register that does not exist"),
];

/// ISR, IEN, IDS: all of [`CAUSES`].
pub(crate) const ERRORS: u32 = 0x3f9;

/// State of the channel's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelProgress {
    /// The transfer goes on, or there is none.
    Busy,
    /// All bytes are written. The channel is free.
    Done,
    /// The transfer failed, and some of its bytes may be written. The channel may still be
    /// completing transactions that it has begun; it has completed them once [`stop`](crate::stop)
    /// returns `Ok`.
    Failed(TransferFailure),
}

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferFailure {
    bits: u32,
}

impl TransferFailure {
    /// Returns the error bits of ZDMA_CH_ISR (UG1087): 0 if the channel reports an error by its
    /// state alone.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }
}

impl fmt::Display for TransferFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DMA transfer: ")?;
        let mut causes = CAUSES.iter().filter(|(bit, _)| self.bits & bit != 0);
        let Some((_, first)) = causes.next() else {
            return write!(out, "an error that the channel does not name");
        };
        write!(out, "{first}")?;
        causes.try_for_each(|(_, cause)| write!(out, ", {cause}"))
    }
}

impl core::error::Error for TransferFailure {}

/// Returns the state of the transfer that [`start`](crate::start) started, and clears what the
/// channel has reported about it, so that the channel's interrupt is no longer asserted. It can be
/// called for the interrupt or at any other time.
///
/// An end is returned once. [`ChannelProgress::Done`] needs both the report of the end and a
/// state other than busy: which of them silicon shows first is not documented. If the channel
/// reports the end while it is busy, the report stays, and with it the interrupt.
pub fn finish(registers: &mut impl EngineRegisters) -> ChannelProgress {
    let seen = registers.read(ISR) & ALL;
    let status = registers.read(STATUS);
    let bits = seen & ERRORS;
    // An error is reported without waiting: a channel that never ends would interrupt for ever.
    if bits == 0 && (seen & DMA_DONE == 0 || is_busy(status)) {
        return ChannelProgress::Busy;
    }
    registers.write(ISR, seen);
    if bits != 0 || status & STATE == STATE_ERROR {
        ChannelProgress::Failed(TransferFailure { bits })
    } else {
        ChannelProgress::Done
    }
}
