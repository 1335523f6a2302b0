//! How the broker reaches the RAM of the VMs that it serves.

use core::sync::atomic::{Ordering::SeqCst, fence};
use weir_partition::ram::{Map, Piece};
use weir_vsock::{GuestMemory, Outside, Ram};

/// What accesses memory in the service VM's address space, where VMs may write what is read. An
/// access of 2, 4 or 8 bytes at a multiple of as many is one access.
pub trait Access {
    /// Copies bytes out.
    fn read(&mut self, from: u64, to: &mut [u8]);
    /// Copies bytes in.
    fn write(&mut self, to: u64, from: &[u8]);
}

/// RAM of the VM at a port.
pub(crate) struct Memory<'a, A> {
    map: &'a Map,
    port: usize,
    access: &'a mut A,
    /// The VM's first piece, where a driver has most of what it has.
    first: Piece,
}

impl<'a, A> Memory<'a, A> {
    /// Of the VM at `port`.
    pub(crate) fn new(map: &'a Map, port: usize, access: &'a mut A) -> Self {
        Self { map, port, access, first: map.first(port) }
    }

    /// Where the service VM sees the `len` bytes at `ipa`, if they are in one piece.
    pub(crate) fn place(&self, ipa: u64, len: u64) -> Option<u64> {
        let offset = ipa.wrapping_sub(self.first.ipa);
        if offset < self.first.len && len <= self.first.len - offset {
            return Some(self.first.address.wrapping_add(offset));
        }
        let found = self.map.find(self.port, ipa);
        found.filter(|(_, left)| len <= *left).map(|(place, _)| place)
    }
}

impl<A> Ram for Memory<'_, A> {
    fn contains(&self, address: u64, len: u64) -> bool {
        self.place(address, len).is_some()
    }
}

impl<A: Access> GuestMemory for Memory<'_, A> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(address, to.len() as u64).ok_or(Outside)?;
        self.access.read(from, to);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside> {
        let to = self.place(address, from.len() as u64).ok_or(Outside)?;
        self.access.write(to, from);
        Ok(())
    }

    fn fence(&mut self) {
        fence(SeqCst);
    }
}
