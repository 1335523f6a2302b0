//! The receiving end.

use crate::{
    LONGEST, OPEN,
    linux::{self, Arguments, Errno, NONE, Poll, SocketKind, say},
};
use core::cell::UnsafeCell;
use weir_vsock_driver::pattern::{Sum, wrong};

/// There is something to read.
const READABLE: i16 = 1;

struct Buffer(UnsafeCell<[u8; LONGEST + 1]>);

// SAFETY: the program has one thread, and `run` takes the only reference.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; LONGEST + 1]));

#[derive(Clone, Copy, Default)]
struct Incoming {
    bytes: u64,
    reads: u64,
    wrong: u64,
    sum: Sum,
}

impl Incoming {
    fn check(&mut self, payload: &[u8]) {
        self.wrong += wrong(self.bytes, payload);
        self.bytes += payload.len() as u64;
        self.reads += 1;
        self.sum.add(payload);
    }
}

/// Receives according to the arguments.
pub fn run(arguments: Arguments, kind: SocketKind) -> Result<(), Errno> {
    let port = arguments.number("port", 5000) as u32;
    let streams = arguments.number("streams", 1);
    let pause = arguments.number("pause_ms", 0) * 1_000_000;
    let half_close = arguments.number("half_close", 0) == 1;
    let each = arguments.number("each", (streams <= OPEN as u64).into()) != 0;
    // SAFETY: called once, by the one thread.
    let buffer = unsafe { &mut *BUFFER.0.get() };
    let listening = linux::listen(kind, port)?;
    say(format_args!("linux: listening on port {port}"));
    let mut polls = [Poll { fd: NONE, wanted: READABLE, came: 0 }; OPEN + 1];
    polls[OPEN].fd = listening;
    let mut all = [Incoming::default(); OPEN];
    let (mut ended, mut total, mut wrong) = (0, 0, 0);
    let (mut first, mut last) = (None, 0);
    while ended < streams {
        linux::poll(&mut polls)?;
        let (connections, listener) = polls.split_at_mut(OPEN);
        for (connection, incoming) in connections.iter_mut().zip(&mut all) {
            if connection.fd == NONE || connection.came == 0 {
                continue;
            }
            let received = match linux::receive(connection.fd, buffer) {
                Ok(0) if half_close => linux::send(connection.fd, &[]),
                received => received,
            };
            match received {
                Ok(0) => {}
                Err(errno @ (Errno::PIPE | Errno::RESET | Errno::NOT_CONNECTED)) => {
                    let number = errno.0;
                    say(format_args!(
                        "linux: port {port}: the connection was reset, error {number}"
                    ));
                }
                Ok(len) => {
                    last = linux::now();
                    first.get_or_insert(last);
                    incoming.check(&buffer[..len]);
                    continue;
                }
                Err(errno) => return Err(errno),
            }
            linux::close(connection.fd);
            connection.fd = NONE;
            ended += 1;
            total += incoming.bytes;
            wrong += incoming.wrong;
            if each {
                report(port, kind, incoming);
            }
        }
        let free = connections.iter_mut().zip(&mut all).find(|(one, _)| one.fd == NONE);
        if let Some((place, incoming)) = free
            && listener[0].came != 0
        {
            place.fd = linux::accept(listening)?;
            *incoming = Incoming::default();
            linux::sleep(pause);
        }
    }
    if !each {
        say(format_args!("linux: port {port}: {streams} streams, {total} bytes, {wrong} wrong"));
    }
    if let (1, Some(first)) = (arguments.number("rate", 0), first) {
        let took = (last - first) / 1000;
        say(format_args!("linux: port {port}: {total} bytes in {took} us"));
    }
    linux::close(listening);
    Ok(())
}

/// Prints the result of a connection; for a socket of messages, also their number.
fn report(port: u32, kind: SocketKind, incoming: &Incoming) {
    let Incoming { bytes, reads, wrong, sum } = *incoming;
    let sum = sum.0;
    if wrong > 0 {
        say(format_args!("linux: port {port}: {wrong} of {bytes} bytes are wrong"));
    } else if kind == SocketKind::SeqPacket {
        say(format_args!(
            "linux: port {port}: {bytes} bytes in order, sum {sum:016x}, {reads} messages"
        ));
    } else {
        say(format_args!("linux: port {port}: {bytes} bytes in order, sum {sum:016x}"));
    }
}
