//! Which PCI function of the board goes to which VM, and why not.

use super::Checker;
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::keys::system as raw;
use crate::object::Object;
use crate::pci::{Address, AssignedFunction, PREFIX, Pci};
use crate::platform::Platform;
use crate::table::At;
use crate::vm::AssignedDevice;
use weir_abi::MAX_FUNCTIONS;
use weir_units::{Bytes, Pa};

/// One that an earlier line gave away.
struct Earlier {
    vm: usize,
    owner: String,
    taken: At<AssignedFunction>,
}

impl Checker<'_> {
    /// The PCI functions of each VM. `devices` lists its other devices.
    pub(super) fn functions(
        &mut self,
        vms: &[At<raw::Vm>],
        devices: &[Vec<At<AssignedDevice>>],
    ) -> Vec<Vec<At<AssignedFunction>>> {
        let mut earlier: Vec<Earlier> = Vec::new();
        for (vm, raw) in vms.iter().enumerate() {
            let Some(At { value: raw::Devices::List(names), .. }) = &raw.devices else {
                continue;
            };
            for name in names {
                let Some(text) = name.value.strip_prefix(PREFIX) else { continue };
                let Some((pci, address)) = self.function_at(raw, name, text) else { continue };
                match self.take(&pci, address, (vm, raw), name, &earlier) {
                    Ok(function) => {
                        let taken = At { value: function, span: name.span.clone() };
                        earlier.push(Earlier { vm, owner: raw.to_string(), taken });
                    }
                    Err(fault) => self.faults.push(fault),
                }
            }
        }
        for one in &earlier {
            self.alone(one, &earlier, vms, devices);
        }
        let mut all: Vec<Vec<_>> = vms.iter().map(|_| Vec::new()).collect();
        for Earlier { vm, taken, .. } in earlier {
            all[vm].push(taken);
        }
        all
    }

    /// Where the function of this name is, and the host bridge that it is behind.
    fn function_at(
        &mut self,
        vm: &raw::Vm,
        name: &At<String>,
        text: &str,
    ) -> Option<(Pci, Address)> {
        let platform = self.platform.clone()?;
        let (code, message, help) = match (Address::parse(text), platform.pci, &platform.smmu) {
            (None, ..) => (
                Code::PciAddress,
                format!("`{}` is not the address of a PCI function", name.value),
                "write bus, device and function as lspci does: \"pci:00:02.0\"".to_owned(),
            ),
            (Some(_), None, _) => (
                Code::PciAbsent,
                format!("{platform} has no PCI"),
                with_pci("use a platform with [pci] and [smmu]"),
            ),
            (Some(_), Some(_), None) => (
                Code::PciAbsent,
                format!(
                    "{platform} has no SMMU, so a PCI function could access the memory of other VMs"
                ),
                with_pci("use a platform with [smmu]"),
            ),
            (Some(address), Some(_), Some(_)) if address.bus != 0 => (
                Code::PciAddress,
                format!("{address} is behind a bridge"),
                "a bridge has one owner for all that is behind it: put the device on bus 00"
                    .to_owned(),
            ),
            (Some(address), Some(pci), Some(_)) => return Some((pci, address)),
        };
        let message = format!("{vm}: {message}");
        let fault = self.fault(code, &name.span, message).label("this");
        self.faults.push(fault.help(help));
        None
    }

    /// The function at `address`, for VM `vm`, or why it can't have it.
    fn take(
        &self,
        pci: &Pci,
        address: Address,
        vm: (usize, &At<raw::Vm>),
        name: &At<String>,
        earlier: &[Earlier],
    ) -> Result<AssignedFunction, Fault> {
        let (vm, title) = (vm.0, vm.1.to_string());
        let (stream, intid) = (pci.stream(address), pci.intid(address));
        let refuse = |other: &Earlier, code, message: String, help: &str| {
            let fault = self.fault(code, &name.span, message).label("this");
            let theirs = other.taken.address;
            let fault = fault.and(other.taken.span.clone(), format!("{theirs} of {}", other.owner));
            Err(fault.help(help))
        };
        if let Some(other) = earlier.iter().find(|one| one.taken.address == address) {
            let message =
                format!("{}: given to {} and to {title}", Object::device(&name.value), other.owner);
            let help = "a function belongs to one VM: take it from one of them";
            return refuse(other, Code::DeviceTaken, message, help);
        }
        for other in earlier.iter().filter(|other| other.vm != vm) {
            let AssignedFunction {
                address: theirs, stream: their_stream, intid: their_line, ..
            } = other.taken.value;
            if theirs.device == address.device {
                let message = format!(
                    "{title}: {address} and {theirs} of {} are functions of one device",
                    other.owner
                );
                let help = "they can reset each other and reach each other past the SMMU: give \
                            both to one VM";
                return refuse(other, Code::PciShared, message, help);
            }
            if their_stream == stream {
                let message = format!(
                    "{title}: the SMMU cannot distinguish {address} from {theirs} of {}",
                    other.owner
                );
                let help = format!("both are its stream {stream}: give both to one VM");
                return refuse(other, Code::PciShared, message, &help);
            }
            if their_line == intid {
                let message = format!(
                    "{title}: {address} and {theirs} of {} share interrupt {intid}",
                    other.owner
                );
                let help = "INTA of device n is line n modulo 4: put one into a slot of another \
                            remainder, or give both to one VM";
                return refuse(other, Code::PciShared, message, help);
            }
        }
        if earlier.len() >= MAX_FUNCTIONS {
            let message = format!(
                "{title}: {address} is PCI function {} (weir supports {MAX_FUNCTIONS})",
                earlier.len() + 1
            );
            let fault = self.fault(Code::TooMany, &name.span, message).label("one too many");
            return Err(fault.help("remove it, or another function"));
        }
        let (start, size) = (pci.window.0, pci.aperture.0);
        let base = start.next_multiple_of(size) + earlier.len() as u64 * size;
        if base + size > start + pci.window_len.0 {
            let message = format!(
                "{title}: the base addresses of {address} need {}, and less is left of the board's \
                 window of {}",
                pci.aperture, pci.window_len
            );
            let fault = self.fault(Code::NoRoom, &name.span, message).label("no room for this one");
            return Err(fault.help("give fewer functions, or make `aperture` of [pci] smaller"));
        }
        Ok(AssignedFunction { address, stream, intid, bars: Pa(base), bars_len: Bytes(size) })
    }

    /// What a function needs that it doesn't have, and the owner of its interrupt.
    fn alone(
        &mut self,
        one: &Earlier,
        all: &[Earlier],
        vms: &[At<raw::Vm>],
        devices: &[Vec<At<AssignedDevice>>],
    ) {
        let AssignedFunction { address, intid, .. } = one.taken.value;
        let span = &one.taken.span;
        let first = Address { function: 0, ..address };
        let has_first = all.iter().any(|other| other.taken.address == first);
        if !has_first {
            let message = format!("{}: gets {address} without {first}", one.owner);
            let fault = self.fault(Code::PciShared, span, message).label("this");
            let help = format!(
                "an OS enumerates further functions only if function 0 exists: add \
                 \"{PREFIX}{first}\""
            );
            self.faults.push(fault.help(help));
        }
        for (vm, taken) in vms.iter().zip(devices) {
            let same =
                |taken: &&At<AssignedDevice>| taken.irqs.iter().any(|irq| irq.intid == intid);
            if let Some(other) = taken.iter().find(same) {
                let path = &other.path;
                let message =
                    format!("{}: {address} and {path} of {vm} share interrupt {intid}", one.owner);
                let fault = self.fault(Code::InterruptTwice, span, message).label("this");
                let fault = fault.and(other.span.clone(), "the device");
                self.faults.push(fault.help("put the function into another slot"));
            }
        }
    }
}

/// Advice that names the platforms on which it can be followed.
fn with_pci(advice: &str) -> String {
    let able: Vec<_> = Platform::all()
        .into_iter()
        .filter(|platform| platform.pci.is_some() && platform.smmu.is_some())
        .map(|platform| platform.name)
        .collect();
    format!("{advice}: {}", able.join(", "))
}
