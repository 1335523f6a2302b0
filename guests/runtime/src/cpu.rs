//! This core and the others.

use crate::{board, gic};
use aarch64_rt::Stack;
use core::arch::asm;
use core::cell::UnsafeCell;
use smccc::{Hvc, psci};

pub use crate::board::MAX_CORES;

const STACK_PAGES: usize = 4;

struct Stacks(UnsafeCell<[Stack<STACK_PAGES>; MAX_CORES]>);

// SAFETY: a core's stack is touched by `start` while that core is off and by that core after.
unsafe impl Sync for Stacks {}

#[unsafe(link_section = ".stack.secondary")]
static STACKS: Stacks = Stacks(UnsafeCell::new([const { Stack::new() }; MAX_CORES]));

/// The index of the running core in [`crate::Board::cores`].
#[inline]
#[must_use]
pub fn index() -> usize {
    let value;
    // SAFETY: reads the software thread register that `set_index` writes.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) value, options(nomem, nostack)) };
    value
}

pub(crate) fn set_index(core: usize) {
    // SAFETY: the register is for software's use.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) core, options(nomem, nostack)) };
}

/// MPIDR_EL1 of the running core.
#[must_use]
pub fn mpidr() -> u64 {
    let value;
    // SAFETY: reads an identification register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) value, options(nomem, nostack)) };
    value
}

/// Starts a core that is off, with its interrupt controller interface on and interrupts masked. When
/// `entry` returns, the core turns itself off.
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
pub unsafe fn start(core: usize, entry: fn(usize)) -> Result<(), psci::Error> {
    let stack = STACKS.0.get().cast::<Stack<STACK_PAGES>>().wrapping_add(core);
    // SAFETY: `core` indexes `cores`, at most MAX_CORES long, on the right side of this call; the
    // caller says that nobody uses the stack. Both sides map it as write-back memory.
    unsafe {
        aarch64_rt::start_core::<Hvc, _, STACK_PAGES>(board().cores()[core], stack, move || {
            set_index(core);
            gic::init_core();
            entry(core);
            mask_interrupts();
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
pub unsafe fn power_down(entry: fn() -> !) -> Option<psci::Error> {
    /// StateType, power-down (DEN0022, 5.4.2).
    const POWER_DOWN: u32 = 1 << 16;
    extern "C" fn resume(entry: u64) -> ! {
        set_index(board().core_of_mpidr(mpidr()).expect("this core is in the device tree"));
        gic::init_core();
        // SAFETY: `power_down` passed it.
        let entry = unsafe { core::mem::transmute::<usize, fn() -> !>(entry as usize) };
        entry()
    }
    let stack = STACKS.0.get().cast::<Stack<STACK_PAGES>>().wrapping_add(index());
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

/// Unmasks IRQs on this core.
#[inline]
pub fn unmask_interrupts() {
    // SAFETY: the vectors are in place since `aarch64-rt`'s entry.
    unsafe { asm!("msr daifclr, #2", "isb", options(nostack)) };
}

/// Masks IRQs on this core.
#[inline]
pub fn mask_interrupts() {
    // SAFETY: only delays interrupts.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
}

/// Whether IRQs are masked on this core.
#[must_use]
pub fn interrupts_are_masked() -> bool {
    let daif: u64;
    // SAFETY: reads the mask bits.
    unsafe { asm!("mrs {}, daif", out(reg) daif, options(nomem, nostack)) };
    daif & 1 << 7 != 0
}

/// Sleeps until an interrupt is pending, and has it handled; interrupts are masked before and after. WFI wakes for a masked interrupt, too:
/// none is lost between the caller's last look and the sleep.
#[inline]
pub fn sleep() {
    wait_for_interrupt();
    unmask_interrupts();
    mask_interrupts();
}

/// Sleeps until an interrupt is pending, masked or not.
#[inline]
pub fn wait_for_interrupt() {
    // SAFETY: a hint; the barrier makes earlier writes visible before the core sleeps.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// One step of a spin loop. `yield` lets an emulator that runs its cores in turn go on to the next.
#[inline]
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}
