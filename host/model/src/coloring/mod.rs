//! Division of the last-level cache and of DRAM: from the keys `colors` and `banks` to page
//! classes.

pub(crate) mod assign;
mod auto;
pub(crate) mod division;
pub(crate) mod owner;
mod refuse;
pub(crate) mod requests;
pub(crate) mod tlb;
pub(crate) mod work;

pub use crate::classes::{
    groups::Group,
    places::{DramMap, LastLevelCache, Tlb},
};
pub use tlb::TlbColors;
