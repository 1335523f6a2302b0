//! The board's PCI configuration space, of bus 0 (PCI Express Base Specification 5.0, 7.2.2).

use super::{
    memory::device,
    mmio::{Device, Register},
};
use crate::board;
use weir_units::Pa;
use weir_vdev::pci::Config;

/// The configuration space of bus 0.
// SAFETY: `Stage1::begin` maps it, and the model keeps to the first 256 bytes of a function. Where
// there is none, all ones are read. What has side effects when read is behind base addresses, not
// here. What a function may do to memory is bounded by the SMMU, for any write.
const ECAM: Device = unsafe { Device::new("ecam", device(Pa(board::ECAM))) };

/// A function of bus 0.
#[derive(Clone, Copy)]
pub struct Function {
    registers: Device,
}

impl Function {
    /// The function with device number in bits 7:3 of `address` and function number below.
    #[must_use]
    pub const fn new(address: u8) -> Self {
        Self { registers: ECAM.at_offset((address as u64) << 12) }
    }
}

/// The word at `offset`.
const fn word(offset: u16) -> Register<u32> {
    Register::at(offset as u64 & 0xfc)
}

impl Config for Function {
    fn read(&mut self, offset: u16) -> u32 {
        self.registers.read(word(offset))
    }

    fn write(&mut self, offset: u16, value: u32) {
        self.registers.write(word(offset), value);
    }
}
