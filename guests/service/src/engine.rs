//! The DMA engine. The hypervisor drives it for this VM, within the memory that this VM has.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use weir_broker::{broker::EngineFailed, clock::Clock};
use weir_exchange::flows::BrokerSettings;
use weir_guest::{
    cpu,
    gic::{self, Interrupt},
    hypercall::{self, Progress},
    time,
};

/// The engine's interrupt; 0 if the core moves everything.
static INTID: AtomicU32 = AtomicU32::new(0);
static IS_COHERENT: AtomicBool = AtomicBool::new(false);
/// How long a transfer may take, in ticks of the counter.
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// A [`Progress`]: what was found of the last transfer; busy while one goes on.
static FOUND: AtomicU8 = AtomicU8::new(Progress::Done as u8);

/// Takes the engine into use if the system has one. Once, on the core that serves.
pub fn begin(settings: &BrokerSettings) {
    if settings.engine_from == u64::MAX {
        return;
    }
    IS_COHERENT.store(settings.engine_is_coherent, Relaxed);
    // The broker's clock, which needs no division of 128 bits.
    let limit = Clock::new(0, time::frequency()).ticks(settings.engine_limit.0);
    LIMIT.store(limit, Relaxed);
    INTID.store(settings.engine_intid.0, Relaxed);
    gic::enable(settings.engine_intid.0);
}

/// Handles the engine's interrupt; returns false for another. The engine's line falls by the call,
/// if it has not fallen by an earlier one.
pub fn handle(interrupt: Interrupt) -> bool {
    let is_its = interrupt.intid == INTID.load(Relaxed);
    if is_its && FOUND.load(Relaxed) == Progress::Busy as u8 {
        FOUND.store(hypercall::finish_engine(false) as u8, Relaxed);
    }
    is_its
}

/// Has the engine move `len` bytes, and waits until it has.
///
/// If the engine does not see the caches, `copy` copies what is not a whole line of the target:
/// another core can have the rest of that line, and would write it back over what the engine wrote.
/// Only this VM writes the lines between while the buffer is the device's.
///
/// # Errors
///
/// The hypervisor refuses, or the engine failed or took longer than the settings allow; it does not
/// write there any more.
pub fn transfer(
    from: u64,
    to: u64,
    len: u64,
    mut copy: impl FnMut(u64, u64, u64),
) -> Result<(), EngineFailed> {
    let is_coherent = IS_COHERENT.load(Relaxed);
    let line = if is_coherent { 1 } else { cpu::data_line() };
    let head = (to.wrapping_neg() % line).min(len);
    let tail = (to + len) % line;
    let end = len.saturating_sub(tail).max(head);
    copy(from, to, head);
    copy(from + end, to + end, len - end);
    let (from, to, len) = (from + head, to + head, end - head);
    if len == 0 {
        return Ok(());
    }
    if !is_coherent {
        // What the sender wrote goes to memory, where the engine reads it; and no line of the
        // target's is left that could go there later.
        cpu::clean_data(from, len);
        cpu::clean_data(to, len);
    }
    if !hypercall::start_engine(from, to, len) {
        return Err(EngineFailed);
    }
    // Interrupts are masked: the handler has not run yet.
    FOUND.store(Progress::Busy as u8, Relaxed);
    let due = time::now() + LIMIT.load(Relaxed);
    let found = loop {
        // No sleep: a core that VMs share would be given away, for a round with each chunk. And no
        // exception, which would save and restore all registers.
        if cpu::has_interrupt() {
            gic::dispatch();
        }
        let found = FOUND.load(Relaxed);
        if found != Progress::Busy as u8 {
            break found;
        }
        if time::now() >= due {
            // It may have ended just now; or it completes what it has begun.
            FOUND.store(hypercall::finish_engine(true) as u8, Relaxed);
        }
        cpu::relax();
    };
    if !is_coherent {
        // Lines that were filled meanwhile hold what was there before.
        cpu::clean_data(to, len);
    }
    if found == Progress::Done as u8 { Ok(()) } else { Err(EngineFailed) }
}
