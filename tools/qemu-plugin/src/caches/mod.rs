//! The caches job: every access of a running system through the caches and DRAM banks of
//! `weir-memory`, each with its owner.
//!
//! The owner of an access follows from the core and its exception level: it is the VM of the core's
//! current vCPU at EL1 or EL0 (on a core that several share, by the page: [`Setup::cores`]), and
//! the hypervisor at EL2. The hypervisor's accesses to memory in a VM's part
//! ([`OwnerKind::WeirFor`]) are distinguished from those to its own ([`OwnerKind::Weir`]): by
//! design the hypervisor keeps a VM's state, tables and pristine image in the VM's own page
//! classes, so that its work for one VM does not interfere with others.
//!
//! Counting starts when the first core enters a guest; what the boot left in caches and rows stays
//! there.
//!
//! A page of counters ([`CounterPage`]) can be kept up to date with what each core moves between
//! the shared cache and memory, by guests and by the hypervisor, from access to access.
//!
//! Not seen: table walks, devices' DMA, and cache maintenance, after which the model still has
//! lines that a chip would have written back. Of an access that crosses into another page only what
//! lies in the first is seen, as its end is somewhere else in physical memory. DC ZVA is not seen
//! either, so `weir observe` prohibits it.

mod guests;
mod level;
mod places;
mod recorder;
mod report;
mod setup;

pub use level::{Level, Start};
pub use recorder::{Recorded, RecordingLimit};
pub use report::{CountMatrix, Intrusion, MarkerCounts, ObservedAccesses, OwnerCounts, OwnerKind};
pub use setup::{CacheShape, PAGE, PageRun, Setup};

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_memory::hierarchy::{Access, CoreTraffic, Hierarchy, Served};
use weir_memory::matrix::Matrix;
use weir_memory::units::{Owner, Pa};
use weir_trace::counter_page::{CounterKind, CounterPage};

use recorder::Recorder;

use crate::ledger::{Book, BudgetMark, GuestCounts as Done, Ledger};
use crate::path;
use guests::Guests;
use places::Places;

/// Most entries of [`ObservedAccesses::marks`].
const MARKS: usize = 256;
/// How many of the last console bytes [`Books::report_at`] knows.
const BYTES: usize = 8192;

/// The pages' owners as bytes: a VM's number, or one of these.
const WEIR: u8 = 0xfe;
const UNOWNED: u8 = 0xff;

/// Code that runs from its first instruction on, as one word that travels through QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u64);

impl Block {
    const PA: u64 = (1 << 48) - 1;
    const LENGTH_SHIFT: u32 = 48;
    /// Bytes of the longest one: as many instructions as QEMU puts into a block, of four bytes
    /// each.
    pub const LONGEST: u64 = 512 * 4;
    const IN_RAM: u64 = 1 << 61;
    const INSIDE: u64 = 1 << 62;
    const VECTOR: u64 = 1 << 63;

    /// `length` bytes (1 to [`Block::LONGEST`]; more are cut off) at physical address `pa`, or
    /// somewhere outside of RAM.
    #[must_use]
    pub fn new(pa: Option<u64>, length: u64, start: Start) -> Self {
        let mut bits = length.clamp(1, Self::LONGEST) << Self::LENGTH_SHIFT;
        if let Some(pa) = pa {
            bits |= Self::IN_RAM | pa & Self::PA;
        }
        if start.inside {
            bits |= Self::INSIDE;
        }
        if start.vector {
            bits |= Self::VECTOR;
        }
        Self(bits)
    }

    /// As one word.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn pa(self) -> Option<u64> {
        (self.0 & Self::IN_RAM != 0).then_some(self.0 & Self::PA)
    }

    fn length(self) -> u64 {
        self.0 >> Self::LENGTH_SHIFT & 0xfff
    }

    fn start(self) -> Start {
        Start { inside: self.0 & Self::INSIDE != 0, vector: self.0 & Self::VECTOR != 0 }
    }
}

/// A load or a store to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its physical address.
    pub pa: u64,
    /// Its bytes.
    pub bytes: u64,
    /// A store.
    pub write: bool,
    /// Virtual address of the instruction.
    pub pc: u64,
}

/// What a core's guest and the hypervisor on it have moved below the shared cache.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    guest: CoreTraffic,
    hypervisor: CoreTraffic,
}

/// The caches, the banks and the VM on each core.
#[derive(Debug)]
pub struct Books(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    hierarchy: Hierarchy,
    levels: Box<[Level]>,
    guests: Guests,
    /// Whether a guest has run.
    running: bool,
    /// The owner of each page of RAM.
    pages: Box<[u8]>,
    intrusions: Places,
    marks: Vec<MarkerCounts>,
    device_accesses: u64,
    unseen_blocks: u64,
    console_bytes: u64,
    /// The counts when each of the last bytes had been written.
    at_bytes: VecDeque<ObservedAccesses>,
    /// The traffic of each core since the first guest began.
    moved: Box<[Moved]>,
    /// Where that is written while the machine runs.
    counter_page: Option<&'static CounterPage>,
    /// The counts of each core's guest in each period of its memory budget.
    budgets: Box<[Book]>,
    /// The accesses of VMs.
    recorder: Option<Recorder>,
}

impl Books {
    /// Empty caches. In `counter-page` each core's traffic is counted from the first guest's first
    /// instruction on.
    ///
    /// # Errors
    /// A sentence about what in `setup` does not fit.
    pub fn new(setup: Setup, counter_page: Option<&'static CounterPage>) -> Result<Self, String> {
        let vms = setup.vms.len();
        let vm_exists = |vm: Option<usize>| vm.is_none_or(|vm| vm < vms);
        if vms > 64 || !setup.cores.iter().flatten().all(|&vm| vm < vms) {
            return Err(format!("{vms} VMs: give 1 to 64, and to each core some of them or none"));
        }
        let hierarchy = setup.hierarchy(2 * vms + 2)?;
        let count = usize::try_from(setup.ram_len / PAGE).map_err(|error| error.to_string())?;
        let mut pages = vec![UNOWNED; count];
        for run in &setup.pages {
            let first = run.first.checked_sub(setup.ram).map(|offset| offset / PAGE);
            let place = first.and_then(|first| {
                let (first, count) = (usize::try_from(first).ok()?, run.count.try_into().ok()?);
                pages.get_mut(first..first.checked_add(count)?)
            });
            match place {
                Some(place) if vm_exists(run.vm) => {
                    place.fill(run.vm.map_or(WEIR, |vm| vm as u8));
                }
                _ => return Err(format!("the pages at {:#x} are not in RAM", run.first)),
            }
        }
        let levels = vec![Level::default(); setup.cores.len()].into();
        let moved = vec![Moved::default(); setup.cores.len()].into();
        let budgets = vec![Book::default(); setup.cores.len()].into();
        let (cores, line) = (setup.cores.len(), setup.l2.line);
        let recorder = setup.record.clone().map(|record| Recorder::new(record, vms, cores, line));
        Ok(Self(Mutex::new(Inner {
            guests: Guests::new(&setup),
            setup,
            hierarchy,
            levels,
            running: false,
            pages: pages.into(),
            intrusions: Places::default(),
            marks: Vec::new(),
            device_accesses: 0,
            unseen_blocks: 0,
            console_bytes: 0,
            at_bytes: VecDeque::new(),
            moved,
            counter_page,
            budgets,
            recorder,
        })))
    }

    /// Writes what was recorded until `seen` was seen.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_recordings(&self, seen: &ObservedAccesses) -> io::Result<()> {
        self.inner().recorder.as_ref().map_or(Ok(()), |recorder| recorder.write(&seen.recorded))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Core `core` begins to run `block`.
    pub fn block(&self, core: usize, block: Block) {
        self.inner().block(core, block);
    }

    /// Core `core` goes on in the middle of a block, where it crosses into another page.
    pub fn next_page(&self, core: usize, block: Block) {
        self.inner().fetch(core, block);
    }

    /// Core `core` executes an ERET of the hypervisor.
    pub fn eret(&self, core: usize) {
        if let Some(level) = self.inner().levels.get_mut(core) {
            level.eret();
        }
    }

    /// Core `core` loaded or stored.
    pub fn data(&self, core: usize, data: Data) {
        self.inner().data(core, data);
    }

    /// Core `core` executes marker `number`.
    pub fn mark(&self, core: usize, number: u8) {
        self.inner().mark(core, number);
    }

    /// A core reached a device at physical address `pa`.
    pub fn device(&self, pa: u64, write: bool) {
        let mut inner = self.inner();
        inner.device_accesses += 1;
        if write && inner.setup.uart == Some(pa) {
            inner.console_byte();
        }
    }

    /// The counts between the markers of budgets.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger { cores: self.inner().budgets.iter().map(Book::ledger).collect() }
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> ObservedAccesses {
        self.inner().report()
    }

    /// The counts until the machine had written so many bytes to its console. A runner that ends a
    /// run because of console output does so some time after that output. `None` if the machine has
    /// not written as many bytes, or thousands more.
    #[must_use]
    pub fn report_at(&self, console_bytes: u64) -> Option<ObservedAccesses> {
        let mut inner = self.inner();
        let known = &mut inner.at_bytes;
        let at = known.iter().position(|seen| seen.console_bytes == console_bytes)?;
        known.remove(at)
    }
}

impl Inner {
    /// The owner of an access of `core` to `pa`.
    fn kind(&mut self, core: usize, pa: u64) -> Option<OwnerKind> {
        let level = self.levels.get(core)?;
        let page = pa.checked_sub(self.setup.ram).map(|offset| (offset / PAGE) as usize);
        let owner = match page.and_then(|page| self.pages.get(page)) {
            Some(&WEIR) => OwnerKind::Weir,
            None | Some(&UNOWNED) => OwnerKind::Unowned,
            Some(&vm) => OwnerKind::WeirFor(vm.into()),
        };
        if level.is_el2() {
            return Some(owner);
        }
        self.guests.access(core, owner.vm()).map(OwnerKind::Vm)
    }

    /// The number that the model knows it by.
    fn number(&self, kind: OwnerKind) -> Owner {
        let vms = self.setup.vms.len();
        Owner(match kind {
            OwnerKind::Vm(vm) => vm,
            OwnerKind::Weir => vms,
            OwnerKind::WeirFor(vm) => vms + 1 + vm,
            OwnerKind::Unowned => 2 * vms + 1,
        } as u8)
    }

    fn all_kinds(&self) -> impl Iterator<Item = OwnerKind> + use<> {
        let vms = 0..self.setup.vms.len();
        vms.clone()
            .map(OwnerKind::Vm)
            .chain([OwnerKind::Weir])
            .chain(vms.map(OwnerKind::WeirFor))
            .chain([OwnerKind::Unowned])
    }

    fn block(&mut self, core: usize, block: Block) {
        let Some(level) = self.levels.get_mut(core) else { return };
        level.block(block.start());
        // An interrupt that is pending at the ERET to the guest comes before its first instruction.
        if !self.running && !level.is_boot() {
            self.running = true;
            self.forget();
            if let Some(counter_page) = self.counter_page {
                counter_page.begin();
            }
        }
        self.fetch(core, block);
    }

    fn fetch(&mut self, core: usize, block: Block) {
        if let Some(recorder) = &mut self.recorder
            && self.levels.get(core).is_some_and(|level| !level.is_el2())
        {
            recorder.executes(core, block.length().div_ceil(4));
        }
        let Some(pa) = block.pa() else {
            self.unseen_blocks += 1;
            return;
        };
        self.access(core, Access::Fetch, Data { pa, bytes: block.length(), write: false, pc: 0 });
    }

    fn data(&mut self, core: usize, data: Data) {
        let access = if data.write { Access::Write } else { Access::Read };
        self.access(core, access, data);
        if let Some(recorder) = &mut self.recorder
            && let Some(false) = self.levels.get(core).map(|level| level.is_el2())
            && let Some(vm) = self.guests.current(core)
        {
            let bytes = data.bytes.min(PAGE - data.pa % PAGE);
            recorder.access(vm, core, data.pa, bytes, data.write);
        }
    }

    fn access(&mut self, core: usize, access: Access, data: Data) {
        let Some(kind) = self.kind(core, data.pa) else { return };
        let owner = self.number(kind);
        let at_el2 = !matches!(kind, OwnerKind::Vm(_));
        let before = if at_el2 { self.intruded(kind) } else { 0 };
        let bytes = data.bytes.min(PAGE - data.pa % PAGE);
        let traffic = self.hierarchy.traffic()[core];
        let served = self.hierarchy.access(core, owner, access, Pa(data.pa), bytes);
        if self.running && served != Served::L1 {
            self.count_moved(core, at_el2, traffic);
        }
        if at_el2 && served != Served::L1 {
            let evictions = self.intruded(kind) - before;
            if evictions > 0 {
                self.intrusions.add(data.pc, data.pa & !(PAGE - 1), evictions);
            }
        }
    }

    /// Counts what core `core` has moved since its traffic was `before`.
    fn count_moved(&mut self, core: usize, at_el2: bool, before: CoreTraffic) {
        let now = self.hierarchy.traffic()[core];
        if now == before {
            return;
        }
        let moved = &mut self.moved[core];
        let (sum, refills, write_backs) = if at_el2 {
            (
                &mut moved.hypervisor,
                CounterKind::HypervisorRefills,
                CounterKind::HypervisorWriteBacks,
            )
        } else {
            (&mut moved.guest, CounterKind::Refills, CounterKind::WriteBacks)
        };
        sum.refills += now.refills - before.refills;
        sum.write_backs += now.write_backs - before.write_backs;
        if let Some(counter_page) = self.counter_page {
            counter_page.set(core, refills, sum.refills);
            counter_page.set(core, write_backs, sum.write_backs);
        }
    }

    fn console_byte(&mut self) {
        self.console_bytes += 1;
        if self.at_bytes.len() == BYTES {
            self.at_bytes.pop_front();
        }
        let seen = self.report();
        self.at_bytes.push_back(seen);
    }

    fn mark(&mut self, core: usize, number: u8) {
        let in_guest = self.levels.get(core).is_some_and(|level| !level.is_el2());
        if path::is_hypervisors(number) {
            if let (false, Some(mark), Some(book)) =
                (in_guest, BudgetMark::of(number), self.budgets.get_mut(core))
            {
                let CoreTraffic { refills, write_backs } = self.moved[core].guest;
                book.mark(mark, Done { refills, write_backs, ..Done::default() });
            }
            return;
        }
        let vm = self.guests.current(core).filter(|_| in_guest);
        let Some(vm) = vm.filter(|_| self.marks.len() < MARKS) else { return };
        let l1s = || (0..self.setup.cores.len()).map(|core| self.hierarchy.l1d(core));
        let mark = MarkerCounts {
            vm,
            number,
            accesses: l1s().map(|l1| l1.accesses[vm]).sum(),
            l1_misses: l1s().map(|l1| l1.misses[vm]).sum(),
            l2_misses: self.hierarchy.l2().map(|l2| l2.misses[vm]).sum(),
        };
        self.marks.push(mark);
    }

    /// Lines in the L2 that VMs lost to `kind`, without those of the VM that it works for.
    fn intruded(&self, kind: OwnerKind) -> u64 {
        let by = self.number(kind);
        let lost = |l2: &weir_memory::CacheStats| {
            let of = (0..self.setup.vms.len()).filter(|&vm| kind.vm() != Some(vm));
            of.map(|vm| l2.evictions.get(by, Owner(vm as u8))).sum::<u64>()
        };
        self.hierarchy.l2().map(lost).sum()
    }

    /// Forgets what was counted, but not what lies in caches and rows.
    fn forget(&mut self) {
        self.hierarchy.clear_stats();
        self.intrusions = Places::default();
        (self.device_accesses, self.unseen_blocks) = (0, 0);
    }

    fn report(&mut self) -> ObservedAccesses {
        // What the boot did is not counted.
        if !self.running {
            self.forget();
        }
        let owners: Vec<OwnerKind> = self.all_kinds().collect();
        let counts = |matrix: &Matrix| -> CountMatrix {
            let row = |&by: &OwnerKind| {
                let of = owners.iter().map(|&of| matrix.get(self.number(by), self.number(of)));
                of.collect()
            };
            owners.iter().map(row).collect()
        };
        let mut l1 = Matrix::new(owners.len());
        let cores = 0..self.setup.cores.len();
        cores.clone().for_each(|core| l1.merge(&self.hierarchy.l1d(core).evictions));
        let l2 = self.hierarchy.l2().next();
        let banks = self.hierarchy.banks();
        let none = Matrix::new(owners.len());
        let count = |&kind: &OwnerKind| {
            let owner = usize::from(self.number(kind).0);
            let name = |vm: usize| &self.setup.vms[vm];
            let sum = |of: &dyn Fn(usize) -> u64| cores.clone().map(of).sum();
            let l1i = |core| self.hierarchy.l1i(core);
            OwnerCounts {
                name: match kind {
                    OwnerKind::Vm(vm) => name(vm).clone(),
                    OwnerKind::Weir => "weir".to_owned(),
                    OwnerKind::WeirFor(vm) => format!("weir for {}", name(vm)),
                    OwnerKind::Unowned => "weir, elsewhere".to_owned(),
                },
                kind,
                accesses: sum(&|core| self.hierarchy.l1d(core).accesses[owner]),
                l1_misses: sum(&|core| self.hierarchy.l1d(core).misses[owner]),
                fetches: sum(&|core| l1i(core).map_or(0, |l1i| l1i.accesses[owner])),
                l1i_misses: sum(&|core| l1i(core).map_or(0, |l1i| l1i.misses[owner])),
                l2_accesses: l2.map_or(0, |l2| l2.accesses[owner]),
                l2_misses: l2.map_or(0, |l2| l2.misses[owner]),
                dram_accesses: banks.map_or(0, |banks| banks.accesses[owner]),
                row_hits: banks.map_or(0, |banks| banks.row_hits[owner]),
            }
        };
        let (intrusions, places_left_out, evictions_left_out) = self.intrusions.report();
        ObservedAccesses {
            started: self.running,
            owners: owners.iter().map(count).collect(),
            l1_evictions: counts(&l1),
            l2_evictions: counts(l2.map_or(&none, |l2| &l2.evictions)),
            rows_closed: counts(banks.map_or(&none, |banks| &banks.closed)),
            intrusions,
            places_left_out,
            evictions_left_out,
            marks: self.marks.clone(),
            device_accesses: self.device_accesses,
            unseen_blocks: self.unseen_blocks,
            console_bytes: self.console_bytes,
            recorded: self.recorder.as_ref().map(Recorder::report).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
