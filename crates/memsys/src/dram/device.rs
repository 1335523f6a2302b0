//! The ranks on one channel: which command is legal when. It decides nothing; the controller does.

use core::fmt;

use crate::dram::timing::{Command, RULES, Scope, Timing};

/// How many ranks, groups and banks a channel has, as bits of the bank number: the bank within its group in the lowest
/// bits, then the group, then the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// log2 of the ranks.
    pub rank_bits: u32,
    /// log2 of the bank groups of a rank.
    pub group_bits: u32,
    /// log2 of the banks of a group.
    pub bank_bits: u32,
}

impl Shape {
    /// Banks on the channel.
    #[must_use]
    pub fn banks(self) -> usize {
        1 << (self.rank_bits + self.group_bits + self.bank_bits)
    }

    /// Ranks on the channel.
    #[must_use]
    pub fn ranks(self) -> usize {
        1 << self.rank_bits
    }

    /// Banks of a rank.
    #[must_use]
    pub fn banks_per_rank(self) -> usize {
        1 << (self.group_bits + self.bank_bits)
    }

    #[inline]
    pub(crate) fn group_of(self, bank: usize) -> usize {
        bank >> self.bank_bits
    }

    #[inline]
    pub(crate) fn rank_of(self, bank: usize) -> usize {
        bank >> (self.bank_bits + self.group_bits)
    }
}

/// Why a command may not be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Illegal {
    /// Not before this cycle.
    Early {
        /// The first legal cycle, if no other command comes before.
        ready: u64,
    },
    /// A column command needs this row open, and it is not.
    RowNotOpen,
    /// An activate needs the bank closed, a refresh all banks of the rank.
    RowOpen,
    /// No such bank.
    NoBank,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early { ready } => write!(f, "too early: legal from cycle {ready} on"),
            Self::RowNotOpen => f.write_str("the row is not open: activate it first"),
            Self::RowOpen => f.write_str("a row is open: precharge first"),
            Self::NoBank => f.write_str("the channel has no such bank"),
        }
    }
}

impl core::error::Error for Illegal {}

/// A channel has so many banks at most.
pub(crate) const BANKS: usize = 64;

/// Cycles are counted in 32 bits from one that is never so long ago.
const EPOCH: u64 = 1 << 30;

/// Whether there is a rule, by scope, first command and second command.
const RULED: [[[bool; 5]; 5]; 4] = {
    let mut ruled = [[[false; 5]; 5]; 4];
    let mut i = 0;
    while i < RULES.len() {
        ruled[RULES[i].scope as usize][RULES[i].first as usize][RULES[i].then as usize] = true;
        i += 1;
    }
    ruled
};

/// The gaps of the rules, by scope, first command and second command; 0 where there is none.
type Gaps = [[[i32; 5]; 5]; 4];

const BANK: usize = Scope::Bank as usize;
const GROUP: usize = Scope::Group as usize;
const RANK: usize = Scope::Rank as usize;
const OTHER_RANK: usize = Scope::OtherRank as usize;

fn gaps(timing: &Timing) -> Gaps {
    let mut gaps = Gaps::default();
    for rule in RULES {
        let gap = &mut gaps[rule.scope as usize][rule.first as usize][rule.then as usize];
        *gap = ((rule.gap)(timing) as i32).max(*gap);
    }
    // What a rank says need not be said of its groups.
    for (first, then) in (0..5).flat_map(|first| (0..5).map(move |then| (first, then))) {
        if gaps[GROUP][first][then] <= gaps[RANK][first][then] {
            gaps[GROUP][first][then] = 0;
        }
    }
    gaps
}

#[inline]
fn raise(ready: &mut i32, to: i32) {
    *ready = to.max(*ready);
}

/// State of a channel's memory.
#[derive(Clone, Debug)]
pub struct Device {
    shape: Shape,
    timing: Timing,
    gaps: Gaps,
    /// The cycle from which the following count.
    epoch: u64,
    /// First cycle at which each command is legal as far as the commands to each bank and its group say.
    ready: [[i32; BANKS]; 5],
    /// The same for what each rank says.
    rank_ready: [[i32; BANKS]; 5],
    /// Of each rank, the ends of the windows that its last four activates opened.
    windows: [[i32; 4]; BANKS],
    rows: [u32; BANKS],
    /// One bit a bank.
    open: u64,
    bus_free: u64,
}

impl Device {
    /// All rows closed, everything legal from cycle 0 on. `None` for more than 64 banks.
    #[must_use]
    pub fn new(shape: Shape, timing: Timing) -> Option<Self> {
        if shape.rank_bits + shape.group_bits + shape.bank_bits > 6 {
            return None;
        }
        Some(Self {
            gaps: gaps(&timing),
            epoch: 0,
            ready: [[0; BANKS]; 5],
            rank_ready: [[0; BANKS]; 5],
            windows: [[0; 4]; BANKS],
            rows: [0; BANKS],
            open: 0,
            bus_free: 0,
            shape,
            timing,
        })
    }

    /// Its banks, groups and ranks.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Its timing.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The open row of a bank.
    #[must_use]
    pub fn open_row(&self, bank: usize) -> Option<u32> {
        (bank < self.shape.banks() && self.open >> bank & 1 == 1).then(|| self.rows[bank % BANKS])
    }

    /// The first cycle at which a command is legal if no other one comes before; `row` matters to column commands
    /// only, a refresh goes to the rank of `bank`.
    ///
    /// # Errors
    /// [`Illegal`], if it needs another command first.
    pub fn probe(&self, command: Command, bank: usize, row: u32) -> Result<u64, Illegal> {
        if bank >= self.shape.banks() {
            return Err(Illegal::NoBank);
        }
        match command {
            Command::Activate if self.open_row(bank).is_some() => return Err(Illegal::RowOpen),
            Command::Read | Command::Write if self.open_row(bank) != Some(row) => {
                return Err(Illegal::RowNotOpen);
            }
            Command::Refresh if self.open & self.rank_mask(self.shape.rank_of(bank)) != 0 => {
                return Err(Illegal::RowOpen);
            }
            _ => {}
        }
        Ok(self.earliest(command, bank).max(self.bus_free))
    }

    /// Issues a command.
    ///
    /// # Errors
    /// [`Illegal`] as [`Device::probe`], and if it comes too early; nothing has changed then.
    pub fn issue(
        &mut self,
        command: Command,
        bank: usize,
        row: u32,
        at: u64,
    ) -> Result<(), Illegal> {
        let ready = self.probe(command, bank, row)?;
        if at < ready {
            return Err(Illegal::Early { ready });
        }
        if self.is_beyond(at) {
            self.begin_epoch(at);
        }
        self.apply(command, bank, row, at);
        Ok(())
    }

    /// First cycle at which the command bus is free.
    #[inline]
    pub(crate) fn bus_free(&self) -> u64 {
        self.bus_free
    }

    /// The same, counted from the epoch; not long after a command.
    #[inline]
    pub(crate) fn bus_free_from_epoch(&self) -> i32 {
        (self.bus_free - self.epoch) as i32
    }

    #[inline]
    pub(crate) fn open_mask(&self) -> u64 {
        self.open
    }

    pub(crate) fn rank_mask(&self, rank: usize) -> u64 {
        let banks = self.shape.banks_per_rank();
        (u64::MAX >> (64 - banks)) << (rank * banks)
    }

    /// When a command's bank, group and rank allow it; the caller sees to the row and to the bus.
    #[inline]
    pub(crate) fn earliest(&self, command: Command, bank: usize) -> u64 {
        self.epoch + u64::from(self.ready(command, bank).cast_unsigned())
    }

    /// The same, counted from the epoch.
    #[inline]
    pub(crate) fn ready(&self, command: Command, bank: usize) -> i32 {
        let by_rank = self.rank_ready(command, self.rank_of(bank));
        self.ready[command.index()][bank % BANKS].max(by_rank)
    }

    /// When banks and their groups allow a command, counted from the epoch.
    #[inline]
    pub(crate) fn banks_ready(&self, command: Command) -> &[i32; BANKS] {
        &self.ready[command.index()]
    }

    /// When a rank allows a command, counted from the epoch.
    #[inline]
    pub(crate) fn rank_ready(&self, command: Command, rank: usize) -> i32 {
        self.rank_ready[command.index()][rank % BANKS]
    }

    /// The cycle from which others are counted.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a cycle is too long after the epoch to be counted from it; before one that is, call
    /// [`Device::begin_epoch`].
    #[inline]
    pub(crate) fn is_beyond(&self, cycle: u64) -> bool {
        cycle - self.epoch >= EPOCH
    }

    /// Counts from another cycle, before which no command will be issued any more.
    #[cold]
    pub(crate) fn begin_epoch(&mut self, cycle: u64) {
        let passed = cycle - self.epoch;
        self.epoch = cycle;
        let ready = self.ready.iter_mut().chain(&mut self.rank_ready).flatten();
        for ready in ready.chain(self.windows.iter_mut().flatten()) {
            *ready = i64::from(*ready).saturating_sub_unsigned(passed).max(0) as i32;
        }
    }

    /// A command that is legal at `at`, which is not long after the present epoch. The caller names it as a constant, so
    /// that only what it means is compiled in its place.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the command is a constant of the caller")]
    pub(crate) fn apply(&mut self, command: Command, bank: usize, row: u32, at: u64) {
        let from_epoch = (at - self.epoch) as i32;
        match command {
            Command::Activate => {
                self.open |= 1 << bank;
                self.rows[bank % BANKS] = row;
                let rank = self.rank_of(bank);
                let window = &mut self.windows[rank];
                *window = [window[1], window[2], window[3], from_epoch + self.timing.faw as i32];
                raise(&mut self.rank_ready[Command::Activate.index()][rank], window[0]);
                self.bring_into_force::<{ Command::Activate as usize }>(bank, from_epoch);
            }
            Command::Precharge => {
                self.open &= !(1 << bank);
                self.bring_into_force::<{ Command::Precharge as usize }>(bank, from_epoch);
            }
            Command::Read => self.bring_into_force::<{ Command::Read as usize }>(bank, from_epoch),
            Command::Write => {
                self.bring_into_force::<{ Command::Write as usize }>(bank, from_epoch);
            }
            Command::Refresh => {
                self.bring_into_force::<{ Command::Refresh as usize }>(bank, from_epoch);
            }
        }
        self.bus_free = at + command.slots(&self.timing);
    }

    #[inline]
    fn rank_of(&self, bank: usize) -> usize {
        if self.shape.rank_bits == 0 { 0 } else { self.shape.rank_of(bank) % BANKS }
    }

    /// What the command numbered `FIRST` means for later ones.
    #[inline]
    fn bring_into_force<const FIRST: usize>(&mut self, bank: usize, at: i32) {
        self.hold_up::<FIRST, { Command::Activate as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Precharge as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Read as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Write as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Refresh as usize }>(bank, at);
    }

    /// What the command numbered `FIRST` means for the one numbered `THEN`. Whether there is a rule is known to the
    /// compiler.
    #[inline]
    fn hold_up<const FIRST: usize, const THEN: usize>(&mut self, bank: usize, at: i32) {
        if const { RULED[BANK][FIRST][THEN] } {
            raise(&mut self.ready[THEN][bank % BANKS], at + self.gaps[BANK][FIRST][THEN]);
        }
        if const { RULED[GROUP][FIRST][THEN] } && self.gaps[GROUP][FIRST][THEN] > 0 {
            let first = self.shape.group_of(bank) << self.shape.bank_bits;
            let group = first..first + (1 << self.shape.bank_bits);
            for ready in &mut self.ready[THEN][group] {
                raise(ready, at + self.gaps[GROUP][FIRST][THEN]);
            }
        }
        if const { RULED[RANK][FIRST][THEN] } {
            let rank = self.rank_of(bank);
            raise(&mut self.rank_ready[THEN][rank], at + self.gaps[RANK][FIRST][THEN]);
        }
        if const { RULED[OTHER_RANK][FIRST][THEN] } && self.shape.rank_bits > 0 {
            let rank = self.rank_of(bank);
            for other in (0..self.shape.ranks()).filter(|&other| other != rank) {
                let ready = &mut self.rank_ready[THEN][other % BANKS];
                raise(ready, at + self.gaps[OTHER_RANK][FIRST][THEN]);
            }
        }
    }

    /// Closes a rank's rows because it was refreshed some time in the past, long enough ago for every rule.
    pub(crate) fn close_rank(&mut self, rank: usize) {
        self.open &= !self.rank_mask(rank);
    }
}
