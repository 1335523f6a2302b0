//! The controller of one channel: first-ready, first-come-first-served with a cap, write draining,
//! open page, refresh.
//!
//! It goes from command to command, not from cycle to cycle. Each bank with requests in the
//! direction that is served (reads or writes) has one command that it wants next; the one that is
//! legal first is issued, and of several that are legal in the same cycle a column command before
//! any other, then the one of the oldest request.

mod commands;
mod refresh;
mod wants;

use crate::{
    dram::{
        address::{AddressMap, DramLocation},
        device::DramDevice,
        policy::{ChannelError, Policy},
        queue::{Queue, Slot},
        request::{ChannelStats, Done, Request, RequestQueueFull, RowUse},
        rules::LONGEST_GAP,
        schedule::{ACTIVATE, AGES, First, PRECHARGE, Schedule},
        shape::Shape,
        timing::{Command, DramTiming},
    },
    matrix::Matrix,
    units::Owner,
};

/// A channel with its controller.
#[derive(Clone, Debug)]
pub struct DramChannel {
    map: AddressMap,
    bank_mask: u32,
    policy: Policy,
    device: DramDevice,
    reads: Queue,
    writes: Queue,
    draining: bool,
    /// The age of the next request.
    age: u32,
    schedule: Schedule,
    /// The first candidate, until a command or another candidate comes; out of date if its cycle
    /// has passed.
    first: First,
    /// Column commands that passed an older request since the bank's row was opened.
    passed: [u32; 64],
    /// Banks with a row that was opened and not used yet: a refresh waits for one use.
    fresh: u64,
    row_owner: [Owner; 64],
    refresh_due: Box<[u64]>,
    /// Ranks that are being emptied for a refresh.
    refreshing: u64,
    /// The first cycle in which a refresh falls due that has not begun, and the rank's first bank.
    next_due: (u64, usize),
    now: u64,
    stats: ChannelStats,
}

impl DramChannel {
    /// An idle channel at cycle 0. The map's channel bits are not used: the caller gives each
    /// channel its own requests. Owners 0 to `owners` - 1 are counted.
    ///
    /// # Errors
    /// [`ChannelError`] names the value that does not fit.
    pub fn new(
        map: AddressMap,
        timing: DramTiming,
        policy: Policy,
        owners: usize,
    ) -> Result<Self, ChannelError> {
        let queue = 1..=64;
        if !queue.contains(&policy.read_queue)
            || !queue.contains(&policy.write_queue)
            || policy.drain_to >= policy.drain_from
            || policy.drain_from > policy.write_queue
        {
            return Err(ChannelError::Policy(policy));
        }
        let fields = map.fields();
        let shape = Shape {
            rank_bits: fields.rank.len() as u32,
            group_bits: fields.group.len() as u32,
            bank_bits: fields.bank.len() as u32,
        };
        let longest = timing.longest_gap();
        if longest > LONGEST_GAP {
            return Err(ChannelError::Gap(longest));
        }
        let bits = shape.rank_bits + shape.group_bits + shape.bank_bits;
        let device = DramDevice::new(shape, timing).ok_or(ChannelError::Banks(bits))?;
        if timing.rfc + timing.rp + timing.rc >= timing.refi {
            return Err(ChannelError::Refresh { rfc: timing.rfc, refi: timing.refi });
        }
        // Ranks are refreshed one after the other, so that not all are unavailable at once.
        let ranks = shape.ranks() as u64;
        let refresh_due = (1..=ranks).map(|rank| timing.refi * rank / ranks).collect();
        let next_due = (timing.refi / ranks, 0);
        Ok(Self {
            map,
            bank_mask: (1 << bits) - 1,
            policy,
            device,
            reads: Queue::new(policy.read_queue),
            writes: Queue::new(policy.write_queue),
            draining: false,
            age: 1,
            schedule: Schedule::new(),
            first: First::UNKNOWN,
            passed: [0; 64],
            fresh: 0,
            row_owner: [Owner(0); 64],
            refresh_due,
            refreshing: 0,
            next_due,
            now: 0,
            stats: ChannelStats {
                reads: 0,
                writes: 0,
                row_hits: 0,
                row_conflicts: 0,
                forwarded: 0,
                refreshes: 0,
                closed: Matrix::new(owners),
            },
        })
    }

    /// Its memory, for questions.
    #[must_use]
    pub fn device(&self) -> &DramDevice {
        &self.device
    }

    /// The counts.
    #[must_use]
    pub fn stats(&self) -> &ChannelStats {
        &self.stats
    }

    /// Whether a read or a write would be taken.
    #[must_use]
    pub fn has_room(&self, write: bool) -> bool {
        !(if write { &self.writes } else { &self.reads }).is_full()
    }

    /// How many more reads or writes would be taken.
    #[must_use]
    pub fn room(&self, write: bool) -> usize {
        let (queue, most) = if write {
            (&self.writes, self.policy.write_queue)
        } else {
            (&self.reads, self.policy.read_queue)
        };
        most - queue.len()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// A request comes in cycle `now`, after all commands of earlier cycles, and may be served from
    /// that cycle on. If [`DramChannel::advance`] went past `now` before, it comes in the cycle
    /// that was reached. A read of a place that a waiting write holds is answered from there in the
    /// next cycle.
    ///
    /// # Errors
    /// [`RequestQueueFull`]; ask again when a request of its direction was taken from its queue.
    pub fn push(
        &mut self,
        request: Request,
        now: u64,
        done: &mut impl FnMut(Done),
    ) -> Result<(), RequestQueueFull> {
        let now = now.max(self.now);
        if now > 0 && (self.can_act(now - 1) || self.waiting() == 0) {
            self.catch_up(now - 1, done);
        }
        let DramLocation { bank, row } = self.map.locate(request.pa);
        let bank = bank & self.bank_mask;
        let Request { id, pa, owner, write } = request;
        if !write && self.writes.holds(bank as usize, pa) {
            self.stats.forwarded += 1;
            self.stats.reads += 1;
            let row = RowUse::Forwarded;
            done(Done { id, owner, write, at: now + 1, arrived: now, row });
            return Ok(());
        }
        if self.age == AGES {
            self.renumber();
        }
        let slot = Slot::new(&request, bank as u8, row, self.age, now);
        let queue = if write { &mut self.writes } else { &mut self.reads };
        if !queue.push(slot) {
            return Err(RequestQueueFull);
        }
        self.age += 1;
        self.now = now;
        if self.turn_if_needed() {
            self.want_all();
        } else if write == self.draining {
            self.want_after_push(bank as usize, row);
        }
        Ok(())
    }

    /// The cycle in which the channel does something next, if nothing comes before; refreshes of an
    /// idle channel are no event.
    #[must_use]
    pub fn next_event(&mut self) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let candidate = self.first_candidate().at;
        Some(candidate.min(self.first_refresh().0).min(self.next_due.0))
    }

    /// Issues all commands up to and including cycle `until`.
    pub fn advance(&mut self, until: u64, done: &mut impl FnMut(Done)) {
        if self.waiting() == 0 {
            self.skip_refreshes(until);
        }
        while self.step(until, done).is_some() {}
        self.now = self.now.max(until);
    }

    /// The rare case of [`DramChannel::push`]; its registers are not saved in the others.
    #[inline(never)]
    fn catch_up(&mut self, until: u64, done: &mut impl FnMut(Done)) {
        self.advance(until, done);
    }

    /// Issues the next command, if it comes by `until`.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a loop over commands spends a tenth of its time on the calls otherwise"
    )]
    pub fn step(
        &mut self,
        until: u64,
        done: &mut impl FnMut(Done),
    ) -> Option<(u64, Command, usize)> {
        loop {
            if !self.can_act(until) {
                return None;
            }
            let First { at, kind, bank } = self.first_candidate();
            let bank = usize::from(bank);
            if self.refreshing != 0 {
                let (refresh, first_bank) = self.first_refresh();
                if refresh <= at && refresh < self.next_due.0 {
                    if refresh > until {
                        return None;
                    }
                    self.now = refresh;
                    self.refresh(refresh, first_bank);
                    return Some((refresh, Command::Refresh, first_bank));
                }
            }
            let (due, due_bank) = self.next_due;
            if due <= at {
                if due > until {
                    return None;
                }
                self.now = self.now.max(due);
                self.start_refresh(due_bank);
                continue;
            }
            if at > until {
                return None;
            }
            self.now = at;
            return Some(match kind {
                ACTIVATE => {
                    self.activate(at, bank);
                    (at, Command::Activate, bank)
                }
                PRECHARGE => {
                    self.precharge(at, bank);
                    (at, Command::Precharge, bank)
                }
                _ if self.draining => {
                    self.column::<true>(at, bank, done);
                    (at, Command::Write, bank)
                }
                _ => {
                    self.column::<false>(at, bank, done);
                    (at, Command::Read, bank)
                }
            });
        }
    }

    /// Whether there could be something to do up to and including cycle `until`.
    #[inline]
    fn can_act(&self, until: u64) -> bool {
        self.floor().min(self.next_due.0) <= until
    }

    #[inline]
    fn floor(&self) -> u64 {
        self.device.bus_free().max(self.now)
    }

    /// The candidate that can be granted first; in cycle `u64::MAX` if there is none.
    #[inline]
    fn first_candidate(&mut self) -> First {
        let floor = self.floor();
        if self.first.at >= floor.max(1) {
            return self.first;
        }
        if self.device.is_beyond(floor) {
            self.device.begin_epoch(floor);
        }
        let from_epoch = (floor - self.device.epoch()) as i16;
        let first = self.schedule.first(&self.device, self.column_command(), from_epoch);
        self.first = first;
        first
    }
}
