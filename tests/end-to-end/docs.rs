//! The documentation: its links, its generated pages and the example that it computes.

use crate::support::{checkout::root, schema::valid};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn weir(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Adds the Markdown files below a directory.
fn pages_below(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages_below(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

fn pages() -> Vec<PathBuf> {
    let names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    let mut pages: Vec<_> = names.iter().map(|name| root().join(name)).collect();
    for directory in ["docs", "examples"] {
        pages_below(&root().join(directory), &mut pages);
    }
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The text outside of code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// The targets of the links of a page.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let behind = prose.split("](").skip(1);
    let targets = behind.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let mut links = 0;
    for page in pages() {
        let text = read(&page);
        for target in targets(&text) {
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let there = if file.is_empty() {
                page.clone()
            } else {
                page.parent().expect("a folder").join(file)
            };
            assert!(there.exists(), "{}: no {target}", page.display());
            if !anchor.is_empty() {
                let anchors = anchors(&read(&there));
                assert!(anchors.contains(anchor), "{}: {target} of {anchors:?}", page.display());
            }
        }
    }
    assert!(links > 100, "{links} links");
}

#[test]
fn the_summary_lists_every_page() {
    let docs = root().join("docs");
    let listed: BTreeSet<_> =
        targets(&read(&docs.join("SUMMARY.md"))).into_iter().map(|page| docs.join(page)).collect();
    let mut there = Vec::new();
    pages_below(&docs, &mut there);
    for page in there.iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        assert!(listed.contains(page), "{} is not in SUMMARY.md", page.display());
    }
}

#[test]
fn each_board_has_a_readme() {
    let boards = fs::read_dir(root().join("boards")).expect("boards");
    for board in boards {
        let board = board.expect("an entry").path();
        assert!(board.join("README.md").is_file(), "{}", board.display());
    }
}

#[test]
fn the_generated_pages_are_up_to_date() {
    let (status, _, error) = weir(&["reference", "--check", "docs/reference/generated"]);
    assert_eq!(status, Some(0), "{error}");
}

/// Those that need QEMU are compared where they are tested.
#[test]
fn outputs_are_as_their_schema_describes_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let flows = "examples/flows-mmio/flows-mmio.toml";
    let requests = file("requests", "R 0x0\nW 0x40\n");
    let colored = "examples/isolation-colors-on/isolation-colors-on.toml";
    let short = ["--for", "200us", "--warm-up", "10us"];
    let [isolation, messages] =
        ["isolation", "flows"].map(|name| format!("tests/systems/simulate-{name}.toml"));
    let simulate = |system: &str, more: &[&str]| {
        [&["simulate", "run", system], &short[..], more].concat().join(" ")
    };
    for (command, call) in [
        ("check", format!("check {flows} {colored} {isolation} nowhere.toml")),
        ("plan", format!("plan {flows}")),
        ("plan", "plan nowhere.toml".to_owned()),
        ("analyze", format!("analyze {flows}")),
        ("analyze", "analyze nowhere.toml".to_owned()),
        ("build", "build nowhere.toml".to_owned()),
        ("run", "run nowhere.toml".to_owned()),
        ("simulate run", simulate(&isolation, &[])),
        ("simulate run", simulate(&messages, &[])),
        ("simulate run --compare", simulate(&isolation, &["--compare"])),
        ("simulate dram", format!("simulate dram {requests} --memory ddr4-2400")),
        ("reproduce", "reproduce".to_owned()),
        ("reproduce --list", "reproduce --list".to_owned()),
        ("platforms", "platforms".to_owned()),
        ("explain", "explain".to_owned()),
    ] {
        let words: Vec<_> = call.split(' ').chain(["--json"]).collect();
        valid(command, &weir(&words).1);
    }
    let output = directory.path().to_str().expect("UTF-8");
    let experiment = ["reproduce", "rt-virtio-table3", "-o", output, "--json"];
    valid("reproduce EXPERIMENT", &weir(&experiment).1);
    // One of the experiments, which takes no time.
    let list: Value = serde_json::from_str(&weir(&["reproduce", "--json"]).1).expect("JSON");
    let experiments = list.as_array().expect("experiments");
    let at = experiments.iter().position(|each| each["name"] == "rt-virtio-table3");
    let shard = format!("{}/{}", at.expect("an experiment") + 1, experiments.len());
    valid("reproduce --all", &weir(&["reproduce", "--all", "--shard", &shard, "--json"]).1);
    for name in ["hypervisor", "engine", "flows", "mapping", "clock", "memory"] {
        let results = root().join("docs/results").join(name).with_extension("json");
        valid(&format!("bench {name}"), &read(&results));
    }
}

/// No flow, task, interrupt or budget of a published run misses its bound or its deadline.
#[test]
fn what_the_pages_publish_of_runs_holds() {
    let flows: Value =
        serde_json::from_str(&read(&root().join("docs/results/flows.json"))).expect("JSON");
    let systems = flows["systems"].as_array().expect("systems");
    assert!(systems.len() > 20, "{}", systems.len());
    for system in systems {
        assert_eq!(system["status"], 0, "{system}");
        let rows = ["flows", "others"].map(|rows| system[rows].as_array().expect("rows"));
        for row in rows.into_iter().flatten() {
            let judged = row.get("verdict").expect("a verdict").as_str();
            let has_limit =
                ["deadline_ns", "bound_ns", "bound"].iter().any(|key| row[key].is_u64());
            assert_eq!(judged, has_limit.then_some("holds"), "{}: {row}", system["system"]);
        }
    }
}

/// The table of the suite by board has tests of today.
#[test]
fn the_table_of_boards_names_tests_that_exist() {
    let page = read(&root().join("docs/results/boards.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let tests: Vec<_> = rows.filter_map(|(name, _)| name.split_once("::")).collect();
    assert!(tests.len() > 100, "{}", tests.len());
    for (file, test) in tests {
        let sources = root().join("tests/end-to-end").join(file).with_extension("rs");
        let exists = read(&sources).contains(&format!("fn {test}("));
        assert!(exists, "{file}::{test} is gone: ./weir test qemu --platform .. --table");
    }
}

#[test]
fn the_measured_tables_are_those_of_the_results() {
    let (status, out, error) = weir(&["results", "--check"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(out.contains(" tables"), "{out}");
}

#[test]
fn the_plans_of_the_examples_are_up_to_date() {
    let directory = tempfile::tempdir().expect("a directory");
    let drawn = directory.path().join("plan.svg");
    let mut plans = 0;
    for example in fs::read_dir(root().join("examples")).expect("examples") {
        let example = example.expect("an entry").path();
        let plan = example.join("plan.svg");
        if !plan.exists() {
            continue;
        }
        let name = example.file_name().and_then(|name| name.to_str()).expect("a name");
        let file = format!("examples/{name}/{name}.toml");
        let (status, _, error) = weir(&["check", &file, "-o", drawn.to_str().expect("UTF-8")]);
        assert_eq!(status, Some(0), "{error}");
        let command = format!("weir check {file} -o examples/{name}/plan.svg");
        assert!(read(&plan) == read(&drawn), "the plan is out of date: {command}");
        plans += 1;
    }
    assert!(plans >= 10, "{plans} plans");
}

#[test]
fn a_stale_generated_page_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    assert_eq!(weir(&["reference", path]).0, Some(0));
    assert_eq!(weir(&["reference", "--check", path]).0, Some(0));
    fs::write(directory.path().join("command-line.md"), "# Command line\n").expect("written");
    let (status, _, error) = weir(&["reference", "--check", path]);
    assert_eq!(status, Some(1));
    assert!(error.contains("command-line.md is not what"), "{error}");
}

/// The worked example of the theory page, against the analysis.
#[test]
fn the_worked_example_has_the_numbers_of_analyze() {
    let (_, out, error) = weir(&["analyze", "tests/systems/simulate-flows.toml", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{error}"));
    let flows = &json["flows"];
    let task = &flows["tasks"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{json}"));
    let page = read(&root().join("docs/theory/analysis.md"));
    let line = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name) && line.contains('='));
        line.unwrap_or_else(|| panic!("no line {name}")).to_owned()
    };
    for (name, value) in [
        ("j_ns", format!("{:.0}", number(&task["j_ns"]))),
        ("c_ns, q_ns", format!("{:.2}", number(&task["c_ns"]))),
        ("d_ns", format!("{:.0}", number(&task["d_ns"]))),
        ("p_ns", format!("{:.0}", number(&task["p_ns"]))),
        ("slack_ns", format!("{:.1}", number(&task["slack_ns"]))),
        ("end_to_end_ns", format!("{:.0}", number(&task["end_to_end_ns"]))),
        ("utilization", format!("{:.6}", number(&flows["utilization"]))),
        ("min_bandwidth", format!("{:.0}", number(&flows["min_bandwidth"]))),
    ] {
        let line = line(name);
        let shown = line.split(['=', ' ']).any(|word| word == value);
        assert!(shown, "{line}: analyze says {value}");
    }
}

/// The words of the line of `text` that begins with `name`, behind `after`.
fn row<'a>(text: &'a str, after: &str, name: &str) -> Vec<&'a str> {
    let rest = text.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {text}")).1;
    let row = rest.lines().find(|line| line.split_whitespace().next() == Some(name));
    row.unwrap_or_else(|| panic!("no row {name} behind {after:?}")).split_whitespace().collect()
}

/// The tutorial about messages, against the commands that it shows and the results of its run.
#[test]
fn the_tutorial_has_the_figures_of_its_commands() {
    let system = "examples/flows-mmio/flows-mmio.toml";
    let page = read(&root().join("docs/tutorials/message-with-deadline.md"));
    let (_, out, error) = weir(&["analyze", system]);
    let analyzed = row(&page, "C' ns", "messages");
    assert_eq!(analyzed, row(&out, "C' ns", "messages"), "{error}");
    let [.., of_analysis] = analyzed[..] else { panic!("{page}") };

    let results: Value =
        serde_json::from_str(&read(&root().join("docs/results/flows.json"))).expect("JSON");
    let systems = results["systems"].as_array().expect("systems");
    let its = systems.iter().find(|one| one["system"] == "flows-mmio").expect("its run");
    let of_run = |key: &str| its["flows"][0][key].as_u64().expect("a number").to_string();
    let [_, packets, lost, _, _, _, _, max, _, bound, of_bound, verdict] =
        row(&page, "p99 ns", "messages")[..]
    else {
        panic!("{page}");
    };
    let shown = [packets, lost, max, bound];
    assert_eq!(shown, ["packets", "lost", "observed_max_ns", "bound_ns"].map(of_run));
    assert_eq!((bound, verdict), (of_analysis, "holds"));
    let number = |text: &str| text.parse::<u64>().expect("a number");
    // Rounded down, as by `weir run`.
    assert_eq!(of_bound, format!("0.{:03}", 1000 * number(max) / number(bound)));
    assert!(page.contains(&format!("is {of_bound} of the bound")), "{of_bound}");

    let directory = tempfile::tempdir().expect("a directory");
    let late = directory.path().join("late.toml");
    fs::write(&late, read(&root().join(system)).replace("500us", "5us")).expect("written");
    let (_, out, error) = weir(&["check", late.to_str().expect("UTF-8")]);
    let fault = page.lines().find(|line| line.contains("the overheads leave")).expect("a fault");
    let fault = fault.trim_start_matches([' ', 'x']);
    assert!(format!("{out}{error}").contains(fault), "{fault}: {out}{error}");
    let jitter: f64 = analyzed[4].parse().expect("a number");
    assert!(page.contains(&format!("J' = {:.1} us is above", jitter / 1000.0)), "{jitter}");

    let (_, out, error) = weir(&["plan", system]);
    let plan = page.split_once("[dma]\n").expect("a plan").1.lines();
    for line in plan.take_while(|line| *line != "```") {
        assert!(out.lines().any(|planned| planned == line), "{line}: {out}{error}");
    }
}

/// The tutorial about a shared core, against the commands that it shows.
#[test]
fn the_shared_core_has_the_figures_of_its_commands() {
    let page = read(&root().join("docs/tutorials/two-vms-one-core.md"));
    let block = page.split_once("```toml\n").expect("a system").1;
    let system = block.split_once("```").expect("its end").0;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("shared.toml");
    let file_name = file.to_str().expect("UTF-8");
    fs::write(&file, system).expect("written");
    let (_, out, error) = weir(&["check", file_name]);
    let fault = page.lines().find(|line| line.contains("its deadline is")).expect("a fault");
    assert!(format!("{out}{error}").contains(fault.trim_start()), "{fault}: {out}{error}");

    fs::write(&file, system.replace("quantum = \"1ms\"", "quantum = \"250us\"")).expect("written");
    let (_, out, error) = weir(&["analyze", file_name]);
    let lines = page.lines().skip_while(|line| !line.contains("after ns"));
    let shown: Vec<_> = lines.take_while(|line| *line != "```").collect();
    assert!(shown.len() > 4, "{shown:?}");
    for line in shown {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = |printed: &str| printed.split_whitespace().eq(words.iter().copied());
        assert!(out.lines().any(is_it), "{line}: {out}{error}");
    }
}

#[test]
fn completions_and_man_pages_name_every_verb() {
    let (status, bash, _) = weir(&["completions", "bash"]);
    assert_eq!(status, Some(0));
    assert!(bash.contains("calibrate") && bash.contains("simulate"), "{bash}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    assert_eq!(weir(&["man", path]).0, Some(0));
    for page in ["weir.1", "weir-check.1", "weir-simulate-dram.1"] {
        let text = read(&directory.path().join(page));
        assert!(text.contains(".TH"), "{page}: {text}");
    }
}
