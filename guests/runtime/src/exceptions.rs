//! Interrupts go to the guest's handler, and synchronous exceptions to its [`SyncHandler`]; an
//! exception without handler ends the guest with a panic that names syndrome and addresses.

use crate::gic;
use aarch64_rt::{ExceptionHandlers, RegisterState, RegisterStateRef, exception_handlers};
use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A synchronous exception that EL1 took from itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// ESR_EL1.
    pub esr: u64,
    /// FAR_EL1.
    pub far: u64,
    /// ELR_EL1.
    pub elr: u64,
    /// The link register (x30) at the exception.
    pub lr: u64,
}

impl Sync {
    /// The exception class, ESR_EL1.EC (Arm ARM DDI 0487, D17.2.37).
    #[must_use]
    pub const fn class(self) -> u64 {
        self.esr >> 26 & 0x3f
    }
}

/// Handles an exception and returns the address to go on at.
pub type SyncHandler = fn(Sync) -> u64;

static SYNC: AtomicUsize = AtomicUsize::new(0);

/// Sets the handler of synchronous exceptions of all cores.
pub fn on_sync(handler: SyncHandler) {
    SYNC.store(handler as usize, Ordering::Release);
}

struct Handlers;

exception_handlers!(Handlers);

impl ExceptionHandlers for Handlers {
    extern "C" fn irq_current(_: RegisterStateRef) {
        gic::dispatch();
    }

    extern "C" fn sync_current(mut state: RegisterStateRef) {
        let exception = read_syndrome(&state);
        let handler = SYNC.load(Ordering::Acquire);
        if handler != 0 {
            // SAFETY: only `on_sync` writes `SYNC`, with a `SyncHandler`.
            let handler = unsafe { core::mem::transmute::<usize, SyncHandler>(handler) };
            let elr = handler(exception);
            // SAFETY: the guest chose where to go on, for one of its own instructions.
            let state: &mut RegisterState = unsafe { state.get_mut() };
            state.elr = elr as usize;
            return;
        }
        panic!("{exception:x?}");
    }

    extern "C" fn serror_current(state: RegisterStateRef) {
        panic!("SError {:x?}", read_syndrome(&state));
    }
}

fn read_syndrome(state: &RegisterState) -> Sync {
    let esr;
    // SAFETY: reads the syndrome of the exception being handled.
    unsafe { asm!("mrs {}, esr_el1", out(reg) esr, options(nomem, nostack)) };
    let far;
    // SAFETY: as above.
    unsafe { asm!("mrs {}, far_el1", out(reg) far, options(nomem, nostack)) };
    // What `aarch64-rt` calls `sp` is x30.
    Sync { esr, far, elr: state.elr as u64, lr: state.sp }
}
