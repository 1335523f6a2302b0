//! Replaces `shared` in a hypervisor without this part: no core has several vCPUs.

use crate::cpu::Core;

/// Is not called: only a core with a vCPU is interrupted at EL1.
pub fn handle_interrupt(_core: &mut Core) {}

/// Nothing takes the core from its vCPU.
pub const fn set_began(_core: &mut Core, _ticks: u64) {}

/// Nothing takes the core from its vCPU.
pub const fn begin(_core: &mut Core) {}

/// See `shared.rs`.
pub fn note_free(_core: &mut Core) {}
