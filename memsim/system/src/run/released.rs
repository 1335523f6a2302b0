//! Work that is released: passes of a period, DMA transfers, packets.

use super::{Event, Run, Unit};
use crate::master::Master;
use weir_memory::{Owner, Picos};

impl Run<'_> {
    /// Starts a DMA channel's next transfer, or has a VM that sends write a packet.
    pub(super) fn transfer(&mut self, master: usize, now: Picos) {
        let m = &mut self.masters[master];
        if !m.may_send() {
            return;
        }
        if !m.vm_sends() {
            return self.move_next(master, now);
        }
        let (owner, gap) = (m.owner, m.gap);
        self.add(now + gap, Event::Transfer(master));
        if let Some(core) = self.core_with_jobs(owner) {
            self.release(core, now);
        }
    }

    fn core_with_jobs(&self, owner: Owner) -> Option<usize> {
        self.cores.iter().position(|core| core.owner == owner && core.jobs.is_some())
    }

    /// Starts the transfer of the next chunk or packet.
    fn move_next(&mut self, master: usize, now: Picos) {
        let m = &mut self.masters[master];
        m.since = now;
        let transfer = m.next();
        let started = self.memory.start_transfer(m.engine, m.channel, m.owner, transfer, now);
        debug_assert!(started.is_ok(), "the channel is there and has nothing to do");
    }

    pub(super) fn transferred(&mut self, engine: usize, channel: usize, at: Picos) {
        let is_it = |master: &Master| master.engine == engine && master.channel == channel;
        let Some(number) = self.masters.iter().position(is_it) else {
            self.is_brokers(engine, channel, at);
            return;
        };
        let master = &self.masters[number];
        let (owner, since, gap) = (usize::from(master.owner.0), master.since, master.gap);
        if self.begun.is_some() {
            self.latencies[owner].add(at.since(since));
        }
        let connection = master.connection;
        self.completed(self.masters[number].owner, Unit::Transfer, at, Picos(0));
        if let Some(connection) = connection.filter(|connection| connection.vm_sends) {
            // The other end has the packet, and the sender knows of it.
            self.add(at + connection.delay, Event::Credit(number));
            return self.read_next(number, false, at);
        }
        self.add(at + gap, Event::Transfer(number));
        if connection.is_some() {
            let Some(core) = self.core_with_jobs(self.masters[number].owner) else { return };
            let interrupt = Picos::from_nanos(self.board.chip.hypervisor.interrupt_ns);
            self.add(at + interrupt, Event::Release(core));
        }
    }

    /// A core's next pass may begin.
    pub(super) fn release(&mut self, core: usize, now: Picos) {
        let Some(jobs) = &mut self.cores[core].jobs else { return };
        jobs.release(now);
        if let Some(period) = jobs.period {
            self.add(now + period, Event::Release(core));
        }
        self.arm(core, now);
    }

    /// The device of a VM that sends has read a packet, or the VM has `written` one: reads the next
    /// one that was written, if it does not read one.
    fn read_next(&mut self, master: usize, written: bool, now: Picos) {
        let Some(connection) = &mut self.masters[master].connection else { return };
        connection.written += u64::from(written);
        connection.reads &= written;
        if connection.written > 0 && !connection.reads {
            connection.written -= 1;
            connection.reads = true;
            self.move_next(master, now);
        }
    }

    /// The sender of a connection knows that a packet was handled.
    pub(super) fn credit(&mut self, master: usize, now: Picos) {
        let Some(connection) = &mut self.masters[master].connection else { return };
        connection.credits += 1;
        if connection.waits {
            self.transfer(master, now);
        }
    }

    /// Has a core's job end at `at`, if it is over.
    pub(super) fn end_job(&mut self, core: usize, at: Picos) {
        let c = &mut self.cores[core];
        if !c.job_is_over() {
            return;
        }
        let owner = c.owner;
        if let Some(response) = c.jobs.as_mut().and_then(|jobs| jobs.end(at)) {
            self.completed(owner, Unit::Job, at, response);
        }
        let device = self.masters.iter().position(|master| master.owner == owner);
        if let Some(device) = device
            && let Some(connection) = self.masters[device].connection
        {
            if connection.vm_sends {
                self.read_next(device, true, at);
            } else {
                self.add(at + connection.delay, Event::Credit(device));
            }
        }
    }
}
