//! Boards from texts.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;
use weir_model::{Catalog, Sizes, check_text, place_all};
use weir_simulator::{MemoryModel, SimulatedBoard, Span};
use weir_units::Nanos;

pub const HYPERVISOR: &str = "platform = \"zcu102\"\n[hypervisor]\ncolors = \"14-15\"\n";

pub fn span(us: u64) -> Span {
    Span { warm_up: Nanos(us * 1000), length: Nanos(us * 1000), seed: 1 }
}

pub fn memory(values: &[(&str, &str)]) -> MemoryModel {
    let values: Vec<_> =
        values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    MemoryModel::find_with("zcu102", &values).unwrap()
}

pub fn vm(name: &str, cpus: &str, colors: &str, rest: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"4MiB\"\ncolors = \"{colors}\"\n\
         image = {{ elf = \"memory-stressor\" }}\n{rest}\n"
    )
}

pub fn load(path: &Path, vms: &[String], memory: &MemoryModel) -> Result<SimulatedBoard, String> {
    build(path, &format!("{HYPERVISOR}{}", vms.concat()), memory)
}

fn build(path: &Path, text: &str, memory: &MemoryModel) -> Result<SimulatedBoard, String> {
    let catalog = Catalog { guests: vec!["memory-stressor".to_owned()], ..Catalog::default() };
    let system = check_text(path, text, &catalog).map_err(|faults| faults.to_string())?;
    let pristine = vec![1 << 20; system.vms.len()];
    let sizes = Sizes { image: 4 << 20, hypervisor: 1 << 20, pristine };
    let placement = place_all(&system, &sizes).map_err(|faults| faults.to_string())?;
    SimulatedBoard::new(&system, &placement, memory).map_err(|error| error.to_string())
}

pub fn board(vms: &[String], memory: &MemoryModel) -> SimulatedBoard {
    load(Path::new("system.toml"), vms, memory).unwrap()
}

pub fn board_of(text: &str, memory: &MemoryModel) -> SimulatedBoard {
    build(Path::new("system.toml"), text, memory).unwrap()
}
