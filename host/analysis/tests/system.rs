//! The calls that analyze and plan a system file.

use std::path::Path;
use weir_analysis::{Options, Plan, PlanError, PlanOptions, analyze, plan, verdict::Verdict};
use weir_model::{Catalog, SystemFile};

fn parse(text: &str) -> SystemFile {
    SystemFile::parse(Path::new("system.toml"), text, &Catalog::default()).expect("a system file")
}

fn planned(text: &str) -> Result<Plan, PlanError> {
    plan(&parse(text), &PlanOptions::default())
}

const LOOP: &str = r#"
platform = "rpi4"

[[vm]]
name = "rt"
cpus = [0]
criticality = 1

[[vm.task]]
name = "loop"
wcet = "100us"
period = "1ms"
ACCESSES

[[vm]]
name = "gp"
cpus = [1, 2]
"#;

#[test]
fn a_changed_value_changes_only_the_bounds() {
    let text = r#"
platform = "qemu-virt" # the board
[[vm]]
name = "a"
cpus = [0]
[[vm.task]]
name = "t"
wcet = "1ms"
period = "10ms"
[[vm]]
name = "b"
cpus = [1]
[[flow]]
name = "f"
from = "a"
to = "b"
size = "4KiB"
period = "10ms"
"#;
    let system = parse(text);
    let report = analyze(&system, &Options::default()).expect("a report");
    assert_eq!((report.verdict, report.holds), (Some(Verdict::Holds), Some(true)));
    let response = report.tasks().next().expect("a task").response_ns;
    assert!(response.is_some_and(|response| (1_000_000..10_000_000).contains(&response)));
    let bound = report.flows().next().expect("a flow").bound_ns.expect("a bound");

    let tight = system.with("vm.a.task.t.deadline", "900us").expect("a system file");
    let report = analyze(&tight, &Options::default()).expect("a report");
    assert_eq!(report.verdict, Some(Verdict::DoesNotHold));
    let cause = report.causes().next().expect("a cause");
    assert!(cause.help.is_some() && cause.location().line > 1, "{cause}");
    let text = tight.text().replace("deadline = \"900us\"\n", "");
    assert_eq!(text, system.text(), "one line is new");

    let large = system.with("flow.f.size", "64KiB").expect("a system file");
    let report = analyze(&large, &Options::default()).expect("a report");
    assert!(report.flows().next().and_then(|flow| flow.bound_ns) > Some(bound));
    assert!(system.with("flow.g.size", "64KiB").is_err());
    assert!(system.with("flow.f.size", "much").is_err());
}

/// A packet can wait for one step of the switch, which the broker serves, too.
#[test]
fn a_switch_blocks_packets_for_one_step() {
    let bound = |[a, b]: [&str; 2], more: &str| {
        let text = format!(
            r#"
platform = "qemu-virt"
[[vm]]
name = "a"
cpus = [0]
{a}
[[vm]]
name = "b"
cpus = [1]
{b}
[[flow]]
name = "f"
from = "a"
to = "b"
size = "4KiB"
period = "10ms"
{more}"#
        );
        let report = analyze(&parse(&text), &Options::default()).expect("a report");
        report.flows().next().and_then(|flow| flow.bound_ns).expect("a bound")
    };
    let ports = ["net = { mac = \"52:54:00:00:00:01\" }", "net = { mac = \"52:54:00:00:00:02\" }"];
    let with_switch = bound(ports, "");
    // It blocks like a best-effort chunk of the longest frame, and not like one of the flow's 4
    // KiB.
    let best_effort = |size: &str| {
        let flow = "[[flow]]\nname = \"g\"\nfrom = \"b\"\nto = \"a\"\nbest_effort = true";
        bound(["", ""], &format!("{flow}\nsize = \"{size}\"\n"))
    };
    assert_eq!(with_switch, best_effort("1526B"));
    assert!(bound(["", ""], "") < with_switch && with_switch < best_effort("4KiB"));
}

#[test]
fn a_report_is_the_object_of_the_command_line() {
    // Without a platform the delay by an access of `gp` is not known.
    let text = LOOP.replace("ACCESSES", "").replace("platform = \"rpi4\"", "");
    let report = analyze(&parse(&text), &Options::default());
    let json = serde_json::to_value(report.expect("a report")).expect("JSON");
    assert_eq!((&json["holds"], &json["verdict"]), (&None::<bool>.into(), &"not-judged".into()));
    assert!(json["not_judged"][0]["supply"].is_string(), "{json}");
    let task = &json["time"]["tasks"][0];
    assert_eq!(
        (&task["vm"], &task["name"], &task["deadline_ns"]),
        (&"rt".into(), &"loop".into(), &1_000_000.into())
    );
    assert!(json["flows"].is_null() && json.get("memory").is_none(), "{json}");
}

/// Without `accesses` any budget would do, also one of a single access.
#[test]
fn no_budget_is_chosen_for_a_task_without_accesses() {
    let refused = planned(&LOOP.replace("ACCESSES", ""));
    let Err(PlanError::Faults(faults)) = refused else { panic!("{refused:?}") };
    let fault = &faults.0[0];
    assert_eq!((faults.0.len(), fault.code.name()), (1, "plan-budget"), "{faults}");
    assert!(
        fault.message.contains("task `loop` of vm `rt`: its `accesses` are not known"),
        "{fault}"
    );
    assert!(
        fault.help.as_ref().is_some_and(|help| help.starts_with("add `accesses`")),
        "{fault:?}"
    );

    let plan = planned(&LOOP.replace("ACCESSES", "accesses = 1000")).expect("a plan");
    assert_eq!(plan.report.verdict, Some(Verdict::Holds));
    // 1000 accesses in less than 1 ms, which are some 33 periods of 30 us.
    let budget = plan.choices.vms[0].budget.expect("a budget");
    assert!((31..220).contains(&budget), "{budget}");
}

/// A budget of a longer period than the saturation table's may be spent in one burst, so it is
/// refused, but not as if the burst came in each period of the table.
#[test]
fn a_kept_long_period_is_named_with_the_same_rate() {
    let text = |accesses: u64, period: &str, more: &str| {
        format!(
            "platform = \"zcu102\"\n[[vm]]\nname = \"rt\"\ncpus = [0]\n\
             memory_budget = {{ required = \"20MB/s\" }}\n[[vm]]\nname = \"gp\"\ncpus = [1, 2]\n\
             memory_budget = {{ accesses = {accesses}, period = \"{period}\"{more} }}\n"
        )
    };
    let refused = planned(&text(100_000, "100ms", ""));
    let Err(PlanError::Conflict(conflict)) = refused else { panic!("{refused:?}") };
    let [short] = conflict.shortages.as_slice() else { panic!("{conflict:?}") };
    assert_eq!((short.what.as_str(), short.asked, short.have), ("budget of gp", Some(100_000), 30));
    assert!(
        short.text.ends_with("the same rate is 30 in 30us: write accesses = 50, period = \"30us\""),
        "{}",
        short.text
    );
    // The suggested value has a plan.
    let plan = planned(&text(50, "30us", "")).expect("a plan");
    assert_eq!(plan.report.verdict, Some(Verdict::Holds));
    // 600 in 30 us at its rate: that is too much as well.
    let refused = planned(&text(2_000_000, "100ms", ""));
    let Err(PlanError::Conflict(conflict)) = refused else { panic!("{refused:?}") };
    let sums: Vec<_> = conflict.shortages.iter().map(|short| (&*short.what, short.asked)).collect();
    assert_eq!(sums, [("budget of gp", Some(2_000_000)), ("budgets", Some(650))]);
}

/// A budget of instructions leaves the accesses unlimited: their sum must not wrap.
#[test]
fn unlimited_budgets_are_added_without_wrapping() {
    let text = r#"
[[vm]]
name = "a"
memory_budget = { accesses = 1000, period = "1ms" }

[[vm]]
name = "b"
memory_budget = { accesses = 1000, period = "1ms", event = "inst-retired" }
"#;
    let plan = planned(text).expect("a plan");
    assert_eq!(plan.choices.vms.len(), 2);
}
