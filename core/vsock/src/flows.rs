//! Which packets a system's flows allow.
//!
//! A flow is a sender, a receiver and the receiver's port. Its data go one way; the control packets
//! of its connections go both ways, and only the sender asks for a connection.

use crate::vsock::{Header, Operation};
use weir_units::Cid;

/// What a flow allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The sender's context identifier.
    pub from: Cid,
    /// The receiver's.
    pub to: Cid,
    /// The receiver's port.
    pub port: u32,
}

/// What becomes of a packet. Flows are told by their place in the list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketVerdict {
    /// Transferred by its deadline, as a packet of this flow: data, and what must not overtake
    /// them.
    Transfer(usize),
    /// Passed at once, as a control packet of this flow.
    Pass(usize),
    /// Answered with a reset.
    Refuse,
}

/// Judges a packet by the first rule that it falls under. `operation` is the header's.
#[must_use]
pub fn admit(
    rules: impl IntoIterator<Item = FlowRule>,
    header: &Header,
    operation: Operation,
) -> PacketVerdict {
    for (flow, rule) in rules.into_iter().enumerate() {
        let forth =
            (rule.from, rule.to, rule.port) == (header.src_cid, header.dst_cid, header.dst_port);
        let back =
            (rule.to, rule.from, rule.port) == (header.src_cid, header.dst_cid, header.src_port);
        match operation {
            // An end that overtook data would cut them off.
            Operation::Data | Operation::Shutdown | Operation::Reset if forth => {
                return PacketVerdict::Transfer(flow);
            }
            Operation::Request | Operation::CreditUpdate | Operation::CreditRequest if forth => {
                return PacketVerdict::Pass(flow);
            }
            Operation::Data | Operation::Request => {}
            _ if back => return PacketVerdict::Pass(flow),
            _ => {}
        }
    }
    PacketVerdict::Refuse
}
