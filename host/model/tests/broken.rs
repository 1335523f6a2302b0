//! Every broken file of `broken/` is refused with the messages next to it.
//!
//! `SNAPSHOTS=overwrite cargo test` writes them anew.

use crate::images;
use snapbox::{Assert, Data, assert::DEFAULT_ACTION_ENV};
use std::{fs, path::Path};
use weir_model::{Catalog, Faults, Style, check_file, check_text};

fn catalog() -> Catalog {
    Catalog { guests: vec!["control".to_owned(), "attacker".to_owned()], ..Catalog::default() }
}

/// What a person would see, without the directory that the test runs in.
fn shown(faults: &Faults, directory: &Path) -> String {
    let text = faults.render(Style::Plain, 1000).replace(&format!("{}/", directory.display()), "");
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join(
        "
",
    ) + "
"
}

/// How messages begin: with the object that they are about.
const OBJECTS: [&str; 16] = [
    "vm `",
    "flow `",
    "group `",
    "task `",
    "core ",
    "interrupt ",
    "device `",
    "platform `",
    "file `",
    "the system: ",
    "the platform: ",
    "the hypervisor: ",
    "the broker: ",
    "the switch: ",
    "[",
    "dram `",
];

/// What must hold of every fault: a rule, a place, an object, and what to write instead.
fn assert_complete(faults: &Faults, file: &str) {
    assert!(!faults.0.is_empty(), "{file}: no fault, yet refused");
    for fault in &faults.0 {
        let place = fault.location();
        assert!(place.file.ends_with(file), "{file}: {place}");
        assert!(place.line >= 1 && place.column >= 1, "{file}: {place}");
        let has_object = OBJECTS.iter().any(|object| fault.message.starts_with(object));
        assert!(has_object && fault.message.contains(": "), "{file}: {}", fault.message);
        assert!(fault.help.as_ref().is_some_and(|help| !help.is_empty()), "{file}: {fault:?}");
        let alone = Faults(vec![fault.clone()]).render(Style::Plain, 1000);
        let place = format!("{file}:{}:{}]", place.line, place.column);
        assert!(alone.contains(&place), "{place} is not in\n{alone}");
        assert!(alone.contains("help: "), "{alone}");
    }
}

#[test]
fn every_broken_file_is_refused_with_its_message() {
    let directory = images::directory("broken");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut names: Vec<_> = fs::read_dir(&files)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    names.sort();
    assert!(names.len() >= 100, "{} files", names.len());
    let snapshots = Assert::new().action_env(DEFAULT_ACTION_ENV);
    let mut differ = Vec::new();
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let Err(faults) = check_text(&directory.join(name), &text, &catalog()) else {
            panic!("{name} is not refused");
        };
        assert_complete(&faults, name);
        let shown = shown(&faults, &directory);
        let expected = Data::read_from(&path.with_extension("expected"), None).raw();
        differ.extend(snapshots.try_eq(Some(&name), shown.into(), expected).err());
    }
    let differ: String = differ.iter().map(ToString::to_string).collect();
    assert!(differ.is_empty(), "not as in .expected:\n{differ}");
}

/// The only message of a file with these bytes, and its place.
fn only_fault(name: &str, bytes: &[u8]) -> (String, String) {
    let directory = images::directory("bytes");
    let path = directory.join(name);
    fs::write(&path, bytes).unwrap();
    let faults = check_file(&path, &catalog()).unwrap_err();
    assert_complete(&faults, name);
    assert_eq!(faults.0.len(), 1, "{faults}");
    let fault = &faults.0[0];
    let message = fault.message.replace(&format!("{}/", directory.display()), "");
    (
        format!("{}: {message}", fault.code.name()),
        format!("{}:{}", fault.location().line, fault.location().column),
    )
}

#[test]
fn what_is_no_text_file_is_refused() {
    let expect = |code: &str, place: &str| (code.to_owned(), place.to_owned());
    assert_eq!(
        only_fault("empty.toml", b""),
        expect("file-unreadable: file `empty.toml`: is empty", "1:1")
    );
    assert_eq!(
        only_fault("blank.toml", b" \n\n"),
        expect("file-unreadable: file `blank.toml`: is empty", "1:1")
    );
    assert_eq!(
        only_fault("latin1.toml", b"platform = \"qemu-virt\"\n# Gr\xfc\xdfe\n"),
        expect("file-unreadable: file `latin1.toml`: is not UTF-8 from byte 27 on", "2:5")
    );
    assert_eq!(
        only_fault("nul.toml", b"platform = \"qemu\0virt\"\n").0.split(':').next(),
        Some("syntax")
    );
    assert_eq!(
        only_fault("elf.toml", b"\x7fELF\x02\x01\x01\0\xb7\0\0\0").0,
        "file-unreadable: file `elf.toml`: is not UTF-8 from byte 8 on"
    );
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = images::directory("none");
    for (path, code) in [
        (directory.clone(), "file-unreadable"),
        (directory.join("missing.toml"), "file-unreadable"),
    ] {
        let faults = check_file(&path, &catalog()).unwrap_err();
        assert_complete(&faults, path.file_name().unwrap().to_str().unwrap());
        assert_eq!((faults.0.len(), faults.0[0].code.name()), (1, code));
    }
}

#[test]
fn faults_are_json_too() {
    let directory = images::directory("json");
    let text = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MB\"\nimage = { elf = \"good.elf\" }\n";
    let faults = check_text(&directory.join("x.toml"), text, &catalog()).unwrap_err();
    let json = serde_json::json!(faults.records());
    assert_eq!((&json[0]["code"], &json[0]["name"]), (&"W0021".into(), &"wrong-unit".into()));
    assert_eq!((&json[0]["line"], &json[0]["column"]), (&5.into(), &10.into()));
    assert_eq!(json[0]["labels"][0]["length"], 6);
    assert!(json[0]["help"].as_str().unwrap().contains("MiB"));
}
