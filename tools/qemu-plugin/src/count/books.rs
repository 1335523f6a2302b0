//! The state of one vCPU: where it executes, the open stretch, and the finished ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tally::{Sums, Tally};
use crate::ledger::{Book, BudgetMark, GuestCounts};
use crate::path;

/// A number that one thread writes and all threads can read.
#[derive(Debug, Default)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub(super) fn bump(&self) {
        self.set(self.get() + 1);
    }

    fn take(&self) -> u64 {
        let value = self.get();
        self.set(0);
        value
    }
}

/// Where a vCPU executes.
pub(super) mod mode {
    /// In a guest.
    pub const GUEST: u64 = 0;
    /// At EL2.
    pub const EL2: u64 = 1;
    /// After an ERET of the hypervisor. The next instruction shows where the ERET led.
    pub const RETURNING: u64 = 2;
}

/// The books of one vCPU. The alignment keeps two of them from sharing a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Books {
    pub(super) mode: Cell,
    pub(super) last: Cell,
    /// The path of the next stretch.
    pub(super) next_path: Cell,
    /// The path of the open stretch.
    pub(super) path: Cell,
    /// The event with the stretches that are being added up, or [`path::OTHER`].
    event: Cell,
    /// Whether EL2 waited in the open stretch.
    waited: Cell,
    pub(super) instructions: Cell,
    pub(super) barriers: Cell,
    pub(super) maintenance: Cell,
    pub(super) device_accesses: Cell,
    pub(super) gic_sysregs: Cell,
    /// Whether the current instruction has been counted as a device access.
    pub(super) touched_device: Cell,
    /// Instructions since the stretch began or EL2 last waited.
    pub(super) masked: Cell,
    /// The longest section with interrupts masked after which a guest executed, and its path.
    longest: [Cell; 2],
    /// The longest one after which no guest executed yet, its path, and the number of returns to
    /// guests at its end.
    latest: [Cell; 3],
    pub(super) el2: Cell,
    pub(super) guest: Cell,
    pub(super) boot: Cell,
    /// Whether EL2 clears the RAM of a VM.
    pub(super) clears: Cell,
    /// The instructions of that before the boot is over.
    pub(super) clearing: Cell,
    stretches: Mutex<BTreeMap<u8, Tally>>,
    /// What EL2 executed since the budget was spent.
    overflow: Mutex<Option<Sums>>,
    budget: Mutex<Book>,
}

impl Books {
    /// Builds empty books of a vCPU that boots.
    pub(super) fn new() -> Self {
        let new = Self::default();
        new.mode.set(mode::EL2);
        new.path.set(u64::from(path::BOOT));
        new.next_path.set(u64::from(path::OTHER));
        new.event.set(u64::from(path::OTHER));
        new
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, Book> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stretches(&self) -> MutexGuard<'_, BTreeMap<u8, Tally>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a stretch.
    pub(super) fn enter(&self) {
        self.mode.set(mode::EL2);
        let event = self.event.get();
        let is_event = event != u64::from(path::OTHER);
        self.path.set(if is_event { event } else { self.next_path.get() });
        self.waited.set(0);
        self.next_path.set(u64::from(path::OTHER));
    }

    /// Ends the stretch before the current instruction; `returns` is the number of returns to
    /// guests so far.
    pub(super) fn leave(&self, returns: u64) {
        self.mode.set(mode::GUEST);
        self.clears.set(0);
        self.end_masked(returns);
        // The stretches of an event are one.
        if !path::is_event(self.path.get() as u8) {
            self.close();
        }
    }

    /// Ends the event that a marker began and begins that of marker `number`, if it is one.
    pub(super) fn end_event(&self, number: u8) {
        let event = self.event.get();
        if event != u64::from(path::OTHER) && self.instructions.get() > 0 {
            self.path.set(event);
            self.close();
        }
        let event = if path::is_event(number) { number } else { path::OTHER };
        self.event.set(u64::from(event));
    }

    /// Books the open stretch.
    fn close(&self) {
        let sums = Sums {
            instructions: self.instructions.take(),
            barriers: self.barriers.take(),
            maintenance: self.maintenance.take(),
            device_accesses: self.device_accesses.take(),
            gic_sysregs: self.gic_sysregs.take(),
        };
        let path = self.path.get() as u8;
        let mut stretches = self.stretches();
        stretches.entry(path).or_default().add(sums);
        let mut overflow = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        match path {
            path::OVERFLOW => *overflow = Some(sums),
            path::HELD => *overflow = overflow.map(|before| before + sums),
            path::RELEASE => {
                if let Some(before) = overflow.take() {
                    stretches.entry(path::OVERFLOW_PERIOD).or_default().add(before + sums);
                }
            }
            _ => {}
        }
    }

    /// Records a wait of EL2.
    ///
    /// If the vCPU is suspended, the wait ends the stretch; otherwise it is part of the stretch. A
    /// vCPU that waits although a period has begun is off, or owes more than a budget.
    pub(super) fn wait(&self, returns: u64) {
        self.end_masked(returns);
        self.waited.set(1);
        let path = match self.path.get() as u8 {
            path::OVERFLOW => path::OVERFLOW,
            path::REPLENISH..=path::HELD => path::HELD,
            _ => return,
        };
        self.path.set(u64::from(path));
        self.close();
        self.path.set(u64::from(path::HELD));
    }

    /// Records a marker of EL2.
    pub(super) fn take_marker(&self, number: u8) {
        if matches!(number, path::SWITCH | path::NOTIFY)
            && self.waited.get() == 0
            && self.path.get() != u64::from(path::BOOT)
        {
            self.path.set(u64::from(number));
        }
        if matches!(number, path::CLEAR | path::COPY) {
            self.clears.set(u64::from(number == path::CLEAR));
        }
        let Some(mark) = BudgetMark::of(number) else { return };
        let instructions = self.guest.get();
        self.budget().mark(mark, GuestCounts { instructions, ..GuestCounts::default() });
        let path = match (self.path.get() as u8, mark) {
            // The boot and a stretch in which a period begins keep their names.
            (path::BOOT, _)
            | (path::REPLENISH | path::RELEASE, BudgetMark::Overflow | BudgetMark::Poll) => {
                return;
            }
            (path::HELD, BudgetMark::Replenish) => path::RELEASE,
            (path::HELD, _) => return,
            _ => number,
        };
        self.path.set(u64::from(path));
    }

    /// Ends a section of the stretch with interrupts masked.
    pub(super) fn end_masked(&self, returns: u64) {
        let masked = self.masked.take();
        let path = self.path.get();
        if path == u64::from(path::BOOT) {
            return;
        }
        let [longest, longest_path] = self.longest_masked(returns);
        self.longest[0].set(longest);
        self.longest[1].set(longest_path);
        let [latest, latest_path, at] = &self.latest;
        if at.get() != returns || masked > latest.get() {
            latest.set(masked);
            latest_path.set(path);
            at.set(returns);
        }
    }

    /// Returns the longest section with interrupts masked after which a guest executed, and its
    /// path; `returns` is the number of returns to guests so far.
    pub(super) fn longest_masked(&self, returns: u64) -> [u64; 2] {
        let [latest, path, at] = &self.latest;
        let longest = self.longest.each_ref().map(Cell::get);
        let latest = if at.get() == returns { [0; 2] } else { [latest.get(), path.get()] };
        if latest[0] > longest[0] { latest } else { longest }
    }
}
