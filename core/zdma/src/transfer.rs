//! The end of a transfer: by itself, by its caller, or by a time limit.

use crate::{Busy, ChannelProgress, EngineRegisters, finish, stop};
use weir_units::Nanos;

/// Outcome of a transfer so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes were moved, or there was no transfer.
    Done,
    /// The channel is not done yet; ask again.
    Busy,
    /// The channel has stopped before the end, with these bits of ISR: 0 if it was told to stop.
    /// Part of the destination may be written.
    Failed(u32),
    /// The channel was told to stop and has not stopped. It can still read and write the transfer's
    /// memory.
    Stuck,
}

/// The transfer that a channel has begun, if any.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Maximum time of a transfer, and maximum time that a channel takes to stop.
    limit: Nanos,
    /// Time at which the transfer began.
    begun: Option<Nanos>,
    /// The bits of ISR because of which the transfer is being stopped, until the channel has
    /// stopped.
    stopping: Option<u32>,
}

impl Transfer {
    /// Returns the state without a transfer, for a channel whose transfers take at most `limit`.
    #[must_use]
    pub const fn none(limit: Nanos) -> Self {
        Self { limit, begun: None, stopping: None }
    }

    /// Whether a transfer is in progress.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.begun.is_some()
    }

    /// Notes that the channel has begun a transfer at `now`.
    pub const fn begin(&mut self, now: Nanos) {
        self.begun = Some(now);
    }

    /// Returns the transfer's outcome at `now`, or `None` if none was begun. Stops the channel if
    /// the transfer has failed, or if it is not done and the caller `gives_up`. A channel that is
    /// still busy after twice the limit is stopped in any case, and counts as stuck if it does not
    /// stop. A transfer that was told to stop has failed, even if the channel then reports its end.
    pub fn finish(
        &mut self,
        channel: &mut impl EngineRegisters,
        gives_up: bool,
        now: Nanos,
    ) -> Option<Outcome> {
        let took = now.0.saturating_sub(self.begun?.0);
        let is_late = took > self.limit.0.saturating_mul(2);
        if self.stopping.is_none() {
            self.stopping = match finish(channel) {
                ChannelProgress::Done => {
                    self.begun = None;
                    return Some(Outcome::Done);
                }
                ChannelProgress::Busy if !gives_up && !is_late => return Some(Outcome::Busy),
                ChannelProgress::Busy => None,
                ChannelProgress::Failed(failure) => Some(failure.bits()),
            };
        }
        Some(self.stop(channel, is_late))
    }

    /// Stops the transfer in progress, because its memory is to be used again; stopping began at
    /// `since`. Returns [`Outcome::Busy`] until the channel has stopped or the limit is over.
    pub fn close(
        &mut self,
        channel: &mut impl EngineRegisters,
        since: Nanos,
        now: Nanos,
    ) -> Outcome {
        if !self.is_busy() {
            return Outcome::Done;
        }
        self.stop(channel, now.0.saturating_sub(since.0) > self.limit.0)
    }

    fn stop(&mut self, channel: &mut impl EngineRegisters, is_late: bool) -> Outcome {
        let bits = *self.stopping.get_or_insert(0);
        match stop(channel) {
            Ok(()) => {
                (self.begun, self.stopping) = (None, None);
                Outcome::Failed(bits)
            }
            Err(Busy) if is_late => Outcome::Stuck,
            Err(Busy) => Outcome::Busy,
        }
    }
}
