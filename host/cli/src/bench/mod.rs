//! `weir bench`: measures the overheads of weir.

pub mod board;
pub mod clock;
pub mod copies;
pub mod engine;
pub mod flows;
pub mod mapping;
pub mod memory;
pub mod table3;

use crate::environment::Environment;
use std::process::Command;

/// Returns the start of a command line of QEMU under instruction counting, for at most `seconds`,
/// without the host's devices.
fn counting_qemu(seconds: &str, environment: &Environment) -> Command {
    // In weir's group of processes: Ctrl-C on the terminal ends it, too.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "-k", "2", seconds]).arg(&environment.qemu);
    command.args(["-icount", "shift=0,sleep=off", "-nodefaults", "-no-user-config"]);
    command.args(["-display", "none", "-monitor", "none"]);
    command
}
