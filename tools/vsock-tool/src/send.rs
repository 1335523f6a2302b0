//! The sending end.

use crate::{
    LONGEST, OPEN, fragment,
    linux::{self, Arguments, Errno, Fd, Poll, SocketKind, say},
};
use core::cell::UnsafeCell;
use weir_vsock_driver::pattern::{Sum, fill};

/// Between two questions whether the receiver listens, in ns.
const PATIENCE: u64 = 20_000_000;
/// Sizes around which `sizes=1` sends: what a header, a page, a buffer of Linux' and its largest
/// packet hold.
const BORDERS: [usize; 9] = [2, 44, 100, 1024, 4052, 4096, 4 * 4096, 64 << 10, LONGEST - 1];

struct Message(UnsafeCell<[u8; LONGEST]>);

// SAFETY: the program has one thread, and `run` takes the only reference.
unsafe impl Sync for Message {}

static MESSAGE: Message = Message(UnsafeCell::new([0; LONGEST]));

/// The data that is sent on each connection.
#[derive(Clone, Copy)]
struct Plan {
    to: u32,
    port: u32,
    kind: SocketKind,
    messages: u64,
    size: usize,
    /// Sizes around [`BORDERS`] instead of one.
    all_sizes: bool,
    period: u64,
    /// Whether Linux is asked to send without a copy.
    in_place: bool,
}

impl Plan {
    fn size(&self, message: u64) -> usize {
        if !self.all_sizes {
            return self.size;
        }
        let (border, step) = ((message / 3) as usize % BORDERS.len(), (message % 3) as usize);
        BORDERS[border] + step - 1
    }

    fn messages(&self) -> u64 {
        if self.all_sizes { 3 * BORDERS.len() as u64 } else { self.messages }
    }
}

/// The outcome of a connection's messages.
enum Sent {
    All(u64, Sum),
    Reset(Errno),
}

/// Numbers of calls that sent without a copy, and of those whose bytes Linux copied nevertheless.
#[derive(Default)]
struct Calls {
    in_place: u32,
    copied: u32,
}

/// Sends according to the arguments.
pub fn run(arguments: Arguments, kind: SocketKind) -> Result<(), Errno> {
    let mut plan = Plan {
        to: arguments.number("to", 4) as u32,
        port: arguments.number("port", 5000) as u32,
        kind,
        messages: arguments.number("messages", 100),
        size: (arguments.number("size", 4096) as usize).clamp(1, LONGEST),
        all_sizes: arguments.number("sizes", 0) == 1,
        period: arguments.number("period_us", 0) * 1000,
        in_place: arguments.number("in_place", 0) == 1,
    };
    let connections = arguments.number("connections", 1);
    let at_once = (arguments.number("at_once", 1) as usize).clamp(1, OPEN);
    // SAFETY: called once, by the one thread.
    let message = unsafe { &mut *MESSAGE.0.get() };
    if arguments.number("fragment", 0) == 1 {
        let [pages, bytes] = fragment::run(message)?;
        say(format_args!(
            "linux: every second one of {pages} pages is free, {bytes} bytes are in sockets"
        ));
    }
    let mut open = [None; OPEN];
    let (mut total, mut calls) = (0, Calls::default());
    for number in 0..connections {
        let place = &mut open[number as usize % at_once];
        if let Some(fd) = place.take() {
            finish(fd);
        }
        loop {
            let fd = connect(plan.to, plan.port, plan.kind)?;
            if connections == 1 {
                say(format_args!("linux: connected to {}:{}", plan.to, plan.port));
            }
            if plan.in_place
                && let Err(errno) = linux::allow_send_in_place(fd)
            {
                plan.in_place = false;
                say(format_args!("linux: no MSG_ZEROCOPY for virtio sockets, error {}", errno.0));
            }
            match send(fd, &plan, message, &mut calls)? {
                Sent::All(bytes, sum) => {
                    total += bytes;
                    *place = Some(fd);
                    if connections == 1 {
                        let messages = plan.messages();
                        let sum = sum.0;
                        say(format_args!(
                            "linux: {messages} messages sent, {bytes} bytes, sum {sum:016x}"
                        ));
                    }
                    break;
                }
                Sent::Reset(errno) => {
                    linux::close(fd);
                    say(format_args!("linux: the connection was reset, error {}", errno.0));
                }
            }
        }
    }
    open.into_iter().flatten().for_each(finish);
    if plan.in_place {
        let Calls { in_place, copied } = calls;
        say(format_args!("linux: {in_place} calls sent in place, {copied} by a copy"));
    }
    if connections > 1 {
        say(format_args!("linux: {connections} connections, {total} bytes sent"));
    }
    Ok(())
}

/// Asks until the receiver listens.
pub fn connect(to: u32, port: u32, kind: SocketKind) -> Result<Fd, Errno> {
    let mut reported = false;
    loop {
        let fd = linux::socket(kind)?;
        match linux::connect(fd, to, port) {
            Ok(()) => return Ok(fd),
            Err(errno @ (Errno::RESET | Errno::TIMED_OUT)) => {
                linux::close(fd);
                if !reported {
                    say(format_args!("linux: no listener yet, error {}", errno.0));
                }
                reported = true;
                linux::sleep(PATIENCE);
            }
            Err(errno) => return Err(errno),
        }
    }
}

fn send(
    fd: Fd,
    plan: &Plan,
    message: &mut [u8; LONGEST],
    calls: &mut Calls,
) -> Result<Sent, Errno> {
    let (mut at, mut sum) = (0, Sum::default());
    let mut due = linux::now() + plan.period;
    for number in 0..plan.messages() {
        let bytes = &mut message[..plan.size(number)];
        fill(at, bytes);
        sum.add(bytes);
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let sent =
                if plan.in_place { send_in_place(fd, rest, calls) } else { linux::send(fd, rest) };
            match sent {
                Ok(sent) => rest = rest.get(sent..).unwrap_or(&[]),
                Err(errno @ (Errno::PIPE | Errno::RESET | Errno::NOT_CONNECTED)) => {
                    return Ok(Sent::Reset(errno));
                }
                Err(errno) => return Err(errno),
            }
        }
        at += bytes.len() as u64;
        if plan.period > 0 {
            linux::sleep(due.saturating_sub(linux::now()));
            due += plan.period;
        }
    }
    Ok(Sent::All(at, sum))
}

/// Sends bytes without a copy, and waits until Linux does not need them any more.
fn send_in_place(fd: Fd, bytes: &[u8], calls: &mut Calls) -> Result<usize, Errno> {
    const ERROR: i16 = 8;
    let sent = linux::send_in_place(fd, bytes)?;
    loop {
        match linux::sent_in_place(fd) {
            // Only one call is pending at a time.
            Ok(is_copied) => {
                *if is_copied { &mut calls.copied } else { &mut calls.in_place } += 1;
                return Ok(sent);
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        let mut polls = [Poll { fd, wanted: 0, came: 0 }];
        linux::poll(&mut polls)?;
        if polls[0].came & ERROR == 0 {
            return Err(Errno::RESET);
        }
    }
}

/// Ends a connection once the receiver has seen all of it: it ends its side then.
pub fn finish(fd: Fd) {
    let _ = linux::shut_down(fd);
    let mut byte = [0];
    while linux::receive(fd, &mut byte) == Err(Errno::INTERRUPTED) {}
    linux::close(fd);
}
