//! The report of a run: the result of each VM and flow, as JSON and as a table.
//!
//! The report does not depend on the host: the same bytes on the wire give the same report.

mod engine;
mod event;
mod fault;
mod tally;
#[cfg(test)]
mod tests;
mod vm;

pub(crate) use engine::{answered, engine_of};
pub(crate) use event::{WITHOUT_BROKER, in_words};
pub(crate) use tally::Tally;
pub use weir_report::run::*;
