//! What a file requests of colors, banks and TLB sets.

use crate::document::{At, Values};
use std::ops::Range;
use toml::de::DeTable;

/// What a file requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub dram: Option<At<String>>,
    pub groups: Vec<RawGroup>,
    pub hypervisor: Request,
    pub broker: Request,
    /// Of each VM, in the order of the file.
    pub vms: Vec<Request>,
}

/// What one owner requests, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub colors: Option<At<String>>,
    pub banks: Option<At<String>>,
    pub tlb_colors: Option<At<String>>,
    /// The owner's table.
    pub span: Range<usize>,
}

/// A group as it is written.
#[derive(Clone, Debug)]
pub(crate) struct RawGroup {
    pub name: At<String>,
    pub colors: Option<At<String>>,
    pub banks: Option<At<String>>,
}

/// Reads the keys of a system file.
pub(crate) fn read(table: &DeTable<'_>) -> Requests {
    let request = |table: &DeTable<'_>, span: Range<usize>| Request {
        colors: table.text("colors"),
        banks: table.text("banks"),
        tlb_colors: table.text("tlb_colors"),
        span,
    };
    let inner =
        |name| table.inner(name).map(|(table, span)| request(table, span)).unwrap_or_default();
    Requests {
        dram: table.text("dram"),
        groups: groups(table),
        hypervisor: inner("hypervisor"),
        broker: inner("broker"),
        vms: table.tables("vm").into_iter().map(|(table, span)| request(table, span)).collect(),
    }
}

/// Reads the groups of a system or platform file.
pub(super) fn groups(table: &DeTable<'_>) -> Vec<RawGroup> {
    let groups = table.tables("group").into_iter();
    let read = groups.filter_map(|(group, _)| {
        let (colors, banks) = (group.text("colors"), group.text("banks"));
        Some(RawGroup { name: group.text("name")?, colors, banks })
    });
    read.collect()
}

impl Request {
    /// Whether there is any.
    pub(crate) const fn is_any(&self) -> bool {
        self.colors.is_some() || self.banks.is_some()
    }
}
