//! The system files that the examples of diagnostics stand for.

use weir_model::{Example, ExampleKind};

/// Returns the system file of an example.
///
/// An example leaves out what every system has. A system without `platform` is for `qemu-virt`. A
/// system without VMs has the VMs `a` on core 0 and `b` on core 1. A VM without `name`, `cpus`,
/// `memory` or `image` is called `a`, `b` and so on, has the core of its position, 16 MiB of RAM
/// and the guest `control`.
pub fn file(example: &Example) -> String {
    if example.kind != ExampleKind::System {
        return example.text.to_owned();
    }
    let is_header = |line: &&str| line.starts_with('[');
    let lines: Vec<_> = example.text.lines().collect();
    let (root, tables) = lines.split_at(lines.iter().position(is_header).unwrap_or(lines.len()));
    let mut file = String::new();
    if !has_key(root, "platform") {
        file.push_str("platform = \"qemu-virt\"\n");
    }
    for line in root {
        writeln_to(&mut file, line);
    }
    if !tables.contains(&VM) {
        for vm in 0..2 {
            writeln_to(&mut file, VM);
            complete_vm(&mut file, vm, &[]);
        }
    }
    let mut vms = 0;
    for (index, line) in tables.iter().enumerate() {
        writeln_to(&mut file, line);
        if *line == VM {
            let rest = tables.get(index + 1..).unwrap_or_default();
            let end = rest.iter().position(is_header).unwrap_or(rest.len());
            complete_vm(&mut file, vms, rest.get(..end).unwrap_or_default());
            vms += 1;
        }
    }
    file
}

/// The header of a VM.
const VM: &str = "[[vm]]";

fn writeln_to(file: &mut String, line: &str) {
    file.push_str(line);
    file.push('\n');
}

fn has_key(lines: &[&str], key: &str) -> bool {
    let is = |line: &&str| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    lines.iter().any(is)
}

/// Adds the keys that VM number `index` needs and that `written` leaves out.
fn complete_vm(file: &mut String, index: u8, written: &[&str]) {
    let name = char::from(b'a' + index.min(25));
    for (key, value) in [
        ("name", format!("\"{name}\"")),
        ("cpus", format!("[{index}]")),
        ("memory", "\"16MiB\"".to_owned()),
        ("image", "{ elf = \"control\" }".to_owned()),
    ] {
        if !has_key(written, key) {
            writeln_to(file, &format!("{key} = {value}"));
        }
    }
}
