//! Real systems in QEMU: what a first run must show.

use crate::support::{
    board::not_applicable_if,
    capture_within,
    qemu::{Load, Options, Outcome, build_image, random_word, root, run_minimal, run_system, with},
};
use std::{fs, path::Path, process::Command};

/// `echo` and `control` concurrently; `echo` must print `word`.
fn pair(platform: &str, word: &str) -> String {
    format!(
        r#"
platform = "{platform}"

[[vm]]
name = "echo"
cpus = [0]
memory = "2MiB"
image = {{ elf = "echo", args = "word={word}" }}
expect = ["echo: word={word}"]

[[vm]]
name = "control"
cpus = [1]
memory = "2MiB"
image = {{ elf = "control", args = "activations=100" }}
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
fn two_runs_leave_the_same_bytes() {
    let system = pair("qemu-virt", "same");
    let here = run_system(&system, &Options::default()).good();
    let load = Load::begin();
    let from = Some(Path::new("/"));
    let elsewhere = run_system(&system, &Options { from, ..Options::default() }).good();
    drop(load);
    let names = |outcome: &Outcome| outcome.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&here), names(&elsewhere));
    assert_eq!([here.lost_records(), elsewhere.lost_records()], [0, 0]);
    for (name, bytes) in &here.files {
        assert!(bytes == &elsewhere.files[name], "{name} differs");
    }
}

#[test]
fn too_small_machines_are_refused_with_the_reason() {
    not_applicable_if(|board| board.name != "qemu-virt", "it changes the options of QEMU's virt");
    let small = pair("qemu-virt", "no");
    let large = small.replace("2MiB", "64MiB");
    for (system, arguments, reason) in [
        (&small, ["--qemu-arg=-machine", "--qemu-arg=virt,virtualization=off"], "EL2"),
        (&small, ["--qemu-arg=-smp", "--qemu-arg=1"], "cores"),
        (&large, ["--qemu-arg=-m", "--qemu-arg=64M"], "RAM"),
    ] {
        let all = [&arguments[..], &["--for", "5s"]].concat();
        let outcome = run_system(system, &Options { arguments: &all, ..Options::default() });
        assert_eq!(outcome.printed.status, Some(1), "{arguments:?}: {}", outcome.printed.err);
        let printed = outcome.report["hypervisor"].to_string();
        assert!(printed.contains(reason), "{arguments:?}: {printed} {}", outcome.printed.err);
    }
}

/// Each SMC of the image is replaced by what firmware without PSCI answers.
#[test]
fn firmware_without_psci_is_refused() {
    const SMC: [u8; 4] = 0xd400_0003_u32.to_le_bytes();
    const NOT_SUPPORTED: [u8; 4] = 0x9280_0000_u32.to_le_bytes(); // mov x0, #-1
    not_applicable_if(|board| board.name != "qemu-virt", "its image is for qemu-virt");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pair.img");
    let text = pair("qemu-virt", "no");
    build_image(&text, &file);
    let mut image = fs::read(&file).expect("an image");
    let mut calls = 0;
    for word in image.as_chunks_mut().0.iter_mut().filter(|word| **word == SMC) {
        *word = NOT_SUPPORTED;
        calls += 1;
    }
    assert!(calls > 0);
    fs::write(&file, image).expect("an image");
    let arguments = ["--image-file", file.to_str().expect("a path"), "--for", "5s"];
    let options = Options { arguments: &arguments, ..Options::default() };
    let outcome = run_system(&text, &options);
    assert_eq!(outcome.printed.status, Some(1), "{}", outcome.printed.err);
    let printed = outcome.report["hypervisor"].to_string();
    let cause = "the firmware has no PSCI CPU_ON, by which core 1 starts: use firmware with PSCI";
    assert!(printed.contains(cause), "{printed}");
    // The run does not wait for a silence: nothing can wake the cores.
    let err = &outcome.printed.err;
    assert!(err.contains("the machine stands still: all its cores sleep"), "{err}");
}

/// The output of a run of [`pair`] with `keys` for the hypervisor and for `echo` about the cache,
/// on `platform` and this core, and its exit status.
fn cache_printed(platform: &str, [weir, echo]: [&str; 2], cpu: &str) -> (Option<i32>, Vec<String>) {
    let text = pair(platform, "cached");
    let text = with(&text, "cpus = [0]", &format!("cpus = [0]\n{echo}"));
    let cpu = format!("--qemu-arg={cpu},cntfrq=1000000000");
    let arguments = ["--qemu-arg=-cpu", &cpu];
    let options = Options { arguments: &arguments, ..Options::default() };
    let outcome = run_system(&format!("{text}\n[hypervisor]\n{weir}\n"), &options);
    let lines = outcome.report["hypervisor"].as_array().expect("lines").clone();
    let lines = lines.iter().filter_map(|line| line.as_str()?.strip_prefix("weir: "));
    let printed = lines.filter(|line| line.contains("last-level cache")).map(str::to_owned);
    (outcome.printed.status, printed.collect())
}

#[test]
fn a_different_cache_is_reported_or_refused() {
    not_applicable_if(|board| board.name != "qemu-virt", "QEMU's machine has one kind of core");
    let differs = |there: &str, file: &str| {
        format!("this machine's last-level cache has {there}, and {file} in the platform file")
    };
    let colors = ["colors = \"12-15\"", "colors = \"0-3\""];
    let banks = ["banks = \"7\"", "banks = \"0-2\""];
    assert_eq!(cache_printed("qemu-virt", colors, "cortex-a53"), (Some(0), vec![]));
    // Twice the sets, so more colors than are used.
    let twice =
        [differs("2048 KiB", "1024 KiB"), differs("colors by address bits 0x1f000", "by 0xf000")];
    assert_eq!(cache_printed("qemu-virt", colors, "cortex-a57"), (Some(0), twice.to_vec()));
    // Half of them.
    let mut half = vec![
        differs("256 KiB", "1024 KiB"),
        differs("8 ways", "16"),
        differs("colors by address bits 0x7000", "by 0xf000"),
    ];
    for keys in [banks, ["", ""]] {
        assert_eq!(cache_printed("qemu-virt", keys, "cortex-a35"), (Some(0), half.clone()));
    }
    half.push(
        "this system's colors differ in address bits 0x8000, which choose no set of this machine's \
         last-level cache: build it with the cache's true size and ways"
            .to_owned(),
    );
    assert_eq!(cache_printed("qemu-virt", colors, "cortex-a35"), (Some(1), half));
    // The same sets in more and shorter lines of more ways.
    let directory = tempfile::tempdir().expect("a directory");
    let platforms = root().join("boards/qemu-virt");
    let text = fs::read_to_string(platforms.join("board.toml")).expect("a platform");
    let text = with(
        &text,
        "size = \"1MiB\"\nways = 16\nline = \"64B\"",
        "size = \"2MiB\"\nways = 32\nline = \"32B\"",
    );
    let file = directory.path().join("mine.toml");
    fs::write(&file, text).expect("a platform");
    fs::copy(platforms.join("qemu-virt.dtb"), directory.path().join("qemu-virt.dtb"))
        .expect("a device tree");
    let other = [
        differs("1024 KiB", "2048 KiB"),
        differs("16 ways", "32"),
        differs("lines of 64 bytes", "of 32 bytes"),
    ];
    let file = file.to_str().expect("a path");
    assert_eq!(cache_printed(file, colors, "cortex-a53"), (Some(0), other.to_vec()));
}

/// The boot reads its own tables back: there must be nothing in them behind an image that is
/// shorter than what EL2 maps of the longest one's description. The VM's RAM is behind it.
#[test]
fn el2_maps_nothing_behind_a_short_image() {
    let directory = tempfile::tempdir().expect("a directory");
    let guest = directory.path().join("spin.bin");
    // wfi; b .-4
    fs::write(&guest, [0xd503_207f_u32, 0x17ff_ffff].map(u32::to_le_bytes).concat())
        .expect("a guest");
    let text = format!(
        "platform = \"qemu-virt\"\n[[vm]]\nname = \"spin\"\ncpus = [0]\nmemory = \"4MiB\"\n\
         image = {{ bin = {:?}, load = 0x4010_0000 }}\n",
        guest.to_str().expect("a path")
    );
    let options = Options { arguments: &["--for", "100ms"], ..Options::default() };
    let outcome = run_system(&text, &options);
    assert_eq!(
        outcome.printed.status,
        Some(0),
        "{} {}",
        outcome.printed.err,
        outcome.report["hypervisor"]
    );
    assert_eq!(outcome.vm("spin")["state"], "running");
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
    command.env("WEIR_ROOT", root());
    command.arg("build").arg(&file).args(["--no-build", "--json", "-o"]).arg(&image);
    let printed = capture_within(&mut command, Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let json: serde_json::Value = serde_json::from_str(&printed.out).expect("JSON");
    let bytes = fs::read(&image).expect("an image");
    assert_eq!(json["bytes"], bytes.len());
    assert_eq!(bytes[56..60], *b"ARM\x64", "an arm64 Image");
    // The boot loader keeps the memory behind the file too, up to the end of the stacks.
    let rows = json["placement"].as_array().expect("a map");
    let row = rows.iter().find(|row| row["what"] == "image").expect("the image");
    let len = row["bytes"].as_u64().expect("a number");
    assert!(len > bytes.len() as u64, "{len}");
    assert_eq!(bytes[16..24], len.to_le_bytes());
    let crc = json["vms"][1]["pristine_crc32c"].as_str().expect("a check sum");
    let map = fs::read_to_string(image.with_extension("map")).expect("a map");
    assert!(map.contains(&format!("control: pristine memory has CRC-32C {crc}")), "{map}");
}

#[test]
fn a_minimal_hypervisor_runs_two_vms() {
    let word = random_word();
    let outcome = run_minimal(&pair("qemu-virt", &word), &[]).good();
    assert!(outcome.lines("echo").contains(&format!("echo: word={word}").as_str()));
    assert_eq!(outcome.report["ended_by"], "all-met");
    let bytes = |name: &str| {
        let elf = root().join("build/programs").join(name);
        weir_runner::elf::LinkedHypervisor::read(&elf).expect("a hypervisor").sizes.text
    };
    let [minimal, all] =
        ["weir-hypervisor-qemu-virt-minimal", "weir-hypervisor-qemu-virt"].map(bytes);
    assert!(minimal < all, "{minimal} bytes, all parts {all}");
}

#[test]
fn a_hypervisor_refuses_a_part_that_it_lacks() {
    let text = with(&pair("qemu-virt", "no"), "cpus = [1]", "cpus = [1]\npmu = 2");
    let outcome = run_minimal(&text, &["--for", "5s"]);
    assert_eq!(outcome.printed.status, Some(1), "{}", outcome.printed.err);
    let printed = outcome.report["hypervisor"].to_string();
    let expected = "needs the feature `budgets`";
    assert!(printed.contains(expected), "{printed} {}", outcome.printed.err);
}
