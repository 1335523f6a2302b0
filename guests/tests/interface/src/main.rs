//! Checks of the GIC's CPU interface, which a guest reaches without the hypervisor.
//!
//! - `do=deactivate` (two cores): with EOImode 1 it drops the priorities of SGIs, of an emulated
//!   SPI and of a device's, and deactivates them in several orders, the SPIs on the other core;
//! - `do=wait`: waits by WFI for its physical timer while its virtual one, which is due, can't be
//!   signaled: disabled, below the mask, or behind an active interrupt.
//!
//! ```text
//! interface: 1009 checks, 0 wrong
//! interface: 3 waits, 3 WFIs, then SGI 5
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU32, Ordering},
};
use weir_guest::{
    Board, BoardGic, board, cpu, entry,
    gic::{self, SgiTarget},
    mmio, println, psci, time,
};

entry!(main);

/// The physical timer of EL1.
const PHYSICAL_TIMER: u32 = 30;
/// Of the PL011, which the hypervisor emulates, and of a device of the board.
const SPIS: [u32; 2] = [33, 34];
/// More SGIs than there are list registers.
const SGIS: u32 = 9;
/// Time for an interrupt to come.
const PATIENCE_NS: u64 = 1_000_000;

/// What the second core is to deactivate; 0 when it has done so.
static ASKED: AtomicU32 = AtomicU32::new(0);

fn main(board: &'static Board) -> ! {
    gic::init(|_| ());
    match board.args.get("do") {
        Some("wait") => wait(),
        _ => deactivate_all(),
    }
    psci::system_off()
}

/// Ends interrupts in two steps on this core: priority drop, and deactivation.
fn end_in_two_steps() {
    match board().gic {
        // SAFETY: GICC_CTLR: enabled, EOImode.
        BoardGic::V2 { gicc, .. } => unsafe { mmio::write32(gicc.base, 1 << 9 | 1) },
        // SAFETY: ICC_CTLR_EL1.EOImode.
        BoardGic::V3 { .. } => unsafe {
            asm!("msr S3_0_C12_C12_4, {}", "isb", in(reg) 2_u64, options(nostack));
        },
    }
}

/// Deactivates the interrupt that was acknowledged as `iar`.
fn deactivate(iar: u32) {
    match board().gic {
        // SAFETY: GICC_DIR.
        BoardGic::V2 { gicc, .. } => unsafe { mmio::write32(gicc.base + 0x1000, iar) },
        // SAFETY: ICC_DIR_EL1.
        BoardGic::V3 { .. } => unsafe {
            asm!("msr S3_0_C12_C11_1, {}", "isb", in(reg) u64::from(iar), options(nostack));
        },
    }
}

/// Sets this core's priority mask.
fn set_mask(mask: u32) {
    match board().gic {
        // SAFETY: GICC_PMR.
        BoardGic::V2 { gicc, .. } => unsafe { mmio::write32(gicc.base + 4, mask) },
        // SAFETY: ICC_PMR_EL1.
        BoardGic::V3 { .. } => unsafe {
            asm!("msr S3_0_C4_C6_0, {}", "isb", in(reg) u64::from(mask), options(nostack));
        },
    }
}

/// Acknowledges the next interrupt, with its value of IAR; none if none comes in time.
fn take() -> Option<u32> {
    let end = time::now_ns() + PATIENCE_NS;
    loop {
        if let Some((_, iar)) = gic::acknowledge() {
            return Some(iar);
        }
        if time::now_ns() > end {
            return None;
        }
        cpu::relax();
    }
}

/// Deactivates on the core that calls, and on the first one when it asks for it.
fn second(_: usize) {
    end_in_two_steps();
    loop {
        let iar = ASKED.load(Ordering::Acquire);
        if iar != 0 {
            deactivate(iar);
            ASKED.store(0, Ordering::Release);
        }
        cpu::relax();
    }
}

fn deactivate_on_the_second_core(iar: u32) {
    ASKED.store(iar, Ordering::Release);
    while ASKED.load(Ordering::Acquire) != 0 {
        cpu::relax();
    }
}

/// The number of checks, and of those that failed.
#[derive(Default)]
struct Tally {
    done: u32,
    wrong: u32,
}

impl Tally {
    fn check(&mut self, right: bool, intid: u32, what: &str) {
        self.done += 1;
        if !right {
            self.wrong += 1;
            println!("interface: FAILED: {intid} {what}");
        }
    }

    /// Takes interrupt `intid`, drops its priority, and returns its value of IAR.
    fn take(&mut self, intid: u32) -> u32 {
        let iar = take();
        self.check(iar.is_some_and(|iar| iar & 0x3ff == intid), intid, "does not come");
        let iar = iar.unwrap_or(intid);
        gic::end(iar);
        iar
    }

    /// Takes `count` SGIs and deactivates them in this order.
    fn sgis(&mut self, count: u32, order: fn(u32, u32) -> u32) {
        let mut iars = [0; SGIS as usize];
        for (sgi, iar) in (0..count).zip(&mut iars) {
            gic::send(sgi, SgiTarget::Core(0));
            *iar = self.take(sgi);
        }
        let mut left = (1_u32 << count) - 1;
        for n in 0..count {
            let sgi = order(n, count);
            deactivate(iars[sgi as usize]);
            left &= !(1 << sgi);
            for sgi in 0..count {
                let is_right = gic::is_active(sgi) == (left >> sgi & 1 != 0);
                self.check(is_right, sgi, "is not what it was left");
            }
        }
    }

    /// Takes the SPI `intid`, then so many SGIs, and deactivates it on the other core.
    fn spi(&mut self, intid: u32, sgis: u32) {
        let mut iars = [0; SGIS as usize];
        gic::set_pending(intid);
        let taken = self.take(intid);
        for (sgi, iar) in (0..sgis).zip(&mut iars) {
            gic::send(sgi, SgiTarget::Core(0));
            *iar = self.take(sgi);
        }
        self.check(gic::is_active(intid), intid, "is not active");
        deactivate_on_the_second_core(taken);
        self.check(!gic::is_active(intid), intid, "is active after the other core's deactivation");
        gic::set_pending(intid);
        let again = self.take(intid);
        deactivate(again);
        self.check(!gic::is_active(intid), intid, "is active after the own deactivation");
        iars.iter().take(sgis as usize).for_each(|&iar| deactivate(iar));
    }
}

fn deactivate_all() {
    let mut tally = Tally::default();
    end_in_two_steps();
    // SAFETY: the core is off, and this is the only start.
    unsafe { psci::start_core(1, second) }.expect("a second core");
    let orders: [fn(u32, u32) -> u32; 3] =
        [|n, _| n, |n, count| count - 1 - n, |n, count| (n + count / 2) % count];
    for count in 1..=SGIS {
        for order in orders {
            tally.sgis(count, order);
        }
    }
    for intid in SPIS {
        gic::set_edge(intid, true);
        gic::enable(intid);
        for sgis in [0, 3, SGIS] {
            tally.spi(intid, sgis);
        }
    }
    println!("interface: {} checks, {} wrong", tally.done, tally.wrong);
}

/// Lets the physical timer fall due in `ns`, or turns it off.
fn arm_physical(ns: Option<u64>) {
    let deadline = time::now() + time::ns_to_ticks(ns.unwrap_or(0), time::frequency());
    // SAFETY: programs the physical timer of this core.
    unsafe {
        asm!(
            "msr cntp_cval_el0, {deadline}",
            "msr cntp_ctl_el0, {on}",
            "isb",
            deadline = in(reg) deadline,
            on = in(reg) u64::from(ns.is_some()),
            options(nostack),
        );
    }
}

/// Sleeps until the physical timer's interrupt is signaled. Returns the number of WFIs.
fn wait_for_physical_timer() -> u32 {
    arm_physical(Some(3_000_000));
    let mut waits = 0;
    loop {
        cpu::wait_for_interrupt();
        waits += 1;
        let control: u64;
        // SAFETY: reads CNTP_CTL_EL0.
        unsafe { asm!("mrs {}, cntp_ctl_el0", out(reg) control, options(nomem, nostack)) };
        if control & 4 != 0 {
            break;
        }
    }
    let Some(iar) = take().filter(|iar| iar & 0x3ff == PHYSICAL_TIMER) else {
        println!("interface: FAILED: the physical timer does not come");
        psci::system_off()
    };
    arm_physical(None);
    gic::end(iar);
    waits
}

fn wait() {
    let virtual_timer = board().virtual_timer;
    gic::set_priority(virtual_timer, 0xa0);
    gic::set_priority(PHYSICAL_TIMER, 0x40);
    gic::enable(PHYSICAL_TIMER);
    time::arm(time::now());
    // The virtual timer is disabled.
    let mut waits = wait_for_physical_timer();
    // It is below the mask.
    gic::enable(virtual_timer);
    set_mask(0x80);
    waits += wait_for_physical_timer();
    set_mask(0xff);
    // It is behind an active interrupt, itself.
    let Some(iar) = take().filter(|iar| iar & 0x3ff == virtual_timer) else {
        println!("interface: FAILED: the virtual timer does not come");
        return;
    };
    gic::send(5, SgiTarget::Core(0));
    waits += wait_for_physical_timer();
    time::disarm();
    gic::end(iar);
    let sgi = take();
    println!("interface: 3 waits, {waits} WFIs, then SGI {}", sgi.map_or(99, |sgi| sgi & 0x3ff));
}
