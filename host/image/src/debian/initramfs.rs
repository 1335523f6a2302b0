//! Initial RAM disks of Linux guests: a first process, busybox, and for some a program with its
//! libraries and modules of the kernel.

use super::at;
use crate::failure::{Context as _, Result};
use cpio::newc::{Builder, trailer};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::Path,
};

/// The contents of an initial RAM disk, in addition to its first process and busybox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initramfs {
    /// Nothing: 1.9 MB.
    Busybox,
    /// `cyclictest` and its libraries: 4 MB.
    Rt,
    /// The kernel's modules for virtio disks on PCI: 2.1 MB.
    Virtio,
    /// The kernel's modules for virtio sockets, and `weir-vsock-tool`: 2.2 MB.
    Vsock,
    /// `cyclictest` and its libraries, and the kernel's modules for virtio network devices on MMIO:
    /// 4.2 MB.
    Net,
    /// The modules of [`Self::Vsock`], and Debian's socat with its libraries: 12 MB.
    Socat,
}

impl Initramfs {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Busybox, Self::Rt, Self::Virtio, Self::Vsock, Self::Net, Self::Socat];

    /// Returns its name in a system file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.contents().0
    }

    /// Returns its name, its program with the libraries, and its modules.
    const fn contents(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Busybox => ("busybox", &[], &[]),
            Self::Rt => ("debian-rt", &CYCLICTEST, &[]),
            Self::Virtio => ("debian-virtio", &[], &MODULES),
            Self::Vsock => ("debian-vsock", &[], &SOCKET_MODULES),
            Self::Net => ("debian-net", &CYCLICTEST, &NETWORK_MODULES),
            Self::Socat => ("debian-socat", &SOCAT, &SOCKET_MODULES),
        }
    }
}

/// `cyclictest`, the shared objects that it names as needed, and the loader.
pub const CYCLICTEST: [&str; 6] = [
    "bin/cyclictest",
    "lib/ld-linux-aarch64.so.1",
    "lib/libc.so.6",
    "lib/libnuma.so.1",
    "lib/libpthread.so.0",
    "lib/librt.so.1",
];

/// `socat`, the shared objects that it and its libraries name as needed, and the loader.
pub const SOCAT: [&str; 15] = [
    "bin/socat",
    "lib/ld-linux-aarch64.so.1",
    "lib/libc.so.6",
    "lib/libresolv.so.2",
    "lib/libssl.so.3",
    "lib/libcrypto.so.3",
    "lib/libwrap.so.0",
    "lib/libnsl.so.2",
    "lib/libtirpc.so.3",
    "lib/libgssapi_krb5.so.2",
    "lib/libkrb5.so.3",
    "lib/libk5crypto.so.3",
    "lib/libkrb5support.so.0",
    "lib/libcom_err.so.2",
    "lib/libkeyutils.so.1",
];

/// The modules that a virtio disk on PCI needs, in the order in which [`INIT`] loads them.
pub const MODULES: [&str; 4] = [
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
];

/// The modules of virtio sockets, on MMIO and on PCI, in the order in which [`INIT`] loads them.
pub const SOCKET_MODULES: [&str; 7] = [
    "drivers/virtio/virtio_mmio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/vmw_vsock/vsock.ko",
    "net/vmw_vsock/vmw_vsock_virtio_transport_common.ko",
    "net/vmw_vsock/vmw_vsock_virtio_transport.ko",
];

/// The modules of a virtio network device on MMIO, in the order in which [`INIT`] loads them.
pub const NETWORK_MODULES: [&str; 4] = [
    "drivers/virtio/virtio_mmio.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// Which of the modules need which others: of each, the last one to load first, as in modules.dep.
pub const DEPENDENCIES: [(&str, &str); 8] = [
    ("virtio_pci", "virtio_pci_modern_dev"),
    ("virtio_pci", "virtio_pci_legacy_dev"),
    ("vmw_vsock_virtio_transport_common", "vsock"),
    ("vmw_vsock_virtio_transport", "vmw_vsock_virtio_transport_common"),
    ("vmw_vsock_virtio_transport", "vsock"),
    ("net_failover", "failover"),
    ("virtio_net", "net_failover"),
    ("virtio_net", "failover"),
];

/// Returns the name of a module by its path.
pub fn stem(module: &str) -> &str {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.strip_suffix(".ko").unwrap_or(name)
}

/// First process of the Linux guest; its head lists the kernel command line words it obeys.
pub const INIT: &[u8] = include_bytes!("init.sh");

/// The busybox applets that [`INIT`] calls by name.
const APPLETS: [&str; 33] = [
    "awk", "cat", "cttyhack", "dd", "find", "grep", "head", "ifconfig", "md5sum", "mkdir",
    "mkfifo", "modprobe", "mount", "nc", "nproc", "ping", "poweroff", "printf", "reboot", "rm",
    "rmmod", "sed", "seq", "setsid", "sh", "sleep", "sort", "stat", "stty", "sync", "taskset",
    "tftp", "tr",
];

/// Returns the archive of a RAM disk, out of the store's files.
pub fn archive(store: &Path, kind: Initramfs, vsock_tool: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let read = |name: &str| {
        let path = store.join(name);
        fs::read(&path).map_err(at(&path))
    };
    let mut files = BTreeMap::new();
    for dir in ["bin", "dev", "lib", "proc", "sys", "tmp"] {
        files.insert(dir.to_owned(), File::Directory);
    }
    files.insert("dev/console".to_owned(), File::Device { major: 5, minor: 1 });
    files.insert("init".to_owned(), File::Program(INIT.to_vec()));
    files.insert("bin/busybox".to_owned(), File::Program(read("bin/busybox")?));
    for applet in APPLETS {
        files.insert(format!("bin/{applet}"), File::Link("busybox"));
    }
    let (_, programs, modules) = kind.contents();
    for name in programs {
        files.insert((*name).to_owned(), File::Program(read(name)?));
    }
    if let Some(program) = vsock_tool {
        files.insert("bin/weir-vsock-tool".to_owned(), File::Program(program));
    }
    if !modules.is_empty() {
        // modprobe reads the directory of the kernel's release.
        let version = read("linux/version")?;
        let directory = format!("lib/modules/{}", String::from_utf8_lossy(&version).trim());
        files.insert("lib/modules".to_owned(), File::Directory);
        files.insert(directory.clone(), File::Directory);
        let (mut order, mut depends) = (Vec::new(), Vec::new());
        for module in modules {
            let content = read(&format!("linux/modules/{module}"))?;
            let name = stem(module);
            files.insert(format!("{directory}/{name}.ko"), File::Program(content));
            let needed = DEPENDENCIES.iter().filter(|(user, _)| *user == name);
            let needed: Vec<String> = needed.map(|(_, needed)| format!(" {needed}.ko")).collect();
            order.push(format!("{name}\n"));
            depends.push(format!("{name}.ko:{}\n", needed.concat()));
        }
        for (list, lines) in [("order", order), ("dep", depends)] {
            let lines = lines.concat().into_bytes();
            files.insert(format!("{directory}/modules.{list}"), File::Program(lines));
        }
    }
    cpio(&files).context(|| "make the initial RAM disk")
}

/// A file of an archive.
pub enum File {
    Directory,
    Program(Vec<u8>),
    Link(&'static str),
    Device { major: u32, minor: u32 },
}

/// Returns a cpio archive. The owner of everything is root, and every time stamp is 0.
pub fn cpio(files: &BTreeMap<String, File>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (inode, (name, file)) in (1..).zip(files) {
        let entry = Builder::new(name).ino(inode);
        let (entry, content): (_, &[u8]) = match file {
            File::Directory => (entry.mode(0o040_755), &[]),
            File::Program(content) => (entry.mode(0o100_755), content),
            File::Link(target) => (entry.mode(0o120_777), target.as_bytes()),
            File::Device { major, minor } => {
                (entry.mode(0o020_600).rdev_major(*major).rdev_minor(*minor), &[])
            }
        };
        // Files in memory are far below 4 GiB.
        let mut writer = entry.write(&mut bytes, content.len() as u32);
        writer.write_all(content)?;
        writer.finish()?;
    }
    trailer(&mut bytes)?;
    Ok(bytes)
}
