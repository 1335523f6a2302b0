//! The memory budget of a vCPU: counts the vCPU's memory accesses, asks the regulator
//! (`weir_budget`), throttles the vCPU when the budget is spent, and wakes it when the budget is
//! replenished.
//!
//! The counts come from the core's PMU, which interrupts at a limit, or from the counter page,
//! which QEMU's plug-in writes and EL2 polls. EL2 polls it before the rest of the budget can be
//! spent, but not more often than the key `poll` allows.

use crate::{
    arch::{
        gic::PhysicalLine,
        mark,
        pmu::{kept::Pmu, pmu_intid},
        timer,
    },
    mail,
    notice::{self, Text},
    optional::Optional,
    system,
    trace::{self, RecordKind},
    vm::{self, CoreLocal, VcpuRef, Vm},
};
use core::{cell::UnsafeCell, sync::atomic::Ordering};
use weir_abi::{Features, MAX_CORES, MAX_VMS, regulation};
use weir_budget::{BudgetVerdict, GroupBudget, Periods, Regulate, Regulator};
pub use weir_budget::{Counts, Event};
use weir_trace::counter_page::CounterPage;
use weir_trace::record::{Accesses, MOST_OTHER};
use weir_units::{CoreId, Nanos};

/// The counter page. QEMU's plug-in finds it by this symbol name and writes to it.
#[unsafe(export_name = "weir_counter_page")]
static COUNTER_PAGE: CounterPage = CounterPage::new();

/// Returns the counter page. `black_box` is needed because the compiler sees no store to the page
/// and would treat it as a constant.
#[inline(always)]
fn counter_page() -> &'static CounterPage {
    core::hint::black_box(&COUNTER_PAGE)
}

/// Returns the counts of core `core` in the counter page; they include all VMs that ran on the
/// core.
#[inline(always)]
fn counted_on(core: CoreId) -> Counts {
    let (reads, writes) = counter_page().counts(core.index() % MAX_CORES);
    Counts { reads, writes }
}

/// The budget that the VMs under MemGuard share: one pool for all of them.
static MEMGUARD: GroupBudget = GroupBudget::new();

/// A core's access to the budget of one of its vCPUs, if the vCPU has one.
pub type Handle = Optional<&'static mut Budget, { Features::BUDGETS.is_built() }>;

/// The budgets of each core's vCPUs. They are not part of the per-core data, which must stay small
/// so that one instruction reaches each of its fields.
static BUDGETS: [[CoreLocal<Option<Budget>>; MAX_VMS]; MAX_CORES] =
    [const { [const { CoreLocal(UnsafeCell::new(None)) }; MAX_VMS] }; MAX_CORES];

/// Starts the budget of the vCPU at `vcpu_ref`, number `place` on core `core`; returns none if the
/// vCPU has no memory budget. Called on that core, once for each place.
pub fn start(core: CoreId, place: usize, vcpu_ref: &VcpuRef) -> Handle {
    if !Features::BUDGETS.is_built() {
        return Handle::NONE;
    }
    // SAFETY: each core calls this once for each place, and no other code accesses its elements.
    let budget = unsafe { &mut *BUDGETS[core.index() % MAX_CORES][place % MAX_VMS].0.get() };
    *budget = Budget::start(core, vcpu_ref);
    Handle::new(budget.as_mut())
}

/// The largest budget that a record can hold. A larger budget, or an unlimited one, is recorded as
/// this value.
const MOST_RECORDED: Counts = Counts { reads: MOST_OTHER, writes: MOST_OTHER };

/// Markers for QEMU's plug-in: a period begins; a budget is spent; a budget was polled and the vCPU
/// continues.
const MARK_REPLENISH: u32 = 32;
const MARK_OVERFLOW: u32 = 33;
const MARK_POLL: u32 = 34;

/// The source of the counts.
#[derive(Clone, Copy)]
enum Source {
    Pmu(Pmu),
    CounterPage {
        /// Shortest time between two polls, in nanoseconds.
        poll: u64,
        /// Shortest time of an instruction, in nanoseconds.
        access: u64,
    },
}

/// The memory budget of a vCPU.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Budget {
    source: Source,
    regulator: Regulator,
    group: &'static GroupBudget,
    periods: Periods,
    /// Time at which the next period begins, in ns.
    boundary: u64,
    /// Time at which the regulator must be asked next, in ns.
    pub deadline: u64,
    /// Whether the vCPU may run.
    runs: bool,
    /// Whether the vCPU has nothing to run.
    off: bool,
    /// Whether EL2 loads the VM's image and charges the accesses to this budget.
    loads: bool,
    /// Whether the regulator is a plain one and the PMU is its source.
    plain: bool,
    /// Whether the fast steps can be tried: the regulator is plain, and the vCPU is on the core and
    /// not off.
    quick: bool,
    /// The counts when this period began, and the counts at which the vCPU must stop.
    begun: Counts,
    limit: Counts,
    /// The budget of the VM, and the number of changes to it that `full` includes.
    full: Counts,
    changes: u32,
    /// Whether there are separate budgets for reads and writes.
    two: bool,
    /// The counts at the moment when another vCPU got the core; none while this vCPU has it.
    away: Option<Counts>,
    /// The accesses that the counter page counted for other vCPUs on this core, minus the accesses
    /// that EL2 made for this vCPU; modulo 2^64.
    others: Counts,
    /// Number of polls of the counter page in this period, and the largest delay of a poll, in ns.
    polls: u64,
    late: u64,
}

impl Budget {
    /// Starts the budget of the vCPU at `vcpu_ref`, which counts from now on; returns none if the
    /// VM has no memory budget. Called on the vCPU's core.
    fn start(core: CoreId, vcpu_ref: &VcpuRef) -> Option<Self> {
        let system = system::get();
        let view = vcpu_ref.vm.view();
        let setting = system.setting(view.index, vcpu_ref.vcpu)?;
        let its = &view.vm.regulation;
        let source = if its.source == regulation::PMU {
            if let Some(event) = Pmu::missing(its.events) {
                notice::refuse(&[
                    b"the PMU of core ",
                    Text::number(core.0.into(), 10).as_bytes(),
                    b" does not count event 0x",
                    Text::number(event.into(), 16).as_bytes(),
                    b", by which the memory budget of VM ",
                    view.name(),
                    b" is enforced: give it another `event`",
                ]);
            }
            let pmu = Pmu::start(its.events);
            PhysicalLine::new(pmu_intid(core), core).claim(core);
            Source::Pmu(pmu)
        } else {
            Source::CounterPage { poll: its.poll_ns, access: its.access_ns }
        };
        let regulator = Regulator::new(&setting);
        let mut budget = Self {
            plain: matches!(source, Source::Pmu(_)) && regulator.is_plain(),
            quick: false,
            source,
            regulator,
            group: group(vcpu_ref),
            periods: setting.periods(),
            boundary: 0,
            deadline: 0,
            runs: true,
            off: false,
            loads: false,
            begun: Counts::ZERO,
            limit: Counts::ZERO,
            full: Counts { reads: its.reads, writes: its.writes },
            changes: 0,
            two: its.writes != u64::MAX,
            away: None,
            others: Counts::ZERO,
            polls: 0,
            late: 0,
        };
        budget.step(vcpu_ref, core, timer::now_ns(), Event::Start);
        // The vCPU counts as off until the VM's first boot begins.
        budget.off = true;
        Some(budget)
    }

    /// Continues the budget: its vCPU is about to run on a core that it shares.
    pub fn resume(&mut self, vcpu_ref: &VcpuRef, core: CoreId) {
        self.off = false;
        self.step(vcpu_ref, core, timer::now_ns(), Event::Count);
    }

    /// Notes that EL2 begins to load the VM's image.
    pub fn begin_load(&mut self, vcpu_ref: &VcpuRef, core: CoreId) {
        (self.off, self.loads) = (false, true);
        self.step(vcpu_ref, core, timer::now_ns(), Event::Descheduled);
    }

    /// Returns whether the vCPU has nothing to run.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Returns whether EL2 loads the VM's image and charges the accesses to this budget.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.loads
    }

    /// Charges `accesses`, the most that EL2 made for the VM, which the source does not count.
    pub fn charge(&mut self, vcpu_ref: &VcpuRef, core: CoreId, accesses: Counts) {
        if let Some(away) = &mut self.away {
            *away = away.plus(accesses);
        }
        match &mut self.source {
            Source::Pmu(pmu) => pmu.charge(accesses),
            Source::CounterPage { .. } => self.others = self.others.wrapping_minus(accesses),
        }
        self.step(vcpu_ref, core, timer::now_ns(), Event::Descheduled);
    }

    /// Notes that the vCPU, which does not have the core, wants to run from now on.
    pub fn come_on(&mut self, vcpu_ref: &VcpuRef, core: CoreId) {
        (self.off, self.loads) = (false, false);
        self.step(vcpu_ref, core, timer::now_ns(), Event::Descheduled);
    }

    #[inline(always)]
    fn counts(&mut self, core: CoreId) -> Counts {
        if let Some(counts) = self.away {
            return counts;
        }
        match &mut self.source {
            Source::Pmu(pmu) => pmu.counts(),
            Source::CounterPage { .. } => counted_on(core).wrapping_minus(self.others),
        }
    }

    /// Stops counting for this vCPU, because another vCPU gets the core.
    pub fn leave(&mut self, core: CoreId) {
        let counts = self.counts(core);
        if let Source::Pmu(_) = self.source {
            Pmu::suspend();
        }
        self.away = Some(counts);
        self.quick = false;
    }

    /// Resumes counting for this vCPU, which gets the core again.
    pub fn enter(&mut self, core: CoreId) {
        let Some(counts) = self.away.take() else { return };
        match &mut self.source {
            Source::Pmu(pmu) => {
                pmu.resume();
                let limit = if self.runs { self.limit } else { Counts::NEVER };
                pmu.interrupt_at(limit);
            }
            Source::CounterPage { .. } => self.others = counted_on(core).wrapping_minus(counts),
        }
        // A poll that became due while another vCPU had the core does not count as late.
        self.deadline = u64::MAX;
    }

    /// Does the most frequent kind of step, the start of a period at `now`, after which the vCPU
    /// may run. Returns false if [`Self::step`] is needed; then only the counts have been updated.
    #[inline(always)]
    pub fn begin_quickly(&mut self, vcpu_ref: &VcpuRef, now: u64) -> bool {
        let Source::Pmu(pmu) = &mut self.source else { return false };
        // Acquire: see `follow`.
        if !self.quick || vcpu_ref.vm.budget.changes.load(Ordering::Acquire) != self.changes {
            return false;
        }
        let reads = pmu.reads();
        let next = self.regulator.next_period(Nanos(now), reads);
        let Some((limit, end)) = next else { return false };
        let (used, budget) = (reads.wrapping_sub(self.begun.reads), limit.wrapping_sub(reads));
        pmu.interrupt_in_reads(budget);
        (self.boundary, self.deadline) = (end.0, end.0);
        (self.begun.reads, self.limit.reads) = (reads, limit);
        mark::<MARK_REPLENISH>();
        record_reads(vcpu_ref, RecordKind::Replenish, used, budget);
        if !self.runs {
            self.runs = true;
            record_reads(vcpu_ref, RecordKind::Wake, 0, budget);
        }
        true
    }

    /// Stops the vCPU at `now` if its budget is spent and nothing else is due; returns whether it
    /// did.
    #[inline(always)]
    pub fn stop_quickly(&mut self, vcpu_ref: &VcpuRef, now: u64) -> bool {
        let Source::Pmu(pmu) = &mut self.source else { return false };
        if !self.quick || !self.runs || now >= self.boundary {
            return false;
        }
        let reads = pmu.reads();
        if reads < self.limit.reads {
            return false;
        }
        let (limit, begun) = (self.limit.reads, self.begun.reads);
        self.runs = false;
        Pmu::forget();
        mark::<MARK_OVERFLOW>();
        let used = reads.wrapping_sub(begun);
        record_reads(vcpu_ref, RecordKind::Throttle, used, limit.saturating_sub(begun));
        true
    }

    /// Asks the regulator, and arranges for it to be asked again in time.
    #[inline(never)]
    pub fn step(&mut self, vcpu_ref: &VcpuRef, core: CoreId, now: u64, event: Event) {
        let event = if self.off { Event::Stop } else { event };
        let counts = self.counts(core);
        if let Source::CounterPage { .. } = self.source
            && event == Event::Count
            && self.runs
        {
            self.polls += 1;
            self.late = self.late.max(now.saturating_sub(self.deadline));
        }
        if now >= self.boundary {
            self.follow(vcpu_ref);
        }
        let BudgetVerdict { run, limit, wake } =
            self.regulator.step(self.group, Nanos(now), counts, event);
        let used = counts.minus(self.begun);
        let held = self.limit;
        if run {
            self.limit = limit;
        }
        if now >= self.boundary {
            let next = self.boundary.saturating_add(self.periods.period().0);
            // At the start, and after periods that passed without a step, the next boundary needs a
            // division.
            self.boundary = if self.boundary != 0 && now < next {
                next
            } else {
                self.periods.next(Nanos(now)).0
            };
            self.begun = counts;
            mark::<MARK_REPLENISH>();
            if self.polls != 0 {
                let tag = vcpu_ref.origin.tag(RecordKind::Polls, 0);
                trace::push(vcpu_ref.ring, tag, self.polls, self.late.min(MOST_OTHER));
                (self.polls, self.late) = (0, 0);
            }
            self.record(vcpu_ref, RecordKind::Replenish, used);
        } else if run {
            if event != Event::Stop && !self.loads {
                mark::<MARK_POLL>();
            }
            // Only polls that change something are recorded: a record in each microsecond would
            // overwrite the ring before the host has read it.
            if limit != held || !self.runs {
                self.record(vcpu_ref, RecordKind::Draw, used);
            }
        } else if self.runs && event != Event::Stop {
            mark::<MARK_OVERFLOW>();
            self.record(vcpu_ref, RecordKind::Throttle, used);
        }
        if run && !self.runs {
            self.record(vcpu_ref, RecordKind::Wake, Counts::ZERO);
        }
        self.runs = run;
        self.deadline = self.boundary;
        match &mut self.source {
            Source::Pmu(_) if self.away.is_some() => {}
            Source::Pmu(pmu) if run => pmu.interrupt_at(limit),
            // While the vCPU waits nothing is counted, so no further interrupt can come; the one
            // that came is cleared.
            Source::Pmu(_) => Pmu::forget(),
            // A vCPU that is off counts nothing. Its next poll is at the period boundary, or when
            // it is on again.
            Source::CounterPage { poll, access } if run && !self.off && !self.loads => {
                let left = |limit: u64, count: u64| limit.saturating_sub(count);
                let left = left(limit.reads, counts.reads).min(left(limit.writes, counts.writes));
                let wait = regulation::least_time(left, *access).max(*poll);
                self.deadline = self.deadline.min(now.saturating_add(wait));
            }
            Source::CounterPage { .. } => {}
        }
        self.quick = self.plain && !self.off && !self.loads && self.away.is_none();
        if wake != 0 {
            wake_members(core, self.group, wake);
        }
    }

    /// Records an event of the budget: how much of it is `used`, and its size, which is 0 in a
    /// period in which a debt leaves nothing.
    #[inline(never)]
    fn record(&self, vcpu_ref: &VcpuRef, kind: RecordKind, used: Counts) {
        let budget = self.limit.minus(self.begun).least(MOST_RECORDED);
        let all = if self.two { Accesses::Reads } else { Accesses::All };
        trace::push(vcpu_ref.ring, vcpu_ref.origin.tag(kind, all as u32), used.reads, budget.reads);
        if self.two {
            record_writes(vcpu_ref, kind, used.writes, budget.writes);
        }
    }

    /// Returns whether a source counts the accesses of the vCPU, which has run; a vCPU that is off
    /// or loading needs none.
    #[inline(always)]
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.off
            || self.loads
            || matches!(self.source, Source::Pmu(_))
            || counter_page().is_counting()
    }

    /// Takes over a new budget of the VM. Called at the start of a period; the core is not
    /// interrupted earlier for a new budget.
    #[inline(always)]
    fn follow(&mut self, vcpu_ref: &VcpuRef) {
        // Acquire: makes the limits that `set_budget` stored visible before its change is counted.
        // If `set_budget` stores other limits at the same time, this may read half of them; the
        // next boundary reads the rest.
        let changes = vcpu_ref.vm.budget.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.take_budget(vcpu_ref);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_budget(&mut self, vcpu_ref: &VcpuRef) {
        let its = &vcpu_ref.vm.view().vm.regulation;
        let limits = &vcpu_ref.vm.budget.limits;
        let [reads, writes] = limits.each_ref().map(|limit| limit.load(Ordering::Relaxed));
        let limited = |limited: u64, budget| if limited == u64::MAX { limited } else { budget };
        let budget =
            Counts { reads: limited(its.reads, reads), writes: limited(its.writes, writes) };
        // The regulator refuses a budget that leaves this vCPU nothing; the old budget then stays.
        if self.regulator.set_budget(budget).is_ok() {
            let tag = vcpu_ref.origin.tag(RecordKind::BudgetChanged, Accesses::All as u32);
            let before = core::mem::replace(&mut self.full, budget).least(MOST_RECORDED);
            trace::push(vcpu_ref.ring, tag, budget.reads, before.reads);
            if self.two {
                record_writes(vcpu_ref, RecordKind::BudgetChanged, budget.writes, before.writes);
            }
        }
    }

    /// Returns whether the vCPU must wait for its next budget.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.runs
    }

    /// Notes that the vCPU, which keeps the core, is about to run again (`on`), or goes off or
    /// waits.
    pub fn note(&mut self, vcpu_ref: &VcpuRef, core: CoreId, on: bool) {
        let event = if on { Event::Count } else { Event::Stop };
        (self.off, self.loads) = (!on, false);
        self.step(vcpu_ref, core, timer::now_ns(), event);
    }
}

/// Records an event of a budget of reads.
#[inline(always)]
fn record_reads(vcpu_ref: &VcpuRef, kind: RecordKind, used: u64, budget: u64) {
    let tag = vcpu_ref.origin.tag(kind, Accesses::All as u32);
    trace::push(vcpu_ref.ring, tag, used, budget.min(MOST_OTHER));
}

#[cold]
fn record_writes(vcpu_ref: &VcpuRef, kind: RecordKind, used: u64, budget: u64) {
    trace::push(vcpu_ref.ring, vcpu_ref.origin.tag(kind, Accesses::Writes as u32), used, budget);
}

/// Returns the group budget of a vCPU's regulator: see `weir_budget::RegulatorKind`.
fn group(vcpu_ref: &VcpuRef) -> &'static GroupBudget {
    let its = &vcpu_ref.vm.view().vm.regulation;
    match its.kind {
        regulation::MEMGUARD => &MEMGUARD,
        regulation::COMPENSATION => vm::at(its.critical.into())
            .map_or(&vcpu_ref.vm.budget.group, |critical| &critical.budget.group),
        _ => &vcpu_ref.vm.budget.group,
    }
}

/// Interrupts the other cores that have a suspended vCPU of the group `with` that the regulator
/// names in `wake`. The regulator names each vCPU at most once per period
/// (`weir_budget::BudgetVerdict::wake`).
#[cold]
fn wake_members(core: CoreId, with: &'static GroupBudget, wake: u32) {
    let is_named = |vcpu_ref: &VcpuRef| {
        let view = vcpu_ref.vm.view();
        let setting = system::get().setting(view.index, vcpu_ref.vcpu);
        setting.is_some_and(|setting| setting.member_bit() & wake != 0)
            && core::ptr::eq(group(vcpu_ref), with)
    };
    for other in (0..MAX_CORES as u8).map(CoreId).filter(|other| *other != core) {
        if vm::vcpus_of_core(other).any(is_named) {
            mail::send(other, mail::BUDGET);
        }
    }
}

/// Sets the budget of VM `target` to `budget` from its next period on, if `setter` was granted the
/// right to set this value. No other core is interrupted: each core of the VM reads the budget at
/// its next period boundary. Returns whether the budget was set.
#[must_use]
pub fn set_budget(setter: &Vm, target: u64, budget: Counts) -> bool {
    if !Features::BUDGETS.is_built() {
        return false;
    }
    let Some(target) = usize::try_from(target).ok().and_then(|target| vm::at(target)) else {
        return false;
    };
    let its = &target.view().vm.regulation;
    let limits = its.least..=its.most;
    let granted = its.is_on() && usize::from(its.setter) == setter.index();
    let within = |limited: u64, wish| limited == u64::MAX || limits.contains(&wish);
    if !granted || !within(its.reads, budget.reads) || !within(its.writes, budget.writes) {
        return false;
    }
    // Two concurrent setters are two vCPUs of the same VM, so the VM may set each mixture of their
    // values.
    target.budget.limits[0].store(budget.reads, Ordering::Relaxed);
    target.budget.limits[1].store(budget.writes, Ordering::Relaxed);
    // Release: see `Budget::follow`.
    target.budget.changes.fetch_add(1, Ordering::Release);
    true
}
