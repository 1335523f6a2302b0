//! Page classes: the classes of pages that share a cache color and DRAM banks, sets of them, and
//! the pages of a set.
//!
//! [`PageClasses`] determines the page class of a page, [`ClassSet`] is the set of an owner, and
//! [`Pages`] are the pages of a set in a range of addresses, in order. Addresses are physical, in
//! bytes. No function here panics or allocates, for any values, so all of it can be used at EL2.

mod geometry;
mod pages;
mod set;

pub use geometry::{BadGeometry, Geometry, MAX_BANK_BITS, PageClasses};
pub use pages::Pages;
pub use set::{ClassSet, PageClass};

/// Largest number of page classes of a board.
pub const MAX_CLASSES: usize = 256;
/// Bits of an address inside a page.
const PAGE_SHIFT: u32 = 12;
/// Bits of a page number; addresses have 40 bits.
const PAGE_BITS: u32 = 28;
