//! The cores: what each keeps to itself, and how one tells another something.

use crate::{
    arch::{gic, sysreg},
    console::Wire,
    vm::{Counts, Vm},
};
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
};
use weir_config::packed::MAX_CORES;
use weir_vboard::smccc::Mitigations;

/// Message: fold the list registers for another vCPU that reads the distributor.
pub const FOLD: u32 = 1 << 0;
/// Message: stop the vCPU, its VM's life ends.
pub const STOP: u32 = 1 << 1;
/// Message: turn the vCPU on.
pub const START: u32 = 1 << 2;
/// Message: a life of the VM whose first vCPU is here has ended.
pub const ENDED: u32 = 1 << 3;
/// Message: a person typed something for this VM.
pub const INPUT: u32 = 1 << 4;
/// Message: the VM's output has room again.
pub const ROOM: u32 = 1 << 5;
/// Message: bytes wait for the UART; to the console core.
pub const CONSOLE: u32 = 1 << 6;
/// Message: the system ends; to the console core.
pub const SHUTDOWN: u32 = 1 << 7;

static MAIL: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Puts `message` into core `core`'s mailbox and makes it look.
pub fn tell(core: usize, message: u32) {
    let Some(mail) = MAIL.get(core) else { return };
    // Release: what the message speaks of was written before; the receiver's `take` acquires. A message that is already there
    // has its SGI under way or not yet looked at, and needs no second one.
    if mail.fetch_or(message, Ordering::Release) & message != message {
        gic::send(core, gic::SGI_MESSAGE);
    }
}

/// Takes those of `messages` that are in core `core`'s mailbox.
#[must_use]
pub fn take(core: usize, messages: u32) -> u32 {
    let Some(mail) = MAIL.get(core) else { return 0 };
    // Acquire: see `tell`.
    mail.fetch_and(!messages, Ordering::Acquire) & messages
}

/// What a core keeps to itself.
pub struct Core {
    /// Its number, as the platform counts.
    pub index: usize,
    /// The VM whose vCPU it runs, and which one.
    pub seat: Option<&'static Seat>,
    /// An interrupt that was acknowledged on the fast path and is handled on the slow one.
    pub acknowledged: u32,
    /// The board's UART, on the console core.
    pub wire: Option<Wire>,
    /// What the firmware offers against speculation attacks.
    pub mitigations: Mitigations,
    /// What its own timer is for.
    pub ticks: Ticks,
}

/// What a core's own timer is for: reports, on the console core, and under QEMU's instruction counting to end a core's
/// turn, as a turn lasts until the next deadline of any timer.
pub struct Ticks {
    /// Microseconds from one tick to the next; 0 for none.
    pub interval_us: u32,
    /// Nanoseconds from one report of the counters to the next; 0 for none.
    pub report_ns: u64,
    /// When the last report was due.
    pub reported: u64,
}

impl Ticks {
    /// Whether the counters are to be reported at `now`.
    pub fn due(&mut self, now: u64) -> bool {
        let due = self.report_ns > 0 && now.saturating_sub(self.reported) >= self.report_ns;
        if due {
            self.reported = now - now % self.report_ns;
        }
        due
    }
}

/// A vCPU's place on a core.
#[derive(Clone, Copy)]
pub struct Seat {
    /// The VM.
    pub vm: &'static Vm,
    /// The vCPU's number in it.
    pub vcpu: usize,
    /// Where its exits are counted.
    pub counts: &'static Counts,
}

struct Local(UnsafeCell<Core>);

// SAFETY: element `n` is used by core `n` alone: `claim` is called there once, and hands the only reference to the exception
// vectors by TPIDR_EL2.
unsafe impl Sync for Local {}

static LOCAL: [Local; MAX_CORES] = [const {
    Local(UnsafeCell::new(Core {
        index: 0,
        seat: None,
        acknowledged: gic::SPECIAL,
        wire: None,
        mitigations: Mitigations::NONE,
        ticks: Ticks { interval_us: 0, report_ns: 0, reported: 0 },
    }))
}; MAX_CORES];

/// Makes the calling core number `index` and gives it its own.
///
/// # Safety
///
/// Called once on each core, with a number below [`MAX_CORES`] that no other core has.
pub unsafe fn claim(index: usize) -> &'static mut Core {
    let place = LOCAL[index].0.get();
    sysreg::tpidr_el2::write(place as u64);
    // SAFETY: by the contract nobody else has this element.
    let core = unsafe { &mut *place };
    core.index = index;
    core
}

/// Number of the calling core.
#[must_use]
pub fn this() -> usize {
    let place = sysreg::tpidr_el2::read() as *const Core;
    // SAFETY: `claim` put the address of this core's element there before anything else ran on it; the number is written
    // there only.
    unsafe { (*place).index }
}
