//! Values from the hypervisor's ELF file: sizes, and where QEMU's plug-in finds EL2.

use std::{fs, ops::Range, path::Path};

use object::{
    Endianness, Object, ObjectSection, ObjectSymbol,
    elf::{FileHeader64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS},
    read::elf::{ElfFile, SectionHeader},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use weir_image::{Failure, Result, failure::Context};

/// Bytes in memory, by what the sections are for. Each section that is loaded counts once, with the
/// padding inside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionSizes {
    /// Executable sections. It is the `.text` line of `size -A`; the default (Berkeley) form of
    /// `size` adds the read-only data to it.
    #[serde(rename = "text_bytes")]
    pub text: u64,
    /// Sections that are neither executable nor writable.
    #[serde(rename = "rodata_bytes")]
    pub rodata: u64,
    /// Writable sections with contents in the file.
    #[serde(rename = "data_bytes")]
    pub data: u64,
    /// Writable sections without contents: `.bss` and the stacks.
    #[serde(rename = "bss_bytes")]
    pub bss: u64,
}

/// A function or a static.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Symbol {
    /// Its name, demangled.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// The hypervisor as it is linked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedHypervisor {
    /// Sizes of its sections.
    pub sizes: SectionSizes,
    /// Its virtual addresses.
    pub addresses: Range<u64>,
    /// Virtual address of its exception vectors.
    pub vectors: u64,
    /// Its functions and statics, the largest first.
    pub symbols: Vec<Symbol>,
    /// The compiler that made it, from its debug information; `unknown` without.
    pub compiler: String,
}

/// The compiler that debug information names, such as `rustc 1.95.0 (59807616e 2026-04-14)`.
fn compiler(strings: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"(rustc version ";
    let start = strings.windows(NAME.len()).position(|bytes| bytes == NAME)? + NAME.len();
    let text = strings[start..].split(|byte| *byte == 0).next()?;
    Some(format!("rustc {}", std::str::from_utf8(text).ok()?.strip_suffix(')')?))
}

impl LinkedHypervisor {
    /// Reads the ELF file at `path`, which must have its symbols.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the file cannot be read or is not the hypervisor.
    pub fn read(path: &Path) -> Result<Self> {
        let data = fs::read(path).context(|| format!("read {}", path.display()))?;
        Self::parse(&data).map_err(|error| {
            Failure::environment(format!("{} is not the hypervisor: {error}", path.display()))
        })
    }

    fn parse(data: &[u8]) -> std::result::Result<Self, String> {
        let file =
            ElfFile::<FileHeader64<Endianness>>::parse(data).map_err(|error| error.to_string())?;
        let mut sizes = SectionSizes::default();
        let (mut start, mut end) = (u64::MAX, 0);
        for section in file.sections() {
            let header = section.elf_section_header();
            let flags = header.sh_flags(file.endian());
            let has = |flag: u32| flags & u64::from(flag) != 0;
            if !has(SHF_ALLOC) || section.size() == 0 {
                continue;
            }
            *if has(SHF_EXECINSTR) {
                &mut sizes.text
            } else if !has(SHF_WRITE) {
                &mut sizes.rodata
            } else if header.sh_type(file.endian()) == SHT_NOBITS {
                &mut sizes.bss
            } else {
                &mut sizes.data
            } += section.size();
            start = start.min(section.address());
            end = end.max(section.address().saturating_add(section.size()));
        }
        if start >= end {
            return Err("it has no sections to load".to_owned());
        }
        let vectors = file
            .symbols()
            .find(|symbol| symbol.name() == Ok("vectors"))
            .ok_or("it has no symbol `vectors`")?
            .address();
        let named = file.symbols().filter(|symbol| symbol.size() > 0);
        let mut symbols: Vec<Symbol> = named
            .filter_map(|symbol| {
                Some(Symbol { name: demangle(symbol.name().ok()?), bytes: symbol.size() })
            })
            .collect();
        symbols.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let strings = file.section_by_name(".debug_str").and_then(|section| section.data().ok());
        let compiler = strings.and_then(compiler).unwrap_or_else(|| "unknown".to_owned());
        Ok(Self { sizes, addresses: start..end, vectors, symbols, compiler })
    }
}

/// Returns the path of a symbol in one of Rust's manglings, without its hash; other names as they
/// are.
pub(crate) fn demangle(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{
        Architecture, BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
        write::{Object as Writer, StandardSection, Symbol, SymbolSection},
    };

    /// An object file with sections of known sizes; `vectors` is 16 bytes into the first.
    fn sample(symbol: &[u8]) -> Vec<u8> {
        let mut file = Writer::new(BinaryFormat::Elf, Architecture::Aarch64, Endianness::Little);
        let text = file.section_id(StandardSection::Text);
        file.append_section_data(text, &[0; 100], 4);
        let more = file.add_section(vec![], b".vectors".to_vec(), SectionKind::Text);
        file.append_section_data(more, &[0; 28], 4);
        let rodata = file.section_id(StandardSection::ReadOnlyData);
        file.append_section_data(rodata, &[1; 40], 8);
        let data = file.section_id(StandardSection::Data);
        file.append_section_data(data, &[2; 24], 8);
        let bss = file.section_id(StandardSection::UninitializedData);
        file.append_section_bss(bss, 4096, 16);
        let strings = file.add_section(vec![], b".debug_str".to_vec(), SectionKind::Debug);
        let names = b"main\0clang LLVM (rustc version 1.95.0 (59807616e 2026-04-14))\0core\0";
        file.append_section_data(strings, names, 1);
        let comment = file.add_section(vec![], b".comment".to_vec(), SectionKind::OtherString);
        file.append_section_data(comment, b"nothing", 1);
        file.add_symbol(Symbol {
            name: symbol.to_vec(),
            value: 16,
            size: 12,
            kind: SymbolKind::Label,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        file.write().unwrap()
    }

    #[test]
    fn each_loaded_section_counts_in_one_place() {
        let image = LinkedHypervisor::parse(&sample(b"vectors")).unwrap();
        assert_eq!(image.sizes, SectionSizes { text: 128, rodata: 40, data: 24, bss: 4096 });
        assert_eq!(image.vectors, 16);
        assert_eq!(image.symbols, [super::Symbol { name: "vectors".to_owned(), bytes: 12 }]);
        assert_eq!(image.compiler, "rustc 1.95.0 (59807616e 2026-04-14)");
        assert_eq!(compiler(b"clang version 14"), None);
    }

    #[test]
    fn a_file_that_is_not_the_hypervisor_is_refused() {
        assert!(LinkedHypervisor::parse(b"no ELF").is_err());
        assert!(LinkedHypervisor::parse(&sample(b"others")).unwrap_err().contains("vectors"));
    }
}
