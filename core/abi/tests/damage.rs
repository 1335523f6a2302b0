//! The packed form: what EL2 must refuse, for any bytes.

use proptest::prelude::*;
use std::{collections::BTreeSet, ops::Range};
use weir_abi::{
    ACTIVE, ADDRESS_LIMIT, DEVICE, Damage, ENGINE_CHUNK, ENGINE_LEVELS, ENGINE_LIMIT, EXCHANGE,
    EXCHANGE_IPA, EXCHANGE_LEN, Features, Functions, Irq, MAGIC, NO_BROKER, NO_ENGINE, OnFault,
    PAGE, PackedCache, PackedFlow, PackedHeader, PackedNet, PackedSchedule, PackedSegment,
    PackedSystem, PackedTables, PackedVm, PageSpan, PciFunction, RAM, Region, Regulation, Slot,
    VERSION, WINDOWS, checksum, image_id, name_image, regulation, schedule,
};
use weir_paging::classes::{ClassSet, Geometry, PageClasses};
use weir_paging::table::stage2;
use weir_sched::scheduler::Decision;
use weir_sched::scheduler::Ready;
use weir_units::{Cid, Nanos};
use zerocopy::IntoBytes;

/// Bytes at an 8-byte boundary, as the hypervisor has them.
struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Self { words, len: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

fn header() -> PackedHeader {
    PackedHeader {
        magic: MAGIC,
        version: VERSION,
        crc: 0,
        image_id: 0,
        tables_len: 0,
        vms: 0,
        regions: 0,
        segments: 0,
        irqs: 0,
        cores: 4,
        console_core: 3,
        heartbeat_ns: 1_000_000_000,
        colored: 0,
        pci: 0,
        observed: 0,
        flows: 0,
        broker: NO_BROKER,
        rate: 0,
        chunk: 4096,
        engine_from: NO_ENGINE,
        engine_level: 0,
        engine_limit: 0,
        schedules: 0,
        slots: 0,
        load_address: 0x4020_0000,
        image_len: 0x10_0000,
        memory_end: 0x8000_0000,
        functions: Functions { colors: 0xf000, banks: [0; 8] },
        cache: PackedCache { size: 1 << 20, ways: 16, cache_line: 64 },
        classes: ALL,
        memory: PageSpan::default(),
    }
}

/// The page classes of a board with 16 colors.
const ALL: [u64; 4] = [0xffff, 0, 0, 0];

fn vm(name: &str, cores: &[u8]) -> PackedVm {
    let mut vm = PackedVm {
        name: [0; 32],
        entry: 0x4010_0000,
        device_tree: 0x4000_0000,
        distributor: 0x0800_0000,
        gic_cpu: 0x080a_0000,
        uart: 0x0900_0000,
        uart_intid: 33,
        vsock_intid: 0,
        vsock: 0,
        stolen_time: 0,
        vsock_ecam: 0,
        first_region: 0,
        regions: 0,
        first_segment: 0,
        segments: 0,
        first_irq: 0,
        irqs: 0,
        on_fault: OnFault::Restart as u8,
        vcpus: cores.len() as u8,
        pmu: 0,
        ticks: 0,
        focus: 0,
        on_outside: 0,
        reserved: [0; 2],
        cores: [0; 8],
        classes: ALL,
        own: PageSpan::default(),
        pristine: PageSpan::default(),
        regulation: Regulation::default(),
        net: PackedNet::default(),
    };
    vm.name[..name.len()].copy_from_slice(name.as_bytes());
    vm.cores[..cores.len()].copy_from_slice(cores);
    vm
}

/// Two VMs; the second has two cores and a device.
fn tables() -> PackedTables {
    let ram = |pa| Region { ipa: 0x4000_0000, pa, len: 0x20_0000, kind: RAM };
    PackedTables {
        vms: vec![
            PackedVm { regions: 1, segments: 1, ..vm("control", &[0]) },
            PackedVm {
                first_region: 1,
                regions: 2,
                first_segment: 1,
                segments: 1,
                irqs: 1,
                ..vm("linux", &[1, 2])
            },
        ],
        regions: vec![
            ram(0x4040_0000),
            ram(0x4060_0000),
            Region { ipa: 0x0901_0000, pa: 0x0901_0000, len: 0x1000, kind: DEVICE },
        ],
        segments: vec![
            PackedSegment { ipa: 0x4010_0000, offset: 0x2_0000, len: 0x1234, kept: 0 },
            PackedSegment {
                ipa: 0x4000_0000,
                offset: 0x3_0000,
                len: 0x20_0000 - 0x1000 - 0x13_0000,
                kept: 0,
            },
        ],
        irqs: vec![Irq::new(34, false)],
        ..PackedTables::default()
    }
}

/// The same two VMs and the hypervisor in their own page classes: colors 0 to 3, 4 to 7 and 8 to
/// 15.
fn divided() -> (PackedHeader, PackedTables) {
    let mut header = header();
    header.colored = 1;
    header.classes = [0xff00, 0, 0, 0];
    header.memory = PageSpan { pa: 0x4030_8000, len: 0x20_0000 };
    let mut tables = tables();
    for (place, vm) in tables.vms.iter_mut().enumerate() {
        let color = 4 * place as u64;
        vm.classes = [0xf << color, 0, 0, 0];
        vm.own = PageSpan { pa: 0x4030_0000 + color * PAGE, len: 0x2_0000 };
        vm.pristine = PageSpan { pa: 0x4040_1000 + color * PAGE, len: 0x11_0000 };
    }
    tables.regions[0].pa = 0x4100_0000;
    tables.regions[1].pa = 0x4100_4000;
    tables.segments[1].kept = 0x1000;
    (header, tables)
}

fn damaged_classes(change: impl FnOnce(&mut PackedHeader, &mut PackedTables)) -> Damage {
    let (mut header, mut tables) = divided();
    change(&mut header, &mut tables);
    parse(&tables.pack(header)).expect_err("the damage was not seen")
}

fn parse(bytes: &[u8]) -> Result<usize, Damage> {
    PackedSystem::parse(Aligned::new(bytes).bytes(), false).map(|system| system.vms())
}

fn damaged(change: impl FnOnce(&mut PackedHeader, &mut PackedTables)) -> Damage {
    let (mut header, mut tables) = (header(), tables());
    change(&mut header, &mut tables);
    parse(&tables.pack(header)).expect_err("the damage was not seen")
}

#[test]
fn each_port_has_an_address_and_one_is_the_uplink() {
    let port = |last: u64| PackedNet {
        registers: 0x0a00_1000,
        mac: last << 40 | 0x5452,
        rate: 1000,
        burst: 8,
        bandwidth: 0,
        intid: 56,
        uplink: 0,
    };
    let with_ports = |change: fn(&mut PackedNet, &mut PackedNet)| {
        with_switch(|_, tables| {
            let (mut first, mut second) = (port(1), port(2));
            change(&mut first, &mut second);
            (tables.vms[0].net, tables.vms[1].net) = (first, second);
        })
    };
    assert_eq!(with_ports(|_, _| ()), Ok(()));
    assert_eq!(with_ports(|first, _| first.uplink = 1), Ok(()));
    assert_eq!(with_ports(|first, _| (first.rate, first.burst) = (0, 0)), Ok(()));
    let first: [fn(&mut PackedNet, &mut PackedNet); 6] = [
        |first, _| first.mac = 0,
        |first, _| first.mac |= 1,
        |first, _| first.mac |= 1 << 48,
        |first, _| first.uplink = 2,
        |first, _| first.burst = 0,
        |first, _| (first.rate, first.burst, first.bandwidth) = (0, 0, 1),
    ];
    for change in first {
        assert_eq!(with_ports(change), Err(Damage::Port(0)));
    }
    let second: [fn(&mut PackedNet, &mut PackedNet); 2] = [
        |first, second| second.mac = first.mac,
        |first, second| (first.uplink, second.uplink) = (1, 1),
    ];
    for change in second {
        assert_eq!(with_ports(change), Err(Damage::Port(1)));
    }
    assert_eq!(with_ports(|first, _| first.registers = 0x0900_0000), Err(Damage::Address(0)));
    assert_eq!(with_ports(|first, _| first.registers += 8), Err(Damage::Address(0)));
    assert_eq!(with_ports(|first, _| first.intid = 33), Err(Damage::Interrupt(0)));
    assert_eq!(with_ports(|first, _| first.intid = 300), Err(Damage::Interrupt(0)));
    // Of a device that is not there nothing means anything.
    assert_eq!(with_ports(|first, _| (first.registers, first.mac) = (0, 0)), Ok(()));
}

#[test]
fn reads_what_was_packed() {
    let bytes = Aligned::new(&tables().pack(header()));
    let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
    assert_eq!(system.vms(), 2);
    let linux = system.vm(1).unwrap();
    assert_eq!(linux.name(), b"linux");
    assert_eq!(linux.cores(), [1, 2]);
    assert_eq!(linux.on_fault(), OnFault::Restart);
    assert_eq!((linux.regions.len(), linux.segments.len(), linux.irqs.len()), (2, 1, 1));
    assert!(linux.is_ram(0x401f_ffff) && !linux.is_ram(0x4020_0000) && !linux.is_ram(0x0901_0000));
    assert!(system.vm(2).is_none());
}

#[test]
fn goes_on_behind_the_tables() {
    let mut bytes = tables().pack(header());
    bytes.extend_from_slice(&[0xa5; 100]);
    assert_eq!(parse(&bytes), Ok(2));
}

/// The hypervisor and `weir build` are built apart: the layout must not change without [`VERSION`].
#[test]
fn layout_is_that_of_version_13() {
    assert_eq!(VERSION, 13);
    let bytes = tables().pack(header());
    assert_eq!(size_of::<PackedHeader>(), 296);
    assert_eq!((size_of::<PackedSchedule>(), size_of::<Slot>()), (24, 24));
    assert_eq!((size_of::<PackedVm>(), size_of::<PackedFlow>()), (344, 48));
    assert_eq!((size_of::<Region>(), size_of::<PackedSegment>(), size_of::<Irq>()), (32, 32, 24));
    assert_eq!(bytes.len(), 296 + 2 * 344 + 3 * 32 + 2 * 32 + 24);
    assert_eq!(bytes.len(), tables().packed_len());
    assert_eq!(&bytes[..8], b"weirsys\0");
    assert_eq!(checksum(&bytes), 0x9630_e82b, "{:#x}", checksum(&bytes));
    assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
}

/// In a file of U-Boot's, an image does not begin at a multiple of 8 bytes.
#[test]
fn the_identity_of_an_image_is_written_and_read() {
    let mut packed = tables().pack(header());
    name_image(&mut packed, 0x0123_4567_89ab_cdef);
    assert_eq!(parse(&packed), Ok(2));
    let file = [b"weirsys\0 and more", packed.as_slice(), b"guests"].concat();
    assert_eq!(image_id(&file), Some(0x0123_4567_89ab_cdef));
    for damaged in [&file[..file.len() - 7], b"weirsys\0", b""] {
        assert_eq!(image_id(damaged), None);
    }
    for cut in [100, packed.len() - 1] {
        let mut short = packed[..cut].to_vec();
        name_image(&mut short, 1);
        assert_eq!(short, packed[..cut]);
    }
}

#[test]
fn refuses_each_kind_of_damage() {
    let good = tables().pack(header());
    assert_eq!(parse(&good), Ok(2));
    assert_eq!(parse(&good[..40]), Err(Damage::Truncated));
    assert_eq!(parse(&good[..good.len() - 1]), Err(Damage::Truncated));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= value;
        parse(&bytes)
    };
    assert_eq!(with(0, 1), Err(Damage::Magic));
    assert_eq!(with(8, 1), Err(Damage::Version(12)));
    assert_eq!(with(12, 1), Err(Damage::Checksum));
    assert_eq!(with(good.len() - 1, 1), Err(Damage::Checksum));
    let misaligned = Aligned::new(&[&[0; 4], good.as_slice()].concat());
    assert_eq!(
        PackedSystem::parse(&misaligned.bytes()[4..], false).unwrap_err(),
        Damage::Truncated
    );

    assert_eq!(damaged(|_, tables| tables.vms.clear()), Damage::Table);
    assert_eq!(damaged(|_, tables| tables.vms[0].first_region = 9), Damage::Table);
    assert_eq!(damaged(|_, tables| tables.vms[0].regions = u32::MAX), Damage::Table);
    assert_eq!(damaged(|header, _| header.console_core = 4), Damage::Table);
    assert_eq!(damaged(|header, _| header.cores = 9), Damage::Table);
    assert_eq!(damaged(|header, _| header.load_address += 1), Damage::Table);
    assert_eq!(damaged(|header, _| header.image_len = u64::MAX), Damage::Table);
    assert_eq!(damaged(|header, _| header.memory_end = 0x4020_0000), Damage::Table);
}

#[test]
fn refuses_each_kind_of_damage_to_a_vm() {
    assert_eq!(damaged(|_, tables| tables.vms[1].cores[1] = 0), Damage::Cores(1));
    assert_eq!(damaged(|_, tables| tables.vms[1].cores[1] = 4), Damage::Cores(1));
    assert_eq!(damaged(|_, tables| tables.vms[0].vcpus = 0), Damage::Cores(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].vcpus = 9), Damage::Cores(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].uart += 8), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].uart = 0x0800_f000), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].distributor = 0x4000_0000), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].gic_cpu = ADDRESS_LIMIT), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.regions[0].len = 0), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.regions[0].pa += 1), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.regions[0].len = u64::MAX - 0xfff), Damage::Address(0));
    assert_eq!(damaged(|_, tables| tables.regions[2].ipa = 0x4010_0000), Damage::Address(1));
    assert_eq!(damaged(|header, _| header.memory_end = 0x407f_f000), Damage::Address(1));
    assert_eq!(damaged(|_, tables| tables.segments[0].ipa = 0x401f_f000), Damage::Segment(0));
    assert_eq!(damaged(|_, tables| tables.segments[0].offset = 0xf_f000), Damage::Segment(0));
    assert_eq!(damaged(|_, tables| tables.segments[0].len = u64::MAX), Damage::Segment(0));
    assert_eq!(damaged(|_, tables| tables.irqs[0].preempt = 2), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.irqs[0].burst = 1), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.irqs[0].interval_ns = 1), Damage::Interrupt(1));
}

#[test]
fn reads_cells() {
    let (header, tables) = divided();
    let bytes = Aligned::new(&tables.pack(header));
    let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
    assert_sound(&system, false);
    let linux = system.vm(1).unwrap();
    assert_eq!(system.classes_of(&linux).to_string(), "4-7");
    assert_eq!(system.hypervisor_classes().to_string(), "8-15");
    let ram = PageSpan { pa: linux.regions[0].pa, len: linux.regions[0].len };
    let mut pages = system.pages(&linux, ram);
    assert_eq!((pages.total(), pages.end()), (512, Some(0x4100_0000 + 0x80_0000 - 0x8000)));
    assert_eq!(pages.next_run(), Some(0x4100_4000..0x4100_8000));
    assert_eq!(system.hypervisor_pages().total(), 512);
}

/// A budget of the first VM's, from the PMU, and one of the second's that the first leaves
/// something to.
fn regulated() -> PackedTables {
    let mut tables = tables();
    tables.vms[0].regulation = Regulation {
        period_ns: 100_000,
        reads: 1000,
        writes: u64::MAX,
        poll_ns: 1000,
        access_ns: 1,
        least: 1,
        most: 2000,
        events: [0x17, 0],
        weights: [1; 8],
        source: regulation::COUNTER_PAGE,
        debt: 1,
        critical: regulation::NO_VM,
        setter: 1,
        ..Regulation::default()
    };
    tables.vms[1].regulation = Regulation {
        kind: regulation::COMPENSATION,
        window: 10,
        critical: 0,
        setter: regulation::NO_VM,
        ..tables.vms[0].regulation
    };
    tables
}

#[test]
fn budgets_that_cannot_be_regulated_are_refused() {
    let parse = |tables: &PackedTables| {
        let image = Aligned::new(&tables.pack(header()));
        PackedSystem::parse(image.bytes(), false).map(|system| system.setting(1, 1))
    };
    let setting = parse(&regulated()).expect("it is good").expect("it is regulated");
    assert_eq!((setting.budget.reads, setting.budget.writes), (1000, u64::MAX));
    assert_eq!((setting.vcpu, setting.vcpus, setting.critical_vcpus), (1, 2, 1));
    let damaged = |vm: usize, damage: fn(&mut Regulation)| {
        let mut tables = regulated();
        damage(&mut tables.vms[vm].regulation);
        assert_eq!(parse(&tables), Err(Damage::Bandwidth(vm as u32)), "{:?}", tables.vms[vm]);
    };
    damaged(0, |its| its.period_ns = 0);
    damaged(0, |its| its.period_ns = 999);
    damaged(0, |its| its.period_ns = u64::MAX);
    damaged(0, |its| its.reads = 0);
    damaged(0, |its| its.poll_ns = 0);
    damaged(0, |its| its.poll_ns = 100_001);
    damaged(0, |its| its.access_ns = 0);
    damaged(0, |its| its.least = 0);
    damaged(0, |its| its.setter = 2);
    damaged(0, |its| its.kind = 4);
    damaged(0, |its| its.source = 2);
    damaged(0, |its| its.debt = 2);
    damaged(0, |its| its.staggered = 2);
    damaged(1, |its| its.critical = 1);
    damaged(1, |its| its.critical = 9);
    damaged(1, |its| its.window = 0);
    damaged(1, |its| its.weights = [0; 8]);
}

/// Both VMs on core 1: the second's first vCPU, and the first.
fn shared(kind: u32) -> PackedTables {
    let mut tables = tables();
    tables.vms[0].cores[0] = 1;
    let table = kind == schedule::TIME_TABLE;
    let at = |table_at: u64| match kind {
        schedule::ROUND_ROBIN => 0,
        schedule::TIME_TABLE => table_at,
        _ => 100_000,
    };
    let slot = |vm, at_ns, length_ns| Slot { vm, reserved: 0, length_ns, at_ns };
    tables.slots = vec![slot(1, at(0), 20_000), slot(0, at(30_000), 30_000)];
    if table {
        tables.slots.push(slot(1, 80_000, 20_000));
    }
    tables.schedules = vec![PackedSchedule {
        core: 1,
        kind,
        frame_ns: if table { 100_000 } else { 0 },
        first_slot: 0,
        slots: tables.slots.len() as u32,
    }];
    tables
}

#[test]
fn schedules_set_the_vm_on_the_core() {
    for (kind, second, round) in [
        (schedule::ROUND_ROBIN, (Some(1), 65_000), 50_000),
        (schedule::TIME_TABLE, (Some(1), 60_000), 100_000),
        (schedule::FIXED_PRIORITY, (Some(1), 65_000), 100_000),
    ] {
        let bytes = Aligned::new(&shared(kind).pack(header()));
        let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
        assert!(system.shared(0).is_none() && system.shared(2).is_none());
        assert!(system.is_shared(1) && !system.is_shared(0));
        // Each has core 1, and core 2 has no VM.
        assert_eq!([0, 1, 2].map(|vm| system.round(vm, 2).0), [round, round, 0], "{kind}");
        assert_eq!(system.round(0, 1).0, 0);
        // 40 us are three halves of 30 us, and two of what the second has.
        let served = [0, 1, 2].map(|vm| system.served(vm, Nanos(40_000)).0);
        let rounds = if kind == schedule::TIME_TABLE { 3 } else { 5 };
        assert_eq!(served, [4 * round, rounds * round, 40_000], "{kind}");
        let mut shared = system.shared(1).unwrap();
        assert_eq!(shared.vms(), [1, 0]);
        assert_eq!(
            (shared.entity(0), shared.entity(1), shared.entity(2)),
            (Some(1), Some(0), None)
        );
        let both = Ready::of([0, 1]);
        let first = shared.scheduler.step(Nanos(0), both);
        assert_eq!(first, Decision { run: Some(0), until: Nanos(20_000) });
        let Decision { run, until } = shared.scheduler.step(Nanos(35_000), both);
        assert_eq!((run, until.0), second, "{kind}");
    }
}

#[test]
fn schedules_that_cannot_be_run_are_refused() {
    let damage = |kind: u32, damage: &dyn Fn(&mut PackedTables)| {
        let mut tables = shared(kind);
        damage(&mut tables);
        parse(&tables.pack(header())).expect_err("the damage was not seen")
    };
    let all = [schedule::ROUND_ROBIN, schedule::TIME_TABLE, schedule::FIXED_PRIORITY];
    for kind in all {
        let damaged = |change: &dyn Fn(&mut PackedTables)| {
            assert_eq!(damage(kind, change), Damage::Schedule(1), "{kind}");
        };
        damaged(&|tables| tables.schedules[0].slots = 0);
        damaged(&|tables| tables.schedules[0].slots = 9);
        damaged(&|tables| tables.schedules[0].first_slot = u32::MAX);
        damaged(&|tables| tables.schedules[0].kind = 3);
        damaged(&|tables| tables.schedules[0].frame_ns = u64::MAX);
        damaged(&|tables| tables.slots[0].length_ns = 9_999);
        damaged(&|tables| tables.slots[1].length_ns = u64::MAX);
        damaged(&|tables| tables.slots[1].at_ns = 1);
        damaged(&|tables| tables.slots[0].reserved = 1);
        damaged(&|tables| tables.slots[1].vm = 2);
        damaged(&|tables| tables.slots[1].vm = 1);
        damaged(&|tables| tables.schedules.push(tables.schedules[0]));
        // The first VM is not there any more; the second is.
        damaged(&|tables| tables.vms[0].cores[0] = 0);
        let elsewhere = |tables: &mut PackedTables| tables.schedules[0].core = 4;
        assert_eq!(damage(kind, &elsewhere), Damage::Cores(1));
        let unshared = |tables: &mut PackedTables| tables.schedules.clear();
        assert_eq!(damage(kind, &unshared), Damage::Cores(1));
        let twice = |tables: &mut PackedTables| tables.vms[1].cores[1] = 1;
        assert_eq!(damage(kind, &twice), Damage::Cores(1));
        let ticks = |tables: &mut PackedTables| tables.vms[1].ticks = 2;
        assert_eq!(damage(kind, &ticks), Damage::Choice(1));
    }
}

#[test]
fn colors_fix_the_address_bits_that_separate_them() {
    let promised = |change: &dyn Fn(&mut PackedHeader, &mut PackedTables)| {
        let (mut header, mut tables) = divided();
        change(&mut header, &mut tables);
        let bytes = Aligned::new(&tables.pack(header));
        PackedSystem::parse(bytes.bytes(), false).map(|system| system.promised_colors())
    };
    // 0-3, 4-7 and 8-15: bits 12 and 13 have no effect.
    assert_eq!(promised(&|_, _| {}), Ok(0xc000));
    // One color of these less, and each bit has an effect.
    assert_eq!(promised(&|header, _| header.classes = [0x7f00, 0, 0, 0]), Ok(0xf000));
    // Apart by banks, each with both colors of each bit.
    let banked = |header: &mut PackedHeader, _: &mut PackedTables| {
        header.functions.colors = 0x3000;
        header.functions.banks[..2].copy_from_slice(&[1 << 14, 1 << 15]);
    };
    assert_eq!(promised(&banked), Ok(0));
}

#[test]
fn refuses_each_kind_of_damage_to_page_classes() {
    assert_eq!(damaged_classes(|header, _| header.functions.banks[0] = 1 << 41), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.functions.colors = 1), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.classes[0] = 0), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.classes[1] = 1), Damage::Geometry);
    assert_eq!(damaged_classes(|_, tables| tables.vms[1].classes[3] = 1), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.colored = 2), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.colored = 0), Damage::Geometry);
    assert_eq!(damaged(|header, _| header.memory.len = PAGE), Damage::Geometry);
    assert_eq!(damaged(|_, tables| tables.vms[0].classes[0] = 1), Damage::Geometry);
    assert_eq!(damaged(|_, tables| tables.vms[0].own.len = PAGE), Damage::Geometry);
    assert_eq!(damaged(|_, tables| tables.vms[1].pristine.pa = PAGE), Damage::Geometry);
    assert_eq!(damaged_classes(|header, _| header.memory.len = 0), Damage::Geometry);
    assert_eq!(damaged_classes(|_, tables| tables.vms[0].own.len = 0), Damage::Geometry);
    assert_eq!(damaged_classes(|_, tables| tables.vms[0].own.pa += 0x4000), Damage::Address(0));
    assert_eq!(damaged_classes(|_, tables| tables.vms[0].own.pa += 8), Damage::Address(0));
    assert_eq!(
        damaged_classes(|_, tables| tables.vms[1].pristine.len = 1 << 40),
        Damage::Address(1)
    );
    assert_eq!(
        damaged_classes(|_, tables| tables.vms[1].pristine.len = 1 << 29),
        Damage::Address(1)
    );
    assert_eq!(damaged_classes(|header, _| header.memory_end = 0x4100_0000), Damage::Address(0));
    assert_eq!(damaged_classes(|_, tables| tables.vms[0].uart = 1 << 39), Damage::Address(0));
    assert_eq!(damaged_classes(|_, tables| tables.regions[2].ipa = 1 << 39), Damage::Address(1));
    assert_eq!(
        damaged_classes(|_, tables| tables.segments[0].kept = 0x10_f000),
        Damage::Segment(0)
    );
    assert_eq!(damaged_classes(|_, tables| tables.segments[0].kept = u64::MAX), Damage::Segment(0));
    // Interleaved with no owner of the same page classes, nor with the image.
    assert_eq!(
        damaged_classes(|_, tables| tables.vms[1].classes = tables.vms[0].classes),
        Damage::Address(1)
    );
    assert_eq!(damaged_classes(|_, tables| tables.vms[1].classes[0] |= 1), Damage::Overlap(1));
    assert_eq!(damaged_classes(|header, _| header.classes[0] |= 1), Damage::Overlap(0));
    assert_eq!(
        damaged_classes(|_, tables| tables.vms[0].pristine.pa = 0x4030_1000),
        Damage::Overlap(0)
    );
    assert_eq!(damaged_classes(|_, tables| tables.regions[0].pa = 0x4020_0000), Damage::Overlap(0));
    assert_eq!(damaged_classes(|_, tables| tables.regions[2].pa = 0x4100_5000), Damage::Overlap(1));
}

#[test]
fn refuses_what_two_vms_cannot_share() {
    assert_eq!(damaged(|_, tables| tables.irqs[0].intid = 31), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.irqs[0].intid = 256), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.irqs[0].intid = 33), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.vms[0].irqs = 1), Damage::Interrupt(1));
    assert_eq!(damaged(|_, tables| tables.vms[0].uart_intid = 300), Damage::Interrupt(0));
    assert_eq!(damaged(|_, tables| tables.regions[0].pa = 0x4020_0000), Damage::Overlap(0));
    assert_eq!(damaged(|_, tables| tables.regions[1].pa = 0x405f_f000), Damage::Overlap(1));
    assert_eq!(damaged(|_, tables| tables.regions[2].pa = 0x4060_0000), Damage::Overlap(1));
    assert_eq!(damaged(|_, tables| tables.vms[0].on_fault = 3), Damage::Choice(0));
    assert_eq!(damaged(|_, tables| tables.regions[0].kind = 4), Damage::Choice(0));
    assert_eq!(damaged(|_, tables| tables.vms[0].focus = 2), Damage::Choice(0));
}

/// The first VM has the second one's device, too, if both state that it is handed over.
fn active(change: impl FnOnce(&mut PackedHeader, &mut PackedTables)) -> Result<usize, Damage> {
    let (mut header, mut tables) = (header(), tables());
    tables.regions[2].kind = ACTIVE;
    tables.irqs[0].active = 1;
    tables.regions.insert(1, tables.regions[2]);
    tables.irqs.insert(0, tables.irqs[0]);
    tables.vms[0] = PackedVm { regions: 2, irqs: 1, ..tables.vms[0] };
    tables.vms[1] = PackedVm { first_region: 2, first_irq: 1, ..tables.vms[1] };
    change(&mut header, &mut tables);
    parse(&tables.pack(header))
}

#[test]
fn a_shared_device_is_shared_for_all_its_vms() {
    assert_eq!(active(|_, _| ()), Ok(2));
    assert_eq!(active(|_, tables| tables.irqs[0].active = 0), Err(Damage::Interrupt(1)));
    assert_eq!(active(|_, tables| tables.irqs[1].active = 2), Err(Damage::Interrupt(1)));
    assert_eq!(active(|_, tables| tables.irqs[1].preempt = 1), Err(Damage::Interrupt(1)));
    assert_eq!(active(|_, tables| tables.regions[1].kind = DEVICE), Err(Damage::Overlap(1)));
    assert_eq!(active(|_, tables| tables.regions[1].pa = 0x4060_0000), Err(Damage::Overlap(1)));
    // Its pages are where no page class determines the owner.
    assert_eq!(damaged_classes(|_, tables| tables.regions[2].kind = ACTIVE), Damage::Choice(1));
}

/// The two VMs with a flow, and their broker.
fn with_flow(change: impl FnOnce(&mut PackedHeader, &mut PackedTables)) -> Result<(), Damage> {
    let (mut header, mut tables) = (header(), tables());
    header.broker = 2;
    for vm in &mut tables.vms {
        (vm.vsock, vm.vsock_intid) = (0x0a00_0000, 48);
    }
    tables.vms.push(PackedVm { first_region: 3, regions: 2, ..vm("broker", &[3]) });
    tables.regions.push(Region { ipa: 0x4000_0000, pa: 0x4080_0000, len: 0x20_0000, kind: RAM });
    tables.regions.push(Region {
        ipa: EXCHANGE_IPA,
        pa: 0x40a0_0000,
        len: EXCHANGE_LEN,
        kind: EXCHANGE,
    });
    tables.flows.push(PackedFlow {
        from: 0,
        to: 1,
        port: 5000,
        size: 4096,
        period: 9,
        deadline: 9,
        rate: 0,
        first: 0,
        members: 1,
    });
    change(&mut header, &mut tables);
    PackedSystem::parse(Aligned::new(&tables.pack(header)).bytes(), false).map(|_| ())
}

/// The two VMs at a switch, and their broker.
fn with_switch(change: impl FnOnce(&mut PackedHeader, &mut PackedTables)) -> Result<(), Damage> {
    with_flow(|header, tables| {
        tables.flows.clear();
        for (index, vm) in tables.vms.iter_mut().enumerate().take(2) {
            (vm.vsock, vm.vsock_intid) = (0, 0);
            let mac = 2 * index as u64 + 2;
            vm.net = PackedNet { registers: 0x0a00_1000, mac, intid: 56, ..PackedNet::default() };
        }
        change(header, tables);
    })
}

#[test]
fn a_switch_has_a_broker() {
    assert_eq!(with_switch(|_, _| ()), Ok(()));
    let damaged = |vm, change: fn(&mut PackedHeader, &mut PackedTables)| {
        assert_eq!(with_switch(change), Err(Damage::Flow(vm)));
    };
    damaged(2, |header, _| header.broker = NO_BROKER);
    damaged(0, |header, tables| {
        header.broker = NO_BROKER;
        tables.vms.pop();
        tables.regions.truncate(3);
    });
    damaged(2, |_, tables| {
        tables.vms[2].net =
            PackedNet { registers: 0x0a00_1000, mac: 8, intid: 56, ..PackedNet::default() };
    });
}

/// The broker reads and writes the RAM of VMs in flows and at the switch, and has nothing of
/// another VM.
#[test]
fn the_broker_sees_the_vms_that_it_serves() {
    let seen = |change: fn(&mut PackedTables)| {
        let mut seen = Vec::new();
        let look = |header: &mut PackedHeader, tables: &mut PackedTables| {
            change(tables);
            let bytes = Aligned::new(&tables.pack(*header));
            let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
            seen = (0..3).map(|vm| system.window_attributes(&system.vm(vm).unwrap())).collect();
        };
        with_flow(look).unwrap();
        seen
    };
    let served = Some(stage2::WINDOW);
    assert_eq!(seen(|_| ()), [served, served, None]);
    let port = |tables: &mut PackedTables| {
        tables.vms[0].net =
            PackedNet { registers: 0x0a00_1000, mac: 2, intid: 56, ..PackedNet::default() };
    };
    assert_eq!(seen(port), [served, served, None]);
    assert_eq!(
        seen(|tables| {
            tables.flows.clear();
            for vm in &mut tables.vms {
                (vm.vsock, vm.vsock_intid) = (0, 0);
            }
            tables.vms[0].net =
                PackedNet { registers: 0x0a00_1000, mac: 2, intid: 56, ..PackedNet::default() };
        }),
        [served, None, None]
    );
}

#[test]
fn a_flow_has_two_ends_and_a_broker() {
    assert_eq!(with_flow(|_, _| ()), Ok(()));
    let damaged = |vm, change: fn(&mut PackedHeader, &mut PackedTables)| {
        assert_eq!(with_flow(change), Err(Damage::Flow(vm)));
    };
    damaged(0, |_, tables| tables.flows[0].to = 0);
    damaged(0, |_, tables| tables.flows[0].to = 2);
    damaged(9, |_, tables| tables.flows[0].from = 9);
    damaged(0, |_, tables| tables.flows[0].size = 0);
    damaged(0, |_, tables| tables.flows[0].period = 0);
    damaged(0, |_, tables| tables.flows[0].deadline = u64::MAX);
    damaged(0, |_, tables| tables.vms[1].vsock = 0);
    damaged(0, |_, tables| tables.flows[0].first = 1);
    damaged(0, |_, tables| tables.flows[0].members = 0);
    damaged(0, |_, tables| tables.flows[0].members = u32::MAX);
    damaged(0, |_, tables| {
        tables.flows[0].members = 2;
        tables.flows.push(tables.flows[0]);
    });
    damaged(0, |_, tables| tables.flows = vec![tables.flows[0]; 33]);
    damaged(0, |_, tables| tables.flows.clear());
    damaged(2, |header, _| header.broker = NO_BROKER);
    damaged(2, |_, tables| tables.regions[4].len = EXCHANGE_LEN - PAGE);
    damaged(2, |_, tables| tables.regions[4].ipa += PAGE);
    damaged(2, |_, tables| tables.regions[3].ipa = WINDOWS.start);
    damaged(1, |_, tables| tables.regions[2].kind = EXCHANGE);
    let address =
        |_: &mut PackedHeader, tables: &mut PackedTables| tables.vms[0].vsock = 0x0900_0000;
    assert_eq!(with_flow(address), Err(Damage::Address(0)));
    let address =
        |_: &mut PackedHeader, tables: &mut PackedTables| tables.vms[0].stolen_time = 0x0a00_0000;
    assert_eq!(with_flow(address), Err(Damage::Address(0)));
    let on_pci = |change: fn(&mut PackedTables)| {
        with_flow(|_, tables| {
            (tables.vms[0].vsock, tables.vms[0].vsock_ecam) = (0x3efe_c000, 0x40_1000_0000);
            change(tables);
        })
    };
    assert_eq!(on_pci(|_| ()), Ok(()));
    let wrong: [fn(&mut PackedTables); 8] = [
        |tables| tables.vms[0].vsock = 0x3efe_d000,
        |tables| tables.vms[0].vsock = 0x1_3efe_c000,
        |tables| tables.vms[0].vsock = 0,
        |tables| tables.vms[0].vsock = 0x3fff_c000 + 0x4000,
        |tables| tables.vms[0].vsock_ecam = 0x3000_0000,
        |tables| tables.vms[0].vsock_ecam = 0x4000_0000,
        |tables| tables.vms[0].vsock_ecam = 0x0900_0000,
        |tables| tables.vms[0].vsock_ecam = u64::MAX - 4095,
    ];
    for change in wrong {
        assert_eq!(on_pci(change), Err(Damage::Address(0)));
    }
    let with_function = |slot: u32, ecam: u64| {
        with_flow(|_, tables| {
            (tables.vms[0].vsock, tables.vms[0].vsock_ecam) = (0x3efe_c000, 0x40_1000_0000);
            tables.pci.push(PciFunction {
                vm: 0,
                address: slot << 3,
                stream: 1,
                reserved: 0,
                ecam,
                bars: 0x1000_0000,
                bars_len: 0x20_0000,
            });
        })
    };
    assert_eq!(with_function(2, 0x40_1000_0000), Ok(()));
    assert_eq!(with_function(31, 0x40_1000_0000), Err(Damage::Function(0)));
    assert_eq!(with_function(2, 0x40_2000_0000), Err(Damage::Function(0)));
    let line = |_: &mut PackedHeader, tables: &mut PackedTables| tables.vms[1].vsock_intid = 34;
    assert_eq!(with_flow(line), Err(Damage::Interrupt(1)));
}

/// The DMA engine moves chunks of flows: the broker's, and no longer ones than it may.
#[test]
fn an_engine_has_flows_and_a_broker() {
    let engine = |header: &mut PackedHeader| {
        (header.engine_from, header.engine_limit) = (0, ENGINE_LIMIT);
    };
    assert_eq!(with_flow(|header, _| engine(header)), Ok(()));
    assert_eq!(
        with_flow(|header, _| {
            engine(header);
            header.chunk = ENGINE_CHUNK;
        }),
        Ok(())
    );
    let too_long = |header: &mut PackedHeader, _: &mut PackedTables| {
        engine(header);
        header.chunk = ENGINE_CHUNK + 1;
    };
    assert_eq!(with_flow(too_long), Err(Damage::Flow(0)));
    let core = |header: &mut PackedHeader, _: &mut PackedTables| header.chunk = ENGINE_CHUNK + 1;
    assert_eq!(with_flow(core), Ok(()));
    assert_eq!(with_switch(|header, _| engine(header)), Err(Damage::Flow(0)));
    assert_eq!(damaged(|header, _| engine(header)), Damage::Flow(0));
    for (level, is_good) in [(ENGINE_LEVELS, true), (ENGINE_LEVELS + 1, false)] {
        let leveled = with_flow(|header, _| {
            engine(header);
            header.engine_level = level;
        });
        assert_eq!(leveled, if is_good { Ok(()) } else { Err(Damage::Flow(0)) });
    }
    for (limit, is_good) in [(0, false), (1, true), (ENGINE_LIMIT + 1, false)] {
        let limited = with_flow(|header, _| {
            engine(header);
            header.engine_limit = limit;
        });
        assert_eq!(limited, if is_good { Ok(()) } else { Err(Damage::Flow(0)) });
    }
    assert_eq!(with_flow(|header, _| header.engine_limit = 1), Err(Damage::Flow(0)));
    assert_eq!(with_flow(|header, _| header.engine_level = 1), Err(Damage::Flow(0)));
    let bytes = Aligned::new(&tables().pack(PackedHeader { engine_from: 1, ..header() }));
    let built = |parts| PackedSystem::parse_with(bytes.bytes(), false, parts, checksum).map(|_| ());
    assert_eq!(built(Features::BROKER), Err(Damage::Flow(0)));
    assert_eq!(built(Features::NONE), Err(Damage::Feature("broker")));
}

/// A hypervisor that takes all pages for one page class does not take memory that is divided.
#[test]
fn divided_memory_needs_page_classes() {
    let bytes = Aligned::new(&tables().pack(PackedHeader { colored: 1, ..header() }));
    let built = |parts| PackedSystem::parse_with(bytes.bytes(), false, parts, checksum).map(|_| ());
    assert_eq!(built(Features::NONE), Err(Damage::Feature("page-classes")));
    assert_eq!(built(Features::PAGE_CLASSES), Err(Damage::Segment(0)), "kept nowhere");
}

/// One flow to two receivers: an entry for each, consecutive, alike but for the receiver.
#[test]
fn a_flow_to_several_has_an_entry_for_each() {
    let parsed = |change: fn(&mut Vec<PackedFlow>)| {
        with_flow(|header, tables| {
            (header.cores, header.broker) = (5, 3);
            let broker = tables.vms.pop().unwrap();
            let third = PackedVm { first_region: 5, regions: 1, ..vm("c", &[4]) };
            tables.vms.push(PackedVm { vsock: 0x0a00_0000, vsock_intid: 48, ..third });
            tables.vms.push(broker);
            let ipa = 0x4000_0000;
            tables.regions.push(Region { ipa, pa: 0x40c0_0000, len: 0x20_0000, kind: RAM });
            let flow = PackedFlow { members: 2, ..tables.flows[0] };
            tables.flows = vec![flow, PackedFlow { to: 2, ..flow }];
            change(&mut tables.flows);
        })
    };
    assert_eq!(parsed(|_| ()), Ok(()));
    let wrong: [fn(&mut Vec<PackedFlow>); 6] = [
        |flows| flows[1].to = 1,
        |flows| flows[1].port = 5001,
        |flows| flows[1].deadline = 8,
        |flows| flows[1].first = 1,
        |flows| flows[0].members = 3,
        |flows| _ = flows.pop(),
    ];
    for change in wrong {
        assert_eq!(parsed(change), Err(Damage::Flow(0)));
    }
    let alone: fn(&mut Vec<PackedFlow>) = |flows| {
        flows[0].members = 1;
        (flows[1].first, flows[1].members) = (1, 1);
    };
    assert_eq!(parsed(alone), Ok(()));
    let flow = PackedFlow { to: 2, first: 4, members: 2, ..PackedFlow::default() };
    assert_eq!(
        (flow.destination(), PackedFlow { members: 1, ..flow }.destination()),
        (Cid(260), Cid(5))
    );
}

/// What the broker sees of a VM is as long as the VM's RAM, and no other VM's.
#[test]
fn the_brokers_windows_are_apart() {
    let mut header = header();
    header.broker = NO_BROKER;
    let bytes = Aligned::new(&tables().pack(header));
    let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
    let seen = [0, 1].map(|index| {
        let vm = system.vm(index).unwrap();
        let first = vm.broker_address(0x4000_0000, 0x20_0000).unwrap();
        assert_eq!(vm.broker_address(0x401f_fff0, 16), Some(first + 0x1f_fff0));
        assert_eq!(vm.broker_address(0x401f_fff0, 17), None);
        assert_eq!(vm.broker_address(0x3fff_ffff, 1), None);
        assert_eq!(vm.broker_address(u64::MAX, 2), None);
        assert!(WINDOWS.contains(&first) && first.is_multiple_of(0x20_0000));
        first
    });
    assert!(seen[1] >= seen[0] + 0x20_0000);
    assert_eq!(system.vm(1).unwrap().cid(), Cid(4));
}

/// RAM that lies in two places, where memory is divided, is one piece for the VM and for its
/// devices.
#[test]
fn the_brokers_window_has_no_seam_where_ram_has_none() {
    let mut header = header();
    header.broker = NO_BROKER;
    let mut tables = tables();
    for (place, region) in tables.regions[..2].iter_mut().enumerate() {
        let offset = place as u64 * 0x10_0000;
        *region = Region { ipa: 0x4000_0000 + offset, len: 0x10_0000, ..*region };
    }
    tables.vms[0].regions = 2;
    let other = Region { ipa: 0x4000_0000, pa: 0x4080_0000, len: 0x20_0000, kind: RAM };
    tables.regions.insert(2, other);
    tables.vms[1].first_region = 2;
    let bytes = Aligned::new(&tables.pack(header));
    let system = PackedSystem::parse(bytes.bytes(), false).unwrap();
    let vm = system.vm(0).unwrap();
    let first = vm.broker_address(0x4000_0000, 1).unwrap();
    assert_eq!(vm.broker_address(0x400f_fff0, 32), Some(first + 0xf_fff0), "over the seam");
    assert_eq!(vm.broker_address(0x4000_0000, 0x20_0000), Some(first));
    assert_eq!(vm.broker_address(0x4000_0000, 0x20_0001), None);
}

/// A GICv2 board has a CPU interface of 8 KiB where a GICv3 board has 128 KiB for each vCPU.
#[test]
fn the_gic_takes_its_room() {
    let mut tables = tables();
    tables.vms[1].uart = 0x080d_f000;
    let bytes = Aligned::new(&tables.pack(header()));
    assert_eq!(PackedSystem::parse(bytes.bytes(), false).unwrap_err(), Damage::Address(1));
    assert!(PackedSystem::parse(bytes.bytes(), true).is_ok());
}

fn apart(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.end <= b.start || b.end <= a.start
}

/// The invariants of everything that passes, without the parser's own helpers.
fn assert_sound(system: &PackedSystem<'_>, gic_v2: bool) {
    let header = system.header;
    let image = header.load_address..header.load_address + header.image_len;
    let mut physical = vec![image];
    let mut pages = BTreeSet::new();
    let classes = system.classes();
    let divided = system.is_divided();
    let mut claim = |set: &ClassSet, span: PageSpan| {
        let mut at = span.pa;
        for _ in 0..(span.len / PAGE).min(4096) {
            while !set.contains(classes.class_of(at)) {
                at += PAGE;
            }
            assert!(at < header.memory_end, "beyond RAM");
            assert!(pages.insert(at), "page {at:#x} has two owners");
            at += PAGE;
        }
    };
    if divided {
        claim(&system.hypervisor_classes(), header.memory);
    }
    if header.engine_from != NO_ENGINE {
        assert!(system.broker().is_some() && !system.flows().is_empty(), "an engine for nothing");
        assert!(header.chunk <= ENGINE_CHUNK && header.engine_level <= ENGINE_LEVELS);
    }
    let mut cores: Vec<u8> = Vec::new();
    let mut irqs = Vec::new();
    for vm in (0..system.vms()).map(|index| system.vm(index).unwrap()) {
        let gic_cpu_len = if gic_v2 { 0x2000 } else { 0x2_0000 * u64::from(vm.vm.vcpus) };
        let mut seen = vec![
            vm.vm.distributor..vm.vm.distributor + 0x1_0000,
            vm.vm.gic_cpu..vm.vm.gic_cpu + gic_cpu_len,
            vm.vm.uart..vm.vm.uart + PAGE,
        ];
        for region in vm.regions {
            assert_eq!((region.ipa | region.pa | region.len) % PAGE, 0);
            let range = region.pa..region.pa + region.len;
            assert!(range.start < range.end && range.end <= ADDRESS_LIMIT);
            if divided && region.kind == RAM {
                claim(&system.classes_of(&vm), PageSpan { pa: region.pa, len: region.len });
            } else {
                assert!(physical.iter().all(|other| apart(other, &range)), "physical overlap");
                physical.push(range);
            }
            let range = region.ipa..region.ipa + region.len;
            assert!(seen.iter().all(|other| apart(other, &range)), "overlap in a VM");
            seen.push(range);
        }
        for segment in vm.segments {
            assert!(segment.offset + segment.len <= header.image_len);
            if segment.len > 0 {
                assert!(vm.is_ram(segment.ipa) && vm.is_ram(segment.ipa + segment.len - 1));
            }
        }
        for span in [vm.vm.own, vm.vm.pristine] {
            claim(&system.classes_of(&vm), span);
            assert!(divided || span == PageSpan::default());
        }
        let kept = vm.segments.iter().map(|segment| segment.kept + segment.len);
        assert!(!divided || kept.into_iter().all(|end| end <= vm.vm.pristine.len));
        assert!(seen.iter().all(|range| range.end <= ADDRESS_LIMIT));
        assert!(!vm.cores().is_empty());
        let own = vm.cores().iter().filter(|core| system.shared(usize::from(**core)).is_none());
        cores.extend(own);
        irqs.extend(vm.irqs.iter().map(|irq| irq.intid));
        assert!(vm.irqs.iter().all(|irq| irq.intid != vm.vm.uart_intid));
    }
    for page in pages {
        assert!(physical.iter().all(|range| !range.contains(&page)), "page {page:#x} is taken");
    }
    for core in 0..8 {
        let Some(mut shared) = system.shared(core) else { continue };
        for now in [0, 1, 100_000, u64::MAX] {
            let run = shared.scheduler.step(Nanos(now), Ready::of(0..8)).run;
            let Some(vm) = run.map(|entity| shared.vms()[usize::from(entity)]) else { continue };
            let vm = system.vm(vm.into()).unwrap();
            assert!(vm.cores().iter().any(|its| usize::from(*its) == core), "it has no vCPU there");
        }
    }
    let all = (cores.len(), irqs.len());
    cores.sort_unstable();
    cores.dedup();
    irqs.sort_unstable();
    irqs.dedup();
    assert_eq!((cores.len(), irqs.len()), all, "a core or an interrupt has two owners");
    assert!(cores.iter().all(|core| u32::from(*core) < header.cores));
}

/// Addresses near one another, so that some tables pass and most almost do.
fn near() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u64..32).prop_map(|block| 0x4000_0000 + block * 0x20_0000),
        1 => (0u64..8).prop_map(|page| 0x0900_0000 + page * PAGE),
        1 => any::<u64>(),
    ]
}

prop_compose! {
    fn region()(
        ipa in near(), pa in near(), len in prop_oneof![9 => Just(0x20_0000u64), 1 => any::<u64>()],
        kind in 0u64..2,
    ) -> Region {
        Region { ipa, pa, len, kind }
    }
}

prop_compose! {
    fn any_vm()(
        cores in prop::collection::vec(0u8..5, 1..3), uart in near(),
        gic_cpu in prop_oneof![9 => Just(0x080a_0000), 1 => near()], first_region in 0u32..4,
        regions in 0u32..3, first_segment in 0u32..3, segments in 0u32..3, first_irq in 0u32..3,
        irqs in 0u32..2,
    ) -> PackedVm {
        PackedVm {
            uart,
            gic_cpu,
            first_region,
            regions,
            first_segment,
            segments,
            first_irq,
            irqs,
            ..vm("x", &cores)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), gic_v2: bool) {
        let bytes = Aligned::new(&bytes);
        if let Ok(system) = PackedSystem::parse(bytes.bytes(), gic_v2) {
            assert_sound(&system, gic_v2);
        }
    }

    /// Bytes changed anywhere, with a check sum that fits them: what is left must still be sound.
    #[test]
    fn changed_tables_pass_only_when_sound(
        changes in prop::collection::vec((16usize..1100, any::<u8>()), 0..4), gic_v2: bool,
        kind in 0..4u32,
    ) {
        let mut bytes = if kind < 3 { shared(kind) } else { tables() }.pack(header());
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let end = (u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize).min(bytes.len());
        let sum = checksum(bytes.get(16..end).unwrap_or(&[]));
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        let bytes = Aligned::new(&bytes);
        if let Ok(system) = PackedSystem::parse(bytes.bytes(), gic_v2) {
            assert_sound(&system, gic_v2);
        }
    }

    #[test]
    fn random_tables_pass_only_when_sound(
        vms in prop::collection::vec(any_vm(), 1..4),
        regions in prop::collection::vec(region(), 4..6),
        segments in prop::collection::vec((near(), 0u64..0x20_0000, 0u64..0x20_0000), 3..5),
        irqs in prop::collection::vec(30u32..40, 3..4),
        gic_v2: bool,
    ) {
        let tables = PackedTables {
            vms,
            regions,
            segments: segments
                .into_iter()
                .map(|(ipa, offset, len)| PackedSegment { ipa, offset, len, kept: 0 })
                .collect(),
            irqs: irqs.into_iter().map(|intid| Irq::new(intid, false)).collect(),
            ..PackedTables::default()
        };
        let bytes = Aligned::new(&tables.pack(header()));
        if let Ok(system) = PackedSystem::parse(bytes.bytes(), gic_v2) {
            assert_sound(&system, gic_v2);
        }
    }

    /// Page classes of all kinds, and spans near one another.
    #[test]
    fn divided_memory_passes_only_when_it_is(
        sets in prop::collection::vec(1u64..256, 3), all in prop::array::uniform4(any::<u64>()),
        odd: bool, banks in prop::array::uniform3((12u32..16, 12u32..26)),
        places in prop::collection::vec((0u64..64, 1u64..40), 7),
    ) {
        let mut functions = Functions { colors: 0x3000, banks: [0; 8] };
        for (slot, (low, high)) in functions.banks.iter_mut().zip(banks) {
            *slot = 1 << low | 1 << high;
        }
        let (mut header, mut tables) = divided();
        header.functions = functions;
        let geometry = Geometry { colors: functions.colors, banks: functions.banks };
        let classes = PageClasses::new(&geometry).unwrap_or(PageClasses::ONE);
        let within = |word: u64| {
            let set =
                ClassSet::new([word, 0, 0, 0]).and_then(|set| set.intersection(&classes.all()));
            set.unwrap_or(classes.all())
        };
        let sets: Vec<_> = sets.into_iter().map(within).collect();
        let span = |set: &ClassSet, place: usize| {
            let (page, len) = places[place];
            let start = (0x4030_0000 / PAGE + 4 * page..).map(|page| page * PAGE);
            let first = start.clone().find(|&at| set.contains(classes.class_of(at)));
            PageSpan { pa: first.unwrap_or(0), len: len * PAGE }
        };
        header.classes = if odd { all } else { sets[0].words() };
        header.memory = span(&sets[0], 0);
        for (place, vm) in tables.vms.iter_mut().enumerate() {
            let set = &sets[place + 1];
            vm.classes = set.words();
            vm.own = span(set, 3 * place + 1);
            vm.pristine = span(set, 3 * place + 2);
            let ram = span(set, 3 * place + 3);
            tables.regions[place] =
                Region { ipa: 0x4000_0000, pa: ram.pa, len: ram.len, kind: RAM };
        }
        tables.segments.fill(PackedSegment { ipa: 0x4000_0000, offset: 0, len: PAGE, kept: 0 });
        let bytes = Aligned::new(&tables.pack(header));
        if let Ok(system) = PackedSystem::parse(bytes.bytes(), false) {
            assert_sound(&system, false);
        }
    }
}

#[test]
fn a_poll_waits_no_longer_than_crossing_accesses_take() {
    for events in [0, 1, 2, 32, 33, 34, 1000, 1_000_000, u64::MAX] {
        let time = u128::from(regulation::least_time(events, 1));
        // Sixteen instructions make 33 events at most.
        assert!(time * 33 <= u128::from(events) * 16, "{events}");
        assert!((time + 1) * 33 > u128::from(events) * 16, "{events}");
    }
    assert_eq!(regulation::least_time(3300, 2), 3200);
    assert_eq!(regulation::least_time(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn accesses_between_two_polls_are_bounded_exactly() {
    for (time, access) in [(1000, 1), (0, 1), (1, 1), (15, 1), (16, 1), (1000, 3), (1_000_000, 7)] {
        let most = regulation::most_events(time, access);
        assert!(regulation::least_time(most, access) <= time, "{time} {access}");
        assert!(regulation::least_time(most + 1, access) > time, "{time} {access}");
    }
    assert_eq!(regulation::most_events(1000, 1), 2064);
    assert_eq!(regulation::most_events(u64::MAX, 1), u64::MAX);
    assert_eq!(regulation::most_events(1, 0), u64::MAX);
}
