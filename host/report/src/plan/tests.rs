use super::*;
use std::path::Path;
use weir_model::{Catalog, check_text, place};

fn plan(platform: &str, keys: &str, rest: &str) -> SystemPlan {
    let text = format!(
        "platform = \"{platform}\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"4MiB\"\n\
         image = {{ elf = \"g\", args = \"x=1\" }}\n{keys}\n[[vm]]\nname = \"b\"\ncpus = [1]\n\
         memory = \"4MiB\"\nimage = {{ elf = \"g\" }}\n{rest}"
    );
    let catalog = Catalog { guests: vec!["g".to_owned()], ..Catalog::default() };
    let system = check_text(Path::new("s<1>.toml"), &text, &catalog).expect("a system");
    let placement = place(&system, 1 << 20).expect("room");
    SystemPlan::of(&system, &placement)
}

const FLOW: &str = "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\n\
                    period = \"1ms\"\n[broker]\ncpus = [2]\n";

#[test]
fn a_plan_has_cores_memory_and_flows() {
    let plan = plan("qemu-virt", "", FLOW);
    let names: Vec<_> = plan.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!((names, plan.vms[0].arguments.as_str()), (vec!["a", "b", "broker"], "x=1"));
    let cores: Vec<_> = plan.cores.iter().map(|core| core.shares[0].vm.as_str()).collect();
    assert_eq!(cores, ["a", "b", "broker"]);
    let of_a: u64 = plan
        .memory
        .iter()
        .filter(|area| area.owner.as_deref() == Some("a"))
        .map(|area| area.bytes)
        .sum();
    assert_eq!((of_a, plan.classes.is_none()), (4 << 20, true));
    let flow = &plan.flows[0];
    assert_eq!((flow.from.as_str(), flow.to.as_str(), flow.size_bytes), ("a", "b", 4096));
    assert_eq!(flow.address, "4:5000");
    let figures: Vec<_> = plan.figures().into_iter().map(|figure| figure.id).collect();
    assert_eq!(figures, ["cores", "memory", "flows"]);
    let json = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<SystemPlan>(&json).expect("a plan"), plan);
}

#[test]
fn a_shared_core_has_its_schedule() {
    let shared = "[[core]]\nid = 1\nschedule = { kind = \"table\", major_frame = \"1ms\", slots = [\n\
                  { vm = \"b\", start = \"200us\", length = \"500us\" } ] }\n";
    let plan = plan("qemu-virt", "", shared);
    let core = plan.cores.iter().find(|core| core.core == 1).expect("a core");
    assert_eq!(core.schedule.as_deref(), Some("table, major frame 1ms"));
    let share = &core.shares[0];
    assert_eq!((share.start_ns, share.length_ns, core.frame_ns), (200_000, 500_000, 1_000_000));
    let svg = crate::plan_svg(&plan).expect("a picture");
    assert!(svg.contains("x=\"20%\"") || svg.contains("x=\"20.0%\""), "{svg}");
    assert!(svg.contains("<title>b 500 us</title>"), "{svg}");
}

#[test]
fn page_classes_are_drawn_where_memory_is_divided() {
    let plan = plan("rpi4", "colors = \"0-3,8-11\"", "");
    let classes = plan.classes.as_ref().expect("page classes");
    let owned =
        |owners: &[&str]| classes.classes.iter().filter(|class| class.owners == *owners).count();
    assert_eq!((owned(&["a"]), owned(&["weir", "b"]), classes.classes.len()), (8, 8, 16));
    let svg = crate::plan_svg(&plan).expect("a picture");
    // Each owner of a shared page class has a strip of it.
    assert_eq!(svg.matches(": weir, b</title>").count(), 16);
    assert_eq!(svg.matches(": a</title>").count(), 8);
    assert!(svg.contains("a: 8 of 16 page classes") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("s&lt;1&gt; on rpi4"), "{svg}");
}
