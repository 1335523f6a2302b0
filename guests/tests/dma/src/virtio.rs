//! A virtio disk (virtio 1.2, 2.7, 4.1 and 5.2) with one queue of four descriptors, polled. Every
//! address that goes to the device can be any.

use crate::pci::Function;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{Ordering, fence},
};
use weir_guest::{cpu, mmio, time};

/// Structures behind base addresses: types of capabilities.
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;

/// Fields of the common configuration.
const FEATURE_SELECT: u64 = 0x08;
const FEATURE: u64 = 0x0c;
const STATUS: u64 = 0x14;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_NOTIFY_OFF: u64 = 0x1e;
const QUEUE_DESCRIPTORS: u64 = 0x20;
const QUEUE_AVAILABLE: u64 = 0x28;
const QUEUE_USED: u64 = 0x30;

/// Device status: acknowledged, driver, features accepted, running.
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
/// VIRTIO_F_VERSION_1 and VIRTIO_F_ACCESS_PLATFORM, in the second word of features.
const FEATURES: u32 = 0b11;

const ENTRIES: u16 = 4;
/// Descriptor flags: another follows, the device writes.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// A request's status before the device has written one.
const UNANSWERED: u8 = 0xff;
/// How long the device may take with its own memory, and with another's. Polled without a pause:
/// virtual time skips pauses, and the host's disk would have no time.
const PATIENCE_NS: [u64; 2] = [2_000_000_000, 50_000_000];

#[derive(Clone, Copy)]
#[repr(C)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// What device and guest share.
#[repr(C, align(4096))]
struct Shared {
    descriptors: [Descriptor; ENTRIES as usize],
    /// Flags, index, one entry for each descriptor.
    available: [u16; 2 + ENTRIES as usize],
    status: u8,
    /// Type, reserved, sector: a read of the first one.
    request: [u64; 2],
    used: [u32; 1 + 2 * ENTRIES as usize],
    buffer: [u8; 512],
}

struct Ring(UnsafeCell<Shared>);

// SAFETY: only the boot core runs, and reaches it by raw pointers.
unsafe impl Sync for Ring {}

static RING: Ring = Ring(UnsafeCell::new(Shared {
    descriptors: [Descriptor { address: 0, len: 0, flags: 0, next: 0 }; ENTRIES as usize],
    available: [0; 2 + ENTRIES as usize],
    status: UNANSWERED,
    request: [0; 2],
    used: [0; 1 + 2 * ENTRIES as usize],
    buffer: [0; 512],
}));

/// Addresses that the device is given.
#[derive(Clone, Copy)]
pub struct Places {
    pub descriptors: u64,
    pub used: u64,
    pub buffer: u64,
}

/// Those in this guest's own memory.
pub fn own_places() -> Places {
    let ring = RING.0.get();
    // SAFETY: addresses only, of a static.
    unsafe {
        Places {
            descriptors: &raw const (*ring).descriptors as u64,
            used: &raw const (*ring).used as u64,
            buffer: &raw const (*ring).buffer as u64,
        }
    }
}

/// A disk.
pub struct Disk {
    common: u64,
    notify: u64,
    notify_step: u32,
}

impl Disk {
    /// The disk that `function` is, enabled.
    pub fn find(function: Function) -> Option<Self> {
        if !function.is_disk() {
            return None;
        }
        let (common, notify) = (function.structure(COMMON)?, function.structure(NOTIFY)?);
        let notify_step = function.read(notify.capability + 16);
        function.enable();
        Some(Self { common: common.address, notify: notify.address, notify_step })
    }

    /// The disk's first line.
    pub fn first_line(&self) -> &'static str {
        self.read(own_places(), PATIENCE_NS[0]);
        // SAFETY: the device has answered, or has been given up and reset by the next request;
        // nothing else writes there.
        let buffer = unsafe { &(*RING.0.get()).buffer };
        let line = buffer.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
        str::from_utf8(line).unwrap_or("?")
    }

    /// Has the device read the first sector with its queue or the buffer at places of
    /// another VM. Returns the device status at the end.
    pub fn attack(&self, places: Places) -> u8 {
        self.read(places, PATIENCE_NS[1])
    }

    fn read(&self, places: Places, patience_ns: u64) -> u8 {
        let ring = RING.0.get();
        let common = self.common;
        let own = own_places();
        // SAFETY: fields of the common configuration, behind the function's base address, which the
        // runtime maps as a device. What the device is told of this guest's memory is `Shared`; the
        // rest is what is tried here. The device is reset before `Shared` is written, and that
        // before the device is told of it.
        unsafe {
            mmio::write8(common + STATUS, 0);
            while mmio::read8(common + STATUS) != 0 {
                cpu::relax();
            }
            let available = &raw const (*ring).available as u64;
            let status = &raw const (*ring).status as u64;
            let request = &raw const (*ring).request as u64;
            let descriptor = |address, len, flags, next| Descriptor { address, len, flags, next };
            let chain = [
                descriptor(request, 16, NEXT, 1),
                descriptor(places.buffer, 512, NEXT | WRITE, 2),
                descriptor(status, 1, WRITE, 0),
                descriptor(own.buffer, 0, 0, 0),
            ];
            ptr::write_volatile(&raw mut (*ring).descriptors, chain);
            ptr::write_volatile(&raw mut (*ring).request, [0; 2]);
            ptr::write_volatile(&raw mut (*ring).available, [1, 1, 0, 0, 0, 0]);
            ptr::write_volatile(&raw mut (*ring).used, [0; 1 + 2 * ENTRIES as usize]);
            ptr::write_volatile(&raw mut (*ring).status, UNANSWERED);
            for status in [ACKNOWLEDGE, ACKNOWLEDGE | DRIVER] {
                mmio::write8(common + STATUS, status);
            }
            for (word, features) in [(0, 0), (1, FEATURES)] {
                mmio::write32(common + FEATURE_SELECT, word);
                mmio::write32(common + FEATURE, features);
            }
            mmio::write8(common + STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK);
            assert!(mmio::read8(common + STATUS) & FEATURES_OK != 0, "features are refused");
            mmio::write16(common + QUEUE_SELECT, 0);
            mmio::write16(common + QUEUE_SIZE, ENTRIES);
            for (field, address) in [
                (QUEUE_DESCRIPTORS, places.descriptors),
                (QUEUE_AVAILABLE, available),
                (QUEUE_USED, places.used),
            ] {
                mmio::write32(common + field, address as u32);
                mmio::write32(common + field + 4, (address >> 32) as u32);
            }
            let notify = mmio::read16(common + QUEUE_NOTIFY_OFF);
            mmio::write16(common + QUEUE_ENABLE, 1);
            let running = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
            mmio::write8(common + STATUS, running);
            // The queue in memory before the device is notified.
            fence(Ordering::SeqCst);
            mmio::write16(self.notify + u64::from(notify) * u64::from(self.notify_step), 0);
            let end = time::now_ns() + patience_ns;
            while ptr::read_volatile(&raw const (*ring).status) == UNANSWERED
                && time::now_ns() < end
            {
                cpu::relax();
            }
            mmio::read8(common + STATUS)
        }
    }
}
