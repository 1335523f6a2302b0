//! Schedulability, memory bandwidth and latency bounds of a system, before it runs, and the search
//! for a setting in which all demands hold.
//!
//! # A system file
//!
//! [`analyze`] bounds the latency of the flows, the response time of the tasks, the wait of the
//! interrupts and the bandwidth of the memory budgets of a system file, and compares the bounds
//! with what the file demands. [`plan()`] chooses what the file leaves open.
//!
//! The keys of a file are in [`weir_model::system_reference()`]. What reads files is of `weir-model`,
//! and is named here, too, so that a program needs this crate alone.
//!
//! | step | call |
//! | --- | --- |
//! | read and check a file | [`SystemFile::load`] |
//! | change a value, such as a period | [`SystemFile::with`] |
//! | bounds and a verdict | [`analyze`] with [`Options`] returns a [`Report`] |
//! | choose budgets, colors, bandwidth | [`plan()`] with [`PlanOptions`] returns a [`Plan`] |
//!
//! ```
//! use std::path::Path;
//! use weir_analysis::{Catalog, Options, SystemFile, Verdict, analyze};
//!
//! let text = r#"
//! platform = "qemu-virt"
//!
//! [[vm]]
//! name = "camera"
//! cpus = [0]
//!
//! [[vm]]
//! name = "control"
//! cpus = [1]
//!
//! [[flow]]
//! name = "frames"
//! from = "camera"
//! to = "control"
//! size = "64KiB"
//! period = "10ms"
//! "#;
//! // `SystemFile::load(path, &catalog)` reads a file.
//! let system = SystemFile::parse(Path::new("system.toml"), text, &Catalog::default())?;
//! let report = analyze(&system, &Options::default())?;
//! assert_eq!(report.verdict, Some(Verdict::Holds));
//!
//! // A shorter period, and so a shorter deadline.
//! let faster = system.with("flow.frames.period", "20us")?;
//! let report = analyze(&faster, &Options::default())?;
//! assert_eq!(report.verdict, Some(Verdict::DoesNotHold));
//! for flow in report.flows() {
//!     println!("{}: {:?} ns of {:?}", flow.name, flow.bound_ns, flow.deadline_ns);
//! }
//! for cause in report.causes() {
//!     println!("{}: {cause}; {}", cause.location(), cause.help.as_deref().unwrap_or_default());
//! }
//! # Ok::<(), weir_analysis::Faults>(())
//! ```
//!
//! A verdict has three values ([`verdict::Verdict`]): a demand holds, does not hold, or is not
//! judged because an input is missing; [`Report::not_judged`] names the input and how to supply it.
//! A cause ([`Report::causes`]) is a [`Fault`](weir_model::Fault) with a place in the file and a
//! suggestion. A [`Report`] serializes to the object that `weir analyze --json` prints, in which the
//! messages of the causes are `reasons`, a [`Choices`] to the key `plan` of `weir plan --json`. The
//! program `examples/change_period.rs` of this crate does all of the above with a file.
//!
//! # The layers
//!
//! [`flows`], [`memory`], [`time`] and [`curves`] have the equations and know nothing of files.
//! [`mod@system`] makes their inputs from a system file and a report from their answers.
//! [`planning`] searches for a setting by asking [`mod@system`].
//!
//! A verdict never depends on a rounding: times, sizes and rates are integers, comparisons are made
//! between integers or exact rationals, and doubles serve as bounds that are rounded up, or for
//! printing. How each equation is read, and what each bound rests on, is in
//! `docs/theory/analysis.md`.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "values are within the limits checked on input (times below 2^53 half ns), or are \
              bounds and widened"
)]
#![allow(
    clippy::many_single_char_names,
    clippy::needless_range_loop,
    reason = "formulas keep the letters and the indices of their papers"
)]

pub mod curves;
pub mod flows;
pub mod memory;
pub mod planning;
pub mod system;
pub mod time;
mod units;
pub mod verdict;

pub use planning::{
    Choices, Conflict, CoreChoice, Plan, PlanError, PlanOptions, ScheduleChoice, ServerChoice,
    SlotChoice, VmChoice, plan,
};
pub use system::{CheckRules, Options, Report, analyze, check};
pub use units::{Bytes, BytesPerSec, HalfNanos, Nanos};
pub use verdict::Verdict;
pub use weir_model::{Catalog, Faults, SystemFile};
