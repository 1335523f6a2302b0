//! Linux guests, their initial RAM disks and U-Boot, made of Debian's arm64 packages, and a newer
//! QEMU (`qemu`).
//!
//! `packages.lock` names each package with its version, its SHA-256 and its path in a mirror
//! (module `lock`). The packages are downloaded once (`fetch`), and the files that guests need are
//! kept in one directory of the cache (`store`). An initial RAM disk is a cpio archive of these
//! files (`initramfs`). No network is needed after the first call.

mod fetch;
mod initramfs;
mod lock;
mod qemu;
mod store;
#[cfg(test)]
mod tests;

use crate::failure::{Failure, Result};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

pub use initramfs::Initramfs;
use lock::listed;
pub use lock::{Package, is_locked};
pub use qemu::{install_qemu, installed_qemu};
use store::{IMAGE, MANIFEST, U_BOOT, store};

/// Returns the cache's directory: `WEIR_CACHE`, or `.cache` in the checkout `root`.
#[must_use]
pub fn cache_dir(root: &Path) -> PathBuf {
    std::env::var_os("WEIR_CACHE")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| root.join(".cache"), PathBuf::from)
}

/// A file that is made of Debian's packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The real-time kernel, an uncompressed arm64 Image.
    Linux,
    /// An initial RAM disk for it, an uncompressed cpio archive.
    Initramfs(Initramfs),
    /// U-Boot for QEMU's arm64 `virt` machine, a raw image.
    UBoot,
}

impl Kept {
    /// Returns what a system file calls `name` as a "kernel", an "initrd" or an "image".
    #[must_use]
    pub fn named(role: &str, name: &str) -> Option<Self> {
        match (role, name) {
            ("kernel", "debian-rt") => Some(Self::Linux),
            ("image", "u-boot") => Some(Self::UBoot),
            ("initrd", _) => {
                let kind = Initramfs::ALL.into_iter().find(|kind| kind.name() == name)?;
                Some(Self::Initramfs(kind))
            }
            _ => None,
        }
    }

    fn path(self, cache: &Path) -> PathBuf {
        match self {
            Self::Linux => store::path(cache).join(IMAGE),
            Self::Initramfs(kind) => cache.join(format!("initramfs-{}.cpio", kind.name())),
            Self::UBoot => store::path(cache).join(U_BOOT),
        }
    }
}

/// Returns the place of a file without fetching or making it. None without the packages.
#[must_use]
pub fn kept(cache: &Path, what: Kept) -> Option<PathBuf> {
    store::is_current(&store::path(cache)).then(|| what.path(cache))
}

/// Makes a file and returns its place. A RAM disk has the same bytes on every host for the same
/// packages and the same `vsock_tool`, the program that [`Initramfs::Vsock`] needs.
///
/// # Errors
///
/// The packages are not in the cache and cannot be fetched, or the cache cannot be written.
pub fn make(cache: &Path, what: Kept, vsock_tool: Option<Vec<u8>>) -> Result<PathBuf> {
    let store = store(cache)?;
    let path = what.path(cache);
    if let Kept::Initramfs(kind) = what {
        let bytes = initramfs::archive(&store, kind, vsock_tool)?;
        if !fs::read(&path).is_ok_and(|old| old == bytes) {
            let new = path.with_extension(format!("{}.new", std::process::id()));
            fs::write(&new, bytes).map_err(at(&new))?;
            fs::rename(&new, &path).map_err(at(&path))?;
        }
    }
    Ok(path)
}

/// Returns the packages in the store, by name.
///
/// # Errors
///
/// Those of [`make`].
pub fn packages(cache: &Path) -> Result<Vec<Package>> {
    Ok(listed(&read_text(&store(cache)?.join(MANIFEST))?))
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(at(path))
}

/// Makes a [`Failure`] of an error at `path`.
fn at<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> Failure {
    move |error| {
        let path = path.display();
        Failure::environment(format!(
            "{path}: {error}; WEIR_CACHE=DIRECTORY puts the cache elsewhere"
        ))
    }
}
