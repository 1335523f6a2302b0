//! Cells: the classes of pages that share a cache color and DRAM banks, sets of them, and the pages
//! of a set.
//!
//! [`Cells`] says which cell a page is in, [`CellSet`] is the set of an owner, [`Pages`] are the
//! pages of a set in a range of addresses, in order. Addresses are physical, in bytes. Nothing here
//! panics or allocates, for all values of the numbers are, so all of it serves at EL2.

mod geometry;
mod pages;
mod set;

pub use geometry::{Broken, Cells, Geometry, MAX_BANK_BITS};
pub use pages::Pages;
pub use set::{Cell, CellSet};

/// Most cells of a board.
pub const MAX_CELLS: usize = 256;
/// Bits of an address inside a page.
const PAGE_SHIFT: u32 = 12;
/// Bits of a page's number: addresses have 40.
const PAGE_BITS: u32 = 28;
