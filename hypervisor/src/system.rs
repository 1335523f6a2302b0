//! The packed system, which `weir build` has put behind the hypervisor.

use spin::Once;
use weir_abi::{Features, PackedSystem};

/// The optional parts that this build has.
pub const BUILT: Features = Features::NONE
    .with(Features::FLOWS.when(cfg!(feature = "flows")))
    .with(Features::SWITCH.when(cfg!(feature = "switch")))
    .with(Features::PCI.when(cfg!(feature = "pci")))
    .with(Features::SHARED_CORES.when(cfg!(feature = "shared-cores")))
    .with(Features::BUDGETS.when(cfg!(feature = "budgets")))
    .with(Features::GUEST_PMU.when(cfg!(feature = "guest-pmu")))
    .with(Features::ENGINE.when(cfg!(feature = "engine")))
    .with(Features::PAGE_CLASSES.when(cfg!(feature = "page-classes")))
    .with(Features::FOCUS.when(cfg!(feature = "focus")));

static SYSTEM: Once<PackedSystem<'static>> = Once::new();

/// Sets the packed system; on the boot core, before it starts a VM or another core.
pub fn set(system: PackedSystem<'static>) -> &'static PackedSystem<'static> {
    SYSTEM.call_once(|| system)
}

/// The packed system.
///
/// # Panics
///
/// Never: the boot core sets it before it starts a VM or another core.
#[must_use]
pub fn get() -> &'static PackedSystem<'static> {
    SYSTEM.get().expect("set by the boot core")
}
