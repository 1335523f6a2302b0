//! The packed system, which `weir build` has put behind the hypervisor.

use crate::{arch::set_once::SetOnce, halt};
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

static SYSTEM: SetOnce<PackedSystem<'static>> = SetOnce::new();

/// Sets the packed system; on the boot core, before it starts a VM or another core.
pub fn set(system: PackedSystem<'static>) -> &'static PackedSystem<'static> {
    SYSTEM.set(system);
    get()
}

/// Returns the packed system, which the boot core sets before anything asks for it.
#[must_use]
pub fn get() -> &'static PackedSystem<'static> {
    SYSTEM.get().unwrap_or_else(|| halt::unset())
}
