//! The parts of a packet's latency.

use super::{
    TimePart, WhyReport,
    broker::Window,
    push,
    subject::Chosen,
    survey::{Arrival, Flows, Packet, Survey},
};
use crate::{
    SYSTEM,
    run::FlowRun,
    trace::file::{Trace, TraceFacts},
};
use std::{io::Read, path::Path};
use weir_image::{Failure, Result};
use weir_model::{BROKER, Catalog, SystemFile, timing::Flow};

/// Returns the flows of a run by its copy of the system file; empty if that cannot be read.
fn flows(run: &Path, facts: &TraceFacts) -> Flows {
    let file = SystemFile::load(&run.join(SYSTEM), &Catalog::default());
    let Ok(file) = file else { return Flows::new() };
    let system = file.system();
    let place = |vm: &usize| {
        let name = &system.vms.get(*vm)?.name;
        facts.vms.iter().position(|vm| vm.name == *name)
    };
    let flows = system.flows.iter().flat_map(|flow| {
        flow.to.iter().map(move |vm| Flow { to: place(vm).into_iter().collect(), ..flow.clone() })
    });
    (0..).zip(flows).collect()
}

/// Surveys the packets in the trace of a run.
pub(super) fn survey(run: &Path) -> Result<Survey> {
    let mut trace = Trace::open(run)?;
    let flows = flows(run, &trace.facts);
    Survey::read(&mut trace, &flows)
}

/// Explains a packet of a flow: the one with this number, or the one with the longest latency.
pub(super) fn explain(
    run: &Path,
    survey: &Survey,
    (chosen, flow): (&Chosen, &FlowRun),
    number: Option<u64>,
) -> Result<WhyReport> {
    let report = WhyReport::new(run, chosen);
    let mut report = parts(survey, &mut Trace::open(run)?, report, (chosen.place, number))?;
    let latency = flow.latency_ns.map(|latency| latency.max);
    if let Some(longest) = latency.filter(|longest| number.is_none() && *longest != report.total_ns)
    {
        let total = report.total_ns;
        report.notes.push(format!(
            "the longest latency in the report is {longest} ns, and in the trace {total} ns: the \
             trace does not have all packets"
        ));
    }
    Ok(report)
}

/// Adds the parts of a packet to a report: `trace` is the surveyed one, from its beginning.
pub(super) fn parts<R: Read>(
    survey: &Survey,
    trace: &mut Trace<R>,
    mut report: WhyReport,
    (flow, number): (u32, Option<u64>),
) -> Result<WhyReport> {
    let name = report.name.clone();
    report.count = survey.numbers.arrived(flow);
    let (packet, arrival) = survey.find(flow, number).ok_or_else(|| {
        let (count, damage) = (report.count, &survey.damage);
        match (number, damage) {
            (_, Some(damage)) => Failure::system(format!(
                "flow {name}: the trace has {count} of its packets, and {damage}; run the system \
                 again"
            )),
            (Some(number), None) if count > 0 => Failure::call(format!(
                "flow {name} has no packet {number}: {count} packets arrived in the run"
            )),
            _ => Failure::call(format!(
                "flow {name}: no packet arrived in the run; its sender must connect to the flow's \
                 port, and no packet may be longer than `size`"
            )),
        }
    })?;
    let facts = trace.facts.clone();
    let from = span(packet, arrival, &mut report);
    let end = from.saturating_add(arrival.latency);
    report.number = Some(arrival.number);
    report.from_ns = Some(from);
    report.total_ns = arrival.latency.saturating_add(arrival.off_core);
    let broker =
        facts.vms.iter().position(|vm| vm.name == BROKER).and_then(|vm| vm.try_into().ok());
    let window = Window::read(trace, broker, (packet, arrival), from)?;
    report.notes.extend(window.open_phases(&facts));
    report.parts = window.parts(survey, &facts, (packet, arrival), (from, end));
    let receiver = arrival.receiver;
    push(
        &mut report.parts,
        TimePart {
            from_ns: end,
            ns: arrival.off_core,
            what: "receiver off its core".to_owned(),
            vm: receiver.and_then(|vm| facts.name(vm)).map(str::to_owned),
            core: receiver.and_then(|vm| facts.vms.get(usize::from(vm))).and_then(|vm| {
                let core = vm.cores.first()?;
                Some((*core).into())
            }),
            term: Some("absence".to_owned()),
        },
    );
    report.notes.extend(survey.damage.clone());
    if facts.lost > 0 {
        report.notes.push(format!(
            "{} records of the trace were lost: the number counts the packets with records",
            facts.lost
        ));
    }
    Ok(report)
}

/// Returns when a packet's latency began, in ns.
fn span(packet: &Packet, arrival: Arrival, report: &mut WhyReport) -> u64 {
    let end = packet.eligible.saturating_add(arrival.latency);
    let fits = packet.sent.is_some() && (arrival.called_ns..=arrival.recorded_ns).contains(&end);
    if !fits {
        report.notes.push(
            "the beginning is known to the time from the interrupt to its record only: the \
             records do not show when the packet became eligible"
                .to_owned(),
        );
        return arrival.recorded_ns.saturating_sub(arrival.latency);
    }
    if packet.eligible > packet.seen {
        report.notes.push(format!(
            "the sender notified {} ns before the packet's period began; the latency does not \
             contain this wait",
            packet.eligible - packet.seen
        ));
    }
    packet.eligible
}
