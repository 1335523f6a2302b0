//! The network device of a VM, as data.

use crate::arch::lock::Lock;
use weir_vsock::mmio::{DeviceKind, Registers};

/// The network device of a VM.
pub type SwitchDevice = Lock<Port>;

/// A port of the switch.
pub struct Port {
    pub(super) registers: Registers,
    /// Returns of buffers that the driver was interrupted for.
    pub(super) used: Option<u32>,
}

/// Returns the device of no VM.
pub const fn new_device() -> SwitchDevice {
    Lock::new(Port { registers: Registers::new(DeviceKind::Network(0)), used: None })
}
