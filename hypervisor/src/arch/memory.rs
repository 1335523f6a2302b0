//! EL2's own address space, and the switch of a core to a VM's stage 2, which `vm::stage2` builds.
//!
//! boot.s maps the image where the loader put it; the rest is mapped here, once, by the boot core:
//! device registers, the packed system and for each core two windows of 1 MiB. Where memory is
//! divided into page classes, the boot core then moves image and packed system into the
//! hypervisor's page classes ([`Stage1::move_in`]) and goes on there. A core reaches a VM's memory
//! only through its windows, and only while it starts that VM: nothing of a VM's is mapped at EL2
//! while the VM runs, but for what EL2 itself keeps of it (`vm::Vm`), in the VM's page classes.

use super::{
    dsb_ish, dsb_ishst, dsb_nsh, dsb_nshst, dsb_sy, ic_all, isb,
    machine::{clean, image, translate, zero},
    sysreg, tlbi_el2, tlbi_vm,
};
use crate::board;
use core::{
    cell::UnsafeCell,
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};
use weir_abi::{EXCHANGE_LEN, MAX_CORES};
use weir_paging::{
    PAGE,
    table::{Attributes, Builder, MapError, Table, stage1},
};
use weir_units::{CoreId, Pa, VmId};

mod divided;
mod shown;

pub use shown::show;

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
/// Bytes of a place that [`Stage1::read_only`] has at [`PACKED`].
const PLACE: u64 = 0x20_0000;
/// Virtual address of the exchange with the broker, three places behind [`PACKED`].
const EXCHANGE: u64 = PACKED + 3 * PLACE;
/// Bytes of a window: one table has both of a core.
pub const WINDOW: u64 = 0x10_0000;
/// Entries of a window.
const WINDOW_PAGES: usize = (WINDOW / PAGE) as usize;

const _: () = assert!(EXCHANGE_LEN <= PLACE);

/// Windows of all cores.
const ALL_WINDOWS: usize = 2 * MAX_CORES;

/// Memory attributes: 0 Device-nGnRnE, 1 Normal write-back.
pub const MAIR: u64 = 0xff00;
/// 39-bit addresses, 4 KiB granule, walks inner shareable and write-back, 40-bit physical
/// addresses.
pub const TCR: u64 = 1 << 31 | 1 << 23 | 2 << 16 | 3 << 12 | 1 << 10 | 1 << 8 | (64 - 39);
/// MMU, caches, stack alignment check, write implies execute-never; the rest is RES1.
pub const SCTLR: u64 = 0x30c5_0830 | 1 | 1 << 2 | 1 << 3 | 1 << 12 | 1 << 19;
/// VTCR_EL2 for stage 2: 39-bit IPAs from level 1, walks inner shareable and write-back, 40-bit
/// physical addresses.
const VTCR: u64 = 1 << 31 | 2 << 16 | 3 << 12 | 1 << 10 | 1 << 8 | 1 << 6 | (64 - 39);

/// Tables that boot.s fills in.
pub const BOOT_TABLES: usize = 5;
const STAGE1_TABLES: usize = 24;
const STAGE2_TABLES: usize = 64;

/// Tables in the image: written by one core at a time, read by the table walker of every core.
#[repr(transparent)]
pub struct Tables<const N: usize>(UnsafeCell<[Table; N]>);

// SAFETY: all writers are named below: the boot core before it starts the others (`Stage1::begin`,
// `stage2_tables`), each core its own windows' tables (`Window::take`), and the code that hands
// devices over the entries of their pages (`show`).
unsafe impl<const N: usize> Sync for Tables<N> {}

/// Stage 1 of all cores; boot.s begins it.
pub static STAGE1: Tables<STAGE1_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE1_TABLES]));
/// Stage 2 of all VMs of a system that is not divided: any contents until a VM's are built.
// SAFETY: words of any value are a valid table.
#[cfg_attr(target_os = "none", unsafe(link_section = ".noinit"))]
static STAGE2: Tables<STAGE2_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE2_TABLES]));

/// Physical minus virtual address of the trampoline, and until the hypervisor moves of what is in
/// the image file.
static IMAGE_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Physical minus virtual address of .bss and the stacks, until the hypervisor moves.
static BSS_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Place of the table of core 0's windows in [`STAGE1`]; those of the other cores follow it.
static FIRST_WINDOW_TABLE: AtomicUsize = AtomicUsize::new(0);

/// Where the firmware starts the other cores: in the trampoline, by its physical address.
#[must_use]
pub fn secondary_entry() -> Pa {
    Pa(in_image(image::secondary_start()))
}

/// Where the packed system can lie in the image at physical address `image`: behind what the file
/// has of the hypervisor, and below .bss. [`Stage1::begin`] comes first.
#[must_use]
pub fn behind_hypervisor(Pa(image): Pa) -> Range<u64> {
    let file_end = image::file_end();
    image + (file_end - HYP_BASE)..in_bss(file_end)
}

/// Top of core `core`'s stack.
#[must_use]
pub fn stack_top(core: CoreId) -> u64 {
    let above = (MAX_CORES - 1).saturating_sub(core.index()) as u64;
    image::end() - above * (STACK_SIZE + STACK_GUARD)
}

/// Physical address of something in the trampoline; until the hypervisor moves, of anything that
/// is in the image file.
fn in_image(address: u64) -> u64 {
    address.wrapping_add(IMAGE_OFFSET.load(Ordering::Relaxed))
}

/// Physical address of something in .bss or the stacks, until the hypervisor moves.
fn in_bss(address: u64) -> u64 {
    address.wrapping_add(BSS_OFFSET.load(Ordering::Relaxed))
}

/// Physical address of something that EL2 has mapped, up to the end of its page. Overwrites
/// PAR_EL1, so it is for moments when no guest's registers are on this core.
#[must_use]
pub fn physical(address: u64) -> Pa {
    Pa(translate(address) & 0x0000_ffff_ffff_f000 | address & (PAGE - 1))
}

/// Where the registers at physical address `pa` are mapped.
#[must_use]
pub const fn device(pa: Pa) -> u64 {
    DEVICES + (pa.0 & 0x3fff_ffff)
}

/// EL2's address space while the boot core fills it in.
pub struct Stage1 {
    builder: Builder<'static>,
}

/// Maps the devices that EL2 drives, and makes a table for each core's windows; gives the place of
/// the first.
fn furnish(builder: &mut Builder<'_>) -> Result<usize, MapError> {
    let devices = board::EL2_DEVICES.iter().chain(board::START_DEVICES);
    for &(pa, len) in devices.chain(board::PCI_DEVICES).chain(board::ENGINE_DEVICES) {
        builder.map(device(Pa(pa)), pa, len, stage1::DEVICE)?;
    }
    let first = builder.last_level(WINDOWS)?;
    for core in 1..MAX_CORES as u64 {
        builder.last_level(WINDOWS + core * 2 * WINDOW)?;
    }
    Ok(first)
}

impl Stage1 {
    /// Goes on where boot.s ended. `image` is the physical address of the image.
    ///
    /// # Safety
    ///
    /// Called once, on the boot core, before it starts another.
    ///
    /// # Errors
    ///
    /// [`MapError`] when the board's devices don't fit the map above: a mistake in its platform
    /// file.
    pub unsafe fn begin(image: Pa) -> Result<Self, MapError> {
        IMAGE_OFFSET.store(image.0.wrapping_sub(HYP_BASE), Ordering::Relaxed);
        let tables = STAGE1.0.get() as u64;
        BSS_OFFSET.store(physical(tables).0.wrapping_sub(tables), Ordering::Relaxed);
        // SAFETY: by this function's contract there is no other reference; the table walker only
        // reads, and sees entries that were invalid become valid.
        let tables = unsafe { &mut *STAGE1.0.get() };
        let base = in_bss(STAGE1.0.get() as u64);
        let mut builder = Builder::resume(tables, BOOT_TABLES, base);
        FIRST_WINDOW_TABLE.store(furnish(&mut builder)?, Ordering::Relaxed);
        publish();
        Ok(Self { builder })
    }

    /// Maps RAM that EL2 only reads, and gives the bytes. `pa` need not be aligned; `slot` (0 to 2)
    /// chooses one of three places of 2 MiB.
    ///
    /// # Safety
    ///
    /// Nothing writes these bytes while the slice is in use, and they are RAM.
    ///
    /// # Errors
    ///
    /// [`MapError::OutOfRange`] when it is more than a place holds, or what the tables say.
    pub unsafe fn read_only(
        &mut self,
        slot: u64,
        Pa(pa): Pa,
        len: u64,
    ) -> Result<&'static [u8], MapError> {
        let offset = pa % PAGE;
        let pages = offset.saturating_add(len).checked_next_multiple_of(PAGE);
        let pages = pages.filter(|&pages| pages <= PLACE).ok_or(MapError::OutOfRange)?;
        let va = PACKED + slot * PLACE;
        self.builder.map(va, pa - offset, pages, stage1::READ)?;
        publish();
        // SAFETY: just mapped, `len` bytes from `va + offset` on; by the contract nothing
        // writes them.
        Ok(unsafe { core::slice::from_raw_parts((va + offset) as *const u8, len as usize) })
    }

    /// Maps the exchange with the broker for good: [`exchange`] takes it from there.
    /// [`Stage1::move_in`] does so where memory is divided.
    ///
    /// # Errors
    ///
    /// What the tables say.
    pub fn map_exchange(&mut self, pa: Pa) -> Result<(), MapError> {
        self.builder.map(EXCHANGE, pa.0, EXCHANGE_LEN, stage1::READ_WRITE)?;
        publish();
        Ok(())
    }

    /// Takes out what [`Stage1::read_only`] mapped in `slot`, but for the pages of its first `keep`
    /// bytes.
    ///
    /// # Safety
    ///
    /// Nothing uses those bytes any more.
    pub unsafe fn forget(&mut self, slot: u64, keep: u64) {
        let keep = keep.next_multiple_of(PAGE).min(PLACE);
        self.builder.unmap_pages(PACKED + slot * PLACE + keep, PLACE - keep);
        forget_translations();
    }
}

/// Zeroes the exchange, which [`Stage1::map_exchange`] or [`Stage1::move_in`] mapped, and returns
/// its address.
///
/// # Safety
///
/// One of them mapped the exchange, for a system with a broker. The exchange is not in use yet, and
/// all later accesses are atomic. Called once.
#[must_use]
pub unsafe fn exchange() -> u64 {
    // SAFETY: mapped, writable, and by the contract no other owner's yet.
    unsafe { (EXCHANGE as *mut u8).write_bytes(0, EXCHANGE_LEN as usize) }
    // The broker may read before its caches are on.
    clean(EXCHANGE, EXCHANGE_LEN, cache_line());
    EXCHANGE
}

/// Makes new table entries visible: the stores to the tables come before the walks for later
/// accesses.
fn publish() {
    dsb_ishst();
    isb();
}

/// Makes this core forget what it knew of EL2's tables: the stores that invalidate entries come
/// before the TLB's invalidation, and that before anything that the core does next.
fn forget_translations() {
    dsb_nshst();
    tlbi_el2();
    dsb_nsh();
    isb();
}

/// Physical address of the tables of stage 1, until the hypervisor moves.
#[must_use]
pub fn stage1_base() -> u64 {
    in_bss(STAGE1.0.get() as u64)
}

/// The tables of stage 1, and the number of the first one's page in the hypervisor's pages.
///
/// # Safety
///
/// Called on the boot core, before it starts another; nothing uses a window while the reference
/// lives.
#[must_use]
pub unsafe fn stage1_tables() -> (&'static [Table], u64) {
    // SAFETY: by the contract nothing writes to the tables now.
    let tables = unsafe { &*STAGE1.0.get() };
    (tables, (STAGE1.0.get() as u64 - HYP_BASE) / PAGE)
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
    (tables, in_bss(STAGE2.0.get() as u64))
}

/// A place in EL2's address space through which one core reaches RAM for a while: 1 MiB, or all of
/// these at once.
pub struct Window {
    entries: &'static mut [u64],
    va: u64,
}

impl Window {
    /// The two windows of core `core`.
    ///
    /// # Safety
    ///
    /// Called on that core, after [`Stage1::begin`], and never while an earlier pair is in use.
    #[must_use]
    pub unsafe fn take(core: CoreId) -> [Self; 2] {
        let core = core.index().min(MAX_CORES - 1);
        // SAFETY: each pair belongs to one core, and the contract gives it to this caller.
        [0, 1].map(|which| unsafe { Self::from(2 * core + which, 1) })
    }

    /// `count` windows from number `first` on.
    ///
    /// # Safety
    ///
    /// They are of those that [`furnish`] made tables for, and no other owner's now.
    unsafe fn from(first: usize, count: usize) -> Self {
        let place = FIRST_WINDOW_TABLE.load(Ordering::Relaxed) * 512 + first * WINDOW_PAGES;
        // SAFETY: `furnish` made the consecutive tables of `ALL_WINDOWS` windows from
        // `FIRST_WINDOW_TABLE` on, so the entries are in bounds; the contract gives them to this
        // caller.
        let entries = unsafe {
            let entry = STAGE1.0.get().cast::<u64>().add(place);
            core::slice::from_raw_parts_mut(entry, count * WINDOW_PAGES)
        };
        Self { entries, va: WINDOWS + first as u64 * WINDOW }
    }

    /// Maps the next of `pages`, as many as there are and fit, lends them to `body` with their
    /// address and their bytes, unmaps them.
    pub fn lend<R>(
        &mut self,
        pages: &mut dyn Iterator<Item = u64>,
        attributes: Attributes,
        body: impl FnOnce(u64, u64) -> R,
    ) -> R {
        let mapped = self
            .entries
            .iter_mut()
            .zip(pages)
            .map(|(entry, page)| *entry = attributes.page(page))
            .count();
        publish();
        let result = body(self.va, mapped as u64 * PAGE);
        self.entries.iter_mut().take(mapped).for_each(|entry| *entry = 0);
        // Only this core ever used these addresses, so the others' TLBs need nothing.
        forget_translations();
        result
    }

    /// Zeroes the next of `pages`, as many as fit, in memory as well as in the caches, until
    /// `pause` says after a chunk that something else is due; returns the number of bytes.
    /// `plainly` is with stores that QEMU's plug-ins see, which DC ZVA is not.
    pub fn zero(
        &mut self,
        pages: &mut dyn Iterator<Item = u64>,
        plainly: bool,
        pause: &mut dyn FnMut() -> bool,
    ) -> u64 {
        let (block, line) = (zva_block().filter(|_| !plainly), cache_line());
        let most = if block.is_some() { ZERO_CHUNK } else { STORE_CHUNK };
        self.lend(pages, stage1::READ_WRITE, |va, len| {
            // The lines go back to memory at once, and out of the caches: EL2 and the last boot of
            // the VM were the writers, the reader is the VM, with its caches off when it starts.
            in_chunks(len, most, pause, |done, len| {
                let va = va + done;
                if let Some(block) = block {
                    // SAFETY: `lend` mapped these bytes, Normal and writable; chunks are whole
                    // pages.
                    unsafe { zero(va, len, block, line) }
                } else {
                    // SAFETY: `lend` mapped these bytes, Normal and writable.
                    unsafe { (va as *mut u8).write_bytes(0, len as usize) }
                    clean(va, len, line);
                }
            })
        })
    }

    /// Copies `len` bytes, less than 1 MiB so that any offset in a page fits, of RAM: from a byte
    /// of some pages, through `source`, to a byte of others, in memory as well as in the caches,
    /// until `pause` says after a chunk that something else is due; returns the number of bytes.
    /// What the pages don't hold is left out, but counted.
    pub fn copy(
        &mut self,
        Bytes { pages: to, first: to_first }: Bytes<'_>,
        source: &mut Self,
        Bytes { pages: from, first: from_first }: Bytes<'_>,
        len: u64,
        pause: &mut dyn FnMut() -> bool,
    ) -> u64 {
        let line = cache_line();
        let pages = |first: u64| (first + len).div_ceil(PAGE) as usize;
        self.lend(&mut to.take(pages(to_first)), stage1::READ_WRITE, |to_va, to_len| {
            source.lend(&mut from.take(pages(from_first)), stage1::READ, |from_va, from_len| {
                let held = to_len.saturating_sub(to_first).min(from_len.saturating_sub(from_first));
                in_chunks(len, COPY_CHUNK, pause, |done, len| {
                    let len = len.min(held.saturating_sub(done));
                    let (from, to) = (from_va + from_first + done, to_va + to_first + done);
                    // SAFETY: `lend` mapped these bytes at both addresses; the windows are
                    // different addresses, and what lies behind them is different memory: the
                    // image, a VM's pristine copy and its RAM do not overlap (`packed`).
                    unsafe { copy_bytes(from, to, len) }
                    clean(to, len, line);
                })
            })
        })
    }
}

/// Bytes that are zeroed by DC ZVA, zeroed by stores or copied between two moments at which
/// interrupts are taken: 500 to 900 instructions. What is zeroed are whole pages.
const ZERO_CHUNK: u64 = 2 * PAGE;
const STORE_CHUNK: u64 = PAGE;
const COPY_CHUNK: u64 = PAGE / 8;

/// Calls `body` with the start and the length of each chunk of `len` bytes, of at most `most`,
/// until `pause` says after one that something else is due; returns the number of bytes.
pub fn in_chunks(
    len: u64,
    most: u64,
    pause: &mut dyn FnMut() -> bool,
    mut body: impl FnMut(u64, u64),
) -> u64 {
    let mut done = 0;
    while done < len {
        let chunk = (len - done).min(most);
        body(done, chunk);
        done += chunk;
        if done < len && pause() {
            break;
        }
    }
    done
}

/// Bytes of RAM.
pub struct Bytes<'a> {
    /// The pages that they lie in.
    pub pages: &'a mut dyn Iterator<Item = u64>,
    /// The first one's offset in the first page.
    pub first: u64,
}

/// Copies `len` bytes from address `from` to address `to`.
///
/// # Safety
///
/// Both are mapped, the target for writing, and nothing else uses the target.
unsafe fn copy_bytes(from: u64, to: u64, len: u64) {
    // SAFETY: by the contract; two places that overlap would both be the target.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) }
}

/// Bytes that DC ZVA zeroes (DCZID_EL0.BS, at most 2 KiB); `None` where it is prohibited (DZP).
fn zva_block() -> Option<u64> {
    const DZP: u64 = 1 << 4;
    let dczid = sysreg::dczid_el0::read();
    (dczid & DZP == 0).then_some(4 << (dczid & 0xf))
}

/// Bytes of the smallest data cache line (CTR_EL0.DminLine).
pub(super) fn cache_line() -> u64 {
    4 << (sysreg::ctr_el0::read() >> 16 & 0xf)
}

/// Code that was written by EL2 is about to be executed by a VM on any core.
pub fn sync_instructions() {
    // Zeros and copies, on their way to memory since `Window`'s maintenance, before the
    // invalidation; that before the VM starts.
    dsb_sy();
    ic_all();
    dsb_ish();
    isb();
}

/// VTTBR_EL2 of VM `vm`, with its tables from `root` on. VMID 0 is no VM's.
fn vttbr(root: Pa, vm: VmId) -> u64 {
    (u64::from(vm.0) + 1) << 48 | root.0
}

/// What turns a guest's stage 1 on and off.
///
/// A core may translate for the guest speculatively while its registers are in part another's, and
/// keep the result under a VMID of either (Cortex-A53 erratum 1530924, Cortex-A72 1319367: AT). So
/// no table is walked while they change: first walks are disabled, then the MMU is on, since with
/// the MMU off addresses are translated without a walk.
#[derive(Clone, Copy, Debug)]
pub struct Stage1Control {
    /// SCTLR_EL1.
    pub sctlr: u64,
    /// TCR_EL1.
    pub tcr: u64,
}

impl Stage1Control {
    /// SCTLR_EL1.M.
    const MMU: u64 = 1;
    /// TCR_EL1.EPD0 and EPD1.
    const NO_WALKS: u64 = 1 << 7 | 1 << 23;

    /// What is on this core.
    pub fn of_core() -> Self {
        Self { sctlr: sysreg::sctlr_el1::read(), tcr: sysreg::tcr_el1::read() }
    }

    /// Lets this core walk no table of stage 1 until [`Self::open`].
    pub fn close(self) {
        sysreg::tcr_el1::write(self.tcr | Self::NO_WALKS);
        // Walks are off before the MMU is on.
        isb();
        sysreg::sctlr_el1::write(self.sctlr | Self::MMU);
        // The MMU is on before the next write to a register of the guest's.
        isb();
    }

    /// Puts this onto the core when all other registers of its guest are there.
    pub fn open(self) {
        // All other registers are there before the guest's SCTLR_EL1.
        isb();
        sysreg::sctlr_el1::write(self.sctlr);
        // The MMU is as the guest has it before walks are possible.
        isb();
        sysreg::tcr_el1::write(self.tcr);
        // All registers are there before what follows uses them.
        isb();
    }
}

/// Makes this core translate for VM `vm` by the tables at `root`, and closes stage 1 until a
/// context of that VM is loaded. What the core knows of others carries their VMIDs.
pub fn switch_stage2(root: Pa, vm: VmId) {
    Stage1Control::of_core().close();
    sysreg::vtcr_el2::write(VTCR);
    sysreg::vttbr_el2::write(vttbr(root, vm));
    isb();
}

/// Does what [`switch_stage2`] does, and forgets what the core knew of that VM.
pub fn enter_stage2(root: Pa, vm: VmId) {
    switch_stage2(root, vm);
    tlbi_vm();
    dsb_nsh();
    isb();
}

#[cfg(test)]
mod tests;
