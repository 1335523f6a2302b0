//! Flows that the DMA engine of weir's broker moves, and the verdict on them.

use super::{
    analyze,
    texts::{OVERHEADS, flow},
};
use serde_json::Value;
use std::path::Path;
use weir_analysis::{
    Options,
    flows::Effort,
    system::{OtherVms, bounds},
    verdict::Verdict::{DoesNotHold, Holds, NotJudged},
};
use weir_model::{Catalog, Code, SystemFile, platform::Machine};

/// A system that weir builds for a board with a DMA engine.
fn system(dma: &str, deadline: &str, more: &str) -> String {
    let vm = |name: &str, core: u32| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"4MiB\"\n\
             image = {{ elf = \"g\" }}\n"
        )
    };
    let flow = flow("f", "a", "\"b\"", "4KiB", "1ms", deadline);
    format!("platform = \"zcu102\"\n{}{}[dma]\n{dma}\n{flow}{more}", vm("a", 0), vm("b", 1))
}

/// Overheads with these values and this origin, with all that weir's broker needs.
fn measured(command: &str, [pd, ip, copy]: [u64; 3], rates: &str) -> String {
    let text = OVERHEADS
        .replace("pd = { min = 373, max = 949 }", &format!("pd = {{ min = 0, max = {pd} }}"))
        .replace("ip = { min = 797, max = 828 }", &format!("ip = {{ min = 0, max = {ip} }}"));
    format!(
        "{text}origin = {{ command = \"{command}\" }}\nwake = {{ min = 300, max = 700 }}\n\
         copy = {{ min = 0, max = {copy} }}\nhold = {{ min = 0, max = 0 }}\n{rates}\n"
    )
}

const WEIR: &str = "weir run flows.toml";
const COPY: &str = "copy_bandwidth = \"1GB/s\"";

fn file(text: &str) -> SystemFile {
    SystemFile::parse(Path::new("x.toml"), text, &Catalog::default())
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

/// The bounds without and with what other VMs do.
fn bounds_of(dma: &str, overheads: &str) -> [Option<u64>; 2] {
    let file = file(&system(dma, "900us", overheads));
    [OtherVms::Quiet, OtherVms::Active]
        .map(|others| bounds(file.system(), others, Effort::default()).of[0])
}

#[test]
fn the_engine_is_in_the_bound_of_a_run() {
    let of = |dma: &str, steps, rates: &str| bounds_of(dma, &measured(WEIR, steps, rates));
    let core = of("path = \"broker\"", [949, 828, 2000], COPY);
    assert!(core[0].is_some() && core[0] < core[1], "{core:?}");
    // Programming and the engine take no longer than the copy's set-up.
    assert_eq!(of("path = \"dma\"", [949, 828, 2000], COPY), core);
    assert_eq!(of("", [949, 1051, 2000], COPY), core);
    // One chunk, which takes more than its copy, whether the core moves any or none.
    let longer = core.map(|bound| bound.map(|bound| bound + 500));
    for dma in ["", "engine_from = \"0B\"", "engine_from = \"4096B\""] {
        assert_eq!(of(dma, [949, 1551, 2000], COPY), longer, "{dma}");
    }
    // No piece is as long as this.
    assert_eq!(of("engine_from = \"4097B\"", [949, 1551, 2000], COPY), core);
    // The slower one of both moves a chunk. The board's table has 2 GB/s for 4 KiB.
    let [all, fast] = ["engine_from = \"0B\"", "copy_bandwidth = \"4GB/s\""];
    let slow = format!("{fast}\nengine_bandwidth = \"1GB/s\"");
    assert_eq!(of(all, [949, 828, 2000], &slow), core);
    let by_core = |rate: &str| {
        of("path = \"broker\"", [949, 828, 2000], &format!("copy_bandwidth = \"{rate}\""))
    };
    assert_eq!(of(all, [949, 828, 2000], fast), by_core("2GB/s"));
    // A regulator limits the engine to the bandwidth within a chunk, too.
    let paced = format!("{all}\nbandwidth = \"500MB/s\"");
    let regulated = of(&format!("{paced}\nqos_level = 40"), [949, 828, 2000], fast);
    let slow = format!("{fast}\nengine_bandwidth = \"500MB/s\"");
    assert_eq!(regulated, of(&paced, [949, 828, 2000], &slow));
    assert!(of(&paced, [949, 828, 2000], fast)[0] < regulated[0]);
    // The core is faster for each size, and moves all unless the file says otherwise.
    assert_eq!(of("", [949, 828, 2000], fast), by_core("4GB/s"));
}

#[test]
fn the_engines_overheads_are_measured_on_weir() {
    let text = measured(WEIR, [949, 828, 2000], COPY);
    let without = text.replace("ip = ", "# ip = ");
    assert_ne!(text, without);
    // The board's `ip` is another hypervisor's.
    assert_eq!(bounds_of("", &without), [None; 2]);
    assert!(bounds_of("path = \"broker\"", &without)[0].is_some());
    let (verdict, json) = analyze(&system("bandwidth = \"485MB/s\"", "900us", &without));
    assert_eq!(verdict, Some(NotJudged), "{json}");
    let message = json["faults"][0]["message"].as_str().expect("a message");
    assert!(message.ends_with("not known: ip"), "{message}");
    // The board's own overheads have no step of weir's.
    assert_eq!(bounds_of("", ""), [None; 2]);
}

#[test]
fn a_verdict_with_weirs_overheads_is_weirs() {
    let judged = |dma: &str, deadline: &str| {
        let text = measured(WEIR, [949, 1551, 2000], COPY);
        let (verdict, json) = analyze(&system(dma, deadline, &text));
        (verdict, json["flows"].clone())
    };
    let (verdict, flows) = judged("engine_from = \"1KiB\"", "900us");
    assert_eq!(verdict, Some(Holds), "{flows}");
    assert_eq!(
        (&flows["assumed"]["data_path"], &flows["assumed"]["engine_from"]),
        (&"dma".into(), &1024.into())
    );
    let task = &flows["tasks"][0];
    assert!(task["bound_ns"].as_u64().is_some(), "{task}");
    assert_eq!(
        (&task["end_to_end_ns"], &flows["bandwidth"]),
        (&Value::Null, &1_000_000_000.into())
    );
    assert_eq!(judged("", "9us").0, Some(DoesNotHold));
    // 949 + 1551 - 2000 ns are gained by 1000 / 1 - 1000 / 2 ps a byte.
    assert_eq!(flows["dma_better_from_bytes"], 1000);
    assert_eq!(judged("", "900us").1["assumed"]["engine_from"], 1000);
}

/// The paper's overheads say nothing about weir's broker, be the flows late by them or not.
#[test]
fn overheads_of_another_hypervisor_judge_nothing() {
    let reason = |text: &str| {
        let (verdict, json) = analyze(text);
        assert_eq!(verdict, Some(NotJudged), "{json}");
        let whole = weir_analysis::check(file(text).system());
        let notes = whole.unwrap_or_else(|faults| panic!("{faults}")).join("\n");
        let what = json["not_judged"][0]["what"].as_str().expect("a reason").to_owned();
        assert!(notes.contains(&what), "{notes}");
        (what, json["flows"]["schedulable"].clone())
    };
    for (deadline, schedulable) in [("900us", true), ("9us", false)] {
        let (what, flows) = reason(&system("bandwidth = \"485MB/s\"", deadline, ""));
        assert_eq!(flows, schedulable);
        assert!(
            what.contains("not measured on weir (platform zcu102: rt-virtio, Table II"),
            "{what}"
        );
    }
    let (what, _) = reason(&system("bandwidth = \"485MB/s\"", "900us", OVERHEADS));
    assert!(what.contains("x.toml: of unknown origin"), "{what}");
    // A file for analysis only is judged by what it has, and so is a board without an engine.
    let text = system("bandwidth = \"485MB/s\"", "900us", "").replace("memory = \"4MiB\"\n", "");
    assert_eq!(analyze(&text).0, Some(Holds));
    let text = system("path = \"dma\"\nbandwidth = \"485MB/s\"", "9us", OVERHEADS);
    assert_eq!(analyze(&text.replace("zcu102", "qemu-virt")).0, Some(DoesNotHold));
}

/// weir moves nothing by an engine that a platform lacks.
#[test]
fn an_engine_that_is_not_there_is_not_enforced() {
    let refused = |platform: &str| {
        let text = system("path = \"dma\"", "900us", "").replace("zcu102", platform);
        let catalog = Catalog { guests: vec!["g".to_owned()], ..Catalog::default() };
        let system = weir_model::check_text(Path::new("x.toml"), &text, &catalog);
        let unbuilt = system.unwrap_or_else(|faults| panic!("{faults}")).unbuilt();
        unbuilt.into_iter().map(|fault| (fault.code, fault.message)).collect::<Vec<_>>()
    };
    assert_eq!(refused("zcu102"), []);
    let [(code, message)] = &refused("qemu-virt")[..] else { panic!("one fault") };
    assert_eq!(*code, Code::NotEnforced);
    assert!(
        message.ends_with("platform `qemu-virt` has no DMA engine that weir drives"),
        "{message}"
    );
}

/// The engine's interrupt comes once behind each slot of the broker, and takes time of the others.
#[test]
fn the_engine_interrupts_others_on_the_brokers_core() {
    let share = |dma: &str| {
        let schedule = "[[vm]]\nname = \"c\"\ncpus = [2]\nmemory = \"4MiB\"\n\
                        image = { elf = \"g\" }\n[[core]]\nid = 2\n\
                        schedule = { kind = \"table\", major_frame = \"1ms\", slots = [\n\
                        { vm = \"broker\", start = \"0us\", length = \"500us\" },\n\
                        { vm = \"c\", start = \"500us\", length = \"500us\" },\n] }\n";
        let overheads = measured(WEIR, [949, 828, 2000], COPY);
        let text = system(dma, "10ms", &format!("{schedule}{overheads}"));
        // What EL2 takes of a shared core was measured in QEMU.
        let catalog = Catalog { machine: Machine::Qemu, ..Catalog::default() };
        let file = SystemFile::parse(Path::new("x.toml"), &text, &catalog);
        let file = file.unwrap_or_else(|faults| panic!("{faults}"));
        let report = weir_analysis::analyze(&file, &Options::default());
        let time = report.unwrap_or_else(|faults| panic!("{faults}")).time.expect("shared cores");
        let shares: Vec<_> =
            time.cores[0].vms.iter().map(|vm| vm.share.expect("a share")).collect();
        <[f64; 2]>::try_from(shares).expect("two VMs")
    };
    let [core, engine] = ["path = \"broker\"", "engine_from = \"0B\""].map(share);
    // The broker's own share is not less. An event takes 10 us in each frame of 1 ms.
    assert!((core[0] - engine[0]).abs() < 1e-9, "{core:?} {engine:?}");
    assert!((core[1] - engine[1] - 0.01).abs() < 1e-9, "{core:?} {engine:?}");
}
