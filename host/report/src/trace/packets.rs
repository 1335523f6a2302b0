//! The numbers of packets: one numbering for the report, the trace and `weir why`.
//!
//! The packets of a flow are numbered from 1 in the order of their arrival, as in the report. The
//! head of a packet's chain, which its records have, is a place in its sender's ring that later
//! packets use again.

use super::file::Trace;
use std::{collections::BTreeMap, io::Read, path::Path};
use weir_image::Result;
use weir_trace::record::{Record, RecordKind};

/// The numbers of the packets of a trace, by the places of their records in the file. If records
/// were lost, only the packets with records are counted.
#[derive(Clone, Debug, Default)]
pub struct PacketNumbers {
    numbers: BTreeMap<u64, u64>,
    /// The place, the flow and whether it has a number, of the last packet that was sent with this
    /// head by this VM.
    sent: BTreeMap<(u8, u32), (u64, u32, bool)>,
    /// Packets that have arrived, by flow.
    arrived: BTreeMap<u32, u64>,
}

impl PacketNumbers {
    /// Reads a trace to its end.
    ///
    /// # Errors
    ///
    /// The trace cannot be read.
    pub fn read<R: Read>(trace: &mut Trace<R>) -> Result<Self> {
        let mut numbers = Self::default();
        for place in 0.. {
            let Some(record) = trace.next_record()? else { break };
            numbers.take(place, &record);
        }
        Ok(numbers)
    }

    /// Takes the record at this place of the file. If a packet arrives, returns its number and the
    /// place of the record of its sending, if the trace has one.
    pub fn take(&mut self, place: u64, record: &Record) -> Option<(u64, Option<u64>)> {
        let key = (record.vm, record.detail & 0xffff);
        match RecordKind::from_number(record.kind)? {
            RecordKind::PacketSent => {
                self.sent.insert(key, (place, record.flow(), false));
                None
            }
            RecordKind::PacketArrived => {
                let count = self.arrived.entry(record.flow()).or_default();
                *count += 1;
                let number = *count;
                self.numbers.insert(place, number);
                let sent = self.sent.get_mut(&key);
                // A packet for several receivers was sent once, in the flow to the first one.
                if let Some((sent, flow, has_number)) = sent
                    && (!*has_number || *flow == record.flow())
                {
                    *has_number = true;
                    self.numbers.insert(*sent, number);
                }
                Some((number, self.sent.get(&key).map(|(place, ..)| *place)))
            }
            _ => None,
        }
    }

    /// Returns the number of the packet with a record at this place; none if it did not arrive.
    #[must_use]
    pub fn at(&self, place: u64) -> Option<u64> {
        self.numbers.get(&place).copied()
    }

    /// Returns how many packets of a flow have arrived.
    #[must_use]
    pub fn arrived(&self, flow: u32) -> u64 {
        self.arrived.get(&flow).copied().unwrap_or(0)
    }
}

/// Returns the numbers of the packets of a run, which is named by its directory or its trace.
///
/// # Errors
///
/// As [`Trace::open`].
pub fn numbers_of(run: &Path) -> Result<PacketNumbers> {
    PacketNumbers::read(&mut Trace::open(run)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::record::{WAITED, packet};

    fn record(kind: RecordKind, vm: u8, detail: u32) -> Record {
        Record { kind: kind as u16, vm, detail, ..Record::default() }
    }

    #[test]
    fn packets_are_numbered_by_arrival() {
        let sent = |vm, flow, head| record(RecordKind::PacketSent, vm, packet(flow, head));
        let arrived = |vm, flow, head| record(RecordKind::PacketArrived, vm, packet(flow, head));
        let records = [
            sent(0, 0, 0),
            sent(1, 1, 0),
            sent(0, 0, 1),
            arrived(1, 1, 0),
            arrived(0, 0, 0),
            // A shutdown, which does not arrive; its head is used again.
            sent(1, 1, 0),
            record(RecordKind::PacketArrived, 0, packet(0, 1) | WAITED),
            sent(1, 1, 0),
            arrived(1, 1, 0),
            // The same packet for a second receiver.
            arrived(1, 2, 0),
        ];
        let mut numbers = PacketNumbers::default();
        let taken: Vec<_> =
            (0..).zip(&records).filter_map(|(place, it)| numbers.take(place, it)).collect();
        let expected = [(1, Some(1)), (1, Some(0)), (2, Some(2)), (2, Some(7)), (1, Some(7))];
        assert_eq!(taken, expected);
        let at: Vec<_> = (0..10).map(|place| numbers.at(place)).collect();
        let expected =
            [Some(1), Some(1), Some(2), Some(1), Some(1), None, Some(2), Some(2), Some(2), Some(1)];
        assert_eq!(at, expected);
        assert_eq!([0, 1, 2, 3].map(|flow| numbers.arrived(flow)), [2, 2, 1, 0]);
    }
}
