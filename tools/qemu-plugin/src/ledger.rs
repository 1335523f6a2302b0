//! The ledger of memory budgets: what each core's guest did in each period, as seen from outside.
//!
//! The hypervisor executes a marker where a period begins ([`path::REPLENISH`]), where it
//! suspends the vCPU ([`path::OVERFLOW`]) and where it polls and lets the vCPU continue
//! ([`path::POLL`]). No guest runs while EL2 does, so what a core's guest did between two such
//! markers does not depend on where in EL2's code they are. Markers 32 to 47 are EL2's: from a
//! guest they mean nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::path;
use crate::report::PathReport;

/// Most periods that are kept of a core.
const PERIODS: usize = 1 << 16;
/// Most phases that are kept of a core.
const PHASES: usize = 256;

/// The event of a memory budget that EL2 reports by a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetMark {
    /// A period begins.
    Replenish,
    /// The budget is spent, the vCPU is suspended.
    Overflow,
    /// The budget was polled, and the vCPU goes on.
    Poll,
}

impl BudgetMark {
    /// The event of marker `number` at EL2, if it is about a budget.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        match number {
            path::REPLENISH => Some(Self::Replenish),
            path::OVERFLOW => Some(Self::Overflow),
            path::POLL => Some(Self::Poll),
            _ => None,
        }
    }
}

/// The counts of a core's guest, at EL1 and EL0. A job counts some of these and leaves the others
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounts {
    /// Instructions, also those that were trapped; by the job that counts instructions. Each takes
    /// 1 ns of the emulated clock, so they are what the PMU's event `cycles` counts of the guest.
    pub instructions: u64,
    /// Lines brought into the last cache from memory; by the caches job.
    pub refills: u64,
    /// Dirty lines pushed out to memory; by the caches job.
    pub write_backs: u64,
}

impl GuestCounts {
    fn since(self, before: Self) -> Self {
        Self {
            instructions: self.instructions - before.instructions,
            refills: self.refills - before.refills,
            write_backs: self.write_backs - before.write_backs,
        }
    }
}

/// A period, from one replenishment to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// The counts of the guest in it.
    #[serde(flatten)]
    pub counts: GuestCounts,
    /// How many markers there were within it.
    pub polls: u64,
    /// Whether the vCPU was suspended within it.
    pub throttled: bool,
}

/// A core's instructions when its guest executed marker `phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts {
    /// Of guests.
    pub guest: u64,
    /// At EL2.
    pub el2: u64,
}

/// A core's periods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreLedger {
    /// The whole ones, from the first on. What ran before the first replenishment and behind the
    /// last one is in none.
    pub periods: Vec<Period>,
    /// How many more there were than are kept.
    pub dropped: u64,
    /// Of the job that counts instructions.
    pub phases: Vec<PhaseCounts>,
    /// Of the same job: EL2's paths that have to do with budgets, by name, on this core alone.
    pub paths: BTreeMap<String, PathReport>,
}

/// The file behind the argument `ledger`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// By core.
    pub cores: Vec<CoreLedger>,
}

impl Ledger {
    /// Writes it as JSON. The file appears under its name when it is complete.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        crate::report::write(self, file)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// Errors of the file system; `InvalidData` for a file that is none.
    pub fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }
}

/// The ledger of one core while it runs.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// The counts at the start of the open period.
    begun: Option<GuestCounts>,
    polls: u64,
    throttled: bool,
    ledger: CoreLedger,
}

impl Book {
    /// The core executed `mark` when its guest had done `counts` since the machine started.
    pub fn mark(&mut self, mark: BudgetMark, counts: GuestCounts) {
        self.polls += 1;
        match mark {
            BudgetMark::Poll => {}
            BudgetMark::Overflow => self.throttled = true,
            BudgetMark::Replenish => {
                if let Some(begun) = self.begun.replace(counts) {
                    let (polls, throttled) = (self.polls, self.throttled);
                    let period = Period { counts: counts.since(begun), polls, throttled };
                    if self.ledger.periods.len() < PERIODS {
                        self.ledger.periods.push(period);
                    } else {
                        self.ledger.dropped += 1;
                    }
                }
                (self.polls, self.throttled) = (0, false);
            }
        }
    }

    /// The core's guest executed marker `phase`.
    pub fn phase(&mut self, phase: PhaseCounts) {
        if self.ledger.phases.len() < PHASES {
            self.ledger.phases.push(phase);
        }
    }

    /// Its contents so far.
    #[must_use]
    pub fn ledger(&self) -> CoreLedger {
        self.ledger.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(instructions: u64, refills: u64) -> GuestCounts {
        GuestCounts { instructions, refills, write_backs: refills / 2 }
    }

    #[test]
    fn a_period_lies_between_two_replenishments() {
        let mut book = Book::default();
        book.mark(BudgetMark::Poll, done(3, 2));
        book.mark(BudgetMark::Replenish, done(10, 4));
        book.mark(BudgetMark::Poll, done(12, 5));
        book.mark(BudgetMark::Overflow, done(110, 8));
        book.mark(BudgetMark::Replenish, done(110, 8));
        book.mark(BudgetMark::Replenish, done(115, 8));
        book.mark(BudgetMark::Overflow, done(900, 9));
        let of = |counts, polls, throttled| Period { counts, polls, throttled };
        let ledger = book.ledger();
        assert_eq!(ledger.periods, [of(done(100, 4), 3, true), of(done(5, 0), 1, false)]);
        assert_eq!(ledger.dropped, 0);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut book = Book::default();
        for n in 0..PERIODS as u64 + 4 {
            book.mark(BudgetMark::Replenish, done(n, 0));
            book.phase(PhaseCounts { guest: n, el2: 0 });
        }
        let ledger = book.ledger();
        assert_eq!((ledger.periods.len(), ledger.dropped), (PERIODS, 3));
        assert_eq!(ledger.phases.len(), PHASES);
    }

    #[test]
    fn a_ledger_is_read_back() {
        let mut book = Book::default();
        book.mark(BudgetMark::Replenish, done(0, 0));
        book.mark(BudgetMark::Replenish, done(7, 3));
        book.phase(PhaseCounts { guest: 1, el2: 2 });
        let ledger = Ledger { cores: vec![CoreLedger::default(), book.ledger()] };
        let file = std::env::temp_dir().join(format!("weir-ledger-{}.json", std::process::id()));
        ledger.write(&file).expect("it is written");
        assert_eq!(Ledger::read(&file).expect("it is read"), ledger);
        fs::remove_file(file).expect("it is there");
    }
}
