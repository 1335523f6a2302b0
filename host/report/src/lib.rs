//! Renders results: tables, pictures, page classes, traces of runs and the overheads in them.
//!
//! A run leaves its files in a directory ([`SUMMARY`], [`REPORT`] and [`trace::file::NAME`] among
//! them). [`trace`] reads and writes its records, [`trace::curve`] computes arrival curves of
//! memory accesses, [`overheads`] the duration of each phase of a packet. [`coloring`] shows which
//! VM has which page classes. [`check`] is the check of a system. [`why`] explains where the time of a packet or a period went.
//! [`TextTable`] and [`Picture`] are for all reports.
//!
//! # Examples
//!
//! ```
//! let mut table = weir_report::table(["VM", "cores"]);
//! table.add_row(["linux", "1, 2"]);
//! assert!(table.to_string().lines().last().is_some_and(|row| row.contains("linux")));
//! ```

pub mod board_file;
pub mod check;
pub mod coloring;
mod figure;
mod json;
pub mod overheads;
mod page;
mod picture;
pub mod plan;
pub mod run;
mod table;
pub mod trace;
pub mod units;
pub mod why;

pub use json::{JSON_VERSION, Json, versioned};
pub use page::{RunFiles, comparison_page, console_log, plan_page, plan_svg, run_page};
pub use picture::Picture;
pub use run::{read_report, read_run_file};
pub use table::{TextTable, columns, fitted, paragraph, paragraphs, table, wrap};

/// The name of the summary in the directory of a run.
pub const SUMMARY: &str = "summary.txt";
/// The name of the report in the directory of a run, as JSON.
pub const REPORT: &str = "report.json";
/// The copy of the system file in the directory of a run.
pub const SYSTEM: &str = "system.toml";
