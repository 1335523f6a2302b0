//! The load of a VM's image: at each start, restores the image in the VM's memory and zeroes the
//! rest.

use crate::{
    arch::memory::{self, Bytes, Window},
    board::LOAD_ADDRESS,
};
use core::iter::once;
use weir_abi::{PackedSegment, PackedSystem, RAM, Region, VmView};
use weir_budget::Counts;
use weir_paging::PAGE;
use weir_units::CoreId;

/// Returns the addresses of the pages of the image as the loader put it, from the page that
/// contains `pa` on.
pub(super) fn loaded(pa: u64) -> impl Iterator<Item = u64> {
    (pa / PAGE..).map(|page| page * PAGE)
}

fn region_of<'a>(view: &VmView<'a>, segment: &PackedSegment) -> Option<&'a Region> {
    view.regions.iter().find(|region| segment.ipa.wrapping_sub(region.ipa) < region.len)
}

/// Bytes of a cache line, as memory budgets count them.
const CACHE_LINE: u64 = 64;

/// Progress of the load of a VM's image. The load is done in steps, and each step in chunks of some
/// 500 instructions. Between two chunks the core takes interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Number of regions and segments that are done; the regions come first.
    entries: usize,
    /// Bytes of the next region or segment that are done.
    bytes: u64,
    /// If memory is divided, the pages of the next byte in the target and in the source, once they
    /// are known; a search for them costs as much as a chunk.
    pages: [Option<u64>; 2],
}

/// The largest number of bytes that a step of a load zeroes or copies, which is also what it maps.
#[derive(Clone, Copy, Debug)]
pub struct LoadStep {
    zero: u64,
    copy: u64,
}

impl LoadStep {
    /// Returns the largest number of memory accesses of a step. A cache line that is zeroed is read
    /// and written back; a copy also reads the source line. Neither need begin at a line boundary.
    #[must_use]
    pub const fn accesses(self) -> Counts {
        let (zeroed, copied) = (self.zero / CACHE_LINE + 1, self.copy / CACHE_LINE + 1);
        let reads = if zeroed > 2 * copied { zeroed } else { 2 * copied };
        Counts { reads, writes: if zeroed > copied { zeroed } else { copied } }
    }
}

impl Load {
    /// Size of the steps for a VM without a memory budget.
    pub const FREE: LoadStep = LoadStep { zero: 0x1_0000, copy: 0x8000 };
    /// Size of the steps that are charged to a memory budget: the budget can be exceeded by one
    /// step.
    pub const CHARGED: LoadStep = LoadStep { zero: 0x2000, copy: 0x1000 };

    /// Returns whether the next step clears RAM; otherwise it copies.
    #[must_use]
    pub fn clears(&self, view: &VmView) -> bool {
        self.entries < view.regions.len()
    }

    /// Does the next step, or as many chunks of it as `pause` allows; `pause` returns after each
    /// chunk whether something else is due. Returns whether the load is complete. Called on core
    /// `core`. If memory is divided, pages are mapped one by one.
    #[inline(never)]
    pub fn step(
        &mut self,
        system: &PackedSystem,
        view: &VmView,
        core: CoreId,
        pieces: LoadStep,
        pause: &mut dyn FnMut() -> bool,
    ) -> bool {
        // SAFETY: this is core `core`, and the pair of windows is used only in this function, which
        // is not recursive.
        let [mut to, mut from] = unsafe { Window::take(core) };
        let Self { entries, bytes: done, .. } = *self;
        let (len, piece) = if let Some(region) = view.regions.get(entries) {
            let len = if region.kind == RAM { region.len } else { 0 };
            let most = pieces.zero.min(len.saturating_sub(done));
            (len, self.clear(system, view, (region, most), &mut to, pause))
        } else if let Some(segment) = view.segments.get(entries - view.regions.len()) {
            let len = (segment.len - done).min(pieces.copy);
            let piece = region_of(view, segment).filter(|_| len > 0).and_then(|region| {
                let slice = SegmentSlice { region, segment, done, len };
                self.restore(system, view, &slice, [&mut to, &mut from], pause)
            });
            (segment.len, piece)
        } else {
            memory::sync_instructions();
            return true;
        };
        match piece {
            Some(piece) if done + piece < len => self.bytes = done + piece,
            _ => *self = Self { entries: entries + 1, ..Self::default() },
        }
        false
    }

    /// Zeroes the next `most` bytes of a region, or fewer, see [`Self::step`]. Returns the number
    /// of bytes.
    fn clear(
        &mut self,
        system: &PackedSystem,
        view: &VmView,
        (region, most): (&Region, u64),
        window: &mut Window,
        pause: &mut dyn FnMut() -> bool,
    ) -> Option<u64> {
        if most == 0 {
            return None;
        }
        let first = region.pa + self.bytes;
        if !system.is_divided() {
            let mut pages = (0..most.div_ceil(PAGE)).map(|page| first + page * PAGE);
            return Some(window.zero(&mut pages, system.is_observed(), pause));
        }
        let mut done = 0;
        loop {
            let page = self.pages[0].unwrap_or(first);
            done += window.zero(&mut once(page), system.is_observed(), pause);
            self.pages[0] = Some(system.page_after(view, page)?);
            if done >= most || pause() {
                return Some(done);
            }
        }
    }

    /// Copies a slice of a segment from the pristine image into its region, until `pause` returns
    /// that something else is due. Returns the number of bytes.
    fn restore(
        &mut self,
        system: &PackedSystem,
        view: &VmView,
        slice: &SegmentSlice<'_>,
        [to, from]: [&mut Window; 2],
        pause: &mut dyn FnMut() -> bool,
    ) -> Option<u64> {
        let SegmentSlice { region, segment, done, len } = *slice;
        let target = segment.ipa - region.ipa + done;
        if !system.is_divided() {
            let first = (region.pa + target) / PAGE * PAGE;
            let held = region.len.saturating_sub(target / PAGE * PAGE).div_ceil(PAGE);
            let pages = &mut (0..held).map(|page| first + page * PAGE);
            let source = LOAD_ADDRESS + segment.offset + done;
            let loaded = Bytes { pages: &mut loaded(source), first: source % PAGE };
            return Some(to.copy(Bytes { pages, first: target % PAGE }, from, loaded, len, pause));
        }
        let kept = segment.kept + done;
        let places = [(region.pa, target), (view.vm.pristine.pa, kept)];
        for (page, (start, at)) in self.pages.iter_mut().zip(places) {
            if page.is_none() {
                *page = Some(system.nth_page(view, start, at / PAGE)?);
                if pause() {
                    return Some(0);
                }
            }
        }
        let [Some(target_page), Some(source_page)] = self.pages else { return None };
        let (first, from_first) = (target % PAGE, kept % PAGE);
        let len = len.min(PAGE - first).min(PAGE - from_first);
        let target = Bytes { pages: &mut once(target_page), first };
        let source = Bytes { pages: &mut once(source_page), first: from_first };
        let copied = to.copy(target, from, source, len, pause);
        for (page, first) in self.pages.iter_mut().zip([first, from_first]) {
            if first + copied == PAGE {
                *page = page.and_then(|page| system.page_after(view, page));
            }
        }
        Some(copied)
    }
}

/// A slice of a segment, and the region that it belongs to.
struct SegmentSlice<'a> {
    region: &'a Region,
    segment: &'a PackedSegment,
    /// Offset of the slice in the segment.
    done: u64,
    len: u64,
}
