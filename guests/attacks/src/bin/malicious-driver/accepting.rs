//! The receiving end of a connection, without a return of buffers.

use crate::{area, device::TargetDevice, put};
use core::ptr;
use weir_guest::cpu;

/// Receive buffers of a page each, in areas from 7 on.
const BUFFERS: u16 = 32;
const LEN: u32 = 4096;
/// Bytes of a packet's header.
const HEADER: usize = 44;
/// Operations (virtio 1.2, section 5.10.6).
const REQUEST: u32 = 1;
const RESPONSE: u32 = 2;
const DATA: u32 = 5;
/// The device writes the buffer (section 2.7.5).
const WRITABLE: u16 = 2;

/// Sets the device up, accepts a connection, and receives `room` bytes.
pub fn run(device: TargetDevice, room: u32) {
    device.reset([0, 1]);
    for queue in 0..2 {
        device.set_up(queue, 64, [0, 1, 2].map(|part| area(3 * queue + part)));
    }
    device.set_status(15);
    for buffer in 0..u64::from(BUFFERS) {
        put(area(0) + 16 * buffer, &area(7 + buffer).to_le_bytes());
        put(area(0) + 16 * buffer + 8, &LEN.to_le_bytes());
        put(area(0) + 16 * buffer + 12, &WRITABLE.to_le_bytes());
        put(area(1) + 4 + 2 * buffer, &(buffer as u16).to_le_bytes());
    }
    put(area(1) + 2, &BUFFERS.to_le_bytes());
    device.notify(0);
    let (mut taken, mut bytes) = (0, 0);
    while bytes < room && taken < BUFFERS {
        let words = next(taken);
        taken += 1;
        let [from, _, to, _, port, own, len, kind, ..] = words;
        let response = [to, 0, from, 0, own, port, 0, 1 | RESPONSE << 16, 0, room, 0];
        match kind >> 16 {
            REQUEST => send_first(device, response),
            DATA => bytes += len,
            _ => {}
        }
    }
}

/// Waits until the device has used more than `taken` buffers, and returns the header of the packet
/// in the next one.
fn next(taken: u16) -> [u32; HEADER / 4] {
    // SAFETY: within the areas; volatile, as the device writes them.
    let read = |address: u64| unsafe { ptr::read_volatile(address as *const u32) };
    while (read(area(2)) >> 16) as u16 == taken {
        cpu::relax();
    }
    let buffer = read(area(2) + 4 + 8 * u64::from(taken)) % u32::from(BUFFERS);
    core::array::from_fn(|word| read(area(7 + u64::from(buffer)) + 4 * word as u64))
}

/// Sends a header as the first packet of the ring.
fn send_first(device: TargetDevice, words: [u32; HEADER / 4]) {
    for (place, word) in words.iter().enumerate() {
        put(area(6) + 4 * place as u64, &word.to_le_bytes());
    }
    put(area(3), &area(6).to_le_bytes());
    put(area(3) + 8, &(HEADER as u32).to_le_bytes());
    put(area(4) + 4, &0u16.to_le_bytes());
    put(area(4) + 2, &1u16.to_le_bytes());
    device.notify(1);
}
