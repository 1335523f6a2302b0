//! The state of one vCPU: where it executes, the open stretch, and the finished ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tally::Tally;
use crate::ledger::{Book, Counts, Mark};
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
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Books {
    pub(super) mode: Cell,
    pub(super) last: Cell,
    /// The path of the next stretch.
    pub(super) next_path: Cell,
    /// The path of the open stretch.
    pub(super) path: Cell,
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
    /// The largest value of `masked` in the run, and its path.
    pub(super) longest_masked: Cell,
    pub(super) longest_path: Cell,
    pub(super) el2: Cell,
    pub(super) guest: Cell,
    /// The loads and stores among `guest` that were trapped to EL2: they did not retire.
    pub(super) aborted: Cell,
    pub(super) boot: Cell,
    stretches: Mutex<BTreeMap<u8, Tally>>,
    budget: Mutex<Book>,
}

impl Books {
    /// Builds empty books of a vCPU that boots.
    pub(super) fn new() -> Self {
        let new = Self {
            mode: Cell::default(),
            last: Cell::default(),
            next_path: Cell::default(),
            path: Cell::default(),
            waited: Cell::default(),
            instructions: Cell::default(),
            barriers: Cell::default(),
            maintenance: Cell::default(),
            device_accesses: Cell::default(),
            gic_sysregs: Cell::default(),
            touched_device: Cell::default(),
            masked: Cell::default(),
            longest_masked: Cell::default(),
            longest_path: Cell::default(),
            el2: Cell::default(),
            guest: Cell::default(),
            aborted: Cell::default(),
            boot: Cell::default(),
            stretches: Mutex::default(),
            budget: Mutex::default(),
        };
        new.mode.set(mode::EL2);
        new.path.set(u64::from(path::BOOT));
        new.next_path.set(u64::from(path::OTHER));
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
        self.path.set(self.next_path.get());
        self.waited.set(0);
        self.next_path.set(u64::from(path::OTHER));
    }

    /// Ends the stretch before the current instruction.
    pub(super) fn leave(&self) {
        self.mode.set(mode::GUEST);
        self.end_masked();
        self.close();
    }

    /// Books the open stretch.
    fn close(&self) {
        let mut stretches = self.stretches();
        let tally = stretches.entry(self.path.get() as u8).or_default();
        tally.instructions.add(self.instructions.take());
        tally.barriers.add(self.barriers.take());
        tally.maintenance.add(self.maintenance.take());
        tally.device_accesses.add(self.device_accesses.take());
        tally.gic_sysregs.add(self.gic_sysregs.take());
    }

    /// Records a wait of EL2.
    ///
    /// If the vCPU is suspended, the wait ends the stretch; otherwise it is part of the stretch. A
    /// vCPU that waits although a period has begun is off, or owes more than a budget.
    pub(super) fn wait(&self) {
        self.end_masked();
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
    pub(super) fn meter(&self, number: u8) {
        if matches!(number, path::SWITCH | path::NOTIFY)
            && self.waited.get() == 0
            && self.path.get() != u64::from(path::BOOT)
        {
            self.path.set(u64::from(number));
        }
        let Some(mark) = Mark::of(number) else { return };
        let instructions = self.guest.get() - self.aborted.get();
        self.budget().mark(mark, Counts { instructions, ..Counts::default() });
        let path = match (self.path.get() as u8, mark) {
            // The boot and a stretch in which a period begins keep their names.
            (path::BOOT, _) | (path::REPLENISH | path::RELEASE, Mark::Overflow | Mark::Poll) => {
                return;
            }
            (path::HELD, Mark::Replenish) => path::RELEASE,
            (path::HELD, _) => return,
            _ => number,
        };
        self.path.set(u64::from(path));
    }

    /// Ends a section of the stretch with interrupts masked.
    fn end_masked(&self) {
        let masked = self.masked.take();
        if masked > self.longest_masked.get() && self.path.get() != u64::from(path::BOOT) {
            self.longest_masked.set(masked);
            self.longest_path.set(self.path.get());
        }
    }
}
