//! The PCI configuration space of the board's bus 0 (PCI Express Base Specification 5.0, 7.2.2).

use super::{
    memory::device,
    mmio::{Device, Register},
};
use crate::board;
use weir_units::Pa;
use weir_vdev::pci::Config;

/// The configuration space of bus 0.
// SAFETY: `Stage1::begin` maps it, and the model accesses only the first 256 bytes of a function.
// Functions that do not exist read as all ones. Registers whose reads have side effects lie behind
// base addresses and not in configuration space. For any value written here, the SMMU limits what
// the function can do to memory.
const ECAM: Device = unsafe { Device::new("ecam", device(Pa(board::ECAM))) };

/// A function of bus 0.
#[derive(Clone, Copy)]
pub struct Function {
    registers: Device,
}

impl Function {
    /// Returns the function with the device number in bits 7:3 of `address` and the function number
    /// in bits 2:0.
    #[must_use]
    pub const fn new(address: u8) -> Self {
        Self { registers: ECAM.at_offset((address as u64) << 12) }
    }
}

/// Returns the word that contains `offset`.
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
