//! Downloads from a mirror of Debian, by apt's program for single files: it knows the machine's
//! proxies, certificates and passwords and every kind of URI that can be one of apt's sources,
//! checks the SHA-256, tries again, goes on with partial files, and prints its progress.

use super::lock::{Package, file_of};
use crate::failure::{Context as _, Failure, Result};
use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, absolute},
    process::{Child, Command, Stdio},
};

/// Names of releases in the sources of a machine that runs Debian.
const DEBIAN_RELEASES: [&str; 7] =
    ["bookworm", "trixie", "forky", "oldstable", "stable", "testing", "sid"];

/// apt's program for single files.
const HELPER: &str = "/usr/lib/apt/apt-helper";

/// Returns the URI of a mirror, without a slash at its end: `WEIR_DEBIAN_MIRROR`, or the machine's
/// own mirror on Debian, or the default of `debootstrap`.
pub fn find() -> Result<String> {
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
    Ok(uri.trim_end_matches('/').to_owned())
}

/// Downloads packages from a mirror into a directory. Refuses those with another SHA-256.
pub fn download(mirror: &str, packages: &[Package], directory: &Path) -> Result {
    let mut command = Command::new(HELPER);
    // apt prints its progress on a terminal only.
    command.arg(if io::stderr().is_terminal() { "-q0" } else { "-qq" });
    // It stays the same user, so that it can write.
    command.args(["-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=5", "download-file"]);
    let start = || format!("start {HELPER}; `./weir setup` installs what is missing");
    for package in packages {
        command.arg(format!("{mirror}/{}", package.path));
        command.arg(absolute(file_of(package, directory)).context(start)?);
        command.arg(format!("SHA256:{}", package.sha256));
    }
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(io::stderr()).stderr(Stdio::piped());
    let output = command.spawn().and_then(Child::wait_with_output).context(start)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "the download from {mirror} failed:\n{}\nDebian's packages are fetched once: check the \
         network and try again, or name a mirror that has these versions, such as a snapshot of \
         Debian's archive, by WEIR_DEBIAN_MIRROR=URI",
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
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
