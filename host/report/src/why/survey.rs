//! What a whole trace shows of packets: when each was sent, could be moved, and arrived.

use crate::trace::{
    file::{Trace, TraceFacts, core},
    packets::PacketNumbers,
    words,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};
use weir_image::Result;
use weir_model::timing::Flow;
use weir_trace::{
    phases::Phase,
    record::{Record, RecordKind},
    wire::ExitCause,
};

/// The flows of the system file, one for each receiver, by their numbers in the trace. Each has the
/// place of its receiver among the VMs of the trace.
pub(super) type Flows = BTreeMap<u32, Flow>;

/// A packet that the broker took out of its sender's ring.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub flow: u32,
    /// The place of the record of its sending; none if the trace lost it.
    pub sent: Option<u64>,
    /// The times at which its driver had notified of it and the broker could move it, in ns.
    pub seen: u64,
    pub eligible: u64,
    /// Absolute, in ns; `u64::MAX` without one.
    pub deadline: u64,
    /// The place of the record of its arrival; none without one.
    pub arrived: Option<u64>,
    /// The time at which the broker no longer had it, in ns: the call with which it arrived, or when
    /// its head was used again.
    pub until_ns: u64,
    pub arrival: Option<Arrival>,
}

/// The arrival of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub number: u64,
    /// The receiver, if that is known.
    pub receiver: Option<u8>,
    /// The broker's core.
    pub core: u16,
    /// The time at which EL2 recorded it, in ns.
    pub recorded_ns: u64,
    /// The time at which the broker called EL2, in ns.
    pub called_ns: u64,
    pub latency: u64,
    pub waited: bool,
    /// From the interrupt until its receiver had a core, in ns.
    pub off_core: u64,
}

/// The packets of a whole trace.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub packets: Vec<Packet>,
    pub numbers: PacketNumbers,
    /// The packet of each place with a record of its sending.
    by_place: BTreeMap<u64, usize>,
    /// The last packet with this head of a sender.
    by_head: BTreeMap<(u8, u32), usize>,
    /// The time from which the next packet of a flow can be eligible.
    next: BTreeMap<u32, u64>,
    /// The last hypercall on each core, and the VM of the last chunk.
    calls: BTreeMap<u16, u64>,
    chunk_to: BTreeMap<u16, u8>,
    /// The VM on each core that VMs share, and all such cores.
    running: BTreeMap<u16, u8>,
    shared: BTreeSet<u16>,
    /// Packets with a receiver that has no core yet.
    awaited: Vec<usize>,
    /// The longest phases `hc`, `ft` and `wake`, in ns.
    pub longest: [u64; 3],
    /// The damage of the trace.
    pub damage: Option<String>,
}

/// The phases of [`Survey::longest`].
const LONGEST_OF: [Phase; 3] = [Phase::Hc, Phase::Ft, Phase::Wake];

impl Survey {
    /// Reads a trace to its end.
    pub fn read<R: Read>(trace: &mut Trace<R>, flows: &Flows) -> Result<Self> {
        let facts = trace.facts.clone();
        let mut survey = Self::default();
        for place in 0.. {
            let Some(record) = trace.next_record()? else { break };
            survey.take(place, &record, &facts, flows);
        }
        survey.settle(None, trace.end());
        survey.damage = trace.damage().or_else(|| trace.warning());
        let is_shared = |receiver: &u8| {
            let cores = facts.vms.get(usize::from(*receiver)).map_or(&[][..], |vm| &vm.cores);
            cores.iter().all(|core| survey.shared.contains(&u16::from(*core)))
        };
        for packet in &mut survey.packets {
            if let Some(arrival) = &mut packet.arrival
                && !arrival.receiver.as_ref().is_some_and(is_shared)
            {
                arrival.off_core = 0;
            }
        }
        Ok(survey)
    }

    fn take(&mut self, place: u64, record: &Record, facts: &TraceFacts, flows: &Flows) {
        let arrived = self.numbers.take(place, record);
        let (Some(now), core) = (facts.time(record), core(record)) else { return };
        let Some(kind) = RecordKind::from_number(record.kind) else { return };
        match kind {
            RecordKind::Exit if record.detail == ExitCause::Call as u32 => {
                self.calls.insert(core, now);
                self.chunk_to.remove(&core);
            }
            RecordKind::PacketSent => self.sent((place, now), record, flows),
            RecordKind::PacketChunk => _ = self.chunk_to.insert(core, record.vm),
            RecordKind::PacketArrived => {
                if let Some((number, sent)) = arrived {
                    self.arrived((place, now), record, (number, sent), (facts, flows));
                }
            }
            RecordKind::VcpuSwitch | RecordKind::VcpuResume => {
                self.running.insert(core, record.vm);
                self.shared.insert(core);
                self.settle(Some(record.vm), now);
            }
            RecordKind::CoreFree => _ = self.running.remove(&core),
            RecordKind::VmStop | RecordKind::VmFault | RecordKind::VmRestart => {
                let packets = &self.packets;
                let receiver = |at: &usize| packets.get(*at)?.arrival?.receiver;
                self.awaited.retain(|at| receiver(at) != Some(record.vm));
            }
            _ => {}
        }
    }

    fn sent(&mut self, (place, now): (u64, u64), record: &Record, flows: &Flows) {
        let flow = flows.get(&record.flow());
        let period = flow.and_then(|flow| flow.period).map_or(0, |period| period.0);
        let seen = record.other();
        let next = self.next.entry(record.flow()).or_default();
        let eligible = seen.max(*next);
        *next = eligible.saturating_add(period);
        let at = self.packets.len();
        let key = (record.vm, record.detail & 0xffff);
        if let Some(before) = self.by_head.insert(key, at).and_then(|at| self.packets.get_mut(at)) {
            before.until_ns = before.until_ns.min(now);
        }
        self.by_place.insert(place, at);
        let deadline = flow.and_then(|flow| flow.deadline);
        let deadline = deadline.map_or(u64::MAX, |deadline| eligible.saturating_add(deadline.0));
        self.packets.push(Packet {
            flow: record.flow(),
            sent: Some(place),
            seen,
            eligible,
            deadline,
            arrived: None,
            until_ns: u64::MAX,
            arrival: None,
        });
    }

    fn arrived(
        &mut self,
        (place, recorded_ns): (u64, u64),
        record: &Record,
        (number, sent): (u64, Option<u64>),
        (facts, flows): (&TraceFacts, &Flows),
    ) {
        for (phase, ns) in words::phases(record, facts) {
            let places = LONGEST_OF.iter().zip(&mut self.longest);
            for (_, longest) in places.filter(|(of, _)| **of == phase) {
                *longest = ns.max(*longest);
            }
        }
        let core = core(record);
        let receiver = flows.get(&record.flow()).and_then(|flow| flow.to.first());
        let receiver = receiver.and_then(|vm| u8::try_from(*vm).ok());
        let receiver = receiver.or_else(|| self.chunk_to.get(&core).copied());
        let called_ns = self.calls.get(&core).copied().unwrap_or(0);
        let arrival = Arrival {
            number,
            receiver,
            core,
            recorded_ns,
            called_ns,
            latency: record.other().min(recorded_ns),
            waited: record.has_waited(),
            off_core: 0,
        };
        let known = sent.and_then(|sent| self.by_place.get(&sent)).copied();
        let known = known.filter(|at| self.packets.get(*at).is_some_and(|it| it.arrival.is_none()));
        let at = known.unwrap_or(self.packets.len());
        if known.is_none() {
            // Its sending was lost, or it is the same packet for another receiver.
            let origin = sent.and_then(|sent| self.by_place.get(&sent));
            let origin = origin.and_then(|at| self.packets.get(*at));
            let begin = recorded_ns.saturating_sub(record.other());
            let (seen, eligible, deadline) =
                origin.map_or((begin, begin, u64::MAX), |it| (it.seen, it.eligible, it.deadline));
            let (flow, arrived, until_ns, arrival) = (record.flow(), None, 0, None);
            self.packets.push(Packet {
                flow,
                sent,
                seen,
                eligible,
                deadline,
                arrived,
                until_ns,
                arrival,
            });
        }
        if let Some(packet) = self.packets.get_mut(at) {
            packet.flow = record.flow();
            (packet.arrived, packet.until_ns) = (Some(place), called_ns);
            packet.arrival = Some(arrival);
        }
        if receiver.is_some_and(|vm| !self.running.values().any(|running| *running == vm)) {
            self.awaited.push(at);
        }
    }

    /// Ends the wait of packets for a core of `vm`, or of each VM.
    fn settle(&mut self, vm: Option<u8>, now: u64) {
        let packets = &mut self.packets;
        self.awaited.retain(|at| {
            let arrival = packets.get_mut(*at).and_then(|packet| packet.arrival.as_mut());
            let Some(arrival) = arrival else { return false };
            if vm.is_some() && vm != arrival.receiver {
                return true;
            }
            arrival.off_core = now.saturating_sub(arrival.recorded_ns);
            false
        });
    }

    /// Returns the packet of a flow with this number, or the first of those with the longest
    /// latency.
    pub fn find(&self, flow: u32, number: Option<u64>) -> Option<(&Packet, Arrival)> {
        let of = self.packets.iter().filter(|packet| packet.flow == flow);
        let mut arrived: Vec<_> = of.filter_map(|it| Some((it, it.arrival?))).collect();
        arrived.sort_by_key(|(_, arrival)| arrival.number);
        if let Some(number) = number {
            return arrived.into_iter().find(|(_, arrival)| arrival.number == number);
        }
        let longest = |(_, it): &(&Packet, Arrival)| it.latency.saturating_add(it.off_core);
        arrived.into_iter().rev().max_by_key(longest)
    }
}
