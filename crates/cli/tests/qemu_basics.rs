//! Real systems in QEMU: what a first run must show.

mod support;

use std::{fs, path::Path, process::Command};
use support::qemu::{Load, Options, Outcome, random_word, run_system};

/// `echo` and `control` side by side; `echo` is to print `word`.
fn pair(platform: &str, word: &str) -> String {
    format!(
        r#"
platform = "{platform}"

[[vm]]
name = "echo"
cpus = [0]
memory = "2MiB"
image = {{ elf = "guests/echo", args = "word={word}" }}
expect = ["echo: word={word}"]

[[vm]]
name = "control"
cpus = [1]
memory = "2MiB"
image = {{ elf = "guests/control", args = "activations=100" }}
expect = ["control: 100 activations, 0 misses"]
"#
    )
}

#[test]
fn a_guest_echoes_a_random_word() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let word = random_word();
        let outcome = run_system(&pair(platform, &word), &Options::default()).good();
        assert!(outcome.lines("echo").contains(&format!("echo: word={word}").as_str()));
        assert_eq!(outcome.vm("echo")["state"], "off");
        assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
    }
}

#[test]
fn two_deterministic_runs_leave_the_same_bytes() {
    let system = pair("qemu-virt", "same");
    let here = run_system(&system, &Options::default()).good();
    let load = Load::begin();
    let from = Some(Path::new("/"));
    let elsewhere = run_system(&system, &Options { from, ..Options::default() }).good();
    drop(load);
    let names = |outcome: &Outcome| outcome.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&here), names(&elsewhere));
    // A reader that the host holds off for too long loses records, and says so.
    let whole = here.lost_records() == 0 && elsewhere.lost_records() == 0;
    for (name, bytes) in here.files.iter().filter(|(name, _)| whole || *name != "trace.bin") {
        assert!(bytes == &elsewhere.files[name], "{name} differs");
    }
}

#[test]
fn machines_that_are_too_small_are_refused_with_the_reason() {
    let small = pair("qemu-virt", "no");
    let large = small.replace("2MiB", "64MiB");
    for (system, arguments, reason) in [
        (&small, ["--qemu-arg=-machine", "--qemu-arg=virt,virtualization=off"], "EL2"),
        (&small, ["--qemu-arg=-smp", "--qemu-arg=1"], "cores"),
        (&large, ["--qemu-arg=-m", "--qemu-arg=64M"], "RAM"),
    ] {
        let all = [&arguments[..], &["--for", "5s"]].concat();
        let outcome = run_system(system, &Options { arguments: &all, ..Options::default() });
        assert_eq!(outcome.said.status, Some(1), "{arguments:?}: {}", outcome.said.err);
        let said = outcome.report["hypervisor"].to_string();
        assert!(said.contains(reason), "{arguments:?}: {said} {}", outcome.said.err);
    }
}

#[test]
fn a_built_image_is_described() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pair.toml");
    fs::write(&file, pair("qemu-virt", "x")).expect("a file");
    // Builds the programs.
    run_system(&pair("qemu-virt", "x"), &Options::default()).good();
    let image = directory.path().join("pair.img");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("WEIR_ROOT", support::qemu::root());
    command.arg("build").arg(&file).args(["--no-build", "--json", "-o"]).arg(&image);
    let said = support::say_within(&mut command, Options::default().limit);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let json: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let bytes = fs::read(&image).expect("an image");
    assert_eq!(json["bytes"], bytes.len());
    assert_eq!(bytes[56..60], *b"ARM\x64", "an arm64 Image");
    assert_eq!(bytes[16..24], (bytes.len() as u64).to_le_bytes());
    let crc = json["vms"][1]["pristine_crc32c"].as_str().expect("a check sum");
    let map = fs::read_to_string(image.with_extension("map")).expect("a map");
    assert!(map.contains(&format!("control: pristine memory has CRC-32C {crc}")), "{map}");
}
