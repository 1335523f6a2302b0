//! Laws of budgets and regulators.
#![allow(missing_docs, reason = "tests")]

mod compensation;
mod fixed;
mod memguard;
mod pool;
mod setting;
mod support;
