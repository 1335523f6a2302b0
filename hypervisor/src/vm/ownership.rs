//! The self-check: before the first guest instruction EL2 reads back every table that it made. All
//! RAM that a table maps must be in the page classes of the table's owner, or, where memory is not
//! divided, in a range of the owner's.

use super::{KEPT, pci, stolen_time_page};
use crate::{
    arch::memory::{self, Window},
    board::RAM,
};
use core::ops::{AddAssign, Range};
use weir_abi::{PARTITION_LEN, PackedSystem, VmView};
use weir_paging::{
    table::{PAGE, Table, stage1},
    walk::runs,
};
use weir_units::Pa;

/// The pages found in tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Pages of RAM that they map.
    pub pages: u64,
    /// Pages among them that are another owner's, or in page classes of another owner. A descriptor
    /// that makes no sense counts as one.
    pub strays: u64,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.strays += other.strays;
    }
}

/// Reads back the tables of a divided system: of stage 1, of every VM's stage 2 and of its DMA.
///
/// # Safety
///
/// Called on the boot core, before it starts another; nobody uses a window.
pub unsafe fn of_divided(system: &PackedSystem<'_>) -> Found {
    // SAFETY: as this function's contract.
    let mut found = unsafe { of_hypervisor(system) };
    for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
        // SAFETY: as this function's contract.
        found += unsafe { of_vm(system, &view) };
    }
    found
}

/// Reads back the tables of stage 1 of a system that is not divided.
///
/// # Safety
///
/// Called on the boot core, before it starts another; nobody uses a window.
pub unsafe fn of_image(system: &PackedSystem<'_>) -> Found {
    // SAFETY: as this function's contract.
    let (tables, _) = unsafe { memory::stage1_tables() };
    let header = system.header;
    let base = memory::stage1_base();
    let image = header.load_address..header.load_address + header.image_len.next_multiple_of(PAGE);
    let partition = system.partition().map(|pa| pa..pa + PARTITION_LEN);
    let table = |pa: u64| tables.get((pa.checked_sub(base)? / PAGE) as usize);
    let strays = |range: &Range<u64>| {
        let may = [Some(&image), partition.as_ref()].into_iter().flatten();
        strays_outside(range, &may.cloned())
    };
    read(system, base, &table, strays)
}

/// Tables that lie one behind the other.
pub struct Made<'a> {
    /// Their entries.
    pub tables: &'a [Table],
    /// Where the first one lies.
    pub base: Pa,
}

/// Reads back what was made for a VM of a system that is not divided: its stage 2 from `root` on,
/// and its DMA's, in `tables`.
pub fn of_undivided(
    system: &PackedSystem<'_>,
    view: &VmView<'_>,
    tables: &Made<'_>,
    root: u64,
) -> Found {
    let table = |pa: u64| tables.tables.get((pa.checked_sub(tables.base.0)? / PAGE) as usize);
    // The broker sees the VMs in flows, too.
    let broker = view.index == system.header.broker as usize;
    let sees = |vm: &VmView<'_>| {
        vm.index == view.index || broker && system.window_attributes(vm).is_some()
    };
    let stolen_time = stolen_time_page(view.index);
    let stolen_time = stolen_time..stolen_time + PAGE;
    let strays = |range: &Range<u64>| {
        let vms = (0..system.vms()).filter_map(|index| system.vm(index)).filter(|vm| sees(vm));
        let regions = vms.flat_map(|vm| vm.regions).map(|region| region.pa..region.pa + region.len);
        strays_outside(range, &regions.chain(Some(stolen_time.clone())))
    };
    let mut found = Found::default();
    for root in [root].into_iter().chain(pci::domain(view.index)) {
        found += read(system, root, &table, strays);
    }
    found
}

/// The pages of `range` that lie in none of the ranges that `may` be mapped. One piece of a table
/// can reach over several of these.
fn strays_outside(range: &Range<u64>, may: &(impl Iterator<Item = Range<u64>> + Clone)) -> u64 {
    let (mut at, mut strays) = (range.start, 0);
    while at < range.end {
        if let Some(may) = may.clone().find(|may| may.contains(&at)) {
            at = may.end;
        } else {
            at += PAGE;
            strays += 1;
        }
    }
    strays
}

/// The pages of `range` that may not be mapped.
fn strays_among(range: &Range<u64>, may: impl Fn(u64) -> bool) -> u64 {
    range.clone().step_by(PAGE as usize).filter(|&page| !may(page)).count() as u64
}

unsafe fn of_hypervisor(system: &PackedSystem<'_>) -> Found {
    // SAFETY: by the contract of `of_divided`.
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
    let shared =
        |page| system.partition_pages().is_some_and(|pages| pages.index_of(page).is_some());
    let may = |page| set.contains(system.classes().class_of(page)) || kept(page) || shared(page);
    pages.nth_page(first).map_or(Found { pages: 0, strays: 1 }, |root| {
        read(system, root, &table, |range| strays_among(range, may))
    })
}

unsafe fn of_vm(system: &PackedSystem<'_>, view: &VmView<'_>) -> Found {
    let own = system.pages(view, view.vm.own);
    let set = system.classes_of(view);
    // The broker sees the VMs in flows, too.
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
    // SAFETY: by the contract of `of_divided`.
    let mut window = unsafe { Window::all() };
    window.lend(&mut own.clone(), stage1::READ, |va, len| {
        // SAFETY: the window maps whole pages of RAM, which nobody writes now.
        let tables =
            unsafe { core::slice::from_raw_parts(va as *const Table, (len / PAGE) as usize) };
        let table = |pa| tables.get(own.index_of(pa)? as usize);
        for root in own.nth_page(0).into_iter().chain(pci::domain(view.index)) {
            found += read(system, root, &table, |range| strays_among(range, may));
        }
    });
    found
}

fn read<'t>(
    system: &PackedSystem<'_>,
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    strays: impl Fn(&Range<u64>) -> u64,
) -> Found {
    let mut found = Found::default();
    let walked = runs(root, table, &mut |leaf| {
        let end = leaf.output.saturating_add(leaf.len);
        // What is not RAM is a device, of which there are no page classes.
        let memory_end = system.header.memory_end;
        if RAM.iter().any(|&(base, top)| end > base && leaf.output < top.min(memory_end)) {
            found += Found { pages: leaf.len / PAGE, strays: strays(&(leaf.output..end)) };
        }
    });
    found.strays += u64::from(walked.is_err());
    found
}
