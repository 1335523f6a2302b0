//! The system description.
//!
//! With feature `std` (the default) a system file goes through [`check_file`], which finds
//! everything that is wrong with it and otherwise gives a [`System`], and through [`pack()`], which
//! makes the system image out of it. Without the feature there is [`packed`] only, the binary form
//! that the hypervisor reads at EL2.
//!
//! To analyze or plan a file, or to change its values, load it as a [`SystemFile`]; such a file may
//! be incomplete. [`system_reference()`] and [`schema()`] have the keys of a file.
//!
//! ```
//! use std::path::Path;
//! use weir_model::{Catalog, check_text};
//!
//! let text = r#"
//! platform = "qemu-virt"
//!
//! [[vm]]
//! name = "linux"
//! cpus = [0, 4, 9]
//! memory = "256MB"
//! image = { linux = "debian-rt", initrd = "busybox" }
//! "#;
//! let faults = check_text(Path::new("system.toml"), text, &Catalog::default()).unwrap_err();
//! let codes: Vec<_> = faults.0.iter().map(|fault| fault.code.name()).collect();
//! assert_eq!(codes, ["out-of-range", "wrong-unit"]);
//! assert_eq!(faults.0[1].location().to_string(), "system.toml:7:10");
//! ```
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
mod audit;
#[cfg(feature = "std")]
mod board;
#[cfg(feature = "std")]
mod check;
#[cfg(feature = "std")]
pub mod coloring;
#[cfg(feature = "std")]
pub mod counters;
#[cfg(feature = "std")]
mod devicetree;
#[cfg(feature = "std")]
mod diagnostics;
#[cfg(feature = "std")]
mod document;
#[cfg(feature = "std")]
mod estimate;
#[cfg(feature = "std")]
mod fault;
#[cfg(feature = "std")]
mod files;
#[cfg(feature = "std")]
mod image;
#[cfg(feature = "std")]
mod keys;
#[cfg(feature = "std")]
mod load;
#[cfg(feature = "std")]
mod measured;
#[cfg(feature = "std")]
mod pack;
pub mod packed;
#[cfg(feature = "std")]
pub mod pci;
#[cfg(feature = "std")]
mod place;
#[cfg(feature = "std")]
pub mod platform;
#[cfg(feature = "std")]
mod ranges;
#[cfg(feature = "std")]
mod raw;
#[cfg(feature = "std")]
mod reference;
#[cfg(feature = "std")]
mod regulation;
#[cfg(feature = "std")]
mod resolve;
#[cfg(feature = "std")]
mod schema;
#[cfg(feature = "std")]
mod shape;
#[cfg(feature = "std")]
mod shares;
#[cfg(feature = "std")]
mod system;
#[cfg(feature = "std")]
mod text;
#[cfg(feature = "std")]
pub mod timing;
#[cfg(feature = "std")]
mod vm;

#[cfg(feature = "std")]
pub use audit::{Audited, audit, page_owners};
#[cfg(feature = "std")]
pub use board::Irq;
#[cfg(feature = "std")]
pub use check::{check_file, check_file_on, check_text, check_to_measure};
#[cfg(feature = "std")]
pub use coloring::division::Division;
#[cfg(feature = "std")]
pub use diagnostics::{
    Code, Example, ExampleKind, Explanation, diagnostics_reference, explain, explanations,
    similar_code,
};
#[cfg(feature = "std")]
pub use estimate::{ImageFile, ImageFiles, estimate};
#[cfg(feature = "std")]
pub use fault::{Fault, Faults, Location, Style, TEXT_LIMIT};
#[cfg(feature = "std")]
pub use files::{open_regular, read_regular, read_short, read_text};
#[cfg(feature = "std")]
pub use load::SystemFile;
#[cfg(feature = "std")]
pub use pack::{Packed, Payload, pack};
#[cfg(feature = "std")]
pub use packed::{OnFault, OnOutside};
#[cfg(feature = "std")]
pub use place::{Owner, Placement, Row, Sizes, place, place_all};
#[cfg(feature = "std")]
pub use platform::Platform;
#[cfg(feature = "std")]
pub use reference::{board_reference, system_reference};
#[cfg(feature = "std")]
pub use regulation::Polling;
#[cfg(feature = "std")]
pub use resolve::{Catalog, LIKELY_HYPERVISOR, LIKELY_KERNEL, LIKELY_PROGRAM, Source};
#[cfg(feature = "std")]
pub use schema::{TEMPLATE, schema};
#[cfg(feature = "std")]
pub use shares::{Share, shares};
#[cfg(feature = "std")]
pub use system::{Hypervisor, System};
#[cfg(feature = "std")]
pub use text::{is_hidden, printable};
#[cfg(feature = "std")]
pub use timing::Timing;
#[cfg(feature = "std")]
pub use vm::{Board, Device, Image, Net, Piece, Socket, Vm};
