//! `weir doctor`: what this machine has of what weir needs.

use crate::{
    environment::Environment,
    failure::{ENVIRONMENT, Failure, Result},
    screen,
};
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};
use weir_report::table;

/// Checks what this machine has of what weir needs, and says what to install.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  weir doctor\n\nExit status: 0 nothing is missing, 3 otherwise."
)]
pub struct DoctorArguments {}

/// A part that weir needs, with what was found or what to do.
struct Part {
    name: &'static str,
    found: std::result::Result<String, String>,
}

/// Carries the verb out.
pub fn run(_: &DoctorArguments, environment: &Environment) -> Result {
    let mut parts = vec![Part { name: "weir", found: Ok(origin(environment)) }];
    let qemu = version(&environment.qemu).ok_or_else(|| {
        format!("{} does not start: apt install qemu-system-arm", environment.qemu.display())
    });
    parts.push(Part { name: "QEMU", found: qemu });
    for (name, library) in
        [("emulated clock", environment.clock()), ("plug-in of QEMU", environment.plugin())]
    {
        let found = library.map(|path| path.display().to_string());
        parts.push(Part { name, found: found.map_err(|failure| failure.text) });
    }
    if environment.installation().is_none() {
        for (name, program) in [
            ("Rust compiler", environment.rustc.as_deref().unwrap_or(OsStr::new("rustc"))),
            ("cargo", &environment.cargo),
        ] {
            let found = version(program);
            let missing = || format!("{} does not start: call ./weir setup", program.display());
            parts.push(Part { name, found: found.ok_or_else(missing) });
        }
    }
    for (name, folder) in [("runs", environment.runs()), ("images", environment.build())] {
        parts.push(Part { name, found: writable(&folder) });
    }
    if let Ok(downloads) = environment.downloads() {
        let kept = fs::read_dir(&downloads).map_or(0, Iterator::count);
        let found = format!("{}, with {kept} entries", downloads.display());
        parts.push(Part { name: "downloads of Debian", found: Ok(found) });
    }
    let mut rows = table(["part", "", "found, or what to do"]);
    for Part { name, found } in &parts {
        let (is_there, text) = match found {
            Ok(text) => ("yes", text),
            Err(text) => ("no", text),
        };
        rows.add_row([name, is_there, text.as_str()]);
    }
    let mut out = screen::stdout();
    writeln!(out, "{rows}")?;
    if parts.iter().all(|part| part.found.is_ok()) {
        writeln!(out, "nothing is missing")?;
        return Ok(());
    }
    Err(Failure::reported(ENVIRONMENT))
}

/// Returns the version of weir, and whether it is of an installation or a checkout.
fn origin(environment: &Environment) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let place = environment.root().map(Path::display).map(|place| place.to_string());
    let place = place.unwrap_or_else(|_| "no checkout was found".to_owned());
    let kind = if environment.installation().is_some() { "installed" } else { "checkout" };
    format!("{version}, {kind}: {place}")
}

/// Returns the first line that a program prints about its version; none if it does not start.
fn version(program: &OsStr) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// Returns the folder if files can be written there, or below the nearest folder that exists.
fn writable(folder: &Path) -> std::result::Result<String, String> {
    let whole: PathBuf = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let there = whole.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(folder.display().to_string()),
        Err(error) => Err(format!("cannot write to {}: {error}", there.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let there = tempfile::tempdir().expect("a directory");
        assert!(writable(&there.path().join("not/yet")).is_ok());
        let refused = writable(Path::new("/proc/weir")).expect_err("no folder for files");
        assert!(refused.starts_with("cannot write to /proc: "), "{refused}");
    }

    #[test]
    fn a_program_that_is_missing_has_no_version() {
        assert_eq!(version(OsStr::new("weir-has-no-such-program")), None);
    }
}
