//! A core and the vCPUs that it runs.
//!
//! Each core has a [`schedule::CoreSchedule`] of its vCPUs; a core with one vCPU has no timer for
//! it. The exception vectors call a handler ([`irq`], [`traps`]), which returns whether the
//! vCPU goes on at once ([`action::Exit`]). Only the run loop ([`run`]) carries out what else is
//! asked for.

pub mod action;
pub mod admission;
pub mod cpu;
pub mod devices;
pub mod fault;
pub mod inject;
pub mod irq;
pub mod lifecycle;
pub mod messages;
pub mod pmu;
pub mod prepare;
pub mod run;
pub mod schedule;
pub mod traps;
