//! The accounting: from executed instructions to EL2 stretches per path.
//!
//! QEMU's callbacks call [`Accounting::step`] before each instruction executes, and
//! [`Accounting::access`] after each access to memory. Only the thread that executes a vCPU writes
//! the state of the vCPU, so relaxed loads and stores are enough; the lock around the finished
//! stretches is taken once per stretch.
//!
//! The rules:
//! - A vCPU is at EL2 from its first instruction on (firmware, trampoline, boot), until the first
//!   ERET inside the hypervisor's range after which it executes an instruction outside of that
//!   range. That first stretch belongs to the path `boot`.
//! - A later stretch begins as [`PluginOptions`] says and ends with such an ERET, which belongs to
//!   it.
//!   When the vectors are known, any ERET of the hypervisor ends it: what runs after it is the
//!   guest's, even at addresses that the hypervisor uses too.
//! - A marker names the path of the next stretch on its vCPU. Further stretches before the next
//!   marker belong to `other`: a timer that fires between two marked hypercalls is not counted as
//!   a hypercall.
//! - A marker of an event ([`path::is_event`]) names all stretches up to the guest's next marker.
//!   They are one.
//! - A section with interrupts masked ends where EL2 waits, takes a pending interrupt (a read of
//!   `ICC_IAR1_EL1`) or leaves. It counts if a guest executes after it: while VMs run.
//! - What a vCPU executes before the first marker 0 is the boot, without the clearing of RAM: from
//!   the marker of a step that clears to that of one that does not, or to a guest.
//! - A marker that EL2 executes ([`path::is_hypervisors`]) names the stretch in which it is, and
//!   goes into the [`ledger`](crate::ledger). A stretch with such a name ends with the wait (WFI)
//!   that it leads to, and another begins after the wait: the wait of a suspended vCPU is in no
//!   path, nor is the work of other VMs in the meantime.
//! - A load or store that is reported twice in a row was executed once: QEMU starts an instruction
//!   again, when it finds that it touches a device in the middle of a block under `-icount`, or
//!   that it must be atomic. No load or store can follow itself otherwise.

mod books;
mod step;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::PluginOptions;
use crate::ledger::{Ledger, PhaseCounts};
use crate::path;
use crate::report::{CountReport, Longest, VcpuInstructions};
use books::{Books, Cell, mode};
pub use step::InstructionStep;
use tally::Tally;

/// The accounting of one run.
#[derive(Debug)]
pub struct Accounting {
    vcpus: Box<[Books]>,
    boot_over: AtomicBool,
    /// Number of returns from EL2 to guests.
    returns: AtomicU64,
    vectors_known: bool,
}

impl Accounting {
    /// Builds empty books for `vcpus` vCPUs.
    #[must_use]
    pub fn new(vcpus: usize, options: &PluginOptions) -> Self {
        Self {
            vcpus: (0..vcpus).map(|_| Books::new()).collect(),
            boot_over: AtomicBool::new(false),
            returns: AtomicU64::new(0),
            vectors_known: options.vectors.is_some(),
        }
    }

    /// Records that vCPU number `vcpu` is about to execute `step`. Calls for one vCPU must not
    /// overlap.
    pub fn step(&self, vcpu: usize, step: InstructionStep) {
        let Some(books) = self.vcpus.get(vcpu) else {
            return;
        };
        let class = step.class();
        if class == InstructionStep::LOAD_STORE && books.last.get() == step.0 {
            return;
        }
        books.last.set(step.0);

        if books.mode.get() == mode::RETURNING {
            // In the first stretch an ERET may lead from one place in EL2 to another.
            let always_leaves = self.vectors_known && books.path.get() != u64::from(path::BOOT);
            if !step.is_inside() || step.is_vector() || always_leaves {
                books.leave(self.returns.fetch_add(1, Relaxed));
            } else {
                books.mode.set(mode::EL2);
            }
        }
        if books.mode.get() == mode::GUEST && step.is_entry() {
            books.enter();
        }

        if books.mode.get() == mode::GUEST {
            if let Some(number) = step.marker() {
                self.mark(books, number);
            }
            books.guest.bump();
        } else {
            books.el2.bump();
            books.instructions.bump();
            books.masked.bump();
            books.touched_device.set(0);
            match class {
                InstructionStep::ERET if step.is_inside() => books.mode.set(mode::RETURNING),
                InstructionStep::BARRIER => books.barriers.bump(),
                InstructionStep::MAINTENANCE => books.maintenance.bump(),
                InstructionStep::GIC_SYSREG => books.gic_sysregs.bump(),
                InstructionStep::ACKNOWLEDGE => {
                    books.gic_sysregs.bump();
                    books.end_masked(self.returns.load(Relaxed));
                }
                InstructionStep::WAIT => books.wait(self.returns.load(Relaxed)),
                InstructionStep::MARKER if step.is_inside() => {
                    books.take_marker(step.marker().unwrap_or(path::OTHER));
                }
                _ => {}
            }
        }
        if !self.boot_over.load(Relaxed) {
            let count = if books.clears.get() == 0 { &books.boot } else { &books.clearing };
            count.bump();
        }
    }

    /// Records a marker of a guest.
    fn mark(&self, books: &Books, number: u8) {
        if !path::is_hypervisors(number) {
            books.end_event(number);
        }
        match number {
            path::BOOT => {
                self.boot_over.store(true, Relaxed);
                books.next_path.set(u64::from(path::OTHER));
            }
            path::OTHER => books.next_path.set(u64::from(path::OTHER)),
            _ if path::is_hypervisors(number) => {}
            _ => {
                if number == path::PHASE {
                    let (guest, el2) = (books.guest.get(), books.el2.get());
                    books.budget().phase(PhaseCounts { guest, el2 });
                }
                books.next_path.set(u64::from(number));
                books.stretches().entry(number).or_default().marks += 1;
            }
        }
    }

    /// Records that vCPU number `vcpu` accessed memory in its last step; `is_io` if a device.
    pub fn access(&self, vcpu: usize, is_io: bool) {
        let Some(books) = self.vcpus.get(vcpu) else {
            return;
        };
        // A pair is one instruction and, depending on QEMU's version, one access or two.
        if is_io && books.mode.get() != mode::GUEST && books.touched_device.get() == 0 {
            books.touched_device.set(1);
            books.device_accesses.bump();
        }
    }

    /// Returns the ledger of the memory budgets, from EL2's markers.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let core = |books: &Books| {
            let mut ledger = books.budget().ledger();
            let stretches = books.stretches();
            let budgets = stretches.iter().filter(|(path, _)| path::is_budgets(**path));
            ledger.paths =
                budgets.map(|(&path, tally)| (path::name(path), tally.report())).collect();
            ledger
        };
        Ledger { cores: self.vcpus.iter().map(core).collect() }
    }

    /// Returns the report up to now. A stretch that has not ended counts only for the totals.
    #[must_use]
    pub fn report(&self) -> CountReport {
        let mut merged = BTreeMap::<u8, Tally>::new();
        for books in &self.vcpus {
            for (&path, tally) in books.stretches().iter() {
                merged.entry(path).or_default().merge(tally);
            }
        }
        let returns = self.returns.load(Relaxed);
        let longest = self.vcpus.iter().map(|books| books.longest_masked(returns));
        // On a tie, the first vCPU.
        let longest = longest
            .enumerate()
            .filter(|(_, [instructions, _])| *instructions > 0)
            .min_by_key(|(_, [instructions, _])| std::cmp::Reverse(*instructions));
        let before_guests = |count: fn(&Books) -> &Cell| {
            let sum = || self.vcpus.iter().map(|books| count(books).get()).sum();
            self.boot_over.load(Relaxed).then(sum)
        };
        CountReport {
            boot_instructions: before_guests(|books| &books.boot),
            clearing_instructions: before_guests(|books| &books.clearing),
            longest_masked: longest.map(|(vcpu, [instructions, path])| Longest {
                instructions,
                path: path::name(path as u8),
                vcpu,
            }),
            vcpus: self
                .vcpus
                .iter()
                .map(|books| VcpuInstructions {
                    el2_instructions: books.el2.get(),
                    guest_instructions: books.guest.get(),
                    boot_instructions: books.boot.get(),
                })
                .collect(),
            paths: merged.iter().map(|(&path, tally)| (path::name(path), tally.report())).collect(),
        }
    }
}
