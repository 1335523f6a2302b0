//! Packets that are no message, as many as fit into a notification.

use crate::{area, device::TargetDevice, put};
use core::ptr;
use weir_guest::{Args, cpu};

/// Chains of a ring.
const SIZE: u16 = 64;
/// Bytes of a packet's header, and from one packet to the next.
const LEN: u32 = 44;
const PLACE: u64 = 64;
/// Operations (virtio 1.2, section 5.10.6) by their names in the argument `op=`.
pub const OPERATIONS: [(&str, u32); 7] = [
    ("request", REQUEST),
    ("response", 2),
    ("reset", 3),
    ("shutdown", 4),
    ("data", DATA),
    ("credit-update", 6),
    ("credit-request", 7),
];
const REQUEST: u32 = 1;
const DATA: u32 = 5;
/// Bytes of a message that is sent as one of them.
const PAYLOAD: u32 = 20;

/// The ring by which they are sent.
pub struct ControlPackets {
    /// In each round.
    count: u16,
    /// Made available so far.
    index: u16,
    sent: u64,
}

impl ControlPackets {
    /// Sets the device up as a driver does, and asks for the connection if the packets, which are
    /// for `operation`, belong to one. There are no buffers to receive into: the answer waits in
    /// the device.
    pub fn new(device: TargetDevice, args: Args, operation: u32) -> Self {
        device.reset([0, 1]);
        // The rings have no packets of an earlier operation.
        for ring in [area(4), area(5)] {
            put(ring + 2, &0u16.to_le_bytes());
        }
        for queue in 0..2 {
            device.set_up(queue, SIZE, [0, 1, 2].map(|part| area(3 * queue + part)));
        }
        device.set_status(15);
        let ends = [args.number("from", 5) as u32, args.number("to", 4) as u32];
        for number in 0..u64::from(SIZE) {
            // Requests are for a connection each, of which a flow has 16.
            let port = 1024 + if operation == REQUEST { number as u32 } else { 0 };
            write(number, ends, port, operation);
            let len = LEN + if operation == DATA { PAYLOAD } else { 0 };
            put(area(3) + 16 * number, &(area(6) + PLACE * number).to_le_bytes());
            put(area(3) + 16 * number + 8, &u64::from(len).to_le_bytes());
            put(area(4) + 4 + 2 * number, &(number as u16).to_le_bytes());
        }
        let count = args.number("controls", 1).clamp(1, SIZE.into()) as u16;
        let mut controls = Self { count: 1, index: 0, sent: 0 };
        if args.number("stray", 0) == 0 {
            write(0, ends, 1024, REQUEST);
            controls.send(device);
            write(0, ends, 1024, operation);
        }
        controls.count = count;
        controls
    }

    /// A round: all of them with one notification, which is over when the device has taken them.
    pub fn send(&mut self, device: TargetDevice) {
        self.index = self.index.wrapping_add(self.count);
        put(area(4) + 2, &self.index.to_le_bytes());
        device.notify(1);
        while used() != self.index {
            cpu::relax();
        }
        self.sent += u64::from(self.count);
    }

    /// How many the device has taken.
    pub const fn sent(&self) -> u64 {
        self.sent
    }
}

/// Writes packet `number` of a stream: the room that it says it has is 4 KiB.
fn write(number: u64, [from, to]: [u32; 2], port: u32, operation: u32) {
    let len = if operation == DATA { PAYLOAD } else { 0 };
    let words = [from, 0, to, 0, port, 5001, len, 1 | operation << 16, 0, 4096, 0];
    for (place, word) in words.iter().enumerate() {
        put(area(6) + PLACE * number + 4 * place as u64, &word.to_le_bytes());
    }
}

/// The device's index in the ring of what it has used.
fn used() -> u16 {
    // SAFETY: within the areas; volatile, as the device writes it.
    unsafe { ptr::read_volatile((area(5) + 2) as *const u16) }
}
