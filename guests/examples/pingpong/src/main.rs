//! Sends a message by a flow and waits for the answer by another, or answers; and tells how long
//! the round trips took.
//!
//! Arguments: `to=` (4) the other end's context identifier, `port=` (5000) where it listens, `own=`
//! (5001) where this one does, `rounds=` (1000), `size=` (64) bytes of a message, up to a receive
//! buffer's, `answer=` 1 for the end that answers.
//!
//! ```text
//! pingpong: 1000 round trips of 64 bytes: min 24010, avg 24233, max 30921 ns, 0 bytes wrong
//! pingpong: answered 1000 messages of 64 bytes, 0 bytes wrong
//! ```

#![no_std]
#![no_main]

use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    println, psci, time,
};
use weir_vsock::vsock::{Header, Operation};
use weir_vsock_driver::{
    Cid, SocketDriver, acknowledge,
    pattern::{fill, wrong},
    stream::{Stream, StreamEvent},
};

entry!(main);

/// The port that messages come from.
const FROM: u32 = 1024;

/// This end: what goes to the other, and what comes from it.
struct End {
    socket: SocketDriver,
    own: u32,
    outgoing: Option<Stream>,
    incoming: Option<Stream>,
    sent: u64,
    got: u64,
    wrong: u64,
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let device = board.socket.expect("a VM in a flow has a socket device");
    let (to, port) = (Cid(args.number("to", 4)), args.number("port", 5000) as u32);
    let own = args.number("own", 5001) as u32;
    let (rounds, size) = (args.number("rounds", 1000), args.number("size", 64).max(1));
    let answers = args.number("answer", 0) == 1;

    gic::init(handle);
    gic::enable(device.intid);
    gic::enable(board.virtual_timer);
    let socket = SocketDriver::open(device.base);
    let mut end = End { socket, own, outgoing: None, incoming: None, sent: 0, got: 0, wrong: 0 };
    end.connect((to, port));
    let (mut least, mut most, mut all) = (u64::MAX, 0, 0);
    for round in 1..=rounds {
        let begun = time::now();
        if answers {
            end.wait_for(round * size);
            end.send(size);
        } else {
            end.send(size);
            end.wait_for(round * size);
        }
        let took = time::ticks_to_ns(time::now() - begun, time::frequency());
        (least, most, all) = (took.min(least), took.max(most), all + took);
    }
    while !end.socket.is_idle() {
        end.rest();
    }
    let wrong = end.wrong;
    if answers {
        println!("pingpong: answered {rounds} messages of {size} bytes, {wrong} bytes wrong");
    } else {
        let average = all / rounds.max(1);
        println!(
            "pingpong: {rounds} round trips of {size} bytes: min {least}, avg {average}, max \
             {most} ns, {wrong} bytes wrong"
        );
    }
    psci::system_off()
}

impl End {
    /// Asks until the other end listens, and waits until it has asked, too.
    fn connect(&mut self, peer: (Cid, u32)) {
        while !self.outgoing.as_ref().is_some_and(Stream::is_open) || self.incoming.is_none() {
            if self.outgoing.is_none() {
                let (stream, request) = Stream::connect((self.socket.cid(), FROM), peer);
                if self.socket.send(&request, |_| ()) {
                    self.outgoing = Some(stream);
                }
            }
            time::arm(time::now() + time::ns_to_ticks(1_000_000, time::frequency()));
            self.rest();
        }
        time::disarm();
    }

    fn send(&mut self, size: u64) {
        let ready = |end: &mut Self| {
            let credit = end.outgoing.as_ref().map_or(0, Stream::credit);
            u64::from(credit) >= size && end.socket.can_send()
        };
        while !ready(self) {
            self.rest();
        }
        if let Some(stream) = &mut self.outgoing {
            let (header, at) = (stream.data(size as u32), self.sent);
            assert!(self.socket.send(&header, |bytes| fill(at, bytes)), "there was a slot");
            self.sent += size;
        }
    }

    /// Until so many bytes have come in all.
    fn wait_for(&mut self, bytes: u64) {
        self.take();
        while self.got < bytes {
            self.rest();
        }
    }

    /// Sleeps until an interrupt, and takes in what has come.
    fn rest(&mut self) {
        cpu::sleep();
        self.take();
    }

    fn take(&mut self) {
        loop {
            let mut answer = None;
            let Self { socket, own, outgoing, incoming, got, wrong: bad, .. } = self;
            let came = socket.receive(|header, payload| {
                if header.dst_port != *own {
                    let Some(stream) = outgoing else { return };
                    let (event, reply) = stream.receive(header);
                    if matches!(event, StreamEvent::Closed | StreamEvent::Reset) {
                        *outgoing = None;
                    }
                    answer = reply;
                } else if header.op == Operation::Request as u16 {
                    let (stream, response) = Stream::accept(header);
                    *incoming = Some(stream);
                    answer = Some(response);
                } else if let Some(stream) = incoming {
                    let (event, reply) = stream.receive(header);
                    if let StreamEvent::Data(_) = event {
                        *bad += wrong(*got, payload);
                        *got += payload.len() as u64;
                    }
                    answer = reply;
                } else {
                    answer = Header::refusal(header);
                }
            });
            if !came {
                return;
            }
            if let Some(header) = answer {
                self.socket.answer(&header);
            }
        }
    }
}

fn handle(interrupt: Interrupt) {
    match board().socket {
        Some(device) if device.intid == interrupt.intid => acknowledge(),
        _ => time::disarm(),
    }
}
