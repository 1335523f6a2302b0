//! Replaces `pci` in a hypervisor without this part: no VM has a PCI function.
#![expect(clippy::unnecessary_wraps, reason = "the signatures are those of `pci`")]

use super::Vm;
use weir_abi::{PackedSystem, VmView};
use weir_paging::table::{Builder, MapError};
use weir_units::CoreId;
use weir_vdev::esr::MmioAccess;

/// Finds no function.
pub fn init(_system: &PackedSystem<'static>, _console_core: CoreId) {}

/// Maps nothing.
pub fn map_bars(_builder: &mut Builder<'_>, _vm: usize) -> Result<(), MapError> {
    Ok(())
}

/// Returns that the VM has no domain.
pub fn has_domain(_vm: usize) -> bool {
    false
}

/// Maps nothing.
pub fn map_domain(
    _: &mut Builder<'_>,
    _: &PackedSystem<'_>,
    _: &VmView<'_>,
) -> Result<(), MapError> {
    Ok(())
}

/// Returns that the VM has no tables of DMA.
pub fn domain(_vm: usize) -> Option<u64> {
    None
}

/// Is not called: there is no domain.
pub fn set_domain(_vm: usize, _root: u64) {}

/// Attaches nothing.
pub fn open(_vm: &Vm) {}

/// Returns that nothing has to be reset.
pub fn close(_vm: &Vm) -> Option<u64> {
    None
}

/// Finds no configuration space at `ipa`.
pub fn offset(_vm: &Vm, _ipa: u64) -> Option<u64> {
    None
}

/// Is not called: there is no offset.
pub fn access(_vm: &Vm, _access: &MmioAccess, _offset: u64, _value: u64) -> u64 {
    u64::MAX
}

/// Reports nothing.
pub fn report_faults() {}
