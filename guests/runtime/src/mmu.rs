//! Stage 1 of the guest: everything is mapped to itself, RAM as write-back memory, the rest as
//! device memory that is never executed.
//!
//! `aarch64-rt` calls `enable_mmu` first thing on every core. Its own version wants tables that
//! were made when the image was linked, but where RAM lies is known from the device tree only, so
//! here the boot core returns at once, builds the tables in [`init`], and calls it a second time;
//! secondary cores find them ready.

use crate::board::MemoryRegion;
use core::{
    arch::{asm, global_asm},
    ops::Range,
};

#[repr(C, align(4096))]
struct Table([u64; 512]);

const GIB: u64 = 1 << 30;
const MIB_2: u64 = 2 << 20;

// Descriptors of Arm ARM DDI 0487, D8.3: a block with AF set. Attribute index 0 is device memory
// (with PXN and UXN), 1 is write-back memory, inner shareable.
const DEVICE: u64 = 1 << 54 | 1 << 53 | 1 << 10 | 1;
const MEMORY: u64 = 1 << 10 | 3 << 8 | 1 << 2 | 1;
const TABLE: u64 = 3;

/// Index 0 Device-nGnRE, index 1 Normal, write-back, read and write allocate.
const MAIR: u64 = 0xff_04;
/// 39 bits of address from TTBR0, 4 KiB granule, walks write-back and inner shareable, no TTBR1.
const TCR: u64 = 1 << 23 | 3 << 12 | 1 << 10 | 1 << 8 | (64 - 39);
/// The RES1 bits, I, SA, C, M.
const SCTLR: u64 = 0x30d0_0800 | 1 << 12 | 1 << 3 | 1 << 2 | 1;

static mut LEVEL1: Table = Table([0; 512]);
/// For the first and the last gibibyte that RAM covers in part.
static mut LEVEL2: [Table; 2] = [const { Table([0; 512]) }; 2];

/// The level 1 table once it is filled. In `.data`, as it is read before `.bss` is cleared.
#[unsafe(link_section = ".data.mmu_root")]
static mut ROOT: u64 = 0;

unsafe extern "C" {
    safe static data_begin: u8;
    safe static bss_begin: u8;
    safe static boot_stack_end: u8;
}

global_asm!(
    ".section .init.enable_mmu, \"ax\"",
    ".global enable_mmu",
    "enable_mmu:",
    "    adrp x8, {root}",
    "    ldr x8, [x8, :lo12:{root}]",
    "    cbz x8, 1f",
    "    msr ttbr0_el1, x8",
    "    ldr x8, ={mair}",
    "    msr mair_el1, x8",
    "    ldr x8, ={tcr}",
    "    mrs x9, id_aa64mmfr0_el1",
    "    bfi x8, x9, #32, #3",
    "    msr tcr_el1, x8",
    "    isb",
    "    tlbi vmalle1",
    "    ic iallu",
    "    dsb nsh",
    "    isb",
    "    ldr x8, ={sctlr}",
    "    msr sctlr_el1, x8",
    "    isb",
    "1:  ret",
    "    .ltorg",
    root = sym ROOT,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
);

/// Builds the tables and turns the MMU and caches on. From here on atomics work.
///
/// # Panics
///
/// Never: a range has two ends, for which there are two tables.
///
/// # Safety
///
/// Once, on the boot core, with the MMU off and no other core running. `ram` must hold the image.
pub unsafe fn init(ram: MemoryRegion) {
    let start = ram.base & !(MIB_2 - 1);
    let end = ram.end().next_multiple_of(MIB_2);
    let (level1, level2) = (&raw mut LEVEL1, &raw mut LEVEL2);
    // SAFETY: the caller promises that this core is the only one and comes here once.
    let level1 = unsafe { &mut *level1 };
    // SAFETY: as above.
    let level2 = unsafe { &mut *level2 };
    let mut spare = level2.iter_mut();
    for (gib, entry) in level1.0.iter_mut().enumerate() {
        let base = gib as u64 * GIB;
        *entry = if end <= base || base + GIB <= start {
            base | DEVICE
        } else if start <= base && base + GIB <= end {
            base | MEMORY
        } else {
            let table = spare.next().expect("one range has two ends");
            for (block, entry) in table.0.iter_mut().enumerate() {
                let base = base + block as u64 * MIB_2;
                *entry = base | if (start..end).contains(&base) { MEMORY } else { DEVICE };
            }
            (&raw const *table) as u64 | TABLE
        };
    }
    // What was written without caches lies in memory; a line of it that the loader left in a cache
    // would hide it.
    // SAFETY: a barrier, between the writes above and the invalidation.
    unsafe { asm!("dsb sy", options(nostack)) };
    let mut line = (&raw const bss_begin) as u64 & !63;
    while line < (&raw const boot_stack_end) as u64 {
        // SAFETY: invalidates memory that was last written by this core past the caches.
        unsafe { asm!("dc ivac, {}", in(reg) line, options(nostack)) };
        line += 64;
    }
    let (root, tables) = (&raw mut ROOT, &raw const LEVEL1 as u64);
    // SAFETY: the boot core alone writes it, here. `ROOT` shares no line with what follows caches.
    unsafe { root.write_volatile(tables) };
    // SAFETY: a barrier and an invalidation of the line just written past the caches.
    unsafe { asm!("dc ivac, {}", "dsb sy", in(reg) root as u64, options(nostack)) };
    // SAFETY: the tables map image, stack and devices to themselves.
    unsafe { asm!("bl enable_mmu", out("x8") _, out("x9") _, out("x30") _) };
}

/// Maps the gibibytes that `range` touches to themselves, as write-back memory that is never
/// executed, instead of as device memory.
///
/// # Safety
///
/// There is memory, of which this guest has used nothing yet, and nothing else; this core is the
/// only one that runs.
pub unsafe fn add_memory(range: Range<u64>) {
    let level1 = &raw mut LEVEL1;
    for gib in range.start / GIB..range.end.div_ceil(GIB).min(512) {
        // SAFETY: this core is the only one, and uses nothing that the entry maps; it is broken
        // before it is made (D8.16.1).
        unsafe {
            let entry = (&raw mut (*level1).0).cast::<u64>().add(gib as usize);
            entry.write_volatile(0);
            asm!("dsb ishst", "tlbi vmalle1", "dsb nsh", "isb", options(nostack));
            entry.write_volatile((gib * GIB) | MEMORY | 1 << 54 | 1 << 53);
        }
    }
    // SAFETY: a barrier, between the writes above and the walks for what they map.
    unsafe { asm!("dsb ishst", "isb", options(nostack)) };
}

/// Maps the page at `address`, which [`init`] took for a device's, to itself, as write-back memory
/// that is never executed.
///
/// # Safety
///
/// There is memory; this core is the only one that runs, and this is called once.
pub unsafe fn add_page(address: u64) {
    static mut SPLIT: [Table; 2] = [const { Table([0; 512]) }; 2];
    const INDEX: u64 = 511;
    let split = &raw mut SPLIT;
    // SAFETY: by the contract nothing else uses them.
    let [level2, level3] = unsafe { &mut *split };
    let (level1, base) = (&raw mut LEVEL1, address & !(GIB - 1));
    for (block, entry) in level2.0.iter_mut().enumerate() {
        *entry = (base + block as u64 * MIB_2) | DEVICE;
    }
    let base = address & !(MIB_2 - 1);
    for (page, entry) in level3.0.iter_mut().enumerate() {
        // At level 3 a page's descriptor is what a table's is above.
        *entry = (base + page as u64 * 4096) | DEVICE | TABLE;
    }
    level3.0[(address >> 12 & INDEX) as usize] =
        (address & !4095) | MEMORY | 1 << 54 | 1 << 53 | TABLE;
    level2.0[(address >> 21 & INDEX) as usize] = (&raw const *level3) as u64 | TABLE;
    // SAFETY: this core is the only one, and uses nothing of what the entry maps, devices,
    // meanwhile; it is broken before it is made (D8.16.1).
    unsafe {
        let entry = (&raw mut (*level1).0).cast::<u64>().add(((address / GIB) & INDEX) as usize);
        if entry.read() & 3 == 1 {
            entry.write_volatile(0);
            asm!("dsb ishst", "tlbi vmalle1", "dsb nsh", "isb", options(nostack));
            entry.write_volatile((&raw const *level2) as u64 | TABLE);
        }
        asm!("dsb ishst", "isb", options(nostack));
    }
}

/// Turns this core's MMU and data cache off, so that what the guest can address is bounded by
/// stage 2 only. Cleans the image's data and stack to memory first.
///
/// # Safety
///
/// On the boot core, with no other core running.
pub unsafe fn disable() {
    let end = (&raw const boot_stack_end) as u64;
    // SAFETY: the tables map every address to itself, so that execution goes on; nothing is written
    // between the cleaning of data and stack and the first access past the caches.
    unsafe {
        asm!(
            "2: dc civac, {line}",
            "add {line}, {line}, #64",
            "cmp {line}, {end}",
            "b.lo 2b",
            "dsb sy",
            "msr sctlr_el1, {sctlr}",
            "isb",
            line = inout(reg) (&raw const data_begin) as u64 & !63 => _,
            end = in(reg) end,
            sctlr = in(reg) SCTLR & !(1 << 2 | 1),
            options(nostack),
        );
    }
}
