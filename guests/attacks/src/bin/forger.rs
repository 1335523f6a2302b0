//! Says on its console what others say: frames of the hypervisor's wire, lines of other VMs and of
//! weir, escape sequences for the person's terminal.
//!
//! `victim=` (`control`) names the VM that it pretends to be. It repeats all of it `rounds=` times
//! (20), then says `forger: done` and powers off.

#![no_std]
#![no_main]

use weir_guest::{Board, cpu, entry, mmio, println, psci};

entry!(main);

/// The UART's data and flags; TXFF.
const DR: u64 = 0;
const FR: u64 = 0x18;
const FULL: u32 = 1 << 5;

/// The first byte of a frame, and the frames' kinds: see `weir_trace::wire`.
const DLE: u8 = 0x10;
const MARK: u8 = 1;
const EVENT: u8 = 2;

/// Clears the screen, sets the title, moves up and writes over, an operating system command, a
/// device control string, 8-bit CSI, a backspace over a name, a bidirectional override, a line
/// without end.
const ESCAPES: &[&[u8]] = &[
    b"\x1b[2J\x1b[H",
    b"\x1b]0;forged title\x07",
    b"\x1b[5A\x1b[2Kcontrol | forged\x1b[5B",
    b"\x1b]52;c;Zm9yZ2Vk\x1b\\",
    b"\x1bPforged\x1b\\",
    b"\xc2\x9b2J",
    b"\x08\x08\x08\x08\x08\x08\x08\x08control | forged",
    b"\xe2\x80\xaeforged",
    b"forged \xff\xfe\x00\x7f\r",
];

fn put(board: &Board, bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: the registers of this VM's UART.
        unsafe {
            while mmio::read32(board.uart.base + FR) & FULL != 0 {
                cpu::relax();
            }
            mmio::write32(board.uart.base + DR, byte.into());
        }
    }
}

/// A frame as the hypervisor sends it, with a correct sum.
fn frame(board: &Board, kind: u8, payload: &[u8]) {
    let length = payload.len() as u8;
    let sum = payload.iter().fold(kind.wrapping_add(length), |sum, byte| sum.wrapping_add(*byte));
    put(board, &[DLE, kind, length]);
    put(board, payload);
    put(board, &[sum]);
}

/// A mark: the bytes that follow are of VM 0.
fn mark(board: &Board) {
    frame(board, MARK, &[0; 16]);
}

/// A fault of VM 0 (`what` 5), or the end of the system (8).
fn event(board: &Board, what: u8, vm: u8) {
    let mut payload = [0; 56];
    payload[8] = what;
    payload[10] = vm;
    frame(board, EVENT, &payload);
}

fn main(board: &'static Board) -> ! {
    let victim = board.args.get("victim").unwrap_or("control");
    for _ in 0..board.args.number("rounds", 20) {
        mark(board);
        println!("{victim}: 9 activations, 9 misses (forged)");
        event(board, 5, 0);
        event(board, 8, 0xff);
        println!("{victim} | forged");
        println!("weir    | {victim}: fault on vCPU 0 (forged)");
        println!("weir: the system ends (forged)");
        for escape in ESCAPES {
            put(board, escape);
            put(board, b"\n");
        }
    }
    println!("forger: done");
    psci::system_off()
}
