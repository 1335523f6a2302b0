//! Simulations as `weir simulate` makes them.

use super::{SimulateRunArguments, compare, dram, draw, tables};
use crate::{
    environment::Environment,
    failure::{CALL, Result, SYSTEM},
};
use clap::Parser;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use weir_simulator::{Simulated, Simulation, SimulationRecord};

#[path = "../../../../tests/checkout.rs"]
mod checkout;

#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    arguments: SimulateRunArguments,
}

/// What `weir simulate run` simulates for this system file and these options.
fn simulation(file: &str, options: &str) -> Result<Simulation> {
    let arguments = ["run", file].into_iter().chain(options.split_whitespace());
    let model = Call::try_parse_from(arguments).expect("a call").arguments.model;
    super::simulation(&model, &Environment::find())
}

fn simulated(file: &str, options: &str) -> Simulated {
    let simulation = simulation(file, options).expect("a system");
    simulation.together_and_alone().expect("a result")
}

fn described(file: &str, options: &str) -> Value {
    json!(SimulationRecord::of(&simulated(file, options)))
}

fn table(file: &str, options: &str) -> String {
    let mut text = Vec::new();
    tables::tables(&mut text, &simulated(file, options)).expect("tables");
    String::from_utf8(text).expect("UTF-8")
}

fn system(name: &str) -> String {
    checkout::system(name).to_str().expect("UTF-8").to_owned()
}

fn path(directory: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = directory.path().join(name);
    let text = path.to_str().expect("UTF-8").to_owned();
    (path, text)
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
    let (to, _) = path(&directory, "pictures");
    let call = "--for 8ms --warm-up 2ms";
    let table = table(&name, call);
    for column in ["met", "missed", "response", "L2 refills, at most in any"] {
        assert!(table.contains(column), "{column} {table}");
    }
    draw::write(&to, &simulated(&name, call)).unwrap();
    assert!(fs::read_to_string(to.join("responses.svg")).unwrap().contains("periodic"));
    let free = described(&name, call);
    let jobs = &free["vms"][0]["jobs"];
    assert_eq!((jobs["ended"].as_u64(), jobs["met"].as_u64()), (Some(4), Some(4)), "{jobs}");
    assert_eq!((jobs["missed"].as_u64(), jobs["deadline_ns"].as_u64()), (Some(0), Some(2_000_000)));
    let late = described(&name, &format!("{call} --set vm.periodic.memory_budget.accesses=1200"));
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
    let call = "--for 500us --warm-up 100us";
    assert!(table(&name, call).contains("TBU lpd"));
    let json = described(&name, call);
    let free = json["vms"][0]["dma_bytes"].as_u64().unwrap();
    assert!(free > 500_000, "{json}");
    assert!(json["tbus"][0]["lookups"]["mover"].as_u64().unwrap() > 1000, "{json}");
    let json = described(&name, &format!("{call} --set dma.lpd.qos=10"));
    assert!(json["vms"][0]["dma_bytes"].as_u64().unwrap() < free / 8, "{json}");
}

#[test]
fn the_ready_examples_show_their_claims() {
    let variants = |name: &str, options: &str| -> Vec<Value> {
        let simulation = simulation(&system(name), options).unwrap();
        compare::describe(&simulation).unwrap().iter().map(|variant| json!(variant)).collect()
    };
    let slowdown = |variant: &Value| variant["vms"][0]["slowdown"].as_f64().unwrap();
    let evicted = |variant: &Value| variant["evicted_of_others"][1].as_u64().unwrap();
    let all = variants("simulate-isolation", "--warm-up 7ms");
    // The tutorial's table.
    let published = include_str!("../../../../docs/results/simulate-isolation.json");
    let mut published: Vec<Value> = serde_json::from_str(published).unwrap();
    for variant in &mut published {
        variant.as_object_mut().unwrap().remove("version");
    }
    assert_eq!(all, published, "write it anew, as docs/tutorials/memory-isolation.md states");
    let [both, colors, budgets, neither] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((evicted(both), evicted(colors)), (0, 0));
    assert!(evicted(neither) > 1000 && slowdown(neither) > 5.0, "{neither}");
    assert!(slowdown(both) < 1.05 && slowdown(colors) < 1.1, "{both} {colors}");
    for variant in [both, budgets] {
        for period in variant["vms"][1]["most_in_a_period"].as_array().unwrap() {
            assert!((30..=45).contains(&period[0].as_u64().unwrap()), "{variant}");
        }
    }
    let few = "--for 2ms --set caches.l2_misses=3 --set caches.l2_write_buffers=3 \
               --set cores.l2.replacement=lru";
    let all = variants("simulate-registers", few);
    let [both, colors, budgets, neither] = all.as_slice() else { panic!("{all:?}") };
    assert!(slowdown(colors) > 6.0 && slowdown(neither) > 6.0, "{colors} {neither}");
    assert!(slowdown(both) < 1.2 && slowdown(budgets) < 1.3, "{both} {budgets}");
    let ratio = slowdown(neither) / slowdown(colors);
    assert!((0.8..1.3).contains(&ratio), "{ratio}");
}

#[test]
fn the_profile_of_the_documentation_runs_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "bursts.toml");
    let page = include_str!("../../../../docs/explanation/simulation.md");
    let text = page.split("```toml\n").find(|block| block.starts_with("platform")).unwrap();
    fs::write(&file, text.split("```").next().unwrap()).unwrap();
    let json = described(&name, "");
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
    let of = |time: &str| described(&name, &format!("--for {time} --warm-up 1us"));
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
    let table = table(&name, "--for 100us --warm-up 1us");
    assert!(table.lines().any(|l| l.contains("mover") && l.contains("- ")), "{table}");
}

/// Table III of rt-virtio: each flow with the smallest period that its analysis accepts.
#[test]
fn no_packet_of_table_iii_takes_longer_than_its_bound() {
    let file = system("simulate-flows");
    // Bandwidth, size, period, and what was measured there, in ns.
    for (rate, size, period, measured) in [
        ("148MB/s", "4KiB", 37_407, 34_535.0),
        ("148MB/s", "12KiB", 103_645, 99_818.0),
        ("485MB/s", "4KiB", 18_177, 14_747.0),
        ("485MB/s", "12KiB", 45_954, 42_777.0),
    ] {
        let keys = format!(
            "--for 10ms --set dma.bandwidth={rate} --set flow.setpoints.size={size} \
             --set flow.setpoints.period={period}ns"
        );
        let json = described(&file, &keys);
        let flow = &json["flows"][0];
        let [observed_max, bound, met, arrived] = ["observed_max_ns", "bound_ns", "met", "arrived"]
            .map(|key| flow[key].as_u64().unwrap());
        // With D = P the bound is the period.
        assert_eq!((bound, flow["within_bound"].as_bool()), (period, Some(true)), "{flow}");
        assert!(observed_max <= bound && met == arrived && arrived > 90, "{flow}");
        let ratio = f64::from(u32::try_from(observed_max).unwrap()) / measured;
        assert!((0.95..1.2).contains(&ratio), "{ratio} {flow}");
    }
    let table = table(&file, "");
    assert!(table.contains("setpoints") && table.contains("verdict"), "{table}");
    assert!(table.lines().any(|line| line.contains("37407") && line.contains("holds")), "{table}");
    let refused = |key: &str| simulation(&file, &format!("--set {key}")).err().expect("a failure");
    let copied = refused("dma.path=broker");
    assert_eq!(copied.status, SYSTEM);
    assert!(copied.text.contains("its flows are left out: a core copies"), "{}", copied.text);
    let none = refused("dma.engine=gpu");
    assert!(none.text.contains("has: fpd, gem, lpd"), "{}", none.text);
}

#[test]
fn errors_in_traces_and_memories_have_a_place() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = path(&directory, "trace.txt");
    fs::write(&file, "R 0x40\nW 64\n").unwrap();
    let of = |memory: &str| dram::run(&file, memory, &[], true);
    let bad = of("ddr4-2400").expect_err("a failure");
    assert_eq!(bad.status, SYSTEM);
    assert!(bad.text.contains("trace.txt:2: `W 64` is no request"), "{}", bad.text);
    let (memory, memory_name) = path(&directory, "memory.toml");
    fs::write(&memory, "description = \"x\"\n[dram]\nclock_ps = -1\n").unwrap();
    let bad = of(&memory_name).expect_err("a failure");
    assert_eq!(bad.status, SYSTEM);
    assert!(bad.text.contains("memory.toml: ") && bad.text.contains("line 3"), "{}", bad.text);
}

#[test]
fn endless_and_empty_traces_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "trace.txt");
    fs::write(&file, format!("R 0x40\n#{}\n", "-".repeat(5000))).unwrap();
    for (trace, status, wanted) in [
        ("/dev/zero", CALL, "cannot read /dev/zero: it is a device, not a regular file"),
        ("/", CALL, "cannot read /: it is a directory, not a regular file"),
        (&name, SYSTEM, "trace.txt:2: a line of more than 4096 bytes"),
    ] {
        let failure = dram::run(Path::new(trace), "ddr4-2400", &[], true).expect_err("a failure");
        assert_eq!(failure.status, status, "{trace}");
        assert!(failure.text.contains(wanted), "{}", failure.text);
    }
    let failure = dram::run(&file, "/dev/zero", &[], true).expect_err("a failure");
    let why = "/dev/zero: it is a device, not a regular file";
    assert!(failure.text.contains(why), "{}", failure.text);
}
