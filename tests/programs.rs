//! Builds the programs that tests run in QEMU. Test crates include this file next to `checkout`.

use super::checkout;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A variable that informs tests that the programs are built.
pub const BUILT: &str = "WEIR_TEST_PROGRAMS";

/// The ZCU102 with a broker that has channel 0 of the low-power domain's engine (interrupt: SPI 77,
/// as in Linux's zynqmp.dtsi), which sees the cores' caches: then no core copies the ends of a
/// chunk.
pub const ADMA: &str = "zcu102-adma";
const ADMA_ENGINE: &str = "[dma_engine]\nname = \"ADMA\"\nkind = \"zdma\"\nbase = 0xffa8_0000\n\
                           intid = 109\ncoherent = true\n\
                           qos = { port = 2, block = \"128B\", clock = 500_000_000 }\n\n";

/// Returns the board file of [`ADMA`], which [`build`] writes.
pub fn adma_file() -> PathBuf {
    checkout::root().join("build/boards").join(ADMA).join("board.toml")
}

/// Writes the board file of [`ADMA`]: that of the ZCU102 with another name and engine. Builds the
/// hypervisor for it.
fn build_adma() -> Result<(), String> {
    let (root, file) = (checkout::root(), adma_file());
    let read = fs::read_to_string(root.join("boards/zcu102/board.toml"));
    let text = read.map_err(|error| format!("boards/zcu102/board.toml: {error}"))?;
    let text = text.replacen("name = \"zcu102\"", &format!("name = \"{ADMA}\""), 1);
    let engine = text.find("[dma_engine]").ok_or("boards/zcu102 has no engine")?;
    let end = text[engine..].find("\n[qemu]").ok_or("boards/zcu102 has no [qemu]")? + 1;
    let text = format!("{}{ADMA_ENGINE}{}", &text[..engine], &text[engine + end..]);
    let failed = |error| format!("{}: {error}", file.display());
    fs::create_dir_all(file.parent().expect("a folder")).map_err(failed)?;
    if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
        fs::write(&file, text).map_err(failed)?;
    }
    let kept = root.join(format!("build/programs/weir-hypervisor-{ADMA}"));
    let zcu102 = root.join("build/programs/weir-hypervisor-zcu102");
    let written = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    // It is made of the same sources as the ZCU102's, which is only replaced if it differs.
    let is_newer = |than: &Path| matches!((written(&kept), written(than)), (Ok(a), Ok(b)) if a > b);
    if is_newer(&zcu102) && is_newer(&file) {
        return Ok(());
    }
    // The folder of the board file, from `boards/`.
    let board = format!("../build/boards/{ADMA}");
    let arguments = ["--no-default-features", "--features", "gicv2,all"];
    build_bare("weir-hypervisor", &arguments, &[("WEIR_BOARD", &board)], &kept)
}

/// Builds a program for Arm cores and copies it to `kept`.
fn build_bare(
    package: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
    kept: &Path,
) -> Result<(), String> {
    let root = checkout::root();
    let target = "aarch64-unknown-none-softfloat";
    let mut command = Command::new(root.join("weir"));
    command.args(["cargo", "build", "--quiet", "--profile", "bare", "--target", target]);
    command.args(["-p", package]).args(arguments).envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("./weir cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let built = root.join("target").join(target).join("bare").join(package);
    fs::copy(&built, kept).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(())
}

/// Returns a system of some guests, each on its own core.
fn system_of(guests: &[String], platform: &str) -> String {
    let vms = guests.iter().enumerate().map(|(core, guest)| {
        format!(
            "[[vm]]\nname = \"guest{core}\"\ncpus = [{core}]\nmemory = \"4MiB\"\n\
             image = {{ elf = \"{guest}\" }}\n"
        )
    });
    format!("platform = {platform:?}\n") + &vms.collect::<String>()
}

/// Builds the hypervisor with all parts for the boards of tests, the minimal one, all guests, and
/// the program of Linux guests; `folder` is for scratch files.
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
    // Without a Linux that has it: Debian's packages may not be here.
    let tool = checkout::root().join("build/programs/weir-vsock-tool");
    build_bare("weir-vsock-tool", &[], &[], &tool)?;
    build_adma()
}
