//! Where memory lies, with no hardware in it: which pages share a part of the cache or of DRAM, and
//! the page tables that put physical memory where an address space wants it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod cache;
#[cfg(feature = "page-classes")]
pub mod classes;
#[cfg(not(feature = "page-classes"))]
#[path = "no_classes.rs"]
pub mod classes;
#[cfg(all(test, feature = "page-classes"))]
#[allow(dead_code, reason = "the tests use less of it than a build without page classes")]
mod no_classes;
pub mod smmu;
pub mod table;
pub mod walk;

/// Bytes of a page and of a table.
pub const PAGE: u64 = 4096;
