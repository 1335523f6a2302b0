//! The virtual UART against a queue, and as drivers use it (DDI0183).

use std::collections::VecDeque;

use proptest::prelude::*;
use weir_vdev::pl011::{FIFO_DEPTH, Pl011, Sink};

const DR: u64 = 0x00;
const RSR: u64 = 0x04;
const FR: u64 = 0x18;
const LCR_H: u64 = 0x2c;
const CR: u64 = 0x30;
const IFLS: u64 = 0x34;
const IMSC: u64 = 0x38;
const RIS: u64 = 0x3c;
const MIS: u64 = 0x40;
const ICR: u64 = 0x44;

const RX: u32 = 1 << 4;
const TX: u32 = 1 << 5;
const RT: u32 = 1 << 6;
const OE: u32 = 1 << 10;

/// A console ring of a given size.
struct Ring {
    bytes: Vec<u8>,
    size: usize,
    lost: u32,
}

impl Ring {
    fn new(size: usize) -> Self {
        Self { bytes: Vec::new(), size, lost: 0 }
    }
}

impl Sink for Ring {
    fn room(&self) -> usize {
        self.size - self.bytes.len()
    }

    fn put(&mut self, byte: u8) {
        if self.room() > 0 {
            self.bytes.push(byte);
        } else {
            self.lost += 1;
        }
    }
}

fn get(uart: &mut Pl011, offset: u64, ring: &Ring) -> u32 {
    uart.read(offset, ring).0
}

#[test]
fn reset_values() {
    // DDI0183, table 3-1; the identification is that of r1p5.
    let (mut uart, ring) = (Pl011::new(), Ring::new(1000));
    for (offset, value) in [
        (RSR, 0),
        (FR, 0x90),
        (0x20, 0),
        (0x24, 0),
        (0x28, 0),
        (LCR_H, 0),
        (CR, 0x300),
        (IFLS, 0x12),
        (IMSC, 0),
        (RIS, 0),
        (MIS, 0),
        (0x48, 0),
        (0xfe0, 0x11),
        (0xfe4, 0x10),
        (0xfe8, 0x34),
        (0xfec, 0),
        (0xff0, 0x0d),
        (0xff4, 0xf0),
        (0xff8, 0x05),
        (0xffc, 0xb1),
        (0x80, 0),
    ] {
        assert_eq!(get(&mut uart, offset, &ring), value, "at {offset:#x}");
    }
    assert!(!uart.line());
}

#[test]
fn registers_keep_the_bits_they_have() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(1000));
    for (offset, mask) in [
        (0x20, 0xff),
        (0x24, 0xffff),
        (0x28, 0x3f),
        (LCR_H, 0xff),
        (CR, 0xff87),
        (IFLS, 0x3f),
        (IMSC, 0x7ff),
        (0x48, 7),
    ] {
        uart.write(offset, u32::MAX, &mut ring);
        assert_eq!(get(&mut uart, offset, &ring), mask, "at {offset:#x}");
        uart.write(offset, 0, &mut ring);
        assert_eq!(get(&mut uart, offset, &ring), 0, "at {offset:#x}");
    }
    // Read-only registers.
    for offset in [FR, RIS, MIS, 0xfe0, 0xffc] {
        let before = get(&mut uart, offset, &ring);
        uart.write(offset, !before, &mut ring);
        assert_eq!(get(&mut uart, offset, &ring), before, "at {offset:#x}");
    }
}

/// earlycon and U-Boot: wait while TXFF, write DR, wait while BUSY; no set-up at all.
#[test]
fn polled_output() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(100));
    for byte in *b"weir\r\n" {
        assert_eq!(get(&mut uart, FR, &ring) & 1 << 5, 0);
        uart.write(DR, u32::from(byte), &mut ring);
        assert_eq!(get(&mut uart, FR, &ring) & 1 << 3, 0);
    }
    assert_eq!(ring.bytes, b"weir\r\n");
}

#[test]
fn a_full_ring_shows_and_loses_only_what_is_forced_in() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(2));
    uart.write(LCR_H, 0x70, &mut ring);
    // Less room than a FIFO: not empty, not full.
    assert_eq!(get(&mut uart, FR, &ring) & 0xa8, 1 << 3);
    uart.write(DR, 1, &mut ring);
    uart.write(DR, 2, &mut ring);
    assert_eq!(get(&mut uart, FR, &ring) & 0xa8, 1 << 5 | 1 << 3);
    uart.write(DR, 3, &mut ring);
    assert_eq!((ring.bytes.as_slice(), ring.lost), (&[1, 2][..], 1));
}

/// Linux' amba-pl011: fills until TXFF, unmasks the transmit interrupt, and at each writes half a
/// FIFO unchecked.
#[test]
fn interrupt_driven_output_loses_nothing() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(40));
    uart.write(LCR_H, 0x70, &mut ring);
    uart.write(IFLS, 2 << 3 | 2, &mut ring);
    let text: Vec<u8> = (0..=255).collect();
    let mut left = VecDeque::from(text.clone());
    while get(&mut uart, FR, &ring) & 1 << 5 == 0 {
        uart.write(DR, u32::from(left.pop_front().unwrap()), &mut ring);
    }
    let mut line = uart.write(IMSC, TX, &mut ring);
    assert!(!line, "a full FIFO has no transmit interrupt");
    let mut received = Vec::new();
    for _ in 0..1000 {
        // The console takes three bytes at a time.
        received.extend(ring.bytes.drain(..ring.bytes.len().min(3)));
        line = uart.drained(ring.room()) || line;
        if line && left.is_empty() {
            line = uart.write(IMSC, 0, &mut ring);
        }
        while line && !left.is_empty() {
            for byte in left.drain(..left.len().min(16)) {
                line = uart.write(DR, u32::from(byte), &mut ring);
            }
        }
    }
    assert_eq!((received, ring.lost), (text, 0));
}

#[test]
fn transmit_interrupt() {
    // 2.8: raised when the FIFO comes down to its level, cleared by ICR or by filling it again.
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(1));
    uart.write(IMSC, TX, &mut ring);
    assert!(!uart.line());
    assert!(!uart.write(DR, 1, &mut ring));
    assert!(!uart.drained(0));
    assert!(uart.drained(1));
    assert!(!uart.write(ICR, TX, &mut ring));
    // It is the coming down that raises it.
    assert!(!uart.drained(1));
}

#[test]
fn receive_by_level_and_timeout() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(1));
    uart.write(LCR_H, 1 << 4, &mut ring);
    // 1/4 of 32.
    uart.write(IFLS, 1 << 3, &mut ring);
    uart.write(IMSC, RX, &mut ring);
    for byte in 0..7 {
        assert!(!uart.receive(byte));
        assert_eq!(get(&mut uart, RIS, &ring), RT);
    }
    assert!(uart.receive(7));
    assert_eq!(get(&mut uart, MIS, &ring), RX);
    assert_eq!(uart.read(DR, &ring), (0, false));
    assert_eq!(get(&mut uart, RIS, &ring), RT);
    for byte in 1..8 {
        assert_eq!(get(&mut uart, DR, &ring), byte);
    }
    // The timeout ends when the FIFO is empty.
    assert_eq!(get(&mut uart, RIS, &ring), 0);
    assert_eq!(get(&mut uart, FR, &ring) & 1 << 4, 1 << 4);
}

#[test]
fn one_byte_without_fifo() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(1));
    assert!(uart.can_receive());
    uart.receive(b'a');
    assert!(!uart.can_receive());
    assert_eq!(get(&mut uart, FR, &ring) & 0x50, 1 << 6);
    assert_eq!(get(&mut uart, RIS, &ring), RX | RT);
    // 3.3.1: what is in the FIFO stays, the new byte is lost.
    uart.receive(b'b');
    assert_eq!(get(&mut uart, RIS, &ring), RX | RT | OE);
    assert_eq!(get(&mut uart, RSR, &ring), 8);
    assert_eq!(get(&mut uart, DR, &ring), 1 << 11 | u32::from(b'a'));
    uart.receive(b'c');
    assert_eq!(get(&mut uart, DR, &ring), u32::from(b'c'));
    assert_eq!(get(&mut uart, RSR, &ring), 8);
    uart.write(RSR, 0, &mut ring);
    assert_eq!(get(&mut uart, RSR, &ring), 0);
    uart.write(ICR, OE, &mut ring);
    assert_eq!(get(&mut uart, RIS, &ring), 0);
}

#[test]
fn narrow_accesses() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(10));
    // A store to another byte of DR sends nothing.
    for lane in 1..4 {
        uart.write(DR + lane, 0x41, &mut ring);
    }
    assert_eq!(ring.bytes, b"");
    assert_eq!(get(&mut uart, CR + 1, &ring) & 0xff, 3);
    // Beyond the device's page it starts again.
    assert_eq!(get(&mut uart, 0x1_0fe0, &ring), 0x11);
}

#[test]
fn loopback() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(10));
    uart.write(CR, 0x381, &mut ring);
    uart.write(DR, 0x55, &mut ring);
    assert_eq!(ring.bytes, b"");
    assert_eq!(get(&mut uart, DR, &ring), 0x55);
}

/// On a wire the timeout of a byte that comes while a driver clears the interrupts is raised later.
#[test]
fn a_new_bytes_timeout_is_not_cleared() {
    let (mut uart, mut ring) = (Pl011::new(), Ring::new(10));
    uart.write(LCR_H, 0x70, &mut ring);
    uart.write(IMSC, RT, &mut ring);
    assert!(uart.receive(b'a'));
    assert_eq!(get(&mut uart, MIS, &ring), RT);
    assert_eq!(uart.read(DR, &ring), (u32::from(b'a'), false));
    assert_eq!(get(&mut uart, FR, &ring) & 1 << 4, 1 << 4, "empty");
    assert!(uart.receive(b'b'));
    assert!(uart.write(ICR, RT, &mut ring), "that of `b` is left");
    // It can have been seen now.
    assert!(!uart.write(ICR, RT, &mut ring));
}

#[derive(Clone, Debug)]
enum Step {
    Receive(u8),
    ReadData,
    WriteData(u8),
    Fifo(bool),
    Level(u32),
    Mask(u32),
    Clear(u32),
    Drain(usize),
    Any(u64, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => any::<u8>().prop_map(Step::Receive),
        5 => Just(Step::ReadData),
        10 => any::<u8>().prop_map(Step::WriteData),
        1 => any::<bool>().prop_map(Step::Fifo),
        1 => (0u32..64).prop_map(Step::Level),
        2 => (0u32..0x800).prop_map(Step::Mask),
        2 => (0u32..0x800).prop_map(Step::Clear),
        3 => (0usize..40).prop_map(Step::Drain),
    ]
}

proptest! {
    /// The receive side is a queue with a bound, the transmit side a queue with another, and the
    /// interrupts follow their lengths by the rules of 2.8.
    #[test]
    fn behaves_as_two_queues(
        size in 0usize..80,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let (mut uart, mut ring) = (Pl011::new(), Ring::new(size));
        let mut sent: Vec<u8> = Vec::new();
        let mut taken: Vec<u8> = Vec::new();
        let (mut queue, mut depth, mut ifls) = (VecDeque::new(), 1, 0x12u32);
        let (mut ris, mut imsc, mut lost, mut overrun) = (0, 0, 0, false);
        let level = |select: u32| [4, 8, 16, 24, 28, 28, 28, 28][select as usize & 7];
        let mut above = false;
        for step in steps {
            let rx_level = |depth, ifls: u32| if depth == 1 { 1 } else { level(ifls >> 3) };
            let tx_room = |depth, ifls: u32| if depth == 1 { 1 } else { FIFO_DEPTH - level(ifls) };
            let line = match step {
                Step::Receive(byte) => {
                    if queue.len() < depth {
                        queue.push_back(byte);
                        overrun = false;
                        ris |= RT;
                        if queue.len() >= rx_level(depth, ifls) {
                            ris |= RX;
                        }
                    } else {
                        ris |= OE;
                        overrun = true;
                    }
                    uart.receive(byte)
                }
                Step::ReadData => {
                    let (value, line) = uart.read(DR, &ring);
                    prop_assert_eq!(value >> 8, u32::from(overrun) << 3);
                    if let Some(byte) = queue.pop_front() {
                        prop_assert_eq!(value as u8, byte);
                        if queue.len() < rx_level(depth, ifls) {
                            ris &= !RX;
                        }
                        if queue.is_empty() {
                            ris &= !RT;
                        }
                    }
                    line
                }
                Step::WriteData(byte) => {
                    if ring.room() > 0 {
                        sent.push(byte);
                    } else {
                        lost += 1;
                    }
                    let line = uart.write(DR, u32::from(byte), &mut ring);
                    above = ring.room() < tx_room(depth, ifls);
                    ris = if above { ris & !TX } else { ris | TX };
                    line
                }
                Step::Fifo(on) => {
                    let new = if on { FIFO_DEPTH } else { 1 };
                    if new != depth {
                        queue.clear();
                        ris &= !(RX | RT);
                    }
                    depth = new;
                    uart.write(LCR_H, 0x60 | u32::from(on) << 4, &mut ring)
                }
                Step::Level(value) => {
                    ifls = value;
                    uart.write(IFLS, value, &mut ring)
                }
                Step::Mask(value) => {
                    imsc = value;
                    uart.write(IMSC, value, &mut ring)
                }
                Step::Clear(value) => {
                    ris &= !value;
                    uart.write(ICR, value, &mut ring)
                }
                Step::Drain(count) => {
                    let count = count.min(ring.bytes.len());
                    taken.extend(ring.bytes.drain(..count));
                    uart.drained(ring.room())
                }
                Step::Any(..) => unreachable!("of the other test"),
            };
            if above && ring.room() >= tx_room(depth, ifls) {
                above = false;
                ris |= TX;
            }
            prop_assert_eq!(get(&mut uart, RIS, &ring), ris);
            prop_assert_eq!(get(&mut uart, MIS, &ring), ris & imsc);
            prop_assert_eq!(line, ris & imsc != 0);
            let flags = get(&mut uart, FR, &ring);
            prop_assert_eq!(flags >> 4 & 1 == 1, queue.is_empty());
            prop_assert_eq!(flags >> 6 & 1 == 1, queue.len() == depth);
            prop_assert_eq!(flags >> 5 & 1 == 1, ring.room() == 0);
            prop_assert_eq!(flags >> 7 & 1 == 1, ring.room() >= depth);
            prop_assert_eq!(uart.can_receive(), queue.len() < depth);
            prop_assert_eq!(ring.lost, lost);
            let all: Vec<u8> = taken.iter().chain(&ring.bytes).copied().collect();
            prop_assert_eq!(&all, &sent);
        }
    }

    /// A driver that empties the FIFO at each interrupt gets every byte, wherever it clears the
    /// interrupt and between which of its accesses the bytes come.
    #[test]
    fn no_byte_waits_without_an_interrupt(
        fifo: bool,
        clears_last: bool,
        gaps in prop::collection::vec(0usize..6, 1..30),
    ) {
        let (mut uart, mut ring) = (Pl011::new(), Ring::new(10));
        uart.write(LCR_H, u32::from(fifo) << 4, &mut ring);
        uart.write(IMSC, RT, &mut ring);
        let (mut gaps, mut left) = (gaps.into_iter(), 0);
        let (mut sent, mut got) = (0u8, Vec::new());
        // Before each access: the next byte, if its gap is over.
        let mut pass = |uart: &mut Pl011| {
            if left > 0 {
                left -= 1;
                return true;
            }
            let Some(gap) = gaps.next() else { return false };
            left = gap;
            if uart.can_receive() {
                uart.receive(sent);
                sent += 1;
            }
            true
        };
        while pass(&mut uart) || uart.line() {
            if !uart.line() {
                continue;
            }
            let status = get(&mut uart, MIS, &ring);
            if !clears_last {
                pass(&mut uart);
                uart.write(ICR, status, &mut ring);
            }
            loop {
                pass(&mut uart);
                if get(&mut uart, FR, &ring) & 1 << 4 != 0 {
                    break;
                }
                pass(&mut uart);
                got.push(get(&mut uart, DR, &ring) as u8);
            }
            if clears_last {
                pass(&mut uart);
                uart.write(ICR, status, &mut ring);
            }
        }
        prop_assert_eq!(got, (0..sent).collect::<Vec<_>>());
    }

    /// Any access at any address is bounded, and the line is always that of the registers.
    #[test]
    fn takes_anything(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (0u64..0x60, any::<u32>()).prop_map(|(o, v)| Step::Any(o, v)),
                1 => (any::<u64>(), any::<u32>()).prop_map(|(o, v)| Step::Any(o, v)),
                2 => any::<u8>().prop_map(Step::Receive),
            ],
            1..300,
        ),
    ) {
        let (mut uart, mut ring) = (Pl011::new(), Ring::new(50));
        for step in steps {
            let line = match step {
                Step::Any(offset, value) if value & 1 == 0 => uart.write(offset, value, &mut ring),
                Step::Any(offset, _) => uart.read(offset, &ring).1,
                Step::Receive(byte) => uart.receive(byte),
                _ => uart.line(),
            };
            prop_assert_eq!(line, get(&mut uart, MIS, &ring) != 0);
        }
    }
}
