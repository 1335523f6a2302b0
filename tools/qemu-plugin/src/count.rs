//! The accounting: instructions in, EL2 stretches per path out.
//!
//! [`Accounting::step`] is told of each instruction before it executes, [`Accounting::access`] of
//! each access to memory after it was made. A vCPU's state is written by the one thread that
//! executes it, so plain relaxed loads and stores are enough; the lock around the finished
//! stretches is taken once per stretch.
//!
//! The rules:
//! - A vCPU is at EL2 from its first instruction on (firmware, trampoline, boot), until the first
//!   ERET inside the hypervisor's range after which it executes something outside of that range.
//!   That first stretch belongs to the path `boot`.
//! - A later stretch begins as [`Options`] says and ends with such an ERET, which belongs to it.
//!   When the vectors are known, any ERET of the hypervisor ends it: what runs after it is the
//!   guest's, even at addresses that the hypervisor uses too.
//! - A marker names the path of the next stretch on its vCPU. Further stretches before the next
//!   marker belong to `other`: a timer that fires between two marked hypercalls is not counted as
//!   a hypercall.
//! - A marker of EL2's own ([`path::is_hypervisors`]) names the stretch in which it is, and goes
//!   into the [`ledger`](crate::ledger). A stretch with such a name ends with the wait (WFI) that
//!   it leads to, and another begins behind that: the wait of a suspended vCPU is in no path, and
//!   neither is what others do meanwhile.
//! - A load or store that is reported twice in a row was executed once: QEMU starts an instruction
//!   again, when it finds that it touches a device in the middle of a block under `-icount`, or
//!   that it must be atomic. No load or store can follow itself otherwise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Options;
use crate::ledger::{Book, Counts, Ledger, Mark, Phase};
use crate::opcode::Class;
use crate::path;
use crate::report::{Longest, PathReport, Report, Summary, Vcpu};

/// One instruction of a program, reduced at translation to what [`Accounting::step`] needs each
/// time that it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(u64);

impl Step {
    /// Address bits 2 to 47: enough to tell neighbors apart.
    const ADDRESS: u64 = (1 << 46) - 1;
    /// Inside the hypervisor's range.
    const INSIDE: u64 = 1 << 46;
    /// A stretch begins here, if the vCPU is in a guest.
    const ENTRY: u64 = 1 << 47;
    const CLASS_SHIFT: u32 = 48;
    /// Known to be a vector for a lower exception level: a stretch begins here in any case.
    const VECTOR: u64 = 1 << 52;
    /// Such a vector for synchronous exceptions.
    const SYNCHRONOUS: u64 = 1 << 53;
    const MARKER_SHIFT: u32 = 56;

    const PLAIN: u64 = 0;
    const ERET: u64 = 1;
    const BARRIER: u64 = 2;
    const MAINTENANCE: u64 = 3;
    const GIC_SYSREG: u64 = 4;
    const WAIT: u64 = 5;
    const LOAD_STORE: u64 = 6;
    const MARKER: u64 = 7;

    /// The instruction `opcode` at virtual address `pc`.
    #[must_use]
    pub fn new(pc: u64, opcode: u32, options: &Options) -> Self {
        let (class, marker) = match Class::of(opcode) {
            Class::Plain => (Self::PLAIN, 0),
            Class::Eret => (Self::ERET, 0),
            Class::Barrier => (Self::BARRIER, 0),
            Class::Maintenance => (Self::MAINTENANCE, 0),
            Class::GicSysreg => (Self::GIC_SYSREG, 0),
            Class::Wait => (Self::WAIT, 0),
            Class::LoadStore => (Self::LOAD_STORE, 0),
            Class::Marker(number) => (Self::MARKER, u64::from(number)),
        };
        let mut bits =
            pc >> 2 & Self::ADDRESS | class << Self::CLASS_SHIFT | marker << Self::MARKER_SHIFT;
        if options.hyp.contains(&pc) {
            bits |= match options.vectors {
                None => Self::INSIDE | Self::ENTRY,
                // Every fourth vector is one of synchronous exceptions (Arm ARM D1.3.1.5).
                Some(vectors) if options.is_lower_el_vector(pc) => {
                    let first = (pc - vectors).is_multiple_of(0x200);
                    let synchronous = if first { Self::SYNCHRONOUS } else { 0 };
                    Self::INSIDE | Self::ENTRY | Self::VECTOR | synchronous
                }
                Some(_) => Self::INSIDE,
            };
        }
        Self(bits)
    }

    /// As one word, to travel through QEMU.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the accesses of this instruction must be reported: the loads and stores of the
    /// hypervisor.
    #[must_use]
    pub fn wants_accesses(self) -> bool {
        self.is_inside() && self.class() == Self::LOAD_STORE
    }

    fn is_inside(self) -> bool {
        self.0 & Self::INSIDE != 0
    }

    fn is_entry(self) -> bool {
        self.0 & Self::ENTRY != 0
    }

    fn is_vector(self) -> bool {
        self.0 & Self::VECTOR != 0
    }

    fn class(self) -> u64 {
        self.0 >> Self::CLASS_SHIFT & 0xF
    }

    fn marker(self) -> Option<u8> {
        (self.class() == Self::MARKER).then_some((self.0 >> Self::MARKER_SHIFT) as u8)
    }
}

/// A number with a single writer, readable by all.
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Cell {
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    fn bump(&self) {
        self.set(self.get() + 1);
    }

    fn take(&self) -> u64 {
        let value = self.get();
        self.set(0);
        value
    }
}

/// Where a vCPU is.
mod mode {
    /// In a guest.
    pub const GUEST: u64 = 0;
    /// At EL2.
    pub const EL2: u64 = 1;
    /// Behind an ERET of the hypervisor; the next instruction tells where it led.
    pub const RETURNING: u64 = 2;
}

/// One vCPU's books. The alignment keeps two of them off one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Books {
    mode: Cell,
    last: Cell,
    /// The path of the next stretch.
    next_path: Cell,
    /// The open stretch.
    path: Cell,
    /// Whether EL2 waited in it.
    waited: Cell,
    instructions: Cell,
    barriers: Cell,
    maintenance: Cell,
    device_accesses: Cell,
    gic_sysregs: Cell,
    /// Whether the current instruction has been counted as a device access.
    touched_device: Cell,
    /// Instructions since the stretch began or EL2 last waited.
    masked: Cell,
    /// The whole run.
    longest_masked: Cell,
    longest_path: Cell,
    el2: Cell,
    guest: Cell,
    /// Of them loads and stores that led to EL2: they were not made, and are no retired
    /// instructions.
    aborted: Cell,
    boot: Cell,
    stretches: Mutex<BTreeMap<u8, Tally>>,
    budget: Mutex<Book>,
}

impl Books {
    fn new() -> Self {
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

    fn budget(&self) -> MutexGuard<'_, Book> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stretches(&self) -> MutexGuard<'_, BTreeMap<u8, Tally>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a stretch.
    fn enter(&self) {
        self.mode.set(mode::EL2);
        self.path.set(self.next_path.get());
        self.waited.set(0);
        self.next_path.set(u64::from(path::OTHER));
    }

    /// Ends the stretch before the current instruction.
    fn leave(&self) {
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

    /// EL2 waits. What led to a suspended vCPU's wait is booked; the waits of others are pieces of
    /// their stretch. Whoever waits although a period has begun is off, or owes more than a budget.
    fn wait(&self) {
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

    /// EL2 executes one of its own markers.
    fn meter(&self, number: u8) {
        if matches!(number, path::SWITCH | path::FRAME)
            && self.waited.get() == 0
            && self.path.get() != u64::from(path::BOOT)
        {
            self.path.set(u64::from(number));
        }
        let Some(mark) = Mark::of(number) else { return };
        let instructions = self.guest.get() - self.aborted.get();
        self.budget().mark(mark, Counts { instructions, ..Counts::default() });
        let path = match (self.path.get() as u8, mark) {
            // The boot, and whatever a period's beginning came with, keep their names.
            (path::BOOT, _) | (path::REPLENISH | path::RELEASE, Mark::Overflow | Mark::Poll) => {
                return;
            }
            (path::HELD, Mark::Replenish) => path::RELEASE,
            (path::HELD, _) => return,
            _ => number,
        };
        self.path.set(u64::from(path));
    }

    /// Ends a piece of the stretch during which interrupts waited.
    fn end_masked(&self) {
        let masked = self.masked.take();
        if masked > self.longest_masked.get() && self.path.get() != u64::from(path::BOOT) {
            self.longest_masked.set(masked);
            self.longest_path.set(self.path.get());
        }
    }
}

/// The accounting of one run.
#[derive(Debug)]
pub struct Accounting {
    vcpus: Box<[Books]>,
    boot_over: AtomicBool,
    vectors_known: bool,
}

impl Accounting {
    /// Empty books for `vcpus` vCPUs.
    #[must_use]
    pub fn new(vcpus: usize, options: &Options) -> Self {
        Self {
            vcpus: (0..vcpus).map(|_| Books::new()).collect(),
            boot_over: AtomicBool::new(false),
            vectors_known: options.vectors.is_some(),
        }
    }

    /// vCPU number `vcpu` is about to execute `step`. Calls for one vCPU must not overlap.
    pub fn step(&self, vcpu: usize, step: Step) {
        let Some(books) = self.vcpus.get(vcpu) else {
            return;
        };
        let class = step.class();
        if class == Step::LOAD_STORE && books.last.get() == step.0 {
            return;
        }
        let last = Self::last(books, step);

        if books.mode.get() == mode::RETURNING {
            // In the first stretch an ERET may lead from one place in EL2 to another.
            let always_leaves = self.vectors_known && books.path.get() != u64::from(path::BOOT);
            if !step.is_inside() || step.is_vector() || always_leaves {
                books.leave();
            } else {
                books.mode.set(mode::EL2);
            }
        }
        if books.mode.get() == mode::GUEST && step.is_entry() {
            if step.0 & Step::SYNCHRONOUS != 0 && last.class() == Step::LOAD_STORE {
                books.aborted.bump();
            }
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
                Step::ERET if step.is_inside() => books.mode.set(mode::RETURNING),
                Step::BARRIER => books.barriers.bump(),
                Step::MAINTENANCE => books.maintenance.bump(),
                Step::GIC_SYSREG => books.gic_sysregs.bump(),
                Step::WAIT => books.wait(),
                Step::MARKER if step.is_inside() => {
                    books.meter(step.marker().unwrap_or(path::OTHER));
                }
                _ => {}
            }
        }
        if !self.boot_over.load(Relaxed) {
            books.boot.bump();
        }
    }

    /// The step before this one, which becomes the last.
    fn last(books: &Books, step: Step) -> Step {
        let last = Step(books.last.get());
        books.last.set(step.0);
        last
    }

    fn mark(&self, books: &Books, number: u8) {
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
                    books.budget().phase(Phase { guest, el2 });
                }
                books.next_path.set(u64::from(number));
                books.stretches().entry(number).or_default().marks += 1;
            }
        }
    }

    /// vCPU number `vcpu` made an access to memory for its last step, `is_io` if to a device.
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

    /// What the meters' markers said.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let core = |books: &Books| {
            let mut ledger = books.budget().ledger();
            let stretches = books.stretches();
            let budgets = stretches.range(path::REPLENISH..=path::HELD);
            ledger.paths =
                budgets.map(|(&path, tally)| (path::name(path), tally.report())).collect();
            ledger
        };
        Ledger { cores: self.vcpus.iter().map(core).collect() }
    }

    /// The books as they stand. A stretch that has not ended counts for the totals only.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut merged = BTreeMap::<u8, Tally>::new();
        for books in &self.vcpus {
            for (&path, tally) in books.stretches().iter() {
                merged.entry(path).or_default().merge(tally);
            }
        }
        let longest = self
            .vcpus
            .iter()
            .enumerate()
            .filter(|(_, books)| books.longest_masked.get() > 0)
            // On a tie the first vCPU's.
            .min_by_key(|(_, books)| std::cmp::Reverse(books.longest_masked.get()));
        Report {
            boot_instructions: self
                .boot_over
                .load(Relaxed)
                .then(|| self.vcpus.iter().map(|books| books.boot.get()).sum()),
            longest_masked: longest.map(|(vcpu, books)| Longest {
                instructions: books.longest_masked.get(),
                path: path::name(books.longest_path.get() as u8),
                vcpu,
            }),
            vcpus: self
                .vcpus
                .iter()
                .map(|books| Vcpu {
                    el2_instructions: books.el2.get(),
                    guest_instructions: books.guest.get(),
                    boot_instructions: books.boot.get(),
                })
                .collect(),
            paths: merged.iter().map(|(&path, tally)| (path::name(path), tally.report())).collect(),
        }
    }
}

/// The markers and the finished stretches of one path.
#[derive(Debug, Default)]
struct Tally {
    marks: u64,
    instructions: Distribution,
    barriers: Distribution,
    maintenance: Distribution,
    device_accesses: Distribution,
    gic_sysregs: Distribution,
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.marks += other.marks;
        self.instructions.merge(&other.instructions);
        self.barriers.merge(&other.barriers);
        self.maintenance.merge(&other.maintenance);
        self.device_accesses.merge(&other.device_accesses);
        self.gic_sysregs.merge(&other.gic_sysregs);
    }

    fn report(&self) -> PathReport {
        PathReport {
            marks: self.marks,
            n: self.instructions.len(),
            instructions: self.instructions.summary(),
            barriers: self.barriers.median(),
            maintenance: self.maintenance.median(),
            device_accesses: self.device_accesses.median(),
            gic_sysregs: self.gic_sysregs.median(),
        }
    }
}

/// How often each value occurred: exact, and bounded by the number of different values however long
/// the run.
#[derive(Debug, Default)]
struct Distribution(BTreeMap<u64, u64>);

impl Distribution {
    fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (&value, &count) in &other.0 {
            *self.0.entry(value).or_default() += count;
        }
    }

    fn len(&self) -> u64 {
        self.0.values().sum()
    }

    fn median(&self) -> u64 {
        let middle = self.len().div_ceil(2);
        let mut seen = 0;
        for (&value, &count) in &self.0 {
            seen += count;
            if seen >= middle {
                return value;
            }
        }
        0
    }

    fn summary(&self) -> Summary {
        let sum: u64 = self.0.iter().map(|(value, count)| value * count).sum();
        #[expect(clippy::cast_precision_loss, reason = "instruction counts stay far below 2^53")]
        let mean = sum as f64 / self.len().max(1) as f64;
        Summary {
            min: self.0.first_key_value().map_or(0, |(&value, _)| value),
            median: self.median(),
            max: self.0.last_key_value().map_or(0, |(&value, _)| value),
            mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::opcode::marker;

    const HYP: u64 = 0x40_0000_0000;
    const VECTORS: u64 = HYP + 0x800;
    const GUEST: u64 = 0x4000_0000;
    const NOP: u32 = 0xD503_201F;
    const ERET: u32 = 0xD69F_03E0;
    const DSB: u32 = 0xD503_3F9F;
    const WFI: u32 = 0xD503_207F;
    const TLBI: u32 = 0xD508_871F;
    const LDR: u32 = 0xB940_1862;
    const MRS_HCR: u32 = 0xD53C_CB04;

    /// A program counter that walks and a set of books that listens.
    struct Machine {
        options: Options,
        books: Accounting,
    }

    impl Machine {
        fn new(vcpus: usize, vectors: Option<u64>) -> Self {
            let options = Options {
                out: "unused".into(),
                hyp: HYP..HYP + 0x1_0000,
                vectors,
                caches: None,
                until: None,
                monitor: None,
                ledger: None,
            };
            let books = Accounting::new(vcpus, &options);
            Self { options, books }
        }

        /// Executes `opcodes` at consecutive addresses.
        fn run(&self, vcpu: usize, mut pc: u64, opcodes: &[u32]) {
            for &opcode in opcodes {
                self.books.step(vcpu, Step::new(pc, opcode, &self.options));
                pc += 4;
            }
        }

        /// A vCPU's way to its guest's first instruction: 3 instructions.
        fn boot(&self, vcpu: usize) {
            self.run(vcpu, 0x8_0000, &[NOP]);
            self.run(vcpu, HYP, &[NOP, ERET]);
        }

        /// A stretch from a vector: `body` and the ERET.
        fn trap(&self, vcpu: usize, body: &[u32]) {
            let mut opcodes = body.to_vec();
            opcodes.push(ERET);
            self.run(vcpu, VECTORS + 0x400, &opcodes);
        }

        fn path(&self, name: &str) -> PathReport {
            self.books.report().paths.get(name).unwrap_or_else(|| panic!("no {name}")).clone()
        }
    }

    #[test]
    fn a_stretch_is_named_by_its_marker() {
        for vectors in [None, Some(VECTORS)] {
            let machine = Machine::new(1, vectors);
            machine.boot(0);
            machine.run(0, GUEST, &[marker(0), NOP, marker(5), NOP]);
            machine.trap(0, &[NOP, DSB, TLBI, MRS_HCR, MRS_HCR]);
            machine.run(0, GUEST + 0x10, &[NOP]);
            let report = machine.books.report();
            assert_eq!(report.boot_instructions, Some(3));
            assert_eq!(report.paths["boot"].instructions.max, 3);
            let hypercall = &report.paths["hypercall"];
            assert_eq!((hypercall.n, hypercall.instructions.min), (1, 6));
            assert_eq!((hypercall.barriers, hypercall.maintenance), (1, 1));
            assert_eq!((hypercall.gic_sysregs, hypercall.device_accesses), (2, 0));
            assert_eq!(
                report.vcpus,
                [Vcpu { el2_instructions: 9, guest_instructions: 5, boot_instructions: 3 }]
            );
        }
    }

    #[test]
    fn a_marker_names_only_the_next_stretch() {
        let machine = Machine::new(1, None);
        machine.boot(0);
        for _ in 0..3 {
            machine.run(0, GUEST, &[marker(1)]);
            machine.trap(0, &[NOP]);
            machine.run(0, GUEST, &[NOP]);
            machine.trap(0, &[NOP, NOP]);
        }
        machine.run(0, GUEST, &[marker(63)]);
        machine.trap(0, &[NOP, NOP]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(
            (machine.path("timer_irq").n, machine.path("timer_irq").instructions.max),
            (3, 2)
        );
        assert_eq!((machine.path("other").n, machine.path("other").instructions.min), (4, 3));
    }

    #[test]
    fn a_path_without_el2_has_no_stretch() {
        let machine = Machine::new(2, None);
        machine.boot(0);
        machine.boot(1);
        machine.run(0, GUEST, &[marker(0), marker(16), NOP, marker(16), NOP, marker(63)]);
        machine.run(1, GUEST, &[marker(16), NOP, marker(63)]);
        machine.trap(0, &[NOP]);
        machine.run(0, GUEST, &[NOP]);
        let eoi = machine.path("eoi");
        assert_eq!((eoi.marks, eoi.n, eoi.instructions.max), (3, 0, 0));
        assert_eq!((machine.path("other").marks, machine.path("other").n), (0, 1));
    }

    #[test]
    fn an_exception_at_the_eret_is_a_separate_stretch() {
        for (vectors, n, max) in [(None, 1, 5), (Some(VECTORS), 1, 2)] {
            let machine = Machine::new(1, vectors);
            machine.boot(0);
            machine.run(0, GUEST, &[marker(5)]);
            machine.trap(0, &[NOP]);
            machine.trap(0, &[NOP, NOP]);
            machine.run(0, GUEST, &[NOP]);
            assert_eq!(machine.path("hypercall").n, n);
            assert_eq!(machine.path("hypercall").instructions.max, max);
            assert_eq!(machine.books.report().paths.contains_key("other"), vectors.is_some());
        }
    }

    #[test]
    fn an_eret_in_the_hypervisor_does_not_end_the_boot() {
        let machine = Machine::new(1, Some(VECTORS));
        machine.run(0, HYP, &[NOP, ERET]);
        machine.run(0, HYP + 0x2000, &[NOP, ERET]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(machine.path("boot").instructions.max, 4);
    }

    #[test]
    fn known_vectors_separate_guest_and_hypervisor_code() {
        let machine = Machine::new(1, Some(VECTORS));
        machine.boot(0);
        machine.run(0, GUEST, &[NOP]);
        machine.run(0, HYP + 0x4000, &[NOP, ERET, NOP]);
        machine.trap(0, &[NOP]);
        machine.run(0, HYP + 0x4000, &[NOP, ERET, NOP]);
        let report = machine.books.report();
        assert_eq!(report.vcpus[0].guest_instructions, 7);
        assert_eq!(report.paths["other"].instructions.max, 2);
    }

    #[test]
    fn a_restarted_device_access_counts_once() {
        let machine = Machine::new(1, None);
        machine.boot(0);
        machine.run(0, GUEST, &[marker(15)]);
        let load = Step::new(VECTORS + 0x400, LDR, &machine.options);
        assert!(load.wants_accesses());
        machine.books.step(0, load);
        machine.books.step(0, load);
        machine.books.access(0, true);
        machine.books.access(0, true);
        machine.run(0, VECTORS + 0x404, &[LDR]);
        machine.books.access(0, false);
        machine.run(0, VECTORS + 0x408, &[LDR]);
        machine.books.access(0, true);
        machine.run(0, VECTORS + 0x40C, &[ERET]);
        machine.run(0, GUEST, &[NOP]);
        let path = machine.path("uart_write");
        assert_eq!((path.instructions.max, path.device_accesses), (4, 2));
    }

    #[test]
    fn only_loads_and_stores_are_restarted() {
        let machine = Machine::new(1, None);
        machine.boot(0);
        for _ in 0..10 {
            machine.run(0, GUEST, &[0x1400_0000]);
        }
        assert_eq!(machine.books.report().vcpus[0].guest_instructions, 10);
    }

    #[test]
    fn waiting_ends_a_masked_piece_and_boot_is_left_out() {
        let machine = Machine::new(2, None);
        machine.run(0, HYP, &[NOP; 100]);
        machine.boot(0);
        assert_eq!(machine.books.report().longest_masked, None);
        machine.run(0, GUEST, &[marker(17)]);
        machine.trap(0, &[NOP, NOP, NOP, WFI, NOP, NOP]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(
            machine.books.report().longest_masked,
            Some(Longest { instructions: 4, path: "wfi".into(), vcpu: 0 })
        );
        machine.boot(1);
        machine.run(1, GUEST, &[NOP]);
        machine.trap(1, &[NOP; 4]);
        machine.run(1, GUEST, &[NOP]);
        assert_eq!(
            machine.books.report().longest_masked,
            Some(Longest { instructions: 5, path: "other".into(), vcpu: 1 })
        );
        assert_eq!(machine.path("wfi").instructions.max, 7);
    }

    #[test]
    fn boot_is_what_all_vcpus_execute_before_marker_0() {
        let machine = Machine::new(2, None);
        machine.boot(1);
        machine.boot(0);
        assert_eq!(machine.books.report().boot_instructions, None);
        machine.run(1, GUEST, &[NOP]);
        machine.run(0, GUEST, &[marker(0)]);
        machine.run(1, GUEST, &[NOP]);
        machine.run(1, GUEST, &[marker(0)]);
        assert_eq!(machine.books.report().boot_instructions, Some(7));
    }

    #[test]
    fn markers_at_el2_and_unknown_vcpus_are_ignored() {
        let machine = Machine::new(1, None);
        machine.run(0, HYP, &[marker(0), marker(1), ERET]);
        machine.run(0, GUEST, &[NOP]);
        machine.run(7, GUEST, &[marker(0)]);
        machine.trap(0, &[]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(machine.books.report().boot_instructions, None);
        assert_eq!(machine.path("other").n, 1);
    }

    proptest! {
        #[test]
        fn a_step_survives_its_way_through_qemu(pc: u64, opcode: u32) {
            let options = Machine::new(1, Some(VECTORS)).options;
            let step = Step::new(pc & !3, opcode, &options);
            prop_assert_eq!(Step::from_bits(step.to_bits()), step);
            prop_assert_eq!(step.marker().is_some(), matches!(Class::of(opcode), Class::Marker(_)));
        }

        /// Nothing is lost and nothing counted twice: the totals are what ran, and the stretches
        /// of all paths with the open ones are the EL2 total.
        #[test]
        fn totals_are_what_ran(
            program in prop::collection::vec((0..2_usize, 0..4_u8, 0..20_u8, 1..30_usize), 0..200)
        ) {
            let machine = Machine::new(2, None);
            machine.boot(0);
            machine.boot(1);
            machine.run(0, GUEST, &[NOP]);
            machine.run(1, GUEST, &[NOP]);
            let (mut el2, mut guest) = ([3, 3], [1, 1]);
            for (vcpu, what, mark, length) in program {
                if what == 0 {
                    machine.run(vcpu, GUEST, &[marker(mark)]);
                    guest[vcpu] += 1;
                } else if what == 1 {
                    machine.run(vcpu, GUEST, &vec![NOP; length]);
                    guest[vcpu] += length as u64;
                } else {
                    machine.trap(vcpu, &vec![DSB; length]);
                    el2[vcpu] += length as u64 + 1;
                }
            }
            machine.run(0, GUEST, &[NOP]);
            machine.run(1, GUEST, &[NOP]);
            let report = machine.books.report();
            for vcpu in 0..2 {
                prop_assert_eq!(report.vcpus[vcpu].el2_instructions, el2[vcpu]);
                prop_assert_eq!(report.vcpus[vcpu].guest_instructions, guest[vcpu] + 1);
            }
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let sum: f64 =
                report.paths.values().map(|path| path.n as f64 * path.instructions.mean).sum();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let total = (el2[0] + el2[1]) as f64;
            prop_assert!((sum - total).abs() < 1e-6, "{sum} against {total}");
        }

        #[test]
        fn a_distribution_is_that_of_the_sorted_values(
            mut values in prop::collection::vec(0..50_u64, 1..60)
        ) {
            let mut distribution = Distribution::default();
            for &value in &values {
                distribution.add(value);
            }
            values.sort_unstable();
            let summary = distribution.summary();
            prop_assert_eq!(summary.min, values[0]);
            prop_assert_eq!(summary.max, values[values.len() - 1]);
            prop_assert_eq!(summary.median, values[(values.len() - 1) / 2]);
        }
    }

    const REPLENISH: u32 = marker(path::REPLENISH);
    const OVERFLOW: u32 = marker(path::OVERFLOW);
    const POLL: u32 = marker(path::POLL);

    #[test]
    fn budget_stretches_are_named_and_exclude_the_wait() {
        let machine = Machine::new(1, Some(VECTORS));
        machine.boot(0);
        machine.run(0, GUEST, &[NOP, NOP]);
        machine.trap(0, &[NOP, REPLENISH, NOP]);
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[NOP, NOP, POLL]);
        machine.run(0, GUEST, &[NOP]);
        // Spent, woken twice, the second time for a period that a debt takes, and let go with the
        // next one.
        machine.trap(
            0,
            &[
                OVERFLOW, NOP, WFI, NOP, NOP, WFI, REPLENISH, NOP, WFI, NOP, REPLENISH, POLL, NOP,
                NOP,
            ],
        );
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[NOP]);
        machine.run(0, GUEST, &[NOP]);
        let of = |name: &str| {
            let path = machine.path(name);
            (path.n, path.instructions.min, path.instructions.max)
        };
        assert_eq!(of("replenish"), (1, 4, 4));
        assert_eq!(of("poll"), (1, 4, 4));
        assert_eq!(of("overflow"), (1, 3, 3));
        assert_eq!(of("held"), (2, 3, 3));
        assert_eq!(of("release"), (1, 6, 6));
        assert_eq!(of("other"), (1, 2, 2));
        let ledger = machine.books.ledger();
        assert_eq!(ledger.cores[0].paths["overflow"], machine.path("overflow"));
        assert!(!ledger.cores[0].paths.contains_key("other"));
    }

    #[test]
    fn a_wait_that_no_budget_led_to_stays_in_its_stretch() {
        let machine = Machine::new(1, Some(VECTORS));
        machine.boot(0);
        machine.run(0, GUEST, &[marker(5)]);
        machine.trap(0, &[NOP, WFI, NOP]);
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(machine.path("hypercall").instructions.max, 4);
    }

    #[test]
    fn a_guest_has_no_say_in_the_ledger() {
        let machine = Machine::new(1, Some(VECTORS));
        machine.boot(0);
        for _ in 0..3 {
            machine.run(0, GUEST, &[REPLENISH, OVERFLOW, marker(40), NOP]);
            machine.trap(0, &[NOP]);
        }
        machine.run(0, GUEST, &[NOP]);
        assert_eq!(machine.books.ledger().cores[0], crate::ledger::CoreLedger::default());
        assert_eq!(machine.path("other").n, 3);
    }

    #[test]
    fn a_switch_without_a_wait_is_a_path_of_its_own() {
        const SWITCH: u32 = marker(path::SWITCH);
        let machine = Machine::new(1, Some(VECTORS));
        machine.boot(0);
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[NOP, SWITCH, NOP, NOP]);
        machine.run(0, GUEST, &[NOP, SWITCH]);
        machine.trap(0, &[NOP, WFI, NOP, SWITCH, NOP]);
        machine.run(0, GUEST, &[NOP]);
        let path = machine.path("vcpu_switch");
        assert_eq!((path.n, path.instructions.min, path.instructions.max), (1, 5, 5));
        machine.trap(0, &[NOP, marker(path::FRAME), NOP]);
        machine.run(0, GUEST, &[NOP]);
        let path = machine.path("frame");
        assert_eq!((path.n, path.instructions.min, path.instructions.max), (1, 4, 4));
    }

    #[test]
    fn the_ledger_counts_instructions_per_replenishment() {
        let machine = Machine::new(2, Some(VECTORS));
        machine.boot(0);
        machine.boot(1);
        machine.run(0, GUEST, &[NOP]);
        machine.trap(0, &[REPLENISH]);
        machine.run(0, GUEST, &[NOP, NOP, LDR]);
        // The load was trapped: it did not retire. The next exception is an interrupt, and that
        // load did.
        machine.trap(0, &[NOP]);
        machine.run(0, GUEST, &[NOP, LDR]);
        machine.run(0, VECTORS + 0x480, &[OVERFLOW, ERET]);
        machine.run(0, GUEST + 8, &[marker(19)]);
        machine.trap(0, &[REPLENISH]);
        machine.run(0, GUEST, &[NOP]);
        let ledger = machine.books.ledger();
        let [period] = ledger.cores[0].periods[..] else { panic!("{ledger:?}") };
        assert_eq!((period.counts.instructions, period.looks, period.throttled), (5, 2, true));
        assert_eq!(ledger.cores[0].phases, [Phase { guest: 6, el2: 3 + 2 + 2 + 2 }]);
        assert!(ledger.cores[1].periods.is_empty());
    }
}
