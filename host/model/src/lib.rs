//! The system description.
//!
//! [`check_file`] checks a system file and returns either every fault in it or a [`System`].
//! [`pack()`] makes the system image out of a system; `weir-abi` has the packed form that the
//! hypervisor reads at EL2.
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
#![forbid(unsafe_code)]

mod audit;
mod board;
mod check;
mod classes;
pub mod coloring;
pub mod counters;
mod devicetree;
mod diagnostics;
mod document;
mod estimate;
mod fault;
mod files;
mod image;
mod keys;
mod load;
mod measured;
mod object;
mod pack;
pub mod pci;
mod place;
pub mod platform;
mod ranges;
mod reference;
mod regulation;
mod resolve;
mod schema;
mod shape;
mod shares;
mod system;
mod table;
mod text;
pub mod timing;
mod vm;

pub use audit::{Audited, audit, page_owners};
pub use board::BoardIrq;
pub use check::{check_file, check_text, check_to_measure};
pub use coloring::{TlbColors, division::Division};
pub use devicetree::bare_device_tree;
pub use diagnostics::{
    Code, Example, ExampleKind, Explanation, ExplanationRecord, diagnostics_reference, explain,
    explanations, similar_code,
};
pub use estimate::{ImageFile, ImageFiles, estimate};
pub use fault::{Fault, FaultRecord, Faults, LabelRecord, Location, Style, TEXT_LIMIT};
pub use files::{open_regular, read_regular, read_short, read_text};
pub use load::{SystemFile, edited};
pub use object::Object;
pub use pack::{HypervisorSize, Packed, Payload, pack};
pub use place::{MapOwner, MapRecord, Placement, Row, Sizes, place, place_all};
pub use platform::Platform;
pub use reference::{board_reference, system_reference};
pub use regulation::Polling;
pub use resolve::{Catalog, ImageSource, LIKELY_HYPERVISOR, LIKELY_KERNEL, LIKELY_PROGRAM};
pub use schema::{TEMPLATE, schema};
pub use shares::{Share, shares};
pub use system::{Hypervisor, System};
pub use text::{is_hidden, printable};
pub use vm::{
    AssignedDevice, BROKER, Image, Net, RamPiece, Seed, SocketBus, TickPolicy, VirtualBoard, Vm,
};
pub use weir_abi::{OnFault, OnOutside};
