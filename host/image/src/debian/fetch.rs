//! Downloads from a mirror of Debian, by apt's program for single files: it knows the machine's
//! proxies, certificates and passwords, and every kind of URI that can be one of apt's sources.
//!
//! The SHA-256 of a package file comes from the lock, or from the mirror's index. Debian signs the
//! file `Release`, which has the SHA-256 of the index.

use super::{
    at,
    lock::{Locking, Package, choose, verify},
    read_text,
};
use crate::failure::{Context as _, Failure, Result};
use indicatif::ProgressBar;
use lzma_rust2::XzReader;
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The Debian release that every guest is made of.
const RELEASE: &str = "bookworm";

/// Names of releases in the sources of a machine that runs Debian.
const DEBIAN_RELEASES: [&str; 7] =
    [RELEASE, "trixie", "forky", "oldstable", "stable", "testing", "sid"];

/// The index of the release's packages.
const INDEX: &str = "main/binary-arm64/Packages.xz";

/// Debian's public keys, from the package `debian-archive-keyring` (Debian and Ubuntu have it).
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt's program for single files.
const HELPER: &str = "/usr/lib/apt/apt-helper";

/// Its first arguments: it stays the same user, so that it can write, and prints how far it is.
const OPTIONS: [&str; 6] =
    ["-q", "-o", "APT::Sandbox::User=", "-o", "APT::Status-Fd=1", "download-file"];

/// A mirror of Debian.
#[derive(Debug)]
pub struct Mirror {
    /// The archive's URI, without a slash at its end.
    pub uri: String,
    /// Checks the file `Release` by its signature.
    pub authenticate: fn(release: &Path, signature: &Path) -> Result,
}

impl Mirror {
    /// Returns `WEIR_DEBIAN_MIRROR`, or the machine's own mirror on Debian, or the default of
    /// `debootstrap`.
    pub fn find() -> Result<Self> {
        let uri = std::env::var("WEIR_DEBIAN_MIRROR").ok().filter(|uri| !uri.is_empty());
        let uri = uri.or_else(|| of_machine(&sources()?));
        let uri = uri.or_else(|| {
            ["/usr/share/debootstrap/scripts/sid", "/usr/sbin/debootstrap"]
                .iter()
                .filter_map(|script| fs::read_to_string(script).ok())
                .find_map(|script| default_mirror(&script))
        });
        let uri = uri.ok_or_else(|| {
            Failure::environment(
                "no mirror of Debian found in apt's sources or in debootstrap: \
                 name one by WEIR_DEBIAN_MIRROR=URI, or run `./weir setup`",
            )
        })?;
        Ok(Self { uri: uri.trim_end_matches('/').to_owned(), authenticate: check_signature })
    }

    /// Downloads files, each to the second path of its pair.
    fn download(&self, files: &[(String, PathBuf)], progress: &ProgressBar) -> Result {
        let mut command = Command::new(HELPER);
        command.args(OPTIONS).env("LC_ALL", "C");
        for (path, file) in files {
            command.arg(format!("{}/{path}", self.uri)).arg(file);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = || format!("start {HELPER}; `./weir setup` installs what is missing");
        let mut child = command.spawn().context(start)?;
        let stdout = child.stdout.take();
        for line in stdout.into_iter().flat_map(|stream| BufReader::new(stream).lines()) {
            match line.ok().as_deref().and_then(percent) {
                Some(percent) => progress.set_position(percent),
                None => progress.tick(),
            }
        }
        let output = child.wait_with_output().context(start)?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::environment(format!(
            "the download from {} failed:\n{}\nDebian's packages are fetched once: \
             check the network, or name another mirror by WEIR_DEBIAN_MIRROR=URI",
            self.uri,
            String::from_utf8_lossy(&output.stderr).trim_end()
        )))
    }

    /// Downloads the packages that are not in `directory`.
    fn download_packages(
        &self,
        packages: &[Package],
        directory: &Path,
        progress: &ProgressBar,
    ) -> Result {
        progress.set_message("Debian's packages");
        let missing = packages.iter().filter(|package| check_sum(package, directory).is_err());
        let files: Vec<_> =
            missing.map(|package| (package.path.clone(), file_of(package, directory))).collect();
        if files.is_empty() { Ok(()) } else { self.download(&files, progress) }
    }

    /// Downloads the index of all packages and checks Debian's signature.
    fn index(&self, directory: &Path, progress: &ProgressBar) -> Result<String> {
        progress.set_message("Debian's package lists");
        let remote = |name: &str| format!("dists/{RELEASE}/{name}");
        let [release, signature, index] =
            ["Release", "Release.gpg", "Packages.xz"].map(|name| directory.join(name));
        let signed = [("Release", &release), ("Release.gpg", &signature)];
        self.download(&signed.map(|(name, file)| (remote(name), file.clone())), progress)?;
        (self.authenticate)(&release, &signature)?;
        let text = read_text(&release)?;
        let expected = sum_of_index(&text).ok_or_else(|| {
            Failure::environment(format!("the mirror {} has no {RELEASE} for arm64", self.uri))
        })?;
        self.download(&[(remote(INDEX), index.clone())], progress)?;
        if sha256(&index)? != expected {
            return Err(Failure::environment(format!(
                "{}/{}: its SHA-256 is not the one that Debian signed; try again later, the mirror \
                 may be in an update",
                self.uri,
                remote(INDEX)
            )));
        }
        let mut text = String::new();
        let file = fs::File::open(&index).map_err(at(&index))?;
        XzReader::new(file, true).read_to_string(&mut text).map_err(at(&index))?;
        Ok(text)
    }

    /// Downloads the packages of a lock into `directory` and checks their SHA-256.
    pub fn fetch_locked(
        &self,
        lock: &[Package],
        directory: &Path,
        progress: &ProgressBar,
    ) -> Result {
        self.download_packages(lock, directory, progress)?;
        lock.iter().try_for_each(|package| check_sum(package, directory))
    }

    /// Downloads a package for each line of the lock into `directory` and checks their SHA-256.
    pub fn fetch(
        &self,
        lock: &[Package],
        locking: Locking,
        directory: &Path,
        progress: &ProgressBar,
    ) -> Result<Vec<Package>> {
        let mut packages = lock.to_vec();
        if locking == Locking::Newest || self.download_packages(lock, directory, progress).is_err()
        {
            // The mirror does not have a locked package, or is out of reach: the index decides.
            let index = self.index(directory, progress)?;
            let (chosen, others) = choose(lock, &index, locking)?;
            if !others.is_empty() {
                progress.suspend(|| warn(&others));
            }
            packages = chosen;
            self.download_packages(&packages, directory, progress)?;
        }
        packages.iter().try_for_each(|package| check_sum(package, directory))?;
        Ok(packages)
    }
}

/// Prints which packages are not the locked ones.
fn warn(others: &[String]) {
    // A warning that cannot be printed stops nothing.
    let _ = writeln!(
        crate::screen::stderr(),
        "weir: warning: the mirror does not have the locked versions of these Debian packages; \
         others are used, and each run records them:\n  {}\n\
         weir: WEIR_DEBIAN_MIRROR=URI names a mirror that has them, and WEIR_DEBIAN_LOCK=strict \
         refuses others",
        others.join("\n  ")
    );
}

/// Returns the file of a downloaded package.
pub fn file_of(package: &Package, directory: &Path) -> PathBuf {
    directory.join(format!("{}.deb", package.name))
}

fn check_sum(package: &Package, directory: &Path) -> Result {
    verify(package, &sha256(&file_of(package, directory))?)
}

fn sha256(file: &Path) -> Result<String> {
    fs::read(file).map(|bytes| sum(&bytes)).map_err(at(file))
}

/// Returns the SHA-256 of some bytes, in hexadecimal.
pub fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Returns the percentage in a line of apt's status stream: `dlstatus:FILES:PERCENT:TEXT`.
pub fn percent(line: &str) -> Option<u64> {
    let mut fields = line.strip_prefix("dlstatus:")?.split(':');
    fields.nth(1)?.split('.').next()?.parse().ok()
}

/// Returns the SHA-256 of [`INDEX`] in a file `Release`: a line of sum, size and name, next to
/// lines of other check sums. None if the file is of another release.
pub fn sum_of_index(release: &str) -> Option<&str> {
    let codename = release.lines().find_map(|line| line.strip_prefix("Codename: "));
    codename.filter(|name| *name == RELEASE)?;
    release.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [sum, _, INDEX] if sum.len() == 64 => Some(sum),
        _ => None,
    })
}

/// Checks Debian's signature. The file has one of each current key, and the machine's keyring can
/// be older than the newest key: one good signature suffices, and none may be bad.
fn check_signature(release: &Path, signature: &Path) -> Result {
    let mut gpgv = Command::new("gpgv");
    gpgv.args(["--status-fd", "1", "--keyring", KEYRING]).arg(signature).arg(release);
    let output = gpgv.stdin(Stdio::null()).output();
    let output = output.context(|| "start gpgv; `./weir setup` installs what is missing")?;
    if is_signed(&String::from_utf8_lossy(&output.stdout)) {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "the mirror's index is not signed by Debian; `./weir setup` installs Debian's keys:\n{}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}

/// Returns whether gpgv's status stream has a good signature and no bad one.
pub fn is_signed(status: &str) -> bool {
    let has = |word| status.lines().any(|line| line.split(' ').nth(1) == Some(word));
    has("GOODSIG") && !has("BADSIG")
}

/// Returns apt's sources, a line `URI RELEASE COMPONENT` each.
fn sources() -> Option<String> {
    let mut command = Command::new("apt-get");
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    command.args(["indextargets", "--no-release-info", "--format", format]);
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

/// Returns the mirror of a Debian machine. Other vendors use the names of Debian's releases too: a
/// URI that ends like Debian's own is taken before others.
pub fn of_machine(sources: &str) -> Option<String> {
    let uris = sources.lines().filter_map(|line| {
        let (uri, release) = line.strip_suffix(" main")?.split_once(' ')?;
        if DEBIAN_RELEASES.contains(&release) { direct(uri.trim_end_matches('/')) } else { None }
    });
    uris.min_by_key(|uri| !uri.ends_with("/debian"))
}

/// Returns the URI that apt's program for single files takes: the first of a list of mirrors. None
/// for a CD.
fn direct(uri: &str) -> Option<String> {
    let Some(list) = uri.strip_prefix("mirror+file:") else {
        return (!uri.starts_with("cdrom:") && !uri.starts_with("mirror:")).then(|| uri.to_owned());
    };
    let list = fs::read_to_string(list).ok()?;
    let uri = list.lines().find(|line| line.contains(':') && !line.starts_with('#'))?;
    Some(uri.split_whitespace().next()?.trim_end_matches('/').to_owned())
}

/// Returns the mirror that a script of debootstrap uses by default.
pub fn default_mirror(script: &str) -> Option<String> {
    script.lines().find_map(|line| {
        let line = line.trim();
        let uri =
            line.strip_prefix("default_mirror ").or_else(|| line.strip_prefix("DEF_MIRROR="))?;
        let uri = uri.trim().trim_matches('"');
        uri.starts_with("http").then(|| uri.to_owned())
    })
}
