//! The host bridge of a VM's PCI functions (bindings pci/host-generic-pci.yaml; IEEE 1275 PCI bus binding 2.1).

use super::{GIC, LEVEL_HIGH, SPI, add, node, reg};
use crate::{
    board::strings,
    packed::ECAM_LEN,
    pci::{Function, Pci},
    system::Vm,
};
use dtoolkit::{
    Node,
    model::{DeviceTree, DeviceTreeNode},
};

/// First cell of an address: 32-bit memory.
const MEMORY_32: u32 = 0x0200_0000;

/// The node, where the VM has functions. They are all on bus 0, and their base addresses can't move: `/chosen` says so.
pub(super) fn bridge(vm: &Vm, pci: &Pci, board: &DeviceTree) -> DeviceTreeNode {
    let mut bridge = node(format!("pcie@{:x}", vm.board.ecam.0));
    add(&mut bridge, "interrupt-map-mask", [0xf800_u32, 0, 0, 7]);
    let lines: Vec<_> = vm.functions.iter().flat_map(line).collect();
    add(&mut bridge, "interrupt-map", lines);
    add(&mut bridge, "#interrupt-cells", 1_u32);
    let [window, len] = [pci.window.0 as u32, pci.window_len.0 as u32];
    add(&mut bridge, "ranges", [MEMORY_32, 0, window, 0, window, 0, len]);
    add(&mut bridge, "reg", reg([(vm.board.ecam.0, ECAM_LEN)]));
    if is_coherent(&board.root) {
        add(&mut bridge, "dma-coherent", "".as_bytes());
    }
    add(&mut bridge, "bus-range", [0_u32, 0]);
    add(&mut bridge, "linux,pci-domain", 0_u32);
    add(&mut bridge, "#size-cells", 2_u32);
    add(&mut bridge, "#address-cells", 3_u32);
    add(&mut bridge, "device_type", "pci");
    add(&mut bridge, "compatible", "pci-host-ecam-generic");
    bridge
}

/// An entry of the interrupt map: INTA of a function, and the GIC's line.
fn line(function: &Function) -> [u32; 10] {
    let slot = u32::from(function.address.device) << 11;
    [slot, 0, 0, 1, GIC, 0, 0, SPI, function.intid.saturating_sub(32), LEVEL_HIGH]
}

/// Whether the devices behind the board's host bridge see the caches.
fn is_coherent(root: &DeviceTreeNode) -> bool {
    let mut children = root.children();
    children.any(|child| {
        strings(child, "device_type") == ["pci"] && child.property("dma-coherent").is_some()
    })
}
