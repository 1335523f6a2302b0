//! The host bridge of a VM's PCI functions and of its socket device there (bindings
//! pci/host-generic-pci.yaml; IEEE 1275 PCI bus binding 2.1).

use super::{GIC, LEVEL_HIGH, SPI, add, node, reg};
use crate::board::strings;
use crate::pci::Pci;
use crate::vm::{SocketBus, VSOCK_BAR, VSOCK_INTID, Vm};
use dtoolkit::{
    Node,
    model::{DeviceTree, DeviceTreeNode},
};
use weir_abi::{ECAM_LEN, VSOCK_BAR_LEN, VSOCK_SLOT};
use weir_units::IntId;

/// First cell of an address: 32-bit memory.
const MEMORY_32: u32 = 0x0200_0000;

/// The node. All functions are on bus 0, and their base addresses can't move: `/chosen` states it.
/// `pci` is the board's, for those of the board.
pub(super) fn bridge(vm: &Vm, pci: Option<&Pci>, board: &DeviceTree) -> DeviceTreeNode {
    let mut bridge = node(format!("pcie@{:x}", vm.board.ecam.0));
    add(&mut bridge, "interrupt-map-mask", [0xf800_u32, 0, 0, 7]);
    let given = vm.functions.iter().map(|one| (one.address.device.into(), one.intid));
    let socket = (vm.socket == Some(SocketBus::Pci)).then_some((VSOCK_SLOT, VSOCK_INTID));
    let lines: Vec<_> = given.chain(socket).flat_map(line).collect();
    add(&mut bridge, "interrupt-map", lines);
    add(&mut bridge, "#interrupt-cells", 1_u32);
    let pci = pci.filter(|_| !vm.functions.is_empty());
    let [window, len] = match pci {
        Some(pci) => [pci.window.0, pci.window_len.0],
        None => [VSOCK_BAR, VSOCK_BAR_LEN],
    };
    let [window, len] = [window as u32, len as u32];
    add(&mut bridge, "ranges", [MEMORY_32, 0, window, 0, window, 0, len]);
    add(&mut bridge, "reg", reg([(vm.board.ecam.0, ECAM_LEN)]));
    if pci.is_none() || is_coherent(&board.root) {
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

/// An entry of the interrupt map: INTA of a device, and its interrupt at the GIC.
fn line((device, intid): (u32, IntId)) -> [u32; 10] {
    [device << 11, 0, 0, 1, GIC, 0, 0, SPI, intid.0.saturating_sub(32), LEVEL_HIGH]
}

/// Whether the devices behind the board's host bridge see the caches.
fn is_coherent(root: &DeviceTreeNode) -> bool {
    let mut children = root.children();
    children.any(|child| {
        strings(child, "device_type") == ["pci"] && child.property("dma-coherent").is_some()
    })
}
