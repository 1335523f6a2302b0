//! Replaces `shared` in a hypervisor without this part: no core has several vCPUs.

use crate::cpu::Core;

/// Is not called: only a core with a vCPU is interrupted at EL1.
pub fn handle_interrupt(_core: &mut Core) {}
