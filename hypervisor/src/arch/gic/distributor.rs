//! The distributor's registers, and what both kinds of GIC agree on.

use crate::{
    arch::{memory::device, mmio},
    platform::GICD,
};

/// Most list registers that are used: what Cortex-A53 and A72 have. A switch over sixteen at each
/// access would cost more than it gains.
pub const LISTS: usize = 4;

/// The priority mask that lets the hypervisor's own through.
pub const OWN_ONLY: u8 = 0x90;

/// The control register.
pub const CTLR: u64 = 0x000;

/// Reads the distributor.
pub fn gicd_read(offset: u64) -> u32 {
    // SAFETY: `Stage1::begin` maps the distributor's 4 KiB (GICv2) or 64 KiB, and callers stay
    // within. Reading its registers changes nothing.
    unsafe { mmio::read32(device(GICD) + offset) }
}

/// Writes the distributor.
pub fn gicd_write(offset: u64, value: u32) {
    // SAFETY: as above; interrupts reach EL2 or a guest, never memory.
    unsafe { mmio::write32(device(GICD) + offset, value) }
}
