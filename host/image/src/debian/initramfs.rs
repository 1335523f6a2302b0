//! Initial RAM disks of Linux guests: a first process, busybox, and for some a program with its
//! libraries and modules of the kernel.

use crate::failure::{Context as _, Result};
use cpio::{NewcBuilder, write_cpio};
use std::{collections::BTreeMap, io::Cursor};

/// The contents of an initial RAM disk, in addition to its first process and busybox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initramfs {
    /// Name in a system file.
    pub name: &'static str,
    /// A program with its libraries.
    program: &'static [&'static str],
    /// Modules of the kernel.
    modules: &'static [&'static str],
    /// Whether `weir-vsock-tool` is in it.
    pub has_vsock_tool: bool,
}

impl Initramfs {
    /// Only busybox: 1.9 MB.
    const BUSYBOX: Self =
        Self { name: "busybox", program: &[], modules: &[], has_vsock_tool: false };

    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::BUSYBOX,
        // 4 MB.
        Self { name: "debian-rt", program: &CYCLICTEST, ..Self::BUSYBOX },
        // 2.1 MB.
        Self { name: "debian-virtio", modules: &DISK_MODULES, ..Self::BUSYBOX },
        // 2.2 MB.
        Self {
            name: "debian-vsock",
            modules: &SOCKET_MODULES,
            has_vsock_tool: true,
            ..Self::BUSYBOX
        },
        // 4.2 MB.
        Self {
            name: "debian-net",
            program: &CYCLICTEST,
            modules: &NETWORK_MODULES,
            ..Self::BUSYBOX
        },
        // 12 MB.
        Self { name: "debian-socat", program: &SOCAT, modules: &SOCKET_MODULES, ..Self::BUSYBOX },
    ];

    /// Returns whether a file is one of the kernel's modules in it.
    #[must_use]
    pub fn has_module(self, file: &str) -> bool {
        self.modules.contains(&file)
    }
}

/// The RAM disk for virtio sockets on MMIO. Kernels that have the PCI transport built in load no
/// module for it.
pub const SOCKETS_ON_MMIO: Initramfs = Initramfs {
    name: "sockets",
    modules: &MMIO_SOCKET_MODULES,
    has_vsock_tool: true,
    ..Initramfs::BUSYBOX
};

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
const SOCAT: [&str; 15] = [
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
const DISK_MODULES: [&str; 4] = [
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
];

/// The modules of virtio sockets, on MMIO and on PCI, in the order in which [`INIT`] loads them.
const SOCKET_MODULES: [&str; 7] = [
    "drivers/virtio/virtio_mmio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/vmw_vsock/vsock.ko",
    "net/vmw_vsock/vmw_vsock_virtio_transport_common.ko",
    "net/vmw_vsock/vmw_vsock_virtio_transport.ko",
];

/// The modules of virtio sockets on MMIO alone, in the same order.
const MMIO_SOCKET_MODULES: [&str; 4] =
    [SOCKET_MODULES[0], SOCKET_MODULES[4], SOCKET_MODULES[5], SOCKET_MODULES[6]];

/// The modules of a virtio network device on MMIO, in the order in which [`INIT`] loads them.
const NETWORK_MODULES: [&str; 4] = [
    "drivers/virtio/virtio_mmio.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// All modules that guests load.
pub const MODULES: [&[&str]; 3] = [&DISK_MODULES, &SOCKET_MODULES, &NETWORK_MODULES];

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

/// Modes of files: type and permissions.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

/// Returns the archive of a RAM disk for the kernel `release`, of files that `read` returns: a
/// program or library by its path, a module by its path below the kernel's modules. The owner of
/// everything is root, and every time stamp is 0.
pub fn archive(
    kind: Initramfs,
    release: &str,
    vsock_tool: Option<Vec<u8>>,
    read: impl Fn(&str) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut add = |name: String, mode: u32, content: Vec<u8>| {
        let entry = NewcBuilder::new(&name).mode(mode);
        files.insert(name, (entry, Cursor::new(content)));
    };
    for directory in ["bin", "dev", "lib", "proc", "sys", "tmp"] {
        add(directory.into(), DIRECTORY, Vec::new());
    }
    add("init".into(), PROGRAM, INIT.into());
    for name in kind.program.iter().chain(&["bin/busybox"]) {
        add((*name).into(), PROGRAM, read(name)?);
    }
    for applet in APPLETS {
        add(format!("bin/{applet}"), LINK, b"busybox".into());
    }
    if let Some(program) = vsock_tool {
        add("bin/weir-vsock-tool".into(), PROGRAM, program);
    }
    if !kind.modules.is_empty() {
        // modprobe reads the directory of the kernel's release.
        let directory = format!("lib/modules/{release}");
        add("lib/modules".into(), DIRECTORY, Vec::new());
        add(directory.clone(), DIRECTORY, Vec::new());
        let (mut order, mut depends) = (Vec::new(), Vec::new());
        for module in kind.modules {
            let name = stem(module);
            add(format!("{directory}/{name}.ko"), PROGRAM, read(module)?);
            let needed = DEPENDENCIES.iter().filter(|(user, _)| *user == name);
            let needed: Vec<String> = needed.map(|(_, needed)| format!(" {needed}.ko")).collect();
            order.push(format!("{name}\n"));
            depends.push(format!("{name}.ko:{}\n", needed.concat()));
        }
        add(format!("{directory}/modules.order"), PROGRAM, order.concat().into());
        add(format!("{directory}/modules.dep"), PROGRAM, depends.concat().into());
    }
    let console = NewcBuilder::new("dev/console").mode(DEVICE).rdev_major(5).rdev_minor(1);
    files.insert("dev/console".into(), (console, Cursor::default()));
    write_cpio(files.into_values(), Vec::new()).context(|| "make the initial RAM disk")
}
