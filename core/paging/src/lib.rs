//! The placement of memory, without access to hardware: which pages share a part of the cache or of
//! DRAM, and the page tables that map physical memory into an address space.
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

/// Size of a page and of a table in bytes.
pub const PAGE: u64 = 4096;
