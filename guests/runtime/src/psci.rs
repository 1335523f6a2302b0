//! PSCI by HVC (DEN0022), on `smccc`.

use crate::{MAX_CORES, board, cpu, gic};
use aarch64_rt::Stack;
use core::cell::UnsafeCell;
pub use smccc::psci::{AffinityState, LowestAffinityLevel, Version};
pub use smccc::psci::{
    Error, PSCI_AFFINITY_INFO_64, PSCI_CPU_ON_64, PSCI_FEATURES, PSCI_VERSION, error,
};
use smccc::{Call, Hvc, Smc, psci};

const STACK_PAGES: usize = 4;

struct Stacks(UnsafeCell<[Stack<STACK_PAGES>; MAX_CORES]>);

// SAFETY: a core's stack is touched by `start_core` while that core is off and by that core after.
unsafe impl Sync for Stacks {}

#[unsafe(link_section = ".stack.secondary")]
static STACKS: Stacks = Stacks(UnsafeCell::new([const { Stack::new() }; MAX_CORES]));

/// The version that is implemented.
///
/// # Errors
///
/// What the call answers.
pub fn version() -> Result<Version, Error> {
    psci::version::<Hvc>()
}

/// Whether a core is on, off or on its way.
///
/// # Errors
///
/// What the call answers.
pub fn affinity_info(mpidr: u64) -> Result<AffinityState, Error> {
    psci::affinity_info::<Hvc>(mpidr, LowestAffinityLevel::All)
}

/// Sleeps until an interrupt is pending, with everything kept: a standby state of the core alone.
///
/// # Errors
///
/// What the call answers.
pub fn suspend_standby() -> Result<(), Error> {
    psci::cpu_suspend::<Hvc>(0, 0, 0)
}

/// Starts a core that is off, with its interrupt controller interface on and interrupts masked.
/// When `entry` returns, the core turns itself off.
///
/// # Errors
///
/// What PSCI CPU_ON answers (DEN0022, 5.6).
///
/// # Panics
///
/// If there is no such core; on that core, if it can't be turned off.
///
/// # Safety
///
/// The core must be off (AFFINITY_INFO says so): its stack is written.
pub unsafe fn start_core(core: usize, entry: fn(usize)) -> Result<(), Error> {
    // SAFETY: as the caller says.
    unsafe { start::<Hvc>(core, entry) }
}

/// As [`start_core`], by SMC.
///
/// # Errors
///
/// As [`start_core`].
///
/// # Panics
///
/// As [`start_core`].
///
/// # Safety
///
/// As [`start_core`].
pub unsafe fn start_core_by_smc(core: usize, entry: fn(usize)) -> Result<(), Error> {
    // SAFETY: as the caller says.
    unsafe { start::<Smc>(core, entry) }
}

#[inline(always)]
unsafe fn start<C: Call>(core: usize, entry: fn(usize)) -> Result<(), Error> {
    let stack = STACKS.0.get().cast::<Stack<STACK_PAGES>>().wrapping_add(core);
    // SAFETY: `core` indexes `cores`, at most MAX_CORES long, on the right side of this call; the
    // caller says that the stack is unused. Both sides map it as write-back memory.
    unsafe {
        aarch64_rt::start_core::<C, _, STACK_PAGES>(board().cores()[core], stack, move || {
            cpu::set_index(core);
            gic::init_core();
            entry(core);
            cpu::mask_interrupts();
            let refused = psci::cpu_off::<Hvc>();
            panic!("CPU_OFF returned {refused:?}");
        })
    }
}

/// Powers this core down (CPU_SUSPEND) until an interrupt is pending. It goes on at `entry`, on an
/// empty stack, with its interrupt controller interface on, its private interrupts disabled, and
/// interrupts masked. Returns only what PSCI answers if it refuses.
///
/// # Safety
///
/// Nothing refers to what is on this core's stack, or is used again.
///
/// # Panics
///
/// After the wake-up, if this core is not in the device tree.
#[must_use]
pub unsafe fn power_down(entry: fn() -> !) -> Option<Error> {
    /// StateType, power-down (DEN0022, 5.4.2).
    const POWER_DOWN: u32 = 1 << 16;
    extern "C" fn resume(entry: u64) -> ! {
        cpu::set_index(
            board().core_of_mpidr(cpu::mpidr()).expect("this core is in the device tree"),
        );
        gic::init_core();
        // SAFETY: `power_down` passed it.
        let entry = unsafe { core::mem::transmute::<usize, fn() -> !>(entry as usize) };
        entry()
    }
    let stack = STACKS.0.get().cast::<Stack<STACK_PAGES>>().wrapping_add(cpu::index());
    // SAFETY: this core's stack in `STACKS` is its own (the boot core has another one until here);
    // what is on it is not used again, as the caller says.
    let refused = unsafe {
        aarch64_rt::suspend_core::<Hvc>(
            POWER_DOWN,
            stack.wrapping_add(1).cast(),
            resume,
            entry as usize as u64,
        )
    };
    refused.err()
}

/// Ends this machine.
pub fn system_off() -> ! {
    let refused = psci::system_off::<Hvc>();
    stay(refused)
}

/// Restarts this machine.
pub fn system_reset() -> ! {
    let refused = psci::system_reset::<Hvc>();
    stay(refused)
}

/// Neither call may return (DEN0022, 5.9 and 5.10).
fn stay(refused: Result<(), Error>) -> ! {
    crate::println!("PSCI refused: {refused:?}");
    cpu::mask_interrupts();
    loop {
        cpu::wait_for_interrupt();
    }
}
