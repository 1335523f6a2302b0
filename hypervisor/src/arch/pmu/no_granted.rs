//! Replaces `granted` in a hypervisor without this part: no VM has event counters.

/// The PMU that no vCPU has.
pub enum VirtualPmu {}
