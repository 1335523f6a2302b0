//! Network devices: the ports of the system's switch, and what is in their way.

use super::Checker;
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::keys::system as raw;
use crate::object::Object;
use crate::table::At;
use crate::text::hex;
use crate::vm::{NET, NET_INTID, Net, Vm};
use std::ops::Range;
use weir_abi::MAX_PORT_PIECES;

/// Frames that may go at once, if the file does not set `burst`.
const USUAL_BURST: u64 = 32;

impl Checker<'_> {
    /// Gives the VMs their network devices.
    pub(super) fn nets(&mut self, raw: &raw::System, vms: &mut [Vm]) {
        let requested =
            raw.vms().iter().zip(&mut *vms).filter_map(|(raw, vm)| Some((raw.net.as_ref()?, vm)));
        let mut ports: Vec<(String, Net, Range<usize>)> = Vec::new();
        for (request, vm) in requested {
            let Some(net) = self.net(vm, request) else { continue };
            let twice = ports.iter().find(|(_, other, _)| other.mac == net.mac);
            if let (Some((name, _, first)), Some(mac)) = (twice, &request.value.mac) {
                let message = format!(
                    "{vm}: mac = {:?} is the address of {} already",
                    mac.value,
                    Object::vm(name)
                );
                let fault = self.fault(Code::Twice, &mac.span, message).label("this VM");
                let fault = fault.and(first.clone(), "that VM");
                self.faults.push(fault.help("give one of them another address"));
            }
            let before = ports.iter().find(|(_, other, _)| other.uplink && net.uplink);
            if let Some((name, _, first)) = before {
                let message = format!("{vm}: has `uplink`, as {} has already", Object::vm(name));
                let fault = self.fault(Code::Switch, &request.span, message).label("this VM");
                let fault = fault.and(first.clone(), "that VM");
                let help =
                    "remove `uplink` from one of them: frames to unknown addresses go to one VM";
                self.faults.push(fault.help(help));
            }
            ports.push((vm.name.clone(), net, request.span.clone()));
            vm.net = Some(net);
        }
        let pieces: usize =
            vms.iter().filter(|vm| vm.net.is_some()).map(|vm| vm.memory.len()).sum();
        if let Some((.., span)) = ports.first().filter(|_| pieces > MAX_PORT_PIECES) {
            let message = format!(
                "the switch: its VMs have {pieces} pieces of RAM (the broker supports \
                 {MAX_PORT_PIECES})"
            );
            let fault = self.fault(Code::TooMany, span, message).label("the first port");
            let help =
                "give the VMs RAM in fewer pieces: sizes instead of lists, more adjacent TLB sets";
            self.faults.push(fault.help(help));
        }
        if let [(name, _, span)] = ports.as_slice() {
            let message = format!("{}: has the only network device", Object::vm(name));
            let fault = self.fault(Code::Switch, span, message).label("a switch of one port");
            self.faults.push(fault.help("add `net` to another VM, or remove it here"));
        }
    }

    /// One VM's, if its address is one.
    fn net(&mut self, vm: &Vm, request: &At<raw::Net>) -> Option<Net> {
        let raw::Net { mac, rate, burst, bandwidth, uplink } = &request.value;
        if let (Some(burst), None, None) = (burst, rate, bandwidth) {
            let message = format!("{vm}: `burst` without `rate` or `bandwidth`");
            let fault = self.fault(Code::KeyConflict, &burst.span, message).label("this");
            self.faults.push(
                fault.help("add `rate` in frames per second or `bandwidth`, or remove `burst`"),
            );
        }
        self.net_in_the_way(vm, &request.span);
        let mac = mac.as_ref()?;
        let address = match address(&mac.value) {
            Ok(address) => address,
            Err(wrong) => {
                let message = format!("{vm}: mac = {:?} {wrong}", mac.value);
                let fault = self.fault(Code::MacAddress, &mac.span, message).label("this address");
                let help = "write six bytes like \"52:54:00:00:00:01\", of which the first is even";
                self.faults.push(fault.help(help));
                return None;
            }
        };
        Some(Net {
            mac: address,
            rate: rate.unwrap_or(0),
            burst: burst.as_ref().map_or(USUAL_BURST, |burst| burst.value),
            bandwidth: bandwidth.map_or(0, |bandwidth| bandwidth.0),
            uplink: *uplink,
        })
    }

    /// Nothing is in the way of a VM's network device.
    fn net_in_the_way(&mut self, vm: &Vm, span: &Range<usize>) {
        let mut taken = |code, message: String, help: String| {
            let fault: Fault = self.fault(code, span, message).label("this VM");
            self.faults.push(fault.help(help));
        };
        if let Some(other) = vm.in_the_way(&NET) {
            let message =
                format!("{vm}: its network device and {other} are both at {}", hex(NET.start));
            taken(Code::Overlap, message, format!("move {other} away from there"));
        }
        if let Some(other) = vm.device_with(NET_INTID) {
            let message =
                format!("{vm}: its network device and {other} have interrupt {NET_INTID}");
            let help = format!("take {other} or `net` out, or move the PL011's: `uart_intid`");
            taken(Code::InterruptTwice, message, help);
        }
    }
}

/// The first byte in the lowest eight bits.
fn address(text: &str) -> Result<u64, &'static str> {
    let bytes: Vec<_> = text.split(':').collect();
    let digits = |byte: &&str| byte.len() == 2 && byte.bytes().all(|c| c.is_ascii_hexdigit());
    if bytes.len() != 6 || !bytes.iter().all(digits) {
        return Err("is no MAC address");
    }
    let value = |mac: u64, byte: &&str| mac << 8 | u64::from_str_radix(byte, 16).unwrap_or(0);
    match bytes.iter().rev().fold(0, value) {
        0 => Err("is the null address"),
        mac if mac & 1 != 0 => Err("is the address of several stations"),
        mac => Ok(mac),
    }
}
