//! Replaces `shared` in a hypervisor without this part: no core has several vCPUs.

use crate::{arch::gic, cpu::Core};
use weir_units::IntId;

/// Takes the interrupt from a core without a vCPU.
pub fn share_out(core: &Core, intid: IntId) {
    gic::Line::new(intid, core.id).set_active(false);
}

/// Ignores a message to a core without a vCPU.
pub fn message(_core: &Core) {}
