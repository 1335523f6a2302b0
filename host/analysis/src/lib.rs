//! Whether a system holds its timing, before it runs: schedulability of communication flows, memory bandwidth and
//! interference, the supply of partition schedules, arrival curves, and the search for a setting in which all hold.
//!
//! A verdict never depends on a rounding: times, sizes and rates are integers, comparisons are made between integers
//! or exact rationals, and doubles serve as filters whose answer is confirmed, or for printing. How each equation is
//! read, and what each bound rests on, is in `docs/theory/analysis.md`.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "values are within the limits checked on input (times below 2^53 half ns), or are bounds and widened"
)]
#![allow(
    clippy::many_single_char_names,
    clippy::needless_range_loop,
    reason = "formulas keep the letters and the indices of their papers"
)]

pub mod bench;
pub mod curves;
pub mod experiments;
pub mod flows;
pub mod memory;
pub mod plan;
pub mod time;
mod units;
pub mod verdict;

pub use units::{Bytes, BytesPerSec, HalfNanos, Nanos};
