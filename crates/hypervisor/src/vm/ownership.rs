//! The self-check of a divided system: before the first guest instruction every table that EL2 made is read back, and whatever
//! it maps of RAM must be in its owner's cells.

use super::{KEPT, pci};
use crate::{
    arch::memory::{self, Window},
    platform::RAM_BASE,
};
use weir_config::packed::{System, VmView};
use weir_layout::{
    table::{PAGE, Table, stage1},
    walk::leaves,
};

/// What was found in tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Pages of RAM that they map.
    pub pages: u64,
    /// How many of these are in cells of somebody else; descriptors that make no sense count as one.
    pub strays: u64,
}

/// Reads back the tables of stage 1, of every VM's stage 2 and of its DMA.
///
/// # Safety
///
/// Called on the boot core, before it starts another; nobody uses a window.
pub unsafe fn check(system: &System<'_>) -> Found {
    // SAFETY: as this function's contract.
    let mut found = unsafe { of_hypervisor(system) };
    for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
        // SAFETY: as this function's contract.
        let its = unsafe { of_vm(system, &view) };
        found.pages += its.pages;
        found.strays += its.strays;
    }
    found
}

unsafe fn of_hypervisor(system: &System<'_>) -> Found {
    // SAFETY: by the contract of `check`.
    let (tables, first) = unsafe { memory::stage1_tables() };
    let pages = system.hypervisor_pages();
    let table = |pa| tables.get(pages.index_of(pa)?.checked_sub(first)? as usize);
    let set = system.hypervisor_cells();
    let kept = |page| {
        let mut vms = (0..system.vms()).filter_map(|index| system.vm(index));
        vms.any(|view| {
            let own = system.pages(&view, view.vm.own);
            own.index_of(page).is_some_and(|index| index >= own.total() - KEPT / PAGE)
        })
    };
    let shared =
        |page| system.partition_pages().is_some_and(|pages| pages.index_of(page).is_some());
    let may = |page| set.contains(system.cells().cell_of(page)) || kept(page) || shared(page);
    pages
        .nth_page(first)
        .map_or(Found { pages: 0, strays: 1 }, |root| read(system, root, &table, may))
}

unsafe fn of_vm(system: &System<'_>, view: &VmView<'_>) -> Found {
    let own = system.pages(view, view.vm.own);
    let set = system.cells_of(view);
    // The broker sees the VMs in flows, too.
    let seen = |page| {
        let mut vms = (0..system.vms()).filter_map(|index| system.vm(index));
        view.index == system.header.broker as usize
            && vms.any(|vm| {
                let cells = system.cells_of(&vm);
                system.window_attributes(&vm).is_some()
                    && cells.contains(system.cells().cell_of(page))
            })
    };
    let may = |page| set.contains(system.cells().cell_of(page)) || seen(page);
    let mut found = Found::default();
    // SAFETY: by the contract of `check`.
    let mut window = unsafe { Window::all() };
    window.lend(&mut own.clone(), stage1::READ, |va, len| {
        // SAFETY: the window maps whole pages of RAM, which nobody writes now.
        let tables =
            unsafe { core::slice::from_raw_parts(va as *const Table, (len / PAGE) as usize) };
        let table = |pa| tables.get(own.index_of(pa)? as usize);
        for root in own.nth_page(0).into_iter().chain(pci::domain(view.index)) {
            let its = read(system, root, &table, may);
            found.pages += its.pages;
            found.strays += its.strays;
        }
    });
    found
}

fn read<'t>(
    system: &System<'_>,
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    may: impl Fn(u64) -> bool,
) -> Found {
    let mut found = Found::default();
    let walked = leaves(root, table, &mut |leaf| {
        let end = leaf.output.saturating_add(leaf.len);
        // What is not RAM is a device, of which there are no cells.
        if end > RAM_BASE && leaf.output < system.header.memory_end {
            for page in (leaf.output..end).step_by(PAGE as usize) {
                found.pages += 1;
                found.strays += u64::from(!may(page));
            }
        }
    });
    found.strays += u64::from(walked.is_err());
    found
}
