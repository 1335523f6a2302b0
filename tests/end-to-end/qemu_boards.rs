//! Systems on QEMU's machines for real boards.

use crate::support::qemu::{Options, build_image, random_word, root, run_system, with};
use std::fs;

/// `echo`, which is to print `word`, with this much memory and further keys, and `control`.
fn pair(platform: &str, word: &str, memory: &str, keys: &str) -> String {
    format!(
        r#"
platform = "{platform}"

[[vm]]
name = "control"
cpus = [1]
memory = "2MiB"
image = {{ elf = "control", args = "activations=100" }}
expect = ["control: 100 activations, 0 misses"]

[[vm]]
name = "echo"
cpus = [0]
memory = "{memory}"
image = {{ elf = "echo", args = "word={word}" }}
expect = ["echo: word={word}"]
{keys}
"#
    )
}

#[test]
fn a_guest_echoes_a_random_word_on_zcu102() {
    let word = random_word();
    let outcome = run_system(&pair("zcu102", &word, "2MiB", ""), &Options::default()).good();
    assert!(outcome.lines("echo").contains(&format!("echo: word={word}").as_str()));
    assert_eq!(outcome.vm("echo")["state"], "off");
    assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
}

/// A guest that prints `>`, then sends back what it receives by its PL011.
const ECHO_KEYS: [u32; 8] = [
    0xd2a1_2000, // mov x0, #0x9000000
    0x5280_07c2, // mov w2, #'>'
    0xb900_0002, // str w2, [x0]
    0xb940_1801, // ldr w1, [x0, #0x18]
    0x3727_ffe1, // tbnz w1, #4, .-4
    0xb940_0002, // ldr w2, [x0]
    0xb900_0002, // str w2, [x0]
    0x17ff_fffc, // b .-16
];

#[test]
fn zcu102_receives_what_is_typed() {
    let directory = tempfile::tempdir().expect("a directory");
    let guest = directory.path().join("keys.bin");
    fs::write(&guest, ECHO_KEYS.map(u32::to_le_bytes).concat()).expect("a guest");
    let text = format!(
        "platform = \"zcu102\"\n[[vm]]\nname = \"keys\"\ncpus = [0]\nmemory = \"4MiB\"\n\
         image = {{ bin = {:?}, load = 0x4010_0000 }}\nexpect = [\"sent back by the guest\"]\n",
        guest.to_str().expect("a path")
    );
    let options = Options {
        deterministic: false,
        typed: Some(("keys", ">", "sent back by the guest, in more bytes than the FIFO holds\n")),
        arguments: &["--accept-host-time", "--for", "60s"],
        ..Options::default()
    };
    let outcome = run_system(&text, &options).good();
    assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
}

/// A VM that does not fit into the first piece of RAM lies in the second, whose start is 32 GiB.
#[test]
fn zcu102_uses_ram_above_the_gap() {
    let board = fs::read_to_string(root().join("boards/zcu102/board.toml")).expect("a board");
    let board = with(&board, "base = 0\nsize = \"2GiB\"", "base = 0\nsize = \"16MiB\"");
    // So little RAM has no page in some banks of the other DRAM map.
    let board = with(&board, "banks = [[28], [29], [30], [35]]", "banks = [[13], [14]]");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("small.toml");
    fs::write(&file, board).expect("a board");
    let text = pair(file.to_str().expect("a path"), "above", "32MiB", "");
    for (memory, status) in [("4G", 0), ("2G", 1)] {
        let memory_argument = format!("--qemu-arg={memory}");
        let arguments = ["--qemu-arg=-m", &memory_argument, "--for", "5s"];
        let outcome = run_system(&text, &Options { arguments: &arguments, ..Options::default() });
        assert_eq!(outcome.printed.status, Some(status), "{memory}: {}", outcome.printed.err);
        let text = outcome.report["hypervisor"].to_string();
        let refused = text.contains("needs 2080 MiB of RAM, and the machine has 2048");
        assert_eq!(refused, status == 1, "{memory}: {text}");
    }
}

#[test]
fn budgets_on_zcu102_need_the_counter_page() {
    let budget = |more: &str| {
        let keys = format!("memory_budget = {{ accesses = 4000, period = \"1ms\"{more} }}");
        pair("zcu102", "budget", "2MiB", &keys)
    };
    let refused = run_system(&budget(""), &Options::default());
    assert_eq!(refused.printed.status, Some(2), "{}", refused.printed.err);
    assert!(refused.printed.err.contains("source = \"counter-page\""), "{}", refused.printed.err);
    run_system(&budget(", source = \"counter-page\""), &Options::default()).good();
}

#[test]
fn an_image_for_another_board_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("virt.img");
    build_image(&pair("qemu-virt-gicv2", "other", "2MiB", ""), &image);
    let image = image.to_str().expect("a path");
    let options = Options { arguments: &["--image-file", image], ..Options::default() };
    let outcome = run_system(&pair("zcu102", "other", "2MiB", ""), &options);
    assert_eq!(outcome.printed.status, Some(2), "{}", outcome.printed.err);
    let cause = "was built for qemu-virt-gicv2, and the system is for zcu102";
    assert!(outcome.printed.err.contains(cause), "{}", outcome.printed.err);
}
