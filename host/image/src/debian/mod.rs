//! Linux guests, their initial RAM disks and U-Boot, made of Debian's arm64 packages, newer
//! kernels for tests (`kernels`), and a newer QEMU (`qemu`).
//!
//! A lock file names each package with its version, its SHA-256 and its path in a mirror. The
//! packages are downloaded once (`mirror`) and unpacked into one directory of the cache
//! (`packages`). An initial RAM disk is a cpio archive of these files (`initramfs`). No network is
//! needed after the first call.

mod initramfs;
mod kernels;
mod lock;
mod mirror;
mod packages;
mod qemu;
#[cfg(test)]
mod tests;

use crate::{
    cargo::replace,
    failure::{Failure, Result},
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

pub use initramfs::Initramfs;
pub use kernels::NewerKernel;
pub use lock::Package;
use lock::listed;
use packages::{directory, unpacked};
pub use qemu::{install_qemu, installed_qemu};

/// The packages that guests are made of.
const LOCK: &str = include_str!("packages.lock");

/// Prefix of the kernel's package; the kernel's release follows.
const KERNEL_PREFIX: &str = "linux-image-";

/// Returns the packages that guests are made of.
#[must_use]
pub fn packages() -> Vec<Package> {
    listed(LOCK)
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
                Initramfs::ALL.into_iter().find(|kind| kind.name == name).map(Self::Initramfs)
            }
            _ => None,
        }
    }

    fn path(self, cache: &Path) -> PathBuf {
        let unpacked = directory(cache, LOCK);
        match self {
            Self::Linux => unpacked.join(format!("boot/vmlinuz-{}", release())),
            Self::Initramfs(kind) => cache.join(format!("initramfs-{}.cpio", kind.name)),
            Self::UBoot => unpacked.join("usr/lib/u-boot/qemu_arm64/u-boot.bin"),
        }
    }
}

/// Returns the release of the kernel.
fn release() -> &'static str {
    packages().iter().find_map(|package| package.name.strip_prefix(KERNEL_PREFIX)).unwrap_or("")
}

/// Returns the place of a file without fetching or making it. None without the packages.
#[must_use]
pub fn kept(cache: &Path, what: Kept) -> Option<PathBuf> {
    directory(cache, LOCK).exists().then(|| what.path(cache))
}

/// Makes a file and returns its place. A RAM disk has the same bytes on every host for the same
/// `vsock_tool`, the program that a RAM disk with [`Initramfs::has_vsock_tool`] needs.
///
/// # Errors
///
/// The packages are not in the cache and cannot be fetched, or the cache cannot be written.
pub fn make(cache: &Path, what: Kept, vsock_tool: Option<Vec<u8>>) -> Result<PathBuf> {
    let unpacked = unpacked(cache, LOCK)?;
    let path = what.path(cache);
    if let Kept::Initramfs(kind) = what {
        let read = |name: &str| read(&unpacked, name);
        replace(&path, &initramfs::archive(kind, release(), vsock_tool, read)?)?;
    }
    Ok(path)
}

/// Reads a file of the packages: a kernel's module, or a program or library, which Debian has in
/// one of several places.
fn read(unpacked: &Path, name: &str) -> Result<Vec<u8>> {
    let library = name.replace("lib/", "lib/aarch64-linux-gnu/");
    let module = format!("lib/modules/{}/kernel/{name}", release());
    let places = [&library, &format!("usr/{library}"), &module].map(|place| unpacked.join(place));
    let path = places.iter().find(|path| path.exists()).unwrap_or(&places[0]);
    fs::read(path).map_err(at(path))
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
