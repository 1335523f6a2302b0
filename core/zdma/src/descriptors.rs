//! A transfer as the engine reads it: two lists of descriptors (UG1085, "Buffer Descriptor
//! Format"), written in place as the extents of each side are found.

use crate::{ADDRESS_BITS, Extent, LONGEST, MAX_EXTENTS, RefusedTransfer, TooManyExtents};
use weir_units::Pa;

/// Words of a linked descriptor: address (2), size, control, address of the next (2), and two that
/// are not used. A descriptor must be aligned to its size (UG1085, "Buffer Descriptor Summary").
pub(crate) const WORDS: usize = 8;

/// Bytes of a descriptor, and of all descriptors of a side.
const SIZE: u64 = size_of::<[u32; WORDS]>() as u64;
const SIDE: u64 = SIZE * MAX_EXTENTS as u64;

/// Bytes of the smallest page that a translation can be of.
const PAGE: u32 = 4096;

// Control flags, in word 3.

/// Accesses to the data are coherent.
const COHERENT: u32 = 1;
/// The descriptor has 256 bits and a link.
const LINKED: u32 = 1 << 1;
/// CMD: the channel stops after this descriptor. Only the source's list has this field: the
/// vendor's drivers differ on whether the destination's list has it too, and the manual reserves it
/// there.
const STOP: u32 = 2 << 3;

/// A side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bytes that are read.
    Source,
    /// The bytes that are written.
    Destination,
}

/// The list of one side: the first `count` descriptors of its half of the table.
#[derive(Clone, Copy, Debug)]
struct List {
    count: usize,
    /// Bytes of all extents.
    len: u32,
    /// The address behind the last extent.
    end: u64,
}

impl List {
    const EMPTY: Self = Self { count: 0, len: 0, end: 0 };
}

/// A transfer: the extents of both sides as descriptors, in memory that the engine reads if a side
/// has several extents. First come [`MAX_EXTENTS`] descriptors for the source, then [`MAX_EXTENTS`]
/// for the destination. Words are little-endian, as on the cores.
///
/// The extents of a side are in order; none is empty, and none starts where the one before it ends.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Descriptors {
    words: [[[u32; WORDS]; MAX_EXTENTS]; 2],
    lists: [List; 2],
    /// The highest address behind an extent.
    top: u64,
    /// Address at which the engine sees the table.
    at: Pa,
    /// Whether the table is aligned there and within the engine's reach.
    is_placed: bool,
    /// The flags of each descriptor's control word.
    control: u32,
}

impl Descriptors {
    /// Returns descriptors without extents, of which the engine sees the first one at `at`.
    /// `is_coherent` is [`ChannelSettings::is_coherent`](crate::ChannelSettings::is_coherent) of
    /// the channel.
    #[must_use]
    pub const fn new(at: Pa, is_coherent: bool) -> Self {
        let control = if is_coherent { COHERENT } else { 0 };
        let (words, lists) = ([[[0; WORDS]; MAX_EXTENTS]; 2], [List::EMPTY; 2]);
        let mut table = Self { words, lists, top: 0, at, is_placed: false, control };
        table.set_address(at);
        table
    }

    /// Sets where the engine sees the first descriptor, before any extent is added.
    pub const fn set_address(&mut self, at: Pa) {
        let is_aligned = at.0.is_multiple_of(align_of::<Self>() as u64);
        self.at = at;
        self.is_placed = is_aligned && is_reachable(at, 2 * SIDE);
    }

    /// Forgets the extents of both sides.
    pub const fn clear(&mut self) {
        (self.lists, self.top) = ([List::EMPTY; 2], 0);
    }

    /// Returns the words in the order of memory.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        self.words.as_flattened().as_flattened()
    }

    /// Returns the descriptors of both sides that the engine reads.
    #[must_use]
    pub fn used(&self) -> [&[[u32; WORDS]]; 2] {
        let used = |place: usize| self.words[place].get(..self.lists[place].count).unwrap_or(&[]);
        [used(0), used(1)]
    }

    /// Returns the number of bytes of a side, at most `u32::MAX`.
    #[must_use]
    pub const fn len(&self, side: Side) -> u32 {
        self.lists[side as usize].len
    }

    /// Adds `extent` after the others of a side. An extent that starts where the last one ends is
    /// merged with it. An extent without bytes changes nothing.
    ///
    /// # Errors
    ///
    /// [`TooManyExtents`] if there are [`MAX_EXTENTS`] extents already, and this one can't be
    /// merged. The side is as before.
    #[inline]
    pub fn push(&mut self, side: Side, extent: Extent) -> Result<(), TooManyExtents> {
        let Extent { address, len } = extent;
        if len == 0 {
            return Ok(());
        }
        let (table, list) = (&mut self.words[side as usize], &mut self.lists[side as usize]);
        // Without a descriptor before it, `before` is not an index of the table.
        let before = list.count.wrapping_sub(1);
        // If the sum does not fit into a descriptor's size, another descriptor begins.
        if list.end == address.0
            && let Some([_, _, size, ..]) = table.get_mut(before)
            && let Some(sum) = size.checked_add(len)
        {
            *size = sum;
        } else {
            let [low, high] = halves(address.0);
            let place = table.get_mut(list.count).ok_or(TooManyExtents)?;
            *place = [low, high, len, self.control | LINKED, 0, 0, 0, 0];
            if let Some([.., low, high, _, _]) = table.get_mut(before) {
                // A link always leads to the next place of the table, so that the list ends.
                let next = self.at.0.wrapping_add(SIDE * side as u64 + SIZE * list.count as u64);
                [*low, *high] = halves(next);
            }
            list.count += 1;
        }
        // No extent can start at the end of the address space.
        list.end = address.0.saturating_add(len.into());
        self.top = self.top.max(list.end);
        // A length that does not fit into the type is too long for a transfer, too.
        list.len = list.len.saturating_add(len);
        Ok(())
    }

    /// Adds the `len` bytes at `address` of an address space in pages of 4 KiB. `translate` returns
    /// the physical address of the byte at an address; it is called once for each page. Returns
    /// `None` if a page can't be reached, or if there are too many pages.
    #[inline]
    pub fn push_translated(
        &mut self,
        side: Side,
        address: u64,
        len: u32,
        mut translate: impl FnMut(u64) -> Option<Pa>,
    ) -> Option<()> {
        let (mut at, mut left) = (address, len);
        // Bounded: each turn but the first and the last takes a page, and a side has few extents.
        while left > 0 {
            let in_page = PAGE - at as u32 % PAGE;
            let len = in_page.min(left);
            self.push(side, Extent { address: translate(at)?, len }).ok()?;
            at = at.checked_add(len.into())?;
            left -= len;
        }
        Some(())
    }

    /// Checks that the descriptors make a valid transfer.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), RefusedTransfer> {
        let [from, to] = [self.lists[0].len, self.lists[1].len];
        if from == 0 || to == 0 {
            return Err(RefusedTransfer::Empty);
        }
        if from != to {
            return Err(RefusedTransfer::Lengths { from, to });
        }
        if from > LONGEST {
            return Err(RefusedTransfer::TooLong(from));
        }
        if self.top > 1 << ADDRESS_BITS {
            return Err(self.beyond());
        }
        if !self.is_placed {
            return Err(RefusedTransfer::Descriptors(self.at));
        }
        Ok(())
    }

    /// Finds the first extent that ends above the engine's address bits.
    #[cold]
    fn beyond(&self) -> RefusedTransfer {
        let extents = self.used().into_iter().flatten().map(|[low, high, len, ..]| Extent {
            address: Pa(u64::from(*high) << 32 | u64::from(*low)),
            len: *len,
        });
        let mut beyond = extents.filter(|extent| !is_reachable(extent.address, extent.len.into()));
        beyond.next().map_or(RefusedTransfer::Empty, RefusedTransfer::Beyond)
    }

    /// Returns the only descriptor of each side, or `None` if a side has several.
    #[inline]
    pub(crate) fn single(&self) -> Option<[&[u32; WORDS]; 2]> {
        let [[source, ..], [destination, ..]] = &self.words;
        let is_single = self.lists[0].count == 1 && self.lists[1].count == 1;
        is_single.then_some([source, destination])
    }

    /// Returns the flags of each descriptor that is not in a list.
    #[inline]
    pub(crate) const fn control(&self) -> u32 {
        self.control
    }

    /// Ends both lists. Returns the addresses at which the engine sees the first descriptors of the
    /// source and of the destination.
    #[inline]
    pub(crate) fn end(&mut self) -> [Pa; 2] {
        let [source, _] = &mut self.words;
        if let Some(last) = source.get_mut(self.lists[0].count.wrapping_sub(1)) {
            last[3] |= STOP;
        }
        [self.at, Pa(self.at.0 + SIDE)]
    }
}

/// Returns whether the engine has enough address bits for `len` bytes at `address`.
const fn is_reachable(address: Pa, len: u64) -> bool {
    matches!(address.0.checked_add(len), Some(end) if end <= 1 << ADDRESS_BITS)
}

/// Returns the lower and the upper 32 bits.
pub(crate) const fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
