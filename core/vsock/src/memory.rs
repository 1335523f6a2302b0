//! A guest's memory as a device reaches it.

/// An address that is not RAM of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// Where a guest has RAM, by intermediate physical address. The registers of a device need no more:
/// they check where a driver puts its rings, and access none.
pub trait Ram {
    /// Returns whether all of `len` bytes from `address` on are the guest's RAM, in one piece.
    fn contains(&self, address: u64, len: u64) -> bool;
}

/// Memory of a guest, by intermediate physical address. The guest may change it at any moment, so
/// there are no references into it: each byte is copied once, and the copy is read.
pub trait GuestMemory: Ram {
    /// Copies bytes out.
    ///
    /// # Errors
    ///
    /// [`Outside`] when some of it is not RAM; `to` is undefined then.
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside>;

    /// Copies bytes in.
    ///
    /// # Errors
    ///
    /// [`Outside`] when some of it is not RAM.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside>;

    /// Orders accesses before it before those behind it, as the driver's cores see them: between an
    /// index and what it announces.
    fn fence(&mut self);
}

/// Bytes at a place where a core that allows no unaligned access loads words of them.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// Reads a little-endian half word.
#[inline]
pub(crate) fn read_u16(memory: &mut impl GuestMemory, address: u64) -> Result<u16, Outside> {
    let mut bytes = Aligned([0; 2]);
    memory.read(address, &mut bytes.0)?;
    Ok(u16::from_le_bytes(bytes.0))
}
