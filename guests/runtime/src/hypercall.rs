//! weir's own hypercalls: vendor-specific hypervisor service calls by HVC, SMC64 (Arm SMC Calling
//! Convention DEN0028, table of function identifiers).

use core::arch::asm;

/// Does nothing.
pub const NULL: u32 = 0xC600_0000;
/// How many times this VM was restarted.
pub const RESTARTS: u32 = 0xC600_0001;
/// Sets a memory budget.
pub const SET_BUDGET: u32 = 0xC600_0002;

/// Marks a point of the program in the trace.
pub const MARK: u32 = 0xC600_0008;

/// Hands the console and the active devices to a VM.
pub const HAND_OVER: u32 = 0xC600_0004;
/// Whether the active devices are this VM's.
pub const HAS_DEVICES: u32 = 0xC600_0005;

/// Hands the console's input at once, and the active devices as soon as none of their interrupts is
/// being handled, to the VM at place `vm` of the system file; whether that was granted.
#[must_use]
pub fn hand_over(vm: u64) -> bool {
    call(HAND_OVER, [vm, 0, 0]) == 0
}

/// Whether the active devices are this VM's now.
#[must_use]
pub fn has_devices() -> bool {
    call(HAS_DEVICES, [0; 3]) == 1
}

/// Where Arm's paravirtualized time (DEN0057) is asked for.
pub const PV_TIME_FEATURES: u32 = 0xC500_0020;
/// Where the calling vCPU's stolen time is.
pub const PV_TIME_ST: u32 = 0xC500_0021;
/// SMCCC_ARCH_FEATURES.
const ARCH_FEATURES: u32 = 0x8000_0001;

/// Address of the record of this vCPU's stolen time (DEN0057, section 4); none if the hypervisor
/// has no record.
#[must_use]
pub fn stolen_time() -> Option<u64> {
    let has = |asked, what: u32| call(asked, [what.into(), 0, 0]) == 0;
    let known = has(ARCH_FEATURES, PV_TIME_FEATURES)
        && has(PV_TIME_FEATURES, PV_TIME_FEATURES)
        && has(PV_TIME_FEATURES, PV_TIME_ST);
    known.then(|| u64::try_from(call(PV_TIME_ST, [0; 3])).ok())?
}

/// Tells that there are completions; of the broker only.
pub const COMPLETE: u32 = 0xC600_0003;

/// Has the DMA engine move bytes; of the broker only.
pub const START_ENGINE: u32 = 0xC600_0006;
/// Asks whether it has; of the broker only.
pub const FINISH_ENGINE: u32 = 0xC600_0007;

/// How far the DMA engine is with what it was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has moved all.
    Done,
    /// It is at work.
    Busy,
    /// It has not moved all, and does nothing any more; or there was nothing to move.
    Failed,
}

/// Has the DMA engine move `len` bytes between two addresses of this VM; whether it began.
#[inline(always)]
#[must_use]
pub fn start_engine(from: u64, to: u64, len: u64) -> bool {
    call(START_ENGINE, [from, to, len]) == 0
}

/// How far the engine is; one that is at work is stopped if `gives_up`.
#[inline(always)]
#[must_use]
pub fn finish_engine(gives_up: bool) -> Progress {
    match call(FINISH_ENGINE, [gives_up.into(), 0, 0]) {
        0 => Progress::Done,
        1 => Progress::Busy,
        _ => Progress::Failed,
    }
}

/// Calls `function` with arguments in x1 to x3; the answer is x0.
#[inline(always)]
#[must_use]
pub fn call(function: u32, arguments: [u64; 3]) -> i64 {
    hvc(function, arguments)[0].cast_signed()
}

/// Calls `function` with arguments in x1 to x3; the answers are x0 and x1. No call of weir's takes
/// more, so that no other register is set.
#[inline(always)]
fn hvc(function: u32, [x1, x2, x3]: [u64; 3]) -> [u64; 2] {
    let (first, second);
    // SAFETY: a call of the hypervisor's, which changes no memory of this VM but what the arguments
    // name, and of the registers at most x0 to x17 (DEN0028, section 2.6).
    unsafe {
        asm!(
            "hvc #0",
            inout("x0") u64::from(function) => first,
            inout("x1") x1 => second,
            inout("x2") x2 => _, inout("x3") x3 => _,
            lateout("x4") _, lateout("x5") _, lateout("x6") _, lateout("x7") _,
            lateout("x8") _, lateout("x9") _, lateout("x10") _, lateout("x11") _,
            lateout("x12") _, lateout("x13") _, lateout("x14") _, lateout("x15") _,
            lateout("x16") _, lateout("x17") _,
            options(nostack),
        );
    }
    [first, second]
}

/// The same by SMC, which an operating system without changes uses for PSCI.
#[inline(always)]
#[must_use]
pub fn call_by_smc(function: u32, [x1, x2, x3]: [u64; 3]) -> i64 {
    let mut args = [0; 17];
    args[..3].copy_from_slice(&[x1, x2, x3]);
    smccc::smc64(function, args)[0].cast_signed()
}

/// How many times this VM was restarted; 0 where there is no weir to ask.
#[must_use]
pub fn restarts() -> u64 {
    u64::try_from(call(RESTARTS, [0; 3])).unwrap_or(0)
}

/// Sets the memory budget of the VM at place `vm` of the system file; whether that was granted.
#[must_use]
pub fn set_budget(vm: u64, reads: u64, writes: u64) -> bool {
    call(SET_BUDGET, [vm, reads, writes]) == 0
}

/// Tells the hypervisor that the broker has completions for `devices`, a word of
/// `weir_exchange::devices`; how long it was busy with them, in ticks of the counter.
#[inline(always)]
#[must_use]
pub fn complete(devices: u64) -> u64 {
    hvc(COMPLETE, [devices, 0, 0])[1]
}
