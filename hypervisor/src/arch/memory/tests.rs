use super::{divided::image_attributes, *};
use crate::arch::machine::{recorded, set, value};
use weir_units::Ipa;

/// Returns a window over an empty table.
fn window() -> Window {
    let Table(entries) = Box::leak(Box::new(Table::EMPTY));
    Window { entries: &mut entries[..WINDOW_PAGES], va: WINDOWS }
}

#[test]
fn a_lent_page_is_forgotten_before_it_is_another() {
    let mut window = window();
    let first: *const [u64; 3] = window.entries.as_ptr().cast();
    // SAFETY: the entries are leaked, and the window changes them only between calls of this
    // closure.
    let entries = || unsafe { *first };
    let pages = &mut [0x4800_0000, 0x4900_0000].into_iter();
    let lent = window.lend(pages, stage1::READ_WRITE, |va, len| {
        assert_eq!(recorded(), ["dsb ishst", "isb"], "the entries before the walks");
        let page = |pa| stage1::READ_WRITE.page(pa);
        assert_eq!(entries(), [page(0x4800_0000), page(0x4900_0000), 0]);
        (va, len)
    });
    assert_eq!(lent, (WINDOWS, 2 * PAGE));
    assert_eq!(entries(), [0; 3]);
    assert_eq!(recorded(), ["dsb nshst", "tlbi alle2", "dsb nsh", "isb"]);
}

/// Returns the recorded lines by which stage 1 of a guest with `tcr_el1` and `sctlr_el1` is closed:
/// first its walks, then its MMU.
fn closed(tcr: u64, sctlr: u64) -> Vec<String> {
    let (tcr, sctlr) = (tcr | 1 << 7 | 1 << 23, sctlr | 1);
    let lines = [
        format!("tcr_el1 = {tcr:#x}"),
        "isb".into(),
        format!("sctlr_el1 = {sctlr:#x}"),
        "isb".into(),
    ];
    lines.to_vec()
}

#[test]
fn stage_2_is_switched_before_the_guest_is_entered() {
    switch_stage2(Pa(0x4810_0000), VmId(2));
    let switched = [format!("vtcr_el2 = {VTCR:#x}"), "vttbr_el2 = 0x3000048100000".to_owned()];
    let mut lines = closed(0, 0);
    lines.extend(switched);
    lines.push("isb".to_owned());
    assert_eq!(recorded(), lines);
    // A new boot of a VM invalidates the translations of the previous boot.
    set("tcr_el1", 0);
    set("sctlr_el1", 0);
    enter_stage2(Pa(0x4810_0000), VmId(2));
    lines.extend(["tlbi vmalls12e1", "dsb nsh", "isb"].map(str::to_owned));
    assert_eq!(recorded(), lines);
}

#[test]
fn code_is_in_memory_before_caches_forget_it() {
    sync_instructions();
    assert_eq!(recorded(), ["dsb sy", "ic ialluis", "dsb ish", "isb"]);
}

#[test]
fn hidden_pages_are_forgotten_on_every_core() {
    set("vttbr_el2", 0x1_0000_4900_0000);
    set("tcr_el1", 0x19);
    set("sctlr_el1", 0x30d0_1804);
    // The root is not one of the image's tables, so no entry changes, but the TLBs are invalidated
    // anyway.
    // SAFETY: for the same reason there is no entry that could be changed concurrently.
    unsafe { show(Pa(0), VmId(1), Ipa(0x900_0000), PAGE, false) };
    let mut lines = closed(0x19, 0x30d0_1804);
    let with_its_tables = [
        "vttbr_el2 = 0x2000000000000",
        "dsb ishst",
        "isb",
        "tlbi vmalls12e1is",
        "dsb ish",
        "isb",
        "vttbr_el2 = 0x1000049000000",
        "isb",
        "sctlr_el1 = 0x30d01804",
        "isb",
        "tcr_el1 = 0x19",
        "isb",
    ];
    lines.extend(with_its_tables.map(str::to_owned));
    assert_eq!(recorded(), lines);
    assert_eq!(value("vttbr_el2"), 0x1_0000_4900_0000, "the current VM's is back");
}

#[test]
fn the_guards_of_stacks_are_not_mapped() {
    assert_eq!(image_attributes(HYP_BASE), Some(stage1::CODE));
    assert_eq!(image_attributes(image::text_end()), Some(stage1::READ));
    assert_eq!(image_attributes(image::rodata_end()), Some(stage1::READ_WRITE));
    assert_eq!(image_attributes(image::data_end()), None, "below the first stack");
    assert_eq!(image_attributes(image::data_end() + STACK_GUARD), Some(stage1::READ_WRITE));
    assert_eq!(image_attributes(image::data_end() + STACK_GUARD + STACK_SIZE), None);
}

#[test]
fn zeroing_pauses_after_a_chunk() {
    let mut window = window();
    let mut pages = (0x4800_0000u64..).step_by(PAGE as usize).take(6);
    let mut asked = 0;
    let zeroed = window.zero(&mut pages, false, &mut || {
        asked += 1;
        asked == 2
    });
    assert_eq!((zeroed, asked), (2 * ZERO_CHUNK, 2), "what was paused is not begun");
    let lines: Vec<_> = recorded().into_iter().filter(|line| line.starts_with("dc")).collect();
    let (first, last) = (WINDOWS, WINDOWS + 2 * ZERO_CHUNK);
    let chunk = |from: u64| format!("dc zva {from:#x} to {:#x}", from + ZERO_CHUNK);
    assert_eq!(lines, [chunk(first), chunk(last - ZERO_CHUNK)]);
}

#[test]
fn the_last_chunk_is_not_asked_about() {
    let mut chunks = Vec::new();
    let done = in_chunks(5, 2, &mut || false, |at, len| chunks.push((at, len)));
    assert_eq!((done, chunks), (5, vec![(0, 2), (2, 2), (4, 1)]));
    assert_eq!(in_chunks(2, 2, &mut || panic!("nothing is left"), |_, _| ()), 2);
    assert_eq!(in_chunks(0, 2, &mut || true, |_, _| panic!("nothing to do")), 0);
}
