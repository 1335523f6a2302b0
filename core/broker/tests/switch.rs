//! The switch at the service VM: frames between VMs' network devices, drivers that flood, lie and
//! reset their devices, and rings without meaning.

use crate::world::support::{Driver, LEN, Memory, RAM};
use proptest::prelude::*;
use weir_broker::{broker::Step, ram::Access, switch::Switch};
use weir_exchange::{
    flows::PORTS,
    ram::{PIECES, Piece},
    switch::{PortSettings, SwitchCounts, SwitchExchange},
};
use weir_vsock::{
    GuestMemory,
    device::{RX, TX},
    net::HEADER_LEN,
    queue::{Broken, Layout, Queue, RingOptions},
};

const OPTIONS: RingOptions = RingOptions { indirect: false, event_index: false };
/// Where the rings and the buffers to receive into are, behind those to send from.
const RX_RINGS: u64 = RAM + 0x8000;
const RX_BUFFERS: u64 = RAM + 0xc000;
const TX_BUFFERS: u64 = RAM + 0x4000;
const FRAME: usize = 64;
/// Bytes of a buffer for a frame with its header.
const BUFFER: u32 = (HEADER_LEN + FRAME) as u32;

fn mac(vm: usize) -> u64 {
    2 * vm as u64 + 2
}

/// Where the service VM sees RAM of a VM.
fn window(vm: usize) -> u64 {
    (vm as u64 + 1) << 35
}

/// RAM of all VMs, as the service VM reaches it: an access to anything else panics.
struct Windows<'a>(&'a mut [Memory]);

impl Windows<'_> {
    fn find(&mut self, at: u64) -> (&mut Memory, u64) {
        let vm = (at >> 35) as usize - 1;
        (&mut self.0[vm], RAM + (at & ((1 << 35) - 1)))
    }
}

impl Access for Windows<'_> {
    fn read(&mut self, from: u64, to: &mut [u8]) {
        let (memory, at) = self.find(from);
        memory.read(at, to).expect("RAM");
    }

    fn write(&mut self, to: u64, from: &[u8]) {
        let (memory, at) = self.find(to);
        memory.write(at, from).expect("RAM");
    }
}

/// A VM's driver.
struct Station {
    tx: Driver,
    rx: Driver,
    /// Chains that it has made available, ever.
    sent: u64,
    offered: u64,
}

impl Station {
    fn new() -> Self {
        let mut rx = Driver::new(8, OPTIONS);
        rx.layout = Layout {
            size: 8,
            descriptors: RX_RINGS,
            available: RX_RINGS + 0x1000,
            used: RX_RINGS + 0x2000,
        };
        Self { tx: Driver::new(8, OPTIONS), rx, sent: 0, offered: 0 }
    }
}

struct World {
    shared: &'static SwitchExchange,
    ram: Vec<Memory>,
    stations: Vec<Station>,
}

impl World {
    fn new(count: usize, settings: PortSettings) -> Self {
        let shared: &'static SwitchExchange = Box::leak(Box::default());
        for vm in 0..count {
            let settings = PortSettings { mac: mac(vm), ..settings };
            let piece = Piece { ipa: RAM, address: window(vm), len: LEN as u64 };
            assert!(shared.configure(vm, &settings, [piece]));
        }
        let mut world = Self {
            shared,
            ram: vec![Memory::new(); count],
            stations: (0..count).map(|_| Station::new()).collect(),
        };
        (0..count).for_each(|vm| world.open(vm));
        world
    }

    /// The driver of `vm` sets its device up.
    fn open(&mut self, vm: usize) {
        let device = &self.shared.port(vm).device;
        let Station { tx, rx, .. } = &self.stations[vm];
        for (index, driver) in [(RX, rx), (TX, tx)] {
            device.publish(index, &Queue::new(driver.layout, OPTIONS));
        }
    }

    /// It resets the device, and has rings of zeros.
    fn reset(&mut self, vm: usize) {
        self.shared.port(vm).device.reset();
        self.ram[vm] = Memory::new();
        self.stations[vm] = Station::new();
    }

    fn offer(&mut self, vm: usize) {
        let Station { rx, offered, .. } = &mut self.stations[vm];
        let at = RX_BUFFERS + 0x100 * (*offered % 8);
        rx.add(&mut self.ram[vm], &[(at, BUFFER, true)], false).expect("room");
        *offered += 1;
    }

    /// `vm` sends a frame of bytes `mark` as the station of `from`.
    fn send_as(&mut self, vm: usize, from: u64, to: u64, mark: u8) {
        let Station { tx, sent, .. } = &mut self.stations[vm];
        let at = TX_BUFFERS + 0x100 * (*sent % 8);
        let mut frame = vec![mark; HEADER_LEN + FRAME];
        frame[HEADER_LEN..HEADER_LEN + 6].copy_from_slice(&to.to_le_bytes()[..6]);
        frame[HEADER_LEN + 6..HEADER_LEN + 12].copy_from_slice(&from.to_le_bytes()[..6]);
        self.ram[vm].put(at, &frame);
        tx.add(&mut self.ram[vm], &[(at, BUFFER, false)], false).expect("room");
        *sent += 1;
        self.shared.port(vm).device.notify(TX, 1, 0);
    }

    fn send(&mut self, vm: usize, to: u64, mark: u8) {
        self.send_as(vm, mac(vm), to, mark);
    }

    /// Marks of the frames that `vm` has got since this was last called.
    fn received(&mut self, vm: usize) -> Vec<u8> {
        let memory = &self.ram[vm];
        let station = &mut self.stations[vm];
        let taken = station.rx.take(memory);
        let marks = taken.iter().filter(|(_, written)| *written > 0).map(|(head, _)| {
            let at = memory.u32(RX_RINGS + 16 * u64::from(*head));
            memory.u32(u64::from(at) + HEADER_LEN as u64 + 60) as u8
        });
        marks.collect()
    }

    fn counts(&self, vm: usize) -> SwitchCounts {
        self.shared.port(vm).counts()
    }
}

/// Steps until there is nothing to do; how many, and how many reports to the hypervisor.
fn settle(world: &mut World, switch: &mut Switch<'_>, now: u64) -> (usize, usize) {
    let (mut steps, mut reports) = (0, 0);
    while let Some(step) = switch.step(now, &mut Windows(&mut world.ram)) {
        steps += 1;
        reports += usize::from(matches!(step, Step::Report(_)));
        assert!(steps < 1000, "no end");
    }
    (steps, reports)
}

#[test]
fn a_frame_goes_to_its_station_alone() {
    let mut world = World::new(3, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    (0..3).for_each(|vm| world.offer(vm));
    world.send(0, mac(2), 7);
    assert_eq!(settle(&mut world, &mut switch, 0).1, 2, "the sender and the receiver");
    assert_eq!([0, 1, 2].map(|vm| world.received(vm)), [vec![], vec![], vec![7]]);
    assert_eq!(world.stations[0].tx.take(&world.ram[0]).len(), 1, "its buffer is back");
    let SwitchCounts { sent, received, .. } = world.counts(0);
    assert_eq!((sent, received, world.counts(2).received), (1, 0, 1));
    assert_eq!(
        [0, 1, 2].map(|vm| world.shared.port(vm).device.used()),
        [Some(1), Some(0), Some(1)]
    );
    assert_eq!(settle(&mut world, &mut switch, 0), (0, 0), "nothing twice");
}

#[test]
fn a_step_gives_a_frame_to_one_vm() {
    let mut world = World::new(PORTS, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    (1..PORTS).for_each(|vm| world.offer(vm));
    world.send(0, 0xffff_ffff_ffff, 9);
    // One takes it, the others give it, and the last finds the ring empty.
    assert_eq!(settle(&mut world, &mut switch, 0).0, 1 + (PORTS - 1) + 1);
    assert!((1..PORTS).all(|vm| world.received(vm) == [9]));
}

#[test]
fn a_receiver_without_a_buffer_loses_the_frame() {
    let mut world = World::new(2, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    world.send(0, mac(1), 1);
    settle(&mut world, &mut switch, 0);
    world.offer(1);
    world.send(0, mac(1), 2);
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.received(1), [2]);
    let SwitchCounts { received, missed, .. } = world.counts(1);
    assert_eq!((received, missed), (1, 1));
}

#[test]
fn no_station_sends_as_another() {
    let mut world = World::new(3, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    world.offer(1);
    world.send_as(2, mac(0), mac(1), 1);
    settle(&mut world, &mut switch, 0);
    assert!(world.received(1).is_empty());
    assert_eq!((world.counts(2).sent, world.counts(2).refused), (0, 1));
}

#[test]
fn frames_above_the_rate_are_dropped() {
    let limits = PortSettings { rate: 1_000_000, burst: 2, ..PortSettings::default() };
    let mut world = World::new(2, limits);
    let mut switch = Switch::new(world.shared);
    (0..8).for_each(|_| world.offer(1));
    (0..5).for_each(|mark| world.send(0, mac(1), mark));
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.received(1), [0, 1]);
    assert_eq!((world.counts(0).sent, world.counts(0).over_rate), (2, 3));
    assert_eq!(world.stations[0].tx.take(&world.ram[0]).len(), 5, "its buffers are back");
    // A microsecond later there is room for one; a reset gives none back.
    world.reset(0);
    world.open(0);
    (5..7).for_each(|mark| world.send(0, mac(1), mark));
    settle(&mut world, &mut switch, 1000);
    assert_eq!(world.received(1), [5]);
}

#[test]
fn a_flood_delays_others_by_one_frame_each() {
    let mut world = World::new(3, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    (0..8).for_each(|_| world.offer(2));
    (0..8).for_each(|_| world.send(0, mac(2), 1));
    (0..3).for_each(|_| world.send(1, mac(2), 2));
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.received(2), [1, 2, 1, 2, 1, 2, 1, 1]);
}

#[test]
fn nothing_is_written_behind_a_reset() {
    let mut world = World::new(2, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    world.offer(1);
    world.send(0, mac(1), 1);
    // The frame is taken, and its receiver is reset before it gets it.
    let _ = switch.step(0, &mut Windows(&mut world.ram));
    world.reset(1);
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.ram[1].bytes, vec![0; LEN], "of the next owner");
    assert_eq!(world.counts(1).missed, 1);
    assert_eq!(world.shared.port(1).device.used(), None, "no interrupt in the new epoch");
    // It goes on when its driver has set it up anew.
    world.open(1);
    world.offer(1);
    world.send(0, mac(1), 2);
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.received(1), [2]);
}

#[test]
fn a_broken_ring_stops_its_device_until_a_reset() {
    let mut world = World::new(3, PortSettings::default());
    let mut switch = Switch::new(world.shared);
    (0..4).for_each(|_| world.offer(2));
    let available = world.stations[0].tx.layout.available;
    world.ram[0].put(available + 2, &99u16.to_le_bytes());
    world.shared.port(0).device.notify(TX, 1, 0);
    world.send(1, mac(2), 1);
    assert!(settle(&mut world, &mut switch, 0).1 > 0);
    assert_eq!(world.received(2), [1], "another goes on");
    assert_eq!(world.shared.port(0).device.broken(), Some(Broken::Index as u8));
    world.shared.port(0).device.notify(TX, 2, 0);
    assert_eq!(settle(&mut world, &mut switch, 0), (0, 0), "not taken up again");
    world.reset(0);
    assert_eq!(world.shared.port(0).device.broken(), None);
    world.open(0);
    world.send(0, mac(2), 3);
    settle(&mut world, &mut switch, 0);
    assert_eq!(world.received(2), [3]);
}

#[test]
fn pieces_that_follow_each_other_are_one() {
    let shared = SwitchExchange::new();
    let piece = |place: u64| Piece { ipa: RAM + (place << 12), address: place << 12, len: 1 << 12 };
    assert!(shared.configure(0, &PortSettings::default(), (0..1000).map(piece)));
    let apart = (0..PIECES as u64 - 1).map(|place| piece(2 * place));
    assert!(shared.configure(1, &PortSettings::default(), apart.clone()));
    assert!(!shared.configure(2, &PortSettings::default(), apart), "too many");
}

proptest! {
    /// Rings and buffers of random bytes that change while they are read: the switch accesses RAM
    /// of its ports alone, within a bounded number of accesses a step, and serves the others.
    #[test]
    fn a_hostile_driver_stops_its_own_device_alone(
        bytes in prop::collection::vec(any::<u8>(), LEN), seed in any::<u64>(),
    ) {
        let mut world = World::new(3, PortSettings::default());
        let mut switch = Switch::new(world.shared);
        world.ram[0].bytes = bytes;
        world.ram[0].hostile = Some(seed);
        for mark in 0..20 {
            world.offer(2);
            world.send(1, mac(2), mark);
            world.shared.port(0).device.notify(TX, 1, 0);
            // At most the hostile driver's frame is between.
            for _ in 0..8 {
                world.ram[0].watch();
                if switch.step(0, &mut Windows(&mut world.ram)).is_none() {
                    break;
                }
                prop_assert!(world.ram[0].reads <= 60, "{} reads", world.ram[0].reads);
            }
            prop_assert_eq!(world.received(2), [mark]);
            world.stations[1].tx.take(&world.ram[1]);
        }
    }
}
