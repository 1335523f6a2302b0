//! `weir plan`.

use crate::{
    checkout,
    support::{analyze, conflict, guests, plan, plan_within, planned},
    texts::{OVERHEADS, SATURATION, flow},
};
use weir_analysis::{
    Choices, PlanError, PlanOptions,
    verdict::Verdict::{Holds, NotJudged},
};
use weir_model::SystemFile;

fn unplanned() -> String {
    format!(
        r#"# what the customer wants
[[vm]]
name = "rt"       # the loop
criticality = 2
memory_budget = {{ required = "50MB/s" }}

[[vm]]
name = "gp"

{}{SATURATION}{OVERHEADS}"#,
        flow("f", "gp", "\"rt\"", "12KiB", "1ms", "500us")
    )
}

#[test]
fn a_plan_differs_only_where_it_chose_and_holds() {
    let text = unplanned();
    let plan = plan(&text).unwrap();
    let planned = plan.file.text();
    let added = |new: &str, old: &str| -> Vec<String> {
        let lines = new.lines().filter(|line| !old.lines().any(|other| other == *line));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        added(planned, &text),
        [
            "memory_budget = { required = \"50MB/s\", accesses = 50, period = \"30us\" }",
            "memory_budget = { accesses = 160, period = \"30us\" }",
            "[dma]",
            "bandwidth = \"25632950B/s\"",
            "chunk = \"4KiB\"",
        ]
    );
    assert_eq!(added(&text, planned), ["memory_budget = { required = \"50MB/s\" }"]);
    assert_eq!((plan.report.verdict, analyze(planned).0), (Some(Holds), Some(Holds)));
    assert_eq!(plan.choices.best_effort_budget, Some(160));
    // Planned already: nothing is left to choose.
    assert_eq!(crate::support::planned(planned), planned);
}

/// The bandwidth is such that a flow to a VM on a shared core arrives in time with that VM on it.
#[test]
fn a_plan_counts_the_receivers_absence() {
    let vm = |name, core| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}[[core]]\nid = 1\n\
         schedule = {{ kind = \"round-robin\", quantum = \"500us\" }}\n{}",
        vm("a", 0),
        vm("b", 1),
        vm("c", 1),
        flow("f", "a", "\"b\"", "16KiB", "10ms", "2ms")
    );
    let plan = plan(&text).unwrap();
    assert_eq!(plan.report.verdict, Some(Holds));
    let flow = plan.report.flows().next().expect("a flow");
    let bound = flow.bound_ns.expect("a bound");
    assert!((1_999_000..=2_000_000).contains(&bound), "{bound}");
    assert!(flow.slack_ns > Some(100_000.0), "the other test needs less: {:?}", flow.slack_ns);
}

#[test]
fn a_plan_keeps_what_is_given() {
    let given = format!("{}[dma]\nbandwidth = \"148MB/s\"\nchunk = \"4KiB\"\n", unplanned())
        .replace(
            "name = \"gp\"",
            "name = \"gp\"\nmemory_budget = { accesses = 100, period = \"30us\" }",
        );
    let chosen = "required = \"50MB/s\", accesses = 50, period = \"30us\"";
    assert_eq!(planned(&given), given.replace("required = \"50MB/s\"", chosen));
}

#[test]
fn colors_and_banks_are_planned_for_known_boards() {
    let vm = |name: &str, more: &str| format!("[[vm]]\nname = \"{name}\"\n{more}\n");
    let system = |memory: &str| {
        format!(
            "platform = \"zcu102\"\n{}{}{}",
            vm("control", "memory = \"64MiB\"\ncriticality = 3\nworking_set = \"192KiB\""),
            vm(
                "vision",
                &format!("memory = \"{memory}\"\ncriticality = 1\nworking_set = \"256KiB\"")
            ),
            vm("linux", "memory = \"512MiB\""),
        )
    };
    let chosen = |text: &str| {
        let vms = plan(text).unwrap().choices.vms;
        let text = vms.iter().map(|vm| vm.colors.as_deref().unwrap_or("-"));
        let colors: Vec<String> = text.map(str::to_owned).collect();
        let banks = vms.iter().map(|vm| vm.banks.as_deref().unwrap_or("-"));
        (colors.join(" "), banks.collect::<Vec<_>>().join(" "))
    };
    // 64 KiB of cache and 256 MiB of RAM each.
    assert_eq!(chosen(&system("64MiB")), ("0-2 3-6 -".to_owned(), "- - -".to_owned()));
    let (colors, _) = chosen(&system("1280MiB"));
    assert_eq!(colors, "0-2 3-7 -", "its memory needs more than its working set");
    assert!(!conflict(&system("4GiB")).demands.is_empty());
    // Colors and banks independent: 64 MiB in 3 of 16 colors lie in 2 of 16 banks, in 4 of 16 in 1.
    let on_top = |memory: &str| format!("dram = \"banks-on-top\"\n{}", system(memory));
    assert_eq!(chosen(&on_top("64MiB")), ("0-2 3-6 -".to_owned(), "0-1 2 -".to_owned()));
    let (_, banks) = chosen(&on_top("1000MiB"));
    assert_eq!(banks, "- - -", "colors alone, as banks of its own would not hold its memory");
    // A VM with stated colors keeps them, and no other gets any.
    let given = system("64MiB").replace("criticality = 3", "criticality = 3\ncolors = \"9\"");
    assert_eq!(chosen(&given).0, "- - -");
    assert_eq!(planned(&given).matches("colors").count(), 1);
}

#[test]
fn demands_that_conflict_are_named() {
    // 180 accesses in 30 us are 384 MB/s: then the engine has at most 485 MB/s.
    let greedy = unplanned().replace("50MB/s", "260MB/s").replace("500us", "44us");
    let found = conflict(&greedy);
    assert!(!found.demands.is_empty() && found.minimal, "{found:?}");
    let demands = |text: &str| conflict(text).demands;
    assert_eq!(demands(&unplanned().replace("50MB/s", "900MB/s")), ["bandwidth of rt"]);
    assert_eq!(demands(&unplanned().replace("500us", "2us")), ["flow f"]);
    let missing = plan(&unplanned().replace(SATURATION, "")).unwrap_err();
    assert!(missing.contains("whether it gets 50MB/s is not known"), "{missing}");
}

/// Without [saturation] the plan reports the same as the analysis: QEMU's memory has no contention.
#[test]
fn planning_works_without_saturation() {
    for name in ["flows-linux", "flows-mmio", "flows-multicast"] {
        let file = SystemFile::load(&checkout::system(name), &guests()).unwrap();
        let plan = weir_analysis::plan(&file, &PlanOptions::default()).unwrap();
        assert_eq!(plan.report.verdict, Some(Holds), "{name}");
        assert!(plan.choices.dma_bandwidth > 0, "{name}");
    }
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"10ms\"\n";
    let next_to = |keys: &str| {
        format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n{task}[[vm]]\n\
             name = \"b\"\ncpus = [1]\nmemory_budget = {{ {keys} }}\n"
        )
    };
    let given = "accesses = 1000, period = \"1ms\"";
    for (keys, verdict) in [
        (given.to_owned(), Holds),
        (format!("{given}, required = \"10MB/s\""), Holds),
        ("required = \"10MB/s\"".to_owned(), NotJudged),
    ] {
        let plan = plan_within(u64::MAX, &next_to(&keys)).unwrap();
        assert_eq!(plan.report.verdict, Some(verdict), "{keys}");
        assert_eq!(plan.file.text(), next_to(&keys), "{keys}");
    }
    plan(&next_to(&format!("{given}, required = \"900MB/s\""))).unwrap_err();
}

#[test]
fn line_ends_and_the_byte_order_mark_are_kept() {
    let (lf, plan) = (unplanned(), planned);
    let chosen = plan(&lf);
    assert!(chosen != lf && !chosen.contains('\r'));
    assert_eq!(plan(&lf.replace('\n', "\r\n")), chosen.replace('\n', "\r\n"));
    let marked = format!("\u{feff}{}", lf.replace('\n', "\r\n"));
    assert_eq!(plan(&marked), format!("\u{feff}{}", chosen.replace('\n', "\r\n")));
    // Each line keeps its own end; new ones end like the first.
    let mixed = lf.replacen("name = \"gp\"\n", "name = \"gp\"\r\n", 1);
    assert_eq!(plan(&mixed), chosen.replacen("name = \"gp\"\n", "name = \"gp\"\r\n", 1));
    // Planned already: not a byte changes, with text of several lines and no end of the last.
    let odd = format!(
        "{}[[vm]]\r\nname = \"x\"\nmemory_budget = {{ accesses = 50, period = \"30us\" }}",
        chosen.replace("best", "\r\n").replacen('\n', "\r\n", 3)
    );
    let shrunk = odd.replace("accesses = 160", "accesses = 100");
    assert_eq!(plan(&shrunk), shrunk);
}

#[test]
fn the_search_ends_by_its_limit_and_reports_it() {
    let many = |more: &str| {
        let flows: String = (0..200)
            .map(|i| {
                let period = format!("{}us", 400_000 + 7 * i);
                flow(&format!("f{i}"), &format!("v{}", i % 2), "\"sink\"", "4KiB", &period, "100ms")
            })
            .collect();
        format!("{flows}{more}{SATURATION}{OVERHEADS}")
    };
    assert!(plan(&many("")).unwrap().choices.dma_bandwidth > 0);
    assert!(matches!(plan_within(1000, &many("")), Err(PlanError::GaveUp)));

    // Two that can't live together among two hundred that can.
    let pair: String = [("x", "v0"), ("y", "v1")]
        .map(|(name, from)| flow(name, from, "\"sink\"", "4KiB", "30us", "5ms"))
        .concat();
    let found = conflict(&many(&pair));
    assert_eq!(
        (found.demands, found.minimal),
        (vec!["flow x".to_owned(), "flow y".to_owned()], true)
    );
    // With less effort the set is named without the claim that it is minimal.
    let claims: Vec<_> = (16..34)
        .map(|bits| match plan_within(1 << bits, &many(&pair)) {
            Err(PlanError::Conflict(found)) => Some(found.minimal),
            Err(PlanError::GaveUp) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((claims[0], claims[17]), (None, Some(true)), "{claims:?}");
    assert!(claims.contains(&Some(false)) && claims.is_sorted(), "{claims:?}");
}

/// Demand, supply and the difference, for each thing that there can be too little of.
#[test]
fn what_is_missing_is_named_by_numbers() {
    let short = |text: &str| conflict(text).shortages.remove(0);
    let numbers = |text: &str| {
        let one = short(text);
        (one.what, one.asked, one.have, one.missing)
    };
    let numbers_of = |what: &str, [asked, have, missing]: [u64; 3]| {
        (what.to_owned(), Some(asked), have, Some(missing))
    };
    // 900 MB/s in 30 us are 27 000 B, 422 lines, and gp has 50.
    let greedy = unplanned().replace("50MB/s", "900MB/s");
    assert_eq!(numbers(&greedy), numbers_of("budgets", [472, 210, 262]));
    let given = unplanned().replace(
        "required = \"50MB/s\"",
        "required = \"500MB/s\", accesses = 60, period = \"30us\"",
    );
    assert_eq!(numbers(&given), numbers_of("budget of rt", [235, 60, 175]));
    // The flow's own least, from `analyze`, against what Table I leaves next to 122 + 50.
    let tight = unplanned().replace("50MB/s", "260MB/s").replace("500us", "44us");
    let least = analyze(&tight).1["flows"]["min_bandwidth"].as_u64().expect("a bandwidth");
    let most = 485_000_000;
    assert_eq!(numbers(&tight), numbers_of("DMA bandwidth", [least, most, least - most]));
    let hasty = short(&unplanned().replace("500us", "2us"));
    assert_eq!((&*hasty.what, hasty.asked), ("DMA bandwidth", None));
    assert!(hasty.text.contains("no bandwidth is enough"));
    let slow = |period: &str| {
        let task = format!(
            "name = \"gp\"\n[[vm.task]]\nname = \"slow\"\nwcet = \"3ms\"\n\
             period = \"{period}\"\ndeadline = \"2ms\"\naccesses = 0"
        );
        unplanned().replace("name = \"gp\"", &task)
    };
    let late = numbers_of("deadline of gp: slow", [3_000_000, 2_000_000, 1_000_000]);
    assert_eq!(numbers(&slow("9ms")), late);
    let endless = short(&slow("2ms"));
    assert_eq!((&*endless.what, endless.asked), ("deadline of gp: slow", None));
    let cause = "has no bound: 100.0 % of its core are guaranteed, and the VM's tasks up to this \
                 one need 150.0 %";
    assert!(endless.text.ends_with(cause), "{endless:?}");
}

#[test]
fn colors_that_are_missing_are_counted() {
    let text = |vision: &str| {
        format!(
            "platform = \"zcu102\"\n[[vm]]\nname = \"control\"\nmemory = \"64MiB\"\n\
             criticality = 3\nworking_set = \"512KiB\"\n[[vm]]\nname = \"vision\"\n\
             criticality = 1\n{vision}\n[[vm]]\nname = \"linux\"\nmemory = \"512MiB\"\n"
        )
    };
    // 64 KiB of cache and 256 MiB of RAM behind each of 16 colors: 8 and 9, and 2 for linux'
    // memory.
    let found = conflict(&text("memory = \"64MiB\"\nworking_set = \"576KiB\""));
    assert_eq!(found.demands, ["working set of control", "working set of vision"]);
    let short = &found.shortages[0];
    assert_eq!(
        (&*short.what, short.asked, short.have, short.missing),
        ("colors", Some(18), 16, Some(2))
    );
    // It is the memory that needs as many colors, not the working set.
    let found = conflict(&text("memory = \"2304MiB\"\nworking_set = \"64KiB\""));
    assert_eq!(found.demands, ["working set of control", "memory of vision"]);
}

#[test]
fn a_table_for_too_short_periods_is_no_base_of_a_plan() {
    let text = unplanned().replace("min_accesses", "min_period = \"31us\"\nmin_accesses");
    let refused = plan(&text).unwrap_err();
    assert!(refused.contains("`weir calibrate --period 31us`"), "{refused}");
    plan(&text.replace("31us", "30us")).unwrap();
}

/// Systems of a VM `a` with tasks and a VM `b` of best effort: the budgets' period, what `a` is,
/// and the budgets that are tried.
fn grids() -> Vec<(&'static str, String, String, Vec<u64>)> {
    let task = |name: &str, wcet: &str, deadline: &str, accesses: u64| {
        format!(
            "[[vm.task]]\nname = \"{name}\"\nwcet = \"{wcet}\"\nperiod = \"100ms\"\n\
             deadline = \"{deadline}\"\naccesses = {accesses}\n"
        )
    };
    let board = || "platform = \"zcu102\"\n".to_owned();
    let vm = |cpus: &str, keys: &str, tasks: &str| {
        format!("[[vm]]\nname = \"a\"\ncpus = {cpus}\nmemory_budget = {{ {keys} }}\n{tasks}")
    };
    let one = |deadline: &str| vm("[0]", "required = \"1MB/s\"", &task("t", "1ms", deadline, 6250));
    let table = "[saturation]\nperiod = \"100us\"\nline = \"64B\"\n\
                 points = [{ accesses = 30000, dma = \"0B/s\" }]\nmin_accesses = 500\n\
                 delay = \"3ns\"\n";
    let small = vec![50, 55, 60, 70, 80, 90, 100, 120, 150];
    let large = vec![500, 1000, 2000, 4000, 8000, 12_000, 16_000];
    vec![
        ("30us", board(), one("90ms"), small.clone()),
        ("30us", board(), one("6ms"), small.clone()),
        ("30us", board(), one("4ms"), small.clone()),
        ("30us", board(), one("1500us"), small.clone()),
        (
            "30us",
            board(),
            vm(
                "[0]",
                "required = \"1MB/s\"",
                &(task("t", "500us", "3ms", 2000) + &task("u", "2ms", "20ms", 9000)),
            ),
            small.clone(),
        ),
        (
            "30us",
            board(),
            vm("[0, 2]", "required = \"1MB/s\", split = \"pool\"", &task("t", "1ms", "15ms", 6250)),
            small,
        ),
        (
            "100us",
            format!("platform = \"qemu-virt\"\n{table}"),
            vm("[0]", "required = \"1MB/s\"", &task("t", "1ms", "5ms", 60_000)),
            large,
        ),
    ]
}

/// For any budgets that `analyze` accepts, `plan` finds none that are larger, and `analyze` accepts
/// the plan.
#[test]
fn a_plan_is_no_dearer_than_what_the_analysis_accepts() {
    for (system, (period, head, a, grid)) in grids().into_iter().enumerate() {
        let with = |a: &str, b: Option<u64>| {
            let given =
                b.map(|b| format!("memory_budget = {{ accesses = {b}, period = \"{period}\" }}\n"));
            let b = format!("[[vm]]\nname = \"b\"\ncpus = [1]\n{}", given.unwrap_or_default());
            // Tables of the file come behind the VMs.
            let (top, rest) = head.split_once('\n').expect("a platform");
            format!("{top}\n{a}{b}{rest}")
        };
        let accepted = |text: &str| analyze(text).0 == Some(Holds);
        let budgets = |text: &str| {
            let plan = plan(text).ok()?;
            assert!(accepted(plan.file.text()), "{}", plan.file.text());
            let of = |vm: usize| plan.choices.vms[vm].budget.expect("a budget");
            Some([of(0), of(1)])
        };
        let mut most = None;
        let mut found = 0;
        for &b in &grid {
            let given = |budget: u64| {
                let keys =
                    format!("required = \"1MB/s\", accesses = {budget}, period = \"{period}\"");
                a.replace("required = \"1MB/s\"", &keys)
            };
            let least =
                grid.iter().copied().find(|budget| accepted(&with(&given(*budget), Some(b))));
            let planned = budgets(&with(&a, Some(b)));
            if let Some(least) = least {
                let [budget, _] =
                    planned.unwrap_or_else(|| panic!("{system}: no plan next to {b}"));
                assert!(budget <= least, "{system}: {budget} next to {b}, and {least} holds");
                (most, found) = (Some(b), found + 1);
            }
        }
        let planned = budgets(&with(&a, None));
        if let Some(most) = most {
            let [_, b] = planned.unwrap_or_else(|| panic!("{system}: no plan"));
            assert!(b >= most, "{system}: {b} for best effort, and {most} holds");
        }
        // The tight one has no plan, the others have some next to some.
        assert_eq!(found == 0, system == 3, "{system}: {found}");
    }
}

/// No budget is more than the memory takes or the VM's cores can make in its period.
#[test]
fn no_budget_is_chosen_that_no_core_can_use() {
    for (_, head, a, _) in grids() {
        let b = "[[vm]]\nname = \"b\"\ncpus = [1]\n";
        let (top, rest) = head.split_once('\n').expect("a platform");
        // Far more than there is.
        let rest = rest.replace("accesses = 30000", "accesses = 9000000");
        let Choices { vms, .. } = match plan(&format!("{top}\n{a}{b}{rest}")) {
            Ok(plan) => plan.choices,
            Err(why) => {
                assert!(why.contains("with the greatest budget that is left"), "{why}");
                continue;
            }
        };
        // A core of qemu-virt makes an access each nanosecond, sixteen in a row at most 33.
        let most = if rest.is_empty() { 210 } else { 100_000 * 33 / 16 + 33 };
        for vm in vms {
            assert!(vm.budget.expect("a budget") <= most, "{vm:?}");
        }
    }
}
