//! The interrupt controller, GICv2 (IHI0048) or GICv3 (IHI0069) as found in the device tree, with
//! one interface. Interrupts are in Group 1 on GICv3 and left in the reset group on GICv2, and come
//! as IRQs.
//!
//! Registers with write-1-to-act bits are only ever written with the bits to act on. Priorities and
//! GICv2 targets are written as bytes.

use crate::board::{BoardGic, MAX_CORES};
use crate::{board, cpu, mmio};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

// Distributor offsets (IHI0069 12.8); the SGI frame of a redistributor has the same ones.
const GICD_CTLR: u64 = 0x000;
const GICD_TYPER: u64 = 0x004;
const IGROUPR: u64 = 0x080;
/// Offset of the set-enable registers.
pub const ISENABLER: u64 = 0x100;
/// Offset of the clear-enable registers.
pub const ICENABLER: u64 = 0x180;
/// Offset of the set-pending registers.
pub const ISPENDR: u64 = 0x200;
/// Offset of the clear-pending registers.
pub const ICPENDR: u64 = 0x280;
/// Offset of the set-active registers.
pub const ISACTIVER: u64 = 0x300;
/// Offset of the clear-active registers.
pub const ICACTIVER: u64 = 0x380;
/// Offset of the priority bytes.
pub const IPRIORITYR: u64 = 0x400;
/// Offset of the target bytes (GICv2).
pub const ITARGETSR: u64 = 0x800;
const ICFGR: u64 = 0xc00;
const GICD_SGIR: u64 = 0xf00;
/// Offset of the routing registers (GICv3), 8 bytes an SPI.
pub const IROUTER: u64 = 0x6000;

const GICR_TYPER: u64 = 0x008;
const GICR_WAKER: u64 = 0x014;
const GICR_FRAME: u64 = 0x1_0000;

const GICC_CTLR: u64 = 0x00;
const GICC_PMR: u64 = 0x04;
const GICC_IAR: u64 = 0x0c;
const GICC_EOIR: u64 = 0x10;

/// Numbers from here on are not interrupts (1023: nothing is pending).
const FIRST_SPECIAL: u32 = 1020;
/// The priority that [`init`] and [`start_core`](crate::psci::start_core) give to every interrupt.
pub const DEFAULT_PRIORITY: u8 = 0xa0;

/// Where an SGI goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SgiTarget {
    /// The core with this index in [`crate::Board::cores`], the sender included.
    Core(usize),
    /// All cores except the sender.
    Others,
}

/// An interrupt that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub intid: u32,
    /// The core that sent it: for an SGI on GICv2 only.
    pub source: Option<u32>,
}

/// Handles one interrupt between its acknowledgement and its end. Runs with interrupts masked.
pub type Handler = fn(Interrupt);

static HANDLER: AtomicUsize = AtomicUsize::new(0);
/// Each core's redistributor (GICv3), or CPU interface number as a bit mask (GICv2).
static LOCAL: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];

/// Turns on the distributor and this core's interface, all interrupts disabled, at
/// [`DEFAULT_PRIORITY`] and routed to the core that calls. `handler` gets the interrupts of all
/// cores.
pub fn init(handler: Handler) {
    HANDLER.store(handler as usize, Ordering::Release);
    let gicd = board().gic.gicd();
    let lines = (read(gicd + GICD_TYPER) & 0x1f) + 1;
    match board().gic {
        // EnableGrp0 of a GIC without security, or EnableGrp1 in the non-secure view: bit 0 both.
        BoardGic::V2 { .. } => write(gicd + GICD_CTLR, 1),
        // ARE and EnableGrp1, in the view without security or the non-secure one.
        BoardGic::V3 { .. } => {
            write(gicd + GICD_CTLR, 1 << 4);
            wait_for_writes(gicd);
            write(gicd + GICD_CTLR, 1 << 4 | 1 << 1);
        }
    }
    wait_for_writes(gicd);
    for word in 1..u64::from(lines) {
        write(gicd + ICENABLER + word * 4, !0);
        if matches!(board().gic, BoardGic::V3 { .. }) {
            write(gicd + IGROUPR + word * 4, !0);
        }
    }
    for intid in 32..(lines * 32).min(FIRST_SPECIAL) {
        set_priority(intid, DEFAULT_PRIORITY);
    }
    init_core();
    for intid in 32..(lines * 32).min(FIRST_SPECIAL) {
        route(intid, cpu::index());
    }
}

/// Turns on this core's interface: redistributor awake, its interrupts disabled, no priority
/// masked.
pub(crate) fn init_core() {
    let core = cpu::index();
    match board().gic {
        BoardGic::V2 { gicd, gicc } => {
            // The banked target registers of SGIs read as this core's own bit, and as zero where
            // there is one core (IHI0048, 4.3.12).
            let own = read(gicd.base + ITARGETSR) & 0xff;
            LOCAL[core].store(own.max(1).into(), Ordering::Release);
            write(gicc.base + GICC_PMR, 0xff);
            write(gicc.base + GICC_CTLR, 1);
        }
        BoardGic::V3 { gicr, .. } => {
            let frame = find_redistributor(gicr.base, gicr.end());
            LOCAL[core].store(frame, Ordering::Release);
            // ProcessorSleep off, then until ChildrenAsleep is off.
            write(frame + GICR_WAKER, read(frame + GICR_WAKER) & !2);
            while read(frame + GICR_WAKER) & 4 != 0 {
                cpu::relax();
            }
            write(frame + GICR_FRAME + IGROUPR, !0);
            // SAFETY: turns this core's system register interface on, priorities unmasked, Group 1
            // enabled, EOI drops priority and deactivates.
            unsafe {
                asm!(
                    "mrs {tmp}, S3_0_C12_C12_5",   // ICC_SRE_EL1
                    "orr {tmp}, {tmp}, #1",
                    "msr S3_0_C12_C12_5, {tmp}",
                    "isb",
                    "mov {tmp}, #0xff",
                    "msr S3_0_C4_C6_0, {tmp}",     // ICC_PMR_EL1
                    "msr S3_0_C12_C12_4, xzr",     // ICC_CTLR_EL1
                    "mov {tmp}, #1",
                    "msr S3_0_C12_C12_7, {tmp}",   // ICC_IGRPEN1_EL1
                    "isb",
                    tmp = out(reg) _,
                    options(nostack),
                );
            }
        }
    }
    for intid in 0..32 {
        set_priority(intid, DEFAULT_PRIORITY);
    }
    // SGIs stay enabled, PPIs are the guest's choice.
    write(register(0, ICENABLER), 0xffff_0000);
    write(register(0, ISENABLER), 0x0000_ffff);
}

/// The redistributor with this core's affinity in GICR_TYPER.
fn find_redistributor(base: u64, end: u64) -> u64 {
    const LAST: u64 = 1 << 4;
    const VLPIS: u64 = 1 << 1;
    let mpidr = cpu::mpidr();
    let affinity = mpidr >> 32 & 0xff << 24 | mpidr & 0xff_ffff;
    let mut frame = base;
    while frame < end {
        // Two halves: not every emulation answers 64-bit accesses.
        let typer = u64::from(read(frame + GICR_TYPER));
        if u64::from(read(frame + GICR_TYPER + 4)) == affinity {
            return frame;
        }
        if typer & LAST != 0 {
            break;
        }
        frame += if typer & VLPIS == 0 { 2 * GICR_FRAME } else { 4 * GICR_FRAME };
    }
    panic!("no redistributor for MPIDR {mpidr:x}");
}

/// The word with `intid`'s bit in the bank of one-bit registers at `bank`, for this core.
#[inline]
#[must_use]
pub fn register(intid: u32, bank: u64) -> u64 {
    frame(intid) + bank + u64::from(intid / 32) * 4
}

/// Where the registers of `intid` are: this core's redistributor for a private interrupt on GICv3,
/// else the distributor (banked for GICv2).
#[inline]
#[must_use]
pub fn frame(intid: u32) -> u64 {
    match board().gic {
        BoardGic::V3 { .. } if intid < 32 => {
            LOCAL[cpu::index()].load(Ordering::Relaxed) + GICR_FRAME
        }
        gic => gic.gicd(),
    }
}

fn act(intid: u32, bank: u64) {
    write(register(intid, bank), 1 << (intid % 32));
}

fn state(intid: u32, bank: u64) -> bool {
    read(register(intid, bank)) >> (intid % 32) & 1 != 0
}

/// Enables an interrupt. Private ones are those of the calling core, here and below.
pub fn enable(intid: u32) {
    act(intid, ISENABLER);
}

/// Disables an interrupt; when this returns, it is not signaled any more.
pub fn disable(intid: u32) {
    act(intid, ICENABLER);
    wait_for_writes(board().gic.gicd());
}

/// Whether an interrupt is enabled.
#[must_use]
pub fn is_enabled(intid: u32) -> bool {
    state(intid, ISENABLER)
}

/// Makes an interrupt pending. For an SGI use [`send`].
pub fn set_pending(intid: u32) {
    act(intid, ISPENDR);
}

/// Takes a software-made pending state back.
pub fn clear_pending(intid: u32) {
    act(intid, ICPENDR);
}

/// Whether an interrupt is pending.
#[must_use]
pub fn is_pending(intid: u32) -> bool {
    state(intid, ISPENDR)
}

/// Makes an interrupt active.
pub fn set_active(intid: u32) {
    act(intid, ISACTIVER);
}

/// Makes an interrupt inactive.
pub fn clear_active(intid: u32) {
    act(intid, ICACTIVER);
}

/// Whether an interrupt is active.
#[must_use]
pub fn is_active(intid: u32) -> bool {
    state(intid, ISACTIVER)
}

/// Sets a priority; less is more urgent.
pub fn set_priority(intid: u32, priority: u8) {
    // SAFETY: a priority byte of the interrupt controller.
    unsafe { mmio::write8(frame(intid) + IPRIORITYR + u64::from(intid), priority) };
}

/// Reads a priority back; unimplemented low bits are zero.
#[must_use]
pub fn priority(intid: u32) -> u8 {
    // SAFETY: a priority byte of the interrupt controller.
    unsafe { mmio::read8(frame(intid) + IPRIORITYR + u64::from(intid)) }
}

/// Makes an SPI edge-triggered or level-sensitive. It must be disabled.
pub fn set_edge(intid: u32, edge: bool) {
    let address = frame(intid) + ICFGR + u64::from(intid / 16) * 4;
    let bit = 2 << (intid % 16 * 2);
    let others = read(address) & !bit;
    write(address, others | if edge { bit } else { 0 });
}

/// Routes an SPI to a core with its interface on.
pub fn route(intid: u32, core: usize) {
    match board().gic {
        BoardGic::V2 { gicd, .. } => {
            let mask = LOCAL[core].load(Ordering::Acquire) as u8;
            // SAFETY: a target byte of the distributor.
            unsafe { mmio::write8(gicd.base + ITARGETSR + u64::from(intid), mask) };
        }
        BoardGic::V3 { gicd, .. } => {
            let address = gicd.base + IROUTER + u64::from(intid) * 8;
            // SAFETY: a routing register of the distributor.
            unsafe { mmio::write64(address, board().cores()[core]) };
        }
    }
}

/// Sends an SGI; earlier writes are visible to the receiver.
#[inline]
pub fn send(sgi: u32, target: SgiTarget) {
    // SAFETY: orders the stores before the interrupt.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    match board().gic {
        BoardGic::V2 { gicd, .. } => {
            let targets = match target {
                SgiTarget::Core(core) => (LOCAL[core].load(Ordering::Acquire) as u32 & 0xff) << 16,
                SgiTarget::Others => 1 << 24,
            };
            write(gicd.base + GICD_SGIR, targets | sgi);
        }
        BoardGic::V3 { .. } => send_raw(sgi1r(sgi, target)),
    }
}

/// The value of ICC_SGI1R_EL1 (IHI0069 12.2.22).
#[must_use]
pub fn sgi1r(sgi: u32, target: SgiTarget) -> u64 {
    let targets = match target {
        SgiTarget::Core(core) => {
            let affinity = board().cores()[core];
            let (aff0, aff1) = (affinity & 0xff, affinity >> 8 & 0xff);
            let (aff2, aff3) = (affinity >> 16 & 0xff, affinity >> 32 & 0xff);
            let range = aff0 / 16;
            aff3 << 48 | range << 44 | aff2 << 32 | aff1 << 16 | 1 << (aff0 % 16)
        }
        SgiTarget::Others => 1 << 40,
    };
    targets | u64::from(sgi) << 24
}

/// Writes ICC_SGI1R_EL1 (GICv3).
#[inline(always)]
pub fn send_raw(sgi1r: u64) {
    // SAFETY: sends an SGI; no memory of this core is touched.
    unsafe { asm!("msr S3_0_C12_C11_5, {}", "isb", in(reg) sgi1r, options(nostack)) };
}

/// Acknowledges the most urgent pending interrupt; `None` if there is none.
#[inline]
#[must_use]
pub fn acknowledge() -> Option<(Interrupt, u32)> {
    let iar: u32 = match board().gic {
        BoardGic::V2 { gicc, .. } => read(gicc.base + GICC_IAR),
        BoardGic::V3 { .. } => {
            let iar: u64;
            // SAFETY: ICC_IAR1_EL1; makes the interrupt active. The barrier lets the priority
            // take effect before what follows (IHI0069 4.1.1).
            unsafe { asm!("mrs {}, S3_0_C12_C12_0", "dsb sy", out(reg) iar, options(nostack)) };
            iar as u32
        }
    };
    let (intid, source) = match board().gic {
        BoardGic::V2 { .. } => {
            let intid = iar & 0x3ff;
            (intid, (intid < 16).then_some(iar >> 10 & 7))
        }
        BoardGic::V3 { .. } => (iar & 0xff_ffff, None),
    };
    (intid < FIRST_SPECIAL).then_some((Interrupt { intid, source }, iar))
}

/// Ends the interrupt that [`acknowledge`] returned with `iar`: drops the priority and deactivates.
#[inline(always)]
pub fn end(iar: u32) {
    match board().gic {
        BoardGic::V2 { gicc, .. } => write(gicc.base + GICC_EOIR, iar),
        // SAFETY: ICC_EOIR1_EL1; ends what this core acknowledged.
        BoardGic::V3 { .. } => unsafe {
            asm!("msr S3_0_C12_C12_1, {}", "isb", in(reg) u64::from(iar), options(nostack));
        },
    }
}

/// Takes one interrupt, if any is pending, through the guest's handler. The vectors call it; so can
/// a guest that has interrupts masked, which saves it the exception.
#[inline]
pub fn dispatch() {
    let Some((interrupt, iar)) = acknowledge() else {
        return;
    };
    let handler = HANDLER.load(Ordering::Acquire);
    if handler != 0 {
        // SAFETY: only `init` writes `HANDLER`, with a `Handler`.
        let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };
        handler(interrupt);
    }
    end(iar);
}

/// Reads GICD_TYPER.
#[inline(always)]
#[must_use]
pub fn distributor_type() -> u32 {
    read(board().gic.gicd() + GICD_TYPER)
}

/// Reads the low half of this core's GICR_TYPER (GICv3).
#[inline(always)]
#[must_use]
pub fn redistributor_type() -> u32 {
    read(frame(0) - GICR_FRAME + GICR_TYPER)
}

/// Waits until the distributor has taken earlier writes into effect (GICD_CTLR.RWP; reserved and
/// zero on GICv2).
fn wait_for_writes(gicd: u64) {
    while read(gicd + GICD_CTLR) >> 31 != 0 {
        cpu::relax();
    }
}

fn read(address: u64) -> u32 {
    // SAFETY: this module passes addresses of the interrupt controller only; reads have no side
    // effects except acknowledging, which is wanted where it is done.
    unsafe { mmio::read32(address) }
}

fn write(address: u64, value: u32) {
    // SAFETY: this module passes addresses of the interrupt controller only, which does not write
    // to memory.
    unsafe { mmio::write32(address, value) };
}
