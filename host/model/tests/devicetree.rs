//! The device tree that a VM gets, and the board's that it is taken from.

use crate::images;
use dtoolkit::{
    Node, Property,
    fdt::Fdt,
    model::{DeviceTree, DeviceTreeNode},
};
use snapbox::{Data, assert_data_eq};
use std::{fmt::Write, fs, path::Path, process::Command};
use weir_model::{Catalog, Payload, Platform, check_text, pack};

/// The tree of the first VM of this system. Its VMs each have a Linux of 1.5 MiB and a RAM disk
/// of 5000 bytes, or an ELF program.
fn tree(text: &str) -> (DeviceTree, Vec<u8>) {
    let directory = images::directory("devicetree");
    let catalog = Catalog::default();
    let system = check_text(&directory.join("x.toml"), text, &catalog)
        .unwrap_or_else(|faults| panic!("{faults}"));
    let elf = images::elf(0x4010_0000, &[(0x4010_0000, 0x1000, &[1; 16])]);
    let linux = images::linux(4096, 0x18_0000, 0xa);
    let payloads = system.vms.iter().map(|vm| {
        if vm.image.initrd().is_some() {
            Payload { image: &linux, initrd: Some(&[1; 5000]) }
        } else {
            Payload { image: &elf, initrd: None }
        }
    });
    let payloads: Vec<_> = payloads.collect();
    let packed =
        pack(&system, &payloads, images::HYPERVISOR).unwrap_or_else(|faults| panic!("{faults}"));
    let blob = packed.device_trees[0].clone();
    (DeviceTree::from_fdt(&Fdt::new(&blob).unwrap()), blob)
}

fn vm(platform: &str, cpus: &str, extra: &str) -> String {
    format!(
        "platform = \"{platform}\"\n[[vm]]\nname = \"a\"\ncpus = {cpus}\nmemory = \"64MiB\"\nimage \
         = {{ linux = \"debian-rt\", initrd = \"busybox\", cmdline = \"console=ttyAMA0 x=1\" }}\n\
         {extra}"
    )
}

/// The tree as a person reads it: nodes and properties sorted, values as words or strings.
fn show(node: &DeviceTreeNode, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let mut properties: Vec<_> = node.properties().collect();
    properties.sort_by_key(|property| property.name().to_owned());
    for property in properties {
        writeln!(text, "{indent}{} = {}", property.name(), value(property.value())).unwrap();
    }
    let mut children: Vec<_> = node.children().collect();
    children.sort_by_key(|child| child.name().to_owned());
    for child in children {
        writeln!(text, "{indent}{}:", child.name()).unwrap();
        show(child, depth + 1, text);
    }
}

fn value(bytes: &[u8]) -> String {
    let printable = |byte: &u8| (0x20..0x7f).contains(byte);
    let texts: Vec<_> = bytes
        .strip_suffix(&[0])
        .map_or(Vec::new(), |bytes| bytes.split(|byte| *byte == 0).collect());
    if !texts.is_empty() && texts.iter().all(|text| !text.is_empty() && text.iter().all(printable))
    {
        let texts: Vec<_> =
            texts.iter().map(|text| format!("{:?}", String::from_utf8_lossy(text))).collect();
        return texts.join(", ");
    }
    let words: Vec<_> = bytes
        .chunks(4)
        .map(|word| {
            format!("{:x}", word.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)))
        })
        .collect();
    format!("<{}>", words.join(" "))
}

fn shown(text: &str) -> String {
    let mut shown = String::new();
    show(&tree(text).0.root, 0, &mut shown);
    shown
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devicetree").join(name);
    assert_data_eq!(shown(text), Data::read_from(&path, None).raw());
}

#[test]
fn linux_on_a_gicv3() {
    assert_golden("gicv3.txt", &vm("qemu-virt", "[0, 2]", ""));
}

#[test]
fn linux_on_a_gicv2() {
    assert_golden("gicv2.txt", &vm("qemu-virt-gicv2", "[0, 2, 3]", ""));
}

/// Linux takes the base of its address space from one, and its random numbers from the other.
#[test]
fn each_guest_has_random_seeds_of_its_own() {
    let seeds = |text: &str| {
        let (tree, _) = tree(text);
        let chosen = tree.find_node("/chosen").unwrap();
        ["kaslr-seed", "rng-seed"].map(|name| chosen.property(name).unwrap().value().to_vec())
    };
    let text = vm("qemu-virt", "[0]", "");
    let [kaslr, rng] = seeds(&text);
    assert_eq!((kaslr.len(), rng.len()), (8, 32));
    assert!(!rng.windows(8).any(|part| part == kaslr), "they share bytes");
    assert_eq!(seeds(&text), [kaslr.clone(), rng.clone()], "a system is packed twice alike");
    let [other_kaslr, other_rng] = seeds(&text.replace("name = \"a\"", "name = \"b\""));
    assert!(other_kaslr != kaslr && other_rng != rng, "two VMs have the same");
}

#[test]
fn every_address_can_be_moved() {
    let moved = "board = { ram = 0x0, distributor = 0x1000_0000, redistributors = 0x1010_0000, \
                 uart = 0x2000_0000, uart_intid = 77, device_tree = 0x0010_0000 }";
    assert_golden("moved.txt", &vm("qemu-virt", "[0]", moved));
}

#[test]
fn devices_come_with_what_they_need() {
    assert_golden("rest.txt", &vm("qemu-virt", "[0]", "devices = \"rest\""));
}

/// What makes VM `a` a sender.
fn with_flow(keys: &str) -> String {
    let other =
        "[[vm]]\nname = \"b\"\ncpus = [1]\nmemory = \"16MiB\"\nimage = { elf = \"good.elf\" }\n";
    let flow =
        "[[flow]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\nperiod = \"10ms\"\n";
    vm("qemu-virt", "[0]", keys) + "\n" + other + flow
}

/// The nodes of the host bridge, and of a socket device on the MMIO transport.
fn buses(tree: &DeviceTree) -> [bool; 3] {
    ["/pcie@4010000000", "/pcie@5000000000", "/virtio_mmio@a000000"]
        .map(|path| tree.find_node(path).is_some())
}

#[test]
fn a_socket_device_is_on_the_bus_that_the_file_names() {
    assert_eq!(buses(&tree(&vm("qemu-virt", "[0]", "")).0), [false; 3]);
    assert_eq!(buses(&tree(&with_flow("")).0), [false, false, true]);
    assert_eq!(buses(&tree(&with_flow("vsock = \"mmio\"")).0), [false, false, true]);
    let (tree, _) = tree(&with_flow("vsock = \"pci\"\nboard = { ecam = 0x50_0000_0000 }"));
    assert_eq!(buses(&tree), [false, true, false]);
    let bridge = tree.find_node("/pcie@5000000000").unwrap();
    let of = |name: &str| value(bridge.property(name).unwrap().value());
    assert_eq!(of("reg"), "<50 0 0 10000000>");
    assert_eq!(of("interrupt-map"), "<f800 0 0 1 1 0 0 0 10 4>");
    assert_eq!(of("ranges"), "<2000000 0 3efec000 0 3efec000 0 4000>");
    let chosen = tree.find_node("/chosen").unwrap();
    assert_eq!(value(chosen.property("linux,pci-probe-only").unwrap().value()), "<1>");
}

#[test]
fn a_network_device_is_next_to_a_socket_device() {
    let text = with_flow("net = { mac = \"52:54:00:00:00:01\" }");
    let text =
        text.replacen("cpus = [1]\n", "cpus = [1]\nnet = { mac = \"52:54:00:00:00:02\" }\n", 1);
    let (tree, _) = tree(&text);
    assert_eq!(buses(&tree), [false, false, true]);
    let network = tree.find_node("/virtio_mmio@a001000").unwrap();
    let of = |name: &str| value(network.property(name).unwrap().value());
    assert_eq!(of("reg"), "<0 a001000 0 1000>");
    assert_eq!(of("interrupts"), "<0 18 4>");
}

/// One bridge for both, which passes the board's window.
#[test]
fn a_socket_device_is_next_to_the_boards_functions() {
    let (tree, _) = tree(&with_flow("vsock = \"pci\"\ndevices = [\"pci:00:02.0\"]"));
    assert_eq!(buses(&tree), [true, false, false]);
    let bridge = tree.find_node("/pcie@4010000000").unwrap();
    let of = |name: &str| value(bridge.property(name).unwrap().value());
    assert_eq!(of("interrupt-map"), "<1000 0 0 1 1 0 0 0 5 4 f800 0 0 1 1 0 0 0 10 4>");
    assert_eq!(of("ranges"), "<2000000 0 10000000 0 10000000 0 2eff0000>");
}

#[test]
fn a_device_comes_alone() {
    let (tree, _) = tree(&vm("qemu-virt", "[0]", "devices = [\"rtc\"]"));
    let rtc = tree.find_node("/pl031@9010000").unwrap();
    assert_eq!(value(rtc.property("clocks").unwrap().value()), "<2>");
    assert_eq!(value(rtc.property("reg").unwrap().value()), "<0 9010000 0 1000>");
    assert!(tree.find_node("/pl061@9030000").is_none() && tree.find_node("/gpio-keys").is_none());
}

#[test]
fn pieces_of_memory_keep_their_order() {
    let text = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = [{ base = \
                0x4000_0000, size = \"16MiB\" }, { base = 0x0000_0000, size = \"1MiB\" }]\n\
                image = { elf = \"good.elf\", args = \"word=heron\" }\n";
    let (tree, _) = tree(text);
    let memory = tree.find_node("/memory@40000000").unwrap();
    assert_eq!(
        value(memory.property("reg").unwrap().value()),
        "<0 40000000 0 1000000 0 0 0 100000>"
    );
    assert_eq!(
        value(tree.find_node("/chosen").unwrap().property("bootargs").unwrap().value()),
        "\"word=heron\""
    );
}

/// Phandles point to something, and no two nodes have the same.
#[test]
fn phandles_are_sound() {
    fn visit(node: &DeviceTreeNode, phandles: &mut Vec<u32>, used: &mut Vec<u32>) {
        for property in node.properties() {
            let words =
                property.value().as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
            match property.name() {
                "phandle" => phandles.extend(words),
                "interrupt-parent" | "clocks" => used.extend(words),
                "gpios" => used.extend(words.take(1)),
                _ => {}
            }
        }
        node.children().for_each(|child| visit(child, phandles, used));
    }
    let (tree, _) = tree(&vm("qemu-virt", "[0]", "devices = \"rest\""));
    let (mut phandles, mut used) = (Vec::new(), Vec::new());
    visit(&tree.root, &mut phandles, &mut used);
    assert!(used.len() >= 6 && used.iter().all(|phandle| phandles.contains(phandle)));
    let all = phandles.len();
    phandles.sort_unstable();
    phandles.dedup();
    assert_eq!(phandles.len(), all);
}

#[test]
fn the_same_system_gives_the_same_bytes() {
    let text = vm("qemu-virt", "[0, 1]", "devices = \"rest\"");
    assert_eq!(tree(&text).1, tree(&text).1);
}

/// The part of a board's device tree that weir reads, and all that a VM could be given: not the
/// order of nodes, and not what differs between versions of QEMU that do not matter to weir.
fn content(blob: &[u8]) -> String {
    let tree = DeviceTree::from_fdt(&Fdt::new(blob).unwrap());
    let mut text = String::new();
    for node in tree.root.children() {
        let of_interest = [
            "memory",
            "pl011",
            "pl031",
            "pl061",
            "intc",
            "fw-cfg",
            "virtio_mmio",
            "pcie",
            "psci",
            "cpus",
            "timer",
        ];
        if of_interest.contains(&node.name_without_address()) {
            writeln!(text, "{}", node.name()).unwrap();
            for name in ["compatible", "reg", "interrupts", "method"] {
                if let Some(property) = node.property(name) {
                    writeln!(text, "  {name} {}", value(property.value())).unwrap();
                }
            }
        }
    }
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    lines.dedup();
    let mut nodes: Vec<String> = Vec::new();
    for line in lines {
        match nodes.last_mut() {
            Some(node) if line.starts_with(' ') => node.push_str(line),
            _ => nodes.push(line.to_owned()),
        }
    }
    nodes.sort();
    nodes.concat()
}

/// The committed device trees are those of the machines that the platform files start.
#[test]
fn the_boards_match_qemus_trees() {
    for platform in Platform::all().into_iter().filter(|board| !board.device_tree.is_empty()) {
        let qemu = platform.qemu.as_ref().unwrap();
        let dump = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.dtb", platform.name));
        let machine = format!("{},dumpdtb={}", qemu.machine, dump.display());
        let memory = format!("{}M", platform.memory.size.0 >> 20);
        let status = Command::new("qemu-system-aarch64")
            .args([
                "-machine",
                &machine,
                "-cpu",
                &qemu.cpu,
                "-smp",
                &qemu.cores.to_string(),
                "-m",
                &memory,
            ])
            .args(["-display", "none", "-nodefaults"])
            .output()
            .expect("qemu-system-aarch64 is installed");
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        let now = content(&fs::read(&dump).unwrap());
        assert_eq!(content(&platform.device_tree), now, "{}", platform.name);
        assert!(now.matches("virtio_mmio").count() == 32 && now.contains("pl011"), "{now}");
    }
}

/// Addresses of the platform file are those of the board's device tree.
#[test]
fn platform_files_agree_with_their_device_trees() {
    let names: Vec<_> = Platform::all().into_iter().map(|platform| platform.name).collect();
    assert!(Platform::names().eq(names), "one cannot be read");
    for platform in Platform::all().into_iter().filter(|board| !board.device_tree.is_empty()) {
        let content = content(&platform.device_tree);
        let weir_model::platform::RamRange { base, size } = platform.memory;
        let contains = |text: String| assert!(content.contains(&text), "{text} in\n{content}");
        contains(format!("memory@{:x}\n  reg <0 {:x} 0 {:x}>", base.0, base.0, size.0));
        contains(format!("pl011@{:x}\n", platform.uart.base.0));
        contains(format!("interrupts <0 {:x} 4>", platform.uart.intid.0 - 32));
        let conduit = platform.psci_conduit.as_ref().unwrap();
        contains(format!("method \"{conduit}\""));
        let regions = match platform.gic {
            weir_model::platform::PlatformGic::V3 { distributor, redistributors } => {
                format!("<0 {:x} 0 10000 0 {:x} 0 ", distributor.0, redistributors.0)
            }
            weir_model::platform::PlatformGic::V2 {
                distributor,
                cpu_interface,
                hyp,
                virtual_cpu,
            } => {
                format!(
                    "<0 {:x} 0 10000 0 {:x} 0 10000 0 {:x} 0 10000 0 {:x} 0 10000>",
                    distributor.0, cpu_interface.0, hyp.0, virtual_cpu.0
                )
            }
        };
        contains(format!("reg {regions}"));
        assert_eq!(platform.cores.len(), 8);
        for device in &platform.devices {
            assert!(content.contains(&device.path[1..]), "{}", device.path);
        }
    }
}
