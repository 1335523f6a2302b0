//! Where memory lies, with no hardware in it: which pages share a part of the cache or of DRAM, and
//! the page tables that put physical memory where an address space wants it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod cache;
pub mod classes;
pub mod smmu;
pub mod table;
pub mod walk;
