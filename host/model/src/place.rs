//! The owners of the parts of the board's RAM.

mod divided;

use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use crate::image::BLOCK;
use crate::object::Object;
use crate::ranges::overlap;
use crate::system::System;
use schemars::JsonSchema;
use serde::Serialize;
use std::{fmt, ops::Range};
use weir_abi::{PAGE, PageSpan};
use weir_paging::classes::ClassSet;
use weir_units::{Bytes, Ipa, Pa};

/// The owner of a piece of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapOwner {
    /// The hypervisor with the packed system and the guests' images.
    Hypervisor,
    /// A VM, by its place in the system.
    Vm(usize, String),
    /// No owner.
    Free,
}

/// A line of the memory map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The first byte.
    pub address: Pa,
    /// Its size.
    pub size: Bytes,
    /// The page classes of its pages, where memory is divided: from `address` on, as many as
    /// `size` is.
    pub classes: Option<ClassSet>,
    /// One above its last byte.
    pub end: Pa,
    /// Its owner.
    pub owner: MapOwner,
    /// Where the owner sees it, if that is a VM.
    pub ipa: Option<Ipa>,
    /// What it is: `RAM`, `image`, a device's path.
    pub what: String,
    is_ram: bool,
}

/// The memory map: RAM without a gap, unless it is divided by page classes, and the devices passed
/// through, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Sorted by address.
    pub rows: Vec<Row>,
    /// For each VM its RAM in the order of its pieces; a piece can be in several places.
    pub(crate) ram: Vec<Vec<Placed>>,
    /// Where memory is divided, for each VM its own tables and state, and its pristine image.
    pub(crate) kept: Vec<[PageSpan; 2]>,
    /// Where memory is divided, the hypervisor's.
    pub(crate) hypervisor: PageSpan,
}

/// RAM of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub ipa: Ipa,
    pub pa: Pa,
    pub size: Bytes,
}

/// A part of the memory map in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapRecord {
    /// The address of its first byte, in hexadecimal.
    pub address: String,
    /// The size in bytes.
    pub bytes: u64,
    /// `weir` or the VM; none if it has no owner.
    pub owner: Option<String>,
    /// The address one above its last byte, in hexadecimal.
    pub end: String,
    /// The page classes of its pages, where memory is divided: from `address` on, as many as
    /// `bytes` is.
    pub page_classes: Option<String>,
    /// The address at which the VM sees it, in hexadecimal.
    pub ipa: Option<String>,
    /// Its kind: `RAM`, `image`, or the path of a device.
    pub what: String,
}

impl Placement {
    /// Returns the memory map as a JSON result has it, by address.
    #[must_use]
    pub fn records(&self) -> Vec<MapRecord> {
        let record = |row: &Row| MapRecord {
            address: format!("{:#x}", row.address.0),
            bytes: row.size.0,
            owner: match &row.owner {
                MapOwner::Vm(_, name) => Some(name.clone()),
                MapOwner::Hypervisor => Some("weir".to_owned()),
                MapOwner::Free => None,
            },
            end: format!("{:#x}", row.end.0),
            page_classes: row.classes.map(|classes| classes.to_string()),
            ipa: row.ipa.map(|ipa| format!("{:#x}", ipa.0)),
            what: row.what.clone(),
        };
        self.rows.iter().map(record).collect()
    }
}

/// Memory that is needed in addition to the VMs' RAM, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The image, the guests' images included, as it is loaded.
    pub image: u64,
    /// The hypervisor with its tables.
    pub hypervisor: u64,
    /// Of each VM what of its RAM is not zero at the start.
    pub pristine: Vec<u64>,
}

/// Places every VM's RAM behind and before the image, which is `image_len` bytes at the platform's
/// load address. Where memory is divided by page classes, the pristine images are taken to be
/// equally long; [`place_all`] takes their sizes.
///
/// # Errors
///
/// A fault for each piece that fits nowhere.
pub fn place(system: &System, image_len: u64) -> Result<Placement, Faults> {
    let count = system.vms.len() as u64;
    let pristine = vec![image_len / count.max(1); system.vms.len()];
    place_all(system, &Sizes { image: image_len, hypervisor: 1 << 20, pristine })
}

/// Places everything: by page classes, see [`crate::Division`], if there is a division, else as
/// ranges.
///
/// # Errors
///
/// A fault for each piece that fits nowhere.
pub fn place_all(system: &System, sizes: &Sizes) -> Result<Placement, Faults> {
    let placed = if system.division.divided {
        divided::place(system, sizes)
    } else {
        place_ranges(system, sizes.image)
    };
    placed.map_err(|faults| Faults(faults.sorted()))
}

/// Pieces of 2 MiB and more come first, at addresses that agree with their intermediate physical
/// addresses modulo 2 MiB, so that stage 2 needs blocks only; within each class the order is the
/// file's, and each piece goes to the lowest place that fits: the same file gives the same map.
fn place_ranges(system: &System, image_len: u64) -> Result<Placement, Faults> {
    let mut refused = Faults::default();
    let platform = system.platform();
    let pools = platform.pools();
    let image = image_range(system, image_len)?;
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
        let find = |alignment, offset| {
            let size = wanted.size.0;
            pools.iter().find_map(|memory| find(memory, &used, size, alignment, offset))
        };
        let start = find(aligned, offset).or_else(|| find(PAGE, 0));
        if let Some(start) = start {
            used.push(start..start + wanted.size.0);
            ram[vm][piece] = Pa(start);
        } else {
            let owner = &system.vms[vm];
            let message =
                format!("{}: no room for its RAM of {} on {platform}", owner, wanted.size);
            let taken = used.iter().map(|range| range.end - range.start).sum();
            let help = format!(
                "{} of {} are taken, the image included; write less `memory` for {owner} or \
                 another VM",
                Bytes(taken),
                Bytes(pools.iter().map(|pool| pool.end - pool.start).sum())
            );
            let fault = Fault::new(Code::NoRoom, &system.file, owner.spans.memory.clone(), message);
            refused.push(fault.label("this").help(help));
        }
    }
    if !refused.0.is_empty() {
        return Err(refused);
    }
    let ram: Vec<Vec<Placed>> = system
        .vms
        .iter()
        .zip(&ram)
        .map(|(vm, places)| {
            let pieces = vm.memory.iter().zip(places);
            pieces.map(|(piece, &pa)| Placed { ipa: piece.base, pa, size: piece.size }).collect()
        })
        .collect();
    let rows = rows(system, &pools, &image, &ram);
    Ok(Placement { rows, ram, ..Placement::default() })
}

/// Where the image is loaded.
fn image_range(system: &System, image_len: u64) -> Result<Range<u64>, Faults> {
    let platform = system.platform();
    let memory = &platform.memory;
    let most = (memory.base.0 + memory.size.0).saturating_sub(platform.load_address.0);
    if image_len > most {
        let message =
            format!("{platform}: the image of {} does not fit into its RAM", Bytes(image_len));
        let span = system.vms.first().map_or(0..0, |vm| vm.spans.image.clone());
        let fault = Fault::new(Code::NoRoom, &system.file, span, message);
        let help = format!(
            "from {} on, where it is loaded, there are {}; use smaller images",
            platform.load_address,
            Bytes(most)
        );
        return Err(Faults(vec![fault.help(help)]));
    }
    let end = platform.load_address.0 + image_len.next_multiple_of(PAGE);
    Ok(platform.load_address.0..end)
}

/// The lowest place of `len` bytes in `memory` off every `used` range with an address that is
/// `offset` modulo `alignment`.
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
            // A candidate can lie below this piece of RAM: the end of a range in another piece.
            let start = align(from.max(offset).max(memory.start))?;
            let range = start..start.checked_add(len)?;
            let free = range.end <= memory.end && !used.iter().any(|used| overlap(used, &range));
            free.then_some(start)
        })
        .min()
}

/// A line for a range without a gap.
fn row(range: &Range<u64>, owner: MapOwner, ipa: Option<Ipa>, what: &str) -> Row {
    Row {
        address: Pa(range.start),
        size: Bytes(range.end - range.start),
        classes: None,
        end: Pa(range.end),
        owner,
        ipa,
        what: what.to_owned(),
        is_ram: true,
    }
}

/// The lines of the devices that were passed through.
fn device_rows(system: &System) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, vm) in system.vms.iter().enumerate() {
        for device in &vm.devices {
            for (start, len) in &device.regions {
                let range = start.0..start.0 + len.0;
                let owner = MapOwner::Vm(index, vm.name.clone());
                let row = row(&range, owner, Some(Ipa(start.0)), &device.path);
                rows.push(Row { is_ram: false, ..row });
            }
        }
        for function in &vm.functions {
            let range = function.bars.0..function.bars.0 + function.bars_len.0;
            let owner = MapOwner::Vm(index, vm.name.clone());
            let row = row(&range, owner, Some(Ipa(range.start)), &function.name());
            rows.push(Row { is_ram: false, ..row });
        }
    }
    rows
}

fn rows(
    system: &System,
    pools: &[Range<u64>],
    image: &Range<u64>,
    ram: &[Vec<Placed>],
) -> Vec<Row> {
    let mut rows = vec![row(image, MapOwner::Hypervisor, None, "image")];
    for (index, (vm, places)) in system.vms.iter().zip(ram).enumerate() {
        let owner = || MapOwner::Vm(index, vm.name.clone());
        for placed in places {
            let range = placed.pa.0..placed.pa.0 + placed.size.0;
            rows.push(row(&range, owner(), Some(placed.ipa), "RAM"));
        }
    }
    rows.extend(device_rows(system));
    rows.sort_by_key(|row| row.address);
    let mut gaps = Vec::new();
    for memory in pools {
        let mut from = memory.start;
        for taken in rows.iter().filter(|row| memory.contains(&row.address.0)) {
            if from < taken.address.0 {
                gaps.push(row(&(from..taken.address.0), MapOwner::Free, None, "RAM"));
            }
            from = taken.end.0;
        }
        if from < memory.end {
            gaps.push(row(&(from..memory.end), MapOwner::Free, None, "RAM"));
        }
    }
    rows.extend(gaps);
    rows.sort_by_key(|row| row.address);
    rows
}

impl MapOwner {
    /// What a message calls it.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Vm(_, name) => Object::vm(name).to_string(),
            Self::Hypervisor | Self::Free => "the hypervisor".to_owned(),
        }
    }
}

impl fmt::Display for MapOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hypervisor => "weir",
            Self::Vm(_, name) => name,
            Self::Free => "-",
        })
    }
}

impl Placement {
    /// The headings of [`Self::table`], and how many of its columns, from the first on, are
    /// numbers.
    #[must_use]
    pub fn header(&self) -> (Vec<&'static str>, usize) {
        if self.is_divided() {
            (vec!["address", "up to", "size", "seen at", "owner", "what"], 4)
        } else {
            (vec!["address", "size", "seen at", "owner", "what"], 3)
        }
    }

    /// The map as rows of text.
    pub fn table(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|row| {
            let what = if row.owner == MapOwner::Free { "free" } else { &row.what };
            // A list of page classes can be broken at each blank.
            let classes = row.classes.map_or(String::new(), |classes| {
                format!(", page classes {}", classes.to_string().replace(',', ", "))
            });
            let mut texts = vec![row.address.to_string()];
            texts.extend(self.is_divided().then(|| row.end.to_string()));
            texts.extend([
                row.size.to_string(),
                row.ipa.map_or("-".to_owned(), |ipa| ipa.to_string()),
                row.owner.to_string(),
                format!("{what}{classes}"),
            ]);
            texts
        })
    }

    fn is_divided(&self) -> bool {
        self.rows.iter().any(|row| row.classes.is_some())
    }
}

/// One above the highest physical address of RAM with an owner.
pub(crate) fn memory_end(placement: &Placement) -> u64 {
    let ram = placement.rows.iter().filter(|row| row.owner != MapOwner::Free && row.is_ram);
    ram.map(|row| row.end.0).max().unwrap_or(0)
}
