//! System files, read and checked against the guests and boards of the checkout.

use crate::{
    debian,
    environment::Environment,
    failure::{CALL, Failure, Result, SYSTEM},
};
use serde_json::Value;
use std::{fs, path::Path, sync::OnceLock};
use toml::de::DeTable;
use weir_abi::regulation::COUNTER_PAGE;
use weir_model::{
    Catalog, Code, Fault, Faults, Platform, Style, System, check_file, check_text,
    check_to_measure, platform::Machine,
};

/// Returns the name of a system: that of its file, without the extension.
#[must_use]
pub fn name(system: &System) -> String {
    system
        .path
        .file_stem()
        .map_or_else(|| "system".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Returns what the names in a system file may stand for: the guests of the checkout with the keys
/// of their arguments, and the initial RAM disks made of Debian's packages.
#[must_use]
pub fn catalog(environment: &Environment) -> Catalog {
    let initrds = debian::Initramfs::ALL.iter().map(|kind| kind.name.to_owned()).collect();
    let guests = environment.guests();
    let keys = |name: &String| Some((name.clone(), environment.arguments(name)?));
    let arguments = guests.iter().filter_map(keys).collect();
    Catalog { guests, arguments, initrds, ..Catalog::default() }
}

/// Checks that a platform named on the command line exists.
///
/// # Errors
///
/// The call is wrong if `platform` is neither a known name nor a file; the text lists the names.
pub fn check_platform(platform: &str) -> Result {
    if Platform::named(platform).is_some() || Path::new(platform).is_file() {
        return Ok(());
    }
    let names: Vec<_> = Platform::names().collect();
    Err(Failure::call(format!(
        "--platform: there is no platform `{platform}`; known: {}, or the path of a platform's \
         TOML file",
        names.join(", ")
    )))
}

/// Reads a system file and checks it for a board or QEMU's machine for the board; for `platform`
/// instead of its own if one is given.
///
/// # Errors
///
/// All faults of the file.
pub fn load(
    file: &Path,
    platform: Option<&str>,
    machine: Machine,
    environment: &Environment,
) -> std::result::Result<System, Faults> {
    let catalog = Catalog { machine, ..catalog(environment) };
    match platform.and_then(|platform| text_on(file, platform)) {
        Some(text) => check_text(file, &text, &catalog),
        None => check_file(file, &catalog),
    }
}

/// As [`load`], for a system with a memory bandwidth that is to be measured: `[saturation]` may be
/// missing.
///
/// # Errors
///
/// All faults of the file.
pub fn load_to_measure(
    file: &Path,
    platform: Option<&str>,
    environment: &Environment,
) -> std::result::Result<System, Faults> {
    let catalog = catalog(environment);
    let text = platform.and_then(|platform| text_on(file, platform));
    match text.or_else(|| weir_model::read_text(file, weir_model::TEXT_LIMIT).ok()) {
        Some(text) => check_to_measure(file, &text, &catalog),
        None => check_file(file, &catalog),
    }
}

/// Returns the text of a system file for another platform. None if it cannot be read or parsed: the
/// checker reports that.
fn text_on(file: &Path, platform: &str) -> Option<String> {
    let mut text = weir_model::read_text(file, weir_model::TEXT_LIMIT).ok()?;
    // A platform file's path is relative to the system file there, and to here on the command line.
    let path = fs::canonicalize(platform).ok().filter(|path| path.is_file());
    let platform = path.as_deref().and_then(Path::to_str).unwrap_or(platform);
    let table = DeTable::parse(&text).ok()?;
    let span = table.get_ref().get("platform").map(toml::Spanned::span)?;
    text.replace_range(span, &Value::from(platform).to_string());
    Some(text)
}

/// Reads and checks a system file for a build of its image, for `platform` instead of its own if
/// one is given. The schedulability of the system is not a part of this check.
///
/// # Errors
///
/// The call is wrong if `platform` does not exist or `file` cannot be read. The system is at fault
/// if the file has faults or asks for something that this version does not build or enforce.
pub fn check(file: &Path, platform: Option<&str>, environment: &Environment) -> Result<System> {
    check_on(Machine::Board, file, platform, environment)
}

/// As [`check`], for the board or for QEMU's machine of it.
///
/// # Errors
///
/// As [`check`].
pub fn check_on(
    machine: Machine,
    file: &Path,
    platform: Option<&str>,
    environment: &Environment,
) -> Result<System> {
    platform.map_or(Ok(()), check_platform)?;
    let checked = load(file, platform, machine, environment).and_then(|system| {
        let faults = system.unbuilt();
        if faults.is_empty() { Ok(to_build(system)) } else { Err(Faults(faults)) }
    });
    checked.map_err(|faults| refused(&faults))
}

/// Returns the failure of a command that found these faults.
#[must_use]
pub fn refused(faults: &Faults) -> Failure {
    Failure { status: exit_status(faults), text: rendered(faults) }
}

/// Returns whether a memory budget of the system counts by the page that QEMU's plug-in writes, so
/// that it cannot run without the plug-in.
#[must_use]
pub fn needs_plugin(system: &System) -> bool {
    system.regulations.iter().any(|rule| rule.is_on() && rule.source == COUNTER_PAGE)
}

/// Returns a checked system with what its image needs in order to be counted by QEMU's plug-in.
#[must_use]
pub fn to_build(mut system: System) -> System {
    // The plug-in sees no DC ZVA: EL2 traps it.
    system.hypervisor.observed = needs_plugin(&system);
    system
}

/// Returns the exit status of a command that found these faults: [`CALL`] if a system file cannot
/// be read, else [`SYSTEM`].
#[must_use]
pub fn exit_status(faults: &Faults) -> u8 {
    let no_file = |fault: &Fault| fault.code == Code::FileUnreadable;
    if faults.0.iter().any(no_file) { CALL } else { SYSTEM }
}

/// The first code of the faults that this process has rendered.
static FIRST_CODE: OnceLock<Code> = OnceLock::new();

/// Returns the code of the first fault that [`rendered`] was called with in this process: the
/// command names it once, at its end.
#[must_use]
pub fn first_rendered() -> Option<Code> {
    FIRST_CODE.get().copied()
}

/// Renders faults for standard error: with colors on a terminal, and as wide as it is.
#[must_use]
pub fn rendered(faults: &Faults) -> String {
    if let Some(fault) = faults.0.first() {
        let _ = FIRST_CODE.set(fault.code);
    }
    let fancy = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let style = if fancy { Style::Fancy } else { Style::Plain };
    let width =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(100, |size| size.ws_col.into());
    let count = faults.0.len();
    let faults = faults.render(style, width);
    format!("{count} {} in the system:\n{faults}", if count == 1 { "fault" } else { "faults" })
}
