//! Replaces `focus` in a hypervisor without this part: no VM has active devices, and none may hand
//! over the console.

use super::Vm;

/// Finds no active devices.
pub fn init() {}

/// Returns that the VM has no active devices.
pub fn is_with(_vm: &Vm) -> bool {
    false
}

/// Returns that `ipa` is of no active device.
pub fn covers(_vm: &Vm, _ipa: u64) -> bool {
    false
}

/// Refuses the request.
pub fn request(_vm: &Vm, _to: u64) -> bool {
    false
}

/// Moves nothing.
pub fn hand_over() {}

/// Moves nothing.
pub fn give_back(_vm: &Vm, _follows: bool) {}
