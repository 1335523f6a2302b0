//! What limits the DMA engine of the broker in a run.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;
use weir_model::System;
use weir_trace::wire::{Regulator, WireEvent};
use weir_units::BytesPerSec;

/// The limits of the DMA engine that moves chunks of flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EngineRun {
    /// Its name.
    pub name: String,
    /// The rate at which the broker starts chunks, its own copies included, in bytes/s; none if
    /// nothing limits it.
    pub paced: Option<u64>,
    /// The level of the QoS regulator that the system file asks for.
    pub qos_level: Option<u64>,
    /// The most that this level lets through by Eq. 1, in bytes/s.
    pub qos_bandwidth: Option<u64>,
    /// What the firmware made of it: `set`, `absent`, `version` or `refused`; none if it was not
    /// asked, or if the answer was not received.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "Option<String>")]
    pub firmware: Option<Regulator>,
    /// The firmware's version or error, if it has set nothing.
    pub firmware_code: Option<i64>,
}

impl EngineRun {
    /// Returns the limits by the system file, if the engine moves something.
    pub(crate) fn of(system: &System) -> Option<Self> {
        system.engine_from()?;
        let timing = &system.timing;
        let qos = timing.qos_level();
        Some(Self {
            name: timing.engine()?.name.clone(),
            paced: timing.dma.bandwidth.map(|rate| rate.0),
            qos_level: qos.map(|(level, _)| level),
            qos_bandwidth: qos.map(|(_, most)| most.0),
            firmware: None,
            firmware_code: None,
        })
    }

    /// Returns the same with the answer of the firmware.
    pub(crate) fn answered(self, answer: Option<&WireEvent>) -> Self {
        let Some((answer, event)) = answer.and_then(|event| Some((regulator(event)?, event)))
        else {
            return self;
        };
        let has_code = matches!(answer, Regulator::Version | Regulator::Refused);
        let firmware_code = has_code.then(|| event.syndrome.cast_signed());
        Self { firmware: Some(answer), firmware_code, ..self }
    }
}

/// Writes an answer of the firmware as its name.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes the field")]
fn by_name<S: Serializer>(answer: &Option<Regulator>, out: S) -> Result<S::Ok, S::Error> {
    answer.map(Regulator::name).serialize(out)
}

/// Returns the answer of an event [`What::Regulator`](weir_trace::wire::What::Regulator).
fn regulator(event: &WireEvent) -> Option<Regulator> {
    Regulator::ALL.get(event.detail as usize).copied()
}

/// Returns this event as a line of the hypervisor's log.
pub(super) fn in_words(event: &WireEvent) -> String {
    let name = regulator(event).map_or("unknown answer", Regulator::name);
    format!("QoS regulator of the DMA engine: {name} ({:#x})", event.syndrome)
}

impl fmt::Display for EngineRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, qos_level, firmware_code, .. } = self;
        write!(out, "DMA engine {name}: ")?;
        let code = firmware_code.unwrap_or_default();
        match (qos_level, self.firmware) {
            (None, _) => {}
            (Some(level), Some(Regulator::Set)) => {
                let most = self.qos_bandwidth.unwrap_or_default();
                write!(
                    out,
                    "QoS regulator at level {level}, at most {} (Eq. 1), by firmware; ",
                    BytesPerSec(most)
                )?;
            }
            (Some(_), Some(Regulator::Absent)) => {
                write!(out, "the firmware has no QoS call (boards/zcu102/firmware-call.md); ")?;
            }
            (Some(_), Some(Regulator::Version)) => write!(
                out,
                "the firmware's QoS call has version {}.{}, which weir does not know; ",
                code >> 16,
                code & 0xffff
            )?,
            (Some(level), Some(Regulator::Refused)) => {
                write!(out, "the firmware refused QoS level {level} with error {code}; ")?;
            }
            (Some(level), None) => {
                write!(out, "no answer of the firmware to QoS level {level} was received; ")?;
            }
        }
        match self.paced {
            Some(rate) => write!(out, "chunks are paced by software at {}", BytesPerSec(rate)),
            None => write!(out, "chunks are not paced: [dma] has no `bandwidth`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(level: Option<u64>) -> EngineRun {
        EngineRun {
            name: "GDMA".into(),
            paced: Some(485_000_000),
            qos_level: level,
            qos_bandwidth: level.map(|_| 625_000_000),
            firmware: None,
            firmware_code: None,
        }
    }

    /// The summary's line after this answer of the firmware.
    fn line(detail: u32, syndrome: u64) -> String {
        let event = WireEvent { detail, syndrome, ..WireEvent::default() };
        engine(Some(40)).answered(Some(&event)).to_string()
    }

    #[test]
    fn the_line_names_what_limits_the_engine() {
        let paced = "chunks are paced by software at 485MB/s";
        let by = |limit: &str| format!("DMA engine GDMA: {limit}{paced}");
        assert_eq!(engine(None).to_string(), by(""));
        assert_eq!(engine(Some(40)).answered(None), engine(Some(40)));
        let answers = [
            (
                Regulator::Set,
                40,
                "QoS regulator at level 40, at most 625MB/s (Eq. 1), by firmware; ",
            ),
            (
                Regulator::Absent,
                0,
                "the firmware has no QoS call (boards/zcu102/firmware-call.md); ",
            ),
            (
                Regulator::Version,
                0x2_0005,
                "the firmware's QoS call has version 2.5, which weir does not know; ",
            ),
            (
                Regulator::Refused,
                (-3_i64).cast_unsigned(),
                "the firmware refused QoS level 40 with error -3; ",
            ),
        ];
        for (answer, code, limit) in answers {
            assert_eq!(line(answer as u32, code), by(limit));
        }
        let unknown = by("no answer of the firmware to QoS level 40 was received; ");
        assert_eq!(line(99, 0), unknown);
        let unpaced = EngineRun { paced: None, ..engine(None) };
        let none = "DMA engine GDMA: chunks are not paced: [dma] has no `bandwidth`";
        assert_eq!(unpaced.to_string(), none);
    }
}
