//! Which files a system is made of.

mod images;

use std::fs;
use weir_model::{Input, inputs};

#[test]
fn all_files_that_a_system_names_are_its_inputs() {
    let directory = images::directory("inputs");
    let path = |name: &str| directory.join(name);
    let system = r#"
platform = "boards/mine.toml"
broker = { overheads = "measured.toml" }
strange = "key"

[[vm]]
image = { elf = "a.elf" }
workload = { kind = "trace", file = "a.trace" }

[[vm]]
image = { linux = "Image", initrd = "disk.cpio" }

[[vm]]
image = { bin = "/else/where.bin" }
"#;
    fs::create_dir_all(path("boards")).unwrap();
    fs::write(path("s.toml"), system).unwrap();
    fs::write(path("boards/mine.toml"), "device_tree = \"mine.dtb\"\n").unwrap();
    let expected = [
        ("s.toml", false),
        ("measured.toml", false),
        ("a.elf", false),
        ("a.trace", true),
        ("Image", false),
        ("disk.cpio", false),
        ("/else/where.bin", false),
        ("boards/mine.toml", false),
        ("boards/mine.dtb", false),
    ];
    let expected = expected.map(|(name, is_trace)| Input { path: path(name), is_trace });
    assert_eq!(inputs(&path("s.toml")), expected);
    let board = ["boards/mine.toml", "boards/mine.dtb"].map(path);
    assert_eq!(inputs(&board[0]).into_iter().map(|input| input.path).collect::<Vec<_>>(), board);
}

#[test]
fn a_file_that_tells_nothing_is_one_input() {
    let directory = images::directory("inputs-none");
    let file = directory.join("x.toml");
    // What the test left before.
    drop(fs::remove_file(&file));
    let only = [Input { path: file.clone(), is_trace: false }];
    assert_eq!(inputs(&file), only, "not there");
    for text in [&b"\xff\xfe"[..], b"", b"vm = 3\nbroker = []\nplatform = 5"] {
        fs::write(&file, text).unwrap();
        assert_eq!(inputs(&file), only);
    }
    // One that names itself is read once more, and no more.
    fs::write(&file, "platform = \"x.toml\"").unwrap();
    assert_eq!(inputs(&file), [only.clone(), only].concat());
}
