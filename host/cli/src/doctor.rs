//! `weir doctor`: what this machine has of what weir needs.

use crate::{
    environment::Environment,
    failure::{ENVIRONMENT, Failure, Result},
    screen,
    setup::version,
};
use std::{
    env,
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
};
use weir_model::platform::Platform;
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
    let installation = environment.installation();
    let weir = match installation {
        Some(installation) if installation.is_damaged() => {
            Err("its installed.json is damaged: install the package again".to_owned())
        }
        _ => Ok(origin(environment)),
    };
    let mut parts = vec![Part { name: "weir", found: weir }];
    parts.push(Part { name: "QEMU", found: qemu(environment) });
    for (name, library) in
        [("emulated clock", environment.clock()), ("plug-in of QEMU", environment.plugin())]
    {
        let found = library.map(|path| path.display().to_string());
        parts.push(Part { name, found: found.map_err(|failure| failure.text) });
    }
    if installation.is_none() {
        for (name, program) in [
            ("Rust compiler", environment.rustc.as_deref().unwrap_or(OsStr::new("rustc"))),
            ("cargo", &environment.cargo),
        ] {
            let found = version(program);
            let missing = || format!("{} does not start: call ./weir setup", program.display());
            parts.push(Part { name, found: found.map_err(|_| missing()) });
        }
    }
    let [state, cache] =
        ["HOME or XDG_STATE_HOME", "HOME or XDG_CACHE_HOME"].map(|own| match installation {
            Some(_) => own,
            None => "WEIR_ROOT",
        });
    let downloads = environment.downloads();
    for (name, folder, change) in [
        ("runs", Ok(environment.runs()), "WEIR_RUNS"),
        ("images", Ok(environment.images()), "the current folder"),
        ("secret of seeds", Ok(environment.state()), state),
        ("programs", Ok(environment.build()), cache),
        ("downloads of Debian", downloads, "WEIR_CACHE"),
        ("temporary files", Ok(env::temp_dir()), "TMPDIR"),
    ] {
        let found = folder
            .map_err(|failure| failure.text)
            .and_then(|folder| writable(&folder).map_err(|why| format!("{why}; change {change}")));
        parts.push(Part { name, found });
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

/// Returns the version of QEMU, and the boards whose machine it does not have.
fn qemu(environment: &Environment) -> std::result::Result<String, String> {
    let found = version(&environment.qemu).map_err(|_| {
        format!("{} does not start: apt install qemu-system-arm", environment.qemu.display())
    })?;
    let boards = Platform::all();
    let boards: Vec<_> = boards.iter().filter(|board| board.qemu.is_some()).collect();
    let fails = |board: &&Platform| Some((board.name.clone(), refused(environment, board)?));
    let failures: Vec<_> = boards.iter().filter_map(fails).collect();
    let names: Vec<_> = failures.iter().map(|(name, _)| name.as_str()).collect();
    match failures.first() {
        Some((_, failure)) if failures.len() == boards.len() => Err(failure.clone()),
        Some((_, failure)) => Ok(format!("{found}; not for {}: {failure}", names.join(", "))),
        None => Ok(found),
    }
}

/// Returns why QEMU does not have the machine of a board.
fn refused(environment: &Environment, board: &Platform) -> Option<String> {
    weir_runner::check_qemu(environment, board).err().map(|failure| failure.text)
}

/// Returns the folder if files can be written there, or below the nearest of its folders that
/// exists.
fn writable(folder: &Path) -> std::result::Result<String, String> {
    let whole: PathBuf = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let there = whole.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(folder.display().to_string()),
        Err(error) => Err(format!("cannot write to {}: {error}", there.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let there = tempfile::tempdir().expect("a directory");
        assert!(writable(&there.path().join("not/yet")).is_ok());
        let refused = writable(Path::new("/proc/weir")).expect_err("no folder for files");
        assert!(refused.starts_with("cannot write to /proc: "), "{refused}");
        let file = there.path().join("weir");
        fs::write(&file, "").expect("a file");
        assert!(writable(&file.join("runs")).is_err(), "a file is no folder");
    }

    #[test]
    fn a_program_that_is_missing_has_no_version() {
        assert!(version(OsStr::new("weir-has-no-such-program")).is_err());
    }
}
