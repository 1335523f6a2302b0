//! A QEMU with the plug-in, and programs for it that are made by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NOP: u32 = 0xD503_201F;
pub const ERET: u32 = 0xD69F_03E0;
pub const HVC: u32 = 0xD400_0002;
pub const SMC: u32 = 0xD400_0003;
pub const ISB: u32 = 0xD503_3FDF;

/// MOVZ (64-bit) of `value` << 16 * `half` to X`register`.
pub fn movz(register: u32, value: u32, half: u32) -> u32 {
    0xD280_0000 | half << 21 | value << 5 | register
}

/// MOVK, likewise.
pub fn movk(register: u32, value: u32, half: u32) -> u32 {
    0xF280_0000 | half << 21 | value << 5 | register
}

/// Instructions from `address` on.
pub struct Section(pub u64, pub Vec<u32>);

/// The plug-in that cargo built for this test, in the test's own directory.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libweir_qemu_plugin.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

pub fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// The QEMU to test: the one in `WEIR_QEMU`, else the one on the path.
pub fn qemu() -> Command {
    let program = std::env::var_os("WEIR_QEMU").unwrap_or("qemu-system-aarch64".into());
    if let Err(error) = Command::new(&program).arg("--version").output() {
        panic!(
            "cannot run {} ({error}); `./weir test` installs what the tests need",
            program.display()
        );
    }
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(program)
        .args(["-M", "virt,virtualization=on,gic-version=3", "-cpu", "cortex-a53", "-smp", "2"])
        .args(["-icount", "shift=0,sleep=off", "-display", "none", "-monitor", "none"])
        .args(["-serial", "none", "-nic", "none"]);
    command
}

/// Puts the program into memory. The first section is where vCPU 0 starts.
pub fn load(command: &mut Command, directory: &Path, sections: &[Section]) {
    for (index, Section(address, code)) in sections.iter().enumerate() {
        let file = directory.join(format!("{index}.bin"));
        fs::write(&file, code.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
            .unwrap();
        let cpu = if index == 0 { ",cpu-num=0" } else { "" };
        command
            .arg("-device")
            .arg(format!("loader,file={},addr={address:#x},force-raw=on{cpu}", file.display()));
    }
}
