use super::super::{
    KERNEL_PREFIX, LOCK, NewerKernel, kernels, lock::*, packages, packages::*, qemu, read,
};
use std::{fs, io::Write as _, path::Path};

#[test]
fn the_locks_have_one_kernel_and_whole_lines() {
    for lock in [LOCK, kernels::LOCK, qemu::LOCK] {
        let lines = lock.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), listed(lock).len());
        for package in listed(lock) {
            assert!(package.sha256.len() == 64 && package.path.starts_with("pool/main/"));
            assert!(package.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
    let packages = packages();
    let kernels = packages.iter().filter(|package| package.name.starts_with(KERNEL_PREFIX));
    assert_eq!(kernels.count(), 1);
    let newer = listed(kernels::LOCK);
    for kernel in NewerKernel::ALL {
        assert!(newer.iter().any(|package| package.name.ends_with(kernel.release)), "{kernel:?}");
    }
    assert!(newer.iter().all(|package| {
        NewerKernel::ALL.iter().any(|kernel| package.name.ends_with(kernel.release))
    }));
}

#[test]
fn another_lock_has_another_directory() {
    let [guests, qemu] = [LOCK, qemu::LOCK].map(|lock| directory(Path::new("cache"), lock));
    assert!(guests != qemu && guests.starts_with("cache"));
}

#[test]
fn unpacked_packages_need_no_mirror() {
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(directory(cache.path(), LOCK)).unwrap();
    assert_eq!(unpacked(cache.path(), LOCK).unwrap(), directory(cache.path(), LOCK));
}

/// Returns a package file with these files.
fn deb(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    tar.append_link(&mut link, "usr/bin/link", "program").unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).unwrap();
    xz.write_all(&tar.into_inner().unwrap()).unwrap();
    let data = xz.finish().unwrap();
    let mut ar = ar::Builder::new(Vec::new());
    for (name, content) in [("debian-binary", &b"2.0\n"[..]), ("data.tar.xz", &data)] {
        let header = ar::Header::new(name.into(), content.len() as u64);
        ar.append(&header, content).unwrap();
    }
    ar.into_inner().unwrap()
}

#[test]
fn a_package_is_unpacked_without_unneeded_modules() {
    let directory = tempfile::tempdir().unwrap();
    let (file, into) = (directory.path().join("x.deb"), directory.path().join("files"));
    fs::create_dir(&into).unwrap();
    let needed = "./lib/modules/6.1/kernel/drivers/block/virtio_blk.ko";
    let unneeded = "./lib/modules/6.1/kernel/drivers/block/loop.ko";
    let [needed_xz, unneeded_xz] = [needed, unneeded].map(|name| format!("{name}.xz"));
    let files: [(&str, &[u8]); 5] = [
        ("./usr/bin/program", b"text"),
        (needed, b"module"),
        (unneeded, b"module"),
        (&needed_xz, b"module"),
        (&unneeded_xz, b"module"),
    ];
    fs::write(&file, deb(&files)).unwrap();
    unpack(&file, &into).unwrap();
    assert_eq!(fs::read(into.join("usr/bin/link")).unwrap(), b"text");
    assert!(into.join(needed).exists() && !into.join(unneeded).exists());
    assert!(into.join(needed_xz).exists() && !into.join(unneeded_xz).exists());
    fs::write(&file, b"!<arch>\n").unwrap();
    let error = unpack(&file, &into).unwrap_err().text;
    assert!(error.ends_with("x.deb: this Debian package has no data.tar.xz"), "{error}");
}

#[test]
fn files_are_found_where_debian_has_them() {
    let unpacked = tempfile::tempdir().unwrap();
    for path in ["usr/bin/program", "lib/aarch64-linux-gnu/libc.so.6"] {
        let file = unpacked.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, path).unwrap();
    }
    assert_eq!(read(unpacked.path(), "bin/program").unwrap(), b"usr/bin/program");
    assert_eq!(read(unpacked.path(), "lib/libc.so.6").unwrap(), b"lib/aarch64-linux-gnu/libc.so.6");
    let error = read(unpacked.path(), "bin/missing").unwrap_err().text;
    assert!(error.contains("bin/missing: No such file") && error.contains("WEIR_CACHE"), "{error}");
}
