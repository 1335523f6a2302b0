use super::*;
use crate::{Catalog, HypervisorSize, Payload, check_text, pack};
use std::path::Path;
use zerocopy::FromBytes;

/// An ELF file with one segment of 12 KiB at 0x4010_0000.
fn elf() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let halves = |file: &mut Vec<u8>, values: &[u16]| {
        for value in values {
            file.extend_from_slice(&value.to_le_bytes());
        }
    };
    let words = |file: &mut Vec<u8>, values: &[u32]| {
        for value in values {
            file.extend_from_slice(&value.to_le_bytes());
        }
    };
    let longs = |file: &mut Vec<u8>, values: &[u64]| {
        for value in values {
            file.extend_from_slice(&value.to_le_bytes());
        }
    };
    halves(&mut file, &[2, 183]);
    words(&mut file, &[1]);
    longs(&mut file, &[0x4010_0004, 64, 0]);
    words(&mut file, &[0]);
    halves(&mut file, &[64, 56, 1, 64, 0, 0]);
    words(&mut file, &[1, 5]);
    longs(&mut file, &[64 + 56, 0x4010_0000, 0x4010_0000, 0x2001, 0x3000, 0x1000]);
    file.resize(64 + 56 + 0x2001, 0xaa);
    file
}

/// The tables of a packed system of two VMs, in aligned words, and their bytes.
fn packed(system: &System) -> (Vec<u64>, usize) {
    let elf = elf();
    let payloads = [Payload { image: &elf, initrd: None }; 2];
    let hypervisor = HypervisorSize { file: 100_001, memory: 200_002 };
    let packed = pack(system, &payloads, hypervisor);
    let packed = packed.unwrap_or_else(|faults| panic!("{faults}"));
    (aligned(&packed.tables), packed.tables.len())
}

/// Foreign pages that the audit counts in the first VM's stage 2, if `planted` adds some to it,
/// and why it refuses them. They are chosen among the pages of the second VM and of the
/// hypervisor.
fn planted(colors: [&str; 2], attributes: Attributes, as_device: bool) -> (u64, String) {
    let vm = |name: &str, core: u32, colors: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"3MiB\"\n\
             image = {{ elf = \"g\" }}\n{colors}\n"
        )
    };
    let text =
        format!("platform = \"qemu-virt\"\n{}{}", vm("a", 0, colors[0]), vm("b", 1, colors[1]));
    let catalog = Catalog { guests: vec!["g".to_owned()], ..Catalog::default() };
    let system = check_text(Path::new("s.toml"), &text, &catalog);
    let system = system.unwrap_or_else(|faults| panic!("{faults}"));
    let (words, len) = packed(&system);
    let read = parse(&words.as_bytes()[..len], &system).expect("tables");
    let owners = owners(&read, &names(&system)).expect("owners");
    let first_of = |owner: usize| *owners.iter().find(|(_, its)| its.0 == owner).expect("a page").0;
    let foreign = [first_of(2), first_of(0)];
    let vm = read.vm(0).expect("a VM");
    let mut space = stage2_space(&read, &vm, None);
    if as_device {
        space.devices.extend(foreign.map(|page| page..page + PAGE));
    }
    let stolen_time = space.stolen_time;
    let check = |planted: &[u64]| {
        let map = |builder: &mut Builder<'_>| {
            read.map_stage2(builder, &vm, None, stolen_time)?;
            for (address, page) in (0x4030_0000..).step_by(PAGE as usize).zip(planted) {
                builder.map(address, *page, PAGE, attributes)?;
            }
            Ok(())
        };
        space.check(&system, &read, (0, &vm), &owners, map).expect("a whole stage 2").foreign
    };
    assert_eq!(check(&[]).pages, 0, "nothing was planted");
    let foreign = check(&foreign);
    let pages = foreign.pages;
    let refusal = Made { foreign: vec![foreign], ..Made::default() }.refusal();
    (pages, refusal.expect("a refusal"))
}

/// A system of two VMs on a board with a DMA engine.
fn on_zcu102(more: &str) -> System {
    let vm = |name: &str, core: u32| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"3MiB\"\n\
             image = {{ elf = \"g\" }}\n"
        )
    };
    let text = format!("platform = \"zcu102\"\n{}{}{more}", vm("a", 0), vm("b", 1));
    let catalog = Catalog { guests: vec!["g".to_owned()], ..Catalog::default() };
    let system = check_text(Path::new("s.toml"), &text, &catalog);
    system.unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn no_stage_2_maps_the_dma_engine() {
    let system = on_zcu102("");
    let (words, len) = packed(&system);
    let read = parse(&words.as_bytes()[..len], &system).expect("tables");
    let owners = owners(&read, &names(&system)).expect("owners");
    let vm = read.vm(0).expect("a VM");
    let foreign = |page: u64| {
        let mut space = stage2_space(&read, &vm, gicv(&system));
        space.devices.push(page..page + PAGE);
        let stolen_time = space.stolen_time;
        let map = |builder: &mut Builder<'_>| {
            read.map_stage2(builder, &vm, gicv(&system), stolen_time)?;
            builder.map(0x4030_0000, page, PAGE, stage2::DEVICE)
        };
        space.check(&system, &read, (0, &vm), &owners, map).expect("a whole stage 2").foreign
    };
    let engine = system.platform().dma_engine.as_ref().expect("an engine").base.0;
    assert_eq!([engine, engine + PAGE].map(|page| foreign(page).pages), [1, 0]);
}

#[test]
fn the_engines_interrupt_is_the_brokers() {
    let flow =
        "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\nperiod = \"1ms\"\n";
    let elf = elf();
    let payloads = [Payload { image: &elf, initrd: None }; 3];
    let hypervisor = HypervisorSize { file: 100_001, memory: 200_002 };
    let audited = |keys: &str, change: fn(&mut weir_abi::PackedHeader, &mut [weir_abi::Irq])| {
        let system = on_zcu102(&format!("[dma]\n{keys}\n{flow}"));
        let mut packed =
            pack(&system, &payloads, hypervisor).unwrap_or_else(|faults| panic!("{faults}"));
        let mut words = aligned(&packed.tables);
        let bytes = &mut words.as_mut_bytes()[..packed.tables.len()];
        let lines = {
            let read = parse(bytes, &system).expect("tables");
            let vms = (0..read.vms()).filter_map(|index| read.vm(index));
            let places = vms.flat_map(|vm| vm.irqs.iter().map(|irq| (irq.intid, irq.edge)));
            places.collect::<Vec<_>>()
        };
        let (header, rest) = weir_abi::PackedHeader::mut_from_prefix(bytes).expect("a header");
        let at = rest.len() - header.flows as usize * size_of::<weir_abi::PackedFlow>();
        let irqs = &mut rest[at - header.irqs as usize * size_of::<weir_abi::Irq>()..at];
        change(header, <[weir_abi::Irq]>::mut_from_bytes(irqs).expect("interrupts"));
        let crc = weir_abi::checksum(&bytes[16..]);
        weir_abi::PackedHeader::mut_from_prefix(bytes).expect("a header").0.crc = crc;
        packed.tables = bytes.to_vec();
        (lines, audit(&system, &packed).map(|_| ()))
    };
    let lacks = Err("broker lacks the interrupt of the DMA engine GDMA".to_owned());
    let has = Err("broker has the interrupt of the DMA engine GDMA".to_owned());
    let level = vec![(156, 0)];
    assert_eq!(audited("", |_, _| ()), (level.clone(), Ok(())));
    assert_eq!(audited("path = \"broker\"", |_, _| ()), (Vec::new(), Ok(())));
    assert_eq!(audited("", |_, irqs| irqs[0].intid += 1), (level.clone(), lacks));
    let without = |header: &mut weir_abi::PackedHeader, _: &mut [weir_abi::Irq]| {
        (header.engine_from, header.engine_limit) = (NO_ENGINE, 0);
    };
    assert_eq!(audited("", without), (level, has));
    // No piece is longer than a chunk.
    for (keys, is_used) in [
        ("engine_from = \"4KiB\"", true),
        ("engine_from = \"4097B\"", false),
        ("engine_from = \"5KiB\"\nchunk = \"8KiB\"", true),
    ] {
        assert_eq!(audited(keys, |_, _| ()).0.len(), usize::from(is_used), "{keys}");
    }
}

#[test]
fn planted_foreign_pages_are_counted_and_refused() {
    for colors in [["", ""], ["colors = \"0-3\"", "colors = \"4-7\""]] {
        for (attributes, as_device) in [
            (stage2::RAM, false),
            (stage2::DEVICE, false),
            (stage2::DEVICE, true),
            (stage2::WINDOW, false),
        ] {
            let (pages, refusal) = planted(colors, attributes, as_device);
            assert_eq!(pages, 2, "{colors:?} {attributes:?} {as_device}");
            assert!(
                refusal
                    .starts_with("a's stage 2 maps 2 pages that are not its own, the first at 0x"),
                "{refusal}"
            );
        }
    }
}
