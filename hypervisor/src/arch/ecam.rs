//! The board's PCI configuration space, of bus 0 (PCI Express Base Specification 5.0, 7.2.2).

use super::{memory::device, mmio};
use crate::platform::ECAM;
use weir_vdev::pci::Config;

/// A function of bus 0.
#[derive(Clone, Copy)]
pub struct Function {
    registers: u64,
}

impl Function {
    /// The function with device number in bits 7:3 of `address` and function number below.
    #[must_use]
    pub const fn new(address: u8) -> Self {
        Self { registers: device(ECAM) + ((address as u64) << 12) }
    }
}

impl Config for Function {
    fn read(&mut self, offset: u16) -> u32 {
        // SAFETY: `Stage1::begin` maps bus 0, and the model keeps to the first 256 bytes of a
        // function. Where there is none, all ones are read. What has side effects when read is
        // behind base addresses, not here.
        unsafe { mmio::read32(self.registers + u64::from(offset & 0xfc)) }
    }

    fn write(&mut self, offset: u16, value: u32) {
        // SAFETY: as above. What a function may do to memory is bounded by the SMMU, whatever is
        // written here.
        unsafe { mmio::write32(self.registers + u64::from(offset & 0xfc), value) }
    }
}
