//! The memory system as a model.
//!
//! Without time: [`cache`], [`dram::banks`] and the [`hierarchy`] made of them count evicted lines
//! and closed rows per pair of owners. The QEMU plug-in feeds them with the accesses of a running
//! system, fast enough to do so while it runs: no access allocates or hashes.
//!
//! In time: [`dram::DramChannel`] is a DRAM with its controller, [`qos`] the regulators at a
//! master's port, [`dma`] the engines, [`smmu`] the translation of their addresses, and [`system`]
//! all of it together with the caches. It goes from event to event: time in which nothing happens
//! costs nothing.
//!
//! [`stalls`] gives this time to the cores of an emulator.
//!
//! All shapes and timings are parameters. The DRAM parts of [`dram::timing`] name the standard that
//! each value is from; everything else comes from the caller, from a platform file.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cache;
pub mod dma;
pub mod dram;
pub mod events;
pub mod hierarchy;
pub mod matrix;
pub mod qos;
pub mod recording;
pub mod smmu;
pub mod stalls;
pub mod system;
pub mod units;

pub use cache::{Cache, CacheConfig, CacheStats, Replacement};
pub use dram::{AddressFields, AddressMap, Banks};
pub use hierarchy::{Access, Hierarchy, HierarchyConfig, L2Config, L2Sharing, Served};
pub use matrix::Matrix;
pub use system::{MemorySystem, SystemConfig};
pub use units::{Bytes, Owner, Pa, Picos};
