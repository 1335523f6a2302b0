//! The commands in the examples' READMEs, as a reader types them: each ends with status 0, for
//! which a run must hold. That `demo` and `flows-linux` hold is in `qemu_linux` and `qemu_flows`,
//! which run them, too.

use crate::support::{
    board::not_applicable_if,
    capture_within,
    qemu::{Slot, build_programs, root},
};
use std::{fs, process::Command, time::Duration};

/// Runs the commands of an example's README in the checkout, in one shell.
fn commands_of(example: &str) {
    not_applicable_if(|board| board.name != "qemu-virt", "the examples are for qemu-virt");
    let readme = root().join("examples").join(example).join("README.md");
    let readme = fs::read_to_string(readme).expect("a README");
    let commands: Vec<_> = readme.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(commands.iter().any(|line| line.starts_with("./weir ")), "{readme}");
    build_programs();
    let _slot = Slot::take();
    let directory = tempfile::tempdir().expect("a directory");
    let built = format!("'{}'", env!("CARGO_BIN_EXE_weir"));
    let script = commands
        .join("\n")
        .replace("./weir run", &format!("{built} run --no-build"))
        .replace("./weir", &built)
        .replace("/tmp/", &format!("{}/", directory.path().display()));
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &script]).current_dir(root());
    shell.env("WEIR_ROOT", root()).env("WEIR_RUNS", directory.path().join("runs"));
    let printed = capture_within(&mut shell, Duration::from_secs(600));
    assert_eq!(printed.status, Some(0), "{script}\n{}\n{}", printed.out, printed.err);
}

#[test]
fn the_example_echo_holds() {
    commands_of("echo");
}

#[test]
fn the_example_flows_mmio_holds() {
    commands_of("flows-mmio");
}

#[test]
fn the_example_flows_multicast_holds() {
    commands_of("flows-multicast");
}

#[test]
fn the_example_hub_holds() {
    commands_of("hub");
}

#[test]
fn the_example_mixed_holds() {
    commands_of("mixed");
}

#[test]
fn the_example_passthrough_pci_holds() {
    commands_of("passthrough-pci");
}

#[test]
fn the_example_setpoints_holds() {
    commands_of("setpoints");
}
