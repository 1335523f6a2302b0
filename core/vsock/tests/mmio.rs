//! The registers: what virtio 1.2 asks of a device, point by point.

use crate::support::Device;
use proptest::prelude::*;
use weir_units::Cid;
use weir_vsock::mmio::{DeviceKind, Effect, MmioRegisters, QUEUES, RX, TX};

const CID: Cid = Cid(0x1_0000_0005);
const FEATURES_OK: u64 = 8;
const RUNNING: u64 = 15;

impl Device {
    /// Up to DRIVER_OK with all queues.
    fn running() -> Self {
        let mut device = Self::new(CID);
        device.write(0x70, 3);
        device.accept(1 << 32 | 1 << 29 | 1 << 28);
        device.write(0x70, 11);
        (0..QUEUES as u64).for_each(|index| device.queue(index, 64));
        device.write(0x70, RUNNING);
        device
    }
}

/// Section 4.2.2.
#[test]
fn it_says_what_it_is() {
    let mut device = Device::new(CID);
    assert_eq!(device.read(0x00).to_le_bytes()[..4], *b"virt");
    assert_eq!((device.read(0x04), device.read(0x08)), (2, 19));
    assert_eq!(device.read(0xfc), 0, "the configuration never changes");
    assert_eq!(
        (device.read(0xb0), device.read(0xb4)),
        (0xffff_ffff, 0xffff_ffff),
        "no shared memory"
    );
    for (index, size) in [(0, 64), (2, 64), (3, 0), (0xffff_ffff, 0)] {
        device.write(0x30, index);
        assert_eq!(device.read(0x34), size, "queue {index}");
    }
}

/// Section 5.10.4: the context identifier, in any width.
#[test]
fn the_configuration_is_the_context_identifier() {
    let device = Device::new(CID);
    assert_eq!(device.registers.read(0x100, 8), CID.0);
    assert_eq!((device.read(0x100), device.read(0x104)), (5, 1));
    assert_eq!((device.registers.read(0x104, 1), device.registers.read(0x100, 2)), (1, 5));
    assert_eq!((device.read(0x108), device.registers.read(u64::MAX, 8)), (0, 0));
}

/// Sections 2.1 and 3.1.1: the order of bits, and that only a reset takes them back.
#[test]
fn status_bits_are_set_in_order_and_kept() {
    let mut device = Device::new(CID);
    device.write(0x70, 1 | 4);
    assert_eq!(device.read(0x70), 1, "no DRIVER_OK before FEATURES_OK");
    device.write(0x70, 2);
    assert_eq!(device.read(0x70), 3, "bits stay");
    device.write(0x70, 3 | FEATURES_OK);
    assert_eq!(device.read(0x70), 3, "VERSION_1 was not accepted");
    device.accept(1 << 32 | 1 << 40);
    device.write(0x70, 3 | FEATURES_OK);
    assert_eq!(device.read(0x70), 3, "a feature that was not offered");
    device.accept(1 << 32);
    device.write(0x70, 3 | FEATURES_OK);
    assert_eq!(device.read(0x70), 11);
    device.accept(1 << 32 | 1 << 40);
    device.write(0x70, RUNNING);
    assert_eq!(device.read(0x70), RUNNING, "what was agreed on stands");
    device.write(0x70, 64);
    assert_eq!(device.read(0x70), RUNNING, "DEVICE_NEEDS_RESET is not the driver's");
    assert_eq!(device.write(0x70, 0), Effect::Reset);
    assert_eq!(device.registers, MmioRegisters::new(DeviceKind::Socket(CID)));
}

/// Section 2.2: the features that are offered.
#[test]
fn features_are_offered_by_words() {
    let mut device = Device::new(CID);
    for (select, word) in [(0, 1 << 28 | 1 << 29 | 3), (1, 1), (2, 0)] {
        device.write(0x14, select);
        assert_eq!(device.read(0x10), word);
    }
}

/// Section 4.2.2.2: queues are ready once they are sound, and are not changed then.
#[test]
fn a_queue_is_ready_when_it_is_sound() {
    let mut device = Device::new(CID);
    device.queue(0, 64);
    assert_eq!(device.read(0x44), 0, "before FEATURES_OK");
    device.write(0x70, 3);
    device.accept(1 << 32);
    device.write(0x70, 11);
    for size in [0, 3, 128, 0x1_0040] {
        device.queue(0, size);
        assert_eq!(device.read(0x44), 0, "{size} entries");
    }
    device.queue(0, 16);
    assert_eq!(device.read(0x44), 1);
    device.write(0x38, 64);
    device.write(0x70, RUNNING);
    assert_eq!(device.registers.queue(RX).unwrap().size(), 16, "not changed while in use");
    device.write(0x30, 3);
    device.write(0x44, 1);
    assert_eq!(device.read(0x44), 0, "there is no such queue");
}

#[test]
fn notifications_are_of_queues_in_use() {
    let mut device = Device::running();
    assert_eq!(device.write(0x50, TX as u64), Effect::Notified(TX));
    assert_eq!(device.write(0x50, 3), Effect::None);
    device.registers.break_down();
    assert!(device.registers.is_broken() && device.read(0x70) & 64 != 0);
    assert_eq!(device.write(0x50, TX as u64), Effect::None, "nothing goes on until a reset");
    assert!(device.registers.line(), "the driver is told");
    assert_eq!(device.read(0x60), 2);
    device.write(0x70, 0);
    assert!(!device.registers.line());
    assert_eq!(device.write(0x50, TX as u64), Effect::None);
}

#[test]
fn an_interrupt_stays_until_it_is_acknowledged() {
    let mut device = Device::running();
    device.registers.signal_used();
    assert!(device.registers.line());
    assert_eq!(device.write(0x64, 2), Effect::Line);
    assert!(device.registers.line());
    device.write(0x64, 1);
    assert!(!device.registers.line());
}

proptest! {
    #[test]
    fn no_access_makes_it_panic(
        accesses in prop::collection::vec(
            (
                prop_oneof![0u64..0x200, any::<u64>()],
                prop::sample::select(vec![1u64, 2, 4, 8]),
                prop_oneof![0u64..80, any::<u64>()],
                any::<bool>(),
            ),
            0..200,
        ),
    ) {
        let mut device = Device::new(CID);
        for (offset, size, value, write) in accesses {
            if write {
                device.registers.write(offset, size, value, &device.memory);
            } else {
                let read = device.registers.read(offset, size);
                prop_assert!(size == 8 || read >> (8 * size) == 0);
            }
        }
    }
}
