//! The VMs on each core, and how VMs share a core.

use super::{Checker, is_unknown};
use crate::diagnostics::Code;
use crate::keys::system as raw;
use crate::platform::Platform;
use crate::system::System;
use crate::table::At;
use crate::text::hex;
use crate::timing::schedule::{Entity, Schedule, SharedCore};
use crate::vm::{STOLEN_TIME, Vm};
use std::{collections::HashMap, ops::Range};
use weir_abi::PAGE;
use weir_abi::schedule::{LEAST_SLOT_NS, MAX_SLOTS, MOST_SLOT_NS};
use weir_units::Nanos;

/// The longest time slice in whole seconds, for messages.
const LONGEST_SLOT: &str = "2199s";
const _: () = assert!(MOST_SLOT_NS / 1_000_000_000 == 2199);

/// Returns the part of a help that names the cores without a VM.
fn free_cores(platform: &Platform, vms: &[At<raw::Vm>]) -> String {
    let used = |core: &u64| {
        let mut cpus = vms.iter().filter_map(|vm| vm.cpus.as_ref()).flat_map(|cpus| &cpus.value);
        cpus.any(|used| used.value == *core)
    };
    let count = platform.cores.len() as u64;
    let free: Vec<_> = (0..count).filter(|core| !used(core)).map(|core| core.to_string()).collect();
    if free.is_empty() {
        "; no core is free".to_owned()
    } else {
        format!("; free: {}", free.join(", "))
    }
}

impl Checker<'_> {
    /// Gives the VMs that share a core the page of their stolen time.
    pub(super) fn stolen_time(&mut self, raw: &raw::System, system: &System, vms: &mut [Vm]) {
        let sharers = vms.iter_mut().enumerate().filter(|(index, _)| system.is_shared(*index));
        for (index, vm) in sharers {
            vm.stolen_time = true;
            if let Some(what) = vm.in_the_way(&(STOLEN_TIME..STOLEN_TIME + PAGE)) {
                let span = raw.vms().get(index).map_or(0..0, |vm| vm.span.clone());
                let message = format!(
                    "{vm}: the page of its stolen time and {what} are both at {}",
                    hex(STOLEN_TIME)
                );
                let fault = self.fault(Code::Overlap, &span, message).label("this VM");
                let help = format!("move {what} away from there, or give the VM cores of its own");
                self.faults.push(fault.help(help));
            }
        }
    }

    /// Each vCPU has a core that there is, and shares it only with a schedule.
    pub(super) fn cores(&mut self, vms: &[At<raw::Vm>], system: &System) {
        let mut taken: HashMap<u64, (&Range<usize>, String)> = HashMap::new();
        for vm in vms {
            let Some(At { value: cpus, span }) = &vm.cpus else {
                continue;
            };
            let name = vm.to_string();
            if cpus.is_empty() {
                let fault = self
                    .fault(Code::Empty, span, format!("{name}: `cpus` is empty"))
                    .label("empty");
                self.faults.push(fault.help("write the core of each vCPU: cpus = [0]"));
            }
            for core in cpus {
                if let Some(platform) = &self.platform
                    && is_unknown(core.value, platform)
                {
                    let fault = self.unknown_core(&format!("{name}: `cpus`"), core, platform);
                    self.faults.push(fault);
                }
                let shared = self.is_analyzed || system.is_shared_core(core.value);
                let before = taken.get(&core.value).filter(|(_, owner)| !shared || *owner == name);
                if let Some((first, owner)) = before {
                    let message = format!("core {}: given to {owner} and to {name}", core.value);
                    let free = self
                        .platform
                        .as_ref()
                        .map_or_else(String::new, |platform| free_cores(platform, vms));
                    let help = if *owner == name {
                        format!("a core runs one vCPU of a VM{free}")
                    } else {
                        format!(
                            "a core runs one vCPU, unless a schedule shares it: write [[core]] with \
                             id = {}, or let `weir plan` choose the schedule{free}",
                            core.value
                        )
                    };
                    let fault =
                        self.fault(Code::CoreTaken, &core.span, message).label("again here");
                    self.faults
                        .push(fault.and((*first).clone(), format!("{owner} has it")).help(help));
                } else {
                    taken.insert(core.value, (&core.span, name.clone()));
                }
            }
        }
    }

    /// Checks that the schedule of a shared core names all VMs on it and no others, with lengths
    /// that can be kept.
    pub(super) fn schedules(&mut self, system: &System) {
        for core in &system.cores {
            self.slots(system, core);
            let named = core.schedule.entities();
            for (position, vm) in system.guests().iter().enumerate() {
                if vm.is_on(core.id) && !named.contains(&Entity::Vm(position)) {
                    let message = format!(
                        "{vm}: core {} is in its `cpus`, but the schedule of the core does not \
                         name it",
                        core.id
                    );
                    let fault = self
                        .fault(Code::NotInSchedule, &core.place.0, message)
                        .label("this schedule");
                    let help = format!("add {vm} to the schedule, or give it another core");
                    self.faults.push(fault.and(vm.place.0.clone(), "the VM").help(help));
                }
            }
            for entity in &named {
                let Entity::Vm(position) = *entity else { continue };
                let Some(vm) = system.guests().get(position) else { continue };
                if !vm.is_on(core.id) {
                    let message = format!(
                        "{vm}: the schedule of core {} names it, but its `cpus` does not",
                        core.id
                    );
                    let fault = self.fault(Code::NotInSchedule, &core.place.0, message);
                    let fault = fault.label("this schedule").and(vm.place.0.clone(), "the VM");
                    let help = format!(
                        "add {} to the `cpus` of {vm}, or remove the VM from the schedule",
                        core.id
                    );
                    self.faults.push(fault.help(help));
                }
            }
        }
    }

    /// Every interrupt with a rule, of a VM that shares a core, is one of that VM's devices, and
    /// there are not too many. None is the DMA engine's.
    pub(super) fn lines(&mut self, system: &System, vms: &[Vm]) {
        let own = |vm: usize| {
            let vm = vms.get(vm)?;
            let devices = vm.devices.iter().flat_map(|device| &device.irqs).map(|irq| irq.intid);
            Some(devices.chain(vm.pci_lines().map(|irq| irq.intid)).collect())
        };
        let engine = self.platform.as_ref().and_then(|platform| platform.dma_engine.as_ref());
        self.faults.0.extend(system.wrong_rules(engine, own));
    }

    fn slots(&mut self, system: &System, core: &SharedCore) {
        let slots = core.schedule.slots();
        let mut wrong = |code, message: String, help: String| {
            let fault = self.fault(code, &core.place.0, message).label("this schedule");
            self.faults.push(fault.help(help));
        };
        if slots.is_empty() {
            let message = format!("core {}: the schedule names no VM", core.id);
            wrong(Code::Empty, message, format!("give a VM the core, cpus = [{}]", core.id));
        }
        if slots.len() > MAX_SLOTS {
            let message = format!(
                "core {}: the schedule has {} slots (EL2 supports {MAX_SLOTS})",
                core.id,
                slots.len()
            );
            wrong(Code::TooMany, message, "use a shorter major frame".to_owned());
        }
        let is_table = matches!(core.schedule, Schedule::Table { .. });
        let is_round = matches!(core.schedule, Schedule::RoundRobin { .. });
        for (place, (entity, length)) in slots.iter().enumerate() {
            let name = entity.title(system);
            if !is_table && slots.iter().take(place).any(|(other, _)| other == entity) {
                let message = format!("core {}: the schedule names {name} twice", core.id);
                wrong(Code::Twice, message, "keep one of them, or write a time table".to_owned());
            }
            let kept = (LEAST_SLOT_NS..=MOST_SLOT_NS).contains(&length.0);
            // A round has one length for all time slices.
            if !(kept || is_round && place > 0) {
                let what =
                    if is_round { "time slice".to_owned() } else { format!("time of {name}") };
                let least = Nanos(LEAST_SLOT_NS);
                let message = format!(
                    "core {}: the {what} is {length} (EL2 supports {least} to {LONGEST_SLOT})",
                    core.id
                );
                wrong(
                    Code::SlotLength,
                    message,
                    format!("write between {least} and {LONGEST_SLOT}"),
                );
            }
        }
        if core.schedule.repeats() > Nanos(MOST_SLOT_NS) {
            let message = format!(
                "core {}: the schedule repeats after {} (EL2 supports {LONGEST_SLOT})",
                core.id,
                core.schedule.repeats()
            );
            wrong(Code::SlotLength, message, format!("write at most {LONGEST_SLOT}"));
        }
    }
}
