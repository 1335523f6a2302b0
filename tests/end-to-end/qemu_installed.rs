//! An installation: the command with programs that were built before, without a checkout and
//! without a compiler.

use crate::support::{
    Printed,
    board::not_applicable_if,
    capture, capture_within,
    qemu::{Slot, build_programs, root},
};
use std::{path::Path, process::Command, time::Duration};

/// Calls the installed command below `prefix` in an empty environment, for a user with the home
/// directory `home`, which is also the current one.
fn installed(prefix: &Path, home: &Path, arguments: &[&str]) -> Printed {
    let mut command = Command::new(prefix.join("bin/weir"));
    command.args(arguments).current_dir(home).env_clear();
    command.env("HOME", home).env("PATH", "/usr/bin:/bin");
    capture_within(&mut command, Duration::from_secs(300))
}

#[test]
fn an_installation_needs_no_checkout() {
    not_applicable_if(|board| board.name != "qemu-virt", "the example is for qemu-virt");
    build_programs();
    let _slot = Slot::take();
    let directory = tempfile::tempdir().expect("a directory");
    let [prefix, home] = ["a prefix", "home"].map(|name| directory.path().join(name));
    std::fs::create_dir(&home).expect("a home");
    let mut package = Command::new(env!("CARGO_BIN_EXE_weir"));
    package.env("WEIR_ROOT", root()).args(["package", "--no-build", "--board", "qemu-virt"]);
    let packed = capture(package.args(["--guest", "echo", "--tree"]).arg(&prefix));
    assert_eq!(packed.status, Some(0), "{}", packed.err);
    let there = |file: &str| assert!(prefix.join(file).is_file(), "{file}");
    there("share/man/man1/weir-run.1");
    there("share/bash-completion/completions/weir");
    there("share/doc/weir/LICENSE-MIT");

    let doctor = installed(&prefix, &home, &["doctor"]);
    assert_eq!(doctor.status, Some(0), "{}{}", doctor.out, doctor.err);
    assert!(doctor.out.contains("nothing is missing"), "{}", doctor.out);
    let echo = prefix.join("share/weir/examples/echo/echo.toml");
    let run = installed(&prefix, &home, &["run", echo.to_str().expect("UTF-8")]);
    assert_eq!(run.status, Some(0), "{}{}", run.out, run.err);
    let runs = home.join(".local/state/weir/runs");
    assert_eq!(std::fs::read_dir(runs).expect("runs").count(), 1);
    // The broker is there for each system with flows, and an image goes to where the user is.
    let flows = prefix.join("share/weir/examples/flows-mmio/flows-mmio.toml");
    let built = installed(&prefix, &home, &["build", flows.to_str().expect("UTF-8")]);
    assert!(built.err.contains("cannot read elf = \"sender\""), "{}{}", built.out, built.err);
    let built = installed(&prefix, &home, &["build", echo.to_str().expect("UTF-8")]);
    assert_eq!(built.status, Some(0), "{}", built.err);
    assert!(home.join("echo-qemu-virt.img").is_file(), "{}", built.out);
    // A missing part is named, and the installation does not take itself for a checkout.
    let plugin = prefix.join("lib/weir/libweir_qemu_plugin.so");
    std::fs::remove_file(plugin).expect("removed");
    let doctor = installed(&prefix, &home, &["doctor"]);
    assert_eq!(doctor.status, Some(3), "{}{}", doctor.out, doctor.err);
    assert!(!doctor.out.contains("nothing is missing"), "{}", doctor.out);
    // What needs the sources says so.
    let results = installed(&prefix, &home, &["reproduce", "rt-virtio-table3"]);
    assert_eq!(results.status, Some(3), "{}", results.err);
    assert!(results.err.contains("needs weir's sources"), "{}", results.err);
}
