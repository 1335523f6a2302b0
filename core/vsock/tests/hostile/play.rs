//! A hostile driver against the socket device's registers and rings, in memory that changes while
//! it is read: nothing panics, work is bounded, no byte is read twice in one go, and what is
//! accepted is in RAM and well formed. For the fuzz target `virtio`, and for its short twin in the
//! tests.

use std::collections::BTreeMap;
use weir_units::Cid;
use weir_vsock::{
    GuestMemory, Outside, Ram,
    flows::{FlowRule, PacketVerdict, admit},
    mmio::{DeviceKind, Effect, MmioRegisters},
    pci::{LEN as BAR_LEN, VirtioFunction},
    queue::{Direction, Found, STRIDE},
    transport::Transport,
    vsock::{HEADER_LEN, Header, MAX_PAYLOAD, Operation},
};

/// RAM at 0, so that addresses are easily found.
const LEN: usize = 0x800;
const DESCRIPTOR: usize = 16;
const CID: Cid = Cid(3);
const RULES: [FlowRule; 2] = [
    FlowRule { from: Cid(3), to: Cid(4), port: 5000 },
    FlowRule { from: Cid(4), to: Cid(3), port: 5000 },
];

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
}

struct Memory<'a> {
    bytes: Vec<u8>,
    input: Input<'a>,
    moving: bool,
    /// How often each byte was read in this go.
    seen: BTreeMap<usize, u8>,
    /// How often that may be: twice where tables can lie over rings, as often as it likes where
    /// rings can.
    most: u8,
    reads: usize,
    /// A device with a planted fault: it reads a descriptor's length, and then copies the whole.
    planted: bool,
}

impl Memory<'_> {
    fn range(address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(len)?;
        (end <= LEN).then_some(start..end)
    }
}

impl Ram for Memory<'_> {
    fn contains(&self, address: u64, len: u64) -> bool {
        usize::try_from(len).is_ok_and(|len| Self::range(address, len).is_some())
    }
}

impl GuestMemory for Memory<'_> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside> {
        let range = Self::range(address, to.len()).ok_or(Outside)?;
        if self.planted && to.len() == DESCRIPTOR {
            self.read(address + 8, &mut [0; 4])?;
        }
        self.reads += 1;
        for at in range.clone() {
            let times = self.seen.entry(at).or_default();
            *times = times.saturating_add(1);
            assert!(*times <= self.most, "byte {at:#x} was read {times} times");
            if self.moving && self.input.byte() & 7 == 0 {
                self.bytes[at] = self.input.byte();
            }
        }
        to.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside> {
        let range = Self::range(address, from.len()).ok_or(Outside)?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn fence(&mut self) {}
}

/// Up to two queues that are ready, as a driver sets them up.
fn set_up(device: &mut Transport, memory: &Memory<'_>, options: u8) {
    let (features, size) = (u64::from(options & 3) << 28, 1 << (options >> 2 & 3));
    match device {
        Transport::Mmio(registers) => {
            let mut write = |offset, value| registers.write(offset, 4, value, memory);
            write(0x70, 3);
            write(0x20, features);
            write(0x24, 1);
            write(0x20, 1);
            write(0x70, 11);
            for queue in 0..2 {
                write(0x30, queue);
                write(0x38, size);
                write(0x80, queue * 0x300);
                write(0x90, queue * 0x300 + 0x80);
                write(0xa0, queue * 0x300 + 0x100);
                write(0x44, 1);
            }
            write(0x70, 15);
        }
        Transport::Pci(function) => {
            function.write_space(4, 2, 6, memory);
            let mut write = |offset, size, value| function.write(offset, size, value, memory);
            write(0x14, 1, 3);
            write(0xc, 4, features);
            write(8, 4, 1);
            write(0xc, 4, 1);
            write(0x14, 1, 11);
            for queue in 0..2 {
                write(0x16, 2, queue);
                write(0x18, 2, size);
                write(0x20, 8, queue * 0x300);
                write(0x28, 8, queue * 0x300 + 0x80);
                write(0x30, 8, queue * 0x300 + 0x100);
                write(0x1c, 2, 1);
            }
            write(0x14, 1, 15);
        }
    }
}

/// One access of a driver to its device.
fn access(device: &mut Transport, memory: &mut Memory<'_>) -> Effect {
    let what = memory.input.byte();
    let offset = u64::from(memory.input.byte());
    let value = u64::from(memory.input.byte());
    let size = 1 << (what >> 2 & 3);
    match device {
        Transport::Mmio(registers) if what & 3 == 0 => {
            let _ = registers.read(offset * 2, size);
            Effect::None
        }
        Transport::Mmio(registers) => {
            let offset = if what & 4 == 0 { 0x50 } else { offset * 2 };
            registers.write(offset, 4, value, memory)
        }
        Transport::Pci(function) => {
            // A page of the registers, or the configuration space.
            let page = u64::from(what >> 4 & 3) << 12;
            let value = value | u64::from(memory.input.byte()) << 8;
            match what & 3 {
                0 if what & 0x40 == 0 => function.read(page + offset, size).1,
                0 => function.read_space(offset, size).1,
                1 => function.write_space(offset, size, value, memory),
                _ if what & 0x40 == 0 => {
                    let queue = BAR_LEN - 0x1000 + (offset & 3) * 4;
                    function.write(queue, 2, value, memory)
                }
                _ => function.write(page + offset, size, value, memory),
            }
        }
    }
}

/// Serves a queue as the hypervisor does.
fn serve(device: &mut Transport, memory: &mut Memory<'_>, index: usize) {
    let Some(queue) = device.queue(index) else { return };
    let size = queue.size();
    let mut broken = false;
    for _ in 0..=size {
        memory.seen.clear();
        memory.reads = 0;
        let popped = queue.pop(memory);
        let direction = if index == 0 { Direction::Write } else { Direction::Read };
        let walked = popped.and_then(|mut chain| {
            let Some(chain) = &mut chain else { return Ok(None) };
            assert!(chain.head() < size && queue.has(chain.head()));
            let (mut found, mut steps) = (Vec::new(), 0);
            loop {
                match queue.walk(memory, chain, direction, &mut steps)? {
                    Found::Bytes(segment) => {
                        found.push(segment);
                        chain.pass(segment.len);
                    }
                    Found::End => return Ok(Some((chain.head(), found))),
                    Found::Later => steps = STRIDE,
                }
            }
        });
        assert!(memory.reads <= 4 + usize::from(size), "{} reads", memory.reads);
        memory.seen.clear();
        match walked {
            Ok(Some((head, segments))) => {
                assert!(segments.len() <= size.into());
                assert!(segments.iter().all(|one| memory.contains(one.address, one.len.into())));
                let mut bytes = [0; HEADER_LEN];
                if let Some(first) = segments.first().filter(|first| first.len >= 44) {
                    memory.read(first.address, &mut bytes).expect("it is in RAM");
                    judge(&Header::from_bytes(&bytes));
                }
                memory.seen.clear();
                if memory.input.byte() & 1 == 0 {
                    queue.push(memory, head, 1).expect("the ring is in RAM");
                }
            }
            Ok(None) => break,
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    memory.seen.clear();
    let _ = queue.wants_interrupt(memory).expect("the ring is in RAM");
    memory.seen.clear();
    let _ = queue.ask_notification(memory).expect("the ring is in RAM");
    if broken {
        device.break_down();
        assert!(device.queue(index).is_none());
    }
}

fn judge(header: &Header) {
    let Ok(operation) = header.check(CID, 1000) else { return };
    assert!(header.len <= MAX_PAYLOAD.min(1000) && header.src_cid == CID);
    if let PacketVerdict::Transfer(flow) = admit(RULES, header, operation) {
        assert!(flow == 0 && (header.dst_cid, header.dst_port) == (Cid(4), 5000));
        assert!(!matches!(operation, Operation::Request | Operation::Response));
    }
}

/// What a hostile driver does, as `data` says.
///
/// # Panics
///
/// When the device does what it must not.
#[allow(dead_code, reason = "one fuzz target takes it, another `play_planted`")]
pub fn play(data: &[u8]) {
    play_on(data, false);
}

/// The same against a device that fetches the length of each descriptor twice.
///
/// # Panics
///
/// As [`play`], and when a descriptor is fetched while the rings lie apart: that the fault is found
/// is what this is for.
#[allow(dead_code, reason = "one fuzz target takes it, another `play`")]
pub fn play_planted(data: &[u8]) {
    play_on(data, true);
}

fn play_on(data: &[u8], planted: bool) {
    let mut input = Input(data);
    let options = input.byte();
    let mut bytes = vec![0; LEN];
    let known = data.len().min(LEN);
    bytes[..known].copy_from_slice(&data[..known]);
    let (seen, moving) = (BTreeMap::new(), options & 16 != 0);
    let most = if options & 32 == 0 { u8::MAX } else { 1 + (options & 1) };
    let mut memory = Memory { bytes, input, moving, seen, most, reads: 0, planted };
    let mut device = match options & 64 {
        0 => Transport::Mmio(MmioRegisters::new(DeviceKind::Socket(CID))),
        _ => Transport::Pci(VirtioFunction::new(CID, 0x1000_0000)),
    };
    if options & 32 != 0 {
        set_up(&mut device, &memory, options);
    }
    for _ in 0..64 {
        match access(&mut device, &mut memory) {
            Effect::Notified(index) if index < 2 => serve(&mut device, &mut memory, index),
            Effect::Reset => memory.most = u8::MAX,
            Effect::None | Effect::Line | Effect::Queues | Effect::Notified(_) => {}
        }
    }
}
