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
    events::Event,
    interconnect::{Purpose, Transaction},
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
                match self.tbus[tbu].translate(stream, owner, pa.0, tables) {
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
        let pages = self.pages[engine].get(channel).cloned().flatten();
        let first = pa.0 >> self.line_shift;
        let last = (pa.0 + bytes.0.max(1) - 1) >> self.line_shift;
        work.left = last - first + 1;
        let coherent = self.config.dma[engine].coherent;
        let master = self.stages.len() + engine;
        let mut counted = false;
        for line in first..=last {
            let line = match &pages {
                Some(pages) => physical(pages, line << self.line_shift) >> self.line_shift,
                None => line,
            };
            let moved = MovedLine { line, owner, write };
            let cached = coherent && {
                let served = self.hierarchy.device_access(owner, write, line);
                self.hierarchy.take_moved().for_each(drop);
                served != Served::Memory
            };
            let first = !cached && !counted;
            counted |= !cached;
            let pa = Pa(line << self.line_shift);
            let transaction = Transaction {
                purpose: Purpose::Dma(number),
                master,
                channel: (self.map.locate(pa).bank / self.banks_per_channel) as usize,
                pa,
                owner: moved.owner,
                write,
                first,
                at: now,
            };
            if cached {
                let CacheTiming { l2_cycle, l2_hit, .. } = self.config.caches;
                let line = self.carry(transaction, l2_hit);
                // It takes a lookup's time from the cores.
                let stage = &mut self.stages[0];
                let at = stage.free.max(now);
                stage.free = at + l2_cycle;
                stage.served.charge(&mut self.carried[line].charges, now, at);
                stage.served.note(at, Some(owner));
                if !stage.has_waiting(now) {
                    stage.served.note(stage.free, None);
                }
                self.events.add(at + l2_hit, Event::Data(line));
            } else {
                let line = self.carry(transaction, self.unloaded_line(write));
                self.events.add(now, Event::Enqueue(line));
            }
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

/// Where a device's address lies: in these pages of 4 KiB, again and again.
fn physical(pages: &[u64], address: u64) -> u64 {
    const PAGE: u64 = 4096;
    let page = (address / PAGE) % (pages.len() as u64).max(1);
    pages.get(page as usize).copied().unwrap_or(0) + address % PAGE
}
