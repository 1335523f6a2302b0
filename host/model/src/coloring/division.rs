//! Which page classes each owner has.

use super::tlb::TlbColors;
use crate::classes::part::Part;
use std::ops::Range;
use weir_paging::classes::{ClassSet, Geometry, PageClasses};

/// The owners of the page classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The board's address functions.
    pub geometry: Geometry,
    /// The page classes that follow from them.
    pub classes: PageClasses,
    /// The name of the DRAM map, if the platform names any.
    pub dram: Option<String>,
    /// Whether memory is divided at all: if any VM has `colors` or `banks`, every VM has page
    /// classes, and all memory is mapped page by page. If not, every set is all page classes.
    pub divided: bool,
    /// The page classes of the hypervisor.
    pub hypervisor: ClassSet,
    /// The page classes of each VM.
    pub vms: Vec<ClassSet>,
    /// The TLB sets of each VM that asked for some.
    pub tlb: Vec<Option<TlbColors>>,
    /// Where the file speaks of the hypervisor's.
    pub(crate) hypervisor_span: Range<usize>,
}

impl Division {
    /// The colors and banks of some page classes, as a person reads them.
    pub(crate) fn describe(&self, set: &ClassSet) -> String {
        let part = |part: Part| part.with(&part.of_set(&self.classes, set));
        format!("{} and {}", part(Part::Colors), part(Part::Banks))
    }

    /// The division in which every owner has all page classes.
    pub(crate) fn none(geometry: Geometry, dram: Option<String>, vms: usize) -> Self {
        let classes = PageClasses::new(&geometry).unwrap_or(PageClasses::ONE);
        let all = classes.all();
        Self {
            geometry,
            classes,
            dram,
            divided: false,
            hypervisor: all,
            vms: vec![all; vms],
            tlb: vec![None; vms],
            hypervisor_span: 0..0,
        }
    }
}
