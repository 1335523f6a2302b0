//! The device tree that a VM gets: QEMU virt's, as far as the VM has what is in it, and the nodes
//! of the devices passed through with the clocks they need.
//!
//! Bindings are those of the Linux kernel (Documentation/devicetree/bindings) and of the Devicetree
//! Specification 0.4.

mod pci;

use crate::board::{self, BoardDevice, cell, cells, strings};
use crate::platform::Platform;
use crate::vm::{
    CPU_INTERFACE_LEN, DISTRIBUTOR_LEN, NET, NET_INTID, REDISTRIBUTOR_LEN, SocketBus, VSOCK,
    VSOCK_INTID, Vm,
};
use dtoolkit::{
    Node, Property, ToPropertyValue,
    model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty},
};
use std::{collections::BTreeMap, ops::Range};
use weir_abi::{PAGE, VIRTIO_LEN};
use weir_units::IntId;

/// Phandle of the VM's GIC.
const GIC: u32 = 1;
/// Phandle of the clock of the VM's PL011.
const CLOCK: u32 = 2;
/// First phandle of what is carried over from the board.
const FIRST_CARRIED: u32 = 3;

/// Interrupt specifier, first cell: shared or private peripheral interrupt.
const SPI: u32 = 0;
const PPI: u32 = 1;
/// Interrupt specifier, third cell.
const LEVEL_HIGH: u32 = 4;
/// The PPI of the PMU on the virtual board: INTID 23.
const PMU_PPI: u32 = 7;

/// Properties that name providers, with the property of the number of cells after each phandle.
const REFERENCES: [(&str, &str); 5] = [
    ("clocks", "#clock-cells"),
    ("resets", "#reset-cells"),
    ("power-domains", "#power-domain-cells"),
    ("phys", "#phy-cells"),
    ("gpios", "#gpio-cells"),
];
/// Properties that name providers a VM cannot have and a driver does without.
const DROPPED: [&str; 13] = [
    "interrupt-parent",
    "assigned-clocks",
    "assigned-clock-parents",
    "assigned-clock-rates",
    "pinctrl-names",
    "memory-region",
    "nvmem-cells",
    "nvmem-cell-names",
    "interconnects",
    "interconnect-names",
    "thermal-sensors",
    "operating-points-v2",
    "phandle",
];

/// What follows each phandle of a property.
#[derive(Clone, Copy)]
enum Arguments {
    /// Nothing.
    None,
    /// As many cells as this property of the provider states.
    Cells(&'static str),
}

/// What follows each phandle of property `name`; `None` when it names no providers.
fn reference(name: &str) -> Option<Arguments> {
    if name.ends_with("-gpios") || name.ends_with("-gpio") || name == "gpio" {
        return Some(Arguments::Cells("#gpio-cells"));
    }
    if name.ends_with("-supply") {
        return Some(Arguments::None);
    }
    let known = REFERENCES.iter().find(|(property, _)| *property == name);
    known.map(|(_, cells)| Arguments::Cells(cells))
}

fn is_dropped(name: &str) -> bool {
    let pin_state = name.strip_prefix("pinctrl-").is_some_and(|state| state.parse::<u32>().is_ok());
    pin_state || name == "linux,phandle" || DROPPED.contains(&name)
}

/// Every node of a board by its phandle.
struct Providers<'a>(BTreeMap<u32, (String, &'a DeviceTreeNode)>);

impl<'a> Providers<'a> {
    fn new(root: &'a DeviceTreeNode) -> Self {
        fn visit<'a>(
            node: &'a DeviceTreeNode,
            path: &str,
            found: &mut BTreeMap<u32, (String, &'a DeviceTreeNode)>,
        ) {
            for child in node.children() {
                let path = format!("{path}/{}", child.name());
                if let Some(phandle) = cell(child, "phandle") {
                    found.insert(phandle, (path.clone(), child));
                }
                visit(child, &path, found);
            }
        }
        let mut found = BTreeMap::new();
        visit(root, "", &mut found);
        Self(found)
    }

    /// The places of phandles in the value of property `name`; `None` when it cannot be read.
    fn phandles(&self, node: &DeviceTreeNode, name: &str) -> Option<Vec<(usize, u32)>> {
        let Some(arguments) = reference(name) else {
            return Some(Vec::new());
        };
        let words = cells(node, name)?;
        let mut places = Vec::new();
        let mut at = 0;
        while let Some(phandle) = words.get(at) {
            places.push((at, *phandle));
            let (_, provider) = self.0.get(phandle)?;
            at += 1 + match arguments {
                Arguments::None => 0,
                Arguments::Cells(count) => cell(*provider, count)? as usize,
            };
        }
        (at == words.len()).then_some(places)
    }

    /// All that `node`, without its children, refers to.
    fn needs(&self, node: &DeviceTreeNode) -> Vec<Option<u32>> {
        let properties = node.properties();
        let names: Vec<_> = properties.map(|property| property.name().to_owned()).collect();
        let phandles = names.iter().map(|name| self.phandles(node, name));
        phandles
            .flat_map(|places| match places {
                Some(places) => places.into_iter().map(|(_, phandle)| Some(phandle)).collect(),
                None => vec![None],
            })
            .collect()
    }
}

/// A clock or a supply that is no device: it has no registers and always runs.
fn is_fixed(node: &DeviceTreeNode) -> bool {
    node.property("reg").is_none()
        && strings(node, "compatible")
            .iter()
            .any(|name| name.starts_with("fixed-") || name == "regulator-fixed")
}

/// What `device` refers to and neither is in `granted` nor can be carried over.
pub(crate) fn missing_provider(
    board: &DeviceTree,
    device: &BoardDevice,
    granted: &[&BoardDevice],
) -> Option<String> {
    let providers = Providers::new(&board.root);
    let mut open: Vec<&DeviceTreeNode> = vec![&device.node];
    let mut seen = Vec::new();
    while let Some(node) = open.pop() {
        for phandle in providers.needs(node) {
            let Some((path, provider)) = phandle.and_then(|phandle| providers.0.get(&phandle))
            else {
                return Some(
                    "a provider that the board's device tree does not describe".to_owned(),
                );
            };
            if granted.iter().any(|granted| granted.path == *path) || seen.contains(path) {
                continue;
            }
            if !is_fixed(provider) {
                return Some(path.clone());
            }
            seen.push(path.clone());
            open.push(provider);
        }
    }
    None
}

fn add(node: &mut DeviceTreeNode, name: &str, value: impl ToPropertyValue) {
    node.add_property(DeviceTreeProperty::new_unchecked(name, value));
}

fn node(name: impl Into<String>) -> DeviceTreeNode {
    DeviceTreeNode::new_unchecked(name)
}

/// Address and length in two cells each.
fn reg(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<u32> {
    let words = |value: u64| [(value >> 32) as u32, value as u32];
    ranges.into_iter().flat_map(|(start, len)| [words(start), words(len)]).flatten().collect()
}

/// The VM's device tree, flattened. `initrd` is where Linux finds its initial RAM disk.
pub(crate) fn generate(vm: &Vm, platform: &Platform, initrd: Option<&Range<u64>>) -> Vec<u8> {
    let board = &platform.board.tree;
    let mut tree = DeviceTree::new();
    let root = &mut tree.root;
    add(root, "interrupt-parent", GIC);
    add(root, "model", "linux,dummy-virt");
    add(root, "#size-cells", 2_u32);
    add(root, "#address-cells", 2_u32);
    add(root, "compatible", "linux,dummy-virt");

    root.add_child(chosen(vm, initrd));
    root.add_child(psci());
    root.add_child(memory(vm));
    root.add_child(cpus(vm, board));
    root.add_child(timer(vm, platform));
    if vm.pmu > 0 {
        root.add_child(pmu(vm, platform));
    }
    root.add_child(interrupt_controller(vm, platform));
    let mut clock = node("apb-pclk");
    add(&mut clock, "phandle", CLOCK);
    add(&mut clock, "clock-output-names", "clk24mhz");
    add(&mut clock, "clock-frequency", 24_000_000_u32);
    add(&mut clock, "#clock-cells", 0_u32);
    add(&mut clock, "compatible", "fixed-clock");
    root.add_child(clock);
    root.add_child(uart(vm));
    if vm.socket == Some(SocketBus::Mmio) {
        root.add_child(virtio(VSOCK, VSOCK_INTID));
    }
    if vm.net.is_some() {
        root.add_child(virtio(NET.start, NET_INTID));
    }
    if vm.has_pci() {
        root.add_child(pci::bridge(vm, platform.pci.as_ref(), board));
    }
    carry(root, vm, &board.root);
    tree.to_dtb()
}

/// Returns a flattened tree without nodes for a machine that adds its RAM: addresses and sizes have
/// two cells each.
#[must_use]
pub fn bare_device_tree(model: &str) -> Vec<u8> {
    let mut tree = DeviceTree::new();
    add(&mut tree.root, "model", model);
    add(&mut tree.root, "#size-cells", 2_u32);
    add(&mut tree.root, "#address-cells", 2_u32);
    tree.to_dtb()
}

fn uart_name(vm: &Vm) -> String {
    format!("pl011@{:x}", vm.board.uart.0)
}

fn chosen(vm: &Vm, initrd: Option<&Range<u64>>) -> DeviceTreeNode {
    let mut chosen = node("chosen");
    if !vm.image.args().is_empty() {
        add(&mut chosen, "bootargs", vm.image.args());
    }
    if let Some(initrd) = initrd {
        add(&mut chosen, "linux,initrd-start", initrd.start);
        add(&mut chosen, "linux,initrd-end", initrd.end);
    }
    if vm.has_pci() {
        add(&mut chosen, "linux,pci-probe-only", 1_u32);
    }
    let (kaslr, rng) = vm.seed.0.split_at(8);
    add(&mut chosen, "kaslr-seed", kaslr);
    add(&mut chosen, "rng-seed", rng);
    add(&mut chosen, "stdout-path", format!("/{}", uart_name(vm)));
    chosen
}

/// DEN0022: function identifiers as SMC Calling Convention 64-bit calls where there are such.
fn psci() -> DeviceTreeNode {
    let mut psci = node("psci");
    add(&mut psci, "cpu_on", 0xc400_0003_u32);
    add(&mut psci, "cpu_off", 0x8400_0002_u32);
    add(&mut psci, "cpu_suspend", 0xc400_0001_u32);
    add(&mut psci, "method", "hvc");
    add(&mut psci, "compatible", vec!["arm,psci-1.0", "arm,psci-0.2", "arm,psci"]);
    psci
}

/// One node with every piece in the order of the file: U-Boot takes the first for its own.
fn memory(vm: &Vm) -> DeviceTreeNode {
    let base = vm.memory.first().map_or(0, |piece| piece.base.0);
    let mut memory = node(format!("memory@{base:x}"));
    add(&mut memory, "reg", reg(vm.memory.iter().map(|piece| (piece.base.0, piece.size.0))));
    add(&mut memory, "device_type", "memory");
    memory
}

/// The vCPUs, of the board's kind; vCPU n has affinity 0.0.0.n.
fn cpus(vm: &Vm, board: &DeviceTree) -> DeviceTreeNode {
    let kind = board.find_node("/cpus/cpu").map(|cpu| strings(cpu, "compatible"));
    let kind = kind.and_then(|names| names.into_iter().next());
    let kind = kind.unwrap_or_else(|| "arm,armv8".to_owned());
    let mut cpus = node("cpus");
    add(&mut cpus, "#size-cells", 0_u32);
    add(&mut cpus, "#address-cells", 1_u32);
    for index in 0..vm.cpus.len() as u32 {
        let mut cpu = node(format!("cpu@{index:x}"));
        add(&mut cpu, "reg", index);
        add(&mut cpu, "enable-method", "psci");
        add(&mut cpu, "compatible", kind.as_str());
        add(&mut cpu, "device_type", "cpu");
        cpus.add_child(cpu);
    }
    cpus
}

/// The part of a PPI's specifier with the cores that it is wired to: a GICv2's.
fn ppi_cores(vm: &Vm, platform: &Platform) -> u32 {
    if platform.is_gic_v2() { ((1 << vm.cpus.len()) - 1) << 8 } else { 0 }
}

/// The architected timer's interrupts in the order of the binding: secure physical, non-secure
/// physical, virtual, hypervisor.
fn timer(vm: &Vm, platform: &Platform) -> DeviceTreeNode {
    let cores = ppi_cores(vm, platform);
    let mut timer = node("timer");
    let interrupts: Vec<u32> =
        [13, 14, 11, 10].into_iter().flat_map(|number| [PPI, number, cores | LEVEL_HIGH]).collect();
    add(&mut timer, "interrupts", interrupts);
    add(&mut timer, "always-on", "".as_bytes());
    add(&mut timer, "compatible", vec!["arm,armv8-timer", "arm,armv7-timer"]);
    timer
}

/// The vCPUs' PMUs: as of any Armv8 core, so that drivers ask the registers what there is.
fn pmu(vm: &Vm, platform: &Platform) -> DeviceTreeNode {
    let mut pmu = node("pmu");
    add(&mut pmu, "interrupts", [PPI, PMU_PPI, ppi_cores(vm, platform) | LEVEL_HIGH]);
    add(&mut pmu, "compatible", "arm,armv8-pmuv3");
    pmu
}

fn interrupt_controller(vm: &Vm, platform: &Platform) -> DeviceTreeNode {
    let mut gic = node(format!("intc@{:x}", vm.board.distributor.0));
    add(&mut gic, "phandle", GIC);
    let cpu_len = if platform.is_gic_v2() {
        add(&mut gic, "compatible", "arm,cortex-a15-gic");
        CPU_INTERFACE_LEN
    } else {
        add(&mut gic, "#redistributor-regions", 1_u32);
        add(&mut gic, "compatible", "arm,gic-v3");
        REDISTRIBUTOR_LEN * vm.cpus.len() as u64
    };
    let ranges = [(vm.board.distributor.0, DISTRIBUTOR_LEN), (vm.board.gic_cpu.0, cpu_len)];
    add(&mut gic, "reg", reg(ranges));
    add(&mut gic, "ranges", "".as_bytes());
    add(&mut gic, "#size-cells", 2_u32);
    add(&mut gic, "#address-cells", 2_u32);
    add(&mut gic, "interrupt-controller", "".as_bytes());
    add(&mut gic, "#interrupt-cells", 3_u32);
    gic
}

fn uart(vm: &Vm) -> DeviceTreeNode {
    let mut uart = node(uart_name(vm));
    add(&mut uart, "clock-names", vec!["uartclk", "apb_pclk"]);
    add(&mut uart, "clocks", [CLOCK, CLOCK]);
    add(&mut uart, "interrupts", [SPI, vm.board.uart_intid.0.saturating_sub(32), LEVEL_HIGH]);
    add(&mut uart, "reg", reg([(vm.board.uart.0, PAGE)]));
    add(&mut uart, "compatible", vec!["arm,pl011", "arm,primecell"]);
    uart
}

/// A virtio device on the MMIO transport (Linux,
/// Documentation/devicetree/bindings/virtio/mmio.yaml).
fn virtio(registers: u64, intid: IntId) -> DeviceTreeNode {
    let mut device = node(format!("virtio_mmio@{registers:x}"));
    add(&mut device, "dma-coherent", "".as_bytes());
    add(&mut device, "interrupts", [SPI, intid.0 - 32, LEVEL_HIGH]);
    add(&mut device, "reg", reg([(registers, VIRTIO_LEN)]));
    add(&mut device, "compatible", "virtio,mmio");
    device
}

/// Adds the devices passed through, the fixed clocks and supplies they need, and nodes without
/// registers that use them and nothing else (keys on a GPIO).
fn carry(root: &mut DeviceTreeNode, vm: &Vm, board: &DeviceTreeNode) {
    if vm.devices.is_empty() {
        return;
    }
    let providers = Providers::new(board);
    let mut carried: Vec<(String, &DeviceTreeNode)> = Vec::new();
    for device in &vm.devices {
        if let Some(node) = at(board, &device.path) {
            carried.push((device.path.clone(), node));
        }
    }
    let granted: Vec<_> = carried.iter().map(|(path, _)| path.clone()).collect();
    for child in board.children().filter(|child| child.property("reg").is_none()) {
        let needs = needs_below(&providers, child);
        let paths: Option<Vec<_>> =
            needs.iter().map(|phandle| providers.0.get(&(*phandle)?)).collect();
        let Some(paths) = paths else { continue };
        let uses = paths.iter().any(|(path, _)| granted.contains(path));
        if uses && paths.iter().all(|(path, node)| granted.contains(path) || is_fixed(node)) {
            carried.push((format!("/{}", child.name()), child));
        }
    }
    let mut phandles: BTreeMap<u32, u32> = BTreeMap::new();
    if let Some(gic) = board::interrupt_controller(board) {
        phandles.insert(gic, GIC);
    }
    let mut next = 0;
    while let Some((_, node)) = carried.get(next).cloned() {
        next += 1;
        for phandle in needs_below(&providers, node).into_iter().flatten() {
            let Some((path, provider)) = providers.0.get(&phandle) else {
                continue;
            };
            if is_fixed(provider) && !carried.iter().any(|(known, _)| known == path) {
                if same_clock(provider, root) {
                    phandles.insert(phandle, CLOCK);
                } else {
                    carried.push((path.clone(), provider));
                }
            }
        }
    }
    for (index, (_, node)) in carried.iter().enumerate() {
        if let Some(phandle) = cell(*node, "phandle") {
            phandles.insert(phandle, FIRST_CARRIED + index as u32);
        }
    }
    for (path, original) in &carried {
        let mut copy = copy(original, &providers, &phandles);
        if let Some(device) = vm.devices.iter().find(|device| device.path == *path) {
            let lengths = device.regions.iter().map(|(start, len)| (start.0, len.0));
            add(&mut copy, "reg", reg(lengths));
        }
        if root.child(original.name()).is_some() {
            let mut renamed = node(format!("{}-board", original.name()));
            copy.properties().for_each(|property| renamed.add_property(property.clone()));
            copy.children().for_each(|child| renamed.add_child(child.clone()));
            copy = renamed;
        }
        root.add_child(copy);
    }
}

/// The node at `path`, which gives every name in full.
pub(crate) fn at<'a>(root: &'a DeviceTreeNode, path: &str) -> Option<&'a DeviceTreeNode> {
    path.split('/')
        .filter(|name| !name.is_empty())
        .try_fold(root, |node, name| node.children().find(|child| child.name() == name))
}

fn needs_below(providers: &Providers<'_>, node: &DeviceTreeNode) -> Vec<Option<u32>> {
    let mut needs = providers.needs(node);
    node.children().for_each(|child| needs.extend(needs_below(providers, child)));
    needs
}

/// Whether the VM's own clock is the same as this one of the board's.
fn same_clock(board: &DeviceTreeNode, root: &DeviceTreeNode) -> bool {
    let same = |own: &DeviceTreeNode| {
        ["compatible", "clock-frequency", "#clock-cells"].iter().all(|name| {
            let value =
                |node: &DeviceTreeNode| node.property(name).map(|value| value.value().to_vec());
            value(board) == value(own)
        })
    };
    root.children().find(|child| child.name() == "apb-pclk").is_some_and(same)
}

/// `node` with its phandles translated, without what refers to something that the VM does not have.
fn copy(
    original: &DeviceTreeNode,
    providers: &Providers<'_>,
    phandles: &BTreeMap<u32, u32>,
) -> DeviceTreeNode {
    let mut copy = node(original.name());
    for property in original.properties() {
        let name = property.name();
        if name == "phandle" {
            let own = cell(original, "phandle").and_then(|phandle| phandles.get(&phandle));
            if let Some(own) = own {
                add(&mut copy, name, *own);
            }
            continue;
        }
        if is_dropped(name) {
            continue;
        }
        if reference(name).is_none() {
            copy.add_property(property.clone());
            continue;
        }
        let mut words = cells(original, name).unwrap_or_default();
        let translated = providers.phandles(original, name).and_then(|places| {
            for (place, phandle) in places {
                *words.get_mut(place)? = *phandles.get(&phandle)?;
            }
            Some(words)
        });
        if let Some(words) = translated {
            add(&mut copy, name, words);
        }
    }
    for child in original.children() {
        copy.add_child(self::copy(child, providers, phandles));
    }
    copy
}
