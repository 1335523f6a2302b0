//! What each bank wants next, and which of the wishes comes first.
//!
//! Of each kind of command the first wish is remembered. A command changes what group and rank say of its own kind
//! only, and what one bank wants: so one kind is looked through again after each command, and a new wish of another
//! kind is compared with that kind's first.

use crate::dram::{
    device::{Device, Shape},
    timing::Command,
};

/// The request that a bank's wish is for, and the one before it in the bank's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub slot: u8,
    pub before: u8,
}

/// What the channel does next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub at: u64,
    /// `None`: a refresh of the bank's rank falls due.
    pub command: Option<Command>,
    pub bank: usize,
    /// Decides in the same cycle: the lower comes first.
    rank: u64,
}

/// Bits of a wish's rank: the class (column commands before the rest) above the age above the bank.
const CLASS_SHIFT: u32 = 42;
const AGE_SHIFT: u32 = 6;
const AGE: u64 = (1 << (CLASS_SHIFT - AGE_SHIFT)) - 1;
/// Above the rank of a wish: the cycles until it can be granted, so that one comparison decides.
const WAIT_SHIFT: u32 = 44;
pub(super) const LONGEST_WAIT: u64 = (1 << (64 - WAIT_SHIFT)) - 1;
const NEVER: u64 = u64::MAX;

const fn class(command: Command) -> u64 {
    match command {
        Command::Refresh => 1,
        Command::Read | Command::Write => 2,
        Command::Activate | Command::Precharge => 3,
    }
}

/// Kinds of commands that have rules among themselves: activates, precharges, column commands.
const KINDS: usize = 3;

const fn kind(command: Command) -> usize {
    match command {
        Command::Activate => 0,
        Command::Precharge => 1,
        Command::Read | Command::Write | Command::Refresh => 2,
    }
}

/// Wishes of up to 64 banks, field by field.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    wishes: [Wish; 64],
    commands: [Command; 64],
    ranks: [u64; 64],
    /// When the bank itself allows what it wants.
    ripens: [u64; 64],
    /// The bank's group.
    groups: [u8; 64],
    /// Banks that want a command of each kind.
    wanting: [u64; KINDS],
    /// The first wish of each kind: one more than its cycle, and its rank. Out of date if that cycle has passed, and so
    /// 0 if it is not known.
    first: [(u64, u64); KINDS],
}

impl Schedule {
    pub fn new(shape: Shape) -> Self {
        Self {
            wishes: [Wish { slot: 0, before: 0 }; 64],
            commands: [Command::Activate; 64],
            ranks: [0; 64],
            ripens: [0; 64],
            groups: core::array::from_fn(|bank| shape.group_of(bank) as u8),
            wanting: [0; KINDS],
            first: [(NEVER, 0); KINDS],
        }
    }

    #[inline]
    pub fn wish(&self, bank: usize) -> Wish {
        self.wishes[bank & 63]
    }

    /// The command that a bank wants, if any.
    #[inline]
    pub fn wanted(&self, bank: usize) -> Option<Command> {
        let [activate, precharge, column] = self.wanting;
        let any = activate | precharge | column;
        (any >> (bank & 63) & 1 == 1).then(|| self.commands[bank & 63])
    }

    /// The bank wants nothing any more.
    #[inline]
    pub fn clear(&mut self, bank: usize) {
        let kind = kind(self.commands[bank & 63]);
        self.wanting[kind] &= !(1 << (bank & 63));
        if self.first[kind].1 & 63 == bank as u64 {
            self.first[kind].0 = 0;
        }
    }

    /// A command was issued: what was known of the others of its kind is out of date.
    #[inline]
    pub fn issued(&mut self, command: Command) {
        self.first[kind(command)].0 = 0;
    }

    /// Sets the wish of a bank that wants nothing.
    #[inline]
    pub fn set(
        &mut self,
        device: &Device,
        floor: u64,
        bank: usize,
        command: Command,
        age: u64,
        wish: Wish,
    ) {
        let at = bank & 63;
        self.wishes[at] = wish;
        self.commands[at] = command;
        self.ranks[at] = class(command) << CLASS_SHIFT | (age & AGE) << AGE_SHIFT | bank as u64;
        self.ripens[at] = device.bank_earliest(command, bank);
        let kind = kind(command);
        self.wanting[kind] |= 1 << at;
        let group = usize::from(self.groups[at]);
        let when = self.ripens[at].max(device.shared_earliest(command, group)).max(floor);
        self.first[kind] = self.first[kind].min((when + 1, self.ranks[at]));
    }

    /// The first of all wishes that can be granted at `floor` or later, or `first` if that comes before.
    #[inline]
    pub fn choose(&mut self, device: &Device, floor: u64, first: Next) -> Next {
        for kind in 0..KINDS {
            if self.first[kind].0 <= floor {
                self.first[kind] = self.look_through(device, floor, kind);
            }
        }
        let [activate, precharge, column] = self.first;
        let (after, rank) = activate.min(precharge).min(column);
        let at = after - 1;
        if (at, rank) < (first.at, first.rank) {
            let bank = (rank & 63) as usize;
            Next { at, command: Some(self.commands[bank]), bank, rank }
        } else {
            first
        }
    }

    #[inline]
    fn look_through(&self, device: &Device, floor: u64, kind: usize) -> (u64, u64) {
        let mut banks = self.wanting[kind];
        if banks == 0 {
            return (NEVER, 0);
        }
        // All wishes of a kind are for the same command: columns are all reads or all writes.
        let command = self.commands[(banks.trailing_zeros() & 63) as usize];
        let one_rank = device.shape().rank_bits == 0;
        // With one rank, what it says is the same for all banks.
        let all = if one_rank { floor.max(device.rank_earliest(command, 0)) } else { floor };
        let mut best = u64::MAX;
        while banks != 0 {
            let bank = (banks.trailing_zeros() & 63) as usize;
            banks &= banks - 1;
            let group = usize::from(self.groups[bank]);
            let shared = if one_rank {
                device.group_earliest(command, group)
            } else {
                device.shared_earliest(command, group)
            };
            let wait = self.ripens[bank].max(shared).max(all) - floor;
            best = best.min(wait << WAIT_SHIFT | self.ranks[bank]);
        }
        (floor + (best >> WAIT_SHIFT) + 1, best & ((1 << WAIT_SHIFT) - 1))
    }
}

impl Next {
    /// A refresh of a bank's rank that falls due at `at`.
    pub fn refresh_due(at: u64, bank: usize) -> Self {
        Self { at, command: None, bank, rank: 0 }
    }

    /// A refresh of a bank's rank that can be issued at `at`.
    pub fn refresh(at: u64, bank: usize) -> Self {
        let rank = class(Command::Refresh) << CLASS_SHIFT;
        Self { at, command: Some(Command::Refresh), bank, rank }
    }
}
