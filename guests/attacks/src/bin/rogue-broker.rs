//! Stands in the broker's place as a compromised service VM. If the system has a DMA engine, it
//! asks for transfers from and to addresses that are not its own, that are devices, that are too
//! long or wrap, and ends what it has not started. It writes claims of all kinds over the memory
//! that it shares with the hypervisor, and says that there are completions. Then it reads the RAM
//! of the system's third VM, which is in no flow and at no switch.
//!
//! `rogue-broker: claims made` comes before the read; nothing may come after it.

#![no_std]
#![no_main]

use weir_guest::{Board, cpu, entry, hypercall, mmio, mmu, println, random::Random};

entry!(main);

/// Where the broker sees the memory that it shares with the hypervisor, and its bytes.
const SHARED: u64 = 0x60_0000_0000;
const LEN: u64 = 0x2_0000;
/// Where it sees the RAM of the system's VM number 0, and the distance to the next one's.
const WINDOW: u64 = 1 << 35;
/// The VM that it does not serve.
const UNSERVED: u64 = 2;
/// The word of the settings that is all ones without an engine.
const ENGINE_FROM: u64 = SHARED + 4 * 8;
/// How often it writes everything.
const ROUNDS: u64 = 8;

/// Where the engine could read and write, as far as this VM knows.
const OUTSIDE: [u64; 8] = [
    // The hypervisor's image, physical memory in general, and the engine's own registers.
    0x0020_0000,
    0,
    0x8000_0000,
    0xfd50_0000,
    // The third VM's RAM, and behind what is shared.
    WINDOW * (UNSERVED + 1),
    SHARED + LEN,
    // The virtual GIC's CPU interface, which a VM has on a GICv2.
    0x0801_0000,
    !0xfff,
];

/// Asks for transfers that the hypervisor must deny; returns how many it granted.
fn misuse_engine() -> u64 {
    let mut granted = 0;
    let mut ask = |from: u64, to: u64, len: u64| {
        granted += u64::from(hypercall::start_engine(from, to, len));
        let _ = hypercall::finish_engine(true);
    };
    // The first VM's RAM is this VM's, too.
    for outside in OUTSIDE {
        for len in [1, 64, 4096] {
            ask(outside, WINDOW, len);
            ask(WINDOW, outside, len);
            // From its own page into the next one.
            ask(outside.wrapping_sub(32), WINDOW, len + 64);
        }
    }
    for len in [0, 0x1_0001, 1 << 32, u64::MAX] {
        ask(WINDOW, WINDOW + 0x8_0000, len);
    }
    granted
}

fn main(_: &'static Board) -> ! {
    // SAFETY: the hypervisor maps what is shared there, and nothing else; the windows are read
    // last, where nothing is.
    unsafe {
        mmu::add_memory(SHARED..SHARED + LEN);
        mmu::add_memory(WINDOW..9 * WINDOW);
    }
    // SAFETY: shared memory.
    if unsafe { mmio::read64(ENGINE_FROM) } != u64::MAX {
        println!("rogue-broker: {} transfers granted", misuse_engine());
        // One that it may have, which it leaves to itself when it stops.
        let begun = hypercall::start_engine(WINDOW, WINDOW + 0x8_0000, 0x1_0000);
        let again = hypercall::start_engine(WINDOW, WINDOW + 0x8_0000, 64);
        println!("rogue-broker: begun {begun}, another {again}");
    }
    let random = Random::new(1);
    for round in 0..ROUNDS {
        for place in 0..LEN / 8 {
            // Small epochs, as those of devices are, and all counts and reasons; or anything.
            let word = random.next();
            let word = if round % 2 == 0 { (place & 3) << 32 | word & 0x1ff } else { word };
            // SAFETY: shared memory; the hypervisor accesses it by atomics alone.
            unsafe { mmio::write64(SHARED + 8 * place, word) };
        }
        // All devices, those that exist, or any.
        let devices = [u64::MAX, 0xff_ffff, random.next()];
        let _ = hypercall::complete(devices[usize::from(round as u8) % devices.len()]);
    }
    println!("rogue-broker: claims made");
    // SAFETY: the address is mapped at stage 1; stage 2 has nothing there.
    let secret = unsafe { mmio::read64(WINDOW * (UNSERVED + 1)) };
    println!("rogue-broker: read {secret:#x}");
    loop {
        cpu::sleep();
    }
}
