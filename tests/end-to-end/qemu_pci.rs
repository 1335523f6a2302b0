//! PCI functions passed through behind the SMMU, in QEMU: a disk that Linux uses, and one that its
//! guest directs at others.

use crate::support::qemu::{Options, Outcome, build_image, random_word, run_system, system, with};
use serde_json::Value;
use std::{fs, path::Path};

/// The slot of the disk, and its stream at the SMMU: slot 2, function 0.
const SLOT: &str = "2";
const STREAM: u64 = 2 << 3;
/// Bytes of the disk, and what Linux writes of them.
const DISK: usize = 8 << 20;
const WRITTEN: usize = 4 << 20;

/// A disk image with the first line `word`.
fn disk(directory: &Path, word: &str) -> String {
    let file = directory.join("disk.img");
    let mut bytes = format!("{word}\n").into_bytes();
    bytes.resize(DISK, 0);
    fs::write(&file, bytes).expect("a disk");
    file.to_str().expect("a path").to_owned()
}

/// Runs a system for at most 60 s of virtual time with a virtio disk in slot `slot`, which has
/// these properties.
fn run(text: &str, disk: &str, (slot, properties): (&str, &str), more: &[&str]) -> Outcome {
    let drive = format!("--qemu-arg=id=disk,if=none,format=raw,file={disk}");
    let device = format!("--qemu-arg=virtio-blk-pci,drive=disk,addr={slot},{properties}");
    let qemu = ["--qemu-arg=-drive", &drive, "--qemu-arg=-device", &device];
    let arguments = [&["--for", "60s"], &qemu[..], more].concat();
    run_system(text, &Options { arguments: &arguments, ..Options::default() })
}

/// As a disk behind the SMMU must be.
const BEHIND: (&str, &str) = (SLOT, "disable-legacy=on,iommu_platform=on");

fn linux_uses_the_disk(text: &str, arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let (first, written) = (random_word(), random_word());
    let disk = disk(directory.path(), &first);
    let more = format!("disk,poweroff weir.disk={written} kpti=off cryptomgr.notests");
    let text = with(text, "disk,poweroff", &more);
    let outcome = run(&text, &disk, BEHIND, arguments).good();
    let lines = outcome.lines("linux");
    let printed = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(printed(&format!("linux: disk of {} sectors begins with {first}", DISK / 512)));
    assert!(printed("pci 0000:00:02.0: [1af4:1042] type 00 class 0x010000"), "{lines:#?}");
    // One function, where weir put its base addresses, and its interrupt on the line of its slot.
    let functions = lines.iter().filter(|line| line.contains("type 00 class")).count();
    assert_eq!(functions, 1, "{lines:#?}");
    assert!(printed("BAR 4 [mem 0x10000000-0x10003fff 64bit pref]"), "{lines:#?}");
    assert!(printed("37 Level     virtio0"), "{lines:#?}");
    let mut expected = format!("{written}\n").into_bytes();
    for number in 1_000_000..1_600_000 {
        expected.extend_from_slice(format!("{number}\n").as_bytes());
    }
    expected.truncate(WRITTEN);
    expected.resize(DISK, 0);
    assert!(fs::read(&disk).expect("the disk") == expected, "the disk holds something else");
    let vm = outcome.vm("linux");
    assert_eq!(
        (&vm["faults"], &vm["denials"]),
        (&Value::Array(Vec::new()), &serde_json::json!({}))
    );
    let control = outcome.lines("control");
    let reports: Vec<_> = control.iter().filter(|line| line.contains(" activations, ")).collect();
    assert!(!reports.is_empty());
    assert!(reports.iter().all(|line| line.ends_with(", 0 misses")), "{control:?}");
}

/// Then the hypervisor and its SMMU's tables are in scattered pages, as are Linux' RAM and what the
/// disk reaches.
#[test]
fn colored_linux_uses_a_disk_behind_the_smmu() {
    let text = system("passthrough-pci");
    let text = with(&text, "console_core = 2", "console_core = 2\ncolors = \"12-13\"");
    let text = with(&text, "memory = \"16MiB\"", "memory = \"16MiB\"\ncolors = \"0-1\"");
    let text = with(&text, "memory = \"256MiB\"", "memory = \"256MiB\"\ncolors = \"4-11\"");
    linux_uses_the_disk(&text, &[]);
}

#[test]
fn linux_uses_a_disk_behind_the_smmu_on_gicv2() {
    linux_uses_the_disk(&system("passthrough-pci"), &["--platform", "qemu-virt-gicv2"]);
}

/// The attacks of `guests/tests/dma` by the boot that makes them, and the SMMU's report: the access
/// and the address.
const ATTACKS: [(&str, Option<(&str, &str)>); 5] = [
    ("the configuration space, 0 words changed", None),
    ("a buffer in another VM", Some(("write", "0x41000000"))),
    ("the used ring in another VM", Some(("read", "0x41000000"))),
    ("the descriptors in another VM", Some(("read", "0x41000000"))),
    ("a buffer in the hypervisor", Some(("write", "0x40200000"))),
];

#[test]
fn a_disk_cannot_write_to_other_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let word = random_word();
    let disk = disk(directory.path(), &word);
    let text = system("dma");
    // The address that is attacked is the witness', behind its image.
    let built = build_image(&text, &directory.path().join("image"));
    let ram = built["placement"]
        .as_array()
        .expect("a map")
        .iter()
        .find(|row| row["owner"] == "witness" && row["what"] == "RAM");
    let number = |value: &Value| {
        let text = value.as_str().expect("an address");
        u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number")
    };
    let ram = number(&ram.expect("the witness' RAM")["address"]);
    assert!((ram + (2 << 20)..ram + (32 << 20)).contains(&0x4100_0000), "{ram:#x}");

    let outcome = run(&text, &disk, BEHIND, &[]).good();
    let lines = outcome.lines("attacker");
    let works = format!("dma: the disk begins with {word}");
    let times = lines.iter().filter(|line| **line == works).count();
    assert_eq!(times, ATTACKS.len() + 1, "the disk works in each boot: {lines:#?}");
    let attacker = outcome.vm("attacker");
    assert_eq!((&attacker["resets"], &attacker["faults"]), (&5.into(), &serde_json::json!([])));
    let dma = attacker["dma"].as_array().expect("refused accesses");
    let log = String::from_utf8_lossy(&outcome.files["hypervisor.log"]).into_owned();
    for (boot, (what, refused)) in ATTACKS.iter().enumerate() {
        let committed = format!("dma: attack {}: {what}", boot + 1);
        assert!(lines.iter().any(|line| line.starts_with(&committed)), "{committed}: {lines:#?}");
        let named: Vec<_> = dma.iter().filter(|one| one["boot"] == boot).collect();
        assert_eq!(named.len(), usize::from(refused.is_some()), "{committed}: {dma:#?}");
        let Some((access, address)) = refused else { continue };
        let fault = named[0];
        assert_eq!((&fault["stream"], &fault["access"]), (&STREAM.into(), &(*access).into()));
        assert_eq!(
            (&fault["address"], &fault["kind"]),
            (&(*address).into(), &"translation fault".into())
        );
        let line = format!(
            "attacker: DMA outside its memory (stream {STREAM}): {access} at {address}, \
             translation fault"
        );
        assert!(log.contains(&line), "{line}: {log}");
    }
    assert_eq!(attacker["denials"], serde_json::json!({ "DMA outside its memory": 4 }));
    let witness = outcome.lines("witness");
    let rounds: Vec<_> = witness.iter().filter(|line| line.starts_with("dma: round ")).collect();
    assert!(rounds.len() >= 10 && rounds.iter().all(|line| line.contains(": 0 of 3932160 words")));
    let other = outcome.vm("witness");
    assert_eq!((&other["state"], &other["restarts"]), (&"running".into(), &0.into()));
    let mut whole = format!("{word}\n").into_bytes();
    whole.resize(DISK, 0);
    assert!(fs::read(&disk).expect("the disk") == whole, "no VM wrote on the disk");
}

/// The hypervisor's message when it refuses to start with such a machine.
fn refused(slot: (&str, &str), more: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = disk(directory.path(), "word");
    let outcome = run(&system("dma"), &disk, slot, more);
    assert_eq!(outcome.printed.status, Some(1), "{}", outcome.printed.err);
    format!("{}{}", outcome.printed.out, outcome.printed.err)
}

#[test]
fn machines_without_confined_functions_are_refused() {
    let past = refused((SLOT, "disable-legacy=on"), &[]);
    let words =
        "PCI function 00:02.0 goes past the SMMU: give QEMU's virtio device iommu_platform=on";
    assert!(past.contains(words), "{past}");
    let absent = refused(("3", BEHIND.1), &[]);
    assert!(absent.contains("PCI function 00:02.0 is not there: put the device into that slot"));
    let machine = "--qemu-arg=virt,virtualization=on,gic-version=3";
    let without = refused(
        (SLOT, "disable-legacy=on"),
        &["--qemu-arg=-machine", machine, "--qemu-arg=-machine", "--qemu-arg=iommu=none"],
    );
    assert!(without.contains("has PCI functions, and the machine has no SMMU"), "{without}");
}

/// A VM with functions of NVMe controllers, which can be reset by themselves (a function-level
/// reset). Its guest writes a register of the last of them in each of three boots.
fn tenant(name: &str, core: u32, slot: u32, functions: u32) -> String {
    let devices: Vec<String> =
        (0..functions).map(|n| format!("\"pci:00:{slot:02x}.{n}\"")).collect();
    format!(
        r#"
[[vm]]
name = "{name}"
cpus = [{core}]
memory = "4MiB"
image = {{ elf = "dma", args = "role=tenant slot={slot} function={} register=0x14 value=0x460001" }}
devices = [{}]
expect = ["dma: boot 2: the register reads 0x0, then 0x460001"]
"#,
        functions - 1,
        devices.join(", ")
    )
}

#[test]
fn functions_of_two_vms_are_reset_separately() {
    let text =
        format!("platform = \"qemu-virt\"\n{}{}", tenant("a", 0, 3, 1), tenant("b", 1, 4, 2));
    let devices = ["addr=3,serial=a", "addr=4.0,multifunction=on,serial=b", "addr=4.1,serial=c"];
    let qemu = devices.map(|device| format!("--qemu-arg=nvme,{device}"));
    let device = "--qemu-arg=-device";
    let arguments =
        [&["--for", "20s"], &[device, &qemu[0], device, &qemu[1], device, &qemu[2]][..]];
    let arguments = arguments.concat();
    let outcome =
        run_system(&text, &Options { arguments: &arguments, ..Options::default() }).good();
    for vm in ["a", "b"] {
        let boots: Vec<String> = (0..3)
            .map(|boot| format!("dma: boot {boot}: the register reads 0x0, then 0x460001"))
            .collect();
        assert_eq!(outcome.lines(vm), boots, "{vm}");
        assert_eq!((&outcome.vm(vm)["resets"], &outcome.vm(vm)["dma"]), (&2.into(), &Value::Null));
    }
}
