//! The packed system, which `weir build` puts behind the hypervisor.

use crate::{arch::set_once::SetOnce, halt};
use weir_abi::PackedSystem;

static SYSTEM: SetOnce<PackedSystem<'static>> = SetOnce::new();

/// Sets the packed system. Called on the boot core, before it starts a VM or another core.
pub fn set(system: PackedSystem<'static>) -> &'static PackedSystem<'static> {
    SYSTEM.set(system);
    get()
}

/// Returns the packed system, which the boot core sets before any code reads it.
#[must_use]
pub fn get() -> &'static PackedSystem<'static> {
    SYSTEM.get().unwrap_or_else(|| halt::unset())
}
