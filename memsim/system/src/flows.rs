//! A system's flows, and the broker that moves their packets by a DMA engine, as rt-virtio has it.

use crate::{LatencyHistogram, error::SimulationError, memory::MemoryModel, vm::Vm};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use weir_memory::Picos;
use weir_model::Timing;
use weir_model::timing;
use weir_model::timing::DataPath;
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
    fn of(timing: &Timing) -> Result<Self, Vec<&'static str>> {
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
            let Some(known) = timing.overheads.iter().find(|known| known.name == name) else {
                missing.push(name);
                continue;
            };
            *step = Step { min: known.min.0.min(LONGEST), max: known.max.0.min(LONGEST) };
        }
        if missing.is_empty() { Ok(steps) } else { Err(missing) }
    }
}

/// A flow, with buffers in the RAM of its VMs.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub name: String,
    pub size: u64,
    /// Least time between two packets; of best effort, `None`: a packet is sent when the last one
    /// has arrived.
    pub period: Option<Picos>,
    pub jitter: Picos,
    pub deadline_ns: Option<u64>,
    /// Most bytes/s; 0 for no limit.
    pub rate: u64,
    pub from: usize,
    /// The page of the sender's RAM in which its packets begin.
    pub source: usize,
    /// The receivers and the page there.
    pub to: Vec<(usize, usize)>,
}

/// Where a flow's source and its destinations are, in bytes, as the engine sees memory.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    pub source: u64,
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
}

impl Broker {
    /// The broker of a system, which takes a channel of its engine; `Err(Ok(why))` where the model
    /// leaves its flows out.
    pub fn new(
        timing: &Timing,
        memory: &MemoryModel,
        vms: &[Vm],
        taken: &mut [usize],
    ) -> Result<Self, Result<String, SimulationError>> {
        let dma = &timing.dma;
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
        let steps = Steps::of(timing)
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
        if timing.flows.len() > MOST_FLOWS {
            let count = timing.flows.len();
            return Err(Err(SimulationError(format!(
                "{count} flows, and the model takes {MOST_FLOWS}"
            ))));
        }
        let chunk = dma.chunk.map_or(CHUNK, |chunk| chunk.0).max(1);
        let flows = flows(&timing.flows, vms).map_err(Err)?;
        let mut senders: Vec<_> = flows.iter().map(|flow| flow.from).collect();
        senders.sort_unstable();
        senders.dedup();
        Ok(Self {
            engine,
            channel,
            pace: dma.bandwidth.map_or(Picos(0), |rate| parameters.pace(chunk, rate.0)),
            chunk,
            queues: dma.queues.map_or(senders.len() as u64, u64::from),
            steps,
            flows,
        })
    }

    /// The pages that the engine's channel sees, and each flow's buffers there.
    pub fn pages(&self, vms: &[Vm]) -> (Arc<[u64]>, Vec<Buffers>) {
        let mut pages = Vec::new();
        let mut add = |vm: usize, first: usize, size: u64| {
            let at = pages.len() as u64 * PAGE;
            let count = size.div_ceil(PAGE) as usize;
            pages.extend_from_slice(&vms[vm].pages[first..first + count]);
            at
        };
        let places = self.flows.iter().map(|flow| {
            let source = add(flow.from, flow.source, flow.size);
            let to = flow.to.iter().map(|(vm, first)| add(*vm, *first, flow.size));
            Buffers { source, to: to.collect() }
        });
        let places = places.collect();
        (pages.into(), places)
    }
}

/// The flows with a buffer at each end, from the end of the VM's RAM downwards.
fn flows(wanted: &[timing::Flow], vms: &[Vm]) -> Result<Vec<Flow>, SimulationError> {
    let mut free: Vec<_> = vms.iter().map(|vm| vm.pages.len()).collect();
    let mut place = |flow: &timing::Flow, vm: usize| {
        let pages = usize::try_from(flow.size.0.div_ceil(PAGE)).unwrap_or(usize::MAX);
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
    let time = |time: Nanos| Picos::from_nanos(time.0.min(LONGEST));
    let each = wanted.iter().map(|flow| {
        let source = place(flow, flow.from)?;
        let to = flow.to.iter().map(|vm| Ok((*vm, place(flow, *vm)?)));
        let to = to.collect::<Result<_, SimulationError>>()?;
        Ok(Flow {
            name: flow.name.clone(),
            size: flow.size.0,
            period: flow.period.map(time),
            jitter: time(flow.jitter),
            deadline_ns: flow.deadline.map(|deadline| deadline.0.min(LONGEST)),
            rate: flow.bandwidth.map_or(0, |rate| rate.0),
            from: flow.from,
            source,
            to,
        })
    });
    each.collect()
}
