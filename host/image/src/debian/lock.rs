//! The lock file, and the choice between its packages and those that a mirror offers.
//!
//! The lock makes a guest the same on every host. A locked version with another SHA-256 is refused.
//! If a mirror does not have the locked version any more, its newest version is taken, with a
//! warning.

use crate::failure::{Failure, Result};
use std::fmt;

/// The packages that guests are made of.
pub const LOCK: &str = include_str!("packages.lock");

/// The package that always depends on the current real-time kernel.
const KERNEL: &str = "linux-image-rt-arm64";

/// Prefix of the kernel's package; the kernel's release follows.
pub const KERNEL_PREFIX: &str = "linux-image-";

/// One Debian package: a line of the lock, and of the list in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Name of the binary package.
    pub name: String,
    /// Debian's version.
    pub version: String,
    /// SHA-256 of the package file, as signed by Debian.
    pub sha256: String,
    /// Path of the package file in a mirror.
    pub path: String,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.name, self.version, self.sha256, self.path)
    }
}

/// How strictly the lock is kept: `WEIR_DEBIAN_LOCK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// Not set: takes the newest version, with a warning, if the mirror does not have the locked
    /// one.
    Prefer,
    /// `strict`: refuses all but the locked versions.
    Strict,
    /// `newest`: takes the newest versions, to make another lock of.
    Newest,
}

impl Locking {
    /// Reads the environment.
    pub fn find() -> Result<Self> {
        match std::env::var("WEIR_DEBIAN_LOCK").as_deref() {
            Err(_) | Ok("") => Ok(Self::Prefer),
            Ok("strict") => Ok(Self::Strict),
            Ok("newest") => Ok(Self::Newest),
            Ok(other) => Err(Failure::environment(format!(
                "WEIR_DEBIAN_LOCK is {other:?}; it can be strict or newest"
            ))),
        }
    }
}

/// Returns whether `packages.lock` names this package.
#[must_use]
pub fn is_locked(package: &Package) -> bool {
    listed(LOCK).contains(package)
}

/// Returns the packages of a lock; a line that begins with `#` is a comment.
pub fn listed(text: &str) -> Vec<Package> {
    let package = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next();
        Some(Package { name: next()?, version: next()?, sha256: next()?, path: next()? })
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(package).collect()
}

/// Returns a package of a mirror's index, the file `Packages`: paragraphs of lines `FIELD: VALUE`.
fn offered(index: &str, name: &str) -> Option<Package> {
    let paragraph = paragraph(index, name)?;
    let field = |name| field(paragraph, name).map(str::to_owned);
    Some(Package {
        name: name.to_owned(),
        version: field("Version")?,
        sha256: field("SHA256")?,
        path: field("Filename")?,
    })
}

fn paragraph<'a>(index: &'a str, package: &str) -> Option<&'a str> {
    index.split("\n\n").find(|paragraph| field(paragraph, "Package") == Some(package))
}

fn field<'a>(paragraph: &'a str, name: &str) -> Option<&'a str> {
    paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Chooses a package of the index for each line of the lock. Returns them, and in words those that
/// are not the locked ones.
pub fn choose(
    lock: &[Package],
    index: &str,
    locking: Locking,
) -> Result<(Vec<Package>, Vec<String>)> {
    // The newest kernel has its own name.
    let kernel = paragraph(index, KERNEL).and_then(|kernel| field(kernel, "Depends"));
    let kernel = kernel.and_then(|depends| depends.split(' ').next());
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for wanted in lock {
        let is_kernel = wanted.name.starts_with(KERNEL_PREFIX);
        let newest = if is_kernel { kernel } else { None }.unwrap_or(&wanted.name);
        let is_locked = |package: &Package| package.version == wanted.version;
        let package = offered(index, &wanted.name)
            .filter(|package| is_locked(package) && locking != Locking::Newest)
            .or_else(|| offered(index, newest))
            .ok_or_else(|| {
                Failure::environment(format!("the mirror does not have Debian's {newest}"))
            })?;
        if package.name == wanted.name && is_locked(&package) {
            verify(wanted, &package.sha256)?;
        } else if locking != Locking::Newest {
            let Package { name, version, .. } = &package;
            others.push(format!("{name} {version} instead of {} {}", wanted.name, wanted.version));
        }
        chosen.push(package);
    }
    if locking == Locking::Strict && !others.is_empty() {
        return Err(Failure::environment(format!(
            "the mirror does not have the locked versions of Debian's packages: {}; name a mirror \
             that has them by WEIR_DEBIAN_MIRROR=URI, or unset WEIR_DEBIAN_LOCK",
            others.join(", ")
        )));
    }
    Ok((chosen, others))
}

/// Refuses a package file with another SHA-256.
pub fn verify(package: &Package, sha256: &str) -> Result {
    let Package { name, version, sha256: expected, .. } = package;
    if expected == sha256 {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "Debian's package {name} {version} has another SHA-256 than expected: {sha256} instead of \
         {expected}"
    )))
}
