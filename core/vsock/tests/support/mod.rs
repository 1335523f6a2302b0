//! A guest's memory, and a driver that keeps to the rules (virtio 1.2, section 2.7).

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeSet;
use weir_units::Cid;
use weir_vsock::{
    GuestMemory, Outside, Ram,
    mmio::{DeviceKind, Effect, MmioRegisters},
    queue::{Broken, Chain, Direction, Found, Layout, Queue, RingOptions},
};

/// Where RAM begins.
pub const RAM: u64 = 0x4000_0000;
/// Bytes of RAM.
pub const LEN: usize = 0x1_0000;

/// RAM that can keep a record of what the device reads, and change under its eyes.
#[derive(Clone, Debug)]
pub struct Memory {
    pub bytes: Vec<u8>,
    /// Bytes read since this was emptied.
    pub read: BTreeSet<u64>,
    /// Bytes that were read twice since then.
    pub again: Vec<u64>,
    pub reads: usize,
    /// Where the next random bytes come from, one run each, if memory changes at each read.
    pub hostile: Option<u64>,
}

impl Memory {
    pub fn new() -> Self {
        Self::with_len(LEN)
    }

    /// Of so many bytes.
    pub fn with_len(len: usize) -> Self {
        Self {
            bytes: vec![0; len],
            read: BTreeSet::new(),
            again: Vec::new(),
            reads: 0,
            hostile: None,
        }
    }

    fn range(&self, address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(RAM)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        let range = self.range(address, bytes.len()).expect("in RAM");
        self.bytes[range].copy_from_slice(bytes);
    }

    pub fn u16(&self, address: u64) -> u16 {
        let range = self.range(address, 2).expect("in RAM");
        u16::from_le_bytes(self.bytes[range].try_into().unwrap())
    }

    pub fn u32(&self, address: u64) -> u32 {
        let range = self.range(address, 4).expect("in RAM");
        u32::from_le_bytes(self.bytes[range].try_into().unwrap())
    }

    pub fn watch(&mut self) {
        self.read.clear();
        self.again.clear();
        self.reads = 0;
    }
}

impl Ram for Memory {
    fn contains(&self, address: u64, len: u64) -> bool {
        usize::try_from(len).is_ok_and(|len| self.range(address, len).is_some())
    }
}

impl GuestMemory for Memory {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside> {
        let range = self.range(address, to.len()).ok_or(Outside)?;
        self.reads += 1;
        for at in range.clone() {
            if !self.read.insert(at as u64) {
                self.again.push(at as u64);
            }
            if let Some(state) = &mut self.hostile {
                *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // Mostly small numbers, which go further.
                let random = (*state >> 56) as u8;
                if random & 3 == 0 {
                    self.bytes[at] = (*state >> 40) as u8 & if random & 4 == 0 { 7 } else { 0xff };
                }
            }
        }
        to.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside> {
        let range = self.range(address, from.len()).ok_or(Outside)?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn fence(&mut self) {}
}

/// A ring's areas, and tables and buffers behind them.
pub fn layout(size: u16) -> Layout {
    Layout { size, descriptors: RAM, available: RAM + 0x1000, used: RAM + 0x2000 }
}

/// Where indirect tables are: places of as many bytes as the largest ring's descriptors have. Few
/// chains are in flight, or the tables of those that were read are overwritten.
pub const TABLES: u64 = RAM + 0x3000;
const TABLE: u64 = 0x400;
const PLACES: u16 = 16;

/// A buffer: address, bytes, whether the device writes it.
pub type Buffer = (u64, u32, bool);

/// The buffers of a chain that the device reads or writes, in one walk or in many.
pub fn walk(
    queue: &Queue,
    memory: &mut impl GuestMemory,
    mut chain: Chain,
    direction: Direction,
    stride: u32,
) -> Result<Vec<Buffer>, Broken> {
    let mut found = Vec::new();
    // Bounded: a chain has no more descriptors than two rings.
    for _ in 0..=2 * usize::from(queue.size()) {
        let mut steps = stride;
        loop {
            match queue.walk(memory, &mut chain, direction, &mut steps)? {
                Found::Bytes(segment) => {
                    found.push((segment.address, segment.len, direction == Direction::Write));
                    chain.pass(segment.len);
                }
                Found::End => return Ok(found),
                Found::Later => break,
            }
        }
    }
    panic!("a walk has no end: {found:?}");
}

/// Takes the next chain with all of its buffers, each direction in a walk of its own.
pub fn pop(
    queue: &mut Queue,
    memory: &mut impl GuestMemory,
) -> Result<Option<(u16, Vec<Buffer>)>, Broken> {
    let Some(chain) = queue.pop(memory)? else { return Ok(None) };
    let mut found = walk(queue, memory, chain, Direction::Read, 3)?;
    found.extend(walk(queue, memory, chain, Direction::Write, 3)?);
    Ok(Some((chain.head(), found)))
}

/// The driver's side of a ring.
#[derive(Clone, Debug)]
pub struct Driver {
    pub layout: Layout,
    pub options: RingOptions,
    pub tables: u64,
    pub free: Vec<u16>,
    pub available: u16,
    pub seen: u16,
    /// The descriptors of each chain that the device has, by its head.
    pub chains: Vec<(u16, Vec<u16>)>,
}

impl Driver {
    pub fn new(size: u16, options: RingOptions) -> Self {
        Self {
            layout: layout(size),
            options,
            tables: TABLES,
            free: (0..size).collect(),
            available: 0,
            seen: 0,
            chains: Vec::new(),
        }
    }

    fn descriptor(memory: &mut Memory, table: u64, number: u16, buffer: Buffer, next: Option<u16>) {
        let (address, len, writable) = buffer;
        let flags = u16::from(next.is_some()) | u16::from(writable) << 1;
        let at = table + 16 * u64::from(number);
        memory.put(at, &address.to_le_bytes());
        memory.put(at + 8, &len.to_le_bytes());
        memory.put(at + 12, &flags.to_le_bytes());
        memory.put(at + 14, &next.unwrap_or(0).to_le_bytes());
    }

    /// Makes a chain available, through a table of its own if `indirect`; its head, or none while
    /// there are too few descriptors.
    pub fn add(&mut self, memory: &mut Memory, buffers: &[Buffer], indirect: bool) -> Option<u16> {
        let wanted = if indirect { 1 } else { buffers.len() };
        if self.free.len() < wanted {
            return None;
        }
        let taken: Vec<u16> = self.free.drain(..wanted).collect();
        let head = taken[0];
        if indirect {
            let table = self.tables + TABLE * u64::from(head % PLACES);
            for (number, buffer) in buffers.iter().enumerate() {
                let next = (number + 1 < buffers.len()).then_some(number as u16 + 1);
                Self::descriptor(memory, table, number as u16, *buffer, next);
            }
            let at = self.layout.descriptors + 16 * u64::from(head);
            memory.put(at, &table.to_le_bytes());
            memory.put(at + 8, &(16 * buffers.len() as u32).to_le_bytes());
            memory.put(at + 12, &4u16.to_le_bytes());
            memory.put(at + 14, &0u16.to_le_bytes());
        } else {
            for (place, buffer) in buffers.iter().enumerate() {
                let next = taken.get(place + 1).copied();
                Self::descriptor(memory, self.layout.descriptors, taken[place], *buffer, next);
            }
        }
        self.chains.push((head, taken));
        let place = u64::from(self.available % self.layout.size);
        memory.put(self.layout.available + 4 + 2 * place, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        memory.put(self.layout.available + 2, &self.available.to_le_bytes());
        Some(head)
    }

    /// Whether the device is to be notified of the chains since `before` (virtio 1.2, section
    /// 2.7.10).
    pub fn must_notify(&self, memory: &Memory, before: u16) -> bool {
        if !self.options.event_index {
            return self.available != before && memory.u16(self.layout.used) & 1 == 0;
        }
        let event = memory.u16(self.layout.used + 4 + 8 * u64::from(self.layout.size));
        let behind = self.available.wrapping_sub(event).wrapping_sub(1);
        behind < self.available.wrapping_sub(before)
    }

    /// Takes back what the device returned: heads and bytes written.
    pub fn take(&mut self, memory: &Memory) -> Vec<(u16, u32)> {
        let mut found = Vec::new();
        while memory.u16(self.layout.used + 2) != self.seen {
            let at = self.layout.used + 4 + 8 * u64::from(self.seen % self.layout.size);
            let (head, written) = (memory.u32(at) as u16, memory.u32(at + 4));
            self.seen = self.seen.wrapping_add(1);
            let place = self.chains.iter().position(|(its, _)| *its == head);
            let (_, descriptors) = self.chains.remove(place.expect("a chain of the driver's"));
            self.free.extend(descriptors);
            found.push((head, written));
        }
        found
    }
}

/// A socket device on the MMIO transport, written and read word by word.
pub struct Device {
    pub registers: MmioRegisters,
    pub memory: Memory,
}

impl Device {
    /// Accepts features.
    pub fn accept(&mut self, features: u64) {
        for (select, word) in [(0, features & 0xffff_ffff), (1, features >> 32)] {
            self.write(0x24, select);
            self.write(0x20, word);
        }
    }

    /// Sets a queue's layout, and then that it is ready.
    pub fn queue(&mut self, index: u64, size: u64) {
        self.write(0x30, index);
        self.write(0x38, size);
        let base = RAM + 0x3000 * index;
        for (register, address) in [(0x80, base), (0x90, base + 0x1000), (0xa0, base + 0x2000)] {
            self.write(register, address & 0xffff_ffff);
            self.write(register + 4, address >> 32);
        }
        self.write(0x44, 1);
    }

    /// After a reset, of the guest with this context identifier.
    pub fn new(cid: Cid) -> Self {
        Self { registers: MmioRegisters::new(DeviceKind::Socket(cid)), memory: Memory::new() }
    }

    pub fn write(&mut self, offset: u64, value: u64) -> Effect {
        self.registers.write(offset, 4, value, &self.memory)
    }

    pub fn read(&self, offset: u64) -> u64 {
        self.registers.read(offset, 4)
    }
}
