//! The phases of a packet: those of rt-virtio's Table II, and additional phases of weir's own path.
//! A record holds up to four of them.

use crate::record::{Record, RecordKind};

/// The most ticks of a phase in a record; a longer phase is recorded with this number.
pub const LONGEST: u64 = 0xffff;

/// A phase of a packet on its way from its notification to its arrival. Durations are in ticks of
/// the counter; 0 if a packet did not have the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Hypervisor entry and exit of the broker's hypercall, without the work that the call does.
    Hc,
    /// Transport: from the record of the exit to the packet's time stamp, for a notification's
    /// first packet.
    Pt,
    /// Parsing: the chain is taken out of the ring, its header is copied and checked. After the
    /// last packet it includes asking the driver to notify of the next one.
    Pp,
    /// Locking of the sender's device. The queues need no lock: each has one writer.
    Ql,
    /// Insertion: the packet is stamped and handed to the broker.
    Qi,
    /// Find the place: the broker finds the devices with new packets, takes in a packet and puts
    /// the packet's flow into the queue ordered by deadline.
    Qa,
    /// Removal, by the broker, for each chunk: its completions are written, and the flow's next
    /// packet takes the packet's place.
    Qr,
    /// Pick: the broker finds the packet with the earliest deadline and a buffer for it. It
    /// includes finding the devices with news, unless that is part of [`Self::Qa`].
    Ps,
    /// Program: the broker prepares a chunk and writes its header.
    Pd,
    /// Finalize: for each chunk, the broker's hypercall that returns buffers and raises interrupts.
    Ft,
    /// The DMA engine: from the broker's hypercall that starts the engine to the end of the
    /// broker's handling of the engine's interrupt. It includes the transfer, if that takes time.
    Ip,
    /// Notification: from the receiver's interrupt to its driver's acknowledgment.
    Br,
    /// Wake-up: from the last insertion of a notification to the first poll by a broker that slept.
    Wake,
    /// The copy of a chunk by a core.
    Copy,
    /// The longest time for which any core held a device's lock since the last record.
    Hold,
    /// The longest wait of any core for a device's lock since the last record; 0 if no core waited.
    Lock,
    /// The part of the finalization that follows the receiver's interrupt: the shortest since the
    /// phase was last recorded.
    Tail,
}

impl Phase {
    /// All phases: the twelve of Table II in its order, then weir's own five.
    pub const ALL: [Self; 17] = [
        Self::Hc,
        Self::Pt,
        Self::Pp,
        Self::Ql,
        Self::Qi,
        Self::Qa,
        Self::Qr,
        Self::Ps,
        Self::Pd,
        Self::Ft,
        Self::Ip,
        Self::Br,
        Self::Wake,
        Self::Copy,
        Self::Hold,
        Self::Lock,
        Self::Tail,
    ];

    /// The name in files: Table II's symbol in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 17] = [
            "hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br", "wake", "copy",
            "hold", "lock", "tail",
        ];
        NAMES[self as usize]
    }

    /// Returns a description of the phase.
    #[must_use]
    pub const fn action(self) -> &'static str {
        const ACTIONS: [&str; 17] = [
            "hypervisor entry and exit",
            "transport",
            "packet parsing",
            "queue locking",
            "queue insertion",
            "find the place for insertion",
            "queue removal",
            "pick the earliest deadline",
            "process the packet, program the copy",
            "finalize the transfer",
            "DMA engine: start to interrupt",
            "notification of the receiver",
            "wake-up of the broker",
            "copy of a chunk",
            "turn of a device's lock",
            "wait for a device's lock",
            "finalization after the receiver's interrupt",
        ];
        ACTIONS[self as usize]
    }

    /// Returns the phases in a record, in the order of [`unpack`]; empty if its kind has no phases.
    #[must_use]
    pub const fn of(record: &Record) -> &'static [Self] {
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::PacketSent) => &[Self::Pt, Self::Pp, Self::Ql, Self::Qi],
            Some(RecordKind::PacketChunk) if record.is_by_engine() => {
                &[Self::Ps, Self::Pd, Self::Ip, Self::Qr]
            }
            Some(RecordKind::PacketChunk) => &[Self::Ps, Self::Pd, Self::Copy, Self::Qr],
            Some(RecordKind::PacketArrived) => &[Self::Qa, Self::Wake, Self::Hc, Self::Ft],
            Some(RecordKind::PacketTaken) => &[Self::Br, Self::Hold, Self::Lock, Self::Tail],
            _ => &[],
        }
    }
}

/// Packs four durations in ticks into a word, the first into bits 15:0.
#[inline]
#[must_use]
pub const fn pack(ticks: [u64; 4]) -> u64 {
    let [a, b, c, d] = ticks;
    clamp(a) | clamp(b) << 16 | clamp(c) << 32 | clamp(d) << 48
}

const fn clamp(ticks: u64) -> u64 {
    if ticks < LONGEST { ticks } else { LONGEST }
}

/// Returns the four durations of a word made by [`pack`].
#[must_use]
pub const fn unpack(word: u64) -> [u64; 4] {
    [word & LONGEST, word >> 16 & LONGEST, word >> 32 & LONGEST, word >> 48]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BY_ENGINE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn four_durations_come_back_up_to_the_longest(
            ticks in any::<[u32; 4]>(), shift in 0u32..32,
        ) {
            let ticks = ticks.map(|ticks| u64::from(ticks >> shift));
            prop_assert_eq!(unpack(pack(ticks)), ticks.map(|ticks| ticks.min(LONGEST)));
        }
    }

    #[test]
    fn each_phase_is_told_once() {
        let told = |detail: u32| -> Vec<Phase> {
            let of = |kind: &RecordKind| {
                Phase::of(&Record { kind: *kind as u16, detail, ..Record::default() })
            };
            RecordKind::ALL.iter().flat_map(|kind| of(kind).iter().copied()).collect()
        };
        let [by_core, by_engine] = [0, BY_ENGINE].map(told);
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, place);
            let times = |told: &[Phase]| told.iter().filter(|one| **one == phase).count();
            assert_eq!(times(&by_core), usize::from(phase != Phase::Ip), "{}", phase.name());
            assert_eq!(times(&by_engine), usize::from(phase != Phase::Copy), "{}", phase.name());
        }
        let unknown = Record { kind: 40, detail: BY_ENGINE, ..Record::default() };
        assert!(Phase::of(&unknown).is_empty());
    }
}
