//! The whole memory system in time: cores' accesses and DMA transfers go in, answers come out.
//!
//! Which lines are where is the [`Hierarchy`]'s business, and is decided when an access is issued;
//! this module gives it time. A line that is on its way counts as there already, but accesses to it
//! wait for it. So an eviction happens a little early (by the time that the line takes to come),
//! and all else follows the resources: the second level does one lookup at a time; when its
//! miss-status registers or its write-back buffers are all in use, it does none, and even hits
//! wait; each DRAM channel's port passes one line at a time; the DRAM is that of
//! [`crate::dram::DramChannel`]. What is left out: a first level's write-back into the second takes
//! no lookup, and a non-coherent DMA does not notice that it reads past a dirty line.

mod blame;
mod config;
mod events;
mod interconnect;
mod lines;
mod stage;
mod transfers;

pub use blame::Waits;
pub use config::{CacheTiming, DmaPort, InterconnectTiming, SystemConfig, SystemError};

use crate::{
    dma::{DmaError, Engine, Transaction as DmaTransaction, Transfer},
    dram::{AddressMap, ChannelStats, Done, DramChannel},
    events::Events,
    hierarchy::{Access, Hierarchy, L2Sharing, Served},
    qos::QosRegulator,
    smmu::{Tbu, Walk},
    units::{Bytes, Owner, Pa, Picos},
};
use events::{Event, Slab};
use interconnect::{Interconnect, Master, Transaction};
use stage::{Miss, Requester, Stage};
use std::sync::Arc;

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// It hit the first level; its data is there at this time. No answer follows.
    Hit(Picos),
    /// Its answer follows.
    Pending,
    /// The core waits for as many lines as it can: try again after an answer to it.
    Refused,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A core's access has its data.
    Core {
        /// The core.
        core: usize,
        /// The token of the access.
        token: u64,
        /// When.
        at: Picos,
        /// Where the line was when the access was issued; [`Served::L1`] if it was on its way to
        /// the core already.
        served: Served,
    },
    /// A DMA transfer is done.
    Transfer {
        /// The engine.
        engine: usize,
        /// Its channel.
        channel: usize,
        /// When.
        at: Picos,
    },
}

#[derive(Clone, Debug)]
struct Outstanding {
    line: u64,
    /// Its owner, its start, and the previous owner of the line.
    owner: Owner,
    since: Picos,
    served: Served,
    charges: blame::Charges,
    tokens: Vec<(u64, Served)>,
}

/// The waits of a transaction's line.
#[derive(Clone, Debug, Default)]
struct Carried {
    /// When it was sent.
    since: Picos,
    /// How long it takes if it never waits.
    least: Picos,
    charges: blame::Charges,
}

#[derive(Clone, Debug)]
struct Memory {
    channel: DramChannel,
    armed: Option<Picos>,
    /// Reads and writes that were passed on and have not arrived.
    coming: [usize; 2],
    served: blame::Served,
}

#[derive(Clone, Debug)]
struct DmaWork {
    engine: usize,
    transaction: DmaTransaction,
    /// Lines that are not answered.
    left: u64,
    walk: Option<(Walk, usize)>,
}

/// The memory as a DMA channel sees it, in pages of 4 KiB; what lies behind the last is the first
/// again.
#[derive(Clone, Debug, Default)]
pub struct DevicePages {
    /// The physical addresses of the pages. Without any, offsets are physical addresses.
    pub physical: Arc<[u64]>,
    /// The addresses by which the device accesses them, which index the TLB of a TBU. Without any,
    /// these are the offsets.
    pub device: Arc<[u64]>,
}

/// A memory system. See the [module](self).
#[derive(Clone, Debug)]
pub struct MemorySystem {
    config: SystemConfig,
    hierarchy: Hierarchy,
    map: AddressMap,
    banks_per_channel: u32,
    line_shift: u32,
    events: Events<Event>,
    cores: Vec<Vec<Outstanding>>,
    stages: Vec<Stage>,
    /// The ports are those of the DRAM channels, and behind them that of the caches.
    interconnect: Interconnect,
    transactions: Slab<Transaction>,
    /// Of each transaction, under its number.
    carried: Vec<Carried>,
    memories: Vec<Memory>,
    engines: Vec<Engine>,
    /// The pages of memory as each channel of an engine sees them.
    pages: Vec<Vec<DevicePages>>,
    dma_work: Slab<DmaWork>,
    tbus: Vec<Tbu>,
    done: Vec<Done>,
    waits: Waits,
    /// Of each owner, what the lines of DMA engines took longer than lines that never wait.
    dma_delays: Vec<Picos>,
}

impl MemorySystem {
    /// An idle system at time 0, its caches empty.
    ///
    /// # Errors
    /// [`SystemError`] names the part and what does not fit.
    pub fn new(config: SystemConfig) -> Result<Self, SystemError> {
        let caches = &config.caches;
        for (what, count) in [
            ("the number of lines that a core can wait for", caches.core_misses as u64),
            ("the number of miss-status registers of the L2", caches.l2_misses as u64),
            ("the number of write-back buffers of the L2", caches.l2_write_buffers as u64),
            ("the interconnect's clock", config.interconnect.clock.0),
            ("the DRAM's clock", config.dram.clock_ps),
        ] {
            if count == 0 {
                return Err(SystemError::Zero(what));
            }
        }
        let map = config.hierarchy.dram.clone().ok_or(SystemError::NoDram)?;
        let (cores, owners) = (config.hierarchy.cores, config.hierarchy.owners);
        let mut hierarchy =
            Hierarchy::new(config.hierarchy.clone()).map_err(SystemError::Hierarchy)?;
        hierarchy.keep_moved();
        let channel = DramChannel::new(map.clone(), config.dram, config.policy, owners)
            .map_err(SystemError::Dram)?;
        let channels = 1 << map.fields().channel.len();
        let private = config.hierarchy.l2.is_some_and(|l2| l2.sharing == L2Sharing::Private);
        let stages =
            vec![Stage::new(cores, config.dma.len(), owners); if private { cores } else { 1 }];
        let mut tbus = Vec::new();
        for (tbu, &tlb) in config.tbus.iter().enumerate() {
            let new = Tbu::new(tlb, owners).map_err(|error| SystemError::Tbu { tbu, error })?;
            tbus.push(new);
        }
        let mut engines = Vec::new();
        let cpu = Master { line: config.interconnect.cpu_line, regulator: None };
        let mut masters = vec![cpu.clone(); stages.len()];
        for (engine, port) in config.dma.iter().enumerate() {
            let new =
                Engine::new(port.engine).map_err(|error| SystemError::Dma { engine, error })?;
            if let Some((tbu, ..)) = port.smmu
                && tbu >= tbus.len()
            {
                return Err(SystemError::NoTbu { engine, tbu });
            }
            let shared = config.hierarchy.l2.is_some_and(|l2| l2.sharing == L2Sharing::Shared);
            if port.allocates && !(shared && port.coherent) {
                return Err(SystemError::NoAllocation { engine });
            }
            engines.push(new);
            masters.push(Master { line: port.line, regulator: port.qos.map(QosRegulator::new) });
        }
        masters.extend(vec![cpu; tbus.len()]);
        Ok(Self {
            banks_per_channel: map.banks() >> map.fields().channel.len(),
            line_shift: config.hierarchy.l1d.line.0.trailing_zeros(),
            events: Events::default(),
            cores: vec![Vec::new(); cores],
            interconnect: Interconnect::new(masters, channels + 1, config.interconnect.clock),
            transactions: Slab::new(),
            carried: vec![],
            memories: vec![
                Memory {
                    channel,
                    armed: None,
                    coming: [0; 2],
                    served: blame::Served::default()
                };
                channels
            ],
            pages: config
                .dma
                .iter()
                .map(|port| vec![DevicePages::default(); port.engine.channels])
                .collect(),
            dma_work: Slab::new(),
            done: Vec::new(),
            waits: Waits::new(owners),
            dma_delays: vec![Picos(0); owners],
            hierarchy,
            map,
            stages,
            engines,
            tbus,
            config,
        })
    }

    /// The present: the time of the last event or access.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.events.now()
    }

    /// The bytes of a line.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    /// The caches and their counts.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Each DRAM channel's counts.
    #[must_use]
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &ChannelStats> {
        self.memories.iter().map(|memory| memory.channel.stats())
    }

    /// The TLB of a TBU.
    #[must_use]
    pub fn tbu(&self, tbu: usize) -> Option<&Tbu> {
        self.tbus.get(tbu)
    }

    /// For how long requests to each second-level cache waited because all of its miss-status
    /// registers or write-back buffers were in use.
    #[must_use]
    pub fn blocked(&self) -> impl ExactSizeIterator<Item = Picos> {
        let now = self.now();
        self.stages.iter().map(move |stage| {
            stage.blocked + stage.blocked_since.map_or(Picos(0), |since| now.since(since))
        })
    }

    /// For how long lines of cores and DMA engines that were answered had waited, and for which
    /// owner's: at the second level, at the interconnect, at the DRAM.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// What the lines that DMA engines were answered for an owner, walks of translation tables
    /// among them, took longer than lines that never wait, from when they were sent to the
    /// interconnect or the caches.
    #[must_use]
    pub fn dma_delay(&self, owner: Owner) -> Picos {
        self.dma_delays.get(owner.index()).copied().unwrap_or_default()
    }

    /// The time of an access to a line that never waits, by the level that has the line; from DRAM,
    /// of an open row.
    #[must_use]
    pub fn unloaded(&self, served: Served) -> Picos {
        let caches = &self.config.caches;
        caches.l1_hit
            + match served {
                Served::L1 => Picos(0),
                Served::L2 => caches.l2_hit,
                Served::Peer => caches.peer_hit,
                Served::Memory => caches.l2_miss + self.unloaded_line(false) + caches.fill,
            }
    }

    /// Uses a line that a core's first level has and that is not on its way, in no time. Returns
    /// whether it is so; nothing has changed otherwise.
    ///
    /// # Panics
    /// If the core or the owner is not among those of the configuration.
    #[inline]
    pub fn hit(&mut self, core: usize, owner: Owner, access: Access, pa: Pa) -> bool {
        let line = pa.0 >> self.line_shift;
        let has = self.hierarchy.first_level_has(core, access, line)
            && self.cores[core].iter().all(|waiting| waiting.line != line);
        if has {
            self.hierarchy.access_line(core, owner, access, line);
        }
        has
    }

    /// An access of a core at `now`, which must lie within one line. All events before `now` must
    /// have been gone through by [`MemorySystem::advance`], and none after it.
    ///
    /// # Panics
    /// If the core or the owner is not among those of the configuration, or `now` is not the
    /// present.
    pub fn issue(
        &mut self,
        core: usize,
        owner: Owner,
        access: Access,
        pa: Pa,
        token: u64,
        now: Picos,
    ) -> Issue {
        self.move_to(now);
        let line = pa.0 >> self.line_shift;
        let waiting = self.cores[core].iter().position(|waiting| waiting.line == line);
        let full = self.cores[core].len() >= self.config.caches.core_misses;
        if (waiting.is_some() || full) && !self.hierarchy.first_level_has(core, access, line) {
            return Issue::Refused;
        }
        let served = self.hierarchy.access_line(core, owner, access, line);
        let l1_hit = self.config.caches.l1_hit;
        if served == Served::L1 {
            let Some(waiting) = waiting else { return Issue::Hit(now + l1_hit) };
            self.cores[core][waiting].tokens.push((token, served));
            return Issue::Pending;
        }
        let mut read = None;
        let mut writes = Vec::new();
        for moved in self.hierarchy.take_moved() {
            if moved.write {
                writes.push(moved);
            } else {
                read = Some(moved);
            }
        }
        let charges = blame::Charges::default();
        let tokens = vec![(token, served)];
        self.cores[core].push(Outstanding { line, owner, since: now, served, charges, tokens });
        let at = now + l1_hit;
        let stage = self.stage_of(core);
        let from = Requester::Core(core);
        self.stages[stage].push(Miss { from, owner, line, served, read, writes, at });
        self.arm_stage(stage);
        Issue::Pending
    }

    /// Starts a DMA transfer at `now`, under the same rule as [`MemorySystem::issue`].
    ///
    /// # Errors
    /// [`DmaError`] of the engine; [`DmaError::NoChannel`] also if there is no such engine.
    ///
    /// # Panics
    /// If `now` is not the present.
    pub fn start_transfer(
        &mut self,
        engine: usize,
        channel: usize,
        owner: Owner,
        transfer: Transfer,
        now: Picos,
    ) -> Result<(), DmaError> {
        self.move_to(now);
        let e = self.engines.get_mut(engine).ok_or(DmaError::NoChannel(channel))?;
        e.start(channel, owner, transfer, now)?;
        self.arm_engine(engine, now);
        Ok(())
    }

    /// Sets the pages of what a DMA channel sees as memory from offset 0 on. Without it, and with
    /// none, its addresses are physical ones.
    ///
    /// # Errors
    /// [`DmaError::NoChannel`] if there is no such engine or channel.
    pub fn map_channel(
        &mut self,
        engine: usize,
        channel: usize,
        pages: DevicePages,
    ) -> Result<(), DmaError> {
        let channels = self.pages.get_mut(engine).ok_or(DmaError::NoChannel(channel))?;
        let place = channels.get_mut(channel).ok_or(DmaError::NoChannel(channel))?;
        *place = pages;
        Ok(())
    }

    /// Bytes that a DMA channel has moved.
    #[must_use]
    pub fn moved(&self, engine: usize, channel: usize) -> Bytes {
        self.engines.get(engine).map_or(Bytes(0), |engine| engine.moved(channel))
    }

    /// Sets the least time between two bursts of a DMA channel.
    ///
    /// # Errors
    /// [`DmaError::NoChannel`] if there is no such engine or channel.
    pub fn pace(&mut self, engine: usize, channel: usize, pace: Picos) -> Result<(), DmaError> {
        self.engines.get_mut(engine).ok_or(DmaError::NoChannel(channel))?.pace(channel, pace)
    }

    /// Takes all lines of an owner from the caches, without writing them back: what it accesses from
    /// now on counts as other memory. Lines that are on their way still come.
    pub fn discard(&mut self, owner: Owner) {
        self.hierarchy.discard(owner);
    }

    /// When something happens next, if nothing is issued before; `None` if all is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Picos> {
        self.events.next()
    }

    /// Lets time go on to `until`, with the answers on the way in the order of their time.
    pub fn advance(&mut self, until: Picos, answers: &mut impl FnMut(Answer)) {
        while let Some((now, event)) = self.events.take(until) {
            self.handle(now, event, answers);
        }
        self.events.set_now(until);
    }

    fn move_to(&mut self, now: Picos) {
        let (present, next) = (self.now(), self.next_event().unwrap_or(now));
        assert!(present <= now && now <= next, "{now:?} does not lie in {present:?} to {next:?}");
        self.events.set_now(now);
    }

    fn handle(&mut self, now: Picos, event: Event, answers: &mut impl FnMut(Answer)) {
        match event {
            Event::Stage(stage) => self.look_up(stage, now),
            Event::Enqueue(number) => self.enqueue(number, now),
            Event::Grant(channel) => self.grant(channel, now),
            Event::Arrive(number) => self.arrive(number, now),
            Event::Dram(channel) => self.run_dram(channel, now),
            Event::Data(number) => self.data(number, now, answers),
            Event::Answer(core, line) => self.answer(core, line, now, answers),
            Event::Dma(engine) => self.run_engine(engine, now),
        }
    }
}
