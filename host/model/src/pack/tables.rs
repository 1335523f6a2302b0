//! The tables of a packed system: VMs with their regions, segments and interrupts, flows, and the
//! schedules of shared cores.

use crate::place::{Placed, Placement};
use crate::system::System;
use crate::timing::Schedule as Plan;
use crate::timing::flow::DEFAULT_PORT;
use crate::timing::schedule::{Class, Entity, TimedLine};
use crate::vm::{NET, NET_INTID, Net, STOLEN_TIME, SocketBus, TickPolicy, VSOCK_INTID, Vm};
use weir_abi::{
    Irq, PackedHeader, PackedSchedule, PackedSegment, PackedTables, Region, Slot, schedule,
};
use weir_units::{IntId, Nanos};

/// The flows, where there is a broker to move them: one for each receiver.
pub(super) fn flows(system: &System) -> Vec<weir_abi::PackedFlow> {
    let mut flows = Vec::new();
    for flow in system.flows.iter().filter(|_| system.has_flows()) {
        let first = flows.len() as u32;
        flows.extend(flow.to.iter().map(|&to| weir_abi::PackedFlow {
            from: flow.from as u32,
            to: to as u32,
            port: flow.port.unwrap_or(DEFAULT_PORT),
            size: u32::try_from(flow.size.0).unwrap_or(u32::MAX),
            period: flow.period.map_or(0, |period| period.0),
            deadline: flow.deadline.map_or(0, |deadline| deadline.0),
            rate: flow.bandwidth.map_or(0, |rate| rate.0),
            first,
            members: flow.to.len() as u32,
        }));
    }
    flows
}

/// Bytes of header and tables of a system with so many segments.
pub(super) fn tables_len(system: &System, segments: usize) -> usize {
    let vms = system.vms.iter().map(|vm| {
        let registers: usize = vm.devices.iter().map(|device| device.regions.len()).sum();
        let irqs: usize = vm.devices.iter().map(|device| device.irqs.len()).sum();
        size_of::<weir_abi::PackedVm>()
            + (vm.memory.len() + registers) * size_of::<Region>()
            + (irqs + vm.pci_lines().count()) * size_of::<Irq>()
            + vm.functions.len() * size_of::<weir_abi::PciFunction>()
    });
    let flows = size_of_val(flows(system).as_slice());
    let engine = engine_line(system).map_or(0, |_| size_of::<Irq>());
    let segments = segments * size_of::<PackedSegment>();
    size_of::<PackedHeader>() + vms.sum::<usize>() + segments + flows + engine
}

/// Adds a VM with its regions, segments and interrupts.
pub(super) fn add_vm(
    tables: &mut PackedTables,
    system: &System,
    (index, vm): (usize, &Vm),
    entry: u64,
    placement: &Placement,
    segments: &[PackedSegment],
) {
    let ram = &placement.ram[index];
    let [own, pristine] = placement.kept.get(index).copied().unwrap_or_default();
    let mut name = [0; 32];
    // The checker allows 31 bytes.
    name.iter_mut().zip(vm.name.bytes()).for_each(|(to, from)| *to = from);
    let mut cores = [0; weir_abi::MAX_CORES];
    cores.iter_mut().zip(&vm.cpus).for_each(|(to, core)| *to = core.0);
    let is_exchange = |ipa: u64| system.broker() == Some(index) && ipa == weir_abi::EXCHANGE_IPA;
    let pieces = ram.iter().map(|placed| Region {
        ipa: placed.ipa.0,
        pa: placed.pa.0,
        len: placed.size.0,
        kind: if is_exchange(placed.ipa.0) { weir_abi::EXCHANGE } else { weir_abi::RAM },
    });
    let segments = cut(segments, ram);
    let registers = vm
        .devices
        .iter()
        .flat_map(|device| device.regions.iter().map(move |region| (device, region)))
        .map(|(device, (start, len))| {
            let active = system.is_active(index, &device.irqs);
            let kind = if active { weir_abi::ACTIVE } else { weir_abi::DEVICE };
            Region { ipa: start.0, pa: start.0, len: len.0, kind }
        });
    let regions: Vec<_> = pieces.chain(registers).collect();
    let irqs: Vec<_> = vm
        .devices
        .iter()
        .flat_map(|device| &device.irqs)
        .copied()
        .chain(vm.pci_lines())
        .map(|irq| Irq::new(irq.intid.0, irq.edge))
        .map(|irq| ruled(system, index, irq))
        .chain(engine_line(system).filter(|_| system.broker() == Some(index)))
        .collect();
    tables.vms.push(weir_abi::PackedVm {
        name,
        entry,
        device_tree: vm.board.device_tree.0,
        distributor: vm.board.distributor.0,
        gic_cpu: vm.board.gic_cpu.0,
        uart: vm.board.uart.0,
        uart_intid: vm.board.uart_intid.0,
        stolen_time: if vm.stolen_time { STOLEN_TIME } else { 0 },
        vsock_intid: vm.socket.map_or(0, |_| VSOCK_INTID.0),
        vsock: vm.socket.map_or(0, |socket| socket.registers().start),
        vsock_ecam: if vm.socket == Some(SocketBus::Pci) { vm.board.ecam.0 } else { 0 },
        first_region: tables.regions.len() as u32,
        regions: regions.len() as u32,
        first_segment: tables.segments.len() as u32,
        segments: segments.len() as u32,
        first_irq: tables.irqs.len() as u32,
        irqs: irqs.len() as u32,
        on_fault: vm.on_fault as u8,
        vcpus: vm.cpus.len() as u8,
        pmu: vm.pmu,
        ticks: match vm.ticks {
            TickPolicy::Keep => schedule::KEEP_TICKS,
            TickPolicy::Lose => schedule::LOSE_TICKS,
        },
        focus: vm.focus.into(),
        on_outside: vm.on_outside as u8,
        reserved: [0; 2],
        cores,
        classes: system.division.vms[index].words(),
        own,
        pristine,
        regulation: system.regulations.get(index).copied().unwrap_or_default(),
        net: vm.net.map_or_else(weir_abi::PackedNet::default, port),
    });
    tables.regions.extend(regions);
    tables.segments.extend_from_slice(&segments);
    tables.irqs.extend(irqs);
    tables.pci.extend(pci_functions(index, vm));
}

/// The interrupt of the DMA engine, which is the broker's, if the engine moves something.
fn engine_line(system: &System) -> Option<Irq> {
    system.moved_by_engine_from()?;
    Some(Irq::new(system.engine()?.intid.0, false))
}

/// A network device, where it is.
fn port(net: Net) -> weir_abi::PackedNet {
    weir_abi::PackedNet {
        registers: NET.start,
        mac: net.mac,
        rate: net.rate,
        burst: net.burst,
        bandwidth: net.bandwidth,
        intid: NET_INTID.0,
        uplink: net.uplink.into(),
    }
}

/// An interrupt with the rule that the file gives it.
fn ruled(system: &System, vm: usize, irq: Irq) -> Irq {
    let lines = &system.lines;
    let its = |line: &&TimedLine| line.vm == vm && line.intid() == Some(IntId(irq.intid));
    let Some(line) = lines.iter().find(its) else { return irq };
    let (interval_ns, burst) = line.admission.map_or((0, 0), |(rate, burst)| {
        // Rounded down, as the analysis takes it.
        let burst = burst.clamp(1, u64::from(u32::MAX)) as u32;
        ((1_000_000_000 / rate.max(1)).max(1), burst)
    });
    let active = (line.class == Class::Active).into();
    let (preempt, priority) = (line.preempt.into(), line.priority);
    Irq { interval_ns, burst, preempt, priority, active, ..irq }
}

/// Adds the schedules of the shared cores.
pub(super) fn add_schedules(tables: &mut PackedTables, system: &System) {
    for core in &system.cores {
        let first = tables.slots.len();
        let slot = |entity: &Entity, length: Nanos, at: Nanos| {
            let vm = match *entity {
                Entity::Vm(vm) => vm,
                Entity::Broker => system.broker()?,
            };
            Some(Slot { vm: vm as u32, reserved: 0, length_ns: length.0, at_ns: at.0 })
        };
        let (kind, frame) = match &core.schedule {
            Plan::RoundRobin { quantum, entities, .. } => {
                let packed = entities.iter().filter_map(|entity| slot(entity, *quantum, Nanos(0)));
                tables.slots.extend(packed);
                (schedule::ROUND_ROBIN, Nanos(0))
            }
            Plan::Table { frame, slots } => {
                let packed =
                    slots.iter().filter_map(|(entity, start, len)| slot(entity, *len, *start));
                tables.slots.extend(packed);
                (schedule::TIME_TABLE, *frame)
            }
            Plan::FixedPriority { servers } => {
                let packed =
                    servers.iter().filter_map(|(entity, len, period)| slot(entity, *len, *period));
                tables.slots.extend(packed);
                (schedule::FIXED_PRIORITY, Nanos(0))
            }
        };
        tables.schedules.push(PackedSchedule {
            core: core.id as u32,
            kind,
            frame_ns: frame.0,
            first_slot: first as u32,
            slots: (tables.slots.len() - first) as u32,
        });
    }
}

/// The segments, cut where a piece of RAM goes on in another place.
fn cut(segments: &[PackedSegment], ram: &[Placed]) -> Vec<PackedSegment> {
    let mut cut = Vec::new();
    for segment in segments {
        for placed in ram {
            let start = segment.ipa.max(placed.ipa.0);
            let end = (segment.ipa + segment.len).min(placed.ipa.0 + placed.size.0);
            if start < end {
                let skipped = start - segment.ipa;
                cut.push(PackedSegment {
                    ipa: start,
                    offset: segment.offset + skipped,
                    len: end - start,
                    kept: segment.kept + skipped,
                });
            }
        }
    }
    cut
}

/// The functions of the VM at place `index`, as the hypervisor reads them.
fn pci_functions(index: usize, vm: &Vm) -> impl Iterator<Item = weir_abi::PciFunction> {
    vm.functions.iter().map(move |function| weir_abi::PciFunction {
        vm: index as u32,
        address: function.address.id().into(),
        stream: function.stream,
        reserved: 0,
        ecam: vm.board.ecam.0,
        bars: function.bars.0,
        bars_len: function.bars_len.0,
    })
}
