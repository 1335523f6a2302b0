//! Stands in the broker's place as a compromised service VM that moves no packet and no frame. It
//! says of each socket and network device that it accesses the memory of its VM: `rounds` times for
//! 15 ms with a pause between, then for ever.
//!
//! ```text
//! busy-broker: 4 times busy
//! ```

#![no_std]
#![no_main]

use weir_exchange::{
    device::DeviceWords,
    flows::{Exchange, PORTS},
    switch::{ADDRESS, OFFSET, SwitchExchange},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    mmu, println, time,
};

entry!(main);

/// How often it says that it is busy before it does so for ever.
const ROUNDS: u64 = 4;
/// How long, in ns: less than the 20 ms after which the hypervisor stops a broker.
const BUSY: u64 = 15_000_000;
/// How long it then says that it is not, in ns: longer than the VM that resets a device waits for its
/// next slot.
const PAUSE: u64 = 2_000_000;
/// Bytes of the exchange with the hypervisor.
const LEN: u64 = 0x2_0000;

fn main(board: &'static Board) -> ! {
    let memory = ADDRESS - OFFSET..ADDRESS - OFFSET + LEN;
    gic::init(|_: Interrupt| time::disarm());
    gic::enable(board.virtual_timer);
    // SAFETY: the hypervisor maps the exchange there.
    unsafe { mmu::add_memory(memory) };
    // SAFETY: as above; the type is atomics only, of which each bit pattern is one.
    let switch: &'static SwitchExchange = unsafe { &*(ADDRESS as *const SwitchExchange) };
    // SAFETY: as above.
    let exchange: &'static Exchange = unsafe { &*((ADDRESS - OFFSET) as *const Exchange) };
    let devices = || {
        let sockets = (0..PORTS).map(|index| &exchange.port(index).device);
        sockets.chain((0..PORTS).map(|index| &switch.port(index).device))
    };
    // VMs in flows start now.
    exchange.doze();
    for _ in 0..ROUNDS {
        let end = time::now_ns() + BUSY;
        while time::now_ns() < end {
            // A reset begins a new epoch; what began before it stays busy.
            devices().for_each(|device| _ = device.begin(device.epoch()));
            wait(end);
        }
        devices().for_each(DeviceWords::end);
        wait(time::now_ns() + PAUSE);
    }
    println!("busy-broker: {ROUNDS} times busy");
    loop {
        devices().for_each(|device| _ = device.begin(device.epoch()));
        wait(u64::MAX);
    }
}

/// Sleeps until `end`, in ns.
fn wait(end: u64) {
    while time::now_ns() < end {
        let ticks = u128::from(end) * u128::from(time::frequency()) / 1_000_000_000;
        time::arm(u64::try_from(ticks).unwrap_or(u64::MAX >> 1).saturating_add(1));
        cpu::sleep();
    }
}
