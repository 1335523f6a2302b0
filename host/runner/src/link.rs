//! The connection to the hypervisor's UART: bytes out of it, and input into it.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::Duration,
};
use weir_trace::wire::{DLE, FOCUS, PADDING, REPORT, TRACE};

/// Reads and messages that can wait for the other side.
const WAITING: usize = 64;
/// Bytes of one read.
const READ: usize = 64 * 1024;

/// Input of the hypervisor.
#[derive(Clone, Debug)]
pub enum Input {
    /// Console input of the VM at this place.
    Keys(u8, Vec<u8>),
    /// A request for counters and denials.
    Report,
    /// A request for the trace's new records.
    Trace,
}

/// What came next.
#[derive(Debug)]
pub enum Heard {
    /// Bytes off the wire.
    Bytes(Vec<u8>),
    /// Nothing in the time given.
    Nothing,
    /// The wire has ended.
    Gone,
}

/// Whether a line can lose bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Each byte arrives.
    Reliable,
    /// Bytes can be lost or changed: each message names its VM again, and ends a command that noise
    /// left open.
    Lossy,
}

/// A connection, with a thread for each direction.
#[derive(Debug)]
pub struct Link {
    /// None once nothing is read any more.
    bytes: Option<Receiver<Vec<u8>>>,
    input: SyncSender<Input>,
    threads: [JoinHandle<()>; 2],
}

impl Link {
    /// Connects a reader and a writer.
    pub fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        line: Reliability,
    ) -> Self {
        let (to_us, bytes) = sync_channel(WAITING);
        let (input, from_us) = sync_channel(WAITING);
        let threads = [
            thread::spawn(move || read(reader, &to_us)),
            thread::spawn(move || write(writer, &from_us, line)),
        ];
        Self { bytes: Some(bytes), input, threads }
    }

    /// The way in; more than a few hundred messages wait in the sender.
    pub fn input(&self) -> SyncSender<Input> {
        self.input.clone()
    }

    /// Asks the hypervisor for its counters, unless so much input waits that it does not listen.
    pub fn ask_for_report(&self) -> bool {
        self.input.try_send(Input::Report).is_ok()
    }

    /// Asks the hypervisor for the trace's new records, unless so much input waits that it does not
    /// listen.
    pub fn ask_for_trace(&self) {
        // The next request asks for what this one would.
        let _ = self.input.try_send(Input::Trace);
    }

    /// Waits for bytes for at most `time`.
    pub fn hear(&self, time: Duration) -> Heard {
        let Some(bytes) = &self.bytes else {
            return Heard::Gone;
        };
        match bytes.recv_timeout(time) {
            Ok(bytes) if bytes.is_empty() => Heard::Nothing,
            Ok(bytes) => Heard::Bytes(bytes),
            Err(RecvTimeoutError::Disconnected) => Heard::Gone,
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
        }
    }

    /// Closes the line: waits until both threads have ended. Each sender of [`Self::input`] must
    /// have gone before, and each read must have a time limit.
    pub fn end(self) {
        let Self { bytes, input, threads } = self;
        drop((bytes, input));
        for thread in threads {
            // A panic in it is no reason for one here.
            let _ = thread.join();
        }
    }

    /// Reads nothing any more.
    pub fn close(&mut self) {
        self.bytes = None;
    }
}

fn read(mut wire: impl Read, to: &SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; READ];
    loop {
        let bytes = match wire.read(&mut buffer) {
            // An empty piece ends this thread once there is no receiver any more.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => &[][..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
            Ok(count) => match buffer.get(..count) {
                Some(bytes) => bytes,
                None => return,
            },
        };
        if to.send(bytes.to_vec()).is_err() {
            return;
        }
    }
}

fn write(mut wire: impl Write, from: &Receiver<Input>, line: Reliability) {
    let mut focus = None;
    for input in from {
        let mut bytes = Vec::new();
        if line == Reliability::Lossy {
            focus = None;
            bytes.push(PADDING);
        }
        bytes.extend(encode(&input, &mut focus));
        if wire.write_all(&bytes).and_then(|()| wire.flush()).is_err() {
            return;
        }
    }
}

/// The bytes for the wire; `focus` is the VM that console input goes to so far.
fn encode(input: &Input, focus: &mut Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match input {
        Input::Report => bytes.extend([DLE, REPORT]),
        Input::Trace => bytes.extend([DLE, TRACE]),
        Input::Keys(vm, keys) => {
            if *focus != Some(*vm) {
                bytes.extend([DLE, FOCUS, *vm]);
                *focus = Some(*vm);
            }
            for &key in keys {
                if matches!(key, DLE | PADDING) {
                    bytes.push(DLE);
                }
                bytes.push(key);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_stuffed_and_the_focus_moves_when_it_must() {
        let mut focus = None;
        let keys = |vm, keys: &[u8]| Input::Keys(vm, keys.to_vec());
        assert_eq!(encode(&keys(1, b"a\x10b"), &mut focus), b"\x10a\x01a\x10\x10b");
        assert_eq!(encode(&keys(1, b"c"), &mut focus), b"c");
        assert_eq!(encode(&Input::Report, &mut focus), b"\x10r");
        assert_eq!(encode(&Input::Trace, &mut focus), b"\x10t");
        assert_eq!(encode(&keys(0, b"d"), &mut focus), b"\x10a\x00d");
        assert_eq!(encode(&keys(0, b"\x1e"), &mut focus), b"\x10\x1e");
    }

    #[test]
    fn a_lossy_line_begins_anew_with_each_message() {
        let (mut far, near) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let writer = near.try_clone().expect("a copy");
        let link = Link::new(near, writer, Reliability::Lossy);
        for _ in 0..2 {
            link.input().send(Input::Keys(1, b"a".to_vec())).expect("a thread");
        }
        link.input().send(Input::Report).expect("a thread");
        let mut bytes = [0; 13];
        far.read_exact(&mut bytes).expect("all messages");
        assert_eq!(&bytes, b"\x1e\x10a\x01a\x1e\x10a\x01a\x1e\x10r");
        drop(far);
        assert!(matches!(link.hear(Duration::from_secs(5)), Heard::Gone));
    }
}
