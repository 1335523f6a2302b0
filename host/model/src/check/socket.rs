//! A VM's socket device, and what is in its way.

use super::Checker;
use crate::diagnostics::Code;
use crate::keys::system as raw;
use crate::ranges::overlap;
use crate::system::System;
use crate::table::At;
use crate::text::hex;
use crate::timing::flow::Flow;
use crate::vm::{SocketBus, VSOCK_INTID, Vm};
use std::ops::Range;
use weir_abi::{ECAM_LEN, VSOCK_SLOT};

impl Checker<'_> {
    /// A VM with the key `vsock` has a socket device.
    pub(super) fn sockets(&mut self, raw: &raw::System, system: &System) {
        for (index, vm) in raw.vms().iter().enumerate() {
            let Some(bus) = &vm.vsock else { continue };
            let is_end = |flow: &Flow| flow.ends_at(index);
            if !system.flows.iter().any(is_end) {
                let message = format!("{vm}: `vsock` has no effect without a [[flow]]");
                let fault = self.fault(Code::VsockUnused, &bus.span, message).label("of nothing");
                let help = "remove `vsock`, or add a [[flow]] from or to this VM";
                self.faults.push(fault.help(help));
            }
        }
    }

    /// Nothing is in the way of a VM's socket device.
    pub(super) fn socket(&mut self, raw: &At<raw::Vm>, vm: &Vm, flow: &Flow) {
        let Some(socket) = vm.socket else { return };
        let span = raw.vsock.as_ref().map_or(&raw.span, |bus| &bus.span).clone();
        self.in_the_way(vm, &socket.registers(), "socket device", flow, &span);
        if socket == SocketBus::Pci {
            self.on_pci(raw, vm, flow, &span);
        }
        if let Some(other) = vm.device_with(VSOCK_INTID) {
            let message = format!(
                "{vm}: its socket device, for {flow}, and {other} have interrupt {VSOCK_INTID}"
            );
            let fault = self.fault(Code::InterruptTwice, &span, message).label("this VM");
            let help = format!("take {other} or the flow out, or move the PL011's: `uart_intid`");
            self.faults.push(fault.help(help));
        }
    }

    /// The further needs of a device on PCI: a configuration space, shared with the functions of
    /// the VM if there are any.
    fn on_pci(&mut self, raw: &At<raw::Vm>, vm: &Vm, flow: &Flow, span: &Range<usize>) {
        if vm.functions.is_empty() {
            let at = raw.board.ecam.as_ref().map_or(span, |ecam| &ecam.span).clone();
            let ecam = At { value: vm.board.ecam.0, span: at };
            // As large as it is: an address in it is this one with the function's bits set.
            if self.address(raw, "PCI configuration space", &ecam, ECAM_LEN, ECAM_LEN).is_some() {
                let range = ecam.value..ecam.value + ECAM_LEN;
                self.in_the_way(vm, &range, "PCI configuration space", flow, &ecam.span);
                if overlap(&range, &SocketBus::Pci.registers()) {
                    let message = format!(
                        "{vm}: its PCI configuration space is where its socket device's registers \
                         are"
                    );
                    let fault = self.fault(Code::Overlap, &ecam.span, message).label("this");
                    self.faults.push(fault.help("move `ecam` of `board` away from there"));
                }
            }
            return;
        }
        let help = "remove `vsock` (MMIO transport), or remove the PCI functions of this VM";
        let slot = |device: u8| u32::from(device) == VSOCK_SLOT;
        if let Some(function) = vm.functions.iter().find(|one| slot(one.address.device)) {
            let message = format!(
                "{vm}: its socket device, for {flow}, and {} are both device {VSOCK_SLOT} of its \
                 bus",
                function.name()
            );
            let fault = self.fault(Code::VsockPlace, span, message).label("this VM");
            self.faults.push(fault.help(help));
        }
        let registers = SocketBus::Pci.registers();
        let pci = self.platform.as_ref().and_then(|platform| platform.pci);
        let outside = pci.is_some_and(|pci| {
            registers.start < pci.window.0 || registers.end > pci.window.0 + pci.window_len.0
        });
        if outside {
            let message = format!(
                "{vm}: its socket device has its registers at {}, and its PCI functions of the \
                 board are behind a bridge that passes nothing there",
                hex(registers.start)
            );
            let fault = self.fault(Code::VsockPlace, span, message).label("this VM");
            self.faults.push(fault.help(help));
        }
    }

    /// Reports what else of a VM's is at the addresses of `what`.
    fn in_the_way(
        &mut self,
        vm: &Vm,
        range: &Range<u64>,
        what: &str,
        flow: &Flow,
        span: &Range<usize>,
    ) {
        if let Some(other) = vm.in_the_way(range) {
            let message = format!(
                "{vm}: its {what}, for {flow}, and {other} are both at {}",
                hex(range.start)
            );
            let fault = self.fault(Code::Overlap, span, message).label("this");
            self.faults.push(fault.help(format!("move {other} away from there")));
        }
    }
}
