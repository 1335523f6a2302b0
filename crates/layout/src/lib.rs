//! Where memory lies, with no hardware in it: the page tables that put physical memory where an address
//! space wants it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod table;
