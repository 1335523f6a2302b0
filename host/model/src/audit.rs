//! A proof of ownership that needs no run: the pages that the packed tables name, the stage 2 and
//! the tables of the SMMU that follow from them, counted one by one.
//!
//! Colors and banks are found here from each page's address and the board's functions, not from
//! page classes, so that a mistake in the arithmetic of page classes would show.

use crate::coloring::division::Division;
use crate::pack::Packed;
use crate::platform::PlatformGic;
use crate::system::System;
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use weir_abi::{ACTIVE, DEVICE, NO_ENGINE, PageSpan, VmView};
use weir_paging::{
    PAGE,
    classes::Pages,
    table::{Attributes, Builder, MapError, Table, stage2},
    walk,
};
use weir_units::Pa;
use zerocopy::IntoBytes;

/// Tables for a stage 2 of blocks, as many as EL2 has.
const TABLES: usize = 64;

/// The result of the audit for one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Audited {
    /// `weir` or the VM's name.
    pub name: String,
    /// Pages that are its own.
    pub pages: u64,
    /// How many different cache colors these have.
    pub colors: usize,
    /// How many different banks they lie in.
    pub banks: usize,
    /// Descriptors of its stage 2 that map RAM; none for the hypervisor.
    pub leaves: u64,
    /// The same of its devices' address space, in each of an SMMU's two formats; none without PCI
    /// functions.
    pub dma_leaves: u64,
    /// Tables of its stage 2, and of its devices' address space if it has PCI functions.
    pub tables: usize,
    /// Other owners with a page of one of these colors.
    #[serde(rename = "meets_colors_of")]
    pub meets_colors: Vec<String>,
    /// Other owners with a page in one of these banks.
    #[serde(rename = "meets_banks_of")]
    pub meets_banks: Vec<String>,
    /// Pages that its tables map although they are not its own. [`audit`] refuses a system with
    /// any.
    pub foreign_pages: u64,
}

/// The owner of each page of RAM that has one, by ascending physical address: a VM by its place
/// in [`System::vms`], or the hypervisor's.
///
/// # Errors
///
/// When the tables are damaged, or a page has two owners.
pub fn page_owners(
    system: &System,
    packed: &Packed<'_>,
) -> Result<Vec<(u64, Option<usize>)>, String> {
    let words = aligned(&packed.tables);
    let read = parse(&words.as_bytes()[..packed.tables.len()], system)?;
    let owners = owners(&read, &names(system))?;
    Ok(owners.into_iter().map(|(page, (owner, _))| (page, owner.checked_sub(1))).collect())
}

/// The tables where [`weir_abi::PackedSystem::parse`] can read them: at a multiple of 8.
fn aligned(tables: &[u8]) -> Vec<u64> {
    let mut words = vec![0; tables.len().div_ceil(8)];
    words.as_mut_bytes()[..tables.len()].copy_from_slice(tables);
    words
}

fn parse<'a>(tables: &'a [u8], system: &System) -> Result<weir_abi::PackedSystem<'a>, String> {
    let read = weir_abi::PackedSystem::parse(tables, system.platform().is_gic_v2());
    read.map_err(|damage| damage.message().to_owned())
}

/// The names of the owners, the hypervisor's first.
fn names(system: &System) -> Vec<&str> {
    ["weir"].into_iter().chain(system.vms.iter().map(|vm| vm.name.as_str())).collect()
}

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Ram,
    Kept,
    Pristine,
}

/// Checks that every page has one owner, that each VM's stage 2 maps all of its RAM and nothing
/// that is not its own, that its devices reach just that RAM, that its tables lie in its own pages,
/// that the DMA engine is the broker's alone, and that colors and banks with an owner have no pages
/// of others.
///
/// # Errors
///
/// The first page or descriptor that is not as it should be.
pub fn audit(system: &System, packed: &Packed<'_>) -> Result<Vec<Audited>, String> {
    let words = aligned(&packed.tables);
    let read = parse(&words.as_bytes()[..packed.tables.len()], system)?;
    let names = names(system);
    engine_line(system, &read)?;
    let owners = owners(&read, &names)?;
    let mut touched = vec![(BTreeSet::new(), BTreeSet::new()); names.len()];
    for (&page, &(owner, _)) in &owners {
        touched[owner].0.insert(page & system.division.geometry.colors);
        touched[owner].1.extend(banks(&system.division, page));
    }
    let mut found = Vec::new();
    let mut foreign = None;
    for (owner, name) in names.iter().enumerate() {
        let meets = |apart: &dyn Fn(usize) -> bool| -> Vec<String> {
            let others = (0..names.len()).filter(|&other| other != owner && !apart(other));
            others.map(|other| names[other].to_owned()).collect()
        };
        let made = match owner.checked_sub(1) {
            Some(index) => spaces(system, &read, index, &owners)?,
            None => Made::default(),
        };
        foreign = foreign.or_else(|| made.refusal());
        found.push(Audited {
            name: (*name).to_owned(),
            pages: owners.values().filter(|(its, _)| *its == owner).count() as u64,
            colors: touched[owner].0.len(),
            banks: touched[owner].1.len(),
            leaves: made.leaves,
            dma_leaves: made.dma_leaves,
            tables: made.tables,
            meets_colors: meets(&|other| touched[other].0.is_disjoint(&touched[owner].0)),
            meets_banks: meets(&|other| touched[other].1.is_disjoint(&touched[owner].1)),
            foreign_pages: made.foreign.iter().map(|foreign| foreign.pages).sum(),
        });
    }
    if let Some(refusal) = foreign {
        return Err(refusal);
    }
    for (owner, share) in crate::shares(system, &packed.placement).iter().enumerate() {
        let checks = [
            ("color", &share.shares_colors, &found[owner].meets_colors),
            ("bank", &share.shares_banks, &found[owner].meets_banks),
        ];
        for (what, may, does) in checks {
            if let Some(other) = does.iter().find(|other| !may.contains(other)) {
                return Err(format!("{} and {other} have pages of one {what}", share.name));
            }
        }
    }
    Ok(found)
}

/// Checks that the interrupt of the board's DMA engine goes to the broker if the engine moves
/// something, and to no other VM.
fn engine_line(system: &System, read: &weir_abi::PackedSystem<'_>) -> Result<(), String> {
    let Some(engine) = &system.platform().dma_engine else { return Ok(()) };
    let is_used = read.header.engine_from != NO_ENGINE;
    for vm in (0..read.vms()).filter_map(|index| read.vm(index)) {
        let is_its = is_used && vm.index as u32 == read.header.broker;
        let has_it = vm.irqs.iter().any(|irq| irq.intid == engine.intid.0);
        if is_its != has_it {
            let has = if has_it { "has" } else { "lacks" };
            let name = &system.vms[vm.index].name;
            return Err(format!("{name} {has} the interrupt of the DMA engine {}", engine.name));
        }
    }
    Ok(())
}

/// The owner of each page, by index, and the use of the page.
fn owners(
    read: &weir_abi::PackedSystem<'_>,
    names: &[&str],
) -> Result<BTreeMap<u64, (usize, Use)>, String> {
    let mut owners: BTreeMap<u64, (usize, Use)> = BTreeMap::new();
    let mut take = |owner: usize, kind: Use, pages: Pages<'_>| {
        for page in pages {
            if let Some((other, _)) = owners.insert(page, (owner, kind)) {
                return Err(format!(
                    "the page at {} belongs to {} and to {}",
                    Pa(page),
                    names[other],
                    names[owner]
                ));
            }
        }
        Ok(())
    };
    take(0, Use::Kept, read.hypervisor_pages())?;
    let header = read.header;
    if !read.is_divided() {
        let len = header.image_len.next_multiple_of(PAGE);
        let image = header.load_address..header.load_address + len;
        take(0, Use::Kept, Pages::new(read.classes(), read.classes().all(), image))?;
    }
    for vm in (0..read.vms()).filter_map(|index| read.vm(index)) {
        for region in vm.regions.iter().filter(|region| ![ACTIVE, DEVICE].contains(&region.kind)) {
            let span = PageSpan { pa: region.pa, len: region.len };
            take(vm.index + 1, Use::Ram, read.pages(&vm, span))?;
        }
        take(vm.index + 1, Use::Kept, read.pages(&vm, vm.vm.own))?;
        take(vm.index + 1, Use::Pristine, read.pages(&vm, vm.vm.pristine))?;
    }
    Ok(owners)
}

/// The banks that a page lies in, by the addresses of its lines.
fn banks(division: &Division, page: u64) -> BTreeSet<u64> {
    let bank = |address: u64| {
        let masks = division.geometry.banks.iter().enumerate();
        masks
            .fold(0, |bank, (bit, mask)| bank | u64::from((address & mask).count_ones() % 2) << bit)
    };
    let inside = division.geometry.banks.iter().fold(0, |all, mask| all | mask) & (PAGE - 1);
    let lines = (page..page + PAGE).step_by(if inside == 0 { PAGE as usize } else { 8 });
    lines.map(bank).collect()
}

/// What was made for a VM: see [`Audited`].
#[derive(Clone, Debug, Default)]
struct Made {
    leaves: u64,
    dma_leaves: u64,
    tables: usize,
    foreign: Vec<Foreign>,
}

impl Made {
    /// Why it is refused, if it is.
    fn refusal(&self) -> Option<String> {
        let Foreign { space, pages, first } = self.foreign.iter().find(|space| space.pages > 0)?;
        Some(format!(
            "{space} maps {pages} pages that are not its own, the first at {}",
            Pa(*first)
        ))
    }
}

/// Pages that an address space maps and may not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Foreign {
    space: String,
    pages: u64,
    /// The address of the first of them.
    first: u64,
}

/// What was read back of an address space.
#[derive(Clone, Debug)]
struct Walked {
    /// Descriptors that map RAM.
    leaves: u64,
    /// Its tables.
    used: usize,
    foreign: Foreign,
}

/// Makes VM `index`'s stage 2, and the tables of its devices in both of an SMMU's formats, and
/// checks each descriptor.
fn spaces(
    system: &System,
    read: &weir_abi::PackedSystem<'_>,
    index: usize,
    owners: &Owners,
) -> Result<Made, String> {
    let vm = read.vm(index).ok_or("a VM is missing")?;
    let name = &system.vms[index].name;
    let gicv = gicv(system);
    let stage2 = stage2_space(read, &vm, gicv);
    let stolen_time = stage2.stolen_time;
    let map = |builder: &mut Builder<'_>| read.map_stage2(builder, &vm, gicv, stolen_time);
    let Walked { leaves, used, foreign } = stage2.check(system, read, (index, &vm), owners, map)?;
    let mut foreign = vec![foreign];
    let (mut more, mut dma_leaves) = (0, 0);
    for is_stage2 in [false, true] {
        if system.vms[index].functions.is_empty() {
            break;
        }
        // For every SMMU format.
        let what = if is_stage2 { "DMA in stage 2" } else { "DMA in stage 1" };
        let ram = weir_abi::dma_attributes(is_stage2);
        let space = Space { what, ram, devices: Vec::new(), stolen_time: 0, first: used };
        let map = |builder: &mut Builder<'_>| read.map_domain(builder, &vm, is_stage2);
        let walked = space.check(system, read, (index, &vm), owners, map)?;
        (more, dma_leaves) = (more.max(walked.used), dma_leaves.max(walked.leaves));
        foreign.push(walked.foreign);
    }
    if read.is_divided() && (used + more) as u64 > vm.vm.own.len / PAGE {
        return Err(format!("{name} has no room for its tables"));
    }
    Ok(Made { leaves, dma_leaves, tables: used + more, foreign })
}

/// Where a GICv2's virtual CPU interface is.
fn gicv(system: &System) -> Option<u64> {
    match system.platform().gic {
        PlatformGic::V2 { virtual_cpu, .. } => Some(virtual_cpu.0),
        PlatformGic::V3 { .. } => None,
    }
}

/// A VM's stage 2.
fn stage2_space(read: &weir_abi::PackedSystem<'_>, vm: &VmView<'_>, gicv: Option<u64>) -> Space {
    let ranges = vm.regions.iter().filter(|region| [ACTIVE, DEVICE].contains(&region.kind));
    let devices = ranges
        .map(|region| region.pa..region.pa + region.len)
        .chain(gicv.map(|gicv| gicv..gicv + weir_abi::GICV_LEN))
        .collect();
    // Undivided it is somewhere in the hypervisor's image; the first page of that stands for it
    // here.
    let last = (vm.vm.own.len / PAGE).saturating_sub(1);
    let stolen_time = read.pages(vm, vm.vm.own).nth_page(last).filter(|_| read.is_divided());
    let stolen_time = stolen_time.unwrap_or(read.header.load_address);
    Space { what: "stage 2", ram: stage2::RAM, devices, stolen_time, first: 0 }
}

type Owners = BTreeMap<u64, (usize, Use)>;

/// An address space of a VM or of its devices.
struct Space {
    what: &'static str,
    /// The attributes of RAM in there.
    ram: Attributes,
    /// What else may be mapped.
    devices: Vec<Range<u64>>,
    /// The page of the VM's stolen time.
    stolen_time: u64,
    /// The number of its first table among the VM's.
    first: usize,
}

impl Space {
    /// Makes it and reads each descriptor back.
    fn check(
        &self,
        system: &System,
        read: &weir_abi::PackedSystem<'_>,
        (index, vm): (usize, &VmView<'_>),
        owners: &Owners,
        map: impl FnOnce(&mut Builder<'_>) -> Result<(), MapError>,
    ) -> Result<Walked, String> {
        let name = format!("{}'s {}", system.vms[index].name, self.what);
        let skip = self.first as u64 * PAGE;
        let all = read.pages(vm, vm.vm.own);
        let divided = read.is_divided();
        let pa = all.nth_page(self.first as u64).unwrap_or(0);
        let own = read.pages(vm, PageSpan { pa, len: vm.vm.own.len.saturating_sub(skip) });
        let count = if divided { own.total() as usize } else { TABLES };
        let mut tables = vec![Table::EMPTY; count];
        let root = if divided { pa } else { 0 };
        let builder = if divided {
            Builder::in_pages(&mut tables, &own)
        } else {
            Builder::new(&mut tables, root)
        };
        let mut builder = builder.map_err(|error| format!("{name}: no tables: {error:?}"))?;
        map(&mut builder).map_err(|error| format!("{name} can't be made: {error:?}"))?;
        let used = builder.used();
        let place = |address| if divided { own.index_of(address) } else { Some(address / PAGE) };
        let lookup = |address: u64| place(address).and_then(|place| tables.get(place as usize));
        let engine = system.platform().dma_engine.as_ref();
        let (mut leaves, mut mapped) = (0, 0);
        let mut foreign = Foreign { space: name.clone(), pages: 0, first: 0 };
        let mut stray = |page: u64| {
            if foreign.pages == 0 {
                foreign.first = page;
            }
            foreign.pages += 1;
        };
        let pages =
            |leaf: &walk::Leaf| (leaf.output..leaf.output + leaf.len).step_by(PAGE as usize);
        walk::leaves(root, &lookup, &mut |leaf: walk::Leaf| {
            let is_in = |device: &Range<u64>| {
                device.start <= leaf.output && leaf.output + leaf.len <= device.end
            };
            if leaf.attributes == self.ram {
                leaves += 1;
                for page in pages(&leaf) {
                    if owners.get(&page) == Some(&(index + 1, Use::Ram)) {
                        mapped += 1;
                    } else {
                        stray(page);
                    }
                }
            } else if (leaf.input, leaf.output, leaf.len, leaf.attributes)
                == (vm.vm.stolen_time, self.stolen_time, PAGE, stage2::READ_ONLY_WINDOW)
            {
                let owner = if divided { index + 1 } else { 0 };
                if owners.get(&leaf.output) != Some(&(owner, Use::Kept)) {
                    stray(leaf.output);
                }
            } else if leaf.attributes == stage2::WINDOW {
                // The broker sees the VMs that it serves.
                for page in pages(&leaf) {
                    let seen = owners.get(&page).filter(|(_, kind)| *kind == Use::Ram);
                    let seen = seen.and_then(|(owner, _)| read.vm(owner.checked_sub(1)?));
                    let may = seen.and_then(|seen| read.window_attributes(&seen));
                    if read.header.broker != index as u32 || may != Some(leaf.attributes) {
                        stray(page);
                    }
                }
            } else {
                // A device's registers are no page with an owner. EL2 alone drives the DMA engine.
                let is_device = self.devices.iter().any(is_in);
                let is_engines = |page: u64| engine.is_some_and(|engine| engine.base.0 == page);
                let is_its =
                    |page: &u64| is_device && !owners.contains_key(page) && !is_engines(*page);
                for page in pages(&leaf).filter(|page| !is_its(page)) {
                    stray(page);
                }
            }
        })
        .map_err(|damage| format!("{name} is damaged: {damage:?}"))?;
        let ram = owners.values().filter(|owner| **owner == (index + 1, Use::Ram)).count() as u64;
        if foreign.pages == 0 && mapped != ram {
            return Err(format!("{name} maps {mapped} pages of RAM of {ram}"));
        }
        let mut outside = (0..used as u64).filter(|_| divided).filter_map(|n| own.nth_page(n));
        match outside.find(|page| owners.get(page) != Some(&(index + 1, Use::Kept))) {
            Some(page) => Err(format!("{name} has a table at {}, which is not its own", Pa(page))),
            None => Ok(Walked { leaves, used, foreign }),
        }
    }
}

#[cfg(test)]
mod tests;
