//! Guests out of Debian's arm64 packages: the real-time kernel, a small user space for it, U-Boot.
//!
//! apt does the work, in a directory of its own: it reads neither the machine's package lists nor
//! its configuration (except how to reach the network) and changes nothing outside the cache. It
//! also checks the signatures, from Debian's keyring down to every package. What a guest needs is
//! unpacked into one directory, the store, which is complete as soon as it exists; from then on no
//! network is needed.
//!
//! `debian/packages.lock` names the version and the SHA-256 of each package, so that a guest is the
//! same on every host. A mirror that has the locked version with another check sum is refused. If
//! it does not have the locked version any more, its newest one is taken, signed as all are, with a
//! warning, and the run records which it was; `WEIR_DEBIAN_LOCK=strict` refuses it. The mirror is
//! the machine's own on Debian, the default of `debootstrap` elsewhere, or `WEIR_DEBIAN_MIRROR`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

/// The Debian release that every guest is made of.
const RELEASE: &str = "bookworm";

/// Debian's public keys, from the package `debian-archive-keyring` (Debian and Ubuntu have it).
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The package that always depends on the current real-time kernel.
const KERNEL: &str = "linux-image-rt-arm64";

/// The packages beside the kernel.
const PACKAGES: [&str; 6] =
    ["busybox-static", "rt-tests", "libnuma1", "libc6", "u-boot-qemu", "socat"];

/// What socat depends on, and these in turn; the C library aside.
const SOCAT_PACKAGES: [&str; 10] = [
    "libssl3",
    "libwrap0",
    "libnsl2",
    "libtirpc3",
    "libgssapi-krb5-2",
    "libkrb5-3",
    "libk5crypto3",
    "libkrb5support0",
    "libcom-err2",
    "libkeyutils1",
];

/// The packages that guests are made of: name, version, SHA-256.
const LOCK: &str = include_str!("debian/packages.lock");

/// What the locked kernel's package is called.
const KERNEL_PREFIX: &str = "linux-image-";

/// How strictly the lock is kept: `WEIR_DEBIAN_LOCK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locking {
    /// Where the mirror does not have the locked version, its newest is taken with a warning.
    Prefer,
    /// `strict`: anything but the locked versions is refused.
    Strict,
    /// `newest`: the mirror's newest versions, to make another lock of.
    Newest,
}

impl Locking {
    fn find() -> Result<Self> {
        match std::env::var("WEIR_DEBIAN_LOCK").as_deref() {
            Err(_) | Ok("") => Ok(Self::Prefer),
            Ok("strict") => Ok(Self::Strict),
            Ok("newest") => Ok(Self::Newest),
            Ok(other) => Err(Error::Locking { value: other.to_owned() }),
        }
    }
}

/// First line of the manifest. Another number makes an older store stale.
const FORMAT: &str = "# weir: Debian packages, store 2";

/// File of the store that lists the packages it was made of.
const MANIFEST: &str = "packages.lock";

/// File of the store with the lock that it was made under. With another one it is stale, unless its
/// packages are the locked ones.
const WANTED: &str = "wanted.lock";

/// The shared objects that `cyclictest` names as needed, and the loader.
const LIBRARIES: [&str; 5] =
    ["ld-linux-aarch64.so.1", "libc.so.6", "libnuma.so.1", "libpthread.so.0", "librt.so.1"];

/// The shared objects that `socat` and its libraries name as needed, and the loader.
const SOCAT_LIBRARIES: [&str; 14] = [
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libresolv.so.2",
    "libssl.so.3",
    "libcrypto.so.3",
    "libwrap.so.0",
    "libnsl.so.2",
    "libtirpc.so.3",
    "libgssapi_krb5.so.2",
    "libkrb5.so.3",
    "libk5crypto.so.3",
    "libkrb5support.so.0",
    "libcom_err.so.2",
    "libkeyutils.so.1",
];

/// The modules that a virtio disk on PCI needs, in the order in which [`INIT`] loads them.
const MODULES: [&str; 4] = [
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

/// The modules of a virtio network device on MMIO, in the order in which [`INIT`] loads them.
const NETWORK_MODULES: [&str; 4] = [
    "drivers/virtio/virtio_mmio.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// Which of the modules need which others: of each, the last one to load first, as in modules.dep.
const DEPENDENCIES: [(&str, &str); 8] = [
    ("virtio_pci", "virtio_pci_modern_dev"),
    ("virtio_pci", "virtio_pci_legacy_dev"),
    ("vmw_vsock_virtio_transport_common", "vsock"),
    ("vmw_vsock_virtio_transport", "vmw_vsock_virtio_transport_common"),
    ("vmw_vsock_virtio_transport", "vsock"),
    ("net_failover", "failover"),
    ("virtio_net", "net_failover"),
    ("virtio_net", "failover"),
];

/// The name of a module by its path.
fn stem(module: &str) -> &str {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.strip_suffix(".ko").unwrap_or(name)
}

/// First process of the Linux guest; its head lists the kernel command line words it obeys.
const INIT: &[u8] = include_bytes!("debian/init.sh");

/// The busybox applets that [`INIT`] calls by name.
const APPLETS: [&str; 33] = [
    "awk", "cat", "cttyhack", "dd", "find", "grep", "head", "ifconfig", "md5sum", "mkdir",
    "mkfifo", "modprobe", "mount", "nc", "nproc", "ping", "poweroff", "printf", "reboot", "rm",
    "rmmod", "sed", "seq", "setsid", "sh", "sleep", "sort", "stat", "stty", "sync", "taskset",
    "tftp", "tr",
];

/// What went wrong, and what helps.
#[derive(Debug)]
pub enum Error {
    /// A program could not be started.
    Start {
        /// The command line.
        command: String,
        /// Why it did not start.
        source: io::Error,
    },
    /// A program ended with an error.
    Failed {
        /// The command line.
        command: String,
        /// The last lines it wrote.
        output: String,
    },
    /// A file or directory could not be read or written.
    File {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No mirror of Debian is known on this machine.
    NoMirror,
    /// Debian's public keys are not installed.
    NoKeyring,
    /// The mirror's package has the locked version and another check sum.
    Changed {
        /// The package.
        package: String,
        /// Its version.
        version: String,
        /// The locked SHA-256.
        locked: String,
        /// That of the package.
        found: String,
    },
    /// The mirror does not have locked versions, and no others are wanted.
    NotLocked {
        /// The packages, each with its locked version and the mirror's.
        packages: Vec<String>,
    },
    /// `WEIR_DEBIAN_LOCK` is neither `strict` nor `newest`.
    Locking {
        /// What it is.
        value: String,
    },
    /// A package is not what this version of weir expects.
    Unexpected {
        /// The package.
        package: String,
        /// What it lacks.
        lacks: String,
    },
}

/// Result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { command, source } => write!(
                f,
                "`{command}` did not start: {source}; `./weir setup` installs what is missing"
            ),
            Self::Failed { command, output } => write!(
                f,
                "`{command}` failed:\n{output}\nguests are made of Debian's packages, fetched once: \
                 check the network, or name another mirror by WEIR_DEBIAN_MIRROR=URI"
            ),
            Self::File { path, source } => write!(
                f,
                "{}: {source}; WEIR_CACHE=DIRECTORY puts the cache elsewhere",
                path.display()
            ),
            Self::NoMirror => f.write_str(
                "no mirror of Debian found in apt's sources or in debootstrap: \
                 name one by WEIR_DEBIAN_MIRROR=URI, or run `./weir setup`",
            ),
            Self::NoKeyring => write!(
                f,
                "{KEYRING} is missing: install the package debian-archive-keyring, \
                 or run `./weir setup`"
            ),
            Self::Changed { package, version, locked, found } => write!(
                f,
                "Debian's package {package} {version} is not the locked one: SHA-256 {found}, \
                 locked is {locked}"
            ),
            Self::NotLocked { packages } => write!(
                f,
                "the mirror does not have the locked versions of Debian's packages: {}; name a \
                 mirror that has them by WEIR_DEBIAN_MIRROR=URI, or unset WEIR_DEBIAN_LOCK",
                packages.join(", ")
            ),
            Self::Locking { value } => {
                write!(f, "WEIR_DEBIAN_LOCK is {value:?}; it can be strict or newest")
            }
            Self::Unexpected { package, lacks } => write!(
                f,
                "Debian's package {package} has no {lacks}: its version is too new for this weir"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { source, .. } | Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Debian's real-time kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxImage {
    /// The uncompressed arm64 Image.
    pub image: PathBuf,
    /// The kernel's release, such as `6.1.0-56-rt-arm64`.
    pub version: String,
    /// Directory with its virtio and vsock modules, in the tree of the package below
    /// `lib/modules/VERSION/kernel`. Nothing else of the kernel's modules is kept.
    pub modules: PathBuf,
}

/// What a Linux guest's initial file system holds beside its first process and busybox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initramfs {
    /// Nothing: 1.9 MB.
    Busybox,
    /// `cyclictest` and its libraries: 4 MB.
    Rt,
    /// The kernel's modules for virtio disks on PCI: 2.1 MB.
    Virtio,
    /// The kernel's modules for virtio sockets, and weir's own program that sends and receives: 2.2 MB.
    Vsock,
    /// `cyclictest` and its libraries, and the kernel's modules for virtio network devices on MMIO: 4.2 MB.
    Net,
    /// The modules of [`Self::Vsock`], and Debian's socat with its libraries: 12 MB.
    Socat,
}

impl Initramfs {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Busybox, Self::Rt, Self::Virtio, Self::Vsock, Self::Net, Self::Socat];

    /// The name by which a system file asks for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Rt => "debian-rt",
            Self::Virtio => "debian-virtio",
            Self::Vsock => "debian-vsock",
            Self::Net => "debian-net",
            Self::Socat => "debian-socat",
        }
    }
}

/// One package in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name of the binary package.
    pub name: String,
    /// Debian's version.
    pub version: String,
    /// SHA-256 of the package file, as signed by Debian.
    pub sha256: String,
}

/// The cache's directory: `WEIR_CACHE`, or `.cache` in the checkout `root`.
#[must_use]
pub fn cache_dir(root: &Path) -> PathBuf {
    std::env::var_os("WEIR_CACHE")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| root.join(".cache"), PathBuf::from)
}

/// Debian's real-time kernel, fetched on the first call.
///
/// # Errors
/// When the packages are not in the cache and can't be fetched.
pub fn linux_rt(cache: &Path) -> Result<LinuxImage> {
    let store = store(cache)?;
    let version = read_text(&store.join("linux/version"))?;
    Ok(LinuxImage {
        image: store.join(IMAGE),
        version: version.trim().to_owned(),
        modules: store.join("linux/modules"),
    })
}

/// An initial file system for [`linux_rt`]: an uncompressed cpio archive, the same bytes on every
/// host for the same packages and the same `talk`, the program that [`Initramfs::Vsock`] needs.
///
/// # Errors
/// As [`linux_rt`], and when the archive can't be written.
pub fn initramfs(cache: &Path, kind: Initramfs, talk: Option<Vec<u8>>) -> Result<PathBuf> {
    let bytes = archive(&store(cache)?, kind, talk)?;
    let path = archive_path(cache, kind);
    if !fs::read(&path).is_ok_and(|old| old == bytes) {
        let new = cache.join(format!(".initramfs-{}-{}", kind.name(), std::process::id()));
        fs::write(&new, bytes).map_err(at(&new))?;
        fs::rename(&new, &path).map_err(at(&path))?;
    }
    Ok(path)
}

/// Debian's U-Boot for QEMU's arm64 `virt` machine, a raw image.
///
/// # Errors
/// As [`linux_rt`].
pub fn u_boot(cache: &Path) -> Result<PathBuf> {
    Ok(store(cache)?.join(U_BOOT))
}

/// Something that is made of Debian's packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The Image of [`linux_rt`].
    Linux,
    /// An archive of [`initramfs`].
    Initramfs(Initramfs),
    /// The binary of [`u_boot`].
    UBoot,
}

impl Kept {
    /// What a system file calls so in the role of a "kernel", an "initrd" or an "image".
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
}

/// Where something is that was asked for before; nothing is fetched or made for it. None without the packages.
#[must_use]
pub fn kept(cache: &Path, what: Kept) -> Option<PathBuf> {
    let store = Some(cache.join("debian")).filter(|store| is_current(store))?;
    Some(match what {
        Kept::Linux => store.join(IMAGE),
        Kept::Initramfs(kind) => archive_path(cache, kind),
        Kept::UBoot => store.join(U_BOOT),
    })
}

/// Where an initial file system is left.
fn archive_path(cache: &Path, kind: Initramfs) -> PathBuf {
    cache.join(format!("initramfs-{}.cpio", kind.name()))
}

/// The packages in the store, by name: what a report says its guests were made of.
///
/// # Errors
/// As [`linux_rt`].
pub fn packages(cache: &Path) -> Result<Vec<Package>> {
    Ok(listed(&read_text(&store(cache)?.join(MANIFEST))?))
}

/// Whether a package is the one that `debian/packages.lock` names.
#[must_use]
pub fn is_locked(package: &Package) -> bool {
    listed(LOCK).contains(package)
}

/// The packages of a manifest or a lock; a line that begins with `#` is a comment.
fn listed(text: &str) -> Vec<Package> {
    let package = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some(Package { name: words.next()?, version: words.next()?, sha256: words.next()? })
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(package).collect()
}

/// The store's directory, made first if it is missing, of an older format, or of another lock.
fn store(cache: &Path) -> Result<PathBuf> {
    let store = cache.join("debian");
    let locking = Locking::find()?;
    let is_current = |store: &Path| {
        is_current(store) && (locking != Locking::Strict || not_locked(store).is_empty())
    };
    if is_current(&store) {
        return Ok(store);
    }
    fs::create_dir_all(cache).map_err(at(cache))?;
    remove_abandoned(cache);
    let scratch = Scratch::new(cache)?;
    let fresh = scratch.0.join("store");
    fill(&scratch.0, &fresh, locking)?;
    let stale = scratch.0.join("stale");
    if store.exists() && !is_current(&store) {
        fs::rename(&store, &stale).map_err(at(&store))?;
    }
    match fs::rename(&fresh, &store) {
        // Another process was quicker: its store is as good.
        Err(_) if is_current(&store) => Ok(store),
        Err(source) => Err(Error::File { path: store, source }),
        Ok(()) => Ok(store),
    }
}

/// Whether a complete store is there, of this version's format and its lock.
fn is_current(store: &Path) -> bool {
    fs::read_to_string(store.join(MANIFEST)).is_ok_and(|text| text.lines().next() == Some(FORMAT))
        && (not_locked(store).is_empty()
            || fs::read_to_string(store.join(WANTED)).is_ok_and(|wanted| wanted == LOCK))
}

/// The packages of a store that are not the locked ones.
fn not_locked(store: &Path) -> Vec<Package> {
    let manifest = fs::read_to_string(store.join(MANIFEST)).unwrap_or_default();
    listed(&manifest).into_iter().filter(|package| !is_locked(package)).collect()
}

/// The kernel in the store.
const IMAGE: &str = "linux/Image";
/// U-Boot in the store.
const U_BOOT: &str = "u-boot/u-boot.bin";

/// Prefix of the scratch directories in the cache; the process's number follows.
const SCRATCH: &str = ".debian-";

/// A directory that is gone when the value is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(cache: &Path) -> Result<Self> {
        // apt wants absolute paths.
        let cache = cache.canonicalize().map_err(at(cache))?;
        let dir = cache.join(format!("{SCRATCH}{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is removed by the next process that fetches.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what processes left that were killed while they fetched.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Fetches the packages, with `scratch` for apt, and makes the store `fresh` out of them.
fn fill(scratch: &Path, fresh: &Path, locking: Locking) -> Result<()> {
    let progress = ProgressBar::new(100);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %") {
        progress.set_style(style);
    }
    progress.set_message("Debian's package lists");
    let apt = Apt::new(scratch)?;
    let chosen = fetch(&apt, locking, &progress)?;
    let kernel = &chosen.kernel;

    progress.set_message("unpacking");
    let unpacked = scratch.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(at(&unpacked))?;
    let unpack = |package: &str, members: &[&str]| {
        unpack(&apt.package_file(package)?, &unpacked, package, members)
    };
    unpack(
        kernel,
        &[
            "./boot/vmlinuz-*",
            "./lib/modules/*/kernel/drivers/block/virtio_blk.ko",
            "./lib/modules/*/kernel/drivers/net/net_failover.ko",
            "./lib/modules/*/kernel/drivers/net/virtio_net.ko",
            "./lib/modules/*/kernel/drivers/virtio/*",
            "./lib/modules/*/kernel/net/core/failover.ko",
            "./lib/modules/*/kernel/net/vmw_vsock/*",
        ],
    )?;
    unpack("busybox-static", &["./bin/busybox"])?;
    unpack("rt-tests", &["./usr/bin/cyclictest"])?;
    unpack("libnuma1", &["./usr/lib/aarch64-linux-gnu/libnuma.so.*"])?;
    unpack("libc6", &["./lib/aarch64-linux-gnu/*.so.*"])?;
    unpack("socat", &["./usr/bin/socat*"])?;
    for package in SOCAT_PACKAGES {
        unpack(package, &["./*/aarch64-linux-gnu/*.so.*"])?;
    }
    unpack("u-boot-qemu", &["./usr/lib/u-boot/qemu_arm64/u-boot.bin"])?;

    let version = kernel.trim_start_matches("linux-image-");
    let image = unpacked.join(format!("boot/vmlinuz-{version}"));
    if !is_image(&image)? {
        let lacks = "uncompressed Image".to_owned();
        return Err(Error::Unexpected { package: kernel.to_owned(), lacks });
    }
    place(&image, &fresh.join(IMAGE))?;
    let modules = fresh.join("linux/modules");
    let kept = unpacked.join(format!("lib/modules/{version}/kernel"));
    fs::rename(&kept, &modules).map_err(at(&kept))?;
    let file = fresh.join("linux/version");
    fs::write(&file, version).map_err(at(&file))?;

    place(&unpacked.join("bin/busybox"), &fresh.join("bin/busybox"))?;
    place(&unpacked.join("usr/bin/cyclictest"), &fresh.join("bin/cyclictest"))?;
    place(&unpacked.join("usr/bin/socat"), &fresh.join("bin/socat"))?;
    for library in LIBRARIES.into_iter().chain(SOCAT_LIBRARIES) {
        let place_of = ["lib", "usr/lib"]
            .map(|dir| unpacked.join(dir).join("aarch64-linux-gnu").join(library))
            .into_iter()
            .find(|path| path.exists())
            .ok_or_else(|| Error::Unexpected {
                package: "libc6, libnuma1, socat or what it depends on".to_owned(),
                lacks: library.to_owned(),
            })?;
        place(&place_of, &fresh.join("lib").join(library))?;
    }
    let u_boot = unpacked.join("usr/lib/u-boot/qemu_arm64/u-boot.bin");
    place(&u_boot, &fresh.join(U_BOOT))?;

    let file = fresh.join(WANTED);
    fs::write(&file, LOCK).map_err(at(&file))?;
    let file = fresh.join(MANIFEST);
    fs::write(&file, manifest(&chosen.packages)).map_err(at(&file))?;
    progress.finish_and_clear();
    Ok(())
}

/// Downloads the packages, each as [`choose`] says, and checks their sums.
fn fetch(apt: &Apt, locking: Locking, progress: &ProgressBar) -> Result<Chosen> {
    apt.run("apt-get", ["-q", "update"], progress)?;

    let depends = apt.run("apt-cache", ["depends", KERNEL], progress)?;
    let newest = dependency(&depends).ok_or_else(|| Error::Unexpected {
        package: KERNEL.to_owned(),
        lacks: "dependency on a kernel".to_owned(),
    })?;
    let lock = listed(LOCK);
    let locked_kernel = lock.iter().find(|package| package.name.starts_with(KERNEL_PREFIX));
    let names = [&PACKAGES[..], &SOCAT_PACKAGES].concat();
    let kernels = locked_kernel.map(|kernel| kernel.name.as_str()).into_iter().chain([newest]);
    let show = ["show"].into_iter().chain(names.iter().copied()).chain(kernels);
    let offered = offered(&apt.run("apt-cache", show, progress)?);
    let chosen = choose(&lock, &offered, &names, newest, locking)?;
    if !chosen.others.is_empty() {
        let others = chosen.others.join("\n  ");
        progress.suspend(|| {
            // A warning that can't be printed stops nothing.
            let _ = writeln!(
                crate::screen::stderr(),
                "weir: warning: the mirror does not have the locked versions of these Debian \
                 packages; others are used, and each run records them:\n  {others}\n\
                 weir: WEIR_DEBIAN_MIRROR=URI names a mirror that has them, and \
                 WEIR_DEBIAN_LOCK=strict refuses others"
            );
        });
    }
    progress.set_message("Debian's packages");
    let versions: Vec<_> =
        chosen.packages.iter().map(|p| format!("{}={}", p.name, p.version)).collect();
    let download = ["-q", "download"].into_iter().chain(versions.iter().map(String::as_str));
    apt.run("apt-get", download, progress)?;
    for package in &chosen.packages {
        let file = apt.package_file(&package.name)?;
        verify(package, &sha256(&file)?)?;
    }
    Ok(chosen)
}

/// Copies the file `from`, or what it links to, to `to` and makes the directories above it.
fn place(from: &Path, to: &Path) -> Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).map_err(at(dir))?;
    }
    fs::copy(from, to).map_err(at(from))?;
    Ok(())
}

/// Whether a file starts with the header of an uncompressed arm64 kernel (Linux,
/// Documentation/arm64/booting.rst: "ARM\x64" at offset 56).
fn is_image(path: &Path) -> Result<bool> {
    let mut header = [0; 64];
    let mut file = fs::File::open(path).map_err(at(path))?;
    file.read_exact(&mut header).map_err(at(path))?;
    Ok(header[56..60] == *b"ARM\x64")
}

/// Unpacks the `members` (patterns) of a package file into `into`; each must match something.
fn unpack(file: &Path, into: &Path, package: &str, members: &[&str]) -> Result<()> {
    let mut list = Command::new("dpkg-deb");
    list.arg("--fsys-tarfile").arg(file).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut list = list
        .spawn()
        .map_err(|source| Error::Start { command: "dpkg-deb --fsys-tarfile".to_owned(), source })?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--wildcards", "--directory"]).arg(into);
    tar.args(members);
    if let Some(stream) = list.stdout.take() {
        tar.stdin(stream);
    }
    let output = output(tar);
    // tar may stop reading early; its own status says whether everything was found.
    let _ = list.wait();
    match output {
        Err(Error::Failed { output, .. }) if output.contains("Not found in archive") => {
            Err(Error::Unexpected { package: package.to_owned(), lacks: members.join(" or ") })
        }
        other => other.map(drop),
    }
}

/// The package that the output of `apt-cache depends` names first.
fn dependency(depends: &str) -> Option<&str> {
    depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "))
}

/// The manifest: [`FORMAT`], then name, version and SHA-256 of each package.
fn manifest(packages: &[Package]) -> String {
    let mut lines: Vec<_> = packages
        .iter()
        .map(|Package { name, version, sha256 }| format!("{name} {version} {sha256}"))
        .collect();
    lines.push(FORMAT.to_owned());
    lines.sort_unstable();
    lines.join("\n") + "\n"
}

/// The packages in the output of `apt-cache show`: of each name the one first that apt prefers.
fn offered(show: &str) -> Vec<Package> {
    let package = |paragraph: &str| {
        let fields: BTreeMap<&str, &str> =
            paragraph.lines().filter_map(|line| line.split_once(": ")).collect();
        let field = |name| fields.get(name).map(|value| (*value).to_owned());
        Some(Package {
            name: field("Package")?,
            version: field("Version")?,
            sha256: field("SHA256")?,
        })
    };
    show.split("\n\n").filter_map(package).collect()
}

/// The packages to download.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    packages: Vec<Package>,
    /// The name of the kernel's.
    kernel: String,
    /// In words, those that are not the locked ones.
    others: Vec<String>,
}

/// Chooses among what a mirror offers: the locked versions where it has them. `newest` is the
/// kernel that is up to date.
fn choose(
    lock: &[Package],
    offered: &[Package],
    names: &[&str],
    newest: &str,
    locking: Locking,
) -> Result<Chosen> {
    let locked = |name: &str| {
        lock.iter().find(|package| package.name == name).filter(|_| locking != Locking::Newest)
    };
    let of = |name: &str, version: Option<&str>| {
        offered.iter().find(|package| {
            package.name == name && version.is_none_or(|version| package.version == version)
        })
    };
    let kernel = lock
        .iter()
        .filter(|package| package.name.starts_with(KERNEL_PREFIX))
        .find(|kernel| {
            locked(&kernel.name).is_some() && of(&kernel.name, Some(&kernel.version)).is_some()
        })
        .map_or(newest, |kernel| &kernel.name);
    let mut chosen = Chosen { packages: Vec::new(), kernel: kernel.to_owned(), others: Vec::new() };
    for name in names.iter().copied().chain([kernel]) {
        let wanted = locked(name);
        let found = wanted.and_then(|wanted| of(name, Some(&wanted.version)));
        let package = found.or_else(|| of(name, None)).ok_or_else(|| Error::Unexpected {
            package: name.to_owned(),
            lacks: "version for arm64".to_owned(),
        })?;
        match (wanted, found) {
            (Some(wanted), Some(found)) => verify(wanted, &found.sha256)?,
            (Some(wanted), None) => chosen
                .others
                .push(format!("{name} {} instead of {}", package.version, wanted.version)),
            (None, _) if locking != Locking::Newest => {
                chosen.others.push(format!("{name} {}, which is not in the lock", package.version));
            }
            (None, _) => {}
        }
        chosen.packages.push(package.clone());
    }
    if locking == Locking::Strict && !chosen.others.is_empty() {
        return Err(Error::NotLocked { packages: chosen.others });
    }
    Ok(chosen)
}

/// Refuses a package with another check sum than the wanted one's.
fn verify(wanted: &Package, sha256: &str) -> Result<()> {
    if wanted.sha256 == sha256 {
        return Ok(());
    }
    Err(Error::Changed {
        package: wanted.name.clone(),
        version: wanted.version.clone(),
        locked: wanted.sha256.clone(),
        found: sha256.to_owned(),
    })
}

/// The SHA-256 of a file, by the program of the coreutils.
fn sha256(file: &Path) -> Result<String> {
    let mut command = Command::new("sha256sum");
    command.arg("--").arg(file).stdin(Stdio::null());
    let printed = output(command)?;
    // With a backslash in the name, one is before the sum.
    let sum = printed.split_whitespace().next().unwrap_or_default();
    Ok(sum.trim_start_matches('\\').to_owned())
}

/// apt with a configuration and a state of its own.
struct Apt {
    config: PathBuf,
    packages: PathBuf,
}

impl Apt {
    /// Lays out apt's directory in `scratch`.
    fn new(scratch: &Path) -> Result<Self> {
        if !Path::new(KEYRING).exists() {
            return Err(Error::NoKeyring);
        }
        let dir = scratch.join("apt");
        for sub in [
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/lib/dpkg",
            "var/cache/apt/archives/partial",
            "packages",
        ] {
            let sub = dir.join(sub);
            fs::create_dir_all(&sub).map_err(at(&sub))?;
        }
        let sources = Sources::find()?;
        let text = dir.display().to_string();
        let files = [
            ("var/lib/dpkg/status", String::new()),
            ("etc/apt/sources.list", sources.list()),
            ("apt.conf", configuration(&text, &output_of("apt-config", ["dump"])?)),
        ];
        for (name, content) in files {
            let file = dir.join(name);
            fs::write(&file, content).map_err(at(&file))?;
        }
        Ok(Self { config: dir.join("apt.conf"), packages: dir.join("packages") })
    }

    /// Runs one of apt's programs, shows how far its downloads are, returns what it printed.
    fn run<'a>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = &'a str>,
        progress: &ProgressBar,
    ) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("APT_CONFIG", &self.config)
            .current_dir(&self.packages)
            .stdin(Stdio::null());
        watch(command, |line| match downloaded(line) {
            Some(percent) => progress.set_position(percent),
            None => progress.tick(),
        })
    }

    /// The downloaded file of a package.
    fn package_file(&self, package: &str) -> Result<PathBuf> {
        let prefix = format!("{package}_");
        fs::read_dir(&self.packages)
            .map_err(at(&self.packages))?
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path())
            .ok_or_else(|| Error::Unexpected {
                package: package.to_owned(),
                lacks: "file for arm64".to_owned(),
            })
    }
}

/// apt's configuration for the directory `dir`. Of the machine's own (`dump`, as `apt-config dump`
/// prints it) only what leads to the network is kept: proxies, certificates, retries.
fn configuration(dir: &str, dump: &str) -> String {
    let mut text = format!(
        "Dir \"{dir}\";\n\
         Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::netrc \"/etc/apt/auth.conf\";\n\
         Dir::Etc::netrcparts \"/etc/apt/auth.conf.d\";\n\
         Dir::State::status \"{dir}/var/lib/dpkg/status\";\n\
         APT::Architecture \"arm64\";\n\
         APT::Architectures {{ \"arm64\"; }};\n\
         APT::Sandbox::User \"\";\n\
         APT::Status-Fd \"1\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::Languages \"none\";\n"
    );
    for line in dump.lines() {
        let network = ["http::", "https::", "http ", "https ", "Retries ", "ForceIPv"];
        let kept = line
            .strip_prefix("Acquire::")
            .is_some_and(|name| network.iter().any(|prefix| name.starts_with(prefix)));
        if kept {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Percentage in a line of apt's status stream: `dlstatus:FILES:PERCENT:TEXT`.
fn downloaded(line: &str) -> Option<u64> {
    let mut fields = line.strip_prefix("dlstatus:")?.split(':');
    fields.nth(1)?.split('.').next()?.parse().ok()
}

/// Where Debian's packages come from.
#[derive(Debug, PartialEq, Eq)]
struct Sources {
    /// The archive's URI.
    main: String,
    /// The URI of the security updates, where a mirror of them is known.
    security: Option<String>,
}

impl Sources {
    fn find() -> Result<Self> {
        if let Some(main) = std::env::var("WEIR_DEBIAN_MIRROR").ok().filter(|uri| !uri.is_empty()) {
            return Ok(Self { main, security: None });
        }
        let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
        if let Some(codename) = debian_codename(&os) {
            let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
            let targets =
                output_of("apt-get", ["indextargets", "--no-release-info", "--format", format])?;
            if let Some(sources) = Self::of_machine(&targets, codename) {
                return Ok(sources);
            }
        }
        ["/usr/share/debootstrap/scripts/sid", "/usr/sbin/debootstrap"]
            .iter()
            .filter_map(|script| fs::read_to_string(script).ok())
            .find_map(|script| default_mirror(&script))
            .map(|main| Self { main, security: None })
            .ok_or(Error::NoMirror)
    }

    /// The mirrors of a Debian machine, out of lines `URI RELEASE COMPONENT`. Other vendors use
    /// Debian's names of releases too: a URI that ends like Debian's own is taken before others.
    fn of_machine(targets: &str, codename: &str) -> Option<Self> {
        let aliases = [codename, "stable", "oldstable", "testing", "unstable", "sid"];
        let find = |directory: &str, suffix: &str| {
            targets
                .lines()
                .filter_map(|line| {
                    let [uri, release, component] =
                        line.split(' ').collect::<Vec<_>>().try_into().ok()?;
                    let alias = release.strip_suffix(suffix)?;
                    let known = component == "main" && aliases.contains(&alias);
                    let usable = known && !uri.starts_with("cdrom:");
                    let uri = uri.trim_end_matches('/');
                    usable.then_some((!uri.ends_with(directory), alias != codename, uri))
                })
                .min()
                .map(|(_, _, uri)| uri.to_owned())
        };
        Some(Self { main: find("/debian", "")?, security: find("/debian-security", "-security") })
    }

    /// apt's list of sources.
    fn list(&self) -> String {
        let line =
            |uri: &str, release: &str| format!("deb [signed-by={KEYRING}] {uri} {release} main\n");
        let mut text = line(&self.main, RELEASE);
        if let Some(uri) = &self.security {
            text += &line(uri, &format!("{RELEASE}-security"));
        }
        text
    }
}

/// The release of the machine by the text of `/etc/os-release`, if it runs Debian itself.
fn debian_codename(os_release: &str) -> Option<&str> {
    let field = |name: &str| {
        os_release.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_matches('"')))
    };
    if field("ID=") == Some("debian") { field("VERSION_CODENAME=") } else { None }
}

/// The mirror that a script of debootstrap uses where none is named.
fn default_mirror(script: &str) -> Option<String> {
    script.lines().find_map(|line| {
        let line = line.trim();
        let uri =
            line.strip_prefix("default_mirror ").or_else(|| line.strip_prefix("DEF_MIRROR="))?;
        let uri = uri.trim().trim_matches('"');
        uri.starts_with("http").then(|| uri.to_owned())
    })
}

/// Runs a program for its output.
fn output_of<'a>(program: &str, args: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    output(command)
}

/// Runs a program for its output; the stream that the caller set stays its input.
fn output(command: Command) -> Result<String> {
    watch(command, |_| ())
}

/// Runs a program, hands each line it prints to `line` and returns them all.
fn watch(mut command: Command, line: impl Fn(&str)) -> Result<String> {
    let text = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ");
    command.env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |source| Error::Start { command: text.clone(), source };
    let mut child = command.spawn().map_err(start)?;
    let errors = child.stderr.take().map(|mut stream| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let mut printed = String::new();
    if let Some(stream) = child.stdout.take() {
        for read in BufReader::new(stream).lines().map_while(io::Result::ok) {
            line(&read);
            printed += &read;
            printed.push('\n');
        }
    }
    let status = child.wait().map_err(start)?;
    if status.success() {
        return Ok(printed);
    }
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let lines: Vec<&str> = errors.lines().collect();
    let output = lines[lines.len().saturating_sub(6)..].join("\n");
    Err(Error::Failed { command: text, output })
}

/// The text of a file.
fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(at(path))
}

/// Makes an [`Error::File`] of an error at `path`.
fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |source| Error::File { path: path.to_owned(), source }
}

/// The initial file system's archive, out of the store's files.
fn archive(store: &Path, kind: Initramfs, talk: Option<Vec<u8>>) -> Result<Vec<u8>> {
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
    let (program, libraries): (_, &[&str]) = match kind {
        Initramfs::Rt | Initramfs::Net => (Some("bin/cyclictest"), &LIBRARIES),
        Initramfs::Socat => (Some("bin/socat"), &SOCAT_LIBRARIES),
        Initramfs::Busybox | Initramfs::Virtio | Initramfs::Vsock => (None, &[]),
    };
    if let Some(program) = program {
        files.insert(program.to_owned(), File::Program(read(program)?));
        for library in libraries {
            let name = format!("lib/{library}");
            let content = read(&name)?;
            files.insert(name, File::Program(content));
        }
    }
    if let Some(talk) = talk {
        files.insert("bin/weir-vsock-tool".to_owned(), File::Program(talk));
    }
    let modules: &[&str] = match kind {
        Initramfs::Virtio => &MODULES,
        Initramfs::Vsock | Initramfs::Socat => &SOCKET_MODULES,
        Initramfs::Net => &NETWORK_MODULES,
        Initramfs::Busybox | Initramfs::Rt => &[],
    };
    if !modules.is_empty() {
        // Where modprobe looks: below the kernel's release.
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
            let content = File::Program(lines.concat().into_bytes());
            files.insert(format!("{directory}/modules.{list}"), content);
        }
    }
    Ok(cpio(&files))
}

/// A file of an archive.
enum File {
    Directory,
    Program(Vec<u8>),
    Link(&'static str),
    Device { major: u32, minor: u32 },
}

/// A cpio archive in the "newc" format (Linux, Documentation/driver-api/early-userspace/
/// buffer-format.rst), with root as the owner of everything and 0 as every time stamp.
fn cpio(files: &BTreeMap<String, File>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (inode, (name, file)) in (1..).zip(files) {
        let (mode, content, device): (u32, &[u8], _) = match file {
            File::Directory => (0o040_755, &[], (0, 0)),
            File::Program(content) => (0o100_755, content, (0, 0)),
            File::Link(target) => (0o120_777, target.as_bytes(), (0, 0)),
            File::Device { major, minor } => (0o020_600, &[], (*major, *minor)),
        };
        entry(&mut bytes, inode, name, mode, content, device);
    }
    entry(&mut bytes, 0, "TRAILER!!!", 0, &[], (0, 0));
    bytes
}

/// Appends one member of a cpio archive: header, name and content, each padded to 4 bytes.
fn entry(
    bytes: &mut Vec<u8>,
    inode: u32,
    name: &str,
    mode: u32,
    content: &[u8],
    device: (u32, u32),
) {
    // Inode, mode, user, group, links, time, size, device (2), node (2), length of the name,
    // check sum. The lengths are those of files in memory and of names: far below 4 GiB.
    let size = content.len() as u32;
    let length = name.len() as u32 + 1;
    bytes.extend_from_slice(b"070701");
    for field in [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, length, 0] {
        bytes.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend_from_slice(content);
    pad(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The members of a "newc" archive: name, mode, content.
    fn members(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let whole = bytes.len();
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, length) = (field(1), field(6), field(11));
            assert_eq!(bytes[110 + length - 1], 0, "a name ends with a null byte");
            let name = String::from_utf8(bytes[110..110 + length - 1].to_vec()).unwrap();
            let start = (110 + length).next_multiple_of(4);
            let content = bytes[start..start + size].to_vec();
            let end = (start + size).next_multiple_of(4);
            bytes = &bytes[end..];
            assert_eq!((whole - bytes.len()) % 4, 0);
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return found;
            }
            found.push((name, mode as u32, content));
        }
    }

    #[test]
    fn a_member_has_the_documented_header() {
        let mut bytes = Vec::new();
        entry(&mut bytes, 7, "dev/console", 0o020_600, b"abc", (5, 1));
        let header = "070701\
                      00000007\
                      00002180\
                      00000000\
                      00000000\
                      00000001\
                      00000000\
                      00000003\
                      00000000\
                      00000000\
                      00000005\
                      00000001\
                      0000000c\
                      00000000";
        let mut expected = header.as_bytes().to_vec();
        expected.extend_from_slice(b"dev/console\0\0\0abc\0");
        assert_eq!(bytes, expected);
    }

    const VERSION: &str = "6.1.0-1-rt-arm64";

    /// A directory with every file that [`archive`] reads.
    fn fake_store() -> tempfile::TempDir {
        let store = tempfile::tempdir().unwrap();
        for dir in ["bin", "lib"] {
            fs::create_dir(store.path().join(dir)).unwrap();
        }
        for name in ["bin/busybox", "bin/cyclictest"] {
            fs::write(store.path().join(name), name).unwrap();
        }
        fs::create_dir(store.path().join("linux")).unwrap();
        fs::write(store.path().join("linux/version"), VERSION).unwrap();
        for library in LIBRARIES {
            fs::write(store.path().join("lib").join(library), library).unwrap();
        }
        for module in MODULES.iter().chain(&SOCKET_MODULES).chain(&NETWORK_MODULES) {
            let path = store.path().join("linux/modules").join(module);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, module).unwrap();
        }
        store
    }

    #[test]
    fn the_initrd_holds_what_its_first_process_calls() {
        let store = fake_store();
        let rt = members(&archive(store.path(), Initramfs::Rt, None).unwrap());
        let names: Vec<&str> = rt.iter().map(|(name, ..)| name.as_str()).collect();
        assert!(names.is_sorted(), "the order does not depend on the host");
        for parent in names.iter().filter_map(|name| Some(name.rsplit_once('/')?.0)) {
            assert!(names.contains(&parent), "{parent} comes before what is in it");
        }
        let find = |name: &str| rt.iter().find(|member| member.0 == name).unwrap();
        assert_eq!(find("init").1, 0o100_755);
        assert_eq!(find("init").2, INIT);
        assert_eq!(find("bin/cyclictest").2, b"bin/cyclictest");
        assert_eq!(find("lib/libc.so.6").2, b"libc.so.6");
        assert_eq!(find("bin/awk").1, 0o120_777);
        assert_eq!(find("bin/awk").2, b"busybox");
        let small = members(&archive(store.path(), Initramfs::Busybox, None).unwrap());
        assert!(small.iter().all(|(name, ..)| name != "bin/cyclictest" && !name.contains(".so")));
        assert!(small.len() + 1 + LIBRARIES.len() == rt.len());
        let virtio = members(&archive(store.path(), Initramfs::Virtio, None).unwrap());
        let modules: Vec<_> =
            virtio.iter().filter_map(|(name, ..)| name.strip_prefix("lib/modules/")).collect();
        let expected = ["", "/modules.dep", "/modules.order", "/virtio_blk.ko", "/virtio_pci.ko"];
        let expected = expected.map(|name| format!("{VERSION}{name}"));
        assert!(expected.iter().all(|name| modules.contains(&name.as_str())), "{modules:?}");
        let content = |archive: &[(String, u32, Vec<u8>)], name: &str| {
            let path = format!("lib/modules/{VERSION}/{name}");
            let found = archive.iter().find(|member| member.0 == path).unwrap();
            String::from_utf8(found.2.clone()).unwrap()
        };
        // Each behind those that it needs.
        let order = "virtio_pci_modern_dev\nvirtio_pci_legacy_dev\nvirtio_pci\nvirtio_blk\n";
        assert_eq!(content(&virtio, "modules.order"), order);
        let needs = "virtio_pci.ko: virtio_pci_modern_dev.ko virtio_pci_legacy_dev.ko\n";
        assert!(content(&virtio, "modules.dep").contains(needs));
        let net = members(&archive(store.path(), Initramfs::Net, None).unwrap());
        assert_eq!(
            net.len(),
            rt.len() + 4 + NETWORK_MODULES.len(),
            "modules, their two directories and two lists, beside cyclictest"
        );
        let talk = Some(b"the program".to_vec());
        let vsock = members(&archive(store.path(), Initramfs::Vsock, talk).unwrap());
        let find = |name: &str| vsock.iter().find(|member| member.0 == name);
        assert_eq!(find("bin/weir-vsock-tool").unwrap().2, b"the program");
        assert!(find(&format!("lib/modules/{VERSION}/vmw_vsock_virtio_transport.ko")).is_some());
        for (user, needed) in DEPENDENCIES {
            let lists = [&MODULES[..], &SOCKET_MODULES, &NETWORK_MODULES];
            for list in lists.into_iter().filter(|list| list.iter().any(|name| stem(name) == user))
            {
                let place = |name| list.iter().position(|module| stem(module) == name);
                assert!(place(needed) < place(user) && place(needed).is_some(), "{user}, {needed}");
            }
        }
    }

    #[test]
    fn the_archive_does_not_depend_on_time_or_place() {
        let (one, other) = (fake_store(), fake_store());
        let first = archive(one.path(), Initramfs::Rt, None).unwrap();
        assert_eq!(first, archive(other.path(), Initramfs::Rt, None).unwrap());
    }

    #[test]
    fn a_missing_file_is_named() {
        let store = fake_store();
        fs::remove_file(store.path().join("bin/cyclictest")).unwrap();
        let error = archive(store.path(), Initramfs::Rt, None).unwrap_err().to_string();
        assert!(error.contains("bin/cyclictest") && error.contains("WEIR_CACHE"), "{error}");
    }

    #[test]
    fn a_store_is_current_only_with_its_whole_manifest() {
        let cache = tempfile::tempdir().unwrap();
        let store = cache.path().join("debian");
        assert!(!is_current(&store));
        fs::create_dir(&store).unwrap();
        fs::write(store.join(MANIFEST), "# weir: Debian packages, store 0\n").unwrap();
        assert!(!is_current(&store));
        // Made of other packages: good under the lock that it was made under, and under no other.
        fs::write(store.join(MANIFEST), format!("{FORMAT}\nlibc6 2.36-9 ab\n")).unwrap();
        assert!(!is_current(&store));
        fs::write(store.join(WANTED), "libc6 2.36-8 aa\n").unwrap();
        assert!(!is_current(&store));
        fs::write(store.join(WANTED), LOCK).unwrap();
        assert!(is_current(&store));
        let libc6 = package("libc6", "2.36-9", "ab");
        assert!(!is_locked(&libc6));
        assert_eq!(packages(cache.path()).unwrap(), [libc6]);
        // Made of the locked ones.
        fs::remove_file(store.join(WANTED)).unwrap();
        fs::write(store.join(MANIFEST), manifest(&listed(LOCK))).unwrap();
        assert!(is_current(&store));
    }

    #[test]
    fn only_abandoned_scratch_directories_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let own = format!("{SCRATCH}{}", std::process::id());
        // Above the kernel's largest process number.
        let abandoned = format!("{SCRATCH}4194305");
        for name in [&own, &abandoned, &"debian".to_owned()] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        remove_abandoned(cache.path());
        assert!(cache.path().join(own).exists() && cache.path().join("debian").exists());
        assert!(!cache.path().join(abandoned).exists());
    }

    fn package(name: &str, version: &str, sha256: &str) -> Package {
        Package { name: name.into(), version: version.into(), sha256: sha256.into() }
    }

    #[test]
    fn the_manifest_lists_what_apt_shows() {
        let show = "Package: libnuma1\nVersion: 2.0.16-1\nSHA256: b4ed\nDescription: x\n more\n\n\
                    Package: libc6\nSource: glibc\nVersion: 2.36-9\nSHA256: 01f4\n\n\
                    Package: libc6\nVersion: 2.36-8\nSHA256: 01f3\n";
        let offered = offered(show);
        assert_eq!(offered.len(), 3);
        let text = manifest(&offered[..2]);
        assert_eq!(text, format!("{FORMAT}\nlibc6 2.36-9 01f4\nlibnuma1 2.0.16-1 b4ed\n"));
        assert_eq!(
            listed(&text),
            [package("libc6", "2.36-9", "01f4"), package("libnuma1", "2.0.16-1", "b4ed")]
        );
    }

    #[test]
    fn the_lock_names_every_package_and_one_kernel() {
        let lock = listed(LOCK);
        let mut names: Vec<_> = [&PACKAGES[..], &SOCAT_PACKAGES].concat();
        let kernels: Vec<_> =
            lock.iter().filter(|package| package.name.starts_with(KERNEL_PREFIX)).collect();
        assert_eq!(kernels.len(), 1);
        names.push(&kernels[0].name);
        names.sort_unstable();
        let mut locked: Vec<_> = lock.iter().map(|package| package.name.as_str()).collect();
        locked.sort_unstable();
        assert_eq!(locked, names);
        let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(lock.iter().all(|package| is_sum(&package.sha256) && is_locked(package)));
    }

    const NEWEST: &str = "linux-image-6.1.0-9-rt-arm64";

    fn lock() -> Vec<Package> {
        vec![
            package("libc6", "2.36-8", "c8"),
            package("linux-image-6.1.0-8-rt-arm64", "6.1.8", "k8"),
        ]
    }

    fn mirror() -> Vec<Package> {
        vec![
            package("libc6", "2.36-9", "c9"),
            package("libc6", "2.36-8", "c8"),
            package("linux-image-6.1.0-8-rt-arm64", "6.1.8", "k8"),
            package(NEWEST, "6.1.9", "k9"),
        ]
    }

    #[test]
    fn locked_versions_win_over_newer_ones() {
        for locking in [Locking::Prefer, Locking::Strict] {
            let chosen = choose(&lock(), &mirror(), &["libc6"], NEWEST, locking).unwrap();
            assert_eq!(chosen.packages, lock());
            assert_eq!(chosen.kernel, "linux-image-6.1.0-8-rt-arm64");
            assert!(chosen.others.is_empty());
        }
        let newest = choose(&lock(), &mirror(), &["libc6"], NEWEST, Locking::Newest).unwrap();
        assert_eq!(newest.packages, [mirror()[0].clone(), mirror()[3].clone()]);
        assert!(newest.others.is_empty());
    }

    #[test]
    fn what_the_mirror_has_no_more_is_named_or_refused() {
        let mirror = [mirror()[0].clone(), mirror()[3].clone()];
        let chosen = choose(&lock(), &mirror, &["libc6"], NEWEST, Locking::Prefer).unwrap();
        assert_eq!(chosen.packages, mirror);
        assert_eq!(chosen.kernel, NEWEST);
        assert_eq!(
            chosen.others,
            [
                "libc6 2.36-9 instead of 2.36-8",
                "linux-image-6.1.0-9-rt-arm64 6.1.9, which is not in the lock"
            ]
        );
        let error = choose(&lock(), &mirror, &["libc6"], NEWEST, Locking::Strict).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("libc6 2.36-9 instead of 2.36-8") && text.contains("WEIR_DEBIAN_MIRROR"),
            "{text}"
        );
    }

    /// Whatever is asked for: one version has one content.
    #[test]
    fn a_locked_version_with_another_check_sum_is_refused() {
        let mut mirror = mirror();
        mirror[1].sha256 = "bad".to_owned();
        for locking in [Locking::Prefer, Locking::Strict] {
            let error = choose(&lock(), &mirror, &["libc6"], NEWEST, locking).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("libc6 2.36-8 is not the locked one: SHA-256 bad, locked is c8"),
                "{text}"
            );
        }
        assert!(verify(&lock()[0], "c8").is_ok() && verify(&lock()[0], "c9").is_err());
    }

    #[test]
    fn a_downloaded_file_is_summed_up() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a b\\c");
        fs::write(&file, "abc").unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&file).unwrap(), sum);
    }

    #[test]
    fn apt_says_how_far_it_is_and_what_depends() {
        assert_eq!(downloaded("dlstatus:3:45.67:Retrieving file 3 of 7"), Some(45));
        assert_eq!(downloaded("Get:1 archive"), None);
        assert_eq!(downloaded("dlstatus:3"), None);
        let depends = "linux-image-rt-arm64\n  Depends: linux-image-6.1.0-56-rt-arm64\n";
        assert_eq!(dependency(depends), Some("linux-image-6.1.0-56-rt-arm64"));
    }

    #[test]
    fn a_debian_machine_lends_its_mirrors() {
        let targets = "http://vendor.example/linux/ bookworm main\n\
                       http://mirror.example/debian/ bookworm contrib\n\
                       http://mirror.example/debian/ bookworm-updates main\n\
                       http://mirror.example/debian/ bookworm main\n\
                       http://mirror.example/debian-security/ bookworm-security main\n\
                       http://vendor.example/tools/ stable main\n";
        let sources = Sources::of_machine(targets, "bookworm").unwrap();
        assert_eq!(sources.main, "http://mirror.example/debian");
        assert_eq!(sources.security.as_deref(), Some("http://mirror.example/debian-security"));
        assert_eq!(
            sources.list(),
            format!(
                "deb [signed-by={KEYRING}] http://mirror.example/debian bookworm main\n\
                 deb [signed-by={KEYRING}] http://mirror.example/debian-security \
                 bookworm-security main\n"
            )
        );
        let list = "mirror+file:/etc/apt/mirrors/debian.list/ trixie main\n\
                    cdrom:[Debian]/debian/ trixie main\n";
        let sources = Sources::of_machine(list, "trixie").unwrap();
        assert_eq!(sources.main, "mirror+file:/etc/apt/mirrors/debian.list");
        assert_eq!(sources.security, None);
        assert_eq!(
            Sources::of_machine("http://mirror.example/ubuntu/ noble main\n", "noble2"),
            None
        );
    }

    #[test]
    fn elsewhere_debootstrap_names_the_mirror() {
        let functions = "default_mirror () {\n\tDEF_MIRROR=\"$1\"\n}\n";
        assert_eq!(default_mirror(functions), None);
        let script = "mirror_style release\n    default_mirror http://mirror.example/debian\n";
        assert_eq!(default_mirror(script).as_deref(), Some("http://mirror.example/debian"));
        let program = "DEF_MIRROR=\"http://mirror.example/debian\"\n";
        assert_eq!(default_mirror(program).as_deref(), Some("http://mirror.example/debian"));
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(debian_codename(debian), Some("bookworm"));
        assert_eq!(debian_codename("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"), None);
    }

    #[test]
    fn apt_keeps_the_way_to_the_network_and_nothing_else() {
        let dump = "Acquire::http::Proxy \"http://proxy.example:3128\";\n\
                    Acquire::AllowInsecureRepositories \"1\";\n\
                    Acquire::Languages:: \"de\";\n\
                    APT::Update::Post-Invoke:: \"rm -f x\";\n";
        let text = configuration("/a b", dump);
        assert!(text.contains("Acquire::http::Proxy \"http://proxy.example:3128\";\n"));
        assert!(text.starts_with("Dir \"/a b\";\n"));
        for lost in ["Insecure", "Post-Invoke", "\"de\""] {
            assert!(!text.contains(lost), "{lost}");
        }
    }

    #[test]
    fn a_failing_command_is_named_with_its_last_words() {
        let error = output_of("sh", ["-c", "echo why >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c echo why >&2; exit 3` failed:\nwhy\n"), "{error}");
        let error = output_of("weir-has-no-such-program", []).unwrap_err().to_string();
        assert!(error.contains("did not start") && error.contains("./weir setup"), "{error}");
    }

    #[test]
    fn only_an_uncompressed_kernel_is_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vmlinuz");
        let mut bytes = [0_u8; 64];
        fs::write(&file, bytes).unwrap();
        assert!(!is_image(&file).unwrap());
        bytes[56..60].copy_from_slice(b"ARM\x64");
        fs::write(&file, bytes).unwrap();
        assert!(is_image(&file).unwrap());
    }
}
