//! The cores: what each keeps to itself, and how one tells another something.

use crate::{
    arch::{gic, relax, sysreg, timer},
    console::{self, Wire},
    meter::Meter,
    trace::{self, Ring, Who},
    vm::{Counts, Vm, share::Share},
};
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};
use weir_model::packed::MAX_CORES;
use weir_trace::wire::ExitCause;
use weir_vdev::{pmu::Pmu, smccc::Mitigations};

/// Message: fold the list registers for another vCPU that reads the distributor.
pub const FOLD: u32 = 1 << 0;
/// Message: stop the vCPU, its VM's life ends.
pub const STOP: u32 = 1 << 1;
/// Message: turn the vCPU on.
pub const START: u32 = 1 << 2;
/// Message: a life of the VM whose first vCPU is here has ended.
pub const ENDED: u32 = 1 << 3;
/// Message: a person typed something for this VM.
pub const INPUT: u32 = 1 << 4;
/// Message: the VM's output has room again.
pub const ROOM: u32 = 1 << 5;
/// Message: bytes wait for the UART; to the console core.
pub const CONSOLE: u32 = 1 << 6;
/// Message: the system ends; to the console core.
pub const SHUTDOWN: u32 = 1 << 7;
/// Message: memory budget has come free; ask again.
pub const BUDGET: u32 = 1 << 8;
/// Message: hand the active devices over, if they are to go elsewhere.
pub const HAND_OVER: u32 = 1 << 10;

/// Message: virtual time stands still; end a guest that takes exceptions and executes nothing.
pub const STANDSTILL: u32 = 1 << 11;

static MAIL: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Core `core`'s mailbox. Masked, so that no number can reach beyond; cores are below [`MAX_CORES`] anyway (`packed`).
fn mail(core: usize) -> &'static AtomicU32 {
    &MAIL[core % MAX_CORES]
}

/// Puts `message` into core `core`'s mailbox and makes it look.
pub fn tell(core: usize, message: u32) {
    // Release: what the message speaks of was written before; the receiver's `take` acquires. A message that is already there
    // has its SGI under way or not yet looked at, and needs no second one.
    if mail(core).fetch_or(message, Ordering::Release) & message != message {
        gic::send(core, gic::SGI_MESSAGE);
    }
}

/// Puts `message` into the mailbox of every core of the system.
pub fn tell_all(message: u32) {
    let cores = crate::boot::system().header.cores as usize;
    for core in 0..cores.min(MAX_CORES) {
        tell(core, message);
    }
}

/// Takes those of `messages` that are in core `core`'s mailbox.
#[must_use]
pub fn take(core: usize, messages: u32) -> u32 {
    // Acquire: see `tell`.
    mail(core).fetch_and(!messages, Ordering::Acquire) & messages
}

/// Whether nothing is in core `core`'s mailbox. What is put there later comes with an SGI.
#[inline(always)]
#[must_use]
pub fn is_quiet(core: usize) -> bool {
    // Relaxed: who finds something takes it, and acquires then.
    mail(core).load(Ordering::Relaxed) == 0
}

/// Whether one of `messages` is in core `core`'s mailbox. One that is put there later comes with an SGI.
#[inline(always)]
#[must_use]
pub fn is_told(core: usize, messages: u32) -> bool {
    // Relaxed: see `is_quiet`.
    mail(core).load(Ordering::Relaxed) & messages != 0
}

/// What a core keeps to itself.
pub struct Core {
    /// Its number, as the platform counts.
    pub index: usize,
    /// The vCPU that has it for itself; none on a core that several share, or that none has.
    pub seat: Option<&'static Seat>,
    /// The vCPUs that share it, and its schedule.
    pub share: Option<&'static mut Share>,
    /// An interrupt that was acknowledged on the fast path and is handled on the slow one.
    pub acknowledged: u64,
    /// The board's UART, on the console core.
    pub wire: Option<Wire>,
    /// What the firmware offers against speculation attacks.
    pub mitigations: Mitigations,
    /// What its own timer is for.
    pub ticks: Ticks,
    /// A report of the counters is due.
    pub report: bool,
    /// Counts what the vCPU that it runs takes of a memory budget.
    pub meter: Option<Meter>,
    /// The vCPU's own PMU, if it was granted one.
    pub pmu: Option<Pmu>,
    /// The interrupt of the PMU where only the meter uses that.
    pub meter_intid: u32,
}

impl Core {
    /// The vCPU whose guest was interrupted, or that EL2 does something for.
    #[must_use]
    pub fn current(&self) -> Option<&'static Seat> {
        self.seat.or_else(|| self.share.as_deref().and_then(Share::current))
    }

    /// Gives the other cores QEMU's turn, at a tick, and plans the next; whether a report is due. A core with a meter loses its turn whenever it arms its timer for a look or a
    /// period, as nothing is due earlier; it gets it anew until it had as long as this core has between two ticks.
    #[cold]
    #[inline(never)]
    pub fn give_turn(&mut self) -> bool {
        let now = clock_ns();
        // Relaxed: only the host reads it. Masked, so that no number can reach beyond.
        PROGRESS[self.index % MAX_CORES].store(now, Ordering::Relaxed);
        console::tell_standstill();
        relax();
        let lent_ns = LENT_NS.load(Ordering::Relaxed);
        if lent_ns > 0 && self.meter.is_none() && self.current().is_some() {
            lend(now, lent_ns);
        }
        self.report |= self.ticks.tick(clock_ns());
        self.report
    }

    /// Arms its own timer for what is due first.
    #[inline(always)]
    pub fn arm(&self) {
        self.arm_before(u64::MAX);
    }

    /// The same, or for `due`.
    #[inline(always)]
    pub fn arm_before(&self, due: u64) {
        let meter = self.meter.as_ref().map_or(u64::MAX, |meter| meter.deadline);
        timer::fire_at(meter.min(self.ticks.next).min(due));
    }
}

/// The time of each core's last tick. The host sees by them whether virtual time goes on.
#[unsafe(export_name = "weir_progress")]
static PROGRESS: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];

/// Nanoseconds that others get of a turn that a tick ends, however often they lose it; 0 unless a VM has a memory budget. Beside the cores'
/// own, whose meters' paths it is no part of.
pub static LENT_NS: AtomicU64 = AtomicU64::new(0);

/// A turn that is given away and comes back this soon, in ns, was used by nobody.
const UNUSED_NS: u64 = 100;

/// What a core's own timer is for, beside its meter: reports, on the console core, and under QEMU's instruction counting to end a
/// core's turn, as a turn lasts until the next deadline of any timer.
pub struct Ticks {
    /// Nanoseconds from one tick to the next; 0 for none.
    pub interval_ns: u64,
    /// When the next tick is due; `u64::MAX` for never.
    pub next: u64,
    /// Nanoseconds from one report of the counters to the next; 0 for none.
    pub report_ns: u64,
    /// When the last report was due.
    pub reported: u64,
}

impl Ticks {
    /// Plans the first tick.
    pub fn start(&mut self, now: u64) {
        self.next = if self.interval_ns > 0 { now + self.interval_ns } else { u64::MAX };
    }

    /// Whether the counters are to be reported at `now`, when a tick was due.
    #[inline(always)]
    pub fn tick(&mut self, now: u64) -> bool {
        self.next = now + self.interval_ns;
        let due = self.report_ns > 0 && now.saturating_sub(self.reported) >= self.report_ns;
        if due {
            self.reported = now - now % self.report_ns;
        }
        due
    }
}

/// A vCPU's place on a core.
#[derive(Clone, Copy)]
pub struct Seat {
    /// The VM.
    pub vm: &'static Vm,
    /// The vCPU's number in it.
    pub vcpu: usize,
    /// Where its exits are counted.
    pub counts: &'static Counts,
    /// Where its core records what happens to it.
    pub ring: &'static Ring,
    /// Who it is in there.
    pub who: Who,
}

impl Seat {
    /// Records something that befell it, off the paths that a guest feels.
    #[inline(never)]
    pub fn record(&self, kind: trace::Kind, detail: u32, count: u64, other: u64) {
        trace::push(self.ring, self.who.tag(kind, detail), count, other);
    }

    /// Counts a synchronous exit, and records it.
    pub fn exit(&self, cause: ExitCause) {
        self.counts.exit(cause);
        let syndrome = sysreg::esr_el2::read();
        trace::push(self.ring, self.who.tag(trace::Kind::Exit, cause as u32), syndrome, 0);
    }

    /// Counts an exit by interrupt `intid`, and records the interrupt.
    #[inline(always)]
    pub fn interrupt(&self, cause: ExitCause, intid: u32) {
        self.counts.exit(cause);
        trace::push(self.ring, self.who.tag(trace::Kind::Interrupt, intid), 0, 0);
    }
}

/// The time, read in one place: the paths that a meter's figures are of keep what was inlined into them.
#[inline(never)]
fn clock_ns() -> u64 {
    timer::now_ns()
}

/// Gives the turn away until others have had it for `lent_ns` from `now` on, or do not use it.
fn lend(now: u64, lent_ns: u64) {
    let (mut unused, mut before) = (0, now);
    loop {
        let after = clock_ns();
        // A short one may be that of a core between two steps at EL2.
        unused = if after - before < UNUSED_NS { unused + 1 } else { 0 };
        if unused == 4 || after - now >= lent_ns {
            return;
        }
        before = after;
        relax();
    }
}

struct Local(UnsafeCell<Core>);

// SAFETY: element `n` is used by core `n` alone: `claim` is called there once, and hands the only reference to the exception
// vectors by TPIDR_EL2.
unsafe impl Sync for Local {}

static LOCAL: [Local; MAX_CORES] = [const {
    Local(UnsafeCell::new(Core {
        index: 0,
        seat: None,
        share: None,
        acknowledged: gic::NOTHING,
        wire: None,
        mitigations: Mitigations::NONE,
        ticks: Ticks { interval_ns: 0, next: u64::MAX, report_ns: 0, reported: 0 },
        report: false,
        meter: None,
        pmu: None,
        meter_intid: gic::SPECIAL,
    }))
}; MAX_CORES];

/// Makes the calling core number `index` and gives it its own.
///
/// # Safety
///
/// Called once on each core, with a number below [`MAX_CORES`] that no other core has.
pub unsafe fn claim(index: usize) -> &'static mut Core {
    let place = LOCAL[index].0.get();
    sysreg::tpidr_el2::write(place as u64);
    // SAFETY: by the contract nobody else has this element.
    let core = unsafe { &mut *place };
    core.index = index;
    core
}

/// Number of the calling core.
#[must_use]
pub fn this() -> usize {
    let place = sysreg::tpidr_el2::read() as *const Core;
    // SAFETY: `claim` put the address of this core's element there before anything else ran on it; the number is written
    // there only.
    unsafe { (*place).index }
}
