//! Colors and banks: the page classes of the platforms, what the keys give, and that what is packed
//! is divided.

use crate::images;
use proptest::prelude::*;
use snapbox::{Data, assert_data_eq};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::Path,
};
use weir_model::{
    Catalog, ImageFile, ImageFiles, MapOwner, Payload, Platform, Share, Sizes, System, audit,
    check_text, estimate, pack, place, place_all, shares,
};
use weir_paging::classes::{ClassSet, PageClasses};
use zerocopy::IntoBytes;

const PAGE: u64 = 4096;

/// Systems with images that are files of this test, except that `guest` stands for a guest of
/// weir's.
fn check(text: &str) -> Result<System, weir_model::Faults> {
    let directory = images::directory("coloring");
    let catalog = Catalog { guests: vec!["guest".to_owned()], ..Catalog::default() };
    check_text(&directory.join("system.toml"), text, &catalog)
}

fn vm(name: &str, core: usize, keys: &str) -> String {
    format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nimage = {{ elf = \"guest\" }}\n{keys}\n")
}

/// The shares of all owners, for a system of these VMs: name, and keys in addition to the usual
/// ones.
fn divided(platform: &str, head: &str, vms: &[(&str, &str)]) -> Vec<Share> {
    let mut text = format!("platform = \"{platform}\"\n{head}\n");
    for (core, (name, keys)) in vms.iter().enumerate() {
        let memory = if keys.contains("memory") { "" } else { "memory = \"4MiB\"\n" };
        text += &vm(name, core, &format!("{memory}{keys}"));
    }
    let system = check(&text).unwrap_or_else(|faults| panic!("{faults}"));
    let placed = place(&system, 4 << 20).unwrap_or_else(|faults| panic!("{faults}"));
    shares(&system, &placed)
}

fn has(share: &Share, colors: &str, banks: &str) {
    let name = &share.name;
    assert_eq!(
        (share.colors_text().as_str(), share.banks_text().as_str()),
        (colors, banks),
        "{name}"
    );
}

/// The page classes of every platform and DRAM map. Checked by hand against the facts: see the head
/// of each block.
///
/// `SNAPSHOTS=overwrite cargo test` writes the table anew.
#[test]
fn page_classes_of_the_platforms() {
    let mut table = String::new();
    for platform in Platform::all() {
        for map in 0..platform.places.dram.len() {
            let geometry = platform.places.geometry(map);
            let classes = PageClasses::new(&geometry).unwrap();
            let name = &platform.places.dram[map].name;
            writeln!(
                table,
                "{} {name}: {} page classes, {} colors, {} bank groups of {}",
                platform.name,
                classes.count(),
                classes.colors(),
                classes.bank_groups(),
                classes.banks_in_group()
            )
            .unwrap();
            for color in 0..classes.colors() {
                let banks: Vec<_> = classes
                    .iter()
                    .filter(|&class| u16::from(classes.color(class)) == color)
                    .map(|class| format!("{}:{}", class.0, classes.bank(class)))
                    .collect();
                writeln!(table, "  color {color:2}, class:bank {}", banks.join(" ")).unwrap();
            }
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page_classes.expected");
    assert_data_eq!(table, Data::read_from(&golden, None).raw());
}

/// The facts in figures, by addresses.
#[test]
fn page_classes_are_the_boards() {
    let classes = |name: &str, map: usize| {
        let platform = Platform::named(name).unwrap();
        PageClasses::new(&platform.places.geometry(map)).unwrap()
    };
    let zcu102 = classes("zcu102", 0);
    assert_eq!((zcu102.count(), zcu102.colors(), zcu102.bank_groups()), (32, 16, 16));
    for page in 0..1024u64 {
        let class = zcu102.class_of(page << 12);
        assert_eq!(u64::from(class.0), page & 31, "address bits 12 to 16");
        assert_eq!(u64::from(zcu102.color(class)), page & 15);
        assert_eq!(u64::from(zcu102.bank(class)), page >> 1 & 15, "address bits 13 to 16");
    }
    let top = classes("zcu102", 1);
    assert_eq!((top.count(), top.colors(), top.bank_groups()), (256, 16, 16));
    assert_eq!(top.bank(top.class_of(0x8_0000_0000)), 8, "the upper 2 GiB");
    assert_eq!(top.bank(top.class_of(0x7000_0000)), 7);
    let rpi4 = classes("rpi4", 0);
    assert_eq!((rpi4.count(), rpi4.colors()), (16, 16));
    assert_eq!((rpi4.bank_groups(), rpi4.banks_in_group()), (8, 2));
    for page in 0..64u64 {
        let class = rpi4.class_of(page << 12);
        assert_eq!(u64::from(class.0), page & 15);
        assert_eq!(u64::from(rpi4.bank(class)), page & 7, "address bits 12 to 14");
    }
    let qemu = classes("qemu-virt", 0);
    assert_eq!((qemu.count(), qemu.colors(), qemu.bank_groups()), (128, 16, 8));
    assert_eq!(qemu, classes("qemu-virt-gicv2", 0));
    assert_eq!(qemu.bank(qemu.class_of(0x4009_0000)), 0, "bits 16 and 19");
}

#[test]
fn nothing_is_divided_without_a_request() {
    let shares = divided("qemu-virt", "", &[("a", ""), ("b", "criticality = 3")]);
    for share in &shares {
        has(share, "0-15", "0-7");
    }
    assert_eq!(shares[1].shares_colors, ["weir", "b"]);
    assert_eq!((shares[1].pages, shares[1].kept_pages), (1024, 0));
}

#[test]
fn requesting_vms_own_and_the_others_share_the_rest() {
    let shares = divided(
        "qemu-virt",
        "",
        &[
            ("a", "colors = \"0-3\""),
            ("b", "banks = \"rt\""),
            ("c", ""),
            ("d", "colors = \"9\"\nbanks = \"0\""),
        ],
    );
    has(&shares[0], "4-8,10-15", "1-3");
    has(&shares[1], "0-3", "1-3");
    has(&shares[2], "4-8,10-15", "4-7");
    has(&shares[3], "4-8,10-15", "1-3");
    has(&shares[4], "9", "0");
    assert_eq!(shares[1].shares_colors, [""; 0]);
    assert_eq!(shares[2].shares_banks, [""; 0]);
    assert_eq!(shares[3].shares_colors, ["weir", "b"]);
    assert_eq!(shares[3].shares_banks, ["weir", "a"]);
    assert_eq!(shares[1].cache.unwrap().0, 256 << 10);
    assert_eq!(shares[1].reach.0, (2 << 30) / 128 * 12);
    assert!(shares[1].kept_pages > 0 && shares[1].pages == 1024 + shares[1].kept_pages);
}

#[test]
fn the_hypervisor_is_an_owner() {
    let head = "[hypervisor]\ncolors = \"15\"\n";
    let shares = divided("qemu-virt", head, &[("a", ""), ("b", "colors = \"0\"")]);
    has(&shares[0], "15", "0-7");
    has(&shares[1], "1-14", "0-7");
    assert_eq!(shares[0].shares_colors, [""; 0]);
}

#[test]
fn groups_are_shared_by_their_members() {
    let head = "[[group]]\nname = \"fast\"\ncolors = \"0-7\"\n";
    let shares = divided(
        "qemu-virt",
        head,
        &[("a", "colors = \"fast\"\nbanks = \"rt\""), ("b", "colors = \"fast\""), ("c", "")],
    );
    has(&shares[1], "0-7", "4-7");
    has(&shares[2], "0-7", "0-3");
    has(&shares[3], "8-15", "0-3");
}

#[test]
fn auto_gives_the_critical_their_own() {
    let auto = "colors = \"auto\"\ncriticality = ";
    let shares = divided(
        "qemu-virt",
        "",
        &[
            ("low", &format!("{auto}1")),
            ("high", &format!("{auto}2")),
            ("none", "colors = \"auto\""),
            ("set", &format!("{auto}1\nworking_set = \"100KiB\"")),
        ],
    );
    has(&shares[2], "0-3", "0-7");
    has(&shares[1], "4-7", "0-7");
    has(&shares[4], "8-9", "0-7");
    has(&shares[3], "10-15", "0-7");
    has(&shares[0], "10-15", "0-7");
    // With its tables and image a VM of 1020 MiB needs more than half of the board.
    let shares = divided(
        "qemu-virt",
        "",
        &[("big", &format!("{auto}1\nmemory = \"1020MiB\"")), ("rest", "memory = \"500MiB\"")],
    );
    has(&shares[1], "0-8", "0-7");
    has(&shares[2], "9-15", "0-7");
    let both = "colors = \"auto\"\nbanks = \"auto\"\ncriticality = 1";
    let shares = divided("qemu-virt", "", &[("a", both), ("b", "")]);
    has(&shares[1], "0-7", "0-3");
    has(&shares[2], "8-15", "4-7");
    // Where a page's color fixes its banks, the colors are those of the banks.
    let shares = divided("rpi4", "", &[("a", both), ("b", "")]);
    has(&shares[1], "0-3,8-11", "0-3");
    has(&shares[2], "4-7,12-15", "4-7");
}

/// `"auto"` leaves to others what the numbers that the file gives them need, where it has a choice.
#[test]
fn auto_makes_no_request_impossible() {
    let request = "colors = \"0-3\"\ncriticality = 1";
    let auto = "banks = \"auto\"\ncriticality = 2";
    // A color lies in one bank there: colors 0 to 3 in banks 0 to 3.
    let shares = divided("rpi4", "", &[("a", request), ("b", auto), ("c", "")]);
    has(&shares[1], "0-3", "0-3");
    has(&shares[2], "4-7,12-15", "4-7");
    // There banks 0 to 3 lie in colors 0 to 7.
    let auto = "colors = \"auto\"\ncriticality = 1";
    let shares = divided("zcu102", "", &[("a", auto), ("b", "banks = \"0-3\"")]);
    has(&shares[1], "8-15", "4-7,12-15");
    has(&shares[2], "0-7", "0-3");
    // Where a request needs them all, there is no choice, and "auto" has nothing that could be left
    // out.
    let text = [vm("a", 0, "memory = \"4MiB\"\nbanks = \"auto\"\ncriticality = 1")]
        .into_iter()
        .chain([vm("b", 1, "memory = \"4MiB\"\ncolors = \"0-7\"")]);
    let text = format!("platform = \"rpi4\"\n{}", text.collect::<String>());
    let refused = check(&text).unwrap_err();
    assert!(refused.0[0].message.contains("vm `b`: cannot have color"), "{refused}");
    let help = refused.0[0].help.as_ref().unwrap();
    assert!(help.ends_with("; write colors = \"1-7\" for vm `b`"), "{refused}");
    check(&text.replace("0-7", "1-7")).unwrap_or_else(|faults| panic!("{faults}"));
}

/// A file of VMs with memory, `colors` and `banks` that are `"auto"` or not there, a working set in
/// KiB, and a criticality.
fn automatic(platform: &str, vms: &[(&str, bool, bool, u64, u64)]) -> String {
    let mut text = format!("platform = \"{platform}\"\n");
    for (core, (memory, colors, banks, set, criticality)) in vms.iter().enumerate() {
        let mut keys = format!("memory = \"{memory}\"\ncriticality = {criticality}\n");
        for (key, wanted) in [("colors", colors), ("banks", banks)] {
            if *wanted {
                writeln!(keys, "{key} = \"auto\"").unwrap();
            }
        }
        if *set > 0 {
            writeln!(keys, "working_set = \"{set}KiB\"").unwrap();
        }
        text += &vm(&format!("v{core}"), core, &keys);
    }
    text
}

/// Where colors and banks are not independent, too, the colors of `"auto"` hold the working set in
/// the banks that are left.
#[test]
fn auto_fills_working_sets_next_to_banks_of_others() {
    let beside = |set| vec![("4MiB", true, false, set, 1), ("8MiB", false, true, 0, 9)];
    let files = [
        ("rpi4", beside(64)),
        ("rpi4", beside(300)),
        ("rpi4", beside(640)),
        ("rpi4", vec![("4MiB", true, true, 400, 9), ("4MiB", false, true, 0, 8)]),
        ("rpi4", vec![("4MiB", false, true, 0, 9), ("4MiB", true, true, 400, 8)]),
        (
            "rpi4",
            vec![
                ("32MiB", false, false, 0, 9),
                ("32MiB", true, false, 200, 1),
                ("4MiB", true, true, 64, 5),
            ],
        ),
        (
            "rpi4",
            vec![
                ("32MiB", false, true, 0, 1),
                ("4MiB", true, true, 256, 5),
                ("1MiB", true, false, 200, 1),
            ],
        ),
        (
            "rpi4",
            vec![
                ("1MiB", false, true, 0, 5),
                ("1MiB", true, false, 200, 1),
                ("1MiB", true, false, 0, 9),
            ],
        ),
        (
            "zcu104",
            vec![
                ("1MiB", false, false, 0, 5),
                ("4MiB", false, true, 0, 5),
                ("32MiB", false, true, 0, 1),
                ("4MiB", true, false, 128, 5),
            ],
        ),
        (
            "zcu104",
            vec![
                ("4MiB", true, false, 128, 1),
                ("32MiB", false, false, 0, 5),
                ("32MiB", true, true, 128, 9),
                ("4MiB", true, true, 256, 1),
            ],
        ),
        (
            "zcu102",
            vec![
                ("4MiB", true, false, 128, 1),
                ("4MiB", false, true, 0, 5),
                ("32MiB", false, true, 0, 1),
            ],
        ),
        (
            "zcu102",
            vec![
                ("32MiB", true, true, 128, 1),
                ("1MiB", false, false, 0, 0),
                ("1MiB", false, true, 0, 1),
                ("4MiB", true, false, 200, 5),
            ],
        ),
    ];
    for (platform, vms) in files {
        let text = automatic(platform, &vms);
        let system = check(&text).unwrap_or_else(|faults| panic!("{text}{faults}"));
        let placed = place(&system, 4 << 20).unwrap_or_else(|faults| panic!("{text}{faults}"));
        for (share, (_, colors, _, set, _)) in shares(&system, &placed)[1..].iter().zip(&vms) {
            let cache = share.cache.unwrap().0 >> 10;
            assert!(!colors || cache >= *set, "{text}{}: {cache} KiB", share.name);
        }
    }
    // However little the other gets, this is more than there is.
    let faults = check(&automatic("rpi4", &beside(960))).unwrap_err().to_string();
    assert!(
        faults.contains("vm `v0`: needs 15 colors in banks 1-7, since vm `v1` has 0: "),
        "{faults}"
    );
}

/// A board with one color, or one bank, is reported to have none to choose; and where all are given
/// out there is a way out.
#[test]
fn what_there_is_one_of_is_not_divided() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../boards/qemu-virt/board.toml");
    let text = fs::read_to_string(path).unwrap();
    let text = text.replacen("size = \"1MiB\"\nways = 16", "size = \"128KiB\"\nways = 16", 1);
    let directory = images::directory("coloring");
    let refused = |platform: &str, vms: &str| {
        fs::write(directory.join("few.toml"), platform).unwrap();
        let faults = check(&format!("platform = \"few.toml\"\n{vms}")).unwrap_err().to_string();
        faults.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let request = |name: &str, core: usize, colors: &str| {
        vm(name, core, &format!("memory = \"4MiB\"\ncolors = \"{colors}\""))
    };
    let both = request("a", 0, "0") + &request("b", 1, "1");
    let found = refused(&text, &both);
    assert!(found.contains("the hypervisor: no color is left"), "{found}");
    assert!(found.contains("; leave `colors` out of vm `b`"), "{found}");
    let one = text.replacen("128KiB", "64KiB", 1);
    for colors in ["0", "auto", "0-3"] {
        let found = refused(&one, &request("a", 0, colors));
        assert!(found.contains("has no cache colors"), "{found}");
        assert_eq!(found.matches("W0400").count(), 1, "{found}");
        assert!(!found.contains("is left:"), "{found}");
    }
}

/// What `"auto"` takes holds the pristine image and the tables too, next to an image that is as
/// large.
#[test]
fn auto_has_room_for_what_it_keeps() {
    let linux = |name: &str, core: usize, memory: u64, keys: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"{memory}MiB\"\n\
             image = {{ linux = \"debian-rt\", initrd = \"busybox\" }}\n{keys}\n"
        )
    };
    let fits = |text: &str, count: u64, small: u64| {
        let system = check(text).unwrap_or_else(|faults| panic!("{faults}"));
        let mut pristine = vec![44 << 20; count as usize];
        pristine.extend(vec![1 << 20; small as usize]);
        let image = (1 << 20) + pristine.iter().sum::<u64>();
        let sizes = Sizes { image, hypervisor: 1 << 20, pristine };
        let placed = place_all(&system, &sizes).unwrap_or_else(|faults| panic!("{faults}"));
        shares(&system, &placed)
    };
    let auto = "criticality = 1\nworking_set = \"64KiB\"\ncolors = \"auto\"";
    let one = format!("platform = \"qemu-virt\"\n{}", linux("a", 0, 120, auto));
    has(&fits(&one, 1, 0)[1], "0-1", "0-7");
    let mut four = "platform = \"qemu-virt\"\n".to_owned();
    for core in 0..4 {
        four += &linux(&format!("a{core}"), core, 100, auto);
    }
    fits(&four, 4, 0);
    let banks = "banks = \"auto\"\ncriticality = 1";
    let mut mixed = "platform = \"qemu-virt\"\n".to_owned() + &linux("a", 0, 250, banks);
    for core in 1..4 {
        mixed += &vm(&format!("b{core}"), core, &format!("memory = \"4MiB\"\n{banks}"));
    }
    has(&fits(&mixed, 1, 3)[1], "0-15", "0-1");
    // Nor does it leave too little to the owners that share.
    let mut sharing = "platform = \"qemu-virt\"\n".to_owned();
    sharing += &(linux("a", 0, 840, "") + &linux("b", 1, 840, ""));
    sharing += &vm("c", 2, "memory = \"16MiB\"\ncriticality = 1\ncolors = \"auto\"");
    fits(&sharing, 2, 1);
}

#[test]
fn the_dram_map_can_be_chosen() {
    let request = [("a", "colors = \"0-3\"\nbanks = \"8-15\""), ("b", "")];
    let shares = divided("zcu102", "dram = \"banks-on-top\"\n", &request);
    has(&shares[1], "0-3", "8-15");
    has(&shares[2], "4-15", "0-7");
    let shares = divided("zcu102", "", &[("a", "colors = \"rt\"\nbanks = \"rt\""), ("b", "")]);
    has(&shares[1], "0-3", "0-1,8-9");
    has(&shares[2], "4-15", "2-7,10-15");
}

/// The owner of each page, by the packed tables alone.
fn owners(system: &weir_abi::PackedSystem<'_>) -> BTreeMap<u64, String> {
    let mut owners = BTreeMap::new();
    let mut take = |owner: &str, pages: &mut dyn Iterator<Item = u64>| {
        for page in pages {
            assert_eq!(owners.insert(page, owner.to_owned()), None, "{page:#x} of {owner}");
        }
    };
    take("weir", &mut system.hypervisor_pages());
    for vm in (0..system.vms()).map(|index| system.vm(index).unwrap()) {
        let name = String::from_utf8(vm.name().to_vec()).unwrap();
        let regions = vm.regions.iter().filter(|region| region.kind == weir_abi::RAM);
        let spans = regions.map(|region| weir_abi::PageSpan { pa: region.pa, len: region.len });
        for span in spans.chain([vm.vm.own, vm.vm.pristine]) {
            let mut pages = system.pages(&vm, span);
            assert_eq!(pages.total(), span.len / PAGE);
            take(&name, &mut pages);
        }
    }
    owners
}

fn packed_system(system: &System, test: impl FnOnce(&weir_abi::PackedSystem<'_>, &[u8])) {
    let elf = images::elf(0x4010_0004, &[(0x4010_0000, 0x3000, &[0xaa; 0x2001])]);
    let payloads = vec![Payload { image: &elf, initrd: None }; system.vms.len()];
    let packed =
        pack(system, &payloads, images::HYPERVISOR).unwrap_or_else(|faults| panic!("{faults}"));
    // The addresses of `weir check` are correct.
    let files = ImageFiles { image: ImageFile::Known(&elf), initrd: None };
    let estimated = estimate(system, &vec![files; system.vms.len()], images::HYPERVISOR);
    assert_eq!(estimated.unwrap_or_else(|faults| panic!("{faults}")), packed.placement);
    let image = packed.image(&vec![0x17; 100_001]);
    let found = audit(system, &packed).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.len(), system.vms.len() + 1);
    let mut words = vec![0u64; packed.tables.len().div_ceil(8)];
    words.as_mut_bytes()[..packed.tables.len()].copy_from_slice(&packed.tables);
    let v2 = system.platform().is_gic_v2();
    let parsed = weir_abi::PackedSystem::parse(words.as_bytes(), v2);
    test(&parsed.unwrap_or_else(|damage| panic!("{}", damage.message())), &image);
}

#[test]
fn what_is_packed_is_divided() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("a", 0, "memory = \"8MiB\"\ncolors = \"0\"\nbanks = \"3\""),
        vm("b", 1, "memory = \"64MiB\"\ncolors = \"1-8\""),
        vm(
            "c",
            2,
            "memory = [{ base = 0x4000_0000, size = \"2MiB\" }, { base = 0x9000_0000, size = \
             \"4MiB\" }]"
        ),
    );
    let system = check(&text).unwrap_or_else(|faults| panic!("{faults}"));
    packed_system(&system, |packed, image| {
        assert!(packed.is_divided());
        let owners = owners(packed);
        let loaded =
            packed.header.load_address..packed.header.load_address + packed.header.image_len;
        assert!(owners.keys().all(|page| !loaded.contains(page) && *page >= 0x4020_0000));
        let names = ["weir", "a", "b", "c"];
        let sets: Vec<_> =
            [system.division.hypervisor].into_iter().chain(system.division.vms.clone()).collect();
        for (page, owner) in &owners {
            let place = names.iter().position(|name| name == owner).unwrap();
            assert!(sets[place].contains(packed.classes().class_of(*page)), "{page:#x} of {owner}");
        }
        // The pristine image that EL2 puts together matches the segments.
        let b = packed.vm(1).unwrap();
        for segment in b.segments {
            assert_eq!(segment.kept % PAGE, 0);
            assert!(segment.kept + segment.len <= b.vm.pristine.len);
        }
        let code = b.segments.iter().find(|segment| segment.ipa == 0x4010_0000).unwrap();
        assert_eq!(image[code.offset as usize..][..0x2001], [0xaa; 0x2001]);
        assert_eq!(packed.vm(2).unwrap().regions.len(), 2);
    });
}

/// The audit counts pages, not page classes: it sees a division that the pages don't keep, and a
/// page that is mapped by another.
#[test]
fn the_audit_detects_differences() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}",
        vm("a", 0, "memory = \"8MiB\"\ncolors = \"0-3\"\nbanks = \"rt\""),
        vm("b", 1, "memory = \"8MiB\"\ncolors = \"4-7\""),
    );
    let mut system = check(&text).unwrap_or_else(|faults| panic!("{faults}"));
    let elf = images::elf(0x4010_0004, &[(0x4010_0000, 0x3000, &[0xaa; 0x2001])]);
    let payloads = [Payload { image: &elf, initrd: None }; 2];
    let mut packed = pack(&system, &payloads, images::HYPERVISOR).unwrap();
    let found = audit(&system, &packed).unwrap();
    let a = &found[1];
    assert_eq!((a.name.as_str(), a.colors, a.banks, a.leaves), ("a", 4, 4, 2048));
    assert_eq!(a.tables, 1 + 1 + 4);
    assert!(a.meets_colors.is_empty() && a.meets_banks.is_empty());
    assert_eq!(found[2].meets_banks, ["weir"]);
    assert!(found[2].meets_colors.is_empty() && found[0].leaves == 0);

    let mut other = system.clone();
    other.division.vms[1] = other.division.vms[0];
    other.division.hypervisor = other.division.vms[0];
    other.division.vms[0] = system.division.vms[1];
    other.division.geometry.banks[2] = 1 << 12;
    assert!(audit(&other, &packed).unwrap_err().contains("have pages of one"));

    // The second VM's own tables where the first one's are: the check of the packed form is the
    // first to see that.
    let same = packed.tables.len();
    packed.tables[same - 1] ^= 1;
    assert!(audit(&system, &packed).unwrap_err().contains("check sum"));
    system.vms.pop();
    assert!(audit(&system, &packed).is_err());
}

/// What a VM's devices reach is audited with what the VM does, in both of an SMMU's formats.
#[test]
fn the_audit_walks_what_devices_reach() {
    let elf = images::elf(0x4010_0004, &[(0x4010_0000, 0x3000, &[0xaa; 0x2001])]);
    let tables = |colors: &str, devices: &str| {
        let keys = format!("memory = \"8MiB\"\n{colors}{devices}");
        let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, &keys));
        let system = check(&text).unwrap_or_else(|faults| panic!("{faults}"));
        let packed =
            pack(&system, &[Payload { image: &elf, initrd: None }], images::HYPERVISOR).unwrap();
        let found = audit(&system, &packed).unwrap_or_else(|error| panic!("{error}"));
        (found[1].tables, found[1].dma_leaves)
    };
    let (colors, function) = ("colors = \"0-3\"\n", "devices = [\"pci:00:02.0\"]\n");
    // A root, one below, and four of pages; the same again for the function, 2048 pages or four
    // blocks.
    assert_eq!((tables(colors, ""), tables(colors, function)), ((6, 0), (12, 2048)));
    assert_eq!((tables("", ""), tables("", function)), ((2, 0), (4, 4)));
}

/// TLB sets are chosen by where RAM is in the VM's own address space.
#[test]
fn tlb_colors_cut_ram_into_pieces() {
    let tlb = |keys: &str| {
        let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, keys));
        check(&text).map(|system| {
            let set = |piece: &weir_model::RamPiece| piece.base.0 / PAGE % 128;
            let pieces = &system.vms[0].memory;
            (
                pieces.len(),
                set(&pieces[0]),
                pieces[0].size.0,
                system.division.tlb[0].as_ref().unwrap().text(),
            )
        })
    };
    assert_eq!(
        tlb("memory = \"4MiB\"\ntlb_colors = \"0-63\"").unwrap(),
        (16, 0, 256 << 10, "0-63".to_owned())
    );
    let auto = "colors = \"4-7\"\ntlb_colors = \"auto\"\nmemory = \"1MiB\"";
    assert_eq!(tlb(auto).unwrap(), (8, 32, 128 << 10, "32-63".to_owned()));
    let code = |keys: &str| tlb(keys).unwrap_err().0[0].message.clone();
    assert!(
        code("memory = \"1GiB\"\ntlb_colors = \"0-63\"")
            .contains("is cut into more than 256 pieces")
    );
    assert!(code("memory = \"1MiB\"\ntlb_colors = \"128\"").contains("has TLB sets 0 to 127 only"));
    assert!(code("memory = \"1MiB\"\ntlb_colors = \"auto\"").contains("but it has none"));
    assert!(code("memory = \"1MiB\"\ntlb_colors = \"x\"").contains("is not a list of TLB sets"));
    let pieces = |base: &str| {
        format!("memory = [{{ base = {base}, size = \"256KiB\" }}]\ntlb_colors = \"64-127\"")
    };
    assert!(tlb(&pieces("0x4004_0000")).is_ok());
    assert!(code(&pieces("0x4003_0000")).contains("but in 48-63 of 128, too"));
    let two = format!(
        "platform = \"qemu-virt\"\n{}{}",
        vm("a", 0, "memory = \"1MiB\"\ntlb_colors = \"0-63\""),
        vm("b", 1, "memory = \"1MiB\"\ntlb_colors = \"63-100\""),
    );
    assert!(
        check(&two).unwrap_err().0[0]
            .message
            .contains("vm `b`: TLB set 63 is given to vm `a`, too")
    );
}

/// TLB sets that follow colors are shared by the owners that share these.
#[test]
fn tlb_colors_follow_a_group() {
    let keys = "memory = \"1MiB\"\ncolors = \"g\"\ntlb_colors = \"auto\"";
    let text = |other: &str| {
        let head = "platform = \"qemu-virt\"\n[[group]]\nname = \"g\"\ncolors = \"0-3\"\n";
        format!("{head}{}{}", vm("a", 0, keys), vm("b", 1, other))
    };
    let system = check(&text(keys)).unwrap_or_else(|faults| panic!("{faults}"));
    let sets: Vec<_> = system.division.tlb.iter().map(|tlb| tlb.as_ref().unwrap().text()).collect();
    assert_eq!(sets, ["0-31", "0-31"]);
    packed_system(&system, |packed, _| {
        owners(packed);
    });
    let faults = check(&text("memory = \"1MiB\"\ntlb_colors = \"31\"")).unwrap_err();
    assert_eq!(faults.0[0].message, "vm `b`: TLB set 31 is given to vm `a`, too");
}

/// What is long, large or many is answered as quickly as what is not.
#[test]
fn what_is_large_is_refused_or_done() {
    let long = vec!["1-4000"; 50_000].join(",");
    let text = format!(
        "platform = \"qemu-virt\"\n{}",
        vm("a", 0, &format!("memory = \"4MiB\"\ncolors = \"{long}\""))
    );
    assert_eq!(check(&text).unwrap_err().0[0].code.name(), "page-class-unknown");
    let all = "memory = \"511GiB\"\ntlb_colors = \"0-127\"";
    let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, all));
    assert_eq!(check(&text).unwrap_err().0[0].code.name(), "no-room");
    let many = |keys: &str| {
        let vms: Vec<_> = (0..3000).map(|index| vm("a", index % 8, keys)).collect();
        check(&format!("platform = \"qemu-virt\"\n{}", vms.concat())).unwrap_err()
    };
    let faults = many("colors = \"1\"");
    assert!(faults.0.iter().any(|fault| fault.code.name() == "too-many"), "{}", faults.0.len());
    let shown = many("colors = \"1\"\nsize = 1").to_string();
    assert!(shown.lines().last().is_some_and(|last| last.contains("more")), "{shown}");
}

/// A board file with one thing changed.
fn platform(from: &str, to: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../boards/zcu102/board.toml");
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from}");
    let path =
        images::directory("platforms").join(format!("{}.toml", to.len() * 1000 + from.len()));
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    match Platform::load(&path) {
        Ok(_) => String::new(),
        Err(faults) => {
            let list = faults
                .0
                .iter()
                .map(|fault| format!("{}: {}: {fault}", fault.location().line, fault.code.name()));
            list.collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn broken_geometries_are_refused() {
    let refused = |from: &str, to: &str, message: &str| {
        let found = platform(from, to);
        assert!(found.contains(message), "{to}: {found}");
        assert_eq!(found.lines().count(), 1, "one cause: {found}");
    };
    assert_eq!(platform("ways = 16", "ways = 16 "), "");
    let banks = "[[13], [14], [15], [16]]";
    refused(
        banks,
        "[[13], [14], [13, 14], [16]]",
        "platform-geometry: dram `interleaved`: bank bit 2 is the XOR of some before it",
    );
    refused(banks, "[[13], [14, 14]]", "bank bit 1 has no address bit, or the same twice");
    refused(banks, "[[13], []]", "bank bit 1 has no address bit, or the same twice");
    refused(banks, "[[13], [40]]", "`banks` is out of range (40)");
    refused(banks, "[]", "`banks` is empty, so it distinguishes no banks");
    refused("ways = 16", "ways = 0", "`ways` is out of range (0)");
    refused("entries = 512", "entries = 0", "`entries` is out of range (0)");
    refused(
        banks,
        "[[13], [16], [17], [18], [19], [20]]",
        "9 independent bits choose color (4 of them) and bank",
    );
    refused(
        banks,
        "[[13], [14], [15], [16], [17], [18], [19], [20], [21]]",
        "9 bank bits (weir supports 8)",
    );
    refused(banks, "[[13], [34]]", "16 of 32 page classes have no page");
    refused(
        "size = \"1MiB\"",
        "size = \"16GiB\"",
        "platform-geometry: [cache]: more than 256 colors",
    );
    refused(
        "ways = 16",
        "ways = 12",
        "platform-geometry: [cache]: lines of 64B make no cache of 1MiB with 12 ways",
    );
    refused(
        "size = \"1MiB\"",
        "size = \"32KiB\"",
        "a way of 32KiB / 16 is no power of two of pages",
    );
    for line in ["48B", "1B", "4B", "8B"] {
        let message = format!("[cache]: `line` is {line}");
        refused("line = \"64B\"", &format!("line = \"{line}\""), &message);
    }
    assert_eq!(platform("line = \"64B\"", "line = \"16B\""), "");
    refused(
        "line = \"64B\"",
        "line = \"64B\"\npage = \"64KiB\"",
        "platform-geometry: [cache]: `page` is 64KiB (weir maps pages of 4KiB)",
    );
    refused(
        "entries = 512",
        "entries = 500",
        "platform-geometry: tlb `core`: 500 entries in 4 ways are no power of two of sets",
    );
    refused("banks-on-top", "interleaved", "dram `interleaved`: two maps have this name");
    refused("base = 0x8_0000_0000", "base = 0x4000_0000", "is not whole pages, apart");
    refused("colors = \"0-3\"", "colors = \"3-0\"", "colors = \"3-0\" is not a list of numbers");
    refused("name = \"rt\"", "name = \"auto\"", "group `auto`: `name` is the word");
    refused("colors = \"0-3\"", "colors = \"16\"", "page-class-unknown");
}

/// A platform that this version can't run on is refused where an image is to be built.
#[test]
fn planned_platforms_are_for_checking() {
    let on = |name: &str| {
        check(&format!("platform = \"{name}\"\n{}", vm("a", 0, "memory = \"4MiB\""))).unwrap()
    };
    for name in Platform::names() {
        assert!(on(name).can_run().is_ok(), "{name}");
    }
    let board = include_str!("../../../boards/zcu104/board.toml");
    let path = images::directory("platforms").join("planned.toml");
    fs::write(&path, format!("planned = \"no driver\"\n{board}")).unwrap();
    let refused = on(path.to_str().unwrap()).can_run().unwrap_err();
    assert_eq!(refused.0[0].code.name(), "platform-planned");
    assert!(refused.to_string().contains("no driver"), "{refused}");
}

/// A piece of RAM that no free range holds alone lies in several.
#[test]
fn memory_above_a_gap_is_used_too() {
    let keys = "memory = \"3GiB\"\ncolors = \"0-13\"";
    let text = format!("platform = \"zcu102\"\n{}", vm("big", 0, keys));
    let system = check(&text).unwrap_or_else(|faults| panic!("{faults}"));
    packed_system(&system, |packed, _| {
        let big = packed.vm(0).unwrap();
        assert_eq!(big.regions.len(), 2);
        assert_eq!(big.regions[1].ipa, big.regions[0].ipa + big.regions[0].len);
        assert_eq!(big.regions.iter().map(|region| region.len).sum::<u64>(), 3 << 30);
        assert_eq!(big.regions[1].pa, 0x8_0000_0000);
        owners(packed);
    });
}

prop_compose! {
    fn request()(
        colors in prop::option::of(1u16..0xffff), banks in prop::option::of(1u16..0xff),
        pages in 600u64..3000,
    ) -> (String, u64) {
        let list = |mask: u16| {
            let numbers: Vec<_> =
                (0..16).filter(|bit| mask >> bit & 1 != 0).map(|bit| bit.to_string()).collect();
            numbers.join(",")
        };
        let mut keys = format!("memory = \"{}KiB\"\n", 4 * pages);
        // Few of them, so that several such requests are compatible.
        if let Some(colors) = colors {
            writeln!(
                keys,
                "colors = \"{}\"",
                list(colors & colors.rotate_left(3) | 1 << (colors % 16))
            )
            .unwrap();
        }
        if let Some(banks) = banks {
            writeln!(keys, "banks = \"{}\"", list(banks & banks >> 1 & 0xff | 1 << (banks % 8)))
                .unwrap();
        }
        (keys, pages)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any request is refused, or all pages are in their owners' page classes, none has two owners,
    /// and no other owner is in a color or bank that an owner requested.
    #[test]
    fn requests_are_kept_or_refused(
        requests in prop::collection::vec(request(), 1..4),
        platform in prop::sample::select(vec!["qemu-virt", "zcu104", "rpi4"]),
    ) {
        let mut text = format!("platform = \"{platform}\"\n");
        for (core, (keys, _)) in requests.iter().enumerate() {
            text += &vm(&format!("vm{core}"), core, keys);
        }
        let Ok(system) = check(&text) else { return Ok(()) };
        let classes = system.division.classes;
        let named = |keys: &str, key: &str| -> Option<BTreeSet<u16>> {
            let line = keys.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")))?;
            Some(
                line.trim_end_matches('"')
                    .split(',')
                    .map(|number| number.parse().unwrap())
                    .collect(),
            )
        };
        let sets: Vec<ClassSet> =
            system.division.vms.iter().copied().chain([system.division.hypervisor]).collect();
        for (index, (keys, _)) in requests.iter().enumerate() {
            for (key, of) in [
                ("colors", PageClasses::color as fn(&PageClasses, _) -> u8),
                ("banks", PageClasses::bank),
            ] {
                let Some(mine) = named(keys, key) else { continue };
                let found: BTreeSet<u16> =
                    sets[index].iter().map(|class| u16::from(of(&classes, class))).collect();
                prop_assert_eq!(&found, &mine, "the wish is met in full");
                for (other, set) in sets.iter().enumerate().filter(|(other, _)| *other != index) {
                    let strangers = set
                        .iter()
                        .filter(|&class| mine.contains(&u16::from(of(&classes, class))))
                        .count();
                    prop_assert_eq!(strangers, 0, "entity {} is in {} of vm{}", other, key, index);
                }
            }
        }
        if place(&system, 0x4_0000).is_ok() {
            packed_system(&system, |packed, _| {
                for (page, owner) in owners(packed).into_iter().filter(|_| system.division.divided)
                {
                    let place = owner
                        .strip_prefix("vm")
                        .map_or(requests.len(), |index| index.parse().unwrap());
                    assert!(sets[place].contains(classes.class_of(page)));
                }
            });
        }
    }
}

#[test]
fn the_row_of_a_page_class_names_its_owner() {
    let text =
        format!("platform = \"qemu-virt\"\n{}", vm("a", 0, "memory = \"4MiB\"\ncolors = \"0-1\""));
    let system = check(&text).unwrap();
    let placed = place(&system, 1 << 20).unwrap();
    let mine = |what: &str| {
        placed
            .rows
            .iter()
            .find(|row| row.owner == MapOwner::Vm(0, "a".to_owned()) && row.what == what)
            .unwrap()
    };
    assert_eq!(mine("RAM").size.0, 4 << 20);
    // Two pages of sixteen. It may begin with the second of two.
    let short = (32_u64 << 20).checked_sub(mine("RAM").end.0 - mine("RAM").address.0);
    assert!(matches!(short, Some(0 | 0xe000)), "{short:?}");
    let rows: Vec<_> = placed.table().map(|row| row.join(" ")).collect();
    assert!(rows.iter().any(|row| row.contains("RAM, page classes 0-1, 16-17, 32-33")), "{rows:?}");
}

/// The broker has page classes like a VM: its own, or of those without an owner.
#[test]
fn the_broker_has_page_classes() {
    let flow =
        "[[flow]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\nperiod = \"1ms\"\n";
    let vms = [("a", "colors = \"0-3\""), ("b", "colors = \"4-7\"")];
    let shares =
        divided("qemu-virt", &format!("{flow}[broker]\ncolors = \"8,9\"\nbanks = \"2\""), &vms);
    let names: Vec<_> = shares.iter().map(|share| share.name.as_str()).collect();
    assert_eq!(names, ["weir", "a", "b", "broker"]);
    has(&shares[3], "8-9", "2");
    has(&shares[1], "0-3", "0-1,3-7");
    let shares = divided("qemu-virt", flow, &vms);
    has(&shares[3], "8-15", "0-7");
    // Without flows there is no broker; its keys in the file take nothing.
    let shares = divided("qemu-virt", "[broker]\ncolors = \"8,9\"", &vms);
    assert_eq!(shares.len(), 3);
    has(&shares[0], "8-15", "0-7");
}

#[test]
fn a_working_set_that_never_fits_is_named() {
    let keys = "memory = \"4MiB\"\ncolors = \"auto\"\ncriticality = 1\nworking_set = \"2MiB\"";
    let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, keys));
    let faults = check(&text).unwrap_err();
    assert_eq!(
        faults.0[0].help.as_deref(),
        Some(
            "the `working_set` of 2MiB never fits: the whole cache has 1MiB; write a smaller one \
             for vm `a`"
        )
    );
}
