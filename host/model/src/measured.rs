//! Measured values, of a board file or of a system file's own: the overheads of a transfer and of a
//! shared core, the saturation of the memory, and the interference of memory accesses.

use crate::diagnostics::Code;
use crate::document::{At, Reader, Values};
use crate::keys::measured::{GROWING, STEPS};
use std::ops::Range;
use toml::de::DeTable;
use weir_units::{Bytes, BytesPerSec, Events, Nanos};

/// Where measured values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The command that measured them, or a publication.
    pub command: String,
    /// The build of the hypervisor that was measured, if there was one.
    pub build: Option<String>,
    /// The date of the measurement.
    pub date: Option<String>,
}

/// A table of overheads: the file it is in, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverheadTable {
    /// The file, or `platform NAME`.
    pub file: String,
    /// Its origin, if the file has one.
    pub origin: Option<Origin>,
}

/// What a platform's or a system's `[overheads]` contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// The steps, in the order of the keys.
    pub steps: Vec<Overhead>,
    /// The bandwidth at which a core copies.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// Where the values come from.
    pub origin: Option<Origin>,
    /// Flows and VMs of the system that was measured.
    pub size: Option<[u64; 2]>,
    /// A larger system.
    pub larger: Option<Larger>,
}

/// The greatest values of a larger system than the one that a table is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Larger {
    /// Its flows and VMs.
    pub size: [u64; 2],
    /// Names of steps, and the greatest value of each.
    pub most: Vec<(&'static str, Nanos)>,
}

impl Overheads {
    /// Returns the steps for a system of so many flows and VMs. If it has more than the system that
    /// was measured, the larger system's values hold; if it has still more, the growth between the
    /// two goes on. The broker visits each VM to pick a packet and to find a place (`ps`, `qa`);
    /// the other steps search flows.
    #[must_use]
    pub fn for_system(&self, [flows, vms]: [u64; 2]) -> Vec<Overhead> {
        let (Some([few_flows, few_vms]), Some(larger)) = (self.size, &self.larger) else {
            return self.steps.clone();
        };
        let [many_flows, many_vms] = larger.size;
        let grown = |step: &Overhead| {
            let (here, few, many) = match step.name {
                "ps" | "qa" => (vms, few_vms, many_vms),
                _ => (flows, few_flows, many_flows),
            };
            let (_, at_many) = larger.most.iter().find(|(name, _)| *name == step.name)?;
            let growth = at_many.0.checked_sub(step.max.0).filter(|_| here > few)?;
            let beyond = here.saturating_sub(many).saturating_mul(growth);
            let max = at_many.0.saturating_add(beyond.div_ceil(many.saturating_sub(few).max(1)));
            Some(Overhead { max: Nanos(max), ..*step })
        };
        self.steps.iter().map(|step| grown(step).unwrap_or(*step)).collect()
    }
}

/// What a step of a transfer costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Its name in Table II of rt-virtio, in lower case, or `wake`, `copy`, `hold` or `tail`.
    pub name: &'static str,
    /// Least.
    pub min: Nanos,
    /// Greatest, at least `min`.
    pub max: Nanos,
}

/// Saturation of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saturation {
    /// The period of all budgets in here, at least 1 ns.
    pub period: Nanos,
    /// Bytes of a counted access, at least 1.
    pub line: Bytes,
    /// Total budget and DMA bandwidth that are together below saturation, at least one pair.
    pub points: Vec<(u64, BytesPerSec)>,
    /// The least budget that is enforced well.
    pub min_accesses: u64,
    /// The shortest period whose budgets are enforced well; 0 if it was not measured.
    pub min_period: Nanos,
    /// Accesses between a budget's end and the stop, if known.
    pub overshoot: Option<Events>,
    /// Delay by one access of another VM.
    pub delay: Option<Nanos>,
    /// Accesses of each other VM that can delay one access.
    pub per_access: Option<u64>,
    /// Bytes and clock, in Hz, of the DMA engine's QoS regulator (rt-virtio, Eq. 1).
    pub qos: Option<(Bytes, u64)>,
    /// Chunk sizes and what the DMA engine reaches with them.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// The source of the values, if the file states it.
    pub source: Option<String>,
}

/// What memory accesses of other VMs do to a core on a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interference {
    /// Delay by one access of another VM; 0 where the platform's memory has no timing.
    pub delay: Nanos,
    /// Accesses of each other VM that can delay one access.
    pub per_access: Option<u64>,
    /// Accesses between a budget's end and the stop by the PMU's interrupt.
    pub overshoot: Option<Events>,
    /// Where the values come from: a kind such as `paper` or `assumed`, a colon and a text.
    pub source: String,
}

/// The time that EL2 takes of a core that VMs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The most that a switch takes, from the one guest to the other.
    pub switch: Nanos,
    /// The least.
    pub least_switch: Nanos,
    /// Upper bound on the time that one interrupt for a VM that is off the core, or another request
    /// to it, takes.
    pub interrupt: Nanos,
    /// The part of it that stays with the interrupted VM; the interrupt's VM is charged with the
    /// rest.
    pub entry: Nanos,
}

/// The words that a value's source may begin with.
const SOURCES: [&str; 7] = ["manual", "paper", "measured", "fitted", "derived", "model", "assumed"];

impl Reader<'_> {
    pub fn overheads(&mut self, table: &DeTable<'_>) -> Overheads {
        let Some((table, _)) = table.inner("overheads") else {
            return Overheads::default();
        };
        let mut steps = Vec::new();
        for name in STEPS {
            let Some((range, span)) = table.inner(name) else {
                continue;
            };
            let (Some(min), Some(max)) = (range.nanos("min"), range.nanos("max")) else {
                continue;
            };
            if min.value > max.value {
                let message = format!(
                    "the overhead {name} is at least {} and at most {}",
                    min.value, max.value
                );
                self.fault(Code::RangeReversed, &span, message, "write the smaller one as `min`");
                continue;
            }
            steps.push(Overhead { name, min: min.value, max: max.value });
        }
        let origin = table.inner("origin").and_then(|(origin, _)| {
            let text = |key| origin.text(key).map(|text| text.value);
            Some(Origin { command: text("command")?, build: text("build"), date: text("date") })
        });
        let copy_bandwidth = self.rate(table, "copy_bandwidth", "[overheads]");
        let size =
            |table: &DeTable<'_>| Some([table.number("flows")?.value, table.number("vms")?.value]);
        let larger = table.inner("larger").and_then(|(larger, _)| {
            let most = GROWING.into_iter();
            let most = most.filter_map(|name| Some((name, larger.nanos(name)?.value)));
            Some(Larger { size: size(larger)?, most: most.collect() })
        });
        Overheads {
            steps,
            copy_bandwidth: copy_bandwidth.map(|rate| rate.value),
            origin,
            size: size(table),
            larger,
        }
    }

    pub fn saturation(&mut self, table: &DeTable<'_>) -> Option<Saturation> {
        let (table, _) = table.inner("saturation")?;
        let period = self.time(table, "period", "[saturation]");
        let line = self.size(table, "line", "[saturation]");
        let points: Vec<_> = table
            .tables("points")
            .into_iter()
            .filter_map(|(point, _)| {
                Some((point.number("accesses")?.value, point.rate("dma")?.value))
            })
            .collect();
        if let (true, Some(points)) = (points.is_empty(), table.value("points")) {
            let help = "add a measured pair: { accesses = 180, dma = \"485MB/s\" }";
            self.fault(Code::SaturationPoints, &points.span(), "[saturation] has no points", help);
            return None;
        }
        let source = self.source(table);
        let mut chunks = Vec::new();
        for (chunk, _) in table.tables("chunks") {
            let size = self.size(chunk, "size", "a chunk");
            let reach = self.rate(chunk, "dma", "a chunk");
            chunks.extend(size.zip(reach).map(|(size, reach)| (size.value, reach.value)));
        }
        let free = |key: &str| table.number(key).map(|number| number.value);
        Some(Saturation {
            period: period?.value,
            line: line?.value,
            points,
            min_accesses: free("min_accesses").unwrap_or(0),
            min_period: table.duration("min_period").map_or(Nanos(0), |least| least.value),
            overshoot: free("overshoot").map(Events),
            delay: table.duration("delay").map(|delay| delay.value),
            per_access: free("per_access"),
            qos: table.size("qos_block").map(|size| size.value).zip(free("qos_clock")),
            chunks,
            source,
        })
    }

    /// Where the values of a table come from.
    fn source(&mut self, table: &DeTable<'_>) -> Option<String> {
        let At { value, span } = table.text("source")?;
        let kind = value.split_once(": ").map_or("", |(kind, _)| kind);
        if !SOURCES.contains(&kind) {
            let message = format!("`source` begins with none of: {}", SOURCES.join(", "));
            self.fault(
                Code::ValueSource,
                &span,
                message,
                "write a source like \"assumed: one line each 100 ns\"",
            );
            return None;
        }
        Some(value)
    }

    pub fn sharing(&mut self, table: &DeTable<'_>) -> Option<Sharing> {
        let (table, _) = table.inner("sharing")?;
        let (switch, switch_span) = table.inner("switch")?;
        let (least, most) = (switch.nanos("min")?.value, switch.nanos("max")?.value);
        if least > most || least.0 == 0 {
            let message = format!("a switch takes at least {least} and at most {most}");
            let help = "write the smaller one, which is more than 0, as `min`";
            self.fault(Code::RangeReversed, &switch_span, message, help);
            return None;
        }
        Some(Sharing {
            switch: most,
            least_switch: least,
            interrupt: self.time(table, "interrupt", "[sharing]")?.value,
            entry: self.time(table, "entry", "[sharing]")?.value,
        })
    }

    /// The effect of other VMs' memory accesses, from a platform file.
    pub fn interference(&mut self, table: &DeTable<'_>) -> Option<Interference> {
        let (table, _) = table.inner("interference")?;
        let source = self.source(table);
        let free = |key: &str| table.number(key).map(|number| number.value);
        Some(Interference {
            delay: table.duration("delay")?.value,
            per_access: free("per_access"),
            overshoot: free("overshoot").map(Events),
            source: source?,
        })
    }
}

/// The wake-ups behind some senders' notifications: the sender's name, and the greatest.
pub(crate) fn wakes(table: &DeTable<'_>) -> Vec<(String, Nanos)> {
    let Some((table, _)) = table.inner("overheads") else { return Vec::new() };
    let one = |(sender, _): (&DeTable<'_>, Range<usize>)| {
        Some((sender.text("vm")?.value, sender.nanos("wake")?.value))
    };
    table.tables("senders").into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_system_gets_the_larger_tables_values() {
        let step = |name, max| Overhead { name, min: Nanos(0), max: Nanos(max) };
        let table = Overheads {
            steps: vec![step("pp", 1000), step("ps", 500), step("wake", 70), step("qr", 300)],
            size: Some([2, 3]),
            larger: Some(Larger {
                size: [12, 4],
                most: vec![("pp", Nanos(1205)), ("ps", Nanos(600)), ("qr", Nanos(200))],
            }),
            ..Overheads::default()
        };
        let most = |size| table.for_system(size).iter().map(|step| step.max.0).collect::<Vec<_>>();
        assert_eq!(most([1, 2]), [1000, 500, 70, 300]);
        assert_eq!(most([2, 3]), [1000, 500, 70, 300]);
        assert_eq!(most([3, 3]), [1205, 500, 70, 300]);
        assert_eq!(most([12, 4]), [1205, 600, 70, 300]);
        // Ten more flows and two more VMs: the growth goes on, rounded up.
        assert_eq!(most([22, 6]), [1410, 800, 70, 300]);
        assert_eq!(most([13, 3]), [1226, 500, 70, 300]);
    }
}
