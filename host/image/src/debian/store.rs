//! The store: the files of Debian's packages that guests need. It appears whole or not at all.

use super::{
    at,
    fetch::{Mirror, file_of},
    initramfs::{CYCLICTEST, MODULES, NETWORK_MODULES, SOCAT, SOCKET_MODULES},
    lock::{KERNEL_PREFIX, LOCK, Locking, Package, is_locked, listed},
};
use crate::failure::{Failure, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lzma_rust2::XzReader;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// First line of the manifest. Another number makes an older store stale.
pub const FORMAT: &str = "# weir: Debian packages, store 3";

/// File of the store that lists the packages it was made of.
pub const MANIFEST: &str = "packages.lock";

/// File of the store with the lock that it was made under. With another one it is stale.
pub const WANTED: &str = "wanted.lock";

/// The kernel in the store.
pub const IMAGE: &str = "linux/Image";

/// U-Boot in the store.
pub const U_BOOT: &str = "u-boot/u-boot.bin";

/// Prefix of the scratch directories in the cache; the process's number follows.
pub const SCRATCH: &str = ".debian-";

/// Returns the store's place in the cache.
pub fn path(cache: &Path) -> PathBuf {
    cache.join("debian")
}

/// Returns the store's directory. Makes the store if it is missing, of an older format, or of
/// another lock.
pub fn store(cache: &Path) -> Result<PathBuf> {
    let store = path(cache);
    let locking = Locking::find()?;
    let is_usable =
        || is_current(&store) && (locking != Locking::Strict || has_locked_packages(&store));
    if is_usable() {
        return Ok(store);
    }
    make_whole(&store, is_usable, |scratch, fresh| fill(scratch, fresh, locking))?;
    Ok(store)
}

/// Makes a folder of the cache, which is not there or not usable: `fill` gets a scratch directory
/// and the place in it where the folder is made. It appears whole or not at all.
pub fn make_whole(
    folder: &Path,
    is_usable: impl Fn() -> bool,
    fill: impl FnOnce(&Path, &Path) -> Result,
) -> Result {
    let cache = folder.parent().unwrap_or(folder);
    fs::create_dir_all(cache).map_err(at(cache))?;
    remove_abandoned(cache);
    // apt needs absolute paths.
    let cache = cache.canonicalize().map_err(at(cache))?;
    let scratch = tempfile::Builder::new().prefix(&scratch_prefix()).tempdir_in(&cache);
    let scratch = scratch.map_err(at(&cache))?;
    let fresh = scratch.path().join("fresh");
    fill(scratch.path(), &fresh)?;
    if folder.exists() && !is_usable() {
        fs::rename(folder, scratch.path().join("stale")).map_err(at(folder))?;
    }
    match fs::rename(&fresh, folder) {
        // Another process was quicker: its folder is as good.
        Err(error) if !is_usable() => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// Returns whether a complete store is there, of this version's format and lock.
pub fn is_current(store: &Path) -> bool {
    let read = |name| fs::read_to_string(store.join(name));
    read(MANIFEST).is_ok_and(|text| text.lines().next() == Some(FORMAT))
        && read(WANTED).is_ok_and(|wanted| wanted == LOCK)
}

pub fn has_locked_packages(store: &Path) -> bool {
    let manifest = fs::read_to_string(store.join(MANIFEST)).unwrap_or_default();
    listed(&manifest).iter().all(is_locked)
}

/// Returns the beginning of the names of this process's scratch directories in the cache.
pub fn scratch_prefix() -> String {
    format!("{SCRATCH}{}-", std::process::id())
}

/// Removes the scratch directories of processes that were killed.
pub fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(SCRATCH)?.split('-').next());
        if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns a bar for a download.
pub fn progress() -> ProgressBar {
    let progress = ProgressBar::new(100);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %") {
        progress.set_style(style);
    }
    progress
}

/// Fetches the packages to `scratch` and makes the store `fresh` of them.
fn fill(scratch: &Path, fresh: &Path, locking: Locking) -> Result {
    let progress = progress();
    let packages = Mirror::find()?.fetch(&listed(LOCK), locking, scratch, &progress)?;
    progress.set_message("unpacking");
    let files = scratch.join("files");
    unpack_all(&packages, scratch, &files)?;
    place_all(&packages, &files, fresh)?;
    for (name, text) in [(WANTED, LOCK), (MANIFEST, &manifest(&packages))] {
        let file = fresh.join(name);
        fs::write(&file, text).map_err(at(&file))?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// Unpacks packages that were fetched to `scratch`, into the new folder `files`.
pub fn unpack_all(packages: &[Package], scratch: &Path, files: &Path) -> Result {
    fs::create_dir_all(files).map_err(at(files))?;
    packages.iter().try_for_each(|package| unpack(&file_of(package, scratch), files))
}

/// Returns the manifest: [`FORMAT`], then the packages.
pub fn manifest(packages: &[Package]) -> String {
    let mut lines: Vec<_> = packages.iter().map(|package| format!("{package}\n")).collect();
    lines.sort_unstable();
    format!("{FORMAT}\n{}", lines.concat())
}

/// Returns the kernel's modules that guests load.
fn modules() -> impl Iterator<Item = &'static str> {
    MODULES.into_iter().chain(SOCKET_MODULES).chain(NETWORK_MODULES)
}

/// Unpacks a package file, but of the kernel's modules only those that guests load.
pub fn unpack(package: &Path, into: &Path) -> Result {
    let mut members = ar::Archive::new(fs::File::open(package).map_err(at(package))?);
    while let Some(member) = members.next_entry() {
        let member = member.map_err(at(package))?;
        if member.header().identifier() != b"data.tar.xz" {
            continue;
        }
        for entry in
            tar::Archive::new(XzReader::new(member, true)).entries().map_err(at(package))?
        {
            let mut entry = entry.map_err(at(package))?;
            let path = entry.path().map_err(at(package))?;
            let is_module = path.extension().is_some_and(|extension| extension == "ko");
            if !is_module || modules().any(|module| path.ends_with(module)) {
                entry.unpack_in(into).map_err(at(package))?;
            }
        }
        return Ok(());
    }
    let name = package.file_stem().unwrap_or_default().display();
    Err(Failure::environment(format!("Debian's package {name} has no data.tar.xz")))
}

/// Copies the files that guests need from the unpacked packages to the store.
pub fn place_all(packages: &[Package], files: &Path, store: &Path) -> Result {
    let version = packages.iter().find_map(|package| package.name.strip_prefix(KERNEL_PREFIX));
    let version = version.unwrap_or_default();
    let image = store.join(IMAGE);
    place(&[files.join("boot").join(format!("vmlinuz-{version}"))], &image)?;
    if !is_image(&fs::read(&image).map_err(at(&image))?) {
        return Err(missing("an uncompressed arm64 Image"));
    }
    let file = store.join("linux/version");
    fs::write(&file, version).map_err(at(&file))?;
    let kernel = files.join("lib/modules").join(version).join("kernel");
    for module in modules() {
        place(&[kernel.join(module)], &store.join("linux/modules").join(module))?;
    }
    for name in CYCLICTEST.into_iter().chain(SOCAT).chain(["bin/busybox"]) {
        let library = name.replace("lib/", "lib/aarch64-linux-gnu/");
        let places = [files.join(&library), files.join("usr").join(&library)];
        place(&places, &store.join(name))?;
    }
    place(&[files.join("usr/lib/u-boot/qemu_arm64/u-boot.bin")], &store.join(U_BOOT))
}

/// Copies the first of some files that exists, or the file that it links to.
fn place(from: &[PathBuf], to: &Path) -> Result {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(at(directory))?;
    }
    let found = from.iter().find(|path| path.exists());
    let found =
        found.ok_or_else(|| missing(&to.file_name().unwrap_or_default().to_string_lossy()))?;
    fs::copy(found, to).map(drop).map_err(at(found))
}

fn missing(what: &str) -> Failure {
    Failure::environment(format!(
        "Debian's packages do not have {what}: their versions are too new for this weir"
    ))
}

/// Returns whether a kernel has the header of an uncompressed arm64 Image (Linux,
/// Documentation/arm64/booting.rst: "ARM\x64" at offset 56).
pub fn is_image(kernel: &[u8]) -> bool {
    kernel.get(56..60) == Some(b"ARM\x64")
}
