//! A guest's memory as seen by a device.

/// An address that is not RAM of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// A guest's RAM ranges, by intermediate physical address. The registers of a device need no access
/// to memory: they only check the addresses of a driver's rings.
pub trait Ram {
    /// Returns whether all of `len` bytes from `address` on are the guest's RAM, in one piece.
    fn contains(&self, address: u64, len: u64) -> bool;
}

/// Memory of a guest, by intermediate physical address. The guest may change it at any moment, so
/// there are no references into it: each byte is copied once, and the copy is read.
pub trait GuestMemory: Ram {
    /// Copies bytes out of the guest's memory.
    ///
    /// # Errors
    ///
    /// [`Outside`] if a part of the range is not RAM; the contents of `to` are then undefined.
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside>;

    /// Copies bytes into the guest's memory.
    ///
    /// # Errors
    ///
    /// [`Outside`] if a part of the range is not RAM.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside>;

    /// Orders the accesses before this call before those after it, as the driver's cores see them:
    /// between an index and the entries that it announces.
    fn fence(&mut self);
}

/// Bytes with an alignment that lets a core without unaligned accesses load them as words.
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
