//! A socket device on the transport that its VM was given.

use crate::{device::Device, mmio::MmioRegisters, pci::VirtioFunction, queue::Queue};

/// The transport by which a driver reaches its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Registers at a fixed address.
    Mmio(MmioRegisters),
    /// A PCI function.
    Pci(VirtioFunction),
}

impl Transport {
    fn device(&mut self) -> &mut Device {
        match self {
            Self::Mmio(registers) => registers.device(),
            Self::Pci(function) => function.device(),
        }
    }

    /// Returns queue `index` if it is in use and the device can access memory.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        match self {
            Self::Mmio(registers) => registers.queue(index),
            Self::Pci(function) => function.queue(index),
        }
    }

    /// Whether the device asserts its interrupt.
    #[must_use]
    pub const fn line(&self) -> bool {
        match self {
            Self::Mmio(registers) => registers.line(),
            Self::Pci(function) => function.line(),
        }
    }

    /// See [`Device::signal_used`].
    pub fn signal_used(&mut self) {
        self.device().signal_used();
    }

    /// See [`Device::is_broken`].
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        match self {
            Self::Mmio(registers) => registers.is_broken(),
            Self::Pci(function) => function.is_broken(),
        }
    }

    /// See [`Device::break_down`].
    pub fn break_down(&mut self) {
        self.device().break_down();
    }
}
