//! Replaces `shared` in a reader that refuses each system with a shared core.
#![expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in `shared`")]

use crate::{Damage, PackedSystem};
use weir_units::Nanos;

impl PackedSystem<'_> {
    /// Returns that the VM shares no core.
    #[must_use]
    pub const fn round(&self, _vm: usize, _core: usize) -> Nanos {
        Nanos(0)
    }

    /// Returns `time`: each core is dedicated.
    #[must_use]
    pub const fn served(&self, _vm: usize, time: Nanos) -> Nanos {
        time
    }

    /// Finds nothing to check.
    pub(crate) const fn check_schedules(&self) -> Result<(), Damage> {
        Ok(())
    }
}
