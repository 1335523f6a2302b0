//! The plan of a system: what runs where and when, who owns which memory, and who sends what to
//! whom. A run keeps it as `plan.json`.

mod of;
mod picture;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the plan in the directory of a run, as JSON.
pub const PLAN: &str = "plan.json";

/// The plan of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SystemPlan {
    /// The name of the system file without its extension.
    pub system: String,
    /// The platform.
    pub platform: String,
    /// The VMs in the order of the file, and the broker.
    pub vms: Vec<PlannedVm>,
    /// The cores that VMs have.
    pub cores: Vec<PlannedCore>,
    /// The RAM of the board in bytes.
    pub ram_bytes: u64,
    /// The owners of the RAM by address.
    pub memory: Vec<PlannedArea>,
    /// The flows, one for each receiver.
    pub flows: Vec<PlannedFlow>,
    /// The devices of the board that a VM has, and the virtual ones on the switch.
    pub devices: Vec<PlannedDevice>,
    /// The page classes, if memory is divided.
    pub classes: Option<PlannedClasses>,
}

/// A VM of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedVm {
    /// The name.
    pub name: String,
    /// The core of each vCPU.
    pub cores: Vec<u8>,
    /// The RAM in bytes.
    pub memory_bytes: u64,
    /// The image and the initial RAM disk.
    pub images: Vec<String>,
    /// The arguments of its image.
    pub arguments: String,
    /// The memory budget in accesses per period.
    pub budget: Option<PlannedBudget>,
    /// The tasks.
    pub tasks: Vec<PlannedTask>,
}

/// A memory budget of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedBudget {
    /// Accesses in each period.
    pub accesses: u64,
    /// The period in ns.
    pub period_ns: u64,
}

/// A task of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTask {
    /// The name.
    pub name: String,
    /// The worst-case execution time in ns.
    pub wcet_ns: u64,
    /// The period in ns.
    pub period_ns: u64,
    /// The deadline in ns.
    pub deadline_ns: u64,
}

/// A core of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedCore {
    /// The core.
    pub core: u8,
    /// The schedule in words; none if one VM has the core for itself.
    pub schedule: Option<String>,
    /// The time after which the schedule repeats, in ns; 0 for budgets with periods of their own.
    pub frame_ns: u64,
    /// The shares of the core, in the order of time or of falling priority.
    pub shares: Vec<PlannedShare>,
}

/// A share of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedShare {
    /// The VM.
    pub vm: String,
    /// The beginning within the frame, in ns.
    pub start_ns: u64,
    /// The length in ns: of the slot, of the time slice, or of the budget.
    pub length_ns: u64,
    /// The period of a budget in ns; none if the schedule has no budgets.
    pub period_ns: Option<u64>,
}

/// A piece of RAM of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedArea {
    /// The first byte.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// `weir` or the VM; none if it has no owner.
    pub owner: Option<String>,
    /// The kind, for example `RAM`.
    pub what: String,
}

/// A flow of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedFlow {
    /// The name.
    pub name: String,
    /// The VM that sends.
    pub from: String,
    /// The VM that receives.
    pub to: String,
    /// The address that the sender connects to: context identifier and port.
    pub address: String,
    /// Bytes of a packet.
    pub size_bytes: u64,
    /// The least time between two packets in ns; none for best effort.
    pub period_ns: Option<u64>,
    /// The deadline in ns; none for best effort.
    pub deadline_ns: Option<u64>,
}

/// A device of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDevice {
    /// The VM.
    pub vm: String,
    /// The device: its path on the board, a PCI function, or a port of the switch.
    pub device: String,
}

/// The page classes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedClasses {
    /// The number of cache colors of the board.
    pub colors: u16,
    /// The number of groups of banks of the board.
    pub bank_groups: u16,
    /// The number of banks in a group.
    pub banks_in_group: u16,
    /// The classes of the board.
    pub classes: Vec<PlannedClass>,
}

/// A page class of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedClass {
    /// The color of its pages.
    pub color: u16,
    /// The group of banks of its pages.
    pub bank: u16,
    /// The owners, `weir` among them.
    pub owners: Vec<String>,
}
