//! How many instructions it takes to build the page tables of a VM, with the very code that the
//! hypervisor builds them with.
//!
//! Counted by the PMU (INST_RETIRED), so not for a weir VM, which has none: `weir bench mapping`
//! runs it on QEMU's board under instruction counting. Three ways to map the same number of bytes:
//! page by page from pages that follow each other, page by page from the pages of four colors of
//! sixteen, and in blocks of 2 MiB. For the first two the choice of pages and the mapping are
//! counted apart. Then each page is chosen and mapped by a call of its own, first the pages that
//! follow each other and then those of the colors.
//!
//! ```text
//! mapping: 64 MiB: one page class 1490+167405, four colors 18764+168102, blocks 912, by calls
//! 811008 and 1277952
//! mapping: done
//! ```

#![no_std]
#![no_main]
#![allow(
    clippy::inline_always,
    reason = "the counter is read where the measurement ends, not in a call"
)]

use core::{arch::asm, ops::Range};
use weir_guest::{Board, entry, println, psci};
use weir_paging::{
    PAGE,
    classes::{ClassSet, Geometry, PageClasses, Pages},
    table::{Builder, Table, stage2},
};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;
/// Where the tables for 256 MiB may lie, 132 of them in four colors of sixteen, with room.
const TABLES: usize = 140;
/// Memory to choose from: 256 MiB in four colors of sixteen need 1 GiB.
const MEMORY: Range<u64> = 0x8000_0000..0xf000_0000;
/// An IPA where 2 MiB blocks fit.
const INPUT: u64 = 0x4000_0000;
/// Cache colors and banks like those of `boards/qemu-virt/board.toml`.
const GEOMETRY: Geometry = Geometry {
    colors: 0xf000,
    banks: [1 << 16 | 1 << 19, 1 << 17 | 1 << 20, 1 << 18 | 1 << 21, 0, 0, 0, 0, 0],
};

fn main(board: &'static Board) -> ! {
    let room = board.ram.size.saturating_sub(IMAGE);
    assert!(room >= (TABLES * size_of::<Table>()) as u64, "not enough memory for the tables");
    let tables = (board.ram.base + IMAGE) as *mut Table;
    // SAFETY: RAM behind the image, which nothing else uses, aligned to a page; zeros are a
    // table.
    let tables = unsafe {
        tables.write_bytes(0, TABLES);
        core::slice::from_raw_parts_mut(tables, TABLES)
    };
    start_counting();
    let classes = PageClasses::new(&GEOMETRY).expect("the masks are independent");
    let colors = classes.select(|class| classes.color(class) < 4).expect("it has sixteen");
    for mib in [1, 4, 16, 64, 256] {
        let len = mib << 20;
        let native = in_pages(&PageClasses::ONE, PageClasses::ONE.all(), tables, len);
        let colored = in_pages(&classes, colors, tables, len);
        let blocks = in_blocks(tables, len);
        let one = Pages::new(&PageClasses::ONE, PageClasses::ONE.all(), MEMORY);
        let contiguous = by_calls(&one, tables, len, |page| page + PAGE);
        let own = Pages::new(&classes, colors, MEMORY);
        let after = |page| own.after(page).expect("memory for the pages");
        let chosen = by_calls(&own, tables, len, after);
        println!(
            "mapping: {mib} MiB: one page class {}+{}, four colors {}+{}, blocks {blocks}, by \
             calls {contiguous} and {chosen}",
            native.0, native.1, colored.0, colored.1
        );
    }
    println!("mapping: done");
    psci::system_off()
}

/// Maps `len` bytes of `set`, its tables in it as well: instructions until the pages are chosen,
/// and of the mapping.
fn in_pages(classes: &PageClasses, set: ClassSet, tables: &mut [Table], len: u64) -> (u64, u64) {
    let start = instructions();
    let own = Pages::new(classes, set, MEMORY);
    let from = own.nth_page(TABLES as u64).expect("memory for the tables");
    let mut pages = Pages::from_page(classes, set, from, len + PAGE);
    // Taking a page makes the list that all others come from.
    assert!(pages.next() == Some(from), "the pages begin there");
    let chosen = instructions();
    let mut builder = Builder::in_pages(tables, &own).expect("there are tables");
    builder.map_pages(INPUT, &mut pages, len, stage2::RAM).expect("it fits");
    let end = instructions();
    assert!(pages.left() == 0, "all pages are mapped");
    clear(builder.used(), tables);
    (chosen - start, end - chosen)
}

/// Maps `len` bytes, each page by a call of its own, which goes through all levels of the tables;
/// `after` chooses the page after a page. The tables lie in `own`.
#[inline(never)]
fn by_calls(own: &Pages<'_>, tables: &mut [Table], len: u64, after: impl Fn(u64) -> u64) -> u64 {
    let mut page = own.nth_page(TABLES as u64).expect("memory for the tables");
    let start = instructions();
    let mut builder = Builder::in_pages(tables, own).expect("there are tables");
    for input in (INPUT..INPUT + len).step_by(PAGE as usize) {
        builder.map(input, page, PAGE, stage2::RAM).expect("it fits");
        page = after(page);
    }
    let end = instructions();
    clear(builder.used(), tables);
    end - start
}

/// Maps `len` bytes in the largest blocks that fit.
fn in_blocks(tables: &mut [Table], len: u64) -> u64 {
    let start = instructions();
    let mut builder = Builder::new(tables, MEMORY.start).expect("there are tables");
    builder.map(INPUT, MEMORY.start, len, stage2::RAM).expect("it fits");
    let end = instructions();
    clear(builder.used(), tables);
    end - start
}

/// The tables are used again.
fn clear(used: usize, tables: &mut [Table]) {
    assert!(size_of::<Table>() as u64 == PAGE, "a table is a page");
    tables.iter_mut().take(used).for_each(|table| *table = Table::EMPTY);
}

/// Counts instructions in event counter 0.
fn start_counting() {
    const INST_RETIRED: u64 = 0x08;
    // SAFETY: this guest alone uses the PMU of its core; counting changes nothing else. PMCR_EL0.E
    // and .P.
    unsafe {
        asm!(
            "msr pmevtyper0_el0, {event}",
            "msr pmcntenset_el0, {counter}",
            "msr pmcr_el0, {on}",
            "isb",
            event = in(reg) INST_RETIRED,
            counter = in(reg) 1_u64,
            on = in(reg) 3_u64,
            options(nostack),
        );
    }
    assert!(instructions() < instructions(), "this machine counts no instructions");
}

/// Instructions so far, of which two are this function's own.
#[inline(always)]
fn instructions() -> u64 {
    let count: u64;
    // SAFETY: reads a counter; the barrier keeps the read where it stands.
    unsafe { asm!("isb", "mrs {}, pmevcntr0_el0", out(reg) count, options(nostack)) };
    count
}
