//! The distributor's registers (IHI0069, 12.9; the same in IHI0048, 4.3), and what both kinds of
//! GIC agree on. Those of private interrupts lie at the same offsets of the place that belongs to a
//! core.

use crate::{
    arch::{
        memory::device,
        mmio::{Device, Register, SetClear},
    },
    board,
};
use weir_units::Pa;

/// Most list registers that are used: what Cortex-A53 and A72 have. A switch over sixteen at each
/// access would cost more than it gains.
pub const LISTS: usize = 4;

/// The priority mask that lets the hypervisor's own through.
pub const OWN_ONLY: u8 = 0xb0;

/// The distributor.
// SAFETY: `Stage1::begin` maps its 4 KiB (GICv2) or 64 KiB, and `PhysicalLine` and the constants
// below stay within. Reading changes nothing; interrupts reach EL2 or a guest, never memory.
pub const GICD: Device = unsafe { Device::new("gicd", device(Pa(board::GICD))) };

/// The control register.
pub const CTLR: Register<u32> = Register::at(0x000);
/// How many interrupts there are.
pub const TYPER: Register<u32> = Register::at(0x004);
/// The group of each.
pub const GROUP: Register<u32> = Register::at(0x080);
/// Enables.
pub const SET_ENABLE: SetClear = SetClear::at(0x100);
/// Disables.
pub const CLEAR_ENABLE: SetClear = SetClear::at(0x180);
/// Makes pending.
pub const SET_PENDING: SetClear = SetClear::at(0x200);
/// Takes that back.
pub const CLEAR_PENDING: SetClear = SetClear::at(0x280);
/// Makes active.
pub const SET_ACTIVE: SetClear = SetClear::at(0x300);
/// Deactivates.
pub const CLEAR_ACTIVE: SetClear = SetClear::at(0x380);
/// A byte for each.
pub const PRIORITY: Register<u8> = Register::at(0x400);
/// Four of them at once.
pub const PRIORITIES: Register<u32> = Register::at(0x400);
/// Two bits for each: edge-triggered or level-sensitive.
pub const CONFIG: Register<u32> = Register::at(0xc00);
