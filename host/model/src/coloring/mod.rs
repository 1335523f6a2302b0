//! Who may use which part of the last-level cache and of DRAM: from the keys `colors` and `banks` to everybody's cells.

mod assign;
mod auto;
mod groups;
mod keys;
mod numbers;
mod owner;
mod platform;
mod refuse;
mod report;
mod suggestions;
mod tlb;
mod wider;

use owner::Part;
use std::{collections::BTreeSet, ops::Range};
use weir_paging::cells::{CellSet, Cells, Geometry};

pub(crate) use assign::{BROKER_TITLE, Demand, assign};
pub(crate) use keys::{
    BANKS_KEY, CACHE_KEY, COLORS_KEY, DRAM_KEY, DRAM_MAP_KEY, GROUP_KEY, MORE_KEY, PLANNED_KEY,
    Requests, TLB_COLORS_KEY, TLB_KEY, read,
};
pub use platform::{Cache, DramMap, Group};
pub(crate) use platform::{FOLLOWS, Places, platform};
pub use report::{Share, shares};
pub use tlb::{Tlb, TlbColors};

/// Whose cells are whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The board's address functions.
    pub geometry: Geometry,
    /// The cells that follow from them.
    pub cells: Cells,
    /// The name of the DRAM map, if the platform names any.
    pub dram: Option<String>,
    /// Whether memory is divided at all: if anybody has `colors` or `banks`, everybody has cells, and everything is
    /// mapped page by page. If not, everybody's set is all cells.
    pub divided: bool,
    /// The cells of the hypervisor.
    pub hypervisor: CellSet,
    /// The cells of each VM.
    pub vms: Vec<CellSet>,
    /// The colors, and the banks, that nobody asked for: they are of all together who did not ask.
    pub(crate) common: [BTreeSet<u16>; 2],
    /// The TLB sets of each VM that asked for some.
    pub tlb: Vec<Option<TlbColors>>,
    /// Where the file speaks of the hypervisor's.
    pub(crate) hypervisor_span: Range<usize>,
}

impl Division {
    /// The colors and banks of some cells, as a person reads them.
    pub(crate) fn describe(&self, set: &CellSet) -> String {
        let part = |part: Part| part.with(&part.of_set(&self.cells, set));
        format!("{} and {}", part(Part::Colors), part(Part::Banks))
    }

    /// Everybody has all cells.
    pub(crate) fn none(geometry: Geometry, dram: Option<String>, vms: usize) -> Self {
        let cells = Cells::new(&geometry).unwrap_or(Cells::ONE);
        let all = cells.all();
        Self {
            geometry,
            cells,
            dram,
            divided: false,
            hypervisor: all,
            vms: vec![all; vms],
            common: [BTreeSet::new(), BTreeSet::new()],
            tlb: vec![None; vms],
            hypervisor_span: 0..0,
        }
    }
}
