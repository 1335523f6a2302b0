//! The answer of the firmware to the request to limit the DMA engine.

use weir_model::System;
use weir_report::run::EngineRun;
use weir_trace::wire::{Regulator, WireEvent};

/// Returns the limits by the system file, if the engine moves something.
pub(crate) fn engine_of(system: &System) -> Option<EngineRun> {
    system.moved_by_engine_from()?;
    let qos = system.qos_level();
    Some(EngineRun {
        name: system.engine()?.name.clone(),
        paced: system.dma.bandwidth.map(|rate| rate.0),
        qos_level: qos.map(|(level, _)| level),
        qos_bandwidth: qos.map(|(_, most)| most.0),
        firmware: None,
        firmware_code: None,
    })
}

/// Returns the limits of an engine with the answer of the firmware.
pub(crate) fn answered(engine: EngineRun, answer: Option<&WireEvent>) -> EngineRun {
    let Some((answer, event)) = answer.and_then(|event| Some((regulator(event)?, event))) else {
        return engine;
    };
    let has_code = matches!(answer, Regulator::Version | Regulator::Refused);
    let firmware_code = has_code.then(|| event.syndrome.cast_signed());
    EngineRun { firmware: Some(answer), firmware_code, ..engine }
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
        answered(engine(Some(40)), Some(&event)).to_string()
    }

    #[test]
    fn the_line_names_what_limits_the_engine() {
        let paced = "chunks are paced by software at 485MB/s";
        let by = |limit: &str| format!("DMA engine GDMA: {limit}{paced}");
        assert_eq!(engine(None).to_string(), by(""));
        assert_eq!(answered(engine(Some(40)), None), engine(Some(40)));
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
