//! A line's way: from a core's miss through the second level and the interconnect to DRAM and back.

use crate::{
    dram::{Request, RowUse},
    hierarchy::{MovedLine, Served},
    units::{Owner, Pa, Picos},
};

use super::{
    Answer, Carried, MemorySystem, Outstanding, SystemConfig,
    blame::Charges,
    events::Event,
    interconnect::{Granted, Purpose, Transaction},
    stage::{Miss, Pending, Requester},
};

impl MemorySystem {
    pub(super) fn stage_of(&self, core: usize) -> usize {
        if self.stages.len() > 1 { core } else { 0 }
    }

    fn is_blocked(&self, stage: usize) -> bool {
        let (s, caches) = (&self.stages[stage], &self.config.caches);
        s.pending.len() >= caches.l2_misses || s.write_backs >= caches.l2_write_buffers
    }

    /// Plans the next lookup of a second level, unless it is planned or can't be.
    pub(super) fn arm_stage(&mut self, stage: usize) {
        let now = self.now();
        let blocked = self.is_blocked(stage);
        let s = &mut self.stages[stage];
        let arrival = s.first_arrival();
        let held_up = blocked && arrival.is_some_and(|at| at <= now);
        if held_up && s.blocked_since.is_none() {
            // The owners of the lines that fill it delay the waiting ones.
            let holder = s.holder();
            s.served.note(now.max(s.free), holder);
        }
        s.note_blocked(held_up, now);
        let Some(arrival) = arrival else { return };
        // A request that comes while all is blocked is tested once, to record that it waits.
        let at = arrival.max(s.free).max(now);
        let planned = s.armed.is_some_and(|armed| armed <= at);
        if planned || blocked && arrival <= now {
            return;
        }
        s.armed = Some(at);
        self.events.add(at, Event::Stage(stage));
    }

    pub(super) fn look_up(&mut self, stage: usize, now: Picos) {
        if self.stages[stage].armed != Some(now) {
            return;
        }
        self.stages[stage].armed = None;
        if self.stages[stage].free <= now && !self.is_blocked(stage) {
            self.stages[stage].note_blocked(false, now);
            if let Some(miss) = self.stages[stage].pop(now) {
                let free = now + self.config.caches.l2_cycle;
                let s = &mut self.stages[stage];
                s.free = free;
                let charges = match miss.from {
                    Requester::Core(core) => {
                        let mut waiting = self.cores[core].iter_mut();
                        let its = waiting.find(|waiting| waiting.line == miss.line);
                        its.map(|waiting| &mut waiting.charges)
                    }
                    Requester::Device { number, .. } => {
                        self.carried.get_mut(number).map(|carried| &mut carried.charges)
                    }
                };
                if let Some(charges) = charges {
                    s.served.charge(charges, miss.at, now);
                }
                s.served.note(now, Some(miss.owner));
                if !s.has_waiting(now) {
                    s.served.note(free, None);
                }
                self.look_up_one(stage, miss, now);
            }
        }
        self.arm_stage(stage);
    }

    fn look_up_one(&mut self, stage: usize, miss: Miss, now: Picos) {
        let caches = self.config.caches;
        let Miss { from, owner, line, served, read, writes, .. } = miss;
        let core = match from {
            Requester::Core(core) => core,
            Requester::Device { engine, number } => {
                return self.look_up_device(stage, engine, number, now);
            }
        };
        if let Some(read) = read {
            let (cores, charges) = (vec![(core, now)], Charges::default());
            let pending = Pending { line, owner, cores, devices: Vec::new(), writes, charges };
            return self.read_line(stage, pending, read, now);
        }
        for write in writes {
            self.write_back(stage, write, now + caches.l2_miss);
        }
        if let Some(pending) = self.stages[stage].find_pending(line) {
            pending.cores.push((core, now));
            return;
        }
        let latency = match served {
            Served::Peer => caches.peer_hit,
            Served::L1 | Served::L2 | Served::Memory => caches.l2_hit,
        };
        self.events.add(now + latency, Event::Answer(core, line));
    }

    /// Takes a register for a line and reads it.
    pub(super) fn read_line(
        &mut self,
        stage: usize,
        pending: Pending,
        read: MovedLine,
        now: Picos,
    ) {
        self.stages[stage].take(pending.owner);
        let register = self.stages[stage].pending.add(pending);
        let at = now + self.config.caches.l2_miss;
        self.send(Purpose::Miss(stage, register), stage, read, at);
    }

    pub(super) fn write_back(&mut self, stage: usize, moved: MovedLine, at: Picos) {
        self.stages[stage].write_backs += 1;
        self.stages[stage].take(moved.owner);
        self.send(Purpose::WriteBack(stage), stage, moved, at);
    }

    /// Sends a line to the interconnect, where it comes at `at`.
    pub(super) fn send(&mut self, purpose: Purpose, master: usize, moved: MovedLine, at: Picos) {
        let pa = Pa(moved.line << self.line_shift);
        let transaction = Transaction {
            purpose,
            master,
            channel: (self.map.locate(pa).bank / self.banks_per_channel) as usize,
            pa,
            owner: moved.owner,
            write: moved.write,
            first: true,
            at,
        };
        let number = self.carry(transaction, self.unloaded_line(moved.write));
        self.events.add(at, Event::Enqueue(number));
    }

    /// Adds a transaction of a line that takes `least` if it never waits.
    pub(super) fn carry(&mut self, transaction: Transaction, least: Picos) -> usize {
        let number = self.transactions.add(transaction);
        if self.carried.len() <= number {
            self.carried.resize_with(number + 1, Carried::default);
        }
        let carried = &mut self.carried[number];
        (carried.since, carried.least) = (transaction.at, least);
        carried.charges.clear();
        number
    }

    /// How long a line takes from the interconnect to its answer if it never waits; if it is read,
    /// from an open row.
    pub(super) fn unloaded_line(&self, write: bool) -> Picos {
        let SystemConfig { interconnect, dram, .. } = &self.config;
        let way = interconnect.to_memory + interconnect.from_memory;
        if write { way } else { way + Picos(dram.clock_ps) * (dram.cl + dram.burst) }
    }

    pub(super) fn enqueue(&mut self, number: usize, now: Picos) {
        if let Some(&transaction) = self.transactions.get(number) {
            self.interconnect.push(number, transaction);
            self.arm_port(transaction.channel, now);
        }
    }

    pub(super) fn arm_port(&mut self, channel: usize, at: Picos) {
        if let Some(at) = self.interconnect.arm(channel, at) {
            self.events.add(at, Event::Grant(channel));
        }
    }

    pub(super) fn grant(&mut self, channel: usize, now: Picos) {
        if !self.interconnect.disarm(channel, now) {
            return;
        }
        let room = match self.memories.get(channel) {
            Some(memory) => [false, true].map(|write| {
                memory.channel.room(write).saturating_sub(memory.coming[usize::from(write)])
            }),
            None => [self.stages[0].device_room(); 2],
        };
        let timing = self.config.interconnect;
        match self.interconnect.grant(channel, now, timing.line, room) {
            Granted::Go(number, behind) if channel == self.memories.len() => {
                self.pass_to_caches(number, channel, now);
                self.arm_port(channel, self.interconnect.port_free(channel));
                if let Some(behind) = behind {
                    self.arm_port(behind, now);
                }
            }
            Granted::Go(number, behind) => {
                if let Some(transaction) = self.transactions.get_mut(number) {
                    self.memories[channel].coming[usize::from(transaction.write)] += 1;
                    let Transaction { owner, at, .. } = *transaction;
                    let carried = &mut self.carried[number];
                    let charges = transaction.is_waited_for().then_some(&mut carried.charges);
                    transaction.at = now + timing.to_memory;
                    self.interconnect.charge(channel, charges, owner, at, now);
                }
                self.events.add(now + timing.to_memory, Event::Arrive(number));
                self.arm_port(channel, self.interconnect.port_free(channel));
                if let Some(behind) = behind {
                    self.arm_port(behind, now);
                }
            }
            Granted::Later(at) => self.arm_port(channel, at),
            Granted::Nothing => {}
        }
    }

    pub(super) fn arrive(&mut self, number: usize, now: Picos) {
        let Some(&transaction) = self.transactions.get(number) else { return };
        let Transaction { channel, pa, owner, write, .. } = transaction;
        let cycle = now.0.div_ceil(self.config.dram.clock_ps);
        let memory = &mut self.memories[channel];
        memory.coming[usize::from(write)] -= 1;
        if memory.channel.waiting() == 0 {
            // The first request at an idle channel waits for no other owner.
            memory.served.note(now, None);
        }
        let request = Request { id: number as u64, pa, owner, write };
        let taken = memory.channel.push(request, cycle, &mut |done| self.done.push(done));
        debug_assert!(taken.is_ok(), "room was kept for it");
        if write {
            // A write is done when it is accepted: later reads are answered from the queue.
            let at = now + self.config.interconnect.from_memory;
            self.events.add(at, Event::Data(number));
        }
        self.after_dram(channel, now);
    }

    pub(super) fn run_dram(&mut self, channel: usize, now: Picos) {
        let memory = &mut self.memories[channel];
        if memory.armed != Some(now) {
            return;
        }
        memory.armed = None;
        let cycle = now.0 / self.config.dram.clock_ps;
        memory.channel.advance(cycle, &mut |done| self.done.push(done));
        self.after_dram(channel, now);
    }

    /// Passes on what a channel has done, and plans its next command.
    fn after_dram(&mut self, channel: usize, now: Picos) {
        let clock = Picos(self.config.dram.clock_ps);
        let mut served = false;
        let (timing, memory) = (&self.config.dram, &mut self.memories[channel]);
        for done in self.done.drain(..) {
            served = true;
            let latency = if done.write { timing.cwl } else { timing.cl } + timing.burst;
            let column = clock * done.at.saturating_sub(latency);
            // A write was answered when it was accepted, and its number may be another
            // transaction's by now.
            if !done.write
                && let Some(transaction) = self.transactions.get(done.id as usize)
                && transaction.is_waited_for()
                && done.row != RowUse::Forwarded
            {
                let charges = &mut self.carried[done.id as usize].charges;
                memory.served.charge(charges, transaction.at, column);
            }
            if done.row != RowUse::Forwarded {
                memory.served.note(column, Some(done.owner));
            }
            if !done.write {
                let at = clock * done.at + self.config.interconnect.from_memory;
                self.events.add(at, Event::Data(done.id as usize));
            }
        }
        if let Some(cycle) = memory.channel.next_event() {
            let at = (clock * cycle).max(now);
            if memory.armed.is_none_or(|armed| at < armed) {
                memory.armed = Some(at);
                self.events.add(at, Event::Dram(channel));
            }
        }
        if served {
            self.arm_port(channel, now);
        }
    }

    pub(super) fn data(&mut self, number: usize, now: Picos, answers: &mut impl FnMut(Answer)) {
        let Some(transaction) = self.transactions.take(number) else { return };
        match transaction.purpose {
            Purpose::Miss(stage, register) => {
                if let Some(pending) = self.stages[stage].pending.get_mut(register) {
                    pending.charges = std::mem::take(&mut self.carried[number].charges);
                }
                self.stages[stage].filling.push_back((register, now));
                self.fill(stage, now);
            }
            Purpose::WriteBack(stage) => {
                self.stages[stage].write_backs -= 1;
                self.stages[stage].give_back(transaction.owner);
                self.fill(stage, now);
            }
            Purpose::Dma(work) => {
                self.book_line(number, transaction.owner, now);
                self.dma_line(work, now, answers);
            }
            Purpose::Walk(work) => {
                self.book_line(number, transaction.owner, now);
                self.walk_on(work, now);
            }
        }
    }

    /// Books what a line of a DMA engine waited for.
    fn book_line(&mut self, number: usize, owner: Owner, now: Picos) {
        let Carried { since, least, charges } = &self.carried[number];
        let delay = now.since(*since).since(*least);
        self.dma_delays[owner.index()] += delay;
        self.waits.book(owner, delay, charges);
    }

    /// Takes lines that have come into a second level, as far as there are buffers for what they
    /// push out.
    fn fill(&mut self, stage: usize, now: Picos) {
        let caches = self.config.caches;
        while let Some(&(register, come)) = self.stages[stage].filling.front() {
            let writes = self.stages[stage].pending.get(register).map_or(0, |p| p.writes.len());
            if writes > 0 && self.stages[stage].write_backs >= caches.l2_write_buffers {
                break;
            }
            self.stages[stage].filling.pop_front();
            let Some(mut pending) = self.stages[stage].pending.take(register) else { continue };
            // It waited for a buffer of the owner that has most of them.
            if let Some(holder) = self.stages[stage].holder() {
                pending.charges.add(holder, come, now);
            }
            self.stages[stage].give_back(pending.owner);
            for write in pending.writes {
                self.write_back(stage, write, now);
            }
            for (core, since) in pending.cores {
                let mut waiting = self.cores[core].iter_mut();
                if let Some(waiting) = waiting.find(|waiting| waiting.line == pending.line) {
                    waiting.charges.join(&pending.charges, since);
                }
                self.events.add(now + caches.fill, Event::Answer(core, pending.line));
            }
            for (number, since) in pending.devices {
                self.carried[number].charges.join(&pending.charges, since);
                self.events.add(now, Event::Data(number));
            }
        }
        self.arm_stage(stage);
    }

    pub(super) fn answer(
        &mut self,
        core: usize,
        line: u64,
        now: Picos,
        answers: &mut impl FnMut(Answer),
    ) {
        let waiting = &mut self.cores[core];
        let Some(at) = waiting.iter().position(|waiting| waiting.line == line) else { return };
        let Outstanding { owner, since, served, charges, tokens, .. } = waiting.swap_remove(at);
        self.waits.book(owner, now.since(since).since(self.unloaded(served)), &charges);
        for (token, served) in tokens {
            answers(Answer::Core { core, token, at: now, served });
        }
    }
}
