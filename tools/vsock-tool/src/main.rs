//! The program that Linux guests send and receive by, through the stock modules for virtio sockets.
//! What it sends are the bytes of weir's own guests `sender` and `receiver`.
//!
//! `weir-vsock-tool send`: `to=` the receiver's context identifier (4), `port=` (5000), `messages=`
//! (100) of `size=` (4096) bytes each, `period_us=` (0) apart, `connections=` (1) one after the
//! other with so many messages each, `at_once=` (1) open at a time, `kind=` (`stream`) or
//! `seqpacket`, `sizes=` 1 for messages of all sizes from 1 B to 1 MiB, `fragment=1` to leave Linux
//! no two free pages next to each other before it connects, `in_place=1` to send with
//! `MSG_ZEROCOPY`. Asks until the receiver listens; when a connection is reset it connects again,
//! and begins that one anew.
//!
//! `weir-vsock-tool receive`: `port=` (5000), `streams=` (1) after how many that ended it ends,
//! `pause_ms=` (0) before it begins to read, `each=` 1 to report each of more than a few streams,
//! `kind=`, `half_close=1` if each sender ends a connection as `send` does, by the shutdown of one
//! direction, so that a connection which cannot be written to at its end was reset, `rate=` 1 to
//! print how fast the bytes of all of them came, from the first to the last.
//!
//! `weir-vsock-tool ping` and, at the other end, `weir-vsock-tool pong`: `to=` and `port=` as of
//! `send`, `own=` (5001) the port at which the other end's messages come, `rounds=` (1000), `size=`
//! (64), `kind=`.
//!
//! ```text
//! linux: connected to 4:5000
//! linux: 100 messages sent, 409600 bytes, sum 8c1fd2f6e8b4e3aa
//! linux: port 5000: 409600 bytes in order, sum 8c1fd2f6e8b4e3aa
//! linux: port 5000: 409600 bytes in 3071 us
//! linux: 1000 round trips of 64 bytes: min 104320, avg 110871, max 291008 ns, 0 bytes wrong
//! ```

#![no_std]
#![no_main]

mod fragment;
mod linux;
mod ping;
mod receive;
mod send;

use linux::{Arguments, SocketKind, say};

/// Most bytes of a message.
const LONGEST: usize = 1 << 20;
/// Most connections open at a time.
const OPEN: usize = 16;

/// Carries the verb out; gives the exit status.
fn main(arguments: Arguments) -> u8 {
    let kind = match arguments.get("kind") {
        Some("seqpacket") => SocketKind::SeqPacket,
        _ => SocketKind::Stream,
    };
    let done = match arguments.word(1) {
        Some("send") => send::run(arguments, kind),
        Some("receive") => receive::run(arguments, kind),
        Some(verb @ ("ping" | "pong")) => ping::run(arguments, kind, verb == "pong"),
        _ => {
            say(format_args!("usage: weir-vsock-tool send|receive|ping|pong [KEY=VALUE].."));
            return 2;
        }
    };
    match done {
        Ok(()) => 0,
        Err(errno) => {
            say(format_args!("linux: error {}", errno.0));
            1
        }
    }
}
