//! Replaces `shared` in a hypervisor without this part: no core has several vCPUs.

use super::{CoreSchedule, Member};
use crate::vcpu::partition::Ready;

/// The rules that no line has.
pub type Rules = ();

/// Finds no rule.
pub fn rules(_members: &[Option<Member>], _share: bool) -> Rules {}

impl CoreSchedule {
    /// Is not called: there is nothing to decide.
    pub(super) fn choose(&self, _now: u64, _ready: Ready, _wake: u64) -> Option<u8> {
        let () = self.rules;
        None
    }
}
