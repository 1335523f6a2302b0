//! Access of the broker to the RAM of the VMs that it serves.

use core::sync::atomic::{Ordering::SeqCst, fence};
use weir_exchange::ram::{Map, Piece};
use weir_vsock::{GuestMemory, Outside, Ram};

/// Access to memory in the service VM's address space, where VMs may write concurrently to the
/// memory that is read. An access of 2, 4 or 8 bytes at an address that is a multiple of its size
/// is a single access.
pub trait Access {
    /// Copies bytes out.
    fn read(&mut self, from: u64, to: &mut [u8]);
    /// Copies bytes in.
    fn write(&mut self, to: u64, from: &[u8]);
}

/// The mapping from the RAM of the VM at a port to the service VM's address space.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    map: &'a Map,
    port: usize,
    /// The VM's first piece of RAM, where a driver has most of its buffers.
    first: Piece,
}

impl<'a> Window<'a> {
    /// Returns a window to the VM at `port`, whose first piece in the map is `first`.
    #[inline]
    pub(crate) const fn new(map: &'a Map, port: usize, first: Piece) -> Self {
        Self { map, port, first }
    }

    /// Returns the address at which the service VM sees the `len` bytes at `ipa`, if they are in
    /// one piece.
    #[inline]
    pub(crate) fn place(&self, ipa: u64, len: u64) -> Option<u64> {
        let offset = ipa.wrapping_sub(self.first.ipa);
        if offset < self.first.len && len <= self.first.len - offset {
            return Some(self.first.address.wrapping_add(offset));
        }
        self.find(ipa, len)
    }

    /// Does what [`Self::place`] does, for any piece.
    #[inline(never)]
    fn find(&self, ipa: u64, len: u64) -> Option<u64> {
        let found = self.map.find(self.port, ipa);
        found.filter(|(_, left)| len <= *left).map(|(place, _)| place)
    }
}

/// RAM of the VM at a port.
pub(crate) struct Memory<'a, A> {
    window: Window<'a>,
    access: &'a mut A,
}

impl<'a, A> Memory<'a, A> {
    /// Returns the RAM of the VM that `window` maps.
    #[inline]
    pub(crate) const fn new(window: Window<'a>, access: &'a mut A) -> Self {
        Self { window, access }
    }
}

impl<A> Ram for Memory<'_, A> {
    fn contains(&self, address: u64, len: u64) -> bool {
        self.window.place(address, len).is_some()
    }
}

impl<A: Access> GuestMemory for Memory<'_, A> {
    #[inline]
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.window.place(address, to.len() as u64).ok_or(Outside)?;
        self.access.read(from, to);
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside> {
        let to = self.window.place(address, from.len() as u64).ok_or(Outside)?;
        self.access.write(to, from);
        Ok(())
    }

    fn fence(&mut self) {
        fence(SeqCst);
    }
}
