//! The registers of a socket device on the MMIO transport (virtio 1.2, section 4.2.2), version 2, and its status (section 2.1).

use crate::{
    memory::GuestMemory,
    queue::{Layout, MAX_SIZE, Options, Queue},
};

/// Bytes of the registers with the configuration.
pub const LEN: u64 = 0x200;
/// Number of the queue by which the driver receives.
pub const RX: usize = 0;
/// Number of the queue by which the driver sends.
pub const TX: usize = 1;
/// Queues: receive, transmit, events.
pub const QUEUES: usize = 3;

/// VIRTIO_VSOCK_F_STREAM, VIRTIO_VSOCK_F_SEQPACKET, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_EVENT_IDX, VIRTIO_F_VERSION_1.
const OFFERED: u64 = 1 | 1 << 1 | INDIRECT | EVENT_INDEX | VERSION_1;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;

const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const NEEDS_RESET: u8 = 64;
/// What a driver can set: ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK, FAILED.
const DRIVERS: u8 = 1 | 2 | DRIVER_OK | FEATURES_OK | 128;

/// [`Registers::interrupt`]: buffers were returned.
const USED: u32 = 1;
/// [`Registers::interrupt`]: status or configuration changed.
const CHANGED: u32 = 2;

const CONFIG: u64 = 0x100;
/// Socket device.
const DEVICE_ID: u32 = 19;
/// `weir` in ASCII.
const VENDOR: u32 = u32::from_le_bytes(*b"weir");

/// What a write asks the device to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The interrupt's level may have changed.
    Line,
    /// Look at this queue, which is in use.
    Notified(usize),
    /// All queues were reset, or none is served until they are: forget all chains.
    Reset,
}

/// The registers of one device, and its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    cid: u64,
    status: u8,
    interrupt: u32,
    device_features_select: u32,
    driver_features_select: u32,
    driver_features: u64,
    select: u32,
    layouts: [Layout; QUEUES],
    queues: [Option<Queue>; QUEUES],
}

impl Registers {
    /// After a reset; the guest's context identifier is `cid`.
    #[must_use]
    pub const fn new(cid: u64) -> Self {
        Self {
            cid,
            status: 0,
            interrupt: 0,
            device_features_select: 0,
            driver_features_select: 0,
            driver_features: 0,
            select: 0,
            layouts: [Layout { size: 0, descriptors: 0, available: 0, used: 0 }; QUEUES],
            queues: [None; QUEUES],
        }
    }

    /// The guest's context identifier.
    #[must_use]
    pub const fn cid(&self) -> u64 {
        self.cid
    }

    /// Queue `index` while it is in use: the driver runs and has set it up, and the device works.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        let running = self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK;
        self.queues.get_mut(index)?.as_mut().filter(|_| running)
    }

    /// The interrupt's level.
    #[must_use]
    pub const fn line(&self) -> bool {
        self.interrupt != 0
    }

    /// Says that buffers were returned.
    pub fn signal_used(&mut self) {
        self.interrupt |= USED;
    }

    /// A ring made no sense: nothing goes on until the driver resets the device (section 2.1.2).
    pub fn break_down(&mut self) {
        self.status |= NEEDS_RESET;
        if self.status & DRIVER_OK != 0 {
            self.interrupt |= CHANGED;
        }
    }

    /// Whether [`Self::break_down`] was called since the last reset.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.status & NEEDS_RESET != 0
    }

    /// Reads `size` bytes (1, 2, 4 or 8) at `offset`. What is no register is zero; those below the configuration are read by words.
    #[must_use]
    pub fn read(&self, offset: u64, size: u64) -> u64 {
        if let Some(at) = offset.checked_sub(CONFIG) {
            let shift = at.saturating_mul(8);
            let bits = (size * 8).min(64);
            let value = if shift < 64 { self.cid >> shift } else { 0 };
            return if bits == 64 { value } else { value & ((1 << bits) - 1) };
        }
        if size != 4 {
            return 0;
        }
        let selected = self.select as usize;
        u64::from(match offset {
            0x000 => u32::from_le_bytes(*b"virt"),
            0x004 => 2,
            0x008 => DEVICE_ID,
            0x00c => VENDOR,
            0x010 => word(OFFERED, self.device_features_select),
            0x034 if selected < QUEUES => MAX_SIZE.into(),
            0x044 => self.queues.get(selected).is_some_and(Option::is_some).into(),
            0x060 => self.interrupt,
            0x070 => self.status.into(),
            // Length and base of shared memory: there is none.
            0x0b0..=0x0bc => u32::MAX,
            _ => 0,
        })
    }

    /// Writes `size` bytes at `offset`. What is no register, or read-only, or not written by words, is left as it is.
    pub fn write(
        &mut self,
        offset: u64,
        size: u64,
        value: u64,
        memory: &impl GuestMemory,
    ) -> Effect {
        if size != 4 {
            return Effect::None;
        }
        let value = value as u32;
        match offset {
            0x014 => self.device_features_select = value,
            0x020 => self.accept(value),
            0x024 => self.driver_features_select = value,
            0x030 => self.select = value,
            0x044 => return self.set_ready(value, memory),
            0x050 => {
                let index = value as usize;
                if self.queue(index).is_some() {
                    return Effect::Notified(index);
                }
            }
            0x064 => {
                self.interrupt &= !value;
                return Effect::Line;
            }
            0x070 => return self.set_status(value as u8),
            0x038 | 0x080..=0x0a4 => self.place(offset, value),
            _ => {}
        }
        Effect::None
    }

    /// The driver's choice of features stands once FEATURES_OK is set (section 3.1.1).
    fn accept(&mut self, value: u32) {
        let shift = match self.driver_features_select {
            0 => 0,
            1 => 32,
            _ => return,
        };
        if self.status & FEATURES_OK == 0 {
            self.driver_features &= !(u64::from(u32::MAX) << shift);
            self.driver_features |= u64::from(value) << shift;
        }
    }

    fn set_status(&mut self, value: u8) -> Effect {
        if value == 0 {
            *self = Self::new(self.cid);
            return Effect::Reset;
        }
        // A driver sets bits and takes none back but by a reset (section 2.1.1).
        let mut new = self.status | value & DRIVERS;
        let agreed = self.driver_features & !OFFERED == 0 && self.driver_features & VERSION_1 != 0;
        if self.status & FEATURES_OK == 0 && !agreed {
            new &= !FEATURES_OK;
        }
        if new & FEATURES_OK == 0 {
            new &= !DRIVER_OK;
        }
        self.status = new;
        Effect::None
    }

    /// Sets a part of the selected queue's layout, which a queue in use does not change any more.
    fn place(&mut self, offset: u64, value: u32) {
        let selected = self.select as usize;
        if self.queues.get(selected).is_none_or(Option::is_some) {
            return;
        }
        let Some(layout) = self.layouts.get_mut(selected) else { return };
        match offset {
            // What is no size at all makes none.
            0x038 => layout.size = u16::try_from(value).unwrap_or(0),
            0x080 | 0x084 => set(&mut layout.descriptors, offset & 4 != 0, value),
            0x090 | 0x094 => set(&mut layout.available, offset & 4 != 0, value),
            0x0a0 | 0x0a4 => set(&mut layout.used, offset & 4 != 0, value),
            _ => {}
        }
    }

    /// A queue is ready when its layout is one, after the features were agreed on. One queue is not stopped alone: a driver that takes a
    /// queue's readiness back must reset the device before it goes on (sections 2.1.2 and 4.2.2.1).
    fn set_ready(&mut self, value: u32, memory: &impl GuestMemory) -> Effect {
        let selected = self.select as usize;
        let (Some(layout), Some(queue)) =
            (self.layouts.get(selected), self.queues.get_mut(selected))
        else {
            return Effect::None;
        };
        if value == 0 && queue.take().is_some() {
            self.break_down();
            return Effect::Reset;
        }
        if value == 1
            && queue.is_none()
            && self.status & FEATURES_OK != 0
            && layout.is_sound(memory)
        {
            let options = Options {
                indirect: self.driver_features & INDIRECT != 0,
                event_index: self.driver_features & EVENT_INDEX != 0,
            };
            *queue = Some(Queue::new(*layout, options));
        }
        Effect::None
    }
}

fn word(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

fn set(address: &mut u64, high: bool, value: u32) {
    let shift = if high { 32 } else { 0 };
    *address = *address & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift;
}
