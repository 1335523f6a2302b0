//! A socket device on the transport that its VM was given.

use crate::{device::Device, mmio::MmioRegisters, pci::VirtioFunction, queue::Queue};

/// How a driver sees its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By registers at a fixed address.
    Mmio(MmioRegisters),
    /// As a PCI function.
    Pci(VirtioFunction),
}

impl Transport {
    fn device(&mut self) -> &mut Device {
        match self {
            Self::Mmio(registers) => registers.device(),
            Self::Pci(function) => function.device(),
        }
    }

    /// Queue `index` while it is in use, and the device can reach memory.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        match self {
            Self::Mmio(registers) => registers.queue(index),
            Self::Pci(function) => function.queue(index),
        }
    }

    /// The interrupt's level.
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
