//! Faults that stopped a VM, and accesses of its devices that the SMMU refused.

use crate::syndrome;
use schemars::JsonSchema;
use serde::Serialize;
use weir_paging::smmu;
use weir_trace::wire::{Denial, FaultKind, WireEvent};

/// Limit on the faults of a VM that are listed. All faults are counted.
pub const FAULTS_LISTED: usize = 1000;

/// A fault that stopped a VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FaultReport {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The boot of the VM that it stopped, counted from 0.
    pub boot: u32,
    /// The vCPU that caused it.
    pub vcpu: u8,
    /// A [`FaultKind`] by name.
    pub kind: String,
    /// The intermediate physical address.
    pub address: String,
    /// The guest's program counter.
    pub pc: String,
    /// `ESR_EL2`.
    pub syndrome: String,
    /// `ESR_EL2` in words.
    pub meaning: String,
    /// `ESR_EL1`: the guest's last exception.
    pub guest_syndrome: String,
    /// `ESR_EL1` in words; none while it is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_meaning: Option<String>,
    /// `ELR_EL1`.
    pub guest_elr: String,
}

impl FaultReport {
    /// Describes an event of [`What::VmFault`](weir_trace::wire::What::VmFault).
    pub(super) fn new(event: &WireEvent, boot: u32) -> Self {
        Self {
            time_ns: event.time_ns,
            boot,
            vcpu: event.vcpu,
            kind: fault_name(event.detail),
            address: hex(event.address),
            pc: hex(event.pc),
            syndrome: hex(event.syndrome),
            meaning: syndrome::words(event.syndrome),
            guest_syndrome: hex(event.guest_syndrome),
            guest_meaning: (event.guest_syndrome != 0)
                .then(|| syndrome::words(event.guest_syndrome)),
            guest_elr: hex(event.guest_elr),
        }
    }
}

/// An access of a VM's device that the SMMU refused: the first of each stream in a boot.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RefusedDma {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The boot of the VM, counted from 0.
    pub boot: u32,
    /// The device's stream ID at the SMMU.
    pub stream: u32,
    /// `read` or `write`.
    pub access: &'static str,
    /// The SMMU's name of the fault.
    pub kind: &'static str,
    /// The address that the device used.
    pub address: String,
}

impl RefusedDma {
    /// Describes an event of [`Denial::Dma`].
    pub(super) fn new(event: &WireEvent, boot: u32) -> Self {
        Self {
            time_ns: event.time_ns,
            boot,
            stream: (event.syndrome >> 32) as u32,
            access: if event.syndrome >> 8 & 1 == 1 { "write" } else { "read" },
            kind: smmu::fault_name(event.syndrome as u8),
            address: hex(event.address),
        }
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
