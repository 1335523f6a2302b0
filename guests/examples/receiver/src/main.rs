//! Receives streams by flows and checks each byte's place in its stream.
//!
//! Arguments: `port=` (5000) the first port, `ports=` (1) how many from there on, one stream each,
//! `bytes=` to expect of each stream; `streams=` (0) after how many that ended to power off, 0 for
//! never; `crash=` in the VM's first boot, after so many bytes of a stream; `hoard=` after so many
//! bytes of a stream it returns no more buffers; `every_us=` (0) it takes in what has come when the
//! counter is at a multiple of that, and else at once; `join=` (0) a stream may begin in the midst
//! of the sender's, at a multiple of so many bytes.
//!
//! ```text
//! receiver: port 5000: 4096000 bytes in order, sum 8c1fd2f6e8b4e3aa
//! receiver: port 5001: reset after 8192 bytes
//! ```

#![no_std]
#![no_main]

use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmio, println, psci, time,
};
use weir_vsock::vsock::Operation;
use weir_vsock_driver::{
    SocketDriver, acknowledge,
    pattern::{Sum, wrong},
    stream::{Stream, StreamEvent},
};

entry!(main);

/// Most streams.
const STREAMS: usize = 16;

#[derive(Clone, Copy)]
struct Incoming {
    stream: Option<Stream>,
    /// Where in the sender's stream it began.
    from: u64,
    bytes: u64,
    wrong: u64,
    sum: Sum,
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let device = board.socket.expect("a VM in a flow has a socket device");
    let first = args.number("port", 5000) as u32;
    let ports = args.number("ports", 1) as u32;
    let expected = args.number("bytes", 4_096_000);
    let streams = args.number("streams", 0);
    let hoard = args.number("hoard", u64::MAX);
    let join = args.number("join", 0);
    let every = time::ns_to_ticks(args.number("every_us", 0) * 1000, time::frequency());
    let crash = args.get("crash").filter(|_| hypercall::restarts() == 0);
    let crash = crash.map_or(u64::MAX, |_| args.number("crash", 0));
    let (mut ended, mut hoards) = (0, false);
    assert!(ports as usize <= STREAMS, "at most {STREAMS} ports");

    gic::init(handle);
    gic::enable(device.intid);
    gic::enable(board.virtual_timer);
    let mut socket = SocketDriver::open(device.base);
    let mut all = [Incoming::new(None); STREAMS];
    loop {
        match time::now().checked_div(every) {
            Some(before) => wait_until((before + 1) * every),
            None => cpu::sleep(),
        }
        let mut answer = None;
        while !hoards
            && socket.receive(|header, payload| {
                let place = header.dst_port.wrapping_sub(first);
                let known = all.get_mut(place as usize).filter(|_| place < ports);
                let Some(incoming) = known else {
                    answer = header.refusal();
                    return;
                };
                if header.op == Operation::Request as u16 {
                    let (stream, response) = Stream::accept(header);
                    *incoming = Incoming::new(Some(stream));
                    answer = Some(response);
                    return;
                }
                let Some(stream) = &mut incoming.stream else {
                    answer = header.refusal();
                    return;
                };
                let (event, reply) = stream.receive(header);
                answer = reply;
                match event {
                    StreamEvent::Data(_) => {
                        if incoming.bytes == 0 && join > 0 {
                            incoming.find(payload, join);
                        }
                        incoming.check(payload);
                        if incoming.bytes >= crash {
                            mmio::crash();
                        }
                        hoards |= incoming.bytes >= hoard;
                        if incoming.from + incoming.bytes == expected {
                            println!("receiver: port {}: {incoming}", header.dst_port);
                        }
                    }
                    StreamEvent::Closed | StreamEvent::Reset => {
                        if event == StreamEvent::Reset {
                            let (port, bytes) = (header.dst_port, incoming.bytes);
                            println!("receiver: port {port}: reset after {bytes} bytes");
                        }
                        incoming.stream = None;
                        ended += 1;
                    }
                    StreamEvent::None | StreamEvent::Connected => {}
                }
            })
        {
            if let Some(header) = answer.take() {
                socket.answer(&header);
            }
        }
        if streams > 0 && ended >= streams {
            while !socket.is_idle() {
                cpu::relax();
            }
            psci::system_off();
        }
    }
}

/// How many places in the sender's stream are tried.
const PLACES: u64 = 100_000;

impl Incoming {
    fn new(stream: Option<Stream>) -> Self {
        Self { stream, from: 0, bytes: 0, wrong: 0, sum: Sum::default() }
    }

    /// Where in the sender's stream this is, a multiple of `step`.
    fn find(&mut self, payload: &[u8], step: u64) {
        let places = (0..PLACES).map(|place| place * step);
        let known = payload.get(..16).unwrap_or(payload);
        self.from = places.into_iter().find(|&at| wrong(at, known) == 0).unwrap_or(0);
    }

    fn check(&mut self, payload: &[u8]) {
        self.wrong += wrong(self.from + self.bytes, payload);
        self.bytes += payload.len() as u64;
        self.sum.add(payload);
    }
}

impl core::fmt::Display for Incoming {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.wrong {
            0 if self.from > 0 => {
                write!(f, "{} bytes in order from byte {} on", self.bytes, self.from)
            }
            0 => write!(f, "{} bytes in order, sum {:016x}", self.bytes, self.sum.0),
            wrong => write!(f, "{wrong} of {} bytes are wrong", self.bytes),
        }
    }
}

/// Sleeps until this time, in ticks.
fn wait_until(due: u64) {
    while time::now() < due {
        // Each time: an interrupt of the time before, which is pending still, would turn the timer
        // off.
        time::arm(due);
        cpu::sleep();
    }
}

fn handle(interrupt: Interrupt) {
    match board().socket {
        Some(device) if device.intid == interrupt.intid => acknowledge(),
        _ => time::disarm(),
    }
}
