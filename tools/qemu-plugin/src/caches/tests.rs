use super::*;

const RAM: u64 = 0x4000_0000;
const WAY: u64 = 0x1_0000;
const UART: u64 = 0x900_0000;

/// Two VMs on a core each and the hypervisor, over an L2 with 16 colors of one page and eight
/// banks.
fn setup() -> Setup {
    let page = |page: u64, vm| PageRun { first: RAM + page * PAGE, count: 1, vm };
    // VM 0 has color 0, VM 1 color 1, the hypervisor color 2; four pages each.
    let of = |color: u64, vm| (0..64).map(move |n| page(16 * n + color, vm));
    Setup {
        vms: vec!["a".into(), "b".into()],
        cores: vec![vec![0], vec![1]],
        l1d: CacheShape { size: 32 << 10, ways: 4, line: 64 },
        l1i: CacheShape { size: 32 << 10, ways: 2, line: 64 },
        l2: CacheShape { size: 1 << 20, ways: 16, line: 64 },
        banks: vec![1 << 16 | 1 << 19, 1 << 17 | 1 << 20, 1 << 18 | 1 << 21],
        row: 8192,
        ram: RAM,
        ram_len: 64 << 20,
        uart: Some(UART),
        pages: of(0, Some(0)).chain(of(1, Some(1))).chain(of(2, None)).collect(),
        record: None,
    }
}

const LEAVE: Start = Start { inside: false, vector: false };
const VECTOR: Start = Start { inside: true, vector: true };

/// Both cores in their guests.
fn started(setup: Setup) -> Books {
    begun(Books::new(setup, None).unwrap())
}

fn begun(books: Books) -> Books {
    for core in [0, 1] {
        books.eret(core);
        books.block(core, Block::new(None, 4, LEAVE));
    }
    books
}

fn read(books: &Books, core: usize, pa: u64) {
    books.data(core, Data { pa, bytes: 8, write: false, pc: 0x1234 });
}

/// Reads all lines of 64 pages of a color, four times the color's share of the L2.
fn fill(books: &Books, core: usize, color: u64) {
    for page in 0..64 {
        for line in 0..PAGE / 64 {
            read(books, core, RAM + page * WAY + color * PAGE + line * 64);
        }
    }
}

#[test]
fn the_boot_alone_counts_nothing() {
    let books = Books::new(setup(), None).unwrap();
    fill(&books, 0, 0);
    fill(&books, 0, 1);
    books.device(UART + 4, true);
    let seen = books.report();
    assert!(!seen.started);
    assert_eq!(seen.device_accesses, 0);
    for owner in &seen.owners {
        assert_eq!((owner.accesses, owner.l2_misses, owner.dram_accesses), (0, 0, 0), "{owner:?}");
    }
    for counts in [&seen.l1_evictions, &seen.l2_evictions, &seen.rows_closed] {
        assert!(counts.iter().flatten().all(|count| *count == 0));
    }
    assert!(begun(books).report().started);
}

#[test]
fn colors_of_their_own_evict_nothing_of_each_other() {
    let books = started(setup());
    for _ in 0..2 {
        fill(&books, 0, 0);
        fill(&books, 1, 1);
    }
    let seen = books.report();
    assert_eq!(seen.between_vms(&seen.l2_evictions), 0);
    assert!(seen.l2_evictions[0][0] > 4096 && seen.l2_evictions[1][1] > 4096);
    assert!(seen.between_vms(&seen.rows_closed) > 0, "banks are shared");
}

#[test]
fn one_page_of_the_wrong_color_is_seen() {
    // Page 3 is b's, and has a's color instead of its own.
    let stray = RAM + 3 * WAY;
    let mut setup = setup();
    setup.pages.retain(|run| run.first != stray);
    setup.pages.push(PageRun { first: stray, count: 1, vm: Some(1) });
    let books = started(setup);
    fill(&books, 0, 0);
    for line in 0..PAGE / 64 {
        read(&books, 1, stray + line * 64);
    }
    let seen = books.report();
    let lines = PAGE / 64;
    // All 64 lines are in full sets of a's, and none of them is a's last use of its line.
    assert_eq!(seen.l2_evictions[1][0], lines);
    assert_eq!(seen.between_vms(&seen.l2_evictions), lines);
    assert_eq!(seen.between_vms(&seen.l1_evictions), 0, "the L1s are private");
}

#[test]
fn banks_of_their_own_close_nothing_of_each_other() {
    // Bank bit 2 is address bit 18 XOR 21: both VMs keep to one value of it.
    let bank_bit = |pa: u64| (pa >> 18 ^ pa >> 21) & 1;
    for (apart, some) in [(true, false), (false, true)] {
        let books = started(setup());
        for page in 0..4096 {
            let pa = RAM + page * PAGE;
            let core = if apart { bank_bit(pa) } else { page & 1 };
            read(&books, core as usize, pa);
        }
        let seen = books.report();
        assert_eq!(seen.between_vms(&seen.rows_closed) > 0, some);
    }
}

#[test]
fn el2s_work_for_a_vm_is_distinguished() {
    let books = started(setup());
    fill(&books, 0, 0);
    fill(&books, 1, 1);
    books.block(0, Block::new(None, 4, VECTOR));
    read(&books, 0, RAM + 40 * WAY + 2 * PAGE);
    // Page 70 of color 0 is not a's and has no owner: EL2 must not touch it while VMs run.
    read(&books, 0, RAM + 70 * WAY);
    // A line of a's that has left the L2.
    read(&books, 0, RAM + 8);
    // And one of b's, from a's core.
    read(&books, 0, RAM + PAGE + 8);
    let seen = books.report();
    let at = |by: OwnerKind, of: OwnerKind| {
        let place = |kind| seen.owners.iter().position(|owner| owner.kind == kind).unwrap();
        seen.l2_evictions[place(by)][place(of)]
    };
    assert_eq!(seen.owner(OwnerKind::Weir).unwrap().accesses, 1);
    assert_eq!(at(OwnerKind::Weir, OwnerKind::Vm(0)), 0);
    assert_eq!(at(OwnerKind::Unowned, OwnerKind::Vm(0)), 1);
    assert_eq!(at(OwnerKind::WeirFor(0), OwnerKind::Vm(0)), 1);
    assert_eq!(at(OwnerKind::WeirFor(1), OwnerKind::Vm(1)), 1);
    assert_eq!(seen.by_weir(&seen.l2_evictions), 1);
    assert_eq!(seen.between_vms(&seen.l2_evictions), 0);
    assert_eq!(seen.intrusions, [Intrusion { pc: 0x1234, page: RAM + 70 * WAY, count: 1 }]);
    // Back in the guest, the same page is the guest's access.
    books.eret(0);
    books.block(0, Block::new(None, 4, LEAVE));
    read(&books, 0, RAM + 40 * WAY + 2 * PAGE);
    assert_eq!(books.report().owner(OwnerKind::Weir).unwrap().accesses, 1);
}

#[test]
fn hypervisor_evictions_are_counted_at_their_place() {
    let books = started(setup());
    fill(&books, 0, 0);
    books.block(0, Block::new(None, 4, VECTOR));
    let page = RAM + 70 * WAY;
    books.block(0, Block::new(Some(page), 4 * 64, VECTOR));
    let seen = books.report();
    assert_eq!(seen.by_weir(&seen.l2_evictions), 4);
    assert_eq!(seen.intrusions, [Intrusion { pc: 0, page, count: 4 }]);
    assert_eq!((seen.places_left_out, seen.evictions_left_out), (0, 0));
}

/// The L2 is not inclusive: it may lose a line that an L1 holds dirty, and takes it again when that
/// pushes it out.
#[test]
fn a_line_that_is_written_back_evicts_without_a_miss() {
    let books = started(setup());
    // As many lines of one set of the L1, in another set of the L2 than the line that is written.
    let others: Vec<u64> = (0..4).map(|way| RAM + way * WAY + 2 * PAGE).collect();
    for &pa in &others {
        read(&books, 0, pa);
    }
    write(&books, 0, RAM);
    for page in 1..=16 {
        read(&books, 1, RAM + page * WAY);
    }
    let before = books.report();
    assert_eq!(before.l2_evictions[1][0], 1, "the written line has left the L2");
    for &pa in &others {
        read(&books, 0, pa);
    }
    let seen = books.report();
    assert_eq!(seen.owners[0].l2_misses, before.owners[0].l2_misses);
    assert_eq!(seen.l2_evictions[0][1], before.l2_evictions[0][1] + 1);
}

#[test]
fn an_access_does_not_cross_the_physical_page() {
    let books = started(setup());
    books.data(0, Data { pa: RAM + PAGE - 4, bytes: 8, write: false, pc: 0 });
    assert_eq!(books.report().owner(OwnerKind::Vm(0)).unwrap().accesses, 1);
    books.data(0, Data { pa: RAM + 60, bytes: 8, write: false, pc: 0 });
    assert_eq!(
        books.report().owner(OwnerKind::Vm(0)).unwrap().accesses,
        3,
        "two lines of one page"
    );
}

#[test]
fn counting_starts_with_the_first_guest() {
    let books = Books::new(setup(), None).unwrap();
    read(&books, 0, RAM);
    books.device(UART, false);
    books.eret(0);
    books.block(0, Block::new(None, 4, LEAVE));
    let seen = books.report();
    assert!(seen.owners.iter().all(|owner| owner.accesses == 0 && owner.l2_misses == 0));
    assert_eq!(seen.device_accesses, 0);
    // The line is still there, and the other core's boot counts.
    read(&books, 0, RAM);
    read(&books, 1, RAM + 2 * PAGE);
    let seen = books.report();
    assert_eq!(seen.owner(OwnerKind::Vm(0)).unwrap().l1_misses, 0);
    assert_eq!(seen.owner(OwnerKind::Weir).unwrap().l2_misses, 1);
}

#[test]
fn fetches_use_the_instruction_cache_by_line() {
    let books = started(setup());
    let block = Block::new(Some(RAM + 60), 72, LEAVE);
    assert_eq!(Block::from_bits(block.to_bits()), block);
    books.block(0, block);
    books.block(0, block);
    let seen = books.report();
    let a = seen.owner(OwnerKind::Vm(0)).unwrap();
    assert_eq!((a.fetches, a.l1i_misses, a.l2_misses, a.accesses), (6, 3, 3, 0));
    assert_eq!(seen.unseen_blocks, 2, "those that led into the guests");
}

#[test]
fn marks_contain_what_their_vm_had_done() {
    let books = started(setup());
    books.mark(0, 19);
    fill(&books, 0, 0);
    fill(&books, 1, 1);
    books.mark(0, 19);
    books.mark(9, 19);
    books.block(0, Block::new(None, 4, VECTOR));
    books.mark(0, 19);
    let lines = 64 * PAGE / 64;
    let at = |count| MarkerCounts {
        vm: 0,
        number: 19,
        accesses: count,
        l1_misses: count,
        l2_misses: count,
    };
    assert_eq!(books.report().marks, [at(0), at(lines)]);
    for _ in 0..2 * MARKS {
        books.mark(1, 1);
    }
    assert_eq!(books.report().marks.len(), MARKS);
}

#[test]
fn what_was_seen_is_known_by_the_console_s_bytes() {
    let books = started(setup());
    for page in 0..BYTES as u64 + 10 {
        read(&books, 0, RAM + page % 64 * WAY);
        books.device(UART, true);
        // Neither is a byte.
        books.device(UART, false);
        books.device(UART + 0x18, true);
    }
    read(&books, 0, RAM);
    let accesses = |seen: ObservedAccesses| seen.owner(OwnerKind::Vm(0)).unwrap().accesses;
    assert_eq!(books.report_at(20).map(accesses), Some(20));
    assert_eq!(books.report_at(BYTES as u64 + 10).map(accesses), Some(BYTES as u64 + 10));
    assert_eq!(books.report_at(BYTES as u64 + 11), None, "not written yet");
    assert_eq!(books.report_at(10), None, "too long ago");
    assert_eq!(accesses(books.report()), BYTES as u64 + 11);
}

#[test]
fn idle_and_absent_cores_count_nothing() {
    let mut setup = setup();
    setup.cores[1].clear();
    let books = started(setup);
    read(&books, 1, RAM);
    read(&books, 9, RAM);
    books.eret(9);
    books.block(9, Block::new(None, 4, LEAVE));
    assert!(books.report().owners.iter().all(|owner| owner.accesses == 0));
}

/// Both cores in their guests, and the page that counts.
fn with_counter_page() -> (Books, &'static CounterPage) {
    let counter_page: &'static CounterPage = Box::leak(Box::new(CounterPage::new()));
    let books = Books::new(setup(), Some(counter_page)).unwrap();
    read(&books, 0, RAM + 70 * WAY);
    assert!(!counter_page.is_counting(), "the boot");
    let books = begun(books);
    assert!(counter_page.is_counting());
    assert_eq!(counter_page.counts(0), (0, 0));
    (books, counter_page)
}

fn write(books: &Books, core: usize, pa: u64) {
    books.data(core, Data { pa, bytes: 8, write: true, pc: 0x1234 });
}

/// Both VMs on core 0, which is in a guest.
fn sharing() -> Books {
    let mut setup = setup();
    setup.cores = vec![vec![0, 1], vec![]];
    started(setup)
}

#[test]
fn on_a_shared_core_the_page_identifies_the_vm() {
    let books = sharing();
    // Code of b's on its page, a marker, and a page of the core's own without an owner: still b.
    books.block(0, Block::new(Some(RAM + PAGE), 4, LEAVE));
    books.mark(0, 19);
    read(&books, 0, RAM + 70 * WAY);
    fill(&books, 0, 0);
    books.mark(0, 20);
    fill(&books, 0, 1);
    let seen = books.report();
    let lines = 64 * PAGE / 64;
    let of = |vm| seen.owner(OwnerKind::Vm(vm)).unwrap();
    assert_eq!((of(0).accesses, of(0).fetches), (lines, 0));
    assert_eq!((of(1).accesses, of(1).fetches), (lines + 1, 1));
    assert_eq!(seen.marks.iter().map(|mark| mark.vm).collect::<Vec<_>>(), [1, 0]);
    // The L1 is theirs together, and b's line on a's color was in a's way; on its own color it is
    // in another half of the L1.
    assert_eq!((seen.l1_evictions[0][1], seen.l1_evictions[1][0]), (1, 0));
    assert_eq!((seen.l2_evictions[0][1], seen.l2_evictions[1][0]), (1, 0));
    // EL2 on that core is no VM's guest.
    books.block(0, Block::new(None, 4, VECTOR));
    read(&books, 0, RAM + PAGE);
    assert_eq!(books.report().owner(OwnerKind::WeirFor(1)).unwrap().accesses, 1);
}

#[test]
fn a_core_with_one_vm_is_that_vms_for_any_page() {
    let books = started(setup());
    read(&books, 0, RAM + PAGE);
    assert_eq!(books.report().owner(OwnerKind::Vm(0)).unwrap().accesses, 1);
}

#[test]
fn traffic_of_a_shared_core_counts_without_pages_too() {
    let counter_page: &'static CounterPage = Box::leak(Box::new(CounterPage::new()));
    let mut setup = setup();
    setup.cores = vec![vec![0, 1], vec![]];
    setup.pages.clear();
    let books = begun(Books::new(setup, Some(counter_page)).unwrap());
    (0..2).for_each(|color| fill(&books, 0, color));
    assert_eq!(counter_page.counts(0), (2 * 64 * PAGE / 64, 0));
}

#[test]
fn the_counter_page_counts_each_access_at_once() {
    let (books, counter_page) = with_counter_page();
    for lines in 1..=10 {
        read(&books, 0, RAM + lines * 64);
        read(&books, 0, RAM + lines * 64 + 8);
        assert_eq!((counter_page.counts(0), counter_page.counts(1)), ((lines, 0), (0, 0)));
    }
    // The other core finds one of them in that core's cache: nothing comes from memory.
    read(&books, 1, RAM + 64);
    assert_eq!(counter_page.counts(1), (0, 0));
    read(&books, 1, RAM + PAGE);
    assert_eq!((counter_page.counts(0), counter_page.counts(1)), ((10, 0), (1, 0)));
    // Code comes from there, too.
    books.block(1, Block::new(Some(RAM + 2 * PAGE), 128, LEAVE));
    assert_eq!(counter_page.counts(1), (3, 0));
}

#[test]
fn write_backs_are_charged_to_the_evictor() {
    let (books, counter_page) = with_counter_page();
    // One set of the L2 holds 16 lines, one of the L1 4 of these. Of 20 written ones the 16 that
    // left the L1 are in the L2.
    let line = |way: u64| RAM + way * WAY;
    (0..20).for_each(|way| write(&books, 0, line(way)));
    let (refills, before) = counter_page.counts(0);
    assert_eq!(refills, 20);
    // Another core's reads push them out: one for each of its refills, once the set holds dirty
    // lines alone.
    (20..60).for_each(|way| read(&books, 1, line(way)));
    let (_, after) = counter_page.counts(0);
    let (refills, write_backs) = counter_page.counts(1);
    assert_eq!((after, refills), (before, 40));
    assert_eq!(before + write_backs, 16, "four are in core 0's L1 still");
    assert!(write_backs > 0);
}

#[test]
fn the_counter_page_charges_no_vm_for_el2() {
    let (books, counter_page) = with_counter_page();
    let apart = || {
        [CounterKind::HypervisorRefills, CounterKind::HypervisorWriteBacks]
            .map(|kind| counter_page.count(0, kind))
    };
    books.block(0, Block::new(None, 4, VECTOR));
    read(&books, 0, RAM + 2 * PAGE);
    read(&books, 0, RAM + 3 * WAY);
    assert_eq!((counter_page.counts(0), apart()), ((0, 0), [2, 0]));
    books.eret(0);
    books.block(0, Block::new(None, 4, LEAVE));
    read(&books, 0, RAM + 4 * WAY);
    assert_eq!((counter_page.counts(0), apart()), ((1, 0), [2, 0]));
    // Dirty lines that EL2 pushes out are no guest's traffic either.
    (0..64).for_each(|way| write(&books, 0, RAM + way * WAY + 64));
    let (_, write_backs) = counter_page.counts(0);
    books.block(0, Block::new(None, 4, VECTOR));
    (64..128).for_each(|way| read(&books, 0, RAM + way * WAY + 64));
    assert_eq!(counter_page.counts(0).1, write_backs);
    assert_eq!(apart(), [66, 64 - write_backs]);
}

#[test]
fn an_l2_hit_is_charged_with_its_evictions() {
    let (books, counter_page) = with_counter_page();
    let line = |way: u64| RAM + way * WAY;
    // The first line stays in the L1 by use while 40 others of its set replace it in the L2.
    write(&books, 0, line(0));
    for way in 1..=40 {
        write(&books, 0, line(way));
        write(&books, 0, line(0));
    }
    let (refills, written) = counter_page.counts(0);
    // Four that are in the L2 replace the L1's; the last one the first line, which goes to the L2
    // in place of a dirty one.
    (30..33).for_each(|way| read(&books, 0, line(way)));
    assert_eq!(counter_page.counts(0), (refills, written));
    read(&books, 0, line(33));
    assert_eq!(counter_page.counts(0), (refills, written + 1));
}

proptest::proptest! {
    #[test]
    fn the_page_leaves_nothing_out(
        accesses in
            proptest::collection::vec((0..2_usize, 0..24_u64, 0..8_u64, proptest::bool::ANY), 500),
    ) {
        let (books, counter_page) = with_counter_page();
        for (core, way, set, write) in accesses {
            let pa = RAM + way * WAY + set * (8 << 10);
            books.data(core, Data { pa, bytes: 8, write, pc: 0 });
            let traffic = books.inner().hierarchy.traffic()[core];
            proptest::prop_assert_eq!(
                counter_page.counts(core),
                (traffic.refills, traffic.write_backs)
            );
        }
    }
}

#[test]
fn the_page_agrees_with_the_caches() {
    let (books, counter_page) = with_counter_page();
    for core in [0, 1] {
        fill(&books, core, core as u64);
        fill(&books, core, 1 - core as u64);
    }
    let seen = books.report();
    for core in [0, 1] {
        let owner = seen.owner(OwnerKind::Vm(core)).unwrap();
        assert_eq!(counter_page.counts(core), (owner.l2_misses, 0));
    }
}

#[test]
fn a_setup_that_does_not_fit_is_refused() {
    let outside = PageRun { first: RAM + (64 << 20), count: 1, vm: None };
    for (change, message) in [
        (&(|setup: &mut Setup| setup.cores[0].push(2)) as &dyn Fn(&mut Setup), "2 VMs"),
        (&|setup: &mut Setup| setup.pages.push(outside), "not in RAM"),
        (
            &|setup: &mut Setup| setup.pages.push(PageRun { vm: Some(7), ..setup.pages[0] }),
            "not in RAM",
        ),
        (&|setup: &mut Setup| setup.l2.ways = 0, "ways"),
        (&|setup: &mut Setup| setup.banks.push(1 << 16 | 1 << 19), "bank bit 3"),
    ] {
        let mut setup = setup();
        change(&mut setup);
        let error = Books::new(setup, None).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn counting_starts_with_an_interrupt_at_first_eret() {
    let counter_page: &'static CounterPage = Box::leak(Box::new(CounterPage::new()));
    let books = Books::new(setup(), Some(counter_page)).unwrap();
    books.block(0, Block::new(None, 4, VECTOR));
    assert!(!counter_page.is_counting(), "the boot");
    books.eret(0);
    books.block(0, Block::new(None, 4, VECTOR));
    assert!(counter_page.is_counting());
}

#[test]
fn the_ledger_has_refills_and_write_backs_per_period() {
    use crate::{ledger::GuestCounts, path};
    let books = started(setup());
    let mark = |core, number| {
        books.block(core, Block::new(None, 4, VECTOR));
        books.mark(core, number);
        books.eret(core);
        books.block(core, Block::new(None, 4, LEAVE));
    };
    // Not at EL2: a guest has no influence.
    books.mark(0, path::REPLENISH);
    read(&books, 0, RAM);
    mark(0, path::REPLENISH);
    (1..=7).for_each(|line| read(&books, 0, RAM + 64 * line));
    mark(0, path::POLL);
    read(&books, 0, RAM + 64 * 8);
    read(&books, 1, RAM + PAGE);
    mark(0, path::OVERFLOW);
    mark(0, path::REPLENISH);
    let ledger = books.ledger();
    let [period] = ledger.cores[0].periods[..] else { panic!("{ledger:?}") };
    assert_eq!(period.counts, GuestCounts { refills: 8, ..GuestCounts::default() });
    assert_eq!((period.polls, period.throttled), (3, true));
    assert!(ledger.cores[1].periods.is_empty());
    assert!(books.report().marks.is_empty(), "EL2's markers are no guest's");
}

/// Of a setup that records up to `most` accesses, and the files that come of it.
fn recorded(most: u64, run: impl FnOnce(&Books)) -> (ObservedAccesses, [String; 2]) {
    let directory =
        std::env::temp_dir().join(format!("weir-recordings-{}-{most}", std::process::id()));
    let record = Some(RecordingLimit { most, into: directory.clone() });
    let books = started(Setup { record, ..setup() });
    run(&books);
    let seen = books.report();
    books.write_recordings(&seen).unwrap();
    let files = ["0", "1"].map(|vm| std::fs::read_to_string(directory.join(vm)).unwrap());
    std::fs::remove_dir_all(&directory).unwrap();
    (seen, files)
}

#[test]
fn what_a_vm_did_is_recorded_and_what_el2_did_is_not() {
    let (seen, [a, b]) = recorded(100, |books| {
        // Four instructions, one of which reads and one writes, twice.
        for _ in 0..2 {
            books.block(0, Block::new(Some(RAM), 16, LEAVE));
            read(books, 0, RAM + 8);
            write(books, 0, RAM + 16);
        }
        // Across a line, and across a page: of this one only what is in the first.
        books.data(0, Data { pa: RAM + 60, bytes: 8, write: false, pc: 0 });
        books.data(0, Data { pa: RAM + PAGE - 4, bytes: 8, write: false, pc: 0 });
        books.block(0, Block::new(None, 400, VECTOR));
        read(books, 0, RAM + 24);
        books.eret(0);
        // A block that goes on in another page.
        books.block(0, Block::new(Some(RAM + PAGE - 40), 40, LEAVE));
        books.next_page(0, Block::new(Some(RAM + PAGE), 60, LEAVE));
        read(books, 0, RAM + 32);
    });
    // The instruction of `started` and the first block's four are before the first access. Each
    // further one takes a cycle at least, which the next block has less: 2 x 4 + 25 + 1 in the end
    // are the sum.
    let text = format!(
        "vcpu 0\nR {:#x} 5\nW {:#x} 1\nR {:#x} 3\nW {:#x} 1\nR {:#x} 1\nR {:#x} 1\nR {:#x} 1\n\
         R {:#x} 21\n",
        RAM + 8,
        RAM + 16,
        RAM + 8,
        RAM + 16,
        RAM + 60,
        RAM + 64,
        RAM + PAGE - 4,
        RAM + 32
    );
    assert_eq!(a, text);
    assert_eq!(b, "");
    assert_eq!(seen.recorded, [Recorded { kept: 8, left_out: 0 }, Recorded::default()]);
}

#[test]
fn a_full_recording_counts_further_accesses() {
    let (seen, [a, b]) = recorded(3, |books| {
        (0..5).for_each(|line| read(books, 0, RAM + 64 * line));
        read(books, 1, RAM + PAGE);
    });
    assert_eq!(
        seen.recorded,
        [Recorded { kept: 3, left_out: 2 }, Recorded { kept: 1, left_out: 0 }]
    );
    assert_eq!((a.lines().count(), b.lines().count()), (4, 2));
    assert!(a.ends_with(&format!("R {:#x} 1\n", RAM + 128)), "{a}");
    assert!(b.starts_with("vcpu 1\n"), "{b}");
}

#[test]
fn a_recording_ends_where_the_report_does() {
    let directory = std::env::temp_dir().join(format!("weir-cut-{}", std::process::id()));
    let record = Some(RecordingLimit { most: 9, into: directory.clone() });
    let books = started(Setup { record, ..setup() });
    read(&books, 0, RAM);
    books.device(UART, true);
    read(&books, 0, RAM + 64);
    let seen = books.report_at(1).unwrap();
    books.write_recordings(&seen).unwrap();
    let text = std::fs::read_to_string(directory.join("0")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(text, format!("vcpu 0\nR {RAM:#x} 1\n"));
}
