//! Messages between cores: one mailbox per core, and the SGI that makes the core read it.

use crate::{arch::gic, system};
use core::sync::atomic::{AtomicU32, Ordering};
use weir_abi::MAX_CORES;
use weir_units::CoreId;

/// Message: fold the list registers for another vCPU that reads the distributor.
pub const FOLD: u32 = 1 << 0;
/// Message: stop the vCPU, because its VM's boot ends.
pub const STOP: u32 = 1 << 1;
/// Message: turn the vCPU on.
pub const START: u32 = 1 << 2;
/// Message, to the core of a VM's first vCPU: all vCPUs of the VM are off, so its boot has ended.
pub const ENDED: u32 = 1 << 3;
/// Message: there is console input for a VM of this core.
pub const INPUT: u32 = 1 << 4;
/// Message: there is room again for the console output of a VM of this core.
pub const ROOM: u32 = 1 << 5;
/// Message to the console core: bytes wait for the UART.
pub const CONSOLE: u32 = 1 << 6;
/// Message to every core: the system ends.
pub const SHUTDOWN: u32 = 1 << 7;
/// Message: memory budget has become free; ask the regulator again.
pub const BUDGET: u32 = 1 << 8;
/// Message: hand over the active devices if their owner is to change.
pub const HAND_OVER: u32 = 1 << 10;

static MAIL: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Returns core `core`'s mailbox. The index is taken modulo [`MAX_CORES`], so it is never out of
/// bounds; core numbers are below it anyway (`packed`).
fn mail(core: CoreId) -> &'static AtomicU32 {
    &MAIL[core.index() % MAX_CORES]
}

/// Puts `message` into core `core`'s mailbox and interrupts it.
#[inline(never)]
pub fn send(core: CoreId, message: u32) {
    // Release: the data that the message refers to is written before; the receiver's `take`
    // acquires. If the message is already in the mailbox, its SGI is under way or not yet taken, so
    // no second SGI is needed.
    if mail(core).fetch_or(message, Ordering::Release) & message != message {
        gic::send([core], gic::SGI_MESSAGE);
    }
}

/// Puts `message` into the mailbox of every core of the system.
pub fn send_to_all(message: u32) {
    let cores = system::get().header.cores as usize;
    for core in 0..cores.min(MAX_CORES) {
        send(CoreId(core as u8), message);
    }
}

/// Removes those of `messages` that are in core `core`'s mailbox and returns them.
#[must_use]
pub fn take(core: CoreId, messages: u32) -> u32 {
    // Acquire: see `send`.
    mail(core).fetch_and(!messages, Ordering::Acquire) & messages
}

/// Returns whether core `core`'s mailbox holds messages, but only those that the console core sends
/// to itself to continue.
#[must_use]
pub fn is_console(core: CoreId) -> bool {
    // Relaxed: as in `is_quiet`.
    let messages = mail(core).load(Ordering::Relaxed);
    messages != 0 && messages & !CONSOLE == 0
}

/// Returns whether core `core`'s mailbox is empty. A message that arrives later comes with an SGI.
#[inline(always)]
#[must_use]
pub fn is_quiet(core: CoreId) -> bool {
    // Relaxed: a core that finds a message takes it, and acquires then.
    mail(core).load(Ordering::Relaxed) == 0
}
