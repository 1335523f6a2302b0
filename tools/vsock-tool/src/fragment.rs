//! Fragmentation of Linux' free memory.

use crate::linux::{self, Errno, LockedPages, PAGE};

/// Free bytes that are left to Linux, which needs some itself.
const LEFT: usize = 8 << 20;
/// Pairs of sockets. Each buffers about 200 KiB: together they take the free blocks of more than a
/// page, those in [`LEFT`] and those between the pages.
const PAIRS: usize = 128;

/// Fragments the free memory until the program ends: hardly two free pages are next to each other.
///
/// Takes nearly all free memory in single pages, which Linux cannot move, and frees every second
/// page. Then fills sockets within the VM with `bytes`, because Linux buffers these in blocks of 32
/// KiB as long as it has some, and then in smaller ones. Returns the number of pages taken and of
/// bytes in sockets.
pub fn run(bytes: &[u8]) -> Result<[usize; 2], Errno> {
    let [total, _] = linux::memory();
    let mut memory = LockedPages::new(total / PAGE)?;
    let mut taken = 0;
    while linux::memory()[1] > LEFT && memory.touch(taken) {
        taken += 1;
    }
    for page in (1..taken).step_by(2) {
        memory.free(page)?;
    }
    let mut held = 0;
    for _ in 0..PAIRS {
        let [fd, _] = linux::socket_pair()?;
        loop {
            match linux::try_send(fd, bytes) {
                Ok(sent) => held += sent,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok([taken, held])
}
