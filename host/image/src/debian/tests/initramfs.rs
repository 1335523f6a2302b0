use super::super::initramfs::*;
use std::io::Read as _;

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

const RELEASE: &str = "6.1.0-1-rt-arm64";

/// Returns the archive of the kind with this name. Each file has its name as content.
fn named(name: &str, vsock_tool: Option<Vec<u8>>) -> Vec<u8> {
    let kind = Initramfs::ALL.into_iter().find(|kind| kind.name == name).unwrap();
    archive(kind, RELEASE, vsock_tool, |name| Ok(name.into())).unwrap()
}

#[test]
fn a_member_has_the_documented_header() {
    let bytes = named("busybox", None);
    let position = bytes.windows(11).position(|part| part == b"dev/console").unwrap();
    // Mode, user, group, links, time, size, device (2), node (2), length of the name, sum.
    let header = "00002180\
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
                  00000000";
    assert!(bytes[..position].ends_with(header.as_bytes()));
    assert!(bytes.starts_with(b"070701"));
}

#[test]
fn the_initrd_holds_what_its_first_process_calls() {
    let rt = members(&named("debian-rt", None));
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
    let small = members(&named("busybox", None));
    assert!(small.iter().all(|(name, ..)| name != "bin/cyclictest" && !name.contains(".so")));
    assert!(small.len() + CYCLICTEST.len() == rt.len());
    let virtio = members(&named("debian-virtio", None));
    let modules: Vec<_> =
        virtio.iter().filter_map(|(name, ..)| name.strip_prefix("lib/modules/")).collect();
    let expected = ["", "/modules.dep", "/modules.order", "/virtio_blk.ko", "/virtio_pci.ko"];
    let expected = expected.map(|name| format!("{RELEASE}{name}"));
    assert!(expected.iter().all(|name| modules.contains(&name.as_str())), "{modules:?}");
    let content = |archive: &[(String, u32, Vec<u8>)], name: &str| {
        let path = format!("lib/modules/{RELEASE}/{name}");
        let found = archive.iter().find(|member| member.0 == path).unwrap();
        String::from_utf8(found.2.clone()).unwrap()
    };
    // Each behind those that it needs.
    let order = "virtio_pci_modern_dev\nvirtio_pci_legacy_dev\nvirtio_pci\nvirtio_blk\n";
    assert_eq!(content(&virtio, "modules.order"), order);
    let needs = "virtio_pci.ko: virtio_pci_modern_dev.ko virtio_pci_legacy_dev.ko\n";
    assert!(content(&virtio, "modules.dep").contains(needs));
    let net = members(&named("debian-net", None));
    assert_eq!(
        net.len(),
        rt.len() + 4 + MODULES[2].len(),
        "modules, their two directories and two lists, in addition to cyclictest"
    );
    let talk = Some(b"the program".to_vec());
    let vsock = members(&named("debian-vsock", talk));
    let find = |name: &str| vsock.iter().find(|member| member.0 == name);
    assert_eq!(find("bin/weir-vsock-tool").unwrap().2, b"the program");
    assert!(find(&format!("lib/modules/{RELEASE}/vmw_vsock_virtio_transport.ko")).is_some());
    for (user, needed) in DEPENDENCIES {
        for list in MODULES.iter().filter(|list| list.iter().any(|name| stem(name) == user)) {
            let place = |name| list.iter().position(|module| stem(module) == name);
            assert!(place(needed) < place(user) && place(needed).is_some(), "{user}, {needed}");
        }
    }
}

#[test]
fn the_archive_does_not_depend_on_time() {
    assert_eq!(named("debian-rt", None), named("debian-rt", None));
}
