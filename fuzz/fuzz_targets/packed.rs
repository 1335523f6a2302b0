//! The packed form as the hypervisor reads it: no bytes make it panic, and what passes is sound.
//!
//! In `fuzz/`: `cargo +nightly fuzz run packed -- -max_len=1200`
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use weir_abi::{
    ADDRESS_LIMIT, ENGINE_CHUNK, MAGIC, NO_ENGINE, RAM, PageSpan, PackedSystem, VERSION, checksum,
};
use weir_units::Nanos;
use weir_sched::scheduler::Ready;
use zerocopy::IntoBytes;

fuzz_target!(|input: &[u8]| {
    let Some((&options, bytes)) = input.split_first() else { return };
    // The hypervisor has the tables at a page's start.
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    let bytes = &mut words.as_mut_bytes()[..bytes.len()];
    // Mostly with the beginning that lets the tables be read.
    if options & 1 != 0 && bytes.len() >= 72 {
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let len = (bytes.len() as u32).to_le_bytes();
        bytes[16..20].copy_from_slice(&len);
        let sum = checksum(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(system) = PackedSystem::parse(bytes, options & 2 != 0) else { return };
    let header = system.header;
    let has_engine = header.engine_from != NO_ENGINE;
    assert!(!has_engine || (system.broker().is_some() && header.chunk <= ENGINE_CHUNK));
    for mut shared in (0..8).filter_map(|core| system.shared(core)) {
        assert!(shared.vms().iter().all(|vm| usize::from(*vm) < system.vms()));
        let run = shared.scheduler.step(Nanos(1), Ready::of(0..8)).run;
        assert!(run.is_none_or(|entity| usize::from(entity) < shared.vms().len()));
    }
    let mut taken =
        vec![system.header.load_address..system.header.load_address + system.header.image_len];
    let mut pages = BTreeSet::new();
    for vm in (0..system.vms()).filter_map(|index| system.vm(index)) {
        for region in vm.regions {
            let range = region.pa..region.pa + region.len;
            assert!(range.end <= ADDRESS_LIMIT && region.ipa + region.len <= ADDRESS_LIMIT);
            // Where memory is divided, the first pages of each stand for all.
            if system.is_divided() && region.kind == RAM {
                let span = PageSpan { pa: region.pa, len: region.len };
                assert!(system.pages(&vm, span).take(4096).all(|page| pages.insert(page)));
                continue;
            }
            assert!(taken.iter().all(|other| range.end <= other.start || other.end <= range.start));
            taken.push(range);
        }
        for segment in vm.segments.iter().filter(|segment| segment.len > 0) {
            assert!(vm.is_ram(segment.ipa) && vm.is_ram(segment.ipa + segment.len - 1));
            assert!(segment.offset + segment.len <= system.header.image_len);
        }
        assert!(vm.cores().iter().all(|core| u32::from(*core) < system.header.cores));
    }
});
