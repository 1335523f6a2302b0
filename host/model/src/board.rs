//! The devices of a board, from its device tree.

use crate::object::named;
use dtoolkit::{
    Node, Property,
    fdt::Fdt,
    model::{DeviceTree, DeviceTreeNode},
};
use weir_units::{Bytes, IntId, Pa};

/// A piece of RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamRange {
    /// Its first byte.
    pub base: Pa,
    /// Its size.
    pub size: Bytes,
}

/// A node with registers.
#[derive(Clone, Debug)]
pub(crate) struct BoardDevice {
    /// Its path: `/pl031@9010000`.
    pub path: String,
    pub compatible: Vec<String>,
    /// Its registers as the cores see them.
    pub regions: Vec<(Pa, Bytes)>,
    /// Its shared peripheral interrupts.
    pub irqs: Vec<BoardIrq>,
    /// Why it cannot be passed through.
    pub obstacle: Option<String>,
    pub node: DeviceTreeNode,
}

named! { BoardDevice: device(path) }

/// A physical interrupt of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardIrq {
    /// Its INTID.
    pub intid: IntId,
    /// Edge-triggered, or else level-sensitive.
    pub edge: bool,
}

/// How addresses of a bus become addresses of the board: child, parent, length.
type Ranges = Vec<(u64, u64, u64)>;

pub(crate) fn cells(node: &impl Node, name: &str) -> Option<Vec<u32>> {
    let property = node.property(name)?;
    let (words, rest) = property.value().as_chunks::<4>();
    rest.is_empty().then(|| words.iter().map(|word| u32::from_be_bytes(*word)).collect())
}

pub(crate) fn cell(node: &impl Node, name: &str) -> Option<u32> {
    cells(node, name)?.first().copied()
}

pub(crate) fn strings(node: &impl Node, name: &str) -> Vec<String> {
    let Some(property) = node.property(name) else {
        return Vec::new();
    };
    let texts = property.value().split(|byte| *byte == 0).filter(|text| !text.is_empty());
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

/// The description of a board in its device tree.
#[derive(Debug)]
pub(crate) struct Board {
    pub tree: DeviceTree,
    /// In the tree's order.
    pub devices: Vec<BoardDevice>,
}

impl Board {
    /// A board that nothing is known of.
    pub fn unknown() -> Self {
        Self { tree: DeviceTree::new(), devices: Vec::new() }
    }

    /// Reads a flattened device tree.
    pub fn read(blob: &[u8]) -> Result<Self, String> {
        let fdt = Fdt::new(blob).map_err(|error| error.to_string())?;
        if is_deep(blob) {
            return Err(format!("its nodes are nested deeper than {DEEPEST}"));
        }
        let tree = DeviceTree::from_fdt(&fdt);
        let gic = interrupt_controller(&tree.root);
        let root = Bus {
            path: String::new(),
            address_cells: cell(&tree.root, "#address-cells").unwrap_or(2),
            size_cells: cell(&tree.root, "#size-cells").unwrap_or(1),
            ranges: None,
            interrupt_parent: cell(&tree.root, "interrupt-parent"),
        };
        let mut devices = Vec::new();
        visit(&tree.root, &root, gic, &mut devices);
        Ok(Self { tree, devices })
    }
}

/// Deepest nesting of nodes. Reading, visiting and dropping a tree recurse.
const DEEPEST: usize = 32;

/// Whether a flattened device tree nests its nodes deeper than [`DEEPEST`] (Devicetree
/// Specification 0.4, 5.4), or can't be parsed.
fn is_deep(blob: &[u8]) -> bool {
    const BEGIN_NODE: u32 = 1;
    const END_NODE: u32 = 2;
    const PROPERTY: u32 = 3;
    const NOTHING: u32 = 4;
    const END: u32 = 9;
    let word = |at: usize| {
        let word = blob.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(word.try_into().ok()?))
    };
    let walk = || {
        let mut at = word(8)? as usize;
        let mut depth = 0_usize;
        loop {
            let token = word(at)?;
            at += 4;
            match token {
                BEGIN_NODE => {
                    let name = blob.get(at..)?.iter().position(|byte| *byte == 0)?;
                    at = (at + name + 1).next_multiple_of(4);
                    depth += 1;
                }
                END_NODE => depth = depth.checked_sub(1)?,
                PROPERTY => at = (at + 8 + word(at)? as usize).next_multiple_of(4),
                NOTHING => {}
                END => return Some(false),
                _ => return None,
            }
            if depth > DEEPEST {
                return Some(true);
            }
        }
    };
    walk().unwrap_or(true)
}

/// The phandle of the board's GIC.
pub(crate) fn interrupt_controller(root: &DeviceTreeNode) -> Option<u32> {
    let is_gic = |node: &&DeviceTreeNode| {
        node.property("interrupt-controller").is_some()
            && strings(*node, "compatible").iter().any(|name| name.contains("gic"))
    };
    find(root, &is_gic).and_then(|node| cell(node, "phandle"))
}

/// The first node below `node` for which `wanted` holds.
pub(crate) fn find<'a>(
    node: &'a DeviceTreeNode,
    wanted: &impl Fn(&&'a DeviceTreeNode) -> bool,
) -> Option<&'a DeviceTreeNode> {
    node.children().find_map(|child| if wanted(&child) { Some(child) } else { find(child, wanted) })
}

struct Bus {
    path: String,
    address_cells: u32,
    size_cells: u32,
    /// `None` when its addresses are the board's.
    ranges: Option<Ranges>,
    interrupt_parent: Option<u32>,
}

impl Bus {
    fn translate(&self, address: u64, len: u64) -> Option<u64> {
        let Some(ranges) = &self.ranges else {
            return Some(address);
        };
        ranges.iter().find_map(|(child, parent, size)| {
            let offset = address.checked_sub(*child)?;
            (offset.checked_add(len)? <= *size).then(|| parent.checked_add(offset))?
        })
    }
}

fn number(cells: &[u32]) -> u64 {
    cells.iter().fold(0, |number, cell| number << 32 | u64::from(*cell))
}

fn visit(node: &DeviceTreeNode, bus: &Bus, gic: Option<u32>, devices: &mut Vec<BoardDevice>) {
    for child in node.children() {
        let path = format!("{}/{}", bus.path, child.name());
        let interrupt_parent = cell(child, "interrupt-parent").or(bus.interrupt_parent);
        let described = ["cpus", "memory", "chosen"].contains(&child.name_without_address());
        if described || strings(child, "device_type") == ["memory"] {
            continue;
        }
        let compatible = strings(child, "compatible");
        if child.property("reg").is_some() && !compatible.is_empty() {
            devices.push(device(child, &path, compatible, bus, gic == interrupt_parent));
        }
        // The children of a PCI host are addressed by bus numbers, not by addresses.
        if strings(child, "device_type") == ["pci"] {
            continue;
        }
        let below = Bus {
            path,
            address_cells: cell(child, "#address-cells").unwrap_or(2),
            size_cells: cell(child, "#size-cells").unwrap_or(1),
            ranges: ranges(child, bus),
            interrupt_parent,
        };
        visit(child, &below, gic, devices);
    }
}

/// What of `node`'s address space the board sees; no `ranges` property means nothing of it.
fn ranges(node: &DeviceTreeNode, parent: &Bus) -> Option<Ranges> {
    let Some(words) = cells(node, "ranges") else {
        return Some(Vec::new());
    };
    if words.is_empty() {
        return parent.ranges.clone();
    }
    let child = cell(node, "#address-cells").unwrap_or(2) as usize;
    let size = cell(node, "#size-cells").unwrap_or(1) as usize;
    let above = parent.address_cells as usize;
    let entries = words.chunks_exact((child + above + size).max(1)).filter_map(|entry| {
        let len = number(&entry[child + above..]);
        let at = parent.translate(number(&entry[child..child + above]), len)?;
        Some((number(&entry[..child]), at, len))
    });
    Some(entries.collect())
}

fn device(
    node: &DeviceTreeNode,
    path: &str,
    compatible: Vec<String>,
    bus: &Bus,
    on_gic: bool,
) -> BoardDevice {
    let mut obstacle = None;
    let (address, size) = (bus.address_cells as usize, bus.size_cells as usize);
    let mut regions = Vec::new();
    for entry in cells(node, "reg").unwrap_or_default().chunks_exact((address + size).max(1)) {
        let (start, len) = (number(&entry[..address]), number(&entry[address..]));
        match bus.translate(start, len) {
            Some(start) if len > 0 => regions.push((Pa(start), Bytes(len))),
            _ => obstacle = Some("its registers are not in the board's address space".to_owned()),
        }
    }
    if regions.is_empty() {
        obstacle = Some("it has no registers in the board's address space".to_owned());
    }
    let mut irqs = Vec::new();
    for interrupt in cells(node, "interrupts").unwrap_or_default().chunks(3) {
        match interrupt {
            [0, number, flags] if on_gic => {
                irqs.push(BoardIrq {
                    intid: IntId(number.saturating_add(32)),
                    edge: flags & 0b11 != 0,
                });
            }
            _ => obstacle = Some("its interrupt is not a shared one of the board's GIC".to_owned()),
        }
    }
    if node.property("interrupts-extended").is_some() {
        obstacle = Some("its interrupts go to several controllers".to_owned());
    }
    if ["dmas", "iommus", "dma-coherent", "msi-parent", "msi-map"]
        .iter()
        .any(|name| node.property(name).is_some())
    {
        obstacle = Some("it does DMA, and nothing confines it without an SMMU".to_owned());
    }
    BoardDevice { path: path.to_owned(), compatible, regions, irqs, obstacle, node: node.clone() }
}
