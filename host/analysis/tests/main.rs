//! Tests of the analysis: its laws, references and messages.
#![allow(missing_docs, reason = "tests")]

mod bad_input;
mod best_effort;
mod diagnostics;
#[path = "../../model/tests/examples/mod.rs"]
mod examples;
mod oracle;
mod reference;
mod regulators;
#[path = "../../../core/budget/tests/support/mod.rs"]
mod support;
mod system;
