//! PSCI by HVC (DEN0022), on `smccc`.

use crate::cpu;
pub use smccc::psci::{AffinityState, LowestAffinityLevel, Version};
pub use smccc::psci::{
    Error, PSCI_AFFINITY_INFO_64, PSCI_CPU_ON_64, PSCI_FEATURES, PSCI_VERSION, error,
};
use smccc::{Hvc, psci};

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
