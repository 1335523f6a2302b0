//! VMs in flows: their RAM, their drivers, what EL2 does for their devices, and the broker.

#![allow(dead_code, reason = "each test takes what it needs")]

#[path = "../../../vsock/tests/support/mod.rs"]
pub mod support;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use support::{Buffer, Driver, Memory, RAM};
use weir_broker::{
    broker::{Broker, EngineFailed, Mover, Step},
    ram::Access,
};
use weir_exchange::{
    devices::DeviceSet,
    flows::{BrokerFlow, BrokerSettings, Doorbell, Exchange, PacketCounts},
    ram::Piece,
};
use weir_units::Cid;
use weir_vsock::{
    GuestMemory,
    device::{RX, TX},
    queue::{Layout, Queue, RingOptions},
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

pub const OPTIONS: RingOptions = RingOptions { indirect: false, event_index: false };
/// Bytes of a VM's RAM.
pub const LEN: usize = 0x4_0000;
/// The vsock port of every receiver.
pub const PORT: u32 = 5000;
const SIZE: u16 = 32;
const RX_RINGS: u64 = RAM + 0x8000;
/// Places for packets to send, [`SENT`] of them, and for receive buffers.
const TX_PLACES: u64 = RAM + 0x1_0000;
const TX_PLACE: u64 = 0x1800;
const SENT: u64 = 16;
const RX_PLACES: u64 = RAM + 0x2_8000;
const RX_PLACE: u64 = 0xc00;

/// The RAM of all VMs, as the broker sees it: an access to anything else panics.
#[derive(Clone)]
pub struct Windows(pub Rc<RefCell<Vec<Memory>>>);

impl Windows {
    fn with<T>(&self, at: u64, body: impl FnOnce(&mut Memory, u64) -> T) -> T {
        let vm = (at >> 35) as usize - 1;
        body(&mut self.0.borrow_mut()[vm], RAM + (at & ((1 << 35) - 1)))
    }
}

impl Access for Windows {
    fn read(&mut self, from: u64, to: &mut [u8]) {
        self.with(from, |memory, at| memory.read(at, to)).expect("RAM");
    }

    fn write(&mut self, to: u64, from: &[u8]) {
        self.with(to, |memory, at| memory.write(at, from)).expect("RAM");
    }
}

/// Moves bytes in it, and counts them.
pub struct Engine {
    pub windows: Windows,
    pub moved: u64,
    pub chunks: u64,
    pub ticks: u64,
    /// Bytes of each piece that the DMA engine moved, or began to.
    pub transfers: Vec<u64>,
    /// The DMA engine fails half-way through the piece with this number.
    pub fails_at: Option<usize>,
}

impl Engine {
    /// One that has moved nothing.
    pub fn new(windows: Windows) -> Self {
        Self { windows, moved: 0, chunks: 0, ticks: 0, transfers: Vec::new(), fails_at: None }
    }
}

impl Mover for Engine {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let mut bytes = vec![0; len as usize];
        self.windows.read(from, &mut bytes);
        self.windows.write(to, &bytes);
        self.moved += len;
        self.chunks += 1;
    }

    fn move_by_engine(&mut self, from: u64, to: u64, len: u64) -> Result<(), EngineFailed> {
        let fails = self.fails_at == Some(self.transfers.len());
        self.transfers.push(len);
        self.copy(from, to, if fails { len / 2 } else { len });
        if fails { Err(EngineFailed) } else { Ok(()) }
    }

    fn ticks(&mut self) -> u64 {
        self.ticks
    }
}

/// A VM's driver.
pub struct Vm {
    pub tx: Driver,
    pub rx: Driver,
    offered: u64,
    /// Where the packet of each head is, and the receive buffer.
    packets: BTreeMap<u16, u64>,
    buffers: BTreeMap<u16, u64>,
    /// Returns that EL2 knows of, and whether it knows of a broken ring.
    used: Option<u32>,
    is_broken: bool,
    /// Interrupts so far.
    pub interrupts: u32,
}

impl Vm {
    fn new(options: RingOptions, size: u16) -> Self {
        let mut rx = Driver::new(size, options);
        rx.layout = Layout {
            size,
            descriptors: RX_RINGS,
            available: RX_RINGS + 0x1000,
            used: RX_RINGS + 0x2000,
        };
        rx.tables = RX_RINGS + 0x3000;
        let tx = Driver::new(size, options);
        let (packets, buffers) = (BTreeMap::new(), BTreeMap::new());
        Self { tx, rx, offered: 0, packets, buffers, used: None, is_broken: false, interrupts: 0 }
    }
}

pub struct World<'a> {
    pub exchange: &'a Exchange,
    pub bell: Doorbell,
    pub windows: Windows,
    pub engine: Engine,
    pub vms: Vec<Vm>,
    pub flows: Vec<BrokerFlow>,
    options: RingOptions,
    size: u16,
}

/// Where the broker sees the RAM of a VM.
pub const fn window(vm: usize) -> u64 {
    (vm as u64 + 1) << 35
}

/// A flow from one VM to another; with a deadline its period is that.
pub fn flow(from: u8, to: u8, deadline: u64) -> BrokerFlow {
    BrokerFlow {
        from,
        to,
        members: 1,
        port: PORT,
        destination: Cid::of_vm(to.into()),
        size: 64 << 10,
        period: deadline,
        deadline,
        ..BrokerFlow::default()
    }
}

impl World<'static> {
    pub fn new(flows: &[BrokerFlow], chunk: u32, rate: u64) -> Self {
        Self::with_options(flows, chunk, rate, OPTIONS)
    }

    pub fn with_options(flows: &[BrokerFlow], chunk: u32, rate: u64, options: RingOptions) -> Self {
        let settings = BrokerSettings { chunk, rate, ..BrokerSettings::default() };
        Self::with_settings(flows, settings, options)
    }

    pub fn with_settings(
        flows: &[BrokerFlow],
        settings: BrokerSettings,
        options: RingOptions,
    ) -> Self {
        Self::on(Box::leak(Box::default()), flows, settings, options, |vm| {
            vec![Piece { ipa: RAM, address: window(vm), len: LEN as u64 }]
        })
    }

    /// A world with connected flows and receivers that have buffers of 1000 bytes.
    pub fn connected(flows: &[BrokerFlow], settings: BrokerSettings) -> (Self, Broker<'static>) {
        let mut world = Self::with_settings(flows, settings, OPTIONS);
        let mut broker = world.broker();
        world.connect(&mut broker);
        for flow in flows {
            world.supply(flow.to.into(), 2000);
        }
        world.run(&mut broker, 0);
        (world, broker)
    }

    /// A broker that has not begun.
    pub fn broker(&self) -> Broker<'static> {
        Broker::new(self.exchange, Box::leak(Box::default()), 1_000_000_000)
    }
}

impl<'a> World<'a> {
    /// In `exchange`, which is all zeros. `ram` says where the broker sees the RAM of a VM, in
    /// its window.
    pub fn on(
        exchange: &'a Exchange,
        flows: &[BrokerFlow],
        settings: BrokerSettings,
        options: RingOptions,
        ram: impl Fn(usize) -> Vec<Piece>,
    ) -> Self {
        let settings = BrokerSettings { flows: flows.len() as u8, ..settings };
        let number = |(index, flow): (usize, &BrokerFlow)| match flow.members {
            1 => BrokerFlow { first: index as u8, ..*flow },
            _ => *flow,
        };
        let flows: Vec<BrokerFlow> = flows.iter().enumerate().map(number).collect();
        exchange.configure(&settings, flows.iter().copied());
        let count = flows.iter().map(|flow| flow.from.max(flow.to) + 1).max().unwrap_or(0).into();
        for vm in 0..count {
            assert!(exchange.ram.set(vm, ram(vm)));
        }
        let windows = Windows(Rc::new(RefCell::new(vec![Memory::with_len(LEN); count])));
        let engine = Engine::new(windows.clone());
        let vms = (0..count).map(|_| Vm::new(options, SIZE)).collect();
        let bell = Doorbell::new();
        let world = Self { exchange, bell, windows, engine, vms, flows, options, size: SIZE };
        (0..count).for_each(|vm| world.publish(vm));
        world
    }

    fn publish(&self, vm: usize) {
        let device = &self.exchange.port(vm).device;
        let Vm { tx, rx, .. } = &self.vms[vm];
        for (index, driver) in [(RX, rx), (TX, tx)] {
            device.publish(index, &Queue::new(driver.layout, self.options));
        }
    }

    /// The VM restarts: its device is reset, and has new rings.
    pub fn reset(&mut self, vm: usize) {
        self.exchange.port(vm).device.reset();
        self.windows.0.borrow_mut()[vm] = Memory::with_len(LEN);
        self.vms[vm] = Vm::new(self.options, self.size);
        self.publish(vm);
    }

    /// All VMs restart, with rings of this size.
    pub fn resize(&mut self, size: u16) {
        self.size = size;
        (0..self.vms.len()).for_each(|vm| self.reset(vm));
    }

    /// The VM makes a receive buffer of `len` bytes, in two pieces, available; none if it has no
    /// place for it.
    pub fn offer(&mut self, vm: usize, len: u64) -> Option<u16> {
        let first = (7 * self.vms[vm].offered % len).max(1).min(len - 1);
        self.offer_in(vm, &[first as u32, (len - first) as u32], false)
    }

    /// The same in pieces of these lengths, in a table or in the ring.
    pub fn offer_in(&mut self, vm: usize, lens: &[u32], is_indirect: bool) -> Option<u16> {
        let Vm { rx, offered, buffers, .. } = &mut self.vms[vm];
        let at = (0..SIZE / 2)
            .map(|slot| RX_PLACES + RX_PLACE * u64::from(slot))
            .find(|at| !buffers.values().any(|other| other == at))?;
        let pieces = pieces(at, lens, true);
        let head = rx.add(&mut self.windows.0.borrow_mut()[vm], &pieces, is_indirect)?;
        buffers.insert(head, at);
        *offered += 1;
        Some(head)
    }

    /// As many as there is room for, and the device knows.
    pub fn supply(&mut self, vm: usize, len: u64) {
        while self.offer(vm, len).is_some() {}
        self.notify(vm, RX, 0);
    }

    /// A buffer in one piece for each free entry of the ring, with room for a control packet, and
    /// the device knows.
    pub fn fill_ring(&mut self, vm: usize) {
        let Vm { rx, buffers, .. } = &mut self.vms[vm];
        for place in (0..u64::from(SIZE)).map(|place| RX_PLACES + 64 * place) {
            if !buffers.values().any(|other| *other == place) {
                let added =
                    rx.add(&mut self.windows.0.borrow_mut()[vm], &[(place, 64, true)], false);
                buffers.insert(added.expect("an entry"), place);
            }
        }
        self.notify(vm, RX, 0);
    }

    /// At most `most` of them, and the VM notifies only if the device has asked for it.
    pub fn supply_as_asked(&mut self, vm: usize, len: u64, most: usize) {
        let before = self.vms[vm].rx.available;
        let _ = (0..most).map_while(|_| self.offer(vm, len)).count();
        if self.vms[vm].rx.must_notify(&self.windows.0.borrow()[vm], before) {
            self.notify(vm, RX, 0);
        }
    }

    pub fn notify(&self, vm: usize, queue: usize, ticks: u64) {
        self.exchange.port(vm).device.notify(queue, ticks, 0);
    }

    /// The VM puts a packet into its ring and does not notify; its head, or none while the ring or
    /// memory is full.
    pub fn put(&mut self, vm: usize, header: &Header, payload: &[u8], first: u64) -> Option<u16> {
        let len = (HEADER_LEN + payload.len()) as u64;
        let first = first.clamp(1, len);
        let lens = [first as u32, (len - first) as u32];
        self.put_in(vm, (header, payload), &lens[..if first == len { 1 } else { 2 }], false)
    }

    /// The same in pieces of these lengths, in a table or in the ring.
    pub fn put_in(
        &mut self,
        vm: usize,
        (header, payload): (&Header, &[u8]),
        lens: &[u32],
        is_indirect: bool,
    ) -> Option<u16> {
        let Vm { tx, packets, .. } = &mut self.vms[vm];
        let is_free = |at: &u64| !packets.values().any(|other| other == at);
        let at = (0..SENT).map(|place| TX_PLACES + TX_PLACE * place).find(is_free)?;
        let bytes: Vec<u8> = header.to_bytes().into_iter().chain(payload.iter().copied()).collect();
        let memory = &mut self.windows.0.borrow_mut()[vm];
        memory.put(at, &bytes);
        let head = tx.add(memory, &pieces(at, lens, false), is_indirect)?;
        packets.insert(head, at);
        Some(head)
    }

    /// A header from one end of flow `index` to the other; `forth` from the sender.
    pub fn header(&self, index: usize, operation: Operation, forth: bool) -> Header {
        let flow = &self.flows[index];
        let own = 1000 + index as u32;
        let header = Header { kind: STREAM, op: operation as u16, ..Header::ZERO };
        if forth {
            let (src_cid, dst_cid) = (Cid::of_vm(flow.from.into()), flow.destination);
            Header { src_cid, dst_cid, src_port: own, dst_port: flow.port, ..header }
        } else {
            let (src_cid, dst_cid) = (Cid::of_vm(flow.to.into()), Cid::of_vm(flow.from.into()));
            Header { src_cid, dst_cid, src_port: flow.port, dst_port: own, ..header }
        }
    }

    /// The sender of flow `index` sends `payload`, and notifies at `ticks`.
    pub fn send(&mut self, index: usize, payload: &[u8], ticks: u64) -> Option<u16> {
        let len = payload.len() as u32;
        let header = Header { len, ..self.header(index, Operation::Data, true) };
        let vm = usize::from(self.flows[index].from);
        let head = self.put(vm, &header, payload, HEADER_LEN as u64);
        self.notify(vm, TX, ticks);
        head
    }

    /// An end of flow `index` sends a control packet, and notifies at `ticks`.
    pub fn control(&mut self, index: usize, operation: Operation, forth: bool, ticks: u64) {
        let header = self.header(index, operation, forth);
        let flow = &self.flows[index];
        let vm = usize::from(if forth { flow.from } else { flow.to });
        self.put(vm, &header, &[], HEADER_LEN as u64).expect("room");
        self.notify(vm, TX, ticks);
    }

    /// What a VM has got since this was last called; its buffers are free.
    pub fn received(&mut self, vm: usize) -> Vec<(Header, Vec<u8>)> {
        let memory = &self.windows.0.borrow()[vm];
        let Vm { rx, buffers, .. } = &mut self.vms[vm];
        let taken = rx.take(memory).into_iter().map(|(head, written)| {
            let at = (buffers.remove(&head).expect("an offered buffer") - RAM) as usize;
            let bytes = &memory.bytes[at..at + written as usize];
            let header = Header::from_bytes(bytes[..HEADER_LEN].try_into().expect("a header"));
            assert_eq!(header.len as usize, bytes.len() - HEADER_LEN, "as the header says");
            (header, bytes[HEADER_LEN..].to_vec())
        });
        taken.collect()
    }

    /// The heads of packets that a VM got back since this was last called.
    pub fn returned(&mut self, vm: usize) -> Vec<u16> {
        let memory = &self.windows.0.borrow()[vm];
        let Vm { tx, packets, .. } = &mut self.vms[vm];
        let heads = tx.take(memory).into_iter().map(|(head, _)| head);
        heads.inspect(|head| _ = packets.remove(head)).collect()
    }

    /// A driver that does not keep the rules takes back what it knows of what the device returned.
    /// Gives the headers of what it has got.
    pub fn reclaim(&mut self, vm: usize) -> Vec<Header> {
        let memory = &self.windows.0.borrow()[vm];
        let Vm { tx, rx, packets, buffers, .. } = &mut self.vms[vm];
        for head in take_known(tx, memory) {
            packets.remove(&head);
        }
        let places = take_known(rx, memory).into_iter().filter_map(|head| buffers.remove(&head));
        let header = |place: u64| {
            let at = (place - RAM) as usize;
            Header::from_bytes(memory.bytes[at..at + HEADER_LEN].try_into().expect("a header"))
        };
        places.map(header).collect()
    }

    /// One step at `now`; EL2 does its part of a report.
    pub fn step(&mut self, broker: &mut Broker<'_>, now: u64) -> Step {
        self.engine.ticks = now;
        let step = broker.step(now, &mut self.engine, &mut self.windows);
        if let Step::Report(devices) = step {
            self.report(broker, devices, now);
        }
        step
    }

    /// Reports to EL2 at `now` what became of `devices`.
    pub fn report(&mut self, broker: &mut Broker<'_>, devices: DeviceSet, now: u64) {
        for (index, vm) in self.vms.iter_mut().enumerate() {
            let device = &self.exchange.port(index).device;
            if device.used() != vm.used {
                // Without a return since the reset there is no news.
                let is_news = device.used().is_some_and(|count| count > 0);
                let is_named = devices.has_socket(index) || !is_news;
                assert!(is_named, "vm {index} got something back, and EL2 does not visit it");
                vm.used = device.used();
                vm.interrupts += 1;
            }
            if device.broken().is_some() && !vm.is_broken {
                assert!(devices.has_socket(index), "vm {index}: EL2 does not see the broken ring");
                vm.is_broken = true;
            }
            device.raise(now);
        }
        broker.reported(now, now, 0);
    }

    /// Steps until there is nothing to do; returns when there is, if the broker knows.
    pub fn run(&mut self, broker: &mut Broker<'_>, now: u64) -> Option<u64> {
        for _ in 0..10_000 {
            if let Step::Wait(until) = self.step(broker, now) {
                return until;
            }
        }
        panic!("the broker does not come to rest");
    }

    /// The senders of all flows ask for a connection, and all receivers get the request.
    pub fn connect(&mut self, broker: &mut Broker<'_>) {
        for index in 0..self.flows.len() {
            if self.flows[index].members == 1 {
                self.control(index, Operation::Request, true, 0);
                self.supply(usize::from(self.flows[index].to), 2000);
                self.run(broker, 0);
            }
        }
        for vm in 0..self.vms.len() {
            let requests = self.received(vm);
            assert!(requests.iter().all(|(header, _)| header.op == Operation::Request as u16));
            self.returned(vm);
        }
    }

    pub fn counts(&self, index: usize) -> PacketCounts {
        self.exchange.counts(index)
    }

    pub fn moved(&self) -> u64 {
        self.engine.moved
    }
}

/// Buffers of these lengths that follow each other in memory.
fn pieces(mut at: u64, lens: &[u32], is_writable: bool) -> Vec<Buffer> {
    let piece = |len: &u32| {
        let piece = (at, *len, is_writable);
        at += u64::from(*len);
        piece
    };
    lens.iter().map(piece).collect()
}

/// The heads of a driver's chains that the device returned; others are passed over.
fn take_known(driver: &mut Driver, memory: &Memory) -> Vec<u16> {
    let mut known = Vec::new();
    // The ring has no more, for any index.
    for _ in 0..driver.layout.size {
        if memory.u16(driver.layout.used + 2) == driver.seen {
            break;
        }
        let at = driver.layout.used + 4 + 8 * u64::from(driver.seen % driver.layout.size);
        let head = memory.u32(at) as u16;
        driver.seen = driver.seen.wrapping_add(1);
        if let Some(place) = driver.chains.iter().position(|(its, _)| *its == head) {
            driver.free.extend(driver.chains.remove(place).1);
            known.push(head);
        }
    }
    known
}

/// Bytes to send that can be recognized.
pub fn payload(len: usize, mark: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ mark).collect()
}
