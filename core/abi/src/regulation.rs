//! A VM's memory bandwidth, packed.

use crate::{Damage, MAX_CORES, MAX_VMS, PackedSystem, VmView};
use weir_budget::BudgetScope;
use weir_budget::Counts;
use weir_budget::MAX_VCPUS;
use weir_budget::Periods;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// No VM, where there could be one.
pub const NO_VM: u8 = u8::MAX;
/// The shortest period, in ns. A shorter one would leave the guests nothing.
pub const LEAST_PERIOD_NS: u64 = 1_000;
/// The shortest time between two polls of a counter page, in ns: about the time of a poll.
pub const LEAST_POLL_NS: u64 = 100;
/// The longest, in ns: half an hour.
pub const MOST_PERIOD_NS: u64 = 1 << 41;

const _: () = assert!(MAX_VCPUS == MAX_CORES, "a VM's vCPUs run on as many cores");

/// How a VM's memory bandwidth is regulated; all zero if it is not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Regulation {
    /// Nanoseconds; 0 for no regulation at all.
    pub period_ns: u64,
    /// Accesses in each period, or reads; `u64::MAX` for no limit.
    pub reads: u64,
    /// Writes in each period; `u64::MAX` for no limit.
    pub writes: u64,
    /// Nanoseconds between two polls of a counter page.
    pub poll_ns: u64,
    /// The least time of an instruction of a core, in nanoseconds.
    pub access_ns: u64,
    /// The least budget that [`Self::setter`] may set.
    pub least: u64,
    /// The greatest.
    pub most: u64,
    /// Periods between two resets of a compensation.
    pub window: u32,
    /// Numbers of the PMU's events for reads and writes.
    pub events: [u16; 2],
    /// Each vCPU's part of the VM's budget.
    pub weights: [u16; MAX_CORES],
    /// One of [`STATIC`], [`POOL`], [`MEMGUARD`], [`COMPENSATION`].
    pub kind: u8,
    /// [`PMU`] or [`COUNTER_PAGE`].
    pub source: u8,
    /// 1 when each vCPU has the budget for itself.
    pub each: u8,
    /// 1 when the cores' periods begin one after the other.
    pub staggered: u8,
    /// 1 when what is counted beyond a budget is taken off the next.
    pub debt: u8,
    /// The VM that leaves its unused budget to this one, or [`NO_VM`].
    pub critical: u8,
    /// The VM that may change the budget, or [`NO_VM`].
    pub setter: u8,
    /// MemGuard: 1 when all run without a limit once all have spent their budgets.
    pub spare: u8,
}

/// The least time in which a core can make so many `events` at a counter page, if an instruction
/// takes `access` ns: sixteen in a row touch two lines each, as an access that crosses a line does,
/// and the line that they lie in. A jump to another line touches that one, and no two for data, so
/// nothing else makes more.
#[must_use]
pub const fn least_time(events: u64, access: u64) -> u64 {
    (events / 33 * 16).saturating_add(events % 33 * 16 / 33).saturating_mul(access)
}

/// The most events that a core can make at a counter page in `time` ns, if an instruction takes
/// `access` ns: the most whose [`least_time`] is no longer.
#[must_use]
pub const fn most_events(time: u64, access: u64) -> u64 {
    let instructions = match time.checked_div(access) {
        Some(instructions) => instructions,
        None => u64::MAX,
    };
    let rest = (33 * (instructions % 16 + 1) - 1) / 16;
    (instructions / 16).saturating_mul(33).saturating_add(rest)
}

/// [`Regulation::kind`]: the same budget in each period.
pub const STATIC: u8 = 0;
/// [`Regulation::kind`]: drawn from a pool of the VM's.
pub const POOL: u8 = 1;
/// [`Regulation::kind`]: MemGuard.
pub const MEMGUARD: u8 = 2;
/// [`Regulation::kind`]: what a critical VM left comes on top.
pub const COMPENSATION: u8 = 3;

/// [`Regulation::source`]: the cores' PMUs.
pub const PMU: u8 = 0;
/// [`Regulation::source`]: the platform's counter page.
pub const COUNTER_PAGE: u8 = 1;

impl Regulation {
    /// Whether there is any.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.period_ns != 0
    }

    fn regulator(&self) -> Option<RegulatorKind> {
        Some(match self.kind {
            STATIC => RegulatorKind::Static,
            POOL => RegulatorKind::Pool,
            MEMGUARD => RegulatorKind::Memguard,
            COMPENSATION => RegulatorKind::Compensation,
            _ => return None,
        })
    }
}

/// The regulator of vCPU `vcpu` of VM `index`; none if its bandwidth is not regulated. `of` gives
/// each VM's regulation and the core of each of its vCPUs, `cores` is the number of the system's
/// cores. What a regulator shares with others depends on all of them.
pub fn setting<'a>(
    of: impl Fn(usize) -> Option<(&'a Regulation, &'a [u8])>,
    index: usize,
    vcpu: usize,
    cores: usize,
) -> Option<Setting> {
    let (its, its_cores) = of(index)?;
    let core = *its_cores.get(vcpu)?;
    let kind = its.regulator().filter(|_| its.is_on())?;
    let period = Nanos(its.period_ns);
    let periods = if its.staggered == 0 {
        Periods::aligned(period)
    } else {
        Periods::staggered(period, core, cores as u8)
    };
    let budget = Counts { reads: its.reads, writes: its.writes };
    let all = || (0..MAX_VMS).map_while(&of);
    let is_member =
        |(regulation, _): &(&Regulation, &[u8])| regulation.is_on() && regulation.kind == MEMGUARD;
    let vcpus = |(_, cores): (&Regulation, &[u8])| cores.len() as u8;
    let compensated_by = |(regulation, _): (&Regulation, &[u8])| {
        regulation.is_on()
            && regulation.kind == COMPENSATION
            && usize::from(regulation.critical) == index
    };
    Some(Setting {
        kind,
        scope: if its.each == 0 { BudgetScope::Vm } else { BudgetScope::Vcpu },
        phase: periods.phase(),
        debt: its.debt != 0,
        weights: its.weights,
        publish: all().any(compensated_by),
        member: all().take(index).filter(is_member).map(vcpus).sum::<u8>() + vcpu as u8,
        members: all().filter(is_member).map(vcpus).sum(),
        spare: its.spare != 0,
        window: its.window,
        critical_vcpus: of(its.critical.into()).map_or(0, vcpus),
        ..Setting::new(period, budget, vcpu as u8, vcpus((its, its_cores)))
    })
}

impl PackedSystem<'_> {
    /// The regulator of vCPU `vcpu` of VM `index`; none if its bandwidth is not regulated.
    #[must_use]
    pub fn setting(&self, index: usize, vcpu: usize) -> Option<Setting> {
        let of = |index: usize| {
            let vm = self.vms.get(index)?;
            Some((&vm.regulation, vm.cores.get(..vm.vcpus.into())?))
        };
        setting(of, index, vcpu, self.header.cores as usize)
    }

    /// A VM's bandwidth is one that can be regulated.
    pub(super) fn check_regulation(&self, view: &VmView<'_>) -> Result<(), Damage> {
        let damage = Damage::Bandwidth(view.index as u32);
        let regulation = &view.vm.regulation;
        if !regulation.is_on() {
            return if *regulation == Regulation::default() { Ok(()) } else { Err(damage) };
        }
        let is_vm = |vm: u8| usize::from(vm) < self.vms();
        let flags = [
            regulation.each,
            regulation.staggered,
            regulation.debt,
            regulation.source,
            regulation.spare,
        ];
        let sound = flags.iter().all(|flag| *flag <= 1)
            && (LEAST_PERIOD_NS..=MOST_PERIOD_NS).contains(&regulation.period_ns)
            && (regulation.setter == NO_VM || is_vm(regulation.setter) && regulation.least > 0)
            && (regulation.source != COUNTER_PAGE
                || regulation.poll_ns >= LEAST_POLL_NS
                    && regulation.poll_ns <= regulation.period_ns
                    && regulation.access_ns > 0)
            && (regulation.kind != COMPENSATION
                || is_vm(regulation.critical)
                    && usize::from(regulation.critical) != view.index
                    && regulation.window > 0);
        let works =
            |vcpu| self.setting(view.index, vcpu).is_some_and(|setting| setting.check().is_ok());
        let all = (0..usize::from(view.vm.vcpus)).all(works);
        if sound && all { Ok(()) } else { Err(damage) }
    }
}
