//! Messages between cores: one mailbox per core, and the SGI that makes the core read it.

use crate::{arch::gic, system};
use core::sync::atomic::{AtomicU32, Ordering};
use weir_abi::MAX_CORES;
use weir_units::CoreId;

/// Message: fold the list registers for another vCPU that reads the distributor.
pub const FOLD: u32 = 1 << 0;
/// Message: stop the vCPU, its VM's boot ends.
pub const STOP: u32 = 1 << 1;
/// Message: turn the vCPU on.
pub const START: u32 = 1 << 2;
/// Message: a boot of the VM with its first vCPU here has ended.
pub const ENDED: u32 = 1 << 3;
/// Message: a person typed something for this VM.
pub const INPUT: u32 = 1 << 4;
/// Message: the VM's output has room again.
pub const ROOM: u32 = 1 << 5;
/// Message: bytes wait for the UART; to the console core.
pub const CONSOLE: u32 = 1 << 6;
/// Message: the system ends; to every core.
pub const SHUTDOWN: u32 = 1 << 7;
/// Message: memory budget has come free; ask again.
pub const BUDGET: u32 = 1 << 8;
/// Message: hand the active devices over, if they are to go elsewhere.
pub const HAND_OVER: u32 = 1 << 10;

/// Message: send the next record of the report; of the console core to itself.
pub const REPORT: u32 = 1 << 12;

static MAIL: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Core `core`'s mailbox. Masked, so that no number can reach beyond; cores are below [`MAX_CORES`]
/// anyway (`packed`).
fn mail(core: CoreId) -> &'static AtomicU32 {
    &MAIL[core.index() % MAX_CORES]
}

/// Puts `message` into core `core`'s mailbox and interrupts it.
#[inline(never)]
pub fn send(core: CoreId, message: u32) {
    // Release: what the message speaks of was written before; the receiver's `take` acquires. A
    // message that is already there has its SGI under way or not yet taken, and needs no second
    // one.
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

/// Takes those of `messages` that are in core `core`'s mailbox.
#[must_use]
pub fn take(core: CoreId, messages: u32) -> u32 {
    // Acquire: see `send`.
    mail(core).fetch_and(!messages, Ordering::Acquire) & messages
}

/// Whether core `core`'s mailbox has nothing but what the console core sends itself to go on.
#[must_use]
pub fn is_console(core: CoreId) -> bool {
    // Relaxed: as in `is_quiet`.
    let messages = mail(core).load(Ordering::Relaxed);
    messages != 0 && messages & !(CONSOLE | REPORT) == 0
}

/// Whether nothing is in core `core`'s mailbox. What is put there later comes with an SGI.
#[inline(always)]
#[must_use]
pub fn is_quiet(core: CoreId) -> bool {
    // Relaxed: a core that finds something takes it, and acquires then.
    mail(core).load(Ordering::Relaxed) == 0
}
