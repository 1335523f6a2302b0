//! A socket device on the PCI transport (virtio 1.2, section 4.1): the configuration space of its
//! function, and the registers at its base address.
//!
//! The base address is fixed, like those of functions that are passed through (`weir_vdev::pci`): a
//! driver can read its size, but a write of another address is ignored. The function interrupts by
//! INTA and has no MSI-X, so its driver uses INTA (section 4.1.4.5).

mod registers;
mod space;

use crate::{
    device::{Device, DeviceKind, Effect},
    memory::Ram,
    queue::{MAX_SIZE, Queue},
};
use registers::CommonRegisters;
use space::{Space, Window};
use weir_units::Cid;

/// Length in bytes of the registers at the base address.
pub const LEN: u64 = 0x4000;
/// Length in bytes of a function's configuration space (PCI Express Base Specification 5.0, section
/// 7.2.2).
pub const SPACE_LEN: u64 = 0x1000;

/// A socket device as a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioFunction {
    device: Device,
    registers: CommonRegisters,
    space: Space,
}

impl VirtioFunction {
    /// Returns the function after a reset. `cid` is the guest's context identifier; the registers
    /// are at `base`, a multiple of [`LEN`].
    #[must_use]
    pub const fn new(cid: Cid, base: u32) -> Self {
        Self {
            device: Device::new(DeviceKind::Socket(cid), MAX_SIZE),
            registers: CommonRegisters::new(),
            space: Space::new(base),
        }
    }

    /// Returns the device.
    pub const fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Returns queue `index` if it is in use and the function may access memory.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        if self.space.is_master() { self.device.queue(index) } else { None }
    }

    /// See [`Device::is_broken`].
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.device.is_broken()
    }

    /// Whether the function asserts INTA.
    #[must_use]
    pub const fn line(&self) -> bool {
        self.device.interrupts() && !self.space.is_silent()
    }

    /// Reads `size` bytes (1, 2, 4 or 8) at `offset` of the registers. Returns zero where there is
    /// no register, and all ones if the function does not answer at its base address.
    pub fn read(&mut self, offset: u64, size: u64) -> (u64, Effect) {
        if !self.space.answers() {
            return (u64::MAX >> (64 - size.clamp(1, 8) * 8), Effect::None);
        }
        self.registers.read(&mut self.device, offset, size)
    }

    /// Writes `size` bytes (1, 2, 4 or 8) at `offset` of the registers. Does nothing if there is no
    /// register, if it is read-only, or if the access does not have its width. An address of 64
    /// bits can be written by halves or as a whole.
    pub fn write(&mut self, offset: u64, size: u64, value: u64, memory: &impl Ram) -> Effect {
        if !self.space.answers() {
            return Effect::None;
        }
        self.store(offset, size, value, memory)
    }

    fn store(&mut self, offset: u64, size: u64, value: u64, memory: &impl Ram) -> Effect {
        let effect = self.registers.write(&mut self.device, offset, size, value, memory);
        match effect {
            Effect::Notified(index) if self.queue(index).is_none() => Effect::None,
            effect => effect,
        }
    }

    /// Reads `size` bytes (1, 2 or 4) at `offset` of the configuration space.
    pub fn read_space(&mut self, offset: u64, size: u64) -> (u64, Effect) {
        if !is_access(offset, size) {
            return (u64::MAX, Effect::None);
        }
        let (word, effect) = match (offset & !3, self.space.window()) {
            // The access has the length that the driver has set (section 4.1.4.9).
            (space::DATA, Some(Window { offset, len })) => {
                let (value, effect) = self.registers.read(&mut self.device, offset, len);
                (value as u32, effect)
            }
            (word, _) => (self.space.read(word, self.device.interrupts()), Effect::None),
        };
        let value = u64::from(word) >> (offset % 4 * 8) & ((1 << (size * 8)) - 1);
        (value, effect)
    }

    /// Writes `size` bytes (1, 2 or 4) at `offset` of the configuration space.
    pub fn write_space(&mut self, offset: u64, size: u64, value: u64, memory: &impl Ram) -> Effect {
        if !is_access(offset, size) {
            return Effect::None;
        }
        let shift = offset % 4 * 8;
        let mask = (((1_u64 << (size * 8)) - 1) << shift) as u32;
        let value = (value << shift) as u32 & mask;
        if offset & !3 == space::DATA {
            let Some(Window { offset, len }) = self.space.window() else { return Effect::None };
            return self.store(offset, len, value.into(), memory);
        }
        let before = (self.line(), self.space.is_master());
        self.space.write(offset & !3, value, mask);
        match (before.1, self.space.is_master()) {
            (false, true) if self.device.is_in_use() => Effect::Queues,
            // The rings are no longer accessible: the driver must reset the device before it goes
            // on.
            (true, false) if self.device.is_in_use() => {
                self.device.break_down();
                Effect::Reset
            }
            _ if self.line() == before.0 => Effect::None,
            _ => Effect::Line,
        }
    }
}

/// Whether an access is one, two or four bytes within a word of the configuration space.
const fn is_access(offset: u64, size: u64) -> bool {
    matches!(size, 1 | 2 | 4) && offset.is_multiple_of(size) && offset < SPACE_LEN
}
