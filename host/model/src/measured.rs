//! Measured values, of a board file or of a system file's own: the overheads of a transfer and of a
//! shared core, the saturation of the memory, and the interference of memory accesses.

pub use crate::keys::measured::{Interference, Origin};

use crate::diagnostics::Code;
use crate::document::Reader;
use crate::keys::measured as keys;
use crate::table::At;
use weir_units::{Bytes, BytesPerSec, Events, Nanos};

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
pub struct OverheadValues {
    /// The steps, in the order of the keys.
    pub steps: Vec<Overhead>,
    /// The bandwidth at which a core copies.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// The bandwidth at which the DMA engine moves a chunk.
    pub engine_bandwidth: Option<BytesPerSec>,
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

impl OverheadValues {
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
    /// The hypervisor that it was measured on.
    pub measured_on: MeasuredOn,
}

/// The hypervisor that an overhead was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredOn {
    /// weir: the origin is a command of weir's.
    Weir,
    /// Another one: the origin is something else.
    Other,
    /// The file states no origin.
    Unknown,
}

impl MeasuredOn {
    /// The hypervisor of a table with this origin.
    fn of(origin: Option<&Origin>) -> Self {
        match origin {
            None => Self::Unknown,
            Some(origin) if origin.command.starts_with("weir ") => Self::Weir,
            Some(_) => Self::Other,
        }
    }
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
    /// The shortest period with well-enforced budgets; 0 if it was not measured.
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
    /// The source of `chunks`, if it is not `source`.
    pub chunks_source: Option<String>,
    /// The source of the values, if the file states it.
    pub source: Option<String>,
}

/// The time that EL2 takes of a core that VMs share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The source of the values; empty where only a system file states a switch.
    pub source: String,
}

/// The names of steps that take longer the more flows or VMs there are, with their values.
fn growing(keys: &keys::Larger) -> [(&'static str, Option<Nanos>); 8] {
    [
        ("pp", keys.pp),
        ("ql", keys.ql),
        ("qi", keys.qi),
        ("qa", keys.qa),
        ("qr", keys.qr),
        ("ps", keys.ps),
        ("ft", keys.ft),
        ("hold", keys.hold),
    ]
}

/// The constants of rt-virtio, Table II, and four of weir's own data path, by their names.
fn steps(keys: &keys::Overheads) -> [(&'static str, &Option<At<keys::Limits>>); 16] {
    [
        ("hc", &keys.hc),
        ("pt", &keys.pt),
        ("pp", &keys.pp),
        ("ql", &keys.ql),
        ("qi", &keys.qi),
        ("qa", &keys.qa),
        ("qr", &keys.qr),
        ("ps", &keys.ps),
        ("pd", &keys.pd),
        ("ft", &keys.ft),
        ("ip", &keys.ip),
        ("br", &keys.br),
        ("wake", &keys.wake),
        ("copy", &keys.copy),
        ("hold", &keys.hold),
        ("tail", &keys.tail),
    ]
}

impl OverheadValues {
    pub(crate) fn of(keys: &keys::Overheads, reader: &mut Reader<'_>) -> Self {
        let measured_on = MeasuredOn::of(keys.origin.as_ref());
        let mut found = Vec::new();
        for (name, limits) in steps(keys) {
            let Some(At { value: keys::Limits { min, max }, span }) = limits else { continue };
            if min > max {
                let message =
                    format!("[overheads]: `{name}` has a min of {min} above its max of {max}");
                let help = format!("write min = {}, max = {}", max.0, min.0);
                reader.fault(Code::OutOfRange, span, message, help);
                continue;
            }
            found.push(Overhead { name, min: *min, max: *max, measured_on });
        }
        let larger = keys.larger.as_ref().map(|larger| {
            let most = growing(larger).into_iter();
            let most = most.filter_map(|(name, most)| Some((name, most?))).collect();
            Larger { size: [larger.flows, larger.vms], most }
        });
        Self {
            steps: found,
            copy_bandwidth: keys.copy_bandwidth,
            engine_bandwidth: keys.engine_bandwidth,
            origin: keys.origin.clone(),
            size: keys.flows.zip(keys.vms).map(|(flows, vms)| [flows, vms]),
            larger,
        }
    }
}

impl Saturation {
    pub(crate) fn of(keys: Option<&keys::Saturation>, reader: &mut Reader<'_>) -> Option<Self> {
        let keys = keys?;
        if keys.points.is_empty() {
            let help = "add a measured pair: { accesses = 180, dma = \"485MB/s\" }";
            let message = "[saturation]: `points` is empty";
            reader.fault(Code::SaturationPoints, &keys.points.span, message, help);
            return None;
        }
        Some(Self {
            period: keys.period,
            line: keys.line,
            points: keys.points.iter().map(|point| (point.accesses, point.dma)).collect(),
            min_accesses: keys.min_accesses,
            min_period: keys.min_period,
            overshoot: keys.overshoot,
            delay: keys.delay,
            per_access: keys.per_access,
            qos: keys.qos_block.zip(keys.qos_clock),
            chunks: keys.chunks.iter().map(|chunk| (chunk.size, chunk.dma)).collect(),
            chunks_source: keys.chunks_source.clone(),
            source: keys.source.clone(),
        })
    }
}

impl Sharing {
    pub(crate) fn of(keys: &keys::Sharing, reader: &mut Reader<'_>) -> Option<Self> {
        let At { value: keys::Limits { min, max }, span } = &keys.switch;
        if min > max || min.0 == 0 {
            let message = format!(
                "[sharing]: `switch` has a min of {min}, which is 0 or above its max of {max}"
            );
            let help = "write the smaller one, which is more than 0, as `min`";
            reader.fault(Code::OutOfRange, span, message, help);
            return None;
        }
        let (switch, least_switch) = (*max, *min);
        let keys::Sharing { interrupt, entry, ref source, .. } = *keys;
        Some(Self { switch, least_switch, interrupt, entry, source: source.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_system_gets_the_larger_tables_values() {
        let measured_on = MeasuredOn::Weir;
        let step = |name, max| Overhead { name, min: Nanos(0), max: Nanos(max), measured_on };
        let table = OverheadValues {
            steps: vec![step("pp", 1000), step("ps", 500), step("wake", 70), step("qr", 300)],
            size: Some([2, 3]),
            larger: Some(Larger {
                size: [12, 4],
                most: vec![("pp", Nanos(1205)), ("ps", Nanos(600)), ("qr", Nanos(200))],
            }),
            ..OverheadValues::default()
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
