//! The verbs that need no machine, where text that is compared as a whole (`cmd/`) is not enough.

use crate::support::{Fake, Printed, SYSTEM, capture};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

fn fake() -> Fake {
    Fake::new(SYSTEM, "")
}

fn weir(arguments: &[&str]) -> Printed {
    capture(fake().weir().args(arguments))
}

#[test]
fn a_guessed_size_is_marked() {
    let fake = fake();
    fs::create_dir_all(fake.path("guests/tests/late/src")).expect("a directory");
    fake.write("guests/tests/late/src/main.rs", b"");
    let vm = "[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\nimage = { elf = \"late\" }\n";
    fake.write("late.toml", format!("platform = \"qemu-virt\"\n{vm}").as_bytes());
    let check = || {
        let printed = capture(fake.weir().args(["check", "late.toml"]));
        let json = capture(fake.weir().args(["check", "--json", "late.toml"]));
        let json: Value = serde_json::from_str(&json.out).expect("JSON");
        (printed.out, json[0]["guessed_images"].clone())
    };
    let (text, guessed) = check();
    assert!(
        text.contains("sizes guessed: weir's image at 3MiB, a's image late at 4MiB; the map of"),
        "{text}"
    );
    let weir = serde_json::json!({ "vm": null, "what": "image", "source": null, "bytes": 3 << 20 });
    let late =
        serde_json::json!({ "vm": "a", "what": "image", "source": "late", "bytes": 4 << 20 });
    assert_eq!(guessed, serde_json::json!([weir, late]));
    fs::create_dir_all(fake.path("build/programs")).expect("a directory");
    fake.write("build/programs/late", &elf(0x4010_0000, 0x1000));
    assert_eq!(check().1, serde_json::json!([weir]));
    fake.write("build/programs/weir-hypervisor-qemu-virt", &elf(0x4020_0000, 0x12_3000));
    let (text, guessed) = check();
    assert!(!text.contains("guessed"), "{text}");
    assert_eq!(guessed, serde_json::json!([]));
    // The image's two pages and the tables': behind what the hypervisor takes.
    let of_weir = text.lines().find(|line| line.contains(" weir ")).expect("a row");
    assert!(of_weir.contains(" 1176KiB ") && of_weir.contains(" image"), "{text}");
}

/// What is built is refused by `check` as by `build`, in the same words; a length that is only
/// guessed is marked as guessed.
#[test]
fn what_cannot_be_built_does_not_check() {
    let fake = fake();
    fs::create_dir_all(fake.path("guests/tests/late/src")).expect("a directory");
    fs::create_dir_all(fake.path("build/programs")).expect("a directory");
    fake.write("guests/tests/late/src/main.rs", b"");
    let refused = |head: &str, keys: &str| {
        let vm = "[[vm]]\nname = \"a\"\ncpus = [0]\nimage = { elf = \"late\" }\n";
        let text = format!("platform = \"qemu-virt\"\n{head}{vm}{keys}");
        fake.write("late.toml", text.as_bytes());
        let words = |verb: &[&str]| {
            let printed = capture(fake.weir().args(verb).arg("late.toml"));
            assert_eq!(printed.status, Some(1), "{verb:?} {}", printed.err);
            printed.err
        };
        let (checked, built) = (words(&["check"]), words(&["build", "--no-build"]));
        let faults =
            |printed: &str| printed.split_once("in the system:").expect("faults").1.to_owned();
        assert_eq!(faults(&checked).trim_end(), faults(&built).trim_end());
        checked
    };
    fake.write("build/programs/weir-hypervisor-qemu-virt", &elf(0x4020_0000, 0x30_0000));
    fake.write("build/programs/late", &elf(0x4010_0000, 0x20_0000));
    let printed = refused("", "memory = \"2MiB\"\n");
    assert!(printed.contains("needs 0x4010_0000 to 0x4030_0000, which is not in"), "{printed}");
    fake.write("build/programs/late", &elf(0x4010_0000, 0x1000));
    // The board has 2 GiB, of which weir takes 2 MiB below its image and what that is long.
    let printed = refused("", "memory = \"2045MiB\"\n");
    assert!(printed.contains("vm `a`: no room for its RAM of 2045MiB"), "{printed}");
    fs::remove_file(fake.path("build/programs/weir-hypervisor-qemu-virt")).expect("a file");
    let printed = capture(fake.weir().args(["check", "late.toml"]));
    assert_eq!(printed.status, Some(1));
    assert!(
        printed.err.contains("sizes guessed: weir's image at 3MiB; `weir build`"),
        "{}",
        printed.err
    );
    let json = capture(fake.weir().args(["check", "--json", "late.toml"]));
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json[0]["guessed_images"][0]["bytes"], 3 << 20);
}

#[test]
fn the_image_is_named_after_its_directory() {
    let fake = with_control();
    let build = ["build", "mine/system.toml", "--no-build", "--dump-dtb", "of/vms"];
    let printed = capture(fake.weir().args(build));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("build/mine-qemu-virt.img"), "{}", printed.out);
    let tree = fs::read(fake.path("of/vms/a.dtb")).expect("a device tree");
    assert_eq!(tree[..4], [0xd0, 0x0d, 0xfe, 0xed]);
}

/// A checkout with a built guest, and `mine/system.toml` of a VM that runs it.
fn with_control() -> Fake {
    let fake = fake();
    fs::create_dir_all(fake.path("guests/examples/control/src")).expect("a directory");
    fs::create_dir_all(fake.path("build/programs")).expect("a directory");
    fake.write("guests/examples/control/src/main.rs", b"");
    fake.write("build/programs/control", &elf(0x4010_0000, 0x1000));
    fake.write("build/programs/weir-hypervisor-qemu-virt", &elf(0x4020_0000, 0x1000));
    let vm =
        "[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\nimage = { elf = \"control\" }\n";
    fs::create_dir_all(fake.path("mine")).expect("a directory");
    fake.write("mine/system.toml", format!("platform = \"qemu-virt\"\n{vm}").as_bytes());
    fake
}

/// A board's image is compared with the one that `weir run --serial` builds.
#[test]
fn a_checkout_has_seeds_of_its_own() {
    let fake = with_control();
    let built = || {
        let printed = capture(fake.weir().args(["build", "mine/system.toml", "--no-build"]));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        fs::read(fake.path("build/mine-qemu-virt.img")).expect("an image")
    };
    let [one, again] = [(); 2].map(|()| built());
    assert!(one == again, "a build does not repeat");
    fs::remove_file(fake.path("build/seed")).expect("the seed");
    let other = built();
    assert!(one.len() == other.len() && one != other, "another checkout has the same seeds");
}

/// An ELF file for AArch64 with its only segment, and entry, at this address; all of it but its
/// first instruction is zeros.
fn elf(address: u64, len: u64) -> Vec<u8> {
    let mut file = vec![0; 124];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..20].copy_from_slice(&[2, 0, 183, 0]);
    file[20] = 1;
    file[24..32].copy_from_slice(&address.to_le_bytes());
    file[32] = 64;
    for (at, value) in [(52, 64), (54, 56), (56, 1), (64, 1), (68, 5)] {
        file[at] = value;
    }
    for (field, value) in [120, address, address, 4, len, 0x1000].into_iter().enumerate() {
        file[72 + 8 * field..][..8].copy_from_slice(&value.to_le_bytes());
    }
    file[120..].copy_from_slice(&0x1400_0000_u32.to_le_bytes());
    file
}

#[test]
fn all_faults_of_all_files_are_in_json() {
    let fake = fake();
    let broken = SYSTEM.replace("memory", "memry").replace("cpus = [1, 2]", "cpus = [0]");
    fake.write("broken.toml", broken.as_bytes());
    let printed = capture(fake.weir().args(["check", "--json", "broken.toml", "system.toml"]));
    assert_eq!(printed.status, Some(1));
    let json: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert_eq!((&json[0]["good"], &json[1]["good"]), (&false.into(), &true.into()));
    assert_eq!((&json[1]["cores"], &json[1]["not_built"]), (&4.into(), &serde_json::json!([])));
    assert_eq!(json[1]["vms"][1]["cores"], serde_json::json!([1, 2]));
    let json_of_broken = json[0]["faults"].clone();
    let faults = json_of_broken.as_array().expect("a list");
    assert!(faults.len() >= 4 && faults.iter().all(|fault| fault["line"].is_u64()), "{faults:?}");
    for call in [&["build", "broken.toml", "--json"][..], &["run", "broken.toml", "--json"]] {
        let printed = capture(fake.weir().args(call));
        assert_eq!(printed.status, Some(1));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        assert_eq!((&json["good"], &json["faults"]), (&false.into(), &json_of_broken), "{call:?}");
    }
}

#[test]
fn a_failed_build_is_the_environments_fault() {
    let fake = fake();
    fs::create_dir_all(fake.path("boards/qemu-virt")).expect("a directory");
    fake.write("boards/qemu-virt/board.toml", include_bytes!("../../boards/qemu-virt/board.toml"));
    fake.write("cargo", b"#!/bin/sh\necho 'error: the disk has melted' >&2\nexit 101\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(fake.path("cargo"), mode).expect("a mode");
    let printed =
        capture(fake.weir().args(["build", "system.toml"]).env("WEIR_CARGO", fake.path("cargo")));
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("cannot build the hypervisor"), "{}", printed.err);
    assert!(printed.err.contains("the disk has melted"), "{}", printed.err);
    let printed = capture(fake.weir().args(["build", "system.toml", "--no-build"]));
    assert_eq!(printed.status, Some(3));
    assert!(printed.err.contains("build without --no-build"), "{}", printed.err);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut command = Command::new("sh");
    // The reader ends before the first byte comes.
    let script = r#"{ sleep 0.2; "$0" new --schema; echo status $? >&2; } | true"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_weir")]).stdin(Stdio::null());
    let printed = capture(&mut command);
    assert!(printed.err.contains("status 0"), "{}", printed.err);
    assert!(!printed.err.contains("panicked"), "{}", printed.err);
}

/// A disk that is full is named with what was to be written to it.
#[test]
fn what_cannot_be_written_is_named() {
    let fake = fake();
    fake.write(
        "x.toml",
        b"[[vm]]\nname = \"a\"\n[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"9ms\"\n",
    );
    for call in ["platforms", "--help", "analyze x.toml", "plan x.toml"] {
        let full = fs::File::create("/dev/full").unwrap();
        let ended = fake.weir().args(call.split(' ')).stdout(full).output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{call}: {printed}");
        assert!(printed.contains("cannot write to standard output: No space left"), "{printed}");
    }
}

#[test]
fn it_starts_within_a_second_in_host_time() {
    let started = Instant::now();
    let runs: u32 = 5;
    for _ in 0..runs {
        assert_eq!(weir(&["platforms"]).status, Some(0));
    }
    // 20 ms each on an idle machine; this leaves room for a busy one.
    assert!(started.elapsed() / runs < Duration::from_secs(1));
}

#[test]
fn only_regular_files_are_read() {
    let fake = fake();
    rustix::fs::mkfifoat(rustix::fs::CWD, fake.path("fifo"), rustix::fs::Mode::RUSR)
        .expect("a pipe");
    let vm = |image: &str| {
        format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\n\
             image = {{ {image} }}\n"
        )
    };
    for (file, why) in [
        ("fifo", "a pipe"),
        ("/dev/zero", "a device"),
        ("/", "a directory"),
        ("/proc/kmsg", "empty"),
    ] {
        for image in [
            format!("elf = {file:?}"),
            format!("bin = {file:?}"),
            format!("linux = {file:?}"),
            format!("linux = \"guest.bin\", initrd = {file:?}"),
        ] {
            fake.write("odd.toml", vm(&image).as_bytes());
            let printed = capture(fake.weir().args(["check", "odd.toml"]));
            assert_eq!(printed.status, Some(1), "{image}: {}", printed.err);
            // Root may open the kernel's messages, and finds no bytes in them.
            let denied = file.starts_with("/proc") && printed.err.contains("permission denied");
            let other = file.starts_with("/proc") && printed.err.contains("is not an");
            assert!(denied || other || printed.err.contains(why), "{image}: {}", printed.err);
        }
        fake.write("odd.toml", vm("bin = \"guest.bin\"").replace("qemu-virt", file).as_bytes());
        for call in [
            vec!["check", file],
            vec!["analyze", file],
            vec!["plan", file],
            vec!["check", "odd.toml"],
            vec!["simulate", "merge", file],
            vec!["simulate", "dram", file, "--memory", "ddr4-2400"],
            vec!["trace", file],
            vec!["run", "system.toml", "--image-file", file],
        ] {
            let printed = capture(fake.weir().args(&call));
            // It ends, and what is no file is an error. For an empty one the verb reports it.
            let refused = matches!(printed.status, Some(1..=3));
            assert!(
                refused || file.starts_with("/proc"),
                "{call:?}: {} {}",
                printed.out,
                printed.err
            );
        }
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let fake = fake();
    let image = "e\u{1b}[2J\u{202e}.bin";
    let vm = "[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\n\
              image = { bin = \"e\\u001b[2J\\u202e.bin\" }\n";
    fake.write(image, &[0; 64]);
    let file = "o\u{1b}]0;x\u{7}.toml";
    fake.write(file, format!("platform = \"qemu-virt\"\n{vm}").as_bytes());
    let is_clean = |text: &str| !text.chars().any(weir_model::is_hidden);
    for call in [
        vec!["check", file],
        vec!["analyze", file],
        vec!["plan", file],
        vec!["check", "\u{1b}[2J"],
        vec!["check", file, "--platform", "\u{1b}[2J"],
        vec!["trace", "\u{1b}[2J"],
        vec!["attach", "\u{1b}[2J", "one"],
        vec!["\u{1b}[2J"],
    ] {
        let printed = capture(fake.weir().args(&call));
        assert!(
            is_clean(&printed.out) && is_clean(&printed.err),
            "{call:?}: {:?} {:?}",
            printed.out,
            printed.err
        );
        assert!(
            printed.out.contains("\\u{1b}") || printed.err.contains("\\u{1b}"),
            "{call:?}: {} {}",
            printed.out,
            printed.err
        );
    }
}

/// The VMs, the memory map and the owners of page classes: `weir check` prints a sentence without a
/// table's indentation or after a number.
#[test]
fn the_tables_of_check_fit_the_width() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a checkout");
    let widest = |columns: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .arg("check")
            .arg(root.join("examples/isolation-colors-on/isolation-colors-on.toml"));
        command.env("WEIR_ROOT", root).env_remove("COLUMNS");
        if let Some(columns) = columns {
            command.env("COLUMNS", columns);
        }
        let printed = capture(&mut command);
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        let sentence = |line: &str| {
            ["cost: ", "sizes guessed: ", root.to_str().expect("UTF-8")]
                .iter()
                .any(|text| line.starts_with(text))
        };
        let lines = printed.out.lines().filter(|line| !sentence(line));
        let widest = lines.clone().map(|line| line.chars().count()).max().expect("lines");
        // Cells are broken between words: an address stays whole.
        assert!(lines.clone().any(|line| line.contains("0x4000_0000")), "{}", printed.out);
        widest
    };
    assert!(widest(Some("80")) <= 80);
    assert!(widest(None) > 120);
}
