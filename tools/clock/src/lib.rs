//! The emulated clock: a stock QEMU as a machine whose cores run concurrently in virtual time, and
//! whose runs repeat to the byte.
//!
//! The library has two roles. Preloaded into QEMU, it takes over the process's threads, locks,
//! waits and clocks. Loaded by the same QEMU as a TCG plug-in, it counts each core's instructions.
//!
//! - **One thread at a time.** With a host thread for each core (`-accel tcg,thread=multi`), QEMU
//!   has these threads, its main loop, the RCU thread and sometimes workers. A thread gives up its
//!   turn only where it waits, and a core also at the start of a translation block. The order of
//!   turns is a function of virtual time alone ([`order`]), so the host's scheduler and load have
//!   no influence.
//! - **Clocks.** Each core has a clock: 1 ns for each instruction. All of QEMU's clocks are that of
//!   the thread that reads them, and so are the machine's counters and timers. The main loop runs
//!   at the time of QEMU's next timer.
//! - **Idle cores.** The thread that wakes a core sets the core's clock forward to its own. If all
//!   threads wait, time jumps to the next timer.
//! - **Memory.** On request, a core's miss is a request to the model of a board's memory
//!   (`memory.rs`). The core waits for the answer in the order of turns.
//! - **Locks of the emulator.** A core that waits for one, or for an exclusive section or a TLB
//!   maintenance operation, is not in the order and does not age.
//!
//! # Invariants
//!
//! 1. Exactly one thread runs. Every other one is at a known wait or at the start of a block.
//! 2. No running core is more than the quantum and one block ahead of another running core.
//! 3. When the main loop runs at time T, the clock of every running core is at least T, and at most
//!    T and one block, except of a core in an exclusive section.
//! 4. A core's clock never goes back.
//! 5. Nothing of the host's time enters.
//!
//! # Requirements
//!
//! QEMU 7.2 or newer on Linux with glibc. A core's thread waits for its first instruction with
//! QEMU's big lock, by which the lock is recognized. The main loop waits by `ppoll` and is notified
//! by an eventfd. No spin lock is held where a thread waits. Plug-ins of version 1, or of version 2
//! and later with at most 16 cores.

mod c;
mod charge;
mod files;
pub mod input;
mod memory;
pub mod options;
pub mod order;
mod plugin;
mod process;
mod reader;
mod switch;
mod threads;
mod time;

pub use plugin::can_leave;

/// Begins before the program's `main`, on its only thread. A program without QEMU's plug-ins, such
/// as a helper that QEMU starts, stays as it is.
extern "C" fn begin() {
    if plugin::is_qemu() {
        plugin::state_version();
        if plugin::is_preloaded() {
            process::activate();
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
