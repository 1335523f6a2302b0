//! The plan of a checked system.

use super::{
    PlannedArea, PlannedBudget, PlannedClass, PlannedClasses, PlannedCore, PlannedDevice,
    PlannedFlow, PlannedShare, PlannedTask, PlannedVm, SystemPlan,
};
use weir_model::{
    ImageSource, MapOwner, Placement, System, Vm,
    platform::RamRange,
    shares,
    timing::{DEFAULT_PORT, Entity, Schedule, SharedCore},
};
use weir_units::Nanos;

impl SystemPlan {
    /// Returns the plan of a system with this memory map.
    #[must_use]
    pub fn of(system: &System, placement: &Placement) -> Self {
        Self {
            system: weir_image::name(system),
            platform: system.platform().name.clone(),
            vms: system.vms.iter().map(planned_vm).collect(),
            cores: cores(system),
            ram_bytes: system.platform().ram().map(|ram| ram.size.0).sum(),
            memory: memory(system, placement),
            flows: flows(system),
            devices: devices(system),
            classes: system.division.divided.then(|| classes(system, placement)),
        }
    }
}

/// Returns a source without the host's folders, on which two plans of one system must not depend.
fn source(source: &ImageSource) -> String {
    match source {
        ImageSource::Named(name) => name.clone(),
        ImageSource::File(path) => {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
    }
}

fn planned_vm(vm: &Vm) -> PlannedVm {
    let budget = vm.memory_budget.as_ref().and_then(|asked| asked.budget);
    PlannedVm {
        name: vm.name.clone(),
        cores: vm.cpus.iter().map(|core| core.0).collect(),
        memory_bytes: vm.memory.iter().map(|piece| piece.size.0).sum(),
        images: [Some(vm.image.source()), vm.image.initrd()]
            .into_iter()
            .flatten()
            .map(source)
            .collect(),
        arguments: vm.image.args().to_owned(),
        budget: budget.map(|(accesses, period)| PlannedBudget { accesses, period_ns: period.0 }),
        tasks: vm
            .tasks
            .iter()
            .map(|task| PlannedTask {
                name: task.name.clone(),
                wcet_ns: task.wcet.0,
                period_ns: task.period.0,
                deadline_ns: task.deadline.0,
            })
            .collect(),
    }
}

fn cores(system: &System) -> Vec<PlannedCore> {
    let mut ids: Vec<u8> = system.vms.iter().flat_map(|vm| &vm.cpus).map(|core| core.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let core = |id: u8| match system.cores.iter().find(|core| core.id == u64::from(id)) {
        Some(core) => shared_core(id, core, system),
        None => PlannedCore {
            core: id,
            schedule: None,
            frame_ns: 1,
            shares: system
                .vms
                .iter()
                .filter(|vm| vm.cpus.iter().any(|core| core.0 == id))
                .map(|vm| share(vm.name.clone(), Nanos(0), Nanos(1), None))
                .collect(),
        },
    };
    ids.into_iter().map(core).collect()
}

fn share(vm: String, start: Nanos, length: Nanos, period: Option<Nanos>) -> PlannedShare {
    let period_ns = period.map(|period| period.0);
    PlannedShare { vm, start_ns: start.0, length_ns: length.0, period_ns }
}

fn shared_core(id: u8, core: &SharedCore, system: &System) -> PlannedCore {
    let name = |entity: &Entity| entity.name(system).to_owned();
    let behind = |shares: &mut Vec<PlannedShare>, entity: &Entity, length: Nanos, period| {
        let start = shares.last().map_or(0, |last| last.start_ns + last.length_ns);
        shares.push(share(name(entity), Nanos(start), length, period));
    };
    let mut shares = Vec::new();
    let (schedule, frame) = match &core.schedule {
        Schedule::RoundRobin { quantum, entities } => {
            for entity in entities {
                behind(&mut shares, entity, *quantum, None);
            }
            let frame = quantum.0.saturating_mul(entities.len() as u64);
            (format!("round robin, time slices of {quantum}"), frame)
        }
        Schedule::Table { frame, slots } => {
            shares.extend(
                slots
                    .iter()
                    .map(|(entity, start, length)| share(name(entity), *start, *length, None)),
            );
            (format!("table, major frame {frame}"), frame.0)
        }
        Schedule::FixedPriority { servers } => {
            for (entity, budget, period) in servers {
                behind(&mut shares, entity, *budget, Some(*period));
            }
            ("fixed priority, highest first".to_owned(), 0)
        }
    };
    PlannedCore { core: id, schedule: Some(schedule), frame_ns: frame, shares }
}

fn memory(system: &System, placement: &Placement) -> Vec<PlannedArea> {
    let is_in = |ram: RamRange, at: u64| (ram.base.0..ram.base.0 + ram.size.0).contains(&at);
    let is_ram = |at: u64| system.platform().ram().any(|ram| is_in(ram, at));
    let ram = placement.rows.iter().filter(|row| is_ram(row.address.0));
    ram.map(|row| PlannedArea {
        address: row.address.0,
        bytes: row.size.0,
        owner: match &row.owner {
            MapOwner::Vm(_, name) => Some(name.clone()),
            MapOwner::Hypervisor => Some("weir".to_owned()),
            MapOwner::Free => None,
        },
        what: row.what.clone(),
    })
    .collect()
}

fn flows(system: &System) -> Vec<PlannedFlow> {
    let flows = system.flows.iter().enumerate().filter(|_| system.has_flows());
    let flow = |(index, flow): (usize, &weir_model::timing::Flow)| {
        let port = flow.port.unwrap_or(DEFAULT_PORT);
        let address = format!("{}:{port}", system.destination(index));
        let flow = flow.clone();
        let name = |vm: usize| system.vms.get(vm).map_or("?", |vm| &vm.name).to_owned();
        let planned = move |to: usize| PlannedFlow {
            name: flow.name.clone(),
            from: name(flow.from),
            to: name(to),
            address: address.clone(),
            size_bytes: flow.size.0,
            period_ns: flow.period.map(|period| period.0),
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
        };
        let to = system.flows.get(index).map_or(&[][..], |flow| &flow.to);
        to.iter().copied().map(planned).collect::<Vec<_>>()
    };
    flows.flat_map(flow).collect()
}

fn devices(system: &System) -> Vec<PlannedDevice> {
    let of = |vm: &Vm| {
        let own = vm.devices.iter().map(|device| device.path.clone());
        let functions = vm.functions.iter().map(weir_model::pci::AssignedFunction::name);
        let port = vm.net.map(|net| {
            let kind = if net.uplink { ", uplink" } else { "" };
            format!("port of the switch{kind}")
        });
        let all: Vec<_> = own.chain(functions).chain(port).collect();
        let vm = vm.name.clone();
        all.into_iter().map(move |device| PlannedDevice { vm: vm.clone(), device })
    };
    system.vms.iter().flat_map(of).collect()
}

fn classes(system: &System, placement: &Placement) -> PlannedClasses {
    let classes = &system.division.classes;
    let shares = shares(system, placement);
    PlannedClasses {
        colors: classes.colors(),
        bank_groups: classes.bank_groups(),
        banks_in_group: classes.banks_in_group(),
        classes: classes
            .iter()
            .map(|class| PlannedClass {
                color: classes.color(class).into(),
                bank: classes.bank(class).into(),
                owners: shares
                    .iter()
                    .filter(|share| share.classes.contains(class))
                    .map(|share| share.name.clone())
                    .collect(),
            })
            .collect(),
    }
}
