//! The guest of `weir bench hypervisor`: each path into EL2 is taken 64 times, one event at a time,
//! between markers ([`weir_guest::marker`]), after a few rounds of warm-up without them. A plug-in
//! that sees the machine's instructions counts those of EL2 that follow a marker.
//!
//! With one core the paths that need two are left out, without a PL031 the device interrupt (the
//! console says so). Ends with `probe: done` and SYSTEM_OFF.
//!
//! Synchronous paths run with interrupts masked. Interrupts are taken in a spin of `yield`s, with
//! the marker executed before the cause: the timer is programmed ahead (which does not trap), the
//! PL031 is passed through, so that raising its line does not trap, and the receiver of an SGI has
//! executed its marker before it says that it waits.

#![no_std]
#![no_main]
#![allow(clippy::inline_always, reason = "what a benchmark marks must follow the mark, not a call")]

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_guest::{
    Board, BoardGic, MAX_CORES, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    hypercall,
    marker::{self, marker},
    mmio, println, psci, time,
};

entry!(main);

global_asm!(
    ".section .init.entry, \"ax\"",
    ".global probe_entry",
    "probe_entry:",
    "    hint #{boot}",
    "    b entry",
    boot = const 64 + marker::BOOT,
);

const WARM_UP: u32 = 8;
const REPETITIONS: u32 = 64;
/// A priority that no line has.
const OTHER_PRIORITY: u8 = gic::DEFAULT_PRIORITY + 0x10;
/// From programming a timer to its interrupt: enough to execute the marker and get to the spin.
const AHEAD_NS: u64 = 50_000;

// PL031 registers (DDI0224, 3.2).
const RTCDR: u64 = 0x00;
const RTCMR: u64 = 0x04;
const RTCIMSC: u64 = 0x10;
const RTCRIS: u64 = 0x14;

/// Whether an interrupt was taken, for each core.
static TAKEN: [AtomicBool; MAX_CORES] = [const { AtomicBool::new(false) }; MAX_CORES];
/// Rounds of the SGI exchange that the receiver waits in, or is through with.
static WAITING: AtomicU32 = AtomicU32::new(0);
static RECEIVED: AtomicU32 = AtomicU32::new(0);
/// How often the second core was started.
static STARTED: AtomicU32 = AtomicU32::new(0);

fn main(board: &'static Board) -> ! {
    gic::init(handle);
    calls();
    distributor(board);
    console(board);
    timer(board);
    sgi_to_itself();
    private_lines(board);
    if let Some(rtc) = board.rtc {
        device_line(rtc.intid);
        device_interrupt(rtc.base, rtc.intid);
    } else {
        println!("probe: skipped the paths of a device's line: there is no arm,pl031");
    }
    if board.cores().len() > 1 {
        start_and_stop(board.cores()[1]);
        exchange_sgis(board.cores()[1]);
    } else {
        println!("probe: skipped cpu_on, sgi_send and sgi_receive: there is one core");
    }
    println!("probe: done");
    psci::system_off()
}

/// Takes the path `N`: each time `prepare`, marker, `event` with what `prepare` made, end marker.
#[inline(always)]
fn take<const N: u32, T>(mut prepare: impl FnMut() -> T, mut event: impl FnMut(T)) {
    for round in 0..WARM_UP + REPETITIONS {
        let prepared = prepare();
        if round < WARM_UP {
            marker::<{ marker::NONE }>();
        } else {
            marker::<N>();
        }
        event(prepared);
        marker::<{ marker::NONE }>();
    }
}

fn handle(interrupt: Interrupt) {
    let board = board();
    if interrupt.intid == board.virtual_timer {
        time::disarm();
    }
    if let Some(rtc) = board.rtc
        && rtc.intid == interrupt.intid
    {
        // SAFETY: masks the alarm of the PL031 that the device tree names.
        unsafe { mmio::write32(rtc.base + RTCIMSC, 0) };
    }
    TAKEN[cpu::index()].store(true, Ordering::Release);
}

/// Spins until this core has taken an interrupt.
#[inline(always)]
fn spin_until_taken() {
    let taken = &TAKEN[cpu::index()];
    while !taken.load(Ordering::Acquire) {
        cpu::relax();
    }
    taken.store(false, Ordering::Release);
}

fn calls() {
    take::<{ marker::HYPERCALL }, _>(
        || {},
        |()| {
            let _ = hypercall::call(hypercall::NULL, [0; 3]);
        },
    );
    take::<{ marker::PSCI_VERSION }, _>(
        || {},
        |()| {
            let _ = hypercall::call(psci::PSCI_VERSION, [0; 3]);
        },
    );
    take::<{ marker::PSCI_VERSION_SMC }, _>(
        || {},
        |()| {
            let _ = hypercall::call_by_smc(psci::PSCI_VERSION, [0; 3]);
        },
    );
}

/// Accesses on behalf of an idle line that the guest has on every board, the console's.
fn distributor(board: &Board) {
    let line = board.uart.intid;
    let bit = 1 << (line % 32);
    let set_enable = gic::register(line, gic::ISENABLER);
    let set_pending = gic::register(line, gic::ISPENDR);
    let priority = gic::frame(line) + gic::IPRIORITYR + u64::from(line);
    let router = gic::frame(line) + gic::IROUTER + u64::from(line) * 8;
    let this_core = board.cores()[cpu::index()];

    take::<{ marker::GICD_TYPER_READ }, _>(
        || {},
        |()| {
            let _ = gic::distributor_type();
        },
    );
    take::<{ marker::GICD_ISENABLER_READ }, _>(
        || {},
        |()| {
            // SAFETY: reads the line's enable bit.
            let _ = unsafe { mmio::read32(set_enable) };
        },
    );
    take::<{ marker::GICD_ISENABLER_WRITE }, _>(
        || gic::disable(line),
        // SAFETY: enables a line that has a handler.
        |()| unsafe { mmio::write32(set_enable, bit) },
    );
    take::<{ marker::GICD_IPRIORITYR_WRITE }, _>(
        || {},
        // SAFETY: sets the priority that the line has.
        |()| unsafe { mmio::write8(priority, gic::DEFAULT_PRIORITY) },
    );
    if matches!(board.gic, BoardGic::V3 { .. }) {
        take::<{ marker::GICD_IROUTER_WRITE }, _>(
            || {},
            // SAFETY: routes the line to where it goes.
            |()| unsafe { mmio::write64(router, this_core) },
        );
    }
    gic::disable(line);
    take::<{ marker::GICD_ISPENDR_WRITE }, _>(
        || gic::clear_pending(line),
        // SAFETY: makes a disabled line pending, which signals nothing.
        |()| unsafe { mmio::write32(set_pending, bit) },
    );
    gic::clear_pending(line);

    let ppi = board.physical_timer;
    let set_enable = gic::register(ppi, gic::ISENABLER);
    take::<{ marker::GICR_ISENABLER0_WRITE }, _>(
        || gic::disable(ppi),
        // SAFETY: enables a line of a timer that is off.
        |()| unsafe { mmio::write32(set_enable, 1 << ppi) },
    );
    gic::disable(ppi);
}

/// Accesses on behalf of the virtual timer's PPI: its state is in the physical redistributor.
fn private_lines(board: &Board) {
    let ppi = board.virtual_timer;
    let set_enable = gic::register(ppi, gic::ISENABLER);
    let priority = gic::frame(ppi) + gic::IPRIORITYR + u64::from(ppi);
    if matches!(board.gic, BoardGic::V3 { .. }) {
        take::<{ marker::GICR_TYPER_READ }, _>(
            || {},
            |()| {
                let _ = gic::redistributor_type();
            },
        );
    }
    take::<{ marker::GICR_ISENABLER0_READ }, _>(
        || {},
        |()| {
            // SAFETY: reads the enable bits of private lines.
            let _ = unsafe { mmio::read32(set_enable) };
        },
    );
    take::<{ marker::GICR_ISENABLER0_TIMER }, _>(
        || gic::disable(ppi),
        // SAFETY: enables a line of a timer that is off.
        |()| unsafe { mmio::write32(set_enable, 1 << ppi) },
    );
    take::<{ marker::GICR_ISENABLER0_SAME }, _>(
        || {},
        // SAFETY: enables a line that is enabled.
        |()| unsafe { mmio::write32(set_enable, 1 << ppi) },
    );
    take::<{ marker::GICR_IPRIORITYR_CHANGE }, _>(
        || gic::set_priority(ppi, gic::DEFAULT_PRIORITY),
        // SAFETY: sets the priority of a line of a timer that is off.
        |()| unsafe { mmio::write8(priority, OTHER_PRIORITY) },
    );
    gic::set_priority(ppi, gic::DEFAULT_PRIORITY);
    gic::disable(ppi);
}

/// Accesses on behalf of a line of a passed-through device: its state is in the physical
/// distributor.
fn device_line(line: u32) {
    let bit = 1 << (line % 32);
    let set_enable = gic::register(line, gic::ISENABLER);
    let set_pending = gic::register(line, gic::ISPENDR);
    let priority = gic::frame(line) + gic::IPRIORITYR + u64::from(line);
    take::<{ marker::GICD_ISENABLER_LINE }, _>(
        || gic::disable(line),
        // SAFETY: enables a line that has a handler.
        |()| unsafe { mmio::write32(set_enable, bit) },
    );
    take::<{ marker::GICD_ISENABLER_SAME }, _>(
        || {},
        // SAFETY: enables a line that is enabled.
        |()| unsafe { mmio::write32(set_enable, bit) },
    );
    take::<{ marker::GICD_IPRIORITYR_CHANGE }, _>(
        || gic::set_priority(line, gic::DEFAULT_PRIORITY),
        // SAFETY: sets the priority of a line that has a handler.
        |()| unsafe { mmio::write8(priority, OTHER_PRIORITY) },
    );
    gic::set_priority(line, gic::DEFAULT_PRIORITY);
    cpu::unmask_interrupts();
    take::<{ marker::GICD_ISPENDR_DELIVERY }, _>(
        || {},
        |()| {
            // SAFETY: makes a line pending that has a handler.
            unsafe { mmio::write32(set_pending, bit) };
            spin_until_taken();
        },
    );
    cpu::mask_interrupts();
    gic::disable(line);
}

fn sgi_to_itself() {
    cpu::unmask_interrupts();
    take::<{ marker::SGI_SELF }, _>(
        || {},
        |()| {
            gic::send(1, SgiTarget::Core(cpu::index()));
            spin_until_taken();
        },
    );
    cpu::mask_interrupts();
}

fn console(board: &Board) {
    take::<{ marker::UART_WRITE }, _>(
        || {},
        // SAFETY: writes to the data register of the console's PL011; no other core runs.
        |()| unsafe { mmio::write32(board.uart.base, b'.'.into()) },
    );
    println!();
}

fn timer(board: &Board) {
    let ahead = time::ns_to_ticks(AHEAD_NS, time::frequency());
    take::<{ marker::TIMER_PROGRAM }, _>(|| {}, |()| time::arm(u64::MAX));
    time::disarm();

    gic::enable(board.virtual_timer);
    take::<{ marker::EOI }, _>(
        || {
            time::arm(time::now());
            // Masked, the interrupt still gets through the hypervisor to this core's interface.
            let iar = loop {
                if let Some((_, iar)) = gic::acknowledge() {
                    break iar;
                }
                cpu::relax();
            };
            time::disarm();
            iar
        },
        gic::end,
    );

    // WFI with the interrupt masked: it ends the sleep and is taken after.
    take::<{ marker::WFI }, _>(
        || time::arm(time::now() + ahead),
        |()| {
            cpu::wait_for_interrupt();
            cpu::unmask_interrupts();
            spin_until_taken();
            cpu::mask_interrupts();
        },
    );

    cpu::unmask_interrupts();
    take::<{ marker::TIMER_IRQ }, _>(|| time::arm(time::now() + ahead), |()| spin_until_taken());
    cpu::mask_interrupts();
    gic::disable(board.virtual_timer);
}

/// The alarm is made to match once and stays raised in the device; its mask bit makes the line.
fn device_interrupt(rtc: u64, intid: u32) {
    // SAFETY: masks the alarm of the PL031 that the device tree names.
    unsafe { mmio::write32(rtc + RTCIMSC, 0) };
    loop {
        // SAFETY: reads the PL031's seconds.
        let now = unsafe { mmio::read32(rtc + RTCDR) };
        // SAFETY: sets the alarm to now. A second may pass just here: hence the loop.
        unsafe { mmio::write32(rtc + RTCMR, now) };
        // SAFETY: reads whether the alarm has matched.
        if unsafe { mmio::read32(rtc + RTCRIS) } & 1 != 0 {
            break;
        }
    }
    gic::enable(intid);
    cpu::unmask_interrupts();
    take::<{ marker::SPI }, _>(
        || {},
        |()| {
            // SAFETY: unmasks the alarm; the handler masks it.
            unsafe { mmio::write32(rtc + RTCIMSC, 1) };
            spin_until_taken();
        },
    );
    cpu::mask_interrupts();
    gic::disable(intid);
}

/// Starts the core with index 1, which returns and turns itself off, by HVC and by SMC.
fn start_and_stop(mpidr: u64) {
    let mut starts = 0;
    let mut prepare = || {
        wait_until_off(mpidr, starts);
        starts += 1;
    };
    take::<{ marker::CPU_ON }, _>(&mut prepare, |()| {
        // SAFETY: `wait_until_off` has seen the core off.
        unsafe { psci::start_core(1, count_start) }.expect("a core that is off can be started");
    });
    take::<{ marker::CPU_ON_SMC }, _>(&mut prepare, |()| {
        // SAFETY: `wait_until_off` has seen the core off.
        unsafe { psci::start_core_by_smc(1, count_start) }
            .expect("a core that is off can be started");
    });
    wait_until_off(mpidr, 2 * (WARM_UP + REPETITIONS));
}

fn count_start(_: usize) {
    STARTED.fetch_add(1, Ordering::Release);
}

/// Waits until the core came up for the `starts`th time and is off again. The count matters: some
/// PSCI implementations (QEMU's) still call a core off that CPU_ON has been called for.
fn wait_until_off(mpidr: u64, starts: u32) {
    while STARTED.load(Ordering::Acquire) < starts {
        cpu::relax();
    }
    while psci::affinity_info(mpidr) != Ok(psci::AffinityState::Off) {
        cpu::relax();
    }
}

fn exchange_sgis(mpidr: u64) {
    // SAFETY: `start_and_stop` has seen the core off.
    unsafe { psci::start_core(1, receive) }.expect("a core that is off can be started");
    let mut round = 0;
    take::<{ marker::SGI_SEND }, _>(
        || {
            while RECEIVED.load(Ordering::Acquire) < round {
                cpu::relax();
            }
            round += 1;
            while WAITING.load(Ordering::Acquire) < round {
                cpu::relax();
            }
        },
        |()| gic::send(1, SgiTarget::Core(1)),
    );
    wait_until_off(mpidr, 0);
}

fn receive(_: usize) {
    cpu::unmask_interrupts();
    let mut round = 0;
    take::<{ marker::SGI_RECEIVE }, _>(
        || {},
        |()| {
            round += 1;
            WAITING.store(round, Ordering::Release);
            spin_until_taken();
            RECEIVED.store(round, Ordering::Release);
        },
    );
}
