//! Page classes: the classes of pages that share a cache color and DRAM banks, sets of them, and
//! the pages of a set.
//!
//! [`PageClasses`] says which page class a page is in, [`ClassSet`] is the set of an owner,
//! [`Pages`] are the pages of a set in a range of addresses, in order. Addresses are physical, in
//! bytes. Nothing here panics or allocates, for all values of the numbers are, so all of it serves
//! at EL2.

mod geometry;
mod pages;
mod set;

pub use geometry::{BadGeometry, Geometry, MAX_BANK_BITS, PageClasses};
pub use pages::Pages;
pub use set::{ClassSet, PageClass};

/// Most page classes of a board.
pub const MAX_CLASSES: usize = 256;
/// Bits of an address inside a page.
const PAGE_SHIFT: u32 = 12;
/// Bits of a page's number: addresses have 40.
const PAGE_BITS: u32 = 28;
