//! Stands in the broker's place as a compromised service VM. It writes claims of all kinds over the
//! memory that it shares with the hypervisor, and says that there are completions. Then it reads
//! the RAM of the system's third VM, which is in no flow and at no switch.
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
/// How often it writes everything.
const ROUNDS: u64 = 8;

fn main(_: &'static Board) -> ! {
    // SAFETY: the hypervisor maps what is shared there, and nothing else; the windows are read
    // last, where nothing is.
    unsafe {
        mmu::add_memory(SHARED..SHARED + LEN);
        mmu::add_memory(WINDOW..9 * WINDOW);
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
        let _ = hypercall::complete();
    }
    println!("rogue-broker: claims made");
    // SAFETY: the address is mapped at stage 1; stage 2 has nothing there.
    let secret = unsafe { mmio::read64(WINDOW * (UNSERVED + 1)) };
    println!("rogue-broker: read {secret:#x}");
    loop {
        cpu::sleep();
    }
}
