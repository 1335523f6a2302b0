//! Echoes from beyond the uplink: ARP (RFC 826), and ICMP (RFC 792) by IPv4 (RFC 791).

use crate::{MOST, Mac, wait_until};
use weir_guest::{println, time};
use weir_vsock_driver::{
    ethernet::Ethernet,
    pattern::{fill, wrong},
};

const ARP: [u8; 2] = [8, 6];
const IPV4: [u8; 2] = [8, 0];
const ICMP: u8 = 1;
const ECHO: u8 = 8;
/// Ethernet, IPv4, ICMP.
const HEADERS: usize = 14 + 20 + 8;
/// After so long a frame is taken to be lost.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A station and the one that it asks.
pub struct Pair {
    pub own: [u8; 4],
    pub peer: [u8; 4],
}

impl Pair {
    /// Asks for `count` echoes of `size` bytes each, and says how many came as they were sent.
    pub fn ping(&self, device: &mut Ethernet, count: u64, size: usize) {
        let Some(mac) = self.resolve(device) else {
            return println!("station: no host outside has the address");
        };
        let mut good = 0;
        for number in 0..count {
            let mut frame = [0; MOST];
            let len = HEADERS + size;
            self.request(&mut frame[..len], device.mac(), mac, number as u16);
            device.send(&frame[..len]);
            let sent = &frame[HEADERS..len];
            good += u64::from(await_frame(device, |answer| {
                let is_reply = answer.get(12..14) == Some(&IPV4) && answer.get(34) == Some(&0);
                is_reply && answer.get(HEADERS..len) == Some(sent) && wrong(number, sent) == 0
            }));
        }
        println!("station: {good} of {count} echoes of {size} bytes from outside");
    }

    /// Asks for the other's address by ARP.
    fn resolve(&self, device: &mut Ethernet) -> Option<Mac> {
        let own = device.mac();
        let mut frame = [0; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&own);
        frame[12..14].copy_from_slice(&ARP);
        frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        frame[22..28].copy_from_slice(&own);
        frame[28..32].copy_from_slice(&self.own);
        frame[38..42].copy_from_slice(&self.peer);
        for _ in 0..10 {
            device.send(&frame);
            let mut found = None;
            let answered = await_frame(device, |answer| {
                let is_his = answer.get(12..14) == Some(&ARP)
                    && answer.get(21) == Some(&2)
                    && answer.get(28..32) == Some(&self.peer);
                found = answer.get(22..28).and_then(|mac| mac.try_into().ok());
                is_his
            });
            if answered {
                return found;
            }
        }
        None
    }

    fn request(&self, frame: &mut [u8], own: Mac, peer: Mac, number: u16) {
        let len = (frame.len() - 14) as u16;
        frame[..6].copy_from_slice(&peer);
        frame[6..12].copy_from_slice(&own);
        frame[12..14].copy_from_slice(&IPV4);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, ICMP]);
        frame[26..30].copy_from_slice(&self.own);
        frame[30..34].copy_from_slice(&self.peer);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[34] = ECHO;
        frame[40..42].copy_from_slice(&number.to_be_bytes());
        fill(number.into(), &mut frame[HEADERS..]);
        let sum = checksum(&frame[34..]);
        frame[36..38].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Takes what comes until `wanted` says that this was it; whether it came in time.
fn await_frame(device: &mut Ethernet, mut wanted: impl FnMut(&[u8]) -> bool) -> bool {
    let until = time::now() + time::ns_to_ticks(PATIENCE_NS, time::frequency());
    let mut found = false;
    while !found && time::now() < until {
        while !found && device.receive(|frame| found = wanted(frame)) {}
        if !found {
            wait_until(until);
        }
    }
    found
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
