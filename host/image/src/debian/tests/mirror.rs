//! Downloads from a directory, which apt's program reads by URIs of files.

use super::{
    super::{lock::*, mirror::*},
    package,
};
use crate::failure::Result;
use std::{fs, path::Path};

fn write(root: &Path, path: &str, content: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// Downloads [`package`] from a mirror with these files.
fn download_from(files: &[(&str, &str)]) -> Result<String> {
    let [mirror, directory] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (path, content) in files {
        write(mirror.path(), path, content);
    }
    let uri = format!("file:{}", mirror.path().display());
    download(&uri, &[package("libc6")], directory.path())?;
    Ok(fs::read_to_string(file_of(&package("libc6"), directory.path())).unwrap())
}

#[test]
fn a_package_is_downloaded() {
    assert_eq!(download_from(&[(package("").path, "content")]).unwrap(), "content");
}

#[test]
fn a_package_with_another_check_sum_is_refused() {
    let error = download_from(&[(package("").path, "malware")]).unwrap_err().text;
    assert!(error.contains("Hash Sum mismatch") && error.contains(package("").sha256), "{error}");
}

#[test]
fn a_missing_package_is_named_with_a_remedy() {
    let error = download_from(&[]).unwrap_err().text;
    assert!(error.contains("Failed to fetch file:") && error.contains(package("").path), "{error}");
    assert!(error.contains("snapshot") && error.contains("WEIR_DEBIAN_MIRROR=URI"), "{error}");
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
    write(directory.path(), "list", "# Mirrors\nhttps://mirror.example/debian/ priority:1\n");
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
