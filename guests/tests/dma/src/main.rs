//! Points its disk at memory that is not its own; another VM watches that nothing changes there.
//!
//! With `role=attacker` it drives a virtio disk on PCI (virtio 1.2) without a driver's manners. In
//! each boot it reads the disk's first line into its own memory, to see that the disk works, and
//! then commits one attack, by the restart count that weir keeps: what it may not change of the
//! configuration space; a buffer, the used ring and the descriptors in the other VM; a buffer in
//! weir's memory. Then it asks for SYSTEM_RESET. The boot after the last attack reads the first
//! line once more and powers off.
//!
//! With `role=witness` it fills the memory behind its image with a pattern and checks it ten times
//! a second.
//!
//! With `role=tenant` it has another function, of `function=` (0) in its slot: in each boot it
//! reads the register at `register=` of its first base address, which the last boot left at
//! `value=`, and writes it; in the boot `boots=` (2) it powers off instead of asking for
//! SYSTEM_RESET.
//!
//! Arguments: `slot=N` is the disk's device number (2), `ecam=ADDRESS` where the configuration
//! space is (0x4010000000), `victim=ADDRESS` where the other VM is and `hypervisor=ADDRESS` where
//! weir is, both physical.
//!
//! ```text
//! dma: the disk begins with hello
//! dma: attack 2: a buffer in another VM, device status 0xf
//! dma: all 5 attacks done
//! dma: round 7: 0 of 3932160 words changed
//! dma: boot 1: the register reads 0x0, then 0x460001
//! ```

#![no_std]
#![no_main]

mod pci;
mod virtio;
mod witness;

use pci::Function;
use virtio::{Disk, Places};
use weir_guest::{Board, entry, hypercall, mmio, println, psci};

entry!(main);

/// What an attack points somewhere else: a name, and the places with the target in them.
type Attack = (&'static str, fn(&Targets, Places) -> Places);

/// Addresses that are not the attacker's.
struct Targets {
    victim: u64,
    hypervisor: u64,
}

const ATTACKS: [Attack; 4] = [
    ("a buffer in another VM", |targets, own| Places { buffer: targets.victim, ..own }),
    ("the used ring in another VM", |targets, own| Places { used: targets.victim, ..own }),
    ("the descriptors in another VM", |targets, own| Places { descriptors: targets.victim, ..own }),
    ("a buffer in the hypervisor", |targets, own| Places { buffer: targets.hypervisor, ..own }),
];

fn main(board: &'static Board) -> ! {
    match board.args.get("role") {
        Some("witness") => witness::watch(board),
        Some("tenant") => live(board),
        _ => attack(board),
    }
}

fn live(board: &Board) -> ! {
    let args = board.args;
    let ecam = args.number("ecam", 0x40_1000_0000);
    let place = args.number("slot", 2) << 3 | args.number("function", 0);
    let function = Function::at(ecam, place);
    function.enable();
    let register = function.base() + args.number("register", 0);
    // SAFETY: a register of the function's, which is this VM's; its first base address is mapped as
    // a device.
    let read = || unsafe { mmio::read32(register) };
    let before = read();
    // SAFETY: as above.
    unsafe { mmio::write32(register, args.number("value", 0) as u32) };
    let boot = hypercall::restarts();
    println!("dma: boot {boot}: the register reads {before:#x}, then {:#x}", read());
    if boot < args.number("boots", 2) {
        psci::system_reset()
    }
    psci::system_off()
}

fn attack(board: &Board) -> ! {
    let args = board.args;
    let targets = Targets {
        victim: args.number("victim", 0x4100_0000),
        hypervisor: args.number("hypervisor", 0x4020_0000),
    };
    let ecam = args.number("ecam", 0x40_1000_0000);
    let function = Function::new(ecam, args.number("slot", 2));
    let disk = Disk::find(function).expect("a virtio disk in the slot");
    println!("dma: the disk begins with {}", disk.first_line());
    let boot = hypercall::restarts() as usize;
    match (boot, boot.checked_sub(1).and_then(|attack| ATTACKS.get(attack))) {
        (0, _) => {
            let changed = function.attack(ecam);
            println!("dma: attack 1: the configuration space, {changed} words changed");
        }
        (_, Some((name, aim))) => {
            let status = disk.attack(aim(&targets, virtio::own_places()));
            println!("dma: attack {}: {name}, device status {status:#x}", boot + 1);
        }
        (_, None) => {
            println!("dma: all {} attacks done", ATTACKS.len() + 1);
            psci::system_off()
        }
    }
    psci::system_reset()
}
