//! The work of the broker while a packet waits, from the phases that it reported.
//!
//! The broker reports packets taken and chunks moved with its hypercalls, in their order and at
//! most [`TAKEN`] with each. Each has the durations of its phases, and none has a time. The phases
//! of a step follow each other without a gap, so they are placed backward from the hypercall, or
//! forward from the broker's wake-up if it woke up for this packet. Between the end of a chunk and
//! the hypercall the broker asks the drivers whether they want an interrupt. That time belongs to
//! the finalization, and its length is not recorded: a position is inexact by so much, a sum is
//! not.

use super::{
    CoreState, NOT_RECORDED, TimePart, push,
    survey::{Arrival, Packet, Survey},
};
use crate::trace::{
    file::{Trace, TraceFacts, core},
    words,
};
use std::io::Read;
use weir_exchange::flows;
use weir_image::Result;
use weir_trace::{
    phases::{LONGEST, Phase, unpack},
    record::{Record, RecordKind},
    wire::ExitCause,
};

/// The most packets and chunks that EL2 records with one hypercall.
const TAKEN: usize = flows::TAKEN as usize;

/// A hypercall of the broker, with what it reported.
#[derive(Clone, Debug)]
struct Call {
    at_ns: u64,
    /// The packets and chunks that EL2 recorded with the call, with the places of their records.
    items: Vec<Item>,
}

/// A packet that was taken, or a chunk that was moved: the place of its record, and the record.
type Item = (u64, Record);

fn is_chunk((_, record): &Item) -> bool {
    record.kind == RecordKind::PacketChunk as u16
}

/// A span of time on the broker's core.
#[derive(Clone, Debug)]
struct Piece {
    from: u64,
    to: u64,
    what: String,
    term: &'static str,
    /// Another VM that the time belongs to.
    vm: Option<u8>,
}

impl Piece {
    fn new(from: u64, to: u64, what: impl Into<String>, term: &'static str) -> Self {
        Self { from, to, what: what.into(), term, vm: None }
    }
}

/// The records of the broker's core from the last hypercall before a packet to its arrival.
#[derive(Debug)]
pub(super) struct Window {
    core: u16,
    broker: Option<u8>,
    calls: Vec<Call>,
    /// Times of interrupts of the broker.
    interrupts: Vec<u64>,
    /// When the broker did not have the core: from, to, the VM that had it.
    away: Vec<(u64, u64, Option<u8>)>,
    /// The record of the arrival.
    arrived: Record,
}

impl Window {
    /// Reads a trace up to the arrival of a packet whose latency began at `from`.
    pub fn read<R: Read>(
        trace: &mut Trace<R>,
        broker: Option<u8>,
        (packet, arrival): (&Packet, Arrival),
        from: u64,
    ) -> Result<Self> {
        let facts = trace.facts.clone();
        let arrived = Record::default();
        let (calls, interrupts, away) = (Vec::new(), Vec::new(), Vec::new());
        let mut window = Self { core: arrival.core, broker, calls, interrupts, away, arrived };
        for place in 0.. {
            let Some(record) = trace.next_record()? else { break };
            if Some(place) == packet.arrived {
                window.arrived = record;
            } else if core(&record) == arrival.core {
                // The packet's last chunks may be recorded with later calls.
                let is_call = is_call(&record) && facts.nanos(record.time) > arrival.called_ns;
                if is_call && window.calls.last().is_none_or(|call| call.items.len() < TAKEN) {
                    break;
                }
                window.take(place, &record, (&facts, from));
            }
        }
        if let Some((_, to, _)) = window.away.last_mut().filter(|(_, to, _)| *to == u64::MAX) {
            *to = arrival.called_ns;
        }
        Ok(window)
    }

    fn take(&mut self, place: u64, record: &Record, (facts, from): (&TraceFacts, u64)) {
        let Some(now) = facts.time(record) else { return };
        let is_broker = self.broker.is_none_or(|broker| broker == record.vm);
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Exit) if is_call(record) && is_broker => {
                // Nothing that the broker did before was left to be recorded.
                if now < from && self.calls.last().is_none_or(|call| call.items.len() < TAKEN) {
                    self.calls.clear();
                    self.interrupts.clear();
                    self.away.retain(|(_, to, _)| *to == u64::MAX);
                }
                self.calls.push(Call { at_ns: now, items: Vec::new() });
            }
            Some(RecordKind::PacketSent | RecordKind::PacketChunk) => {
                if let Some(call) = self.calls.last_mut() {
                    call.items.push((place, *record));
                }
            }
            Some(RecordKind::Interrupt) if is_broker => self.interrupts.push(now),
            Some(RecordKind::VcpuSwitch | RecordKind::VcpuResume) => {
                let began = if record.count > 0 && record.kind == RecordKind::VcpuSwitch as u16 {
                    facts.nanos(record.count)
                } else {
                    now
                };
                let state = if is_broker { CoreState::Own } else { CoreState::Other(record.vm) };
                self.leave(began, state, now);
            }
            Some(RecordKind::CoreFree) => self.leave(now, CoreState::Free, now),
            _ => {}
        }
    }

    /// The core changes hands: from `began` on another VM or none has it, or the broker from `now`
    /// on.
    fn leave(&mut self, began: u64, state: CoreState, now: u64) {
        let open = self.away.last_mut().filter(|(_, to, _)| *to == u64::MAX);
        if let Some((_, end, _)) = open {
            *end = if state == CoreState::Own { now } else { began };
        }
        if state != CoreState::Own {
            self.away.push((began, u64::MAX, state.other()));
        }
    }

    /// Returns a note if a phase took longer than its record holds.
    pub fn open_phases(&self, facts: &TraceFacts) -> Option<String> {
        let items = self.calls.iter().flat_map(|call| &call.items).map(|(_, record)| record);
        let all = items.chain([&self.arrived]);
        let is_open = |record: &Record| {
            let phases = Phase::of(record).iter().zip(unpack(record.count));
            phases.into_iter().any(|(_, ticks)| ticks == LONGEST)
        };
        all.into_iter().any(is_open).then(|| {
            format!(
                "a phase took longer than the {} ns that a record holds: the rest of its time is \
                 in the parts next to it",
                words::longest_phase(facts)
            )
        })
    }

    /// Returns the parts from `from` to `end`, which follow each other without a gap.
    pub fn parts(
        &self,
        survey: &Survey,
        facts: &TraceFacts,
        (packet, arrival): (&Packet, Arrival),
        (from, end): (u64, u64),
    ) -> Vec<TimePart> {
        let steps = Steps { window: self, survey, facts, packet, arrival };
        let mut lower = from;
        let mut pieces = Vec::new();
        for (call, items) in steps.made() {
            if call > arrival.called_ns {
                break;
            }
            if call > from {
                steps.window(lower.min(call), (call, &items), &mut pieces);
            }
            lower = call;
        }
        pieces.push(Piece::new(lower, end, FINALIZE, "C': ft"));
        let pieces = clip(pieces, from, end);
        let pieces = self.overlay(pieces);
        let mut parts = Vec::new();
        let broker = |vm: Option<u8>| vm.and_then(|vm| facts.name(vm)).map(str::to_owned);
        for piece in pieces {
            let is_known = piece.what != NOT_RECORDED;
            let of =
                if is_known || self.broker.is_some() { piece.vm.or(self.broker) } else { None };
            let vm_core = piece.vm.and_then(|vm| facts.vms.get(usize::from(vm)));
            let own_core = vm_core.and_then(|vm| vm.cores.first()).map(|core| u16::from(*core));
            let core = own_core.filter(|_| piece.term == BUFFERS).unwrap_or(self.core);
            push(
                &mut parts,
                TimePart {
                    from_ns: piece.from,
                    ns: piece.to - piece.from,
                    what: piece.what,
                    vm: broker(of),
                    core: Some(core),
                    term: (!piece.term.is_empty()).then(|| piece.term.to_owned()),
                },
            );
        }
        parts
    }

    /// Replaces the time in which the broker does not have its core.
    fn overlay(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        let mut all = Vec::new();
        for piece in pieces {
            let mut from = piece.from;
            for (begin, end, vm) in &self.away {
                let (begin, end) = ((*begin).max(from), (*end).min(piece.to));
                if begin >= end {
                    continue;
                }
                all.push(Piece { from, to: begin, ..piece.clone() });
                let what = "broker off its core";
                all.push(Piece { vm: *vm, ..Piece::new(begin, end, what, "J': schedule") });
                from = end;
            }
            all.push(Piece { from, ..piece });
        }
        all.retain(|piece| piece.from < piece.to);
        all
    }
}

/// Whether the record is of a hypercall.
fn is_call(record: &Record) -> bool {
    record.kind == RecordKind::Exit as u16 && record.detail == ExitCause::Call as u32
}

const FINALIZE: &str = "return buffers, interrupt";
/// No term covers a wait for buffers.
const BUFFERS: &str = "";

/// Keeps what lies between `from` and `end`, and fills the gaps. Of two pieces at one time the
/// earlier one stays.
fn clip(pieces: Vec<Piece>, from: u64, end: u64) -> Vec<Piece> {
    let mut clipped: Vec<Piece> = Vec::new();
    let mut now = from;
    for piece in pieces {
        let (begin, to) = (piece.from.clamp(now, end), piece.to.clamp(now, end));
        if begin >= to {
            continue;
        }
        if begin > now {
            clipped.push(Piece::new(now, begin, NOT_RECORDED, ""));
        }
        now = to;
        clipped.push(Piece { from: begin, to, ..piece });
    }
    if now < end {
        clipped.push(Piece::new(now, end, NOT_RECORDED, ""));
    }
    clipped
}

/// A phase of a step before it has its place: its length, name and term.
type Length = (u64, String, &'static str);

/// Places the broker's steps.
struct Steps<'a> {
    window: &'a Window,
    survey: &'a Survey,
    facts: &'a TraceFacts,
    packet: &'a Packet,
    arrival: Arrival,
}

impl Steps<'_> {
    fn phase(&self, record: &Record, wanted: Phase) -> u64 {
        words::phases(record, self.facts).find(|(phase, _)| *phase == wanted).map_or(0, |it| it.1)
    }

    /// Returns the time of each call with what the broker did since the call before.
    ///
    /// With at most [`TAKEN`] records for each call, some wait for later ones. A step takes any
    /// number of packets, then moves at most one chunk; the broker calls when as many records wait
    /// as a call takes, or when a packet has arrived. What need not have been done before a call is
    /// taken as done if its step had begun, or nothing else was, and if there was time for it.
    fn made(&self) -> Vec<(u64, Vec<Item>)> {
        let calls = &self.window.calls;
        let all: Vec<&Item> = calls.iter().flat_map(|call| &call.items).collect();
        let (mut done, mut reported, mut before) = (0, 0, 0);
        let mut made = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            // The calls that start the engine and take its result are within the chunk.
            let mut next = calls.iter().skip(at).map(|call| &call.items);
            let next = next.find(|items| !items.is_empty()).filter(|_| call.items.is_empty());
            if next.is_some_and(|items| items.iter().any(|(_, record)| record.is_by_engine())) {
                continue;
            }
            reported += call.items.len();
            let mut items: Vec<Item> = Vec::new();
            let mut left = call.at_ns.saturating_sub(before);
            while let Some(&&item) = all.get(done) {
                let length = self.length(&item.1);
                let is_due = done < reported;
                let is_open = call.items.len() == TAKEN && !items.last().is_some_and(is_chunk);
                let is_done = is_due || is_open && length <= left;
                if !is_done {
                    break;
                }
                left = left.saturating_sub(length);
                done += 1;
                items.push(item);
            }
            made.push((call.at_ns, items));
            before = call.at_ns;
        }
        made
    }

    /// Returns the length of a step's part: of taking a packet, or moving a chunk.
    fn length(&self, record: &Record) -> u64 {
        let phases = words::phases(record, self.facts);
        // The transport precedes the packet's time stamp.
        phases.filter(|(phase, _)| *phase != Phase::Pt).map(|(_, ns)| ns).sum()
    }

    /// Adds the pieces from `lower`, the call before or the beginning, to a call with these items.
    fn window(&self, lower: u64, (call, items): (u64, &[Item]), pieces: &mut Vec<Piece>) {
        let own = items.iter().position(|(place, _)| Some(*place) == self.packet.sent);
        let mut lengths = Vec::new();
        for item in items {
            self.lengths(item, (call, items), &mut lengths);
        }
        let sum: u64 = lengths.iter().map(|(ns, ..)| ns).sum();
        let woken = self.packet.seen + self.phase(&self.window.arrived, Phase::Wake);
        let is_woken = own == Some(0)
            && woken > self.packet.seen
            && self.packet.eligible == self.packet.seen
            && woken >= lower
            && woken + sum <= call;
        let begin = if is_woken { woken } else { call.saturating_sub(sum).max(lower) };
        if is_woken {
            pieces.push(Piece::new(self.packet.seen, woken, "wake-up of the broker", "J': wake"));
        } else {
            self.gap((lower, begin), own.is_some() || lower <= self.packet.eligible, pieces);
        }
        let mut now = begin;
        // What has no place is the beginning: it was before the records that are known.
        let mut before = sum.saturating_sub(call - begin);
        for (ns, what, term) in lengths {
            let cut = ns.min(before);
            before -= cut;
            let to = (now + (ns - cut)).min(call);
            pieces.push(Piece::new(now, to, what, term));
            now = to;
        }
        pieces.push(Piece::new(now, call, FINALIZE, "C': ft"));
    }

    /// Adds the lengths of the phases of a packet that was taken, or of a chunk.
    fn lengths(&self, item: &Item, call: (u64, &[Item]), lengths: &mut Vec<Length>) {
        let (place, record) = (item.0, &item.1);
        let of = |phase| self.phase(record, phase);
        if record.kind == RecordKind::PacketSent as u16 {
            let taking = of(Phase::Pp) + of(Phase::Ql) + of(Phase::Qi);
            if Some(place) == self.packet.sent {
                let queue = self.phase(&self.window.arrived, Phase::Qa);
                lengths.push((taking, "take the packet".into(), "C': ql+pp+qi"));
                lengths.push((queue, "find its place by deadline".into(), "C': qa"));
            } else {
                let packet = self.survey.packets.iter().find(|it| it.sent == Some(place));
                let what = format!("take {}", self.name(packet));
                lengths.push((taking, what, "J': ql+pp+qi"));
            }
            return;
        }
        let copying = if record.is_by_engine() { Phase::Ip } else { Phase::Copy };
        let phases = [Phase::Ps, Phase::Pd, copying, Phase::Qr].map(of);
        let moved = self.moved(item, call);
        if moved.is_some_and(|moved| std::ptr::eq(moved, self.packet)) {
            let copy = if record.is_by_engine() {
                ("the DMA engine moves the chunk", "C': ip+C/b")
            } else {
                ("copy the chunk", "C': copy+C/b")
            };
            let steps = [
                ("pick the chunk by deadline", "C': ps"),
                ("prepare the chunk", "C': pd"),
                copy,
                ("complete the chunk", "C': qr"),
            ];
            let steps = phases.into_iter().zip(steps);
            lengths.extend(steps.map(|(ns, (what, term))| (ns, what.to_owned(), term)));
            return;
        }
        let is_earlier = moved.is_some_and(|moved| moved.deadline <= self.packet.deadline);
        let term = match moved {
            None => "",
            Some(_) if is_earlier => "demand",
            Some(_) => "blocking q'",
        };
        lengths.push((phases.iter().sum(), format!("chunk of {}", self.name(moved)), term));
    }

    fn name(&self, packet: Option<&Packet>) -> String {
        let Some(packet) = packet else { return "an unknown packet".to_owned() };
        let flow = self.facts.flow(packet.flow);
        match packet.arrival {
            Some(arrival) => format!("packet {} of {flow}", arrival.number),
            None => format!("a packet of {flow} that did not arrive"),
        }
    }

    /// Returns the packet that a chunk belongs to: the one that arrives with the call, or the one
    /// with the earliest deadline of those with the broker for this receiver.
    fn moved(&self, (place, record): &Item, (call, items): (u64, &[Item])) -> Option<&Packet> {
        let packets = self.survey.packets.iter().filter(|packet| {
            let receiver = packet.arrival.and_then(|arrival| arrival.receiver);
            packet.sent.is_some_and(|sent| sent < *place)
                && packet.eligible <= call
                && call <= packet.until_ns
                && receiver.is_none_or(|receiver| receiver == record.vm)
        });
        let is_last =
            items.iter().rev().find(|item| is_chunk(item)).is_some_and(|it| it.0 == *place);
        let ends = |packet: &&Packet| packet.arrival.is_some() && packet.until_ns == call;
        if let Some(packet) = packets.clone().find(ends).filter(|_| is_last) {
            return Some(packet);
        }
        let has_payload = record.other() > 0;
        packets.min_by_key(|packet| {
            (packet.arrival.is_some() != has_payload, packet.deadline, packet.flow)
        })
    }

    /// Adds the pieces between a call and the broker's next step. `is_new` states that the broker
    /// did not have the packet yet, or not when it called.
    fn gap(&self, (lower, begin): (u64, u64), is_new: bool, pieces: &mut Vec<Piece>) {
        let slept = self.window.interrupts.iter().rfind(|at| (lower..=begin).contains(*at));
        let [hypercall, finalize, wake] = self.survey.longest;
        let is_first = self.window.calls.first().is_none_or(|first| lower < first.at_ns);
        let most = if is_first { 0 } else { hypercall + finalize * TAKEN as u64 };
        let called = (lower + most).min(slept.map_or(begin, |at| *at)).min(begin);
        pieces.push(Piece::new(lower, called, FINALIZE, "C': ft"));
        let Some(&woken) = slept else {
            return pieces.push(Piece::new(called, begin, NOT_RECORDED, ""));
        };
        if is_new {
            pieces.push(Piece::new(called, begin, "wake-up of the broker", "J': wake"));
        } else if self.arrival.waited {
            let what = "the receiver has no buffer";
            let piece = Piece::new(called, woken, what, BUFFERS);
            pieces.push(Piece { vm: self.arrival.receiver, ..piece });
        } else {
            pieces.push(Piece::new(called, woken, "wait for bandwidth (pacing)", "b"));
        }
        if !is_new {
            let awake = (woken + wake).min(begin);
            pieces.push(Piece::new(woken, awake, "wake-up of the broker", ""));
            pieces.push(Piece::new(awake, begin, NOT_RECORDED, ""));
        }
    }
}
