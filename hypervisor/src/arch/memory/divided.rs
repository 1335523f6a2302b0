//! The parts of EL2's address space that exist only if memory is divided into page classes.

use super::{
    ALL_WINDOWS, Attributes, EXCHANGE, FIRST_WINDOW_TABLE, HYP_BASE, IMAGE_OFFSET, PACKED, PAGE,
    STACK_GUARD, STACK_SIZE, STAGE1, STAGE1_TABLES, Stage1, Tables, Window, cache_line, clean,
    copy_bytes, furnish, image, in_image, sync_instructions,
};
use crate::arch::machine::move_in;
use core::{convert::Infallible, sync::atomic::Ordering};
use weir_abi::PackedSystem;
use weir_paging::{
    classes::Pages,
    table::{Builder, MapError, Table, stage1},
};

/// Returns the size of the hypervisor in memory in bytes, with its stacks.
fn image_len() -> u64 {
    image::end() - HYP_BASE
}

/// Returns the size of the hypervisor in bytes, without its stacks.
fn program_len() -> u64 {
    image::data_end() - HYP_BASE
}

/// Returns the attributes with which the page of the image at `va` is mapped; none for the guard of
/// a stack.
pub(super) fn image_attributes(va: u64) -> Option<Attributes> {
    if va < image::text_end() {
        Some(stage1::CODE)
    } else if va < image::rodata_end() {
        Some(stage1::READ)
    } else {
        let in_stacks = va.checked_sub(HYP_BASE + program_len());
        let guard = in_stacks.is_some_and(|at| at % (STACK_SIZE + STACK_GUARD) < STACK_GUARD);
        (!guard).then_some(stage1::READ_WRITE)
    }
}

impl Stage1 {
    /// Moves the image, and the packed system behind it, to the pages that `weir build` chose from
    /// the hypervisor's page classes, and moves EL2's state of each VM to pages of that VM
    /// (`kept_page` returns the page for an address of the image). Continues at `boot::boot_moved`,
    /// with tables that map only the new places.
    ///
    /// # Safety
    ///
    /// Called on the boot core, before it starts another core, with the system that
    /// [`Stage1::read_only`] mapped in slot 0.
    ///
    /// # Errors
    ///
    /// Returns [`MapError`] if the pages or the tables do not suffice. Then nothing has moved.
    pub unsafe fn move_in(
        system: &PackedSystem<'static>,
        kept_page: impl Fn(&PackedSystem<'static>, u64) -> Option<u64>,
    ) -> Result<Infallible, MapError> {
        let image_pages = (image_len() / PAGE) as usize;
        let packed_len = u64::from(system.header.tables_len).next_multiple_of(PAGE);
        let pages = system.hypervisor_pages();
        let home = |page: usize| -> Option<u64> {
            kept_page(system, HYP_BASE + page as u64 * PAGE).or_else(|| pages.nth_page(page as u64))
        };
        let homes = || (0..image_pages + (packed_len / PAGE) as usize).map_while(home);
        if homes().count() as u64 * PAGE != image_len() + packed_len {
            return Err(MapError::OutOfRange);
        }
        let tables_at = STAGE1.0.get() as u64 - HYP_BASE;
        let first = pages.nth_page(tables_at / PAGE).ok_or(MapError::OutOfRange)?;
        let table_pages = Pages::from_page(
            system.classes(),
            system.hypervisor_classes(),
            first,
            STAGE1_TABLES as u64 * PAGE,
        );
        // SAFETY: no other core runs, and the cores take their pairs of windows later.
        let mut window = unsafe { Window::all() };
        window.lend(&mut homes(), stage1::READ_WRITE, |copy, _| {
            let root = first;
            // SAFETY: the window maps the pages of the image's copy in order, so the tables' pages
            // are in it, aligned; nothing else uses them.
            let tables = unsafe { &mut *((copy + tables_at) as *mut [Table; STAGE1_TABLES]) };
            let mut builder = Builder::in_pages(tables, &table_pages)?;
            for page in 0..image_pages {
                let va = HYP_BASE + page as u64 * PAGE;
                if let Some((attributes, home)) = image_attributes(va).zip(home(page)) {
                    builder.map(va, home, PAGE, attributes)?;
                }
            }
            let trampoline = home(0).ok_or(MapError::OutOfRange)?;
            builder.map(trampoline, trampoline, PAGE, stage1::CODE)?;
            for page in 0..(packed_len / PAGE) as usize {
                let home = home(image_pages + page).ok_or(MapError::OutOfRange)?;
                builder.map(PACKED + page as u64 * PAGE, home, PAGE, stage1::READ)?;
            }
            for (number, page) in system.exchange_pages().into_iter().flatten().enumerate() {
                builder.map(EXCHANGE + number as u64 * PAGE, page, PAGE, stage1::READ_WRITE)?;
            }
            FIRST_WINDOW_TABLE.store(furnish(&mut builder)?, Ordering::Relaxed);
            let old = in_image(HYP_BASE);
            IMAGE_OFFSET.store(trampoline.wrapping_sub(HYP_BASE), Ordering::Relaxed);
            // SAFETY: the window maps the pages of the copy, writable, and none of them is a page
            // of the image itself (`PackedSystem::parse` rejects placements on the image). From
            // here on the image does not change. The new tables were written above and are not
            // overwritten, nor is .noinit, which `bring_up` initializes. `move_in` needs of the
            // copy only what is written here.
            unsafe {
                let behind = tables_at + size_of::<Tables<STAGE1_TABLES>>() as u64;
                for (from, to) in [(0, tables_at), (behind, image::bss_end() - HYP_BASE)] {
                    copy_bytes(HYP_BASE + from, copy + from, to - from);
                }
                copy_bytes(PACKED, copy + image_len(), packed_len);
                let place = copy + image::stage1_root() - HYP_BASE;
                (place as *mut u64).write(root);
                clean(copy, image_len() + packed_len, cache_line());
                sync_instructions();
                move_in(old, trampoline)
            }
        })
    }
}

impl Window {
    /// Returns all windows as one.
    ///
    /// # Safety
    ///
    /// Called on the boot core, after [`Stage1::begin`], before it starts another core; no other
    /// window is in use.
    #[must_use]
    pub unsafe fn all() -> Self {
        // SAFETY: by the contract.
        unsafe { Self::from(0, ALL_WINDOWS) }
    }
}
