//! The socket device of a VM, as data.

use super::lock::Fair;
use weir_units::Cid;
use weir_vsock::{device::DeviceKind, mmio::MmioRegisters, transport::Transport};

/// What EL2 has of a socket device.
pub struct Socket {
    pub transport: Transport,
    /// Returns of buffers that the driver was interrupted for.
    pub used: Option<u32>,
    /// When the interrupt was raised for what had arrived, in ticks; 0 once the driver has
    /// acknowledged it.
    pub raised: u64,
    /// When it was reset, in ns, if the broker has accessed the VM's memory for it since then.
    pub reset: Option<u64>,
}

/// The same behind its lock.
pub type FlowDevice = Fair<Socket>;

/// Returns the device of no VM.
pub const fn new_device() -> FlowDevice {
    let registers = MmioRegisters::new(DeviceKind::Socket(Cid(0)));
    Fair::new(Socket { transport: Transport::Mmio(registers), used: None, raised: 0, reset: None })
}
