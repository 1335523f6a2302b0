//! `weir plan`.

use super::{OVERHEADS, SATURATION, analyze, fake, flow};
use crate::support::{Printed, capture};
use serde_json::{Value, json};

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
    let fake = fake();
    fake.write("x.toml", unplanned().as_bytes());
    let printed = capture(fake.weir().args(["plan", "x.toml", "-o", "y.toml"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("y.toml: all holds"), "{}", printed.out);
    let planned = fake.read("y.toml");
    let kept: Vec<_> =
        planned.lines().filter(|line| !unplanned().lines().any(|old| old == *line)).collect();
    assert_eq!(
        kept,
        [
            "memory_budget = { required = \"50MB/s\", accesses = 50, period = \"30us\" }",
            "memory_budget = { accesses = 160, period = \"30us\" }",
            "[dma]",
            "bandwidth = \"25632950B/s\"",
            "chunk = \"4KiB\"",
        ]
    );
    let gone: Vec<_> = unplanned()
        .lines()
        .map(str::to_owned)
        .filter(|line| !planned.lines().any(|new| new == line))
        .collect();
    assert_eq!(gone, ["memory_budget = { required = \"50MB/s\" }"]);
    assert_eq!(capture(fake.weir().args(["analyze", "y.toml"])).status, Some(0));
    // Planned already: nothing is left to choose.
    let printed = capture(fake.weir().args(["plan", "y.toml"]));
    assert_eq!((printed.status, printed.out), (Some(0), planned));
    let printed = capture(fake.weir().args(["plan", "x.toml", "--json"]));
    let json: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert_eq!(
        (&json["plan"]["best_effort_budget"], &json["analysis"]["flows"]["schedulable"]),
        (&160.into(), &true.into())
    );
}

#[test]
fn a_plan_keeps_what_is_given() {
    let fake = fake();
    let given = format!("{}[dma]\nbandwidth = \"148MB/s\"\nchunk = \"4KiB\"\n", unplanned())
        .replace(
            "name = \"gp\"",
            "name = \"gp\"\nmemory_budget = { accesses = 100, period = \"30us\" }",
        );
    fake.write("x.toml", given.as_bytes());
    let printed = capture(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(
        printed.out,
        given.replace(
            "required = \"50MB/s\"",
            "required = \"50MB/s\", accesses = 50, period = \"30us\""
        )
    );
}

#[test]
fn colors_and_banks_are_planned_for_known_boards() {
    let fake = fake();
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
    let plan = |text: &str| {
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["plan", "x.toml", "--json"]));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        let colors = |vm: usize| json["plan"]["vms"][vm]["colors"].as_str().map(str::to_owned);
        let banks = |vm: usize| json["plan"]["vms"][vm]["banks"].as_str().map(str::to_owned);
        ([0, 1, 2].map(colors), [0, 1, 2].map(banks), json)
    };
    let some = |text: &str| Some(text.to_owned());
    // 64 KiB of cache and 256 MiB of RAM each.
    let (colors, banks, json) = plan(&system("64MiB"));
    assert_eq!((colors, banks), ([some("0-2"), some("3-6"), None], [None, None, None]), "{json}");
    let (colors, ..) = plan(&system("1280MiB"));
    assert_eq!(colors[1], some("3-7"), "its memory needs more than its working set");
    let (.., json) = plan(&system("4GiB"));
    assert!(json["plan"].is_null() && json["conflict"]["demands"][0].is_string(), "{json}");
    // Colors and banks independent: 64 MiB in 3 of 16 colors lie in 2 of 16 banks, in 4 of 16 in 1.
    let on_top = |memory: &str| format!("dram = \"banks-on-top\"\n{}", system(memory));
    let (colors, banks, json) = plan(&on_top("64MiB"));
    assert_eq!(colors, [some("0-2"), some("3-6"), None], "{json}");
    assert_eq!(banks, [some("0-1"), some("2"), None], "{json}");
    let (_, banks, json) = plan(&on_top("1000MiB"));
    assert_eq!(
        banks,
        [None, None, None],
        "colors alone, as banks of its own would not hold its memory: {json}"
    );
    // A VM with stated colors keeps them, and no other gets any.
    let given = system("64MiB").replace("criticality = 3", "criticality = 3\ncolors = \"9\"");
    let (colors, _, json) = plan(&given);
    assert_eq!(colors, [None, None, None]);
    assert!(
        json["toml"].as_str().is_some_and(|toml| toml.matches("colors").count() == 1),
        "{json}"
    );
}

#[test]
fn demands_that_conflict_are_named() {
    let fake = fake();
    let plan = |text: &str| {
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["plan", "x.toml", "--json"]));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        (printed, json)
    };
    // 180 accesses in 30 us are 384 MB/s: then the engine has at most 485 MB/s.
    let greedy = unplanned().replace("50MB/s", "260MB/s").replace("500us", "44us");
    let (printed, json) = plan(&greedy);
    assert_eq!(printed.status, Some(1));
    assert!(json["plan"].is_null());
    let demands = json["conflict"]["demands"].as_array().expect("demands");
    assert!(!demands.is_empty() && json["conflict"]["minimal"] == true, "{json}");
    assert!(printed.err.contains("cannot be met together"), "{}", printed.err);
    let (printed, json) = plan(&unplanned().replace("50MB/s", "900MB/s"));
    assert_eq!(
        (printed.status, &json["conflict"]["demands"]),
        (Some(1), &json!(["bandwidth of rt"]))
    );
    let (printed, json) = plan(&unplanned().replace("500us", "2us"));
    assert_eq!((printed.status, &json["conflict"]["demands"]), (Some(1), &json!(["flow f"])));
    let bare = unplanned().replace(SATURATION, "");
    let (printed, json) = plan(&bare);
    assert_eq!((printed.status, &json["verdict"]), (Some(1), &"not-judged".into()), "{json}");
    assert!(
        json["not_judged"].to_string().contains("whether it gets 50MB/s is not known"),
        "{json}"
    );
}

/// Without [saturation] the plan reports the same as the analysis: QEMU's memory has no contention.
#[test]
fn planning_works_without_saturation() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    for name in ["flows-linux", "flows-mmio", "flows-multicast"] {
        let file = root.expect("a checkout").join(format!("examples/{name}/{name}.toml"));
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        let printed = capture(command.args(["plan", "--json"]).arg(file));
        assert_eq!(printed.status, Some(0), "{name}: {}", printed.err);
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        assert_eq!(json["verdict"], "holds", "{json}");
        assert!(json["plan"]["dma_bandwidth"].as_u64().is_some_and(|dma| dma > 0), "{json}");
    }
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"10ms\"\n";
    let next_to = |keys: &str| {
        format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n{task}[[vm]]\n\
             name = \"b\"\ncpus = [1]\nmemory_budget = {{ {keys} }}\n"
        )
    };
    let given = "accesses = 1000, period = \"1ms\"";
    for (keys, status, verdict) in [
        (given.to_owned(), 0, "holds"),
        (format!("{given}, required = \"10MB/s\""), 0, "holds"),
        ("required = \"10MB/s\"".to_owned(), 1, "not-judged"),
    ] {
        let (printed, json) = planned(&next_to(&keys), &[]);
        assert_eq!(
            (printed.status, &json["verdict"]),
            (Some(status), &verdict.into()),
            "{keys} {json}"
        );
        assert_eq!(json["toml"], next_to(&keys), "{keys}");
    }
    let (printed, json) = planned(&next_to(&format!("{given}, required = \"900MB/s\"")), &[]);
    assert_eq!((printed.status, &json["plan"]), (Some(1), &Value::Null), "{json}");
}

/// The result of `weir plan --json` for a text.
fn planned(text: &str, arguments: &[&str]) -> (Printed, Value) {
    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let printed = capture(fake.weir().args(["plan", "x.toml", "--json"]).args(arguments));
    let json = serde_json::from_str(&printed.out).unwrap_or(Value::Null);
    (printed, json)
}

#[test]
fn line_ends_and_the_byte_order_mark_are_kept() {
    let fake = fake();
    let lf = unplanned();
    let plan = |text: &str| {
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["plan", "x.toml", "-o", "y.toml"]));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        fake.read("y.toml")
    };
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
    let (printed, json) = planned(&many(""), &[]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(json["plan"]["dma_bandwidth"].is_u64());
    assert!(!printed.err.contains('\u{1b}'), "no progress in a pipe: {}", printed.err);
    let (printed, json) = planned(&many(""), &["--max-steps", "1000"]);
    assert_eq!((printed.status, &json["gave_up"]), (Some(1), &true.into()));
    assert!(
        printed.err.contains("given up") && printed.err.contains("--max-steps"),
        "{}",
        printed.err
    );

    // Two that can't live together among two hundred that can.
    let pair: String = [("x", "v0"), ("y", "v1")]
        .map(|(name, from)| flow(name, from, "\"sink\"", "4KiB", "30us", "5ms"))
        .concat();
    let (printed, json) = planned(&many(&pair), &[]);
    let conflict = &json["conflict"];
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert_eq!(conflict["demands"], json!(["flow x", "flow y"]));
    assert_eq!(conflict["minimal"], true);
    // With less effort the set is named without the claim that it is minimal.
    let claims: Vec<_> = (16..34)
        .map(|bits| {
            let (printed, json) =
                planned(&many(&pair), &["--max-steps", &(1u64 << bits).to_string()]);
            assert_eq!(printed.status, Some(1), "{}", printed.err);
            let minimal = json["conflict"]["minimal"].as_bool();
            let is_named = printed.err.contains("DMA bandwidth: ");
            assert_eq!(is_named, minimal.is_some(), "{}", printed.err);
            assert_eq!(
                minimal == Some(false),
                printed.err.contains("the effort was spent before that was known (--max-steps)"),
                "{}",
                printed.err
            );
            minimal
        })
        .collect();
    assert_eq!((claims[0], claims[17]), (None, Some(true)), "{claims:?}");
    assert!(claims.contains(&Some(false)) && claims.is_sorted(), "{claims:?}");
}

/// Demand, supply and the difference, for each thing that there can be too little of.
#[test]
fn what_is_missing_is_named_by_numbers() {
    let short = |text: &str| {
        let (printed, json) = planned(text, &[]);
        assert_eq!(printed.status, Some(1), "{}", printed.out);
        let shortage = json["conflict"]["shortages"][0].clone();
        assert!(
            printed.err.contains(shortage["text"].as_str().expect("a text")),
            "{}",
            printed.err
        );
        shortage
    };
    // 900 MB/s in 30 us are 27 000 B, 422 lines, and gp has 50.
    let greedy = short(&unplanned().replace("50MB/s", "900MB/s"));
    assert_eq!(
        (&greedy["what"], &greedy["asked"], &greedy["have"], &greedy["missing"]),
        (&"budgets".into(), &472.into(), &210.into(), &262.into()),
    );
    let given = unplanned().replace(
        "required = \"50MB/s\"",
        "required = \"500MB/s\", accesses = 60, period = \"30us\"",
    );
    let given = short(&given);
    assert_eq!(
        (&given["what"], &given["asked"], &given["have"], &given["missing"]),
        (&"budget of rt".into(), &235.into(), &60.into(), &175.into()),
    );
    // The flow's own least, from `analyze`, against what Table I leaves next to 122 + 50.
    let text = unplanned().replace("50MB/s", "260MB/s").replace("500us", "44us");
    let least = analyze(&text, &[]).1["flows"]["min_bandwidth"].as_u64().expect("a bandwidth");
    let tight = short(&text);
    assert_eq!(
        (&tight["what"], &tight["asked"], &tight["have"], &tight["missing"]),
        (
            &"DMA bandwidth".into(),
            &least.into(),
            &485_000_000.into(),
            &(least - 485_000_000).into()
        ),
    );
    let hasty = short(&unplanned().replace("500us", "2us"));
    assert_eq!((&hasty["what"], &hasty["asked"]), (&"DMA bandwidth".into(), &Value::Null));
    assert!(hasty["text"].as_str().is_some_and(|text| text.contains("no bandwidth is enough")));
    let late = unplanned().replace(
        "name = \"gp\"",
        "name = \"gp\"\n[[vm.task]]\nname = \"slow\"\nwcet = \"3ms\"\nperiod = \"9ms\"\n\
         deadline = \"2ms\"\naccesses = 0",
    );
    let late = short(&late);
    assert_eq!(
        (&late["what"], &late["asked"], &late["have"], &late["missing"]),
        (&"deadline of gp: slow".into(), &3_000_000.into(), &2_000_000.into(), &1_000_000.into()),
    );
    let endless = unplanned().replace(
        "name = \"gp\"",
        "name = \"gp\"\n[[vm.task]]\nname = \"slow\"\nwcet = \"3ms\"\nperiod = \"2ms\"\n\
         deadline = \"2ms\"\naccesses = 0",
    );
    let endless = short(&endless);
    assert_eq!(
        (&endless["what"], &endless["asked"]),
        (&"deadline of gp: slow".into(), &Value::Null)
    );
    let cause = "has no bound: 100.0 % of its core are guaranteed, and the VM's tasks up to this \
                 one need 150.0 %";
    assert!(endless["text"].as_str().is_some_and(|text| text.ends_with(cause)), "{endless}");
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
    let (_, json) = planned(&text("memory = \"64MiB\"\nworking_set = \"576KiB\""), &[]);
    assert_eq!(
        json["conflict"]["demands"],
        json!(["working set of control", "working set of vision"])
    );
    let short = &json["conflict"]["shortages"][0];
    assert_eq!(
        (&short["what"], &short["asked"], &short["have"], &short["missing"]),
        (&"colors".into(), &18.into(), &16.into(), &2.into()),
    );
    // It is the memory that needs as many colors, not the working set.
    let (_, json) = planned(&text("memory = \"2304MiB\"\nworking_set = \"64KiB\""), &[]);
    assert_eq!(json["conflict"]["demands"], json!(["working set of control", "memory of vision"]));
}

#[test]
fn a_table_for_too_short_periods_is_no_base_of_a_plan() {
    let text = unplanned().replace("min_accesses", "min_period = \"31us\"\nmin_accesses");
    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let printed = capture(fake.weir().args(["plan", "x.toml"]));
    let words =
        printed.err.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
    assert!(
        printed.status == Some(1) && words.contains("`weir calibrate --period 31us`"),
        "{}",
        printed.err
    );
    fake.write("x.toml", text.replace("31us", "30us").as_bytes());
    assert_eq!(capture(fake.weir().args(["plan", "x.toml"])).status, Some(0));
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
    let fake = fake();
    for (system, (period, head, a, grid)) in grids().into_iter().enumerate() {
        let with = |a: &str, b: Option<u64>| {
            let given =
                b.map(|b| format!("memory_budget = {{ accesses = {b}, period = \"{period}\" }}\n"));
            let b = format!("[[vm]]\nname = \"b\"\ncpus = [1]\n{}", given.unwrap_or_default());
            // Tables of the file come behind the VMs.
            let (top, rest) = head.split_once('\n').expect("a platform");
            format!("{top}\n{a}{b}{rest}")
        };
        let accepted = |text: &str| {
            fake.write("grid.toml", text.as_bytes());
            capture(fake.weir().args(["analyze", "grid.toml"])).status == Some(0)
        };
        let plan = |text: &str| {
            fake.write("open.toml", text.as_bytes());
            let printed = capture(fake.weir().args(["plan", "open.toml", "--json"]));
            let json: Value = serde_json::from_str(&printed.out).expect("JSON");
            if printed.status != Some(0) {
                return None;
            }
            assert!(accepted(json["toml"].as_str().expect("a file")), "{json}");
            let of = |vm: usize| json["plan"]["vms"][vm]["budget"].as_u64().expect("a budget");
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
            let planned = plan(&with(&a, Some(b)));
            if let Some(least) = least {
                let [budget, _] =
                    planned.unwrap_or_else(|| panic!("{system}: no plan next to {b}"));
                assert!(budget <= least, "{system}: {budget} next to {b}, and {least} holds");
                (most, found) = (Some(b), found + 1);
            }
        }
        let planned = plan(&with(&a, None));
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
        let (printed, json) = planned(&format!("{top}\n{a}{b}{rest}"), &[]);
        let Some(vms) = json["plan"]["vms"].as_array() else {
            assert!(
                printed.err.contains("with the greatest budget that is left"),
                "{}",
                printed.err
            );
            continue;
        };
        // A core of qemu-virt makes an access each nanosecond, sixteen in a row at most 33.
        let most = if rest.is_empty() { 210 } else { 100_000 * 33 / 16 + 33 };
        for vm in vms {
            let budget = vm["budget"].as_u64().expect("a budget");
            assert!(budget <= most, "{json}");
        }
    }
}
