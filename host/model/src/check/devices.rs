//! Which device of the board goes to which VM, and why not.

use super::Checker;
use crate::board::BoardDevice;
use crate::devicetree;
use crate::diagnostics::Code;
use crate::keys::system as raw;
use crate::object::Object;
use crate::pci::{PREFIX, SMMU_LEN};
use crate::platform::{DmaEngine, Platform, PlatformGic};
use crate::ranges::{overlap, span};
use crate::system::System;
use crate::table::At;
use crate::text::nearest;
use crate::vm::{AssignedDevice, CPU_INTERFACE_LEN, DISTRIBUTOR_LEN, REDISTRIBUTOR_LEN};
use std::{collections::HashMap, ops::Range, sync::Arc};
use weir_abi::{ADDRESS_LIMIT, ECAM_LEN, INTID_LIMIT, PAGE};
use weir_units::{Bytes, IntId, Pa};

impl Checker<'_> {
    /// What each VM gets.
    pub(super) fn assign(
        &mut self,
        vms: &[At<raw::Vm>],
        system: &System,
    ) -> Vec<Vec<At<AssignedDevice>>> {
        let mut taken: HashMap<usize, (usize, String, Range<usize>)> = HashMap::new();
        let mut devices: Vec<Vec<At<AssignedDevice>>> = Vec::new();
        let Some(platform) = self.platform.clone() else {
            return vms.iter().map(|_| Vec::new()).collect();
        };
        let board = Arc::clone(&platform.board);
        let all = &board.devices;
        for (place, vm) in vms.iter().enumerate() {
            let mut own = Vec::new();
            if let Some(At { value: raw::Devices::List(names), .. }) = &vm.devices {
                let wanted: Vec<_> = names
                    .iter()
                    .filter(|name| !name.value.starts_with(PREFIX))
                    .filter_map(|name| Some((self.find_device(vm, name, all, &platform)?, name)))
                    .collect();
                let granted: Vec<_> = wanted.iter().map(|(index, _)| *index).collect();
                for (index, name) in wanted {
                    let device = &all[index];
                    let active = |vm| system.is_active(vm, &device.irqs);
                    let had = taken.get(&index);
                    if let Some((_, owner, first)) =
                        had.filter(|(first, ..)| !(active(*first) && active(place)))
                    {
                        let message = format!("{device}: given to {owner} and to {vm}");
                        let fault =
                            self.fault(Code::DeviceTaken, &name.span, message).label("again here");
                        let fault = fault.and(first.clone(), format!("{owner} has it"));
                        self.faults.push(fault.help(
                            "a device belongs to one VM: take it from one of them, or give both an \
                             [[irq]] of class \"active\" for each of its interrupts",
                        ));
                        continue;
                    }
                    taken.insert(index, (place, vm.to_string(), name.span.clone()));
                    let granted: Vec<_> = granted.iter().map(|index| &all[*index]).collect();
                    if let Some(reason) = refusal(device, all, &granted, &platform) {
                        let message = format!("{vm}: {device} cannot be passed through: {reason}");
                        let fault =
                            self.fault(Code::DeviceRefused, &name.span, message).label("this");
                        let allowed = passable(all, &platform);
                        let help = format!("use one of: {}", allowed.join(", "));
                        self.faults.push(fault.help(help));
                    } else {
                        own.push(At { value: grant(device), span: name.span.clone() });
                    }
                }
            }
            devices.push(own);
        }
        let mut rest: Option<(&At<raw::Vm>, Range<usize>)> = None;
        for (vm, own) in vms.iter().zip(&mut devices) {
            let Some(At { value: raw::Devices::Rest, span }) = &vm.devices else {
                continue;
            };
            if let Some((first, first_span)) = &rest {
                let message = format!("{vm}: devices = \"rest\", as {first} has already");
                let fault = self.fault(Code::DeviceTaken, span, message).label("second");
                let fault = fault.and(first_span.clone(), "first");
                self.faults.push(fault.help("list the devices of one of them by path"));
                continue;
            }
            rest = Some((vm, span.clone()));
            let left: Vec<_> = all
                .iter()
                .enumerate()
                .filter(|(index, _)| !taken.contains_key(index))
                .map(|(_, device)| device)
                .collect();
            let granted: Vec<_> = left
                .iter()
                .copied()
                .filter(|device| refusal(device, all, &left, &platform).is_none())
                .collect();
            // What needs a device that is itself refused goes too.
            let granted =
                granted.iter().filter(|device| refusal(device, all, &granted, &platform).is_none());
            own.extend(granted.map(|device| At { value: grant(device), span: span.clone() }));
        }
        devices
    }

    fn find_device(
        &mut self,
        vm: &raw::Vm,
        name: &At<String>,
        all: &[BoardDevice],
        platform: &Platform,
    ) -> Option<usize> {
        let path = platform.device_path(&name.value);
        let found = all.iter().position(|device| device.path == path);
        let root = &platform.board.tree.root;
        if found.is_none() && path.starts_with('/') && devicetree::at(root, path).is_some() {
            let message = format!(
                "{vm}: {} cannot be passed through: it has no registers",
                Object::device(path)
            );
            let fault = self.fault(Code::DeviceRefused, &name.span, message).label("this");
            self.faults.push(
                fault.help("assign the devices that it uses instead; it is assigned with them"),
            );
        } else if let (None, Some(reason)) = (found, named_channel(path, platform)) {
            let message =
                format!("{vm}: {} cannot be passed through: {reason}", Object::device(path));
            let fault = self.fault(Code::DeviceRefused, &name.span, message).label("this");
            let help = match platform.dma_engine {
                Some(_) => {
                    "take it out: messages of flows go by the engine, with [dma] path = \"dma\""
                }
                None => "take it out: a core copies the messages of flows",
            };
            self.faults.push(fault.help(help));
        } else if found.is_none() {
            let message = format!("{vm}: {platform} has no device `{}`", name.value);
            let fault = self.fault(Code::DeviceUnknown, &name.span, message).label("unknown");
            let known: Vec<_> = passable(all, platform);
            let paths = all.iter().map(|device| device.path.as_str());
            let short = platform.devices.iter().map(|device| device.name.as_str());
            let help = match nearest(&name.value, paths.chain(short)) {
                Some(near) => format!("write \"{near}\""),
                None if known.is_empty() => {
                    "take it out: no device of this board can be passed through".to_owned()
                }
                None => format!("use one of: {}", known.join(", ")),
            };
            self.faults.push(fault.help(help));
        }
        found
    }
}

/// A device with its registers rounded to whole pages.
fn grant(device: &BoardDevice) -> AssignedDevice {
    let regions = device.regions.iter().map(|region| {
        let pages = pages(region);
        (Pa(pages.start), Bytes(pages.end - pages.start))
    });
    AssignedDevice {
        path: device.path.clone(),
        regions: regions.collect(),
        irqs: device.irqs.clone(),
    }
}

fn pages((start, len): &(Pa, Bytes)) -> Range<u64> {
    let end = start.0.saturating_add(len.0);
    start.0 - start.0 % PAGE..end.checked_next_multiple_of(PAGE).unwrap_or(end)
}

/// The devices that can be passed through.
fn passable(all: &[BoardDevice], platform: &Platform) -> Vec<String> {
    let everything: Vec<_> = all.iter().collect();
    let good = all.iter().filter(|device| refusal(device, all, &everything, platform).is_none());
    good.map(|device| device.path.clone()).collect()
}

/// Why `device` cannot be passed through, if so. `granted` lists the other devices of the same VM.
fn refusal(
    device: &BoardDevice,
    all: &[BoardDevice],
    granted: &[&BoardDevice],
    platform: &Platform,
) -> Option<String> {
    let is = |name: &String| device.compatible.contains(name);
    if let Some(engine) = &platform.dma_engine
        && (device.regions.iter().any(|region| overlap(&pages(region), &engine.page()))
            || device.irqs.iter().any(|irq| irq.intid == engine.intid))
    {
        return Some(channel_refusal(engine, platform));
    }
    if let Some(deny) = platform.deny.iter().find(|deny| is(&deny.compatible)) {
        return Some(deny.reason.clone());
    }
    if let Some(obstacle) = &device.obstacle {
        return Some(obstacle.clone());
    }
    if !platform.allow.iter().any(is) {
        let reason =
            "the board has no SMMU, and the platform file does not list it as a device without DMA";
        return Some(format!("{reason} ({})", device.compatible.join(", ")));
    }
    let own: Vec<_> = device.regions.iter().map(pages).collect();
    for other in all.iter().filter(|other| other.path != device.path) {
        if other.regions.iter().any(|region| own.iter().any(|own| overlap(own, &pages(region)))) {
            return Some(format!("it shares a page with {}", other.path));
        }
    }
    if let Some(owned) =
        owned(platform).iter().find(|owned| own.iter().any(|own| overlap(own, owned)))
    {
        return Some(format!("the hypervisor uses {}", span(owned)));
    }
    if own.iter().any(|own| own.end > ADDRESS_LIMIT) {
        return Some("its registers are above 39 bits".to_owned());
    }
    if let Some(irq) = device.irqs.iter().find(|irq| irq.intid >= IntId(u32::from(INTID_LIMIT))) {
        return Some(format!(
            "its interrupt {} is above the virtual GIC's last, {}",
            irq.intid,
            INTID_LIMIT - 1
        ));
    }
    if let Some(irq) = device.irqs.iter().find(|irq| irq.intid == platform.uart.intid) {
        return Some(format!("its interrupt {} is the console's", irq.intid));
    }
    let event = platform.smmu.as_ref().map(|smmu| smmu.event_intid);
    if device.irqs.iter().any(|irq| Some(irq.intid) == event) {
        return Some("its interrupt is the SMMU's".to_owned());
    }
    let shares = |other: &&BoardDevice| {
        other.path != device.path
            && other.irqs.iter().any(|irq| device.irqs.iter().any(|own| own.intid == irq.intid))
    };
    if let Some(other) = all.iter().find(shares) {
        return Some(format!("it shares an interrupt with {}", other.path));
    }
    devicetree::missing_provider(&platform.board.tree, device, granted)
        .map(|path| format!("it needs {path}, which the VM does not have"))
}

/// Why no VM gets the DMA channel that a device's name means, on a board with a device tree that is
/// not known or leaves it out. The broker's channel has the engine's name, or the name ends with
/// the address of its registers; another one is named as in device trees,
/// `dma-controller@fd510000`.
fn named_channel(name: &str, platform: &Platform) -> Option<String> {
    let node = name.rsplit('/').next().unwrap_or(name);
    let (kind, address) = node.split_once('@').unwrap_or((node, ""));
    let address = u64::from_str_radix(address, 16).ok();
    if let Some(engine) = &platform.dma_engine
        && (name == engine.name || address == Some(engine.base.0))
    {
        return Some(channel_refusal(engine, platform));
    }
    let is_channel = matches!(kind, "dma" | "dma-controller" | "dma-channel");
    (is_channel && address.is_some())
        .then(|| format!("it is a DMA channel; {}", needs_smmu(platform)))
}

/// Why no VM gets the broker's channel of the DMA engine.
fn channel_refusal(engine: &DmaEngine, platform: &Platform) -> String {
    let why = needs_smmu(platform);
    format!("it is the broker's channel of the DMA engine {}; {why}", engine.name)
}

/// Why no VM gets a DMA channel.
fn needs_smmu(platform: &Platform) -> String {
    let smmu = match &platform.smmu {
        Some(_) => "and the SMMU is in front of PCI functions only".to_owned(),
        None => format!("and {platform} has none"),
    };
    format!("a VM can have a channel only behind an SMMU, {smmu}")
}

/// Physical addresses that are the hypervisor's own.
fn owned(platform: &Platform) -> Vec<Range<u64>> {
    let uart = platform.uart.base.0;
    let memory = platform.memory;
    let mut owned = vec![uart..uart + PAGE, memory.base.0..memory.base.0 + memory.size.0];
    owned.extend(platform.dma_engine.iter().map(DmaEngine::page));
    owned.extend(platform.smmu.iter().map(|smmu| smmu.base.0..smmu.base.0 + SMMU_LEN));
    owned.extend(platform.pci.iter().flat_map(|pci| {
        let window = pci.window.0..pci.window.0 + pci.window_len.0;
        [pci.ecam.0..pci.ecam.0 + ECAM_LEN, window]
    }));
    match platform.gic {
        PlatformGic::V2 { distributor, cpu_interface, hyp, virtual_cpu } => owned.extend([
            distributor.0..distributor.0 + PAGE,
            cpu_interface.0..cpu_interface.0 + CPU_INTERFACE_LEN,
            hyp.0..hyp.0 + PAGE,
            virtual_cpu.0..virtual_cpu.0 + CPU_INTERFACE_LEN,
        ]),
        PlatformGic::V3 { distributor, redistributors } => owned.extend([
            distributor.0..distributor.0 + DISTRIBUTOR_LEN,
            // Twice what a GICv3 has: a GICv4's stride is 256 KiB.
            redistributors.0
                ..redistributors.0 + 2 * REDISTRIBUTOR_LEN * platform.cores.len() as u64,
        ]),
    }
    owned
}
