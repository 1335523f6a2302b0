//! A system file's VMs on a chip's memory.

use crate::{
    budget::Counter,
    error::SimulationError,
    flows::Broker,
    kernels,
    memory::{Chip, MemoryModel},
    trace,
    vm::{Vcpu, Vm},
};
use weir_abi::regulation;
use weir_budget::{RegulatorKind as Regulates, Setting};
use weir_memory::{AddressMap, Pa};
use weir_model::MapOwner;
use weir_model::Placement;
use weir_model::System;
use weir_model::timing::Transfers;
use weir_model::timing::Workload;
use weir_model::timing::WorkloadKind;
use weir_paging::classes::Pages;
use weir_units::Bytes;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// VMs on a chip.
#[derive(Clone, Debug)]
pub struct SimulatedBoard {
    pub(crate) memory: MemoryModel,
    pub(crate) chip: Chip,
    pub(crate) map: AddressMap,
    pub(crate) cores: usize,
    pub(crate) vms: Vec<Vm>,
    /// Where the translation tables of devices lie.
    pub(crate) tables: Pa,
    pub(crate) broker: Option<Broker>,
    left_out: Option<String>,
}

impl SimulatedBoard {
    /// The VMs of a system, in the pages where `placement` puts them, on a memory. Traces are
    /// searched next to the system's file.
    ///
    /// # Errors
    /// [`SimulationError`], if the memory is not that of the system's platform, a trace can't be
    /// read, or a budget counts what the model does not.
    pub fn new(
        system: &System,
        placement: &Placement,
        memory: &MemoryModel,
    ) -> Result<Self, SimulationError> {
        let chip = memory.chip().ok_or_else(|| {
            SimulationError(format!(
                "{}: it has no cores and no caches; --dram-trace can use it",
                memory.description
            ))
        })?;
        let banks = &system.division.geometry.banks;
        let used = banks.iter().rposition(|mask| *mask != 0).map_or(0, |last| last + 1);
        let map =
            if used == 0 { memory.dram.map() } else { memory.dram.map_with_banks(&banks[..used]) };
        let cores: Vec<Vec<u8>> =
            system.vms.iter().map(|vm| vm.cpus.iter().map(|core| core.0).collect()).collect();
        let mut vms = Vec::new();
        let mut taken = vec![0; memory.engine_names().len()];
        for (index, vm) in system.vms.iter().enumerate() {
            let workload = vm.workload.clone();
            let of =
                |index: usize| Some((system.regulations.get(index)?, cores.get(index)?.as_slice()));
            let mut vcpus = Vec::new();
            for (vcpu, core) in vm.cpus.iter().enumerate() {
                let setting = regulation::setting(of, index, vcpu, system.cores_needed());
                let regulation =
                    setting.map(|setting| regulate(system, index, setting)).transpose()?;
                vcpus.push(Vcpu { core: usize::from(core.0), regulation });
            }
            let (pages, addresses): (Vec<_>, Vec<_>) =
                ram(system, placement, index).into_iter().unzip();
            if pages.is_empty() && workload.is_some() {
                return Err(SimulationError(format!("{} has no RAM for its workload", vm.name)));
            }
            if let Some(workload) = &workload {
                fits(system, (&vm.name, pages.len() as u64 * PAGE), workload)?;
            }
            let transfers = workload.as_ref().and_then(|workload| workload.transfers.as_ref());
            let engine = transfers
                .map(|transfers| engine(memory, &vm.name, transfers, &mut taken))
                .transpose()?;
            vms.push(Vm {
                engine,
                name: vm.name.clone(),
                vcpus,
                traces: trace::read(
                    &system.path,
                    (&vm.name, vm.cpus.len(), pages.len() as u64 * PAGE),
                    workload.as_ref(),
                )?,
                workload,
                pages,
                addresses,
            });
        }
        alone_on_their_cores(&vms)?;
        let (broker, left_out) = if system.flows.is_empty() {
            (None, None)
        } else {
            match Broker::new(system, memory, &vms, &mut taken) {
                Ok(broker) => (Some(broker), None),
                Err(why) => (None, Some(why?)),
            }
        };
        Ok(Self {
            broker,
            left_out,
            memory: memory.clone(),
            chip,
            map: map.map_err(SimulationError)?,
            cores: system.cores_needed().max(1),
            vms,
            tables: tables(placement),
        })
    }

    /// The same board without budgets.
    #[must_use]
    pub fn unregulated(&self) -> Self {
        let mut board = self.clone();
        let vcpus = board.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
        vcpus.for_each(|vcpu| vcpu.regulation = None);
        board
    }

    /// The same board with budgets of which nothing is taken off for what went beyond the last
    /// ones.
    #[must_use]
    pub fn without_debt(&self) -> Self {
        let mut board = self.clone();
        let vcpus = board.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
        for (setting, ..) in vcpus.filter_map(|vcpu| vcpu.regulation.as_mut()) {
            setting.debt = false;
        }
        board
    }

    /// The same board without colors and banks: the VMs' pages are contiguous.
    #[must_use]
    pub fn undivided(&self) -> Self {
        let mut board = self.clone();
        let mut page = board.vms.iter().flat_map(|vm| &vm.pages).min().copied().unwrap_or(0);
        for own in board.vms.iter_mut().flat_map(|vm| &mut vm.pages) {
            *own = page;
            page += PAGE;
        }
        board
    }

    /// The same board without budgets, and with the work of one VM alone; there are no flows.
    #[must_use]
    pub fn alone(&self, vm: usize) -> Self {
        let mut board = self.unregulated();
        board.broker = None;
        let vms = board.vms.iter_mut().enumerate();
        vms.filter(|(index, _)| *index != vm).for_each(|(_, other)| other.workload = None);
        board
    }

    /// Whether a VM does anything.
    #[must_use]
    pub fn works(&self, vm: usize) -> bool {
        self.vms.get(vm).is_some_and(|vm| vm.workload.is_some())
    }

    /// Whether packets are moved.
    #[must_use]
    pub const fn has_flows(&self) -> bool {
        self.broker.is_some()
    }

    /// Why the system's flows are not simulated, if they are not.
    #[must_use]
    pub fn flows_left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// How many VMs there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.vms.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }
}

/// Refuses vCPUs that go through more than the VM's RAM: in what there is they would begin again,
/// unseen. A device's memory is taken to begin again, so that one can go through more pages than
/// the VM has.
fn fits(
    system: &System,
    (vm, ram): (&str, u64),
    workload: &Workload,
) -> Result<(), SimulationError> {
    let (size, help) = match workload.kind {
        WorkloadKind::Trace | WorkloadKind::Dma | WorkloadKind::Network => return Ok(()),
        WorkloadKind::Kernel => {
            let bytes = workload.kernel.as_deref().map_or(0, kernels::bytes);
            (bytes.next_multiple_of(PAGE), "more `memory`, or another `kernel`")
        }
        _ => (workload.size.0, "a smaller `size`, or more `memory`"),
    };
    if size <= ram {
        return Ok(());
    }
    Err(SimulationError(format!(
        "{}: {vm}'s workload goes through {}, and its RAM has {}: write {help}",
        system.path.display(),
        Bytes(size),
        Bytes(ram)
    )))
}

/// Refuses vCPUs that work and share their core: the model has no scheduler.
fn alone_on_their_cores(vms: &[Vm]) -> Result<(), SimulationError> {
    let all = || vms.iter().flat_map(|vm| vm.vcpus.iter().map(move |vcpu| (vm, vcpu.core)));
    for (vm, core) in all().filter(|(vm, _)| vm.workload.is_some()) {
        let mut others = all().filter(|(other, its)| *its == core && !std::ptr::eq(*other, vm));
        if let Some((other, _)) = others.next() {
            return Err(SimulationError(format!(
                "{} and {} share core {core}, and the model has no scheduler: give each a core of \
                 its own with --set vm.NAME.cpus=[N], or leave the workload out",
                vm.name, other.name
            )));
        }
    }
    Ok(())
}

/// Returns the setting of a vCPU's regulator, the events that it counts, and the index of its group
/// budget: one for each VM, and behind them that of MemGuard.
fn regulate(
    system: &System,
    index: usize,
    setting: Setting,
) -> Result<(Setting, [Counter; 2], usize), SimulationError> {
    let regulation = &system.regulations[index];
    let counters = Counter::pair(regulation).ok_or_else(|| {
        let name = &system.vms[index].name;
        SimulationError(format!(
            "{name}'s bandwidth counts an event that the model has not: use l2d-refill, \
             l2d-writeback, bus-access or mem-access"
        ))
    })?;
    let group = match setting.kind {
        Regulates::Memguard => system.vms.len(),
        Regulates::Compensation => usize::from(regulation.critical),
        Regulates::Static | Regulates::Pool => index,
    };
    Ok((setting, counters, group))
}

/// The engine for a VM's transfers: its number, the first of the channels that are the VM's, and
/// the bytes of a descriptor.
fn engine(
    memory: &MemoryModel,
    vm: &str,
    transfers: &Transfers,
    taken: &mut [usize],
) -> Result<(usize, usize, u64), SimulationError> {
    let name = &transfers.engine;
    let (number, engine) = memory.engine(name).ok_or_else(|| {
        let names: Vec<_> = memory.engine_names().collect();
        SimulationError(format!(
            "{vm}'s workload names the DMA engine `{name}`; {} has: {}",
            memory.description,
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ))
    })?;
    let first = taken[number];
    taken[number] += transfers.channels;
    if taken[number] > engine.channels() {
        return Err(SimulationError(format!(
            "{vm}'s workload wants {} channels of the DMA engine {name}, of which {} are left: \
             write channels = N",
            transfers.channels,
            engine.channels().saturating_sub(first)
        )));
    }
    Ok((number, first, engine.descriptor()))
}

/// Translation tables are the hypervisor's: they are taken to lie in its memory.
fn tables(placement: &Placement) -> Pa {
    let own = placement.rows.iter().find(|row| matches!(row.owner, MapOwner::Hypervisor));
    Pa(own.map_or(0, |row| row.address.0))
}

/// The physical addresses of the pages of a VM's RAM, in the order in which it sees them.
#[must_use]
pub fn ram_pages(system: &System, placement: &Placement, index: usize) -> Vec<u64> {
    ram(system, placement, index).into_iter().map(|(physical, _)| physical).collect()
}

/// The pages of a VM's RAM, in the order in which it sees them: their physical addresses, and those
/// by which the VM and its devices access them.
fn ram(system: &System, placement: &Placement, index: usize) -> Vec<(u64, u64)> {
    let is_its_ram = |owner: &MapOwner| matches!(owner, MapOwner::Vm(vm, _) if *vm == index);
    let mut rows: Vec<_> = placement
        .rows
        .iter()
        .filter(|row| is_its_ram(&row.owner) && row.what == "RAM" && row.ipa.is_some())
        .collect();
    rows.sort_by_key(|row| row.ipa.map(|ipa| ipa.0));
    let mut pages = Vec::new();
    for row in rows {
        let seen = (row.ipa.map_or(0, |ipa| ipa.0)..).step_by(PAGE as usize);
        if let Some(set) = row.classes {
            let classes = &system.division.classes;
            let own = Pages::from_page(classes, set, row.address.0, row.size.0);
            pages.extend(own.into_iter().zip(seen));
        } else {
            let own = (0..row.size.0 / PAGE).map(|page| row.address.0 + page * PAGE);
            pages.extend(own.zip(seen));
        }
    }
    pages
}
