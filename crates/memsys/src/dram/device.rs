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

/// First legal cycles by command; the last three are padding, so that a place is found by a shift.
type Ready = [u64; 8];

/// The rules that a command brings into force at one scope: the command that they hold up, and for how long.
#[derive(Clone, Copy, Debug, Default)]
struct Holds {
    len: usize,
    holds: [(u8, u64); 5],
}

impl Holds {
    fn new(scope: Scope, first: Command, timing: &Timing) -> Self {
        let mut holds = Self::default();
        for rule in RULES.iter().filter(|rule| rule.scope == scope && rule.first == first) {
            let gap = (rule.gap)(timing);
            if gap > 0 {
                holds.holds[holds.len] = (rule.then.index() as u8, gap);
                holds.len += 1;
            }
        }
        holds
    }

    #[inline]
    fn raise(&self, ready: &mut Ready, at: u64) {
        for &(then, gap) in &self.holds[..self.len.min(5)] {
            let ready = &mut ready[usize::from(then & 7)];
            *ready = (at + gap).max(*ready);
        }
    }
}

/// What a command brings into force.
#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    bank: Holds,
    group: Holds,
    rank: Holds,
    other_rank: Holds,
}

/// State of a channel's memory.
#[derive(Clone, Debug)]
pub struct Device {
    shape: Shape,
    timing: Timing,
    effects: [Effects; 5],
    /// First cycle at which each command is legal as far as the commands to this bank say.
    bank_ready: Box<[Ready; 64]>,
    /// The same for what its group and its rank say.
    group_ready: Box<[Ready; 64]>,
    rank_ready: Box<[Ready; 64]>,
    /// Of each rank, the ends of the windows that its last four activates opened.
    windows: Box<[[u64; 4]]>,
    rows: Box<[u32; 64]>,
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
        let effects = Command::ALL.map(|first| {
            let holds = |scope| Holds::new(scope, first, &timing);
            Effects {
                bank: holds(Scope::Bank),
                group: holds(Scope::Group),
                rank: holds(Scope::Rank),
                other_rank: holds(Scope::OtherRank),
            }
        });
        Some(Self {
            effects,
            bank_ready: Box::new([Ready::default(); 64]),
            group_ready: Box::new([Ready::default(); 64]),
            rank_ready: Box::new([Ready::default(); 64]),
            windows: vec![[0; 4]; shape.ranks()].into_boxed_slice(),
            rows: Box::new([0; 64]),
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
        (bank < self.shape.banks() && self.open >> bank & 1 == 1).then(|| self.rows[bank & 63])
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
        self.apply(command, bank, row, at);
        Ok(())
    }

    /// First cycle at which the command bus is free.
    #[inline]
    pub(crate) fn bus_free(&self) -> u64 {
        self.bus_free
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
        let shared = self.shared_earliest(command, self.shape.group_of(bank));
        self.bank_earliest(command, bank).max(shared)
    }

    /// When a command's bank allows it.
    #[inline]
    pub(crate) fn bank_earliest(&self, command: Command, bank: usize) -> u64 {
        self.bank_ready[bank & 63][command.index()]
    }

    /// When a group (numbered over all ranks) and its rank allow a command.
    #[inline]
    pub(crate) fn shared_earliest(&self, command: Command, group: usize) -> u64 {
        let rank = group >> self.shape.group_bits;
        self.group_earliest(command, group).max(self.rank_earliest(command, rank))
    }

    /// When a group allows a command.
    #[inline]
    pub(crate) fn group_earliest(&self, command: Command, group: usize) -> u64 {
        self.group_ready[group & 63][command.index()]
    }

    /// When a rank allows a command.
    #[inline]
    pub(crate) fn rank_earliest(&self, command: Command, rank: usize) -> u64 {
        self.rank_ready[rank & 63][command.index()]
    }

    /// A command that is legal at `at`.
    #[inline]
    pub(crate) fn apply(&mut self, command: Command, bank: usize, row: u32, at: u64) {
        let effects = &self.effects[command.index()];
        let rank = self.shape.rank_of(bank);
        let group = self.shape.group_of(bank);
        effects.bank.raise(&mut self.bank_ready[bank & 63], at);
        effects.group.raise(&mut self.group_ready[group & 63], at);
        effects.rank.raise(&mut self.rank_ready[rank & 63], at);
        if self.shape.rank_bits > 0 {
            let ranks = self.shape.ranks();
            for (other, ready) in self.rank_ready[..ranks].iter_mut().enumerate() {
                if other != rank {
                    effects.other_rank.raise(ready, at);
                }
            }
        }
        match command {
            Command::Activate => {
                self.open |= 1 << bank;
                self.rows[bank & 63] = row;
                let window = &mut self.windows[rank];
                *window = [window[1], window[2], window[3], at + self.timing.faw];
                let ready = &mut self.rank_ready[rank & 63][Command::Activate.index()];
                *ready = window[0].max(*ready);
            }
            Command::Precharge => self.open &= !(1 << bank),
            Command::Read | Command::Write | Command::Refresh => {}
        }
        self.bus_free = at + command.slots(&self.timing);
    }

    /// Closes a rank's rows because it was refreshed some time in the past, long enough ago for every rule.
    pub(crate) fn close_rank(&mut self, rank: usize) {
        self.open &= !self.rank_mask(rank);
    }
}
