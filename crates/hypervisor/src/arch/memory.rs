//! EL2's own address space, and the VMs' stage 2.
//!
//! boot.s maps the image; the rest is mapped here, once, by the boot core: device registers, the packed system and
//! for each core two windows of 2 MiB. A core reaches a VM's memory only through its windows, and only
//! while it starts that VM: nothing of a VM's is mapped at EL2 while the VM runs.

use super::{dsb_ishst, isb, sysreg};
use crate::platform;
use core::{
    arch::asm,
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};
use weir_config::packed::MAX_CORES;
use weir_layout::table::{Attributes, Builder, MapError, PAGE, Table, stage1, stage2};

/// Virtual address of the image.
pub const HYP_BASE: u64 = 0x40_0000_0000;
/// Bytes of a core's stack.
pub const STACK_SIZE: u64 = 0x8000;
/// Bytes below it that are not mapped.
pub const STACK_GUARD: u64 = 0x1000;
/// Virtual address of the packed system.
const PACKED: u64 = HYP_BASE + 0x1000_0000;
/// Virtual address of device registers; a device is at its physical address modulo 1 GiB behind it.
const DEVICES: u64 = HYP_BASE + 0x4000_0000;
/// Virtual address of core 0's windows; each core has two.
const WINDOWS: u64 = HYP_BASE + 0x8000_0000;
/// Bytes of a window.
pub const WINDOW: u64 = 0x20_0000;

/// Memory attributes: 0 Device-nGnRnE, 1 Normal write-back.
pub const MAIR: u64 = 0xff00;
/// 39-bit addresses, 4 KiB granule, walks inner shareable and write-back, 40-bit physical addresses.
pub const TCR: u64 = 1 << 31 | 1 << 23 | 2 << 16 | 3 << 12 | 1 << 10 | 1 << 8 | (64 - 39);
/// MMU, caches, stack alignment check, write implies execute-never; the rest is RES1.
pub const SCTLR: u64 = 0x30c5_0830 | 1 | 1 << 2 | 1 << 3 | 1 << 12 | 1 << 19;
/// 39-bit IPAs from level 1, walks inner shareable and write-back, 40-bit physical addresses.
const VTCR: u64 = 1 << 31 | 2 << 16 | 3 << 12 | 1 << 10 | 1 << 8 | 1 << 6 | (64 - 39);

/// Tables that boot.s fills in.
const BOOT_TABLES: usize = 5;
const STAGE1_TABLES: usize = 32;
const STAGE2_TABLES: usize = 64;

/// Tables in the image: written by one core at a time, read by the table walker of every core.
#[repr(transparent)]
pub struct Tables<const N: usize>(UnsafeCell<[Table; N]>);

// SAFETY: all writers are named below: the boot core before it starts the others (`Stage1::begin`,
// `stage2_tables`), and each core its own windows' tables (`Window::take`).
unsafe impl<const N: usize> Sync for Tables<N> {}

/// Stage 1 of all cores; boot.s begins it.
pub static STAGE1: Tables<STAGE1_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE1_TABLES]));
static STAGE2: Tables<STAGE2_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE2_TABLES]));

/// Physical minus virtual address of the image.
static IMAGE_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Place of core 0's first window table in [`STAGE1`]; the others follow it.
static FIRST_WINDOW_TABLE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static __image_end: u8;
    fn secondary_start();
}

/// Where the firmware starts the other cores: in the trampoline, by its physical address.
#[must_use]
pub fn secondary_entry() -> u64 {
    physical(secondary_start as *const () as u64)
}

/// Bytes of the hypervisor; the packed system follows it.
#[must_use]
pub fn image_len() -> u64 {
    (&raw const __image_end) as u64 - HYP_BASE
}

/// Top of core `core`'s stack.
#[must_use]
pub fn stack_top(core: usize) -> u64 {
    let above = (MAX_CORES - 1).saturating_sub(core) as u64;
    (&raw const __image_end) as u64 - above * (STACK_SIZE + STACK_GUARD)
}

/// Physical address of something in the image.
#[must_use]
pub fn physical(address: u64) -> u64 {
    address.wrapping_add(IMAGE_OFFSET.load(Ordering::Relaxed))
}

/// Where the registers at physical address `pa` are mapped.
#[must_use]
pub const fn device(pa: u64) -> u64 {
    DEVICES + (pa & 0x3fff_ffff)
}

/// EL2's address space while the boot core fills it in.
pub struct Stage1 {
    builder: Builder<'static>,
}

impl Stage1 {
    /// Goes on where boot.s ended: maps the devices that EL2 drives, and tables for each core's windows.
    /// `image` is the physical address of the image.
    ///
    /// # Safety
    ///
    /// Called once, on the boot core, before it starts another.
    ///
    /// # Errors
    ///
    /// [`MapError`] when the board's devices don't fit the map above: a mistake in its platform file.
    pub unsafe fn begin(image: u64) -> Result<Self, MapError> {
        IMAGE_OFFSET.store(image.wrapping_sub(HYP_BASE), Ordering::Relaxed);
        // SAFETY: by this function's contract nobody else has a reference; the table walker only reads,
        // and sees entries that were invalid become valid.
        let tables = unsafe { &mut *STAGE1.0.get() };
        let base = physical(STAGE1.0.get() as u64);
        let mut builder = Builder::resume(tables, BOOT_TABLES, base);
        for &(pa, len) in platform::EL2_DEVICES {
            builder.map(device(pa), pa, len, stage1::DEVICE)?;
        }
        for window in 0..2 * MAX_CORES as u64 {
            let table = builder.last_level(WINDOWS + window * WINDOW)?;
            if window == 0 {
                FIRST_WINDOW_TABLE.store(table, Ordering::Relaxed);
            }
        }
        publish();
        Ok(Self { builder })
    }

    /// Maps RAM that EL2 only reads, and gives the bytes. `pa` need not be aligned; `slot` (0 to 2) chooses one of
    /// three places of 2 MiB.
    ///
    /// # Safety
    ///
    /// Nobody writes these bytes while the slice is in use, and they are RAM.
    ///
    /// # Errors
    ///
    /// [`MapError::OutOfRange`] when it is more than a place holds, or what the tables say.
    pub unsafe fn read_only(
        &mut self,
        slot: u64,
        pa: u64,
        len: u64,
    ) -> Result<&'static [u8], MapError> {
        let offset = pa % PAGE;
        let pages = offset.saturating_add(len).checked_next_multiple_of(PAGE);
        let pages = pages.filter(|&pages| pages <= WINDOW).ok_or(MapError::OutOfRange)?;
        let va = PACKED + slot * WINDOW;
        self.builder.map(va, pa - offset, pages, stage1::READ)?;
        publish();
        // SAFETY: just mapped, `len` bytes from `va + offset` on; the contract says that nobody writes them.
        Ok(unsafe { core::slice::from_raw_parts((va + offset) as *const u8, len as usize) })
    }

    /// Takes out what [`Stage1::read_only`] mapped in `slot`.
    ///
    /// # Safety
    ///
    /// Nobody uses those bytes any more.
    pub unsafe fn forget(&mut self, slot: u64) {
        self.builder.unmap_pages(PACKED + slot * WINDOW, WINDOW);
        forget_translations();
    }
}

/// Makes new table entries visible: the stores to the tables come before the walks for later accesses.
fn publish() {
    dsb_ishst();
    isb();
}

/// Makes this core forget what it knew of EL2's tables: the stores that invalidate entries come before the TLB's invalidation, and
/// that before whatever the core does next.
fn forget_translations() {
    // SAFETY: invalidating the TLB costs time only.
    unsafe { asm!("dsb nshst", "tlbi alle2", "dsb nsh", "isb", options(nostack)) }
}

/// The tables from which every VM's stage 2 is built.
///
/// # Safety
///
/// Called once, on the boot core, before it starts another.
#[must_use]
pub unsafe fn stage2_tables() -> (&'static mut [Table], u64) {
    // SAFETY: by the contract this is the only reference.
    let tables = unsafe { &mut *STAGE2.0.get() };
    (tables, physical(STAGE2.0.get() as u64))
}

/// A place of 2 MiB in EL2's address space through which one core reaches RAM for a while.
pub struct Window {
    table: &'static mut Table,
    va: u64,
}

impl Window {
    /// The two windows of core `core`.
    ///
    /// # Safety
    ///
    /// Called on that core, after [`Stage1::begin`], and never while an earlier pair is in use.
    #[must_use]
    pub unsafe fn take(core: usize) -> [Self; 2] {
        let first = FIRST_WINDOW_TABLE.load(Ordering::Relaxed) + 2 * core.min(MAX_CORES - 1);
        [0, 1].map(|which| {
            // SAFETY: `begin` made 2 * MAX_CORES consecutive tables from `FIRST_WINDOW_TABLE` on, so the place is in
            // bounds; each belongs to one window of one core, and the contract gives it to this caller.
            let table = unsafe { &mut (*STAGE1.0.get())[first + which] };
            Self { table, va: WINDOWS + (2 * core + which) as u64 * WINDOW }
        })
    }

    /// Maps `len` bytes (at most 2 MiB, less the offset in the page) at `pa`, lends them to `body`, unmaps them.
    fn lend<R>(
        &mut self,
        pa: u64,
        len: u64,
        attributes: Attributes,
        body: impl FnOnce(u64) -> R,
    ) -> R {
        let offset = pa % PAGE;
        let pages = (offset + len).div_ceil(PAGE) as usize;
        for (page, entry) in (0..).zip(self.table.0.iter_mut().take(pages)) {
            *entry = attributes.page(pa - offset + page * PAGE);
        }
        publish();
        let result = body(self.va + offset);
        for entry in self.table.0.iter_mut().take(pages) {
            *entry = 0;
        }
        // Only this core ever used these addresses, so the others' TLBs need nothing.
        forget_translations();
        result
    }

    /// Zeroes `len` bytes of RAM at `pa`, both page-aligned and at most 2 MiB, in memory as well as in the caches.
    pub fn zero(&mut self, pa: u64, len: u64) {
        let (block, line) = (zva_block(), cache_line());
        self.lend(pa, len, stage1::READ_WRITE, |va| {
            // The lines go back to memory at once, and out of the caches: EL2 and the last life of the VM were the writers, the reader is
            // the VM, whose caches are off when it starts.
            if block != line {
                for at in (va..va + len).step_by(block as usize) {
                    // SAFETY: `lend` mapped these bytes, Normal and writable, and pages are multiples of a block.
                    unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) }
                }
                return clean(va, len, line);
            }
            // SAFETY: `lend` mapped `len` bytes at `va`, Normal and writable; `len` is a multiple of the page, and that of four lines.
            unsafe {
                asm!(
                    "2: dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                    "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                    "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                    "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                    "cmp {at}, {end}", "b.lo 2b",
                    at = inout(reg) va => _, step = in(reg) line, end = in(reg) va + len,
                    options(nostack)
                );
            }
        });
    }

    /// Copies `len` bytes (less than 2 MiB, so that any offset in a page fits) of RAM from `from`, through
    /// `source`, to `to`, in memory as well as in the caches.
    pub fn copy(&mut self, to: u64, source: &mut Self, from: u64, len: u64) {
        let line = cache_line();
        self.lend(to, len, stage1::READ_WRITE, |to| {
            source.lend(from, len, stage1::READ, |from| {
                // SAFETY: `lend` mapped `len` bytes at both addresses; the windows are different addresses, and what
                // lies behind them is different memory: the image and a VM's RAM do not overlap (`packed`).
                unsafe {
                    core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize);
                }
            });
            clean(to, len, line);
        });
    }
}

/// Writes the lines that overlap `len` mapped bytes at `va` back to memory and drops them, for who reads them with its caches off.
fn clean(va: u64, len: u64, line: u64) {
    for at in (va & !(line - 1)..va + len).step_by(line as usize) {
        // SAFETY: maintenance by virtual address changes no contents.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) }
    }
}

/// Bytes that DC ZVA zeroes (DCZID_EL0.BS). It is never prohibited at EL2 (DZP concerns EL0 under EL1's control).
fn zva_block() -> u64 {
    let dczid: u64;
    // SAFETY: reading an ID register.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) }
    4 << (dczid & 0xf)
}

/// Bytes of the smallest data cache line (CTR_EL0.DminLine).
fn cache_line() -> u64 {
    let ctr: u64;
    // SAFETY: reading an ID register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) }
    4 << ((ctr >> 16) & 0xf)
}

/// Code that was written by EL2 is about to be executed by a VM on any core.
pub fn sync_instructions() {
    // Zeros and copies, on their way to memory since `Window`'s maintenance, before the invalidation; that before the VM starts.
    // SAFETY: invalidating instruction caches costs time only.
    unsafe { asm!("dsb sy", "ic ialluis", "dsb ish", "isb", options(nostack)) }
}

/// Makes this core translate for the VM with `vmid` by the tables at `root`, and forget what it knew of that VM.
pub fn enter_stage2(root: u64, vmid: u64) {
    sysreg::vtcr_el2::write(VTCR);
    sysreg::vttbr_el2::write(vmid << 48 | root);
    isb();
    // SAFETY: invalidating the TLB costs time only.
    unsafe { asm!("tlbi vmalls12e1", "dsb nsh", "isb", options(nostack)) }
}

/// Leaf attributes of a region of a VM, by its kind in the packed system.
#[must_use]
pub fn stage2_attributes(kind: u64) -> Attributes {
    if kind == weir_config::packed::RAM { stage2::RAM } else { stage2::DEVICE }
}
