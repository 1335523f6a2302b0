//! The controller of one channel: first-ready, first-come-first-served with a cap, write draining, open page, refresh.
//!
//! It goes from command to command, not from cycle to cycle. Each bank with requests in the direction that is served
//! (reads or writes) has one command that it wants next; the one that is legal first is issued, and of several that
//! are legal in the same cycle a column command before any other, then the one of the oldest request.

use crate::{
    dram::{
        address::{AddressMap, Location},
        device::{Device, Shape},
        policy::{ChannelError, Policy},
        queue::{NONE, Queue, Slot},
        request::{ChannelStats, Done, Full, Request, RowUse},
        schedule::{ACTIVATE, AGES, COLUMN, LONGEST_GAP, PRECHARGE, Schedule, Wish},
        timing::{Command, RULES, Timing},
    },
    matrix::Matrix,
    units::Owner,
};

/// A channel with its controller.
#[derive(Clone, Debug)]
pub struct Channel {
    map: AddressMap,
    bank_mask: u32,
    policy: Policy,
    device: Device,
    reads: Queue,
    writes: Queue,
    draining: bool,
    /// The age of the next request.
    age: u32,
    schedule: Schedule,
    /// Column commands that passed an older request since the bank's row was opened.
    passed: [u32; 64],
    /// Banks whose row was opened and not used yet: a refresh waits for one use.
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

impl Channel {
    /// An idle channel at cycle 0. The map's channel bits are not looked at: the caller gives each channel its own
    /// requests. Owners 0 to `owners` - 1 are counted.
    ///
    /// # Errors
    /// [`ChannelError`] says what does not fit.
    pub fn new(
        map: AddressMap,
        timing: Timing,
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
        let bits = shape.rank_bits + shape.group_bits + shape.bank_bits;
        let device = Device::new(shape, timing).ok_or(ChannelError::Banks(bits))?;
        if timing.rfc + timing.rp + timing.rc >= timing.refi {
            return Err(ChannelError::Refresh { rfc: timing.rfc, refi: timing.refi });
        }
        let gaps = RULES.iter().map(|rule| (rule.gap)(&timing));
        let longest = gaps.chain([timing.faw]).max().unwrap_or(0);
        if longest > LONGEST_GAP {
            return Err(ChannelError::Gap(longest));
        }
        // Ranks are refreshed in turn, so that not all are gone at once.
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
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What it has counted.
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

    /// A request comes in cycle `now`, after all commands of earlier cycles, and may be served from that cycle on.
    /// [`Channel::advance`] must not have gone past `now` before. A read of a place that a waiting write holds is
    /// answered from there in the next cycle.
    ///
    /// # Errors
    /// [`Full`]; ask again when a request of its direction was taken from its queue.
    pub fn push(
        &mut self,
        request: Request,
        now: u64,
        done: &mut impl FnMut(Done),
    ) -> Result<(), Full> {
        debug_assert!(now >= self.now, "a request from the past");
        if now > 0 && (self.can_act(now - 1) || self.waiting() == 0) {
            self.advance(now - 1, done);
        }
        let Location { bank, row } = self.map.locate(request.pa);
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
            return Err(Full);
        }
        self.age += 1;
        self.now = self.now.max(now);
        if self.turn_if_needed() {
            self.want_all();
        } else if write == self.draining {
            self.want_after_push(bank as usize, row);
        }
        Ok(())
    }

    /// The cycle in which the channel does something next, if nothing comes before; refreshes of an idle channel are no
    /// event.
    #[must_use]
    pub fn next_event(&mut self) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let (wish, ..) = self.first_wish();
        Some(wish.min(self.first_refresh().0).min(self.next_due.0))
    }

    /// Issues all commands up to and including cycle `until`.
    pub fn advance(&mut self, until: u64, done: &mut impl FnMut(Done)) {
        if self.waiting() == 0 {
            self.skip_refreshes(until);
        }
        while self.step(until, done).is_some() {}
        self.now = self.now.max(until);
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
            let (at, kind, bank) = self.first_wish();
            if self.refreshing != 0 {
                let (refresh, bank) = self.first_refresh();
                if refresh <= at && refresh < self.next_due.0 {
                    if refresh > until {
                        return None;
                    }
                    self.now = refresh;
                    self.refresh(refresh, bank);
                    return Some((refresh, Command::Refresh, bank));
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

    fn queue_mut(&mut self) -> &mut Queue {
        if self.draining { &mut self.writes } else { &mut self.reads }
    }

    /// Changes the direction if it is time; whether it did.
    #[inline]
    fn turn_if_needed(&mut self) -> bool {
        let reads = !self.reads.is_empty();
        let turn = if self.draining {
            reads && self.writes.len() <= self.policy.drain_to
        } else {
            !self.writes.is_empty() && (!reads || self.writes.len() >= self.policy.drain_from)
        };
        self.draining ^= turn;
        turn
    }

    fn want_all(&mut self) {
        for bank in 0..self.device.shape().banks() {
            self.want(bank);
        }
    }

    /// Gives all requests new ages, from 1 on: 0 is for those who want a bank closed for its refresh.
    #[cold]
    fn renumber(&mut self) {
        let mut waiting: Vec<_> = self.reads.iter_mut().chain(self.writes.iter_mut()).collect();
        waiting.sort_by_key(|slot| slot.age);
        self.age = 1;
        for slot in waiting {
            slot.age = self.age;
            self.age += 1;
        }
        self.want_all();
    }

    /// Works out what a bank wants.
    #[inline]
    fn want(&mut self, bank: usize) {
        self.schedule.clear(bank);
        let queue = if self.draining { &self.writes } else { &self.reads };
        let head = queue.head(bank);
        let refreshing =
            self.refreshing != 0 && self.refreshing >> self.device.shape().rank_of(bank) & 1 == 1;
        if head == NONE && !refreshing {
            return;
        }
        let age = |slot: u8| if slot == NONE { 0 } else { queue.slot(slot).age };
        let Some(row) = self.device.open_row(bank) else {
            if !refreshing {
                self.wish::<ACTIVATE>(bank, Command::Activate, age(head), head, NONE);
            }
            return;
        };
        let hit = if refreshing && self.fresh >> bank & 1 == 0 {
            None
        } else {
            queue.oldest_hit(bank, row)
        };
        let hit = hit.filter(|&(at, _)| at == head || self.passed[bank] < self.policy.cap);
        if let Some((slot, before)) = hit {
            self.wish::<COLUMN>(bank, self.column_command(), age(slot), slot, before);
        } else if refreshing {
            self.wish::<PRECHARGE>(bank, Command::Precharge, 0, NONE, NONE);
        } else {
            self.wish::<PRECHARGE>(bank, Command::Precharge, age(head), head, NONE);
        }
    }

    #[inline]
    fn column_command(&self) -> Command {
        if self.draining { Command::Write } else { Command::Read }
    }

    #[inline]
    fn wish<const KIND: usize>(
        &mut self,
        bank: usize,
        command: Command,
        age: u32,
        slot: u8,
        before: u8,
    ) {
        let floor = self.floor_from_epoch();
        self.schedule.set::<KIND>(&self.device, floor, bank, command, age, Wish { slot, before });
    }

    /// A request for `row` was added to the end of a bank's list. What the bank wants changes only if it wanted
    /// nothing, or was about to close the row that the newcomer hits.
    #[inline]
    fn want_after_push(&mut self, bank: usize, row: u32) {
        match self.schedule.wanted(bank) {
            None => {}
            Some(Command::Precharge) if self.device.open_row(bank) == Some(row) => {}
            Some(_) => return,
        }
        self.want(bank);
    }

    #[inline]
    fn floor(&self) -> u64 {
        self.device.bus_free().max(self.now)
    }

    /// The same, counted from the device's epoch, which begins anew if that was too long ago.
    #[inline]
    fn floor_from_epoch(&mut self) -> i32 {
        let floor = self.floor();
        if self.device.is_beyond(floor) {
            self.device.begin_epoch(floor);
            self.schedule.forget();
        }
        (floor - self.device.epoch()) as i32
    }

    /// The wish that can be granted first: when, its kind, its bank.
    #[inline]
    fn first_wish(&mut self) -> (u64, usize, usize) {
        let floor = self.floor_from_epoch();
        let column = self.column_command();
        let (after, kind, bank) = self.schedule.choose(&self.device, floor, column);
        (self.device.epoch().saturating_add(after), kind, bank)
    }

    /// The refresh that can be issued first: when, and its rank's first bank.
    #[inline]
    fn first_refresh(&self) -> (u64, usize) {
        let floor = self.floor();
        let per_rank = self.device.shape().banks_per_rank();
        let mut first = (u64::MAX, 0);
        for rank in 0..self.refresh_due.len() {
            let empty = self.device.open_mask() & self.device.rank_mask(rank) == 0;
            if self.refreshing >> rank & 1 == 1 && empty {
                let at = self.device.earliest(Command::Refresh, rank * per_rank).max(floor);
                if at < first.0 {
                    first = (at, rank * per_rank);
                }
            }
        }
        first
    }

    /// The rank of a bank is to be refreshed: its rows are closed first.
    fn start_refresh(&mut self, bank: usize) {
        self.refreshing |= 1 << self.device.shape().rank_of(bank);
        self.find_next_due();
        for bank in bank..bank + self.device.shape().banks_per_rank() {
            self.want(bank);
        }
    }

    /// Finds the rank whose refresh falls due next.
    fn find_next_due(&mut self) {
        let per_rank = self.device.shape().banks_per_rank();
        self.next_due = (u64::MAX, 0);
        for (rank, &due) in self.refresh_due.iter().enumerate() {
            if self.refreshing >> rank & 1 == 0 && due < self.next_due.0 {
                self.next_due = (due, rank * per_rank);
            }
        }
    }

    #[inline]
    fn column<const WRITE: bool>(&mut self, at: u64, bank: usize, done: &mut impl FnMut(Done)) {
        let command = if WRITE { Command::Write } else { Command::Read };
        let Wish { slot, before } = self.schedule.wish(bank);
        let slot = *if WRITE { &mut self.writes } else { &mut self.reads }.remove(slot, before);
        self.device.apply(command, bank, slot.row, at);
        self.schedule.granted::<COLUMN>(bank);
        self.fresh &= !(1 << bank);
        self.passed[bank] += u32::from(before != NONE);
        self.row_owner[bank] = slot.owner;
        self.stats.row_hits += u64::from(slot.row_use == RowUse::Hit);
        self.stats.row_conflicts += u64::from(slot.row_use == RowUse::Conflict);
        let timing = self.device.timing();
        let latency = if WRITE { timing.cwl } else { timing.cl } + timing.burst;
        *(if WRITE { &mut self.stats.writes } else { &mut self.stats.reads }) += 1;
        done(Done {
            id: slot.id,
            owner: slot.owner,
            write: WRITE,
            at: at + latency,
            arrived: slot.arrived,
            row: slot.row_use,
        });
        if self.turn_if_needed() {
            self.want_all();
        } else {
            self.want(bank);
            let floor = self.device.bus_free_from_epoch();
            self.schedule.look::<COLUMN>(&self.device, floor, command);
        }
    }

    #[inline]
    fn activate(&mut self, at: u64, bank: usize) {
        let wish = self.schedule.wish(bank);
        let slot = self.queue_mut().slot_mut(wish.slot);
        if slot.row_use == RowUse::Hit {
            slot.row_use = RowUse::Empty;
        }
        let (row, owner) = (slot.row, slot.owner);
        self.device.apply(Command::Activate, bank, row, at);
        self.passed[bank % 64] = 0;
        self.fresh |= 1 << bank;
        self.row_owner[bank % 64] = owner;
        // The row was opened for the bank's oldest request, so that is the oldest that hits.
        let (floor, column) = (self.device.bus_free_from_epoch(), self.column_command());
        self.schedule.goes_on::<ACTIVATE, COLUMN>(&self.device, floor, bank, column);
        self.schedule.look::<ACTIVATE>(&self.device, floor, Command::Activate);
    }

    #[inline]
    fn precharge(&mut self, at: u64, bank: usize) {
        self.device.apply(Command::Precharge, bank, 0, at);
        self.fresh &= !(1 << bank);
        let wish = self.schedule.wish(bank);
        if wish.slot == NONE {
            // A row that is closed for a refresh is closed for nobody.
            self.schedule.granted::<PRECHARGE>(bank);
            return;
        }
        let of = self.row_owner[bank % 64];
        let slot = self.queue_mut().slot_mut(wish.slot);
        slot.row_use = RowUse::Conflict;
        let by = slot.owner;
        self.stats.closed.add(by, of);
        let floor = self.device.bus_free_from_epoch();
        let next = Command::Activate;
        self.schedule.goes_on::<PRECHARGE, ACTIVATE>(&self.device, floor, bank, next);
        self.schedule.look::<PRECHARGE>(&self.device, floor, Command::Precharge);
    }

    fn refresh(&mut self, at: u64, bank: usize) {
        let rank = self.device.shape().rank_of(bank);
        self.device.apply(Command::Refresh, bank, 0, at);
        self.stats.refreshes += 1;
        self.refresh_due[rank] += self.device.timing().refi;
        self.refreshing &= !(1 << rank);
        self.find_next_due();
        for bank in bank..bank + self.device.shape().banks_per_rank() {
            self.want(bank);
        }
    }

    /// An idle channel does nothing but refresh: of the refreshes up to `until` only the last of each rank is gone
    /// through, since it is all that a later request can notice.
    fn skip_refreshes(&mut self, until: u64) {
        let refi = self.device.timing().refi;
        for rank in 0..self.refresh_due.len() {
            let due = self.refresh_due[rank];
            let skipped = until.saturating_sub(due) / refi;
            if skipped > 1 {
                self.refresh_due[rank] = due + skipped * refi;
                self.stats.refreshes += skipped;
                self.refreshing &= !(1 << rank);
                self.device.close_rank(rank);
                self.fresh &= !self.device.rank_mask(rank);
                self.find_next_due();
                self.want_all();
            }
        }
    }
}
