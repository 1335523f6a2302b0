//! The search for a setting in which every demand holds and best effort is left the most memory
//! bandwidth: colors, banks, budgets, DMA bandwidth and chunk size.
//!
//! The search is exact because few numbers connect its parts. Colors and banks are counted; budgets
//! and DMA bandwidth meet in the saturation table; a chunk size fixes the least DMA bandwidth of
//! the flows. Both the saturation and the bound of every critical task only get worse as best
//! effort gets more, so that bisection finds its largest budget. The answer is proven by
//! [`check()`], which shares no decision with the search.
//!
//! `problem` has the input, `judge` decides about flows and tasks, `needs` places colors and banks,
//! `budgets` chooses budgets, `conflict` finds the demands that conflict, and `plan` uses them all.

mod budgets;
mod check;
mod conflict;
mod judge;
mod needs;
mod plan;
mod problem;
#[cfg(test)]
mod tests;

pub use check::check;
pub use conflict::{Conflict, Shortage, shortages};
pub use judge::{Judge, Moved, Unsure};
pub use plan::{Plan, Refusal, Share, plan, plan_by};
pub use problem::{Demand, Platform, Shape, System, Vm};
