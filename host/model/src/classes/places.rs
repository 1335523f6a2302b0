//! The part of a platform file that describes where a line lies in the cache and in DRAM.

use super::groups::{self, Group, beyond};
use super::part::Part;
use crate::board::RamRange;
use crate::diagnostics::Code;
use crate::document::Reader;
use crate::keys::board::{self, Platform};
use crate::keys::page_classes::{self as keys, Dram};
use crate::object::Object;
use crate::ranges::overlap;
use crate::table::At;
use schemars::JsonSchema;
use serde::Serialize;
use std::{collections::BTreeSet, ops::Range};
use weir_abi::{ADDRESS_LIMIT, PAGE};
use weir_paging::classes::{
    BadGeometry, ClassSet, Geometry, MAX_BANK_BITS, PageClass, PageClasses, Pages,
};
use weir_units::{Bytes, Pa};

/// The last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLevelCache {
    /// Its size.
    pub size: Bytes,
    /// Lines of a set.
    pub ways: u64,
    /// Whether the cores' ID registers describe it.
    pub in_registers: bool,
    /// Bytes of a line.
    pub line: Bytes,
}

/// An address map of the DRAM controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DramMap {
    /// The name.
    pub name: String,
    /// For each bit of a bank's number the address bits that it is the XOR of.
    pub banks: Vec<u64>,
}

/// A TLB, or one level of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tlb {
    /// What it is: `core`, `smmu`.
    pub name: String,
    /// Its sets, a power of two; the bits of the page's number choose one.
    pub sets: u16,
}

/// The shortest line that the models of caches follow.
const MIN_LINE: Bytes = Bytes(16);

/// Where a line lies, and where RAM lies besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The last-level cache, if the platform describes one.
    pub cache: Option<LastLevelCache>,
    /// Address maps of the DRAM controller, the default first.
    pub dram: Vec<DramMap>,
    /// TLBs with sets that can be chosen.
    pub tlbs: Vec<Tlb>,
    /// Names for colors and banks.
    pub groups: Vec<Group>,
    /// RAM at other addresses than the first.
    pub more_memory: Vec<RamRange>,
    /// Why this version of weir does not run there.
    pub planned: Option<String>,
}

impl Places {
    /// The geometry with DRAM map number `map`.
    #[must_use]
    pub fn geometry(&self, map: usize) -> Geometry {
        let mut geometry = Geometry::NONE;
        if let Some(cache) = &self.cache {
            geometry.colors = Geometry::color_bits(cache.size.0, cache.ways, PAGE).unwrap_or(0);
        }
        let banks = self.dram.get(map).map_or(&[][..], |map| map.banks.as_slice());
        geometry.banks.iter_mut().zip(banks).for_each(|(slot, mask)| *slot = *mask);
        geometry
    }
}

/// Codes of faults that can follow from a value that is no value of its key.
pub(crate) const FOLLOWS: [Code; 3] =
    [Code::PlatformGeometry, Code::PlatformGeometry, Code::PlatformGeometry];

impl Places {
    /// What a platform file has of `[cache]`, `[[dram]]`, `[[tlb]]`, `[[group]]`, `more` and
    /// `planned`.
    pub(crate) fn of(raw: &Platform, reader: &mut Reader<'_>) -> Self {
        let cache = raw.cache.as_ref().and_then(|raw| cache(raw, reader));
        let dram = dram(&raw.dram, cache, reader);
        let groups = groups::all(&raw.group, reader.file, reader.faults);
        let places = Self {
            cache,
            dram,
            groups: groups.iter().map(|(_, group)| group.clone()).collect(),
            tlbs: tlbs(&raw.tlb, reader),
            more_memory: more(&raw.memory, reader),
            planned: raw.planned.clone(),
        };
        // With half a geometry nothing is known of what follows from it.
        if places.cache.is_some() == raw.cache.is_some()
            && places.dram.len() == raw.dram.len()
            && places.more_memory.len() == raw.memory.more.len()
        {
            coverage(raw, &places, reader);
            if (0..places.dram.len().max(1))
                .all(|map| PageClasses::new(&places.geometry(map)).is_ok())
            {
                group_numbers(&groups, &places, reader);
            }
        }
        places
    }
}

fn cache(
    At { value: raw, span }: &At<keys::Cache>,
    reader: &mut Reader<'_>,
) -> Option<LastLevelCache> {
    let keys::Cache { size, ways, line, page, in_registers } = raw;
    let of = page.as_ref().map_or(PAGE, |page| page.value.0);
    let way = size.0 / (*ways).max(1);
    let mut wrong = |span, message: String, help: &str| {
        reader.fault(Code::PlatformGeometry, span, message, help);
        None
    };
    if !line.value.0.is_power_of_two() || line.value < MIN_LINE {
        let help = format!("give a power of two, {MIN_LINE} or more, from the core's manual");
        let message = format!("[cache]: `line` is {}, not a size that weir models", line.value);
        return wrong(&line.span, message, &help);
    }
    if line.value.0 > of || !way.is_multiple_of(line.value.0) {
        let message =
            format!("[cache]: lines of {} make no cache of {size} with {ways} ways", line.value);
        return wrong(span, message, "write the values of the L2 or L3 from the core's manual");
    }
    match Geometry::color_bits(size.0, *ways, of) {
        Ok(_) => Some(LastLevelCache {
            size: *size,
            ways: *ways,
            in_registers: *in_registers,
            line: line.value,
        }),
        Err(BadGeometry::Page(page_size)) => {
            let message = format!(
                "[cache]: `page` is {} (weir maps pages of {})",
                Bytes(page_size),
                Bytes(PAGE)
            );
            let span = page.as_ref().map_or(span, |page| &page.span);
            let help = "leave `page` out, or write \"4KiB\"";
            reader.fault(Code::PlatformGeometry, span, message, help);
            None
        }
        Err(_) => {
            let message = format!(
                "[cache]: a way of {size} / {ways} is no power of two of pages, so its pages have \
                 no colors"
            );
            let help = "leave out [cache] if the cache is no larger than its ways times a page";
            wrong(span, message, help)
        }
    }
}

fn dram(raw: &[At<Dram>], cache: Option<LastLevelCache>, reader: &mut Reader<'_>) -> Vec<DramMap> {
    let mut maps: Vec<DramMap> = Vec::new();
    for At { value: Dram { name, banks: rows }, span } in raw {
        if maps.iter().any(|known| known.name == name.value) {
            let message = format!("{}: two maps have this name", Object::new("dram", name));
            reader.fault(Code::Twice, &name.span, message, "give one another name");
        }
        let mut wrong = |span: &Range<usize>, wrong: String, help: &str| {
            let message = format!("{}: {wrong}", Object::new("dram", name));
            reader.fault(Code::PlatformGeometry, span, message, help);
        };
        if rows.is_empty() {
            let help = "leave this [[dram]] out, or list the address bits of each bank bit";
            wrong(&rows.span, "`banks` is empty, so it distinguishes no banks".to_owned(), help);
            continue;
        }
        if rows.len() > MAX_BANK_BITS {
            let message = format!("{} bank bits (weir supports {MAX_BANK_BITS})", rows.len());
            wrong(&rows.span, message, "leave out those of other ranks or channels");
            continue;
        }
        let row = |index: usize| rows.get(index).map_or(span.clone(), |row| row.span.clone());
        let twice = |bits: &[u64]| {
            let mut seen = BTreeSet::new();
            bits.is_empty() || !bits.iter().all(|bit| seen.insert(bit))
        };
        if let Some(index) = rows.iter().position(|row| twice(&row.value)) {
            let broken = BadGeometry::Bank(index);
            let (span, message, help) = describe(broken, &Places::default(), row, span);
            wrong(&span, message, help);
            continue;
        }
        let xor = |bits: &At<Vec<u64>>| bits.iter().fold(0, |mask, bit| mask | 1 << bit.min(&63));
        let banks: Vec<u64> = rows.iter().map(xor).collect();
        let dram = vec![DramMap { name: name.value.clone(), banks }];
        let places = Places { cache, dram, ..Places::default() };
        // A cache that has too many colors alone is `coverage`'s.
        let colors = Geometry { colors: places.geometry(0).colors, ..Geometry::NONE };
        if let Err(broken) = PageClasses::new(&places.geometry(0))
            && PageClasses::new(&colors).is_ok()
        {
            let (span, message, help) = describe(broken, &places, row, span);
            wrong(&span, message, help);
            continue;
        }
        maps.extend(places.dram);
    }
    maps
}

fn tlbs(raw: &[At<keys::Tlb>], reader: &mut Reader<'_>) -> Vec<Tlb> {
    let mut tlbs = Vec::new();
    for At { value: keys::Tlb { name, entries, ways }, span } in raw {
        let sets = entries / (*ways).max(1);
        if sets * ways != *entries || !sets.is_power_of_two() || sets < 2 {
            let message = format!(
                "{}: {entries} entries in {ways} ways are no power of two of sets",
                Object::new("tlb", name)
            );
            let help = "leave out a TLB that is fully associative";
            reader.fault(Code::PlatformGeometry, span, message, help);
            continue;
        }
        tlbs.push(Tlb { name: name.clone(), sets: sets as u16 });
    }
    tlbs
}

/// What a group names is on the board, with one DRAM map at least.
fn group_numbers(groups: &[(&keys::Group, Group)], places: &Places, reader: &mut Reader<'_>) {
    let maps = 0..places.dram.len().max(1);
    let maps: Vec<PageClasses> =
        maps.filter_map(|map| PageClasses::new(&places.geometry(map)).ok()).collect();
    for (raw, group) in groups {
        let parts =
            [(Part::Colors, &raw.colors, &group.colors), (Part::Banks, &raw.banks, &group.banks)];
        for (part, key, numbers) in parts {
            let (Some(key), Some(numbers)) = (key, numbers) else { continue };
            let mut wrong = maps.iter().map(|classes| beyond(part, classes, numbers));
            if let Some(Some((number, help))) = wrong.next()
                && wrong.all(|wrong| wrong.is_some())
            {
                let message = format!(
                    "{}: the board has no {} {number}",
                    Object::group(&group.name),
                    part.one()
                );
                reader.fault(Code::PageClassUnknown, &key.span, message, help);
            }
        }
    }
}

/// Every page class has pages: a bit that is the same in all of RAM chooses nothing.
fn coverage(raw: &Platform, places: &Places, reader: &mut Reader<'_>) {
    let range = |base: Pa, size: Bytes| base.0..base.0.saturating_add(size.0);
    let more = places.more_memory.iter().map(|memory| range(memory.base, memory.size));
    let pools: Vec<_> = [range(raw.memory.base, raw.memory.size)].into_iter().chain(more).collect();
    let cache = raw.cache.as_ref().map_or(0..0, |cache| cache.span.clone());
    for map in 0..places.dram.len().max(1) {
        let Ok(classes) = PageClasses::new(&places.geometry(map)) else {
            let message = "[cache]: more than 256 colors, or some above 40 address bits";
            let help = "write the values of the L2 or L3 from the core's manual";
            reader.fault(Code::PlatformGeometry, &cache, message, help);
            return;
        };
        let empty = |class: &PageClass| {
            let set = ClassSet::of([*class]).unwrap_or(ClassSet::ONE);
            pools.iter().all(|pool| Pages::new(&classes, set, pool.clone()).total() == 0)
        };
        let empty = classes.iter().filter(empty).count();
        if empty > 0 {
            let span = raw.dram.get(map).map_or(&cache, |map| &map.span);
            let message = format!(
                "the platform: {empty} of {} page classes have no page: there are more colors and \
                 banks than the bits that differ in RAM distinguish",
                classes.count()
            );
            let help = "leave out the bits that are the same in all of [memory]";
            reader.fault(Code::PlatformGeometry, span, message, help);
        }
    }
}

fn more(raw: &board::Memory, reader: &mut Reader<'_>) -> Vec<RamRange> {
    let first = raw.base.0..raw.base.0.saturating_add(raw.size.0);
    let mut taken = vec![first];
    let mut more = Vec::new();
    for At { value: board::More { base, size }, span } in &raw.more {
        let end = base.0.checked_add(size.0).filter(|end| *end <= ADDRESS_LIMIT);
        let is_whole = (base.0 | size.0).is_multiple_of(PAGE) && size.0 > 0;
        let piece = end.filter(|_| is_whole).map(|end| base.0..end);
        let is_apart = |piece: &Range<u64>| taken.iter().all(|known| !overlap(known, piece));
        if let Some(piece) = piece.filter(is_apart) {
            taken.push(piece);
            more.push(RamRange { base: *base, size: *size });
        } else {
            let message =
                "[memory]: this part of `more` is not whole pages, apart and below 40 bits";
            reader.fault(Code::Unaligned, span, message, "use multiples of 4KiB");
        }
    }
    more
}

/// What is wrong with a geometry: where, what, and what to do.
fn describe(
    broken: BadGeometry,
    places: &Places,
    row: impl Fn(usize) -> Range<usize>,
    whole: &Range<usize>,
) -> (Range<usize>, String, &'static str) {
    match broken {
        BadGeometry::Bank(index) => {
            let message = format!("bank bit {index} has no address bit, or the same twice");
            (row(index), message, "list the address bits that it is the XOR of, each once")
        }
        BadGeometry::Dependent(index) => {
            let message =
                format!("bank bit {index} is the XOR of some before it: it distinguishes no banks");
            (row(index), message, "leave it out, or correct it by the controller's manual")
        }
        BadGeometry::TooMany(rank) => {
            let colors = places.geometry(0).colors.count_ones();
            let message = format!(
                "{rank} independent bits choose color ({colors} of them) and bank: more than the 8 \
                 that weir can divide by"
            );
            (whole.clone(), message, "leave out bank bits, the highest first")
        }
        BadGeometry::Page(_) | BadGeometry::Cache | BadGeometry::Color(_) => {
            let message = "the cache has colors above 40 address bits".to_owned();
            (whole.clone(), message, "write the values of the L2 or L3 from the core's manual")
        }
    }
}
