//! The part of the report about a flow.

use super::finding::{Finding, Latency};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of the report about a flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowRun {
    /// The name.
    pub name: String,
    /// The VM that sends.
    #[serde(default)]
    pub from: String,
    /// The VM that receives.
    #[serde(default)]
    pub to: String,
    /// The address that its sender connects to: context identifier and port.
    #[serde(default)]
    pub address: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were dropped because an end of the flow was reset.
    pub lost: u64,
    /// The observed maximum of the time, in ns, from the later of a packet's notification and its
    /// eligibility to its receiver's interrupt.
    pub observed_max_ns: u64,
    /// The flow's deadline in ns; none for best effort.
    pub deadline_ns: Option<u64>,
    /// The least time between two packets, in ns; none if the flow has no period.
    #[serde(skip)]
    pub period_ns: Option<u64>,
    /// The receiver's VM shares all of its cores: a latency ends when it has one.
    #[serde(skip)]
    pub ends_on_core: bool,
    /// The place of the flow's first receiver among all receivers of flows: the trace has a packet
    /// that was sent once, under this number.
    #[serde(skip)]
    pub first_receiver: u32,
    /// Packets that missed the deadline.
    pub late: u64,
    /// The latencies of its packets, in ns; none without a packet. If the receiver's VM shares all
    /// of its cores, each ends when the VM has one.
    pub latency_ns: Option<Latency>,
    /// The number of packets by latency, without empty classes; empty without a trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<LatencyBucket>,
    /// The latency bound in ns, if the analysis can compute one.
    pub bound_ns: Option<u64>,
    /// The verdict on deadline and bound; none if there is neither.
    #[serde(flatten)]
    pub finding: Option<Finding>,
    /// The time of the counts, in nanoseconds since the hypervisor started: they contain no later
    /// packets. None if no counts arrived.
    pub counted_ns: Option<u64>,
    /// If there are several receivers, how often this one was dropped because it delayed others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u32>,
}

/// The packets of a flow with about the same latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBucket {
    /// The least latency in ns.
    pub from_ns: u64,
    /// One above the greatest latency, in ns.
    pub to_ns: u64,
    /// The number of packets.
    pub packets: u64,
}
