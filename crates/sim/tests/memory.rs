//! Memory files: what weir brings along is what it says, and everything else is refused by place.
#![allow(missing_docs, reason = "tests")]

use proptest::prelude::*;
use weir_memsys::{
    Pa,
    bench::ddr4_2400_map,
    dram::{
        DEFAULT_POLICY,
        timing::{DDR2_800, DDR4_2400, LPDDR4_3200},
    },
};
use weir_sim::{Memory, run};

mod support;

const TEXT: &str = include_str!("../../../platforms/ddr4-2400.toml");

#[test]
fn ddr4_2400_is_the_part_that_the_closed_forms_are_tested_on() {
    let dram = Memory::find("ddr4-2400").unwrap().dram;
    assert_eq!(dram.timing(), DDR4_2400);
    assert_eq!(dram.policy(), DEFAULT_POLICY);
    let map = dram.map().unwrap();
    assert_eq!(map.fields(), ddr4_2400_map().fields());
    assert_eq!(map.locate(Pa(0x1_2000)).bank, 0b0110);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        ("cl = 17", "cl = \"x\"", "line 7"),
        ("cl = 17", "cll = 17", "unknown field `cll`"),
        ("cl = 17\n", "", "missing field `cl`"),
        ("cl = 17", "cl = 17000000", "write at most"),
        ("burst = 4", "burst = 0", "burst is 0"),
        ("refi = 9364", "refi = 400", "tREFI"),
        ("[[15], [16]]", "[[15], [15]]", "bank bit 1"),
        ("[[15], [16]]", "[[15, 15], [16]]", "map.bank, bit 0"),
        ("[[15], [16]]", "[[15], [64]]", "map.bank, bit 1"),
        ("to = 31", "to = 3", "ascending"),
        ("reads = 32", "reads = 99", "queues"),
    ];
    for (from, to, said) in cases {
        assert!(TEXT.contains(from), "{from}");
        let error = Memory::parse("mine.toml", &TEXT.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("mine.toml: ") && text.contains(said), "{to}: {text}");
    }
    let error = Memory::find("nowhere").unwrap_err().to_string();
    assert!(error.contains("ddr4-2400"), "{error}");
}

#[test]
fn lpddr4_and_ddr2_are_the_parts_of_the_model() {
    assert_eq!(Memory::find("rpi4").unwrap().dram.timing(), LPDDR4_3200);
    assert_eq!(Memory::find("athlon64x2").unwrap().dram.timing(), DDR2_800);
}

/// Lines of the walk that three writers (or as many as there are cores) evict, and its mean latency in ns.
fn beside_writers(platform: &str, memory: &str, cpus: &str) -> (u64, u64) {
    let vm = |name: &str, cpus: &str, workload: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"4MiB\"\nimage = {{ elf = \"guests/hog\" }}\n\
             workload = {{ kind = \"{workload}\" }}\n"
        )
    };
    let walk = vm("walk", "[0]", "latency\", size = \"256KiB");
    let text =
        format!("platform = \"{platform}\"\n{walk}{}", vm("write", cpus, "write\", size = \"1MiB"));
    let board = support::board_of(&text, &Memory::find(memory).unwrap());
    let outcome = run(&board, support::span(500)).unwrap();
    assert!(outcome.vms.iter().all(|vm| vm.accesses > 100), "{memory}");
    (outcome.evictions[1][0], outcome.vms[0].latency.mean().0 / 1000)
}

#[test]
fn each_chip_runs_and_private_second_levels_share_no_lines() {
    for chip in ["zcu104", "rpi4"] {
        let (evicted, mean) = beside_writers(chip, chip, "[1, 2, 3]");
        assert!(evicted > 50 && mean > 10, "{chip}: {evicted}, {mean} ns");
    }
    // Too slow to fill its L2 in that time.
    let (_, mean) = beside_writers("qemu-virt", "arm11mpcore", "[1]");
    assert!(mean > 60, "{mean} ns");
    let (evicted, mean) = beside_writers("qemu-virt", "athlon64x2", "[1]");
    assert!(evicted == 0 && mean < 30, "{evicted}, {mean} ns");
}

proptest! {
    #[test]
    fn no_damage_to_a_memory_file_panics(at in 0..TEXT.len(), bytes in "[0-9\\[\\]=a-z\\- ]{0,4}") {
        if TEXT.is_char_boundary(at) {
            let _ = Memory::parse("x", &format!("{}{bytes}{}", &TEXT[..at], &TEXT[at..]));
            let _ = Memory::parse("x", &TEXT[..at]);
        }
    }
}
