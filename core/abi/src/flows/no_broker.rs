//! Replaces `broker` in a reader that refuses each system with flows or a switch.
#![expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in `broker`")]

use crate::{Damage, PackedSystem, VmView};
use weir_paging::classes::Pages;
use weir_paging::table::{Attributes, Builder, MapError};

impl<'a> PackedSystem<'a> {
    /// Returns that there is no broker.
    #[must_use]
    pub const fn broker(&self) -> Option<VmView<'a>> {
        None
    }

    /// Returns that nothing is shared with a broker.
    #[must_use]
    pub const fn partition(&self) -> Option<u64> {
        None
    }

    /// Returns that nothing is shared with a broker.
    #[must_use]
    pub const fn partition_pages(&self) -> Option<Pages<'_>> {
        None
    }

    /// Maps nothing.
    ///
    /// # Errors
    ///
    /// None.
    pub const fn map_windows(&self, _builder: &mut Builder<'_>) -> Result<(), MapError> {
        Ok(())
    }

    /// Returns that no broker sees the VM's RAM.
    #[must_use]
    pub const fn window_attributes(&self, _vm: &VmView<'_>) -> Option<Attributes> {
        None
    }

    /// Finds nothing to check.
    pub(crate) const fn check_flows(&self) -> Result<(), Damage> {
        Ok(())
    }

    /// Finds nothing to check.
    pub(crate) const fn check_engine(&self) -> Result<(), Damage> {
        Ok(())
    }

    /// Finds nothing to check.
    pub(crate) const fn check_ports(&self) -> Result<(), Damage> {
        Ok(())
    }
}
