//! weir's hypervisor, which runs at EL2.
//!
//! - `arch`: registers, vectors, page tables, the board's GIC and timers.
//! - `board`: the board's addresses, from its file in `boards/`.
//! - `boot`: from the loader to the first guest.
//! - `budget`: memory budgets: counts accesses, throttles and replenishes.
//! - `console`: the board's UART, shared by all VMs.
//! - `entry`: the start of a core and the exception vectors.
//! - `halt`: faults of EL2 itself.
//! - `mail`: messages between cores.
//! - `notice`: notices of EL2 itself on the bare UART.
//! - `optional`: values of the parts that a build can leave out.
//! - `report`: the counters of VMs and flows, and events of the system, for the host.
//! - `start`: starts the other cores and turns the board off.
//! - `system`: the packed system.
//! - `trace`: each core's ring of records, which the host reads.
//! - `uart`: the drivers of the board's UART.
//! - `vcpu`: the cores and their vCPUs: schedule, exceptions, virtual devices, lifecycle.
//! - `virtio`: the socket devices of VMs in flows, the network devices of VMs at the switch, and
//!   the broker behind both.
//! - `vm`: the VMs as data: memory, interrupts, what cores share of each.
//!
//! The modules form layers: no module imports itself through other modules (`./weir test format`).
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
mod budget;
mod console;
#[cfg(target_os = "none")]
mod entry;
mod halt;
mod mail;
mod notice;
mod optional;
mod report;
mod start;
mod system;
mod trace;
mod uart;
mod vcpu;
mod virtio;
mod vm;

/// Refuses to run on the host.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("weir-hypervisor runs at EL2: `weir build` builds it for a board");
    std::process::exit(2);
}
