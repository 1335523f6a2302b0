//! Memory files: what weir brings along is what it says, and everything else is refused by place.
#![allow(missing_docs, reason = "tests")]

use proptest::prelude::*;
use weir_memsys::{
    Pa,
    bench::ddr4_2400_map,
    dram::{DEFAULT_POLICY, timing::DDR4_2400},
};
use weir_sim::Memory;

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

proptest! {
    #[test]
    fn no_damage_to_a_memory_file_panics(at in 0..TEXT.len(), bytes in "[0-9\\[\\]=a-z\\- ]{0,4}") {
        if TEXT.is_char_boundary(at) {
            let _ = Memory::parse("x", &format!("{}{bytes}{}", &TEXT[..at], &TEXT[at..]));
            let _ = Memory::parse("x", &TEXT[..at]);
        }
    }
}
