//! Work that is released: passes of a period, DMA transfers, packets.

use super::{Event, Run, Unit};
use crate::{core::Core, master::Master};
use weir_memory::Picos;

impl Run<'_> {
    /// Starts a DMA channel's next transfer.
    pub(super) fn transfer(&mut self, master: usize, now: Picos) {
        let m = &mut self.masters[master];
        if !m.may_send() {
            return;
        }
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
        let is_network = master.sender.is_some();
        self.completed(self.masters[number].owner, Unit::Transfer, at, Picos(0));
        self.add(at + gap, Event::Transfer(number));
        if is_network {
            let its = |core: &Core| usize::from(core.owner.0) == owner && core.jobs.is_some();
            let Some(core) = self.cores.iter().position(its) else { return };
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

    /// A network device's sender knows that a packet was handled.
    pub(super) fn credit(&mut self, master: usize, now: Picos) {
        let Some(sender) = &mut self.masters[master].sender else { return };
        sender.credits += 1;
        if sender.waits {
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
            && let Some(sender) = self.masters[device].sender
        {
            self.add(at + sender.delay, Event::Credit(device));
        }
    }
}
