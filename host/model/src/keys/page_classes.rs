//! The keys of cache colors, DRAM banks and TLB sets, in a system file or a board file.

use crate::shape::Kind;
use crate::table::{At, table};
use weir_units::Bytes;

/// For each bank bit the address bits that it is the XOR of.
const BANKS: Kind = Kind::List(&Kind::List(&Kind::Number(0, 39)));

table! {
    /// A name for colors, banks or both. The VMs that take them by this name share them.
    pub(crate) struct Group = "[[group]]" {
        /// The name, which begins with a letter and is not "auto"; each once, those of the platform
        /// included.
        name: At<String>,
        /// Colors, numbers like "0-3,8".
        colors: Option<At<String>>,
        /// Banks, numbers like "0-3,8".
        banks: Option<At<String>>,
    }

    /// The last-level cache.
    pub(crate) struct Cache = "[cache]" {
        /// Its size.
        size: Bytes,
        /// Lines of a set.
        ways: u64 [1, 256],
        /// Bytes of a line.
        line: At<Bytes>,
        /// Bytes of a page, 4 KiB.
        page: Option<At<Bytes>>,
        /// Whether the cores' ID registers describe it. If so, weir compares at boot, and refuses
        /// a system with colors that the machine's cache does not have.
        in_registers: bool = true,
    }

    /// A TLB.
    pub(crate) struct Tlb = "[[tlb]]" {
        /// Its name.
        name: String,
        /// Its entries.
        entries: u64 [2, 1 << 14],
        /// Entries of a set.
        ways: u64 [1, 256],
    }

    /// An address map of the DRAM controller.
    pub(crate) struct Dram = "[[dram]]" {
        /// Its name.
        name: At<String>,
        /// For each bit of the bank's number, the lowest first, the address bits that it is the XOR
        /// of; bits that choose the bank group count.
        banks: At<Vec<At<Vec<u64>>>> as BANKS,
    }
}
