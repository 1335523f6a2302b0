//! The ranks on one channel: which command is legal when. It decides nothing; the controller does.

use core::fmt;

use crate::dram::{
    lanes::{self, AllBanks, BANKS, Lanes, each_chunk},
    rules::{self, EPOCH, LONGEST_GAP, Rules},
    shape::Shape,
    timing::{Command, DramTiming},
};

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

/// State of a channel's memory.
#[derive(Clone, Debug)]
pub struct DramDevice {
    shape: Shape,
    timing: DramTiming,
    rules: Rules,
    /// The cycle from which the following count.
    epoch: u64,
    /// First cycle at which each command is legal in each bank. A refresh is not among them.
    ready: [AllBanks; 4],
    /// First cycle at which each rank may be refreshed for the last command of each kind.
    refresh_ready: [[u64; BANKS]; 5],
    /// Of each rank, the ends of the windows that its last four activates opened, the first one in
    /// the lowest 16 bits.
    windows: [u64; BANKS],
    rows: [u32; BANKS],
    /// One bit a bank.
    open: u64,
    bus_free: u64,
}

impl DramDevice {
    /// All rows closed, everything legal from cycle 0 on. `None` for more than 64 banks, or if a
    /// gap between two commands is longer than 8191 cycles.
    #[must_use]
    pub fn new(shape: Shape, timing: DramTiming) -> Option<Self> {
        let fits = shape.rank_bits + shape.group_bits + shape.bank_bits <= 6;
        (fits && timing.longest_gap() <= LONGEST_GAP).then(|| Self {
            rules: Rules::new(shape, &timing),
            epoch: 0,
            ready: Default::default(),
            refresh_ready: [[0; BANKS]; 5],
            windows: [0; BANKS],
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
    pub fn timing(&self) -> &DramTiming {
        &self.timing
    }

    /// The open row of a bank.
    #[must_use]
    pub fn open_row(&self, bank: usize) -> Option<u32> {
        (bank < BANKS && self.open >> bank & 1 == 1).then(|| self.rows[bank % BANKS])
    }

    /// The first cycle at which a command is legal if no other one comes before; `row` matters to
    /// column commands only, a refresh goes to the rank of `bank`.
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
            Command::Refresh if self.open & self.rank_mask(self.rank_of(bank)) != 0 => {
                return Err(Illegal::RowOpen);
            }
            _ => {}
        }
        Ok(self.earliest(command, bank).max(self.bus_free))
    }

    /// Issues a command.
    ///
    /// # Errors
    /// [`Illegal`] as [`DramDevice::probe`], and if it comes too early; nothing has changed then.
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

    #[inline]
    pub(crate) fn open_mask(&self) -> u64 {
        self.open
    }

    pub(crate) fn rank_mask(&self, rank: usize) -> u64 {
        let banks = self.shape.banks_per_rank();
        (u64::MAX >> (64 - banks)) << (rank * banks)
    }

    /// When a command is legal but for the row and the command bus, which the caller sees to.
    #[inline]
    pub(crate) fn earliest(&self, command: Command, bank: usize) -> u64 {
        if command == Command::Refresh {
            let rank = self.rank_of(bank);
            return self.refresh_ready.iter().fold(0, |ready, of| ready.max(of[rank]));
        }
        let ready = lanes::get(self.ready(command), bank);
        self.epoch + u64::from(ready.cast_unsigned())
    }

    /// The same of a command that is no refresh, for all banks, counted from the epoch.
    #[inline]
    pub(crate) fn ready(&self, command: Command) -> &AllBanks {
        &self.ready[command.index()]
    }

    /// The rank of a bank.
    #[inline]
    pub(crate) fn rank_of(&self, bank: usize) -> usize {
        bank >> self.rules.rank_shift() & (BANKS - 1)
    }

    /// Chunks of banks in use.
    #[inline]
    pub(crate) fn chunks(&self) -> usize {
        self.rules.chunks()
    }

    /// The cycle from which others are counted.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a cycle is too long after the epoch to be counted from it; before one that is, call
    /// [`DramDevice::begin_epoch`].
    #[inline]
    pub(crate) fn is_beyond(&self, cycle: u64) -> bool {
        cycle - self.epoch >= EPOCH
    }

    /// Counts from another cycle, before which no command will be issued any more.
    #[cold]
    pub(crate) fn begin_epoch(&mut self, cycle: u64) {
        let passed = i16::try_from(cycle - self.epoch).unwrap_or(i16::MAX);
        self.epoch = cycle;
        for ready in self.ready.iter_mut().flatten() {
            *ready = (*ready - Lanes::splat(passed)).max(Lanes::ZERO);
        }
        let later = |ready: i16| (ready - passed).max(0);
        for windows in &mut self.windows {
            let ends = [0, 16, 32, 48].map(|shift| later((*windows >> shift) as i16));
            *windows = ends.iter().rfold(0, |all, &end| all << 16 | u64::from(end.cast_unsigned()));
        }
    }

    /// A command that is legal at `at`, which is not long after the present epoch. The caller names
    /// it as a constant, so that only what it means is compiled in its place.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the command is a constant of the caller")]
    pub(crate) fn apply(&mut self, command: Command, bank: usize, row: u32, at: u64) {
        match command {
            Command::Activate => {
                self.open |= 1 << bank;
                self.rows[bank % BANKS] = row;
                let rank = self.rank_of(bank);
                let windows = &mut self.windows[rank];
                *windows = *windows >> 16 | (at - self.epoch + self.timing.faw) << 48;
                let end = Lanes::splat(*windows as i16);
                let activate = &mut self.ready[Command::Activate.index()];
                let members = self.rules.rank(rank);
                each_chunk(self.rules.chunks(), |chunk| {
                    activate[chunk] = activate[chunk].max(members[chunk] & end);
                });
                self.bring_into_force::<{ Command::Activate as usize }>(bank, at);
            }
            Command::Precharge => {
                self.open &= !(1 << bank);
                self.bring_into_force::<{ Command::Precharge as usize }>(bank, at);
            }
            Command::Read => self.bring_into_force::<{ Command::Read as usize }>(bank, at),
            Command::Write => {
                self.bring_into_force::<{ Command::Write as usize }>(bank, at);
            }
            Command::Refresh => {
                self.bring_into_force::<{ Command::Refresh as usize }>(bank, at);
            }
        }
        self.bus_free = at + command.slots(&self.timing);
    }

    /// What the command numbered `FIRST` means for later ones.
    #[inline]
    fn bring_into_force<const FIRST: usize>(&mut self, bank: usize, at: u64) {
        if const { rules::is_ruled(FIRST, Command::Refresh as usize) } {
            let gap = self.rules.gap(FIRST, Command::Refresh as usize);
            self.refresh_ready[FIRST][self.rank_of(bank)] = at + u64::from(gap.cast_unsigned());
        }
        let at = (at - self.epoch) as i16;
        self.hold_up::<FIRST, { Command::Activate as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Precharge as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Read as usize }>(bank, at);
        self.hold_up::<FIRST, { Command::Write as usize }>(bank, at);
    }

    /// What the command numbered `FIRST` means for the one numbered `THEN`. Whether there is a
    /// rule, and whether for more than the same bank, is known to the compiler.
    #[inline]
    fn hold_up<const FIRST: usize, const THEN: usize>(&mut self, bank: usize, at: i16) {
        if const { rules::is_wide(FIRST, THEN) } {
            if let Some(gaps) = self.rules.gaps(const { rules::wide_pair(FIRST, THEN) }, bank) {
                let (ready, at) = (&mut self.ready[THEN], Lanes::splat(at));
                each_chunk(self.rules.chunks(), |chunk| {
                    ready[chunk] = ready[chunk].max(gaps[chunk] + at);
                });
            }
        } else if const { rules::is_ruled(FIRST, THEN) } {
            lanes::raise(&mut self.ready[THEN], bank, at + self.rules.gap(FIRST, THEN));
        }
    }

    /// Closes a rank's rows because it was refreshed some time in the past, long enough ago for
    /// every rule.
    pub(crate) fn close_rank(&mut self, rank: usize) {
        self.open &= !self.rank_mask(rank);
    }
}
