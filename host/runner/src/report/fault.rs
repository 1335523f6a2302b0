//! Faults that stopped a VM, operations that EL2 refused, and accesses of devices that the SMMU
//! refused.

use crate::syndrome;
use weir_paging::smmu;
use weir_report::run::{DeniedOperation, FaultReport, RefusedDma};
use weir_trace::wire::{Denial, FaultKind, WireEvent};

/// Describes an event of [`What::VmFault`](weir_trace::wire::What::VmFault).
pub(super) fn fault(event: &WireEvent, boot: u32) -> FaultReport {
    FaultReport {
        time_ns: event.time_ns,
        boot,
        vcpu: event.vcpu,
        kind: fault_name(event.detail),
        address: hex(event.address),
        pc: hex(event.pc),
        syndrome: hex(event.syndrome),
        meaning: syndrome::words(event.syndrome),
        guest_syndrome: hex(event.guest_syndrome),
        guest_meaning: (event.guest_syndrome != 0).then(|| syndrome::words(event.guest_syndrome)),
        guest_elr: hex(event.guest_elr),
    }
}

/// Describes an event of [`What::Denied`](weir_trace::wire::What::Denied).
pub(super) fn denied(event: &WireEvent, boot: u32) -> DeniedOperation {
    DeniedOperation {
        time_ns: event.time_ns,
        boot,
        vcpu: event.vcpu,
        kind: denial_name(event.detail).into(),
        cause: cause(event),
        pc: hex(event.pc),
    }
}

/// Returns what the guest did, by the event's syndrome.
fn cause(event: &WireEvent) -> String {
    /// The class of a trapped system register in a syndrome whose event has the rest only.
    const REGISTER: u64 = 0x18 << 26;
    let value = event.syndrome;
    match Denial::ALL.get(event.detail as usize) {
        Some(Denial::Call) => format!("function {value:#x}"),
        Some(Denial::Psci) => format!("argument {value:#x}"),
        Some(
            Denial::Pmu
            | Denial::Debug
            | Denial::Trace
            | Denial::ImplementationDefined
            | Denial::SetWay
            | Denial::Register,
        ) if value >> 26 == 0 => syndrome::words(REGISTER | value),
        Some(Denial::Virtio) => format!("reason {value}"),
        Some(Denial::Engine) if value == 0 => "it took too long".into(),
        Some(Denial::Engine) => format!("error bits {value:#x}"),
        Some(Denial::Dma) | None => hex(value),
        Some(_) => syndrome::words(value),
    }
}

/// Describes an event of [`Denial::Dma`].
pub(super) fn dma(event: &WireEvent, boot: u32) -> RefusedDma {
    RefusedDma {
        time_ns: event.time_ns,
        boot,
        stream: (event.syndrome >> 32) as u32,
        access: if event.syndrome >> 8 & 1 == 1 { "write" } else { "read" }.into(),
        kind: smmu::fault_name(event.syndrome as u8).into(),
        address: hex(event.address),
    }
}

/// Returns the name of a [`FaultKind`] by its number.
pub(super) fn fault_name(number: u32) -> String {
    FaultKind::ALL
        .get(number as usize)
        .map_or_else(|| format!("fault of unknown kind {number}"), |kind| kind.name().into())
}

/// Returns the name of a [`Denial`] by its number.
pub(super) fn denial_name(number: u32) -> &'static str {
    Denial::ALL.get(number as usize).map_or("unknown denial", |denial| denial.name())
}

/// Formats an address or a register.
fn hex(value: u64) -> String {
    format!("{value:#x}")
}
