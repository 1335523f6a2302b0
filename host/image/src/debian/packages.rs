//! The packages of a lock file: downloaded once, and unpacked into a directory of the cache that
//! appears whole or not at all. Checkouts can share the cache: one of them downloads, others wait.

use super::{
    at,
    initramfs::MODULES,
    lock::{file_of, listed},
    mirror,
};
use crate::{
    failure::{Failure, Result},
    progress::Spinner,
};
use lzma_rust2::XzReader;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the directory in the cache for the files of a lock file's packages. With another lock
/// file or other modules it is another one.
pub fn directory(cache: &Path, lock: &str) -> PathBuf {
    let hash = Sha256::digest(format!("{lock}{MODULES:?}"));
    let hash: Vec<_> = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    cache.join(format!("debian-{}", hash.concat()))
}

/// Returns [`directory`], after it has fetched and unpacked the packages if they are not there.
pub fn unpacked(cache: &Path, lock: &'static str) -> Result<PathBuf> {
    let directory = directory(cache, lock);
    if directory.exists() {
        return Ok(directory);
    }
    fs::create_dir_all(cache).map_err(at(cache))?;
    let waiting = Spinner::new("waiting for another download of Debian's packages".to_owned());
    let lock_file = cache.join("debian.lock");
    let held = fs::File::create(&lock_file).map_err(at(&lock_file))?;
    flock(&held, FlockOperation::LockExclusive).map_err(at(&lock_file))?;
    drop(waiting);
    if !directory.exists() {
        // Stays after a failure: the next call goes on with what is there.
        let partial = directory.with_extension("partial");
        let files = partial.join("files");
        fs::create_dir_all(&files).map_err(at(&files))?;
        let packages = listed(lock);
        mirror::download(&mirror::find()?, &packages, &partial)?;
        let _unpacking = Spinner::new("unpacking Debian's packages".to_owned());
        packages.iter().try_for_each(|package| unpack(&file_of(package, &partial), &files))?;
        fs::rename(&files, &directory).map_err(at(&directory))?;
        fs::remove_dir_all(&partial).map_err(at(&partial))?;
    }
    Ok(directory)
}

/// Unpacks a package file, but of the kernel's modules only those that guests load.
pub fn unpack(package: &Path, into: &Path) -> Result {
    let mut members = ar::Archive::new(fs::File::open(package).map_err(at(package))?);
    while let Some(member) = members.next_entry() {
        let member = member.map_err(at(package))?;
        if member.header().identifier() != b"data.tar.xz" {
            continue;
        }
        let mut files = tar::Archive::new(XzReader::new(member, true));
        for file in files.entries().map_err(at(package))? {
            let mut file = file.map_err(at(package))?;
            let path = file.path().map_err(at(package))?;
            // The modules of newer kernels are compressed.
            let name = path.to_string_lossy();
            let name = Path::new(name.strip_suffix(".xz").unwrap_or(&name));
            let is_module = name.extension().is_some_and(|end| end == "ko");
            if !is_module || MODULES.concat().into_iter().any(|module| name.ends_with(module)) {
                file.unpack_in(into).map_err(at(package))?;
            }
        }
        return Ok(());
    }
    Err(Failure::environment(format!(
        "{}: this Debian package has no data.tar.xz",
        package.display()
    )))
}
