//! Downloads from a directory, which apt's program reads by URIs of files.

use super::{
    super::{fetch::*, lock::*},
    package, paragraph,
};
use crate::failure::{Failure, Result};
use indicatif::ProgressBar;
use std::{fs, io::Write as _, path::Path};
use tempfile::TempDir;

const NEWEST: &str = "linux-image-6.1.0-9-rt-arm64";

/// Returns a package with its version as content of its file.
fn consistent(name: &str, version: &str) -> Package {
    package(name, version, &sum(version.as_bytes()))
}

fn locked() -> Vec<Package> {
    vec![consistent("libc6", "2.36-8"), consistent("linux-image-6.1.0-8-rt-arm64", "6.1.8")]
}

fn newest() -> Vec<Package> {
    vec![consistent("libc6", "2.36-9"), consistent(NEWEST, "6.1.9")]
}

fn write(root: &Path, path: &str, content: &[u8]) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// Returns the folder of a mirror that has these packages.
fn mirror_of(packages: &[Package]) -> TempDir {
    let mirror = tempfile::tempdir().unwrap();
    for package in packages {
        write(mirror.path(), &package.path, package.version.as_bytes());
    }
    let text: String = packages.iter().map(paragraph).collect();
    let text = format!("{text}Package: linux-image-rt-arm64\nDepends: {NEWEST} (= 6.1.9)\n\n");
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).unwrap();
    xz.write_all(text.as_bytes()).unwrap();
    let index = xz.finish().unwrap();
    let folder = "dists/bookworm";
    write(mirror.path(), &format!("{folder}/main/binary-arm64/Packages.xz"), &index);
    let release = format!(
        "Codename: bookworm\nMD5Sum:\n 00 1 main/binary-arm64/Packages.xz\n\
         SHA256:\n {} 1 main/binary-arm64/Packages.xz\n",
        sum(&index)
    );
    write(mirror.path(), &format!("{folder}/Release"), release.as_bytes());
    write(mirror.path(), &format!("{folder}/Release.gpg"), b"signature");
    mirror
}

fn authenticate(_release: &Path, signature: &Path) -> Result {
    let is_good = fs::read(signature).unwrap() == b"signature";
    if is_good { Ok(()) } else { Err(Failure::environment("no signature")) }
}

fn fetch(mirror: &TempDir, locking: Locking) -> Result<Vec<Package>> {
    let directory = tempfile::tempdir().unwrap();
    let mirror = Mirror { uri: format!("file:{}", mirror.path().display()), authenticate };
    let packages = mirror.fetch(&locked(), locking, directory.path(), &ProgressBar::hidden())?;
    for package in &packages {
        let content = fs::read_to_string(file_of(package, directory.path())).unwrap();
        assert_eq!(content, package.version);
    }
    Ok(packages)
}

#[test]
fn locked_packages_need_no_index() {
    let mirror = mirror_of(&locked());
    fs::remove_dir_all(mirror.path().join("dists")).unwrap();
    for locking in [Locking::Prefer, Locking::Strict] {
        assert_eq!(fetch(&mirror, locking).unwrap(), locked());
    }
}

#[test]
fn a_locked_package_with_another_check_sum_is_refused() {
    let mirror = mirror_of(&locked());
    write(mirror.path(), &locked()[0].path, b"malware");
    let error = fetch(&mirror, Locking::Prefer).unwrap_err().text;
    assert!(error.contains("libc6 2.36-8 has another SHA-256") && error.contains(&sum(b"malware")));
}

#[test]
fn newest_packages_replace_locked_ones_that_are_gone() {
    assert_eq!(fetch(&mirror_of(&newest()), Locking::Prefer).unwrap(), newest());
    assert_eq!(fetch(&mirror_of(&newest()), Locking::Newest).unwrap(), newest());
    let partly = [locked()[0].clone(), newest()[1].clone()];
    assert_eq!(fetch(&mirror_of(&partly), Locking::Prefer).unwrap(), partly);
}

#[test]
fn strict_refuses_other_packages() {
    let error = fetch(&mirror_of(&newest()), Locking::Strict).unwrap_err().text;
    assert!(error.contains("libc6 2.36-9 instead of libc6 2.36-8"), "{error}");
}

#[test]
fn an_index_needs_its_signature_and_check_sum() {
    let mirror = mirror_of(&newest());
    write(mirror.path(), "dists/bookworm/Release.gpg", b"other");
    assert_eq!(fetch(&mirror, Locking::Prefer).unwrap_err().text, "no signature");
    write(mirror.path(), "dists/bookworm/Release.gpg", b"signature");
    write(mirror.path(), "dists/bookworm/main/binary-arm64/Packages.xz", b"other");
    let error = fetch(&mirror, Locking::Prefer).unwrap_err().text;
    assert!(error.contains("its SHA-256 is not the one that Debian signed"), "{error}");
    write(mirror.path(), "dists/bookworm/Release", b"Codename: trixie\n");
    let error = fetch(&mirror, Locking::Prefer).unwrap_err().text;
    assert!(error.contains("has no bookworm for arm64"), "{error}");
}

#[test]
fn a_mirror_out_of_reach_is_named_with_a_remedy() {
    let error = fetch(&tempfile::tempdir().unwrap(), Locking::Prefer).unwrap_err().text;
    assert!(
        error.contains("Failed to fetch file:") && error.contains("check the network"),
        "{error}"
    );
}

#[test]
fn one_good_signature_suffices_without_a_bad_one() {
    let good = "[GNUPG:] GOODSIG 6ED0 Debian\n";
    let unknown = "[GNUPG:] ERRSIG 78DB 1 8 00 1 9 -\n[GNUPG:] NO_PUBKEY 78DB\n";
    let bad = "[GNUPG:] BADSIG F8D2 Debian\n";
    assert!(is_signed(good) && is_signed(&format!("{unknown}{good}")));
    assert!(!is_signed("") && !is_signed(unknown) && !is_signed(&format!("{good}{bad}")));
}

#[test]
fn apt_reports_the_progress() {
    assert_eq!(percent("dlstatus:3:45.67:Retrieving file 3 of 7"), Some(45));
    assert_eq!(percent("Get:1 archive"), None);
    assert_eq!(percent("dlstatus:3"), None);
}

#[test]
fn a_debian_machine_has_a_mirror() {
    let sources = "http://vendor.example/linux/ bookworm main\n\
                   http://mirror.example/debian/ bookworm contrib\n\
                   http://mirror.example/debian/ bookworm-updates main\n\
                   http://mirror.example/debian/ bookworm main\n\
                   http://mirror.example/debian-security/ bookworm-security main\n\
                   http://vendor.example/tools/ stable main\n";
    assert_eq!(of_machine(sources).as_deref(), Some("http://mirror.example/debian"));
    assert_eq!(of_machine("http://mirror.example/ubuntu/ noble main\n"), None);
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "list", b"# Mirrors\nhttps://mirror.example/debian/ priority:1\n");
    let list = directory.path().join("list");
    let sources = format!(
        "cdrom:[Debian]/debian/ trixie main\nmirror+file:{}/ trixie main\n",
        list.display()
    );
    assert_eq!(of_machine(&sources).as_deref(), Some("https://mirror.example/debian"));
}

#[test]
fn debootstrap_has_a_mirror() {
    let functions = "default_mirror () {\n\tDEF_MIRROR=\"$1\"\n}\n";
    assert_eq!(default_mirror(functions), None);
    let script = "mirror_style release\n    default_mirror http://mirror.example/debian\n";
    assert_eq!(default_mirror(script).as_deref(), Some("http://mirror.example/debian"));
    let program = "DEF_MIRROR=\"http://mirror.example/debian\"\n";
    assert_eq!(default_mirror(program).as_deref(), Some("http://mirror.example/debian"));
}
