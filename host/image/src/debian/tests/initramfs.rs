use super::super::initramfs::*;
use std::{fs, io::Read as _};

/// Returns the members of an archive: name, mode, content.
fn members(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    loop {
        let mut reader = cpio::newc::Reader::new(bytes).unwrap();
        let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
        if reader.entry().is_trailer() {
            return found;
        }
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        found.push((name, mode, content));
        bytes = reader.finish().unwrap();
    }
}

#[test]
fn a_member_has_the_documented_header() {
    let files = [("dev/console".to_owned(), File::Device { major: 5, minor: 1 })];
    let bytes = cpio(&files.into()).unwrap();
    // Inode, mode, user, group, links, time, size, device (2), node (2), length of the name, sum.
    let header = "070701\
                  00000001\
                  00002180\
                  00000000\
                  00000000\
                  00000001\
                  00000000\
                  00000000\
                  00000000\
                  00000000\
                  00000005\
                  00000001\
                  0000000c\
                  00000000dev/console\0\0\0";
    assert!(bytes.starts_with(header.as_bytes()));
}

const VERSION: &str = "6.1.0-1-rt-arm64";

/// A directory with every file that [`archive`] reads.
fn fake_store() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    for dir in ["bin", "lib"] {
        fs::create_dir(store.path().join(dir)).unwrap();
    }
    for name in CYCLICTEST.into_iter().chain(["bin/busybox"]) {
        fs::write(store.path().join(name), name).unwrap();
    }
    fs::create_dir(store.path().join("linux")).unwrap();
    fs::write(store.path().join("linux/version"), VERSION).unwrap();
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
    assert_eq!(find("lib/libc.so.6").2, b"lib/libc.so.6");
    assert_eq!(find("bin/awk").1, 0o120_777);
    assert_eq!(find("bin/awk").2, b"busybox");
    let small = members(&archive(store.path(), Initramfs::Busybox, None).unwrap());
    assert!(small.iter().all(|(name, ..)| name != "bin/cyclictest" && !name.contains(".so")));
    assert!(small.len() + CYCLICTEST.len() == rt.len());
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
        "modules, their two directories and two lists, in addition to cyclictest"
    );
    let talk = Some(b"the program".to_vec());
    let vsock = members(&archive(store.path(), Initramfs::Vsock, talk).unwrap());
    let find = |name: &str| vsock.iter().find(|member| member.0 == name);
    assert_eq!(find("bin/weir-vsock-tool").unwrap().2, b"the program");
    assert!(find(&format!("lib/modules/{VERSION}/vmw_vsock_virtio_transport.ko")).is_some());
    for (user, needed) in DEPENDENCIES {
        let lists = [&MODULES[..], &SOCKET_MODULES, &NETWORK_MODULES];
        for list in lists.into_iter().filter(|list| list.iter().any(|name| stem(name) == user)) {
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
