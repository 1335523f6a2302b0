//! The limits of a VM's budget while the system runs, and the saturation table that they are
//! compared with.

use super::regulation::{regulation, vcpus};
use crate::units::Events;
use crate::{
    Nanos,
    memory::{Budget, RegulatorModel, SaturationPoint, SaturationTable},
};
use std::fmt::Write as _;
use weir_model::{
    Code, Fault, Polling, System, Vm,
    timing::{FilePlace, MemoryBudget, Saturation},
};

/// A budget of refills while the system runs.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The values of the file.
    pub written: Budget,
    /// The least that it may be set to.
    pub least: Budget,
    /// The most that it may be set to.
    pub most: Budget,
    /// How it is spent.
    pub regulation: RegulatorModel,
    /// How EL2 polls the counter page for it, if the counter page counts it.
    pub polling: Option<Polling>,
    vcpus: u64,
}

impl Limits {
    /// Returns the limits of a VM; none if it has no budget of refills.
    pub fn of(system: &System, vm: &Vm) -> Option<Self> {
        let asked = vm.memory_budget.as_ref()?;
        let ((written, _), (least, most, period)) = (asked.refills()?, asked.settable_refills()?);
        let budget = |accesses| Budget { accesses, period };
        let regulation = regulation(system.guests(), vm, None);
        Some(Self {
            written: budget(written),
            least: budget(least),
            most: budget(most),
            regulation,
            polling: system.polling(vm, period),
            vcpus: vcpus(vm).into(),
        })
    }

    /// Returns the guaranteed part of it, if the VM's cores could make all of it in a period
    /// without EL2's polls.
    pub fn guaranteed(&self) -> Budget {
        let whole = self.regulation.guaranteed(self.least.accesses);
        let shared = |polling: Polling| polling.beside(whole, self.period(), self.vcpus);
        Budget { accesses: self.polling.map_or(whole, shared), ..self.least }
    }

    fn period(&self) -> Nanos {
        self.least.period
    }

    /// Returns why that is less than the budget in the file.
    pub fn why_less(&self, asked: &MemoryBudget) -> String {
        // Writing to a string does not fail.
        let mut why = String::new();
        if let Some(setter) = asked.setter().filter(|_| self.least != self.written) {
            let least = self.least.accesses;
            let _ = write!(why, "; {setter} may set its budget to {least}");
        }
        why.push_str(match self.regulation {
            RegulatorModel::Memguard { .. } => {
                "; MemGuard guarantees half of a budget, because in every other period a VM can be \
                 without the part that it lent"
            }
            RegulatorModel::Pool { vcpus: 2.. } => {
                "; each vCPU that becomes idle keeps a slice of the pool, or one access"
            }
            _ => "",
        });
        if let Some(polling) = self.polling {
            let period = self.least.period.0.max(1);
            let taken = u128::from(polling.taken(self.period()).0) * 100;
            let percent = taken.div_ceil(period.into());
            let _ = write!(
                why,
                "; EL2's polls of the counter page take up to {percent} % of each of its cores"
            );
        }
        why
    }
}

/// Returns the saturation table of a file.
///
/// # Errors
///
/// A table without points, which the file's check has refused.
pub fn saturation(system: &System, from: &Saturation) -> Result<SaturationTable, Vec<Fault>> {
    let points = from
        .points
        .iter()
        .map(|(budget, dma)| SaturationPoint { total_budget: *budget, dma: *dma });
    SaturationTable::new(from.period, points.collect()).map_err(|error| {
        let help = "write measured pairs of budget and DMA bandwidth";
        let message = format!("[saturation]: {error}");
        vec![system.fault(Code::SaturationPoints, &FilePlace::default(), message, help)]
    })
}

/// Returns the accesses that the vCPUs of a VM without debt may make beyond its budget in any
/// window of the table's period: one overshoot for each vCPU in each period of the budget. With
/// debt, they are taken off the next budget. Returns 0 without a table.
pub fn forgiven(system: &System, vm: &Vm) -> Events {
    let Some(known) = &system.saturation else { return Events(0) };
    let Some(asked) = vm.memory_budget.as_ref().filter(|asked| !asked.has_debt()) else {
        return Events(0);
    };
    let period = asked.budget.map_or(known.period, |(_, period)| period);
    let periods = known.period.0.div_ceil(period.0.max(1));
    let each = system.overshoot(vm, period).unwrap_or_default();
    each.saturating_mul(u64::from(vcpus(vm))).saturating_mul(periods)
}
