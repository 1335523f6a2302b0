//! Checks that a machine's cores, interrupts and power control are what the architecture says.
//!
//! Boots every core of the device tree by CPU_ON; all cores then go through the same checks in
//! step:
//!
//! - SGIs 0 to 15 from every core to every core, itself included, each arriving once and nowhere
//!   else, and on GICv2 naming its sender; to all others at once; around a ring 1000 times,
//!   forwarded by the handler;
//! - of two SGIs pending while masked, the more urgent comes first;
//! - an SPI, routed to each core in turn, level and edge: pending by software, disabled and enabled
//!   while pending, taken back, active while handled, held back while made active;
//! - distributor registers read as what was written and as the device tree says;
//! - CPU_ON refused for a core that is on and for one that does not exist, AFFINITY_INFO, FEATURES,
//!   CPU_OFF and CPU_ON again;
//! - general and SIMD registers keep each core's pattern all along, under timer interrupts.
//!
//! Ends with `smp: N cores, all checks passed` or `smp: FAILED: ...` and SYSTEM_OFF.

#![no_std]
#![no_main]

mod registers;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use weir_guest::{
    Board, BoardGic, MAX_CORES, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    hypercall, mmio, println, psci, time,
};

entry!(main);

const BROADCAST_SGI: u32 = 1;
const RING_SGI: u32 = 2;
const RING_ROUNDS: u32 = 1000;
const LESS_URGENT_SGI: u32 = 5;
const MORE_URGENT_SGI: u32 = 6;
/// Interrupts that are counted: SGIs, PPIs and the first SPIs.
const COUNTED: usize = 64;
/// Nothing here takes so long, even on a busy emulator.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Steps that a core waits without sleeping, and how long it sleeps after.
const SPINS: u32 = 200;
const NAP_NS: u64 = 500_000;
/// Long enough for an interrupt that should not come to come.
const GRACE_NS: u64 = 200_000;
const TICK_NS: u64 = 100_000;

/// A check that all cores make at the same time, each with its own index.
type Phase = fn(usize, &'static Board);
/// A counter for each interrupt of each core.
type Counts = [[AtomicU32; COUNTED]; MAX_CORES];

static COUNTS: Counts = [const { [const { AtomicU32::new(0) }; COUNTED] }; MAX_CORES];
/// The last interrupts of each core, the latest in the low byte.
static ORDER: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];
/// The core that GICv2 says sent the last SGI, for each core.
static SOURCE: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];
/// Whether a core's timer is periodic; otherwise it only ends naps.
static TICKS: [AtomicBool; MAX_CORES] = [const { AtomicBool::new(false) }; MAX_CORES];
static WAS_ACTIVE: AtomicBool = AtomicBool::new(false);
/// Hops of the ring that are left.
static HOPS: AtomicU32 = AtomicU32::new(0);
/// Arrivals at the barrier, and how often it has opened.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);
static RESTARTED: AtomicU32 = AtomicU32::new(0);

/// Ends the guest with a message unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            fail(format_args!($($text)*));
        }
    };
}

fn fail(what: core::fmt::Arguments<'_>) -> ! {
    println!("smp: FAILED: core {}: {what}", cpu::index());
    psci::system_off()
}

fn main(board: &'static Board) -> ! {
    gic::init(handle);
    check_psci(board);
    for core in 1..board.cores().len() {
        check!(
            psci::affinity_info(board.cores()[core]) == Ok(psci::AffinityState::Off),
            "core {core} is not off at the start",
        );
        // SAFETY: the line above has seen the core off.
        let started = unsafe { psci::start_core(core, run) };
        check!(started.is_ok(), "CPU_ON of core {core}: {started:?}");
    }
    run(0);
    cpu::mask_interrupts();
    check_restarts(board);
    println!("smp: {} cores, all checks passed", board.cores().len());
    psci::system_off()
}

/// The checks that all cores go through in step.
fn run(core: usize) {
    let board = board();
    let phases: &[(&str, Phase)] = &[
        ("SGIs between all pairs", check_pairs),
        ("SGI to all others", check_broadcast),
        ("SGI ring", check_ring),
        ("priorities", check_priorities),
        ("level SPI", |core, board| check_spi(core, board, false)),
        ("edge SPI", |core, board| check_spi(core, board, true)),
        ("distributor registers", check_distributor),
        ("registers under interrupts", check_registers),
        ("registers over CPU_SUSPEND", check_suspend),
        ("power state", check_on),
    ];
    registers::fill_simd(core);
    gic::enable(board.virtual_timer);
    cpu::unmask_interrupts();
    for (name, phase) in phases {
        barrier(board);
        phase(core, board);
        check!(registers::simd_is_intact(core), "SIMD registers changed during {name}");
    }
    barrier(board);
    let spurious = COUNTS[core].iter().map(|count| count.load(SeqCst)).sum::<u32>();
    check!(spurious == 0, "{spurious} interrupts without a waiter");
    cpu::mask_interrupts();
}

fn handle(interrupt: Interrupt) {
    let (core, board) = (cpu::index(), board());
    if interrupt.intid == board.virtual_timer {
        if !TICKS[core].load(SeqCst) {
            time::disarm();
            return;
        }
        time::arm(time::now() + time::ns_to_ticks(TICK_NS, time::frequency()));
    }
    if interrupt.intid == board.uart.intid {
        WAS_ACTIVE.store(gic::is_active(interrupt.intid), SeqCst);
    }
    let hops = HOPS.load(SeqCst);
    if interrupt.intid == RING_SGI && hops > 0 {
        HOPS.store(hops - 1, SeqCst);
        if hops > 1 {
            gic::send(RING_SGI, SgiTarget::Core((core + 1) % board.cores().len()));
        }
        return;
    }
    if let Some(source) = interrupt.source {
        SOURCE[core].store(source, SeqCst);
    }
    let order = ORDER[core].load(SeqCst);
    ORDER[core].store(order << 8 | u64::from(interrupt.intid & 0xff), SeqCst);
    if let Some(count) = COUNTS[core].get(interrupt.intid as usize) {
        count.fetch_add(1, SeqCst);
    }
}

/// Waits, and after a while sleeps between polls, so that emulated cores do not keep the host from
/// running the one that is waited for. Interrupts are taken unless they were masked.
fn wait(what: &str, until: impl Fn() -> bool) {
    let start = time::now_ns();
    for _ in 0..SPINS {
        if until() {
            return;
        }
        cpu::relax();
    }
    let masked = cpu::interrupts_are_masked();
    while !until() {
        let patient = time::now_ns() - start < PATIENCE_NS;
        check!(patient, "waited in vain: {what}");
        cpu::mask_interrupts();
        if !TICKS[cpu::index()].load(SeqCst) {
            time::arm(time::now() + time::ns_to_ticks(NAP_NS, time::frequency()));
        }
        if !until() {
            cpu::wait_for_interrupt();
        }
        if !masked {
            cpu::unmask_interrupts();
        }
    }
}

/// Waits for all cores.
fn barrier(board: &Board) {
    let opened = OPENED.load(SeqCst);
    if ARRIVED.fetch_add(1, SeqCst) + 1 == board.cores().len() {
        ARRIVED.store(0, SeqCst);
        OPENED.store(opened + 1, SeqCst);
    } else {
        wait("barrier", || OPENED.load(SeqCst) != opened);
    }
}

/// Takes one interrupt from the counter, which must come, once.
fn expect_one(core: usize, intid: u32, what: &str) {
    let count = &COUNTS[core][intid as usize];
    wait(what, || count.load(SeqCst) > 0);
    let count = count.swap(0, SeqCst);
    check!(count == 1, "{what}: interrupt {intid} came {count} times");
}

/// An interrupt that must not come now.
fn expect_none(core: usize, intid: u32, what: &str) {
    time::spin_for_ns(GRACE_NS);
    let count = COUNTS[core][intid as usize].load(SeqCst);
    check!(count == 0, "{what}: interrupt {intid} came {count} times");
}

fn check_psci(board: &Board) {
    let version = psci::version();
    check!(version.is_ok_and(|version| version.major >= 1), "PSCI version: {version:?}");
    let answer = hypercall::call(psci::PSCI_FEATURES, [psci::PSCI_CPU_ON_64.into(), 0, 0]);
    check!(answer == 0, "FEATURES of CPU_ON: {answer}");
    let answer = hypercall::call(psci::PSCI_FEATURES, [0x8400_00ff, 0, 0]) as i32;
    check!(answer == psci::error::NOT_SUPPORTED, "FEATURES of no function: {answer}");
    let here = board.cores()[cpu::index()];
    check!(
        psci::affinity_info(here) == Ok(psci::AffinityState::On),
        "AFFINITY_INFO of the boot core"
    );
    let answer = psci::affinity_info(0xff_00ff_ffff);
    check!(answer == Err(psci::Error::InvalidParameters), "AFFINITY_INFO of no core: {answer:?}");
    let answer = hypercall::call(psci::PSCI_CPU_ON_64, [0xff_00ff_ffff, board.ram.base, 0]) as i32;
    check!(answer == psci::error::INVALID_PARAMETERS, "CPU_ON of no core: {answer}");
    let answer = hypercall::call(psci::PSCI_CPU_ON_64, [here, board.ram.base, 0]) as i32;
    check!(answer == psci::error::ALREADY_ON, "CPU_ON of the boot core: {answer}");
}

fn check_pairs(core: usize, board: &'static Board) {
    for sender in 0..board.cores().len() {
        for receiver in 0..board.cores().len() {
            for sgi in 0..16 {
                if core == sender {
                    gic::send(sgi, SgiTarget::Core(receiver));
                }
                if core == receiver {
                    expect_one(core, sgi, "SGI between cores");
                    // On QEMU and weir core n of the device tree is CPU interface n.
                    let source = SOURCE[core].load(SeqCst);
                    check!(
                        matches!(board.gic, BoardGic::V3 { .. }) || source == sender as u32,
                        "SGI of core {sender} says that it is from {source}",
                    );
                }
                barrier(board);
            }
        }
    }
}

fn check_broadcast(core: usize, board: &'static Board) {
    for sender in 0..board.cores().len() {
        if core == sender {
            gic::send(BROADCAST_SGI, SgiTarget::Others);
            expect_none(core, BROADCAST_SGI, "SGI to all others, at the sender");
        } else {
            expect_one(core, BROADCAST_SGI, "SGI to all others");
        }
        barrier(board);
    }
}

fn check_ring(core: usize, board: &'static Board) {
    let hops = RING_ROUNDS * board.cores().len() as u32;
    if core == 0 {
        HOPS.store(hops, SeqCst);
        gic::send(RING_SGI, SgiTarget::Core(1 % board.cores().len()));
    }
    barrier(board);
    wait("ring", || HOPS.load(SeqCst) == 0);
}

fn check_priorities(core: usize, _: &'static Board) {
    gic::set_priority(LESS_URGENT_SGI, 0xb0);
    gic::set_priority(MORE_URGENT_SGI, 0x40);
    check!(gic::priority(LESS_URGENT_SGI) == 0xb0, "priority reads as another");
    for (first, second) in [(LESS_URGENT_SGI, MORE_URGENT_SGI), (MORE_URGENT_SGI, LESS_URGENT_SGI)]
    {
        cpu::mask_interrupts();
        gic::send(first, SgiTarget::Core(core));
        wait("first SGI pending", || gic::is_pending(first));
        gic::send(second, SgiTarget::Core(core));
        wait("second SGI pending", || gic::is_pending(second));
        cpu::unmask_interrupts();
        expect_one(core, first, "SGI that was pending");
        expect_one(core, second, "SGI that was pending");
        let order = ORDER[core].load(SeqCst) & 0xffff;
        let right = u64::from(MORE_URGENT_SGI << 8 | LESS_URGENT_SGI);
        check!(order == right, "order of priorities: {order:04x}");
    }
}

/// Uses the console's line, which the device never raises here.
fn check_spi(core: usize, board: &'static Board, edge: bool) {
    let spi = board.uart.intid;
    for receiver in 0..board.cores().len() {
        if core == receiver {
            gic::disable(spi);
            gic::set_edge(spi, edge);
            gic::route(spi, core);

            gic::set_pending(spi);
            check!(gic::is_pending(spi), "a pending SPI does not read so");
            expect_none(core, spi, "SPI pending but disabled");
            gic::enable(spi);
            expect_one(core, spi, "SPI enabled while pending");
            check!(WAS_ACTIVE.load(SeqCst), "an SPI is not active while it is handled");
            check!(!gic::is_pending(spi), "an SPI is pending after it was handled");
            check!(!gic::is_active(spi), "an SPI is active after it was handled");

            cpu::mask_interrupts();
            gic::set_pending(spi);
            gic::disable(spi);
            cpu::unmask_interrupts();
            expect_none(core, spi, "SPI disabled while pending");
            check!(gic::is_pending(spi), "an SPI is not pending any more after it was disabled");
            gic::clear_pending(spi);
            check!(!gic::is_pending(spi), "an SPI is pending after that was taken back");
            gic::enable(spi);
            expect_none(core, spi, "SPI with its pending state taken back");

            gic::set_active(spi);
            check!(gic::is_active(spi), "an active SPI does not read so");
            gic::set_pending(spi);
            expect_none(core, spi, "SPI that was made active");
            gic::clear_active(spi);
            expect_one(core, spi, "SPI that was made inactive");
            gic::disable(spi);
        }
        barrier(board);
    }
    if core == 0 {
        gic::set_edge(spi, false);
    }
}

/// One core after the other, as the registers are shared.
fn check_distributor(core: usize, board: &'static Board) {
    for turn in 0..board.cores().len() {
        if core == turn {
            let spi = board.uart.intid;
            let lines = (gic::distributor_type() & 0x1f) + 1;
            check!(lines * 32 > spi, "GICD_TYPER: {lines} times 32 interrupts");
            // GICD_PIDR2.ArchRev (IHI0069 12.9.24, IHI0048 4.3.18).
            let (pidr2, revision) = match board.gic {
                BoardGic::V2 { gicd, .. } => (gicd.base + 0xfe8, 2),
                BoardGic::V3 { gicd, .. } => (gicd.base + 0xffe8, 3),
            };
            // SAFETY: reads an identification register.
            let found = unsafe { mmio::read32(pidr2) } >> 4 & 0xf;
            check!(found == revision, "GICD_PIDR2: revision {found}");
            for priority in [0x40, 0xa0] {
                gic::set_priority(spi, priority);
                check!(gic::priority(spi) == priority, "a priority reads as another");
            }
            gic::enable(spi);
            check!(gic::is_enabled(spi), "an enabled SPI does not read so");
            gic::disable(spi);
            check!(!gic::is_enabled(spi), "a disabled SPI does not read so");
            check!(gic::is_enabled(0), "an enabled SGI does not read so");
        }
        barrier(board);
    }
}

fn check_registers(core: usize, board: &'static Board) {
    const TICKS_AT_LEAST: u32 = 20;
    let typer = board.gic.gicd() + 4;
    let ticks = &COUNTS[core][board.virtual_timer as usize];
    TICKS[core].store(true, SeqCst);
    time::arm(time::now());
    let start = time::now_ns();
    while ticks.load(SeqCst) < TICKS_AT_LEAST {
        let patient = time::now_ns() - start < PATIENCE_NS;
        check!(patient, "waited in vain: timer interrupts");
        // Reads of the distributor trap where it is emulated.
        let intact = registers::general_stay_intact(core, typer, 500);
        check!(intact, "general registers changed under interrupts");
        check!(registers::simd_is_intact(core), "SIMD registers changed under interrupts");
    }
    cpu::mask_interrupts();
    TICKS[core].store(false, SeqCst);
    time::disarm();
    ticks.store(0, SeqCst);
    cpu::unmask_interrupts();
}

/// Sleeps by CPU_SUSPEND (standby) until the timer wakes it: what is masked must wake it too, and
/// nothing may change.
fn check_suspend(core: usize, board: &'static Board) {
    let ticks = &COUNTS[core][board.virtual_timer as usize];
    for _ in 0..5 {
        cpu::mask_interrupts();
        TICKS[core].store(true, SeqCst);
        time::arm(time::now() + time::ns_to_ticks(TICK_NS, time::frequency()));
        let answer = psci::suspend_standby();
        check!(answer.is_ok(), "CPU_SUSPEND: {answer:?}");
        check!(registers::simd_is_intact(core), "SIMD registers changed over CPU_SUSPEND");
        check!(ticks.load(SeqCst) == 0, "an interrupt was taken while masked");
        cpu::unmask_interrupts();
        wait("the timer interrupt that ended CPU_SUSPEND", || ticks.load(SeqCst) > 0);
        cpu::mask_interrupts();
        TICKS[core].store(false, SeqCst);
        time::disarm();
        ticks.store(0, SeqCst);
        cpu::unmask_interrupts();
    }
}

fn check_on(core: usize, board: &'static Board) {
    for (other, &mpidr) in board.cores().iter().enumerate() {
        let state = psci::affinity_info(mpidr);
        check!(state == Ok(psci::AffinityState::On), "AFFINITY_INFO of core {other}: {state:?}");
        let answer = hypercall::call(psci::PSCI_CPU_ON_64, [mpidr, board.ram.base, 0]) as i32;
        check!(answer == psci::error::ALREADY_ON, "CPU_ON of core {other} by {core}: {answer}");
    }
}

/// Every secondary core has turned itself off: starts it again, three times.
fn check_restarts(board: &'static Board) {
    for round in 0..3 {
        for (core, &mpidr) in board.cores().iter().enumerate().skip(1) {
            wait("CPU_OFF", || psci::affinity_info(mpidr) == Ok(psci::AffinityState::Off));
            let before = RESTARTED.load(SeqCst);
            // SAFETY: the line above has seen the core off.
            let started = unsafe { psci::start_core(core, restarted) };
            check!(started.is_ok(), "CPU_ON of core {core}, round {round}: {started:?}");
            wait("a core that was started again", || RESTARTED.load(SeqCst) > before);
        }
    }
    for &mpidr in &board.cores()[1..] {
        wait("CPU_OFF", || psci::affinity_info(mpidr) == Ok(psci::AffinityState::Off));
    }
}

fn restarted(core: usize) {
    gic::enable(board().virtual_timer);
    cpu::unmask_interrupts();
    gic::send(0, SgiTarget::Core(core));
    expect_one(core, 0, "SGI to itself after a restart");
    RESTARTED.fetch_add(1, SeqCst);
}
