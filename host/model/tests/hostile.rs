//! Files that are made to hurt the checker: too long, too deep, too many of everything, and text
//! that a terminal would obey.

use crate::images;
use std::{collections::BTreeMap, fs};
use weir_model::{Catalog, Faults, Style, check_file, check_text, is_hidden};

const SYSTEM: &str = r#"platform = "qemu-virt"
[[vm]]
name = "a"
cpus = [0]
memory = "16MiB"
image = { elf = "control", args = "period_us=500 activations=10" }
"#;

fn catalog() -> Catalog {
    let keys = ["period_us", "activations"].map(str::to_owned).to_vec();
    Catalog {
        guests: vec!["control".to_owned()],
        arguments: BTreeMap::from([("control".to_owned(), keys)]),
        ..Catalog::default()
    }
}

fn refused(text: &str) -> Faults {
    let path = images::directory("hostile").join("x.toml");
    let Err(faults) = check_text(&path, text, &catalog()) else { panic!("it is not refused") };
    faults
}

fn codes(faults: &Faults) -> Vec<&str> {
    faults.0.iter().map(|fault| fault.code.name()).collect()
}

/// Before there were limits the checker took minutes or all memory for some of these.
#[test]
fn what_is_too_much_is_refused_and_listed_in_short() {
    let lines = |count: usize, line: &str| line.repeat(count);
    let tables = |count: usize, table: &str| format!("{SYSTEM}{}", table.repeat(count));
    let keys = |count: u32| (0..count).map(|n| format!("k{n} = 1\n")).collect::<Vec<_>>().concat();
    let flow = |n: u32| format!("[[flow]]\nname = \"f{n}\"\nfrom = \"a\"\nto = \"b\"\n");
    let flows = (0..16_000).map(flow).collect::<Vec<_>>().concat();
    for (what, text) in [
        ("VMs", format!("platform = \"qemu-virt\"\n{}", lines(140_000, "[[vm]]\n"))),
        ("unknown keys", format!("{}{SYSTEM}", keys(45_000))),
        ("more keys than values are read", format!("{}{SYSTEM}", keys(250_000))),
        ("flows", tables(120_000, "[[flow]]\n")),
        ("flows that are checked", format!("{SYSTEM}{flows}")),
        ("cores", SYSTEM.replace("[0]", &format!("[{}]", lines(300_000, "0, ")))),
        ("texts", format!("{SYSTEM}expect = [{}]\n", lines(300_000, "\"\", "))),
        ("tasks", tables(16_000, "[[vm.task]]\nname = \"t\"\nperiod = \"1ms\"\n")),
        ("double keys", tables(200_000, "a = 1\n")),
        ("lines that are none", tables(200_000, "a =\n")),
        ("a long key", format!("{SYSTEM}{} = 1\n", lines(900_000, "a"))),
        ("a long choice", format!("{SYSTEM}on_fault = \"{}\"\n", lines(900_000, "a"))),
        ("deep lists", format!("{SYSTEM}x = {}{}\n", lines(400_000, "["), lines(400_000, "]"))),
        ("deep keys", format!("{SYSTEM}{} = 1\n", vec!["a"; 400_000].join("."))),
        ("deep headers", format!("{SYSTEM}[{}]\n", vec!["a"; 400_000].join("."))),
    ] {
        let faults = refused(&text);
        assert!(faults.0.len() <= 2002, "{what}: {} faults", faults.0.len());
        let shown = faults.render(Style::Plain, 100);
        assert!(shown.len() < 1 << 20, "{what}: {} bytes", shown.len());
        assert!(serde_json::to_vec(&faults.records()).expect("JSON").len() < 16 << 20, "{what}");
    }
    let unknown = refused(&format!("{}{SYSTEM}", keys(45_000)));
    assert!(codes(&unknown).contains(&"too-many-faults"), "{}", unknown.0.len());
    let list = refused(&tables(20_000, "[[flow]]\n"));
    assert_eq!(codes(&list), ["too-many-values"]);
    assert!(list.0[0].message.contains("20000 values, more than 16384"), "{list}");
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let path = images::directory("hostile").join("long.toml");
    fs::write(&path, format!("{SYSTEM}{}", "# more\n".repeat(800_000))).expect("a file");
    let faults = check_file(&path, &catalog()).expect_err("it is refused");
    assert_eq!(codes(&faults), ["file-unreadable"]);
    assert!(faults.0[0].message.contains("more than 4194304"), "{faults}");
}

#[test]
fn a_terminal_sees_no_control_characters() {
    let named = |name: &str| SYSTEM.replace("\"a\"", &format!("\"{name}\""));
    for text in [
        named("a\\u001b]0;owned\\u0007\\u202e"),
        named("a\u{1b}[2J"),
        named("a\u{202e}b"),
        format!("{SYSTEM}\"\\u001b[2J\" = 1\n"),
        format!("{SYSTEM}on_fault = \"\\u001b[31m\\r\"\n"),
        format!("# \u{1b}c\r \u{9b}2J \u{2066}\n{SYSTEM}devices = [\"\\u001bc\"]\n"),
        SYSTEM.replace("\"control\"", "\"\\u001b[2J.elf\""),
        SYSTEM.replace("qemu-virt", "\\u001b[2J.toml"),
        SYSTEM.replace("period_us", "\\u001b[2J"),
    ] {
        let faults = refused(&text);
        for style in [Style::Plain, Style::Fancy] {
            let shown = faults.render(style, 80);
            // The renderer's own colors.
            let shown = shown.split('\u{1b}').map(|part| {
                let rest = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
                rest.filter(|(color, _)| {
                    style == Style::Fancy && color.chars().all(|c| c.is_ascii_digit() || c == ';')
                })
                .map_or(part, |(_, rest)| rest)
            });
            let text: String = shown.collect();
            assert!(!text.chars().any(is_hidden), "{text:?}");
            assert!(
                text.contains("\\u{") || text.contains('?') || text.contains('\u{fffd}'),
                "{text}"
            );
        }
    }
}

#[test]
fn excerpts_mark_the_place_after_escaped_characters() {
    let text = SYSTEM.replace("cpus = [0]", "cpus = [0] # \u{202e}\nmemory_ = 1");
    let shown = refused(&text).render(Style::Plain, 100);
    assert!(shown.contains("cpus = [0] # \u{fffd}"), "{shown}");
    assert!(shown.contains("memory_ = 1\n") && shown.contains("not a key here"), "{shown}");
}

#[test]
fn single_brackets_are_one_fault() {
    let vm = SYSTEM.split_once('\n').expect("lines").1;
    let two = format!("{SYSTEM}{}", vm.replace("\"a\"", "\"b\"")).replace("[[vm]]", "[vm]");
    let faults = refused(&two);
    assert_eq!(codes(&faults), ["syntax"], "{faults}");
    let help = faults.0[0].help.as_deref().expect("help");
    assert_eq!(help, "write `[[vm]]`, with double brackets, for each element");
    assert_eq!(faults.0[0].location().line, 2);

    let one = refused(&SYSTEM.replace("[[vm]]", "[vm]"));
    assert_eq!(codes(&one), ["wrong-type"], "{one}");
    assert!(one.0[0].help.as_deref().expect("help").contains("[[vm]]"), "{one}");

    let mixed = format!("{SYSTEM}{}", vm.replace("\"a\"", "\"b\"").replace("[[vm]]", "[vm]"));
    assert_eq!(codes(&refused(&mixed)), ["syntax"]);
    for list in ["flow", "core", "irq", "group", "vm.task"] {
        let text = format!("{SYSTEM}[{list}]\nx = 1\n[{list}]\nx = 2\n");
        let faults = refused(&text);
        assert_eq!(codes(&faults), ["syntax"], "{list}: {faults}");
    }
    // Another fault is reported, too.
    assert_eq!(codes(&refused(&format!("{two}x = \n"))), ["syntax", "syntax"]);
    // A table that is one stays a table.
    let twice = format!("{SYSTEM}[hypervisor]\n[hypervisor]\n");
    assert_eq!(codes(&refused(&twice)), ["syntax"]);
}

#[test]
fn a_guests_unknown_argument_is_refused() {
    let with = |args: &str| SYSTEM.replace("period_us=500 activations=10", args);
    let one = |args: &str| {
        let faults = refused(&with(args));
        assert_eq!(codes(&faults), ["arguments"], "{faults}");
        let fault = &faults.0[0];
        (fault.message.clone(), fault.help.clone().expect("help"), fault.location().column)
    };
    let (message, help, column) = one("activations=10 perod_us=500");
    assert_eq!(message, "vm `a`: guest `control` has no argument `perod_us`");
    assert_eq!(help, "write `period_us`");
    assert_eq!(column, 51);
    assert_eq!(one("quiet").1, "known: `period_us`, `activations`");
    assert_eq!(one("activations").0, "vm `a`: argument `activations` has no value");
}

/// Each two segments are compared: 60,000 of them, all in one place, would make two billion
/// messages.
#[test]
fn an_elf_file_of_many_segments_is_refused() {
    let directory = images::directory("segments");
    let segment = (0x4010_0000, 0x1000, [1; 16].as_slice());
    let text = SYSTEM.replace("control\", args = \"period_us=500 activations=10", "many.elf");
    fs::write(directory.join("many.elf"), images::elf(0x4010_0000, &vec![segment; 60_000]))
        .expect("a file");
    let checked = check_text(&directory.join("x.toml"), &text, &catalog());
    let Err(faults) = checked else { panic!("it is not refused") };
    assert_eq!(codes(&faults), ["elf-unusable"], "{faults}");
}

/// Reading a tree recurses: a million nodes, each in the one before, would overflow the stack.
#[test]
fn a_deep_device_tree_is_refused() {
    let directory = images::directory("deep");
    let tree = |depth: usize| {
        // The root has no name.
        let mut structure = vec![0, 0, 0, 1, 0, 0, 0, 0];
        (1..depth).for_each(|_| structure.extend([0, 0, 0, 1, b'n', 0, 0, 0]));
        (0..depth).for_each(|_| structure.extend([0, 0, 0, 2]));
        structure.extend([0, 0, 0, 9]);
        let words =
            |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let size = structure.len() as u32;
        let header = words(&[0xd00d_feed, 56 + size, 56, 56 + size, 40, 17, 16, 0, 0, size]);
        [header, vec![0; 16], structure].concat()
    };
    let board = include_str!("../../../boards/qemu-virt/board.toml")
        .replace("\"qemu-virt.dtb\"", "\"board.dtb\"");
    assert!(board.contains("board.dtb"));
    fs::write(directory.join("board.toml"), board).expect("a file");
    let text = SYSTEM.replace("\"qemu-virt\"", "\"board.toml\"");
    let why = |depth: usize| {
        fs::write(directory.join("board.dtb"), tree(depth)).expect("a file");
        let checked = check_text(&directory.join("x.toml"), &text, &catalog());
        // The text is wrapped where the path of this directory makes it too long.
        let text = checked.err().map_or(String::new(), |faults| faults.to_string());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for depth in [33, 50_000] {
        assert!(
            why(depth).contains("its nodes are nested deeper than 32"),
            "{depth}: {}",
            why(depth)
        );
    }
    assert!(!why(32).contains("nested"), "{}", why(32));
    assert!(why(100_000).contains("more than 1048576"), "{}", why(100_000));
}
