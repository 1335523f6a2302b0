//! Every key of a system file and of a board file, declared once: its type with unit and range,
//! whether it is required, its default and its meaning. The check of a file, its reading, the JSON
//! schema and the reference pages come from these declarations; see [`crate::table`].

pub(crate) mod board;
pub(crate) mod measured;
pub(crate) mod memory_budget;
pub(crate) mod page_classes;
pub(crate) mod system;
pub(crate) mod timing;
pub(crate) mod workload;
