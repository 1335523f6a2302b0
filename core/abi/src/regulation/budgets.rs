//! The regulator of a VM's memory bandwidth, and the check that a bandwidth can be regulated.

use super::{
    COMPENSATION, COUNTER_PAGE, LEAST_PERIOD_NS, LEAST_POLL_NS, MEMGUARD, MOST_PERIOD_NS, NO_VM,
    POOL, Regulation, STATIC,
};
use crate::{Damage, Features, MAX_CORES, MAX_VMS, PackedSystem, VmView};
use weir_budget::{BudgetScope, Counts, MAX_VCPUS, Periods, RegulatorKind, Setting};
use weir_units::Nanos;

const _: () = assert!(MAX_VCPUS == MAX_CORES, "a VM's vCPUs run on as many cores");

/// Returns the shortest time in which a core can cause `events` events at a counter page if an
/// instruction takes `access` ns. Sixteen consecutive instructions cause at most 33: each accesses
/// two lines if its data cross a line, and all lie in one line. A jump to another line accesses
/// that line instead of two lines of data, so nothing else causes more.
#[must_use]
pub const fn least_time(events: u64, access: u64) -> u64 {
    (events / 33 * 16).saturating_add(events % 33 * 16 / 33).saturating_mul(access)
}

/// Returns the most events that a core can cause at a counter page in `time` ns if an instruction
/// takes `access` ns: the greatest number whose [`least_time`] is at most `time`.
#[must_use]
pub const fn most_events(time: u64, access: u64) -> u64 {
    let instructions = match time.checked_div(access) {
        Some(instructions) => instructions,
        None => u64::MAX,
    };
    let rest = (33 * (instructions % 16 + 1) - 1) / 16;
    (instructions / 16).saturating_mul(33).saturating_add(rest)
}

impl Regulation {
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

/// Returns the regulator of vCPU `vcpu` of VM `index`, or `None` if the VM's bandwidth is not
/// regulated. `of` returns a VM's regulation and the cores of its vCPUs, `cores` is the number of
/// the system's cores. The parts that a regulator shares with others depend on all of them.
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
    /// Returns the regulator of vCPU `vcpu` of VM `index`, or `None` if its bandwidth is not
    /// regulated.
    #[must_use]
    pub fn setting(&self, index: usize, vcpu: usize) -> Option<Setting> {
        let of = |index: usize| {
            let vm = self.vms.get(index)?;
            Some((&vm.regulation, vm.cores.get(..vm.vcpus.into())?))
        };
        setting(of, index, vcpu, self.header.cores as usize)
    }

    /// Checks that a VM's memory bandwidth can be regulated as it is configured.
    pub(crate) fn check_regulation(&self, view: &VmView<'_>) -> Result<(), Damage> {
        if !Features::BUDGETS.is_built() {
            return Ok(());
        }
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
