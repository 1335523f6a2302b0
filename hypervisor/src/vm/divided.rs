//! The work of the boot core that is needed only if memory is divided into page classes.

use super::{
    KEPT, VMS,
    load::loaded,
    ownership::{Found, read},
    pci,
    stage2::build_in,
};
use crate::{
    arch::{
        cache,
        memory::{self, Bytes, Stage1, Window},
    },
    board::LOAD_ADDRESS,
    notice::{self, Text},
};
use core::{iter::successors, ops::Range};
use weir_abi::{Features, PackedSystem, PageSpan, VmView};
use weir_paging::{
    PAGE,
    cache::{Difference, Quantity},
    table::{Table, stage1},
};
use weir_units::CoreId;

/// Moves the hypervisor to its page classes if memory is divided, and then continues at
/// `boot::boot_moved`.
///
/// # Safety
///
/// The contract of [`Stage1::move_in`].
pub unsafe fn move_in(system: &PackedSystem<'static>) {
    if system.is_divided() {
        // SAFETY: the contract of this function.
        let Err(_) = unsafe { Stage1::move_in(system, kept_page) };
        notice::refuse(&[b"the memory that weir build chose for the hypervisor does not hold it"]);
    }
}

/// Compares the machine's last-level cache, as its ID registers describe it, with that of the
/// platform file, and prints each difference. Refuses the system if the machine lacks a color bit
/// that separates owners, because their memory would then share cache sets.
pub fn check_cache(system: &PackedSystem) {
    let Some(built_for) = system.cache().filter(|_| Features::PAGE_CLASSES.is_built()) else {
        return;
    };
    let there = cache::last().unwrap_or_default();
    let mut differences = built_for.differences(&there).peekable();
    if differences.peek().is_none() {
        return;
    }
    for Difference { quantity, expected, there } in differences {
        let (has, instead_of, unit, radix, divisor) = match quantity {
            Quantity::Size => ("", " KiB, and ", " KiB", 10, 1024),
            Quantity::Ways => ("", " ways, and ", "", 10, 1),
            Quantity::CacheLine => ("lines of ", " bytes, and of ", " bytes", 10, 1),
            Quantity::Colors => ("colors by address bits 0x", ", and by 0x", "", 16, 1),
        };
        notice::say(&[
            b"this machine's last-level cache has ",
            has.as_bytes(),
            Text::number(there / divisor, radix).as_bytes(),
            instead_of.as_bytes(),
            Text::number(expected / divisor, radix).as_bytes(),
            unit.as_bytes(),
            b" in the platform file",
        ]);
    }
    let missing = system.promised_colors() & !there.colors();
    if missing != 0 {
        notice::refuse(&[
            b"this system's colors differ in address bits 0x",
            Text::number(missing, 16).as_bytes(),
            b", which choose no set of this machine's last-level cache: build it with the cache's \
              true size and ways",
        ]);
    }
}

/// Returns the physical page to which the image's page at `va` moves, if the page is part of the
/// state that EL2 keeps for a VM.
fn kept_page(system: &PackedSystem<'static>, va: u64) -> Option<u64> {
    let at = va.checked_sub((&raw const VMS) as u64)?;
    let view = system.vm((at / KEPT) as usize)?;
    let pages = system.pages(&view, view.vm.own);
    pages.nth_page((view.vm.own.len.checked_sub(KEPT)? + at % KEPT) / PAGE)
}

/// Builds the stage 2 tables of a VM in pages of its own page classes, and moves its pristine image
/// there. Returns the address of the root table.
pub fn build(system: &PackedSystem, view: &VmView) -> Option<u64> {
    let own = view.vm.own;
    let len = own.len.checked_sub(KEPT)?;
    let pages = |skip: usize| {
        let skip = skip as u64 * PAGE;
        let pa = system.pages(view, own).nth_page(skip / PAGE).unwrap_or(0);
        system.pages(view, PageSpan { pa, len: len.saturating_sub(skip) })
    };
    // SAFETY: called on the boot core, before it starts another core; `keep` takes its windows
    // later.
    let mut window = unsafe { Window::all() };
    let built = window.lend(&mut pages(0), stage1::READ_WRITE, |va, len| {
        let count = (len / PAGE) as usize;
        // SAFETY: the window maps whole tables in RAM that belongs to the VM and that nothing uses
        // yet; words of any value form a table.
        let tables = unsafe { core::slice::from_raw_parts_mut(va as *mut Table, count) };
        build_in(system, view, tables, |skip| {
            let pages = pages(skip);
            (pages.nth_page(0).unwrap_or(0), Some(pages))
        })
    });
    let (_, root) = built?;
    keep(system, view);
    Some(root)
}

/// Copies the VM's images from the place where the loader put them to the pristine copy, from which
/// each boot restores them.
fn keep(system: &PackedSystem, view: &VmView) {
    // SAFETY: called on the boot core, before it starts another core; the pair is used only here.
    let [mut to, mut from] = unsafe { Window::take(CoreId(0)) };
    for segment in view.segments {
        memory::in_chunks(segment.len, memory::WINDOW / 2, &mut || false, |done, len| {
            let at = segment.kept + done;
            let first = system.nth_page(view, view.vm.pristine.pa, at / PAGE);
            let pages = &mut successors(first, |&page| system.page_after(view, page));
            let source = LOAD_ADDRESS + segment.offset + done;
            let loaded = Bytes { pages: &mut loaded(source), first: source % PAGE };
            let target = Bytes { pages, first: at % PAGE };
            to.copy(target, &mut from, loaded, len, &mut || false);
        });
    }
}

/// Reads back the tables of a divided system: stage 1, and the stage 2 and DMA tables of every VM.
///
/// # Safety
///
/// Called on the boot core, before it starts another core; no window is in use.
pub unsafe fn read_back(system: &PackedSystem<'_>) -> Found {
    // SAFETY: the contract of this function.
    let mut found = unsafe { of_hypervisor(system) };
    for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
        // SAFETY: the contract of this function.
        found += unsafe { of_vm(system, &view) };
    }
    found
}

unsafe fn of_hypervisor(system: &PackedSystem<'_>) -> Found {
    // SAFETY: by the contract of `read_back`.
    let (tables, first) = unsafe { memory::stage1_tables() };
    let pages = system.hypervisor_pages();
    let table = |pa| tables.get(pages.index_of(pa)?.checked_sub(first)? as usize);
    let set = system.hypervisor_classes();
    let kept = |page| {
        let mut vms = (0..system.vms()).filter_map(|index| system.vm(index));
        vms.any(|view| {
            let own = system.pages(&view, view.vm.own);
            own.index_of(page).is_some_and(|index| index >= own.total() - KEPT / PAGE)
        })
    };
    let shared = |page| system.exchange_pages().is_some_and(|pages| pages.index_of(page).is_some());
    let may = |page| set.contains(system.classes().class_of(page)) || kept(page) || shared(page);
    pages.nth_page(first).map_or(Found { pages: 0, strays: 1 }, |root| {
        read(system, root, &table, |range| strays_among(range, may))
    })
}

unsafe fn of_vm(system: &PackedSystem<'_>, view: &VmView<'_>) -> Found {
    let own = system.pages(view, view.vm.own);
    let set = system.classes_of(view);
    // The broker may also map the RAM of VMs in flows.
    let seen = |page| {
        let mut vms = (0..system.vms()).filter_map(|index| system.vm(index));
        view.index == system.header.broker as usize
            && vms.any(|vm| {
                let classes = system.classes_of(&vm);
                system.window_attributes(&vm).is_some()
                    && classes.contains(system.classes().class_of(page))
            })
    };
    let may = |page| set.contains(system.classes().class_of(page)) || seen(page);
    let mut found = Found::default();
    // SAFETY: by the contract of `read_back`.
    let mut window = unsafe { Window::all() };
    window.lend(&mut own.clone(), stage1::READ, |va, len| {
        // SAFETY: the window maps whole pages of RAM, and nothing writes to them now.
        let tables =
            unsafe { core::slice::from_raw_parts(va as *const Table, (len / PAGE) as usize) };
        let table = |pa| tables.get(own.index_of(pa)? as usize);
        for root in own.nth_page(0).into_iter().chain(pci::domain(view.index)) {
            found += read(system, root, &table, |range| strays_among(range, may));
        }
    });
    found
}

/// Returns the number of pages of `range` that must not be mapped.
fn strays_among(range: &Range<u64>, may: impl Fn(u64) -> bool) -> u64 {
    range.clone().step_by(PAGE as usize).filter(|&page| !may(page)).count() as u64
}
