//! The distributor's registers (IHI0069, 12.9; IHI0048, 4.3 has the same), and the constants that
//! both GIC versions share. The registers of private interrupts have the same offsets in the
//! register frame of each core.

use crate::{
    arch::{
        memory::device,
        mmio::{Device, Register, SetClear},
    },
    board,
};
use weir_units::Pa;

/// Largest number of list registers that EL2 uses, which is what Cortex-A53 and A72 have. A `match`
/// over sixteen at each access would cost more than it gains.
pub const LISTS: usize = 4;

/// The priority mask that lets only the hypervisor's own interrupts through.
pub const OWN_ONLY: u8 = 0xb0;

/// The distributor.
// SAFETY: `Stage1::begin` maps its 4 KiB (GICv2) or 64 KiB, and `PhysicalLine` and the constants
// below stay within them. Reading changes nothing; interrupts reach EL2 or a guest, never memory.
pub const GICD: Device = unsafe { Device::new("gicd", device(Pa(board::GICD))) };

/// The control register.
pub const CTLR: Register<u32> = Register::at(0x000);
/// The type register: how many interrupts the distributor supports.
pub const TYPER: Register<u32> = Register::at(0x004);
/// The group of each interrupt.
pub const GROUP: Register<u32> = Register::at(0x080);
/// Enables interrupts.
pub const SET_ENABLE: SetClear = SetClear::at(0x100);
/// Disables interrupts.
pub const CLEAR_ENABLE: SetClear = SetClear::at(0x180);
/// Makes interrupts pending.
pub const SET_PENDING: SetClear = SetClear::at(0x200);
/// Clears the pending state.
pub const CLEAR_PENDING: SetClear = SetClear::at(0x280);
/// Makes interrupts active.
pub const SET_ACTIVE: SetClear = SetClear::at(0x300);
/// Deactivates interrupts.
pub const CLEAR_ACTIVE: SetClear = SetClear::at(0x380);
/// The priority of each interrupt, one byte each.
pub const PRIORITY: Register<u8> = Register::at(0x400);
/// The priorities of four interrupts in one word.
pub const PRIORITIES: Register<u32> = Register::at(0x400);
/// Two bits per interrupt: edge-triggered or level-sensitive.
pub const CONFIG: Register<u32> = Register::at(0xc00);
