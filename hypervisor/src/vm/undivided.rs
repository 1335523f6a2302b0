//! Stubs of a build without page classes, which refuses memory that is divided.

use super::ownership::Found;
use weir_abi::{PackedSystem, VmView};

/// Does nothing: no system of this build has colors for the cache to keep apart.
pub const fn check_cache(_system: &PackedSystem<'_>) {}

/// Does nothing.
///
/// # Safety
///
/// None.
pub const unsafe fn move_in(_system: &PackedSystem<'static>) {}

/// Returns none.
pub const fn build(_system: &PackedSystem<'_>, _view: &VmView<'_>) -> Option<u64> {
    None
}

/// Finds nothing.
///
/// # Safety
///
/// None.
pub const unsafe fn read_back(_system: &PackedSystem<'_>) -> Found {
    Found { pages: 0, strays: 0 }
}
