//! weir's hypervisor: what runs at EL2.
//!
//! - `arch`: registers, vectors, page tables, the board's GIC and timers.
//! - `boot`: from the loader to the first guest.
//! - `console`: the board's UART, shared by all VMs.
//! - `entry`: the start of a core and the exception vectors.
//! - `cpu`: per-CPU data.
//! - `halt`: faults of EL2 itself.
//! - `mail`: messages between cores.
//! - `notice`: notices of EL2 itself on the bare UART.
//! - `budget`: memory budgets: counts accesses, throttles and replenishes.
//! - `board`: the board's addresses and its UART, from its file in `boards/`.
//! - `system`: the packed system.
//! - `trace`: each core's ring of records, which the host reads.
//! - `virtio`: the socket devices of VMs in flows, the network devices of VMs at the switch, and
//!   the broker behind both.
//! - `vcpu`: the vCPUs of a core: their schedule, their exceptions, the run loop.
//! - `vm`: the VMs: memory, virtual devices, interrupts, lifecycle.
//!
//! On the host, where the tests run, the same code is built for a machine that records each access
//! (`arch::machine`).
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "what calls it, the vectors and the start of a core, is assembly")
)]
#![expect(
    clippy::inline_always,
    reason = "one or two instructions on the paths that a guest feels, which a call would double"
)]

mod arch;
mod board;
mod boot;
#[cfg_attr(not(feature = "budgets"), path = "no_budget.rs")]
mod budget;
mod console;
mod cpu;
#[cfg(target_os = "none")]
mod entry;
mod halt;
mod mail;
mod notice;
mod system;
mod trace;
mod vcpu;
mod virtio;
mod vm;

/// Refuses to run on the host.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("weir-hypervisor runs at EL2: `weir build` builds it for a board");
    std::process::exit(2);
}
