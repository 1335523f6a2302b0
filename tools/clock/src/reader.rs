//! Stops of the machine for a reader of its memory.
//!
//! The runner reads the cores' trace rings out of the machine's memory. Virtual time can be faster
//! than the reader, so a ring could overwrite records that nobody has read. So the machine stops
//! after so many instructions, sends a byte and waits for one. The machine cannot notice, because
//! no time passes in it.

use crate::c;
use crate::order::NEVER;
use libc::c_int;

/// Instructions of one core between two stops. A ring of the hypervisor's has 2,048 records, and no
/// path of EL2's that leaves a record takes fewer than 60 instructions.
const INSTRUCTIONS: u64 = 50_000;

/// The connection to the reader.
#[derive(Debug)]
pub struct Reader {
    /// The socket, if there is a reader.
    socket: Option<c_int>,
    executed: u64,
}

impl Reader {
    /// No reader.
    pub const NONE: Self = Self { socket: None, executed: 0 };

    /// Returns a reader at the other end of this socket.
    pub const fn new(socket: c_int) -> Self {
        Self { socket: Some(socket), ..Self::NONE }
    }

    /// Counts instructions of a turn.
    pub const fn count(&mut self, instructions: u64) {
        self.executed = self.executed.saturating_add(instructions);
    }

    /// Returns the clock at which a turn must end for the next stop, if it begins at `clock`.
    pub const fn due(&self, clock: u64) -> u64 {
        match self.socket {
            Some(_) => clock.saturating_add(INSTRUCTIONS.saturating_sub(self.executed)),
            None => NEVER,
        }
    }

    /// If a stop is due, stops the machine until the reader has read. A reader that has gone is not
    /// waited for.
    pub fn stop_if_due(&mut self) {
        let Some(socket) = self.socket.filter(|_| self.executed >= INSTRUCTIONS) else { return };
        self.executed = 0;
        let mut byte = 0u8;
        // SAFETY: the byte is ours.
        let sent = unsafe { (c::library().write)(socket, (&raw const byte).cast(), 1) };
        let mut read = -1;
        if sent == 1 {
            // SAFETY: as above.
            let mut take = || unsafe { libc::read(socket, (&raw mut byte).cast(), 1) };
            read = take();
            while read < 0 && c::error() == libc::EINTR {
                read = take();
            }
        }
        if read != 1 {
            self.socket = None;
        }
    }
}
