mod initramfs;
mod lock;
mod mirror;
mod store;

use super::lock::Package;

fn package(name: &str, version: &str, sha256: &str) -> Package {
    let path = format!("pool/{name}_{version}.deb");
    Package { name: name.into(), version: version.into(), sha256: sha256.into(), path }
}

/// Returns a paragraph of a mirror's index.
fn paragraph(package: &Package) -> String {
    let Package { name, version, sha256, path } = package;
    format!("Package: {name}\nVersion: {version}\nFilename: {path}\nSHA256: {sha256}\n\n")
}
