//! The keys, and what a file says with them.

use crate::{
    raw::{At, Values},
    shape::{Key, Kind, Shape},
};
use std::ops::Range;
use toml::de::DeTable;

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: false, kind }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: true, kind }
}

/// Key `colors` of a VM, of the hypervisor and of the broker.
pub(crate) const COLORS_KEY: Key = key(
    "colors",
    Kind::Text,
    "Colors of the last-level cache, exclusive to it: numbers like \"0-3,8\", the name of a group, or \"auto\". Without it the colors that no key takes.",
);

/// Key `banks` of a VM, of the hypervisor and of the broker.
pub(crate) const BANKS_KEY: Key = key(
    "banks",
    Kind::Text,
    "DRAM banks, exclusive to it: numbers like \"0-3,8\", the name of a group, or \"auto\". Without it the banks that no key takes.",
);

/// Key `tlb_colors` of a VM.
pub(crate) const TLB_COLORS_KEY: Key = key(
    "tlb_colors",
    Kind::Text,
    "TLB sets that its RAM is to use: numbers like \"0-63\", or \"auto\" for the same part of them as `colors` is of the cache. Its RAM then lies in pieces, where the addresses choose these sets.",
);

/// Key `tlb` of a platform.
pub(crate) const TLB_KEY: Key = key(
    "tlb",
    Kind::List(&TLBS),
    "Its TLBs that are set-associative and indexed by the lowest bits of the page's number.",
);

/// Key `group` of a system and of a platform.
pub(crate) const GROUP_KEY: Key = key("group", Kind::List(&GROUPS), "Names for colors and banks.");

/// Key `dram` of a system.
pub(crate) const DRAM_MAP_KEY: Key = key(
    "dram",
    Kind::Text,
    "How the board's DRAM controller is set: the name of one of the platform's address maps. Without it the first.",
);

/// Key `cache` of a platform.
pub(crate) const CACHE_KEY: Key = key(
    "cache",
    Kind::Table(&CACHE),
    "Its last-level cache, physically indexed and shared by all cores.",
);

/// Key `dram` of a platform.
pub(crate) const DRAM_KEY: Key = key(
    "dram",
    Kind::List(&DRAMS),
    "Address maps of its DRAM controller; the one that it has without doing anything comes first.",
);

/// Key `more` of a platform's memory.
pub(crate) const MORE_KEY: Key = key("more", Kind::List(&PIECES), "More RAM, at other addresses.");

/// Key `planned` of a platform.
pub(crate) const PLANNED_KEY: Key = key(
    "planned",
    Kind::Text,
    "Why this version of weir does not run on it; such a platform is for checking and planning.",
);

static TLBS: Kind = Kind::Table(&TLB);
static GROUPS: Kind = Kind::Table(&GROUP);
static DRAMS: Kind = Kind::Table(&DRAM);
static PIECES: Kind = Kind::Table(&MORE);

static GROUP: Shape = Shape {
    name: "[[group]]",
    doc: "A name for colors, banks or both. The VMs that take them by this name share them.",
    keys: &[
        required(
            "name",
            Kind::Text,
            "The name, which begins with a letter and is not \"auto\"; each once, those of the platform included.",
        ),
        key("colors", Kind::Text, "Colors, numbers like \"0-3,8\"."),
        key("banks", Kind::Text, "Banks, numbers like \"0-3,8\"."),
    ],
};

static CACHE: Shape = Shape {
    name: "[cache]",
    doc: "The last-level cache.",
    keys: &[
        required("size", Kind::Size, "Its size."),
        required("ways", Kind::Number(1, 256), "Lines of a set."),
        required("line", Kind::Size, "Bytes of a line."),
        key("page", Kind::Size, "Bytes of a page, 4 KiB."),
    ],
};

static TLB: Shape = Shape {
    name: "[[tlb]]",
    doc: "A TLB.",
    keys: &[
        required("name", Kind::Text, "What it is."),
        required("entries", Kind::Number(2, 1 << 14), "Its entries."),
        required("ways", Kind::Number(1, 256), "Entries of a set."),
    ],
};

static DRAM: Shape = Shape {
    name: "[[dram]]",
    doc: "An address map of the DRAM controller.",
    keys: &[
        required("name", Kind::Text, "Its name."),
        required(
            "banks",
            Kind::List(&Kind::List(&Kind::Number(0, 39))),
            "For each bit of the bank's number, the lowest first, the address bits whose XOR it is; bits that choose the bank group count.",
        ),
    ],
};

static MORE: Shape = Shape {
    name: "{ base = ..., size = ... }",
    doc: "More RAM.",
    keys: &[
        required("base", Kind::Address, "Its first byte."),
        required("size", Kind::Size, "Its size."),
    ],
};

/// What a file requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub dram: Option<At<String>>,
    pub groups: Vec<RawGroup>,
    pub hypervisor: Request,
    pub broker: Request,
    /// Of each VM in turn.
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
