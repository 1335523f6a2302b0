//! Stops of the machine for the reader of its memory.
//!
//! The runner reads the cores' trace rings out of the machine's memory. Virtual time can be faster
//! than the reader, so a ring could overwrite records that nobody has read. So the machine looks at
//! the rings' numbers of records after so many instructions. If one has many new records, it stops:
//! it sends a byte and waits for one. The machine cannot notice, because no time passes in it.

use crate::c;
use crate::options::ReaderOptions;
use crate::order::NEVER;
use libc::c_int;
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Instructions of all cores between two looks at the rings.
const INSTRUCTIONS: u64 = 50_000;

/// New records of a ring for which the machine stops. A ring of the hypervisor's has 2,048 records,
/// and no path of EL2's that leaves a record takes fewer than 60 instructions. So before the next
/// look a ring gets at most 834 further records.
const RECORDS: u64 = 1_200;

/// The number of records of a ring.
#[derive(Debug)]
struct Head {
    /// The word in the machine's memory.
    word: &'static AtomicU64,
    /// The number when the reader last read.
    read: u64,
}

/// Maps the word at this offset of a file.
fn map(file: c_int, offset: u64) -> Result<&'static AtomicU64, String> {
    // SAFETY: the call has no arguments that it could violate.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    let (start, within) = (offset - offset % page, (offset % page) as usize);
    let failed = |why: String| format!("map the machine's memory at {offset:#x}: {why}");
    let start = start.try_into().map_err(|_| failed("not an offset".into()))?;
    // SAFETY: a new mapping, which only reads and replaces no other.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            page as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            start,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(failed(io::Error::last_os_error().to_string()));
    }
    // SAFETY: the mapping stays, `within` is below its size and a multiple of 8 (`ReaderOptions`).
    // The machine's cores change the word, so it is read as an atomic one.
    Ok(unsafe { &*memory.byte_add(within).cast::<AtomicU64>() })
}

/// The connection to the reader.
#[derive(Debug)]
pub struct Reader {
    /// The socket, if there is a reader.
    socket: Option<c_int>,
    heads: Vec<Head>,
    executed: u64,
}

impl Reader {
    /// No reader.
    pub const NONE: Self = Self { socket: None, heads: Vec::new(), executed: 0 };

    /// Returns the reader that the options describe.
    ///
    /// # Errors
    ///
    /// A ring's number of records that is not in the file.
    pub fn new(options: &ReaderOptions) -> Result<Self, String> {
        let head = |&offset| map(options.memory, offset).map(|word| Head { word, read: 0 });
        let heads = options.heads.iter().map(head).collect::<Result<_, _>>()?;
        Ok(Self { socket: Some(options.socket), heads, executed: 0 })
    }

    /// Counts instructions of a turn.
    pub const fn count(&mut self, instructions: u64) {
        self.executed = self.executed.saturating_add(instructions);
    }

    /// Returns the clock at which a turn must end for the next look, if it begins at `clock`.
    pub const fn due(&self, clock: u64) -> u64 {
        match self.socket {
            Some(_) => clock.saturating_add(INSTRUCTIONS.saturating_sub(self.executed)),
            None => NEVER,
        }
    }

    /// Returns whether a look is due and finds many new records.
    fn must_stop(&mut self) -> bool {
        if self.executed < INSTRUCTIONS {
            return false;
        }
        self.executed = 0;
        self.heads.iter().any(|head| head.word.load(Relaxed).wrapping_sub(head.read) >= RECORDS)
    }

    /// Stops the machine until the reader has read, if that is necessary. A reader that has gone is
    /// not waited for.
    pub fn stop_if_due(&mut self) {
        let Some(socket) = self.socket.filter(|_| self.must_stop()) else { return };
        for head in &mut self.heads {
            head.read = head.word.load(Relaxed);
        }
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
