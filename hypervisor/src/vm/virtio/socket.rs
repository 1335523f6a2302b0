//! The socket device of a VM, as data.

use super::lock::Fair;
use weir_units::Cid;
use weir_vsock::{device::DeviceKind, mmio::MmioRegisters, transport::Transport};

/// EL2's state of a socket device.
pub struct Socket {
    pub transport: Transport,
    /// Number of returned buffers at the time of the last interrupt to the driver.
    pub used: Option<u32>,
    /// Time at which the interrupt for arrived packets was raised, in ticks; 0 once the driver has
    /// acknowledged it.
    pub raised: u64,
    /// Time at which the device was reset, in ns, while the broker may still access the VM's memory
    /// for it.
    pub reset: Option<u64>,
}

/// The socket device behind its lock.
pub type FlowDevice = Fair<Socket>;

/// Returns the initial device, before a VM is set up.
pub const fn new_device() -> FlowDevice {
    let registers = MmioRegisters::new(DeviceKind::Socket(Cid(0)));
    Fair::new(Socket { transport: Transport::Mmio(registers), used: None, raised: 0, reset: None })
}
