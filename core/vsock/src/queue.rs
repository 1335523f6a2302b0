//! A split virtqueue, the device's side (virtio 1.2, section 2.7).

use crate::memory::{Aligned, GuestMemory, Outside, Ram, read_u16};

/// Maximum number of entries of a ring: the heads in flight are one bit each.
pub const MAX_SIZE: u16 = 64;
/// Maximum number of descriptors that one walk along a chain reads before other work has its turn:
/// if a driver cuts a packet into many buffers, there are more walks, but none is longer.
pub const STRIDE: u32 = 8;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device wants no notifications.
const NO_NOTIFY: u16 = 1;
const DESCRIPTOR: u64 = 16;

/// A buffer of the guest, or the rest of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Intermediate physical address of the first byte. The whole segment was RAM when it was
    /// checked, and RAM stays RAM.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
}

/// The buffers of a chain that a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Buffers that the device reads.
    Read,
    /// Buffers that the device writes, which follow the others.
    Write,
}

/// Result of a walk along a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The walk has reached these bytes of a buffer.
    Bytes(Segment),
    /// The walk has reached the end of the chain: there are no more bytes.
    End,
    /// The walk has read as many descriptors as it may for now, and has not reached the end.
    Later,
}

/// A chain that the device has taken, and the device's position in it. Each walk copies a
/// descriptor out of the ring once, checks the copy and uses it when its turn comes; a copy of the
/// chain begins a walk of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Address of the rest of the current buffer.
    address: u64,
    /// Address of the indirect table.
    table: u64,
    /// Descriptors of the ring, or of the table, that were read, one bit each.
    seen: u64,
    len: u32,
    /// The chain's first descriptor, which identifies the chain in the used ring; less than the
    /// ring's size.
    head: u16,
    /// The next descriptor.
    next: u16,
    /// Number of buffers that may still follow.
    left: u16,
    /// Entries of the indirect table; 0 while the chain is in the ring.
    entries: u16,
    /// Whether there is a next descriptor.
    goes_on: bool,
    /// Whether the walk has found a buffer that the device writes.
    is_writable: bool,
}

impl Chain {
    /// A chain without buffers.
    pub const EMPTY: Self = Self {
        address: 0,
        table: 0,
        seen: 0,
        len: 0,
        head: 0,
        next: 0,
        left: 0,
        entries: 0,
        goes_on: false,
        is_writable: false,
    };

    /// Returns a chain at its start, in a ring of `size` entries.
    const fn new(head: u16, size: u16) -> Self {
        Self { head, next: head, left: size, goes_on: true, ..Self::EMPTY }
    }

    /// Returns the chain's first descriptor, which identifies the chain in the used ring; it is
    /// less than the ring's size.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.head
    }

    /// Returns the number of bytes left in the current buffer.
    #[must_use]
    pub const fn len_here(&self) -> u32 {
        self.len
    }

    /// Returns whether more buffers may follow the current one.
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Returns the descriptors of the ring that were read, one bit each; none if the chain is in a
    /// table.
    #[must_use]
    pub const fn descriptors(&self) -> u64 {
        if self.entries == 0 { self.seen } else { 0 }
    }

    /// Moves forward by `bytes` in the current buffer, at most to its end.
    #[inline]
    pub const fn pass(&mut self, bytes: u32) {
        let bytes = if bytes < self.len { bytes } else { self.len };
        self.len -= bytes;
        self.address = self.address.wrapping_add(bytes as u64);
    }
}

/// An error of a driver that makes its ring unusable until the device is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Broken {
    /// The available index is more than the ring's size ahead.
    Index,
    /// A head, or the number of a next descriptor, is not below the size of its table.
    Number,
    /// A head that the device has not yet returned was made available again.
    InFlight,
    /// A chain has more buffers than the ring has entries.
    TooLong,
    /// A chain leads back to one of its own descriptors.
    Circle,
    /// A buffer that the device reads follows one that it writes.
    Order,
    /// An indirect table is invalid: not negotiated, nested, with a length that is not a multiple
    /// of a descriptor's, with a next descriptor, or inside the ring itself.
    Indirect,
    /// A ring, a table or a buffer is not in RAM.
    Outside,
    /// A receive buffer has no room for more than a header, or less room than before.
    TooShort,
}

impl From<Outside> for Broken {
    fn from(_: Outside) -> Self {
        Self::Outside
    }
}

/// The addresses of a ring's three areas, and the ring's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of entries, a power of two up to [`MAX_SIZE`].
    pub size: u16,
    /// The descriptor table, at a multiple of 16.
    pub descriptors: u64,
    /// The available ring, at a multiple of 2.
    pub available: u64,
    /// The used ring, at a multiple of 4.
    pub used: u64,
}

impl Layout {
    /// Whether the layout is valid: its size, its alignments (section 2.7), all areas in RAM, and
    /// no byte in two areas.
    #[must_use]
    pub fn is_sound(&self, memory: &impl Ram) -> bool {
        let aligned = self.descriptors.is_multiple_of(16)
            && self.available.is_multiple_of(2)
            && self.used.is_multiple_of(4);
        let [descriptors, available, used] = self.areas();
        self.size.is_power_of_two()
            && self.size <= MAX_SIZE
            && aligned
            && memory.contains(descriptors.0, descriptors.1)
            && memory.contains(available.0, available.1)
            && memory.contains(used.0, used.1)
            && !self.reads(used)
            && !meet(descriptors, available)
    }

    /// Returns start and length of the descriptor table, the available ring and the used ring.
    fn areas(&self) -> [(u64, u64); 3] {
        let size = u64::from(self.size);
        [
            (self.descriptors, DESCRIPTOR * size),
            (self.available, 6 + 2 * size),
            (self.used, 6 + 8 * size),
        ]
    }

    /// Whether a range of RAM overlaps with the parts of the ring that the device reads.
    fn reads(&self, range: (u64, u64)) -> bool {
        let [descriptors, available, _] = self.areas();
        meet(range, descriptors) || meet(range, available)
    }
}

/// Whether two ranges of RAM, given by start and length, overlap.
const fn meet(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// The features for rings on which driver and device have agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOptions {
    /// VIRTIO_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub event_index: bool,
}

/// A ring in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    layout: Layout,
    options: RingOptions,
    next_available: u16,
    next_used: u16,
    /// [`Self::next_used`] when the driver was last asked whether it wants an interrupt.
    asked: u16,
    /// The heads of the chains that the device has taken and not yet returned, one bit each.
    in_flight: u64,
}

impl Queue {
    /// Returns a ring with a layout for which [`Layout::is_sound`] is true.
    #[must_use]
    pub const fn new(layout: Layout, options: RingOptions) -> Self {
        Self { layout, options, next_available: 0, next_used: 0, asked: 0, in_flight: 0 }
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn size(&self) -> u16 {
        self.layout.size
    }

    /// Returns the ring's layout.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the features on which driver and device have agreed.
    #[must_use]
    pub const fn options(&self) -> RingOptions {
        self.options
    }

    /// Whether the device has the chain that starts at `head`.
    #[must_use]
    pub const fn has(&self, head: u16) -> bool {
        head < MAX_SIZE && self.in_flight >> head & 1 != 0
    }

    /// Returns the entry of a ring for the chain with this number. The size is a power of two.
    const fn place(&self, number: u16) -> u64 {
        (number & self.layout.size.wrapping_sub(1)) as u64
    }

    /// Returns how many chains the device has taken, modulo 2^16.
    #[must_use]
    pub const fn taken(&self) -> u16 {
        self.next_available
    }

    /// Returns how many chains the driver has made available that the device has not taken yet.
    ///
    /// # Errors
    ///
    /// [`Broken::Index`], or as [`Self::push`].
    pub fn available(&self, memory: &mut impl GuestMemory) -> Result<u16, Broken> {
        let index = read_u16(memory, self.layout.available + 2)?;
        let ready = index.wrapping_sub(self.next_available);
        if ready > self.layout.size { Err(Broken::Index) } else { Ok(ready) }
    }

    /// Takes the next available chain without reading any of its descriptors: see [`Self::walk`].
    ///
    /// # Errors
    ///
    /// [`Broken`]; the ring can't be used until it is set up again.
    pub fn pop(&mut self, memory: &mut impl GuestMemory) -> Result<Option<Chain>, Broken> {
        self.pop_beyond(memory, 0)
    }

    /// Takes a chain like [`Self::pop`], but only if more than `kept` chains are available.
    ///
    /// # Errors
    ///
    /// Like [`Self::pop`].
    pub fn pop_beyond(
        &mut self,
        memory: &mut impl GuestMemory,
        kept: u16,
    ) -> Result<Option<Chain>, Broken> {
        if self.available(memory)? <= kept {
            return Ok(None);
        }
        self.pop_announced(memory).map(Some)
    }

    /// Takes a chain like [`Self::pop`], from a ring in which [`Self::available`] has found one.
    ///
    /// # Errors
    ///
    /// Like [`Self::pop`].
    pub fn pop_announced(&mut self, memory: &mut impl GuestMemory) -> Result<Chain, Broken> {
        // The index must be read before the entries that it announces.
        memory.fence();
        let at = self.place(self.next_available);
        let head = read_u16(memory, self.layout.available + 4 + 2 * at)?;
        if head >= self.layout.size {
            return Err(Broken::Number);
        }
        if self.has(head) {
            return Err(Broken::InFlight);
        }
        self.next_available = self.next_available.wrapping_add(1);
        self.in_flight |= 1 << head;
        Ok(Chain::new(head, self.layout.size))
    }

    /// Returns the head of the chain that is `ahead` chains after the next one, without taking it.
    /// The driver may still change it, and it may be invalid.
    ///
    /// # Errors
    ///
    /// Like [`Self::push`].
    pub fn peek(&self, memory: &mut impl GuestMemory, ahead: u16) -> Result<u16, Outside> {
        let place = self.place(self.next_available.wrapping_add(ahead));
        read_u16(memory, self.layout.available + 4 + 2 * place)
    }

    /// Walks along a chain of this ring to the next bytes that the device reads or writes, unless
    /// `chain` is already at such bytes. Subtracts the number of descriptors that it reads from
    /// `steps`, and stops when that is 0. All walks along a chain have the same direction.
    ///
    /// # Errors
    ///
    /// Like [`Self::pop`].
    #[inline]
    pub fn walk(
        &self,
        memory: &mut impl GuestMemory,
        chain: &mut Chain,
        direction: Direction,
        steps: &mut u32,
    ) -> Result<Found, Broken> {
        while chain.len == 0 {
            if !chain.goes_on {
                return Ok(Found::End);
            }
            let Some(left) = steps.checked_sub(1) else { return Ok(Found::Later) };
            *steps = left;
            self.read_next(memory, chain, direction)?;
        }
        Ok(Found::Bytes(Segment { address: chain.address, len: chain.len }))
    }

    /// Returns the chain at its start, for another walk.
    #[must_use]
    pub const fn again(&self, chain: &Chain) -> Chain {
        Chain::new(chain.head, self.layout.size)
    }

    /// Reads the next descriptor of a chain that has no bytes left in its current buffer.
    #[inline(never)]
    fn read_next(
        &self,
        memory: &mut impl GuestMemory,
        chain: &mut Chain,
        direction: Direction,
    ) -> Result<(), Broken> {
        let is_indirect = chain.entries > 0;
        let (table, entries) = if is_indirect {
            (chain.table, chain.entries)
        } else {
            (self.layout.descriptors, self.layout.size)
        };
        let number = chain.next;
        if number >= entries {
            return Err(Broken::Number);
        }
        // A table has at most as many entries as `seen` has bits.
        let bit = 1 << (number % MAX_SIZE);
        if chain.seen & bit != 0 {
            return Err(Broken::Circle);
        }
        chain.seen |= bit;
        let descriptor = Descriptor::read(memory, table, number)?;
        if descriptor.flags & INDIRECT != 0 {
            return if is_indirect {
                Err(Broken::Indirect)
            } else {
                self.enter(memory, chain, &descriptor)
            };
        }
        let Descriptor { address, len, flags, next } = descriptor;
        let is_writable = flags & WRITE != 0;
        // Section 2.7.4.2: buffers that the device reads come before those that it writes.
        if chain.is_writable && !is_writable {
            return Err(Broken::Order);
        }
        chain.left = chain.left.checked_sub(1).ok_or(Broken::TooLong)?;
        if !memory.contains(address, len.into()) {
            return Err(Broken::Outside);
        }
        (chain.is_writable, chain.next) = (is_writable, next);
        // No buffer to read follows one that the device writes.
        chain.goes_on = flags & NEXT != 0 && (direction == Direction::Write || !is_writable);
        if is_writable == (direction == Direction::Write) {
            (chain.address, chain.len) = (address, len);
        }
        Ok(())
    }

    /// Continues in the indirect table that `descriptor` points to. Sections 2.7.5.3.1 and
    /// 2.7.5.3.2: that descriptor is the last of the chain in the ring, the table is not longer
    /// than a ring, and the descriptor's flag for writable buffers is ignored.
    fn enter(
        &self,
        memory: &impl Ram,
        chain: &mut Chain,
        descriptor: &Descriptor,
    ) -> Result<(), Broken> {
        let len = u64::from(descriptor.len);
        let entries = len / DESCRIPTOR;
        let is_whole = len.is_multiple_of(DESCRIPTOR);
        let fits = (1..=u64::from(self.layout.size)).contains(&entries);
        if !self.options.indirect || descriptor.flags & NEXT != 0 || !is_whole || !fits {
            return Err(Broken::Indirect);
        }
        if !memory.contains(descriptor.address, len) {
            return Err(Broken::Outside);
        }
        // Otherwise a byte would be read both as part of the ring and of the table, and could
        // change in between.
        if self.layout.reads((descriptor.address, len)) {
            return Err(Broken::Indirect);
        }
        (chain.table, chain.entries) = (descriptor.address, entries as u16);
        (chain.seen, chain.next) = (0, 0);
        Ok(())
    }

    /// Returns a chain to the driver, with the number of bytes that were written to it. Ignores a
    /// chain that the device does not have.
    ///
    /// # Errors
    ///
    /// [`Outside`] if the ring is no longer RAM, which it was when it was set up.
    pub fn push(
        &mut self,
        memory: &mut impl GuestMemory,
        head: u16,
        written: u32,
    ) -> Result<(), Outside> {
        if !self.has(head) {
            return Ok(());
        }
        self.in_flight &= !(1 << head);
        let place = self.place(self.next_used);
        let element = u64::from(head) | u64::from(written) << 32;
        memory.write(self.layout.used + 4 + 8 * place, &Aligned(element.to_le_bytes()).0)?;
        self.next_used = self.next_used.wrapping_add(1);
        // The buffer and the element must be written before the index that announces them.
        memory.fence();
        memory.write(self.layout.used + 2, &self.next_used.to_le_bytes())
    }

    /// Returns whether any chain was returned since the driver was last asked.
    #[inline]
    #[must_use]
    pub const fn has_returned(&self) -> bool {
        self.asked != self.next_used
    }

    /// Returns whether the driver wants an interrupt for the chains that were returned since it was
    /// last asked (section 2.7.7).
    ///
    /// # Errors
    ///
    /// Like [`Self::push`].
    pub fn wants_interrupt(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Outside> {
        let before = core::mem::replace(&mut self.asked, self.next_used);
        if before == self.next_used {
            return Ok(false);
        }
        // The index must be written before the driver's wish is read: a driver that changes its
        // wish reads the index afterwards.
        memory.fence();
        if self.options.event_index {
            let event = read_u16(memory, self.layout.available + 4 + 2 * u64::from(self.size()))?;
            let passed = self.next_used.wrapping_sub(event).wrapping_sub(1);
            return Ok(passed < self.next_used.wrapping_sub(before));
        }
        Ok(read_u16(memory, self.layout.available)? & NO_INTERRUPT == 0)
    }

    /// Tells a driver that suppresses notifications by flags that none is needed (section 2.7.10).
    /// A driver that uses event indices notifies once in 65536 chains if it is never asked.
    ///
    /// # Errors
    ///
    /// Like [`Self::push`].
    pub fn refuse_notifications(&self, memory: &mut impl GuestMemory) -> Result<(), Outside> {
        memory.write(self.layout.used, &NO_NOTIFY.to_le_bytes())
    }

    /// Asks the driver for a notification when it makes another chain available after `seen` chains
    /// that the device has not taken yet. Returns whether one is available already, in which case
    /// no notification may come.
    ///
    /// # Errors
    ///
    /// Like [`Self::available`].
    pub fn ask_for_more(
        &mut self,
        memory: &mut impl GuestMemory,
        seen: u16,
    ) -> Result<bool, Broken> {
        if self.options.event_index {
            let place = self.layout.used + 4 + 8 * u64::from(self.size());
            let behind = self.next_available.wrapping_add(seen);
            memory.write(place, &behind.to_le_bytes())?;
        } else {
            memory.write(self.layout.used, &0u16.to_le_bytes())?;
        }
        // The wish must be written before the index is read: see `wants_interrupt`.
        memory.fence();
        Ok(self.available(memory)? > seen)
    }

    /// Asks the driver for a notification when it makes the next chain available. Returns whether
    /// one is available already, in which case no notification may come.
    ///
    /// # Errors
    ///
    /// Like [`Self::push`].
    pub fn ask_notification(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Outside> {
        if self.options.event_index {
            let place = self.layout.used + 4 + 8 * u64::from(self.size());
            memory.write(place, &self.next_available.to_le_bytes())?;
            // The wish must be written before the index is read: see `wants_interrupt`.
            memory.fence();
        }
        Ok(read_u16(memory, self.layout.available + 2)? != self.next_available)
    }
}

/// A copy of a descriptor (section 2.7.5).
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn read(memory: &mut impl GuestMemory, table: u64, number: u16) -> Result<Self, Outside> {
        let mut bytes = Aligned([0; DESCRIPTOR as usize]);
        memory.read(table.wrapping_add(DESCRIPTOR * u64::from(number)), &mut bytes.0)?;
        let (address, rest) = split(&bytes.0);
        let (len, rest) = split(rest);
        let (flags, rest) = split(rest);
        let (next, _) = split(rest);
        Ok(Self {
            address: u64::from_le_bytes(address),
            len: u32::from_le_bytes(len),
            flags: u16::from_le_bytes(flags),
            next: u16::from_le_bytes(next),
        })
    }
}

/// Splits bytes after the first `N`; returns zeros and nothing if there are fewer than `N`.
#[inline]
fn split<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    bytes.split_first_chunk().map_or(([0; N], &[]), |(first, rest)| (*first, rest))
}
