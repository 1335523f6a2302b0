//! DMA engines, their regulators and the SMMU's TLB as parts of a system.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use crate::support::{board, board_of, load, memory, span, vm};
use std::path::Path;
use weir_memory::Owner;
use weir_simulator::{MemoryModel, Outcome, run};

fn dma(rest: &str) -> String {
    format!("workload = {{ kind = \"dma\", engine = \"lpd\", {rest} }}")
}

fn one(workload: &str, memory: &MemoryModel, us: u64) -> Outcome {
    run(&board(&[vm("dma", "[0]", "0-3", workload)], memory), span(us)).unwrap()
}

fn mb_per_s(outcome: &Outcome, vm: usize) -> f64 {
    outcome.vms[vm].moved as f64 * 1e3 / outcome.span_ns as f64
}

fn close(value: f64, wanted: f64, share: f64) {
    assert!((value / wanted - 1.0).abs() < share, "{value} for {wanted}");
}

/// rt-virtio V-A.
#[test]
fn bandwidth_by_chunk_is_what_was_measured() {
    for (chunk, published, share) in [
        (4, 2000.0, 0.01),
        (64, 3190.0, 0.01),
        (8, 2440.0, 0.03),
        (16, 2800.0, 0.03),
        (32, 3080.0, 0.03),
    ] {
        let workload = dma(&format!("size = \"64KiB\", chunk = \"{chunk}KiB\""));
        // Source and destination in one bank, as there.
        let text = format!(
            "platform = \"zcu102\"\ndram = \"banks-on-top\"\n[hypervisor]\nbanks = \"1\"\n[[vm]]\n\
             name = \"dma\"\ncpus = [0]\nmemory = \"8MiB\"\nbanks = \"0\"\n\
             image = {{ elf = \"memory-stressor\" }}\n{workload}\n"
        );
        let outcome = run(&board_of(&text, &memory(&[])), span(1000)).unwrap();
        close(mb_per_s(&outcome, 0), published, share);
    }
}

/// rt-virtio, Eq. 1: 128 B, 500 MHz.
#[test]
fn a_regulator_keeps_its_engine_below_eq_1() {
    for qos in ["3", "10", "40", "60"] {
        let eq1 = 128.0 * qos.parse::<f64>().unwrap() * 500.0 / 4096.0;
        let at = |hold: &str, chunk: &str| {
            let memory = memory(&[("dma.lpd.qos", qos), ("dma.lpd.qos_hold", hold)]);
            let workload = dma(&format!("size = \"64KiB\", chunk = \"{chunk}\""));
            mb_per_s(&one(&workload, &memory, 2000), 0)
        };
        // What was begun before the span ends in it.
        assert!(at("16", "4KiB") < eq1, "{qos}");
        close(at("0", "64KiB"), eq1, 0.03);
    }
}

#[test]
fn a_channel_with_a_pace_has_a_burst_in_that_time() {
    let workload = dma("channels = 2, size = \"64KiB\", chunk = \"64KiB\", pace = \"1us\"");
    // 128 B each microsecond and 610 ns for each 64 KiB, for two channels.
    close(mb_per_s(&one(&workload, &memory(&[]), 1000), 0), 256.0, 0.01);
}

#[test]
fn sparse_page_accesses_evict_translations() {
    let few = dma("size = \"64KiB\", chunk = \"4KiB\", gap = \"300us\"");
    // More pages than the unit has entries.
    let sweep = dma("mode = \"linked\", size = \"16MiB\", piece = \"16B\"");
    let large = vm("sweep", "[1]", "4-7", &sweep).replace("4MiB", "36MiB");
    let vms = [vm("few", "[0]", "0-3", &few), large];
    // Random replacement would keep some of the pages from round to round.
    let board = board(&vms, &memory(&[("tbu.lpd.replacement", "lru")]));
    let alone = run(&board.alone(0), span(6000)).unwrap();
    let both = run(&board, span(6000)).unwrap();
    let tbu = |outcome: &Outcome| outcome.tbus[0].clone();
    assert_eq!(tbu(&alone).misses, [0, 0]);
    assert!(tbu(&alone).lookups[0] > 500);
    let shared = tbu(&both);
    assert!(shared.misses[0] > 10 && shared.of_others(1) > 10, "{shared:?}");
    // Of each page a read, and of the destination one page in 256; two descriptors of each piece, 64
    // pairs to a page.
    let (lookups, misses) = (shared.lookups[1] as f64, shared.misses[1] as f64);
    close(misses / lookups, 1.0 / 4.0, 0.1);
}

/// A VM that sweeps over 8 MiB, 16 B of each page, next to one that goes round in few pages.
fn few_next_to_sweep(tlb_colors: [&str; 2]) -> Outcome {
    let of = |name: &str, core: u8, memory: &str, colors: &str, workload: &str| {
        let colors = match colors {
            "" => String::new(),
            colors => format!("tlb_colors = \"{colors}\"\n"),
        };
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"{memory}\"\n{colors}\
             image = {{ elf = \"memory-stressor\" }}\n{workload}\n"
        )
    };
    let few = dma("size = \"64KiB\", chunk = \"4KiB\", gap = \"100us\"");
    let sweep = dma("channels = 2, mode = \"linked\", size = \"8MiB\", piece = \"16B\"");
    let text = format!(
        "platform = \"zcu102\"\n{}{}",
        of("few", 0, "2MiB", tlb_colors[0], &few),
        of("sweep", 1, "18MiB", tlb_colors[1], &sweep)
    );
    run(&board_of(&text, &memory(&[])), span(6000)).unwrap()
}

#[test]
fn tlb_colors_keep_translations_of_vms_apart() {
    let misses = |tlb_colors| few_next_to_sweep(tlb_colors).tbus[0].clone();
    let shared = misses(["", ""]);
    assert!(shared.misses[0] > 20 && shared.of_others(1) > 20, "{shared:?}");
    let apart = misses(["0-31", "32-127"]);
    assert_eq!((apart.misses[0], apart.of_others(1)), (0, 0));
    assert!(apart.misses[1] > shared.misses[1] / 2, "{apart:?}");
}

/// A device that sends next to eight channels of the low-power domain's engine.
fn sender(values: &[(&str, &str)]) -> Outcome {
    let network = "workload = { kind = \"network\", engine = \"gem\", direction = \"send\", \
                   gap = \"12us\" }";
    let stressor = dma("channels = 8, size = \"64KiB\"");
    let vms = [vm("sender", "[0]", "0-3", network), vm("dma", "[1]", "4-13", &stressor)];
    run(&board(&vms, &memory(values)), span(2000)).unwrap()
}

#[test]
fn a_network_device_has_an_engine_and_regulator() {
    let moved = |values: &[(&str, &str)]| {
        let outcome = sender(values);
        [mb_per_s(&outcome, 0), mb_per_s(&outcome, 1)]
    };
    let free = moved(&[]);
    // 1500 B each 12 us.
    close(free[0], 125.0, 0.02);
    let [sender, stressor] = moved(&[("dma.lpd.qos", "4")]);
    assert!(
        (sender - free[0]).abs() < 1.0 && stressor < free[1] / 20.0,
        "{sender} {stressor} {free:?}"
    );
    let [sender, stressor] = moved(&[("dma.gem.qos", "4")]);
    assert!(sender < free[0] / 2.0 && stressor > free[1] * 0.95, "{sender} {stressor}");
}

#[test]
fn a_regulated_dma_delays_a_walk_less() {
    let walk = "workload = { kind = \"latency\", size = \"2MiB\" }";
    let stressor =
        "workload = { kind = \"dma\", engine = \"fpd\", channels = 4, size = \"256KiB\" }";
    let vms = [vm("walk", "[0]", "0-3", walk), vm("dma", "[1]", "4-13", stressor)];
    let waited = |values: &[(&str, &str)]| {
        let outcome = run(&board(&vms, &memory(values)), span(500)).unwrap();
        let waits = |by| outcome.waits.get(Owner(0), Owner(by)).0 as f64;
        for (vm, owner) in outcome.vms.iter().zip(0..) {
            assert_eq!(outcome.waits.suffered(Owner(owner)).0, vm.delay_ps);
        }
        // The engine waits for the walk, too.
        assert!(outcome.waits.get(Owner(1), Owner(0)).0 > 0);
        waits(1) / outcome.vms[0].accesses as f64
    };
    let (free, regulated) = (waited(&[]), waited(&[("dma.fpd.qos", "16")]));
    assert!(free > 10.0 * 1000.0 && regulated < free / 4.0, "{free} {regulated}");
}

#[test]
fn what_does_not_fit_is_named() {
    let refused = |workload: &str| {
        load(Path::new("s.toml"), &[vm("dma", "[0]", "0-3", workload)], &memory(&[])).unwrap_err()
    };
    for (workload, expected) in [
        ("workload = { kind = \"dma\" }", "kind \"dma\" needs `engine`"),
        ("workload = { kind = \"read\", pace = \"1us\" }", "kind \"read\" has no `pace`"),
        ("workload = { kind = \"dma\", engine = \"gdma\" }", "has: fpd, gem, lpd"),
        (&dma("channels = 9"), "of which 8 are left"),
        (&dma("chunk = \"128KiB\""), "a chunk of 131072 bytes"),
        (&dma("piece = \"8KiB\""), "a piece of 8192 bytes"),
        (&dma("outstanding = 2"), "no `outstanding`"),
    ] {
        let error = refused(workload);
        assert!(error.contains(expected), "{workload}: {error}");
    }
    let twice = ["a", "b"].map(|name| {
        let cpus = if name == "a" { "[0]" } else { "[1]" };
        vm(name, cpus, if name == "a" { "0-3" } else { "4-7" }, &dma("channels = 5"))
    });
    let error = load(Path::new("s.toml"), &twice, &memory(&[])).unwrap_err();
    assert!(error.contains("b's workload wants 5") && error.contains("3 are left"), "{error}");
}

#[test]
fn a_memory_file_with_a_bad_engine_is_refused() {
    for (key, value, expected) in [
        ("dma.lpd.port_bits", "48", "port_bits"),
        ("dma.lpd.tbu", "fpd", "no [tbu.fpd]"),
        ("dma.lpd.channels", "0", "channels"),
        ("dma.lpd.qos", "5000", "qos below 4096"),
        ("tbu.lpd.entries", "2000", "TBU 0"),
        ("tbu.lpd.levels", "7", "levels"),
    ] {
        let values = [(key.to_owned(), value.to_owned())];
        let error = MemoryModel::find_with("zcu102", &values).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
    let values = [("dma.lpd.clock_ps", "1000"), ("dma.lpd.qos", "10")];
    let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let error = MemoryModel::find_with("zcu102", &values).unwrap_err().to_string();
    assert!(error.contains("clocks of the interconnect"), "{error}");
}
