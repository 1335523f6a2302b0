//! Memory bandwidth: what each VM's budget lets it use, and whether all of them and the DMA engine saturate the memory.

use crate::run::show::table;
use serde_json::{Value, json};
use std::fmt;
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    memory::{Budget, SaturationPoint, SaturationTable, qos_bandwidth, qos_level},
};
use weir_config::{
    Fault, Timing,
    counters::Event,
    timing::{Bandwidth, Place, Saturation},
};

/// What the analysis says of the budgets.
#[derive(Debug)]
pub struct Memory {
    vms: Vec<Row>,
    /// Sum of the budgets per period of the saturation table, the most beside this DMA bandwidth, and that period.
    total: Option<(u64, Option<u64>, Nanos)>,
    /// DMA bandwidth, bytes/s, and the most beside these budgets.
    dma: (u64, Option<u64>),
    /// Level of the QoS regulator and the bandwidth that it lets through at most, bytes/s.
    qos: Option<(u16, u64)>,
    reasons: Vec<(Place, String)>,
    /// How the memory may be saturated.
    saturated: Option<(Place, String)>,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// Refills and their period.
    budget: Option<(u64, Nanos)>,
    /// Refills, and refills with write-backs, bytes/s.
    bandwidth: Option<(u64, u64)>,
    required: Option<u64>,
}

/// The table of a file as the library takes it.
///
/// # Errors
///
/// A table without points, which the file's check has refused.
pub fn saturation(timing: &Timing, from: &Saturation) -> Result<SaturationTable, Vec<Fault>> {
    let points = from
        .points
        .iter()
        .map(|(budget, dma)| SaturationPoint { total_budget: *budget, dma: BytesPerSec(dma.0) });
    SaturationTable::new(Nanos(from.period.0), points.collect()).map_err(|error| {
        let help = "write measured pairs of budget and DMA bandwidth";
        vec![timing.fault("saturation", &Place::default(), error.to_string(), help)]
    })
}

/// Analyzes the budgets of a file, if it has some.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn analyze(timing: &Timing) -> Result<Option<Memory>, Vec<Fault>> {
    if timing.vms.iter().all(|vm| vm.bandwidth.is_none()) {
        return Ok(None);
    }
    let known = timing.saturation.as_ref();
    let line = known.map(|known| Bytes(known.line.0));
    let mut reasons: Vec<(Place, String)> = Vec::new();
    let (mut vms, mut budgets, mut free) = (Vec::new(), Vec::new(), Vec::new());
    for vm in &timing.vms {
        let asked = vm.bandwidth.as_ref();
        let place = asked.map_or_else(|| vm.place.clone(), |asked| asked.place.clone());
        let budget = asked.and_then(Bandwidth::refills);
        let budget = budget.map(|(accesses, period)| Budget { accesses, period: Nanos(period.0) });
        let other = asked.filter(|asked| asked.budget.is_some() && budget.is_none());
        match budget {
            Some(budget) => budgets.push(budget),
            None => free.push(other.map_or_else(
                || vm.name.clone(),
                |other| {
                    let event = other.event().unwrap_or(Event::L2dWriteback);
                    format!("{} ({} says nothing of refills)", vm.name, event.name())
                },
            )),
        }
        let required = asked.and_then(|asked| asked.required).map(|rate| rate.0);
        if let (Some(required), Some(line), Some(budget)) = (required, line, budget) {
            let got = u128::from(budget.accesses) * u128::from(line.0) * 1_000_000_000;
            if got < u128::from(required) * u128::from(budget.period.0) {
                reasons.push((
                    place,
                    format!(
                        "{}: its budget is {} B/s, but it must get {required} B/s",
                        vm.name,
                        budget.bandwidth(line).0
                    ),
                ));
            }
        } else if let (Some(required), None) = (required, budget) {
            let reason =
                format!("{}: it must get {required} B/s and has no budget of refills", vm.name);
            reasons.push((place, reason));
        }
        vms.push(Row {
            name: vm.name.clone(),
            budget: budget.map(|budget| (budget.accesses, budget.period)),
            bandwidth: budget
                .zip(line)
                .map(|(budget, line)| (budget.bandwidth(line).0, budget.total_bandwidth(line).0)),
            required,
        });
    }
    let moved = timing.dma.bandwidth.map_or(0, |rate| rate.0);
    let dma = if timing.flows.is_empty() { 0 } else { moved };
    let mut memory =
        Memory { vms, total: None, dma: (dma, None), qos: None, reasons, saturated: None };
    let first = timing.vms.iter().find_map(|vm| Some(vm.bandwidth.as_ref()?.place.clone()));
    let first = first.unwrap_or_default();
    let Some(known) = known else {
        let reason = "nobody says when the memory saturates: add [saturation]".to_owned();
        memory.reasons.push((first, reason));
        return Ok(Some(memory));
    };
    let table = saturation(timing, known)?;
    let total = table.total(&budgets);
    memory.total = Some((total, table.max_budget(BytesPerSec(dma)), table.period()));
    memory.dma.1 = table.max_dma(total).map(|rate| rate.0);
    if let Some((block, clock)) = known.qos {
        let level = qos_level(Bytes(block.0), BytesPerSec(dma), clock);
        memory.qos = level.map(|level| (level, qos_bandwidth(Bytes(block.0), level, clock).0));
    }
    if !free.is_empty() {
        let free = free.join(", ");
        let reason =
            format!("no budget of refills for {free}: nothing keeps the memory from saturation");
        memory.saturated = Some((first, reason));
    } else if !table.holds(total, BytesPerSec(dma)) {
        let mut reason = format!(
            "budgets of {total} in {} beside {dma} B/s of DMA saturate the memory (Eq. 2)",
            table.period()
        );
        if let Some(hint) = counted_whole(&memory.vms, table.period()) {
            reason.push_str(&hint);
        }
        memory.saturated = Some((first, reason));
    }
    Ok(Some(memory))
}

/// Which budgets count more than their rate, and how to write them so that they don't.
fn counted_whole(vms: &[Row], of_table: Nanos) -> Option<String> {
    let longer: Vec<_> = vms
        .iter()
        .filter_map(|vm| {
            let (accesses, period) = vm.budget.filter(|(_, period)| *period > of_table)?;
            let share = u128::from(accesses) * u128::from(of_table.0) / u128::from(period.0);
            Some(format!("{} {share}", vm.name))
        })
        .collect();
    (!longer.is_empty()).then(|| {
        format!(
            "; a budget of a longer period may be spent in one burst and counts whole, in {of_table} the same \
             rate would be {}",
            longer.join(", ")
        )
    })
}

impl Memory {
    /// Whether nothing saturates and every VM gets what it must.
    pub fn holds(&self) -> bool {
        self.reasons().next().is_none()
    }

    /// Why not.
    fn reasons(&self) -> impl Iterator<Item = &(Place, String)> {
        self.reasons.iter().chain(&self.saturated)
    }

    /// How the memory may be saturated where the file says that it bears that.
    pub fn overcommitted(&self, timing: &Timing) -> Option<&str> {
        let mut rules = timing.vms.iter().filter_map(|vm| vm.bandwidth.as_ref());
        let (_, reason) = self.saturated.as_ref()?;
        rules.any(Bandwidth::overcommits).then_some(reason.as_str())
    }

    /// Why not, as faults of the file, less what it bears.
    pub fn faults(&self, timing: &Timing) -> Vec<Fault> {
        let help = "let `weir plan` choose, or lower budgets or the DMA bandwidth until `weir analyze` agrees";
        let fault =
            |(place, reason): &(Place, String)| timing.fault("bandwidth", place, reason, help);
        let borne = self.overcommitted(timing).is_some();
        let saturated = self.saturated.iter().filter(|_| !borne);
        self.reasons.iter().chain(saturated).map(fault).collect()
    }

    /// As `weir analyze --json` prints it.
    pub fn to_json(&self) -> Value {
        let vms = self.vms.iter().map(|vm| {
            json!({
                "name": vm.name,
                "budget": vm.budget.map(|budget| budget.0),
                "period_ns": vm.budget.map(|budget| budget.1.0),
                "bandwidth": vm.bandwidth.map(|bandwidth| bandwidth.0),
                "bandwidth_with_write_backs": vm.bandwidth.map(|bandwidth| bandwidth.1),
                "required": vm.required,
            })
        });
        json!({
            "holds": self.holds(),
            "period_ns": self.total.map(|total| total.2.0),
            "total_budget": self.total.map(|total| total.0),
            "max_total_budget": self.total.and_then(|total| total.1),
            "dma_bandwidth": self.dma.0,
            "max_dma_bandwidth": self.dma.1,
            "qos_level": self.qos.map(|qos| qos.0),
            "qos_bandwidth": self.qos.map(|qos| qos.1),
            "vms": vms.collect::<Vec<_>>(),
            "reasons": self.reasons().map(|reason| &reason.1).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = table(["VM", "budget", "refills B/s", "with write-backs", "required B/s"]);
        for vm in &self.vms {
            let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            rows.add_row([
                vm.name.clone(),
                or(vm.budget.map(|(accesses, period)| format!("{accesses} in {period}"))),
                or(vm.bandwidth.map(|bandwidth| bandwidth.0.to_string())),
                or(vm.bandwidth.map(|bandwidth| bandwidth.1.to_string())),
                or(vm.required.map(|required| required.to_string())),
            ]);
        }
        writeln!(f, "{rows}")?;
        if let Some((total, most, period)) = self.total {
            let most = most.map_or("none".to_owned(), |most| most.to_string());
            writeln!(
                f,
                "memory: budgets of {total} in {period} beside {} B/s of DMA; harmless up to {most}",
                self.dma.0
            )?;
        }
        if let Some((level, most)) = self.qos {
            writeln!(f, "QoS level {level} lets at most {most} B/s through (Eq. 1)")?;
        }
        for (_, reason) in self.reasons() {
            writeln!(f, "  {reason}")?;
        }
        Ok(())
    }
}
