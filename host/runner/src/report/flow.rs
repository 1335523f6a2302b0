//! The facts about a flow that a run starts with.

#[cfg(doc)]
use weir_report::run::FlowRun;

/// A flow of the system file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowFacts {
    /// Its name. If there are several receivers, a slash and the receiver's name follow.
    pub name: String,
    /// The VM that sends.
    pub from: String,
    /// The VM that receives.
    pub to: String,
    /// See [`FlowRun::address`].
    pub address: String,
    /// See [`FlowRun::bound_ns`].
    pub bound_ns: Option<u64>,
    /// See [`FlowRun::deadline_ns`].
    pub deadline_ns: Option<u64>,
    /// See [`FlowRun::period_ns`].
    pub period_ns: Option<u64>,
    /// Whether there are several receivers.
    pub shared: bool,
    /// See [`FlowRun::ends_on_core`].
    pub ends_on_core: bool,
    /// See [`FlowRun::first_receiver`].
    pub first_receiver: u32,
}
