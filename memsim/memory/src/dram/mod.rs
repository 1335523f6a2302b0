//! DRAM: where an address lies in it, which rows are open, closed rows per pair of owners, and when
//! commands may follow each other.

pub mod address;
pub mod banks;
pub mod controller;
pub mod device;
mod lanes;
mod policy;
mod queue;
mod request;
mod rules;
mod schedule;
mod shape;
pub mod timing;
pub mod trace;

pub use address::{AddressFields, AddressMap, AddressMapError, DramLocation, plain_bits};
pub use banks::{BankStats, Banks, RowOutcome};
pub use controller::DramChannel;
pub use device::{DramDevice, Illegal};
pub use policy::{ChannelError, DEFAULT_POLICY, Policy};
pub use request::{ChannelStats, Done, Request, RequestQueueFull, RowUse};
pub use shape::Shape;
pub use timing::{Command, DramTiming, RULES};
