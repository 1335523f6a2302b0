//! EL2's own address space, and the switch of a core to the stage 2 tables of a VM, which
//! `vm::stage2` builds.
//!
//! boot.s maps the image at the place where the loader put it. The boot core maps the rest here,
//! once: device registers, the packed system, and two windows of 1 MiB for each core. If memory is
//! divided into page classes, the boot core then moves the image and the packed system into the
//! hypervisor's page classes ([`Stage1::move_in`]) and continues there. A core reaches the memory
//! of a VM only through its windows, and only while it starts that VM. While a VM runs, EL2 maps
//! none of its memory except the state that EL2 itself keeps for that VM (`vm::Vm`), which lies in
//! the VM's page classes.

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
/// Bytes below each stack that are not mapped.
pub const STACK_GUARD: u64 = 0x1000;
/// Virtual address of the packed system.
const PACKED: u64 = HYP_BASE + 0x1000_0000;
/// Virtual address of device registers; a device is mapped at this address plus its physical
/// address modulo 1 GiB.
const DEVICES: u64 = HYP_BASE + 0x4000_0000;
/// Virtual address of core 0's windows; each core has two.
const WINDOWS: u64 = HYP_BASE + 0x8000_0000;
/// Bytes of each place at [`PACKED`] that [`Stage1::read_only`] maps memory to.
const PLACE: u64 = 0x20_0000;
/// Virtual address of the exchange with the broker, three places behind [`PACKED`].
const EXCHANGE: u64 = PACKED + 3 * PLACE;
/// Bytes of a window: one table holds both windows of a core.
pub const WINDOW: u64 = 0x10_0000;
/// Number of page table entries of a window.
const WINDOW_PAGES: usize = (WINDOW / PAGE) as usize;

const _: () = assert!(EXCHANGE_LEN <= PLACE);

/// Number of windows of all cores.
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

/// Translation tables in the image: written by one core at a time, read by the table walker of
/// every core.
#[repr(transparent)]
pub struct Tables<const N: usize>(UnsafeCell<[Table; N]>);

// SAFETY: the writers are the boot core before it starts the others (`Stage1::begin`,
// `stage2_tables`), each core for the tables of its own windows (`Window::take`), and the code that
// hands over devices for the entries of their pages (`show`).
unsafe impl<const N: usize> Sync for Tables<N> {}

/// Stage 1 tables of all cores; boot.s fills in the first `BOOT_TABLES`.
pub static STAGE1: Tables<STAGE1_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE1_TABLES]));
/// Stage 2 tables of all VMs of a system that is not divided; the contents are undefined until the
/// tables of the VMs are built.
// SAFETY: words of any value form a valid table.
#[cfg_attr(target_os = "none", unsafe(link_section = ".noinit"))]
static STAGE2: Tables<STAGE2_TABLES> = Tables(UnsafeCell::new([Table::EMPTY; STAGE2_TABLES]));

/// Physical minus virtual address of the trampoline and, until the hypervisor moves, of everything
/// in the image file.
static IMAGE_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Physical minus virtual address of .bss and the stacks, until the hypervisor moves.
static BSS_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Index in [`STAGE1`] of the table of core 0's windows; the tables of the other cores follow it.
static FIRST_WINDOW_TABLE: AtomicUsize = AtomicUsize::new(0);

/// Returns the physical address at which the firmware starts the other cores; it lies in the
/// trampoline.
#[must_use]
pub fn secondary_entry() -> Pa {
    Pa(in_image(image::secondary_start()))
}

/// Returns the range in which the packed system can lie if the image is at physical address
/// `image`: behind the hypervisor's part of the image file, and below .bss. Called after
/// [`Stage1::begin`].
#[must_use]
pub fn behind_hypervisor(Pa(image): Pa) -> Range<u64> {
    let file_end = image::file_end();
    image + (file_end - HYP_BASE)..in_bss(file_end)
}

/// Returns the top of core `core`'s stack.
#[must_use]
pub fn stack_top(core: CoreId) -> u64 {
    let above = (MAX_CORES - 1).saturating_sub(core.index()) as u64;
    image::end() - above * (STACK_SIZE + STACK_GUARD)
}

/// Returns the physical address of an address in the trampoline or, until the hypervisor moves, of
/// any address in the image file.
fn in_image(address: u64) -> u64 {
    address.wrapping_add(IMAGE_OFFSET.load(Ordering::Relaxed))
}

/// Returns the physical address of an address in .bss or the stacks, until the hypervisor moves.
fn in_bss(address: u64) -> u64 {
    address.wrapping_add(BSS_OFFSET.load(Ordering::Relaxed))
}

/// Returns the physical address of an address that EL2 has mapped; it is valid up to the end of
/// that page. Overwrites PAR_EL1, so it must be called only while no guest's registers are on this
/// core.
#[must_use]
pub fn physical(address: u64) -> Pa {
    Pa(translate(address) & 0x0000_ffff_ffff_f000 | address & (PAGE - 1))
}

/// Returns the virtual address of the registers at physical address `pa`.
#[must_use]
pub const fn device(pa: Pa) -> u64 {
    DEVICES + (pa.0 & 0x3fff_ffff)
}

/// EL2's address space, while the boot core builds it.
pub struct Stage1 {
    builder: Builder<'static>,
}

/// Maps the devices that EL2 drives, and makes a table for each core's windows. Returns the index
/// of the first of these tables.
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
    /// Continues the tables that boot.s began. `image` is the physical address of the image.
    ///
    /// # Safety
    ///
    /// Called once, on the boot core, before it starts another.
    ///
    /// # Errors
    ///
    /// Returns [`MapError`] if the board's devices do not fit the address map above, which is a
    /// mistake in its platform file.
    pub unsafe fn begin(image: Pa) -> Result<Self, MapError> {
        IMAGE_OFFSET.store(image.0.wrapping_sub(HYP_BASE), Ordering::Relaxed);
        let tables = STAGE1.0.get() as u64;
        BSS_OFFSET.store(physical(tables).0.wrapping_sub(tables), Ordering::Relaxed);
        // SAFETY: by this function's contract there is no other reference; the table walker only
        // reads, and only sees invalid entries become valid.
        let tables = unsafe { &mut *STAGE1.0.get() };
        let base = in_bss(STAGE1.0.get() as u64);
        let mut builder = Builder::resume(tables, BOOT_TABLES, base);
        FIRST_WINDOW_TABLE.store(furnish(&mut builder)?, Ordering::Relaxed);
        publish();
        Ok(Self { builder })
    }

    /// Maps RAM that EL2 only reads, and returns its bytes. `pa` need not be aligned; `slot` (0 to
    /// 2) selects one of three places of 2 MiB.
    ///
    /// # Safety
    ///
    /// Nothing writes these bytes while the slice is in use, and they are RAM.
    ///
    /// # Errors
    ///
    /// Returns [`MapError::OutOfRange`] if the range is larger than a place, or the error of the
    /// table builder.
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
        // SAFETY: just mapped, `len` bytes from `va + offset` on; by the contract nothing writes to
        // them.
        Ok(unsafe { core::slice::from_raw_parts((va + offset) as *const u8, len as usize) })
    }

    /// Maps the exchange with the broker permanently, for [`exchange`]. If memory is divided into
    /// page classes, [`Stage1::move_in`] maps it instead.
    ///
    /// # Errors
    ///
    /// Returns the error of the table builder.
    pub fn map_exchange(&mut self, pa: Pa) -> Result<(), MapError> {
        self.builder.map(EXCHANGE, pa.0, EXCHANGE_LEN, stage1::READ_WRITE)?;
        publish();
        Ok(())
    }

    /// Unmaps the memory that [`Stage1::read_only`] mapped in `slot`, except for the pages of its
    /// first `keep` bytes.
    ///
    /// # Safety
    ///
    /// Those bytes are not used any more.
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
/// One of these functions has mapped the exchange, for a system with a broker. The exchange is not
/// in use yet, and all later accesses are atomic. Called once.
#[must_use]
pub unsafe fn exchange() -> u64 {
    // SAFETY: mapped and writable; by the contract it has no other owner yet.
    unsafe { (EXCHANGE as *mut u8).write_bytes(0, EXCHANGE_LEN as usize) }
    // The exchange is cleaned because the broker may read it before its caches are on.
    clean(EXCHANGE, EXCHANGE_LEN, cache_line());
    EXCHANGE
}

/// Makes new table entries visible: the stores to the tables complete before the table walks of
/// later accesses.
fn publish() {
    dsb_ishst();
    isb();
}

/// Invalidates this core's cached translations of EL2. The stores that invalidate entries complete
/// before the TLB invalidation, which completes before the next instructions of this core.
fn forget_translations() {
    dsb_nshst();
    tlbi_el2();
    dsb_nsh();
    isb();
}

/// Returns the physical address of the stage 1 tables, until the hypervisor moves.
#[must_use]
pub fn stage1_base() -> u64 {
    in_bss(STAGE1.0.get() as u64)
}

/// Returns the stage 1 tables, and the number of the first table's page among the hypervisor's
/// pages.
///
/// # Safety
///
/// Called on the boot core, before it starts another core; no window is used while the reference is
/// alive.
#[must_use]
pub unsafe fn stage1_tables() -> (&'static [Table], u64) {
    // SAFETY: by the contract nothing writes to the tables while the reference is alive.
    let tables = unsafe { &*STAGE1.0.get() };
    (tables, (STAGE1.0.get() as u64 - HYP_BASE) / PAGE)
}

/// Returns the tables from which the stage 2 of every VM is built, and their physical address.
///
/// # Safety
///
/// Called once, on the boot core, before it starts another core.
#[must_use]
pub unsafe fn stage2_tables() -> (&'static mut [Table], u64) {
    // SAFETY: by the contract this is the only reference.
    let tables = unsafe { &mut *STAGE2.0.get() };
    (tables, in_bss(STAGE2.0.get() as u64))
}

/// A range in EL2's address space through which one core temporarily reaches RAM: 1 MiB, or all of
/// these ranges as one.
pub struct Window {
    entries: &'static mut [u64],
    va: u64,
}

impl Window {
    /// Returns the two windows of core `core`.
    ///
    /// # Safety
    ///
    /// Called on that core, after [`Stage1::begin`], and never while an earlier pair is in use.
    #[must_use]
    pub unsafe fn take(core: CoreId) -> [Self; 2] {
        let core = core.index().min(MAX_CORES - 1);
        // SAFETY: each pair of windows belongs to one core, and the contract gives this pair to the
        // caller.
        [0, 1].map(|which| unsafe { Self::from(2 * core + which, 1) })
    }

    /// Returns `count` windows from number `first` on, as one window.
    ///
    /// # Safety
    ///
    /// [`furnish`] made the tables of these windows, and they have no other owner.
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

    /// Maps as many of `pages` as there are and fit, calls `body` with the address and the number
    /// of mapped bytes, and unmaps the pages.
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
        // Only this core has ever used these addresses, so the TLBs of other cores hold no
        // translations for them.
        forget_translations();
        result
    }

    /// Zeroes as many of `pages` as fit, in memory as well as in the caches, until `pause` returns
    /// true after a chunk because something else is due. Returns the number of bytes. `plainly`
    /// requests ordinary stores, which QEMU plug-ins can observe; they cannot observe DC ZVA.
    pub fn zero(
        &mut self,
        pages: &mut dyn Iterator<Item = u64>,
        plainly: bool,
        pause: &mut dyn FnMut() -> bool,
    ) -> u64 {
        let (block, line) = (zva_block().filter(|_| !plainly), cache_line());
        let most = if block.is_some() { ZERO_CHUNK } else { STORE_CHUNK };
        self.lend(pages, stage1::READ_WRITE, |va, len| {
            // The cache lines are written back to memory and invalidated at once: EL2 and the last
            // boot of the VM were the writers, and the reader is the VM, which starts with its
            // caches off.
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

    /// Copies `len` bytes of RAM (less than 1 MiB, so that any offset in a page fits) from an
    /// offset in some pages, mapped through `source`, to an offset in other pages, in memory as
    /// well as in the caches. Stops early if `pause` returns true after a chunk because something
    /// else is due. Returns the number of bytes. Bytes that lie outside of the pages are not
    /// copied, but are counted.
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
                    // SAFETY: `lend` mapped these bytes at both addresses. The windows are at
                    // different addresses, and the memory behind them is different: the image, a
                    // VM's pristine copy and its RAM do not overlap (`packed`).
                    unsafe { copy_bytes(from, to, len) }
                    clean(to, len, line);
                })
            })
        })
    }
}

/// Largest number of bytes that are zeroed by DC ZVA, zeroed by stores or copied between two points
/// at which interrupts are taken: 500 to 900 instructions. Zeroing works on whole pages.
const ZERO_CHUNK: u64 = 2 * PAGE;
const STORE_CHUNK: u64 = PAGE;
const COPY_CHUNK: u64 = PAGE / 8;

/// Calls `body` with the start and the length of each chunk of `len` bytes, of at most `most`
/// bytes, until `pause` returns true after a chunk because something else is due. Returns the
/// number of bytes that were processed.
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

/// A range of bytes in RAM.
pub struct Bytes<'a> {
    /// The pages that the bytes lie in.
    pub pages: &'a mut dyn Iterator<Item = u64>,
    /// Offset of the first byte in the first page.
    pub first: u64,
}

/// Copies `len` bytes from address `from` to address `to`.
///
/// # Safety
///
/// Both ranges are mapped, the target is writable, and nothing else uses the target.
unsafe fn copy_bytes(from: u64, to: u64, len: u64) {
    // SAFETY: by the contract. If the two ranges overlapped, both would be the target.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) }
}

/// Returns the block size of DC ZVA in bytes (DCZID_EL0.BS, at most 2 KiB); `None` if the
/// instruction is prohibited (DZP).
fn zva_block() -> Option<u64> {
    const DZP: u64 = 1 << 4;
    let dczid = sysreg::dczid_el0::read();
    (dczid & DZP == 0).then_some(4 << (dczid & 0xf))
}

/// Returns the size of the smallest data cache line in bytes (CTR_EL0.DminLine).
pub(super) fn cache_line() -> u64 {
    4 << (sysreg::ctr_el0::read() >> 16 & 0xf)
}

/// Synchronizes instruction caches before a VM executes, on any core, code that EL2 wrote.
pub fn sync_instructions() {
    // The zeros and copies, which `Window`'s maintenance sends to memory, complete before the
    // invalidation; the invalidation completes before the VM starts.
    dsb_sy();
    ic_all();
    dsb_ish();
    isb();
}

/// Returns VTTBR_EL2 of VM `vm`, whose tables begin at `root`. No VM has VMID 0.
fn vttbr(root: Pa, vm: VmId) -> u64 {
    (u64::from(vm.0) + 1) << 48 | root.0
}

/// The registers that turn a guest's stage 1 on and off.
///
/// While the registers on a core belong partly to one guest and partly to another, the core may
/// translate speculatively and cache the result under the VMID of either guest (Cortex-A53 erratum
/// 1530924, Cortex-A72 1319367: AT). So no table is walked while the registers change: first walks
/// are disabled, and then the MMU is turned on, because with the MMU off addresses are translated
/// without a walk.
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

    /// Returns the values on this core.
    pub fn of_core() -> Self {
        Self { sctlr: sysreg::sctlr_el1::read(), tcr: sysreg::tcr_el1::read() }
    }

    /// Disables table walks of stage 1 on this core until [`Self::open`].
    pub fn close(self) {
        sysreg::tcr_el1::write(self.tcr | Self::NO_WALKS);
        // Walks are off before the MMU is on.
        isb();
        sysreg::sctlr_el1::write(self.sctlr | Self::MMU);
        // The MMU is on before the next write to a register of the guest's.
        isb();
    }

    /// Enables stage 1 as the guest has it, after all other registers of the guest are on the core.
    pub fn open(self) {
        // All other registers of the guest are in effect before its SCTLR_EL1.
        isb();
        sysreg::sctlr_el1::write(self.sctlr);
        // The MMU is in the guest's state before table walks are possible.
        isb();
        sysreg::tcr_el1::write(self.tcr);
        // All registers are in effect before the following code uses them.
        isb();
    }
}

/// Switches this core to the stage 2 of VM `vm` with tables at `root`, and closes stage 1 until a
/// context of that VM is loaded. Cached translations of other VMs stay, tagged with their VMIDs.
pub fn switch_stage2(root: Pa, vm: VmId) {
    Stage1Control::of_core().close();
    sysreg::vtcr_el2::write(VTCR);
    sysreg::vttbr_el2::write(vttbr(root, vm));
    isb();
}

/// Does what [`switch_stage2`] does, and invalidates the cached translations of that VM.
pub fn enter_stage2(root: Pa, vm: VmId) {
    switch_stage2(root, vm);
    tlbi_vm();
    dsb_nsh();
    isb();
}

#[cfg(test)]
mod tests;
