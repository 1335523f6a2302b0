//! A system's flows, and the broker that moves their packets by a DMA engine, as rt-virtio has it.

use crate::{LatencyHistogram, error::SimulationError, memory::MemoryModel, vm::Vm};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use weir_memory::Picos;
use weir_model::{
    System,
    timing::{DataPath, Flow},
};
use weir_units::Nanos;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Bytes moved between two decisions, if the file does not set them (rt-virtio, V).
const CHUNK: u64 = 4096;
/// Longer times are taken to be this long: 11 days.
const LONGEST: u64 = 1_000_000_000_000_000;
/// Flows that are simulated at most.
const MOST_FLOWS: usize = 1 << 12;

/// The outcome of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlowOutcome {
    /// The name of the flow.
    pub name: String,
    /// Packets that were sent in the span.
    pub sent: u64,
    /// Packets that arrived in it.
    pub arrived: u64,
    /// The relative deadline in ns; none for best effort.
    pub deadline_ns: Option<u64>,
    /// Those that arrived by their deadline; all of them, if there is none.
    pub met: u64,
    /// Packets that arrived later, or had not arrived by then.
    pub missed: u64,
    /// Packets for which a queue had no room.
    pub lost: u64,
    /// From when the sender notifies (or may, by its period, if that is later) until the receiver
    /// has handled its interrupt.
    #[serde(rename = "latency_ns")]
    pub latency: LatencyHistogram,
    /// The maximum, exact.
    #[serde(skip)]
    pub max_latency: Picos,
}

impl FlowOutcome {
    /// Whether a packet that has taken so long is behind its deadline.
    pub(crate) fn is_late(&self, latency: Picos) -> bool {
        self.deadline_ns.is_some_and(|ns| latency > Picos::from_nanos(ns))
    }
}

/// The least and the greatest time that a step takes, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub min: u64,
    pub max: u64,
}

/// The steps by their names in Table II of rt-virtio.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    pub hc: Step,
    pub pt: Step,
    pub pp: Step,
    pub ql: Step,
    pub qi: Step,
    pub qa: Step,
    pub qr: Step,
    pub ps: Step,
    pub pd: Step,
    pub ft: Step,
    pub ip: Step,
    pub br: Step,
}

impl Steps {
    /// Those of a file; the names that are missing, if there are some.
    fn of(system: &System) -> Result<Self, Vec<&'static str>> {
        let mut steps = Self::default();
        let fields: [(&'static str, &mut Step); 12] = [
            ("hc", &mut steps.hc),
            ("pt", &mut steps.pt),
            ("pp", &mut steps.pp),
            ("ql", &mut steps.ql),
            ("qi", &mut steps.qi),
            ("qa", &mut steps.qa),
            ("qr", &mut steps.qr),
            ("ps", &mut steps.ps),
            ("pd", &mut steps.pd),
            ("ft", &mut steps.ft),
            ("ip", &mut steps.ip),
            ("br", &mut steps.br),
        ];
        let mut missing = Vec::new();
        for (name, step) in fields {
            let Some(known) = system.overheads.iter().find(|known| known.name == name) else {
                missing.push(name);
                continue;
            };
            *step = Step { min: known.min.0.min(LONGEST), max: known.max.0.min(LONGEST) };
        }
        if missing.is_empty() { Ok(steps) } else { Err(missing) }
    }
}

/// A flow's buffers: pages of its VMs' RAM, or bytes as the engine sees memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// The beginning of the sender's packets.
    pub source: u64,
    /// The same of each receiver.
    pub to: Vec<u64>,
}

/// The broker and what it works on.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    pub engine: usize,
    pub channel: usize,
    /// Least time between two bursts, by which the engine keeps its bandwidth.
    pub pace: Picos,
    pub chunk: u64,
    /// Queues that it searches.
    pub queues: u64,
    pub steps: Steps,
    pub flows: Vec<Flow>,
    /// The pages of each flow's buffers.
    buffers: Vec<Buffers>,
}

impl Broker {
    /// The broker of a system, which takes a channel of its engine; `Err(Ok(why))` where the model
    /// leaves its flows out.
    pub fn new(
        system: &System,
        memory: &MemoryModel,
        vms: &[Vm],
        taken: &mut [usize],
    ) -> Result<Self, Result<String, SimulationError>> {
        let dma = &system.dma;
        if dma.path != DataPath::Dma {
            return Err(Ok("a core copies the messages ([dma] path, or a platform without a DMA \
                           engine), and the model has the path of a DMA engine only"
                .to_owned()));
        }
        let names: Vec<_> = memory.engine_names().collect();
        let Some(name) = dma.engine.as_deref().or(names.first().copied()) else {
            return Err(Ok(format!("{} has no DMA engine", memory.description)));
        };
        let (engine, parameters) = memory.engine(name).ok_or_else(|| {
            Err(SimulationError(format!(
                "[dma] names the engine `{name}`; {} has: {}",
                memory.description,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )))
        })?;
        let steps = Steps::of(system)
            .map_err(|missing| Ok(format!("missing overheads: {}", missing.join(", "))))?;
        let channel = taken[engine];
        taken[engine] += 1;
        if channel >= parameters.channels() {
            return Err(Err(SimulationError(format!(
                "the broker wants a channel of the DMA engine {name}, and the workloads have all \
                 of them: write channels = {} there, or another engine into [dma]",
                channel.saturating_sub(1)
            ))));
        }
        if system.flows.len() > MOST_FLOWS {
            let count = system.flows.len();
            return Err(Err(SimulationError(format!(
                "{count} flows, and the model takes {MOST_FLOWS}"
            ))));
        }
        let chunk = dma.chunk.map_or(CHUNK, |chunk| chunk.0).max(1);
        let buffers = buffers(&system.flows, vms).map_err(Err)?;
        let mut senders: Vec<_> = system.flows.iter().map(|flow| flow.from).collect();
        senders.sort_unstable();
        senders.dedup();
        Ok(Self {
            engine,
            channel,
            pace: dma.bandwidth.map_or(Picos(0), |rate| parameters.pace(chunk, rate.0)),
            chunk,
            queues: dma.queues.map_or(senders.len() as u64, u64::from),
            steps,
            flows: system.flows.iter().map(bounded).collect(),
            buffers,
        })
    }

    /// The pages that the engine's channel sees, and each flow's buffers there.
    pub fn pages(&self, vms: &[Vm]) -> (Arc<[u64]>, Vec<Buffers>) {
        let mut pages = Vec::new();
        let mut add = |vm: usize, first: u64, size: u64| {
            let at = pages.len() as u64 * PAGE;
            let pieces = vms[vm].pages.iter().skip(first as usize);
            pages.extend(pieces.take(size.div_ceil(PAGE) as usize));
            at
        };
        let places = self.flows.iter().zip(&self.buffers).map(|(flow, buffers)| {
            let source = add(flow.from, buffers.source, flow.size.0);
            let to = flow.to.iter().zip(&buffers.to);
            Buffers { source, to: to.map(|(vm, first)| add(*vm, *first, flow.size.0)).collect() }
        });
        let places = places.collect();
        (pages.into(), places)
    }
}

/// A flow without times that are too long.
fn bounded(flow: &Flow) -> Flow {
    let time = |time: Nanos| time.min(Nanos(LONGEST));
    Flow {
        period: flow.period.map(time),
        jitter: time(flow.jitter),
        deadline: flow.deadline.map(time),
        ..flow.clone()
    }
}

/// The pages of a buffer at each end of each flow, from the end of the VM's RAM downwards.
fn buffers(flows: &[Flow], vms: &[Vm]) -> Result<Vec<Buffers>, SimulationError> {
    let mut free: Vec<_> = vms.iter().map(|vm| vm.pages.len() as u64).collect();
    let mut place = |flow: &Flow, vm: usize| {
        let pages = flow.size.0.div_ceil(PAGE);
        let room = free.get(vm).and_then(|free| free.checked_sub(pages));
        let place = room.ok_or_else(|| {
            let name = vms.get(vm).map_or("?", |vm| &vm.name);
            SimulationError(format!(
                "{name} has no RAM for the packets of the flow {}, {}: give it more memory",
                flow.name, flow.size
            ))
        })?;
        free[vm] = place;
        Ok(place)
    };
    let each = flows.iter().map(|flow| {
        let source = place(flow, flow.from)?;
        let to = flow.to.iter().map(|vm| place(flow, *vm)).collect::<Result<_, _>>()?;
        Ok(Buffers { source, to })
    });
    each.collect()
}
