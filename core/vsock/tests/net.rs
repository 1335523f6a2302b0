//! Frames of network devices: what a driver sends and receives, and which port of a switch a frame
//! is for.

use crate::support::{Driver, LEN, Memory, RAM, layout};
use proptest::prelude::*;
use weir_vsock::{
    GuestMemory,
    mmio::{DeviceKind, Effect, MmioRegisters, RX, TX},
    net::{
        Delivery, EthernetFrame, Foreign, HEADER_LEN, LEAST_FRAME, MOST_FRAME, Station, is_group,
        take, targets,
    },
    queue::{Broken, Chain, Queue, RingOptions, STRIDE},
};

const MAC: u64 = 0x0a00_0000_5452;
const BUFFERS: u64 = RAM + 0x8000;
const MAC_FEATURE: u64 = 1 << 5;
const VERSION_1: u64 = 1 << 32;

/// A ring that driver and device have just set up.
fn ring(size: u16) -> (Memory, Driver, Queue) {
    let options = RingOptions { indirect: true, event_index: false };
    (Memory::new(), Driver::new(size, options), Queue::new(layout(size), options))
}

/// Copies a frame in as many walks as it takes.
fn copy(
    frame: &mut EthernetFrame,
    queue: &Queue,
    mut chain: Chain,
    memory: &mut Memory,
) -> Result<bool, Broken> {
    frame.clear();
    // Bounded: a walk that is not the last reads as many descriptors as it may.
    for _ in 0..=2 * u32::from(queue.size()) / STRIDE {
        if let Some(is_frame) = frame.copy((queue, &mut chain), memory)? {
            return Ok(is_frame);
        }
    }
    panic!("the chain has no end");
}

/// Gives a driver a frame in as many walks as it takes; false if it has no buffer, or a short one.
fn give(queue: &mut Queue, frame: &EthernetFrame, memory: &mut Memory) -> Result<bool, Broken> {
    let Some(mut delivery) = Delivery::begin(queue, memory)? else { return Ok(false) };
    for _ in 0..=2 * u32::from(queue.size()) / STRIDE {
        if let Some(is_given) = delivery.give(queue, frame, memory)? {
            return Ok(is_given);
        }
    }
    panic!("the chain has no end");
}

/// The frame with these bytes, as a driver sends it in buffers of `piece` bytes.
fn sent(bytes: &[u8], piece: usize) -> Option<EthernetFrame> {
    sent_in(bytes, |_| piece, true)
}

/// The same in buffers of so many bytes each, in a table or in the ring.
fn sent_in(
    bytes: &[u8],
    piece: impl Fn(usize) -> usize,
    is_indirect: bool,
) -> Option<EthernetFrame> {
    let (mut memory, mut driver, mut queue) = ring(64);
    let all: Vec<u8> = [&[0xee; HEADER_LEN], bytes].concat();
    memory.put(BUFFERS, &all);
    let (mut buffers, mut at) = (Vec::new(), 0);
    while at < all.len() {
        let len = piece(buffers.len()).min(all.len() - at);
        buffers.push((BUFFERS + at as u64, len as u32, false));
        at += len;
    }
    driver.add(&mut memory, &buffers, is_indirect).expect("a descriptor");
    let chain = take(&mut queue, &mut memory).expect("a ring").expect("a chain");
    let mut frame = EthernetFrame::EMPTY;
    copy(&mut frame, &queue, chain, &mut memory).expect("in RAM").then_some(frame)
}

#[test]
fn section_5_1_4_the_configuration_is_the_address() {
    let registers = MmioRegisters::new(DeviceKind::Network(MAC));
    assert_eq!(registers.read(0x008, 4), 1, "a network device");
    let bytes: Vec<u64> = (0..8).map(|at| registers.read(0x100 + at, 1)).collect();
    assert_eq!(bytes, [0x52, 0x54, 0, 0, 0, 0x0a, 0, 0]);
}

#[test]
fn section_5_1_2_there_are_two_queues_and_no_third() {
    let memory = Memory::new();
    let mut registers = MmioRegisters::new(DeviceKind::Network(MAC));
    let mut write = |at, value| registers.write(at, 4, value, &memory);
    for (select, word) in [(0, MAC_FEATURE), (1, VERSION_1 >> 32)] {
        assert_eq!(write(0x24, select), Effect::None);
        write(0x20, word);
    }
    write(0x70, 11);
    for queue in [RX, TX, 2] {
        write(0x30, queue as u64);
        write(0x38, 8);
        for (at, area) in [(0x80, RAM), (0x90, RAM + 0x1000), (0xa0, RAM + 0x2000)] {
            write(at, area);
        }
        write(0x44, 1);
    }
    write(0x70, 15);
    assert_eq!(registers.read(0x34, 4), 0, "the third has no size");
    assert!(registers.queue(RX).is_some() && registers.queue(TX).is_some());
    assert!(registers.queue(2).is_none());
}

#[test]
fn a_feature_that_is_not_offered_is_not_agreed_on() {
    let memory = Memory::new();
    let offered = [0, 1].map(|select| {
        let mut registers = MmioRegisters::new(DeviceKind::Network(MAC));
        registers.write(0x14, 4, select, &memory);
        registers.read(0x10, 4)
    });
    // VIRTIO_NET_F_MAC, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_EVENT_IDX; VIRTIO_F_VERSION_1.
    assert_eq!(offered, [1 << 5 | 1 << 28 | 1 << 29, 1]);
    for feature in (0..32).filter(|bit| offered[0] >> bit & 1 == 0) {
        let mut registers = MmioRegisters::new(DeviceKind::Network(MAC));
        for (select, word) in [(0, 1 << feature), (1, 1)] {
            registers.write(0x24, 4, select, &memory);
            registers.write(0x20, 4, word, &memory);
        }
        registers.write(0x70, 4, 11, &memory);
        assert_eq!(registers.read(0x70, 4), 3, "feature {feature}");
    }
}

#[test]
fn what_is_shorter_or_longer_than_a_frame_is_none() {
    for len in [0, LEAST_FRAME - 1, MOST_FRAME + 1, MOST_FRAME + 100] {
        assert_eq!(sent(&vec![0; len], 500), None, "{len} bytes");
    }
    for len in [LEAST_FRAME, MOST_FRAME] {
        assert_eq!(sent(&vec![7; len], 500).expect("a frame").bytes(), vec![7; len]);
    }
}

#[test]
fn missing_or_short_buffers_lose_only_the_frame() {
    let frame = sent(&[5; 100], 256).expect("a frame");
    let (mut memory, mut driver, mut queue) = ring(4);
    assert_eq!(give(&mut queue, &frame, &mut memory), Ok(false));
    let short = (HEADER_LEN + 99) as u32;
    driver.add(&mut memory, &[(BUFFERS, short, true)], false).expect("room");
    assert_eq!(give(&mut queue, &frame, &mut memory), Ok(false));
    let taken = driver.take(&memory);
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].1, 0, "the buffer is back, and nothing is in it");
    driver.add(&mut memory, &[(BUFFERS, short + 1, true)], false).expect("room");
    assert_eq!(give(&mut queue, &frame, &mut memory), Ok(true));
    assert_eq!(driver.take(&memory)[0].1, short + 1);
}

#[test]
fn a_changing_frame_is_checked_as_forwarded() {
    let (mut memory, mut driver, mut queue) = ring(4);
    memory.put(BUFFERS, &[0; 200]);
    driver.add(&mut memory, &[(BUFFERS, 112, false)], false).expect("room");
    let chain = take(&mut queue, &mut memory).expect("a ring").expect("a chain");
    memory.watch();
    let mut frame = EthernetFrame::EMPTY;
    assert_eq!(copy(&mut frame, &queue, chain, &mut memory), Ok(true));
    assert!(memory.again.is_empty(), "each byte is read once");
    let before = (frame.addresses(), frame.clone());
    memory.put(BUFFERS, &[0xff; 200]);
    assert_eq!((frame.addresses(), frame), before);
}

/// Ports with the addresses 2, 4, 6 and so on; port `uplink` is that.
fn ports(count: usize, uplink: usize) -> Vec<Station> {
    (0..count).map(|at| Station { mac: 2 * at as u64 + 2, uplink: at == uplink }).collect()
}

#[test]
fn a_frame_goes_where_its_station_is() {
    let ports = ports(4, 0);
    let targets = |from, addresses| targets(ports.iter().copied(), from, addresses);
    assert_eq!(targets(1, (6, 4)), Ok(1 << 2), "to another port's");
    assert_eq!(targets(1, (100, 4)), Ok(1), "to no port here");
    assert_eq!(targets(0, (4, 100)), Ok(1 << 1), "from outside");
    assert_eq!(targets(0, (100, 102)), Ok(0), "from outside to no port");
    assert_eq!(targets(2, (0xffff_ffff_ffff, 6)), Ok(0b1011), "to all");
    assert_eq!(targets(1, (4, 4)), Ok(0), "to itself");
    assert_eq!(targets(1, (6, 8)), Err(Foreign), "as another");
    assert_eq!(targets(1, (6, 100)), Err(Foreign), "as one outside");
    assert_eq!(targets(0, (6, 8)), Err(Foreign), "from outside as one here");
    assert_eq!(targets(0, (6, 101)), Err(Foreign), "from a group");
    assert_eq!(targets(4, (6, 8)), Err(Foreign), "from no port");
}

proptest! {
    #[test]
    fn a_frame_arrives_as_it_was_sent(
        bytes in prop::collection::vec(any::<u8>(), LEAST_FRAME..=MOST_FRAME),
        cuts in prop::collection::vec(0usize..100, 0..63), is_indirect in any::<bool>(),
        rooms in prop::collection::vec(1u32..490, 1..=64),
    ) {
        let piece = |place| cuts.get(place).copied().unwrap_or(usize::MAX);
        let frame = sent_in(&bytes, piece, is_indirect).expect("a frame");
        prop_assert_eq!(frame.bytes(), bytes.as_slice());
        let address = |at: usize| {
            bytes[at..at + 6].iter().rev().fold(0, |mac, byte| mac << 8 | u64::from(*byte))
        };
        prop_assert_eq!(frame.addresses(), (address(0), address(6)));
        let (mut memory, mut driver, mut queue) = ring(64);
        let mut at = BUFFERS;
        let buffers: Vec<_> = rooms.iter().map(|&room| {
            let buffer = (at, room, true);
            at += 0x1f0;
            buffer
        }).collect();
        driver.add(&mut memory, &buffers, is_indirect).expect("descriptors");
        let room: u32 = rooms.iter().sum();
        let fits = room as usize >= HEADER_LEN + bytes.len();
        prop_assert_eq!(give(&mut queue, &frame, &mut memory), Ok(fits));
        let (_, written) = driver.take(&memory)[0];
        if fits {
            prop_assert_eq!(written as usize, HEADER_LEN + bytes.len());
            let mut came = Vec::new();
            for (at, room, _) in buffers {
                let mut part = vec![0; room as usize];
                memory.read(at, &mut part).unwrap();
                came.extend(part);
            }
            // The header is the device's: no offload, one buffer.
            prop_assert_eq!(&came[..HEADER_LEN], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
            prop_assert_eq!(&came[HEADER_LEN..HEADER_LEN + bytes.len()], bytes.as_slice());
        }
    }

    #[test]
    fn nobody_gets_what_he_sent_or_another_s(
        count in 1usize..9, uplink in 0usize..9, from in 0usize..9,
        to in 0u64..24, source in 0u64..24,
    ) {
        let ports = ports(count, uplink);
        let Ok(mask) = targets(ports.iter().copied(), from, (to, source)) else { return Ok(()) };
        prop_assert!(from < count && mask >> from & 1 == 0 && mask >> count == 0);
        for (at, port) in ports.iter().enumerate().filter(|(at, _)| mask >> at & 1 != 0) {
            let outside = port.uplink && ports.iter().all(|port| port.mac != to);
            prop_assert!(is_group(to) || port.mac == to || outside, "port {}", at);
        }
        // Only the uplink sends with another's address.
        prop_assert!(source == ports[from].mac || ports[from].uplink);
    }

    #[test]
    fn a_hostile_ring_breaks_its_own_device_alone(
        bytes in prop::collection::vec(any::<u8>(), LEN), seed in any::<u64>(), turns in 1usize..40,
    ) {
        let (mut memory, _, mut queue) = ring(8);
        memory.bytes = bytes;
        memory.hostile = Some(seed);
        let (frame, mut copied) = (EthernetFrame::EMPTY, EthernetFrame::EMPTY);
        for turn in 0..turns {
            memory.watch();
            let ended = if turn % 2 == 0 {
                give(&mut queue, &frame, &mut memory).map(|_| ())
            } else {
                take(&mut queue, &mut memory).and_then(|chain| {
                    let Some(chain) = chain else { return Ok(()) };
                    copy(&mut copied, &queue, chain, &mut memory)?;
                    queue.push(&mut memory, chain.head(), 0).map_err(Broken::from)
                })
            };
            prop_assert!(memory.reads <= 40, "{} reads for one frame", memory.reads);
            if ended.is_err() {
                break;
            }
        }
    }
}
