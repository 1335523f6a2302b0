//! The registers at the base address (virtio 1.2, sections 4.1.4.3 to 4.1.4.6). Each block of them
//! has a page of its own.

use crate::{
    device::{Area, Device, Effect, QUEUES},
    memory::Ram,
};

/// A block of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterBlock {
    pub offset: u64,
    pub len: u64,
}

/// The common configuration.
pub(super) const COMMON: RegisterBlock = RegisterBlock { offset: 0, len: 0x40 };
/// The ISR status: the reasons for an interrupt.
pub(super) const ISR: RegisterBlock = RegisterBlock { offset: 0x1000, len: 4 };
/// The device's configuration.
pub(super) const DEVICE: RegisterBlock = RegisterBlock { offset: 0x2000, len: 8 };
/// The registers by which the driver notifies the device of queues.
pub(super) const NOTIFY: RegisterBlock =
    RegisterBlock { offset: 0x3000, len: MULTIPLIER * QUEUES as u64 };
/// Distance in bytes between the notification registers of two consecutive queues.
pub(super) const MULTIPLIER: u64 = 4;

/// No MSI-X vector (section 4.1.5.1.2).
const NO_VECTOR: u32 = 0xffff;

impl RegisterBlock {
    /// Returns the access's offset in this block, if the whole access is inside it.
    fn find(self, offset: u64, size: u64) -> Option<u64> {
        let at = offset.checked_sub(self.offset)?;
        (at.checked_add(size)? <= self.len).then_some(at)
    }
}

/// The driver's selections in the common configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommonRegisters {
    device_features_select: u32,
    driver_features_select: u32,
    queue: u16,
}

impl CommonRegisters {
    pub(super) const fn new() -> Self {
        Self { device_features_select: 0, driver_features_select: 0, queue: 0 }
    }

    /// Reads `size` bytes at `offset`; returns zero where there is no register.
    pub(super) fn read(&self, device: &mut Device, offset: u64, size: u64) -> (u64, Effect) {
        if let Some(at) = COMMON.find(offset, size) {
            let word = |at| u64::from(self.word(device, at));
            // An unaligned access touches at most the word in which it begins and the next one.
            let both = word(at & !3) | word((at & !3) + 4) << 32;
            return (both >> (at % 4 * 8) & ones(size), Effect::None);
        }
        if ISR.find(offset, size) == Some(0) {
            // Reading clears the status and the interrupt (section 4.1.4.5.1).
            let interrupts = core::mem::take(&mut device.interrupt);
            return (interrupts.into(), Effect::Line);
        }
        let configuration = DEVICE.find(offset, size).map(|at| device.configuration(at, size));
        (configuration.unwrap_or(0), Effect::None)
    }

    /// Returns the word at `at` of the common configuration.
    fn word(&self, device: &Device, at: u64) -> u32 {
        let index = usize::from(self.queue);
        let halves = |low: u32, high: u32| low | high << 16;
        let layout = device.layout(index).copied().unwrap_or_default();
        let address = |address: u64| (if at & 4 == 0 { address } else { address >> 32 }) as u32;
        match at {
            0x00 => self.device_features_select,
            0x04 => device.offered(self.device_features_select),
            0x08 => self.driver_features_select,
            0x0c => device.accepted(self.driver_features_select),
            0x10 => halves(NO_VECTOR, QUEUES as u32),
            // The generation never changes, because the configuration never does.
            0x14 => halves(device.status().into(), self.queue.into()),
            0x18 => halves(layout.size.into(), NO_VECTOR),
            0x1c => halves(device.is_ready(index).into(), notify_offset(index)),
            0x20 | 0x24 => address(layout.descriptors),
            0x28 | 0x2c => address(layout.available),
            0x30 | 0x34 => address(layout.used),
            _ => 0,
        }
    }

    /// Writes `size` bytes at `offset`.
    pub(super) fn write(
        &mut self,
        device: &mut Device,
        offset: u64,
        size: u64,
        value: u64,
        memory: &impl Ram,
    ) -> Effect {
        if let Some(at) = NOTIFY.find(offset, size) {
            let index = (at / MULTIPLIER) as usize;
            let notifies = at.is_multiple_of(MULTIPLIER) && matches!(size, 2 | 4);
            if notifies && device.queue(index).is_some() {
                return Effect::Notified(index);
            }
            return Effect::None;
        }
        let Some(at) = COMMON.find(offset, size) else { return Effect::None };
        if size == 8 {
            for (at, half) in [(at, value as u32), (at + 4, (value >> 32) as u32)] {
                if matches!(at, 0x20..0x38) {
                    let _ = self.set(device, (at, 4), half, memory);
                }
            }
            return Effect::None;
        }
        self.set(device, (at, size), value as u32, memory)
    }

    /// Writes the register at `at` of the common configuration, if it is `size` bytes wide.
    fn set(
        &mut self,
        device: &mut Device,
        (at, size): (u64, u64),
        value: u32,
        memory: &impl Ram,
    ) -> Effect {
        let index = usize::from(self.queue);
        let high = at & 4 != 0;
        match (at, size) {
            (0x00, 4) => self.device_features_select = value,
            (0x08, 4) => self.driver_features_select = value,
            (0x0c, 4) => device.accept(self.driver_features_select, value),
            (0x14, 1) => {
                let effect = device.set_status(value as u8);
                if effect == Effect::Reset {
                    *self = Self::new();
                }
                return effect;
            }
            (0x16, 2) => self.queue = value as u16,
            (0x18, 2) => device.set_size(index, value & 0xffff),
            (0x1c, 2) if value & 0xffff == 1 => return device.set_up(index, memory),
            (0x20 | 0x24, 4) => device.place(index, Area::Descriptors, high, value),
            (0x28 | 0x2c, 4) => device.place(index, Area::Available, high, value),
            (0x30 | 0x34, 4) => device.place(index, Area::Used, high, value),
            _ => {}
        }
        Effect::None
    }
}

/// Returns the offset of queue `index`'s notification register, in units of [`MULTIPLIER`] bytes.
const fn notify_offset(index: usize) -> u32 {
    if index < QUEUES { index as u32 } else { 0 }
}

fn ones(size: u64) -> u64 {
    u64::MAX >> (64 - size.clamp(1, 8) * 8)
}
