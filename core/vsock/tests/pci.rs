//! The PCI transport: what virtio 1.2, section 4.1, asks of a function, point by point, and what a
//! hostile driver gets.

use crate::support::{Memory, RAM};
use proptest::prelude::*;
use weir_units::Cid;
use weir_vsock::{
    device::{Effect, QUEUES, RX, TX},
    pci::{LEN, VirtioFunction},
};

const CID: Cid = Cid(0x1_0000_0005);
const BASE: u64 = 0x3efe_c000;
const COMMAND: u64 = 4;
const BAR: u64 = 0x10;
/// Memory, bus master.
const ON: u64 = 6;
const STATUS: u64 = 0x14;
const RUNNING: u64 = 15;

/// A capability as its driver finds it.
#[derive(Clone, Copy, Debug, Default)]
struct Capability {
    place: u64,
    offset: u64,
    len: u64,
}

struct Device {
    function: VirtioFunction,
    memory: Memory,
}

impl Device {
    fn new() -> Self {
        Self { function: VirtioFunction::new(CID, BASE as u32), memory: Memory::new() }
    }

    fn space(&mut self, offset: u64, size: u64) -> u64 {
        let (value, effect) = self.function.read_space(offset, size);
        assert_eq!(effect, Effect::None);
        value
    }

    fn set_space(&mut self, offset: u64, size: u64, value: u64) -> Effect {
        self.function.write_space(offset, size, value, &self.memory)
    }

    fn read(&mut self, offset: u64, size: u64) -> u64 {
        self.function.read(offset, size).0
    }

    fn write(&mut self, offset: u64, size: u64, value: u64) -> Effect {
        self.function.write(offset, size, value, &self.memory)
    }

    /// The virtio capability of this type, found as a driver does.
    fn capability(&mut self, kind: u64) -> Capability {
        assert_ne!(self.space(6, 2) & 1 << 4, 0, "there is a list");
        let mut place = self.space(0x34, 1);
        let mut seen = 0;
        while place != 0 {
            seen += 1;
            assert!(seen < 48 && place.is_multiple_of(4) && place < 0x100, "{place:#x}");
            assert_eq!(self.space(place, 1), 9, "a vendor's");
            if self.space(place + 3, 1) == kind {
                assert_eq!(self.space(place + 4, 1), 0, "base address 0");
                let [offset, len] = [8, 12].map(|at| self.space(place + at, 4));
                return Capability { place, offset, len };
            }
            place = self.space(place + 1, 1);
        }
        panic!("no capability of type {kind}")
    }

    fn accept(&mut self, features: u64) {
        for (select, word) in [(0, features & 0xffff_ffff), (1, features >> 32)] {
            self.write(8, 4, select);
            self.write(0xc, 4, word);
        }
    }

    /// Sets a queue up; addresses by halves for queue 0, as a whole for the others.
    fn queue(&mut self, index: u64, size: u64) {
        self.write(0x16, 2, index);
        self.write(0x18, 2, size);
        let base = RAM + 0x3000 * index;
        for (register, address) in [(0x20, base), (0x28, base + 0x1000), (0x30, base + 0x2000)] {
            if index == 0 {
                self.write(register, 4, address & 0xffff_ffff);
                self.write(register + 4, 4, address >> 32);
            } else {
                self.write(register, 8, address);
            }
            assert_eq!(self.read(register, 8), address);
        }
        self.write(0x1c, 2, 1);
    }

    /// Up to DRIVER_OK with all queues.
    fn running() -> Self {
        let mut device = Self::new();
        device.set_space(COMMAND, 2, ON);
        device.write(STATUS, 1, 3);
        device.accept(1 << 32 | 1 << 29 | 1 << 28);
        device.write(STATUS, 1, 11);
        (0..QUEUES as u64).for_each(|index| device.queue(index, 64));
        device.write(STATUS, 1, RUNNING);
        assert_eq!(device.read(STATUS, 1), RUNNING);
        device
    }

    /// Where queue `index` is notified.
    fn notify(&mut self, index: u64) -> u64 {
        let notify = self.capability(2);
        let multiplier = self.space(notify.place + 16, 4);
        self.write(0x16, 2, index);
        let at = self.read(0x1e, 2) * multiplier;
        assert!(at + 2 <= notify.len, "section 4.1.4.4.1");
        notify.offset + at
    }
}

/// Section 4.1.2.1 and 4.1.2.2: which device it is; a class, a pin, and no second function.
#[test]
fn it_says_what_it_is() {
    let mut device = Device::new();
    assert_eq!((device.space(0, 2), device.space(2, 2)), (0x1af4, 0x1040 + 19));
    assert!(device.space(8, 1) >= 1, "no transitional device");
    assert!(device.space(0x2e, 2) >= 0x40);
    assert_eq!(device.space(0xe, 1), 0, "one function, of the usual header");
    assert_eq!(device.space(0x3d, 1), 1, "INTA");
    assert_eq!(device.space(0x100, 4), 0, "no extended capabilities");
}

/// Section 4.1.4: each part once, behind the base address and apart from the others.
#[test]
fn capabilities_say_where_the_parts_are() {
    let mut device = Device::new();
    let parts: Vec<_> = (1..=4).map(|kind| device.capability(kind)).collect();
    for (index, part) in parts.iter().enumerate() {
        assert!(part.len > 0 && part.offset + part.len <= LEN && part.offset.is_multiple_of(4));
        for other in &parts[..index] {
            assert!(
                part.offset >= other.offset + other.len || other.offset >= part.offset + part.len
            );
        }
    }
    assert!(parts[0].len >= 0x38, "the common configuration is whole");
    let multiplier = device.space(parts[1].place + 16, 4);
    assert!(multiplier.is_power_of_two() && multiplier >= 2, "section 4.1.4.4.1");
}

/// PCI 3.0, 6.2.5.1: the size shows behind ones; where it is does not change.
#[test]
fn the_base_address_can_be_sized_and_not_moved() {
    let mut device = Device::new();
    assert_eq!(device.space(BAR, 4), BASE);
    device.set_space(BAR, 4, 0xffff_ffff);
    assert_eq!(device.space(BAR, 4), 0x1_0000_0000 - LEN);
    device.set_space(BAR, 4, 0x1234_0000);
    assert_eq!(device.space(BAR, 4), BASE);
    for other in (BAR + 4..0x28).step_by(4).chain([0x30]) {
        device.set_space(other, 4, 0xffff_ffff);
        assert_eq!(device.space(other, 4), 0, "no other base address");
    }
}

/// PCI 3.0, 6.2.2: it answers, and uses its queues, when it was told to.
#[test]
fn the_command_register_turns_it_on_and_off() {
    let mut device = Device::running();
    device.set_space(COMMAND, 4, 0xffff_ffff);
    assert_eq!(device.space(COMMAND, 2), 0x406, "memory, bus master, no INTx: nothing else");
    device.set_space(COMMAND, 2, 4);
    assert_eq!((device.read(STATUS, 1), device.read(0, 8)), (0xff, u64::MAX));
    assert_eq!(device.write(STATUS, 1, 0), Effect::None);
    device.set_space(COMMAND, 1, ON);
    assert_eq!(device.read(STATUS, 1), RUNNING, "what it did not answer it did not do");
    let notify = device.notify(1);
    assert_eq!(device.write(notify, 2, 1), Effect::Notified(TX));
    device.set_space(COMMAND, 2, 2);
    assert!(device.function.queue(TX).is_none());
    assert_eq!(device.write(notify, 2, 1), Effect::None);
}

/// Sections 2.1, 3.1.1 and 4.1.4.3: the same state machine as on MMIO.
#[test]
fn status_bits_are_set_in_order_and_kept() {
    let mut device = Device::new();
    device.set_space(COMMAND, 2, ON);
    device.write(STATUS, 1, 7);
    assert_eq!(device.read(STATUS, 1), 3, "no DRIVER_OK before FEATURES_OK");
    device.accept(1 << 32 | 1 << 40);
    device.write(STATUS, 1, 11);
    assert_eq!(device.read(STATUS, 1), 3, "a feature that was not offered");
    device.accept(1 << 32);
    assert_eq!((device.read(8, 4), device.read(0xc, 4)), (1, 1), "what was accepted reads back");
    device.write(STATUS, 1, 11);
    assert_eq!(device.read(STATUS, 1), 11);
    device.write(8, 4, 1);
    assert_eq!(device.write(STATUS, 1, 0), Effect::Reset);
    assert_eq!([STATUS, 8, 0xc].map(|at| device.read(at, 4)), [0; 3], "all of it");
    assert_eq!(device.space(COMMAND, 2), ON, "a reset of the device, not of the function");
}

/// Section 4.1.4.3: numbers and widths of the common configuration.
#[test]
fn common_configuration_widths_are_checked() {
    let mut device = Device::new();
    device.set_space(COMMAND, 2, ON);
    for (select, word) in [(0, 1 << 28 | 1 << 29 | 3), (1, 1), (2, 0)] {
        device.write(0, 4, select);
        assert_eq!(device.read(4, 4), word);
        assert_eq!(device.read(0, 8), word << 32 | select);
        assert_eq!(device.read(7, 1), word >> 24);
    }
    assert_eq!(
        (device.read(0x10, 2), device.read(0x12, 2)),
        (0xffff, 3),
        "no vector, three queues"
    );
    for (index, size) in [(0, 64), (2, 64), (3, 0), (0xffff, 0)] {
        device.write(0x16, 2, index);
        assert_eq!((device.read(0x16, 2), device.read(0x18, 2)), (index, size));
        assert_eq!(device.read(0x1a, 2), 0xffff, "no vector");
        device.write(0x1a, 2, 0);
        assert_eq!(device.read(0x1a, 2), 0xffff, "section 4.1.5.1.2.1");
    }
    device.write(0, 4, 1);
    for size in [1, 2, 8] {
        device.write(0, size, 0);
    }
    device.write(2, 2, 1);
    assert_eq!(device.read(0, 4), 1, "written by words");
    device.write(0x14, 4, 3);
    device.write(0x14, 2, 3);
    assert_eq!(device.read(STATUS, 1), 0, "written by bytes");
    assert_eq!(device.read(0x38, 8), 0, "what was not negotiated is not there");
}

/// Section 4.1.5.1.3: a driver can make a queue shorter, and its layout stands once it is in use.
#[test]
fn a_queue_is_set_up_once_and_by_a_layout_that_is_one() {
    let mut device = Device::running();
    device.write(0x16, 2, 0);
    assert_eq!(device.read(0x1c, 2), 1);
    device.write(0x18, 2, 16);
    device.write(0x20, 8, 0);
    assert_eq!((device.read(0x18, 2), device.read(0x20, 8)), (64, RAM), "in use");
    let mut device = Device::new();
    device.set_space(COMMAND, 2, ON);
    device.write(STATUS, 1, 3);
    device.accept(1 << 32);
    device.queue(0, 64);
    assert_eq!(device.read(0x1c, 2), 0, "before FEATURES_OK");
    device.write(STATUS, 1, 11);
    for (index, size) in [(0, 3), (0, 128), (0, 0), (3, 64)] {
        device.queue_raw(index, size);
        assert_eq!(device.read(0x1c, 2), 0, "{size}");
    }
    device.queue(0, 8);
    device.write(STATUS, 1, RUNNING);
    assert_eq!(device.function.queue(RX).map(|queue| queue.size()), Some(8));
}

impl Device {
    fn queue_raw(&mut self, index: u64, size: u64) {
        self.write(0x16, 2, index);
        self.write(0x18, 2, size);
        self.write(0x1c, 2, 1);
    }
}

/// Section 4.1.4.4: each queue has a place of its own.
#[test]
fn queues_are_notified_at_their_places() {
    let mut device = Device::running();
    for index in 0..QUEUES as u64 {
        let at = device.notify(index);
        for size in [2, 4] {
            assert_eq!(device.write(at, size, index), Effect::Notified(index as usize));
        }
        assert_eq!(device.write(at, 1, index), Effect::None);
        assert_eq!(device.write(at + 2, 2, index), Effect::None);
        assert_eq!(device.read(at, 2), 0);
    }
    device.function.device().break_down();
    let at = device.notify(1);
    assert_eq!(device.write(at, 2, 1), Effect::None);
}

/// Section 4.1.4.5: the line is up until the driver reads why; the command register can keep it
/// down.
#[test]
fn the_line_is_up_until_its_reason_was_read() {
    let mut device = Device::running();
    let isr = device.capability(3).offset;
    assert!(!device.function.line());
    device.function.device().signal_used();
    assert!(device.function.line());
    assert_ne!(device.space(6, 2) & 1 << 3, 0, "the status register says so");
    assert_eq!(device.set_space(COMMAND, 2, ON | 1 << 10), Effect::Line);
    assert!(!device.function.line());
    assert_eq!(device.set_space(COMMAND, 2, ON), Effect::Line);
    assert!(device.function.line());
    assert_eq!(device.function.read(isr + 1, 1), (0, Effect::None), "the byte is the register");
    assert_eq!(device.function.read(isr, 1), (1, Effect::Line));
    assert!(!device.function.line());
    assert_eq!(device.function.read(isr, 1), (0, Effect::Line));
    device.function.device().break_down();
    assert_eq!(device.read(STATUS, 1), RUNNING | 64);
    assert_eq!(device.function.read(isr, 4), (2, Effect::Line));
}

/// Section 5.10.4: the context identifier.
#[test]
fn the_configuration_is_the_context_identifier() {
    let mut device = Device::new();
    device.set_space(COMMAND, 2, ON);
    let at = device.capability(4).offset;
    assert_eq!((device.read(at, 8), device.read(at, 4), device.read(at + 4, 4)), (CID.0, 5, 1));
    assert_eq!((device.read(at + 4, 8), device.read(at + 8, 4)), (0, 0), "behind its end");
}

/// Section 4.1.4.9: all that is behind the base address can be reached through the configuration
/// space, too.
#[test]
fn the_window_reaches_the_registers() {
    let mut device = Device::running();
    let window = device.capability(5).place;
    let (isr, notify) = (device.capability(3).offset, device.notify(1));
    // It does so where the function does not answer at its base address.
    device.set_space(COMMAND, 2, 4);
    let go = |device: &mut Device, offset, len| {
        device.set_space(window + 8, 4, offset);
        device.set_space(window + 12, 4, len);
        assert_eq!((device.space(window + 8, 4), device.space(window + 12, 4)), (offset, len));
    };
    go(&mut device, STATUS, 1);
    assert_eq!(device.function.read_space(window + 16, 1), (RUNNING, Effect::None));
    go(&mut device, 0, 4);
    device.set_space(window + 16, 4, 1);
    go(&mut device, 4, 4);
    assert_eq!(device.function.read_space(window + 16, 4), (1, Effect::None));
    go(&mut device, notify, 2);
    assert_eq!(device.set_space(window + 16, 2, 1), Effect::Notified(TX));
    device.function.device().signal_used();
    go(&mut device, isr, 1);
    assert_eq!(device.function.read_space(window + 16, 1), (1, Effect::Line));
    for (bar, offset, len) in [(1, 0, 4), (0, 0, 3), (0, 0, 0), (0, 2, 4), (0, LEN, 4)] {
        device.set_space(window + 4, 1, bar);
        go(&mut device, offset, len);
        assert_eq!(device.function.read_space(window + 16, 4), (0, Effect::None));
        assert_eq!(device.set_space(window + 16, 4, 1), Effect::None);
    }
}

/// What is no access of a bus reads as ones and writes nothing.
#[test]
fn the_configuration_space_is_read_within_words() {
    let mut device = Device::new();
    for (offset, size) in [(1, 2), (2, 4), (0, 8), (0, 0), (0, 3), (0x1000, 4), (u64::MAX, 1)] {
        assert_eq!(device.function.read_space(offset, size), (u64::MAX, Effect::None));
        assert_eq!(device.set_space(offset, size, u64::MAX), Effect::None);
    }
    assert_eq!(device.function, Device::new().function);
    device.set_space(0x3c, 1, 0x2a);
    assert_eq!(device.space(0x3c, 4), 0x12a, "the line's number is the driver's");
}

#[derive(Clone, Copy, Debug)]
struct Access {
    space: bool,
    write: bool,
    offset: u64,
    size: u64,
    value: u64,
}

fn access() -> impl Strategy<Value = Access> {
    let offset = prop_oneof![
        0u64..0x50,
        0x1000u64..0x1008,
        0x2000u64..0x2010,
        0x3000u64..0x3010,
        any::<u64>()
    ];
    let space = prop_oneof![0u64..0x100, any::<u64>()];
    let value = prop_oneof![0u64..16, Just(RAM), any::<u64>()];
    let size = prop_oneof![Just(1u64), Just(2), Just(4), Just(8), 0u64..20];
    (any::<(bool, bool)>(), offset, space, size, value).prop_map(
        |((in_space, write), offset, space, size, value)| Access {
            space: in_space,
            write,
            offset: if in_space { space } else { offset },
            size,
            value,
        },
    )
}

proptest! {
    /// A hostile driver: nothing panics, what is fixed stays, and a queue is in use only in a
    /// device that runs and may access memory.
    #[test]
    fn no_access_harms_the_device(
        begins_running: bool, accesses in prop::collection::vec(access(), 0..200),
    ) {
        let mut device = if begins_running { Device::running() } else { Device::new() };
        for Access { space, write, offset, size, value } in accesses {
            let effect = match (space, write) {
                (true, true) => device.set_space(offset, size, value),
                (true, false) => device.function.read_space(offset, size).1,
                (false, true) => device.write(offset, size, value),
                (false, false) => device.function.read(offset, size).1,
            };
            if let Effect::Notified(index) = effect {
                prop_assert!(write && device.function.queue(index).is_some());
            }
            prop_assert_eq!(device.space(0, 4), 0x1053_1af4);
            let base = device.space(BAR, 4);
            prop_assert!(base == BASE || base == 0x1_0000_0000 - LEN);
            if (0..QUEUES).any(|index| device.function.queue(index).is_some()) {
                prop_assert_ne!(device.space(COMMAND, 2) & 4, 0);
            }
        }
    }

    /// Any part of a word reads as the word does.
    #[test]
    fn parts_of_words_are_parts_of_words(
        offset in 0u64..0x40, size in prop_oneof![Just(1u64), Just(2), Just(4)],
    ) {
        let mut device = Device::running();
        let at = offset & !(size - 1);
        let word = device.read(at & !3, 4);
        prop_assert_eq!(device.read(at, size), word >> (at % 4 * 8) & ((1 << (size * 8)) - 1));
        let word = device.space(at & !3, 4);
        prop_assert_eq!(device.space(at, size), word >> (at % 4 * 8) & ((1 << (size * 8)) - 1));
    }
}
