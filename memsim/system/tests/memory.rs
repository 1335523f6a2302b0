//! Memory files: weir's own files are as described, and all others are refused by place.

use crate::support;
use proptest::prelude::*;
use weir_memory::{
    Pa,
    bench::ddr4_2400_map,
    dram::{DEFAULT_POLICY, timing::DDR4_2400},
};
use weir_simulator::{MemoryModel, run};

const TEXT: &str = include_str!("../../../memsim/models/ddr4-2400.toml");

#[test]
fn ddr4_2400_is_the_part_of_the_closed_forms() {
    let dram = MemoryModel::find("ddr4-2400").unwrap().dram;
    assert_eq!(dram.timing(), DDR4_2400);
    assert_eq!(dram.policy(), DEFAULT_POLICY);
    let map = dram.map().unwrap();
    assert_eq!(map.fields(), ddr4_2400_map().fields());
    assert_eq!(map.locate(Pa(0x1_2000)).bank, 0b0110);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        ("cl = 17", "cl = \"x\"", "line 8"),
        ("cl = 17", "cll = 17", "unknown field `cll`"),
        ("cl = 17\n", "", "missing field `cl`"),
        ("cl = 17", "cl = 17000000", "write at most"),
        ("burst = 4", "burst = 0", "burst is 0"),
        ("refi = 9364", "refi = 400", "tREFI"),
        ("[[15], [16]]", "[[15], [15]]", "bank bit 1"),
        ("[[15], [16]]", "[[15, 15], [16]]", "map.bank, bit 0"),
        ("[[15], [16]]", "[[15], [64]]", "map.bank, bit 1"),
        ("to = 32", "to = 3", "ascending"),
        ("reads = 32", "reads = 99", "queues"),
    ];
    for (from, to, expected) in cases {
        assert!(TEXT.contains(from), "{from}");
        let error = MemoryModel::parse("mine.toml", &TEXT.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("mine.toml: ") && text.contains(expected), "{to}: {text}");
    }
    let error = MemoryModel::find("nowhere").unwrap_err().to_string();
    assert!(error.contains("ddr4-2400"), "{error}");
}

/// Lines of the walk that three writers (or as many as there are cores) evict, and its mean latency
/// in ns.
fn next_to_writers(platform: &str, memory: &str, cpus: &str) -> (u64, u64) {
    let vm = |name: &str, cpus: &str, workload: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"4MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\nworkload = {{ kind = \"{workload}\" }}\n"
        )
    };
    let walk = vm("walk", "[0]", "latency\", size = \"256KiB");
    let text =
        format!("platform = \"{platform}\"\n{walk}{}", vm("write", cpus, "write\", size = \"1MiB"));
    let board = support::board_of(&text, &MemoryModel::find(memory).unwrap());
    let outcome = run(&board, support::span(500)).unwrap();
    assert!(outcome.vms.iter().all(|vm| vm.accesses > 100), "{memory}");
    (outcome.evictions[1][0], outcome.vms[0].latency.mean().0 / 1000)
}

#[test]
fn each_chip_runs_and_private_l2s_share_no_lines() {
    for chip in ["zcu104", "rpi4", "gem5"] {
        let (evicted, mean) = next_to_writers(chip, chip, "[1, 2, 3]");
        assert!(evicted > 50 && mean > 10, "{chip}: {evicted}, {mean} ns");
    }
    // Too slow to fill its L2 in that time.
    let (_, mean) = next_to_writers("qemu-virt", "arm11mpcore", "[1]");
    assert!(mean > 60, "{mean} ns");
    let (evicted, mean) = next_to_writers("qemu-virt", "athlon64x2", "[1]");
    assert!(evicted == 0 && mean < 30, "{evicted}, {mean} ns");
}

proptest! {
    #[test]
    fn no_damage_to_a_memory_file_panics(at in 0..TEXT.len(), bytes in "[0-9\\[\\]=a-z\\- ]{0,4}") {
        if TEXT.is_char_boundary(at) {
            let _ = MemoryModel::parse("x", &format!("{}{bytes}{}", &TEXT[..at], &TEXT[at..]));
            let _ = MemoryModel::parse("x", &TEXT[..at]);
        }
    }
}

/// gem5's latencies are those of boards/gem5/README.md; no value of the memory file was fitted to
/// them.
#[test]
fn a_walk_takes_what_it_takes_in_gem5() {
    let mean = |writers: usize| {
        let vm = |core: usize| {
            let kind =
                if core == 0 { "latency\", size = \"2MiB" } else { "write\", size = \"4MiB" };
            format!(
                "[[vm]]\nname = \"vm{core}\"\ncpus = [{core}]\nmemory = \"8MiB\"\n\
                 image = {{ elf = \"memory-stressor\" }}\nworkload = {{ kind = \"{kind}\" }}\n"
            )
        };
        let vms: String = (0..=writers).map(vm).collect();
        let text = format!("platform = \"gem5\"\n{vms}");
        let board = support::board_of(&text, &MemoryModel::find("gem5").unwrap());
        run(&board, support::span(2000)).unwrap().vms[0].latency.mean().0
    };
    for (writers, gem5) in [(1, 90_000), (2, 98_000), (3, 111_000)] {
        let own = mean(writers);
        assert!(own.abs_diff(gem5) < gem5 / 20, "{writers} writers: {own} ps, gem5 {gem5}");
    }
    // Known: gem5's L2 is mostly exclusive and keeps half of the walk if nobody else writes.
    let (own, gem5) = (mean(0), 42_000);
    assert!(own.abs_diff(81_000) < 500 && own > gem5 * 3 / 2, "alone: {own} ps, gem5 {gem5}");
}
