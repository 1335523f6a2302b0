//! The stage 2 tables and the DMA tables of VMs, built from the packed system.

use crate::{
    board::GICV,
    vm::{pci, stolen_time_page},
};
use weir_abi::{PackedSystem, VmView};
use weir_paging::{
    PAGE,
    classes::Pages,
    table::{Builder, Table},
};

/// Builds the stage 2 of a VM, and its DMA tables if it has a domain, in `tables`, which are
/// adjacent from physical address `base` on. Returns the number of tables that are used, and the
/// address of the root table.
pub fn build(
    system: &PackedSystem,
    view: &VmView,
    tables: &mut [Table],
    base: u64,
) -> Option<(usize, u64)> {
    build_in(system, view, tables, |skip| (base + skip as u64 * PAGE, None))
}

/// Builds the tables as [`build`] does, but at any place. `place` takes the index of a table and
/// returns its physical address; if the tables are not adjacent, it also returns the pages of this
/// table and those behind it.
pub(super) fn build_in<'a>(
    system: &PackedSystem,
    view: &VmView,
    tables: &mut [Table],
    place: impl Fn(usize) -> (u64, Option<Pages<'a>>),
) -> Option<(usize, u64)> {
    let (root, pages) = place(0);
    let used = fill(tables, root, pages.as_ref(), |builder| map(builder, system, view))?;
    if !pci::has_domain(view.index) {
        return Some((used, root));
    }
    let (domain, pages) = place(used);
    let more = fill(tables.get_mut(used..)?, domain, pages.as_ref(), |builder| {
        pci::map_domain(builder, system, view).ok()
    })?;
    pci::set_domain(view.index, domain);
    Some((used + more, root))
}

/// Builds one address space. Returns the number of tables that are used.
fn fill(
    tables: &mut [Table],
    root: u64,
    pages: Option<&Pages<'_>>,
    map: impl FnOnce(&mut Builder<'_>) -> Option<()>,
) -> Option<usize> {
    let mut builder = match pages {
        None => Builder::new(tables, root).ok()?,
        Some(pages) => {
            let count = tables.len().min(pages.total() as usize);
            Builder::in_pages(&mut tables[..count], pages).ok()?
        }
    };
    map(&mut builder)?;
    Some(builder.used())
}

/// Maps the regions of a VM and the BARs of its PCI functions.
fn map(builder: &mut Builder<'_>, system: &PackedSystem, view: &VmView) -> Option<()> {
    let gicv = (GICV != 0).then_some(GICV);
    system.map_stage2(builder, view, gicv, stolen_time_page(view.index)).ok()?;
    pci::map_bars(builder, view.index).ok()
}
