//! The actions that follow from a decision about a flow to several receivers.

use super::MEMBERS;
use crate::vsock::Header;

/// Actions that the caller must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    headers: [Header; Self::MOST],
    count: usize,
    /// Members, one bit each, whose packets on their way are to be given up.
    pub retire: u8,
    /// Whether the group's [`due`](super::FlowGroup::due) is earlier than before.
    pub sooner: bool,
}

impl Default for Post {
    fn default() -> Self {
        Self::new()
    }
}

impl Post {
    const MOST: usize = 2 * MEMBERS + 2;

    /// Returns an empty list of actions.
    #[must_use]
    pub const fn new() -> Self {
        Self { headers: [Header::ZERO; Self::MOST], count: 0, retire: 0, sooner: false }
    }

    /// Returns the control packets to deliver, in order.
    #[must_use]
    pub fn headers(&self) -> &[Header] {
        self.headers.get(..self.count).unwrap_or(&[])
    }

    pub(super) fn push(&mut self, header: Header) {
        // There are never more than two for each receiver, and two for the sender.
        if let Some(place) = self.headers.get_mut(self.count) {
            *place = header;
            self.count += 1;
        }
    }
}
