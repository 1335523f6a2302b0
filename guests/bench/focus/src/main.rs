//! Hands a PL061 of the class *active*, and with it the console, to VM `other=`, in the midst of
//! its interrupt, `rounds=` (5) times; and whenever `keys=` characters have been typed.
//!
//! Each time that it has the device it makes that raise line `line=` (39). The handler hands the
//! device over first, finds that it has it still, uses it, makes it quiet, and has it no more soon
//! after the interrupt's end. With `die=N` it faults in the N-th handler of its first boot.
//!
//! ```text
//! focus: ready
//! focus: 5 rounds, 5 kept to the end, 4 blind after it, 0 wrong
//! focus: typed lo
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmio, print, println, time,
};

entry!(main);

/// Registers of the PL061 (DDI 0190B, 3.2).
const DATA: u64 = 0x3fc;
const DIRECTION: u64 = 0x400;
const SENSE: u64 = 0x404;
const EVENT: u64 = 0x40c;
const ENABLE: u64 = 0x410;
/// The pin that interrupts while it is as it is.
const PIN: u32 = 1;
/// The PL011: data, and a flag register; its bit 4 says that nothing was typed.
const UART: u64 = 0x0900_0000;
const FLAGS: u64 = 0x18;
const EMPTY: u32 = 1 << 4;

static DEVICE: AtomicU64 = AtomicU64::new(0);
static OTHER: AtomicU64 = AtomicU64::new(0);
static DIE: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static KEPT: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn get(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(register: u64) -> u32 {
    // SAFETY: the device is this VM's, or reads as zero.
    unsafe { mmio::read32(get(&DEVICE) + register) }
}

fn write(register: u64, value: u32) {
    // SAFETY: nothing but this guest follows from the device's registers.
    unsafe { mmio::write32(get(&DEVICE) + register, value) }
}

/// What this VM alone writes to the directions of the pins, but for that of [`PIN`].
fn pattern() -> u32 {
    0x50 | (get(&OTHER) as u32 & 3) << 1
}

fn raise() {
    write(DIRECTION, 0);
    write(EVENT, read(DATA) & PIN);
    write(SENSE, PIN);
    write(ENABLE, PIN);
}

fn handle(_: Interrupt) {
    write(DIRECTION, pattern());
    let had = hypercall::has_devices() && read(DIRECTION) == pattern();
    if get(&DIE) == get(&TAKEN) + 1 && hypercall::restarts() == 0 {
        mmio::crash();
    }
    let granted = hypercall::hand_over(get(&OTHER));
    let has = hypercall::has_devices() && read(DIRECTION) == pattern();
    count(if had && granted && has { &KEPT } else { &WRONG });
    write(ENABLE, 0);
    count(&TAKEN);
}

/// Reads what was typed, and hands over after so many characters.
struct Typed {
    keys: u64,
    came: u64,
}

impl Typed {
    fn poll(&mut self) {
        // SAFETY: the VM's own PL011.
        while unsafe { mmio::read32(UART + FLAGS) } & EMPTY == 0 {
            // SAFETY: as above.
            let key = unsafe { mmio::read32(UART) } as u8 as char;
            if self.came == 0 {
                print!("focus: typed ");
            }
            self.came += 1;
            if key == '\r' || self.came == self.keys {
                println!("{}", if key == '\r' { ' ' } else { key });
                self.came = 0;
            } else {
                print!("{key}");
            }
            if self.came == 0 && self.keys != 0 && !hypercall::hand_over(get(&OTHER)) {
                println!("focus: may not hand over");
            }
        }
    }
}

fn main(board: &'static Board) -> ! {
    let rounds = board.args.number("rounds", 5);
    let line = board.args.number("line", 39) as u32;
    DEVICE.store(board.args.number("device", 0x0903_0000), Ordering::Relaxed);
    OTHER.store(board.args.number("other", 1), Ordering::Relaxed);
    DIE.store(board.args.number("die", 0), Ordering::Relaxed);
    let mut typed = Typed { keys: board.args.number("keys", 0), came: 0 };
    gic::init(handle);
    gic::route(line, 0);
    gic::enable(line);
    cpu::unmask_interrupts();
    println!("focus: ready");
    let mut blind = 0;
    for round in 0..rounds {
        let mut raised = false;
        while get(&TAKEN) == round {
            if !raised && hypercall::has_devices() {
                raised = true;
                raise();
            }
            typed.poll();
            cpu::relax();
        }
        let taken = get(&TAKEN);
        let end = time::now_ns() + 10_000_000;
        while hypercall::has_devices() && time::now_ns() < end {
            cpu::relax();
        }
        let was = hypercall::has_devices();
        write(DIRECTION, 0xfe);
        let seen = read(DIRECTION);
        // Unless it was handed back meanwhile.
        if !was && !hypercall::has_devices() && get(&TAKEN) == taken {
            blind += u64::from(seen == 0);
            WRONG.fetch_add(u64::from(seen != 0), Ordering::Relaxed);
        }
    }
    println!(
        "focus: {rounds} rounds, {} kept to the end, {blind} blind after it, {} wrong",
        get(&KEPT),
        get(&WRONG)
    );
    loop {
        typed.poll();
        cpu::relax();
    }
}
