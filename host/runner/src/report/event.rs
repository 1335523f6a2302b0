//! The line of the hypervisor's log for an event.

use super::engine;
use super::fault::{self, denial_name, fault_name};
use crate::syndrome;
use std::fmt::Write as _;
use weir_report::run::RefusedDma;
use weir_trace::wire::{Denial, HYPERVISOR, What, WireEvent};

/// The message about a VM with an event [`What::BrokerLate`].
pub(crate) const WITHOUT_BROKER: &str =
    "started without the broker, which was not ready; no bound contains the wait for it";

/// Returns an event as a line of the hypervisor's log, without its time. `name` returns the name of
/// a VM.
pub(crate) fn in_words(event: &WireEvent, name: impl Fn(u8) -> String) -> String {
    let vm = if event.vm == HYPERVISOR { "weir".to_owned() } else { name(event.vm) };
    let vcpu = event.vcpu;
    let place = |event: &WireEvent| format!("at pc {:#x}", event.pc);
    match What::from_number(event.what) {
        Some(What::SystemStart) => "weir: running on all cores".into(),
        Some(What::SystemRuns) => format!("weir: runs image {:016x}", event.syndrome),
        Some(What::SystemStop) => "weir: the system ends".into(),
        Some(What::Regulator) => format!("weir: {}", engine::in_words(event)),
        Some(What::VmStart) => format!("{vm}: started, boot {}", event.detail),
        Some(What::VmOff) => format!("{vm}: powered off"),
        Some(What::VmReset) => format!("{vm}: asked for a reset"),
        Some(What::VmHalted) => format!("{vm}: halted for good"),
        Some(What::BrokerLate) => format!("{vm}: {WITHOUT_BROKER}"),
        Some(What::VmFault) => {
            let mut words = format!(
                "{vm}: fault on vCPU {vcpu}: {}, address {:#x}, {}; {} (ESR_EL2 {:#x})",
                fault_name(event.detail),
                event.address,
                place(event),
                syndrome::words(event.syndrome),
                event.syndrome,
            );
            if event.guest_syndrome != 0 {
                let _ = write!(
                    words,
                    "; the guest's own last exception: {} (ESR_EL1 {:#x}) from {:#x}",
                    syndrome::words(event.guest_syndrome),
                    event.guest_syndrome,
                    event.guest_elr
                );
            }
            words
        }
        Some(What::Denied) if event.detail == Denial::Dma as u32 => {
            let RefusedDma { stream, access, kind, address, .. } = fault::dma(event, 0);
            format!("{vm}: {} (stream {stream}): {access} at {address}, {kind}", Denial::Dma.name())
        }
        Some(What::Denied) => format!(
            "{vm}: refused on vCPU {vcpu}: {} {:#x}, {}",
            denial_name(event.detail),
            event.syndrome,
            place(event)
        ),
        None => {
            format!("{vm}: event {} of a newer hypervisor, detail {}", event.what, event.detail)
        }
    }
}
