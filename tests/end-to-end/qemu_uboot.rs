//! U-Boot, which Debian builds for QEMU's machine, starts images in the formats that it takes, by
//! the commands that the READMEs of the boards name.

use crate::support::{
    capture,
    qemu::{build_programs, random_word, root},
};
use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};
use weir_image::{
    debian::{Kept, make},
    environment::cache_dir,
};
use weir_trace::decode::{Decoder, WirePiece};

/// Where U-Boot has the file, apart from where a format says that the image belongs.
const LOADED: &str = "0x50000000";

/// A system of one guest, which prints `word`.
fn system(word: &str) -> String {
    format!(
        "platform = \"qemu-virt\"\n[[vm]]\nname = \"echo\"\ncpus = [0]\nmemory = \"2MiB\"\n\
         image = {{ elf = \"echo\", args = \"word={word}\" }}\n"
    )
}

/// Waits until `text` was received. Returns whether it was, before a minute without a byte or the
/// end.
fn wait_for(text: &str, from: &Receiver<Vec<u8>>, all: &mut Vec<u8>) -> bool {
    let is_there = |all: &[u8]| all.windows(text.len()).any(|part| part == text.as_bytes());
    while !is_there(all) {
        let Ok(bytes) = from.recv_timeout(Duration::from_secs(60)) else { return false };
        all.extend(bytes);
    }
    true
}

/// Has U-Boot start a system in this format by `command`, with the file at `address`.
fn starts(format: &str, address: &str, command: &str) {
    build_programs();
    let directory = tempfile::tempdir().expect("a directory");
    let [file, image] = ["system.toml", "image"].map(|name| directory.path().join(name));
    let word = random_word();
    fs::write(&file, system(&word)).expect("a system file");
    let mut build = Command::new(env!("CARGO_BIN_EXE_weir"));
    build.env("WEIR_ROOT", root()).args(["build", "--no-build", "--format", format]);
    let printed = capture(build.arg(&file).arg("-o").arg(&image));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let u_boot = make(&cache_dir(&root()), Kept::UBoot, None);
    let u_boot = u_boot.unwrap_or_else(|failure| panic!("{}", failure.text));
    let mut qemu = Command::new("qemu-system-aarch64");
    qemu.args(["-machine", "virt,virtualization=on,gic-version=3", "-cpu", "cortex-a53"]);
    qemu.args(["-smp", "4", "-m", "2G", "-display", "none", "-monitor", "none", "-nodefaults"]);
    qemu.args(["-serial", "stdio", "-bios"]).arg(u_boot).arg("-device");
    qemu.arg(format!("loader,file={},addr={address},force-raw=on", image.display()));
    qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut qemu = qemu.spawn().expect("QEMU");
    let (mut out, mut keys) = (qemu.stdout.take().expect("a pipe"), qemu.stdin.take());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let (mut buffer, mut decoder) = ([0; 1024], Decoder::default());
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            // Frames of the hypervisor's can come within a line.
            let mut text = Vec::new();
            for &byte in &buffer[..count] {
                decoder.push(byte);
                while let Some(piece) = decoder.next_piece() {
                    if let WirePiece::Byte(byte) = piece {
                        text.push(byte);
                    }
                }
            }
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let mut all = Vec::new();
    let mut steps = || {
        let mut type_line = |line: &str| {
            let keys = keys.as_mut().expect("a pipe");
            keys.write_all(format!("{line}\n").as_bytes()).and_then(|()| keys.flush()).is_ok()
        };
        wait_for("autoboot", &receiver, &mut all)
            && type_line("")
            && wait_for("=> ", &receiver, &mut all)
            && type_line(command)
            && wait_for("Starting kernel", &receiver, &mut all)
            && wait_for(&format!("echo: word={word}"), &receiver, &mut all)
    };
    let is_good = steps();
    qemu.kill().expect("QEMU runs still");
    qemu.wait().expect("QEMU ends");
    assert!(is_good, "{}", String::from_utf8_lossy(&all));
}

/// U-Boot built with FIT_BEST_MATCH looks for a configuration by the device tree's `compatible`
/// unless it is named.
#[test]
fn u_boot_starts_a_flattened_image_tree() {
    starts("fit", LOADED, &format!("bootm {LOADED}#weir - ${{fdtcontroladdr}}"));
}

#[test]
fn u_boot_starts_a_legacy_image() {
    starts("uimage", LOADED, &format!("bootm {LOADED} - ${{fdtcontroladdr}}"));
}

#[test]
fn u_boot_starts_an_arm64_image() {
    starts("image", "0x40200000", "booti 0x40200000 - ${fdtcontroladdr}");
}
