//! Faults that stopped a VM, operations that EL2 refused, and accesses of devices that the SMMU
//! refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limit on the faults of a VM that are listed. All faults are counted.
pub const FAULTS_LISTED: usize = 1000;

/// A fault that stopped a VM.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FaultReport {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The boot of the VM that it stopped, counted from 0.
    pub boot: u32,
    /// The vCPU that caused it.
    pub vcpu: u8,
    /// A [`FaultKind`](weir_trace::wire::FaultKind) by name.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_meaning: Option<String>,
    /// `ELR_EL1`.
    pub guest_elr: String,
}

/// An operation that EL2 refused: the first of its kind in a boot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeniedOperation {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The boot of the VM, counted from 0.
    pub boot: u32,
    /// The vCPU that asked for it.
    pub vcpu: u8,
    /// The kind, as in [`VmRun::denials`](super::VmRun::denials).
    pub kind: String,
    /// The action of the guest.
    pub cause: String,
    /// The guest's program counter.
    pub pc: String,
}

/// An access of a VM's device that the SMMU refused: the first of each stream in a boot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedDma {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The boot of the VM, counted from 0.
    pub boot: u32,
    /// The device's stream ID at the SMMU.
    pub stream: u32,
    /// `read` or `write`.
    pub access: String,
    /// The SMMU's name of the fault.
    pub kind: String,
    /// The address that the device used.
    pub address: String,
}
