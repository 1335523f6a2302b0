//! `weir simulate` as it is called.

use crate::support::checkout;
use serde_json::Value;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

struct Printed {
    status: Option<i32>,
    out: String,
    err: String,
}

fn weir(arguments: &[&str]) -> Printed {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn system(name: &str) -> String {
    checkout::system(name.trim_end_matches(".toml")).to_str().unwrap().to_owned()
}

fn path(directory: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = directory.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[test]
fn a_dram_trace_of_row_misses_takes_trc_each() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "trace.txt");
    let mut text = String::from("# another row of bank 0 each time\n\n");
    for row in 0..20_000_u64 {
        writeln!(text, "R {:#x}", row << 17).unwrap();
    }
    fs::write(&file, text).unwrap();
    let printed = weir(&["simulate", "dram", &name, "--memory", "ddr4-2400", "--json"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let json: Value = serde_json::from_str(&printed.out).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["version", "requests", "cycles", "row_hits", "row_conflicts", "mb_per_s"]);
    assert_eq!((json["requests"].as_u64(), json["row_hits"].as_u64()), (Some(20_000), Some(0)));
    let each = json["cycles"].as_f64().unwrap() / 20_000.0;
    let expected = 56.0 / (1.0 - 433.0 / 9364.0);
    assert!((each / expected - 1.0).abs() < 0.003, "{each} {expected}");
    let rate = 64.0 * 20_000.0 * 1e6 / (json["cycles"].as_f64().unwrap() * 833.0);
    assert!((json["mb_per_s"].as_f64().unwrap() - rate).abs() < 0.1);
}

#[test]
fn errors_in_traces_and_memories_have_a_place() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "trace.txt");
    fs::write(&file, "R 0x40\nW 64\n").unwrap();
    let bad = weir(&["simulate", "dram", &name, "--memory", "ddr4-2400"]);
    assert_eq!(bad.status, Some(1));
    assert!(bad.err.contains("trace.txt:2: `W 64` is no request"), "{}", bad.err);
    let none = weir(&["simulate", "dram", "nowhere", "--memory", "ddr4-2400"]);
    assert_eq!(none.status, Some(2));
    let (memory, memory_name) = path(&directory, "memory.toml");
    fs::write(&memory, "description = \"x\"\n[dram]\nclock_ps = -1\n").unwrap();
    let bad = weir(&["simulate", "dram", &name, "--memory", &memory_name]);
    assert_eq!(bad.status, Some(1));
    assert!(bad.err.contains("memory.toml: ") && bad.err.contains("line 3"), "{}", bad.err);
    for wrong in [
        &["simulate"][..],
        &["simulate", "dram", "x"],
        &["simulate", "x.toml"],
        &["simulate", "run", "x.toml", "--for", "2s"],
        &["simulate", "run", "x.toml", "--compare", "--output", "plots"],
        &["simulate", "run", "x.toml", "--set", "seed"],
        &["simulate", "sweep", "x.toml", "--shard", "1/2"],
        &["simulate", "sweep", "x.toml", "--vary", "seed=1,1"],
        &["simulate", "merge"],
    ] {
        assert_eq!(weir(wrong).status, Some(2), "{wrong:?}");
    }
    fs::write(&file, "R 0x40\n").unwrap();
    let good = weir(&["simulate", "dram", &name, "--memory", "ddr4-2400"]);
    assert_eq!(good.status, Some(0), "{}", good.err);
}

#[test]
#[cfg(unix)]
fn endless_and_empty_traces_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "trace.txt");
    fs::write(&file, format!("R 0x40\n#{}\n", "-".repeat(5000))).unwrap();
    for (trace, status, wanted) in [
        ("/dev/zero", 2, "cannot read /dev/zero: it is a device, not a regular file"),
        ("/", 2, "cannot read /: it is a directory, not a regular file"),
        (&name, 1, "trace.txt:2: a line of more than 4096 bytes"),
    ] {
        let printed = weir(&["simulate", "dram", trace, "--memory", "ddr4-2400"]);
        assert_eq!(printed.status, Some(status), "{trace}");
        assert!(printed.err.contains(wanted), "{}", printed.err);
    }
    let printed = weir(&["simulate", "dram", &name, "--memory", "/dev/zero"]);
    assert!(
        printed.err.contains("/dev/zero: it is a device, not a regular file"),
        "{}",
        printed.err
    );
}

#[test]
fn a_simulation_repeats_and_its_waits_add_up() {
    let file = system("simulate-isolation.toml");
    let call = ["simulate", "run", &file, "--for", "300us", "--warm-up", "1us", "--json"];
    let printed = weir(&call);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(weir(&call).out, printed.out);
    let json: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(json["evicted"]["writers"]["critical"], 0);
    for vm in json["vms"].as_array().unwrap() {
        let waited = vm["waited_for_ps"].as_object().unwrap().values();
        let waited: u64 = waited.map(|wait| wait.as_u64().unwrap()).sum();
        let delay = vm["delay_ps"].as_u64().unwrap();
        assert!(delay > 0 && delay == waited, "{delay} {waited}");
    }
    let table = weir(&call[..7]).out;
    assert!(table.contains("slowdown") && table.contains("writers, vCPU 2"), "{table}");
}

#[test]
fn pictures_have_a_line_for_each_vm() {
    let directory = tempfile::tempdir().unwrap();
    let (to, name) = path(&directory, "pictures");
    let file = system("simulate-isolation.toml");
    let printed = weir(&["simulate", "run", &file, "--for", "300us", "--output", &name]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for picture in ["bandwidth.svg", "latency.svg", "arrivals.svg"] {
        let text = fs::read_to_string(to.join(picture)).unwrap();
        assert!(text.starts_with("<svg") && text.contains("writers"), "{picture}");
        assert!(text.contains("critical") && printed.out.contains(picture), "{picture}");
    }
}

#[test]
fn deadlines_and_arrival_curves_are_in_all_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "periodic.toml");
    let text = "platform = \"zcu102\"\n[[vm]]\nname = \"periodic\"\ncpus = [0]\nmemory = \"4MiB\"\n\
                image = { elf = \"memory-stressor\" }\n\
                workload = { kind = \"read\", size = \"2MiB\", period = \"2ms\" }\n\
                memory_budget = { accesses = 2500, period = \"100us\", overcommit = true }\n";
    fs::write(&file, text).unwrap();
    let (to, pictures) = path(&directory, "pictures");
    let call = ["simulate", "run", &name, "--for", "8ms", "--warm-up", "2ms"];
    let table = weir(&[&call[..], &["--output", &pictures]].concat());
    assert_eq!(table.status, Some(0), "{}", table.err);
    for column in ["met", "missed", "response", "L2 refills, at most in any", "responses.svg"] {
        assert!(table.out.contains(column), "{column} {}", table.out);
    }
    assert!(fs::read_to_string(to.join("responses.svg")).unwrap().contains("periodic"));
    let of = |more: &[&str]| -> Value {
        serde_json::from_str(&weir(&[&call[..], &["--json"], more].concat()).out).unwrap()
    };
    let free = of(&[]);
    let jobs = &free["vms"][0]["jobs"];
    assert_eq!((jobs["ended"].as_u64(), jobs["met"].as_u64()), (Some(4), Some(4)), "{jobs}");
    assert_eq!((jobs["missed"].as_u64(), jobs["deadline_ns"].as_u64()), (Some(0), Some(2_000_000)));
    let late = of(&["--set", "vm.periodic.memory_budget.accesses=1200"]);
    let jobs = &late["vms"][0]["jobs"];
    assert!(jobs["missed"].as_u64().unwrap() > 1, "{jobs}");
    assert!(late["vms"][0]["slowdown"].as_f64().unwrap() > 1.5, "{late}");
    let curve = free["vms"][0]["arrival_curve"].as_array().unwrap();
    let (first, last) = (&curve[0], curve.last().unwrap());
    assert_eq!(first[0].as_u64(), Some(1), "{first}");
    assert!(last[1].as_u64() == Some(256) && last[0].as_u64().unwrap() > 1000, "{last}");
}

#[test]
fn a_dma_engine_and_its_tbu_are_in_what_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "dma.toml");
    let text = "platform = \"zcu102\"\n[[vm]]\nname = \"mover\"\ncpus = [0]\nmemory = \"4MiB\"\n\
                image = { elf = \"memory-stressor\" }\n\
                workload = { kind = \"dma\", engine = \"lpd\", chunk = \"4KiB\" }\n";
    fs::write(&file, text).unwrap();
    let call = ["simulate", "run", &name, "--for", "500us", "--warm-up", "100us"];
    let table = weir(&call);
    assert_eq!(table.status, Some(0), "{}", table.err);
    assert!(table.out.contains("TBU lpd"), "{}", table.out);
    let json: Value = serde_json::from_str(&weir(&[&call[..], &["--json"]].concat()).out).unwrap();
    let free = json["vms"][0]["dma_bytes"].as_u64().unwrap();
    assert!(free > 500_000, "{json}");
    assert!(json["tbus"][0]["lookups"]["mover"].as_u64().unwrap() > 1000, "{json}");
    let slow = weir(&[&call[..], &["--json", "--set", "dma.lpd.qos=10"]].concat());
    let json: Value = serde_json::from_str(&slow.out).unwrap();
    assert!(json["vms"][0]["dma_bytes"].as_u64().unwrap() < free / 8, "{json}");
}

#[test]
fn the_ready_examples_show_their_claims() {
    let variants = |name: &str, more: &[&str]| -> Vec<Value> {
        let file = system(name);
        let call = ["simulate", "run", &file, "--compare", "--json", "--for", "2ms"];
        let printed = weir(&[&call, more].concat());
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        serde_json::from_str(&printed.out).unwrap()
    };
    let slowdown = |variant: &Value| variant["vms"][0]["slowdown"].as_f64().unwrap();
    let evicted = |variant: &Value| variant["evicted_of_others"][1].as_u64().unwrap();
    let all = variants("simulate-isolation.toml", &[]);
    let [both, colors, budgets, neither] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((evicted(both), evicted(colors)), (0, 0));
    assert!(evicted(neither) > 1000 && slowdown(neither) > 5.0, "{neither}");
    assert!(slowdown(both) < 1.05 && slowdown(colors) < 1.1, "{both} {colors}");
    for variant in [both, budgets] {
        for period in variant["vms"][1]["most_in_a_period"].as_array().unwrap() {
            assert!((30..=45).contains(&period[0].as_u64().unwrap()), "{variant}");
        }
    }
    let few = ["caches.l2_misses=3", "caches.l2_write_buffers=3", "cores.l2.replacement=lru"];
    let few: Vec<_> = few.into_iter().flat_map(|value| ["--set", value]).collect();
    let all = variants("simulate-registers.toml", &few);
    let [both, colors, budgets, neither] = all.as_slice() else { panic!("{all:?}") };
    assert!(slowdown(colors) > 6.0 && slowdown(neither) > 6.0, "{colors} {neither}");
    assert!(slowdown(both) < 1.2 && slowdown(budgets) < 1.3, "{both} {budgets}");
    let ratio = slowdown(neither) / slowdown(colors);
    assert!((0.8..1.3).contains(&ratio), "{ratio}");
}

#[test]
fn killed_sweeps_resume_and_shards_merge() {
    let directory = tempfile::tempdir().unwrap();
    let file = system("simulate-isolation.toml");
    let sweep = |out: &str, more: &[&str]| {
        let call = [
            "simulate",
            "sweep",
            &file,
            "--for",
            "50us",
            "--warm-up",
            "10us",
            "--vary",
            "vm.writers.memory_budget.accesses=45,90",
            "--vary",
            "caches.l2_misses=2,4,8",
            "--output",
            out,
        ];
        let printed = weir(&[&call, more].concat());
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        fs::read_to_string(out).unwrap()
    };
    let (_, whole) = path(&directory, "whole");
    let bytes = sweep(&whole, &[]);
    assert_eq!(bytes.lines().count(), 6);
    let last: Value = serde_json::from_str(bytes.lines().last().unwrap()).unwrap();
    assert_eq!(last["index"], 5);
    assert_eq!(last["point"]["caches.l2_misses"], "8");
    let budget = &last["vms"][1]["budgets"][0];
    assert_eq!(budget["granted"][0], 30);
    // Nor does the number of threads matter.
    for threads in ["1", "3"] {
        let (_, name) = path(&directory, threads);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env("RAYON_NUM_THREADS", threads).args(["simulate", "sweep", &file]);
        command.args(["--for", "50us", "--warm-up", "10us", "--output", &name]);
        command.args(["--vary", "vm.writers.memory_budget.accesses=45,90"]);
        command.args(["--vary", "caches.l2_misses=2,4,8"]);
        assert!(command.output().unwrap().status.success());
        assert_eq!(fs::read_to_string(&name).unwrap(), bytes);
    }
    let (killed_path, killed) = path(&directory, "killed");
    fs::write(&killed_path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(sweep(&killed, &[]), bytes);
    let shards: Vec<_> = (1..=3)
        .map(|shard| {
            let (_, name) = path(&directory, &format!("shard{shard}"));
            sweep(&name, &["--shard", &format!("{shard}/3")]);
            name
        })
        .collect();
    let merged = weir(&["simulate", "merge", &shards[2], &shards[0], &shards[1]]);
    assert_eq!(merged.out, bytes);
    let missing = weir(&["simulate", "merge", &shards[0], &shards[1]]);
    assert_eq!(missing.status, Some(1));
    assert!(missing.err.contains("of 6 points 2 are missing, these: 2, 5"), "{}", missing.err);
    // A sweep with another seed is another sweep: their lines neither go on nor mix.
    let other = ["--seed", "2", "--shard", "3/3"];
    let (_, name) = path(&directory, "other");
    sweep(&name, &other);
    let mixed = weir(&["simulate", "merge", &shards[0], &shards[1], &name]);
    assert!(mixed.err.contains(":1 is of another sweep ("), "{}", mixed.err);
    let gone_on = weir(
        &[
            &[
                "simulate",
                "sweep",
                &file,
                "--for",
                "50us",
                "--warm-up",
                "10us",
                "--output",
                &shards[2],
            ],
            &other[..],
            &[
                "--vary",
                "vm.writers.memory_budget.accesses=45,90",
                "--vary",
                "caches.l2_misses=2,4,8",
            ],
        ]
        .concat(),
    );
    assert_eq!(gone_on.status, Some(2));
    assert!(gone_on.err.contains("this is no point of this sweep"), "{}", gone_on.err);
    for wrong in [
        &["simulate", "merge", &shards[0], "--output", &shards[0]][..],
        &["simulate", "sweep", &file, "--output", &name],
        &["simulate", "sweep", &file, "--vary", "seed=1", "--vary", "seed=2"],
    ] {
        assert_eq!(weir(wrong).status, Some(2), "{wrong:?}");
    }
}

#[test]
fn the_profile_of_the_documentation_runs_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "bursts.toml");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation/simulation.md");
    let page = fs::read_to_string(page).unwrap();
    let text = page.split("```toml\n").find(|block| block.starts_with("platform")).unwrap();
    fs::write(&file, text.split("```").next().unwrap()).unwrap();
    let printed = weir(&["simulate", "run", &name, "--json"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let json: Value = serde_json::from_str(&printed.out).unwrap();
    let (vm, most) = (&json["vms"][0], |lines: &Value| lines.as_u64().unwrap());
    let slices = vm["lines_per_slice"].as_array().unwrap();
    // Phases in which nothing comes from DRAM, and bursts.
    assert!(slices.iter().any(|lines| most(lines) == 0), "{vm}");
    assert!(slices.iter().any(|lines| most(lines) > 500), "{vm}");
}

#[test]
fn slowdown_compares_the_same_work() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "work.toml");
    let vm = |name: &str, cpus: &str, workload: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"16MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\nworkload = {{ {workload} }}\n"
        )
    };
    // A third of a millisecond a transfer, and phases of 200 us and of some us.
    let phases = "{ accesses = 200, gap = \"1us\" }, { accesses = 2000, size = \"1MiB\" }";
    let text = ["platform = \"zcu102\"\n".to_owned()]
        .into_iter()
        .chain([
            vm("mover", "[0]", "kind = \"dma\", engine = \"fpd\", size = \"1MiB\""),
            vm(
                "phases",
                "[1]",
                &format!("kind = \"profile\", size = \"1MiB\", phases = [{phases}]"),
            ),
            vm("writers", "[2, 3]", "kind = \"write\", size = \"1MiB\""),
        ])
        .collect::<String>();
    fs::write(&file, text).unwrap();
    let of = |time: &str| -> Value {
        let call = ["simulate", "run", &name, "--for", time, "--warm-up", "1us", "--json"];
        let printed = weir(&call);
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        serde_json::from_str(&printed.out).unwrap()
    };
    let all = of("1500us");
    let mover = &all["vms"][0];
    let mean = |of: &Value| of["latency_ns"]["mean"].as_f64().unwrap();
    let slowdown = mover["slowdown"].as_f64().unwrap();
    // Transfers follow each other, so that their times are all there is.
    let expected = mean(mover) / mean(&mover["alone"]);
    assert!(expected > 1.05 && (slowdown / expected - 1.0).abs() < 0.004, "{slowdown} {expected}");
    assert!((2..=6).contains(&mover["same_work"]["units"].as_u64().unwrap()), "{mover}");
    // The phase in which nothing is slower is the longer one.
    let phases = all["vms"][1]["slowdown"].as_f64().unwrap();
    assert!((1.0..2.0).contains(&phases), "{phases}");
    let short = of("100us");
    assert!(short["vms"][0]["slowdown"].is_null(), "{}", short["vms"][0]);
    assert!(short["vms"][0]["dma_bytes"].as_u64().unwrap() > 0);
    let table = weir(&["simulate", "run", &name, "--for", "100us", "--warm-up", "1us"]).out;
    assert!(table.lines().any(|l| l.contains("mover") && l.contains("- ")), "{table}");
}

/// Table III of rt-virtio: each flow with the smallest period that its analysis accepts.
#[test]
fn no_packet_of_table_iii_takes_longer_than_its_bound() {
    let file = system("simulate-flows.toml");
    // Bandwidth, size, period, and what was measured there, in ns.
    for (rate, size, period, measured) in [
        ("148MB/s", "4KiB", 37_407, 34_535.0),
        ("148MB/s", "12KiB", 103_645, 99_818.0),
        ("485MB/s", "4KiB", 18_177, 14_747.0),
        ("485MB/s", "12KiB", 45_954, 42_777.0),
    ] {
        let keys = [
            format!("dma.bandwidth={rate}"),
            format!("flow.setpoints.size={size}"),
            format!("flow.setpoints.period={period}ns"),
        ];
        let mut call = vec!["simulate", "run", &file, "--for", "10ms", "--json"];
        call.extend(keys.iter().flat_map(|key| ["--set", key]));
        let printed = weir(&call);
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        let json: Value = serde_json::from_str(&printed.out).unwrap();
        let flow = &json["flows"][0];
        let [observed_max, bound, met, arrived] = ["observed_max_ns", "bound_ns", "met", "arrived"]
            .map(|key| flow[key].as_u64().unwrap());
        // With D = P the bound is the period.
        assert_eq!((bound, flow["within_bound"].as_bool()), (period, Some(true)), "{flow}");
        assert!(observed_max <= bound && met == arrived && arrived > 90, "{flow}");
        let ratio = f64::from(u32::try_from(observed_max).unwrap()) / measured;
        assert!((0.95..1.2).contains(&ratio), "{ratio} {flow}");
    }
    let table = weir(&["simulate", "run", &file]).out;
    assert!(table.contains("setpoints") && table.contains("verdict"), "{table}");
    assert!(table.lines().any(|line| line.contains("37407") && line.contains("holds")), "{table}");
    let copied = weir(&["simulate", "run", &file, "--set", "dma.path=broker"]);
    assert_eq!(copied.status, Some(1));
    assert!(copied.err.contains("its flows are left out: a core copies"), "{}", copied.err);
    let none = weir(&["simulate", "run", &file, "--set", "dma.engine=gpu"]);
    assert!(none.err.contains("has: fpd, lpd"), "{}", none.err);
}
