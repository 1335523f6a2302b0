//! The lock files: which packages guests are made of, and what they are called.

use std::path::{Path, PathBuf};

/// One Debian package: a line of a lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Name of the binary package.
    pub name: &'static str,
    /// Debian's version.
    pub version: &'static str,
    /// SHA-256 of the package file.
    pub sha256: &'static str,
    /// Path of the package file in a mirror.
    pub path: &'static str,
}

/// Returns the packages of a lock file; a line that begins with `#` is a comment.
pub fn listed(lock: &'static str) -> Vec<Package> {
    let package = |line: &'static str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, version, sha256, path] => Some(Package { name, version, sha256, path }),
        _ => None,
    };
    lock.lines().filter(|line| !line.starts_with('#')).filter_map(package).collect()
}

/// Returns the file of a downloaded package.
pub fn file_of(package: &Package, directory: &Path) -> PathBuf {
    directory.join(format!("{}.deb", package.name))
}
