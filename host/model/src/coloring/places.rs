//! The part of a platform file that describes where a line lies in the cache and in DRAM.

use super::groups::{self, Group, beyond};
use super::owner::Part;
use super::requests::{self, RawGroup};
use crate::board::Memory;
use crate::diagnostics::Code;
use crate::document::{At, Values, number};
use crate::fault::{Fault, Faults, File};
use std::{collections::BTreeSet, ops::Range};
use toml::de::DeTable;
use weir_abi::{ADDRESS_LIMIT, PAGE};
use weir_paging::cells::{Broken, Cell, CellSet, Cells, Geometry, MAX_BANK_BITS, Pages};
use weir_units::{Bytes, Pa};

/// The last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its size.
    pub size: Bytes,
    /// Lines of a set.
    pub ways: u64,
    /// Bytes of a line.
    pub line: Bytes,
}

/// An address map of the DRAM controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DramMap {
    /// Its name.
    pub name: String,
    /// For each bit of a bank's number the address bits whose XOR it is.
    pub banks: Vec<u64>,
}

/// A TLB, or one level of it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub cache: Option<Cache>,
    /// Address maps of the DRAM controller, the default first.
    pub dram: Vec<DramMap>,
    /// TLBs whose sets can be chosen.
    pub tlbs: Vec<Tlb>,
    /// Names for colors and banks.
    pub groups: Vec<Group>,
    /// RAM at other addresses than the first.
    pub more_memory: Vec<Memory>,
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
    [Code::PlatformCache, Code::PlatformGeometry, Code::PlatformTlb];

/// Reads `[cache]`, `[[dram]]`, `[[group]]`, `more` and `planned`.
pub(crate) fn read(table: &DeTable<'_>, file: &File, faults: &mut Faults) -> Places {
    let mut reader = Reader { file, faults };
    let cache = reader.cache(table);
    let dram = reader.dram(table, cache);
    let raw = requests::groups(table);
    let groups = groups::all(&raw, file, reader.faults);
    let numbers: Vec<_> = groups.iter().map(|(raw, group)| (*raw, group.clone())).collect();
    let places = Places {
        cache,
        dram,
        groups: groups.into_iter().map(|(_, group)| group).collect(),
        tlbs: reader.tlbs(table),
        more_memory: reader.more(table),
        planned: table.text("planned").map(|planned| planned.value),
    };
    // With half a geometry nothing is known of what follows from it.
    let cache_is_known = places.cache.is_some() || table.inner("cache").is_none();
    let more = table.inner("memory").map_or(0, |(memory, _)| memory.tables("more").len());
    let memory_is_known = places.more_memory.len() == more;
    let dram_is_known = places.dram.len() == table.tables("dram").len();
    if cache_is_known && dram_is_known && memory_is_known {
        reader.coverage(table, &places);
        if (0..places.dram.len().max(1)).all(|map| Cells::new(&places.geometry(map)).is_ok()) {
            reader.group_numbers(&numbers, &places);
        }
    }
    places
}

struct Reader<'a> {
    file: &'a File,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    fn fault(&mut self, code: Code, span: Range<usize>, message: String, help: &str) {
        self.faults.push(Fault::new(code, self.file, span, message).label("this").help(help));
    }

    fn cache(&mut self, table: &DeTable<'_>) -> Option<Cache> {
        let (cache, span) = table.inner("cache")?;
        let (size, ways, line) =
            (cache.size("size")?.value, cache.number("ways")?.value, cache.size("line")?.value);
        let page = cache.size("page");
        let of = page.as_ref().map_or(PAGE, |page| page.value.0);
        let way = size.0 / ways.max(1);
        if !line.0.is_power_of_two() || line.0 < MIN_LINE.0 {
            let span = cache.size("line").map_or(span, |line| line.span);
            let message = format!("a cache line of {line}");
            let help = format!("give a power of two, {MIN_LINE} or more, from the core's manual");
            self.fault(Code::PlatformCache, span, message, &help);
            return None;
        }
        if line.0 > of || way % line.0.max(1) != 0 {
            let message = format!("lines of {line} make no cache of {size} with {ways} ways");
            self.fault(
                Code::PlatformCache,
                span,
                message,
                "write the values of the L2 or L3 from the core's manual",
            );
            return None;
        }
        match Geometry::color_bits(size.0, ways, of) {
            Ok(_) => Some(Cache { size, ways, line }),
            Err(Broken::Page(page_size)) => {
                let message =
                    format!("weir maps pages of {}, not {}", Bytes(PAGE), Bytes(page_size));
                let span = page.map_or(span, |page| page.span);
                self.fault(Code::PageSize, span, message, "leave `page` out, or write \"4KiB\"");
                None
            }
            Err(_) => {
                let message = format!(
                    "a way of {size} / {ways} is no power of two of pages, so its pages have no colors"
                );
                let help = "leave out [cache] if the cache is no larger than its ways times a page";
                self.fault(Code::PlatformCache, span, message, help);
                None
            }
        }
    }

    fn dram(&mut self, table: &DeTable<'_>, cache: Option<Cache>) -> Vec<DramMap> {
        let mut maps: Vec<DramMap> = Vec::new();
        for (map, span) in table.tables("dram") {
            let Some(name) = map.text("name") else { continue };
            if maps.iter().any(|known| known.name == name.value) {
                let message = format!("two maps are called `{}`", name.value);
                self.fault(Code::NameTwice, name.span.clone(), message, "give one another name");
            }
            let Some(rows) = map.list("banks", |row| {
                let bits = row.get_ref().as_array()?.iter().map(number).collect::<Option<Vec<_>>>();
                Some(At { value: bits?, span: row.span() })
            }) else {
                continue;
            };
            if rows.value.is_empty() {
                let help = "leave this [[dram]] out, or list the address bits of each bank bit";
                let message = format!("the map `{}` distinguishes no banks", name.value);
                self.fault(Code::PlatformGeometry, rows.span, message, help);
                continue;
            }
            if rows.value.len() > MAX_BANK_BITS {
                let message =
                    format!("{} bank bits, but there can be {MAX_BANK_BITS}", rows.value.len());
                self.fault(
                    Code::PlatformGeometry,
                    rows.span,
                    message,
                    "leave out those of other ranks or channels",
                );
                continue;
            }
            let twice = |bits: &[At<u64>]| {
                let mut seen = BTreeSet::new();
                bits.is_empty() || !bits.iter().all(|bit| seen.insert(bit.value))
            };
            if let Some(index) = rows.value.iter().position(|row| twice(&row.value)) {
                let (span, message, help) =
                    describe(Broken::Bank(index), &Places::default(), |_| 0..0, &span);
                let span = rows.value.get(index).map_or(span, |row| row.span.clone());
                self.fault(Code::PlatformGeometry, span, message, help);
                continue;
            }
            let xor = |bits: &Vec<At<u64>>| {
                bits.iter().fold(0, |mask, bit| mask | 1 << bit.value.min(63))
            };
            let banks: Vec<u64> = rows.value.iter().map(|row| xor(&row.value)).collect();
            let places = Places {
                cache,
                dram: vec![DramMap { name: name.value.clone(), banks: banks.clone() }],
                ..Places::default()
            };
            // A cache that has too many colors alone is `coverage`'s.
            let colors = Geometry { colors: places.geometry(0).colors, ..Geometry::NONE };
            if let Err(broken) = Cells::new(&places.geometry(0))
                && Cells::new(&colors).is_ok()
            {
                let row = |index: usize| {
                    rows.value.get(index).map_or(span.clone(), |row| row.span.clone())
                };
                let (span, message, help) = describe(broken, &places, row, &span);
                self.fault(Code::PlatformGeometry, span, message, help);
                continue;
            }
            maps.push(DramMap { name: name.value, banks });
        }
        maps
    }

    fn tlbs(&mut self, table: &DeTable<'_>) -> Vec<Tlb> {
        let mut tlbs = Vec::new();
        for (tlb, span) in table.tables("tlb") {
            let values = tlb.text("name").zip(tlb.number("entries").zip(tlb.number("ways")));
            let Some((name, (entries, ways))) = values else { continue };
            let sets = entries.value / ways.value.max(1);
            if sets * ways.value != entries.value || !sets.is_power_of_two() || sets < 2 {
                let message = format!(
                    "{} entries in {} ways are no power of two of sets",
                    entries.value, ways.value
                );
                self.fault(
                    Code::PlatformTlb,
                    span,
                    message,
                    "leave out a TLB that is fully associative",
                );
                continue;
            }
            tlbs.push(Tlb { name: name.value, sets: sets as u16 });
        }
        tlbs
    }

    /// What a group names is on the board, with one DRAM map at least.
    fn group_numbers(&mut self, groups: &[(&RawGroup, Group)], places: &Places) {
        let maps = 0..places.dram.len().max(1);
        let maps: Vec<Cells> =
            maps.filter_map(|map| Cells::new(&places.geometry(map)).ok()).collect();
        for (raw, group) in groups {
            let parts = [
                (Part::Colors, &raw.colors, &group.colors),
                (Part::Banks, &raw.banks, &group.banks),
            ];
            for (part, key, numbers) in parts {
                let (Some(key), Some(numbers)) = (key, numbers) else { continue };
                let mut wrong = maps.iter().map(|cells| beyond(part, cells, numbers));
                if let Some(Some((number, help))) = wrong.next()
                    && wrong.all(|wrong| wrong.is_some())
                {
                    let message = format!("the board has no {} {number}", part.one());
                    self.fault(Code::PageClassUnknown, key.span.clone(), message, &help);
                }
            }
        }
    }

    /// Every page class has pages: a bit that is the same in all of RAM chooses nothing.
    fn coverage(&mut self, table: &DeTable<'_>, places: &Places) {
        let memory = table.inner("memory").and_then(|(memory, _)| {
            let base = memory.number("base")?.value;
            Some(base..base.saturating_add(memory.size("size")?.value.0))
        });
        let Some(memory) = memory else { return };
        let more = places.more_memory.iter();
        let more = more.map(|memory| memory.base.0..memory.base.0 + memory.size.0);
        let pools: Vec<_> = [memory].into_iter().chain(more).collect();
        for map in 0..places.dram.len().max(1) {
            let Ok(cells) = Cells::new(&places.geometry(map)) else {
                let span = table.inner("cache").map_or(0..0, |(_, span)| span);
                let message =
                    "the cache has more than 256 colors, or some above 40 address bits".to_owned();
                self.fault(
                    Code::PlatformGeometry,
                    span,
                    message,
                    "write the values of the L2 or L3 from the core's manual",
                );
                return;
            };
            let empty = |cell: &Cell| {
                let set = CellSet::of([*cell]).unwrap_or(CellSet::ONE);
                pools.iter().all(|pool| Pages::new(&cells, set, pool.clone()).total() == 0)
            };
            let empty = cells.iter().filter(empty).count();
            if empty > 0 {
                let span = table.tables("dram").get(map).map(|(_, span)| span.clone());
                let span = span.or(table.inner("cache").map(|(_, span)| span)).unwrap_or(0..0);
                let message = format!(
                    "{empty} of {} page classes have no page: there are more colors and banks than the bits that differ in RAM distinguish",
                    cells.count()
                );
                self.fault(
                    Code::PlatformGeometry,
                    span,
                    message,
                    "leave out the bits that are the same in all of [memory]",
                );
            }
        }
    }

    fn more(&mut self, table: &DeTable<'_>) -> Vec<Memory> {
        let Some((memory, _)) = table.inner("memory") else { return Vec::new() };
        let first = memory.number("base").zip(memory.size("size"));
        let mut taken: Vec<_> = first
            .map(|(base, size)| base.value..base.value.saturating_add(size.value.0))
            .into_iter()
            .collect();
        let mut more = Vec::new();
        for (piece, span) in memory.tables("more") {
            let Some((base, size)) = piece.number("base").zip(piece.size("size")) else { continue };
            let end = base.value.checked_add(size.value.0).filter(|end| *end <= ADDRESS_LIMIT);
            let whole = (base.value | size.value.0).is_multiple_of(PAGE) && size.value.0 > 0;
            let free = end.is_some_and(|end| {
                taken.iter().all(|known| end <= known.start || known.end <= base.value)
            });
            if let (Some(end), true, true) = (end, whole, free) {
                taken.push(base.value..end);
                more.push(Memory { base: Pa(base.value), size: size.value });
            } else {
                let message =
                    "this RAM is not whole pages below 40 bits apart from the other".to_owned();
                self.fault(Code::MemoryUnaligned, span, message, "use multiples of 4KiB");
            }
        }
        more
    }
}

/// What is wrong with a geometry: where, what, and what to do.
fn describe(
    broken: Broken,
    places: &Places,
    row: impl Fn(usize) -> Range<usize>,
    whole: &Range<usize>,
) -> (Range<usize>, String, &'static str) {
    match broken {
        Broken::Bank(index) => {
            let message = format!("bank bit {index} has no address bit, or the same twice");
            (row(index), message, "list the address bits whose XOR it is, each once")
        }
        Broken::Dependent(index) => {
            let message =
                format!("bank bit {index} is the XOR of some before it: it distinguishes no banks");
            (row(index), message, "leave it out, or correct it by the controller's manual")
        }
        Broken::TooMany(rank) => {
            let colors = places.geometry(0).colors.count_ones();
            let message = format!(
                "{rank} independent bits choose color ({colors} of them) and bank: more than the 8 that weir can divide by"
            );
            (whole.clone(), message, "leave out bank bits, the highest first")
        }
        Broken::Page(_) | Broken::Cache | Broken::Color(_) => {
            let message = "the cache has colors above 40 address bits".to_owned();
            (whole.clone(), message, "write the values of the L2 or L3 from the core's manual")
        }
    }
}
