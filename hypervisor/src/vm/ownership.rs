//! The self-check: before the first guest instruction EL2 reads back every table that it made. All
//! RAM that a table maps must be in the page classes of the table's owner or, if memory is not
//! divided, in a range of the owner.

use super::{pci, stolen_time_page};
use crate::{arch::memory, board::RAM};
use core::ops::{AddAssign, Range};
use weir_abi::{EXCHANGE_LEN, PackedSystem, VmView};
use weir_paging::{PAGE, table::Table, walk::runs};
use weir_units::Pa;

/// The pages found in tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Number of pages of RAM that the tables map.
    pub pages: u64,
    /// Number of these pages that belong to another owner, or lie in page classes of another owner.
    /// An invalid descriptor counts as one page.
    pub strays: u64,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.strays += other.strays;
    }
}

/// Reads back the stage 1 tables of a system that is not divided.
///
/// # Safety
///
/// Called on the boot core, before it starts another core; no window is in use.
pub unsafe fn of_image(system: &PackedSystem<'_>) -> Found {
    // SAFETY: the contract of this function.
    let (tables, _) = unsafe { memory::stage1_tables() };
    let header = system.header;
    let base = memory::stage1_base();
    let image = header.load_address..header.load_address + header.image_len.next_multiple_of(PAGE);
    let exchange = system.exchange().map(|pa| pa..pa + EXCHANGE_LEN);
    let table = |pa: u64| tables.get((pa.checked_sub(base)? / PAGE) as usize);
    let strays = |range: &Range<u64>| {
        let may = [Some(&image), exchange.as_ref()].into_iter().flatten();
        strays_outside(range, &may.cloned())
    };
    read(system, base, &table, strays)
}

/// Tables that are adjacent in memory.
pub struct Made<'a> {
    /// The tables.
    pub tables: &'a [Table],
    /// Physical address of the first table.
    pub base: Pa,
}

/// Reads back the tables of a VM of a system that is not divided: its stage 2 from `root` on, and
/// its DMA tables, in `tables`.
pub fn of_undivided(
    system: &PackedSystem<'_>,
    view: &VmView<'_>,
    tables: &Made<'_>,
    root: u64,
) -> Found {
    let table = |pa: u64| tables.tables.get((pa.checked_sub(tables.base.0)? / PAGE) as usize);
    // The broker may also map the RAM of VMs in flows.
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

/// Returns the number of pages of `range` that lie in none of the ranges that `may` be mapped. One
/// run of a table can span several of these ranges.
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

pub(super) fn read<'t>(
    system: &PackedSystem<'_>,
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    strays: impl Fn(&Range<u64>) -> u64,
) -> Found {
    let mut found = Found::default();
    let walked = runs(root, table, &mut |leaf| {
        let end = leaf.output.saturating_add(leaf.len);
        // An output that is not RAM is a device, and devices have no page classes.
        let memory_end = system.header.memory_end;
        if RAM.iter().any(|&(base, top)| end > base && leaf.output < top.min(memory_end)) {
            found += Found { pages: leaf.len / PAGE, strays: strays(&(leaf.output..end)) };
        }
    });
    found.strays += u64::from(walked.is_err());
    found
}
