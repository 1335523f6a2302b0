//! The words of a virtio device that EL2, which has its registers, shares with the service VM,
//! which serves its rings.
//!
//! EL2 publishes the queues that are in use and counts notifications. The service VM reports that
//! it returned buffers, or that a ring is invalid. Both are claims, which EL2 applies only to the
//! registers of that device. Every word has one writer. A reset begins a new *epoch*: words that
//! were published in an earlier epoch, and the reports of the service VM about it, are ignored.

use super::sync::{AtomicU32, AtomicU64, fence};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use weir_vsock::queue::{Broken, Layout, Queue, RingOptions};

/// Number of queues of a device that the service VM serves.
pub const QUEUES: usize = 2;
/// Number of notification stamps that are kept for each queue, for notifications that the service
/// VM has not seen yet.
pub const STAMPS: usize = 8;

/// Bit of [`QueueWords::state`]: the queue is in use.
const IN_USE: u64 = 1 << 31;
/// Bit of the state: VIRTIO_F_INDIRECT_DESC was negotiated.
const INDIRECT: u64 = 1 << 30;
/// Bit of the state: VIRTIO_F_EVENT_IDX was negotiated.
const EVENT_INDEX: u64 = 1 << 29;
/// Bit of [`DeviceWords::broken`]: a ring is broken; the bits below hold the reason.
const BROKEN: u64 = 1 << 8;

/// A queue as EL2 publishes it.
#[derive(Debug)]
#[repr(C)]
struct QueueWords {
    /// Epoch in bits 63:32, then [`IN_USE`] and the options; the size in bits 15:0.
    state: AtomicU64,
    descriptors: AtomicU64,
    available: AtomicU64,
    used: AtomicU64,
    /// Times of the driver's notifications, in ticks of the counter: notification n at index n
    /// modulo [`STAMPS`].
    stamps: [AtomicU64; STAMPS],
    /// Number of notifications by the driver, modulo 2^32.
    notified: AtomicU32,
    /// Time that EL2 needed before the last stamp, in ticks.
    transport: AtomicU32,
}

/// A device in the exchange.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceWords {
    /// Written by EL2.
    epoch: AtomicU32,
    /// Written by the service VM: 1 while it accesses memory for this device.
    busy: AtomicU32,
    /// Written by EL2: number of changes of what it publishes here, modulo 2^32.
    changes: AtomicU32,
    /// Written by EL2.
    queues: [QueueWords; QUEUES],
    /// Written by the service VM: the epoch in bits 63:32; below it, the number of times that
    /// buffers were returned to a driver that wants an interrupt for them.
    used: AtomicU64,
    /// Written by the service VM: the epoch in bits 63:32; [`BROKEN`] and a [`Broken`].
    broken: AtomicU64,
    /// Written by EL2: the time at which it last made the interrupt for returned buffers pending,
    /// in ns of the counter.
    raised: AtomicU64,
}

impl Default for DeviceWords {
    fn default() -> Self {
        Self::new()
    }
}

impl DeviceWords {
    /// Returns a device without queues: all words are zero.
    #[must_use]
    pub fn new() -> Self {
        let queue = |_| QueueWords {
            state: AtomicU64::new(0),
            descriptors: AtomicU64::new(0),
            available: AtomicU64::new(0),
            used: AtomicU64::new(0),
            stamps: core::array::from_fn(|_| AtomicU64::new(0)),
            notified: AtomicU32::new(0),
            transport: AtomicU32::new(0),
        };
        Self {
            epoch: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            queues: core::array::from_fn(queue),
            used: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            raised: AtomicU64::new(0),
        }
    }

    /// Publishes queue `index`, which is in use until the next [`Self::reset`]. Called by EL2,
    /// which holds the device's lock.
    pub fn publish(&self, index: usize, queue: &Queue) {
        let Some(place) = self.queues.get(index) else { return };
        let (layout, options) = (queue.layout(), queue.options());
        place.descriptors.store(layout.descriptors, Relaxed);
        place.available.store(layout.available, Relaxed);
        place.used.store(layout.used, Relaxed);
        let flags = if options.indirect { INDIRECT } else { 0 }
            | if options.event_index { EVENT_INDEX } else { 0 };
        let state = in_epoch(self.epoch.load(Relaxed)) | IN_USE | flags | u64::from(layout.size);
        // Release: the addresses are written before the state that announces them; pairs with
        // `queue`.
        place.state.store(state, Release);
        self.change();
    }

    /// Counts a change. The caller holds the device's lock.
    fn change(&self) {
        // Release: the changed words are written before; pairs with `changes`.
        self.changes.store(self.changes.load(Relaxed).wrapping_add(1), Release);
    }

    /// Records that the driver notified queue `index`, at `ticks` of the counter; `transport` is
    /// the time in ticks that EL2 needed before that. Called by EL2, which holds the device's lock.
    pub fn notify(&self, index: usize, ticks: u64, transport: u64) {
        let Some(place) = self.queues.get(index) else { return };
        let count = place.notified.load(Relaxed);
        place.stamps[count as usize % STAMPS].store(ticks, Relaxed);
        place.transport.store(transport as u32, Relaxed);
        // Release: what the driver wrote to its ring comes before; pairs with `notified`.
        place.notified.store(count.wrapping_add(1), Release);
        self.change();
    }

    /// Records the time at which EL2 made the interrupt pending, in ns of the counter.
    pub fn raise(&self, ns: u64) {
        self.raised.store(ns, Relaxed);
    }

    /// Resets the device: the service VM begins no access with its earlier state of the device. An
    /// access that is under way may continue until [`Self::is_busy`] returns false. Called by EL2,
    /// which holds the device's lock.
    pub fn reset(&self) {
        self.epoch.store(self.epoch.load(Relaxed).wrapping_add(1), Relaxed);
        self.change();
        // SeqCst together with the fence in `begin`: either the service VM sees the new epoch
        // there, or `is_busy` sees its access.
        fence(SeqCst);
    }

    /// Returns whether an access to memory is under way for this device.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        // Acquire: the access comes before the caller's next steps.
        self.busy.load(Acquire) != 0
    }

    /// Returns the number of returns for which the driver wants an interrupt, in the current epoch;
    /// none if there was no return in this epoch.
    #[must_use]
    pub fn used(&self) -> Option<u32> {
        // Acquire: the writes to the rings come before.
        in_current(self.used.load(Acquire), self.epoch.load(Relaxed))
    }

    /// Returns the reason, a [`Broken`], for which the service VM cannot continue with a ring in
    /// the current epoch; none if it can.
    #[must_use]
    pub fn broken(&self) -> Option<u8> {
        let word = in_current(self.broken.load(Relaxed), self.epoch.load(Relaxed))?;
        (u64::from(word) & BROKEN != 0).then_some(word as u8)
    }

    /// Returns how often the words that EL2 publishes have changed, modulo 2^32.
    pub fn changes(&self) -> u32 {
        // Acquire: see `change`.
        self.changes.load(Acquire)
    }

    /// Returns the current epoch of the device.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// Returns queue `index` as it was published in `epoch`, if it was.
    pub fn queue(&self, index: usize, epoch: u32) -> Option<Queue> {
        let place = self.queues.get(index)?;
        let state = place.state.load(Acquire);
        if in_epoch(epoch) != state & in_epoch(u32::MAX) || state & IN_USE == 0 {
            return None;
        }
        let layout = Layout {
            size: state as u16,
            descriptors: place.descriptors.load(Relaxed),
            available: place.available.load(Relaxed),
            used: place.used.load(Relaxed),
        };
        let options =
            RingOptions { indirect: state & INDIRECT != 0, event_index: state & EVENT_INDEX != 0 };
        // Acquire: if a word of a later epoch was read, that epoch is seen here; pairs with the
        // fence in `reset`.
        fence(Acquire);
        (self.epoch.load(Relaxed) == epoch).then(|| Queue::new(layout, options))
    }

    /// Returns how often the driver notified queue `index`, modulo 2^32.
    pub fn notified(&self, index: usize) -> u32 {
        // Acquire: see `notify`.
        self.queues.get(index).map_or(0, |place| place.notified.load(Acquire))
    }

    /// Returns the time of notification number `count` of queue `index`, in ticks of the counter,
    /// and the time in ticks that EL2 needed before the last stamp. For a notification that is more
    /// than [`STAMPS`] ago, the time is that of a later one.
    pub fn stamp(&self, index: usize, count: u32) -> (u64, u64) {
        let Some(place) = self.queues.get(index) else { return (0, 0) };
        let stamp = place.stamps[count as usize % STAMPS].load(Relaxed);
        (stamp, place.transport.load(Relaxed).into())
    }

    /// Returns the time at which EL2 last made the interrupt pending, in ns of the counter.
    pub fn raised(&self) -> u64 {
        self.raised.load(Relaxed)
    }

    /// Begins an access to memory for the device. Returns false if `epoch` is over; then no memory
    /// may be accessed.
    pub fn begin(&self, epoch: u32) -> bool {
        self.busy.store(1, Relaxed);
        // See `reset`.
        fence(SeqCst);
        let current = self.epoch.load(Relaxed) == epoch;
        if !current {
            self.end();
        }
        current
    }

    /// Begins an access to the memory of two devices, like [`Self::begin`]. Returns false if one of
    /// their epochs is over; then no memory may be accessed.
    pub fn begin_both(devices: [&Self; 2], epochs: [u32; 2]) -> bool {
        for device in devices {
            device.busy.store(1, Relaxed);
        }
        // See `reset`.
        fence(SeqCst);
        let current = devices.map(|device| device.epoch.load(Relaxed)) == epochs;
        if !current {
            for device in devices {
                device.end();
            }
        }
        current
    }

    /// Ends the access.
    pub fn end(&self) {
        // Release: pairs with `is_busy`.
        self.busy.store(0, Release);
    }

    /// Reports that buffers were returned in `epoch` and that the driver wants an interrupt for
    /// them.
    pub fn signal(&self, epoch: u32) {
        let count = in_current(self.used.load(Relaxed), epoch).unwrap_or(0).wrapping_add(1);
        // Release: pairs with `used`.
        self.used.store(in_epoch(epoch) | u64::from(count), Release);
    }

    /// Reports that a ring of `epoch` is invalid.
    pub fn break_down(&self, epoch: u32, broken: Broken) {
        self.broken.store(in_epoch(epoch) | BROKEN | broken as u64, Relaxed);
    }
}

/// Returns the part of a word that holds the epoch.
const fn in_epoch(epoch: u32) -> u64 {
    (epoch as u64) << 32
}

/// Returns the lower half of a word, if the upper half is `epoch`.
const fn in_current(word: u64, epoch: u32) -> Option<u32> {
    if (word >> 32) as u32 == epoch { Some(word as u32) } else { None }
}
