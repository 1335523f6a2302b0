//! Kernels of newer releases of Debian than guests have by name. Tests boot them with a RAM disk
//! for virtio sockets.

use super::{LOCK as GUESTS_LOCK, at, initramfs, packages::unpacked, read};
use crate::{cargo::replace, failure::Result};
use lzma_rust2::XzReader;
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

/// The packages.
pub const LOCK: &str = include_str!("kernels.lock");

/// A kernel of a newer release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerKernel {
    /// Release, as `uname -r` prints it.
    pub release: &'static str,
    /// Path of the uncompressed arm64 Image in the packages.
    image: &'static str,
}

impl NewerKernel {
    /// Every kernel, the oldest first.
    pub const ALL: [Self; 2] = [
        Self { release: "6.12.117+deb13-arm64", image: "boot/vmlinuz-6.12.117+deb13-arm64" },
        Self { release: "7.3.4+deb13-arm64", image: "usr/lib/modules/7.3.4+deb13-arm64/vmlinuz" },
    ];

    /// Makes the kernel's RAM disk with `vsock_tool`, the program for virtio sockets. Returns the
    /// places of the kernel and of the RAM disk.
    ///
    /// # Errors
    ///
    /// The packages are not in the cache and cannot be fetched, or the cache cannot be written.
    pub fn make(self, cache: &Path, vsock_tool: Vec<u8>) -> Result<[PathBuf; 2]> {
        let guests = unpacked(cache, GUESTS_LOCK)?;
        let packages = unpacked(cache, LOCK)?;
        let modules = packages.join(format!("usr/lib/modules/{}/kernel", self.release));
        let kind = initramfs::SOCKETS_ON_MMIO;
        let file = |name: &str| {
            if kind.has_module(name) {
                module(&modules.join(format!("{name}.xz")))
            } else {
                read(&guests, name)
            }
        };
        let archive = initramfs::archive(kind, self.release, Some(vsock_tool), file)?;
        let initrd = cache.join(format!("initramfs-{}-{}.cpio", kind.name, self.release));
        replace(&initrd, &archive)?;
        Ok([packages.join(self.image), initrd])
    }
}

/// Reads a compressed module.
fn module(path: &Path) -> Result<Vec<u8>> {
    let compressed = fs::read(path).map_err(at(path))?;
    let mut module = Vec::new();
    XzReader::new(&*compressed, true).read_to_end(&mut module).map_err(at(path))?;
    Ok(module)
}
