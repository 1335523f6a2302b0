//! The packed system, which `weir build` has put behind the hypervisor.

use spin::Once;
use weir_abi::System;

static SYSTEM: Once<System<'static>> = Once::new();

/// Sets the packed system; on the boot core, before it starts a VM or another core.
pub fn set(system: System<'static>) -> &'static System<'static> {
    SYSTEM.call_once(|| system)
}

/// The packed system.
///
/// # Panics
///
/// Never: the boot core sets it before it starts a VM or another core.
#[must_use]
pub fn get() -> &'static System<'static> {
    SYSTEM.get().expect("set by the boot core")
}
