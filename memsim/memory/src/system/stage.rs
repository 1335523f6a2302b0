//! The second level as a place of contention: one lookup at a time, few misses on their way, few
//! write-back buffers.

use std::collections::VecDeque;

use crate::{
    hierarchy::{MovedLine, Served},
    units::{Owner, Picos},
};

use super::{blame, events::Slab};

/// The origin of a request to a second level.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requester {
    /// A core.
    Core(usize),
    /// A DMA engine, with the number of its line's transaction.
    Device { engine: usize, number: usize },
}

/// A request to a second level: a miss of a first level, or a line of a coherent DMA engine, which
/// has neither `read` nor `writes` before it is looked up.
#[derive(Clone, Debug)]
pub(super) struct Miss {
    pub from: Requester,
    pub owner: Owner,
    pub line: u64,
    pub served: Served,
    /// The line to be read from DRAM, if it is.
    pub read: Option<MovedLine>,
    /// Lines that must be written to DRAM because this one came in.
    pub writes: Vec<MovedLine>,
    /// When it reaches the second level.
    pub at: Picos,
}

/// A line on its way from DRAM.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub line: u64,
    /// Its owner.
    pub owner: Owner,
    /// Cores that wait for it, and since when.
    pub cores: Vec<(usize, Picos)>,
    /// Transactions of DMA engines that wait for it, and since when.
    pub devices: Vec<(usize, Picos)>,
    pub writes: Vec<MovedLine>,
    pub charges: blame::Charges,
}

/// Lines of an engine that wait at a second level at most; further ones wait at the interconnect.
const DEVICE_LINES: usize = 8;

/// A second-level cache: its queue from each core and each DMA engine, and its buffers.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    queues: Vec<VecDeque<Miss>>,
    cores: usize,
    /// The queue that is asked first.
    next: usize,
    /// No lookup before.
    pub free: Picos,
    /// Miss-status registers in use.
    pub pending: Slab<Pending>,
    pub write_backs: usize,
    /// Lines that have come and wait for a write-back buffer.
    pub filling: VecDeque<(usize, Picos)>,
    /// The owners that it served, and the owners of the lines that fill it.
    pub served: blame::Served,
    /// Of each owner, the registers and buffers in use.
    held: Box<[u32]>,
    /// Time for which something waited because all registers or buffers were in use.
    pub blocked: Picos,
    pub blocked_since: Option<Picos>,
    /// When the next lookup is planned.
    pub armed: Option<Picos>,
}

impl Stage {
    pub fn new(cores: usize, engines: usize, owners: usize) -> Self {
        Self {
            queues: vec![VecDeque::new(); cores + engines],
            cores,
            next: 0,
            free: Picos(0),
            pending: Slab::new(),
            write_backs: 0,
            filling: VecDeque::new(),
            served: blame::Served::default(),
            held: vec![0; owners].into_boxed_slice(),
            blocked: Picos(0),
            blocked_since: None,
            armed: None,
        }
    }

    pub fn push(&mut self, miss: Miss) {
        let queue = match miss.from {
            Requester::Core(core) => core,
            Requester::Device { engine, .. } => self.cores + engine,
        };
        self.queues[queue].push_back(miss);
    }

    /// The number of further lines of any one DMA engine that it takes.
    pub fn device_room(&self) -> usize {
        let devices = self.queues[self.cores..].iter();
        DEVICE_LINES.saturating_sub(devices.map(VecDeque::len).max().unwrap_or(0))
    }

    /// When the first of all requests has come or will come.
    pub fn first_arrival(&self) -> Option<Picos> {
        self.queues.iter().filter_map(|queue| queue.front()).map(|miss| miss.at).min()
    }

    /// The next request that is here, round robin over the cores and engines.
    pub fn pop(&mut self, now: Picos) -> Option<Miss> {
        let queues = self.queues.len();
        let here = |queue: &VecDeque<Miss>| queue.front().is_some_and(|miss| miss.at <= now);
        let next = (self.next..queues).chain(0..self.next).find(|&at| here(&self.queues[at]))?;
        self.next = (next + 1) % queues;
        self.queues[next].pop_front()
    }

    pub fn find_pending(&mut self, line: u64) -> Option<&mut Pending> {
        let at = self.pending.iter().find(|(_, pending)| pending.line == line)?.0;
        self.pending.get_mut(at)
    }

    /// An owner takes a register or a buffer.
    pub fn take(&mut self, owner: Owner) {
        self.held[owner.index()] += 1;
    }

    /// An owner gives one back.
    pub fn give_back(&mut self, owner: Owner) {
        self.held[owner.index()] -= 1;
    }

    /// The owner of the most registers and buffers.
    pub fn holder(&self) -> Option<Owner> {
        let most = self.held.iter().zip(0..).max_by_key(|(held, _)| **held);
        most.filter(|(held, _)| **held > 0).map(|(_, owner)| Owner(owner))
    }

    /// Whether a request is here at `now`.
    pub fn has_waiting(&self, now: Picos) -> bool {
        self.first_arrival().is_some_and(|at| at <= now)
    }

    /// Notes whether requests are held up by full buffers.
    pub fn note_blocked(&mut self, blocked: bool, now: Picos) {
        match (blocked, self.blocked_since) {
            (true, None) => self.blocked_since = Some(now),
            (false, Some(since)) => {
                self.blocked += now.since(since);
                self.blocked_since = None;
            }
            _ => {}
        }
    }
}
