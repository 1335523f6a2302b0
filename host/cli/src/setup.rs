//! `weir setup`: the tools that the script `./weir` found or installed.

use crate::{
    environment::Environment,
    failure::{Context as _, Failure, Result},
    image::debian,
    screen,
};
use std::{ffi::OsStr, process::Command};

/// The version of the toolchain that the published instruction counts were measured with.
const TOOLCHAIN: &str = include_str!("../../../rust-toolchain.toml");

/// Sets the machine up as every call of `./weir` does first, and prints the versions of the tools.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weir setup\n  weir setup --qemu backports")]
pub struct SetupArguments {
    /// Also install a newer QEMU for boards that need it, in the checkout's cache.
    #[arg(long, value_name = "FROM")]
    qemu: Option<Newer>,
}

/// Where a newer QEMU is from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Newer {
    /// Debian 12's backports: QEMU 10.
    Backports,
}

/// Installs what was asked for, and prints the versions.
pub fn run(arguments: &SetupArguments, environment: &Environment) -> Result {
    let qemu = version(&environment.qemu)?;
    let is_installed = environment.installation().is_some();
    let rustc = if is_installed {
        screen::say(format_args!("weir: installed: {qemu}"));
        None
    } else {
        let rustc = version(environment.rustc.as_deref().unwrap_or(OsStr::new("rustc")))?;
        screen::say(format_args!("weir: set up: {rustc}, {qemu}"));
        Some(rustc)
    };
    if let Some(Newer::Backports) = arguments.qemu {
        let newer = debian::install_qemu(&environment.downloads()?)?;
        let version = version(newer.as_os_str())?;
        screen::say(format_args!("weir: for boards that need it: {version}, {}", newer.display()));
    }
    let pinned = pinned().unwrap_or_default();
    if rustc.is_some_and(|rustc| rustc.split(' ').nth(1) != Some(pinned)) {
        screen::say(format_args!(
            "weir: published instruction counts are of Rust {pinned}; those of another version \
             differ a little"
        ));
    }
    Ok(())
}

/// Returns the first line that a program prints about its version.
pub fn version(program: &OsStr) -> Result<String> {
    let name = program.display();
    let output = Command::new(program).arg("--version").output();
    let output = output.context(|| format!("start {name}; `./weir setup` installs it"))?;
    if !output.status.success() {
        return Err(Failure::environment(format!(
            "{name} does not start: {}\n  install the libraries that it needs, or another version",
            String::from_utf8_lossy(&output.stderr).trim_end()
        )));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn pinned() -> Option<&'static str> {
    let line = TOOLCHAIN.lines().find_map(|line| line.strip_prefix("channel = "))?;
    Some(line.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_a_version() {
        assert!(pinned().is_some_and(|version| version.split('.').count() == 3));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = version(OsStr::new("weir-has-no-such-program")).unwrap_err().text;
        assert!(error.starts_with("cannot start weir-has-no-such-program"), "{error}");
    }
}
