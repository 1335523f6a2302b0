//! The check which packets a system's flows allow.
//!
//! A flow is a sender, a receiver and the receiver's port. Its data go only from the sender to the
//! receiver. The control packets of its connections go both ways, but only the sender may request a
//! connection.

use crate::vsock::{Header, Operation};
use weir_units::Cid;

/// The sender, the receiver and the port of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The sender's context identifier.
    pub from: Cid,
    /// The receiver's context identifier.
    pub to: Cid,
    /// The receiver's port.
    pub port: u32,
}

/// How a packet is treated. A flow is identified by its place in the list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketVerdict {
    /// It is transferred by its deadline as a packet of this flow: data, or a packet that must not
    /// overtake data.
    Transfer(usize),
    /// It is passed on at once as a control packet of this flow.
    Pass(usize),
    /// It is answered with a reset.
    Refuse,
}

/// Judges a packet by the first rule that applies to it. `operation` is the one in the header.
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
            // If the end of a connection overtook data, the data would be lost.
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
