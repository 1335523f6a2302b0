//! Builds the programs that tests run in QEMU. Test crates include this file next to `checkout`.

use super::checkout;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// A variable that informs tests that the programs are built.
pub const BUILT: &str = "WEIR_TEST_PROGRAMS";

/// Returns a system of some guests, each on its own core.
fn system_of(guests: &[String], platform: &str) -> String {
    let vms = guests.iter().enumerate().map(|(core, guest)| {
        format!(
            "[[vm]]\nname = \"guest{core}\"\ncpus = [{core}]\nmemory = \"4MiB\"\nimage = {{ elf = \"{guest}\" }}\n"
        )
    });
    format!("platform = {platform:?}\n") + &vms.collect::<String>()
}

/// Builds the hypervisor with all parts for the boards of tests, the minimal one, and all guests by
/// the command `weir`; `folder` is for scratch files.
///
/// # Errors
///
/// The messages of a failed build.
pub fn build(weir: &Path, folder: &Path) -> Result<(), String> {
    let guests = checkout::guests();
    let (file, image) = (folder.join("all.toml"), folder.join("all.img"));
    let on_v3 = guests.chunks(8).map(|guests| system_of(guests, "qemu-virt"));
    let others =
        ["qemu-virt-gicv2", "zcu102", "zcu104", "rpi4", "versal-virt", "qemu-virt-el3", "gem5"]
            .map(|board| system_of(&guests[..1], board));
    // The I/O service VM is in a system with a flow.
    let flow = "[[flow]]\nname = \"flow\"\nfrom = \"guest0\"\nto = \"guest1\"\nport = 5000\n\
                size = \"1KiB\"\nperiod = \"1ms\"\n";
    let with_flow = system_of(&guests[..2], "qemu-virt") + flow;
    let all_parts = on_v3.chain(others).chain([with_flow]);
    // Last, the hypervisor without its optional parts.
    let minimal = system_of(&guests[..1], "qemu-virt");
    for (text, more) in all_parts.map(|text| (text, Some("--all-parts"))).chain([(minimal, None)]) {
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(weir);
        command.arg("build").arg(&file).args(more).arg("-o").arg(&image).stdin(Stdio::null());
        let output = command.env("WEIR_ROOT", checkout::root()).output();
        let output = output.map_err(|error| format!("{}: {error}", weir.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(())
}
