//! A channel of a DMA engine that works for a VM: one transfer after the other, for ever.

use weir_memory::{
    Bytes, Owner, Pa, Picos,
    dma::{DmaPiece, Transfer},
    system::DevicePages,
};
use weir_model::timing::{Mode, Network, Transfers};

const PAGE: u64 = 4096;

/// A channel and what it does.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub engine: usize,
    pub channel: usize,
    pub owner: Owner,
    /// Its VM's RAM, which is what it sees as memory.
    pub pages: DevicePages,
    /// Least time between two of its bursts.
    pub pace: Picos,
    /// From a transfer's end to the next one's start.
    pub gap: Picos,
    /// When the present transfer was started.
    pub since: Picos,
    /// Transfers that were started.
    pub started: u64,
    /// The connection of a network device.
    pub connection: Option<Connection>,
    mode: Mode,
    /// Where its source begins, its destination, and its descriptors.
    source: u64,
    destination: u64,
    descriptors: u64,
    /// Bytes of a piece's descriptors.
    descriptor: u64,
    size: u64,
    chunk: u64,
    piece: u64,
}

/// A connection over a network, whose sender has a window. The sender is at the other end, which
/// brings packets, or the VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Packets that the sender may send now.
    pub credits: u64,
    /// From the end of a packet's handling until the sender knows.
    pub delay: Picos,
    /// True if the sender would send if it had a credit.
    pub waits: bool,
    /// The VM sends: a vCPU writes a packet, then the device reads it.
    pub vm_sends: bool,
    /// Packets that the VM has written and the device has not begun to read.
    pub written: u64,
    /// True if the device reads one.
    pub reads: bool,
}

/// The work of a channel: its owner, with which of the engine's channels, in which memory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub engine: usize,
    pub channel: usize,
    pub owner: Owner,
    pub pages: DevicePages,
}

impl Master {
    /// Channel number `index` of a VM's transfers of `size` bytes each; each has a part of the VM's
    /// RAM for itself, as long as there is enough. A piece's descriptors have `descriptor` bytes.
    pub fn new(
        transfers: &Transfers,
        place: Place,
        index: u64,
        size: u64,
        gap: Picos,
        descriptor: u64,
    ) -> Self {
        let span = size.div_ceil(PAGE) * PAGE;
        let lists = (span / PAGE * descriptor).div_ceil(PAGE) * PAGE;
        let source = index * (2 * span + lists);
        let Place { engine, channel, owner, pages } = place;
        Self {
            engine,
            channel,
            owner,
            pages,
            pace: Picos::from_nanos(transfers.pace.0),
            gap,
            since: Picos(0),
            started: 0,
            connection: None,
            mode: transfers.mode,
            source,
            destination: source + span,
            descriptors: source + 2 * span,
            descriptor,
            size,
            chunk: transfers.chunk.0,
            piece: transfers.piece.0,
        }
    }

    /// The same as a network device.
    pub fn of_network(mut self, network: &Network) -> Self {
        let ring = self.size / self.chunk;
        let credits = (network.window.0 / self.chunk).min(ring).max(1);
        let delay = Picos::from_nanos(network.delay.0);
        let vm_sends = self.mode == Mode::ReadOnly;
        self.connection =
            Some(Connection { credits, delay, waits: false, vm_sends, written: 0, reads: false });
        self
    }

    /// Takes a credit, if it needs one; whether the next transfer may start.
    pub const fn may_send(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return true };
        connection.waits = connection.credits == 0;
        connection.credits = connection.credits.saturating_sub(1);
        !connection.waits
    }

    /// True if a vCPU writes what the device then sends.
    pub fn vm_sends(&self) -> bool {
        self.connection.is_some_and(|connection| connection.vm_sends)
    }

    /// The next transfer.
    pub fn next(&mut self) -> Transfer {
        let chunks = (self.size / self.chunk).max(1);
        let at = self.started % chunks * self.chunk;
        self.started += 1;
        if self.mode == Mode::Linked {
            return self.linked(at);
        }
        let from = (self.mode != Mode::WriteOnly).then_some(Pa(self.source + at));
        let to = (self.mode != Mode::ReadOnly).then_some(Pa(self.destination + at));
        Transfer::Simple(DmaPiece { from, to, bytes: Bytes(self.chunk) })
    }

    /// A piece of each page of a chunk, put one behind the other. The descriptors are scattered over
    /// their pages: each lies in another page than the one before.
    fn linked(&self, at: u64) -> Transfer {
        let pages = self.chunk.div_ceil(PAGE);
        let lists = (pages * self.descriptor).div_ceil(PAGE).max(1);
        let pieces = (0..pages).map(|page| {
            let left = self.chunk - page * PAGE;
            let piece = DmaPiece {
                from: Some(Pa(self.source + at + page * PAGE)),
                to: Some(Pa(self.destination + (at / PAGE + page) * self.piece)),
                bytes: Bytes(self.piece.min(left)),
            };
            let place = page % lists * PAGE + page / lists * self.descriptor;
            (Pa(self.descriptors + place), piece)
        });
        Transfer::Linked(pieces.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Bytes as Size;
    use weir_units::Nanos;

    fn master(mode: Mode, size: u64, chunk: u64, piece: u64) -> Master {
        let transfers = Transfers {
            engine: "lpd".to_owned(),
            channels: 2,
            mode,
            chunk: Size(chunk),
            piece: Size(piece),
            pace: Nanos(0),
        };
        let place = Place { engine: 0, channel: 1, owner: Owner(0), pages: DevicePages::default() };
        Master::new(&transfers, place, 1, size, Picos(0), 64)
    }

    #[test]
    fn chunks_follow_each_other_and_begin_again() {
        let mut master = master(Mode::Simple, 3 * PAGE, PAGE, PAGE);
        // The channel before has 3 pages each way and one of descriptors.
        let first = 7 * PAGE;
        for round in [0, 1, 2, 0, 1] {
            let piece = DmaPiece {
                from: Some(Pa(first + round * PAGE)),
                to: Some(Pa(first + (3 + round) * PAGE)),
                bytes: Bytes(PAGE),
            };
            assert_eq!(master.next(), Transfer::Simple(piece));
        }
    }

    #[test]
    fn a_linked_transfer_moves_a_piece_of_each_page() {
        let Transfer::Linked(list) = master(Mode::Linked, 3 * PAGE, 3 * PAGE - 4090, 16).next()
        else {
            panic!("not linked");
        };
        let first = 7 * PAGE;
        let (descriptors, pieces): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        assert_eq!(descriptors, [0, 64, 128].map(|at| Pa(first + 6 * PAGE + at)));
        let bytes: Vec<_> = pieces.iter().map(|piece| piece.bytes.0).collect();
        assert_eq!(bytes, [16, 16, 6]);
        assert_eq!(pieces[1].from, Some(Pa(first + PAGE)));
        assert_eq!(pieces[1].to, Some(Pa(first + 3 * PAGE + 16)));
    }

    #[test]
    fn descriptors_lie_in_another_page_each_time() {
        let size = 256 * PAGE;
        let Transfer::Linked(list) = master(Mode::Linked, size, size, 16).next() else {
            panic!("not linked");
        };
        let places: Vec<_> = list.iter().map(|(descriptor, _)| descriptor.0).collect();
        assert!(places.windows(2).all(|pair| pair[0] / PAGE != pair[1] / PAGE));
        let mut sorted = places.clone();
        sorted.sort_unstable();
        // They fill four pages without a hole.
        assert!(sorted.windows(2).all(|pair| pair[1] == pair[0] + 64) && sorted.len() == 256);
    }

    #[test]
    fn one_sided_transfers_have_one_side() {
        let one = |mode| match master(mode, PAGE, PAGE, PAGE).next() {
            Transfer::Simple(DmaPiece { from, to, .. }) => (from.is_some(), to.is_some()),
            Transfer::Linked(_) => (false, false),
        };
        assert_eq!(one(Mode::ReadOnly), (true, false));
        assert_eq!(one(Mode::WriteOnly), (false, true));
    }
}
