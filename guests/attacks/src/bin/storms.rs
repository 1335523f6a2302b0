//! Takes as much of the hypervisor's and the machine's time as one VM can: traps in a tight loop,
//! without end.
//!
//! `kind=` says which:
//!
//! | kind | each round |
//! | --- | --- |
//! | `sgi` | an SGI to every other vCPU, or to itself if it has one |
//! | `maintenance` | broadcast invalidation of the TLB and the instruction cache, clean and invalidate of a line |
//! | `mmio` | reads and writes of the virtual GIC, reads of the virtual UART |
//! | `pending` | changes of one line of the virtual GIC, after it made pending and active what it can |
//! | `reset` | a reset of its network device, or of its socket device if it has no other |
//! | `marks` | marks in the trace: of a task `control` with misses, and of a section |
//! | `hypercall` | calls that are granted, refused and unknown |
//! | `nothing` | one instruction that does not trap: what a storm is compared with |
//!
//! `rounds=` (for ever) ends it with a line. `from=` (0) is the vCPU that storms; the others take
//! every interrupt.
//!
//! ```text
//! storms: sgi
//! storms: 1000 rounds
//! ```

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, SgiTarget},
    hypercall, mark, mmio, println, psci,
};

entry!(main);

/// PSCI_VERSION, AFFINITY_INFO of no vCPU, and a number that is not offered.
const CALLS: [(u32, u64); 4] =
    [(hypercall::NULL, 0), (0x8400_0000, 0), (0xc400_0004, 0x77), (0xc600_ffff, 1)];
/// GICD_TYPER, and the pending bits of SPIs 32 to 63.
const TYPER: u64 = 4;
const PENDING: u64 = gic::ISPENDR + 4;
const NOT_PENDING: u64 = gic::ICPENDR + 4;
/// Status of a virtio device on the MMIO transport.
const STATUS: u64 = 0x70;
/// Flags of the UART.
const FR: u64 = 0x18;

fn main(board: &'static Board) -> ! {
    gic::init(|_| {});
    for other in 1..board.cores().len() {
        // SAFETY: off since the VM started, and started once.
        unsafe { psci::start_core(other, work) }.expect("it was off");
    }
    work(0);
    psci::system_off()
}

/// What each vCPU does: one storms, the others take every interrupt.
fn work(vcpu: usize) {
    let board = board();
    let kind = board.args.get("kind").expect("kind=");
    let rounds = board.args.number("rounds", u64::MAX);
    let round: fn(&Board) = match kind {
        "sgi" => interrupt,
        "maintenance" => maintain,
        "mmio" => access,
        "pending" => {
            if vcpu as u64 == board.args.number("from", 0) {
                pend(board);
            }
            change
        }
        "reset" => reset,
        "hypercall" => call,
        "marks" => mark,
        "nothing" => |_| core::hint::black_box(()),
        other => panic!("kind={other}"),
    };
    if vcpu as u64 != board.args.number("from", 0) {
        loop {
            cpu::sleep();
        }
    }
    println!("storms: {kind}");
    for done in 0..rounds {
        round(board);
        // By the emulated clock the end of a slot would always find the same instruction.
        for _ in 0..done % 61 {
            core::hint::black_box(());
        }
    }
    println!("storms: {rounds} rounds");
    psci::system_off()
}

/// Activations that were released before the system started and missed all that a mark can say.
fn mark(_: &Board) {
    const FORGED: mark::Task = mark::Task::new("control");
    const SECTION: mark::Section = mark::Section::new("\x1b[2Jforged");
    FORGED.release(0, u64::from(u32::MAX));
    SECTION.begin();
    FORGED.complete();
}

fn interrupt(board: &Board) {
    let target = if board.cores().len() > 1 { SgiTarget::Others } else { SgiTarget::Core(0) };
    gic::send(1, target);
    cpu::unmask_interrupts();
    cpu::mask_interrupts();
}

fn maintain(board: &Board) {
    // SAFETY: invalidates what is fetched again, and cleans a line of this VM's memory.
    unsafe {
        asm!(
            "tlbi vmalle1is",
            "ic ialluis",
            "dc civac, {line}",
            "dsb ish",
            "isb",
            line = in(reg) board.ram.base,
            options(nostack)
        );
    }
}

fn access(board: &Board) {
    let distributor = board.gic.gicd();
    // SAFETY: registers of virtual devices; none of the interrupts is enabled.
    unsafe {
        mmio::write32(distributor + PENDING, u32::MAX);
        let _ = mmio::read32(distributor + TYPER);
        mmio::write32(distributor + NOT_PENDING, u32::MAX);
        let _ = mmio::read32(board.uart.base + FR);
    }
}

/// Makes every line pending that can be, and every other shared one active, each with another
/// priority. None is taken, as interrupts stay masked.
fn pend(board: &Board) {
    let distributor = board.gic.gicd();
    // SAFETY: registers of virtual devices; interrupts are masked.
    unsafe {
        for intid in (32..256).step_by(4) {
            let priorities = [0, 8, 16, 24].map(|more| 248 - intid as u8 % 32 * 7 - more);
            mmio::write32(distributor + gic::IPRIORITYR + intid, u32::from_le_bytes(priorities));
        }
        for word in (4..32).step_by(4) {
            mmio::write32(distributor + gic::ISENABLER + word, u32::MAX);
            mmio::write32(distributor + gic::ISPENDR + word, u32::MAX);
            mmio::write32(distributor + gic::ISACTIVER + word, 0x5555_5555);
        }
    }
}

fn change(board: &Board) {
    let distributor = board.gic.gicd();
    // SAFETY: as above.
    unsafe {
        mmio::write32(distributor + gic::ICENABLER + 4, 2);
        mmio::write32(distributor + gic::ISENABLER + 4, 2);
        mmio::write32(distributor + gic::ISACTIVER + 0x1c, u32::MAX);
        mmio::write32(distributor + gic::ICPENDR + 8, 1);
    }
}

fn reset(board: &Board) {
    let network = board.network.map(|device| device.base);
    let base = network.or(board.socket.map(|device| device.base)).expect("a virtio device");
    // SAFETY: a register of a virtual device without queues.
    unsafe { mmio::write32(base + STATUS, 0) }
}

fn call(_: &Board) {
    for (function, argument) in CALLS {
        let _ = hypercall::call(function, [argument, 0, 0]);
    }
}
