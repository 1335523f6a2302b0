//! Systems in virtual time: what colors, budgets and registers do, and that it all adds up.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use proptest::prelude::*;
use std::{fs, path::Path};
use weir_memory::Owner;
use weir_simulator::{
    MemoryModel, Outcome, SimulatedBoard, Span, WorkMark, run, run_to, run_until, run_until_each,
};
use weir_units::Nanos;

use crate::support::{board, board_of, load, memory, span, vm};

const WALK: &str = "workload = { kind = \"latency\", size = \"64KiB\" }";

fn walk_and(attacker: &str) -> [String; 2] {
    [vm("walk", "[0]", "0-3", WALK), vm("attacker", "[1, 2, 3]", "4-13", attacker)]
}

fn mean(outcome: &Outcome, vm: usize) -> f64 {
    outcome.vms[vm].latency.mean().0 as f64
}

#[test]
fn a_walk_alone_takes_the_memory_files_times() {
    let memory = memory(&[]);
    let small = "workload = { kind = \"latency\", size = \"16KiB\" }";
    let one = |workload| run(&board(&[vm("walk", "[0]", "0-3", workload)], &memory), span(300));
    // 2.5 ns L1, 10 ns more from the L2.
    let l1 = one(small).unwrap();
    assert_eq!(l1.vms[0].latency.mean().0, 2500);
    assert_eq!(l1.vms[0].latency.most_ns(), 2);
    let l2 = one(WALK).unwrap();
    let latency = &l2.vms[0].latency;
    // Some of 64 KiB is in the L1: its replacement is random.
    assert!((9_000..12_500).contains(&latency.mean().0), "{:?}", latency.mean());
    assert_eq!((latency.at_most_ns(500), latency.most_ns()), (12, 12));
    assert_eq!((l2.vms[0].refills, l2.vms[0].write_backs), (0, 0));
    assert_eq!(l2.waits.suffered(Owner(0)).0, 0);
}

#[test]
fn colors_stop_evictions_by_three_writers() {
    let memory = memory(&[]);
    let writers = [
        vm("walk", "[0]", "0-3", "workload = { kind = \"latency\", size = \"192KiB\" }"),
        vm("writers", "[1, 2, 3]", "4-13", "workload = { kind = \"write\", size = \"1MiB\" }"),
    ];
    let board = board(&writers, &memory);
    let alone = run(&board.alone(0), span(2000)).unwrap();
    let colors = run(&board, span(2000)).unwrap();
    let neither = run(&board.undivided(), span(2000)).unwrap();
    let slower = |outcome: &Outcome| mean(outcome, 0) / mean(&alone, 0);
    assert!(slower(&neither) > 3.0, "{}", slower(&neither));
    assert!(slower(&colors) < 1.1, "{}", slower(&colors));
    let evicted = |outcome: &Outcome| outcome.evictions[1][0] + outcome.evictions[0][1];
    assert_eq!(evicted(&colors), 0);
    assert!(evicted(&neither) > 500, "{}", evicted(&neither));
    assert!(neither.waits.get(Owner(0), Owner(1)) > neither.waits.get(Owner(0), Owner(0)));
}

/// While the L2 fills, the writers take free lines, and the walk loses none. In a longer run they evict
/// it.
#[test]
fn a_run_in_which_the_caches_still_fill_is_too_short() {
    let memory = memory(&[]);
    let budget = "workload = { kind = \"write\", size = \"1MiB\" }\n\
                  memory_budget = { accesses = 60, period = \"30us\" }";
    let walk = "workload = { kind = \"latency\", size = \"192KiB\" }";
    let vms = [vm("walk", "[0]", "0-3", walk), vm("writers", "[1, 2, 3]", "4-13", budget)];
    let board = board(&vms, &memory).undivided();
    let after = |us: u64| {
        let span = Span { warm_up: Nanos(us * 1000), length: Nanos(1_000_000), seed: 1 };
        run(&board, span).unwrap()
    };
    let (short, settled) = (after(1000), after(8000));
    assert_eq!(short.l2.filling(|_| true), Some(1), "{:?}", short.l2);
    assert_eq!(short.l2.filling(|vm| vm == 0), None, "{:?}", short.l2);
    assert_eq!(settled.l2.filling(|_| true), None, "{:?}", settled.l2);
    assert_eq!(short.evictions[1][0], 0);
    assert!(settled.evictions[1][0] > 100, "{:?}", settled.evictions);
}

#[test]
fn only_a_budget_helps_against_few_miss_registers() {
    let memory = memory(&[("caches.l2_misses", "2"), ("caches.l2_write_buffers", "2")]);
    let attack = "workload = { kind = \"write\", size = \"1MiB\" }\nmemory_budget = { accesses = \
                  60, period = \"100us\", scope = \"vm\", split = \"even\" }";
    let board = board(&walk_and(attack), &memory);
    let alone = run(&board.alone(0), span(400)).unwrap();
    let slower =
        |board: &SimulatedBoard| mean(&run(board, span(400)).unwrap(), 0) / mean(&alone, 0);
    let (with, without) = (slower(&board), slower(&board.unregulated()));
    assert!(without > 5.0, "{without}");
    assert!(with < 1.3, "{with}");
    assert!(run(&board.unregulated(), span(400)).unwrap().blocked_ps > 0);
}

#[test]
fn periods_keep_budget_plus_interrupt_latency() {
    let memory = memory(&[]);
    for (regulator, scope) in [("static", "vm"), ("static", "vcpu"), ("memguard", "vm")] {
        let attack = format!(
            "workload = {{ kind = \"read-write\", size = \"1MiB\" }}\nmemory_budget = {{ accesses \
             = 60, period = \"50us\", scope = \"{scope}\", regulator = \"{regulator}\" }}"
        );
        let vms = walk_and(&attack);
        let outcome = run(&board(&vms, &memory), span(1000)).unwrap();
        let budgets = &outcome.vms[1].budgets;
        assert_eq!(budgets.len(), 3);
        // Three lines on their way, and what one core gets in 300 ns.
        let overshoot = 12;
        for budget in budgets {
            let q = if scope == "vm" && regulator == "static" { 20 } else { 60 };
            assert_eq!(budget.periods, 20, "{regulator}");
            assert!(budget.most.reads <= q + overshoot, "{regulator} {scope}: {budget:?}");
            assert!(budget.throttled >= 18 && budget.stopped_ns > 0, "{regulator}: {budget:?}");
            if regulator == "static" {
                // An overshoot is taken off the next budget.
                let all = budget.total.reads;
                assert!((q * 19..=q * 20 + overshoot).contains(&all), "{scope}: {budget:?}");
            }
        }
        let all: u64 = budgets.iter().map(|budget| budget.total.reads).sum();
        if scope == "vm" {
            assert!(all <= 60 * 20 + 3 * overshoot, "{regulator}: {all}");
        }
    }
}

#[test]
fn what_a_budget_counts_makes_a_difference() {
    // So small caches are full of dirty lines at once.
    let memory = memory(&[("cores.l1.size", "4096"), ("cores.l2.size", "16384")]);
    let of = |event: &str| {
        let attack = format!(
            "workload = {{ kind = \"read-write\", size = \"1MiB\" }}\n\
             memory_budget = {{ accesses = 120, period = \"50us\", event = \"{event}\" }}"
        );
        // Alone: the owner that evicts a dirty line is charged for it, not the owner of the line.
        let [_, attacker] = walk_and(&attack);
        let outcome = run(&board(&[attacker], &memory), span(2000)).unwrap();
        outcome.vms[0].refills + outcome.vms[0].write_backs
    };
    let (refills, bus, accesses) = (of("l2d-refill"), of("bus-access"), of("mem-access"));
    // Each line is brought in and written back, and accessed twice.
    let ratio = refills as f64 / bus as f64;
    assert!((1.6..2.4).contains(&ratio), "{ratio}");
    assert!(accesses < refills, "{accesses} {refills}");
}

#[test]
fn the_same_seed_gives_the_same_outcome_on_any_thread() {
    let memory = memory(&[]);
    let board = board(&walk_and("workload = { kind = \"row-miss\", size = \"1MiB\" }"), &memory);
    let first = run(&board.undivided(), span(200)).unwrap();
    let other = board.clone();
    let handle = std::thread::spawn(move || run(&other.undivided(), span(200)).unwrap());
    assert_eq!(handle.join().unwrap(), first);
    let seed = Span { seed: 2, ..span(200) };
    assert_ne!(run(&board.undivided(), seed).unwrap(), first);
}

#[test]
fn waits_add_up_to_the_delay_and_slices_to_the_lines() {
    let memory = memory(&[]);
    let vms = [
        vm("a", "[0, 1]", "0-5", "workload = { kind = \"read\", size = \"1MiB\" }"),
        vm(
            "b",
            "[2, 3]",
            "6-13",
            "workload = { kind = \"read\", size = \"1MiB\", gap = \"100ns\" }",
        ),
    ];
    let outcome = run(&board(&vms, &memory), span(500)).unwrap();
    for (vm, owner) in outcome.vms.iter().zip(0..) {
        assert!(vm.delay_ps > 0);
        assert_eq!(vm.delay_ps, outcome.waits.suffered(Owner(owner)).0);
        assert_eq!(vm.slices.len(), 50);
        assert_eq!(vm.slices.iter().sum::<u64>(), vm.refills + vm.write_backs);
        assert_eq!(vm.latency.count(), vm.accesses);
        assert_eq!(vm.arrivals.len() as u64, vm.refills.min(20_000));
        assert!(vm.arrivals.is_sorted());
    }
}

/// A VM that does something: a kind, and some of its keys.
fn workload() -> impl Strategy<Value = String> {
    let cores = prop::sample::select(vec!["latency", "read", "write", "read-write", "row-miss"]);
    let mode = prop::sample::select(vec!["simple", "linked", "read-only", "write-only"]);
    let engine = || prop::sample::select(vec!["lpd", "fpd"]);
    prop_oneof![
        4 => (cores, 1_u32..64, 0_u32..200).prop_map(|(kind, pages, gap)| {
            format!("kind = \"{kind}\", size = \"{}KiB\", gap = \"{gap}ns\"", 4 * pages)
        }),
        2 => (engine(), mode, 1_u32..3, 64_u32..9000).prop_map(|(engine, mode, channels, chunk)| {
            format!("kind = \"dma\", engine = \"{engine}\", mode = \"{mode}\", channels = \
                     {channels}, size = \"64KiB\", chunk = \"{chunk}B\"")
        }),
        1 => engine().prop_map(|engine| format!("kind = \"network\", engine = \"{engine}\"")),
        1 => Just("kind = \"cyclictest\", period = \"3us\"".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Of any small system, from any time to any other.
    #[test]
    fn what_vms_waited_for_adds_up_to_their_delay(
        workloads in prop::array::uniform3(workload()),
        budget in prop::option::of(10_u32..200),
        registers in 1_u32..17,
        (coherent, allocates) in any::<(bool, bool)>(),
        divided in any::<bool>(),
        (warm_up, length, seed) in (1_u64..60_000, 1_u64..60_000, 0_u64..4),
    ) {
        let memory = memory(&[
            ("caches.l2_misses", &registers.to_string()),
            ("dma.fpd.coherent", &coherent.to_string()),
            ("dma.lpd.allocates", &allocates.to_string()),
        ]);
        let bandwidth = budget.map_or(String::new(), |budget| {
            format!("\nmemory_budget = {{ accesses = {budget}, period = \"30us\", overcommit = \
                     true }}")
        });
        let places = [("a", "[0, 1]", "0-3"), ("b", "[2]", "4-8"), ("c", "[3]", "9-13")];
        let vms = std::array::from_fn::<_, 3, _>(|index| {
            let (name, cpus, colors) = places[index];
            let rest = format!("workload = {{ {} }}{bandwidth}", workloads[index]);
            vm(name, cpus, colors, &rest)
        });
        let board = board(&vms, &memory);
        let board = if divided { board } else { board.undivided() };
        let span = Span { warm_up: Nanos(warm_up), length: Nanos(length), seed };
        let outcome = run(&board, span).unwrap();
        for (vm, owner) in outcome.vms.iter().zip(0..) {
            let row: u64 = (0..3).map(|by| outcome.waits.get(Owner(owner), Owner(by)).0).sum();
            prop_assert_eq!(vm.delay_ps, row, "{}", vm.name);
        }
    }
}

#[test]
fn traces_replay_and_bad_lines_are_named() {
    let directory = std::env::temp_dir().join(format!("weir-sim-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("system.toml");
    let memory = memory(&[]);
    let vms = [vm("replay", "[0]", "0-3", "workload = { kind = \"trace\", file = \"trace.txt\" }")];
    fs::write(directory.join("trace.txt"), "# two lines\nR 0x0\nW 0x1000\n").unwrap();
    let outcome = run(&load(&path, &vms, &memory).unwrap(), span(20)).unwrap();
    assert!(outcome.vms[0].accesses > 1000);
    assert_eq!(outcome.vms[0].refills, 0);
    for (text, expected) in [
        ("R 0x0\nR 12\n", "trace.txt:2: `R 12`"),
        ("\nvcpu 1\n", "trace.txt:2: `vcpu 1`: replay has 1"),
        ("vcpu 0\n", "no accesses"),
        ("", "no accesses"),
        ("R 0x0\nR 0x40", "trace.txt:2: the last line has no end"),
        (
            "R 0x3fffff\nR 0x400000\n",
            "trace.txt:2: the offset 0x400000 is behind replay's RAM, which has 4MiB",
        ),
        ("R 0x0 4294967296\n", "trace.txt:1: `R 0x0 4294967296`"),
        ("\0\0\0\n", "trace.txt:1: "),
    ] {
        fs::write(directory.join("trace.txt"), text).unwrap();
        let error = load(&path, &vms, &memory).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    fs::write(directory.join("trace.txt"), [0xff, 0xfe, b'\n']).unwrap();
    assert!(load(&path, &vms, &memory).unwrap_err().contains("UTF-8"));
    fs::remove_file(directory.join("trace.txt")).unwrap();
    assert!(load(&path, &vms, &memory).unwrap_err().contains("replay's trace"));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_recording_has_its_gaps_and_vcpus() {
    let directory = std::env::temp_dir().join(format!("weir-sim-timed-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let of = |text: &str, more: &str, us: u64| {
        fs::write(directory.join("trace.txt"), text).unwrap();
        let workload = format!("workload = {{ kind = \"trace\", file = \"trace.txt\"{more} }}");
        let vms = [vm("replay", "[0, 1]", "0-3", &workload)];
        let board = load(&directory.join("system.toml"), &vms, &memory(&[])).unwrap();
        run(&board, span(us)).unwrap().vms.swap_remove(0)
    };
    // 1000 accesses in 1000 x 1200 cycles of 833 ps, by one vCPU or by both.
    let timed = "R 0x0 1200\nW 0x40 1200\n";
    let both = of(timed, "", 1000).accesses;
    let one = of(&format!("vcpu 1\n{timed}"), "", 1000).accesses;
    assert!((1996..=2008).contains(&both) && (998..=1004).contains(&one), "{both} {one}");
    // Ten times as long after the first of two; then the workload's own gap where that is longer.
    let uneven = "vcpu 0\nR 0x0 1200\nR 0x40 12000\n";
    let accesses = of(uneven, "", 1000).accesses;
    assert!((180..=184).contains(&accesses), "{accesses}");
    let accesses = of(uneven, ", gap = \"9996ns\"", 1000).accesses;
    assert!((99..=102).contains(&accesses), "{accesses}");
    // A pass alone: each line once.
    let lines: Vec<_> = (0..1000).map(|line| format!("R {:#x}", line * 64)).collect();
    let lines = lines.join("\n") + "\n";
    let warm = of(&lines, ", period = \"900us\"", 900);
    assert!((2000..=2002).contains(&warm.accesses), "{}", warm.accesses);
    assert_eq!(warm.refills, 0, "the pass before has brought them all");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_cannot_be_simulated_is_refused_by_name() {
    let good = memory(&[]);
    let cases = [
        ("workload = { kind = \"walk\" }", "latency"),
        ("workload = { kind = \"latency\", size = \"1KiB\" }", "less than a page"),
        ("workload = { kind = \"read\", file = \"x\" }", "has no `file`"),
        ("workload = { kind = \"trace\" }", "needs `file`"),
        ("workload = { size = \"4KiB\" }", "kind"),
        (
            "memory_budget = { accesses = 100, period = \"50us\", event = \"cycles\" }",
            "counts an event that the model has not",
        ),
    ];
    for (rest, expected) in cases {
        let error = load(Path::new("system.toml"), &[vm("a", "[0]", "0-3", rest)], &good);
        let error = error.err().unwrap_or_default();
        assert!(error.contains(expected), "{rest}: {error}");
    }
    let vms = [vm("a", "[0]", "0-3", WALK)];
    let bare = load(Path::new("x"), &vms, &MemoryModel::find("ddr4-2400").unwrap()).unwrap_err();
    assert!(bare.contains("--dram-trace"), "{bare}");
    for (key, value, expected) in [
        ("caches.l2_missing", "2", "unknown field `l2_missing`, expected one of"),
        ("cache.l2_misses", "2", "no key"),
        ("caches.l2_misses", "[", "invalid type"),
        ("cores.l2.replacement", "fifo", "unknown variant"),
        ("caches.l2_misses", "0", "miss-status registers"),
        ("caches.l2_hit_ps", "0", "l2_hit_ps"),
        ("cores.outstanding", "0", "outstanding"),
        ("cores", "2", "invalid type"),
    ] {
        let error = MemoryModel::find_with("zcu102", &[(key.to_owned(), value.to_owned())]);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("zcu102: ") && error.contains(expected), "{key}: {error}");
    }
}

/// Each key of a workload with values that mean nothing, or too much.
#[test]
fn nonsense_in_a_workload_is_refused_with_its_place() {
    let good = memory(&[]);
    let latency = |rest: &str| format!("kind = \"latency\", {rest}");
    let dma = |rest: &str| format!("kind = \"dma\", engine = \"lpd\", {rest}");
    let network = |rest: &str| format!("kind = \"network\", engine = \"lpd\", {rest}");
    let profile = |rest: &str| format!("kind = \"profile\", {rest}");
    let phase = |rest: &str| profile(&format!("phases = [{{ {rest} }}]"));
    let thousand = "{ accesses = 1000000 },".repeat(11);
    let cases = [
        (latency("size = \"0B\""), "less than a page"),
        (
            latency("size = \"8MiB\""),
            "system.toml: a's workload goes through 8MiB, and its RAM has 4MiB",
        ),
        (latency("size = \"16777216GiB\""), "goes through 16777216GiB"),
        (latency("size = \"17179869184GiB\""), "size"),
        (latency("size = -1"), "size"),
        (latency("size = []"), "size"),
        (latency("gap = nan"), "gap"),
        (latency("gap = inf"), "gap"),
        (latency("gap = \"-1ns\""), "gap"),
        (latency("gap = \"18446744073709551615ns\""), "a gap of 18446744073709551615ns"),
        (latency("gap = \"18446744074s\""), "gap"),
        (latency("period = \"0ns\""), "a period of 0"),
        (latency("period = \"18446744073s\""), "a period of 18446744073s"),
        (latency("period = \"1us\", deadline = \"0us\""), "a deadline of 0"),
        (latency("period = \"1us\", deadline = \"18446744073s\""), "a deadline of"),
        (latency("outstanding = 1"), ""),
        (latency("outstanding = 0"), "outstanding"),
        (latency("outstanding = 65"), "outstanding"),
        (latency("outstanding = 1.5"), "outstanding"),
        ("kind = \"cyclictest\", period = \"0us\"".to_owned(), "a period of 0"),
        ("kind = \"kernel\", kernel = \"\"".to_owned(), "kernel"),
        ("kind = \"kernel\", kernel = \"bitcount-small\"".to_owned(), ""),
        (
            "kind = \"kernel\", kernel = \"bitcount-small\", size = \"4MiB\"".to_owned(),
            "of the kind \"kernel\" has no `size`",
        ),
        ("kind = \"trace\", file = \"\"".to_owned(), "a's trace"),
        (
            "kind = \"trace\", file = \"/dev/zero\"".to_owned(),
            "/dev/zero: it is a device, not a regular file",
        ),
        ("kind = \"trace\", file = \"/dev/null\"".to_owned(), "/dev/null: it is a device, not"),
        (dma("channels = 0"), "channels"),
        (dma("chunk = \"0B\""), "a chunk of 0 bytes"),
        (dma("piece = \"0B\", mode = \"linked\""), "a piece of 0 bytes"),
        (dma("piece = \"16B\", mode = \"linked\""), ""),
        (dma("piece = \"16B\""), "`piece` is only for DMA channels in the mode \"linked\""),
        (dma("piece = \"16B\", mode = \"read-only\""), "`piece` is only for"),
        (dma("size = \"8MiB\""), ""),
        (dma("size = \"16GiB\""), "goes through 16GiB"),
        (dma("pace = \"18446744073s\""), "a pace of"),
        (dma("gap = \"18446744073s\""), "a gap of"),
        (dma("mode = \"\""), "mode"),
        (network("packet = \"0B\""), "a packet of 0 bytes"),
        (network("packet = \"1B\", size = \"1MiB\""), "more than 262144 packets"),
        (network("window = \"0B\""), "less than a packet"),
        (network("delay = \"18446744073s\""), "a delay of"),
        (network("deadline = \"0us\""), "a deadline of 0"),
        (profile("phases = []"), "has no phase"),
        (profile("phases = {}"), "phases"),
        (profile(&format!("phases = [{thousand}]")), "more than 10000000 accesses"),
        (phase(""), "accesses"),
        (phase("accesses = 0"), "accesses"),
        (phase("accesses = -1"), "accesses"),
        (phase("accesses = nan"), "accesses"),
        (phase("accesses = 1, size = \"0B\""), "goes to 0B"),
        (phase("accesses = 1, size = \"128KiB\""), "goes to 128KiB"),
        (phase("accesses = 1, gap = \"18446744073s\""), "a gap of"),
        (phase("accesses = 1, writes = 101"), "writes"),
        (phase("accesses = 1, writes = -1"), "writes"),
        (phase("accesses = 1, order = \"none\""), "order"),
    ];
    for (workload, expected) in cases {
        let vms = [vm("a", "[0]", "0-3", &format!("workload = {{ {workload} }}"))];
        let error = load(Path::new("system.toml"), &vms, &good).err().unwrap_or_default();
        assert_eq!(error.is_empty(), expected.is_empty(), "{workload}: {error}");
        assert!(error.contains(expected), "{workload}: {error}");
        let has_place = ["system.toml", "a's trace", "/dev/"].iter().any(|at| error.contains(at));
        assert!(error.is_empty() || has_place, "{workload}: {error}");
    }
}

#[test]
fn a_program_larger_than_its_ram_is_refused() {
    let of = |memory_size: &str| {
        let workload = "workload = { kind = \"kernel\", kernel = \"qsort-large\" }";
        let small = vm("a", "[0]", "0-3", workload).replace("4MiB", memory_size);
        load(Path::new("system.toml"), &[small], &memory(&[])).err().unwrap_or_default()
    };
    assert_eq!(of("3MiB"), "");
    // Its data, the file that they come from, and its code.
    assert_eq!(
        of("2MiB"),
        "system.toml: a's workload goes through 2600KiB, and its RAM has 2MiB: write more \
         `memory`, or another `kernel`"
    );
}

#[test]
fn a_shared_core_with_a_workload_is_refused() {
    let schedule = "[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";
    let of = |workload: &str| {
        let vms = [vm("a", "[0]", "0-3", workload), vm("b", "[0]", "4-7", ""), schedule.to_owned()];
        load(Path::new("system.toml"), &vms, &memory(&[]))
    };
    assert!(of("").is_ok());
    let error = of(WALK).unwrap_err();
    assert!(error.contains("a and b share core 0"), "{error}");
}

/// The values asked for at the end of a run are those of the run itself.
#[test]
fn marks_are_where_so_much_was_done() {
    let vms = [
        vm("walk", "[0]", "0-3", WALK),
        vm("wakes", "[1]", "4-6", "workload = { kind = \"cyclictest\", period = \"20us\" }"),
        vm(
            "mover",
            "[2]",
            "7-13",
            "workload = { kind = \"dma\", engine = \"lpd\", chunk = \"4KiB\" }",
        ),
    ];
    let board = board(&vms, &memory(&[]));
    let outcome = run(&board, span(500)).unwrap();
    for (index, vm) in outcome.vms.iter().enumerate() {
        let units = vm.work.map(|mark| mark.units);
        let (again, marks) =
            run_to(&board, span(500), index, &[units[0], units[1], 0, u64::MAX]).unwrap();
        assert_eq!(again, outcome);
        assert_eq!(marks[..2], vm.work.map(Some), "{}", vm.name);
        assert_eq!(marks[2..], [Some(WorkMark::default()), None]);
        let completed = vm.jobs.as_ref().map_or(vm.accesses, |jobs| jobs.ended);
        assert_eq!(units[1] - units[0], completed, "{}", vm.name);
    }
    let walk = run_until(&board, span(500), 0, 500).unwrap();
    assert_eq!(vec![walk], run_to(&board, span(500), 0, &[500]).unwrap().1);
    assert_eq!(run_until(&board, span(500), 0, u64::MAX).unwrap(), None);
    let each = run_until_each(&board, span(500), 0, &[250, 500]).unwrap();
    assert_eq!(each, run_to(&board, span(500), 0, &[250, 500]).unwrap().1);
    let [begin, end] = outcome.vms[1].work;
    assert_eq!((begin.units, end.units), (25, 50));
    // 64 lines from the L1 each.
    assert_eq!(end.responses.0 - begin.responses.0, 25 * 160_000);
}

/// The lines of one bank are an eighth or a sixteenth of what is gone through.
#[test]
fn row_misses_leave_the_cache_without_a_size() {
    for name in ["zcu102", "zcu104", "rpi4", "gem5", "qemu-virt"] {
        let of = |size: &str| {
            let text = format!(
                "platform = \"{name}\"\n[[vm]]\nname = \"ustress\"\ncpus = [0]\n\
                 memory = \"32MiB\"\nimage = {{ elf = \"memory-stressor\" }}\n\
                 workload = {{ kind = \"row-miss\"{size} }}\n"
            );
            let memory = MemoryModel::find_with(name, &[]).unwrap();
            let outcome = run(&board_of(&text, &memory), span(5000)).unwrap();
            let vm = &outcome.vms[0];
            vm.refills as f64 / vm.accesses as f64
        };
        assert!(of("") > 0.95, "{name}: {}", of(""));
        assert!(of(", size = \"64KiB\"") < 0.01, "{name}");
    }
}

/// rt-virtio V-A.1: the value that `row_change` of the memory file was fitted to, and one that it
/// was not.
#[test]
fn row_misses_saturate_at_the_measured_rate() {
    for cores in ["[0, 1, 2]", "[0]"] {
        let text = format!(
            "platform = \"zcu102\"\ndram = \"banks-on-top\"\n[hypervisor]\nbanks = \"1\"\n[[vm]]\n\
             name = \"ustress\"\ncpus = {cores}\nmemory = \"16MiB\"\nbanks = \"0\"\n\
             image = {{ elf = \"memory-stressor\" }}\n\
             workload = {{ kind = \"row-miss\", size = \"4MiB\" }}\n"
        );
        let span = Span { warm_up: Nanos(30_000_000), length: Nanos(2_000_000), seed: 1 };
        let outcome = run(&board_of(&text, &memory(&[])), span).unwrap();
        let lines = outcome.vms[0].refills + outcome.vms[0].write_backs;
        let mb_per_s = (lines * 64) as f64 / 2000.0;
        assert!((mb_per_s / 960.0 - 1.0).abs() < 0.015, "{cores}: {mb_per_s}");
    }
}
