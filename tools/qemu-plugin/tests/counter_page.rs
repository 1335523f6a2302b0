//! The page of counters in a real QEMU: guests on two cores walk through known lines, and an EL2 of
//! a few instructions notes what it reads there after each walk.

use crate::machine::{
    ERET, HVC, ISB, NOP, SMC, Section, directory, library, load, movk, movz, qemu,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use weir_qemu_plugin::caches::{CacheShape, Setup};
use weir_trace::counter_page::{CounterKind, CounterPage, SIZE};

const RAM: u64 = 0x4000_0000;
const RAM_LEN: u64 = 128 << 20;

const EL2: u64 = 0x4020_0000;
const SECONDARY: u64 = EL2 + 0x200;
const VECTORS: u64 = EL2 + 0x800;
const HANDLER: u64 = EL2 + 0x1000;
const HYP: &str = "0x40200000-0x40202000";
/// The guest of vCPU 0, and that of vCPU 1.
const GUESTS: [u64; 2] = [0x4021_0000, 0x4022_0000];
/// The page of counters.
const PAGE: u64 = 0x4030_0000;
/// What EL2 notes: pairs of refills and write-backs, 256 bytes for each core.
const LOG: u64 = 0x4031_0000;

/// To EL1 at `guest`, with X6 = 0.
fn enter(guest: u64) -> Vec<u32> {
    vec![
        movz(0, VECTORS as u32 & 0xFFFF, 0),
        movk(0, (VECTORS >> 16) as u32, 1),
        0xD51C_C000, // msr vbar_el2, x0
        movz(0, 0x8000, 1),
        0xD51C_1100, // msr hcr_el2, x0: RW, EL1 is AArch64
        movz(0, 0x3C5, 0),
        0xD51C_4000, // msr spsr_el2, x0: EL1h, all masked
        movz(0, (guest >> 16) as u32, 1),
        0xD51C_4020, // msr elr_el2, x0
        movz(6, 0, 0),
        ISB,
        ERET,
    ]
}

/// From reset: starts vCPU 1, waits until its guest is done, enters the guest.
fn start() -> Section {
    let mut code = vec![
        movz(0, 3, 0),
        movk(0, 0xC400, 1), // CPU_ON
        movz(1, 1, 0),
        movz(2, SECONDARY as u32 & 0xFFFF, 0),
        movk(2, (SECONDARY >> 16) as u32, 1),
        SMC,
        0xD2A8_0647, // movz x7, #0x4032, lsl #16
        0xD503_203F, // yield
        0xB940_00E8, // ldr w8, [x7]
        0x34FF_FFC8, // cbz w8, to the yield
    ];
    code.extend(enter(GUESTS[0]));
    Section(EL2, code)
}

fn vector() -> Section {
    let vector = VECTORS + 0x400;
    let offset = (HANDLER - vector) as u32 / 4;
    Section(vector, vec![0x1400_0000 | offset])
}

/// HVC with X0 = 1 ends QEMU; else it notes the core's counters as entry X6 of its log, and with 2
/// informs vCPU 0 that it is done and powers the core off.
fn handler() -> Section {
    let code = vec![
        0x3700_0240, // 00: tbnz x0, #0, 48
        0xD538_00A1, // mrs x1, mpidr_el1
        0x9240_1C21, // and x1, x1, #0xff
        0xD2A8_0602, // movz x2, #0x4030, lsl #16: PAGE
        0x8B01_1842, // add x2, x2, x1, lsl #6
        0xA944_1043, // ldp x3, x4, [x2, #64]
        0xD2A8_0625, // movz x5, #0x4031, lsl #16: LOG
        0x8B01_20A5, // add x5, x5, x1, lsl #8
        0x8B06_10A5, // add x5, x5, x6, lsl #4
        0xA900_10A3, // stp x3, x4, [x5]
        0x9100_04C6, // add x6, x6, #1
        0xB500_0040, // cbnz x0, 34
        ERET,        // 30
        0xD2A8_0647, // 34: movz x7, #0x4032, lsl #16
        0xB900_00E0, // str w0, [x7]
        movz(0, 2, 0),
        movk(0, 0x8400, 1), // CPU_OFF
        SMC,
        movz(0, 8, 0),      // 48
        movk(0, 0x8400, 1), // SYSTEM_OFF
        SMC,
    ];
    Section(HANDLER, code)
}

/// An access to the place at X1, which moves to the next line.
const READ: u32 = 0xF844_0423; // ldr x3, [x1], #64
const WRITE: u32 = 0xF804_0423; // str x3, [x1], #64

/// Goes over `lines` lines from `start` on; a line of code.
fn walk(access: u32, start: u64, lines: u32) -> Vec<u32> {
    let mut code = vec![
        movz(1, (start >> 16) as u32, 1),
        movz(2, lines, 0),
        access,
        0xF100_0442, // subs x2, x2, #1
        0x54FF_FFC1, // b.ne, to the access
    ];
    code.resize(8, NOP);
    code
}

/// Has EL2 take note, or with another `x0` end it; the rest of a line of code.
fn call(x0: u32) -> Vec<u32> {
    let mut code = vec![movz(0, x0, 0), HVC];
    code.resize(8, NOP);
    code
}

const ARRAY: u64 = 0x4040_0000;

fn guests() -> [Section; 2] {
    let zero = [
        walk(READ, ARRAY, 256),
        call(0),
        walk(READ, ARRAY, 256),
        call(0),
        walk(WRITE, ARRAY + (1 << 20), 64),
        call(0),
        walk(WRITE, ARRAY + (4 << 20), 4096),
        [NOP; 8].to_vec(),
        walk(READ, ARRAY + (8 << 20), 4096),
        call(0),
        call(1),
    ];
    let one = [walk(READ, ARRAY + (2 << 20), 128), call(2)];
    [Section(GUESTS[0], zero.concat()), Section(GUESTS[1], one.concat())]
}

/// Two cores, a small L2, and EL2's memory apart from the guests'.
fn setup() -> Setup {
    Setup {
        vms: vec!["zero".into(), "one".into()],
        cores: vec![vec![0], vec![1]],
        l1d: CacheShape { size: 32 << 10, ways: 4, line: 64 },
        l1i: CacheShape { size: 32 << 10, ways: 2, line: 64 },
        l2: CacheShape { size: 64 << 10, ways: 16, line: 64 },
        banks: Vec::new(),
        row: 8192,
        ram: RAM,
        ram_len: RAM_LEN,
        uart: None,
        pages: Vec::new(),
        record: None,
    }
}

/// Runs the program, with the page at `page`; the machine's memory is left in `directory`.
fn run(directory: &Path, page: u64) -> Output {
    let ram = directory.join("ram");
    let file = File::create(&ram).unwrap();
    file.set_len(RAM_LEN).unwrap();
    let caches = directory.join("caches.json");
    fs::write(&caches, serde_json::to_vec(&setup()).unwrap()).unwrap();
    let [guest, other] = guests();
    let sections =
        [start(), Section(SECONDARY, enter(GUESTS[1])), vector(), handler(), guest, other];
    let mut command = qemu();
    load(&mut command, directory, &sections);
    let backend = format!("memory-backend-file,id=ram,size={RAM_LEN},share=on,mem-path=");
    command.args(["-m", "128M", "-object"]).arg(format!("{backend}{}", ram.display()));
    command.args(["-machine", "memory-backend=ram", "-plugin"]).arg(format!(
        "{},out={},hyp={HYP},vectors={VECTORS:#x},caches={},ram={},counter-page={page:#x}",
        library().display(),
        directory.join("seen.json").display(),
        caches.display(),
        ram.display()
    ));
    command.output().unwrap()
}

/// What a run left: each core's log, and the page.
fn counted(name: &str) -> ([Vec<(u64, u64)>; 2], CounterPage) {
    let directory = directory(name);
    let result = run(&directory, PAGE);
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    let ram = File::open(directory.join("ram")).unwrap();
    let word = |pa: u64| {
        let mut bytes = [0; 8];
        ram.read_exact_at(&mut bytes, pa - RAM).unwrap();
        u64::from_le_bytes(bytes)
    };
    let entry = |core: u64, entry: u64| {
        let at = LOG + 256 * core + 16 * entry;
        (word(at), word(at + 8))
    };
    let logs =
        [(0, 5), (1, 2)].map(|(core, entries)| (0..entries).map(|n| entry(core, n)).collect());
    let mut bytes = [0; SIZE];
    ram.read_exact_at(&mut bytes, PAGE - RAM).unwrap();
    // A static of the hypervisor has its header from the start; this one's is written here.
    bytes[..16].copy_from_slice(b"weirmon\0\x01\0\0\0\x08\0\0\0");
    (logs, CounterPage::from_bytes(&bytes).unwrap())
}

#[test]
fn a_core_reads_what_its_guest_has_moved_by_then() {
    let (logs, page) = counted("counter_page");
    // Each walk brings its lines and one of code. The second finds its data in the cache.
    let after = [256 + 1, 256 + 2, 256 + 64 + 3, 256 + 64 + 4096 + 4096 + 5];
    // All lines that were written have left: the guest's, and the one in which EL2 had taken notes.
    let left = 64 + 4096 + 1;
    let expected = [(after[0], 0), (after[1], 0), (after[2], 0), (after[3], left), (0, 0)];
    assert_eq!(logs[0], expected);
    assert_eq!(logs[1], [(128 + 1, 0), (0, 0)]);
    assert!(page.is_counting());
    assert_eq!([page.counts(0), page.counts(1)], [(after[3] + 1, left), logs[1][0]]);
    // EL2's own are apart: its code, the counters, the log.
    for core in [0, 1] {
        assert!((3..=8).contains(&page.count(core, CounterKind::HypervisorRefills)), "{page:?}");
        assert!(page.count(core, CounterKind::HypervisorWriteBacks) <= 1, "{page:?}");
    }
    for core in 2..8 {
        assert_eq!(page.counts(core), (0, 0));
    }
}

#[test]
fn two_runs_count_alike() {
    let [one, other] = ["one", "other"].map(counted);
    assert_eq!(one.0, other.0);
    let all = |page: &CounterPage| format!("{page:?}");
    assert_eq!(all(&one.1), all(&other.1));
}

#[test]
fn a_page_outside_ram_stops_qemu_with_the_reason() {
    let directory = directory("refused");
    for (page, reason) in [
        (PAGE + 8, "is not a page of RAM"),
        (0x900_0000, "is not a page of RAM"),
        (RAM + RAM_LEN, "is not a page"),
    ] {
        let result = run(&directory, page);
        let error = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && error.contains(reason), "{error}");
    }
}
