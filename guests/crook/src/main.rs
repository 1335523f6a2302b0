//! Breaks the rules of its socket device: rings full of random numbers, heads twice, chains that end in themselves, buffers outside of
//! memory, packets to whom no flow allows, resets in the midst of it. For ever, or `rounds=` of them; `seed=` (1) chooses them; `pause_us=` (0)
//! it sleeps behind each.
//!
//! ```text
//! crook: 1000 rounds
//! ```

#![no_std]
#![no_main]

use core::{cell::UnsafeCell, ptr};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    mmio, println, psci, time,
};

entry!(main);

/// Bytes of a ring's areas.
const AREA: usize = 4096;

/// Three areas for each of two queues, and what packets are made of.
#[repr(C, align(4096))]
struct Areas(UnsafeCell<[[u8; AREA]; 7]>);

// SAFETY: one core, and only raw accesses.
unsafe impl Sync for Areas {}

static AREAS: Areas = Areas(UnsafeCell::new([[0; AREA]; 7]));

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 24
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn area(number: u64) -> u64 {
    AREAS.0.get() as u64 + number * AREA as u64
}

fn write(register: u64, value: u64) {
    let device = board().socket.expect("a VM in a flow has a socket device");
    // SAFETY: a register of the device; what it then does to this guest's memory is what this guest is for.
    unsafe { mmio::write32(device.base + register, value as u32) }
}

fn put(address: u64, bytes: &[u8]) {
    // SAFETY: callers stay within the areas, which nothing else uses.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}

fn main(board: &'static Board) -> ! {
    let rounds = board.args.number("rounds", u64::MAX);
    let pause = time::ns_to_ticks(board.args.number("pause_us", 0) * 1000, time::frequency());
    gic::init(|_: Interrupt| time::disarm());
    gic::enable(board.virtual_timer);
    let mut random = Random(board.args.number("seed", 1));
    for _ in 0..rounds {
        set_up(&mut random);
        for _ in 0..random.below(20) {
            fill(&mut random);
            write(0x50, random.below(4));
        }
        if pause > 0 {
            sleep(time::now() + pause);
        }
    }
    println!("crook: {rounds} rounds");
    cpu::mask_interrupts();
    psci::system_off()
}

/// Until this time, in ticks.
fn sleep(until: u64) {
    time::arm(until);
    while time::now() < until {
        cpu::sleep();
    }
}

/// Resets the device and sets its first two queues up, mostly as they must be.
fn set_up(random: &mut Random) {
    write(0x70, 0);
    write(0x70, 3);
    write(0x24, 0);
    write(0x20, random.below(4) << 28);
    write(0x24, 1);
    write(0x20, 1);
    write(0x70, 11);
    for queue in 0..2 {
        write(0x30, queue);
        write(0x38, 1 << random.below(7));
        for (part, register) in [0x80, 0x90, 0xa0].into_iter().enumerate() {
            let place = area(3 * queue + part as u64);
            let wild = random.below(16) == 0;
            write(register, if wild { random.next() } else { place });
            write(register + 4, if wild { random.below(4) } else { place >> 32 });
        }
        write(0x44, 1);
    }
    write(0x70, 15);
}

/// Writes random descriptors, heads, indices and packets.
fn fill(random: &mut Random) {
    for queue in 0..2 {
        for number in 0..8 {
            let address = match random.below(8) {
                0 => random.next() << 8,
                1 => area(random.below(7)),
                _ => area(6) + random.below(2) * 64,
            };
            let len = [44, 45, 100, 0, 16, u64::from(u32::MAX)][random.below(6) as usize] as u32;
            let at = area(3 * queue) + 16 * number;
            put(at, &address.to_le_bytes());
            put(at + 8, &len.to_le_bytes());
            put(at + 12, &(random.below(8) as u16).to_le_bytes());
            put(at + 14, &(random.below(10) as u16).to_le_bytes());
        }
        for entry in 0..64 {
            put(area(3 * queue + 1) + 4 + 2 * entry, &(random.below(9) as u16).to_le_bytes());
        }
        put(area(3 * queue + 1) + 2, &(random.below(70) as u16).to_le_bytes());
    }
    // From itself, mostly, to its receiver, mostly, of some kind.
    let words = [
        3 + random.below(3),
        0,
        3 + random.below(3),
        0,
        random.below(2),
        5000 + random.below(3),
        random.below(70),
        1 | random.below(9) << 16,
        random.next(),
        random.next(),
        random.next(),
    ];
    for (place, word) in words.into_iter().enumerate() {
        put(area(6) + 4 * place as u64, &(word as u32).to_le_bytes());
    }
}
