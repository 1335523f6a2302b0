use super::{
    super::{
        lock::{LOCK, listed},
        packages,
        store::*,
    },
    package,
};
use std::{fs, io::Write as _, path::Path};

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
    let files: [(&str, &[u8]); 3] =
        [("./usr/bin/program", b"text"), (needed, b"module"), (unneeded, b"module")];
    fs::write(&file, deb(&files)).unwrap();
    unpack(&file, &into).unwrap();
    assert_eq!(fs::read(into.join("usr/bin/link")).unwrap(), b"text");
    assert!(into.join(needed).exists() && !into.join(unneeded).exists());
    fs::write(&file, b"!<arch>\n").unwrap();
    let error = unpack(&file, &into).unwrap_err().text;
    assert_eq!(error, "Debian's package x has no data.tar.xz");
}

#[test]
fn a_missing_file_of_a_package_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = [package("linux-image-6.1", "6.1", "")];
    let (files, store) = (directory.path().join("files"), directory.path().join("store"));
    fs::create_dir_all(files.join("boot")).unwrap();
    let mut image = [0; 64];
    image[56..60].copy_from_slice(b"ARM\x64");
    fs::write(files.join("boot/vmlinuz-6.1"), image).unwrap();
    let error = place_all(&kernel, &files, &store).unwrap_err().text;
    assert!(error.starts_with("Debian's packages do not have virtio_pci_modern_dev.ko"), "{error}");
    fs::write(files.join("boot/vmlinuz-6.1"), [0; 64]).unwrap();
    let error = place_all(&kernel, &files, &store).unwrap_err().text;
    assert!(error.starts_with("Debian's packages do not have an uncompressed"), "{error}");
}

#[test]
fn a_store_is_current_only_with_its_whole_manifest() {
    let cache = tempfile::tempdir().unwrap();
    let store = path(cache.path());
    assert!(!is_current(&store));
    fs::create_dir(&store).unwrap();
    fs::write(store.join(WANTED), LOCK).unwrap();
    fs::write(store.join(MANIFEST), "# weir: Debian packages, store 0\n").unwrap();
    assert!(!is_current(&store));
    // Of other packages, but made under this lock.
    let libc6 = package("libc6", "2.36-9", "ab");
    fs::write(store.join(MANIFEST), manifest(std::slice::from_ref(&libc6))).unwrap();
    assert!(is_current(&store) && !has_locked_packages(&store));
    assert_eq!(packages(cache.path()).unwrap(), [libc6]);
    fs::write(store.join(MANIFEST), manifest(&listed(LOCK))).unwrap();
    assert!(is_current(&store) && has_locked_packages(&store));
    fs::write(store.join(WANTED), "another lock").unwrap();
    assert!(!is_current(&store));
}

#[test]
fn only_abandoned_scratch_directories_are_removed() {
    let cache = tempfile::tempdir().unwrap();
    let own = format!("{}x", scratch_prefix());
    // Above the kernel's largest process number.
    let abandoned = format!("{SCRATCH}4194305-x");
    for name in [&own, &abandoned, "debian"] {
        fs::create_dir(cache.path().join(name)).unwrap();
    }
    remove_abandoned(cache.path());
    let exists = |name: &str| Path::new(cache.path()).join(name).exists();
    assert!(exists(&own) && exists("debian") && !exists(&abandoned));
}
