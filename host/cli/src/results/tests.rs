use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use weir_experiments::{
    Method,
    coverage::paper_results,
    statement::{
        DeviationRecord, StatementCounts, StatementKind, StatementRecord, StatementVerdict,
    },
};
use weir_runner::report::End;

fn results(files: &[(&str, Value)]) -> (tempfile::TempDir, Results) {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, json) in files {
        fs::write(folder.path().join(name), json.to_string()).expect("a file");
    }
    let results = Results { folder: folder.path().to_owned() };
    (folder, results)
}

#[test]
fn a_table_is_written_between_its_lines() {
    let mapping = json!([{
        "mib": 64, "native_instructions": 174_272, "colored_instructions": 177_837,
        "ratio": 1.0204, "native_setup_instructions": 1, "colored_setup_instructions": 2,
        "ratio_with_setup": 1.0, "block_instructions": 359, "ratio_by_calls": 2.0,
        "native_instructions_by_calls": 1, "colored_instructions_by_calls": 2,
    }]);
    let (_folder, results) = results(&[("mapping.json", mapping)]);
    let page = "# Page\n\n<!-- results: mapping -->\nold\n<!-- end -->\nend\n";
    let filled = filled(page, &results).expect("a page");
    assert!(filled.starts_with("# Page\n\n<!-- results: mapping -->\n\n| MiB |"), "{filled}");
    assert!(filled.contains("\n| 64 | 174,272 | 177,837 | 1.020 |"), "{filled}");
    assert!(filled.ends_with("| 359 | 2.000 |\n\n<!-- end -->\nend\n"), "{filled}");
    assert_eq!(super::filled(&filled, &results).expect("the same"), filled);
}

#[test]
fn tables_of_the_engine_have_dashes_and_units() {
    let phase = |name: &str, paper: Value, engine: Value| {
        json!({
            "name": name, "action": "act", "paper": paper, "core": null, "engine": engine,
            "memory": null,
        })
    };
    let open = json!({ "min": 4, "max": 65_535, "max_or_more": true });
    let run = |path: &str, others: &str, verdict: &str| {
        json!({
            "path": path, "others": others, "period_ns": 128_000,
            "packets": 1000, "lost": 0, "late": 0,
            "observed_max_ns": 61_414, "bound_ns": 82_302, "verdict": verdict,
        })
    };
    let copy = |size: u64, core: u64, transfer: Option<u64>| {
        json!({
            "size": size, "core_ns": core, "engine_calls_ns": 20, "engine_transfer_ns": transfer,
            "engine_ns": transfer.map(|transfer| 20 + transfer),
        })
    };
    let engine = json!({
        "build": null,
        "table2": [
            phase("hc", json!({ "min": 939, "max": 949 }), json!({ "min": 164, "max": 166 })),
            phase("br", Value::Null, open),
        ],
        "table3": [{
            "bandwidth": 148_000_000, "size": 12_288, "measured_ns": 99_818,
            "published_ns": 103_171, "printed_ns": 103_645, "table3_ns": 103_171,
            "runs": [
                run("broker", "active", "does-not-hold"),
                run("dma", "active", "holds"),
                run("dma", "quiet", "holds"),
            ],
        }],
        "copies": [copy(64, 10, Some(1)), copy(128, 30, None)],
    });
    let (_folder, results) = results(&[("engine.json", engine)]);
    let lines = |name: &str| {
        let table = results.table(name).expect("a table");
        table.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("table2"),
        [
            "| hc | act | 939 | 949 | - | - | 164 | 166 | - | - |",
            "| br | act | - | - | - | - | 4 | 65,535 or more | - | - |",
            "| sum | a packet of one chunk: hc to ip, and wake | 939 | 949 | - | - | 164 | 166 | - | - |",
        ]
    );
    assert_eq!(lines("table3"), ["| 148 | 12 | 99,818 | 103,171 | 103,171 | 103,645 |"]);
    assert_eq!(
        lines("table3-runs"),
        [
            "| the engine | do nothing | holds | 148 | 12 | 128,000 | 103,171 | 1.24 | 1,000 | 61,414 | 82,302 |",
            "| the engine | do what they may | holds | 148 | 12 | 128,000 | 103,171 | 1.24 | 1,000 | 61,414 | 82,302 |",
            "| the core | do what they may | does not hold | 148 | 12 | 128,000 | 103,171 | 1.24 | 1,000 | 61,414 | 82,302 |",
        ]
    );
    assert_eq!(lines("copies"), ["| 64 | 10 | 20 | 1 | 21 |", "| 128 | 30 | 20 | - | - |"]);
}

#[test]
fn figures_of_another_build_are_listed() {
    let of = |name: &str| match name {
        "flows" => json!({ "build": "b0" }),
        "attacks" => json!({}),
        _ => json!({ "build": "a1" }),
    };
    let (folder, results) = results(&[]);
    fs::create_dir(folder.path().join("reproduce")).expect("a directory");
    for name in of_a_build() {
        let path = folder.path().join(&name).with_extension("json");
        fs::write(path, of(&name).to_string()).expect("a file");
    }
    let others = results.of_other_builds("a1").expect("the files");
    let expected =
        [("attacks", "an unknown build of the hypervisor"), ("flows", "the hypervisor's build b0")];
    assert_eq!(others, expected.map(|(name, what)| (name.to_owned(), what.to_owned())));
}

#[test]
fn a_wrong_table_is_refused() {
    let (_folder, results) = results(&[]);
    for (page, why) in [
        ("<!-- results: nothing -->\n<!-- end -->\n", "is named nothing"),
        ("<!-- results: mapping -->\n", "no line <!-- end -->"),
        ("<!-- results: mapping -->\n<!-- end -->\n", "mapping.json"),
    ] {
        let failure = filled(page, &results).expect_err("a failure");
        assert!(failure.text.contains(why), "{}", failure.text);
    }
}

/// The published figures of the hypervisor.
fn hypervisor_figures() -> Figures {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    Results { folder }.file("hypervisor").expect("the results")
}

#[test]
fn paths_with_gicv2_have_a_table_of_their_own() {
    let mut figures = hypervisor_figures();
    let gicv2 = &mut figures.gicv2;
    for (path, median) in [("timer_irq", 102), ("sgi_receive", 808)] {
        gicv2.el2_instructions.get_mut(path).expect("a path").median = median;
    }
    gicv2.barriers.insert("timer_irq".to_owned(), 1);
    gicv2.device_accesses.insert("timer_irq".to_owned(), 4);
    let table = paths_gicv2(&figures).0.markdown();
    assert!(table.starts_with("| path | weir | Bao | weir/Bao | barriers | device |\n"));
    let timer = "| virtual timer interrupt to the guest | 102 | 204 | 0.50 | 1 | 4 |";
    assert!(table.contains(timer), "{table}");
    assert!(table.contains("receiver** | **808** | **432** | **1.87** |"), "{table}");
    assert!(!table.contains("IROUTER"), "{table}");
}

#[test]
fn figures_above_the_peer_are_bold() {
    assert_eq!(compared("a", 1250, Some(1000)), ["**a**", "**1,250**", "**1,000**", "**1.25**"]);
    assert_eq!(compared("a", 500, Some(1000)), ["a", "500", "1,000", "0.50"]);
    assert_eq!(compared("a", 1_234_567, None), ["a", "1,234,567", "-", "-"]);
}

#[test]
fn losses_are_in_the_table_of_their_tests() {
    let loss = |attacker: &str, measured: u64| {
        json!({
            "attacker": attacker, "core": "own", "what": "ns", "measured": measured, "limit": 9,
        })
    };
    let attacks = json!({ "version": 1, "tests": [
        { "test": "qemu_attacks_budgets::b", "losses": [loss("spender", 1)] },
        { "test": "qemu_attacks_time::t", "losses": [loss("storm", 1_000), loss("calm", 0)] },
    ]});
    let (_folder, results) = results(&[("attacks.json", attacks)]);
    let table = results.table("attacks time").expect("a table");
    let rows: Vec<_> = table.lines().skip(2).collect();
    assert_eq!(
        rows,
        ["| `storm` | own | `t` | ns | 1,000 | 9 |", "| `calm` | own | `t` | ns | 0 | 9 |"]
    );
    assert!(results.table("attack").is_err());
}

#[test]
fn a_deviation_counts_its_statements_once() {
    let known = DeviationRecord {
        id: "late".to_owned(),
        reason: "the model starts later".to_owned(),
        tested_by: vec!["soon".to_owned()],
    };
    let statement = |kind, verdict| StatementRecord {
        id: String::new(),
        kind,
        paper: String::new(),
        place: String::new(),
        text: String::new(),
        published: None,
        expected: String::new(),
        own: Vec::new(),
        unit: String::new(),
        fitted: None,
        verdict,
        deviation: (verdict == StatementVerdict::Known).then(|| known.clone()),
    };
    let published = |verdict| statement(StatementKind::Published, verdict);
    let report = ExperimentReport {
        experiment: "x".to_owned(),
        method: Method::RealBinary,
        build: None,
        counts: BTreeMap::new(),
        statements: vec![
            published(StatementVerdict::Holds),
            published(StatementVerdict::Known),
            published(StatementVerdict::Known),
            statement(StatementKind::Own, StatementVerdict::Fails),
        ],
        as_expected: false,
        failures: Vec::new(),
        figures: serde_json::Map::new(),
        files: Vec::new(),
    };
    let lines = |rows: Rows| -> Vec<String> {
        rows.0.markdown().lines().skip(2).map(str::to_owned).collect()
    };
    let all = [report];
    assert_eq!(
        lines(reproduced::experiments(&all)),
        [
            "| `x` | real binary | published | 3 | 1 | 2 | 0 |",
            "| `x` | real binary | own | 1 | 0 | 0 | 1 |",
            "| all |  | published | 3 | 1 | 2 | 0 |",
            "| all |  | cross-check | 0 | 0 | 0 | 0 |",
            "| all |  | own | 1 | 0 | 0 | 1 |",
        ]
    );
    let deviations = lines(reproduced::deviations(&all));
    assert_eq!(deviations, ["| `x` | `late` | 2 | the model starts later | `soon` |"]);
}

/// Returns what the experiments published.
fn published_results() -> Vec<ExperimentReport> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    Results { folder }.reproduced().expect("the results")
}

#[test]
fn each_published_result_counts_its_kinds() {
    for report in published_results() {
        let name = report.experiment.as_str();
        let method = EXPERIMENTS.iter().find(|each| each.name == name).map(|each| each.method);
        assert_eq!(Some(report.method), method, "{name}");
        let counted: usize = report.counts.values().map(|of| of.statements).sum();
        assert_eq!(counted, report.statements.len(), "{name}");
        let page = reproduced::experiments(std::slice::from_ref(&report)).0.markdown();
        for (kind, of) in &report.counts {
            let StatementCounts { statements, hold, known_deviations, fail } = of;
            let row = format!(
                "| {} | {statements} | {hold} | {known_deviations} | {fail} |",
                kind.name()
            );
            assert!(page.contains(&row), "{name}: {row}\n{page}");
        }
        for statement in &report.statements {
            let is_own = statement.kind == StatementKind::Own;
            let is_fitted = statement.fitted.is_some();
            assert!(is_own || !is_fitted, "{statement:?}");
            assert_eq!(statement.paper == "weir" || is_fitted, is_own, "{statement:?}");
        }
    }
}

#[test]
fn covered_figures_have_published_statements() {
    let all = published_results();
    let published = |report: &ExperimentReport| -> Vec<StatementRecord> {
        let its = report.statements.iter();
        its.filter(|it| it.kind == StatementKind::Published).cloned().collect()
    };
    for (paper, result) in paper_results() {
        let judges = |report: &&ExperimentReport| {
            let mut its = published(report).into_iter();
            its.any(|it| it.paper == paper && reproduced::is_on(&it, result.place))
        };
        let mut judging: Vec<_> =
            all.iter().filter(judges).map(|report| report.experiment.as_str()).collect();
        let mut listed: Vec<_> = result.experiments().map(|each| each.name).collect();
        listed.sort_unstable();
        judging.sort_unstable();
        assert_eq!(judging, listed, "{paper}, {}", result.place);
    }
    // And no statement names a figure or table that is not in the list.
    for statement in all.iter().flat_map(published) {
        let place = &statement.place;
        let mut results = paper_results().filter(|(paper, _)| statement.paper == *paper);
        let named = place.contains("Figure") || place.contains("Table");
        let found = results.any(|(_, result)| reproduced::is_on(&statement, result.place));
        assert_eq!(named, found, "{statement:?}");
    }
}

#[test]
fn the_terminal_gets_the_tables_of_the_page() {
    let tables = of_hypervisor(&hypervisor_figures());
    for part in [
        "virtual timer interrupt to the guest",
        "read of GICD_ISENABLER0",
        "`vcpu_switch`",
        "boot without clearing RAM",
        "zeroed data and stacks",
        "weir_hypervisor::vm::VMS",
        "flows-mesh",
    ] {
        assert!(tables.contains(part), "{part}: {tables}");
    }
}

#[test]
fn flows_that_are_alike_are_one_line() {
    let flow = |name: &str, observed_max_ns: u64, bound: u64| MeasuredFlow {
        name: name.to_owned(),
        packets: 20,
        lost: 0,
        late: 0,
        deadline_ns: Some(1000),
        bound_ns: Some(bound),
        quiet_bound_ns: Some(150),
        observed_max_ns,
        verdict: Some(Verdict::Holds),
        reason: None,
    };
    let lazy = MeasuredFlow {
        packets: 4,
        deadline_ns: None,
        bound_ns: None,
        quiet_bound_ns: None,
        verdict: None,
        ..flow("lazy", 7, 0)
    };
    let system = |name: &str, flows: Vec<MeasuredFlow>| SystemRun {
        system: name.to_owned(),
        platform: None,
        status: 0,
        ended_by: End::SystemStop,
        verdict: None,
        flows,
        others: Vec::new(),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut report: FlowsBench = Results { folder }.file("flows").expect("the results");
    let four = [90, 100, 80, 70].map(|most| flow("n", most, 300)).into();
    report.systems = vec![system("mesh", four), system("one", vec![flow("m", 100, 310), lazy])];
    let table = flows(&report).0.markdown();
    assert_eq!(
        table.lines().skip(2).collect::<Vec<_>>(),
        [
            "| `mesh` | 4, each | holds | 20 | 0 | 0 | 1,000 | 300 | 150 | 70 to 100 | 3.00 | 1.50 |",
            "| `one` | `m` | holds | 20 | 0 | 0 | 1,000 | 310 | 150 | 100 | 3.10 | 1.50 |",
            "| `one` | `lazy` | - | 4 | 0 | 0 | - | - | - | 7 | - | - |",
        ]
    );
}
