//! The broker: packets by their deadlines, over a DMA engine.

use crate::support::{memory, span};
use proptest::prelude::*;
use weir_model::{Catalog, Sizes, check_text, place_all};
use weir_simulator::{FlowOutcome, SimulatedBoard, Span, run};

/// Two senders and a receiver on their own cores, and the broker on the fourth.
const VMS: &str = "platform = \"zcu102\"\n[broker]\ncpus = [3]\n";

fn vm(number: usize, rest: &str) -> String {
    let name = ["a", "b", "c"][number];
    format!(
        "[[vm]]\nname = \"{name}\"\ncpus = [{number}]\nmemory = \"4MiB\"\n\
         image = {{ elf = \"memory-stressor\" }}\n{rest}\n"
    )
}

fn flow(name: &str, ends: [&str; 2], size: &str, rest: &str) -> String {
    let [from, to] = ends;
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = {to}\nsize = \"{size}\"\n{rest}\n"
    )
}

fn load(dma: &str, flows: &[String], work: &str) -> Result<SimulatedBoard, String> {
    let vms = [vm(0, ""), vm(1, ""), vm(2, work)].concat();
    // Flows from one VM to another have a port each.
    let with_port = |(at, flow): (usize, &String)| format!("{flow}port = {}\n", 5000 + at);
    let flows: Vec<_> = flows.iter().enumerate().map(with_port).collect();
    let text = format!("{VMS}{vms}[dma]\n{dma}\n{}", flows.concat());
    let catalog = Catalog { guests: vec!["memory-stressor".to_owned()], ..Catalog::default() };
    let system = check_text("system.toml".as_ref(), &text, &catalog);
    let system = system.map_err(|faults| faults.to_string())?;
    let sizes = Sizes { image: 4 << 20, hypervisor: 1 << 20, pristine: vec![1 << 20; 4] };
    let placement = place_all(&system, &sizes).map_err(|faults| faults.to_string())?;
    SimulatedBoard::new(&system, &placement, &memory(&[])).map_err(|error| error.to_string())
}

fn simulate(dma: &str, flows: &[String], span: Span) -> Vec<FlowOutcome> {
    run(&load(dma, flows, "").unwrap(), span).unwrap().flows
}

const FAST: &str = "bandwidth = \"485MB/s\"";

/// What an urgent packet of 4 KiB waits for at most is one chunk of the packet of 64 KiB that is on
/// its way: 8.4 us and the steps of a chunk. Behind all of that it would come after 135 us.
#[test]
fn the_earlier_deadline_goes_first_chunk_by_chunk() {
    // From another sender's queue, and from the same.
    for sender in ["b", "a"] {
        let flows = [
            flow("bulk", ["a", "\"c\""], "64KiB", "period = \"2ms\""),
            flow("urgent", [sender, "\"c\""], "4KiB", "period = \"100us\"\ndeadline = \"60us\""),
        ];
        let [bulk, urgent] = &simulate(FAST, &flows, span(8000))[..] else { panic!() };
        assert!(urgent.arrived >= 79 && urgent.met == urgent.arrived, "{urgent:?}");
        assert!(urgent.max_latency.0 < 40_000_000, "{}", urgent.max_latency.0);
        assert!(bulk.arrived >= 3 && bulk.missed == 0, "{bulk:?}");
        assert!(bulk.max_latency.0 > 135_000_000, "{}", bulk.max_latency.0);
        // With chunks of 64 KiB it waits for one of those.
        let large = format!("{FAST}\nchunk = \"64KiB\"");
        let [_, late] = &simulate(&large, &flows, span(8000))[..] else { panic!() };
        assert!(late.missed > 0 && late.max_latency.0 > 125_000_000, "{}", late.max_latency.0);
    }
}

#[test]
fn the_engine_keeps_the_bandwidth_of_the_file() {
    let flows =
        |period: &str| [flow("one", ["a", "\"c\""], "64KiB", &format!("period = \"{period}\""))];
    for (rate, ns) in [("100MB/s", 655_360), ("485MB/s", 135_126)] {
        let dma = format!("bandwidth = \"{rate}\"\nchunk = \"64KiB\"");
        let [one] = &simulate(&dma, &flows("1ms"), span(4000))[..] else { panic!() };
        let moving = one.max_latency.0 / 1000;
        // The steps take 6 to 10 us.
        assert!((ns + 5_000..ns + 11_000).contains(&moving), "{rate}: {moving}");
    }
}

#[test]
fn each_receiver_gets_a_copy_before_best_effort() {
    let flows = [
        flow("all", ["a", "[\"b\", \"c\"]"], "16KiB", "period = \"500us\""),
        flow("one", ["a", "\"b\""], "16KiB", "period = \"500us\""),
        flow("rest", ["b", "\"c\""], "4KiB", "best_effort = true"),
    ];
    let alone = |of: usize| simulate(FAST, &flows[of..=of], span(4000))[0].max_latency.0;
    let (two, one) = (alone(0), alone(1));
    assert!(two > one * 19 / 10 && two < one * 2, "{two} {one}");
    let all = simulate(FAST, &flows, span(4000));
    assert!(all.iter().all(|flow| flow.missed == 0 && flow.lost == 0), "{all:?}");
    assert_eq!((all[0].arrived, all[2].deadline_ns), (8, None));
    assert!(all[2].arrived > 100, "{}", all[2].arrived);
    assert_eq!(all[2].met, all[2].arrived);
}

#[test]
fn early_packets_wait_and_full_queues_drop() {
    let jitter = [flow("one", ["a", "\"c\""], "4KiB", "period = \"50us\"\njitter = \"45us\"")];
    let [one] = &simulate(FAST, &jitter, span(20_000))[..] else { panic!() };
    assert!(one.arrived >= 398 && one.missed == 0, "{one:?}");
    // Its latency begins when it may go.
    assert!(one.max_latency.0 < 20_000_000, "{}", one.max_latency.0);
    let many = [flow("one", ["a", "\"c\""], "64KiB", "period = \"60us\"")];
    let [one] = &simulate(FAST, &many, span(40_000))[..] else { panic!() };
    assert!(one.lost > 100 && one.missed > 100, "{one:?}");
    // A packet takes 16 times 8.4 us and the steps of a chunk.
    assert!((160..195).contains(&one.arrived), "{one:?}");
}

#[test]
fn other_masters_delay_a_flow_repeatably() {
    let flows = [flow("one", ["a", "\"b\""], "64KiB", "period = \"200us\"")];
    let quiet = load("", &flows, "").unwrap();
    let busy = "workload = { kind = \"write\", size = \"3MiB\" }";
    let busy = load("", &flows, busy).unwrap();
    let mean = |board: &SimulatedBoard| run(board, span(4000)).unwrap().flows[0].latency.mean().0;
    let (quiet, slowed) = (mean(&quiet), mean(&busy));
    assert!(slowed > quiet + 1_000_000, "{slowed} {quiet}");
    assert_eq!(run(&busy, span(1000)), run(&busy, span(1000)));
    // Packets take the receiver's core.
    assert!(run(&busy.alone(2), span(1000)).unwrap().flows.is_empty());
}

#[test]
fn what_can_not_be_simulated_is_left_out_or_refused() {
    let flows = [flow("one", ["a", "\"b\""], "4KiB", "period = \"1ms\"")];
    let left_out = load("path = \"broker\"", &flows, "").unwrap();
    assert!(!left_out.has_flows());
    assert!(left_out.flows_left_out().unwrap().contains("[dma] path"));
    let error = load("engine = \"gpu\"", &flows, "").unwrap_err();
    assert!(error.contains("`gpu`") && error.contains("has: fpd, gem, lpd"), "{error}");
    let all = "workload = { kind = \"dma\", engine = \"lpd\", channels = 8, mode = \"simple\", \
               size = \"4KiB\" }";
    let error = load("engine = \"lpd\"", &flows, all).unwrap_err();
    assert!(error.contains("write channels = 7"), "{error}");
    let huge = [flow("one", ["a", "\"b\""], "8MiB", "period = \"1s\"")];
    let error = load("", &huge, "").unwrap_err();
    assert!(error.contains("flow `one`") && error.contains("at most 64KiB"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Nothing gets lost on the way, and nothing comes that was not sent.
    #[test]
    fn each_packet_arrives_once(
        set in prop::collection::vec((1u64..16_000, 400u64..900, 0u64..60), 1..5),
        chunk in 2048u64..8192,
        seed in 1u64..100,
    ) {
        let flows: Vec<_> = set
            .iter()
            .zip(0..)
            .map(|((size, period, jitter), index)| {
                let ends = [["a", "\"c\""], ["b", "\"c\""], ["c", "\"a\""]][index % 3];
                let rest = format!("period = \"{period}us\"\njitter = \"{jitter}us\"");
                flow(&format!("f{index}"), ends, &format!("{size}B"), &rest)
            })
            .collect();
        let dma = format!("chunk = \"{chunk}B\"");
        let span =
            Span { seed, warm_up: weir_units::Nanos(1), length: weir_units::Nanos(6_000_000) };
        for (outcome, (_, period, _)) in simulate(&dma, &flows, span).iter().zip(&set) {
            let due = 6000 / period;
            prop_assert!(outcome.sent.abs_diff(due) <= 2, "{} {due}", outcome.sent);
            prop_assert_eq!((outcome.missed, outcome.lost), (0, 0));
            prop_assert_eq!(outcome.latency.count(), outcome.arrived);
            prop_assert!(outcome.arrived.abs_diff(due) <= 2, "{} of {due}", outcome.arrived);
        }
    }
}
