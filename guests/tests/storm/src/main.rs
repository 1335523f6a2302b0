//! Hammers emulated devices and PSCI on all its cores, as fast as it can; another VM must not
//! notice.
//!
//! Each round touches registers of the distributor, of the core's own interrupt controller
//! interface and of the PL011, reading and writing what changes nothing, and makes PSCI calls that
//! change nothing: VERSION, FEATURES, AFFINITY_INFO, and CPU_ON of the core itself, which is
//! refused. Answers are checked: `storm: FAILED: ...` if one is wrong.
//!
//! Arguments: `seconds=` of virtual time (2), or `count=` rounds on each core instead. Ends with
//! `storm: N MMIO, M calls` (over all cores) and SYSTEM_OFF.

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weir_guest::{
    Board, BoardGic, board, cpu, entry, gic,
    hypercall::call,
    mmio, println,
    psci::{self, error},
    time,
};

entry!(main);

static MMIO: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Cores that are through.
static DONE: AtomicUsize = AtomicUsize::new(0);

// PL011 registers (DDI0183, 3.2).
const UARTFR: u64 = 0x18;
const UARTIMSC: u64 = 0x38;

fn main(board: &'static Board) -> ! {
    gic::init(|_| ());
    for core in 1..board.cores().len() {
        // SAFETY: the boot core is the only one that was started.
        unsafe { psci::start_core(core, storm) }.expect("a core that is off can be started");
    }
    storm(0);
    while DONE.load(Ordering::Acquire) < board.cores().len() {
        cpu::relax();
    }
    let (mmio, calls) = (MMIO.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    println!("storm: {mmio} MMIO, {calls} calls");
    psci::system_off()
}

fn storm(core: usize) {
    let board = board();
    let end = time::now_ns() + board.args.number("seconds", 2) * 1_000_000_000;
    let count = board.args.number("count", 0);
    let (mut rounds, mut mmio, mut calls) = (0, 0, 0);
    while if count == 0 { time::now_ns() < end } else { rounds < count } {
        mmio += touch_devices(board);
        calls += call_psci(board.cores()[core]);
        rounds += 1;
    }
    MMIO.fetch_add(mmio, Ordering::Relaxed);
    CALLS.fetch_add(calls, Ordering::Relaxed);
    DONE.fetch_add(1, Ordering::Release);
}

/// Returns the number of accesses.
fn touch_devices(board: &Board) -> u64 {
    let gicd = board.gic.gicd();
    let (spi, ppi) = (board.uart.intid, board.virtual_timer);
    let mut accesses = 0;
    let mut read = |address| {
        accesses += 1;
        // SAFETY: these registers have no side effects when read.
        unsafe { mmio::read32(address) }
    };
    for offset in [0x000, 0x004, 0x008, 0xc08] {
        read(gicd + offset);
    }
    for bank in [gic::ISENABLER, gic::ISPENDR, gic::ISACTIVER, gic::IPRIORITYR] {
        read(gic::register(spi, bank));
        read(gic::register(ppi, bank));
    }
    read(board.uart.base + UARTFR);
    if let BoardGic::V2 { gicc, .. } = board.gic {
        read(gicc.base + 0x04);
    }
    let mut write = |address, value| {
        accesses += 1;
        // SAFETY: writes what changes nothing: no bit to act on, or what the register holds.
        unsafe { mmio::write32(address, value) };
    };
    for bank in [gic::ISENABLER, gic::ICENABLER, gic::ISPENDR, gic::ICPENDR, gic::ICACTIVER] {
        write(gic::register(spi, bank), 0);
        write(gic::register(ppi, bank), 0);
    }
    write(board.uart.base + UARTIMSC, 0);
    gic::set_priority(spi, gic::DEFAULT_PRIORITY);
    gic::set_priority(ppi, gic::DEFAULT_PRIORITY);
    accesses + 2
}

/// Returns the number of calls.
fn call_psci(this_core: u64) -> u64 {
    let answer = call(psci::PSCI_VERSION, [0; 3]);
    assert_answer("VERSION", answer >= 1 << 16, answer);
    let answer = call(psci::PSCI_FEATURES, [psci::PSCI_CPU_ON_64.into(), 0, 0]);
    assert_answer("FEATURES", answer == 0, answer);
    let answer = call(psci::PSCI_AFFINITY_INFO_64, [this_core, 0, 0]);
    assert_answer("AFFINITY_INFO", answer == 0, answer);
    let answer = call(psci::PSCI_CPU_ON_64, [this_core, 0, 0]);
    assert_answer("CPU_ON", answer as i32 == error::ALREADY_ON, answer);
    let answer = call(psci::PSCI_CPU_ON_64, [0xff_00ff_ffff, 0, 0]);
    assert_answer("CPU_ON of no core", answer as i32 == error::INVALID_PARAMETERS, answer);
    5
}

fn assert_answer(name: &str, right: bool, answer: i64) {
    if !right {
        println!("storm: FAILED: {name} answered {answer}");
        psci::system_off()
    }
}
