//! Tests of the simulator.
#![allow(missing_docs, reason = "tests")]

mod dma;
mod flows;
mod memory;
mod run;
mod support;
mod workloads;
