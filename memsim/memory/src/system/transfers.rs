//! A DMA transaction's way: translation, then its lines, through the caches if the engine is
//! coherent.

use crate::{
    dma::{Progress, Transaction as DmaTransaction},
    hierarchy::{MovedLine, Served},
    smmu::{StreamId, Translation},
    units::{Pa, Picos},
};

use super::{
    Answer, CacheTiming, DmaWork, MemorySystem,
    blame::Charges,
    events::Event,
    interconnect::{Purpose, Transaction},
    stage::{Miss, Pending, Requester},
};

impl MemorySystem {
    pub(super) fn arm_engine(&mut self, engine: usize, now: Picos) {
        if let Some(at) = self.engines[engine].probe(now) {
            self.events.add(at, Event::Dma(engine));
        }
    }

    pub(super) fn run_engine(&mut self, engine: usize, now: Picos) {
        let port = self.config.dma[engine];
        let mut issued = false;
        while let Some(transaction) = self.engines[engine].issue(now) {
            issued = true;
            let walk = port.smmu.and_then(|(tbu, stream, tables)| {
                let DmaTransaction { owner, pa, channel, .. } = transaction;
                let stream = StreamId(stream.0 + channel as u16);
                let pages = self.pages[engine].get(channel);
                let iova = pages.map_or(pa.0, |pages| page_address(&pages.device, pa.0));
                match self.tbus[tbu].translate(stream, owner, iova, tables) {
                    Translation::Hit => None,
                    Translation::Walk(walk) => Some((walk, 0)),
                }
            });
            let work = DmaWork { engine, transaction, left: 0, walk };
            let number = self.dma_work.add(work);
            if walk.is_some() {
                self.walk_read(number, now);
            } else {
                self.dma_lines(number, now);
            }
        }
        if issued {
            self.arm_engine(engine, now);
        }
    }

    /// Reads the next descriptor of a transaction's walk.
    fn walk_read(&mut self, number: usize, now: Picos) {
        let Some(work) = self.dma_work.get(number) else { return };
        let (Some((walk, step)), Some((tbu, ..))) = (work.walk, self.config.dma[work.engine].smmu)
        else {
            return;
        };
        let line = walk.reads()[step].0 >> self.line_shift;
        let moved = MovedLine { line, owner: work.transaction.owner, write: false };
        let master = self.stages.len() + self.engines.len() + tbu;
        self.send(Purpose::Walk(number), master, moved, now);
    }

    pub(super) fn walk_on(&mut self, number: usize, now: Picos) {
        let Some(work) = self.dma_work.get_mut(number) else { return };
        let Some((walk, step)) = &mut work.walk else { return };
        *step += 1;
        if *step < walk.reads().len() {
            self.walk_read(number, now);
        } else {
            work.walk = None;
            self.dma_lines(number, now);
        }
    }

    /// Sends the lines of a DMA transaction.
    fn dma_lines(&mut self, number: usize, now: Picos) {
        let Some(work) = self.dma_work.get_mut(number) else { return };
        let DmaWork { engine, transaction, .. } = *work;
        let DmaTransaction { owner, write, pa, bytes, channel } = transaction;
        let pages = self.pages[engine].get(channel).map(|pages| pages.physical.clone());
        let first = pa.0 >> self.line_shift;
        let last = (pa.0 + bytes.0.max(1) - 1) >> self.line_shift;
        work.left = last - first + 1;
        let port = self.config.dma[engine];
        let master = self.stages.len() + engine;
        for at in first..=last {
            let line = match &pages {
                Some(pages) => page_address(pages, at << self.line_shift) >> self.line_shift,
                None => at,
            };
            // Without allocation, the state of the caches changes when the access is made.
            let cached = port.coherent
                && (port.allocates || {
                    let served = self.hierarchy.device_access(owner, write, line);
                    self.hierarchy.take_moved().for_each(drop);
                    served != Served::Memory
                });
            let pa = Pa(line << self.line_shift);
            let channel = (self.map.locate(pa).bank / self.banks_per_channel) as usize;
            let transaction = Transaction {
                purpose: Purpose::Dma(number),
                master,
                channel: if cached { self.memories.len() } else { channel },
                pa,
                owner,
                write,
                first: at == first,
                at: now,
            };
            let unloaded =
                if cached { self.config.caches.l2_hit } else { self.unloaded_line(write) };
            let line = self.carry(transaction, unloaded);
            self.events.add(now, Event::Enqueue(line));
        }
    }

    /// A line of a coherent DMA engine has passed the interconnect to the caches.
    pub(super) fn pass_to_caches(&mut self, number: usize, port: usize, now: Picos) {
        let Some(transaction) = self.transactions.get(number) else { return };
        let Transaction { master, owner, pa, at, .. } = *transaction;
        let charges = Some(&mut self.carried[number].charges);
        self.interconnect.charge(port, charges, owner, at, now);
        let from = Requester::Device { engine: master - self.stages.len(), number };
        let (line, served) = (pa.0 >> self.line_shift, Served::L2);
        let writes = Vec::new();
        self.stages[0].push(Miss { from, owner, line, served, read: None, writes, at: now });
        self.arm_stage(0);
    }

    /// The second level looks a line of a coherent DMA engine up.
    pub(super) fn look_up_device(
        &mut self,
        stage: usize,
        engine: usize,
        number: usize,
        now: Picos,
    ) {
        // There is room for another one.
        self.arm_port(self.memories.len(), now);
        let CacheTiming { l2_hit, l2_miss, .. } = self.config.caches;
        let Some(&Transaction { owner, write, pa, .. }) = self.transactions.get(number) else {
            return;
        };
        let line = pa.0 >> self.line_shift;
        if !self.config.dma[engine].allocates {
            self.events.add(now + l2_hit, Event::Data(number));
            return;
        }
        self.hierarchy.device_allocate(owner, write, line);
        let (writes, reads): (Vec<_>, Vec<_>) =
            self.hierarchy.take_moved().partition(|moved| moved.write);
        let waiting = (number, now);
        if let Some(read) = reads.first() {
            self.carried[number].least = l2_miss + self.unloaded_line(false);
            let (devices, charges) = (vec![waiting], Charges::default());
            let pending = Pending { line, owner, cores: Vec::new(), devices, writes, charges };
            return self.read_line(stage, pending, *read, now);
        }
        for write in writes {
            self.write_back(stage, write, now + l2_miss);
        }
        match self.stages[stage].find_pending(line) {
            Some(pending) => pending.devices.push(waiting),
            None => self.events.add(now + l2_hit, Event::Data(number)),
        }
    }

    pub(super) fn dma_line(&mut self, number: usize, now: Picos, answers: &mut impl FnMut(Answer)) {
        let Some(work) = self.dma_work.get_mut(number) else { return };
        work.left -= 1;
        if work.left > 0 {
            return;
        }
        let Some(DmaWork { engine, transaction, .. }) = self.dma_work.take(number) else { return };
        if self.engines[engine].answer(transaction, now) == Progress::Done {
            answers(Answer::Transfer { engine, channel: transaction.channel, at: now });
        }
        self.arm_engine(engine, now);
    }
}

/// The address of an offset into these pages of 4 KiB, again and again; of none, the offset.
fn page_address(pages: &[u64], offset: u64) -> u64 {
    const PAGE: u64 = 4096;
    if pages.is_empty() {
        return offset;
    }
    pages[(offset / PAGE % pages.len() as u64) as usize] + offset % PAGE
}
