//! Which part of the board's RAM is whose.

use crate::{
    fault::{Fault, Faults},
    image::{BLOCK, overlap},
    packed::PAGE,
    system::System,
    units::{Bytes, Ipa, Pa},
};
use std::{fmt, ops::Range};

/// Whose a piece of the board is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The hypervisor with the packed system and the guests' images.
    Hypervisor,
    /// A VM, by its place in the system.
    Vm(usize, String),
    /// Nobody.
    Free,
}

/// A line of the memory map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its first byte.
    pub address: Pa,
    /// Its size.
    pub size: Bytes,
    /// Whose it is.
    pub owner: Owner,
    /// Where the owner sees it, if that is a VM.
    pub ipa: Option<Ipa>,
    /// What it is: `RAM`, `image`, a device's path.
    pub what: String,
}

/// The memory map: RAM without a gap, and the devices passed through, by address. Displayed as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sorted by address.
    pub rows: Vec<Row>,
    /// For each VM the physical address of each piece of its RAM.
    pub(crate) ram: Vec<Vec<Pa>>,
}

/// Places every VM's RAM behind and before the image, which is `image_len` bytes at the platform's load
/// address.
///
/// Pieces of 2 MiB and more come first, at addresses that agree with their intermediate physical
/// addresses modulo 2 MiB, so that stage 2 needs blocks only; within each class the order is the
/// file's, and each piece goes to the lowest place that fits: the same file gives the same map.
///
/// # Errors
///
/// A fault for each piece that fits nowhere.
pub fn place(system: &System, image_len: u64) -> Result<Placement, Faults> {
    let mut faults = Faults::default();
    let platform = &system.platform;
    let memory = platform.memory.base.0..platform.memory.base.0 + platform.memory.size.0;
    let image_end = image_len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| platform.load_address.0.checked_add(len))
        .unwrap_or(u64::MAX);
    let image = platform.load_address.0..image_end;
    if image.end > memory.end {
        let message = format!(
            "the image is {} long and does not fit into {}",
            Bytes(image_len),
            platform.name
        );
        let span = system.vms.first().map_or(0..0, |vm| vm.spans.image.clone());
        faults.push(Fault::new("no-room", &system.file, span, message).help("use smaller images"));
        return faults.into_result(Placement { rows: Vec::new(), ram: Vec::new() });
    }
    let mut used = vec![image.clone()];
    let mut ram: Vec<Vec<Pa>> = system.vms.iter().map(|vm| vec![Pa(0); vm.memory.len()]).collect();
    let pieces = || {
        let vms = system.vms.iter().enumerate();
        vms.flat_map(|(vm, description)| {
            description.memory.iter().enumerate().map(move |(piece, memory)| (vm, piece, memory))
        })
    };
    let large = pieces().filter(|(.., memory)| memory.size.0 >= BLOCK);
    let small = pieces().filter(|(.., memory)| memory.size.0 < BLOCK);
    for (vm, piece, wanted) in large.chain(small) {
        let aligned = if wanted.size.0 >= BLOCK { BLOCK } else { PAGE };
        let offset = wanted.base.0 % aligned;
        let start = find(&memory, &used, wanted.size.0, aligned, offset)
            .or_else(|| find(&memory, &used, wanted.size.0, PAGE, 0));
        if let Some(start) = start {
            used.push(start..start + wanted.size.0);
            ram[vm][piece] = Pa(start);
        } else {
            let vm = &system.vms[vm];
            let message =
                format!("no room for {}'s RAM of {} on {}", vm.name, wanted.size, platform.name);
            let taken = used.iter().map(|range| range.end - range.start).sum();
            let help = format!(
                "{} of {} are taken, the image included; give less",
                Bytes(taken),
                platform.memory.size
            );
            let fault = Fault::new("no-room", &system.file, vm.spans.memory.clone(), message);
            faults.push(fault.label("this").help(help));
        }
    }
    let rows = rows(system, &memory, &image, &ram);
    faults.into_result(Placement { rows, ram })
}

/// The lowest place of `len` bytes in `memory` off every `used` range whose address is `offset` modulo
/// `alignment`.
fn find(
    memory: &Range<u64>,
    used: &[Range<u64>],
    len: u64,
    alignment: u64,
    offset: u64,
) -> Option<u64> {
    let align = |from: u64| {
        from.checked_sub(offset)?.checked_next_multiple_of(alignment)?.checked_add(offset)
    };
    let candidates = used.iter().map(|range| range.end).chain([memory.start]);
    candidates
        .filter_map(|from| {
            let start = align(from.max(offset))?;
            let range = start..start.checked_add(len)?;
            let free = range.end <= memory.end && !used.iter().any(|used| overlap(used, &range));
            free.then_some(start)
        })
        .min()
}

fn rows(system: &System, memory: &Range<u64>, image: &Range<u64>, ram: &[Vec<Pa>]) -> Vec<Row> {
    let row = |range: &Range<u64>, owner: Owner, ipa: Option<Ipa>, what: &str| Row {
        address: Pa(range.start),
        size: Bytes(range.end - range.start),
        owner,
        ipa,
        what: what.to_owned(),
    };
    let mut rows = vec![row(image, Owner::Hypervisor, None, "image")];
    for (index, (vm, places)) in system.vms.iter().zip(ram).enumerate() {
        let owner = || Owner::Vm(index, vm.name.clone());
        for (piece, place) in vm.memory.iter().zip(places) {
            rows.push(row(&(place.0..place.0 + piece.size.0), owner(), Some(piece.base), "RAM"));
        }
        for device in &vm.devices {
            for (start, len) in &device.regions {
                let range = start.0..start.0 + len.0;
                rows.push(row(&range, owner(), Some(Ipa(start.0)), &device.path));
            }
        }
    }
    rows.sort_by_key(|row| row.address);
    let mut gaps = Vec::new();
    let mut from = memory.start;
    for taken in rows.iter().filter(|row| memory.contains(&row.address.0)) {
        if from < taken.address.0 {
            gaps.push(row(&(from..taken.address.0), Owner::Free, None, "RAM"));
        }
        from = taken.address.0 + taken.size.0;
    }
    if from < memory.end {
        gaps.push(row(&(from..memory.end), Owner::Free, None, "RAM"));
    }
    rows.extend(gaps);
    rows.sort_by_key(|row| row.address);
    rows
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hypervisor => "weir",
            Self::Vm(_, name) => name,
            Self::Free => "-",
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners = self.rows.iter().map(|row| row.owner.to_string().len());
        let width = owners.max().unwrap_or(0).max("owner".len());
        writeln!(
            f,
            "{:>14}  {:>9}  {:width$}  {:>14}  what",
            "address", "size", "owner", "seen at"
        )?;
        for row in &self.rows {
            let ipa = row.ipa.map_or("-".to_owned(), |ipa| ipa.to_string());
            writeln!(
                f,
                "{:>14}  {:>9}  {:width$}  {ipa:>14}  {}",
                row.address,
                row.size.to_string(),
                row.owner,
                if row.owner == Owner::Free { "free" } else { &row.what },
            )?;
        }
        Ok(())
    }
}

/// One above the highest physical address of a VM's RAM.
pub(crate) fn memory_end(system: &System, placement: &Placement) -> u64 {
    let ends = system.vms.iter().zip(&placement.ram).flat_map(|(vm, places)| {
        vm.memory.iter().zip(places).map(|(piece, place)| place.0 + piece.size.0)
    });
    ends.max().unwrap_or(0)
}
