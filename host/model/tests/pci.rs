//! PCI functions: their description in a VM's device tree, and what EL2 must refuse.

use crate::images;
use dtoolkit::{
    Node, Property,
    fdt::Fdt,
    model::{DeviceTree, DeviceTreeNode},
};
use proptest::prelude::*;
use std::{path::PathBuf, sync::LazyLock};
use weir_abi::{Damage, PackedHeader, PackedSystem, PciFunction, checksum};
use weir_model::{Catalog, MapOwner, Packed, Payload, check_text, pack};
use zerocopy::{FromBytes, IntoBytes};

/// Two VMs: one has two functions of a device and one of another, on one line; the other has a slot
/// of another line.
const TEXT: &str = r#"
platform = "qemu-virt"

[[vm]]
name = "a"
cpus = [0]
memory = "16MiB"
image = { elf = "good.elf" }
devices = ["rtc", "pci:00:02.0", "pci:00:02.1", "pci:00:06.0"]

[[vm]]
name = "b"
cpus = [1]
memory = "16MiB"
image = { elf = "good.elf" }
devices = ["pci:00:03.0"]
board = { ecam = 0x7_3000_0000 }
"#;

fn with_packed<T>(text: &str, body: impl FnOnce(&Packed<'_>) -> T) -> T {
    // Once: tests run concurrently.
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| images::directory("pci"));
    let system = check_text(&DIRECTORY.join("x.toml"), text, &Catalog::default());
    let system = system.unwrap_or_else(|faults| panic!("{faults}"));
    let elf = images::elf(0x4010_0000, &[(0x4010_0000, 0x1000, &[1; 16])]);
    let payloads = vec![Payload { image: &elf, initrd: None }; system.vms.len()];
    body(&pack(&system, &payloads, images::HYPERVISOR).unwrap_or_else(|faults| panic!("{faults}")))
}

fn words(node: &DeviceTreeNode, name: &str) -> Vec<u32> {
    let property = node.property(name).unwrap_or_else(|| panic!("{name}"));
    let words = property.value().chunks(4);
    words.map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

fn trees() -> Vec<DeviceTree> {
    with_packed(TEXT, |packed| {
        let blobs = packed.device_trees.iter();
        blobs.map(|blob| DeviceTree::from_fdt(&Fdt::new(blob).unwrap())).collect()
    })
}

#[test]
fn a_vm_with_functions_has_a_host_bridge() {
    let [a, b] = trees().try_into().unwrap();
    let bridge = a.find_node("/pcie@4010000000").unwrap();
    assert_eq!(bridge.property("compatible").unwrap().value(), b"pci-host-ecam-generic\0");
    assert_eq!(words(bridge, "reg"), [0x40, 0x1000_0000, 0, 0x1000_0000]);
    assert_eq!(words(bridge, "bus-range"), [0, 0]);
    let window = [0x0200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x2eff_0000];
    assert_eq!(words(bridge, "ranges"), window);
    assert!(bridge.property("dma-coherent").is_some(), "as on the board");
    assert!(bridge.property("msi-map").is_none() && bridge.property("msi-parent").is_none());
    let mask = words(bridge, "interrupt-map-mask");
    let map = words(bridge, "interrupt-map");
    let gic = words(a.find_node("/intc@8000000").unwrap(), "phandle")[0];
    let line = |slot: u32, address: u32| {
        let entry = map.chunks(10).find(|entry| entry[0] == slot << 11 & mask[0]).unwrap();
        assert_eq!(entry[1..9], [0, 0, 1, gic, 0, 0, 0, address]);
        assert_eq!(entry[9], 4, "level, high");
    };
    line(2, 5);
    line(6, 5);
    assert_eq!(words(a.find_node("/chosen").unwrap(), "linux,pci-probe-only"), [1]);
    let moved = b.find_node("/pcie@730000000").unwrap();
    assert_eq!(words(moved, "reg"), [7, 0x3000_0000, 0, 0x1000_0000]);
    assert_eq!(words(moved, "interrupt-map")[..9], [3 << 11, 0, 0, 1, gic, 0, 0, 0, 6]);
}

#[test]
fn a_vm_without_functions_has_none() {
    let text = TEXT.replace(", \"pci:00:02.0\", \"pci:00:02.1\", \"pci:00:06.0\"", "");
    let blob = with_packed(&text, |packed| packed.device_trees[0].clone());
    let tree = DeviceTree::from_fdt(&Fdt::new(&blob).unwrap());
    assert!(tree.root.children().all(|child| !child.name().starts_with("pcie")));
    assert!(tree.find_node("/chosen").unwrap().property("linux,pci-probe-only").is_none());
}

#[test]
fn the_map_shows_the_owners_of_base_addresses() {
    let rows = with_packed(TEXT, |packed| packed.placement.rows.clone());
    let pci: Vec<_> = rows.iter().filter(|row| row.what.starts_with("pci:")).collect();
    let names: Vec<_> = pci.iter().map(|row| row.what.as_str()).collect();
    assert_eq!(names, ["pci:00:02.0", "pci:00:02.1", "pci:00:06.0", "pci:00:03.0"]);
    for (place, row) in pci.iter().enumerate() {
        assert_eq!(row.address.0, 0x1000_0000 + place as u64 * 0x20_0000);
        assert_eq!(row.size.0, 0x20_0000);
        assert_eq!(row.ipa.map(|ipa| ipa.0), Some(row.address.0));
    }
    assert!(matches!(&pci[3].owner, MapOwner::Vm(1, name) if name == "b"));
}

/// The packed tables of [`TEXT`], at an 8-byte boundary, with the functions changed by `change`.
fn changed(change: impl FnOnce(&mut [PciFunction])) -> Vec<u64> {
    static TABLES: LazyLock<Vec<u8>> =
        LazyLock::new(|| with_packed(TEXT, |packed| packed.tables.clone()));
    let bytes: &[u8] = &TABLES;
    let mut buffer = vec![0_u64; bytes.len().div_ceil(8)];
    let tables = &mut buffer.as_mut_bytes()[..bytes.len()];
    tables.copy_from_slice(bytes);
    let count = PackedHeader::ref_from_prefix(tables).unwrap().0.pci as usize;
    let at = tables.len() - count * size_of::<PciFunction>();
    change(<[PciFunction]>::mut_from_bytes(&mut tables[at..]).unwrap());
    let sum = checksum(&tables[16..]);
    tables[12..16].copy_from_slice(&sum.to_le_bytes());
    buffer
}

fn refused(change: impl FnOnce(&mut [PciFunction])) -> Damage {
    PackedSystem::parse(changed(change).as_bytes(), false).expect_err("the damage was not seen")
}

#[test]
fn el2_reads_what_was_packed() {
    let buffer = changed(|_| {});
    let system = PackedSystem::parse(buffer.as_bytes(), false).unwrap();
    let entry = |vm, address, place: u64, ecam| PciFunction {
        vm,
        address,
        stream: address,
        reserved: 0,
        ecam,
        bars: 0x1000_0000 + place * 0x20_0000,
        bars_len: 0x20_0000,
    };
    let functions = [
        entry(0, 0x10, 0, 0x40_1000_0000),
        entry(0, 0x11, 1, 0x40_1000_0000),
        entry(0, 0x30, 2, 0x40_1000_0000),
        entry(1, 0x18, 3, 0x7_3000_0000),
    ];
    assert_eq!(system.pci(), functions);
    let siblings = functions.map(|function| function.has_siblings(&functions));
    assert_eq!(siblings, [true, true, false, false]);
    // One line for all three, in addition to the clock's.
    let lines = system.vm(0).unwrap().irqs.iter().map(|irq| (irq.intid, irq.edge));
    assert_eq!(lines.collect::<Vec<_>>(), [(34, 0), (37, 0)]);
}

#[test]
fn el2_refuses_what_two_vms_cannot_share() {
    assert_eq!(refused(|all| all[3].address = 0x10), Damage::Function(0));
    assert_eq!(refused(|all| all[3].address = 0x12), Damage::Function(0), "one device");
    assert_eq!(refused(|all| all[3].stream = 0x10), Damage::Function(0));
    assert_eq!(refused(|all| all[3].bars = all[2].bars + 0x1000), Damage::Function(0));
    assert_eq!(refused(|all| all[1].ecam += 0x1000_0000), Damage::Function(0));
    // Within one VM functions may be one stream.
    let buffer = changed(|all| all[1].stream = 0x10);
    PackedSystem::parse(buffer.as_bytes(), false).unwrap();
}

#[test]
fn el2_refuses_addresses_that_are_taken() {
    // Virtual devices, RAM, a device passed through; of this VM by its addresses, of any by the
    // board's.
    for taken in [0x0800_0000, 0x080a_0000, 0x0900_0000, 0x40f0_0000, 0x0901_0000] {
        assert_eq!(refused(|all| all[3].bars = taken), Damage::Function(1), "{taken:#x}");
    }
    for taken in [0, 0x3800_0000, 0x1000_0000] {
        let ecam = |all: &mut [PciFunction]| all[3].ecam = taken;
        assert_eq!(refused(ecam), Damage::Function(1), "{taken:#x}");
    }
    let memory = |all: &mut [PciFunction]| all[3].bars = 0x4200_0000;
    assert_eq!(refused(memory), Damage::Function(1), "RAM of the board");
    // Ranges that are none are in every other's way.
    assert_eq!(refused(|all| all[3].bars += 1), Damage::Function(0));
    assert_eq!(refused(|all| all[3].bars = u64::MAX - 0xfff), Damage::Function(0));
    assert_eq!(refused(|all| all[3].bars_len = 0), Damage::Function(0));
    assert_eq!(refused(|all| all[3].bars = 0x1_0000_0000), Damage::Function(1));
    assert_eq!(refused(|all| all[3].ecam = 1 << 39), Damage::Function(1));
    assert_eq!(refused(|all| all[3].address = 0x100), Damage::Function(1));
    assert_eq!(refused(|all| all[3].stream = 0x100), Damage::Function(1));
    assert_eq!(refused(|all| all[3].vm = 2), Damage::Table);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For any entry: what passes is disjoint from everything else.
    #[test]
    fn changed_functions_pass_only_when_sound(
        place in 0_usize..4,
        field in 0_usize..6,
        value in prop_oneof![any::<u64>(), 0_u64..0x200, (0_u64..0x100).prop_map(|n| n << 24)],
    ) {
        let buffer = changed(|all| {
            let entry = &mut all[place];
            match field {
                0 => entry.vm = value as u32,
                1 => entry.address = value as u32,
                2 => entry.stream = value as u32,
                3 => entry.ecam = value,
                4 => entry.bars = value,
                _ => entry.bars_len = value,
            }
        });
        let Ok(system) = PackedSystem::parse(buffer.as_bytes(), false) else { return Ok(()) };
        let all = system.pci();
        for (position, one) in all.iter().enumerate() {
            prop_assert!(one.address < 256 && one.stream < 256 && (one.vm as usize) < 2);
            let (start, end) = (one.bars, one.bars + one.bars_len);
            prop_assert!(end <= 0x4020_0000 || start >= system.header.memory_end);
            for other in &all[position + 1..] {
                prop_assert!(end <= other.bars || other.bars + other.bars_len <= start);
                prop_assert!(one.address != other.address);
                prop_assert!(one.vm == other.vm || one.stream != other.stream);
                prop_assert!(one.vm == other.vm || one.address >> 3 != other.address >> 3);
            }
        }
    }
}
