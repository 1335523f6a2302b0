//! A newer QEMU than the release has, from Debian's backports, unpacked into the cache.
//!
//! It uses the machine's libraries: those of the release's own QEMU suffice.

use super::{
    at,
    fetch::Mirror,
    lock::listed,
    store::{self, unpack_all},
};
use crate::failure::{Failure, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The packages, which must be these.
const LOCK: &str = include_str!("qemu.lock");
/// The program, in the folder with the packages' files.
const PROGRAM: &str = "usr/bin/qemu-system-aarch64";
/// File of the folder with the lock that it was made of.
const MADE_OF: &str = "qemu.lock";

/// Returns the place of the newer QEMU in the cache.
fn path(cache: &Path) -> PathBuf {
    cache.join("qemu")
}

/// Returns the program that [`install_qemu`] installed in the cache, or none.
#[must_use]
pub fn installed_qemu(cache: &Path) -> Option<PathBuf> {
    let folder = path(cache);
    let is_current = fs::read_to_string(folder.join(MADE_OF)).is_ok_and(|text| text == LOCK);
    is_current.then(|| folder.join(PROGRAM))
}

/// Installs the newer QEMU in the cache, unless it is there, and returns the program.
///
/// # Errors
///
/// The packages are for another kind of machine, cannot be fetched or do not start, or the cache
/// cannot be written.
pub fn install_qemu(cache: &Path) -> Result<PathBuf> {
    if let Some(program) = installed_qemu(cache) {
        return Ok(program);
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Failure::environment(
            "the lock has Debian's QEMU for amd64 only: install QEMU 10 or newer, and set \
             WEIR_QEMU to its qemu-system-aarch64",
        ));
    }
    let folder = path(cache);
    store::make_whole(
        &folder,
        || installed_qemu(cache).is_some(),
        |scratch, fresh| {
            let progress = store::progress();
            let packages = listed(LOCK);
            Mirror::find()?.fetch_locked(&packages, scratch, &progress)?;
            progress.set_message("unpacking");
            unpack_all(&packages, scratch, fresh)?;
            progress.finish_and_clear();
            starts(&fresh.join(PROGRAM))?;
            fs::write(fresh.join(MADE_OF), LOCK).map_err(at(fresh))
        },
    )?;
    Ok(folder.join(PROGRAM))
}

/// Checks that the machine has the libraries of a program.
fn starts(program: &Path) -> Result {
    let output = Command::new(program).arg("--version").output().map_err(at(program))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "QEMU of Debian's backports does not start: {}\ninstall the libraries of Debian's \
         qemu-system-arm, or another QEMU and set WEIR_QEMU to it",
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}
