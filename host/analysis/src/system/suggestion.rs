//! What to write where budgets do not hold. Each suggestion, followed to the letter, leads to a
//! file that holds, or to the next cause.

use super::regulation::{regulation, vcpus};
use crate::{
    BytesPerSec,
    memory::{Budget, RegulatorModel, SaturationTable},
};
use weir_model::{
    System, Vm,
    counters::CounterEvent,
    timing::{MemoryBudget, Saturation},
};

/// A VM with a budget that does not hold.
pub struct Shortfall<'a> {
    /// The value in the file.
    pub system: &'a System,
    /// The VM.
    pub vm: &'a Vm,
    /// The saturation of the memory.
    pub known: &'a Saturation,
    /// The same as a table.
    pub table: &'a SaturationTable,
    /// Accesses in the period of the table that the budgets of the others and the DMA engine leave.
    pub left: u64,
}

impl Shortfall<'_> {
    /// Suggests a budget that guarantees `required` bytes/s.
    pub fn to_get(&self, required: u64) -> String {
        let asked = self.vm.memory_budget.as_ref();
        let period = asked.and_then(|asked| asked.budget).map_or(self.known.period, |its| its.1);
        let bytes = u128::from(required) * u128::from(period.0);
        let whole = bytes.div_ceil(u128::from(self.known.line.0.max(1)) * 1_000_000_000);
        let whole = u64::try_from(whole).unwrap_or(u64::MAX);
        let polling = self.system.polling(self.vm, period);
        let vcpus = u64::from(vcpus(self.vm));
        let whole = polling.map_or(Some(whole), |polling| polling.enough(whole, period, vcpus));
        let Some(whole) = whole else {
            return "lower `required`: EL2's polling of the counter page leaves the VM's cores too \
                    little time"
                .to_owned();
        };
        let regulation = regulation(self.system.guests(), self.vm, None);
        let enough = regulation.enough(whole);
        let written = enough.div_ceil(self.share());
        let budget = Budget { accesses: written.saturating_mul(self.share()), period };
        let least = self.table.counted(budget, regulation).unwrap_or(u64::MAX);
        let most = self.known.points.iter().map(|(budget, _)| *budget).max().unwrap_or(0);
        if least > most {
            return format!(
                "lower `required`: it takes {least} accesses in {}, and all VMs together saturate \
                 the memory above {most}",
                self.known.period
            );
        }
        let suggestion = match asked.and_then(MemoryBudget::refills) {
            Some((budget, _)) if budget >= enough => format!("write min = {written} in `adjust`"),
            Some(_) => {
                let key = if asked.is_some_and(MemoryBudget::limits_writes) {
                    "reads"
                } else {
                    "accesses"
                };
                let adjust = asked
                    .and_then(MemoryBudget::setter)
                    .map_or("", |_| ", and in `adjust` the same for `min`, and no less for `max`");
                format!("write {key} = {written}{adjust}")
            }
            None => self.to_count(written),
        };
        match least.saturating_sub(self.left) {
            0 => suggestion,
            over => format!("{suggestion}, and lower the other budgets by {over} in total"),
        }
    }

    /// Suggests a budget of refills for a VM without one.
    pub fn to_limit(&self) -> String {
        let regulation = regulation(self.system.guests(), self.vm, None);
        if matches!(regulation, RegulatorModel::Memguard { spare: true }) {
            return "leave `spare` out of each `memory_budget`".to_owned();
        }
        match self.room() {
            0 => format!("lower the other budgets, which leave {} none", self.vm),
            room => self.to_count(room),
        }
    }

    /// Suggests how to write this budget of refills.
    fn to_count(&self, budget: u64) -> String {
        let period = self.known.period;
        let Some(asked) = &self.vm.memory_budget else {
            return format!(
                "write memory_budget = {{ accesses = {budget}, period = \"{period}\" }} for {}",
                self.vm
            );
        };
        if asked.limits_writes() {
            return format!("add reads = {budget} to `memory_budget`");
        }
        let whole = if asked.budget.is_some() {
            format!("accesses = {budget}")
        } else {
            format!("accesses = {budget}, period = \"{period}\"")
        };
        if asked.event().is_some_and(|event| event != CounterEvent::L2dRefill) {
            let source = if asked.names_source() { " and `source`" } else { "" };
            return format!(
                "leave `event`{source} out, so that refills are counted, and write {whole}"
            );
        }
        format!("write {whole}")
    }

    /// The largest budget, as the file writes it, that the memory still takes.
    fn room(&self) -> u64 {
        let period = self.vm.memory_budget.as_ref().and_then(|asked| asked.budget).map(|its| its.1);
        let periods = self.known.period.0.div_ceil(period.unwrap_or(self.known.period).0.max(1));
        let each =
            regulation(self.system.guests(), self.vm, None).most(1, periods).unwrap_or(u64::MAX);
        let room = self.left / each.max(1) / self.share();
        let vcpus = u64::from(vcpus(self.vm));
        if room.saturating_mul(self.share()) < vcpus { 0 } else { room }
    }

    /// How many vCPUs have what the file writes each; 1 if all have it together.
    fn share(&self) -> u64 {
        let each = self.vm.memory_budget.as_ref().is_some_and(MemoryBudget::is_each);
        if each { u64::from(vcpus(self.vm)) } else { 1 }
    }
}

fn slower_dma(dma: u64) -> String {
    format!("write [dma] bandwidth = \"{dma}B/s\" or less")
}

/// Suggests a DMA bandwidth for best effort next to budgets of `total` in the period of the table.
pub fn to_limit_dma(table: &SaturationTable, total: u64) -> String {
    if let Some(most) = table.max_dma(total).filter(|most| most.0 > 0) {
        return slower_dma(most.0);
    }
    let slowest =
        table.points().iter().filter(|point| point.dma.0 > 0).min_by_key(|point| point.dma);
    match slowest {
        Some(point) => format!(
            "{}, and lower the budgets until they count for {} less",
            slower_dma(point.dma.0),
            total.saturating_sub(point.total_budget)
        ),
        None => "measure a point of [saturation] with a `dma` above 0".to_owned(),
    }
}

/// Suggests how budgets of `total` in the period of the table and `dma` bytes/s, of which the flows
/// need `least`, come below saturation.
pub fn to_fit(table: &SaturationTable, total: u64, (dma, least): (u64, Option<u64>)) -> String {
    let least = least.unwrap_or(0);
    if let Some(slower) = table.max_dma(total).filter(|slower| dma > 0 && slower.0 >= least.max(1))
    {
        return slower_dma(slower.0);
    }
    let Some(most) = table.max_budget(BytesPerSec(dma)) else {
        let fastest = table.points().iter().map(|point| point.dma.0).max().unwrap_or(0);
        if fastest < least {
            return format!(
                "lower the demand of the flows: they need {least} B/s, and no point of \
                 [saturation] has more than {fastest} B/s"
            );
        }
        return slower_dma(fastest);
    };
    format!("lower the budgets until they count for {} less", total.saturating_sub(most))
}
