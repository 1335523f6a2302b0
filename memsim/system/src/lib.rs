//! Systems in virtual time: what QEMU can't show, since it has neither caches nor DRAM.
//!
//! [`memory`] reads the files that describe a chip's memory. [`SimulatedBoard`] is a system file's
//! VMs on it: their pages where `weir build` puts them, their vCPUs with the accesses of
//! `[vm.workload]`, their budgets enforced by the regulators of `weir-budget` and `weir-sched`, the
//! same code that the hypervisor runs. [`run()`] lets time pass, from event to event.
//!
//! A run depends on its [`SimulatedBoard`], its [`Span`] and nothing else: the same ones give the
//! same [`Outcome`]. [`Simulation`] makes both from a checked system and also runs each VM alone;
//! [`SimulationRecord`] is its result as JSON has it.
#![forbid(unsafe_code)]

mod board;
mod budget;
mod core;
mod error;
mod flows;
mod histogram;
mod jobs;
mod kernels;
mod master;
pub mod memory;
mod outcome;
mod program;
mod run;
mod simulation;
mod trace;
mod vm;

pub use board::{SimulatedBoard, ram_pages};
pub use error::SimulationError;
pub use flows::FlowOutcome;
pub use histogram::{Distribution, LatencyHistogram};
pub use jobs::JobsOutcome;
pub use memory::{MemoryError, MemoryModel};
pub use outcome::{BudgetOutcome, Outcome, SecondLevel, TbuOutcome, VmOutcome, WorkMark};
pub use run::{Span, run, run_to, run_until, run_until_each};
pub use simulation::{
    Alone, LINE, MOST_OF_A_CURVE, SameWork, Simulated, Simulation, SimulationRecord, Values,
    arrival_curve, max_latency_ns, within_bound,
};

/// The examples of the page on scripts.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/script.md")]
mod script {}
