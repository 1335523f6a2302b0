//! What `analyze` and `check` promise of budgets holds under every regulator and for every setting
//! that a guest may choose; and what `plan` writes, both take.

use crate::{
    support::{analyze, causes, check, plan, planned},
    texts::SATURATION,
};
use proptest::prelude::*;
use serde_json::Value;
use weir_analysis::verdict::Verdict::{DoesNotHold, Holds, NotJudged};

/// A VM with this `memory_budget` on `cpus`.
pub fn vm(name: &str, cpus: &str, bandwidth: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ncpus = [{cpus}]\nmemory = \"16MiB\"\n\
         image = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\nmemory_budget = {{ {bandwidth} }}\n"
    )
}

/// VMs a, b, .. on a core each.
pub fn system(bandwidths: &[&str]) -> String {
    let vms = bandwidths.iter().zip(["a", "b", "c"]).enumerate();
    let vms = vms.map(|(core, (bandwidth, name))| vm(name, &core.to_string(), bandwidth));
    format!("platform = \"qemu-virt\"\n{}{SATURATION}", vms.collect::<String>())
}

/// The memory part of the analysis.
fn memory(bandwidths: &[&str]) -> Value {
    analyze(&system(bandwidths)).1["memory"].take()
}

/// Why the budgets do not hold, in one line; empty if they do.
fn reasons(memory: &Value) -> String {
    let reasons: Vec<_> = memory["reasons"].as_array().unwrap().iter().collect();
    assert_eq!(memory["holds"], reasons.is_empty());
    reasons.iter().map(|reason| reason.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

const STATIC: &str = "accesses = 50, period = \"30us\"";

#[test]
fn spare_sharing_has_no_limit() {
    let spare = "accesses = 50, period = \"30us\", regulator = \"memguard\", spare = true";
    let found = reasons(&memory(&[spare, spare]));
    assert!(found.contains("vm `a` (`spare`") && found.contains("vm `b` (`spare`"), "{found}");
    let without = spare.replace(", spare = true", "");
    assert_eq!(reasons(&memory(&[&without, &without])), "");
    check(&system(&[spare, spare])).unwrap_err();
}

#[test]
fn what_check_refuses_does_not_hold() {
    let budgets = |cpus: &str, b: &str| {
        let a = "accesses = 20, period = \"30us\"";
        format!("{}{}{SATURATION}", vm("a", "0", a), vm("b", cpus, b))
    };
    for (cpus, bandwidth, why) in [
        ("1, 2", "accesses = 50, period = \"30us\", split = [0, 1]", "cannot be enforced"),
        ("1, 2", "accesses = 1, period = \"30us\"", "cannot be enforced"),
        (
            "1",
            "accesses = 50, period = \"30us\", regulator = \"memguard\", phase = \"staggered\"",
            "phase = \"staggered\" with a budget",
        ),
        (
            "1, 2",
            "accesses = 50, period = \"30us\", adjust = { by = \"a\", min = 1, max = 60 }",
            "may set the budget of vm `b` to 1",
        ),
    ] {
        // Where no platform is named, too.
        for platform in ["platform = \"qemu-virt\"\n", ""] {
            let (verdict, json) = analyze(&format!("{platform}{}", budgets(cpus, bandwidth)));
            let found = reasons(&json["memory"]);
            assert!(found.contains(why), "{bandwidth} {platform}: {found}");
            assert_eq!(verdict, Some(DoesNotHold), "{bandwidth} {platform}");
        }
        let text = format!("platform = \"qemu-virt\"\n{}", budgets(cpus, bandwidth));
        let refused = check(&text).unwrap_err();
        assert!(refused.contains(why), "{bandwidth}: {refused}");
    }
    // A file without cores does not state vCPUs.
    let without = budgets("1, 2", "accesses = 50, period = \"30us\", split = [3, 1]");
    let without = without.replace("cpus = [1, 2]\n", "").replace("cpus = [0]\n", "");
    assert_eq!(reasons(&analyze(&without).1["memory"]), "");
}

#[test]
fn a_compensated_vm_counts_with_its_whole_window() {
    let compensated = |window: u32| {
        format!("{STATIC}, regulator = \"compensation\", critical = \"a\", window = {window}")
    };
    for (window, counted, holds) in [(1, 50, true), (3, 150, true), (4, 200, false)] {
        let memory = memory(&[STATIC, &compensated(window)]);
        assert_eq!(memory["vms"][1]["counted"], counted);
        assert_eq!(reasons(&memory).is_empty(), holds, "{window}");
    }
    let found = reasons(&memory(&[STATIC, &compensated(4)]));
    assert!(
        found.contains(
            "vm `b` may use 4 budgets in one period where vm `a` used nothing in 3 before"
        )
    );
    // A shorter period: three of them fit into the table's, the last of a window.
    let short = |keys: &str| format!("accesses = 5, period = \"10us\"{keys}");
    let compensated = short(", regulator = \"compensation\", critical = \"a\", window = 4");
    assert_eq!(memory(&[&short(""), &compensated])["vms"][1]["counted"], 5 * (4 + 3 + 2));
}

#[test]
fn required_bandwidth_is_compared_with_the_guarantee() {
    // 50 lines of 64 B in 30 us are 106.67 MB/s.
    for (keys, cpus, guaranteed) in [
        ("", "0", 106_666_666),
        (", split = \"pool\"", "0", 106_666_666),
        // One of 50 stays with each idle vCPU, or its slice: 3 of 32 parts, 5.
        (", split = \"pool\"", "0, 1, 2, 3", 96_000_000),
        (", regulator = \"memguard\"", "0", 53_333_333),
        (", adjust = { by = \"a\", min = 25, max = 60 }", "0", 53_333_333),
    ] {
        for (required, holds) in [(guaranteed, true), (guaranteed + 1, false)] {
            let bandwidth = format!("{STATIC}, required = \"{required}B/s\"{keys}");
            let text = format!("platform = \"zcu102\"\n{}{SATURATION}", vm("a", cpus, &bandwidth));
            let memory = analyze(&text).1["memory"].take();
            assert_eq!(memory["vms"][0]["guaranteed"], guaranteed, "{keys} on {cpus}");
            let found = reasons(&memory);
            assert_eq!(found.is_empty(), holds, "{keys} on {cpus}: {found}");
        }
    }
}

#[test]
fn polls_reduce_the_guarantee() {
    // 50 lines of 64 B in 30 us, of which 32 polls take 14.4 us: 26 lines.
    let (guaranteed, least) = (55_466_667, 50);
    for (required, budget, holds) in [
        (guaranteed - 1, least, true),
        (guaranteed - 1, least - 1, false),
        (guaranteed + 1, least, false),
    ] {
        let text = system(&[&format!(
            "accesses = {budget}, period = \"30us\", required = \"{required}B/s\""
        )]);
        let memory = analyze(&text).1["memory"].take();
        let found = reasons(&memory);
        assert_eq!(found.is_empty(), holds, "{budget} {required}: {found}");
        assert!(holds || found.contains("polls of the counter page take up to 48 %"), "{found}");
        assert!(
            memory["notes"].to_string().contains("polls of the counter page leave of"),
            "{memory}"
        );
    }
    // So is what is planned.
    assert!(planned(&system(&["required = \"100MB/s\""])).contains("accesses = 91,"));
    // No budget makes more than what a core can do in the time left.
    let large = format!("{}, required = \"69GB/s\"", STATIC.replace("50", "9999999"));
    let memory = analyze(&system(&[&large]).replace("210", "99999999")).1["memory"].take();
    assert!(reasons(&memory).contains("are guaranteed"), "{memory}");
}

/// The same where the PMU counts refills, and interrupts.
fn interrupted(bandwidths: &[&str]) -> String {
    system(bandwidths).replace("qemu-virt", "zcu102")
}

/// The same with a table that states what still passes between overflow and throttling.
fn overshooting(bandwidths: &[&str], overshoot: u64) -> String {
    interrupted(bandwidths)
        .replace("min_accesses = 50", &format!("min_accesses = 50\novershoot = {overshoot}"))
}

#[test]
fn without_debt_each_vcpus_overshoot_always_counts() {
    for (bandwidth, counted) in [
        ("accesses = 60, period = \"30us\"", 60),
        ("accesses = 60, period = \"30us\", debt = false", 67),
        ("accesses = 60, period = \"15us\", debt = false", 134),
        ("accesses = 60, period = \"60us\", debt = false", 67),
    ] {
        let (_, json) = analyze(&overshooting(&[bandwidth], 7));
        assert_eq!(json["memory"]["vms"][0]["counted"], counted, "{bandwidth}");
    }
    let forgiven = "accesses = 65, period = \"30us\", debt = false";
    assert_eq!(analyze(&overshooting(&[forgiven; 3], 5)).0, Some(Holds));
    let text = overshooting(&[forgiven; 3], 6);
    let found = reasons(&analyze(&text).1["memory"]);
    assert!(found.contains("vm `a` may take 6 beyond its budget: debt = false"), "{found}");
    check(&text).unwrap_err();
    // The plan leaves room for them, and reports it if there is none.
    let demand = "required = \"130MB/s\", debt = false";
    for (overshoot, good) in [(9, true), (10, false), (100, false)] {
        let planned = plan(&overshooting(&[demand; 3], overshoot));
        assert_eq!(planned.is_ok(), good, "{overshoot} {planned:?}");
        let refused = planned.err().unwrap_or_default();
        assert!(
            overshoot < 100 || refused.contains("vm `a`, vm `b`, vm `c`: may take 300"),
            "{refused}"
        );
    }
}

#[test]
fn every_budget_that_a_guest_may_set_counts() {
    let adjusted = "accesses = 50, period = \"30us\", adjust = { by = \"b\", min = 1, max = 161 }";
    let first = memory(&[adjusted, STATIC]);
    assert_eq!((&first["total_budget"], &first["vms"][0]["counted"]), (&211.into(), &161.into()));
    let found = reasons(&first);
    assert!(found.contains("vm `b` may set the budget of vm `a` to 161"), "{found}");
    let text = system(&[adjusted, STATIC]);
    let refused = check(&text).unwrap_err();
    assert!(refused.contains("may be set to 211 lines"), "{refused}");
    check(&text.replace("161", "160")).unwrap();
    check(&text.replace("max = 161 }", "max = 161 }, overcommit = true")).unwrap();
    // Each vCPU's own: twice.
    let each = format!("{adjusted}, scope = \"vcpu\"").replace("161", "81");
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{SATURATION}",
        vm("b", "2", STATIC),
        vm("a", "0, 1", &each)
    );
    assert_eq!(analyze(&text).1["memory"]["total_budget"], 212);
}

#[test]
fn interference_includes_memguard_loans() {
    let response = |bandwidths: &[&str], own: u64, keys: &str| {
        let task =
            "[[vm.task]]\nname = \"loop\"\nwcet = \"1ms\"\nperiod = \"10ms\"\naccesses = OWN\n"
                .replace("OWN", &own.to_string());
        let vms = bandwidths.iter().zip(["b", "c"]).enumerate();
        let vms = vms.map(|(core, (bandwidth, name))| vm(name, &(core + 1).to_string(), bandwidth));
        // Of its own budget it has plenty.
        let critical = format!("{}{task}", vm("a", "0", &STATIC.replace("50", "1000000")));
        let saturation =
            SATURATION.replace("min_accesses", &format!("delay = \"10ns\"\n{keys}min_accesses"));
        let text = format!("{critical}{}{saturation}", vms.collect::<String>());
        analyze(&text).1["time"]["tasks"][0]["response_ns"].as_u64().unwrap()
    };
    let lent = "accesses = 10, period = \"30us\", regulator = \"memguard\"";
    let large = lent.replace("10,", "30,");
    // Without a cap the sum of the budgets is the same as two static ones.
    let plain = |text: &str| text.replace(", regulator = \"memguard\"", "");
    assert_eq!(
        response(&[lent, &large], 100, ""),
        response(&[&plain(lent), &plain(&large)], 100, "")
    );
    // Two accesses of each other VM may delay one: the domain's VMs share what they have, so both
    // may reach the cap.
    let per_access = "per_access = 1\n";
    let capped = response(&[lent, &large], 100, per_access);
    assert_eq!(capped, 1_000_000 + 10 * 200);
    let compensated = |critical: &str| {
        format!("{STATIC}, regulator = \"compensation\", critical = \"{critical}\", window = 10")
            .replace("50", "1")
    };
    let own = response(&[&compensated("a"), STATIC], 100_000, per_access);
    let anothers = response(&[&compensated("c"), STATIC], 100_000, per_access);
    assert!(own < anothers, "{own} {anothers}");
}

#[test]
fn a_task_that_spends_the_budget_waits_for_the_next() {
    // Four jobs of 100 accesses may be at work in 30 us: those that arrived in it, or less than a
    // deadline before.
    let text = |keys: &str, accesses: &str| {
        let task = format!(
            "[[vm.task]]\nname = \"loop\"\nwcet = \"1us\"\nperiod = \"10us\"\ndeadline = \"10us\"\n\
             {accesses}\n"
        );
        format!("platform = \"zcu102\"\n{}{task}{SATURATION}", vm("a", "0", keys))
            .replace("210", "9999")
    };
    let time = |keys: &str, accesses: &str| analyze(&text(keys, accesses)).1["time"].take();
    let budget = |budget: u64| format!("accesses = {budget}, period = \"30us\"");
    let enough = time(&budget(401), "accesses = 100");
    assert!(enough["holds"] == true && enough["notes"] == serde_json::json!([]), "{enough}");
    let spent = time(&budget(400), "accesses = 100");
    assert!(
        spent["holds"] == false
            && spent["notes"][0].as_str().unwrap().contains("waits of its tasks")
    );
    // What the setter may choose counts, and that MemGuard may have lent the budget.
    let adjusted = format!("{}, adjust = {{ by = \"a\", min = 400, max = 500 }}", budget(500));
    assert_eq!(time(&adjusted, "accesses = 100")["holds"], false);
    let lent = format!("{}, regulator = \"memguard\"", budget(900));
    assert_eq!(time(&lent, "accesses = 100")["holds"], false);
    let unknown = time(&budget(1), "");
    let note = unknown["notes"][0].as_str().unwrap();
    assert!(unknown["holds"].is_null() && unknown["verdict"] == "not-judged", "{unknown}");
    assert!(note.contains("counts as sufficient"), "{unknown}");
    // No task may wait here: the plan gives as much.
    let planned = planned(&text("required = \"1MB/s\"", "accesses = 100"));
    assert!(planned.contains("accesses = 401"), "{planned}");
}

/// A VM with this `memory_budget` and a task of 100 us, with a table for large budgets.
fn with_task(platform: &str, bandwidth: &str, more: &str) -> String {
    let task =
        format!("[[vm.task]]\nname = \"loop\"\nwcet = \"100us\"\nperiod = \"1ms\"\n{more}\n");
    format!("platform = \"{platform}\"\n{}{task}{SATURATION}", vm("a", "0", bandwidth))
        .replace("210", "9999")
}

#[test]
fn response_times_include_polling() {
    let budget = |budget: u64| format!("accesses = {budget}, period = \"30us\"");
    let time = |platform: &str, budget: &str, more: &str| {
        analyze(&with_task(platform, budget, more)).1["time"].take()
    };
    let response = |time: &Value| time["tasks"][0]["response_ns"].as_u64().unwrap();
    // EL2 does not poll where the PMU interrupts.
    assert_eq!(response(&time("zcu102", &budget(401), "accesses = 10")), 100_000);
    // Two jobs may be at work in 30 us: 9979 accesses are left of 9999, 1 of 21, and neither is
    // known.
    for (written, more, apart) in [
        (9999, "accesses = 10", (9979 / 33) * 16 + (9979 % 33) * 16 / 33),
        (21, "accesses = 10", 1000),
        (9999, "", 1000),
    ] {
        let time = time("qemu-virt", &budget(written), more);
        let response = response(&time);
        let left = |t: u64| t - (1 + t / apart) * 450 - (1 + t / 30_000) * 900;
        let least = (100_000..1_000_000).find(|t| left(*t) >= 100_000).unwrap();
        // The supply falls with each poll, so the analysis may answer one poll later.
        assert!((least..=least + apart).contains(&response), "{least} {time}");
        assert!(left(response) >= 100_000, "{time}");
        assert!(time["notes"].to_string().contains("polls of the counter page"), "{time}");
    }
    let checked = |text: &str| check(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let notes = checked(&with_task("qemu-virt", &budget(401), ""));
    assert!(notes.contains("take up to 48 % of each of its cores"), "{notes}");
    // With [saturation] they are no rarer than the platform's, so no `poll` is offered.
    assert!(notes.contains("; a larger budget makes them rarer"), "{notes}");
    let text = with_task("qemu-virt", &budget(401), "");
    let notes = checked(text.split_once("[saturation]").unwrap().0);
    assert!(notes.contains("; `poll` or a larger budget makes them rarer"), "{notes}");
    // A budget that no core can spend in a period keeps them apart for any tasks; with a smaller
    // one the `accesses` help.
    let never = (u64::MAX - 1).to_string();
    let endless = with_task("qemu-virt", &budget(u64::MAX - 1), "").replace("9999", &never);
    let notes = checked(&endless);
    assert!(notes.contains("take up to 5 % of each"), "{notes}");
    let endless = analyze(&endless).1["time"].take();
    assert!(response(&endless) < 110_000, "{endless}");
    assert!(!endless["notes"].to_string().contains("counts as sufficient"), "{endless}");
    let late = with_task("qemu-virt", &budget(9999), "").replace("100us", "700us");
    let (verdict, found) = causes(&late);
    assert!(verdict != Some(Holds) && found.contains("add `accesses` to each of its tasks"));
    let known = late.replace("period = \"1ms\"", "period = \"1ms\"\naccesses = 10");
    assert_eq!(analyze(&known).0, Some(Holds));
    // The plan includes them: if they are too much, a larger budget is chosen, and if that is not
    // enough, the plan reports it.
    for (deadline, good) in [("200us", true), ("150us", true), ("101us", false)] {
        let more = format!("accesses = 10\ndeadline = \"{deadline}\"");
        let planned = plan(&with_task("qemu-virt", "required = \"1MB/s\"", &more));
        assert_eq!(planned.is_ok(), good, "{deadline} {planned:?}");
        assert!(good || planned.unwrap_err().contains("loop"));
        let written = with_task("qemu-virt", &budget(9999), &more);
        assert!(!good || analyze(&written).0 == Some(Holds));
    }
}

#[test]
fn a_polled_overshoot_is_bounded_by_the_poll_period() {
    let text = |platform: &str, measured: u64| {
        let critical = with_task(platform, STATIC, "accesses = 10");
        let critical = critical.replace(&format!("memory_budget = {{ {STATIC} }}\n"), "");
        let more = format!("delay = \"1ns\"\novershoot = {measured}\nmin_accesses");
        critical
            .replace("[saturation]", &(vm("b", "1", STATIC) + "[saturation]"))
            .replace("min_accesses", &more)
    };
    let response = |platform: &str, measured: u64| {
        let time = analyze(&text(platform, measured)).1["time"].take();
        time["tasks"][0]["response_ns"].as_u64().unwrap_or_else(|| panic!("{time}"))
    };
    assert_eq!(response("qemu-virt", 0), response("zcu102", 2064));
    assert_eq!(response("qemu-virt", 310), response("zcu102", 2064));
    assert_eq!(response("qemu-virt", 3000), response("zcu102", 3000));
    assert!(response("zcu102", 0) < response("zcu102", 310));
}

#[test]
fn check_names_unlimited_vms() {
    let text = format!("platform = \"qemu-virt\"\n{}", vm("a", "0", "required = \"1MB/s\""));
    let notes = check(&text).unwrap();
    assert!(notes.contains("vm `a` is not limited"), "{notes}");
}

/// A demand or a budget of a VM with so many vCPUs.
fn bandwidth() -> impl Strategy<Value = (usize, String)> {
    let split = prop_oneof![
        3 => Just(String::new()),
        2 => Just(", scope = \"vcpu\"".to_owned()),
        2 => Just(", split = \"pool\"".to_owned()),
        1 => Just(", regulator = \"memguard\"".to_owned()),
        1 => Just(", regulator = \"memguard\", spare = true".to_owned()),
        1 => Just(", split = [1, 9]".to_owned()),
        1 => Just(", phase = \"staggered\"".to_owned()),
        1 => Just(", regulator = \"compensation\", critical = \"a\", window = 3".to_owned()),
        1 => Just(", adjust = { by = \"a\", min = 1, max = 30 }".to_owned()),
        1 => Just(", event = \"l2d-writeback\"".to_owned()),
        1 => Just(", poll = \"1us\"".to_owned()),
    ];
    let amount = prop_oneof![
        4 => (1..200_u64).prop_map(|rate| format!("required = \"{rate}MB/s\"")),
        1 => (1..60_u64).prop_map(|budget| format!("accesses = {budget}, period = \"30us\"")),
        1 => (1..60_u64).prop_map(|budget| format!("accesses = {budget}, period = \"1ms\"")),
        1 => (1..60_u64).prop_map(|budget| format!("writes = {budget}, period = \"30us\"")),
    ];
    let debt = prop_oneof![3 => Just(""), 1 => Just(", debt = false")];
    let keys = (amount, split, debt);
    (1..=2_usize, keys).prop_map(|(vcpus, (amount, split, debt))| (vcpus, amount + &split + debt))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is planned passes `check` and `analyze`; what is not planned is refused by a sentence
    /// that names the VM, and what to write.
    #[test]
    fn a_plan_is_one_that_check_and_analyze_take(vms in prop::collection::vec(bandwidth(), 1..=3)) {
        let mut core = 0;
        let mut text = "platform = \"qemu-virt\"\n".to_owned();
        for ((vcpus, bandwidth), name) in vms.iter().zip(["a", "b", "c"]) {
            let cpus: Vec<_> = (core..core + vcpus).map(|core| core.to_string()).collect();
            core += vcpus;
            text += &vm(name, &cpus.join(", "), bandwidth);
        }
        text += SATURATION;
        match plan(&text) {
            Ok(plan) => {
                let planned = plan.file.text();
                prop_assert!(check(planned).is_ok(), "{planned}\n{:?}", check(planned));
                prop_assert_eq!(analyze(planned).0, Some(Holds), "{}", planned);
            }
            Err(why) => {
                let helps = why.contains("; ") || why.contains("demands conflict: ");
                prop_assert!(helps && !why.contains("{\""), "{text}\n{why}");
            }
        }
    }
}

#[test]
fn analyze_and_check_refuse_the_same_measurements() {
    let measured = "min_period = \"20us\"\novershoot = 3\nmin_accesses";
    for (bandwidth, reason) in [
        (
            "accesses = 49, period = \"30us\", debt = false",
            "gives a vCPU less than the `min_accesses`",
        ),
        ("accesses = 49, period = \"30us\"", ""),
        ("accesses = 60, period = \"19us\"", "period = \"19us\" is shorter than the `min_period`"),
        (
            "accesses = 60, period = \"30us\", debt = false, adjust = { by = \"a\", min = 9, max = \
             70 }",
            "an adjustable budget of 9 gives",
        ),
        ("accesses = 60, period = \"30us\", poll = \"2us\"", "poll = \"2us\" is coarser"),
        ("accesses = 60, period = \"30us\", poll = \"1us\"", ""),
        (
            "accesses = 60, period = \"30us\", poll = \"1us\", debt = false",
            "vm `a` may take 2064 beyond its budget",
        ),
        ("required = \"1MB/s\", poll = \"30us\"", "poll = \"30us\" is coarser"),
    ] {
        let text = system(&[bandwidth]).replace("min_accesses", measured);
        let found = reasons(&analyze(&text).1["memory"]);
        assert!(found.contains(reason) || bandwidth.contains("required"), "{bandwidth} {found}");
        assert!(!reason.is_empty() || found.is_empty(), "{bandwidth} {found}");
        let checked = check(&text);
        assert_eq!(checked.is_ok(), reason.is_empty(), "{bandwidth} {checked:?}");
        assert!(!bandwidth.contains("required") || plan(&text).is_err(), "{bandwidth}");
    }
}

#[test]
fn assumptions_of_the_figures_are_printed() {
    let notes = |text: &str| {
        let (verdict, json) = analyze(text);
        assert_eq!(verdict, Some(Holds), "{json}");
        let notes = json["memory"]["notes"].as_array().unwrap().clone();
        notes.iter().map(|note| note.as_str().unwrap().to_owned()).collect::<Vec<_>>().join("\n")
    };
    let forgiven = "accesses = 60, period = \"30us\", debt = false";
    // The platform's, or the file's own.
    assert!(notes(&interrupted(&[forgiven])).contains("the overshoot is 15, from"));
    assert!(notes(&overshooting(&[forgiven], 3)).contains("the overshoot is 3, from"));
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"100us\"\nperiod = \"10ms\"\naccesses = 5\n";
    let tasks = vm("a", "0", STATIC) + task + &vm("b", "1", STATIC);
    let delay = SATURATION.replace("min_accesses", "delay = \"10ns\"\nmin_accesses");
    let missing = |text: &str| {
        let (verdict, json) = analyze(text);
        assert_eq!(verdict, Some(NotJudged), "{json}");
        json["not_judged"].to_string()
    };
    assert!(missing(&format!("{tasks}{delay}")).contains("the overshoot of a budget is not known"));
    assert!(missing(&format!("{tasks}{SATURATION}")).contains("the delay by one is not known"));
    let two = "reads = 60, writes = 1, period = \"30us\", required = \"40MB/s\"";
    let text = system(&[two]);
    assert!(
        notes(&text)
            .contains("vm `a`: the guaranteed bandwidth holds until its write budget is spent")
    );
    assert!(check(&text).unwrap().contains("until its write budget is spent"));
    let shared = vm("a", "0", "accesses = 60, period = \"30us\", required = \"40MB/s\"")
        + &vm("b", "0", STATIC)
        + "[[core]]\nid = 0\n\
           schedule = { kind = \"round-robin\", quantum = \"1ms\", switch = \"0us\" }\n"
        + SATURATION;
    assert!(
        notes(&shared).contains("vm `a`: the guaranteed bandwidth holds while it has its cores")
    );
    // So is what is planned by them.
    let demand = shared.replacen("accesses = 60, period = \"30us\", required", "required", 1);
    let plan = plan(&demand).unwrap();
    assert!(plan.left_out.concat().contains("it shares core 0"), "{:?}", plan.left_out);
}
