//! Where the hypervisor's statics lie in the machine's memory: its ELF file gives their place in
//! the image, the image gives where that is, or where the hypervisor moves to (`Stage1::move_in`).
//! What is not in the image file, `.bss` and the stacks, is at the end of the image in memory.

use super::ram::Ram;
use object::{
    Endianness, Object, ObjectSymbol,
    elf::{FileHeader64, PT_LOAD},
    read::elf::{ElfFile, ProgramHeader},
};
use std::{collections::BTreeMap, io, ops::Range};
use weir_abi::Damage;
use weir_abi::PAGE;
use weir_abi::PackedSystem;
use weir_abi::TABLES_LIMIT;
use weir_units::Pa;

/// The arm64 Image header, in which the linked and the built hypervisor differ.
const IMAGE_HEADER: u64 = 64;

/// The statics of the hypervisor in one image, but for those that lie in VMs' page classes.
#[derive(Debug)]
pub struct Statics {
    /// Where each page of the hypervisor is while VMs run.
    pages: Vec<Pa>,
    /// Places in the hypervisor.
    symbols: BTreeMap<String, Range<u64>>,
    observed: bool,
    /// One above the last byte of RAM that the system uses.
    memory_end: Pa,
}

/// A static in the machine's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticMemory {
    /// Its parts, none of which crosses the end of a page: where each is, and its bytes.
    parts: Vec<(Pa, usize)>,
}

impl StaticMemory {
    /// Made of these parts.
    #[cfg(test)]
    pub fn of(parts: Vec<(Pa, usize)>) -> Self {
        Self { parts }
    }

    /// Its parts: where each is, and its bytes.
    #[cfg(test)]
    pub fn parts(&self) -> &[(Pa, usize)] {
        &self.parts
    }

    /// Physical address of its first byte.
    pub fn address(&self) -> Option<Pa> {
        self.address_at(0)
    }

    /// Physical address of its byte `offset`.
    pub fn address_at(&self, offset: usize) -> Option<Pa> {
        let mut before = 0;
        self.parts.iter().find_map(|&(pa, len)| {
            let within = offset - before;
            before += len;
            (within < len).then_some(Pa(pa.0 + within as u64))
        })
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, len)| len).sum()
    }

    /// Fills `into` with its first bytes; see [`Ram::read`].
    ///
    /// # Errors
    /// `InvalidInput` when it has fewer or is not all in RAM.
    pub fn read(&self, ram: &Ram, into: &mut [u8]) -> io::Result<()> {
        self.read_at(ram, 0, into)
    }

    /// Fills `into` with its bytes from `offset` on.
    ///
    /// # Errors
    /// As for [`StaticMemory::read`].
    pub fn read_at(&self, ram: &Ram, offset: usize, into: &mut [u8]) -> io::Result<()> {
        let (mut skipped, mut rest) = (offset, into);
        for &(pa, len) in &self.parts {
            let within = skipped.min(len);
            skipped -= within;
            let (piece, behind) = rest.split_at_mut((len - within).min(rest.len()));
            if !piece.is_empty() {
                ram.read(Pa(pa.0 + within as u64), piece)?;
            }
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let few =
            format!("a static of {} bytes has {} less than asked for", self.len(), rest.len());
        Err(io::Error::new(io::ErrorKind::InvalidInput, few))
    }
}

impl Statics {
    /// Of the hypervisor that is linked in `elf` and built into `image`.
    ///
    /// # Errors
    /// A sentence about which of the two is not what it should be.
    pub fn new(elf: &[u8], image: &[u8], gic_v2: bool) -> Result<Self, String> {
        let file = ElfFile::<FileHeader64<Endianness>>::parse(elf)
            .map_err(|error| format!("the hypervisor's ELF file: {error}"))?;
        let endian = file.endian();
        let segments = || {
            let loaded = file.elf_program_headers().iter();
            loaded.filter(|header| header.p_type(endian) == PT_LOAD && header.p_memsz(endian) > 0)
        };
        let bounds = segments().map(|header| {
            let start = header.p_vaddr(endian);
            (start, start.saturating_add(header.p_memsz(endian)))
        });
        let (start, end) = bounds.fold((u64::MAX, 0), |(start, end), segment| {
            (start.min(segment.0), end.max(segment.1))
        });
        let length =
            end.checked_sub(start).and_then(|length| length.checked_next_multiple_of(PAGE));
        let length = length.ok_or("the hypervisor's ELF file has no segments")?;
        // Pages with contents in the image file: the packed system follows them.
        let mut kept = 0;
        for header in segments() {
            let data = header.data(endian, elf).unwrap_or_default();
            let place = header.p_vaddr(endian) - start;
            if data.is_empty() {
                // It may begin behind the end of the file.
                continue;
            }
            kept = kept.max((place + data.len() as u64).next_multiple_of(PAGE));
            let skipped = IMAGE_HEADER.saturating_sub(place) as usize;
            let built = image.get(place as usize..).and_then(|image| image.get(..data.len()));
            if built.and_then(|built| built.get(skipped..)) != data.get(skipped..) {
                return Err("the image has another hypervisor than the one that was built last: \
                            build it again"
                    .into());
            }
        }
        let tables = image.get(kept as usize..).unwrap_or_default();
        let tables = tables.get(..TABLES_LIMIT as usize).unwrap_or(tables);
        let pages = aligned(tables, |tables| {
            let system = PackedSystem::parse(tables, gic_v2).map_err(Damage::message)?;
            let home = |page: u64| {
                let header = system.header;
                if system.is_divided() {
                    system.hypervisor_pages().nth_page(page)
                } else if page * PAGE < kept {
                    header.load_address.checked_add(page * PAGE)
                } else {
                    let end = header.load_address.checked_add(header.image_len)?;
                    end.checked_sub(length - page * PAGE)
                }
            };
            let pages: Option<Vec<Pa>> =
                (0..length / PAGE).map(|page| home(page).map(Pa)).collect();
            Ok::<_, &str>((
                pages.ok_or("the hypervisor has no place to move to")?,
                system.is_observed(),
                Pa(system.header.memory_end),
            ))
        });
        let (pages, observed, memory_end) = pages.map_err(|error| format!("the image: {error}"))?;
        let symbols = file.symbols().filter_map(|symbol| {
            let at = symbol.address().checked_sub(start)?;
            Some((symbol.name().ok()?.to_owned(), at..at.checked_add(symbol.size())?))
        });
        Ok(Self { pages, symbols: symbols.collect(), observed, memory_end })
    }

    /// One above the last byte of RAM that the system uses.
    pub const fn memory_end(&self) -> Pa {
        self.memory_end
    }

    /// The static that is exported as `symbol`; `None` if there is none, or an empty one.
    pub fn find(&self, symbol: &str) -> Option<StaticMemory> {
        let Range { start, end } = self.symbols.get(symbol)?.clone();
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let page = self.pages.get((at / PAGE) as usize)?;
            let next = (at - at % PAGE + PAGE).min(end);
            parts.push((Pa(page.0 + at % PAGE), (next - at) as usize));
            at = next;
        }
        (!parts.is_empty()).then_some(StaticMemory { parts })
    }

    /// Whether the image keeps guests from accesses that QEMU's plug-ins do not see.
    pub fn is_observed(&self) -> bool {
        self.observed
    }
}

/// Lends `bytes` at a multiple of 8, where [`PackedSystem::parse`] can read them.
fn aligned<R>(bytes: &[u8], body: impl FnOnce(&[u8]) -> R) -> R {
    let mut room = vec![0; bytes.len() + 8];
    let offset = room.as_ptr().align_offset(8);
    match room.get_mut(offset..offset.saturating_add(bytes.len())) {
        Some(place) => {
            place.copy_from_slice(bytes);
            body(place)
        }
        None => body(&[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::platform::RamRange;
    use weir_units::Bytes;

    /// Statics of a hypervisor in the third, the first and the last page of RAM.
    fn statics() -> Statics {
        let symbols =
            [("one", 0x10..0x20), ("two", 0xff8..0x1008), ("out", 0x2ff0..0x3008), ("empty", 8..8)];
        Statics {
            pages: [0x4000_2000, 0x4000_0000, 0x4000_3000].map(Pa).to_vec(),
            symbols: symbols.map(|(name, range)| (name.to_owned(), range)).into(),
            observed: true,
            memory_end: Pa(0x4000_4000),
        }
    }

    #[test]
    fn a_static_is_read_from_the_pages_that_it_lies_in() {
        let found = |name| statics().find(name);
        assert_eq!(found("one").and_then(|one| one.address()), Some(Pa(0x4000_2010)));
        let two = found("two").expect("a static");
        assert_eq!(
            (two.len(), &two.parts[..]),
            (16, &[(Pa(0x4000_2ff8), 8), (Pa(0x4000_0000), 8)][..])
        );
        for name in ["out", "empty", "none"] {
            assert_eq!(found(name), None, "{name}");
        }
        let ram =
            Ram::new([RamRange { base: Pa(0x4000_0000), size: Bytes(0x4000) }], Bytes(0x4000))
                .expect("memory");
        ram.write_for_tests(Pa(0x4000_2ff8), b"the weir");
        ram.write_for_tests(Pa(0x4000_0000), b" divides");
        let mut bytes = [0; 13];
        two.read(&ram, &mut bytes).expect("in RAM");
        assert_eq!(&bytes, b"the weir divi");
        let error = two.read(&ram, &mut [0; 17]).expect_err("it is shorter");
        assert!(error.to_string().contains("16 bytes has 1 less"), "{error}");
    }

    #[test]
    fn what_is_no_hypervisor_is_refused() {
        let error = Statics::new(b"no ELF file", &[], false).expect_err("refused");
        assert!(error.contains("ELF file"), "{error}");
    }
}
