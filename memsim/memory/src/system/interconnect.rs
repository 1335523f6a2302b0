//! The interconnect: each master has a queue of reads and one of writes, each DRAM channel a port
//! that passes one line at a time, from the masters that may go, round robin.

use std::collections::VecDeque;

use super::blame::{Charges, Served};
use crate::{
    qos::QosRegulator,
    units::{Owner, Pa, Picos},
};

/// The owner of a line's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A miss of a second level: stage, miss-status register.
    Miss(usize, usize),
    /// A write-back of a second level.
    WriteBack(usize),
    /// A line of a DMA transaction.
    Dma(usize),
    /// A read of a translation table for a DMA transaction.
    Walk(usize),
}

/// One line to or from DRAM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    pub purpose: Purpose,
    pub master: usize,
    pub channel: usize,
    pub pa: Pa,
    pub owner: Owner,
    pub write: bool,
    /// The first line of what a regulator counts as one.
    pub first: bool,
    /// When it came, or comes, to where it waits now.
    pub at: Picos,
}

impl Transaction {
    /// Whether a core or a DMA engine waits for it.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self.purpose, Purpose::WriteBack(..))
    }
}

/// A master's port.
#[derive(Clone, Debug)]
pub(super) struct Master {
    /// How long a line takes it.
    pub line: Picos,
    pub regulator: Option<QosRegulator>,
}

#[derive(Clone, Debug)]
struct Port {
    free: Picos,
    /// The lane that is asked first.
    next: usize,
    armed: Option<Picos>,
    served: Served,
}

/// The next action of a port.
pub(super) enum Granted {
    /// It passes this transaction; after it one for that channel waited, which may have been tested
    /// in vain.
    Go(usize, Option<usize>),
    /// Nothing before that time.
    Later(Picos),
    /// Nothing until something changes.
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Interconnect {
    masters: Vec<Master>,
    /// Two a master: reads, writes.
    lanes: Vec<VecDeque<(usize, Transaction)>>,
    /// When each lane can pass its next line.
    lanes_free: Vec<Picos>,
    ports: Vec<Port>,
    /// Clock of the regulators.
    clock: Picos,
}

impl Interconnect {
    pub fn new(masters: Vec<Master>, channels: usize, clock: Picos) -> Self {
        Self {
            lanes: vec![VecDeque::new(); masters.len() * 2],
            lanes_free: vec![Picos(0); masters.len() * 2],
            masters,
            ports: vec![
                Port { free: Picos(0), next: 0, armed: None, served: Served::default() };
                channels
            ],
            clock,
        }
    }

    pub fn push(&mut self, number: usize, transaction: Transaction) {
        let lane = transaction.master * 2 + usize::from(transaction.write);
        self.lanes[lane].push_back((number, transaction));
    }

    /// Whether the port has to be tested at `at`, earlier than was planned.
    pub fn arm(&mut self, channel: usize, at: Picos) -> Option<Picos> {
        let port = &mut self.ports[channel];
        let at = at.max(port.free);
        if port.armed.is_some_and(|armed| armed <= at) {
            return None;
        }
        port.armed = Some(at);
        Some(at)
    }

    /// Whether this is the time that was planned last.
    pub fn disarm(&mut self, channel: usize, now: Picos) -> bool {
        let port = &mut self.ports[channel];
        let planned = port.armed == Some(now);
        if planned {
            port.armed = None;
        }
        planned
    }

    /// Passes a line on to a channel that has so much room for reads and for writes; the port is
    /// taken for `taken`.
    pub fn grant(&mut self, channel: usize, now: Picos, taken: Picos, room: [usize; 2]) -> Granted {
        let clock = now.0.div_ceil(self.clock.0);
        let lanes = self.lanes.len();
        let next = self.ports[channel].next;
        let mut first = None;
        let mut later: Option<Picos> = None;
        for lane in (next..lanes).chain(0..next) {
            let Some((_, head)) = self.lanes[lane].front() else { continue };
            if head.channel != channel || room[usize::from(head.write)] == 0 {
                continue;
            }
            let master = &self.masters[lane / 2];
            let mut ready = self.lanes_free[lane];
            if head.first
                && let Some(regulator) = &master.regulator
            {
                let passes = regulator.probe(head.write, clock);
                if passes > clock {
                    ready = ready.max(self.clock * passes);
                }
            }
            if ready > now {
                later = Some(later.map_or(ready, |later| later.min(ready)));
                continue;
            }
            first = Some(lane);
            break;
        }
        let Some(lane) = first else {
            return later.map_or(Granted::Nothing, Granted::Later);
        };
        let Some((number, transaction)) = self.lanes[lane].pop_front() else {
            return Granted::Nothing;
        };
        if transaction.first
            && let Some(regulator) = &mut self.masters[lane / 2].regulator
        {
            let passed = regulator.issue(transaction.write, clock);
            debug_assert!(passed.is_ok(), "it was ready");
        }
        let port = &mut self.ports[channel];
        port.free = now + taken;
        self.lanes_free[lane] = now + self.masters[lane / 2].line;
        port.next = (lane + 1) % lanes;
        let behind = self.lanes[lane].front().map(|(_, head)| head.channel);
        Granted::Go(number, behind)
    }

    /// A line of `owner` that came at `from` is passed on at `now`: charges its wait, if an access
    /// waits for it.
    pub fn charge(
        &mut self,
        channel: usize,
        charges: Option<&mut Charges>,
        owner: Owner,
        from: Picos,
        now: Picos,
    ) {
        let others = self.lanes.iter().filter_map(|lane| lane.front());
        let waiting = others.filter(|(_, head)| head.channel == channel).count() > 0;
        let port = &mut self.ports[channel];
        if let Some(charges) = charges {
            port.served.charge(charges, from, now);
        }
        port.served.note(now, Some(owner));
        if !waiting {
            port.served.note(port.free, None);
        }
    }

    pub fn port_free(&self, channel: usize) -> Picos {
        self.ports[channel].free
    }
}
