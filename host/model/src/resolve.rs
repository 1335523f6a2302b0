//! What the names in a file stand for: files, or things that weir makes or fetches itself.

use crate::platform::Machine;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use weir_units::Bytes;

/// Names that stand for no file, since weir builds or fetches what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// weir's own guests, that `elf = "NAME"` may name.
    pub guests: Vec<String>,
    /// The keys of the arguments of the guests with known keys.
    pub arguments: BTreeMap<String, Vec<String>>,
    /// Flat binaries that `bin` may name.
    pub bins: Vec<String>,
    /// Kernels that `linux` may name.
    pub kernels: Vec<String>,
    /// Initial RAM disks that `initrd` may name.
    pub initrds: Vec<String>,
    /// The machine that the system is checked for.
    pub machine: Machine,
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            guests: Vec::new(),
            arguments: BTreeMap::new(),
            bins: vec!["u-boot".to_owned()],
            kernels: vec!["debian-rt".to_owned()],
            initrds: [
                "busybox",
                "debian-rt",
                "debian-virtio",
                "debian-vsock",
                "debian-net",
                "debian-socat",
            ]
            .map(str::to_owned)
            .to_vec(),
            machine: Machine::Board,
        }
    }
}

/// Where the bytes of an image come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImageSource {
    /// A file, its path as the process sees it.
    File(PathBuf),
    /// A name of the [`Catalog`].
    Named(String),
}

/// Memory of the hypervisor in addition to its program: tables of stage 1, rings.
pub(crate) const SPARE: u64 = 1 << 20;

/// Bytes that a kernel of the catalog is taken to have while it is not there.
pub const LIKELY_KERNEL: Bytes = Bytes(40 << 20);
/// The same of weir's own image.
pub const LIKELY_HYPERVISOR: Bytes = Bytes(3 << 20);
/// The same of anything else.
pub const LIKELY_PROGRAM: Bytes = Bytes(4 << 20);

/// A name in a file and what it may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Elf,
    Bin,
    Kernel,
    Initrd,
}

impl Role {
    /// The key of `image` with such a name.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Elf => "elf",
            Self::Bin => "bin",
            Self::Kernel => "linux",
            Self::Initrd => "initrd",
        }
    }
}

impl Catalog {
    /// The names that `role` may have, as they are written.
    pub(crate) fn names(&self, role: Role) -> Vec<String> {
        match role {
            Role::Elf => self.guests.clone(),
            Role::Bin => self.bins.clone(),
            Role::Kernel => self.kernels.clone(),
            Role::Initrd => self.initrds.clone(),
        }
    }

    /// What `text` means in a file of `directory`.
    pub(crate) fn find(&self, role: Role, text: &str, directory: &Path) -> ImageSource {
        if self.names(role).iter().any(|known| known == text) {
            return ImageSource::Named(text.to_owned());
        }
        ImageSource::File(directory.join(text))
    }
}
