//! One end of a mesh: sends messages to each of the others by a flow to it, all of them at the same
//! moment, and checks each byte of what the others send.
//!
//! Arguments: `first=` (3) the lowest context identifier, `ends=` (4) how many there are from there
//! on, `messages=` (20) to each, `size=` (4096) bytes of each, `period_us=` (10000), `start_us=`
//! (20000) when the first are due, by the counter. What comes from end n comes to port 5000 + n.
//! Messages are made `lead_us=` (4000) before they are due, so that all ends notify their devices
//! at once.
//!
//! ```text
//! mesh: sent 20 messages of 4096 bytes to each of 3 ends, got 245760 bytes in order
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
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

/// Most ends.
const ENDS: usize = 4;
/// The port of what comes from the first end.
const PORT: u32 = 5000;
/// The port that messages come from.
const OWN_PORT: u32 = 1024;

/// What goes to another end, and what comes from it.
#[derive(Clone, Copy, Default)]
struct Peer {
    outgoing: Option<Stream>,
    incoming: Option<Stream>,
    sent: u64,
    got: u64,
    wrong: u64,
}

struct Mesh {
    socket: SocketDriver,
    own: usize,
    first: u64,
    peers: [Peer; ENDS],
    ends: usize,
}

/// When the timer was set to last, in ticks.
static DUE: AtomicU64 = AtomicU64::new(0);

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let device = board.socket.expect("a VM in a flow has a socket device");
    let ticks =
        |key, default| time::ns_to_ticks(args.number(key, default) * 1000, time::frequency());
    let (messages, size) = (args.number("messages", 20), args.number("size", 4096));
    let (period, lead) = (ticks("period_us", 10_000), ticks("lead_us", 4000));
    let first = args.number("first", 3);
    let ends = args.number("ends", 4) as usize;
    assert!(ends <= ENDS, "at most {ENDS} ends");

    gic::init(handle);
    gic::enable(device.intid);
    gic::enable(board.virtual_timer);
    let socket = SocketDriver::open(device.base);
    let own = (socket.cid().0 - first) as usize;
    let mut mesh = Mesh { socket, own, first, peers: [Peer::default(); ENDS], ends };
    mesh.connect();
    let mut due = ticks("start_us", 20_000);
    for message in 0..messages {
        mesh.serve_until(due - lead);
        mesh.put(size, message as usize);
        // Nothing is sent before it is due, so nothing is taken in either.
        while time::now() < due {
            sleep_until(due);
        }
        mesh.socket.notify();
        due += period;
    }
    let wanted = messages * size;
    while !mesh.socket.is_idle() || mesh.others().any(|peer| mesh.peers[peer].got < wanted) {
        sleep_until(u64::MAX);
        mesh.take();
    }
    // When every end has got its last message, wherever it is.
    mesh.serve_until(due + period);
    let got: u64 = mesh.peers.iter().map(|peer| peer.got).sum();
    let wrong: u64 = mesh.peers.iter().map(|peer| peer.wrong).sum();
    let others = ends - 1;
    if wrong == 0 {
        println!(
            "mesh: sent {messages} messages of {size} bytes to each of {others} ends, got {got} \
             bytes in order"
        );
    } else {
        println!("mesh: {wrong} of {got} bytes are wrong");
    }
    psci::system_off()
}

impl Mesh {
    /// The positions of all ends but this one.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.ends).filter(move |peer| *peer != own)
    }

    /// Asks every other end until it listens.
    fn connect(&mut self) {
        let port = PORT + self.own as u32;
        while self.others().any(|peer| self.peers[peer].outgoing.is_none_or(|one| !one.is_open())) {
            for peer in self.others() {
                if self.peers[peer].outgoing.is_none() {
                    let local = (self.socket.cid(), OWN_PORT + peer as u32);
                    let (stream, request) =
                        Stream::connect(local, (Cid(self.first + peer as u64), port));
                    if self.socket.send(&request, |_| ()) {
                        self.peers[peer].outgoing = Some(stream);
                    }
                }
            }
            self.serve_until(time::now() + time::ns_to_ticks(1_000_000, time::frequency()));
        }
    }

    /// Takes in what comes, until this time in ticks.
    fn serve_until(&mut self, due: u64) {
        self.take();
        while time::now() < due {
            sleep_until(due);
            self.take();
        }
    }

    /// Makes a message to every other end, of which the device is not told yet. Each end is the
    /// last one by turns, so that each flow's worst latency is that of a packet behind all the
    /// others of its notification.
    fn put(&mut self, size: u64, turn: usize) {
        let ends = self.ends;
        for peer in (0..ends).map(|end| (end + turn) % ends).filter(|peer| *peer != self.own) {
            let one = &mut self.peers[peer];
            let Some(stream) = &mut one.outgoing else { continue };
            assert!(u64::from(stream.credit()) >= size, "the others take in what comes");
            let header = stream.data(size as u32);
            let at = one.sent;
            assert!(self.socket.put(&header, |bytes| fill(at, bytes)), "there was a slot");
            one.sent += size;
        }
    }

    /// Takes in what has come.
    fn take(&mut self) {
        loop {
            let (peers, first) = (&mut self.peers, self.first);
            let mut answer = None;
            let came = self.socket.receive(|header, payload| {
                let from = header.src_cid.0.wrapping_sub(first) as usize;
                answer = match peers.get_mut(from) {
                    Some(peer) => peer.take(header, payload, from as u32),
                    None => header.refusal(),
                };
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

impl Peer {
    /// Takes a packet in; gives the one to answer with.
    fn take(&mut self, header: &Header, payload: &[u8], from: u32) -> Option<Header> {
        if header.dst_port != PORT + from {
            let (event, reply) = self.outgoing.as_mut()?.receive(header);
            if matches!(event, StreamEvent::Closed | StreamEvent::Reset) {
                self.outgoing = None;
            }
            return reply;
        }
        if header.op == Operation::Request as u16 {
            let (stream, response) = Stream::accept(header);
            self.incoming = Some(stream);
            return Some(response);
        }
        let Some(stream) = &mut self.incoming else { return header.refusal() };
        let (event, reply) = stream.receive(header);
        if let StreamEvent::Data(_) = event {
            self.wrong += wrong(self.got, payload);
            self.got += payload.len() as u64;
        }
        reply
    }
}

/// Sleeps until this time, in ticks, or until an interrupt, and has it handled.
fn sleep_until(due: u64) {
    if DUE.swap(due, Ordering::Relaxed) != due {
        time::arm(due);
    }
    cpu::sleep();
}

fn handle(interrupt: Interrupt) {
    match board().socket {
        Some(device) if device.intid == interrupt.intid => acknowledge(),
        _ => {
            time::disarm();
            DUE.store(0, Ordering::Relaxed);
        }
    }
}
