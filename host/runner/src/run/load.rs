//! Loads an image on a board by a command of the user.

use super::{RunOptions, running::POLL};
use crate::record::RunRecord;
use std::{
    io,
    process::{Command, Stdio},
    sync::atomic::Ordering,
    thread,
};
use weir_image::{
    Failure, Result,
    failure::{Context, INTERRUPTED},
};

/// Runs `command` in the shell, which loads `image` on the board and resets it: the environment
/// variable `WEIR_IMAGE` names the image's file. The file is removed when the command has ended.
///
/// # Errors
///
/// The environment is at fault if the command does not end with status 0.
pub(super) fn load(
    command: &str,
    image: &[u8],
    record: &RunRecord,
    options: &RunOptions,
) -> Result {
    const FILE: &str = "system.img";
    record.write_file(FILE, image)?;
    let path = record.path(FILE);
    let path = std::path::absolute(&path).context(|| format!("find {}", path.display()))?;
    // Standard output can be a report's.
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("WEIR_IMAGE", &path)
        .stdout(Stdio::from(io::stderr()))
        .spawn()
        .context(|| "start sh")?;
    let status = loop {
        if let Some(status) = child.try_wait().context(|| "wait for sh")? {
            break status;
        }
        if options.interrupt.load(Ordering::SeqCst) {
            // A terminal has interrupted it, too.
            let _ = child.kill();
        }
        thread::sleep(POLL);
    };
    record.remove(FILE);
    if options.interrupt.load(Ordering::SeqCst) {
        return Err(Failure::reported(INTERRUPTED));
    }
    if !status.success() {
        return Err(Failure::environment(format!(
            "the command that loads the image ended with {status}: {command}"
        )));
    }
    Ok(())
}
