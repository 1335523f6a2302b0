//! Tests of the model: system files, placement and messages.
#![allow(missing_docs, reason = "tests")]

mod broken;
#[path = "../../../tests/checkout.rs"]
mod checkout;
mod coloring;
mod devicetree;
mod diagnostics;
mod estimate;
mod examples;
mod hostile;
mod images;
mod pci;
mod placement;
mod smoke;
mod systems;
