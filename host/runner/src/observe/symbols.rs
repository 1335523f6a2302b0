//! The names of the functions of an ELF file.

use crate::elf::demangle;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use std::{fs, ops::Range, path::Path};

/// Functions by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(Vec<(Range<u64>, String)>);

impl Symbols {
    /// Reads the functions of the ELF file at `path`; none if it cannot be read.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_default();
        let Ok(file) = object::File::parse(bytes.as_slice()) else { return Self::default() };
        let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        let function = |symbol: object::Symbol<'_, '_>| {
            let end = symbol.address().saturating_add(symbol.size().max(1));
            Some((symbol.address()..end, demangle(symbol.name().ok()?)))
        };
        let mut all: Vec<_> = functions.filter_map(function).collect();
        all.sort_by_key(|(range, _)| range.start);
        Self(all)
    }

    /// Returns the function that has this address.
    pub fn at(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, name) = self.0.get(behind.checked_sub(1)?)?;
        range.contains(&address).then_some(name)
    }

    /// Holds these functions.
    #[cfg(test)]
    pub fn of(functions: &[(Range<u64>, &str)]) -> Self {
        Self(functions.iter().map(|(range, name)| (range.clone(), (*name).to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_legacy_mangling_are_readable() {
        for (symbol, name) in [
            (
                "_ZN15weir_hypervisor4arch3gic2v39Interface4save17he03567995aa7ce2dE",
                "weir_hypervisor::arch::gic::v3::Interface::save",
            ),
            (
                "_ZN4spin5mutex4spin22SpinMutex$LT$T$C$R$GT$4lock17h63985c0ab5abf37fE",
                "spin::mutex::spin::SpinMutex<T,R>::lock",
            ),
            ("memcpy", "memcpy"),
            ("_ZN9", "_ZN9"),
            ("_ZN99weirE", "_ZN99weirE"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn an_address_is_of_the_function_that_contains_it() {
        let symbols = Symbols::of(&[(0x10..0x20, "one"), (0x20..0x28, "two")]);
        let at = [0xf, 0x10, 0x1f, 0x20, 0x28].map(|address| symbols.at(address));
        assert_eq!(at, [None, Some("one"), Some("one"), Some("two"), None]);
    }
}
