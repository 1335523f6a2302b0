//! The properties of the fuzz targets in `fuzz/`, for a short time and a fixed seed: no text makes
//! the checker panic, every fault has a place, and what passes can be packed.

use crate::checkout;
use crate::images;
use proptest::{prelude::*, test_runner::RngSeed};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};
use weir_model::{Catalog, Image, Payload, Style, check_text, pack};
use zerocopy::IntoBytes;

static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| images::directory("smoke"));

/// Every system that there is, good and bad.
static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let broken = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut paths: Vec<_> = fs::read_dir(broken)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.extend(checkout::systems());
    paths.sort();
    paths.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect()
});

fn catalog() -> Catalog {
    let guests = ["control", "echo", "phoenix", "probe", "smp", "storm", "attacker"];
    Catalog { guests: guests.map(str::to_owned).to_vec(), ..Catalog::default() }
}

fn assert_checks(text: &str) {
    match check_text(&DIRECTORY.join("x.toml"), text, &catalog()) {
        Err(faults) => {
            assert!(!faults.0.is_empty(), "refused without a fault:\n{text}");
            let lines = text.matches('\n').count() + 1;
            assert!(faults.0.iter().all(|fault| (1..=lines).contains(&fault.location().line)));
            assert!(faults.0.iter().all(|fault| fault.help.is_some()));
            assert!(!faults.render(Style::Plain, 80).is_empty());
        }
        Ok(system) => {
            let elf = images::elf(0x4010_0000, &[(0x4010_0000, 0x1000, &[1; 16])]);
            let linux = images::linux(64, 0x1000, 0);
            let payloads = system.vms.iter().map(|vm| match &vm.image {
                Image::Elf { .. } => Payload { image: &elf, initrd: None },
                Image::Bin { .. } => Payload { image: &[1; 64], initrd: None },
                Image::Linux { initrd, .. } => {
                    Payload { image: &linux, initrd: initrd.as_ref().map(|_| &[1; 64][..]) }
                }
            });
            let payloads: Vec<_> = payloads.collect();
            if let Ok(packed) = pack(&system, &payloads, images::HYPERVISOR) {
                let mut words = vec![0u64; packed.tables.len().div_ceil(8)];
                words.as_mut_bytes()[..packed.tables.len()].copy_from_slice(&packed.tables);
                let v2 = system.platform().is_gic_v2();
                let parsed = weir_abi::PackedSystem::parse(words.as_bytes(), v2);
                assert_eq!(parsed.map(|parsed| parsed.vms()), Ok(system.vms.len()), "{text}");
            }
        }
    }
}

/// The last character boundary up to `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Pieces that mean something to the parser.
const WORDS: [&str; 36] = [
    "platform",
    "qemu-virt-gicv2",
    "[[vm]]",
    "[hypervisor]",
    "name",
    "cpus",
    "memory",
    "image",
    "devices",
    "on_fault",
    "expect",
    "board",
    "ram",
    "uart",
    "distributor",
    "redistributors",
    "device_tree",
    "=",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "\n",
    "\"rest\"",
    "\"16MiB\"",
    "0xffff_ffff_ffff_ffff",
    "-1",
    "0",
    "4096",
    "base",
    "size",
    "{ elf = \"good.elf\" }",
    "{ bin = \"good.bin\", load = 0 }",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in ".{0,200}") {
        assert_checks(&text);
    }

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)) {
        assert_checks(&words.join(" "));
    }

    /// A file in which pieces were cut out, doubled, or replaced by words.
    #[test]
    fn changed_files(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..12, prop::sample::select(&WORDS[..]), 0..3),
            1..4,
        ),
    ) {
        let mut text = file.get(&FILES).clone();
        for (place, len, word, kind) in changes {
            let start = boundary(&text, place.index(text.len() + 1));
            let end = boundary(&text, (start + len).min(text.len()));
            match kind {
                0 => text.replace_range(start..end, ""),
                1 => text.replace_range(start..end, word),
                _ => text.insert_str(end, &text.clone()[start..end]),
            }
        }
        assert_checks(&text);
    }
}
