//! The state of a socket or a network device, for either transport: status (virtio 1.2, section
//! 2.1), features (2.2), queues (2.6) and the reasons for interrupts (4.1.4.5, 4.2.2).

use crate::{
    memory::Ram,
    queue::{Layout, MAX_SIZE, Queue, RingOptions},
};
use weir_units::Cid;

/// Number of the driver's receive queue.
pub const RX: usize = 0;
/// Number of the driver's transmit queue.
pub const TX: usize = 1;
/// Maximum number of queues: receive, transmit, and a socket device's events.
pub const QUEUES: usize = 3;

/// The kind of a device with the contents of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A socket device (section 5.10): the guest's context identifier.
    Socket(Cid),
    /// A network device (section 5.1): its MAC address, the first byte in the lowest eight bits.
    Network(u64),
}

impl DeviceKind {
    /// Returns the number of the device's type (section 5).
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Network(_) => 1,
            Self::Socket(_) => 19,
        }
    }

    const fn queues(self) -> usize {
        match self {
            Self::Network(_) => 2,
            Self::Socket(_) => QUEUES,
        }
    }

    const fn features(self) -> u64 {
        INDIRECT
            | EVENT_INDEX
            | VERSION_1
            | match self {
                // VIRTIO_NET_F_MAC.
                Self::Network(_) => 1 << 5,
                // VIRTIO_VSOCK_F_STREAM, VIRTIO_VSOCK_F_SEQPACKET.
                Self::Socket(_) => 1 | 1 << 1,
            }
    }

    /// Returns the configuration (sections 5.1.4 and 5.10.4).
    const fn configuration(self) -> u64 {
        match self {
            Self::Network(mac) => mac,
            Self::Socket(cid) => cid.0,
        }
    }
}

/// VIRTIO_F_INDIRECT_DESC, VIRTIO_F_EVENT_IDX, VIRTIO_F_VERSION_1.
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;

const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const NEEDS_RESET: u8 = 64;
/// Status bits that a driver can set: ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK, FAILED.
const DRIVERS: u8 = 1 | 2 | DRIVER_OK | FEATURES_OK | 128;

/// Bit of `Device::interrupt`: buffers were returned.
const USED: u32 = 1;
/// Bit of `Device::interrupt`: status or configuration changed.
const CHANGED: u32 = 2;

/// The reaction that a register access requires of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Update the interrupt, whose level may have changed.
    Line,
    /// Serve this queue, which is in use.
    Notified(usize),
    /// Look at the queues again: others are in use than before.
    Queues,
    /// Forget all chains: all queues were reset, or none is served until the driver resets them.
    Reset,
}

/// An area of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// The descriptors.
    Descriptors,
    /// The ring of the driver's available buffers.
    Available,
    /// The ring of the buffers that the device has used.
    Used,
}

/// The state of one device, and its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    kind: DeviceKind,
    /// Size of a queue for which the driver has set none.
    usual: u16,
    status: u8,
    pub(crate) interrupt: u32,
    driver_features: u64,
    layouts: [Layout; QUEUES],
    queues: [Option<Queue>; QUEUES],
}

impl Device {
    /// Returns a device after a reset. A queue has `usual` entries if the driver sets no size.
    pub(crate) const fn new(kind: DeviceKind, usual: u16) -> Self {
        Self {
            kind,
            usual,
            status: 0,
            interrupt: 0,
            driver_features: 0,
            layouts: [Layout { size: usual, descriptors: 0, available: 0, used: 0 }; QUEUES],
            queues: [None; QUEUES],
        }
    }

    /// Returns the device's kind.
    #[must_use]
    pub const fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Returns queue `index` if it is in use: the driver runs and has set it up, and the device is
    /// not broken.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        let running = self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK;
        self.queues.get_mut(index)?.as_mut().filter(|_| running)
    }

    /// Whether any queue is in use.
    pub(crate) fn is_in_use(&self) -> bool {
        let running = self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK;
        running && self.queues.iter().any(Option::is_some)
    }

    /// Whether the device has a reason to interrupt.
    #[must_use]
    pub const fn interrupts(&self) -> bool {
        self.interrupt != 0
    }

    /// Notes that buffers were returned.
    pub fn signal_used(&mut self) {
        self.interrupt |= USED;
    }

    /// Stops the device until the driver resets it, because a ring is invalid (section 2.1.2).
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

    /// Returns the status register.
    pub(crate) const fn status(&self) -> u8 {
        self.status
    }

    /// Returns word `select` of the features that the device offers.
    pub(crate) const fn offered(&self, select: u32) -> u32 {
        word(self.kind.features(), select)
    }

    /// Returns word `select` of the features that the driver has accepted.
    pub(crate) const fn accepted(&self, select: u32) -> u32 {
        word(self.driver_features, select)
    }

    /// Handles the driver's choice of word `select` of the features. The choice can't be changed
    /// once FEATURES_OK is set (section 3.1.1).
    pub(crate) fn accept(&mut self, select: u32, value: u32) {
        let shift = match select {
            0 => 0,
            1 => 32,
            _ => return,
        };
        if self.status & FEATURES_OK == 0 {
            self.driver_features &= !(u64::from(u32::MAX) << shift);
            self.driver_features |= u64::from(value) << shift;
        }
    }

    /// Handles the driver's write of the status register.
    pub(crate) fn set_status(&mut self, value: u8) -> Effect {
        if value == 0 {
            *self = Self::new(self.kind, self.usual);
            return Effect::Reset;
        }
        // A driver only sets bits; it clears them only by a reset (section 2.1.1).
        let mut new = self.status | value & DRIVERS;
        let agreed = self.driver_features & !self.kind.features() == 0
            && self.driver_features & VERSION_1 != 0;
        if self.status & FEATURES_OK == 0 && !agreed {
            new &= !FEATURES_OK;
        }
        if new & FEATURES_OK == 0 {
            new &= !DRIVER_OK;
        }
        let runs = new & !self.status & DRIVER_OK != 0;
        self.status = new;
        if runs { Effect::Queues } else { Effect::None }
    }

    /// Returns the maximum number of entries of queue `index`; 0 if there is no such queue.
    pub(crate) const fn most(&self, index: usize) -> u16 {
        if index < self.kind.queues() { MAX_SIZE } else { 0 }
    }

    /// Returns the layout of queue `index` as the driver has written it so far.
    pub(crate) fn layout(&self, index: usize) -> Option<&Layout> {
        self.layouts.get(index)
    }

    /// Whether queue `index` is set up.
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        self.queues.get(index).is_some_and(Option::is_some)
    }

    /// Returns the layout of a queue if it can be changed: the queue exists and is not set up.
    fn open_layout(&mut self, index: usize) -> Option<&mut Layout> {
        let open = index < self.kind.queues() && !self.is_ready(index);
        if open { self.layouts.get_mut(index) } else { None }
    }

    /// Sets the number of entries of queue `index`. An invalid number is noted as 0.
    pub(crate) fn set_size(&mut self, index: usize, value: u32) {
        if let Some(layout) = self.open_layout(index) {
            layout.size = u16::try_from(value).unwrap_or(0);
        }
    }

    /// Sets the upper or the lower half of the address of an area of queue `index`.
    pub(crate) fn place(&mut self, index: usize, area: Area, high: bool, value: u32) {
        let Some(layout) = self.open_layout(index) else { return };
        let address = match area {
            Area::Descriptors => &mut layout.descriptors,
            Area::Available => &mut layout.available,
            Area::Used => &mut layout.used,
        };
        let shift = if high { 32 } else { 0 };
        *address = *address & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift;
    }

    /// Handles the driver's request to set up queue `index`. The queue is ready if its layout is
    /// valid and the features have been agreed on, and it stays so until the device is reset.
    pub(crate) fn set_up(&mut self, index: usize, memory: &impl Ram) -> Effect {
        let (Some(layout), Some(queue)) = (self.layouts.get(index), self.queues.get_mut(index))
        else {
            return Effect::None;
        };
        if queue.is_none() && self.status & FEATURES_OK != 0 && layout.is_sound(memory) {
            let options = RingOptions {
                indirect: self.driver_features & INDIRECT != 0,
                event_index: self.driver_features & EVENT_INDEX != 0,
            };
            *queue = Some(Queue::new(*layout, options));
            return if self.status & DRIVER_OK != 0 { Effect::Queues } else { Effect::None };
        }
        Effect::None
    }

    /// Handles the driver's withdrawal of the readiness of queue `index`. A queue is not stopped
    /// alone: the driver must reset the device before it continues (sections 2.1.2 and 4.2.2.1).
    pub(crate) fn stop(&mut self, index: usize) -> Effect {
        if self.queues.get_mut(index).and_then(Option::take).is_none() {
            return Effect::None;
        }
        self.break_down();
        Effect::Reset
    }

    /// Reads `size` bytes (1, 2, 4 or 8) at `at` of the configuration.
    pub(crate) fn configuration(&self, at: u64, size: u64) -> u64 {
        let shift = at.saturating_mul(8);
        let bits = (size * 8).min(64);
        let value = if shift < 64 { self.kind.configuration() >> shift } else { 0 };
        if bits == 64 { value } else { value & ((1 << bits) - 1) }
    }
}

const fn word(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}
