//! Runs systems in QEMU or on a board: decodes the hypervisor's output, judges it, and writes logs
//! and reports.
//!
//! [`run()`] boots a system and returns a [`Run`] with its [`RunReport`], the JSON of `weir run
//! --json`. [`observe`] also counts the accesses to memory, by a model of caches and DRAM banks in
//! QEMU's plug-in. A [`Lab`] runs small systems for experiments, and [`calibrate`] measures with it
//! the saturation of a platform's memory. The caller's [`Console`] shows the consoles.

mod board;
mod budgets;
pub mod calibrate;
pub mod control;
mod demux;
pub mod elf;
mod expect;
pub mod findings;
pub mod judge;
mod kept;
pub mod lab;
mod link;
pub mod measure;
pub mod observe;
mod observed;
pub mod plugin;
mod qemu;
mod ram;
mod record;
pub mod report;
mod rings;
mod run;
mod serial;
mod session;
pub mod show;
mod signals;
mod start;
mod statics;
mod syndrome;
#[cfg(test)]
mod synthetic;
mod wire_trace;

pub use kept::Traced;
pub use lab::Lab;
pub use qemu::check_qemu;
pub use report::RunReport;
pub use run::{Console, ConsoleInput, Run, RunOptions, SilentConsole, run};
pub use serial::{BoardLine, Loader, SerialLine};
pub use signals::watch_signals;
pub use start::RunBounds;
