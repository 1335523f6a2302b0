//! A DMA engine with several channels: which transactions it makes, and when a transfer is done.
//! Where they go and how long they take is the interconnect's business.
//!
//! A channel reads bursts of its source as far as its buffer has room, and writes a burst when its
//! data has come. In linked mode it first reads a descriptor for each piece (ZynqMP: 256 bits for
//! the source side and as much for the destination side; bao-throttling 3.1.1).

use core::fmt;

use crate::units::{Bytes, Owner, Pa, Picos};

/// Parameters of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaConfig {
    /// Channels, 1 to 64.
    pub channels: usize,
    /// Bytes of a transaction: burst length times port width (16 beats of 64 bits are 128 B).
    pub burst: Bytes,
    /// Reads that the engine has on their way at most, over all channels.
    pub reads: usize,
    /// Writes that the engine has on their way at most, over all channels.
    pub writes: usize,
    /// Reads that a channel has on their way at most.
    pub channel_reads: usize,
    /// Writes that a channel has on their way at most.
    pub channel_writes: usize,
    /// Buffer of a channel, at least a burst: data that was asked for and is not yet on its way
    /// out.
    pub buffer: Bytes,
    /// From the start of a transfer to its first transaction.
    pub setup: Picos,
    /// From the end of a piece of a linked transfer to the first transaction of the next piece.
    pub next_piece: Picos,
    /// Bytes of the descriptors of a piece, read in linked mode in two transactions: one for the
    /// source side, one for the destination side.
    pub descriptor: Bytes,
}

/// Why an engine can't be built or a transfer can't be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaError {
    /// Channels outside of 1 to 64, a burst of 0, no transactions, or a buffer smaller than a
    /// burst.
    Config(DmaConfig),
    /// There is no such channel.
    NoChannel(usize),
    /// The channel is still at its last transfer.
    Busy(usize),
    /// A transfer of nothing, or a piece of 0 bytes.
    Empty,
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(c) => write!(
                f,
                "a DMA engine of {} channels, bursts of {}, {} reads ({} of a channel), {} writes \
                 ({} of a channel), a buffer of {}: give 1 to 64 channels, and room for one burst \
                 each way",
                c.channels, c.burst, c.reads, c.channel_reads, c.writes, c.channel_writes, c.buffer
            ),
            Self::NoChannel(n) => write!(f, "the DMA engine has no channel {n}"),
            Self::Busy(n) => write!(f, "DMA channel {n} is busy: wait for its end"),
            Self::Empty => f.write_str("a DMA transfer of 0 bytes"),
        }
    }
}

impl core::error::Error for DmaError {}

/// Where a piece of a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaPiece {
    /// Read from here; `None` in the write-only mode.
    pub from: Option<Pa>,
    /// Written to here; `None` in the read-only mode.
    pub to: Option<Pa>,
    /// So much.
    pub bytes: Bytes,
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// One piece, its parameters in registers.
    Simple(DmaPiece),
    /// Pieces, each with the address of its descriptors, which can lie anywhere: each descriptor
    /// has the address of the next.
    Linked(Vec<(Pa, DmaPiece)>),
}

/// A transaction that a channel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The channel.
    pub channel: usize,
    /// The owner of the transfers.
    pub owner: Owner,
    /// A write.
    pub write: bool,
    /// First address.
    pub pa: Pa,
    /// Length; the last one of a piece may be shorter than a burst.
    pub bytes: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    owner: Owner,
    pieces: Vec<DmaPiece>,
    /// The addresses of the pieces' descriptors; none of a simple transfer.
    descriptors: Vec<Pa>,
    piece: usize,
    /// Of the present piece: bytes asked for, come, sent, written.
    asked: u64,
    come: u64,
    sent: u64,
    written: u64,
    descriptor: Descriptor,
    reads: usize,
    writes: usize,
    /// Bytes of all transfers that were written, or read and not to be written.
    moved: u64,
    /// No transaction before.
    from: Picos,
    /// No read (or, write-only, write) before.
    paced: Picos,
    /// Least time between the reads (or, write-only, the writes) of two bursts.
    pace: Picos,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Descriptor {
    /// None is needed, or both have come.
    #[default]
    Known,
    /// So many of the two were asked for, and so many have come.
    Needed { asked: u64, come: u64 },
}

/// Descriptors of a piece: of its source, of its destination.
const SIDES: u64 = 2;

impl Channel {
    fn busy(&self) -> bool {
        self.piece < self.pieces.len()
    }

    fn begin_piece(&mut self, now: Picos, pause: Picos) {
        (self.asked, self.come, self.sent, self.written) = (0, 0, 0, 0);
        self.from = now + pause;
        self.descriptor = if self.descriptors.is_empty() {
            Descriptor::Known
        } else {
            Descriptor::Needed { asked: 0, come: 0 }
        };
    }
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The transfer goes on.
    Going,
    /// The channel's transfer is done.
    Done,
}

/// An engine. See the [module](self).
#[derive(Clone, Debug)]
pub struct Engine {
    config: DmaConfig,
    channels: Vec<Channel>,
    reads: usize,
    writes: usize,
    /// The channel that is asked first.
    next: usize,
}

impl Engine {
    /// An idle engine.
    ///
    /// # Errors
    /// [`DmaError::Config`].
    pub fn new(config: DmaConfig) -> Result<Self, DmaError> {
        let fits = (1..=64).contains(&config.channels)
            && config.burst.0 > 0
            && config.reads > 0
            && config.writes > 0
            && config.channel_reads > 0
            && config.channel_writes > 0
            && config.buffer >= config.burst;
        if !fits {
            return Err(DmaError::Config(config));
        }
        let channels = vec![Channel::default(); config.channels];
        Ok(Self { config, channels, reads: 0, writes: 0, next: 0 })
    }

    /// Sets the least time between two bursts of a channel (a pause that the driver puts between
    /// its pieces, or a channel's own rate limit); 0 sets none.
    ///
    /// # Errors
    /// [`DmaError::NoChannel`].
    pub fn pace(&mut self, channel: usize, pace: Picos) -> Result<(), DmaError> {
        self.channels.get_mut(channel).ok_or(DmaError::NoChannel(channel))?.pace = pace;
        Ok(())
    }

    /// Starts a transfer.
    ///
    /// # Errors
    /// [`DmaError`] if the channel is busy or not there, or there is nothing to do.
    pub fn start(
        &mut self,
        channel: usize,
        owner: Owner,
        transfer: Transfer,
        now: Picos,
    ) -> Result<(), DmaError> {
        let setup = self.config.setup;
        let c = self.channels.get_mut(channel).ok_or(DmaError::NoChannel(channel))?;
        if c.busy() {
            return Err(DmaError::Busy(channel));
        }
        let (descriptors, pieces) = match transfer {
            Transfer::Simple(piece) => (Vec::new(), vec![piece]),
            Transfer::Linked(pieces) => pieces.into_iter().unzip(),
        };
        let nothing =
            |piece: &DmaPiece| piece.bytes.0 == 0 || piece.from.is_none() && piece.to.is_none();
        if pieces.is_empty() || pieces.iter().any(nothing) {
            return Err(DmaError::Empty);
        }
        let (pace, moved) = (c.pace, c.moved);
        *c = Channel { owner, pieces, descriptors, moved, pace, ..Channel::default() };
        c.begin_piece(now, setup);
        Ok(())
    }

    /// Whether a channel has a transfer.
    #[must_use]
    pub fn is_busy(&self, channel: usize) -> bool {
        self.channels.get(channel).is_some_and(Channel::busy)
    }

    /// Bytes that a channel has moved in all its transfers: written, or where a piece is not
    /// written, read.
    #[must_use]
    pub fn moved(&self, channel: usize) -> Bytes {
        Bytes(self.channels.get(channel).map_or(0, |channel| channel.moved))
    }

    /// The next time at which [`Engine::issue`] would give a transaction if no answer comes before,
    /// not before `now`; `None` if only an answer or a new transfer can bring one.
    #[must_use]
    pub fn probe(&self, now: Picos) -> Option<Picos> {
        let wanted = (0..self.channels.len()).filter_map(|channel| self.wanted(channel));
        wanted.map(|(_, from)| from.max(now)).min()
    }

    /// The next transaction, round robin over the channels; `None` if there is none now.
    pub fn issue(&mut self, now: Picos) -> Option<Transaction> {
        let count = self.channels.len();
        for channel in (self.next..count).chain(0..self.next) {
            let Some((transaction, from)) = self.wanted(channel) else { continue };
            if from > now {
                continue;
            }
            let c = &mut self.channels[channel];
            let bytes = transaction.bytes.0;
            if let Descriptor::Needed { asked, .. } = &mut c.descriptor {
                *asked += 1;
            } else {
                if transaction.write {
                    c.sent += bytes;
                } else {
                    c.asked += bytes;
                }
                if !transaction.write || c.pieces[c.piece].from.is_none() {
                    c.paced = now + c.pace;
                }
            }
            if transaction.write {
                c.writes += 1;
                self.writes += 1;
            } else {
                c.reads += 1;
                self.reads += 1;
            }
            self.next = (channel + 1) % count;
            return Some(transaction);
        }
        None
    }

    /// A transaction was answered.
    pub fn answer(&mut self, transaction: Transaction, now: Picos) -> Progress {
        let next_piece = self.config.next_piece;
        let c = &mut self.channels[transaction.channel];
        let bytes = transaction.bytes.0;
        if transaction.write {
            c.writes -= 1;
            self.writes -= 1;
            c.written += bytes;
        } else {
            c.reads -= 1;
            self.reads -= 1;
            if let Descriptor::Needed { come, .. } = &mut c.descriptor {
                *come += 1;
                if *come == SIDES {
                    c.descriptor = Descriptor::Known;
                }
                return Progress::Going;
            }
            c.come += bytes;
        }
        let piece = c.pieces[c.piece];
        if transaction.write || piece.to.is_none() {
            c.moved += bytes;
        }
        let moved = if piece.to.is_some() { c.written } else { c.come };
        if moved < piece.bytes.0 {
            return Progress::Going;
        }
        c.piece += 1;
        if c.busy() {
            c.begin_piece(now, next_piece);
            return Progress::Going;
        }
        Progress::Done
    }

    /// The next transaction of a channel and its earliest time. Writes go before reads: they make
    /// room.
    fn wanted(&self, channel: usize) -> Option<(Transaction, Picos)> {
        let c = &self.channels[channel];
        let piece = c.pieces.get(c.piece)?;
        let may_read = self.reads < self.config.reads && c.reads < self.config.channel_reads;
        let may_write = self.writes < self.config.writes && c.writes < self.config.channel_writes;
        let transaction = |write, pa, bytes| Transaction {
            channel,
            owner: c.owner,
            write,
            pa,
            bytes: Bytes(bytes),
        };
        match c.descriptor {
            Descriptor::Needed { asked: SIDES, .. } => return None,
            Descriptor::Needed { asked, .. } => {
                let size = self.config.descriptor.0 / SIDES;
                let at = Pa(c.descriptors.get(c.piece)?.0 + asked * size);
                return may_read.then(|| (transaction(false, at, size), c.from));
            }
            Descriptor::Known => {}
        }
        let burst = self.config.burst.0;
        if let Some(to) = piece.to {
            let left = piece.bytes.0 - c.sent;
            let next = burst.min(left);
            let (here, from) = match piece.from {
                Some(_) => (c.come - c.sent, c.from),
                None => (left, c.from.max(c.paced)),
            };
            if next > 0 && here >= next && may_write {
                return Some((transaction(true, Pa(to.0 + c.sent), next), from));
            }
        }
        let from = piece.from?;
        let next = burst.min(piece.bytes.0 - c.asked);
        let held = if piece.to.is_some() { c.asked - c.sent } else { c.asked - c.come };
        let room = held + next <= self.config.buffer.0;
        (next > 0 && room && may_read)
            .then(|| (transaction(false, Pa(from.0 + c.asked), next), c.from.max(c.paced)))
    }
}
