//! Round trips: a message by one flow, and the answer by another.

use crate::{
    linux::{self, Arguments, Errno, Fd, SocketKind, say},
    send,
};
use weir_vsock_driver::pattern::{fill, wrong};

/// Most bytes of a message.
const LONGEST: usize = 4096;

/// Both ways to the other end.
struct Pair {
    out: Fd,
    back: Fd,
    bytes: [u8; LONGEST],
    size: usize,
    sent: u64,
    got: u64,
    wrong: u64,
}

impl Pair {
    fn send(&mut self) -> Result<(), Errno> {
        let bytes = &mut self.bytes[..self.size];
        fill(self.sent, bytes);
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let sent = linux::send(self.out, rest)?;
            rest = rest.get(sent..).unwrap_or(&[]);
        }
        self.sent += self.size as u64;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Errno> {
        let mut left = self.size;
        while left > 0 {
            let len = linux::receive(self.back, &mut self.bytes[..left])?;
            if len == 0 {
                return Err(Errno::RESET);
            }
            self.wrong += wrong(self.got, &self.bytes[..len]);
            self.got += len as u64;
            left -= len;
        }
        Ok(())
    }
}

/// Measures round trips, or answers, according to the arguments.
pub fn run(arguments: Arguments, kind: SocketKind, answers: bool) -> Result<(), Errno> {
    let (to, port) = (arguments.number("to", 4) as u32, arguments.number("port", 5000) as u32);
    let own = arguments.number("own", 5001) as u32;
    let rounds = arguments.number("rounds", 1000);
    let size = (arguments.number("size", 64) as usize).clamp(1, LONGEST);
    let listening = linux::listen(kind, own)?;
    // The answering side connects back when it was asked.
    let (out, back) = if answers {
        let back = linux::accept(listening)?;
        (send::connect(to, port, kind)?, back)
    } else {
        (send::connect(to, port, kind)?, linux::accept(listening)?)
    };
    let mut pair = Pair { out, back, bytes: [0; LONGEST], size, sent: 0, got: 0, wrong: 0 };
    let (mut least, mut most, mut all) = (u64::MAX, 0, 0);
    for _ in 0..rounds {
        let begun = linux::now();
        if answers {
            pair.receive()?;
            pair.send()?;
        } else {
            pair.send()?;
            pair.receive()?;
        }
        let took = linux::now() - begun;
        (least, most, all) = (took.min(least), took.max(most), all + took);
    }
    let wrong = pair.wrong;
    if answers {
        say(format_args!("linux: answered {rounds} messages of {size} bytes, {wrong} bytes wrong"));
    } else {
        let average = all / rounds.max(1);
        say(format_args!(
            "linux: {rounds} round trips of {size} bytes: min {least}, avg {average}, max {most} \
             ns, {wrong} bytes wrong"
        ));
    }
    // The other end's `finish` waits for this.
    linux::close(back);
    send::finish(out);
    linux::close(listening);
    Ok(())
}
