//! Every key of a system file and of a board file, declared once: its type with unit and range,
//! whether it is required, and its meaning with its default. The check of a file, the JSON schema
//! and the reference pages come from these declarations.

pub(crate) mod board;
pub(crate) mod measured;
pub(crate) mod memory_budget;
pub(crate) mod page_classes;
pub(crate) mod system;
pub(crate) mod timing;
pub(crate) mod workload;
