//! A newer QEMU than the release has, from Debian's backports, unpacked into the cache.
//!
//! It uses the machine's libraries: those of the release's own QEMU suffice.

use super::packages::{directory, unpacked};
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};

/// The packages.
pub const LOCK: &str = include_str!("qemu.lock");

/// The program, in the directory of the packages' files.
const PROGRAM: &str = "usr/bin/qemu-system-aarch64";

/// Returns the program that [`install_qemu`] installed in the cache, or none.
#[must_use]
pub fn installed_qemu(cache: &Path) -> Option<PathBuf> {
    Some(directory(cache, LOCK).join(PROGRAM)).filter(|program| program.exists())
}

/// Installs the newer QEMU in the cache, unless it is there, and returns the program.
///
/// # Errors
///
/// The packages are for another kind of machine or cannot be fetched, or the cache cannot be
/// written.
pub fn install_qemu(cache: &Path) -> Result<PathBuf> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Failure::environment(
            "the lock has Debian's QEMU for amd64 only: install QEMU 10 or newer, and set \
             WEIR_QEMU to its qemu-system-aarch64",
        ));
    }
    Ok(unpacked(cache, LOCK)?.join(PROGRAM))
}
