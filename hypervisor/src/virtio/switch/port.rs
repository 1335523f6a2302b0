//! The network device of a VM, as data.

use crate::arch::lock::Lock;
use weir_vsock::mmio::{DeviceKind, Registers};

/// The network device of a VM.
pub type SwitchDevice = Lock<NetDevice>;

/// The network device of a VM: its registers, as EL2 emulates them.
pub struct NetDevice {
    pub(super) registers: Registers,
    /// Returns of buffers that the driver was interrupted for.
    pub(super) used: Option<u32>,
}

/// Returns the device of no VM.
pub const fn new_device() -> SwitchDevice {
    Lock::new(NetDevice { registers: Registers::new(DeviceKind::Network(0)), used: None })
}
