//! Tests of the virtual devices and of trapped registers.
#![allow(missing_docs, reason = "tests")]

mod esr;
mod id;
mod inject;
mod pl011;
mod psci;
mod sysreg;
