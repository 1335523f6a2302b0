//! The I/O service VM, which moves the flows' packets and the switch's frames: it is in no file,
//! and in the system as the last VM.

use super::{Checker, is_unknown};
use crate::coloring::assign::BROKER_TITLE;
use crate::coloring::work::Demand;
use crate::diagnostics::Code;
use crate::fault::FilePlace;
use crate::keys::system as raw;
use crate::platform::Platform;
use crate::resolve::ImageSource;
use crate::system::System;
use crate::timing::flow::{DEFAULT_PORT, Flow};
use crate::timing::schedule::Entity;
use crate::vm::{BROKER, Image, RamPiece, SocketBus, Spans, VirtualBoard, Vm};
use std::ops::Range;
use weir_abi::{EXCHANGE_IPA, EXCHANGE_LEN, FLOW_TIME_LIMIT, MAX_FLOWS, MAX_VMS};
use weir_units::{Bytes, CoreId, Ipa};

/// RAM of the broker: what the guest runtime links for.
const RAM: RamPiece = RamPiece { base: Ipa(0x4000_0000), size: Bytes(2 << 20) };
/// The memory that it shares with the hypervisor.
const EXCHANGE: RamPiece = RamPiece { base: Ipa(EXCHANGE_IPA), size: Bytes(EXCHANGE_LEN) };
/// Most bytes of a packet's payload: what virtio drivers cut messages into.
const MAX_PACKET: u64 = 64 << 10;

/// Whether there are flows or a switch that can be carried out: the platform runs.
pub(super) fn is_needed(raw: &raw::System, system: &System, platform: &Platform) -> bool {
    reason(raw, system).is_some() && platform.places.planned.is_none()
}

/// The first flow, or the first port of the switch: why there is a broker.
fn reason(raw: &raw::System, system: &System) -> Option<Range<usize>> {
    let flow = system.flows.first().map(|flow| flow.place.0.clone());
    flow.or_else(|| raw.vms().iter().find_map(|vm| Some(vm.net.as_ref()?.span.clone())))
}

/// What the broker wants of memory.
pub(super) fn demand(raw: &raw::System, system: &System) -> Demand {
    let memory = Bytes(RAM.size.0 + EXCHANGE.size.0);
    let span = reason(raw, system).unwrap_or(0..0);
    Demand { name: BROKER_TITLE.to_owned(), memory, pristine: RAM.size, span }
}

impl Checker<'_> {
    /// Gives the VMs in flows their socket devices, and the system its broker, if it [`is_needed`].
    pub(super) fn broker(&mut self, raw: &raw::System, system: &System, vms: &mut Vec<Vm>) {
        let Some(platform) = self.platform.clone() else { return };
        if !is_needed(raw, system, &platform) {
            if reason(raw, system).is_none() {
                for core in system.brokers() {
                    let message = format!(
                        "core {}: the schedule names the broker, but there is no [[flow]] and no \
                         `net`",
                        core.id
                    );
                    let fault = self.fault(Code::BrokerWithoutFlows, &core.place.0, message);
                    let help = "remove \"broker\" from the schedule, or add a [[flow]]";
                    self.faults.push(fault.label("this schedule").help(help));
                }
            }
            return;
        }
        self.flows(system);
        for flow in &system.flows {
            for index in flow.to.iter().copied().chain([flow.from]) {
                let its = raw.vms().get(index).zip(vms.get_mut(index));
                if let Some((raw, vm)) = its.filter(|(_, vm)| vm.socket.is_none()) {
                    vm.socket = Some(raw.vsock.as_ref().map_or(SocketBus::Mmio, |bus| bus.value));
                    self.socket(raw, vm, flow);
                }
            }
        }
        let span = reason(raw, system).unwrap_or(0..0);
        if let Some(vm) =
            raw.vms().iter().find(|vm| vm.name.as_ref().is_some_and(|name| name.value == BROKER))
        {
            let message = format!("{vm}: a system with flows or a switch has its own `{BROKER}`");
            let fault = self.fault(Code::NameInvalid, &vm.span, message).label("this");
            self.faults.push(fault.help("write another `name` for this VM"));
        }
        if vms.len() >= MAX_VMS {
            let message =
                format!("the system: {} VMs and the broker (weir supports {MAX_VMS})", vms.len());
            let fault = self.fault(Code::TooMany, &span, message).label("needs the broker");
            self.faults.push(fault.help("remove a VM, or all [[flow]] and `net`"));
            return;
        }
        let Some(core) = self.broker_core(raw, system, (&platform, vms), &span) else { return };
        self.switch_cores(raw, system, (vms, core));
        vms.push(Vm {
            cpus: vec![core],
            memory: vec![RAM, EXCHANGE],
            image: Image::Elf { file: ImageSource::Named(BROKER.to_owned()), args: String::new() },
            board: VirtualBoard::usual(platform.is_gic_v2()),
            spans: Spans {
                memory: span.clone(),
                image: span.clone(),
                initrd: span.clone(),
                device_tree: span.clone(),
                tlb_colors: None,
            },
            ..Vm::named(BROKER, FilePlace(span))
        });
    }

    /// What holds for flows that are carried out.
    fn flows(&mut self, system: &System) {
        let count = |flows: &[Flow]| flows.iter().map(|flow| flow.to.len()).sum::<usize>();
        let mut until = 1..=system.flows.len();
        if let Some(extra) = until
            .find(|&end| count(&system.flows[..end]) > MAX_FLOWS)
            .and_then(|end| system.flows.get(end - 1))
        {
            let message = format!(
                "the system: {} flows, one for each receiver (weir supports {MAX_FLOWS})",
                count(&system.flows)
            );
            let fault = self.fault(Code::TooMany, &extra.place.0, message).label("one too many");
            self.faults.push(fault.help("send several kinds of messages by one flow"));
        }
        for (position, flow) in system.flows.iter().enumerate() {
            if flow.size.0 > MAX_PACKET {
                let message = format!(
                    "{flow}: `size` is {}, but a packet of a virtio socket has at most {}",
                    flow.size,
                    Bytes(MAX_PACKET)
                );
                let fault = self.fault(Code::OutOfRange, &flow.places[0].0, message).label("this");
                let help = "split longer messages: write the size and the period of one packet";
                self.faults.push(fault.help(help));
            }
            self.flow_times(flow);
            self.flow_name(system, flow);
            let key = |flow: &Flow| (flow.from, flow.port.unwrap_or(DEFAULT_PORT));
            let mut before = system.flows.iter().take(position);
            let clashes = |other: &&Flow| {
                key(other) == key(flow) && other.to.iter().any(|to| flow.to.contains(to))
            };
            if let Some(first) = before.find(clashes) {
                let message = format!(
                    "{flow}: has the sender, receiver and `port` ({}) of {first}",
                    key(flow).1
                );
                let fault = self.fault(Code::Twice, &flow.place.0, message).label("second");
                let fault = fault.and(first.place.0.clone(), "first");
                let other = key(flow).1.wrapping_add(1);
                self.faults.push(fault.help(format!("write another port, like port = {other}")));
            }
        }
    }

    /// Periods and deadlines are such that EL2 can add them to a time.
    fn flow_times(&mut self, flow: &Flow) {
        let times = [("period", flow.period), ("deadline", flow.deadline)];
        for ((key, time), place) in times.into_iter().zip(&flow.places[1..]) {
            let Some(time) = time.filter(|time| time.0 >= FLOW_TIME_LIMIT) else { continue };
            // Without a `deadline` it is the period, which was reported.
            if key == "deadline" && *place == flow.places[1] {
                continue;
            }
            let message = format!(
                "{flow}: `{key}` is {time} (the broker supports less than 2^62 ns, 146 years)"
            );
            let fault = self.fault(Code::OutOfRange, &place.0, message).label("this");
            let help = "write a shorter one, or best_effort = true in place of period and deadline";
            self.faults.push(fault.help(help));
        }
    }

    /// The report has each receiver of a flow to several as its own flow, `orders/north`: no other
    /// is called that.
    fn flow_name(&mut self, system: &System, flow: &Flow) {
        let receiver = |several: &&Flow| {
            let receiver = flow.name.strip_prefix(several.name.as_str())?.strip_prefix('/')?;
            let mut vms = several.to.iter().filter_map(|to| system.guests().get(*to));
            (several.to.len() > 1).then(|| vms.find(|vm| vm.name == receiver)).flatten()
        };
        let clash = system.flows.iter().find_map(|several| Some((several, receiver(&several)?)));
        let Some((several, vm)) = clash else { return };
        let message = format!("{flow}: the report uses this name for {several} to {vm}");
        let fault = self.fault(Code::Twice, &flow.place.0, message).label("this flow");
        let fault = fault.and(several.place.0.clone(), "the flow to several receivers");
        self.faults.push(fault.help("write another `name` for one of them"));
    }

    /// A broker that shares its core serves no VM on a shared core with a switch port, as EL2 would
    /// wait for the broker's slots when that VM resets its device; and it serves no flows next to a
    /// switch, as frames would use up its supply.
    fn switch_cores(&mut self, raw: &raw::System, system: &System, (vms, broker): (&[Vm], CoreId)) {
        let schedule =
            |core: CoreId| system.cores.iter().find(|shared| shared.id == u64::from(core.0));
        let Some(shared) = schedule(broker) else { return };
        for (raw, vm) in raw.vms().iter().zip(vms) {
            let Some(net) = &raw.net else { continue };
            let (message, help) = if !system.flows.is_empty() {
                (
                    format!(
                        "{vm}: has a switch port, and the broker, which also serves flows, shares \
                         core {} (not supported by this version)",
                        broker.0
                    ),
                    "give the broker its own core: remove \"broker\" from the schedule".to_owned(),
                )
            } else if let Some(core) = vm.cpus.iter().find(|core| schedule(**core).is_some()) {
                (
                    format!(
                        "{vm}: has a switch port and is on the shared core {}, and the broker \
                         shares core {} (not supported by this version)",
                        core.0, broker.0
                    ),
                    format!("give the broker or {vm} its own core"),
                )
            } else {
                continue;
            };
            let fault = self.fault(Code::Switch, &net.span, message).label("this port");
            let fault = fault.and(shared.place.0.clone(), "the schedule of the broker's core");
            self.faults.push(fault.help(help));
        }
    }

    /// The broker's core: that of `[broker]`, the one with a schedule that names it, or the first
    /// that is free.
    fn broker_core(
        &mut self,
        raw: &raw::System,
        system: &System,
        (platform, vms): (&Platform, &[Vm]),
        reason: &Range<usize>,
    ) -> Option<CoreId> {
        let taken = |core: u8| vms.iter().find(|vm| vm.cpus.contains(&CoreId(core)));
        let count = platform.cores.len().min(u8::MAX.into()) as u8;
        let free = (0..count).find(|&core| taken(core).is_none());
        let Some(cpus) = &raw.broker.cpus else {
            let mut schedules = system.brokers();
            if let Some(first) = schedules.next() {
                if let Some(second) = schedules.next() {
                    let message = format!(
                        "the broker: named by the schedules of cores {} and {}",
                        first.id, second.id
                    );
                    let fault = self.fault(Code::NotInSchedule, &second.place.0, message);
                    let fault = fault.label("second").and(first.place.0.clone(), "first");
                    self.faults.push(fault.help("keep one of them: the broker has one core"));
                }
                return u8::try_from(first.id).ok().filter(|&core| core < count).map(CoreId);
            }
            if free.is_none() {
                let message = format!(
                    "the broker: needs a core of its own, and each of the {count} of {platform} \
                     has a VM"
                );
                let fault =
                    self.fault(Code::BrokerCores, reason, message).label("needs the broker");
                let help =
                    "give a VM fewer vCPUs, or name \"broker\" in the schedule of a [[core]]";
                self.faults.push(fault.help(help));
            }
            return free.map(CoreId);
        };
        let [core] = cpus.value.as_slice() else {
            let message =
                format!("the broker: `cpus` has {} cores (it has one vCPU)", cpus.value.len());
            let fault = self.fault(Code::BrokerCores, &cpus.span, message).label("this");
            let core = free.or_else(|| cpus.value.first().map(|core| core.value as u8));
            self.faults.push(fault.help(format!("write cpus = [{}]", core.unwrap_or(0))));
            return None;
        };
        if is_unknown(core.value, platform) {
            let fault = self.unknown_core("the broker: `cpus`", core, platform);
            self.faults.push(fault);
            return None;
        }
        for shared in system.brokers().filter(|shared| shared.id != core.value) {
            let message = format!(
                "the broker: the schedule of core {} names it, but its `cpus` is core {}",
                shared.id, core.value
            );
            let fault = self.fault(Code::NotInSchedule, &shared.place.0, message);
            let fault = fault.label("this schedule").and(core.span.clone(), "the broker's core");
            let help =
                format!("write cpus = [{}], or remove \"broker\" from the schedule", shared.id);
            self.faults.push(fault.help(help));
        }
        match system.cores.iter().find(|shared| shared.id == core.value) {
            Some(shared) if !shared.schedule.entities().contains(&Entity::Broker) => {
                let message = format!(
                    "the broker: core {} is in its `cpus`, but the schedule of the core does not \
                     name it",
                    core.value
                );
                let fault = self
                    .fault(Code::NotInSchedule, &shared.place.0, message)
                    .label("this schedule");
                let fault = fault.and(core.span.clone(), "the broker's core");
                self.faults.push(
                    fault.help("add \"broker\" to the schedule, or give the broker another core"),
                );
            }
            Some(_) => {}
            None => {
                if let Some(owner) = taken(core.value as u8).filter(|_| !self.is_analyzed) {
                    let message =
                        format!("core {}: given to {} and to the broker", core.value, owner);
                    let fault = self.fault(Code::CoreTaken, &core.span, message).label("here");
                    let free = free.map_or_else(
                        || "no core is free".to_owned(),
                        |free| format!("core {free} is free"),
                    );
                    let help = format!(
                        "a core runs one vCPU, unless a schedule shares it: [[core]] with id = {} \
                         and a schedule of {} and \"broker\"; {free}",
                        core.value, owner
                    );
                    self.faults.push(fault.help(help));
                }
            }
        }
        Some(CoreId(core.value as u8))
    }
}
