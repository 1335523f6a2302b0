//! Replaces `masked` in a hypervisor without shared cores: no line has a rule.

/// Returns that no line is masked.
pub fn is_masked(_intid: u32) -> bool {
    false
}
