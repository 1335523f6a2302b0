//! Small images, good and bad, in their own directory.

#![allow(dead_code, reason = "each test binary needs some of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};
use weir_model::HypervisorSize;

/// A hypervisor with `.bss` and stacks.
pub const HYPERVISOR: HypervisorSize = HypervisorSize { file: 100_001, memory: 200_002 };

/// A PT_LOAD segment: where, how long in memory, what is in the file.
pub type Load<'a> = (u64, u64, &'a [u8]);

/// An ELF file with these segments, each at the same virtual and physical address.
pub fn elf(entry: u64, loads: &[Load<'_>]) -> Vec<u8> {
    elf_at(entry, &loads.iter().map(|load| (load.0, *load)).collect::<Vec<_>>())
}

/// An ELF file with segments that have a virtual address in addition to the physical one.
pub fn elf_at(entry: u64, loads: &[(u64, Load<'_>)]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend_from_slice(&2u16.to_le_bytes());
    file.extend_from_slice(&183u16.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    for value in [entry, 64, 0] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    file.extend_from_slice(&0u32.to_le_bytes());
    for value in [64, 56, loads.len() as u16, 64, 0, 0] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    let mut offset = 64 + 56 * loads.len() as u64;
    for (virt, (phys, len, data)) in loads {
        file.extend_from_slice(&1u32.to_le_bytes());
        file.extend_from_slice(&5u32.to_le_bytes());
        for value in [offset, *virt, *phys, data.len() as u64, *len, 0x1000] {
            file.extend_from_slice(&value.to_le_bytes());
        }
        offset += data.len() as u64;
    }
    for (_, (.., data)) in loads {
        file.extend_from_slice(data);
    }
    file
}

/// An ELF file as `ld` without `-n` links it: the first segment is the beginning of the file.
fn headers_first() -> Vec<u8> {
    let (front, program) = ((0x4000_0000 - 0x1_0000, 0x1000, &[0; 0x1000][..]), 0x4010_0000);
    let mut file = elf(program, &[front, (program, 0x1000, &[1; 16])]);
    file[72..80].fill(0);
    file
}

/// An arm64 Linux Image of `len` bytes that states that it needs `image_size`.
pub fn linux(len: usize, image_size: u64, flags: u64) -> Vec<u8> {
    let mut image = vec![0x55; len];
    image[8..16].copy_from_slice(&0u64.to_le_bytes());
    image[16..24].copy_from_slice(&image_size.to_le_bytes());
    image[24..32].copy_from_slice(&flags.to_le_bytes());
    image[56..60].copy_from_slice(b"ARM\x64");
    image
}

fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

/// A directory with all of them, for the test of this name.
pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(directory.join("directory")).unwrap();
    // Other tests, in this process and in others, read the same files at the same time.
    let write = |name: &str, bytes: &[u8]| {
        let writer = format!("{}.{:?}", std::process::id(), thread::current().id());
        let new = directory.join(format!("{name}.{writer}"));
        fs::write(&new, bytes).unwrap();
        fs::rename(new, directory.join(name)).unwrap();
    };
    let good = elf(0x4010_0004, &[(0x4010_0000, 0x3000, &[0xaa; 0x2000])]);
    write("good.elf", &good);
    write("headers.elf", &headers_first());
    write("32-bit.elf", &with(good.clone(), 4, 1));
    write("big-endian.elf", &with(good.clone(), 5, 2));
    write("x86.elf", &with(good.clone(), 18, 62));
    write("dynamic.elf", &with(good.clone(), 64, 3));
    write("cut-short.elf", &good[..good.len() - 1]);
    write("entry-outside.elf", &elf(0x4000_0000, &[(0x4010_0000, 0x1000, &[1; 16])]));
    write("entry-behind.elf", &elf(0x4010_1000, &[(0x4010_0000, 0x1000, &[1; 16])]));
    write("nothing.elf", &elf(0x4010_0000, &[]));
    write("low.elf", &elf(0x4000_0000, &[(0x4000_0000, 0x1000, &[1; 16])]));
    let (first, second) =
        ((0x4010_0000, 0x2000, &[1; 16][..]), (0x4010_1000, 0x1000, &[2; 16][..]));
    write("overlap.elf", &elf(0x4010_0000, &[first, second]));
    write("good.bin", &[0x42; 5000]);
    write("big.bin", &vec![0x42; 3 << 20]);
    write("empty.bin", b"");
    write("Image", &linux(4096, 0x20_0000 - 0x1000, 0xa));
    write("big-endian.Image", &linux(4096, 0x10_0000, 0xb));
    write("huge.Image", &linux(4096, u64::MAX - 0xfff, 0xa));
    write("Image.gz", b"\x1f\x8b\x08\0\0\0\0\0");
    let platform = include_str!("../../../../boards/qemu-virt/board.toml");
    write("qemu-virt.dtb", include_bytes!("../../../../boards/qemu-virt/qemu-virt.dtb"));
    let cores = platform.replacen("[[core]]\nmpidr = 7\n", "", 1);
    let cores = (2..7)
        .fold(cores, |text, core| text.replacen(&format!("[[core]]\nmpidr = {core}\n"), "", 1));
    write("two-cores.toml", cores.as_bytes());
    write("one-color.toml", platform.replacen("\"1MiB\"", "\"64KiB\"", 1).as_bytes());
    let broken = platform
        .replace("version = 3", "version = 2")
        .replace("load_address = 0x4", "load_address = 0x1");
    write("broken-platform.toml", broken.as_bytes());
    let smmu = platform.find("# Only in a machine").unwrap()..platform.find("[psci]").unwrap();
    let no_smmu = platform.replace(&platform[smmu], "");
    let pci = no_smmu.find("[pci]").unwrap()..no_smmu.find("[psci]").unwrap();
    write("no-smmu.toml", no_smmu.as_bytes());
    write("no-pci.toml", no_smmu.replace(&no_smmu[pci], "").as_bytes());
    let one_stream = platform.replace("streams = \"function\"", "streams = \"bus\"");
    write("one-stream.toml", one_stream.as_bytes());
    write("narrow.toml", platform.replace("\"769984KiB\"", "\"5MiB\"").as_bytes());
    write("line-of-the-clock.toml", platform.replace("[35, 36", "[34, 36").as_bytes());
    let odd = [
        ("\"2MiB\"", "\"3MiB\""),
        ("0x0905_0000", "0x0905_0800"),
        ("0x40_1000_0000", "0x100_0000_0000"),
        ("[35, 36, 37, 38]", "[35, 36]"),
        ("[35, 36, 37, 38]", "[35, 36, 37, 106]"),
        ("window_size = \"769984KiB\"", "window_size = \"256MiB\""),
        ("poll_overhead = \"450ns\"", "poll_overhead = \"1us\""),
    ];
    for (name, (old, new)) in
        ["aperture", "smmu", "ecam", "lines", "event", "window", "poll"].into_iter().zip(odd)
    {
        write(&format!("odd-{name}.toml"), platform.replacen(old, new, 1).as_bytes());
    }
    // A DMA engine in place of the clock, one with the clock's interrupt, and one in the UART's
    // place.
    for (name, base, intid) in [
        ("engine-page", "0x0901_0000", 200),
        ("engine-line", "0x0904_0000", 34),
        ("odd-engine", "0x0900_0000", 33),
    ] {
        let engine = format!(
            "[dma_engine]\nname = \"GDMA\"\nkind = \"zdma\"\nbase = {base}\nintid = {intid}\n\
             coherent = false\n"
        );
        write(&format!("{name}.toml"), format!("{no_smmu}\n{engine}").as_bytes());
    }
    // Starts of the cores.
    let [firmware, table] = ["[psci]\nconduit = \"smc\"\n", "[spin_table]\nbase = 0xd8\n"];
    let [el3, bcm2711] = ["[el3]\ncounter = 25_000_000\n", "power = \"bcm2711\"\n"];
    let [gem5, other] = ["power = \"gem5\"\n", include_str!("../../../../boards/rpi4/board.toml")];
    let rest = no_smmu.replace(firmware, "");
    for (name, board, start) in [
        ("nobody", &*rest, String::new()),
        ("both", &*rest, format!("{firmware}{table}{gem5}")),
        ("no-watchdog", &*rest, format!("{table}{bcm2711}")),
        ("in-ram", &*rest, format!("{}{gem5}", table.replace("0xd8", "0x4000_0000"))),
        ("no-table", &*rest, format!("{firmware}{el3}")),
        ("no-room", &*rest, format!("{el3}{}{gem5}", table.replace("0xd8", "0x7d8"))),
        ("gicv2", other, el3.to_owned()),
    ] {
        write(&format!("start-{name}.toml"), format!("{board}\n{start}").as_bytes());
    }
    // A platform file that refuses nothing by kind, with a board with virtio slots that claim no
    // DMA.
    let tree = include_bytes!("../../../../boards/qemu-virt/qemu-virt.dtb");
    let at = tree.windows(13).position(|bytes| bytes == b"dma-coherent\0").unwrap();
    write("no-dma.dtb", &with(tree.to_vec(), at, b'x'));
    let kinds = ["virtio,mmio", "arm,pl011", "arm,gic-v3", "pci-host-ecam-generic"];
    let allowed = kinds.map(|kind| format!("[[allow]]\ncompatible = \"{kind}\"\n")).concat();
    let permissive = platform[..platform.find("# Why the others").unwrap()]
        .replace("qemu-virt.dtb", "no-dma.dtb");
    write("permissive.toml", (permissive.clone() + &allowed).as_bytes());
    write("permissive-dma.toml", (permissive.replace("no-dma", "qemu-virt") + &allowed).as_bytes());
    directory
}
