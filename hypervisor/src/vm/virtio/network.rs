//! The network device of a VM, as data.

use crate::arch::lock::Lock;
use weir_vsock::mmio::{DeviceKind, MmioRegisters};

/// The network device of a VM.
pub type SwitchDevice = Lock<NetDevice>;

/// The network device of a VM: its registers, as EL2 emulates them.
pub struct NetDevice {
    pub registers: MmioRegisters,
    /// Number of returned buffers at the time of the last interrupt to the driver.
    pub used: Option<u32>,
    /// Time at which the device was reset, in ns, while the broker may still access the VM's memory
    /// for it.
    pub reset: Option<u64>,
}

/// Returns the initial device, before a VM is set up.
pub const fn new_device() -> SwitchDevice {
    let registers = MmioRegisters::new(DeviceKind::Network(0));
    Lock::new(NetDevice { registers, used: None, reset: None })
}
