//! The network device of a VM, as data.

use crate::arch::lock::Lock;
use weir_vsock::mmio::{DeviceKind, MmioRegisters};

/// The network device of a VM.
pub type SwitchDevice = Lock<NetDevice>;

/// The network device of a VM: its registers, as EL2 emulates them.
pub struct NetDevice {
    pub registers: MmioRegisters,
    /// Returns of buffers that the driver was interrupted for.
    pub used: Option<u32>,
    /// When it was reset, in ns, if the broker has accessed the VM's memory for it since then.
    pub reset: Option<u64>,
}

/// Returns the device of no VM.
pub const fn new_device() -> SwitchDevice {
    let registers = MmioRegisters::new(DeviceKind::Network(0));
    Lock::new(NetDevice { registers, used: None, reset: None })
}
