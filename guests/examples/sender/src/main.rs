//! Sends messages by a flow, one each period, and sleeps in between.
//!
//! Arguments: `to=` the receiver's context identifier, `port=` (5000), `from=` (1024) its own port,
//! `messages=` (1000), `size=` (4096) bytes of each, cut into packets of 64 KiB, `period_us=`
//! (1000) or `period_ns=`, `start_us=` when the first is due, by the counter; without it a period
//! after the connection. `connect_us=` (0) when it connects, by the counter. `crash=` in the VM's
//! first boot, after so many messages. With `cut=1` its packets are in chains of 1, 2, 3 and so on
//! up to 64 buffers, then of 1 again. When the connection is reset it connects again, and begins
//! anew.
//!
//! ```text
//! sender: connected to 4:5000
//! sender: 1000 messages of 4096 bytes sent, sum 8c1fd2f6e8b4e3aa
//! ```

#![no_std]
#![no_main]

use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmio, println, psci, time,
};
use weir_vsock_driver::{
    Cid, MAX_PAYLOAD, SocketDriver, acknowledge,
    pattern::{Sum, fill},
    stream::{Stream, StreamEvent},
};

entry!(main);

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let device = board.socket.expect("a VM in a flow has a socket device");
    let port = |key, default| args.number(key, default) as u32;
    let peer = (Cid(args.number("to", 4)), port("port", 5000));
    let size = args.number("size", 4096).max(1);
    let messages = args.number("messages", 1000);
    let period_ns = args.number("period_ns", args.number("period_us", 1000) * 1000);
    let period = time::ns_to_ticks(period_ns, time::frequency());

    gic::init(handle);
    gic::enable(device.intid);
    gic::enable(board.virtual_timer);
    let mut socket = SocketDriver::open(device.base);
    let local = (socket.cid(), port("from", 1024));
    let crash = args.get("crash").filter(|_| hypercall::restarts() == 0);
    let crash = crash.map(|_| args.number("crash", 0));
    let start = time::ns_to_ticks(args.number("start_us", 0) * 1000, time::frequency());
    let connects = time::ns_to_ticks(args.number("connect_us", 0) * 1000, time::frequency());
    wait_until(connects);
    let (cuts, mut packet) = (args.number("cut", 0) != 0, 0);
    let mut stream = connect(&mut socket, local, peer);
    'anew: loop {
        println!("sender: connected to {}:{}", peer.0, peer.1);
        let (mut at, mut sum) = (0, Sum::default());
        let mut due = if start == 0 { time::now() + period } else { start };
        for message in 0..messages {
            wait_until(due);
            due += period;
            // Before the message, so that this core sleeps soon after it.
            take(&mut socket, &mut stream);
            let mut left = size;
            while left > 0 {
                let len = left.min(MAX_PAYLOAD.into()) as u32;
                if cuts {
                    socket.cut(1 + packet % 64);
                    packet += 1;
                }
                while stream.is_open() && (stream.credit() < len || !socket.can_send()) {
                    cpu::sleep();
                    take(&mut socket, &mut stream);
                }
                if !stream.is_open() {
                    println!("sender: the connection was reset");
                    stream = connect(&mut socket, local, peer);
                    continue 'anew;
                }
                let header = stream.data(len);
                let sent = socket.send(&header, |bytes| {
                    fill(at, bytes);
                    sum.add(bytes);
                });
                assert!(sent, "there was a slot");
                at += u64::from(len);
                left -= u64::from(len);
            }
            if crash == Some(message) {
                mmio::crash();
            }
        }
        // The console can be slow: the last packet does not wait for it.
        while stream.is_open() && !socket.is_idle() {
            cpu::sleep();
        }
        take(&mut socket, &mut stream);
        println!("sender: {messages} messages of {size} bytes sent, sum {:016x}", sum.0);
        break;
    }
    let _ = socket.send(&stream.shut_down(), |_| ());
    while !socket.is_idle() {
        cpu::sleep();
    }
    psci::system_off()
}

/// Asks until the receiver listens.
fn connect(socket: &mut SocketDriver, local: (Cid, u32), peer: (Cid, u32)) -> Stream {
    loop {
        let (mut stream, request) = Stream::connect(local, peer);
        while !socket.send(&request, |_| ()) {
            cpu::sleep();
        }
        let mut refused = false;
        while !refused && !stream.is_open() {
            cpu::sleep();
            refused = take(socket, &mut stream);
        }
        if stream.is_open() {
            return stream;
        }
        wait_until(time::now() + time::ns_to_ticks(1_000_000, time::frequency()));
    }
}

/// Takes in what has come; whether the other end is gone.
fn take(socket: &mut SocketDriver, stream: &mut Stream) -> bool {
    let (mut closed, mut answer) = (false, None);
    while socket.receive(|header, _| {
        let (event, reply) = stream.receive(header);
        closed |= matches!(event, StreamEvent::Closed | StreamEvent::Reset);
        answer = reply;
    }) {
        if let Some(header) = answer.take() {
            socket.answer(&header);
        }
    }
    closed
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
