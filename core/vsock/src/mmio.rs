//! The registers of a device on the MMIO transport (virtio 1.2, section 4.2.2), version 2.

pub use crate::device::{DeviceKind, Effect, QUEUES, RX, TX};
use crate::{
    device::{Area, Device},
    memory::Ram,
    queue::Queue,
};

/// Length of the registers, including the configuration, in bytes.
pub const LEN: u64 = 0x200;

/// The register QueueNotify, by which the driver notifies the device of a queue.
pub const NOTIFY: u64 = 0x050;
const CONFIG: u64 = 0x100;
/// `weir` in ASCII.
const VENDOR: u32 = u32::from_le_bytes(*b"weir");

/// The registers of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmioRegisters {
    device: Device,
    device_features_select: u32,
    driver_features_select: u32,
    select: u32,
}

impl MmioRegisters {
    /// Returns the registers of a device of `kind` after a reset.
    #[must_use]
    pub const fn new(kind: DeviceKind) -> Self {
        Self {
            device: Device::new(kind, 0),
            device_features_select: 0,
            driver_features_select: 0,
            select: 0,
        }
    }

    /// Returns the device.
    pub const fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// See [`Device::queue`].
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        self.device.queue(index)
    }

    /// Whether the device asserts its interrupt.
    #[must_use]
    pub const fn line(&self) -> bool {
        self.device.interrupts()
    }

    /// See [`Device::signal_used`].
    pub fn signal_used(&mut self) {
        self.device.signal_used();
    }

    /// See [`Device::break_down`].
    pub fn break_down(&mut self) {
        self.device.break_down();
    }

    /// See [`Device::is_broken`].
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.device.is_broken()
    }

    /// Reads `size` bytes (1, 2, 4 or 8) at `offset`. Returns zero where there is no register.
    /// Registers below the configuration can only be read as words.
    #[must_use]
    pub fn read(&self, offset: u64, size: u64) -> u64 {
        if let Some(at) = offset.checked_sub(CONFIG) {
            return self.device.configuration(at, size);
        }
        if size != 4 {
            return 0;
        }
        let selected = self.select as usize;
        u64::from(match offset {
            0x000 => u32::from_le_bytes(*b"virt"),
            0x004 => 2,
            0x008 => self.device.kind().number(),
            0x00c => VENDOR,
            0x010 => self.device.offered(self.device_features_select),
            0x034 => self.device.most(selected).into(),
            0x044 => self.device.is_ready(selected).into(),
            0x060 => self.device.interrupt,
            0x070 => self.device.status().into(),
            // Length and base of shared memory: there is none.
            0x0b0..=0x0bc => u32::MAX,
            _ => 0,
        })
    }

    /// Writes `size` bytes at `offset`. Does nothing if there is no register, if it is read-only,
    /// or if the access is not a word.
    pub fn write(&mut self, offset: u64, size: u64, value: u64, memory: &impl Ram) -> Effect {
        if size != 4 {
            return Effect::None;
        }
        let value = value as u32;
        let selected = self.select as usize;
        let high = offset & 4 != 0;
        match offset {
            0x014 => self.device_features_select = value,
            0x020 => self.device.accept(self.driver_features_select, value),
            0x024 => self.driver_features_select = value,
            0x030 => self.select = value,
            0x038 => self.device.set_size(selected, value),
            0x044 if value == 1 => return self.device.set_up(selected, memory),
            0x044 if value == 0 => return self.device.stop(selected),
            NOTIFY => {
                let index = value as usize;
                if self.queue(index).is_some() {
                    return Effect::Notified(index);
                }
            }
            0x064 => {
                self.device.interrupt &= !value;
                return Effect::Line;
            }
            0x070 => {
                let effect = self.device.set_status(value as u8);
                if effect == Effect::Reset {
                    *self = Self::new(self.device.kind());
                }
                return effect;
            }
            0x080 | 0x084 => self.device.place(selected, Area::Descriptors, high, value),
            0x090 | 0x094 => self.device.place(selected, Area::Available, high, value),
            0x0a0 | 0x0a4 => self.device.place(selected, Area::Used, high, value),
            _ => {}
        }
        Effect::None
    }
}
