//! What virtio 1.2 demands of a socket device on the MMIO transport, one test for each section that
//! demands something.

use crate::support::{Device, Driver, Memory, RAM, layout, pop, walk};
use weir_units::Cid;
use weir_vsock::{
    device::{DeviceKind, Effect, QUEUES, RX, TX},
    mmio::MmioRegisters,
    queue::{Broken, Direction, Layout, MAX_SIZE, Queue, RingOptions},
    vsock::{Header, Malformed, Operation, SEQPACKET, STREAM},
};

const CID: Cid = Cid(5);
const ACKNOWLEDGE: u64 = 1;
const DRIVER: u64 = 2;
const DRIVER_OK: u64 = 4;
const FEATURES_OK: u64 = 8;
const NEEDS_RESET: u64 = 64;
const FAILED: u64 = 128;
const INDIRECT: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const PLAIN: RingOptions = RingOptions { indirect: true, event_index: false };
const EVENTS: RingOptions = RingOptions { indirect: true, event_index: true };
/// Where the driver's flags are, and behind a ring of four its `used_event`.
const AVAILABLE: u64 = RAM + 0x1000;
const USED: u64 = RAM + 0x2000;

/// A driver that goes through section 3.1.1 step by step.
impl Device {
    fn status(&mut self, value: u64) -> u64 {
        self.write(0x70, value);
        self.read(0x70)
    }

    fn step(&mut self, value: u64) {
        self.status(value);
    }

    fn offered(&mut self) -> u64 {
        let word = |device: &mut Self, select| {
            device.write(0x14, select);
            device.read(0x10)
        };
        word(self, 0) | word(self, 1) << 32
    }

    /// Up to FEATURES_OK; whether the device agrees.
    fn agree(&mut self, features: u64) -> bool {
        self.write(0x70, 0);
        self.status(ACKNOWLEDGE);
        self.status(ACKNOWLEDGE | DRIVER);
        self.accept(features);
        self.status(ACKNOWLEDGE | DRIVER | FEATURES_OK) & FEATURES_OK != 0
    }

    fn of_four_entries() -> Self {
        let mut device = Self::new(CID);
        assert!(device.agree(VERSION_1 | EVENT_IDX | INDIRECT));
        (0..QUEUES as u64).for_each(|index| device.queue(index, 4));
        device.status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
        device
    }
}

/// Returns one more chain to the driver; whether that is an interrupt.
fn returns_one(memory: &mut Memory, driver: &mut Driver, queue: &mut Queue) -> bool {
    let head = driver.add(memory, &[(RAM + 0x8000, 8, true)], false).expect("a descriptor");
    queue.pop(memory).expect("a sound ring");
    queue.push(memory, head, 0).expect("a ring in RAM");
    driver.take(memory);
    queue.wants_interrupt(memory).expect("a ring in RAM")
}

#[test]
fn section_2_1_status_starts_at_0_and_keeps_bits() {
    let mut device = Device::new(CID);
    assert_eq!(device.read(0x70), 0);
    assert_eq!(device.status(ACKNOWLEDGE), ACKNOWLEDGE);
    assert_eq!(device.status(DRIVER), ACKNOWLEDGE | DRIVER, "a bit is taken back by a reset alone");
    assert_eq!(device.status(FAILED), ACKNOWLEDGE | DRIVER | FAILED);
    assert_eq!(device.status(NEEDS_RESET) & NEEDS_RESET, 0, "the device's own bit");
    assert_eq!(device.status(0), 0);
}

#[test]
fn section_2_1_2_no_buffer_is_used_before_driver_ok() {
    let mut device = Device::new(CID);
    assert!(device.agree(VERSION_1));
    device.queue(TX as u64, 4);
    assert_eq!(device.read(0x44), 1);
    assert_eq!(device.write(0x50, TX as u64), Effect::None, "not served");
    assert!(device.registers.queue(TX).is_none());
    device.status(DRIVER_OK);
    assert_eq!(device.write(0x50, TX as u64), Effect::Notified(TX));
}

#[test]
fn section_2_1_2_needs_reset_is_notified_after_ok() {
    let mut device = Device::of_four_entries();
    device.registers.break_down();
    assert_ne!(device.read(0x70) & NEEDS_RESET, 0);
    assert_eq!(device.read(0x60), 2, "a change of configuration is announced");
    let mut early = Device::new(CID);
    early.registers.break_down();
    assert_eq!((early.read(0x70), early.read(0x60)), (NEEDS_RESET, 0), "no driver listens yet");
}

#[test]
fn section_2_2_2_exactly_offered_subsets_are_accepted() {
    let mut device = Device::new(CID);
    let offered = device.offered();
    let bits: Vec<u64> = (0..64).map(|bit| 1 << bit).filter(|bit| offered & bit != 0).collect();
    for pick in 0..1u64 << bits.len() {
        let subset: u64 = bits.iter().enumerate().map(|(at, bit)| (pick >> at & 1) * bit).sum();
        assert_eq!(device.agree(subset), subset & VERSION_1 != 0, "{subset:#x}");
    }
    for bit in (0..64).filter(|bit| offered >> bit & 1 == 0) {
        assert!(!device.agree(VERSION_1 | 1 << bit), "bit {bit} is not offered");
    }
}

#[test]
fn section_2_2_2_the_same_features_are_accepted_again() {
    let mut device = Device::of_four_entries();
    assert!(device.agree(VERSION_1 | EVENT_IDX | INDIRECT));
    device.registers.break_down();
    assert!(device.agree(VERSION_1 | EVENT_IDX | INDIRECT));
}

/// At each step of section 3.1.1, with a broken ring and with interrupts pending.
#[test]
fn section_2_4_1_a_reset_at_any_moment_ends_all() {
    let steps: [fn(&mut Device); 9] = [
        |_| (),
        |device| device.step(ACKNOWLEDGE),
        |device| device.step(ACKNOWLEDGE | DRIVER),
        |device| device.accept(VERSION_1 | EVENT_IDX),
        |device| device.step(ACKNOWLEDGE | DRIVER | FEATURES_OK),
        |device| device.queue(RX as u64, 4),
        |device| device.step(DRIVER_OK),
        |device| device.registers.signal_used(),
        |device| device.registers.break_down(),
    ];
    for last in 0..steps.len() {
        let mut device = Device::new(CID);
        steps[..=last].iter().for_each(|step| step(&mut device));
        assert_eq!(device.write(0x70, 0), Effect::Reset, "behind step {last}");
        assert_eq!(
            device.registers,
            MmioRegisters::new(DeviceKind::Socket(CID)),
            "behind step {last}"
        );
        assert!(!device.registers.line());
        for queue in 0..QUEUES {
            assert_eq!(device.write(0x50, queue as u64), Effect::None, "queues are not touched");
        }
        assert!(device.agree(VERSION_1), "the driver begins anew");
    }
}

#[test]
fn section_2_5_2_configuration_precedes_features_ok() {
    let device = Device::new(CID);
    assert_eq!(device.registers.read(0x100, 8), CID.0);
    assert_eq!(device.read(0xfc), 0, "the generation, of what never changes");
}

#[test]
fn section_2_7_ring_sizes_and_alignments_are_checked() {
    let memory = Memory::new();
    for size in 0..=u16::MAX {
        let sound = [1, 2, 4, 8, 16, 32, 64].contains(&size);
        assert_eq!(layout(size).is_sound(&memory), sound, "{size} entries");
    }
    assert_eq!(MAX_SIZE, 64);
    for off in 1..16 {
        let at = |part: u64, align: u64| (part + off, off.is_multiple_of(align));
        let [(descriptors, a), (available, b), (used, c)] =
            [at(RAM, 16), at(AVAILABLE, 2), at(USED, 4)];
        assert_eq!(Layout { descriptors, ..layout(4) }.is_sound(&memory), a);
        assert_eq!(Layout { available, ..layout(4) }.is_sound(&memory), b);
        assert_eq!(Layout { used, ..layout(4) }.is_sound(&memory), c);
    }
}

#[test]
fn section_2_7_the_size_that_is_told_is_taken() {
    for size in [1, 2, 4, 8, 16, 32, 64] {
        let mut device = Device::new(CID);
        assert!(device.agree(VERSION_1));
        device.write(0x30, TX as u64);
        assert!(size <= device.read(0x34), "QueueNumMax");
        device.queue(TX as u64, size);
        device.status(DRIVER_OK);
        assert_eq!(u64::from(device.registers.queue(TX).expect("in use").size()), size);
    }
}

/// A header and its payload in one buffer, cut anywhere, or in a table: all one to the device.
#[test]
fn section_2_7_4_1_how_a_packet_is_cut_means_nothing() {
    for cut in [1u32, 43, 44, 45, 99] {
        for indirect in [false, true] {
            let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
            let buffers = [(RAM + 0x8000, cut, false), (RAM + 0x9000, 100 - cut, false)];
            driver.add(&mut memory, &buffers, indirect).expect("descriptors");
            let mut queue = Queue::new(layout(4), PLAIN);
            let popped = pop(&mut queue, &mut memory).expect("sound");
            assert_eq!(popped.expect("one").1, buffers);
        }
    }
}

#[test]
fn section_2_7_5_1_read_and_write_buffers_stay_apart() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    let buffers = [(RAM + 0x8000, 8, false), (RAM + 0x9000, 9, true)];
    driver.add(&mut memory, &buffers, false);
    let mut queue = Queue::new(layout(4), PLAIN);
    let chain = queue.pop(&mut memory).expect("sound").expect("one");
    for (direction, buffer) in [(Direction::Read, buffers[0]), (Direction::Write, buffers[1])] {
        assert_eq!(walk(&queue, &mut memory, chain, direction, 3), Ok(vec![buffer]));
    }
}

/// The table's descriptor at `number`, with these flags.
fn descriptor(memory: &mut Memory, at: u64, address: u64, len: u32, flags: u16, next: u16) {
    memory.put(at, &address.to_le_bytes());
    memory.put(at + 8, &len.to_le_bytes());
    memory.put(at + 12, &flags.to_le_bytes());
    memory.put(at + 14, &next.to_le_bytes());
}

#[test]
fn section_2_7_5_3_2_indirect_tables_are_accepted() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    driver.add(&mut memory, &[(RAM + 0x8000, 8, false)], false);
    let (normal, table) = (RAM, RAM + 16);
    descriptor(&mut memory, normal, RAM + 0x8000, 8, 1, 1);
    descriptor(&mut memory, table, RAM + 0x3000, 32, 4 | 2, 0);
    descriptor(&mut memory, RAM + 0x3000, RAM + 0x9000, 9, 1, 1);
    descriptor(&mut memory, RAM + 0x3010, RAM + 0xa000, 10, 2, 0);
    let mut queue = Queue::new(layout(4), PLAIN);
    let (_, buffers) = pop(&mut queue, &mut memory).expect("sound").expect("one");
    let lens: Vec<_> = buffers.into_iter().map(|(_, len, writable)| (len, writable)).collect();
    assert_eq!(lens, [(8, false), (9, false), (10, true)]);
    // Behind the table there may be nothing, and in it no other table.
    for (at, flags) in [(table, 4 | 1), (RAM + 0x3010, 4)] {
        let mut memory = memory.clone();
        memory.put(at + 12, &u16::to_le_bytes(flags));
        let popped = pop(&mut Queue::new(layout(4), PLAIN), &mut memory);
        assert_eq!(popped, Err(Broken::Indirect), "{at:#x}");
    }
}

#[test]
fn section_2_7_7_2_without_event_idx_the_flag_decides() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    let mut queue = Queue::new(layout(4), PLAIN);
    for (round, wanted) in [true, false, false, true, false].into_iter().enumerate() {
        memory.put(AVAILABLE, &u16::from(!wanted).to_le_bytes());
        // `used_event`, of a driver that has none, says that each index is the one, or none is.
        memory.put(AVAILABLE + 4 + 8, &(round as u16 + u16::from(wanted)).to_le_bytes());
        assert_eq!(returns_one(&mut memory, &mut driver, &mut queue), wanted, "round {round}");
    }
}

#[test]
fn section_2_7_7_2_with_event_idx_the_index_decides() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, EVENTS));
    let mut queue = Queue::new(layout(4), EVENTS);
    for round in 0..12u16 {
        let event = round / 3 * 3 + 1;
        memory.put(AVAILABLE + 4 + 8, &event.to_le_bytes());
        // The flag, which this driver does not use, says one thing and then the other.
        memory.put(AVAILABLE, &(round % 2).to_le_bytes());
        assert_eq!(returns_one(&mut memory, &mut driver, &mut queue), event == round, "{round}");
    }
}

#[test]
fn section_2_7_7_2_the_index_may_wrap() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, EVENTS));
    let mut queue = Queue::new(layout(4), EVENTS);
    let mut interrupts = Vec::new();
    memory.put(AVAILABLE + 4 + 8, &u16::MAX.to_le_bytes());
    for number in 0..u32::from(u16::MAX) + 4 {
        if returns_one(&mut memory, &mut driver, &mut queue) {
            interrupts.push(number);
            memory.put(AVAILABLE + 4 + 8, &1u16.to_le_bytes());
        }
    }
    assert_eq!(interrupts, [u32::from(u16::MAX), u32::from(u16::MAX) + 2]);
}

#[test]
fn section_2_7_8_2_the_element_precedes_the_index() {
    /// Memory that keeps the order of writes.
    struct Ordered(Memory, Vec<u64>);
    impl weir_vsock::Ram for Ordered {
        fn contains(&self, address: u64, len: u64) -> bool {
            self.0.contains(address, len)
        }
    }
    impl weir_vsock::GuestMemory for Ordered {
        fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), weir_vsock::Outside> {
            self.0.read(address, to)
        }
        fn write(&mut self, address: u64, from: &[u8]) -> Result<(), weir_vsock::Outside> {
            self.1.push(address);
            self.0.write(address, from)
        }
        fn fence(&mut self) {
            self.1.push(0);
        }
    }
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    let head = driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).expect("a descriptor");
    let mut memory = Ordered(memory, Vec::new());
    let mut queue = Queue::new(layout(4), PLAIN);
    queue.pop(&mut memory).expect("sound");
    memory.1.clear();
    queue.push(&mut memory, head, 7).expect("in RAM");
    assert_eq!(memory.1, [USED + 4, 0, USED + 2]);
    assert_eq!(driver.take(&memory.0), [(head, 7)]);
}

#[test]
fn section_2_7_10_2_avail_event_is_the_next_index() {
    for options in [PLAIN, EVENTS] {
        let (mut memory, mut driver) = (Memory::new(), Driver::new(4, options));
        let mut queue = Queue::new(layout(4), options);
        for number in 1..9u16 {
            let head = driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).expect("free");
            queue.pop(&mut memory).expect("sound");
            assert_eq!(queue.ask_notification(&mut memory), Ok(false));
            let event = memory.u16(USED + 4 + 8 * 4);
            assert_eq!(event, if options.event_index { number } else { 0 });
            assert_eq!(memory.u16(USED), 0, "no notification is ever refused by the flag");
            queue.push(&mut memory, head, 0).expect("in RAM");
            driver.take(&memory);
        }
    }
}

#[test]
fn section_2_7_10_2_spurious_notifications_are_empty() {
    let (mut memory, mut device) = (Memory::new(), Device::of_four_entries());
    let mut queue = Queue::new(layout(4), EVENTS);
    for _ in 0..10 {
        assert_eq!(device.write(0x50, TX as u64), Effect::Notified(TX));
        assert_eq!(queue.pop(&mut memory), Ok(None));
    }
}

#[test]
fn section_4_2_2_1_events_stay_until_acknowledged() {
    let mut device = Device::of_four_entries();
    device.registers.signal_used();
    device.registers.break_down();
    assert_eq!(device.read(0x60), 3);
    device.write(0x64, 1);
    assert_eq!((device.read(0x60), device.registers.line()), (2, true));
    device.write(0x64, 2);
    assert_eq!((device.read(0x60), device.registers.line()), (0, false));
    device.registers.signal_used();
    device.write(0x70, 0);
    assert_eq!(device.read(0x60), 0, "a reset clears all");
}

#[test]
fn section_4_2_2_1_an_unready_queue_is_not_touched() {
    let mut device = Device::of_four_entries();
    device.write(0x30, RX as u64);
    assert_eq!(device.write(0x44, 0), Effect::Reset, "what the device has of it is forgotten");
    assert_eq!(device.read(0x44), 0, "the driver may wait for that");
    assert_eq!(device.write(0x50, RX as u64), Effect::None);
    assert_ne!(device.read(0x70) & NEEDS_RESET, 0, "one queue is not stopped alone");
    assert_eq!(device.write(0x44, 0), Effect::None, "once");
    assert!(device.agree(VERSION_1));
}

#[test]
fn section_5_10_4_the_context_id_is_not_reserved() {
    let device = Device::new(CID);
    assert!(device.registers.read(0x100, 8) > 2);
    assert_eq!(device.registers.read(0x100, 8) >> 32, 0, "the upper half is reserved");
}

#[test]
fn section_5_10_6_5_an_unknown_type_is_reset() {
    let packet = Header { src_cid: CID, dst_cid: Cid(4), kind: STREAM, op: 1, ..Header::ZERO };
    for kind in [0, 3, 4, u16::MAX] {
        let strange = Header { kind, ..packet };
        assert_eq!(strange.check(CID, 0), Err(Malformed::Kind));
        let answer = strange.refusal().expect("an answer");
        assert_eq!((answer.operation(), answer.kind), (Some(Operation::Reset), kind));
        assert_eq!((answer.src_cid, answer.dst_cid), (Cid(4), CID));
    }
    for kind in [STREAM, SEQPACKET] {
        assert_eq!(Header { kind, ..packet }.check(CID, 0), Ok(Operation::Request));
    }
    let lied = Header { kind: 9, src_cid: Cid(CID.0 + 1), ..packet };
    assert_eq!(lied.check(CID, 0), Err(Malformed::Source), "no other end gets the answer");
}
