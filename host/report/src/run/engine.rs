//! The limits of the DMA engine of the broker in a run.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use weir_trace::wire::Regulator;
use weir_units::BytesPerSec;

/// The limits of the DMA engine that moves chunks of flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineRun {
    /// The name.
    pub name: String,
    /// The rate at which the broker starts chunks, its own copies included, in bytes/s; none if
    /// nothing limits it.
    pub paced: Option<u64>,
    /// The level of the QoS regulator that the system file asks for.
    pub qos_level: Option<u64>,
    /// The most that this level lets through by Eq. 1, in bytes/s.
    pub qos_bandwidth: Option<u64>,
    /// The firmware's answer: `set`, `absent`, `version` or `refused`; none if it was not
    /// asked, or if the answer was not received.
    #[serde(serialize_with = "by_name", deserialize_with = "from_name")]
    #[schemars(with = "Option<String>")]
    pub firmware: Option<Regulator>,
    /// The firmware's version or error, if it has set nothing.
    pub firmware_code: Option<i64>,
}

/// Writes an answer of the firmware as its name.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes the field")]
fn by_name<S: Serializer>(answer: &Option<Regulator>, out: S) -> Result<S::Ok, S::Error> {
    answer.map(Regulator::name).serialize(out)
}

/// Reads an answer of the firmware by its name.
fn from_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regulator>, D::Error> {
    let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let answer = Regulator::ALL.iter().copied().find(|answer| answer.name() == name);
    answer.map(Some).ok_or_else(|| D::Error::custom(format!("unknown answer `{name}`")))
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
