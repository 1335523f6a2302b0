//! A core and the vCPUs that it runs.
//!
//! Each core has a [`schedule::CoreSchedule`] of its vCPUs; a core with one vCPU has no scheduling
//! timer. The exception vectors call a handler ([`irq`], [`traps`]), which returns whether the vCPU
//! continues at once ([`action::Exit`]). The run loop ([`run`]) carries out every other request.

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
