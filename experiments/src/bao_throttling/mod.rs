//! bao-throttling, chapter 4.

mod budgets;

pub use budgets::{DEVIATIONS, budgets};
