//! Breaks the rules of its socket device: rings full of random numbers, heads twice, chains that
//! end in themselves, buffers outside of memory, packets to VMs that no flow allows, resets in the
//! midst of it, registers that no driver writes, over MMIO or PCI. For ever, or `rounds=` of them;
//! `seed=` (1) chooses them; `every_us=` (0) each begins when the counter is at a multiple of that,
//! and until then it sleeps.
//!
//! With `controls=`, at most 64, a round is one notification of so many packets without a fault,
//! from the context identifier `from=` to `to=`, port 5001: `op=` (`credit-update`) is what they
//! are for, with `all` one operation after the other, `rounds=` each. They are of a connection that
//! the first of an operation asks for, or of none with `stray=1`. The first round begins at
//! `start_us=` (0) by the counter.
//!
//! With `accepts=BYTES`, at most 64 KiB, it accepts a connection and announces so much room. When
//! that many bytes have arrived it breaks a ring, and stays.
//!
//! With `breaks=1` it breaks a ring in the end, waits until the device says so, and stays; with
//! `breaks=net` it does so with its network device, and nothing else.
//!
//! ```text
//! malicious-driver: 1000 rounds over PCI
//! malicious-driver: 32000 control packets over MMIO
//! malicious-driver: a device needs a reset, interrupt reason 2, pending: true
//! ```

#![no_std]
#![no_main]

mod accepting;
mod controls;
mod device;

use controls::{ControlPackets, OPERATIONS};
use core::{cell::UnsafeCell, ptr};
use device::TargetDevice;
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    println, psci,
    random::Random,
    time,
};

entry!(main);

/// Bytes of a ring's areas.
const AREA: usize = 4096;

/// Three areas for each of two queues, what packets are made of, and what is received.
#[repr(C, align(4096))]
struct Areas(UnsafeCell<[[u8; AREA]; AREAS_LEN]>);

/// The last 32 are to receive into.
const AREAS_LEN: usize = 7 + 32;

// SAFETY: one core, and only raw accesses.
unsafe impl Sync for Areas {}

static AREAS: Areas = Areas(UnsafeCell::new([[0; AREA]; AREAS_LEN]));

fn area(number: u64) -> u64 {
    AREAS.0.get() as u64 + number * AREA as u64
}

fn put(address: u64, bytes: &[u8]) {
    // SAFETY: callers stay within the areas, which nothing else uses.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}

fn main(board: &'static Board) -> ! {
    let rounds = board.args.number("rounds", u64::MAX);
    let every = time::ns_to_ticks(board.args.number("every_us", 0) * 1000, time::frequency());
    gic::init(|_: Interrupt| time::disarm());
    gic::enable(board.virtual_timer);
    let random = Random::new(board.args.number("seed", 1));
    let breaks = board.args.get("breaks");
    if breaks == Some("net") {
        let network = board.network.expect("a VM with a network device");
        let device = TargetDevice::find(network.base);
        device.reset([0, 1]);
        for queue in 0..2 {
            device.set_up(queue, 64, [0, 1, 2].map(|part| area(3 * queue + part)));
        }
        device.set_status(15);
        break_ring(device, network.intid);
    }
    let socket = board.socket.expect("a VM in a flow has a socket device");
    let device = TargetDevice::find(socket.base);
    let begins = || {
        if let Some(before) = time::now().checked_div(every) {
            sleep((before + 1) * every);
        }
    };
    if board.args.get("accepts").is_some() {
        accepting::run(device, board.args.number("accepts", 4096) as u32);
        break_ring(device, socket.intid);
    }
    if board.args.get("controls").is_some() {
        // By then, receivers listen.
        sleep(time::ns_to_ticks(board.args.number("start_us", 0) * 1000, time::frequency()));
        let name = board.args.get("op").unwrap_or("credit-update");
        let is_known = OPERATIONS.iter().any(|(known, _)| [known, "all"].contains(&name));
        assert!(is_known, "no operation {name}");
        let mut sent = 0;
        for (_, operation) in OPERATIONS.iter().filter(|(known, _)| [known, "all"].contains(&name))
        {
            begins();
            let mut controls = ControlPackets::new(device, board.args, *operation);
            for _ in 0..rounds {
                begins();
                controls.send(device);
            }
            sent += controls.sent();
        }
        println!("malicious-driver: {sent} control packets over {}", device.transport());
        if breaks.is_some() {
            break_ring(device, socket.intid);
        }
        end();
    }
    for _ in 0..rounds {
        begins();
        set_up(device, &random);
        for _ in 0..random.below(20) {
            fill(&random);
            device.notify(random.below(4));
            if random.below(4) == 0 {
                device.abuse(&random);
            }
        }
    }
    println!("malicious-driver: {rounds} rounds over {}", device.transport());
    end()
}

/// Makes more chains available than the ring to send has, and stays.
fn break_ring(device: TargetDevice, intid: u32) -> ! {
    device.acknowledge();
    put(area(4) + 2, &5000u16.to_le_bytes());
    device.notify(1);
    while !device.needs_reset() {
        cpu::relax();
    }
    let is_pending = gic::is_pending(intid);
    // Buffers may have been returned, too.
    let reason = device.reason() & 2;
    println!(
        "malicious-driver: a device needs a reset, interrupt reason {reason}, pending: {is_pending}"
    );
    loop {
        cpu::sleep();
    }
}

fn end() -> ! {
    cpu::mask_interrupts();
    psci::system_off()
}

/// Until this time, in ticks.
fn sleep(until: u64) {
    while time::now() < until {
        // Each time: an interrupt of the time before, which is pending still, would turn the timer
        // off.
        time::arm(until);
        cpu::sleep();
    }
}

/// Resets the device and sets its first two queues up, mostly as they must be.
fn set_up(device: TargetDevice, random: &Random) {
    device.reset([random.below(4) << 28, 1]);
    for queue in 0..2 {
        let size = 1 << random.below(7);
        let areas = [0, 1, 2].map(|part| {
            let wild = random.below(16) == 0;
            if wild { random.next() & 0x3_ffff_ffff } else { area(3 * queue + part) }
        });
        device.set_up(queue, size, areas);
    }
    device.set_status(15);
}

/// Writes random descriptors, heads, indices and packets.
fn fill(random: &Random) {
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
