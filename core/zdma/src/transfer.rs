//! The end of a transfer: by itself, by its caller, or by a limit on time.

use crate::{Busy, ChannelProgress, EngineRegisters, finish, stop};
use weir_units::Nanos;

/// How a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes were moved, or nothing was under way.
    Done,
    /// The channel is at work; ask again.
    Busy,
    /// The channel has stopped before the end, with these bits of ISR: 0 if it was made to stop.
    /// Part of the destination may be written.
    Failed(u32),
    /// The channel should have stopped, and has not. It can still read and write the transfer's
    /// memory.
    Stuck,
}

/// The transfer that a channel has begun, if any.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The most time that a transfer may take, and that a channel may take to stop.
    limit: Nanos,
    /// When it began.
    begun: Option<Nanos>,
    /// The bits of ISR for which it is being stopped, until the channel has stopped.
    stopping: Option<u32>,
}

impl Transfer {
    /// None, for a channel with transfers of at most `limit`.
    #[must_use]
    pub const fn none(limit: Nanos) -> Self {
        Self { limit, begun: None, stopping: None }
    }

    /// Whether one is under way.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.begun.is_some()
    }

    /// The channel has begun one at `now`.
    pub const fn begin(&mut self, now: Nanos) {
        self.begun = Some(now);
    }

    /// Returns how it is at `now`; none if none was begun. Stops the channel if it has failed, or
    /// if it is still at work and the caller `gives_up`. A channel that is at work after twice the
    /// limit is stopped in any case, and is stuck if it goes on. A transfer that was to be stopped
    /// has failed, even if the channel then reports its end.
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

    /// Stops what is under way, since `since`, because its memory is to be used again. Returns
    /// [`Outcome::Busy`] until the channel has stopped or the limit is over.
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
