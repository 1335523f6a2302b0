//! Every code has a page with an example that is refused with it, and a test that meets it.

use crate::examples;
use crate::images;
use std::{collections::BTreeSet, fs, path::Path};
use weir_model::{
    Catalog, Code, Example, ExampleKind, Faults, Payload, Platform, SystemFile, check_file,
    check_text, diagnostics_reference, explain, explanations, pack, place,
};

/// Codes that no file of `broken/` has: they need more than one file, or a verb other than
/// `weir check`. With each the test that meets it.
const TESTED_ELSEWHERE: &[(&str, &str, &[Code])] = &[
    ("tests/broken.rs", "what_is_no_file_is_refused", &[Code::FileUnreadable]),
    (
        "tests/hostile.rs",
        "what_is_too_much_is_refused_and_listed_in_short",
        &[Code::TooManyValues, Code::TooManyFaults],
    ),
    ("tests/coloring.rs", "what_there_is_one_of_is_not_divided", &[Code::NoPageClasses]),
    ("tests/coloring.rs", "broken_geometries_are_refused", &[Code::PlatformGeometry]),
    ("tests/coloring.rs", "planned_platforms_are_for_checking", &[Code::PlatformPlanned]),
    ("tests/diagnostics.rs", "a_path_that_leads_nowhere_is_refused", &[Code::NoSuchKey]),
    (
        "tests/diagnostics.rs",
        "examples_are_refused",
        &[Code::PlatformBoard, Code::PlatformPci, Code::PlatformStart, Code::PlatformEngine],
    ),
    (
        "../analysis/tests/diagnostics.rs",
        "examples_of_analysis_are_refused_and_fixes_not",
        &ANALYZED,
    ),
];

/// Codes that a verb reports after the check of the file.
const ANALYZED: [Code; 11] = [
    Code::AnalysisLimit,
    Code::NoOverheads,
    Code::IrqNoWcet,
    Code::NoSupply,
    Code::FlowDeadlineMissed,
    Code::ServerLate,
    Code::NoSchedule,
    Code::TaskCore,
    Code::TaskDeadlineMissed,
    Code::MemoryBandwidth,
    Code::PlanBudget,
];

/// A code of which the check reports one case, and `weir build` that of the example: the analysis'
/// test of these examples has it.
const OF_BUILD: Code = Code::NotEnforced;

/// Codes with an example that is a command or too long to print.
const WITHOUT_FILE: [Code; 5] = [
    Code::NoSuchKey,
    Code::FileUnreadable,
    Code::TooManyValues,
    Code::TooManyFaults,
    Code::PlatformPlanned,
];

fn crate_file(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn catalog() -> Catalog {
    Catalog { guests: vec!["control".to_owned()], ..Catalog::default() }
}

#[test]
fn pages_are_complete() {
    let mut numbers = BTreeSet::new();
    for page in explanations() {
        let code = page.code;
        assert!(numbers.insert(code.number()), "{code} is there twice");
        assert_eq!(explain(&code.to_string()), Some(page));
        assert_eq!(explain(code.name()), Some(page));
        assert!(!page.title.is_empty() && !page.title.ends_with('.'), "{code}: {}", page.title);
        assert!(page.cause.ends_with('.'), "{code}: {}", page.cause);
        assert!(page.fix.ends_with('.'), "{code}: {}", page.fix);
        let empty = page.example.text.trim().is_empty();
        assert!(!empty || code == Code::FileUnreadable, "{code} has no example");
        for example in [Some(page.example), page.fixed].into_iter().flatten() {
            assert!(example.text.lines().all(|line| line.len() <= 100), "{code}: a long line");
        }
    }
    let files: BTreeSet<_> = fs::read_dir(crate_file("diagnostics"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let names: BTreeSet<_> = explanations().map(|page| page.code.name().to_owned()).collect();
    assert_eq!(files, names, "a page without a code");
}

#[test]
fn every_code_is_met_by_a_test() {
    let mut met = String::new();
    for entry in fs::read_dir(crate_file("tests/broken")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "expected") {
            met += &fs::read_to_string(path).unwrap();
        }
    }
    let codes = met.lines().filter_map(|line| line.strip_prefix("error[")?.split(']').next());
    let met: BTreeSet<&str> = codes.collect();
    let has_fixture = |code: Code| met.contains(code.to_string().as_str());
    for (file, test, codes) in TESTED_ELSEWHERE {
        let source = fs::read_to_string(crate_file(file)).unwrap();
        assert!(source.contains(&format!("fn {test}()")), "{file} has no test {test}");
        for code in *codes {
            let mentions =
                [format!("\"{}", code.name()), format!("Code::{code:?}"), format!("\"{code}\"")];
            assert!(mentions.iter().any(|text| source.contains(text)), "{file}: no {code:?}");
            assert!(!has_fixture(*code), "{code:?} has a fixture");
        }
    }
    let elsewhere: Vec<Code> =
        TESTED_ELSEWHERE.iter().flat_map(|(.., codes)| codes.iter().copied()).collect();
    for page in explanations() {
        assert!(
            elsewhere.contains(&page.code) || has_fixture(page.code),
            "no test meets {:?}",
            page.code
        );
    }
}

/// The platform file of `qemu-virt` with the tables and keys of `example`.
fn platform_file(example: &str) -> String {
    let board = include_str!("../../../boards/qemu-virt/board.toml");
    let is_header = |line: &str| line.starts_with('[');
    let key = |line: &str| line.split_once(" = ").map(|(key, _)| key.to_owned());
    let headers: BTreeSet<&str> = example.lines().filter(|line| is_header(line)).collect();
    let keys: BTreeSet<String> =
        example.lines().take_while(|line| !is_header(line)).filter_map(key).collect();
    let (mut root, mut tables) = (String::new(), String::new());
    let mut replaced = false;
    for line in board.lines() {
        if is_header(line) {
            replaced = headers.contains(line);
        }
        let is_root = tables.is_empty() && !is_header(line);
        if replaced || is_root && key(line).is_some_and(|key| keys.contains(&key)) {
            continue;
        }
        let part = if is_root { &mut root } else { &mut tables };
        *part += line;
        *part += "\n";
    }
    let own = example.lines().take_while(|line| !is_header(line)).collect::<Vec<_>>().join("\n");
    let rest: Vec<_> = example.lines().skip_while(|line| !is_header(line)).collect();
    format!("{own}\n{root}\n{tables}\n{}\n", rest.join("\n"))
}

/// The codes that an example is refused with, and the faults in words.
fn refused(example: &Example, directory: &Path) -> (Vec<Code>, String) {
    let of =
        |faults: Faults| (faults.0.iter().map(|fault| fault.code).collect(), faults.to_string());
    if example.kind == ExampleKind::Platform {
        let path = directory.join("example-platform.toml");
        fs::write(&path, platform_file(example.text)).unwrap();
        return Platform::load(&path).err().map_or_else(Default::default, of);
    }
    let path = directory.join("example.toml");
    let text = examples::file(example);
    let checked = if text.trim().is_empty() {
        fs::write(&path, &text).unwrap();
        check_file(&path, &catalog())
    } else {
        check_text(&path, &text, &catalog())
    };
    match checked {
        Ok(system) => place(&system, 4 << 20).err().map_or_else(Default::default, of),
        Err(faults) => of(faults),
    }
}

#[test]
fn examples_are_refused() {
    let directory = images::directory("examples");
    let mut wrong = Vec::new();
    for page in explanations() {
        let code = page.code;
        let is_text = page.example.kind == ExampleKind::Text;
        assert_eq!(is_text, WITHOUT_FILE.contains(&code), "{code:?}");
        if ANALYZED.contains(&code) || code == OF_BUILD || is_text {
            continue;
        }
        let (codes, text) = refused(&page.example, &directory);
        if codes.is_empty() || codes.iter().any(|found| *found != code) {
            wrong.push(format!("{code:?} gives {codes:?}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fixes_are_accepted() {
    let directory = images::directory("fixes");
    let mut wrong = Vec::new();
    let of_check = |code: Code| !ANALYZED.contains(&code) && code != OF_BUILD;
    for page in explanations().filter(|page| of_check(page.code)) {
        let Some(fixed) = &page.fixed else { continue };
        let (codes, text) = refused(fixed, &directory);
        if !codes.is_empty() {
            wrong.push(format!("{:?} is not fixed: {codes:?}\n{text}", page.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_has_every_code_once() {
    let reference = diagnostics_reference();
    for page in explanations() {
        let heading = format!("\n### {} {}: {}\n", page.code, page.code.name(), page.title);
        assert_eq!(reference.matches(&heading).count(), 1, "{heading}");
    }
    assert!(!reference.contains("```toml,"), "an info string that viewers do not know");
}

/// Each piece of RAM is a region of 32 bytes in a table of 64 KiB.
#[test]
fn a_description_that_el2_does_not_read_is_refused() {
    let pieces: Vec<_> = (0..2100)
        .map(|piece| format!("{{ base = {:#x}, size = \"4KiB\" }}", 0x5000_0000 + piece * 0x2000))
        .collect();
    let text = format!(
        "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\ncolors = \"0-7\"\n\
         image = {{ elf = \"control\" }}\n\
         memory = [{{ base = 0x4000_0000, size = \"16MiB\" }}, {}]\n",
        pieces.join(", ")
    );
    let system = check_text(Path::new("pieces.toml"), &text, &catalog()).expect("it is checked");
    let image = images::elf(0x4010_0000, &[(0x4010_0000, 0x1000, &[1; 16])]);
    let faults =
        pack(&system, &[Payload { image: &image, initrd: None }], images::HYPERVISOR).unwrap_err();
    assert_eq!(faults.0[0].code, Code::TooMany, "{faults}");
}

#[test]
fn a_path_that_leads_nowhere_is_refused() {
    let text = "[[vm]]\nname = \"a\"\ncpus = [0]\n";
    let file = SystemFile::parse(Path::new("x.toml"), text, &catalog()).expect("a file");
    let faults = file.with("vm.b.memory", "16MiB").unwrap_err();
    assert_eq!(faults.0[0].code, Code::NoSuchKey);
}
