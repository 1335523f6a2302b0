//! A small EL1 runtime for bare-metal guests on the virtual board of weir, which resembles QEMU's
//! `virt` machine. A guest written on it runs unchanged in a weir VM and directly on
//! `qemu-system-aarch64 -M virt,gic-version=3 -cpu cortex-a53 -kernel GUEST` (2 likewise).
//!
//! ```text
//! #![no_std]
//! #![no_main]
//!
//! use weir_guest::{Board, entry, println, psci};
//!
//! entry!(main);
//!
//! fn main(board: &'static Board) -> ! {
//!     println!("hello: {} cores", board.cores().len());
//!     psci::system_off()
//! }
//! ```
//!
//! - Every address, RAM's included, is taken from the device tree at run time ([`mod@board`]); only
//!   the image's own link address is fixed, see `guest.ld`. A guest needs a `build.rs` that prints
//!   `cargo::rustc-link-arg-bins=-Tguest.ld`.
//! - Entry, exception vectors and secondary cores are `aarch64-rt`'s, the console is
//!   `arm-pl011-uart`, calls go through `smccc`. `arm-gic` is not used: its GICv2 driver writes
//!   whole priority words (clearing three neighbors) and drops the source core of an SGI, its GICv3
//!   driver reads and modifies write-1-to-clear registers, and a benchmark guest must issue exactly
//!   the register access that it is counted for. `percore` is not used: what is per core here is
//!   an atomic in an array.
//! - The MMU is on with caches after a short start without: `aarch64-rt` calls `mmu`'s
//!   `enable_mmu`, which maps RAM as found in the device tree instead of at a constant place.
//! - The target has no floating point, so that a guest may use the FP/SIMD registers in assembly
//!   without the compiler's interference.
//!
//! What is pure ([`args`], [`mod@board`], [`chase`], [`histogram`], [`time`]'s conversions,
//! [`marker`]'s table) also builds and is tested on the host.

#![cfg_attr(not(test), no_std)]
#![allow(clippy::inline_always, reason = "what a benchmark marks must follow the mark, not a call")]

pub mod args;
pub mod board;
pub mod chase;
pub mod histogram;
pub mod marker;
pub mod random;
pub mod time;

#[cfg(target_os = "none")]
pub mod console;
#[cfg(target_os = "none")]
pub mod cpu;
#[cfg(target_os = "none")]
pub mod exceptions;
#[cfg(target_os = "none")]
pub mod gic;
#[cfg(target_os = "none")]
pub mod hypercall;
#[cfg(target_os = "none")]
pub mod mark;
#[cfg(target_os = "none")]
pub mod mmio;
#[cfg(target_os = "none")]
pub mod mmu;
#[cfg(target_os = "none")]
pub mod psci;
#[cfg(target_os = "none")]
mod start;

pub use args::Args;
pub use board::{Board, BoardGic, MAX_CORES};
pub use histogram::Histogram;

#[cfg(target_os = "none")]
pub use start::board;

/// What the macros of this crate need from others.
#[cfg(target_os = "none")]
#[doc(hidden)]
pub mod __private {
    pub use crate::start::start;
    pub use aarch64_rt;
}

/// Names the guest's main function, `fn(&'static Board) -> !`, and makes the image's entry point.
///
/// When it is called, the MMU and the console are on, interrupts are masked and the interrupt
/// controller is untouched.
#[cfg(target_os = "none")]
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        fn __weir_guest_main(dtb: u64, _: u64, _: u64, _: u64) -> ! {
            $crate::__private::start(dtb, $main)
        }
        $crate::__private::aarch64_rt::entry!(__weir_guest_main, 8);
    };
}

/// Hints in a spin lock's waiting side that its core only waits.
pub struct YieldingWait;

impl spin::RelaxStrategy for YieldingWait {
    fn relax() {
        #[cfg(target_os = "none")]
        cpu::relax();
        #[cfg(not(target_os = "none"))]
        core::hint::spin_loop();
    }
}

/// A spin lock that hints while it waits.
pub type Mutex<T> = spin::mutex::SpinMutex<T, YieldingWait>;
