//! `weir plan` chooses schedules of shared cores.

use crate::{
    checkout,
    support::{analyze, conflict, guests, plan, plan_within, planned},
};
use proptest::prelude::*;
use weir_analysis::{
    CoreChoice, Nanos, PlanError, PlanOptions, ScheduleChoice, ServerChoice, SlotChoice,
    verdict::Verdict::Holds,
};
use weir_model::SystemFile;

/// Returns the table of a VM on core 0 with tasks of these names, times and periods in us.
fn vm(name: &str, tasks: &[(&str, u64, u64)]) -> String {
    let task = |(task, wcet, period): &(&str, u64, u64)| {
        format!("[[vm.task]]\nname = \"{task}\"\nwcet = \"{wcet}us\"\nperiod = \"{period}us\"\n")
    };
    let tasks: String = tasks.iter().map(task).collect();
    format!("[[vm]]\nname = \"{name}\"\ncpus = [0]\n{tasks}")
}

fn system(vms: &[String]) -> String {
    format!("platform = \"qemu-virt\"\n{}", vms.concat())
}

fn servers(cores: &[CoreChoice]) -> &[ServerChoice] {
    match cores {
        [CoreChoice { schedule: ScheduleChoice::FixedPriority { servers }, .. }] => servers,
        other => panic!("{other:?}"),
    }
}

/// Slots do not move, so a VM waits for one gap and not for two.
#[test]
fn where_servers_do_not_fit_a_time_table_does() {
    let text = system(&[
        vm("motor", &[("loop", 500, 1000)]),
        vm("vision", &[("frame", 6000, 20000)]),
        vm("linux", &[]),
    ]);
    let plan = plan(&text).unwrap();
    assert_eq!(plan.report.verdict, Some(Holds));
    let [CoreChoice { schedule: ScheduleChoice::Table { slots, major_frame_ns }, .. }] =
        &plan.choices.cores[..]
    else {
        panic!("{:?}", plan.choices.cores)
    };
    assert_eq!(slots.iter().map(|slot| slot.length_ns).sum::<u64>() / 1000, major_frame_ns / 1000);
    let text = plan.file.text();
    let SlotChoice { length_ns, .. } = slots[0];
    let less = text.replace(&Nanos(length_ns).to_string(), &Nanos(length_ns - 1000).to_string());
    assert_ne!((text, analyze(&less).0), (less.as_str(), Some(Holds)));
}

#[test]
fn a_core_of_several_vms_gets_servers() {
    let text = system(&[
        vm("linux", &[]),
        vm("motor", &[("loop", 200, 1000)]),
        vm("brake", &[("check", 300, 5000), ("log", 400, 20000)]),
    ]);
    let plan = plan(&text).unwrap();
    assert_eq!(plan.report.verdict, Some(Holds));
    assert_eq!(analyze(plan.file.text()).0, Some(Holds));
    // The most urgent one first, and the one without a task last.
    let chosen = servers(&plan.choices.cores);
    let names: Vec<_> = chosen.iter().map(|server| server.vm.as_str()).collect();
    assert_eq!(names, ["motor", "brake", "linux"]);
    // Nothing is left to choose.
    assert_eq!(planned(plan.file.text()), plan.file.text());
    // Each budget with a demand is the least one.
    for ServerChoice { vm, budget_ns, period_ns } in &chosen[..2] {
        let at = |budget: u64| {
            let (budget, period) = (Nanos(budget), Nanos(*period_ns));
            format!("{{ vm = \"{vm}\", budget = \"{budget}\", period = \"{period}\" }}")
        };
        let text = plan.file.text();
        assert!(text.contains(&at(*budget_ns)), "{text}");
        let less = text.replace(&at(*budget_ns), &at(budget_ns - 1000));
        assert_ne!(analyze(&less).0, Some(Holds), "{vm}");
    }
}

#[test]
fn schedules_that_are_given_are_kept() {
    let given = "[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";
    let text = system(&[vm("a", &[]), vm("b", &[]), given.to_owned()]);
    assert!(plan(&text).unwrap().choices.cores.is_empty());
    assert_eq!(planned(&text), text);
}

#[test]
fn what_was_written_keeps_its_lines() {
    let text = system(&[vm("a", &[("t", 100, 1000)]), vm("b", &[])]);
    let unix = planned(&text);
    assert!(unix.starts_with(&text));
    assert_eq!(planned(&text.replace('\n', "\r\n")), unix.replace('\n', "\r\n"));
}

#[test]
fn tasks_that_cannot_share_a_core_are_named() {
    let text = system(&[
        vm("slow", &[("small", 10, 10000)]),
        vm("a", &[("half", 520, 1000)]),
        vm("b", &[("other", 520, 1000), ("tiny", 1, 10000)]),
    ]);
    let conflict = conflict(&text);
    assert_eq!(conflict.demands, ["task `half` of vm `a`", "task `other` of vm `b`"]);
    assert!(conflict.minimal);
    let text = &conflict.shortages[0].text;
    assert!(text.starts_with("core 0: a needs ") && text.contains("together 1"), "{text}");
}

#[test]
fn a_task_that_fits_no_server_is_named() {
    let conflict = conflict(&system(&[vm("a", &[("full", 999, 1000)]), vm("b", &[])]));
    assert_eq!(conflict.demands, ["task `full` of vm `a`"]);
}

#[test]
fn the_effort_of_schedules_is_limited() {
    let text = system(&[vm("a", &[("t", 100, 1000)]), vm("b", &[("u", 100, 1000)])]);
    assert!(matches!(plan_within(100_000, &text), Err(PlanError::GaveUp)));
}

/// The example's flow to an RTOS that shares its core holds with a planned schedule, too.
#[test]
fn a_flow_to_a_shared_core_gets_a_schedule() {
    let text = std::fs::read_to_string(checkout::root().join("examples/setpoints/setpoints.toml"));
    let text = text.unwrap();
    let (before, core) = text.split_once("[[core]]").unwrap();
    let (_, after) = core.split_once("] }\n").unwrap();
    let text = format!("{before}{after}");
    let file = SystemFile::parse(&checkout::root().join("x.toml"), &text, &guests()).unwrap();
    let plan = weir_analysis::plan(&file, &PlanOptions::default()).unwrap();
    assert_eq!(plan.report.verdict, Some(Holds));
    assert_eq!(servers(&plan.choices.cores)[0].vm, "rtos");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A plan is a system that holds, and where there is none, each of the named tasks is needed for
    /// that.
    #[test]
    fn plans_hold_and_conflicts_are_minimal(
        tasks in prop::collection::vec((1_u64..60, prop::sample::select(vec![1_u64, 2, 5, 10])), 2..4)
    ) {
        let names = ["t0", "t1", "t2"];
        let vms: Vec<_> = tasks
            .iter()
            .zip(names)
            .map(|((percent, period), name)| vm(name, &[("t", percent * period * 10, period * 1000)]))
            .collect();
        let text = system(&vms);
        match plan_within(PlanOptions::default().max_steps, &text) {
            Ok(plan) => prop_assert_eq!(analyze(plan.file.text()).0, Some(Holds)),
            Err(PlanError::Conflict(conflict)) => {
                prop_assert!(conflict.minimal && !conflict.demands.is_empty());
                for demand in &conflict.demands {
                    let without = tasks.iter().zip(names).map(|((percent, period), name)| {
                        let named = format!("task `t` of vm `{name}`");
                        let is_kept = *demand != named && conflict.demands.contains(&named);
                        let task = ("t", percent * period * 10, period * 1000);
                        vm(name, if is_kept { std::slice::from_ref(&task) } else { &[] })
                    });
                    let without = system(&without.collect::<Vec<_>>());
                    prop_assert!(plan(&without).is_ok(), "{}\n{}", demand, without);
                }
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
