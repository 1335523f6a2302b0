//! What a decision about a flow to several receivers leaves to be done.

use super::MEMBERS;
use crate::vsock::Header;

/// What is to be done outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    headers: [Header; Self::MOST],
    count: usize,
    /// Members, one bit each, with packets on their way that are to be given up.
    pub retire: u8,
    /// The group's [`due`](super::FlowGroup::due) is earlier than it was.
    pub sooner: bool,
}

impl Default for Post {
    fn default() -> Self {
        Self::new()
    }
}

impl Post {
    const MOST: usize = 2 * MEMBERS + 2;

    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { headers: [Header::ZERO; Self::MOST], count: 0, retire: 0, sooner: false }
    }

    /// Control packets to deliver, in order.
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
