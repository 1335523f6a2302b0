use crate::{
    Counts, Periods,
    group::{MAX_MEMBERS, MOST},
};
use core::{fmt, num::NonZeroU32};
use weir_units::Nanos;

/// Largest number of vCPUs of a VM.
pub const MAX_VCPUS: usize = 8;

/// The kind of a regulator, and the [`super::GroupBudget`] that its driver passes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegulatorKind {
    /// [`super::Static`], with the group of its own VM.
    Static,
    /// [`super::Pool`], with the group of its own VM.
    Pool,
    /// [`super::Memguard`], with the group of the board's domain.
    Memguard,
    /// [`super::Compensation`], with the group of the critical VM.
    Compensation,
}

/// The owner of [`Setting::budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetScope {
    /// Each vCPU of the VM.
    Vcpu,
    /// The VM: its vCPUs have shares by their weights, which add up exactly to the budget.
    Vm,
}

/// The settings by which a vCPU is regulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The kind of regulator.
    pub kind: RegulatorKind,
    /// The owner of the budget. With [`RegulatorKind::Pool`] it is the VM in any case.
    pub scope: BudgetScope,
    /// The time between two replenishments.
    pub period: Nanos,
    /// The time of the first replenishment, modulo the period. See [`Periods::staggered`]. It must
    /// be 0 if the periods of several vCPUs must agree: with any kind except
    /// [`RegulatorKind::Static`], and with `publish`.
    pub phase: Nanos,
    /// Accesses in a period; `u64::MAX` means counted but not limited.
    pub budget: Counts,
    /// Whether an overshoot is subtracted from the next budget.
    pub debt: bool,
    /// This vCPU's number in its VM.
    pub vcpu: u8,
    /// Number of vCPUs of the VM, at most [`MAX_VCPUS`].
    pub vcpus: u8,
    /// The weights by which [`BudgetScope::Vm`] divides the budget; equal weights divide it evenly.
    pub weights: [u16; MAX_VCPUS],
    /// Whether the VM's use in each period is published in its [`super::GroupBudget`], for
    /// [`RegulatorKind::Compensation`] of others. Only with [`RegulatorKind::Static`] and
    /// [`RegulatorKind::Pool`].
    pub publish: bool,
    /// The amount that is drawn from a pool at a time; 0 for an eighth of the vCPU's budget.
    pub slice: Counts,
    /// MemGuard: this vCPU's number in the domain.
    pub member: u8,
    /// MemGuard: number of vCPUs of the domain, at most 32.
    pub members: u8,
    /// MemGuard: the part of its budget that a vCPU never gives away by prediction.
    pub keep_percent: u8,
    /// MemGuard: in each period the prediction moves by 1/2^smoothing of the distance to the used
    /// amount.
    pub smoothing: u8,
    /// MemGuard: whether all vCPUs run without a limit when all have spent their budgets.
    pub spare: bool,
    /// Compensation: number of periods after which saved accesses are forgotten; 1 means that none
    /// are saved.
    pub window: u32,
    /// Compensation: number of vCPUs of the critical VM, which must have the same periods.
    pub critical_vcpus: u8,
}

/// Reason why a setting is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The period is 0.
    NoPeriod,
    /// There are no vCPUs, or more than [`MAX_VCPUS`], or this one is not among them.
    NoSuchVcpu,
    /// The vCPU's budget, or its share of the VM's, is 0: it would never run.
    NoBudget,
    /// A pool's budget is smaller than the number of vCPUs, each of which draws at least one
    /// access.
    SmallPool,
    /// The budget is larger than a pool can hold, 2^40 - 1.
    LargeBudget,
    /// The phase is not 0, although the periods of several cores must be the same.
    Staggered,
    /// `publish` with a kind that uses another [`super::GroupBudget`] than its VM's.
    CantPublish,
    /// The domain has no members, or more than 32, or this vCPU is not among them.
    NoSuchMember,
    /// More than 100 percent must be kept.
    KeepsTooMuch,
    /// The smoothing is above 32.
    Smoothing,
    /// The window is 0 periods long.
    NoWindow,
    /// The critical VM has no vCPUs, or more than [`MAX_VCPUS`].
    NoCriticalVcpus,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPeriod => "the period is 0; write one of a microsecond or more",
            Self::NoSuchVcpu => "the vCPU is not among those of its VM, which has 1 to 8",
            Self::NoBudget => {
                "the budget has nothing for this vCPU, which would never run; raise the vCPU's \
                 weight if that is 0, or else the budget"
            }
            Self::SmallPool => {
                "the pool has less than one access for each vCPU, and the last one would never \
                 run; raise the budget"
            }
            Self::LargeBudget => {
                "the budget is larger than a pool holds; write less than 2^40, or use the static \
                 regulator"
            }
            Self::Staggered => {
                "the vCPU's periods are staggered, but others rely on them; align them, or use the \
                 static regulator"
            }
            Self::CantPublish => {
                "the VM is another's critical one, and its use can't be published with this \
                 regulator; make it static or pool"
            }
            Self::NoSuchMember => {
                "the vCPU is not among those of MemGuard's domain, which has 1 to 32"
            }
            Self::KeepsTooMuch => "more than 100 percent of the budget are kept; write at most 100",
            Self::Smoothing => "the prediction would hardly move; write a smoothing of at most 32",
            Self::NoWindow => "the window is 0 periods long; write 1 or more",
            Self::NoCriticalVcpus => "the critical VM has no vCPU, or more than 8",
        })
    }
}

impl core::error::Error for Refused {}

impl Setting {
    /// Returns the setting of a budget for each vCPU of a VM with `vcpus` vCPUs, for vCPU `vcpu`:
    /// static, aligned, with debt.
    #[must_use]
    pub const fn new(period: Nanos, budget: Counts, vcpu: u8, vcpus: u8) -> Self {
        Self {
            kind: RegulatorKind::Static,
            scope: BudgetScope::Vcpu,
            period,
            phase: Nanos(0),
            budget,
            debt: true,
            vcpu,
            vcpus,
            weights: [1; MAX_VCPUS],
            publish: false,
            slice: Counts::ZERO,
            member: vcpu,
            members: vcpus,
            keep_percent: 0,
            smoothing: 1,
            spare: false,
            window: 2,
            critical_vcpus: 1,
        }
    }

    /// Returns the times at which this vCPU's budget is replenished.
    #[must_use]
    pub const fn periods(&self) -> Periods {
        Periods::with_phase(self.period, self.phase)
    }

    /// Returns the bit by which [`super::BudgetVerdict::wake`] names this vCPU; 0 if no budget that
    /// it shares is ever returned.
    #[must_use]
    pub const fn member_bit(&self) -> u32 {
        match self.kind {
            RegulatorKind::Pool => 1 << (self.vcpu % MAX_MEMBERS),
            RegulatorKind::Memguard => 1 << (self.member % MAX_MEMBERS),
            RegulatorKind::Static | RegulatorKind::Compensation => 0,
        }
    }

    /// Returns this vCPU's share of a budget.
    pub(super) const fn vcpu_share(&self) -> VcpuShare {
        match self.scope {
            BudgetScope::Vcpu => VcpuShare::WHOLE,
            BudgetScope::Vm => VcpuShare::new(&self.weights, self.vcpu, self.vcpus),
        }
    }

    /// Returns whether a regulator can be made of this setting.
    ///
    /// # Errors
    ///
    /// Returns the reason why the setting is refused.
    pub const fn check(&self) -> Result<(), Refused> {
        if self.period.0 == 0 {
            return Err(Refused::NoPeriod);
        }
        if self.vcpus == 0 || self.vcpus as usize > MAX_VCPUS || self.vcpu >= self.vcpus {
            return Err(Refused::NoSuchVcpu);
        }
        let alone = matches!(self.kind, RegulatorKind::Static) && !self.publish;
        if !alone && !self.phase.0.is_multiple_of(self.period.0) {
            return Err(Refused::Staggered);
        }
        if self.publish && !matches!(self.kind, RegulatorKind::Static | RegulatorKind::Pool) {
            return Err(Refused::CantPublish);
        }
        match self.kind {
            RegulatorKind::Static => self.check_share(),
            RegulatorKind::Pool => for_all(self.budget, self.vcpus),
            RegulatorKind::Memguard => self.check_memguard(),
            RegulatorKind::Compensation => self.check_compensation(),
        }
    }

    const fn check_share(&self) -> Result<(), Refused> {
        if self.vcpu_share().of(self.budget).is_nothing() { Err(Refused::NoBudget) } else { Ok(()) }
    }

    const fn check_memguard(&self) -> Result<(), Refused> {
        if self.members == 0 || self.members > MAX_MEMBERS || self.member >= self.members {
            return Err(Refused::NoSuchMember);
        }
        if self.keep_percent > 100 {
            return Err(Refused::KeepsTooMuch);
        }
        if self.smoothing > 32 {
            return Err(Refused::Smoothing);
        }
        poolable(self.vcpu_share().of(self.budget))
    }

    const fn check_compensation(&self) -> Result<(), Refused> {
        if self.window == 0 {
            return Err(Refused::NoWindow);
        }
        if self.critical_vcpus == 0 || self.critical_vcpus as usize > MAX_VCPUS {
            return Err(Refused::NoCriticalVcpus);
        }
        self.check_share()
    }
}

/// Returns whether a pool can hold a budget. An unlimited budget needs no room.
pub(super) const fn poolable(budget: Counts) -> Result<(), Refused> {
    if budget.is_nothing() {
        Err(Refused::NoBudget)
    } else if holds(budget.reads) && holds(budget.writes) {
        Ok(())
    } else {
        Err(Refused::LargeBudget)
    }
}

/// Returns whether a pool can hold a budget that is enough for one access of each of `vcpus` vCPUs.
pub(super) const fn for_all(budget: Counts, vcpus: u8) -> Result<(), Refused> {
    let vcpus = vcpus as u64;
    match poolable(budget) {
        Ok(()) if budget.reads < vcpus || budget.writes < vcpus => Err(Refused::SmallPool),
        checked => checked,
    }
}

const fn holds(budget: u64) -> bool {
    budget <= MOST || budget == u64::MAX
}

/// Returns a setting's slice, or by default an eighth of each vCPU's budget; at least one access.
pub(super) const fn or_default_slice(slice: Counts, budget: Counts, vcpus: u8) -> Counts {
    let eighth = 8 * if vcpus == 0 { 1 } else { vcpus as u64 };
    let or_default = Counts {
        reads: if slice.reads == 0 { budget.reads / eighth } else { slice.reads },
        writes: if slice.writes == 0 { budget.writes / eighth } else { slice.writes },
    };
    or_default.most(Counts { reads: 1, writes: 1 })
}

/// The share of one vCPU in its VM's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VcpuShare {
    /// Sum of the weights of the vCPUs before this one.
    before: u32,
    /// Sum of the weights of these vCPUs and of this one.
    through: u32,
    /// Sum of the weights of all vCPUs.
    all: NonZeroU32,
}

impl VcpuShare {
    pub(super) const WHOLE: Self = Self { before: 0, through: 1, all: NonZeroU32::MIN };

    const fn new(weights: &[u16; MAX_VCPUS], vcpu: u8, vcpus: u8) -> Self {
        let (mut before, mut through, mut all) = (0, 0, 0);
        let mut index = 0;
        while index < MAX_VCPUS && index < vcpus as usize {
            if index == vcpu as usize {
                before = all;
                through = all + weights[index] as u32;
            }
            all += weights[index] as u32;
            index += 1;
        }
        let all = match NonZeroU32::new(all) {
            Some(all) => all,
            None => NonZeroU32::MIN,
        };
        Self { before, through, all }
    }

    /// Returns the share of `whole` accesses. Both ends of the share are rounded down, so the
    /// shares of all vCPUs add up to `whole`. `u64::MAX` means unlimited, for every vCPU.
    pub(super) const fn of_count(self, whole: u64) -> u64 {
        if whole == u64::MAX {
            return whole;
        }
        self.upto(self.through, whole) - self.upto(self.before, whole)
    }

    /// Returns the share of the first `weight` weights, rounded down. Nothing overflows: `weight`
    /// is at most `all`, which is below 2^20, and so is the remainder.
    const fn upto(self, weight: u32, whole: u64) -> u64 {
        let (weight, all) = (weight as u64, self.all.get() as u64);
        whole / all * weight + whole % all * weight / all
    }

    /// Returns the share of a budget.
    pub(super) const fn of(self, budget: Counts) -> Counts {
        Counts { reads: self.of_count(budget.reads), writes: self.of_count(budget.writes) }
    }
}
