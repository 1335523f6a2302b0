//! The keys of cache colors, DRAM banks and TLB sets, in a system file or a board file.

use crate::shape::{Key, Kind, Shape, optional, required};

/// Key `colors` of a VM, of the hypervisor and of the broker.
pub(crate) const COLORS_KEY: Key = optional(
    "colors",
    Kind::Text,
    "Colors of the last-level cache, exclusive to it: numbers like \"0-3,8\", the name of a group, or \"auto\". Default: the colors that no key takes.",
);

/// Key `banks` of a VM, of the hypervisor and of the broker.
pub(crate) const BANKS_KEY: Key = optional(
    "banks",
    Kind::Text,
    "DRAM banks, exclusive to it: numbers like \"0-3,8\", the name of a group, or \"auto\". Default: the banks that no key takes.",
);

/// Key `tlb_colors` of a VM.
pub(crate) const TLB_COLORS_KEY: Key = optional(
    "tlb_colors",
    Kind::Text,
    "TLB sets that its RAM is to use: numbers like \"0-63\", or \"auto\" for the same part of them as `colors` is of the cache. Its RAM then lies in pieces, where the addresses choose these sets.",
);

/// Key `tlb` of a platform.
pub(crate) const TLB_KEY: Key = optional(
    "tlb",
    Kind::List(&TLBS),
    "Its TLBs that are set-associative and indexed by the lowest bits of the page's number.",
);

/// Key `group` of a system and of a platform.
pub(crate) const GROUP_KEY: Key =
    optional("group", Kind::List(&GROUPS), "Names for colors and banks.");

/// Key `dram` of a system.
pub(crate) const DRAM_MAP_KEY: Key = optional(
    "dram",
    Kind::Text,
    "The configuration of the board's DRAM controller: the name of one of the platform's address maps. Default: the first.",
);

/// Key `cache` of a platform.
pub(crate) const CACHE_KEY: Key = optional(
    "cache",
    Kind::Table(&CACHE),
    "Its last-level cache, physically indexed and shared by all cores.",
);

/// Key `dram` of a platform.
pub(crate) const DRAM_KEY: Key = optional(
    "dram",
    Kind::List(&DRAMS),
    "Address maps of its DRAM controller; the one after reset comes first.",
);

/// Key `more` of a platform's memory.
pub(crate) const MORE_KEY: Key =
    optional("more", Kind::List(&PIECES), "More RAM, at other addresses.");

/// Key `planned` of a platform.
pub(crate) const PLANNED_KEY: Key = optional(
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
        optional("colors", Kind::Text, "Colors, numbers like \"0-3,8\"."),
        optional("banks", Kind::Text, "Banks, numbers like \"0-3,8\"."),
    ],
};

static CACHE: Shape = Shape {
    name: "[cache]",
    doc: "The last-level cache.",
    keys: &[
        required("size", Kind::Size, "Its size."),
        required("ways", Kind::Number(1, 256), "Lines of a set."),
        required("line", Kind::Size, "Bytes of a line."),
        optional("page", Kind::Size, "Bytes of a page, 4 KiB."),
    ],
};

static TLB: Shape = Shape {
    name: "[[tlb]]",
    doc: "A TLB.",
    keys: &[
        required("name", Kind::Text, "Its name."),
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
