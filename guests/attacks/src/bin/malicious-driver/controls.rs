//! Control packets, as many as fit into a notification.

use crate::{area, device::TargetDevice, put};
use core::ptr;
use weir_guest::{Args, cpu};

/// Chains of a ring.
const SIZE: u16 = 64;
/// Bytes of a packet's header, which is all of it.
const LEN: u32 = 44;
/// Operations (virtio 1.2, section 5.10.6).
const REQUEST: u32 = 1;
const CREDIT_UPDATE: u32 = 6;

/// The ring by which they are sent.
pub struct ControlPackets {
    /// In each round.
    count: u16,
    /// Made available so far.
    index: u16,
    sent: u64,
}

impl ControlPackets {
    /// Sets the device up as a driver does, and asks for the connection. There are no buffers to
    /// receive into: the answer waits in the device.
    pub fn new(device: TargetDevice, args: Args) -> Self {
        device.reset([0, 1]);
        for queue in 0..2 {
            device.set_up(queue, SIZE, [0, 1, 2].map(|part| area(3 * queue + part)));
        }
        device.set_status(15);
        let ends = [args.number("from", 5) as u32, args.number("to", 4) as u32];
        let packets = [REQUEST, CREDIT_UPDATE].map(|operation| {
            let [from, to] = ends;
            // Sockets' ports, no payload, a stream; the room that it says it has.
            [from, 0, to, 0, 1024, 5001, 0, 1 | operation << 16, 0, 4096, 0]
        });
        for (place, word) in packets.as_flattened().iter().enumerate() {
            put(area(6) + 4 * place as u64, &word.to_le_bytes());
        }
        for number in 0..u64::from(SIZE) {
            // The first is the request, once.
            let address = area(6) + if number == 0 { 0 } else { u64::from(LEN) };
            put(area(3) + 16 * number, &address.to_le_bytes());
            put(area(3) + 16 * number + 8, &u64::from(LEN).to_le_bytes());
            put(area(4) + 4 + 2 * number, &(number as u16).to_le_bytes());
        }
        let count = args.number("controls", 1).clamp(1, SIZE.into()) as u16;
        let mut controls = Self { count: 1, index: 0, sent: 0 };
        controls.send(device);
        put(area(3), &(area(6) + u64::from(LEN)).to_le_bytes());
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

/// The device's index in the ring of what it has used.
fn used() -> u16 {
    // SAFETY: within the areas; volatile, as the device writes it.
    unsafe { ptr::read_volatile((area(5) + 2) as *const u16) }
}
