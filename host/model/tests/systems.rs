//! The systems that weir brings along: they check, they satisfy the published schema, and the map
//! and the tables that come out are what the hypervisor accepts.

use crate::checkout::{guests, root, systems};
use crate::images;
use std::{fs, path::Path};
use weir_abi::regulation;
use weir_model::{
    Catalog, HypervisorSize, Image, ImageSource, MapOwner, Packed, Payload, Platform, System,
    TEMPLATE, audit, check_file, check_text, pack, place, platform::Machine, schema,
    timing::DataPath,
};
use zerocopy::IntoBytes;

/// The guests that there really are.
fn catalog() -> Catalog {
    Catalog { guests: guests(), ..Catalog::default() }
}

/// Images of the kinds that a system names, linked where weir's guests are.
fn payloads<'a>(
    system: &System,
    elf: &'a [u8],
    linux: &'a [u8],
    bin: &'a [u8],
) -> Vec<Payload<'a>> {
    let payload = |image: &Image| match image {
        Image::Elf { .. } => Payload { image: elf, initrd: None },
        Image::Bin { .. } => Payload { image: bin, initrd: None },
        Image::Linux { initrd, .. } => {
            Payload { image: linux, initrd: initrd.as_ref().map(|_| bin) }
        }
    };
    system.vms.iter().map(|vm| payload(&vm.image)).collect()
}

fn with_packed(system: &System, test: impl FnOnce(&Packed<'_>)) {
    let elf = images::elf(0x4010_0004, &[(0x4010_0000, 0x3000, &[0xaa; 0x2000])]);
    let linux = images::linux(0x1_0000, 0x18_0000, 0xa);
    let bin = vec![0x42; 0x1_2345];
    let packed = pack(system, &payloads(system, &elf, &linux, &bin), images::HYPERVISOR);
    test(&packed.unwrap_or_else(|faults| panic!("{faults}")));
}

#[test]
fn each_checks_on_both_platforms_and_packs() {
    for path in systems() {
        let system = check_file(&path, &catalog()).unwrap_or_else(|faults| panic!("{faults}"));
        assert!(
            system.vms.iter().all(|vm| !vm.expect.is_empty() || vm.name == "broker"),
            "{} expects nothing",
            path.display()
        );
        // Other boards have fewer cores and no PCI.
        let emulated =
            |platform: &Platform| ["qemu-virt", "qemu-virt-gicv2"].contains(&&*platform.name);
        for platform in Platform::all().into_iter().filter(emulated) {
            let v2 = platform.is_gic_v2();
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().find(|line| line.starts_with("platform = ")).unwrap();
            let text = text.replace(line, &format!("platform = {:?}", platform.name));
            let system =
                check_text(&path, &text, &catalog()).unwrap_or_else(|faults| panic!("{faults}"));
            with_packed(&system, |packed| {
                assert_whole(&system, packed, v2);
                audit(&system, packed)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            });
        }
    }
}

/// The tables pass the hypervisor's own check, and nothing in the image overlaps.
fn assert_whole(system: &System, packed: &Packed<'_>, v2: bool) {
    let image = packed.image(&vec![0xee; 100_001]);
    assert_eq!(image.len() as u64, packed.file_len);
    // The file has no byte of .bss and the stacks, and their memory has no other owner.
    let HypervisorSize { file, memory } = images::HYPERVISOR;
    let rest = memory.next_multiple_of(weir_abi::PAGE) - file.next_multiple_of(weir_abi::PAGE);
    assert_eq!(packed.image_len, packed.file_len + rest);
    let rows = &packed.placement.rows;
    let its = rows.iter().find(|row| row.address == system.platform().load_address).unwrap();
    assert_eq!((&its.owner, its.size.0), (&MapOwner::Hypervisor, packed.image_len));
    let mut words = vec![0u64; image.len().div_ceil(8)];
    words.as_mut_bytes()[..image.len()].copy_from_slice(&image);
    let tables = &words.as_bytes()[packed.tables_offset as usize..];
    let parsed = weir_abi::PackedSystem::parse(tables, v2).unwrap();
    assert_eq!(parsed.vms(), system.vms.len());
    assert_eq!(parsed.header.cores as usize, system.cores_needed());
    assert_eq!(parsed.header.load_address, system.platform().load_address.0);
    let mut end = packed.tables_offset + packed.tables.len() as u64;
    for (offset, bytes) in &packed.blobs {
        assert!(offset.is_multiple_of(weir_abi::PAGE) && *offset >= end, "blobs overlap");
        end = offset + bytes.len() as u64;
        assert_eq!(&image[*offset as usize..end as usize], bytes.as_ref());
    }
    for (index, vm) in system.vms.iter().enumerate() {
        let view = parsed.vm(index).unwrap();
        assert_eq!(view.name(), vm.name.as_bytes());
        // More would take minutes in a debug build.
        if vm.memory.iter().map(|piece| piece.size.0).sum::<u64>() <= 16 << 20 {
            assert_eq!(crc_of_ram(vm, &view, &image), packed.pristine_crc32c(index));
        }
        // 2 MiB blocks in stage 2 need both addresses to agree. Divided memory has none.
        let large = |region: &&weir_abi::Region| region.len >= 2 << 20 && !parsed.is_divided();
        for region in view.regions.iter().filter(large) {
            assert_eq!(region.ipa % (2 << 20), region.pa % (2 << 20), "{}", vm.name);
        }
        let tree =
            view.segments.iter().find(|segment| segment.ipa == vm.board.device_tree.0).unwrap();
        let tree = &image[tree.offset as usize..][..tree.len as usize];
        assert_eq!(tree, packed.device_trees[index]);
    }
}

/// The VM's RAM put together as the hypervisor does it, and its check sum.
fn crc_of_ram(vm: &weir_model::Vm, view: &weir_abi::VmView<'_>, image: &[u8]) -> u32 {
    let mut all = Vec::new();
    for piece in &vm.memory {
        let mut ram = vec![0; piece.size.0 as usize];
        for segment in view.segments {
            if let Some(start) =
                segment.ipa.checked_sub(piece.base.0).filter(|start| *start < piece.size.0)
            {
                let bytes = &image[segment.offset as usize..][..segment.len as usize];
                ram[start as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        all.extend_from_slice(&ram);
    }
    crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI).checksum(&all)
}

#[test]
fn the_template_is_a_system_of_two() {
    let path = root().join("host/model/src/template.toml");
    let system =
        check_text(&path, TEMPLATE, &catalog()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(system.vms.len(), 2);
    assert_eq!(fs::read_to_string(path).unwrap(), TEMPLATE);
    with_packed(&system, |packed| assert_whole(&system, packed, false));
}

/// TOML as JSON, for the validator.
fn json(value: &toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(value) => (*value).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[test]
fn the_schema_accepts_every_system_and_no_bad_keys() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let parse = |text: &str| json(&text.parse::<toml::Table>().map(toml::Value::Table).unwrap());
    for path in systems() {
        let text = fs::read_to_string(&path).unwrap();
        if let Err(error) = validator.validate(&parse(&text)) {
            panic!("{}: {error} at {}", path.display(), error.instance_path());
        }
    }
    assert!(validator.is_valid(&parse(TEMPLATE)));
    for name in [
        "keys-unknown",
        "memory-wrong-unit",
        "on-fault-unknown",
        "image-of-two-kinds",
        "wrong-types",
        "keys-missing",
        "core-over-8",
        "number-negative",
    ] {
        let path = root().join(format!("host/model/tests/broken/{name}.toml"));
        let text = fs::read_to_string(path).unwrap();
        assert!(!validator.is_valid(&parse(&text)), "{name}");
    }
    // Every key has a description.
    let vm = &schema()["properties"]["vm"]["items"]["properties"];
    assert!(vm.as_object().unwrap().values().all(|key| key["description"].is_string()));
}

fn check(text: &str) -> System {
    let directory = images::directory("place");
    check_text(&directory.join("x.toml"), text, &catalog())
        .unwrap_or_else(|faults| panic!("{faults}"))
}

fn vm(name: &str, core: usize, memory: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = {memory}\n\
         image = {{ bin = \"u-boot\" }}\n"
    )
}

#[test]
fn large_pieces_come_first_and_the_order_is_stable() {
    let system = check(&format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm(
            "small",
            0,
            "[{ base = 0x4000_0000, size = \"4MiB\" }, { base = 0x1000, size = \"64KiB\" }]"
        ),
        vm("odd", 1, "[{ base = 0x5010_0000, size = \"8MiB\" }]"),
        vm("large", 2, "\"512MiB\""),
    ));
    let placement = place(&system, 0x12_3456).unwrap();
    let expected = [
        "0x4000_0000 64KiB 0x0000_1000 small RAM",
        "0x4001_0000 1984KiB - - free",
        "0x4020_0000 1168KiB - weir image",
        "0x4032_4000 880KiB - - free",
        "0x4040_0000 4MiB 0x4000_0000 small RAM",
        "0x4080_0000 1MiB - - free",
        "0x4090_0000 8MiB 0x5010_0000 odd RAM",
        "0x4110_0000 1MiB - - free",
        "0x4120_0000 512MiB 0x4000_0000 large RAM",
        "0x6120_0000 1518MiB - - free",
    ];
    let rows: Vec<_> = placement.table().map(|row| row.join(" ")).collect();
    assert_eq!(rows, expected);
    assert_eq!(placement.header(), (vec!["address", "size", "seen at", "owner", "what"], 3));
    assert_eq!(place(&system, 0x12_3456).unwrap(), placement);
}

/// Of divided memory the pages are counted instead, in coloring.rs and by the audit.
#[test]
fn the_map_covers_all_ram_without_overlap() {
    for path in systems() {
        let system = check_file(&path, &catalog()).unwrap();
        if system.division.divided {
            continue;
        }
        let placement = place(&system, 40 << 20).unwrap();
        for pool in system.platform().pools() {
            let mut at = pool.start;
            for row in placement.rows.iter().filter(|row| pool.contains(&row.address.0)) {
                assert_eq!(row.address.0, at, "{}:\n{placement:?}", path.display());
                assert!(row.size.0 > 0);
                at += row.size.0;
            }
            assert_eq!(at, pool.end);
        }
        let rows = placement.rows.iter();
        let given = rows.filter(|row| row.what == "RAM" && matches!(row.owner, MapOwner::Vm(..)));
        assert_eq!(given.count(), system.vms.iter().map(|vm| vm.memory.len()).sum::<usize>());
    }
}

#[test]
fn what_fits_nowhere_is_a_fault() {
    let system = check(&format!(
        "platform = \"qemu-virt\"\n{}{}",
        vm("a", 0, "\"1GiB\""),
        vm("b", 1, "\"1000MiB\""),
    ));
    assert!(place(&system, 16 << 20).is_ok());
    let faults = place(&system, 30 << 20).unwrap_err();
    assert_eq!(faults.0.len(), 1);
    assert_eq!(faults.0[0].code.name(), "no-room");
    assert_eq!(faults.0[0].location().line, 10);
    assert_eq!(place(&system, 4 << 30).unwrap_err().0[0].code.name(), "no-room");
}

/// Two VMs, each with its memory and a key.
fn two(vms: &[(String, String); 2]) -> String {
    let [a, b] = [("a", 0), ("b", 1)].map(|(name, index)| {
        let (memory, key) = &vms[index];
        format!("{}{key}\n", vm(name, index, &format!("{memory:?}")))
    });
    format!("platform = \"qemu-virt\"\n{a}{b}")
}

#[test]
fn what_is_taken_and_what_is_left_are_all() {
    let vms = [("510MiB", "colors = \"0-3\""), ("100MiB", "")];
    let text = two(&vms.map(|(memory, key)| (memory.to_owned(), key.to_owned())));
    let faults = place(&check(&text), 8 << 20).unwrap_err();
    let size = |word: &str| {
        let kib = word.strip_suffix("KiB").map(|kib| (kib, 1));
        let (count, unit) = kib.or_else(|| word.strip_suffix("MiB").map(|mib| (mib, 1024)))?;
        Some(count.parse::<u64>().ok()? * unit)
    };
    let sizes = |text: &str| text.split([' ', ',']).filter_map(size).collect::<Vec<_>>();
    let fault = &faults.0[0];
    let [_, all, left] = sizes(&fault.message)[..] else { panic!("{fault:?}") };
    let taken = fault.help.as_ref().unwrap().split(';').next().unwrap();
    assert_eq!(sizes(taken).iter().sum::<u64>() + left, all, "{fault:?}");
}

#[test]
fn equal_blobs_are_stored_once_and_zeros_not_at_all() {
    let system = check(&format!(
        "platform = \"qemu-virt\"\n{}{}",
        vm("a", 0, "\"64MiB\""),
        vm("b", 1, "\"64MiB\"")
    ));
    let mut bin = vec![0x42; 0x2_0000];
    bin[0x8001..].fill(0);
    let payload = Payload { image: &bin, initrd: None };
    let packed = pack(&system, &[payload, payload], images::HYPERVISOR).unwrap();
    // The image, and each VM's device tree, which has its seeds.
    assert_eq!(packed.blobs.len(), 3);
    assert_eq!(packed.blobs[0].1.len(), 0x9000);
}

#[test]
fn an_image_that_fits_not_is_a_fault_of_its_file() {
    let text = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"2MiB\"\n\
                image = { elf = \"control\" }\n";
    let system = check(text);
    assert_eq!(*system.vms[0].image.source(), ImageSource::Named("control".to_owned()));
    let far = images::elf(0x5000_0000, &[(0x5000_0000, 0x1000, &[1; 16])]);
    let faults =
        pack(&system, &[Payload { image: &far, initrd: None }], images::HYPERVISOR).unwrap_err();
    assert_eq!(faults.0[0].code.name(), "outside-ram");
    assert!(faults.0[0].location().to_string().ends_with("x.toml:6:17"), "{faults}");
}

#[test]
fn an_elf_at_virtual_addresses_starts_at_a_physical() {
    let text = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"2MiB\"\n\
                image = { elf = \"control\" }\n";
    let system = check(text);
    let high = images::elf_at(
        0xffff_0000_0000_0010,
        &[(0xffff_0000_0000_0000, (0x4008_0000, 0x1000, &[1; 32]))],
    );
    let packed =
        pack(&system, &[Payload { image: &high, initrd: None }], images::HYPERVISOR).unwrap();
    let mut words = vec![0u64; packed.tables.len().div_ceil(8)];
    words.as_mut_bytes()[..packed.tables.len()].copy_from_slice(&packed.tables);
    let parsed = weir_abi::PackedSystem::parse(words.as_bytes(), false).unwrap();
    assert_eq!(parsed.vm(0).unwrap().vm.entry, 0x4008_0010);
}

#[test]
fn the_console_core_is_one_without_a_vm() {
    let one = check(&format!("platform = \"qemu-virt\"\n{}", vm("a", 0, "\"64MiB\"")));
    assert_eq!((one.hypervisor.console_core.0, one.cores_needed(), one.machine_cores()), (1, 2, 4));
    let full: String = (0..4).map(|core| vm(&format!("vm{core}"), core, "\"64MiB\"")).collect();
    let full = check(&format!("platform = \"qemu-virt\"\n{full}"));
    assert_eq!((full.hypervisor.console_core.0, full.cores_needed()), (3, 4));
    let high = check(&format!("platform = \"qemu-virt\"\n{}", vm("a", 6, "\"64MiB\"")));
    assert_eq!((high.cores_needed(), high.machine_cores()), (7, 7));
    // QEMU's machine has two cores more than the board.
    let both: String = (0..2).map(|core| vm(&format!("vm{core}"), core, "\"64MiB\"")).collect();
    let both = check(&format!("platform = \"versal-virt\"\n{both}"));
    assert_eq!((both.hypervisor.console_core.0, both.machine_cores()), (1, 4));
}

/// A transfer that hangs holds other flows about as long as a good one can, where it is known what
/// that takes next to busy cores: at 47 MB/s.
#[test]
fn the_engines_limit_follows_from_a_chunk() {
    let flow = "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nport = 5000\nsize = \"4KiB\"\n\
                period = \"1ms\"\ndeadline = \"500us\"\n[dma]\nengine_from = \"0B\"\n\
                chunk = \"4KiB\"\n";
    let vms = [vm("a", 0, "\"4MiB\""), vm("b", 1, "\"4MiB\"")].concat();
    let limit = |machine, origin: &str, ip: u64| {
        let measured = format!(
            "[overheads]\norigin = {{ command = \"{origin}\" }}\n\
             ip = {{ min = 1000, max = {ip} }}\nengine_bandwidth = \"2048MB/s\"\n"
        );
        let text = format!("platform = \"zcu102\"\n{vms}{flow}{measured}");
        let catalog = Catalog { machine, ..catalog() };
        let checked = check_text(Path::new("x.toml"), &text, &catalog);
        checked.unwrap_or_else(|faults| panic!("{faults}")).engine_limit().0
    };
    let weirs = "weir bench board --platform zcu102";
    assert_eq!(limit(Machine::Board, weirs, 2000), 2 * (2000 + 4096 * 1000 / 47));
    assert_eq!(limit(Machine::Board, weirs, 1 << 40), 5_000_000);
    assert_eq!(limit(Machine::Board, "rt-virtio, Table II", 2000), 5_000_000, "another path");
    assert_eq!(limit(Machine::Qemu, weirs, 2000), 5_000_000);
}

/// A run in QEMU counts by what QEMU has, and is compared with what was measured there.
#[test]
fn a_system_for_qemus_machine_takes_its_values() {
    let flow = "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nport = 5000\nsize = \"4KiB\"\n\
                period = \"1ms\"\ndeadline = \"500us\"\n[dma]\nbandwidth = \"2GB/s\"\n";
    let budget = "memory_budget = { accesses = 4000, period = \"1ms\" }\n";
    let vms = [vm("a", 0, "\"4MiB\""), budget.to_owned(), vm("b", 1, "\"4MiB\"")].concat();
    let text = format!("platform = \"zcu102\"\n{vms}{flow}");
    let on = |machine| {
        let catalog = Catalog { machine, ..catalog() };
        let checked = check_text(Path::new("x.toml"), &text, &catalog);
        checked.unwrap_or_else(|faults| panic!("{faults}"))
    };
    let (board, qemu) = (on(Machine::Board), on(Machine::Qemu));
    assert_eq!(board.regulations[0].source, regulation::PMU);
    assert_eq!(qemu.regulations[0].source, regulation::COUNTER_PAGE);
    assert_eq!([&board, &qemu].map(|system| system.dma.path), [DataPath::Dma; 2]);
    // The board's engine is in no time of the emulator, which has a rate of its own.
    let engine = |system: &System| system.engine_bandwidth().map(|rate| rate.0);
    let measured = qemu.platform().overheads.engine_bandwidth.map(|rate| rate.0);
    assert!(measured.is_some());
    assert_eq!((engine(&board), engine(&qemu)), (Some(2_000_000_000), measured));
    let steps = |system: &System| {
        let steps = &system.overheads;
        steps.iter().any(|step| step.name == "copy")
    };
    assert!(!steps(&board) && steps(&qemu));
    assert!(board.platform().sharing.is_none() && qemu.platform().sharing.is_some());
    // What a run is not compared with is the board's.
    assert_eq!(board.platform().saturation, qemu.platform().saturation);
}

/// A board with too few cores for twelve flows takes the steps of one that has them.
#[test]
fn the_steps_of_many_flows_are_the_measured_ones() {
    let larger = |board: &str| {
        let text = fs::read_to_string(root().join(format!("boards/{board}/board.toml")));
        let text = text.expect("a board file");
        let table: toml::Table = text.parse().expect("TOML");
        let emulated = table.get("emulated").map_or(&table, |table| table.as_table().expect("it"));
        emulated["overheads"]["larger"].clone()
    };
    for board in ["zcu102", "zcu104", "rpi4"] {
        assert_eq!(larger(board), larger("qemu-virt-gicv2"), "{board}");
    }
}
