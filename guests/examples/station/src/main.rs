//! Sends frames to other stations by its port of the switch, or by a network device of the board
//! that it was given, and checks those that come.
//!
//! Arguments: `to=` the receiver's address, `frames=` (0) to send to it, `size=` (1514) bytes of
//! each, `interval_us=` (1000), 0 for as fast as the device takes them; `frames=` of the largest
//! number is a flood. `expect=` (0) frames from other stations, by number and contents, before it
//! is done; `from=` counts only those of one. `ping=` (0) echoes of 1000 bytes from `gateway=`
//! (10.0.2.2), asked for as `address=`. `crash=` in the VM's first boot, after so many frames sent;
//! `as=` another's address to send them by. With `cut=1` they are in chains of 1, 2, 3 and so on up
//! to 64 buffers, then of 1 again. It begins when the receiver answers; with `at_once=1`
//! without a receiver that does, and then its intervals are a quarter longer or shorter. With
//! `busy=1` it does not sleep while it waits for frames. When done it sleeps.
//!
//! ```text
//! station: 52:54:00:00:00:0a sends 1000 frames of 1514 bytes
//! station: 1000 frames sent
//! station: 1000 frames from 52:54:00:00:00:0b, 0 lost, 0 damaged
//! station: 100 of 100 echoes of 1000 bytes from outside
//! ```

#![no_std]
#![no_main]

mod outside;

use outside::Pair;
use weir_guest::{
    Board, args::Args, board, cpu, entry, gic, hypercall, mmio, println, random::Random, time,
};
use weir_vsock_driver::{
    ethernet::{self, Ethernet, Shown},
    pattern::{fill, wrong},
};

entry!(main);

type Mac = [u8; 6];

/// Most bytes of a frame.
const MOST: usize = 1514;
/// An EtherType for experiments (IEEE 802, 9.2.4).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Addresses, type and number.
const HEADERS: usize = 22;
/// Numbers of what is no frame of the count: asks whether the other runs, and says so.
const HELLO: u64 = u64::MAX;
const HERE: u64 = u64::MAX - 1;
/// Time between two that ask.
const AGAIN_NS: u64 = 5_000_000;

/// What came from another station.
#[derive(Default)]
struct Tally {
    from: Mac,
    frames: u64,
    next: u64,
    lost: u64,
    damaged: u64,
    /// The one that it sends to runs.
    heard: bool,
}

impl Tally {
    /// Takes a frame in, if it is one of a station's; returns the address and content of the
    /// answer.
    fn take(&mut self, frame: &[u8], only: Option<Mac>) -> Option<(Mac, u64)> {
        let (headers, payload) = frame.split_at_checked(HEADERS)?;
        let from: Mac = headers[6..12].try_into().ok()?;
        if headers[12..14] != TYPE {
            return None;
        }
        let number = u64::from_be_bytes(headers[14..22].try_into().ok()?);
        match number {
            HELLO => return Some((from, HERE)),
            HERE => self.heard = true,
            _ if only.is_some_and(|only| only != from) => {}
            _ => {
                self.from = from;
                self.frames += 1;
                // A station that has begun anew begins at 0.
                self.lost += number.saturating_sub(self.next);
                self.next = number + 1;
                self.damaged += u64::from(wrong(number, payload) != 0);
            }
        }
        None
    }

    /// Takes in all that has come.
    fn take_all(&mut self, port: &mut Ethernet, only: Option<Mac>) {
        let mut answer = None;
        while port.receive(|frame| answer = self.take(frame, only)) {
            if let Some((to, number)) = answer.take() {
                let own = port.mac();
                send(port, (to, own), number, HEADERS);
            }
        }
    }
}

/// Sends frame `number` of `size` bytes.
fn send(port: &mut Ethernet, (to, from): (Mac, Mac), number: u64, size: usize) {
    let mut frame = [0; MOST];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&TYPE);
    frame[14..HEADERS].copy_from_slice(&number.to_be_bytes());
    fill(number, &mut frame[HEADERS..size]);
    port.send(&frame[..size]);
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let device = board.network.or(board.pci).expect("a port of the switch, or a device on PCI");
    gic::init(handle);
    gic::enable(board.virtual_timer);
    let mut port = Ethernet::open(device);
    gic::enable(device.intid);

    let frames = args.number("frames", 0);
    let size = args.number("size", MOST as u64).clamp(HEADERS as u64, MOST as u64) as usize;
    let interval = args.number("interval_us", 1000) * 1000;
    let interval = time::ns_to_ticks(interval, time::frequency());
    let (to, from) = (mac(args, "to"), mac(args, "from"));
    let crash = args.get("crash").filter(|_| hypercall::restarts() == 0);
    let crash = crash.map(|_| args.number("crash", 0));
    let expected = args.number("expect", 0);
    let rest = if args.number("busy", 0) != 0 { poll } else { cpu::sleep };
    let mut tally = Tally::default();
    println!("station: {} sends {frames} frames of {size} bytes", Shown(port.mac()));

    let random = Random::new(1);
    let at_once = args.number("at_once", 0) != 0;
    if let Some(to) = to.filter(|_| !at_once) {
        let again = time::ns_to_ticks(AGAIN_NS, time::frequency());
        while !tally.heard {
            let own = port.mac();
            send(&mut port, (to, own), HELLO, HEADERS);
            wait_until(time::now() + again);
            tally.take_all(&mut port, from);
        }
    }
    let mut due = time::now();
    let mut number = 0;
    while number < frames || tally.frames < expected {
        tally.take_all(&mut port, from);
        if number < frames && time::now() >= due {
            let own = mac(args, "as").unwrap_or(port.mac());
            if args.number("cut", 0) != 0 {
                port.cut(1 + number as usize % 64);
            }
            send(&mut port, (to.expect("`to` is given"), own), number, size);
            number += 1;
            // Not more often than that, even behind a time off the core.
            due = time::now() + if at_once { random.about(interval) } else { interval };
            if number == frames {
                println!("station: {frames} frames sent");
            }
            if crash == Some(number) {
                mmio::crash();
            }
        } else if number < frames {
            wait_until(due);
        } else if tally.frames < expected {
            rest();
        }
    }
    if expected > 0 {
        let Tally { from, frames, lost, damaged, .. } = tally;
        println!("station: {frames} frames from {}, {lost} lost, {damaged} damaged", Shown(from));
    }
    let echoes = args.number("ping", 0);
    if echoes > 0 {
        let own = address(args, "address").expect("`address` is the station's own");
        let peer = address(args, "gateway").unwrap_or([10, 0, 2, 2]);
        Pair { own, peer }.ping(&mut port, echoes, 1000);
    }
    loop {
        tally.take_all(&mut port, from);
        cpu::sleep();
    }
}

/// Sleeps until this time, in ticks, or until an interrupt has come.
fn wait_until(due: u64) {
    time::arm(due);
    if time::now() < due {
        cpu::sleep();
    }
    time::disarm();
}

/// Has what is pending handled, without a sleep.
fn poll() {
    cpu::unmask_interrupts();
    cpu::relax();
    cpu::mask_interrupts();
}

fn handle(interrupt: gic::Interrupt) {
    ethernet::acknowledge(interrupt.intid);
    if interrupt.intid == board().virtual_timer {
        time::disarm();
    }
}

/// The MAC address that argument `key` is.
fn mac(args: Args<'_>, key: &str) -> Option<Mac> {
    bytes(args.get(key)?, ':', 16)
}

/// The IPv4 address that argument `key` is.
fn address(args: Args<'_>, key: &str) -> Option<[u8; 4]> {
    bytes(args.get(key)?, '.', 10)
}

fn bytes<const N: usize>(text: &str, between: char, radix: u32) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut parts = text.split(between);
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, radix).ok()?;
    }
    Some(bytes)
}
