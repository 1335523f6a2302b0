//! What to write where budgets do not hold: followed to the letter, each way ends at a file that does, or at the next thing that it
//! lacks.

use super::regulation::{regulation, vcpus};
use weir_analysis::{
    BytesPerSec,
    memory::{Budget, Regulation, SaturationTable},
};
use weir_model::{
    Timing,
    counters::Event,
    timing::{Bandwidth, Saturation, TimedVm},
};

/// The way around.
const BEAR: &str = "or write overcommit = true in a `memory_budget`, which `weir check` bears and `weir analyze` does not";

/// What the file says of one VM, and what is left of the memory for its budget.
pub struct Ways<'a> {
    pub timing: &'a Timing,
    pub vm: &'a TimedVm,
    pub known: &'a Saturation,
    pub table: &'a SaturationTable,
    /// Accesses in the table's period, beside the budgets of the others and the DMA engine.
    pub left: u64,
}

impl Ways<'_> {
    /// How the VM is made sure of `required` bytes/s, of which it is not.
    pub fn to_get(&self, required: u64) -> String {
        let asked = self.vm.bandwidth.as_ref();
        let period = asked.and_then(|asked| asked.budget).map_or(self.known.period, |its| its.1);
        let bytes = u128::from(required) * u128::from(period.0);
        let sure = bytes.div_ceil(u128::from(self.known.line.0.max(1)) * 1_000_000_000);
        let sure = u64::try_from(sure).unwrap_or(u64::MAX);
        let looks = self.timing.looks(self.vm, period);
        let vcpus = u64::from(vcpus(self.vm));
        let Some(sure) = looks.map_or(Some(sure), |looks| looks.enough(sure, period, vcpus)) else {
            return "lower `required`: EL2's polls of the counter page leave its cores too little time"
                .to_owned();
        };
        let spent = regulation(&self.timing.vms, self.vm, None);
        let enough = spent.enough(sure);
        let written = self.written(enough);
        let counted = |accesses| {
            let budget = Budget { accesses, period };
            self.table.counted(budget, spent).unwrap_or(u64::MAX)
        };
        let least = counted(written.saturating_mul(self.share()));
        let most = self.known.points.iter().map(|(budget, _)| *budget).max().unwrap_or(0);
        if least > most {
            return format!(
                "lower `required`: it takes {least} accesses in {}, and the memory of all VMs together is saturated from {most} on",
                self.known.period
            );
        }
        let mut way = match asked.and_then(Bandwidth::refills) {
            Some((budget, _)) if budget >= enough => format!("write min = {written} in `adjust`"),
            Some(_) => {
                let name = self.name();
                let adjust = asked
                    .and_then(Bandwidth::setter)
                    .map_or("", |_| ", and in `adjust` the same for `min`, and no less for `max`");
                format!("write {name} = {written}{adjust}; or lower `required`")
            }
            None => return self.to_count(written, "; or lower `required`"),
        };
        if least > self.left {
            let over = least - self.left;
            way =
                format!("{way}; the other budgets leave {over} too few, which must come from them");
        }
        way
    }

    /// How the VM gets a limit of refills, which nothing sets.
    pub fn to_limit(&self) -> String {
        let spares = matches!(
            regulation(&self.timing.vms, self.vm, None),
            Regulation::Memguard { spare: true }
        );
        if spares {
            return format!("leave `spare` out of each `memory_budget`; {BEAR}");
        }
        let room = self.room();
        if room == 0 {
            let name = &self.vm.name;
            return format!(
                "lower the other budgets, which leave {name} none, and give it one of refills; {BEAR}"
            );
        }
        self.to_count(room, &format!(", or less; {BEAR}"))
    }

    /// How the VM gets this budget of refills, which it has not, and what else there is.
    fn to_count(&self, budget: u64, or: &str) -> String {
        let period = self.known.period;
        let Some(asked) = &self.vm.bandwidth else {
            return format!(
                "let `weir plan` choose, or write memory_budget = {{ accesses = {budget}, period = \"{period}\" }} for it{or}"
            );
        };
        if asked.limits_writes() {
            return format!("add reads = {budget} next to `writes`{or}");
        }
        let whole = if asked.budget.is_some() {
            format!("accesses = {budget}")
        } else {
            format!("accesses = {budget}, period = \"{period}\"")
        };
        if asked.event().is_some_and(|event| event != Event::L2dRefill) {
            let source = if asked.names_source() { " and `source`" } else { "" };
            return format!(
                "leave `event`{source} out, so that refills are counted, and write {whole}{or}"
            );
        }
        format!("let `weir plan` choose its budget, or write {whole}{or}")
    }

    /// The largest budget, as the file writes it, that the memory still takes.
    fn room(&self) -> u64 {
        let period = self.vm.bandwidth.as_ref().and_then(|asked| asked.budget).map(|its| its.1);
        let periods = self.known.period.0.div_ceil(period.unwrap_or(self.known.period).0.max(1));
        let each = regulation(&self.timing.vms, self.vm, None).most(1, periods).unwrap_or(u64::MAX);
        let room = self.left / each.max(1) / self.share();
        let vcpus = u64::from(vcpus(self.vm));
        if room.saturating_mul(self.share()) < vcpus { 0 } else { room }
    }

    /// How many have what the file writes.
    fn share(&self) -> u64 {
        let each = self.vm.bandwidth.as_ref().is_some_and(Bandwidth::is_each);
        if each { u64::from(vcpus(self.vm)) } else { 1 }
    }

    /// As the file writes it.
    fn written(&self, whole: u64) -> u64 {
        whole.div_ceil(self.share())
    }

    fn name(&self) -> &'static str {
        let two = self.vm.bandwidth.as_ref().is_some_and(Bandwidth::limits_writes);
        if two { "reads" } else { "accesses" }
    }
}

/// How best effort alone comes to have a DMA bandwidth that the memory takes beside budgets of `total` in the table's period.
pub fn to_limit_dma(table: &SaturationTable, total: u64) -> String {
    let beside = |dma: u64| format!("write [dma] bandwidth = \"{dma}B/s\" or less");
    if let Some(most) = table.max_dma(total).filter(|most| most.0 > 0) {
        return beside(most.0);
    }
    let slowest =
        table.points().iter().filter(|point| point.dma.0 > 0).min_by_key(|point| point.dma);
    match slowest {
        Some(point) => format!(
            "{}, and lower the budgets until they count for {} less; {BEAR}",
            beside(point.dma.0),
            total.saturating_sub(point.total_budget)
        ),
        None => format!("measure a point of [saturation] with a `dma` above 0; {BEAR}"),
    }
}

/// How budgets of `total` in the table's period beside `dma` bytes/s, of which the flows need `least`, come to be what the memory takes.
pub fn to_fit(table: &SaturationTable, total: u64, (dma, least): (u64, Option<u64>)) -> String {
    let least = least.unwrap_or(0);
    let Some(most) = table.max_budget(BytesPerSec(dma)) else {
        let fastest = table.points().iter().map(|point| point.dma.0).max().unwrap_or(0);
        if fastest < least {
            return format!(
                "ask less of the flows: they need {least} B/s, and no point of [saturation] has more than {fastest} B/s"
            );
        }
        return format!("write [dma] bandwidth = \"{fastest}B/s\" or less");
    };
    let slower = table.max_dma(total).filter(|slower| dma > 0 && slower.0 >= least.max(1));
    let slower = slower.map_or(String::new(), |slower| {
        format!(", or write [dma] bandwidth = \"{}B/s\" or less", slower.0)
    });
    format!(
        "lower the budgets until they count for {} less{slower}; {BEAR}",
        total.saturating_sub(most)
    )
}
