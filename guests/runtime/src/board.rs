//! What a guest knows of its board, all of it read from the device tree (Devicetree Specification
//! 0.4 and the bindings of `arm,gic-v3`, `arm,cortex-a15-gic`, `arm,pl011`, `arm,pl031`,
//! `arm,armv8-timer`).

use crate::Args;
use dtoolkit::{
    Node, Property,
    fdt::{Fdt, FdtNode},
};

/// Cores that a guest can use; further ones of the device tree are ignored.
pub const MAX_CORES: usize = 8;

/// The affinity fields of MPIDR_EL1, as in a `cpu` node's `reg`.
pub const MPIDR_AFFINITY: u64 = 0xff_00ff_ffff;

/// A range of physical addresses, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRegion {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub size: u64,
}

impl MemoryRegion {
    /// First address after the region.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.base.saturating_add(self.size)
    }
}

/// The interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardGic {
    /// GICv2: distributor and CPU interface are memory-mapped.
    V2 {
        /// The distributor.
        gicd: MemoryRegion,
        /// The CPU interface.
        gicc: MemoryRegion,
    },
    /// GICv3: distributor and the first region of redistributors; the CPU interface is in system
    /// registers.
    V3 {
        /// The distributor.
        gicd: MemoryRegion,
        /// The redistributors.
        gicr: MemoryRegion,
    },
}

impl BoardGic {
    /// The distributor's address.
    #[must_use]
    pub const fn gicd(self) -> u64 {
        match self {
            Self::V2 { gicd, .. } | Self::V3 { gicd, .. } => gicd.base,
        }
    }
}

/// Where weir puts the network device: the device tree does not say what a virtio device is.
const NETWORK: u64 = 0x0a00_1000;

/// A device with one interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestDevice {
    /// The device's registers.
    pub base: u64,
    /// Its interrupt's number at the GIC.
    pub intid: u32,
}

/// The board as the device tree describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// The first memory region.
    pub ram: MemoryRegion,
    /// The PL011 with the console.
    pub uart: GuestDevice,
    /// The interrupt controller.
    pub gic: BoardGic,
    /// The virtual timer's interrupt.
    pub virtual_timer: u32,
    /// The EL1 physical timer's interrupt.
    pub physical_timer: u32,
    /// The PL031, where the guest has one.
    pub rtc: Option<GuestDevice>,
    /// The socket device, where the guest has one: the registers of the first virtio device on the
    /// MMIO transport; or the configuration space of a PCI bus, of which the device tree names one
    /// interrupt, so that there is one device.
    pub socket: Option<GuestDevice>,
    /// The network device, a port of weir's switch, where the guest has one.
    pub network: Option<GuestDevice>,
    /// The configuration space of a PCI bus with one device on it, and that one's interrupt.
    pub pci: Option<GuestDevice>,
    /// The boot arguments.
    pub args: Args<'static>,
    cores: [u64; MAX_CORES],
    core_count: usize,
}

/// What a guest can't do without and did not find in its device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardError {
    /// The blob is not a valid device tree.
    NotADeviceTree,
    /// There is no node of this kind, or it lacks `reg` or `interrupts`.
    Missing(&'static str),
}

impl Board {
    /// Reads the board from a flattened device tree.
    ///
    /// # Errors
    ///
    /// [`BoardError`] if the blob is damaged or lacks memory, cores, console, timer or interrupt
    /// controller.
    pub fn from_dtb(dtb: &'static [u8]) -> Result<Self, BoardError> {
        let fdt = Fdt::new(dtb).map_err(|_| BoardError::NotADeviceTree)?;
        let root = fdt.root();
        let find = |compatible: &str| {
            root.children().find(|node| {
                node.compatible().is_some_and(|mut all| all.any(|name| name == compatible))
            })
        };

        let ram = root
            .children()
            .find(|node| node.name_without_address() == "memory")
            .and_then(|node| region(node, 0))
            .ok_or(BoardError::Missing("memory"))?;

        let gic = if let Some(node) = find("arm,gic-v3") {
            region(node, 0).zip(region(node, 1)).map(|(gicd, gicr)| BoardGic::V3 { gicd, gicr })
        } else {
            find("arm,cortex-a15-gic")
                .or_else(|| find("arm,gic-400"))
                .and_then(|node| region(node, 0).zip(region(node, 1)))
                .map(|(gicd, gicc)| BoardGic::V2 { gicd, gicc })
        }
        .ok_or(BoardError::Missing("interrupt controller"))?;

        let uart = find("arm,pl011").and_then(device).ok_or(BoardError::Missing("arm,pl011"))?;
        // The binding's order: secure physical, non-secure physical, virtual, hypervisor.
        let (virtual_timer, physical_timer) = find("arm,armv8-timer")
            .and_then(|node| interrupt(node, 2).zip(interrupt(node, 1)))
            .ok_or(BoardError::Missing("arm,armv8-timer"))?;
        let args = fdt
            .find_node("/chosen")
            .and_then(|chosen| {
                chosen.properties().find(|property| property.name() == "bootargs")?.as_str()
            })
            .unwrap_or("");

        let virtio = || {
            let is_virtio = |node: &FdtNode<'static>| {
                node.compatible().is_some_and(|mut all| all.any(|name| name == "virtio,mmio"))
            };
            root.children().filter(is_virtio).filter_map(device)
        };
        let pci = find("pci-host-ecam-generic").and_then(only_function);
        let mut cores = [0; MAX_CORES];
        let mut core_count = 0;
        let cpus = fdt.cpus().map_err(|_| BoardError::Missing("cpus"))?;
        for (slot, cpu) in cores.iter_mut().zip(cpus.cpus()) {
            let reg = cpu.property("reg").map(|reg| cells(reg.value(), 0, reg.value().len() / 4));
            *slot = reg.flatten().ok_or(BoardError::Missing("reg of a cpu"))?;
            core_count += 1;
        }
        if core_count == 0 {
            return Err(BoardError::Missing("cpu"));
        }

        Ok(Self {
            ram,
            uart,
            gic,
            virtual_timer,
            physical_timer,
            rtc: find("arm,pl031").and_then(device),
            socket: virtio().find(|device| device.base != NETWORK).or(pci),
            network: virtio().find(|device| device.base == NETWORK),
            pci,
            args: Args::new(args),
            cores,
            core_count,
        })
    }

    /// The cores' MPIDR affinities, in the device tree's order.
    #[must_use]
    pub fn cores(&self) -> &[u64] {
        &self.cores[..self.core_count]
    }

    /// The index in [`Self::cores`] of the core with this MPIDR_EL1.
    #[must_use]
    pub fn core_of_mpidr(&self, mpidr: u64) -> Option<usize> {
        self.cores().iter().position(|&core| core == mpidr & MPIDR_AFFINITY)
    }
}

trait AsStr<'a> {
    fn as_str(&self) -> Option<&'a str>;
}

impl<'a> AsStr<'a> for dtoolkit::fdt::FdtProperty<'a> {
    fn as_str(&self) -> Option<&'a str> {
        self.value_as().ok()
    }
}

/// The entry `index` of a root child's `reg`.
fn region(node: FdtNode<'_>, index: usize) -> Option<MemoryRegion> {
    let reg = node.reg().ok()??.nth(index)?;
    Some(MemoryRegion { base: reg.address().ok()?, size: reg.size().ok()? })
}

/// The entry `index` of `interrupts` as the number at the GIC: three cells, the first 0 for an SPI
/// and 1 for a PPI, the second the number among its kind.
fn interrupt(node: FdtNode<'_>, index: usize) -> Option<u32> {
    let property = node.property("interrupts")?;
    let number = cells(property.value(), index * 3 + 1, 1)? as u32;
    match cells(property.value(), index * 3, 1)? {
        0 => Some(number + 32),
        1 => Some(number + 16),
        _ => None,
    }
}

fn device(node: FdtNode<'_>) -> Option<GuestDevice> {
    Some(GuestDevice { base: region(node, 0)?.base, intid: interrupt(node, 0)? })
}

/// The configuration space of a host bridge, and the interrupt of the only device behind it: an
/// entry of `interrupt-map` is three cells of the device's address, its pin, a phandle, and, as the
/// GIC has `#address-cells` of 2, five cells at the GIC (Devicetree Specification 0.4, 2.4.3).
fn only_function(node: FdtNode<'_>) -> Option<GuestDevice> {
    const ENTRY: usize = 10;
    let map = node.property("interrupt-map")?;
    let intid = match cells(map.value(), 7, 1)? {
        0 => cells(map.value(), 8, 1)? as u32 + 32,
        _ => return None,
    };
    let alone = map.value().len() == ENTRY * 4;
    Some(GuestDevice { base: region(node, 0)?.base, intid }).filter(|_| alone)
}

/// `count` (1 or 2) big-endian 32-bit cells from cell `first` on, as one number.
fn cells(value: &[u8], first: usize, count: usize) -> Option<u64> {
    if count == 0 || count > 2 {
        return None;
    }
    let bytes = value.get(first * 4..(first + count) * 4)?;
    Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};

    fn bytes(cells: &[u32]) -> Vec<u8> {
        cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
    }

    fn node(name: &str, compatible: &str, reg: &[u32], interrupts: &[u32]) -> DeviceTreeNode {
        let mut node = DeviceTreeNode::new(name).unwrap();
        let mut add = |name: &str, value: Vec<u8>| {
            if !value.is_empty() {
                node.add_property(DeviceTreeProperty::new(name, value).unwrap());
            }
        };
        if !compatible.is_empty() {
            add("compatible", [compatible.as_bytes(), b"\0"].concat());
        }
        add("reg", bytes(reg));
        add("interrupts", bytes(interrupts));
        node
    }

    /// A board like QEMU's, with everything moved; `without` names a node to leave out.
    fn dtb(gic: &str, without: &str) -> &'static [u8] {
        let mut tree = DeviceTree::new();
        for name in ["#address-cells", "#size-cells"] {
            let property = DeviceTreeProperty::new(name, bytes(&[2])).unwrap();
            tree.root.add_property(property);
        }
        let mut chosen = DeviceTreeNode::new("chosen").unwrap();
        chosen.add_property(DeviceTreeProperty::new("bootargs", "boots=3 quiet=1").unwrap());
        let mut cpus = DeviceTreeNode::new("cpus").unwrap();
        for (name, value) in [("#address-cells", 1), ("#size-cells", 0)] {
            cpus.add_property(DeviceTreeProperty::new(name, bytes(&[value])).unwrap());
        }
        cpus.add_child(node("cpu@0", "arm,cortex-a53", &[0], &[]));
        cpus.add_child(node("cpu@101", "arm,cortex-a53", &[0x101], &[]));
        let timer = [1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4];
        for child in [
            chosen,
            cpus,
            node("memory@0", "", &[1, 0x8000_0000, 0, 0x20_0000], &[]),
            node(
                "intc@8000000",
                gic,
                &[0, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0xf6_0000],
                &[],
            ),
            node("pl011@9000000", "arm,pl011", &[0, 0x900_0000, 0, 0x1000], &[0, 1, 4]),
            node("pl031@9010000", "arm,pl031", &[0, 0x901_0000, 0, 0x1000], &[0, 2, 4]),
            node("timer", "arm,armv8-timer", &[], &timer),
        ] {
            if !child.name().starts_with(without) || without.is_empty() {
                tree.root.add_child(child);
            }
        }
        Box::leak(tree.to_dtb().into_boxed_slice())
    }

    #[test]
    fn reads_a_board() {
        let board = Board::from_dtb(dtb("arm,gic-v3", "")).unwrap();
        assert_eq!(board.ram, MemoryRegion { base: 0x1_8000_0000, size: 0x20_0000 });
        assert_eq!(board.uart, GuestDevice { base: 0x900_0000, intid: 33 });
        assert_eq!(board.rtc, Some(GuestDevice { base: 0x901_0000, intid: 34 }));
        assert_eq!((board.virtual_timer, board.physical_timer), (27, 30));
        assert_eq!(board.cores(), [0, 0x101]);
        assert_eq!(board.core_of_mpidr(0x8000_0101), Some(1));
        assert_eq!(board.core_of_mpidr(0x8000_0001), None);
        assert_eq!(board.args.get("boots"), Some("3"));
        let gicr = MemoryRegion { base: 0x80a_0000, size: 0xf6_0000 };
        assert!(matches!(board.gic, BoardGic::V3 { gicr: found, .. } if found == gicr));
        let board = Board::from_dtb(dtb("arm,cortex-a15-gic", "pl031")).unwrap();
        assert!(matches!(board.gic, BoardGic::V2 { .. }));
        assert_eq!(board.gic.gicd(), 0x800_0000);
        assert_eq!(board.rtc, None);
    }

    /// A board with a host bridge behind which there are devices with these interrupts.
    fn with_bridge(intids: &[u32]) -> Option<GuestDevice> {
        let dtb = Fdt::new(dtb("arm,gic-v3", "")).unwrap();
        let mut tree = DeviceTree::from_fdt(&dtb);
        let reg = [0x40, 0x1000_0000, 0, 0x1000_0000];
        let mut bridge = node("pcie@4010000000", "pci-host-ecam-generic", &reg, &[]);
        let map: Vec<u32> =
            intids.iter().flat_map(|intid| [0xf800, 0, 0, 1, 1, 0, 0, 0, intid - 32, 4]).collect();
        bridge.add_property(DeviceTreeProperty::new("interrupt-map", bytes(&map)).unwrap());
        tree.root.add_child(bridge);
        Board::from_dtb(Box::leak(tree.to_dtb().into_boxed_slice())).unwrap().socket
    }

    #[test]
    fn finds_the_only_device_behind_a_bridge() {
        assert_eq!(with_bridge(&[48]), Some(GuestDevice { base: 0x40_1000_0000, intid: 48 }));
        assert_eq!(with_bridge(&[36, 48]), None);
        assert_eq!(with_bridge(&[]), None);
    }

    #[test]
    fn says_what_is_missing() {
        for (without, missing) in [
            ("memory", "memory"),
            ("intc", "interrupt controller"),
            ("pl011", "arm,pl011"),
            ("timer", "arm,armv8-timer"),
            ("cpus", "cpus"),
        ] {
            let found = Board::from_dtb(dtb("arm,gic-v3", without));
            assert_eq!(found, Err(BoardError::Missing(missing)));
        }
        assert_eq!(Board::from_dtb(&[0; 64]), Err(BoardError::NotADeviceTree));
    }
}
